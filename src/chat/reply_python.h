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

/* Takes a call. If `check`, only returns true if it may be taken. */
typedef bool python_take_fn(void *user, const struct reply_call *c, bool check);

/* Parses `t`, a call or a list of calls, between which commas or blanks may
 * be. If it consists only of calls that may be taken, passes each to `each`,
 * after all were checked, and returns true. If `cut`, the text ends too early,
 * and the calls before its end are enough. Otherwise passes none and returns
 * false. Overwrites `made`. */
bool python_calls(struct span t, bool cut, struct reply_text *made,
                  python_take_fn *each, void *user);

#endif
