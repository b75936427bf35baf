#ifndef QN_SERVER_ORIGIN_H
#define QN_SERVER_ORIGIN_H

#include "base/buf.h"
#include "server/http_parse.h"
#include "server/server.h"

/// Who may ask: API keys and cross-origin rules.

/// Whether the head carries one of the keys, or its path (decoded, without the root path) needs
/// none.
bool qn_origin_allows_key(const struct qn_server_options *o, const struct qn_http_head *head,
                          const char *path);
/// Append the Access-Control-* lines for the head's Origin, if it has one and it is allowed.
void qn_origin_headers(const struct qn_server_options *o, const struct qn_http_head *head,
                       struct qn_buf *out);

#endif
