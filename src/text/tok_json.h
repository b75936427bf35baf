#ifndef QN_TEXT_TOK_JSON_H
#define QN_TEXT_TOK_JSON_H

#include "text/tok.h"

#include <jansson.h>

/// Parts of tokenizer.json, for tok_json.c. Each takes the part's value (null included) and fills
/// in its fields of t; a type that is not implemented is QN_E_UNSUPPORTED naming it.
enum qn_status qn_tok_json_normalizer(struct qn_tok *t, const json_t *v, struct qn_err *err);
enum qn_status qn_tok_json_pre_tokenizer(struct qn_tok *t, const json_t *v, struct qn_err *err);
enum qn_status qn_tok_json_post_processor(struct qn_tok *t, const json_t *v, struct qn_err *err);
/// Also makes the bytes of all tokens.
enum qn_status qn_tok_json_decoder(struct qn_tok *t, const json_t *v, struct qn_err *err);

/// A member that must be a string; *out borrows.
enum qn_status qn_tok_json_text(const json_t *obj, const char *key, const char **out, size_t *out_n,
                                struct qn_err *err);

#endif
