/* Converts the text of a tool call to a name and JSON arguments. Private to
 * chat/. */
#ifndef CHAT_REPLY_CALL_H
#define CHAT_REPLY_CALL_H

#include "chat/reply_format.h"

#include <jansson.h>

/* A text that grows. Zeros: empty. */
struct reply_text {
    char *s; /* owned, terminated; NULL: nothing added yet */
    size_t n, cap;
    bool failed; /* memory is out; what was added since is lost */
};
void reply_add(struct reply_text *t, struct span s);
void reply_add_string(struct reply_text *t, struct span s); /* as JSON */

/* A call. Its spans point into the text, except for converted arguments, which
 * are in `made`. */
struct reply_call {
    struct span name, arguments, id;
};

/* Reads a call. `t` is the text between its markers, without them. The
 * arguments become an object. `tools` is a list that says which arguments are
 * strings, or NULL. Returns false if t is not a call. For CALLS_OBJECT, t is
 * one object. */
bool reply_call_read(const struct reply_format *f, struct span t,
                     const json_t *tools, struct reply_text *made,
                     struct reply_call *out);

/* Reads the beginning t of a call. Returns true if its name is known and its
 * arguments, a JSON object, begin at *at. Sets name and id, borrowed from t. */
bool reply_call_begins(const struct reply_format *f, struct span t,
                       struct reply_call *out, size_t *at);
/* Returns true if a tool has this name. */
bool reply_is_tool(const json_t *tools, struct span name);

#endif
