#include "text/tmpl_lex.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tmpl_str.h"
#include "text/utf8.h"

void qn_tlex_init(struct qn_tlex *lx, const char *src, size_t n, struct qn_arena *arena)
{
    *lx = (struct qn_tlex){
        .src = src, .n = n, .arena = arena, .state = QN_TT_DATA, .line_start = true};
}

const char *qn_tt_name(enum qn_tt type)
{
    static const char *const names[] = {
        [QN_TT_EOF] = "end of template",
        [QN_TT_ERROR] = "error",
        [QN_TT_DATA] = "text",
        [QN_TT_BLOCK_BEGIN] = "{%",
        [QN_TT_BLOCK_END] = "%}",
        [QN_TT_VAR_BEGIN] = "{{",
        [QN_TT_VAR_END] = "}}",
        [QN_TT_NAME] = "a name",
        [QN_TT_STRING] = "a string",
        [QN_TT_INT] = "an integer",
        [QN_TT_FLOAT] = "a number",
        [QN_TT_ADD] = "+",
        [QN_TT_SUB] = "-",
        [QN_TT_MUL] = "*",
        [QN_TT_DIV] = "/",
        [QN_TT_FLOORDIV] = "//",
        [QN_TT_MOD] = "%",
        [QN_TT_POW] = "**",
        [QN_TT_TILDE] = "~",
        [QN_TT_LPAREN] = "(",
        [QN_TT_RPAREN] = ")",
        [QN_TT_LBRACKET] = "[",
        [QN_TT_RBRACKET] = "]",
        [QN_TT_LBRACE] = "{",
        [QN_TT_RBRACE] = "}",
        [QN_TT_EQ] = "==",
        [QN_TT_NE] = "!=",
        [QN_TT_LT] = "<",
        [QN_TT_LE] = "<=",
        [QN_TT_GT] = ">",
        [QN_TT_GE] = ">=",
        [QN_TT_ASSIGN] = "=",
        [QN_TT_DOT] = ".",
        [QN_TT_COLON] = ":",
        [QN_TT_COMMA] = ",",
        [QN_TT_PIPE] = "|",
        [QN_TT_SEMICOLON] = ";",
    };
    return names[type];
}

static struct qn_ttok token(enum qn_tt type, size_t pos, const char *p, size_t n)
{
    return (struct qn_ttok){.type = type, .pos = (uint32_t)pos, .p = p, .n = n};
}

__attribute__((format(printf, 4, 5))) static struct qn_ttok
lex_fail(struct qn_tlex *lx, enum qn_status code, size_t pos, const char *fmt, ...)
{
    if (lx->status == QN_OK) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(lx->err, sizeof lx->err, fmt, ap);
        va_end(ap);
        lx->status = code;
        lx->err_pos = (uint32_t)pos;
    }
    return token(QN_TT_ERROR, lx->err_pos, lx->src, 0);
}

static bool here(const struct qn_tlex *lx, size_t at, const char *what)
{
    size_t n = strlen(what);
    return at <= lx->n && n <= lx->n - at && memcmp(lx->src + at, what, n) == 0;
}

static size_t skip_space(const struct qn_tlex *lx, size_t at)
{
    while (at < lx->n) {
        size_t len;
        uint32_t cp = qn_tcp_get(lx->src + at, lx->n - at, &len);
        if (!qn_cp_is_space(cp)) {
            break;
        }
        at += len;
    }
    return at;
}

// Length of text [from, end) without trailing white space.
static size_t rstrip(const struct qn_tlex *lx, size_t from, size_t end)
{
    while (end > from) {
        size_t start = end - 1;
        while (start > from && ((unsigned char)lx->src[start] & 0xc0) == 0x80) {
            start--;
        }
        size_t len;
        uint32_t cp = qn_tcp_get(lx->src + start, end - start, &len);
        if (start + len != end || !qn_cp_is_space(cp)) {
            break;
        }
        end = start;
    }
    return end;
}

// Text in front of a tag that carries `sign`: where it ends.
static size_t data_end(const struct qn_tlex *lx, size_t from, size_t end, char sign, bool variable)
{
    if (sign == '-') {
        return rstrip(lx, from, end);
    }
    if (sign == '+' || variable) {
        return end;
    }
    size_t line = end;
    while (line > from && lx->src[line - 1] != '\n') {
        line--;
    }
    if ((line > from || lx->line_start) && skip_space(lx, line) >= end) {
        return line;
    }
    return end;
}

static char sign_at(const struct qn_tlex *lx, size_t at)
{
    return at < lx->n && (lx->src[at] == '-' || lx->src[at] == '+') ? lx->src[at] : '\0';
}

// The end of a tag ("%}", "#}") at `at` with its sign: the offset behind everything it swallows,
// or 0 when there is none.
static size_t tag_end(const struct qn_tlex *lx, size_t at, const char *end)
{
    size_t n = strlen(end);
    if (here(lx, at, "+") && here(lx, at + 1, end)) {
        return at + 1 + n;
    }
    if (here(lx, at, "-") && here(lx, at + 1, end)) {
        return skip_space(lx, at + 1 + n);
    }
    if (here(lx, at, end)) {
        at += n;
        return here(lx, at, "\n") ? at + 1 : at;
    }
    return 0;
}

static void leave_tag(struct qn_tlex *lx, size_t at)
{
    lx->at = at;
    lx->line_start = at > 0 && lx->src[at - 1] == '\n';
    lx->state = QN_TT_DATA;
}

// "{% raw %}" at `at`: the offset behind it, or 0.
static size_t raw_begin(const struct qn_tlex *lx, size_t at)
{
    at += sign_at(lx, at + 2) != '\0' ? 3 : 2;
    at = skip_space(lx, at);
    if (!here(lx, at, "raw")) {
        return 0;
    }
    at = skip_space(lx, at + 3);
    if (here(lx, at, "-%}")) {
        return skip_space(lx, at + 3);
    }
    return here(lx, at, "%}") ? at + 2 : 0;
}

static struct qn_ttok raw_body(struct qn_tlex *lx, size_t begin)
{
    for (size_t at = begin; at < lx->n; at++) {
        if (!here(lx, at, "{%")) {
            continue;
        }
        char sign = sign_at(lx, at + 2);
        size_t word = skip_space(lx, at + (sign != '\0' ? 3 : 2));
        if (!here(lx, word, "endraw")) {
            continue;
        }
        size_t end = tag_end(lx, skip_space(lx, word + 6), "%}");
        if (end == 0) {
            continue;
        }
        lx->line_start = lx->src[begin - 1] == '\n';
        size_t stop = data_end(lx, begin, at, sign, false);
        leave_tag(lx, end);
        return token(QN_TT_DATA, begin, lx->src + begin, stop - begin);
    }
    return lex_fail(lx, QN_E_FORMAT, begin, "raw block without endraw");
}

// Text up to the next tag; the state says which tag follows.
static struct qn_ttok lex_data(struct qn_tlex *lx)
{
    size_t from = lx->at;
    for (size_t at = from; at + 1 < lx->n; at++) {
        char kind = lx->src[at] == '{' ? lx->src[at + 1] : '\0';
        if (kind != '%' && kind != '{' && kind != '#') {
            continue;
        }
        char sign = sign_at(lx, at + 2);
        size_t stop = data_end(lx, from, at, sign, kind == '{');
        struct qn_ttok data = token(QN_TT_DATA, from, lx->src + from, stop - from);
        if (kind == '%') {
            size_t raw = raw_begin(lx, at);
            if (raw != 0) {
                if (data.n == 0) {
                    return raw_body(lx, raw);
                }
                lx->at = at; // the text first, the raw block with the next call
                lx->line_start = false;
                return data;
            }
        }
        size_t inner = at + (sign != '\0' ? 3 : 2);
        if (kind == '#') {
            for (size_t i = inner; i < lx->n; i++) {
                size_t end = tag_end(lx, i, "#}");
                if (end != 0) {
                    leave_tag(lx, end);
                    return data;
                }
            }
            return lex_fail(lx, QN_E_FORMAT, at, "comment without its end \"#}\"");
        }
        lx->at = inner;
        lx->state = kind == '%' ? QN_TT_BLOCK_BEGIN : QN_TT_VAR_BEGIN;
        lx->n_brackets = 0;
        lx->begun = true;
        lx->begin_pos = (uint32_t)at;
        return data;
    }
    lx->at = lx->n;
    return token(QN_TT_DATA, from, lx->src + from, lx->n - from);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static int digit_value(char c)
{
    if (is_digit(c)) {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 99;
}

// Digits with single underscores between them, from at: the end.
static size_t digits_end(const struct qn_tlex *lx, size_t at, int base)
{
    while (at < lx->n) {
        if (digit_value(lx->src[at]) < base) {
            at++;
        } else if (lx->src[at] == '_' && at + 1 < lx->n && digit_value(lx->src[at + 1]) < base) {
            at += 2;
        } else {
            break;
        }
    }
    return at;
}

static struct qn_ttok lex_float(struct qn_tlex *lx, size_t from, size_t end)
{
    char text[128];
    size_t n = 0;
    for (size_t i = from; i < end; i++) {
        if (lx->src[i] == '_') {
            continue;
        }
        if (n + 1 >= sizeof text) {
            return lex_fail(lx, QN_E_LIMIT, from, "number longer than %zu digits", sizeof text - 1);
        }
        text[n++] = lx->src[i];
    }
    text[n] = '\0';
    struct qn_ttok t = token(QN_TT_FLOAT, from, lx->src + from, end - from);
    t.f = strtod(text, NULL);
    lx->at = end;
    return t;
}

static struct qn_ttok lex_number(struct qn_tlex *lx)
{
    size_t from = lx->at;
    size_t whole = digits_end(lx, from, 10);
    size_t end = whole;
    bool is_float = false;
    bool after_dot = from > 0 && lx->src[from - 1] == '.';
    if (!after_dot) {
        if (end + 1 < lx->n && lx->src[end] == '.' && is_digit(lx->src[end + 1])) {
            end = digits_end(lx, end + 1, 10);
            is_float = true;
        }
        if (end < lx->n && (lx->src[end] == 'e' || lx->src[end] == 'E')) {
            size_t exp = end + 1;
            exp += exp < lx->n && (lx->src[exp] == '+' || lx->src[exp] == '-') ? 1 : 0;
            if (exp < lx->n && is_digit(lx->src[exp])) {
                end = digits_end(lx, exp, 10);
                is_float = true;
            }
        }
    }
    if (is_float) {
        return lex_float(lx, from, end);
    }
    int base = 10;
    size_t at = from;
    end = whole;
    if (lx->src[from] == '0' && from + 1 < lx->n) {
        char c = (char)(lx->src[from + 1] | 0x20);
        int b = c == 'b' ? 2 : c == 'o' ? 8 : c == 'x' ? 16 : 0;
        size_t first = from + 2 + (from + 2 < lx->n && lx->src[from + 2] == '_' ? 1 : 0);
        if (b != 0 && first < lx->n && digit_value(lx->src[first]) < b) {
            base = b;
            at = first;
            end = digits_end(lx, first, b);
        }
    }
    if (base == 10 && lx->src[from] == '0') {
        end = digits_end(lx, from, 1); // a zero takes only zeros with it
    }
    struct qn_ttok t = token(QN_TT_INT, from, lx->src + from, end - from);
    for (; at < end; at++) {
        if (lx->src[at] == '_') {
            continue;
        }
        if (__builtin_mul_overflow(t.i, base, &t.i) ||
            __builtin_add_overflow(t.i, digit_value(lx->src[at]), &t.i)) {
            return lex_fail(lx, QN_E_LIMIT, from, "integer does not fit 64 bits");
        }
    }
    lx->at = end;
    return t;
}

// A code point given by up to max hexadecimal digits at `at`; exact count unless octal.
static bool escape_hex(const struct qn_tlex *lx, size_t at, size_t count, size_t end,
                       uint32_t *out_cp)
{
    uint32_t cp = 0;
    if (count > end - at) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        int d = digit_value(lx->src[at + i]);
        if (d > 15) {
            return false;
        }
        cp = cp << 4 | (uint32_t)d;
    }
    *out_cp = cp;
    return cp <= 0x10ffff && (cp < 0xd800 || cp > 0xdfff);
}

// Python's string escapes, src[from..end) to out; SIZE_MAX and an error if one is malformed.
static size_t unescape(struct qn_tlex *lx, size_t from, size_t end, char *out)
{
    static const char simple[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    size_t n = 0;
    for (size_t at = from; at < end;) {
        char c = lx->src[at];
        if (c != '\\' || at + 1 >= end) {
            out[n++] = c;
            at++;
            continue;
        }
        char e = lx->src[at + 1];
        const char *hit = NULL;
        for (const char *s = simple; *s != '\0'; s += 2) {
            hit = *s == e ? s : hit;
        }
        uint32_t cp = 0;
        if (hit != NULL) {
            out[n++] = hit[1];
            at += 2;
        } else if (e == '\n') {
            at += 2;
        } else if (e >= '0' && e <= '7') {
            size_t i = at + 1;
            while (i < end && i < at + 4 && lx->src[i] >= '0' && lx->src[i] <= '7') {
                cp = cp * 8 + (uint32_t)(lx->src[i++] - '0');
            }
            n += qn_utf8_put(cp, out + n);
            at = i;
        } else if (e == 'x' || e == 'u' || e == 'U') {
            size_t count = e == 'x' ? 2 : e == 'u' ? 4 : 8;
            if (!escape_hex(lx, at + 2, count, end, &cp)) {
                lex_fail(lx, QN_E_FORMAT, at,
                         "string escape \"\\%c\": expected %zu hexadecimal "
                         "digits of a code point",
                         e, count);
                return SIZE_MAX;
            }
            n += qn_utf8_put(cp, out + n);
            at += 2 + count;
        } else if (e == 'N') {
            lex_fail(lx, QN_E_UNSUPPORTED, at, "string escape \"\\N\" is not supported");
            return SIZE_MAX;
        } else {
            out[n++] = c; // Python keeps the backslash of an unknown escape
            at++;
        }
    }
    return n;
}

static struct qn_ttok lex_string(struct qn_tlex *lx)
{
    size_t from = lx->at + 1;
    char quote = lx->src[lx->at];
    bool escaped = false;
    size_t at = from;
    while (at < lx->n && lx->src[at] != quote) {
        escaped |= lx->src[at] == '\\';
        at += lx->src[at] == '\\' ? 2 : 1;
    }
    if (at >= lx->n) {
        return lex_fail(lx, QN_E_FORMAT, lx->at, "string without its closing quote");
    }
    struct qn_ttok t = token(QN_TT_STRING, lx->at, lx->src + from, at - from);
    if (escaped) {
        // An escape never grows: "\\7" gives one byte of two, "\\xff" two of four.
        char *out = qn_arena_alloc(lx->arena, at - from + 1);
        if (out == NULL) {
            return lex_fail(lx, QN_E_NOMEM, from, "could not allocate a string");
        }
        size_t n = unescape(lx, from, at, out);
        if (n == SIZE_MAX) {
            return token(QN_TT_ERROR, lx->err_pos, lx->src, 0);
        }
        t.p = out;
        t.n = n;
    }
    lx->at = at + 1;
    return t;
}

static struct qn_ttok lex_operator(struct qn_tlex *lx)
{
    static const struct {
        const char *text;
        enum qn_tt type;
    } ops[] = {
        {"//", QN_TT_FLOORDIV}, {"**", QN_TT_POW},     {"==", QN_TT_EQ},    {"!=", QN_TT_NE},
        {">=", QN_TT_GE},       {"<=", QN_TT_LE},      {"+", QN_TT_ADD},    {"-", QN_TT_SUB},
        {"/", QN_TT_DIV},       {"*", QN_TT_MUL},      {"%", QN_TT_MOD},    {"~", QN_TT_TILDE},
        {"[", QN_TT_LBRACKET},  {"]", QN_TT_RBRACKET}, {"(", QN_TT_LPAREN}, {")", QN_TT_RPAREN},
        {"{", QN_TT_LBRACE},    {"}", QN_TT_RBRACE},   {">", QN_TT_GT},     {"<", QN_TT_LT},
        {"=", QN_TT_ASSIGN},    {".", QN_TT_DOT},      {":", QN_TT_COLON},  {"|", QN_TT_PIPE},
        {",", QN_TT_COMMA},     {";", QN_TT_SEMICOLON}};
    size_t at = lx->at;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (!here(lx, at, ops[i].text)) {
            continue;
        }
        char c = ops[i].text[0];
        if (c == '(' || c == '[' || c == '{') {
            if (lx->n_brackets == QN_TLEX_MAX_BRACKETS) {
                return lex_fail(lx, QN_E_LIMIT, at, "brackets nested deeper than %d",
                                QN_TLEX_MAX_BRACKETS);
            }
            lx->brackets[lx->n_brackets++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (lx->n_brackets == 0) {
                return lex_fail(lx, QN_E_FORMAT, at, "unexpected \"%c\"", c);
            }
            char want = lx->brackets[--lx->n_brackets];
            if (want != c) {
                return lex_fail(lx, QN_E_FORMAT, at, "unexpected \"%c\", expected \"%c\"", c, want);
            }
        }
        lx->at = at + strlen(ops[i].text);
        return token(ops[i].type, at, lx->src + at, lx->at - at);
    }
    return lex_fail(lx, QN_E_FORMAT, at, "unexpected character \"%c\"", lx->src[at]);
}

static struct qn_ttok lex_tag(struct qn_tlex *lx)
{
    if (lx->n_brackets == 0) {
        bool block = lx->state == QN_TT_BLOCK_BEGIN;
        size_t end = 0;
        if (block) {
            end = tag_end(lx, lx->at, "%}");
        } else if (here(lx, lx->at, "-}}")) {
            end = skip_space(lx, lx->at + 3);
        } else if (here(lx, lx->at, "}}")) {
            end = lx->at + 2;
        }
        if (end != 0) {
            struct qn_ttok t =
                token(block ? QN_TT_BLOCK_END : QN_TT_VAR_END, lx->at, lx->src + lx->at, 2);
            leave_tag(lx, end);
            return t;
        }
    }
    size_t start = skip_space(lx, lx->at);
    if (start != lx->at) {
        lx->at = start;
        return lex_tag(lx);
    }
    if (lx->at >= lx->n) {
        return token(QN_TT_EOF, lx->n, lx->src + lx->n, 0);
    }
    char c = lx->src[lx->at];
    if (is_digit(c)) {
        return lex_number(lx);
    }
    if (is_name(c)) {
        size_t from = lx->at;
        while (lx->at < lx->n && is_name(lx->src[lx->at])) {
            lx->at++;
        }
        return token(QN_TT_NAME, from, lx->src + from, lx->at - from);
    }
    if (c == '\'' || c == '"') {
        return lex_string(lx);
    }
    return lex_operator(lx);
}

struct qn_ttok qn_tlex_next(struct qn_tlex *lx)
{
    if (lx->status != QN_OK) {
        return token(QN_TT_ERROR, lx->err_pos, lx->src, 0);
    }
    if (lx->begun) {
        lx->begun = false;
        return token(lx->state, lx->begin_pos, lx->src + lx->begin_pos, 2);
    }
    if (lx->state != QN_TT_DATA) {
        return lex_tag(lx);
    }
    if (lx->at >= lx->n) {
        return token(QN_TT_EOF, lx->n, lx->src + lx->n, 0);
    }
    return lex_data(lx);
}
