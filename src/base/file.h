#ifndef QN_BASE_FILE_H
#define QN_BASE_FILE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// A regular file mapped read-only. `data` is NULL for an empty file.
struct qn_map {
    const unsigned char *data;
    size_t n_bytes;
};

/// Map a whole regular file. A directory, a device or a missing file is an error that names
/// neither more nor less than the reason; callers add the path as context.
/// A file that shrinks while mapped raises SIGBUS: qn_map_guard turns that into an error; outside
/// of it the process ends with a sentence (once any guard was used), or in the handler it had
/// before.
enum qn_status qn_map_open(const char *path, struct qn_map *out_map, struct qn_err *err);
void qn_map_close(struct qn_map *m);
/// Tell the kernel that the pages of a range will (or will not) be needed soon.
void qn_map_will_need(const struct qn_map *m, size_t offset, size_t n_bytes);
void qn_map_dont_need(const struct qn_map *m, size_t offset, size_t n_bytes);
/// Run fn(arg) so that a SIGBUS inside any guarded mapping read by this thread ends it with
/// QN_E_IO instead of the process. fn must not own resources that a jump would leak.
enum qn_status qn_map_guard(void (*fn)(void *arg), void *arg, struct qn_err *err);

/// Read a whole regular file of at most `limit` bytes; NUL-terminated, to be freed by the caller.
enum qn_status qn_file_read(const char *path, size_t limit, char **out_data, size_t *out_n,
                            struct qn_err *err);
bool qn_file_exists(const char *path);
bool qn_dir_exists(const char *path);
/// "DIR/NAME" as a fresh string, or NULL.
char *qn_path_join(const char *dir, const char *name);

#endif
