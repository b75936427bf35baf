#ifndef QN_TEXT_TOK_SCAN_H
#define QN_TEXT_TOK_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Hand-written matchers for the split patterns of the well-known tokenizers. Each equals its
/// regular expression (tok_scan_test.c holds them against PCRE2) and matches everywhere, so that a
/// text is a sequence of matches.
enum qn_tok_scan_kind {
    QN_SCAN_GPT2,   ///< words with a leading blank, plain whitespace
    QN_SCAN_CL100K, ///< Llama 3, Qwen 2 and 3: words, digit groups, punctuation with line ends
    QN_SCAN_O200K   ///< GPT-4o, GPT-OSS, Tekken: words split where case rises
};

struct qn_tok_scan {
    enum qn_tok_scan_kind kind;
    unsigned max_digits; ///< of one group; unused by GPT2
    bool contractions;   ///< 's 't 're … (GPT2: lower case alone)
    bool marks;          ///< CL100K: combining marks count as letters
    bool slash;          ///< punctuation takes '/' with the line ends that follow
};

/// Is the pattern one of these? Returns false and leaves *out if not.
bool qn_tok_scan_find(const char *pattern, size_t n, struct qn_tok_scan *out);
/// Pattern number i for tests, NULL past the last.
const char *qn_tok_scan_pattern(size_t i);

/// End of the match that starts at pos < n. uclass: see uclass.h; text is valid UTF-8.
size_t qn_tok_scan_next(const struct qn_tok_scan *s, const uint8_t *uclass, const char *text,
                        size_t n, size_t pos);

#endif
