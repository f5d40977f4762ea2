/* Converts tool calls in Python's notation, such as f(k='v', n=1), and Python
 * values to JSON. */
#ifndef CHAT_REPLY_PYTHON_H
#define CHAT_REPLY_PYTHON_H

#include "chat/reply_call.h"

/* Removes a Python or JSON value from the beginning of *t and appends it to
 * `made` as JSON. Returns false if *t does not begin with a value. */
bool python_value(struct span *t, struct reply_text *made);

/* A callback for a parsed tool call. If `check`, it only returns true if the
 * call counts as a tool call. Otherwise it reports the call. */
typedef bool python_take_fn(void *user, const struct reply_call *c, bool check);

/* Parses `t`, one call or a list of calls in Python's notation, with commas or
 * blanks between them. Calls `each` with `check` for each of them. If `t` has
 * nothing but calls and `each` returned true for all, calls `each` again to
 * report them, and returns true. Otherwise reports none and returns false.
 * `cut`: the text is cut off, and its complete calls are enough. Otherwise the
 * brackets that close the last call and the list may be missing. Overwrites
 * `made`. */
bool python_calls(struct span t, bool cut, struct reply_text *made,
                  python_take_fn *each, void *user);

#endif
