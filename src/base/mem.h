#ifndef QN_BASE_MEM_H
#define QN_BASE_MEM_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

/// What a reservation is for, so that a plan can be held against what happened.
enum qn_mem_purpose {
    QN_MEM_WEIGHTS,
    QN_MEM_KV,
    QN_MEM_ACTIVATIONS,
    QN_MEM_TEXT,
    QN_MEM_REQUEST,
    QN_MEM_OTHER,
    QN_MEM_N_PURPOSES
};

/// Large, page-aligned, zeroed memory (mmap, with huge-page advice when at least 4 MiB). NULL when
/// it cannot be had. Free with qn_pages_free and the same size.
void *qn_pages_alloc(size_t n_bytes, enum qn_mem_purpose purpose);
void qn_pages_free(void *p, size_t n_bytes, enum qn_mem_purpose purpose);

/// Bytes now held by qn_pages_alloc and arenas for a purpose.
uint64_t qn_mem_held_bytes(enum qn_mem_purpose purpose);
const char *qn_mem_purpose_name(enum qn_mem_purpose purpose);

/// Arena: objects of one lifetime, freed together. Not thread-safe. Chunks grow as needed up to
/// `limit_bytes` (0: no limit); ASan red zones stand between objects.
struct qn_arena;
enum qn_status qn_arena_new(enum qn_mem_purpose purpose, size_t limit_bytes,
                            struct qn_arena **out_arena, struct qn_err *err);
/// Zeroed memory, aligned to 64 bytes when n_bytes >= 64, else to 16. NULL at the limit.
void *qn_arena_alloc(struct qn_arena *a, size_t n_bytes);
/// n * size with overflow check.
void *qn_arena_array(struct qn_arena *a, size_t n, size_t size);
char *qn_arena_strdup(struct qn_arena *a, const char *s);
char *qn_arena_strndup(struct qn_arena *a, const char *s, size_t n);
/// Forget every object, keep the chunks (a step arena).
void qn_arena_reset(struct qn_arena *a);
size_t qn_arena_used_bytes(const struct qn_arena *a);
void qn_arena_free(struct qn_arena *a); // takes NULL

/// 64-byte aligned heap memory for objects with one owner; free with free(). NULL on failure or
/// overflow.
void *qn_aligned_alloc(size_t n, size_t size);

#endif
