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

/* A callback that reports a call. If `check`, it only returns true if the call
 * counts as one. */
typedef bool python_take_fn(void *user, const struct reply_call *c, bool check);

/* Parses `t`, a call or a list of calls, between which commas or blanks may be.
 * If `t` consists only of calls for which `each` returns true with `check`,
 * then passes each call to `each` and returns true. Otherwise passes none and
 * returns false. If `cut`, the text ends too early, and complete calls before
 * its end are enough. Overwrites `made`. */
bool python_calls(struct span t, bool cut, struct reply_text *made,
                  python_take_fn *each, void *user);

#endif
