#ifndef QN_FORMATS_SCAN_H
#define QN_FORMATS_SCAN_H

#include "base/buf.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Strict, streaming reader of JSON text for headers whose grammar is known: nothing is allocated
/// but the caller's string buffer, time is linear, and nesting is what the caller asks for.
struct qn_scan {
    const unsigned char *start;
    const unsigned char *p;
    const unsigned char *end;
};

void qn_scan_init(struct qn_scan *s, const void *text, size_t n);
/// Byte offset of the next character, for messages.
size_t qn_scan_at(const struct qn_scan *s);
/// Skip white space; true at the end of the text.
bool qn_scan_done(struct qn_scan *s);
/// Skip white space; consume `c` if it is next.
bool qn_scan_take(struct qn_scan *s, char c);
/// The same, with an error when it is not.
enum qn_status qn_scan_expect(struct qn_scan *s, char c, struct qn_err *err);
/// A string, decoded into out (cleared first): UTF-8 and escapes are checked, at most `limit`
/// bytes.
enum qn_status qn_scan_string(struct qn_scan *s, size_t limit, struct qn_buf *out,
                              struct qn_err *err);
/// An unsigned integer of at most `max`: no sign, fraction, exponent or leading zero.
enum qn_status qn_scan_uint(struct qn_scan *s, uint64_t max, uint64_t *out, struct qn_err *err);

#endif
