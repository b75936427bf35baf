#ifndef QN_TEXT_TMPL_STR_H
#define QN_TEXT_TMPL_STR_H

#include "text/tmpl_value.h"

/// Strings of the template language: bytes with their origin. Every function keeps the marks of
/// the bytes it copies. Results live in the render's arena; after a failure they are empty.

/// A string over existing bytes (borrowed), all of one origin.
const struct qn_ts *qn_ts_new(struct qn_trt *rt, const char *p, size_t n, bool plain);
/// A C string that the template or the program wrote.
const struct qn_ts *qn_ts_lit(struct qn_trt *rt, const char *s);
const struct qn_ts *qn_ts_empty(void);
/// Bytes [from, from + n) of s, sharing its memory.
const struct qn_ts *qn_ts_sub(struct qn_trt *rt, const struct qn_ts *s, size_t from, size_t n);
const struct qn_ts *qn_ts_concat(struct qn_trt *rt, const struct qn_ts *a, const struct qn_ts *b);
/// The same text with another markup flag.
const struct qn_ts *qn_ts_with_markup(struct qn_trt *rt, const struct qn_ts *s, bool markup);
bool qn_ts_eq(const struct qn_ts *a, const struct qn_ts *b);
bool qn_ts_is(const struct qn_ts *s, const char *lit);
/// Any byte from the request.
bool qn_ts_any_plain(const struct qn_ts *s);
/// Byte offset of code point i (i <= n_cp).
size_t qn_ts_offset(const struct qn_ts *s, size_t i);
/// Position of `what` in s at or after byte `from`, or SIZE_MAX.
size_t qn_ts_find(const struct qn_ts *s, const struct qn_ts *what, size_t from);
size_t qn_ts_rfind(const struct qn_ts *s, const struct qn_ts *what, size_t end);

/// Decode one code point at p[0..n), n >= 1; *out_len bytes. A byte that is not UTF-8 counts as
/// one code point of its own value.
uint32_t qn_tcp_get(const char *p, size_t n, size_t *out_len);
/// What Python's str.isspace holds for white space.
bool qn_cp_is_space(uint32_t cp);
/// Number of code points in n bytes.
size_t qn_tcp_count(const char *p, size_t n);

struct qn_tsbuf *qn_tsbuf_new(struct qn_trt *rt, size_t cap);
bool qn_tsbuf_add(struct qn_trt *rt, struct qn_tsbuf *b, const char *p, size_t n, bool plain);
bool qn_tsbuf_puts(struct qn_trt *rt, struct qn_tsbuf *b, const char *s);
bool qn_tsbuf_add_ts(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_ts *s);
/// Bytes [from, from + n) of s.
bool qn_tsbuf_add_sub(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_ts *s, size_t from,
                      size_t n);
bool qn_tsbuf_add_cp(struct qn_trt *rt, struct qn_tsbuf *b, uint32_t cp, bool plain);
/// The buffer's text as a string; the buffer may grow on behind it.
const struct qn_ts *qn_tsbuf_ts(struct qn_trt *rt, struct qn_tsbuf *b);
/// The same, with every byte marked when any is (serialised values).
const struct qn_ts *qn_tsbuf_ts_whole(struct qn_trt *rt, struct qn_tsbuf *b);

#endif
