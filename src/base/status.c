#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Names come from files and peers: no byte of theirs may break the line or steer a terminal.
static void make_plain(char *text)
{
    for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++) {
        bool c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0; // U+0080 to U+009F
        if (*p < 0x20 || *p == 0x7f || c1) {
            *p = '?';
        }
        if (c1) {
            *++p = '?';
        }
    }
}

enum qn_status qn_vfail(struct qn_err *err, enum qn_status code, const char *fmt, va_list ap)
{
    if (err != NULL) {
        err->code = code;
        vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        make_plain(err->msg);
    }
    return code;
}

enum qn_status qn_fail(struct qn_err *err, enum qn_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    qn_vfail(err, code, fmt, ap);
    va_end(ap);
    return code;
}

enum qn_status qn_err_context(struct qn_err *err, enum qn_status code, const char *fmt, ...)
{
    if (err == NULL) {
        return code;
    }
    char where[sizeof err->msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(where, sizeof where, fmt, ap);
    va_end(ap);
    make_plain(where);

    size_t n = strlen(where);
    size_t have = strlen(err->msg);
    // A long place must not push out the sentence itself: cut the place, keep the message.
    size_t room = sizeof err->msg - 1;
    if (n + 2 + have > room) {
        size_t keep = have + 2 < room ? room - have - 2 : 0;
        n = n < keep ? n : keep;
    }
    if (n > 0) {
        memmove(err->msg + n + 2, err->msg, have + 1);
        memcpy(err->msg, where, n);
        memcpy(err->msg + n, ": ", 2);
    }
    err->code = code;
    return code;
}

const char *qn_status_name(enum qn_status code)
{
    static const char *const names[] = {
        [QN_OK] = "ok",
        [QN_E_INVALID] = "invalid",
        [QN_E_FORMAT] = "format",
        [QN_E_UNSUPPORTED] = "unsupported",
        [QN_E_NOT_FOUND] = "not found",
        [QN_E_IO] = "io",
        [QN_E_NOMEM] = "no memory",
        [QN_E_LIMIT] = "limit",
        [QN_E_CONTEXT] = "context",
        [QN_E_BUSY] = "busy",
        [QN_E_CANCELLED] = "cancelled",
        [QN_E_INTERNAL] = "internal",
    };
    if ((size_t)code >= sizeof names / sizeof names[0]) {
        return "unknown";
    }
    return names[code];
}

_Noreturn void qn_assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "quern: assertion failed: %s (%s:%d)\n", cond, file, line);
    abort();
}
