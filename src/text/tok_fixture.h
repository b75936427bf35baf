#ifndef QN_TEXT_TOK_FIXTURE_H
#define QN_TEXT_TOK_FIXTURE_H

#include "text/tokenizer.h"

#include <jansson.h>

/// Two small tokenizers for tests, as tokenizer.json values that a test may change before loading.

/// Byte-level BPE: the 256 bytes with id = value, then he 256, ll 257, hell 258, hello 259, Ġw 260,
/// 12 261, 123 262, 1234 263, ĠĠ 264; no merge makes hello. Llama 3's split, ignore_merges.
json_t *qn_fixture_tb(void);
/// Its special tokens <|s|> 265, <|e|> 266, <m> 267 (lstrip), <n> 268 (rstrip), <|e|>x 270.
void qn_fixture_tb_specials(json_t *root);
/// Replace the split's pattern.
void qn_fixture_tb_pattern(json_t *root, const char *pattern);
/// Byte fallback, no pre-tokenizer: <pad> 0, <eos> 1, <bos> 2, <unk> 3, bytes 4-259, ▁ 260, a 261,
/// b 262, c 263, ab 264, ▁ab 265, newline 266, ▁▁ 267, e 268. <bos> in front.
json_t *qn_fixture_ts(void);
/// Prepend ▁ when normalising, strip one leading blank when decoding.
void qn_fixture_ts_prepend(json_t *root);

/// Load a fixture and free it; fails the test when it does not load.
struct qn_tok *qn_fixture_load(json_t *root);

#endif
