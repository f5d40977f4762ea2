/* The reply of a model, taken apart while it is written: content, reasoning,
 * calls of tools. The rest of pl_reply is in pl.h.
 *
 * A text is looked at as far as it has come. What may be the beginning of a
 * mark waits until that is known, and so does a call until it is whole. What
 * turns out to be no call is content, marks and all. */
#ifndef CHAT_REPLY_H
#define CHAT_REPLY_H

#include "chat/reply_format.h"

/* `format` is borrowed until pl_reply_free; the rest is as in pl.h. */
pl_status reply_create(pl_reply **out, const struct reply_format *format,
                       const char *prompt, size_t len, const char *tools,
                       pl_reply_fn *part, void *user, pl_err *err);

#endif
