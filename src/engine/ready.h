#ifndef QN_ENGINE_READY_H
#define QN_ENGINE_READY_H

#include "base/park.h"
#include "engine/request.h"

#include <pthread.h>

/// Requests between threads, without locks on the engine's side: submitted ones on their way to
/// the engine, and those with news on their way back. Both are stacks that the taker empties at
/// once and turns round.

/// Any number of producers, the engine takes.
struct qn_submit_queue {
    struct quern_request *_Atomic head;
};
void qn_submit_push(struct qn_submit_queue *q, struct quern_request *r);
/// All of it, first submitted first, linked by submit_next.
struct quern_request *qn_submit_take(struct qn_submit_queue *q);

/// The engine produces, any number of consumers take one by one.
struct qn_ready_list {
    struct quern_request *_Atomic head;
    struct qn_park park;
    pthread_mutex_t mutex;           ///< of consumers, for the rest
    struct quern_request *out, *end; ///< taken from head, oldest first
};
void qn_ready_init(struct qn_ready_list *l);
/// Drops what is still on it.
void qn_ready_done(struct qn_ready_list *l);
/// Engine: the request has news. Nothing happens when it is on the list already or its owner has
/// let go of it. True when it was put on.
bool qn_ready_push(struct qn_ready_list *l, struct quern_request *r);
/// Wake a sleeping consumer; once per step.
void qn_ready_wake(struct qn_ready_list *l);
/// The next request, or NULL. The caller must be able to reach its owner.
struct quern_request *qn_ready_pop(struct qn_ready_list *l);
/// Forget every request whose owner has let go of it.
void qn_ready_prune(struct qn_ready_list *l);

#endif
