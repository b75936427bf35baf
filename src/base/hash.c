#include "base/hash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

__extension__ typedef unsigned __int128 qn_u128;

static uint64_t fold(uint64_t a, uint64_t b)
{
    qn_u128 p = (qn_u128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

static uint64_t load64(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

uint64_t qn_hash64(const void *data, size_t n, uint64_t seed)
{
    const uint64_t k0 = 0x9e3779b97f4a7c15u, k1 = 0xd6e8feb86659fd93u;
    const unsigned char *p = data;
    uint64_t h = seed ^ k0;
    size_t left = n;
    for (; left >= 16; left -= 16, p += 16) {
        h = fold(load64(p) ^ k1 ^ h, load64(p + 8) ^ k0);
    }
    unsigned char tail[16] = {0};
    if (left > 0) {
        memcpy(tail, p, left);
    }
    h = fold(load64(tail) ^ k1 ^ h, load64(tail + 8) ^ k0 ^ (uint64_t)n);
    return fold(h ^ k1, k0);
}

uint64_t qn_hash_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) {
        seed = qn_clock_ns() * 0x9e3779b97f4a7c15u;
    }
    return seed;
}

struct qn_strmap_slot {
    const char *key; // NULL: empty
    size_t len;
    uint64_t hash;
    uint32_t value;
};

void qn_strmap_init(struct qn_strmap *m)
{
    *m = (struct qn_strmap){.seed = qn_hash_seed()};
}

void qn_strmap_done(struct qn_strmap *m)
{
    free(m->slots);
    *m = (struct qn_strmap){0};
}

static struct qn_strmap_slot *find(struct qn_strmap_slot *slots, size_t n_slots, const char *key,
                                   size_t len, uint64_t hash)
{
    for (size_t i = hash & (n_slots - 1);; i = (i + 1) & (n_slots - 1)) {
        struct qn_strmap_slot *s = &slots[i];
        if (s->key == NULL || (s->hash == hash && s->len == len && memcmp(s->key, key, len) == 0)) {
            return s;
        }
    }
}

static bool grow(struct qn_strmap *m)
{
    size_t n = m->n_slots == 0 ? 64 : m->n_slots * 2;
    struct qn_strmap_slot *slots = calloc(n, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < m->n_slots; i++) {
        const struct qn_strmap_slot *s = &m->slots[i];
        if (s->key != NULL) {
            *find(slots, n, s->key, s->len, s->hash) = *s;
        }
    }
    free(m->slots);
    m->slots = slots;
    m->n_slots = n;
    return true;
}

bool qn_strmap_put(struct qn_strmap *m, const char *key, size_t len, uint32_t value,
                   bool *out_existing)
{
    if (out_existing != NULL) {
        *out_existing = false;
    }
    if (2 * (m->n_used + 1) > m->n_slots && !grow(m)) {
        return false;
    }
    uint64_t hash = qn_hash64(key, len, m->seed);
    struct qn_strmap_slot *s = find(m->slots, m->n_slots, key, len, hash);
    if (s->key != NULL) {
        if (out_existing != NULL) {
            *out_existing = true;
        }
        return false;
    }
    *s = (struct qn_strmap_slot){.key = key, .len = len, .hash = hash, .value = value};
    m->n_used++;
    return true;
}

bool qn_strmap_get(const struct qn_strmap *m, const char *key, size_t len, uint32_t *out_value)
{
    if (m->n_slots == 0) {
        return false;
    }
    const struct qn_strmap_slot *s =
        find(m->slots, m->n_slots, key, len, qn_hash64(key, len, m->seed));
    if (s->key == NULL) {
        return false;
    }
    *out_value = s->value;
    return true;
}
