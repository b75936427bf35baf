#ifndef QN_BASE_JSON_H
#define QN_BASE_JSON_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/// Parse exactly one JSON value of n bytes: duplicate keys, invalid UTF-8, trailing bytes and
/// nesting deeper than `max_depth` are errors. NUL escapes are allowed. An integer that 64 bits
/// cannot hold is read as a real number. The caller owns *out.
enum qn_status qn_json_parse(const char *text, size_t n, unsigned max_depth, json_t **out,
                             struct qn_err *err);
/// The same from a file of at most `limit` bytes; errors name the file.
enum qn_status qn_json_read(const char *path, size_t limit, unsigned max_depth, json_t **out,
                            struct qn_err *err);

/// Typed member access. Absent or null: *out keeps its value and *out_found (may be NULL) is
/// false. Wrong type or out of range: QN_E_FORMAT naming key, found type and expectation.
enum qn_status qn_json_get_int(const json_t *obj, const char *key, int64_t min, int64_t max,
                               int64_t *out, bool *out_found, struct qn_err *err);
enum qn_status qn_json_get_num(const json_t *obj, const char *key, double *out, bool *out_found,
                               struct qn_err *err);
enum qn_status qn_json_get_bool(const json_t *obj, const char *key, bool *out, bool *out_found,
                                struct qn_err *err);
/// *out borrows from obj.
enum qn_status qn_json_get_str(const json_t *obj, const char *key, const char **out,
                               bool *out_found, struct qn_err *err);
/// "an object", "a string", … for messages.
const char *qn_json_type_name(const json_t *v);

#endif
