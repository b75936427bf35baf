#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "server/call.h"

// Parsing, templates and tokenising may take a while for a large body, and the loop must keep
// serving streams and probes meanwhile: one thread does them, in order of arrival.

struct queue {
    struct qn_call *first, **last;
};

struct qn_work {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct queue todo, ready;
    bool stop;
    int fd;
    struct event *ev;
    qn_work_fn *run, *done;
};

static void queue_push(struct queue *q, struct qn_call *call)
{
    call->next = NULL;
    *q->last = call;
    q->last = &call->next;
}

static struct qn_call *queue_pop(struct queue *q)
{
    struct qn_call *call = q->first;
    if (call != NULL) {
        q->first = call->next;
        if (q->first == NULL) {
            q->last = &q->first;
        }
    }
    return call;
}

static void *worker(void *arg)
{
    struct qn_work *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (!w->stop && w->todo.first == NULL) {
            pthread_cond_wait(&w->wake, &w->lock);
        }
        if (w->stop) {
            break;
        }
        struct qn_call *call = queue_pop(&w->todo);
        pthread_mutex_unlock(&w->lock);
        w->run(call);
        pthread_mutex_lock(&w->lock);
        queue_push(&w->ready, call);
        uint64_t one = 1;
        ssize_t k = write(w->fd, &one, sizeof one); // cannot block before 2^64 - 1 calls
        (void)k;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void on_done(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct qn_work *w = arg;
    uint64_t n = 0;
    ssize_t k = read(fd, &n, sizeof n);
    (void)k;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        struct qn_call *call = queue_pop(&w->ready);
        pthread_mutex_unlock(&w->lock);
        if (call == NULL) {
            return;
        }
        w->done(call);
    }
}

enum qn_status qn_work_new(struct event_base *base, qn_work_fn *run, qn_work_fn *done,
                           struct qn_work **out_work, struct qn_err *err)
{
    struct qn_work *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the worker");
    }
    w->todo.last = &w->todo.first;
    w->ready.last = &w->ready.first;
    w->run = run;
    w->done = done;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    w->ev = w->fd >= 0 ? event_new(base, w->fd, EV_READ | EV_PERSIST, on_done, w) : NULL;
    int rc = w->ev != NULL ? pthread_create(&w->thread, NULL, worker, w) : ENOMEM;
    if (rc != 0) {
        if (w->ev != NULL) {
            event_free(w->ev);
        }
        if (w->fd >= 0) {
            close(w->fd);
        }
        free(w);
        return qn_fail(err, QN_E_IO, "could not start the worker thread: %s", strerror(rc));
    }
    event_add(w->ev, NULL);
    *out_work = w;
    return QN_OK;
}

void qn_work_push(struct qn_work *w, struct qn_call *call)
{
    pthread_mutex_lock(&w->lock);
    queue_push(&w->todo, call);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void qn_work_free(struct qn_work *w)
{
    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    event_free(w->ev);
    close(w->fd);
    for (struct qn_call *c; (c = queue_pop(&w->ready)) != NULL;) {
        w->done(c);
    }
    for (struct qn_call *c; (c = queue_pop(&w->todo)) != NULL;) {
        w->done(c);
    }
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
