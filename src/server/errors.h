#ifndef QN_SERVER_ERRORS_H
#define QN_SERVER_ERRORS_H

#include "base/buf.h"
#include "quern/quern.h"

#include <stdbool.h>

/// An error as OpenAI's API shows it: HTTP status, type (from the status), code, the request's
/// field at fault and one sentence. status 0: no error.
struct qn_api_error {
    int status;
    const char *code;  ///< static, or NULL
    int retry_after_s; ///< 0: no Retry-After header
    char param[128];
    char message[1024];
};

/// Set the error; always returns false, so that checks can `return qn_api_fail(…)`. The first error
/// stays. `param` may be NULL.
bool qn_api_fail(struct qn_api_error *e, int status, const char *code, const char *param,
                 const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/// From a failed quern.h call.
bool qn_api_fail_quern(struct qn_api_error *e, const struct quern_error *q, const char *param);

const char *qn_api_error_type(int status);
/// {"error":{"message","type","param","code"}}
void qn_api_error_write(const struct qn_api_error *e, struct qn_buf *out);

#endif
