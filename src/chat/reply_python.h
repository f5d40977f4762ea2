/* Converts Python calls such as f(k='v', n=1), and their values, to JSON. */
#ifndef CHAT_REPLY_PYTHON_H
#define CHAT_REPLY_PYTHON_H

#include "chat/reply_call.h"

/* Removes the Python or JSON value that t begins with from t, and adds it to
 * `made` as JSON. Returns false if there is none. */
bool python_value(struct span *t, struct reply_text *made);

/* Does the same for a call. Its arguments are in `made`. */
bool python_call(struct span *t, struct reply_text *made,
                 struct reply_call *out);

/* Reads a call or a list of calls. Calls `tell` for each if t consists only of
 * calls. */
bool python_calls(struct span t, struct reply_text *made,
                  void (*tell)(void *user, const struct reply_call *c),
                  void *user);

#endif
