#ifndef QN_TEXT_TEMPLATE_H
#define QN_TEXT_TEMPLATE_H

#include "base/buf.h"
#include "base/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/// Chat templates: the Jinja subset that published templates use, as transformers configures Jinja2
/// (trim_blocks, lstrip_blocks, loop controls, generation blocks ignored, tojson without HTML
/// escapes). Compiled once, immutable, rendered by any thread.
struct qn_tmpl;

/// Syntax errors are QN_E_FORMAT with line and column. Unknown filters, tests and statements are
/// errors at compile time where they can be seen.
enum qn_status qn_tmpl_compile(const char *text, size_t n, struct qn_tmpl **out_tmpl,
                               struct qn_err *err);
void qn_tmpl_free(struct qn_tmpl *t); // takes NULL

/// Budgets of one render; 0 takes the default.
struct qn_tmpl_limits {
    uint64_t steps;      ///< evaluated nodes and produced bytes / 16 (default 20 million)
    size_t depth;        ///< nested calls and expressions (default 128)
    size_t output_bytes; ///< text and any intermediate string (default 16 MiB)
    size_t memory_bytes; ///< values alive (default 128 MiB)
};

/// Render with a context object. Members of `context` are data from a request: every byte of the
/// output that came from them is marked 1 in `plain`, bytes written by the template itself (and
/// members of `trusted`, such as bos_token) are 0.
/// @param context   object: messages, tools, add_generation_prompt, kwargs, …
/// @param trusted   object or NULL: bos_token, eos_token, …
/// @param now_s     the clock for strftime_now, seconds since 1970 (UTC).
/// @param[out] out  appended; on failure unspecified.
/// @param[out] plain one byte per output byte, appended; NULL if not wanted.
/// raise_exception and every run-time error are QN_E_INVALID with the template's text; a budget is
/// QN_E_LIMIT.
enum qn_status qn_tmpl_render(const struct qn_tmpl *t, const json_t *context, const json_t *trusted,
                              int64_t now_s, const struct qn_tmpl_limits *limits,
                              struct qn_buf *out, struct qn_buf *plain, struct qn_err *err);

#endif
