/* Converts Python calls such as f(k='v', n=1), and their values, to JSON. */
#ifndef CHAT_REPLY_PYTHON_H
#define CHAT_REPLY_PYTHON_H

#include "chat/reply_call.h"

/* Removes a Python or JSON value from the beginning of *t and appends it to
 * `made` as JSON. Returns false if *t does not begin with a value. */
bool python_value(struct span *t, struct reply_text *made);

/* Removes a call from the beginning of *t and appends its arguments to `made`
 * as a JSON object. out->name points into *t, out->arguments into `made`.
 * Returns false if *t does not begin with a call. */
bool python_call(struct span *t, struct reply_text *made,
                 struct reply_call *out);

/* Parses `t`, a call or a list of calls. If it consists only of calls, calls
 * `tell` for each of them and returns true. Otherwise returns false without
 * calling `tell`. Overwrites `made`. */
bool python_calls(struct span t, struct reply_text *made,
                  void (*tell)(void *user, const struct reply_call *c),
                  void *user);

#endif
