/* Splits a model's reply, while it is generated, into content, reasoning and
 * tool calls. pl.h declares the other functions of pl_reply.
 *
 * The text is parsed as it is added. Text that may be the beginning of a marker
 * is not reported until later text shows whether it is one. A call is not
 * reported until it is complete. Text that turns out not to be a call is
 * content, markers included. */
#ifndef CHAT_REPLY_H
#define CHAT_REPLY_H

#include "chat/reply_format.h"

/* Creates a pl_reply for a template with this format. `format` is borrowed
 * until pl_reply_free. The other parameters are those of the function in pl.h
 * that creates a pl_reply. */
pl_status reply_create(pl_reply **out, const struct reply_format *format,
                       const char *prompt, size_t len, const char *tools,
                       pl_reply_fn *part, void *user, pl_err *err);

#endif
