#ifndef QN_TEXT_CHAT_H
#define QN_TEXT_CHAT_H

#include "base/buf.h"
#include "base/status.h"
#include "text/template.h"

#include <jansson.h>
#include <stdbool.h>

/// Conversations on their way into a chat template.

/// Whether a template loops over a message's content, so that it wants a list of parts rather than
/// one string. Found in the compiled template: a loop over `messages`, then one over the turn's
/// content, through variables, slices and macro parameters.
bool qn_tmpl_wants_parts(const struct qn_tmpl *t);

/// A copy of a list of messages in the form that templates expect:
/// - tool_calls[].function.arguments that are a JSON object in a string become that object; any
///   other string stays;
/// - content that is a list of text parts alone becomes one string, parts joined by newlines,
///   unless the template wants parts; other content stays;
/// - reasoning_content, reasoning and thinking: the first that is a string fills the absent ones.
/// @param[out] out_messages  owned by the caller.
/// QN_E_INVALID when messages is not a list of objects.
enum qn_status qn_chat_normalise(const json_t *messages, bool wants_parts, json_t **out_messages,
                                 struct qn_err *err);

/// continue_final_message: mark the end of the last message's text, in place, before rendering. The
/// text is its content or the last text part of it.
/// QN_E_INVALID when the last message has no text.
enum qn_status qn_chat_mark_final(json_t *messages, struct qn_err *err);

/// Cut what a template wrote from the mark on, so that the prompt ends with the last message's
/// text; blanks in front are cut as well if the template trimmed the text.
/// @param plain  as rendered, cut alike; NULL if there is none.
/// QN_E_INVALID when the template did not write the last message.
enum qn_status qn_chat_cut_final(struct qn_buf *text, struct qn_buf *plain, struct qn_err *err);

#endif
