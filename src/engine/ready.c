#include "engine/ready.h"

#include <string.h>

void qn_submit_push(struct qn_submit_queue *q, struct quern_request *r)
{
    struct quern_request *head = atomic_load_explicit(&q->head, memory_order_relaxed);
    do {
        r->submit_next = head;
        // Release: the request's contents; partner: the exchange in qn_submit_take.
    } while (!atomic_compare_exchange_weak_explicit(&q->head, &head, r, memory_order_release,
                                                    memory_order_relaxed));
}

struct quern_request *qn_submit_take(struct qn_submit_queue *q)
{
    struct quern_request *r = atomic_exchange_explicit(&q->head, NULL, memory_order_acquire);
    struct quern_request *first = NULL;
    while (r != NULL) {
        struct quern_request *next = r->submit_next;
        r->submit_next = first;
        first = r;
        r = next;
    }
    return first;
}

void qn_ready_init(struct qn_ready_list *l)
{
    memset(l, 0, sizeof *l);
    atomic_init(&l->head, NULL);
    pthread_mutex_init(&l->mutex, NULL);
}

// Move what the engine has put on to the end of the consumers' list. Needs the mutex.
static void take(struct qn_ready_list *l)
{
    struct quern_request *r = atomic_exchange_explicit(&l->head, NULL, memory_order_acquire);
    struct quern_request *first = NULL, *last = r;
    while (r != NULL) {
        struct quern_request *next = r->ready_next;
        r->ready_next = first;
        first = r;
        r = next;
    }
    if (first == NULL) {
        return;
    }
    *(l->end != NULL ? &l->end->ready_next : &l->out) = first;
    l->end = last;
}

// Needs the mutex.
static struct quern_request *pop(struct qn_ready_list *l)
{
    struct quern_request *r = l->out;
    if (r != NULL) {
        l->out = r->ready_next;
        l->end = l->out != NULL ? l->end : NULL;
        r->ready_next = NULL;
    }
    return r;
}

void qn_ready_done(struct qn_ready_list *l)
{
    take(l);
    struct quern_request *r;
    while ((r = pop(l)) != NULL) {
        qn_request_unref(r);
    }
    pthread_mutex_destroy(&l->mutex);
}

bool qn_ready_push(struct qn_ready_list *l, struct quern_request *r)
{
    // Acquire and release on the flag: who clears it sees all that was published before, so that
    // no news falls between "on the list already" and "being read".
    if (atomic_load_explicit(&r->abandoned, memory_order_acquire) ||
        atomic_exchange_explicit(&r->ready, true, memory_order_acq_rel)) {
        return false;
    }
    atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed); // the list's
    struct quern_request *head = atomic_load_explicit(&l->head, memory_order_relaxed);
    do {
        r->ready_next = head;
    } while (!atomic_compare_exchange_weak_explicit(&l->head, &head, r, memory_order_release,
                                                    memory_order_relaxed));
    return true;
}

void qn_ready_wake(struct qn_ready_list *l)
{
    qn_park_wake(&l->park);
}

struct quern_request *qn_ready_pop(struct qn_ready_list *l)
{
    pthread_mutex_lock(&l->mutex);
    for (;;) {
        if (l->out == NULL) {
            take(l);
        }
        struct quern_request *r = pop(l);
        if (r == NULL) {
            pthread_mutex_unlock(&l->mutex);
            return NULL;
        }
        bool abandoned = atomic_load_explicit(&r->abandoned, memory_order_acquire);
        atomic_exchange_explicit(&r->ready, false, memory_order_acq_rel);
        qn_request_unref(r); // the owner still holds it, unless it let go
        if (!abandoned) {
            pthread_mutex_unlock(&l->mutex);
            return r;
        }
    }
}

void qn_ready_prune(struct qn_ready_list *l)
{
    pthread_mutex_lock(&l->mutex);
    take(l);
    struct quern_request *first = l->out, *next;
    l->out = l->end = NULL;
    for (struct quern_request *r = first; r != NULL; r = next) {
        next = r->ready_next;
        r->ready_next = NULL;
        if (atomic_load_explicit(&r->abandoned, memory_order_acquire)) {
            qn_request_unref(r);
            continue;
        }
        *(l->end != NULL ? &l->end->ready_next : &l->out) = r;
        l->end = r;
    }
    pthread_mutex_unlock(&l->mutex);
}
