#ifndef QN_TEXT_TOK_H
#define QN_TEXT_TOK_H

#include "base/buf.h"
#include "base/status.h"
#include "text/tok_added.h"
#include "text/tok_map.h"
#include "text/tok_norm.h"
#include "text/tok_split.h"
#include "text/tokenizer.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// The letter that stands for a blank in the byte-fallback family.
#define QN_TOK_BLANK "\xE2\x96\x81" // U+2581

/// Inside of the tokenizer, shared by the files src/text/tok_*.c alone.

enum {
    QN_TOK_MAX_IDS = 1 << 22,       ///< vocabulary size that is accepted
    QN_TOK_MAX_BLOB = 1 << 28,      ///< bytes of all token texts
    QN_TOK_MAX_TEXT = 1 << 30,      ///< bytes of one call of encode
    QN_TOK_MAX_MERGES = 1 << 24,    ///< pairs
    QN_TOK_MAX_TEMPLATE_IDS = 64,   ///< ids that a post-processor puts around the text
    QN_TOK_MAX_DECODER_REPLACE = 8, ///< Replace steps of a decoder
    QN_TOK_MAX_STOPS = 32           ///< stop ids from GGUF keys
};

/// What is known of an id.
enum {
    QN_TF_USED = 1,      ///< it has a text
    QN_TF_MODEL = 2,     ///< in the BPE vocabulary, so merges can make it
    QN_TF_ADDED = 4,     ///< matched in text before BPE
    QN_TF_SPECIAL = 8,   ///< left out of a decode that skips special tokens
    QN_TF_BYTE = 16,     ///< <0xHH> of the byte-fallback family
    QN_TF_FOUND_AS = 64, ///< bytes[id] holds the text it is found as, which decoding starts from
    QN_TF_DUP = 32       ///< to qn_tok_put: its text may be another id's too, the last one counts
};

enum qn_tok_decoder {
    QN_TD_BYTE_LEVEL, ///< letters back to bytes, then lossy UTF-8 of the whole
    QN_TD_FALLBACK,   ///< token texts, runs of <0xHH> to text (or one U+FFFD a byte)
    QN_TD_PLAIN       ///< token texts joined
};

struct qn_tok {
    size_t n_ids; ///< largest id + 1
    char *blob;   ///< all texts
    size_t blob_n, blob_cap;
    struct qn_tok_span *piece; ///< [n_syms] the vocabulary's spelling
    struct qn_tok_span *bytes; ///< [n_ids] what decoding gives
    uint8_t *flags;            ///< [n_syms] QN_TF_*
    size_t n_syms;             ///< n_ids and the symbols that only merges see (no token themselves)
    size_t max_bytes;

    struct qn_tok_keys spelled; ///< piece -> id
    struct qn_tok_span *key;    ///< [n_syms] bytes of the text that the symbol covers
    struct qn_tok_keys keys;    ///< key -> symbol
    struct qn_tok_pairs pairs;
    size_t max_key; ///< longest key
    bool byte_level;
    bool ignore_merges;
    bool byte_fallback;
    bool fuse_unk;
    int32_t unk;            ///< -1: characters without a token are dropped
    int32_t byte_id[256];   ///< byte-level: the symbol of a byte; fallback: <0xHH>; -1: none
    int32_t ascii_sym[128]; ///< symbol of a character below 128, -1: none
    atomic_uchar
        *whole;      ///< [n_syms] does BPE make the key this one symbol? 0 not known, 1 no, 2 yes
    bool cuts;       ///< pieces may be cut before U+2581 where no token spans the place
    bool joins[256]; ///< is there a token with this byte before a U+2581?
    uint8_t *uclass; ///< classes of code points (uclass.h)

    struct qn_tok_norm norm;
    struct qn_tok_split split;
    struct qn_tok_added added;      ///< matched in the text as it comes
    struct qn_tok_added added_norm; ///< matched after the normaliser

    int32_t prefix[QN_TOK_MAX_TEMPLATE_IDS], suffix[QN_TOK_MAX_TEMPLATE_IDS];
    size_t n_prefix, n_suffix;
    int32_t bos, eos, pad;
    int32_t stops[QN_TOK_MAX_STOPS];
    size_t n_stops;

    enum qn_tok_decoder decoder;
    bool strip_blank; ///< one leading blank of the whole text goes
    char meta[8];     ///< Metaspace decoder: the first token loses these letters; "" otherwise
    size_t n_meta;
};

/// tok_build.c: make a tokenizer in steps. All ids must be below the n_ids given to the first.
struct qn_tok *qn_tok_alloc(size_t n_ids);
/// Text into the blob; QN_E_LIMIT or QN_E_NOMEM.
enum qn_status qn_tok_put_text(struct qn_tok *t, const char *text, size_t n,
                               struct qn_tok_span *out, struct qn_err *err);
/// Give id its text and flags. The same text again adds flags; another text for the id, or the id
/// of another text (unless QN_TF_DUP), is QN_E_FORMAT.
enum qn_status qn_tok_put(struct qn_tok *t, int32_t id, const char *text, size_t n, unsigned flags,
                          struct qn_err *err);
/// Make `keys` from the pieces with QN_TF_MODEL; byte_level must be set.
enum qn_status qn_tok_make_keys(struct qn_tok *t, struct qn_err *err);
/// Make what decoding needs; decoder must be set. replace: n pairs of texts.
struct qn_tok_replace {
    const char *from, *to;
    size_t n_from, n_to;
};
enum qn_status qn_tok_make_bytes(struct qn_tok *t, const struct qn_tok_replace *replace,
                                 size_t n_replace, struct qn_err *err);
/// Two texts of a merge list as ids.
enum qn_tok_found {
    QN_MERGE_FOUND,
    QN_MERGE_MISSING, ///< one of them, or both together, is no token
    QN_MERGE_NEVER,   ///< one of them is a token that BPE does not make
    QN_MERGE_NO_MEMORY
};
enum qn_tok_found qn_tok_find_merge(const struct qn_tok *t, const char *left, size_t n_left,
                                    const char *right, size_t n_right, struct qn_tok_merge *out,
                                    struct qn_buf *scratch);

/// tok_bytes.c: the letters that stand for bytes in the byte-level family.
/// Bytes of a spelling; false when a letter stands for no byte. out holds n bytes.
bool qn_tok_letters_to_bytes(const char *text, size_t n, char *out, size_t *out_n);
/// The letter of a byte as UTF-8; out holds 2 bytes.
size_t qn_tok_byte_letter(unsigned char b, char *out);
/// Value of "<0xHH>", -1 for any other text.
int qn_tok_byte_value(const char *text, size_t n);

/// tok_merge.c: BPE of one piece of text. `s` keeps memory between calls.
struct qn_tok_scratch {
    struct qn_tok_sym *syms;
    size_t syms_cap;
    uint64_t *heap;
    size_t heap_n, heap_cap;
};
void qn_tok_scratch_done(struct qn_tok_scratch *s);
enum qn_status qn_tok_bpe(const struct qn_tok *t, struct qn_tok_scratch *s, const char *text,
                          size_t n, struct qn_ids *out, struct qn_err *err);

bool qn_ids_push(struct qn_ids *ids, int32_t id);

/// tok_pre.c: what a value of tokenizer.ggml.pre stands for.
struct qn_tok_pre {
    const char *name;
    bool ignore_merges, add_bos, nfc;
    bool digits_apart;       ///< single numbers before the patterns
    const char *patterns[4]; ///< split one after the other, up to NULL
};
/// NULL when the name is not known.
const struct qn_tok_pre *qn_tok_pre_find(const char *name);

/// tok_scores.c: merges of the scored family (SentencePiece's BPE) from the score of each id.
enum qn_status qn_tok_make_scored(struct qn_tok *t, const float *scores, struct qn_err *err);

#endif
