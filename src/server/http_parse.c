#include "server/http_parse.h"

#include <string.h>
#include <strings.h>

size_t qn_http_head_end(const char *p, size_t n, size_t *scan)
{
    // Look for the LF that follows CR LF CR; back up three bytes, as it may span two reads.
    size_t i = *scan > 3 ? *scan - 3 : 0;
    for (;;) {
        const char *lf = i < n ? memchr(p + i, '\n', n - i) : NULL;
        if (lf == NULL) {
            *scan = n;
            return 0;
        }
        size_t at = (size_t)(lf - p);
        if (at >= 3 && memcmp(p + at - 3, "\r\n\r", 3) == 0) {
            return at + 1;
        }
        i = at + 1;
    }
}

static bool is_token_char(char ch)
{
    unsigned char c = (unsigned char)ch;
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
        return true;
    }
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_token(struct qn_slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!is_token_char(s.p[i])) {
            return false;
        }
    }
    return s.n > 0;
}

bool qn_slice_is(struct qn_slice s, const char *text)
{
    return s.n == strlen(text) && memcmp(s.p, text, s.n) == 0;
}

bool qn_slice_is_nocase(struct qn_slice s, const char *text)
{
    return s.n == strlen(text) && strncasecmp(s.p, text, s.n) == 0;
}

const struct qn_slice *qn_http_header_get(const struct qn_http_head *head, const char *name)
{
    for (size_t i = 0; i < head->n_headers; i++) {
        if (qn_slice_is_nocase(head->headers[i].name, name)) {
            return &head->headers[i].value;
        }
    }
    return NULL;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

size_t qn_http_percent_decode(const char *p, size_t n, char *out)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] != '%') {
            out[len++] = p[i];
            continue;
        }
        int hi = n - i > 2 ? hex_digit(p[i + 1]) : -1;
        int lo = hi >= 0 ? hex_digit(p[i + 2]) : -1;
        if (lo < 0) {
            return SIZE_MAX;
        }
        out[len++] = (char)(hi * 16 + lo);
        i += 2;
    }
    out[len] = '\0';
    return len;
}

// The next line, without its CR LF. A bare CR or LF inside is the caller's error.
static bool next_line(const char **p, const char *end, struct qn_slice *out)
{
    const char *lf = memchr(*p, '\n', (size_t)(end - *p));
    if (lf == NULL || lf == *p || lf[-1] != '\r') {
        return false;
    }
    *out = (struct qn_slice){*p, (size_t)(lf - 1 - *p)};
    *p = lf + 1;
    return out->n == 0 || memchr(out->p, '\r', out->n) == NULL;
}

static int fail(const char **out_why, int status, const char *why)
{
    *out_why = why;
    return status;
}

static void split_target(struct qn_http_head *h)
{
    struct qn_slice t = h->target;
    if (t.n > 7 && strncasecmp(t.p, "http://", 7) == 0) { // absolute form, as proxies send it
        const char *slash = memchr(t.p + 7, '/', t.n - 7);
        if (slash == NULL) {
            h->path = (struct qn_slice){"/", 1};
            return;
        }
        t = (struct qn_slice){slash, t.n - (size_t)(slash - t.p)};
    }
    const char *query = memchr(t.p, '?', t.n);
    h->path = (struct qn_slice){t.p, query != NULL ? (size_t)(query - t.p) : t.n};
}

static int parse_request_line(struct qn_slice line, struct qn_http_head *h, const char **why)
{
    const char *end = line.p + line.n;
    const char *sp1 = memchr(line.p, ' ', line.n);
    const char *sp2 = sp1 != NULL ? memchr(sp1 + 1, ' ', (size_t)(end - sp1 - 1)) : NULL;
    if (sp2 == NULL) {
        return fail(why, 400, "request line: expected METHOD TARGET HTTP/1.1");
    }
    h->method_text = (struct qn_slice){line.p, (size_t)(sp1 - line.p)};
    h->target = (struct qn_slice){sp1 + 1, (size_t)(sp2 - sp1 - 1)};
    struct qn_slice version = {sp2 + 1, (size_t)(end - sp2 - 1)};
    if (!is_token(h->method_text)) {
        return fail(why, 400, "request line: the method is not a token");
    }
    if (version.n != 8 || memcmp(version.p, "HTTP/", 5) != 0 || version.p[6] != '.' ||
        version.p[5] < '0' || version.p[5] > '9' || version.p[7] < '0' || version.p[7] > '9') {
        return fail(why, 400, "request line: expected HTTP/1.1 as the version");
    }
    if (version.p[5] != '1') {
        return fail(why, 505, "HTTP version: expected 1.0 or 1.1");
    }
    h->minor = version.p[7] == '0' ? 0 : 1;
    if (h->target.n == 0) {
        return fail(why, 400, "request line: the target is empty");
    }
    for (size_t i = 0; i < h->target.n; i++) {
        unsigned char c = (unsigned char)h->target.p[i];
        if (c <= 0x20 || c >= 0x7f) {
            return fail(why, 400, "request line: the target holds a byte outside visible ASCII");
        }
    }
    static const struct {
        const char *name;
        enum qn_http_method method;
    } methods[] = {{"GET", QN_HTTP_GET},
                   {"HEAD", QN_HTTP_HEAD},
                   {"POST", QN_HTTP_POST},
                   {"OPTIONS", QN_HTTP_OPTIONS}};
    h->method = QN_HTTP_OTHER;
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++) {
        if (qn_slice_is(h->method_text, methods[i].name)) {
            h->method = methods[i].method;
        }
    }
    split_target(h);
    bool asterisk = h->method == QN_HTTP_OPTIONS && qn_slice_is(h->target, "*");
    if (!asterisk && (h->path.n == 0 || h->path.p[0] != '/')) {
        return fail(why, 400, "request line: expected a target that starts with /");
    }
    return 0;
}

static int parse_header(struct qn_slice line, struct qn_http_header *out, const char **why)
{
    if (line.p[0] == ' ' || line.p[0] == '\t') {
        return fail(why, 400, "header: folded lines are not accepted");
    }
    const char *colon = memchr(line.p, ':', line.n);
    if (colon == NULL) {
        return fail(why, 400, "header: expected NAME: VALUE");
    }
    out->name = (struct qn_slice){line.p, (size_t)(colon - line.p)};
    if (!is_token(out->name)) {
        return fail(why, 400, "header: the name is not a token");
    }
    const char *p = colon + 1, *end = line.p + line.n;
    while (p < end && (*p == ' ' || *p == '\t')) {
        p++;
    }
    while (end > p && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    for (const char *q = p; q < end; q++) {
        unsigned char c = (unsigned char)*q;
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return fail(why, 400, "header: the value holds a control character");
        }
    }
    out->value = (struct qn_slice){p, (size_t)(end - p)};
    return 0;
}

static bool parse_length(struct qn_slice s, uint64_t *out)
{
    uint64_t v = 0;
    if (s.n == 0 || s.n > 18) {
        return false;
    }
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(s.p[i] - '0');
    }
    *out = v;
    return true;
}

static bool has_list_token(struct qn_slice s, const char *token)
{
    const char *p = s.p, *end = s.p + s.n;
    while (p < end) {
        const char *comma = memchr(p, ',', (size_t)(end - p));
        const char *stop = comma != NULL ? comma : end;
        const char *q = stop;
        while (p < q && (*p == ' ' || *p == '\t')) {
            p++;
        }
        while (q > p && (q[-1] == ' ' || q[-1] == '\t')) {
            q--;
        }
        if (qn_slice_is_nocase((struct qn_slice){p, (size_t)(q - p)}, token)) {
            return true;
        }
        p = stop + 1;
    }
    return false;
}

// Everything that decides where this message ends is judged here, in one place.
static int parse_framing(struct qn_http_head *h, const char **why)
{
    size_t n_host = 0, n_length = 0, n_coding = 0;
    bool chunked = true, close = false, keep = false;
    for (size_t i = 0; i < h->n_headers; i++) {
        struct qn_slice name = h->headers[i].name, value = h->headers[i].value;
        if (qn_slice_is_nocase(name, "host")) {
            n_host++;
        } else if (qn_slice_is_nocase(name, "content-length")) {
            n_length++;
            if (!parse_length(value, &h->content_length)) {
                return fail(why, 400, "header Content-Length: expected one decimal number");
            }
        } else if (qn_slice_is_nocase(name, "transfer-encoding")) {
            n_coding++;
            chunked = chunked && qn_slice_is_nocase(value, "chunked");
        } else if (qn_slice_is_nocase(name, "connection")) {
            close = close || has_list_token(value, "close");
            keep = keep || has_list_token(value, "keep-alive");
        } else if (qn_slice_is_nocase(name, "expect")) {
            if (!qn_slice_is_nocase(value, "100-continue")) {
                return fail(why, 417, "header Expect: expected 100-continue");
            }
            h->expect_continue = h->minor == 1;
        }
    }
    if (n_length > 1) {
        return fail(why, 400, "header Content-Length: given more than once");
    }
    if (n_length > 0 && n_coding > 0) {
        return fail(why, 400, "both Content-Length and Transfer-Encoding are given");
    }
    if (n_coding > 0 && (n_coding > 1 || !chunked || h->minor == 0)) {
        return fail(why, 400, "header Transfer-Encoding: expected chunked alone");
    }
    if (n_host > 1 || (n_host == 0 && h->minor == 1)) {
        return fail(why, 400, "header Host: expected exactly one");
    }
    h->framing = n_coding > 0 ? QN_HTTP_CHUNKED : n_length > 0 ? QN_HTTP_LENGTH : QN_HTTP_NO_BODY;
    h->keep_alive = h->minor == 1 ? !close : keep && !close;
    return 0;
}

int qn_http_head_parse(const char *text, size_t n, size_t max_headers, struct qn_http_head *out,
                       const char **out_why)
{
    const char *p = text, *end = text + n;
    struct qn_slice line;
    out->n_headers = 0;
    out->content_length = 0;
    out->expect_continue = false;
    if (!next_line(&p, end, &line)) {
        return fail(out_why, 400, "request line: expected it to end with CR LF");
    }
    int status = parse_request_line(line, out, out_why);
    while (status == 0) {
        if (!next_line(&p, end, &line)) {
            return fail(out_why, 400, "header: expected every line to end with CR LF");
        }
        if (line.n == 0) {
            return parse_framing(out, out_why);
        }
        if (out->n_headers >= max_headers || out->n_headers >= QN_HTTP_MAX_HEADERS) {
            return fail(out_why, 431, "too many headers");
        }
        status = parse_header(line, &out->headers[out->n_headers], out_why);
        out->n_headers++;
    }
    return status;
}

enum {
    CHUNK_SIZE, // digits of the size
    CHUNK_EXT,  // after the digits, up to CR
    CHUNK_SIZE_LF,
    CHUNK_DATA,
    CHUNK_DATA_CR,
    CHUNK_DATA_LF,
    CHUNK_TRAILER_START, // at the start of a trailer line
    CHUNK_TRAILER,
    CHUNK_TRAILER_LF,
    CHUNK_LAST_LF,
    CHUNK_DONE,
    CHUNK_MAX_LINE = 4096 // of one size line, and of the whole trailer section
};

static enum qn_http_chunk_result chunk_byte(struct qn_http_chunks *c, char ch)
{
    int digit = hex_digit(ch);
    switch (c->state) {
    case CHUNK_SIZE:
        if (digit >= 0) {
            c->left = c->left * 16 + (uint64_t)digit;
            return ++c->digits > 15 ? QN_HTTP_CHUNK_ERROR : QN_HTTP_CHUNK_MORE;
        }
        if (c->digits == 0 || (ch != '\r' && ch != ';')) {
            return QN_HTTP_CHUNK_ERROR;
        }
        c->state = ch == '\r' ? CHUNK_SIZE_LF : CHUNK_EXT;
        return QN_HTTP_CHUNK_MORE;
    case CHUNK_EXT:
        if (ch == '\r') {
            c->state = CHUNK_SIZE_LF;
        } else if ((unsigned char)ch < 0x20 && ch != '\t') {
            return QN_HTTP_CHUNK_ERROR;
        }
        return ++c->line > CHUNK_MAX_LINE ? QN_HTTP_CHUNK_ERROR : QN_HTTP_CHUNK_MORE;
    case CHUNK_SIZE_LF:
        c->state = c->left > 0 ? CHUNK_DATA : CHUNK_TRAILER_START;
        c->line = 0;
        c->digits = 0;
        return ch == '\n' ? QN_HTTP_CHUNK_MORE : QN_HTTP_CHUNK_ERROR;
    case CHUNK_DATA_CR:
        c->state = CHUNK_DATA_LF;
        return ch == '\r' ? QN_HTTP_CHUNK_MORE : QN_HTTP_CHUNK_ERROR;
    case CHUNK_DATA_LF:
        c->state = CHUNK_SIZE;
        return ch == '\n' ? QN_HTTP_CHUNK_MORE : QN_HTTP_CHUNK_ERROR;
    case CHUNK_TRAILER_START:
        c->state = ch == '\r' ? CHUNK_LAST_LF : CHUNK_TRAILER;
        return ch == '\n' ? QN_HTTP_CHUNK_ERROR : QN_HTTP_CHUNK_MORE;
    case CHUNK_TRAILER:
        if (ch == '\r') {
            c->state = CHUNK_TRAILER_LF;
        } else if ((unsigned char)ch < 0x20 && ch != '\t') {
            return QN_HTTP_CHUNK_ERROR;
        }
        return ++c->line > CHUNK_MAX_LINE ? QN_HTTP_CHUNK_ERROR : QN_HTTP_CHUNK_MORE;
    case CHUNK_TRAILER_LF:
        c->state = CHUNK_TRAILER_START;
        return ch == '\n' ? QN_HTTP_CHUNK_MORE : QN_HTTP_CHUNK_ERROR;
    case CHUNK_LAST_LF:
        c->state = CHUNK_DONE;
        return ch == '\n' ? QN_HTTP_CHUNK_END : QN_HTTP_CHUNK_ERROR;
    default:
        return QN_HTTP_CHUNK_ERROR;
    }
}

enum qn_http_chunk_result qn_http_chunks_next(struct qn_http_chunks *c, const char *p, size_t n,
                                              size_t *out_used, struct qn_slice *out_data)
{
    for (size_t i = 0; i < n;) {
        if (c->state == CHUNK_DATA) {
            size_t take = n - i < c->left ? n - i : (size_t)c->left;
            c->left -= take;
            if (c->left == 0) {
                c->state = CHUNK_DATA_CR;
            }
            *out_data = (struct qn_slice){p + i, take};
            *out_used = i + take;
            return QN_HTTP_CHUNK_DATA;
        }
        enum qn_http_chunk_result r = chunk_byte(c, p[i++]);
        if (r != QN_HTTP_CHUNK_MORE) {
            *out_used = i;
            return r;
        }
    }
    *out_used = n;
    return QN_HTTP_CHUNK_MORE;
}
