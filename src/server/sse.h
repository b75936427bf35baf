#ifndef QN_SERVER_SSE_H
#define QN_SERVER_SSE_H

#include "server/gen.h"
#include "server/jsonw.h"

/// Server-sent events of one generation: "data: JSON" and an empty line, one event a write.

/// Send the answer's head, once.
void qn_sse_open(struct qn_gen *g);
void qn_sse_send(struct qn_gen *g, const struct qn_buf *json);
/// "[DONE]" and the end. The generation is gone afterwards.
void qn_sse_close(struct qn_gen *g);
/// The call's error as an event, then the end. The generation is gone afterwards.
void qn_sse_fail(struct qn_gen *g);

#endif
