#ifndef QN_ENGINE_PARAMS_H
#define QN_ENGINE_PARAMS_H

#include "engine/request.h"

/// Fill err (NULL allowed) and return `code`. `param` is the request field at fault or "".
enum quern_status qn_params_fail(struct quern_error *err, enum quern_status code, const char *param,
                                 const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/// The same from an internal error.
enum quern_status qn_params_err(struct quern_error *err, const struct qn_err *from);

/// Check every value of a request. *out_max_tokens is what context and cache leave of max_tokens.
enum quern_status qn_params_check(const struct qn_request_env *env,
                                  const struct quern_request_params *params, size_t *out_max_tokens,
                                  struct quern_error *err);

#endif
