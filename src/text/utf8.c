#include "text/utf8.h"

size_t qn_utf8_put(uint32_t cp, char *out)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0u | (cp >> 6));
        out[1] = (char)(0x80u | (cp & 0x3Fu));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0u | (cp >> 12));
        out[1] = (char)(0x80u | ((cp >> 6) & 0x3Fu));
        out[2] = (char)(0x80u | (cp & 0x3Fu));
        return 3;
    }
    out[0] = (char)(0xF0u | (cp >> 18));
    out[1] = (char)(0x80u | ((cp >> 12) & 0x3Fu));
    out[2] = (char)(0x80u | ((cp >> 6) & 0x3Fu));
    out[3] = (char)(0x80u | (cp & 0x3Fu));
    return 4;
}

enum qn_utf8_kind qn_utf8_next(const unsigned char *p, size_t n, size_t *out_len)
{
    unsigned char b = p[0], low = 0x80, high = 0xBF; // bounds of the second byte
    size_t want;
    if (b < 0x80) {
        *out_len = 1;
        return QN_UTF8_CHAR;
    }
    if (b >= 0xC2 && b <= 0xDF) {
        want = 2;
    } else if (b >= 0xE0 && b <= 0xEF) {
        want = 3;
        low = b == 0xE0 ? 0xA0 : 0x80;
        high = b == 0xED ? 0x9F : 0xBF;
    } else if (b >= 0xF0 && b <= 0xF4) {
        want = 4;
        low = b == 0xF0 ? 0x90 : 0x80;
        high = b == 0xF4 ? 0x8F : 0xBF;
    } else {
        *out_len = 1;
        return QN_UTF8_INVALID;
    }
    for (size_t i = 1; i < want; i++) {
        if (i == n) {
            *out_len = n;
            return QN_UTF8_PARTIAL;
        }
        if (p[i] < low || p[i] > high) {
            *out_len = i;
            return QN_UTF8_INVALID;
        }
        low = 0x80;
        high = 0xBF;
    }
    *out_len = want;
    return QN_UTF8_CHAR;
}

size_t qn_utf8_valid_prefix(const char *p, size_t n)
{
    const unsigned char *u = (const unsigned char *)p;
    size_t i = 0;
    while (i < n) {
        uint64_t eight;
        if (n - i >= sizeof eight) {
            memcpy(&eight, u + i, sizeof eight);
            if ((eight & 0x8080808080808080u) == 0) {
                i += sizeof eight;
                continue;
            }
        }
        size_t len;
        if (qn_utf8_next(u + i, n - i, &len) != QN_UTF8_CHAR) {
            return i;
        }
        i += len;
    }
    return n;
}
