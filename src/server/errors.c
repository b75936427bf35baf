#include "server/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "server/jsonw.h"

bool qn_api_fail(struct qn_api_error *e, int status, const char *code, const char *param,
                 const char *fmt, ...)
{
    if (e->status != 0) {
        return false;
    }
    e->status = status;
    e->code = code;
    e->retry_after_s = status == 429 || status == 503 ? 1 : 0;
    snprintf(e->param, sizeof e->param, "%s", param != NULL ? param : "");
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    return false;
}

bool qn_api_fail_quern(struct qn_api_error *e, const struct quern_error *q, const char *param)
{
    int status = 400;
    const char *code = NULL;
    switch (q->code) {
    case QUERN_E_BUSY:
        status = 429;
        code = "rate_limit_exceeded";
        break;
    case QUERN_E_CONTEXT:
        code = "context_length_exceeded";
        break;
    case QUERN_E_NOMEM:
    case QUERN_E_CANCELLED:
        status = 503;
        break;
    case QUERN_E_IO:
    case QUERN_E_INTERNAL:
    case QUERN_OK:
        status = 500;
        break;
    default:
        break;
    }
    return qn_api_fail(e, status, code, q->param[0] != '\0' ? q->param : param, "%s", q->message);
}

const char *qn_api_error_type(int status)
{
    if (status == 401) {
        return "authentication_error";
    }
    if (status == 429) {
        return "rate_limit_error";
    }
    return status >= 500 ? "server_error" : "invalid_request_error";
}

void qn_api_error_write(const struct qn_api_error *e, struct qn_buf *out)
{
    qn_buf_puts(out, "{\"error\":{\"message\":");
    qn_jw_cstr(out, e->message);
    qn_buf_puts(out, ",\"type\":");
    qn_jw_cstr(out, qn_api_error_type(e->status));
    qn_buf_puts(out, ",\"param\":");
    qn_jw_cstr(out, e->param[0] != '\0' ? e->param : NULL);
    qn_buf_puts(out, ",\"code\":");
    qn_jw_cstr(out, e->code);
    qn_buf_puts(out, "}}");
}
