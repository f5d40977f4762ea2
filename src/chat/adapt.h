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
    unsigned always; /* changes that every conversation needs; a set of
                        1 << enum change */
    /* Name of the field from which the template reads reasoning, or "content"
     * if that is a part of the content; NULL if it reads none. Static. */
    const char *reasoning;
    bool one_call; /* the template takes one call per message */
};

/* Learns how a template takes conversations. `f` is its reply format. Fails
 * only with PL_NO_MEMORY. */
pl_status chat_adapt_learn(struct chat_adapt *a, const struct reply_format *f,
                           reply_render_fn *render, void *user, pl_err *err);

/* Renders a conversation, changed so that the template takes it. Reasoning is
 * in the field reasoning_content of messages. If the template refuses all
 * changed forms, returns the error of the first. */
pl_status chat_adapt_render(const struct chat_adapt *a,
                            const pl_conversation *c, reply_render_fn *render,
                            void *user, char **text, pl_err *err);

#endif
