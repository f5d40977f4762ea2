/* Splits the reply of a model into content, reasoning and tool calls, while it
 * is generated. The other functions of pl_reply are in pl.h.
 *
 * The text is parsed as it arrives. Text that may be the beginning of a marker
 * is not reported until later text shows whether it is a marker. A tool call is
 * not reported until it is complete, unless its arguments are reported in
 * fragments. Text that looks like a call but is not one becomes content,
 * including its markers. */
#ifndef CHAT_REPLY_H
#define CHAT_REPLY_H

#include "chat/reply_format.h"

/* Creates a parser for the replies to a template with the notation `format`,
 * which is borrowed until pl_reply_free. The other parameters are those of the
 * function in pl.h that creates a pl_reply. */
pl_status reply_create(pl_reply **out, const struct reply_format *format,
                       const char *prompt, size_t len, const char *tools,
                       pl_reply_fn *part, void *user, pl_err *err);

#endif
