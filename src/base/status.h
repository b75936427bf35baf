#ifndef QN_BASE_STATUS_H
#define QN_BASE_STATUS_H

#include <stdarg.h>
#include <stddef.h>

/// What a fallible function returns. QN_OK is 0; the rest say who can do something about it.
enum qn_status {
    QN_OK = 0,
    QN_E_INVALID,     ///< a value the caller gave is wrong (HTTP 400)
    QN_E_FORMAT,      ///< a file or message is malformed
    QN_E_UNSUPPORTED, ///< well-formed, but a kind that quern does not have
    QN_E_NOT_FOUND,   ///< a named thing does not exist
    QN_E_IO,          ///< the operating system said no; may work later
    QN_E_NOMEM,       ///< memory could not be had
    QN_E_LIMIT,       ///< a documented limit was reached
    QN_E_CONTEXT,     ///< a prompt does not fit the context
    QN_E_BUSY,        ///< a bounded queue is full; try later (HTTP 429)
    QN_E_CANCELLED,   ///< the request was aborted
    QN_E_INTERNAL     ///< our own fault
};

/// Error context: one sentence, built from the inside out. Callers own it, usually on the stack.
struct qn_err {
    enum qn_status code;
    char msg[1024];
};

/// Set the message (printf format) and return `code`. `err` may be NULL. Truncates, never fails.
enum qn_status qn_fail(struct qn_err *err, enum qn_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
enum qn_status qn_vfail(struct qn_err *err, enum qn_status code, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));

/// Put where the caller was in front of the message ("WHERE: MESSAGE") and return `code`.
enum qn_status qn_err_context(struct qn_err *err, enum qn_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/// Short lower-case name of a status, for logs and tests.
const char *qn_status_name(enum qn_status code);

/// For our own bugs alone: no file, request or peer can trip it. Active in every build.
#define QN_ASSERT(cond)                                                                            \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            qn_assert_failed(#cond, __FILE__, __LINE__);                                           \
        }                                                                                          \
    } while (0)

_Noreturn void qn_assert_failed(const char *cond, const char *file, int line);

#endif
