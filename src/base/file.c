#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static enum qn_status open_regular(const char *path, int *out_fd, size_t *out_size,
                                   struct qn_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return qn_fail(err, errno == ENOENT ? QN_E_NOT_FOUND : QN_E_IO, "could not open: %s",
                       strerror(errno));
    }
    struct stat st;
    if (fstat(fd, &st) != 0) {
        int e = errno;
        close(fd);
        return qn_fail(err, QN_E_IO, "could not stat: %s", strerror(e));
    }
    if (!S_ISREG(st.st_mode)) {
        close(fd);
        return qn_fail(err, QN_E_INVALID, "found %s, expected a regular file",
                       S_ISDIR(st.st_mode) ? "a directory" : "a special file");
    }
    *out_fd = fd;
    *out_size = (size_t)st.st_size;
    return QN_OK;
}

enum qn_status qn_map_open(const char *path, struct qn_map *out_map, struct qn_err *err)
{
    int fd;
    size_t size;
    enum qn_status rc = open_regular(path, &fd, &size, err);
    if (rc != QN_OK) {
        return rc;
    }
    void *p = NULL;
    if (size > 0) {
        p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            int e = errno;
            close(fd);
            return qn_fail(err, QN_E_IO, "could not map %zu bytes: %s", size, strerror(e));
        }
    }
    close(fd);
    *out_map = (struct qn_map){.data = p, .n_bytes = size};
    return QN_OK;
}

void qn_map_close(struct qn_map *m)
{
    if (m->data != NULL) {
        munmap((void *)(uintptr_t)m->data, m->n_bytes);
    }
    *m = (struct qn_map){0};
}

static void advise(const struct qn_map *m, size_t offset, size_t n_bytes, int advice)
{
    if (m->data == NULL || offset >= m->n_bytes) {
        return;
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t end = n_bytes > m->n_bytes - offset ? m->n_bytes : offset + n_bytes;
    size_t start = offset / page * page;
    (void)madvise((void *)(uintptr_t)(m->data + start), end - start, advice);
}

void qn_map_will_need(const struct qn_map *m, size_t offset, size_t n_bytes)
{
    advise(m, offset, n_bytes, MADV_WILLNEED);
}

void qn_map_dont_need(const struct qn_map *m, size_t offset, size_t n_bytes)
{
    advise(m, offset, n_bytes, MADV_DONTNEED);
}

static _Thread_local sigjmp_buf *t_guard;
static pthread_once_t g_guard_once = PTHREAD_ONCE_INIT;

static struct sigaction g_sigbus_before;

// Outside a guard (a step reads embedding rows straight from the map) nothing can be saved: say why
// the process ends. BUS_ADRERR is what a page beyond a file's end raises.
static void on_sigbus(int sig, siginfo_t *info, void *context)
{
    (void)context;
    if (t_guard != NULL) {
        siglongjmp(*t_guard, 1);
    }
    if (info->si_code == BUS_ADRERR && g_sigbus_before.sa_handler == SIG_DFL) {
        static const char text[] = "error: could not read the model: its file shrank or its disk "
                                   "failed while mapped\n";
        static atomic_flag said = ATOMIC_FLAG_INIT; // every worker may come here at once
        while (atomic_flag_test_and_set_explicit(&said, memory_order_relaxed)) {
            pause();
        }
        ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
        (void)n;
        _exit(1);
    }
    sigaction(sig, &g_sigbus_before, NULL); // the access is made again and meets it
}

static void guard_install(void)
{
    struct sigaction sa = {.sa_sigaction = on_sigbus, .sa_flags = SA_NODEFER | SA_SIGINFO};
    sigemptyset(&sa.sa_mask);
    sigaction(SIGBUS, &sa, &g_sigbus_before);
}

enum qn_status qn_map_guard(void (*fn)(void *arg), void *arg, struct qn_err *err)
{
    pthread_once(&g_guard_once, guard_install);
    sigjmp_buf env;
    sigjmp_buf *volatile outer = t_guard;
    if (sigsetjmp(env, 1) != 0) {
        t_guard = outer;
        return qn_fail(err, QN_E_IO,
                       "could not read: the file shrank or its disk failed while mapped");
    }
    t_guard = &env;
    fn(arg);
    t_guard = outer;
    return QN_OK;
}

enum qn_status qn_file_read(const char *path, size_t limit, char **out_data, size_t *out_n,
                            struct qn_err *err)
{
    int fd;
    size_t size;
    enum qn_status rc = open_regular(path, &fd, &size, err);
    if (rc != QN_OK) {
        return rc;
    }
    char *data = NULL;
    if (size > limit) {
        rc = qn_fail(err, QN_E_LIMIT, "file has %zu bytes, limit %zu", size, limit);
        goto fail;
    }
    data = malloc(size + 1);
    if (data == NULL) {
        rc = qn_fail(err, QN_E_NOMEM, "could not allocate %zu bytes", size + 1);
        goto fail;
    }
    size_t n = 0;
    while (n < size) {
        ssize_t got = read(fd, data + n, size - n);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            rc = qn_fail(err, QN_E_IO, "could not read: %s",
                         got < 0 ? strerror(errno) : "file ended early");
            goto fail;
        }
        n += (size_t)got;
    }
    data[n] = '\0';
    close(fd);
    *out_data = data;
    *out_n = n;
    return QN_OK;
fail:
    free(data);
    close(fd);
    return rc;
}

bool qn_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool qn_dir_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *qn_path_join(const char *dir, const char *name)
{
    char *p = NULL;
    size_t n = strlen(dir);
    const char *sep = n > 0 && dir[n - 1] == '/' ? "" : "/";
    if (asprintf(&p, "%s%s%s", dir, sep, name) < 0) {
        return NULL;
    }
    return p;
}
