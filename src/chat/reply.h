/* Splits a model's reply, while it is generated, into content, reasoning and
 * tool calls. The rest of pl_reply is in pl.h.
 *
 * The text is parsed as it arrives. A possible beginning of a marker is held
 * back until it is decided, and a call until it is complete. Text that turns
 * out not to be a call is content, markers included. */
#ifndef CHAT_REPLY_H
#define CHAT_REPLY_H

#include "chat/reply_format.h"

/* `format` is borrowed until pl_reply_free; the rest is as in pl.h. */
pl_status reply_create(pl_reply **out, const struct reply_format *format,
                       const char *prompt, size_t len, const char *tools,
                       pl_reply_fn *part, void *user, pl_err *err);

#endif
