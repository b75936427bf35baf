#ifndef QN_TEXT_TOKENIZER_H
#define QN_TEXT_TOKENIZER_H

#include "base/buf.h"
#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// BPE tokenizer of the byte-level and the byte-fallback family, from tokenizer.json or GGUF
/// metadata. Immutable after load: any number of threads may encode and decode at once.
struct qn_tok;
struct qn_gguf_source;

/// tokenizer.json (bytes). Anything that is not implemented (model type, normaliser, pre-tokenizer,
/// post-processor, decoder) is QN_E_UNSUPPORTED naming it.
/// @param config  tokenizer_config.json or NULL: bos/eos/pad tokens, add_bos_token.
enum qn_status qn_tok_from_json(const char *text, size_t n, const json_t *config,
                                struct qn_tok **out_tok, struct qn_err *err);

/// The same from GGUF arrays (formats.md 10.4), handed over so that text needs no formats. Strings
/// are read through callbacks and copied.
struct qn_tok_gguf {
    void *ctx;
    const char *model; ///< "gpt2", "llama", "gemma4"
    const char *pre;   ///< tokenizer.ggml.pre or NULL
    size_t n_tokens, n_merges;
    bool (*token)(void *ctx, size_t i, const char **out, size_t *out_len);
    bool (*merge)(void *ctx, size_t i, const char **out, size_t *out_len);
    bool (*score)(void *ctx, size_t i, float *out);    ///< NULL: no scores
    bool (*token_type)(void *ctx, size_t i, int *out); ///< NULL: none
    int64_t bos, eos, unk, pad;                        ///< -1: absent
    const int64_t *more_eos;
    size_t n_more_eos;                      ///< eot, eom
    int add_bos, add_eos, add_space_prefix; ///< -1: key absent
};
enum qn_status qn_tok_from_gguf(const struct qn_tok_gguf *src, struct qn_tok **out_tok,
                                struct qn_err *err);
void qn_tok_free(struct qn_tok *t); // takes NULL

size_t qn_tok_n_tokens(const struct qn_tok *t); ///< largest id + 1
/// -1 when there is none.
int32_t qn_tok_bos(const struct qn_tok *t);
int32_t qn_tok_eos(const struct qn_tok *t);
int32_t qn_tok_pad(const struct qn_tok *t);
bool qn_tok_adds_bos(const struct qn_tok *t);
/// Ids that end a generation as far as the tokenizer knows: eos, and GGUF's end of turn and of
/// message. Borrowed, valid as long as t.
size_t qn_tok_stops(const struct qn_tok *t, const int32_t **out);
/// Id of a token by its exact content, -1 if none (special and ordinary tokens).
int32_t qn_tok_find(const struct qn_tok *t, const char *content, size_t n);
bool qn_tok_is_special(const struct qn_tok *t, int32_t id);
/// The token's own text in the vocabulary's spelling (NULL past the end); for display.
const char *qn_tok_piece(const struct qn_tok *t, int32_t id, size_t *out_len);
/// The raw bytes that the token stands for (one byte for byte tokens; empty for ids without text).
/// buf holds at least qn_tok_max_bytes(t).
size_t qn_tok_bytes(const struct qn_tok *t, int32_t id, char *buf);
size_t qn_tok_max_bytes(const struct qn_tok *t);

struct qn_ids {
    int32_t *v;
    size_t n, cap;
};
void qn_ids_done(struct qn_ids *ids);

enum {
    QN_TOK_ADD_SPECIAL = 1,   ///< run the post-processor (BOS and the like)
    QN_TOK_PARSE_SPECIAL = 2, ///< match added special tokens in text (others always match)
};

/// Encode valid UTF-8 text, appending to out.
/// @param plain  [n] or NULL: bytes with plain[i] != 0 never take part in a special-token match
///               (text that came from message content), whatever the flags. The text is otherwise
///               treated as one string. Where a longer special token is ruled out, a shorter one or
///               one that is not special may match.
/// Time grows about linearly with n. QN_E_INVALID for text that is not UTF-8.
enum qn_status qn_tok_encode(const struct qn_tok *t, const char *text, size_t n,
                             const uint8_t *plain, unsigned flags, struct qn_ids *out,
                             struct qn_err *err);

/// Whole decode, as the reference library's decode does it (invalid bytes become U+FFFD). Ids
/// outside the vocabulary give no text.
enum qn_status qn_tok_decode(const struct qn_tok *t, const int32_t *ids, size_t n,
                             bool skip_special, struct qn_buf *out, struct qn_err *err);

/// Incremental decode: the pieces join to exactly the whole decode of all ids; a character is held
/// until complete. Fixed-size state, no allocation: out must hold qn_detok_max_out(t) bytes.
/// In the byte-fallback family one invalid byte turns its whole run of byte tokens into U+FFFD, so
/// a run is held until it ends; past QN_DETOK_HELD bytes its complete characters are let go, here
/// and in the whole decode alike.
enum {
    QN_DETOK_HELD = 256
};
struct qn_detok {
    const struct qn_tok *tok;
    bool skip_special;
    bool started; ///< a token was seen (the first one may lose its blank)
    bool wrote;   ///< text was given out (leading-blank strip)
    bool bad_run; ///< the run of byte tokens is known to be invalid
    unsigned char held[QN_DETOK_HELD];
    unsigned n_held;
};
void qn_detok_init(struct qn_detok *d, const struct qn_tok *t, bool skip_special);
size_t qn_detok_max_out(const struct qn_tok *t);
/// Text that became certain with this id; returns its length (0 often).
size_t qn_detok_push(struct qn_detok *d, int32_t id, char *out);
/// What the whole decode gives for the bytes still held (U+FFFD).
size_t qn_detok_finish(struct qn_detok *d, char *out);

#endif
