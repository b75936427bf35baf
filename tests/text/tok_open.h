#ifndef QN_TESTS_TOK_OPEN_H
#define QN_TESTS_TOK_OPEN_H

#include "base/status.h"
#include "text/tokenizer.h"

/// Tokenizer from a tokenizer.json (its tokenizer_config.json is not read) or a GGUF file.
enum qn_status qn_test_tok_open(const char *path, struct qn_tok **out_tok, struct qn_err *err);

#endif
