#include "server/origin.h"

#include <string.h>
#include <strings.h>

// Runs over the whole given key whatever it holds, so that time tells nothing about ours.
static bool same_key(const char *key, struct qn_slice given)
{
    size_t n = strlen(key);
    unsigned diff = n != given.n;
    for (size_t i = 0; i < given.n; i++) {
        diff |=
            (unsigned)(unsigned char)given.p[i] ^ (unsigned)(unsigned char)key[n > 0 ? i % n : 0];
    }
    return diff == 0;
}

static bool any_key(const struct qn_server_options *o, struct qn_slice given)
{
    bool found = false;
    for (size_t i = 0; i < o->n_api_keys; i++) {
        found = same_key(o->api_keys[i], given) || found;
    }
    return found;
}

static bool starts_with(const char *path, const char *prefix)
{
    return strncmp(path, prefix, strlen(prefix)) == 0;
}

bool qn_origin_allows_key(const struct qn_server_options *o, const struct qn_http_head *head,
                          const char *path)
{
    bool guarded = o->api_key_all || starts_with(path, "/v1") || starts_with(path, "/v2") ||
                   starts_with(path, "/inference");
    if (o->n_api_keys == 0 || !guarded || head->method == QN_HTTP_OPTIONS) {
        return true;
    }
    const struct qn_slice *v = qn_http_header_get(head, "authorization");
    if (v != NULL && v->n > 7 && strncasecmp(v->p, "bearer ", 7) == 0) {
        return any_key(o, (struct qn_slice){v->p + 7, v->n - 7});
    }
    v = qn_http_header_get(head, "x-api-key");
    return v != NULL && any_key(o, *v);
}

static bool lists(const char *const *list, size_t n, struct qn_slice value)
{
    for (size_t i = 0; i < n; i++) {
        if (qn_slice_is(value, list[i])) {
            return true;
        }
    }
    return false;
}

static bool any(const char *const *list, size_t n)
{
    return n == 0 || lists(list, n, (struct qn_slice){"*", 1});
}

static void join(struct qn_buf *out, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        qn_buf_puts(out, i > 0 ? ", " : "");
        qn_buf_puts(out, list[i]);
    }
    qn_buf_puts(out, "\r\n");
}

void qn_origin_headers(const struct qn_server_options *o, const struct qn_http_head *head,
                       struct qn_buf *out)
{
    const struct qn_slice *origin = qn_http_header_get(head, "origin");
    if (origin == NULL) {
        return;
    }
    bool open = any(o->allowed_origins, o->n_allowed_origins);
    if (!open && !lists(o->allowed_origins, o->n_allowed_origins, *origin)) {
        return;
    }
    if (open && !o->allow_credentials) {
        qn_buf_puts(out, "Access-Control-Allow-Origin: *\r\n");
    } else {
        qn_buf_puts(out, "Access-Control-Allow-Origin: ");
        qn_buf_add(out, origin->p, origin->n);
        qn_buf_puts(out, "\r\nVary: Origin\r\n");
    }
    if (o->allow_credentials) {
        qn_buf_puts(out, "Access-Control-Allow-Credentials: true\r\n");
    }
    qn_buf_puts(out, "Access-Control-Expose-Headers: X-Request-Id, Retry-After\r\n");
    if (head->method != QN_HTTP_OPTIONS) {
        return;
    }
    qn_buf_puts(out, "Access-Control-Allow-Methods: ");
    if (any(o->allowed_methods, o->n_allowed_methods)) {
        qn_buf_puts(out, "GET, HEAD, POST, OPTIONS\r\n");
    } else {
        join(out, o->allowed_methods, o->n_allowed_methods);
    }
    const struct qn_slice *asked = qn_http_header_get(head, "access-control-request-headers");
    qn_buf_puts(out, "Access-Control-Allow-Headers: ");
    if (!any(o->allowed_headers, o->n_allowed_headers)) {
        join(out, o->allowed_headers, o->n_allowed_headers);
    } else if (asked != NULL) {
        qn_buf_add(out, asked->p, asked->n); // a star does not cover Authorization
        qn_buf_puts(out, "\r\n");
    } else {
        qn_buf_puts(out, "Authorization, Content-Type, X-Api-Key, X-Request-Id\r\n");
    }
    qn_buf_puts(out, "Access-Control-Max-Age: 600\r\n");
}
