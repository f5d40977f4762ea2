/* Changes conversations so that a chat template accepts them. Clients send
 * conversations with parts that many templates reject or silently leave out:
 * several system messages, reasoning under another name, call ids of another
 * server, two messages of a user in a row, tools without descriptions. The
 * changes that a template needs in every conversation are learned by rendering
 * test conversations, as reply_format.h does. A conversation that the template
 * still rejects is rendered with one more change after the other, until it is
 * accepted. */
#ifndef CHAT_ADAPT_H
#define CHAT_ADAPT_H

#include "chat/reply_format.h"

struct chat_adapt {
    /* The changes that every conversation needs, bits 1 << enum change. */
    unsigned always;
    /* Name of the message field from which the template reads reasoning.
     * "content" if it reads reasoning as a part of the content; NULL if it does
     * not read any. A static string. */
    const char *reasoning;
    bool one_call; /* the template allows only one tool call in a message */
};

/* Learns which changes a template needs in every conversation. `f` is the
 * notation of its replies. Fails only with PL_NO_MEMORY. */
pl_status chat_adapt_learn(struct chat_adapt *a, const struct reply_format *f,
                           reply_render_fn *render, void *user, pl_err *err);

/* Renders a conversation, with changes if the template needs them. The messages
 * of the given conversation have their reasoning in the field
 * reasoning_content. If the template rejects all changed forms of the
 * conversation, returns the error of the first attempt. */
pl_status chat_adapt_render(const struct chat_adapt *a,
                            const pl_conversation *c, reply_render_fn *render,
                            void *user, char **text, pl_err *err);

#endif
