#ifndef QN_TEXT_UCLASS_H
#define QN_TEXT_UCLASS_H

#include <stdint.h>

/// Classes of code points that split patterns ask for, as bits.
enum {
    QN_UC_LETTER = 1, ///< \p{L}
    QN_UC_NUMBER = 2, ///< \p{N}
    QN_UC_SPACE = 4,  ///< White_Space
    QN_UC_UPPER = 8,  ///< \p{Lu}, Lt, Lm, Lo, M
    QN_UC_LOWER = 16, ///< \p{Ll}, Lm, Lo, M
    QN_UC_MARK = 32   ///< \p{M}
};

enum {
    QN_UC_FLAT = 0x32400, ///< above it only variation selectors have classes
    QN_UC_VS_FIRST = 0xE0100,
    QN_UC_VS_LAST = 0xE01EF
};

/// One byte of class bits per code point below QN_UC_FLAT. Filled once per tokenizer from ranges
/// of Unicode 16, so that splitting does not depend on the system's Unicode tables.
void qn_uclass_fill(uint8_t *table);

static inline unsigned qn_uclass(const uint8_t *table, uint32_t cp)
{
    if (cp < QN_UC_FLAT) {
        return table[cp];
    }
    return cp >= QN_UC_VS_FIRST && cp <= QN_UC_VS_LAST ? QN_UC_UPPER | QN_UC_LOWER | QN_UC_MARK : 0;
}

#endif
