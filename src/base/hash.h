#ifndef QN_BASE_HASH_H
#define QN_BASE_HASH_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// 64-bit hash of bytes (multiply-and-fold over 16-byte steps). Not for secrets; `seed` keys it
/// against crafted collisions (qn_hash_seed: random per process).
uint64_t qn_hash64(const void *data, size_t n, uint64_t seed);
uint64_t qn_hash_seed(void);

/// Map from byte strings to uint32 values. Keys are borrowed: they must outlive the map.
struct qn_strmap {
    struct qn_strmap_slot *slots;
    size_t n_slots; // power of two, or 0
    size_t n_used;
    uint64_t seed;
};

void qn_strmap_init(struct qn_strmap *m);
void qn_strmap_done(struct qn_strmap *m);
/// False when memory could not be had or the key exists (then *out_existing, if given, is set to
/// true and the map is unchanged).
bool qn_strmap_put(struct qn_strmap *m, const char *key, size_t len, uint32_t value,
                   bool *out_existing);
bool qn_strmap_get(const struct qn_strmap *m, const char *key, size_t len, uint32_t *out_value);

#endif
