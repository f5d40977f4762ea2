/* The text of a call of a tool to a name and arguments in JSON. For chat/. */
#ifndef CHAT_REPLY_CALL_H
#define CHAT_REPLY_CALL_H

#include "chat/reply_format.h"

#include <jansson.h>

/* Text that grows. Zeros are an empty one. */
struct reply_text {
    char *s; /* owned, terminated; NULL: nothing was added yet */
    size_t n, cap;
    bool failed; /* memory is out; what was added since is lost */
};
void reply_add(struct reply_text *t, struct span s);
void reply_add_string(struct reply_text *t, struct span s); /* as JSON */

/* A call. Spans are parts of the text, but for arguments that had to be
 * written, which are in `made`. */
struct reply_call {
    struct span name, arguments, id;
};

/* `t`: from behind the mark that opens it up to the mark that closes it. The
 * arguments become an object. tools: a list that tells which are strings, or
 * NULL. False: it is no call. One of CALLS_OBJECT is an object. */
bool reply_call_read(const struct reply_format *f, struct span t,
                     const json_t *tools, struct reply_text *made,
                     struct reply_call *out);

/* Is the name known of a call whose beginning is t, and where do its arguments
 * begin, which are a JSON object? Fills in name and id, borrowed from t. */
bool reply_call_begins(const struct reply_format *f, struct span t,
                       struct reply_call *out, size_t *at);
/* Is one of the tools called so? */
bool reply_is_tool(const json_t *tools, struct span name);

#endif
