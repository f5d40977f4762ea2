/* Adapts conversations to a chat template. Clients send conversations in forms
 * that many templates refuse or drop silently: several system messages,
 * reasoning under another name, call ids of another server, two messages of a
 * user in a row, tools without descriptions. What a template needs in every
 * conversation is learned by rendering test conversations, as reply_format.h
 * does. Beyond that, a conversation that the template refuses is tried with one
 * change after the other. */
#ifndef CHAT_ADAPT_H
#define CHAT_ADAPT_H

#include "chat/reply_format.h"

struct chat_adapt {
    /* changes that every conversation needs: bits 1 << enum change */
    unsigned always;
    /* Name of the message field from which the template reads reasoning;
     * "content" if it reads reasoning as a part of the content; NULL if it does
     * not read any. Static. */
    const char *reasoning;
    bool one_call; /* the template allows only one call in a message */
};

/* Learns what changes a template needs in every conversation. `f` is its reply
 * format. Fails only with PL_NO_MEMORY. */
pl_status chat_adapt_learn(struct chat_adapt *a, const struct reply_format *f,
                           reply_render_fn *render, void *user, pl_err *err);

/* Renders a conversation, changed so that the template accepts it. Messages
 * have their reasoning in the field reasoning_content. If the template rejects
 * all changed forms, returns the error of the first. */
pl_status chat_adapt_render(const struct chat_adapt *a,
                            const pl_conversation *c, reply_render_fn *render,
                            void *user, char **text, pl_err *err);

#endif
