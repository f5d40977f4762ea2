/* Calls as Python writes them, f(k='v', n=1), and its values, to JSON. */
#ifndef CHAT_REPLY_PYTHON_H
#define CHAT_REPLY_PYTHON_H

#include "chat/reply_call.h"

/* The value that t begins with, Python's or JSON's, is added to `made` as JSON
 * and is gone from t. False: there is none. */
bool python_value(struct span *t, struct reply_text *made);

/* Likewise the call; its arguments are in `made`. */
bool python_call(struct span *t, struct reply_text *made,
                 struct reply_call *out);

/* A call or a list of them, and nothing else: calls `tell` for each, if all are
 * calls. */
bool python_calls(struct span t, struct reply_text *made,
                  void (*tell)(void *user, const struct reply_call *c),
                  void *user);

#endif
