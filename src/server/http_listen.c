#include "server/http_conn.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,
    ACCEPTS_PER_EVENT = 64, // then the connections that exist get their turn
    RETRY_MS = 100,
    SEND_BUFFER = 128 * 1024 // what the system may hold of a stream that is not read
};

static void listeners_enable(struct qn_http *http, bool on)
{
    for (size_t i = 0; i < http->n_listeners; i++) {
        if (on) {
            event_add(http->listeners[i].ev, NULL);
        } else {
            event_del(http->listeners[i].ev);
        }
    }
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    listeners_enable(arg, true);
}

static void on_acceptable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct qn_http *http = ((struct qn_http_listener *)arg)->http;
    for (int i = 0; i < ACCEPTS_PER_EVENT; i++) {
        int peer = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (peer < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                // the listener stays readable: wait for descriptors instead of spinning
                struct timeval tv = {.tv_usec = RETRY_MS * 1000};
                listeners_enable(http, false);
                event_add(http->resume, &tv);
            }
            return;
        }
        int one = 1; // every event goes out at once; not a TCP socket: no harm
        (void)setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        int size = SEND_BUFFER;
        (void)setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
        qn_conn_accept(http, peer);
    }
}

static enum qn_status add_listener(struct qn_http *http, int fd, struct qn_err *err)
{
    if (http->resume == NULL) {
        http->resume = event_new(http->base, -1, 0, on_resume, http);
    }
    struct qn_http_listener *l = &http->listeners[http->n_listeners];
    struct event *ev = http->n_listeners < QN_HTTP_MAX_LISTENERS
                           ? event_new(http->base, fd, EV_READ | EV_PERSIST, on_acceptable, l)
                           : NULL;
    if (ev == NULL || http->resume == NULL) {
        if (ev != NULL) {
            event_free(ev);
        }
        close(fd);
        return qn_fail(err, QN_E_NOMEM, "could not allocate a listener");
    }
    *l = (struct qn_http_listener){.fd = fd, .ev = ev, .http = http};
    http->n_listeners++;
    event_add(ev, NULL);
    return QN_OK;
}

static int open_tcp(const struct addrinfo *ai)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    int one = 1, zero = 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (ai->ai_family == AF_INET6) {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    }
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        int saved = errno;
        close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static unsigned bound_port(int fd)
{
    struct sockaddr_storage ss;
    socklen_t n = sizeof ss;
    if (getsockname(fd, (struct sockaddr *)&ss, &n) != 0) {
        return 0;
    }
    if (ss.ss_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, &ss, sizeof in6);
        return ntohs(in6.sin6_port);
    }
    struct sockaddr_in in4;
    memcpy(&in4, &ss, sizeof in4);
    return ntohs(in4.sin_port);
}

enum qn_status qn_http_listen_tcp(struct qn_http *http, const char *host, unsigned port,
                                  unsigned *out_port, struct qn_err *err)
{
    if (port > 65535) {
        return qn_fail(err, QN_E_INVALID, "port: found %u, expected 0 to 65535", port);
    }
    char service[16];
    snprintf(service, sizeof service, "%u", port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) {
        return qn_fail(err, QN_E_INVALID, "host \"%s\": %s", host != NULL ? host : "",
                       gai_strerror(rc));
    }
    // All interfaces: one IPv6 socket takes both families; without IPv6 the IPv4 one is used.
    int fd = -1, why = EADDRNOTAVAIL;
    for (int pass = 0; pass < 2 && fd < 0; pass++) {
        for (const struct addrinfo *ai = list; ai != NULL && fd < 0; ai = ai->ai_next) {
            bool first = host != NULL || ai->ai_family == AF_INET6;
            if (first == (pass == 0)) {
                fd = open_tcp(ai);
                why = fd < 0 ? errno : 0;
            }
        }
    }
    freeaddrinfo(list);
    if (fd < 0) {
        return qn_fail(err, QN_E_IO, "could not listen on %s port %u: %s",
                       host != NULL ? host : "all interfaces,", port, strerror(why));
    }
    if (out_port != NULL) {
        *out_port = bound_port(fd);
    }
    return add_listener(http, fd, err);
}

enum qn_status qn_http_listen_unix(struct qn_http *http, const char *path, struct qn_err *err)
{
    struct sockaddr_un sun = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof sun.sun_path) {
        return qn_fail(err, QN_E_INVALID, "socket path: found %zu bytes, expected 1 to %zu", n,
                       sizeof sun.sun_path - 1);
    }
    memcpy(sun.sun_path, path, n);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return qn_fail(err, QN_E_IO, "could not create a socket: %s", strerror(errno));
    }
    struct stat st;
    if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode)) {
        int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool alive = probe >= 0 && connect(probe, (struct sockaddr *)&sun, sizeof sun) == 0;
        if (probe >= 0) {
            close(probe);
        }
        if (alive) {
            close(fd);
            return qn_fail(err, QN_E_IO, "could not listen on \"%s\": another server answers there",
                           path);
        }
        unlink(path);
    }
    char *keep = strdup(path);
    if (keep == NULL || bind(fd, (struct sockaddr *)&sun, sizeof sun) != 0 ||
        listen(fd, BACKLOG) != 0) {
        enum qn_status rc =
            qn_fail(err, QN_E_IO, "could not listen on \"%s\": %s", path, strerror(errno));
        free(keep);
        close(fd);
        return rc;
    }
    enum qn_status rc = add_listener(http, fd, err);
    if (rc != QN_OK) {
        unlink(path);
        free(keep);
        return rc;
    }
    http->listeners[http->n_listeners - 1].unlink_path = keep;
    return QN_OK;
}
