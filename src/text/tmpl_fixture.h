#ifndef QN_TEXT_TMPL_FIXTURE_H
#define QN_TEXT_TMPL_FIXTURE_H

#include "base/buf.h"
#include "text/template.h"

/// Helpers of the template tests: compile, render, look at the outcome.

struct rendered {
    enum qn_status rc;
    struct qn_err err;
    struct qn_buf text;
    struct qn_buf plain; ///< one byte, 0 or 1, per byte of text
};

/// Render with a context and trusted members in JSON (NULL: an empty object, none). The clock says
/// 2025-11-30 22:00:05 UTC. Free with rendered_done.
struct rendered render(const char *source, const char *context, const char *trusted);
struct rendered render_limited(const char *source, const char *context,
                               const struct qn_tmpl_limits *limits);
void rendered_done(struct rendered *r);
/// Assertions that print what came instead.
void check_text(const char *source, const char *context, const char *want);
/// It fails with that status and the message holds `part`.
void check_fails(const char *source, const char *context, enum qn_status rc, const char *part);
/// The marks as a string of 0 and 1.
void check_plain(const char *source, const char *context, const char *trusted, const char *text,
                 const char *marks);

#endif
