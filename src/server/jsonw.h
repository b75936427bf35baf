#ifndef QN_SERVER_JSONW_H
#define QN_SERVER_JSONW_H

#include "base/buf.h"

#include <jansson.h>
#include <stddef.h>

/// Pieces of JSON text for answers. Output is always valid UTF-8: bytes that are not become U+FFFD,
/// one for each ill-formed piece.

/// A quoted string of n bytes.
void qn_jw_str(struct qn_buf *out, const char *s, size_t n);
/// A quoted NUL-terminated string; null for NULL.
void qn_jw_cstr(struct qn_buf *out, const char *s);
/// The shortest decimal that reads back as the same float; minus infinity as -9999.0, NaN as null.
void qn_jw_float(struct qn_buf *out, float v);
/// Any JSON value, compact. Unlike jansson's own writer it cannot lose a piece unnoticed when
/// memory runs out: the buffer fails. Recursion is bounded by the depth that was accepted when
/// reading.
void qn_jw_value(struct qn_buf *out, const json_t *v);
/// Length of the valid UTF-8 sequence at s, or 0; *out_bad is then how many bytes one U+FFFD
/// replaces.
size_t qn_utf8_step(const unsigned char *s, size_t n, size_t *out_bad);
/// Characters in n bytes of UTF-8 (ill-formed pieces count one each).
size_t qn_utf8_count(const char *s, size_t n);

#endif
