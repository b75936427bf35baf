#include "server/jsonw.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t qn_utf8_step(const unsigned char *s, size_t n, size_t *out_bad)
{
    unsigned char c = s[0];
    size_t need = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : 4;
    *out_bad = 1;
    if (c < 0x80) {
        return 1;
    }
    if (c < 0xc2 || c > 0xf4) {
        return 0;
    }
    // the second byte excludes overlong forms, surrogates and what lies beyond U+10FFFF
    unsigned char lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    unsigned char hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    for (size_t i = 1; i < need; i++) {
        if (i >= n || s[i] < lo || s[i] > hi) {
            *out_bad = i;
            return 0;
        }
        lo = 0x80;
        hi = 0xbf;
    }
    return need;
}

size_t qn_utf8_count(const char *s, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; count++) {
        size_t bad = 1;
        size_t k = qn_utf8_step((const unsigned char *)s + i, n - i, &bad);
        i += k > 0 ? k : bad;
    }
    return count;
}

static void escape(struct qn_buf *out, unsigned char c)
{
    switch (c) {
    case '"':
        qn_buf_puts(out, "\\\"");
        break;
    case '\\':
        qn_buf_puts(out, "\\\\");
        break;
    case '\n':
        qn_buf_puts(out, "\\n");
        break;
    case '\r':
        qn_buf_puts(out, "\\r");
        break;
    case '\t':
        qn_buf_puts(out, "\\t");
        break;
    default:
        qn_buf_printf(out, "\\u%04x", c);
    }
}

void qn_jw_str(struct qn_buf *out, const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t from = 0, i = 0;
    qn_buf_putc(out, '"');
    while (i < n) {
        if (p[i] >= 0x20 && p[i] < 0x7f && p[i] != '"' && p[i] != '\\') {
            i++;
            continue;
        }
        size_t bad = 1;
        size_t k = qn_utf8_step(p + i, n - i, &bad);
        if (k > 1) {
            i += k;
            continue;
        }
        qn_buf_add(out, s + from, i - from);
        if (k == 1) {
            escape(out, p[i]);
            i++;
        } else {
            qn_buf_puts(out, "\xef\xbf\xbd");
            i += bad;
        }
        from = i;
    }
    qn_buf_add(out, s + from, n - from);
    qn_buf_putc(out, '"');
}

void qn_jw_cstr(struct qn_buf *out, const char *s)
{
    if (s == NULL) {
        qn_buf_puts(out, "null");
    } else {
        qn_jw_str(out, s, strlen(s));
    }
}

void qn_jw_float(struct qn_buf *out, float v)
{
    if (isnan(v)) {
        qn_buf_puts(out, "null");
        return;
    }
    if (isinf(v)) {
        qn_buf_puts(out, v < 0 ? "-9999.0" : "9999.0");
        return;
    }
    char text[40] = "";
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) {
            break;
        }
    }
    qn_buf_puts(out, text);
    if (strpbrk(text, ".e") == NULL) {
        qn_buf_puts(out, ".0");
    }
}

static void write_real(struct qn_buf *out, double v)
{
    char text[40];
    snprintf(text, sizeof text, "%.17g", v);
    qn_buf_puts(out, text);
    if (strpbrk(text, ".e") == NULL) {
        qn_buf_puts(out, ".0"); // it stays a real number
    }
}

void qn_jw_value(struct qn_buf *out, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: {
        const char *key = NULL, *between = "";
        json_t *member = NULL;
        qn_buf_putc(out, '{');
        json_object_foreach((json_t *)v, key, member)
        {
            qn_buf_puts(out, between);
            qn_jw_cstr(out, key);
            qn_buf_putc(out, ':');
            qn_jw_value(out, member);
            between = ",";
        }
        qn_buf_putc(out, '}');
        break;
    }
    case JSON_ARRAY:
        qn_buf_putc(out, '[');
        for (size_t i = 0; i < json_array_size(v); i++) {
            qn_buf_puts(out, i > 0 ? "," : "");
            qn_jw_value(out, json_array_get(v, i));
        }
        qn_buf_putc(out, ']');
        break;
    case JSON_STRING:
        qn_jw_str(out, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        qn_buf_printf(out, "%lld", (long long)json_integer_value(v));
        break;
    case JSON_REAL:
        write_real(out, json_real_value(v));
        break;
    case JSON_TRUE:
        qn_buf_puts(out, "true");
        break;
    case JSON_FALSE:
        qn_buf_puts(out, "false");
        break;
    case JSON_NULL:
        qn_buf_puts(out, "null");
        break;
    }
}
