#include "text/tok.h"

#include <string.h>

#include "text/utf8.h"

// The byte-level family writes each byte as one printable letter: bytes that print in Latin-1 stand
// for themselves, the 68 others follow from U+0100 on, in order.

static bool stands_for_itself(unsigned b)
{
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

/// Rank of a byte among those that do not stand for themselves.
static unsigned other_rank(unsigned b)
{
    if (b <= 0x20) {
        return b;
    }
    return b <= 0xA0 ? b - 0x7F + 0x21 : 0x43;
}

static int letter_byte(uint32_t cp)
{
    if (cp < 0x100) {
        return stands_for_itself(cp) ? (int)cp : -1;
    }
    uint32_t rank = cp - 0x100;
    if (rank <= 0x20) {
        return (int)rank;
    }
    if (rank <= 0x42) {
        return (int)(rank - 0x21 + 0x7F);
    }
    return rank == 0x43 ? 0xAD : -1;
}

bool qn_tok_letters_to_bytes(const char *text, size_t n, char *out, size_t *out_n)
{
    size_t len, k = 0;
    for (size_t i = 0; i < n; i += len) {
        int b = letter_byte(qn_utf8_get(text + i, &len));
        if (b < 0) {
            return false;
        }
        out[k++] = (char)b;
    }
    *out_n = k;
    return true;
}

size_t qn_tok_byte_letter(unsigned char b, char *out)
{
    return qn_utf8_put(stands_for_itself(b) ? b : 0x100 + other_rank(b), out);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int qn_tok_byte_value(const char *text, size_t n)
{
    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') {
        return -1;
    }
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}
