#ifndef QN_SERVER_HTTP_PARSE_H
#define QN_SERVER_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// HTTP/1.1 message parsing (RFC 9112), strict: bytes in, a head or a status code out. No I/O and
/// no allocation. Whatever two servers could read differently is refused.

enum {
    QN_HTTP_MAX_HEADERS = 1024 ///< upper end of the configurable header count
};

/// A slice of the head's bytes.
struct qn_slice {
    const char *p;
    size_t n;
};

struct qn_http_header {
    struct qn_slice name, value; ///< value without surrounding blanks
};

enum qn_http_method {
    QN_HTTP_GET,
    QN_HTTP_HEAD,
    QN_HTTP_POST,
    QN_HTTP_OPTIONS,
    QN_HTTP_OTHER
};

/// How the body is delimited.
enum qn_http_framing {
    QN_HTTP_NO_BODY,
    QN_HTTP_LENGTH,
    QN_HTTP_CHUNKED
};

struct qn_http_head {
    enum qn_http_method method;
    struct qn_slice method_text;
    struct qn_slice target; ///< as sent
    struct qn_slice path;   ///< target without scheme, host and query; still percent-encoded
    int minor;              ///< 0 or 1 of HTTP/1.x
    struct qn_http_header headers[QN_HTTP_MAX_HEADERS];
    size_t n_headers;
    enum qn_http_framing framing;
    uint64_t content_length;
    bool keep_alive;
    bool expect_continue;
};

/// Length of the head that starts at p, with its empty line, or 0 when it is not complete in
/// n bytes. `*scan` (0 at first) remembers how far was looked, so that a head that arrives byte by
/// byte costs linear time.
size_t qn_http_head_end(const char *p, size_t n, size_t *scan);

/// Parse a complete head of n bytes. Slices point into `text`.
/// @return 0, or the status to answer (400, 417, 431, 501, 505) with *out_why set to a static
///         sentence. After any failure the connection must be closed.
int qn_http_head_parse(const char *text, size_t n, size_t max_headers, struct qn_http_head *out,
                       const char **out_why);

/// The value of the first header of that name (lower case), or NULL.
const struct qn_slice *qn_http_header_get(const struct qn_http_head *head, const char *name);
bool qn_slice_is(struct qn_slice s, const char *text);        // exact
bool qn_slice_is_nocase(struct qn_slice s, const char *text); // ASCII

/// Percent-decode n bytes into out (at least n + 1 bytes, NUL-terminated).
/// @return length, or SIZE_MAX for a malformed escape.
size_t qn_http_percent_decode(const char *p, size_t n, char *out);

/// Decoder of the chunked coding. Zero-initialise.
struct qn_http_chunks {
    int state;
    uint64_t left;
    size_t line; ///< bytes of the current size line or trailer section
    unsigned digits;
};

enum qn_http_chunk_result {
    QN_HTTP_CHUNK_MORE,  ///< all input was used, more is needed
    QN_HTTP_CHUNK_DATA,  ///< *out_data holds body bytes
    QN_HTTP_CHUNK_END,   ///< body complete
    QN_HTTP_CHUNK_ERROR, ///< malformed: 400 and close
};

/// Consume from p[0..n): sets *out_used, and for QN_HTTP_CHUNK_DATA the body bytes found.
enum qn_http_chunk_result qn_http_chunks_next(struct qn_http_chunks *c, const char *p, size_t n,
                                              size_t *out_used, struct qn_slice *out_data);

#endif
