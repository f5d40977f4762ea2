/* Works on JSON as text: finds the end of a value and the members of an object
 * without parsing them, so that their text stays unchanged. */
#ifndef CHAT_JSON_SPAN_H
#define CHAT_JSON_SPAN_H

#include "chat/reply_format.h"

/* State of json_scan between calls. A zeroed struct is a scan that has not
 * begun. */
struct json_scan {
    size_t at; /* number of bytes of the text that were scanned */
    int64_t depth;
    bool in_string, escaped;
};

/* Scans the JSON object or list at the beginning of `t`. If it is complete,
 * returns true, and it ends at offset s->at. If it is incomplete, returns
 * false; after `t` has grown, a call with the same `s` continues the scan. Does
 * not check that the contents are valid. */
bool json_scan(struct json_scan *s, struct span t);

/* Returns true if t is exactly one valid JSON value. If out of memory, sets
 * *no_memory to true, and the result has no meaning. */
bool json_is_valid(struct span t, bool *no_memory);

/* State of an iteration over the members of the JSON object at the beginning of
 * `t`. If `t` does not begin with an object, there are no members. */
struct json_walk {
    struct span rest;
};
struct json_walk json_walk(struct span t);
/* Sets *key and *value to the texts of the object's next member. Returns false
 * if there is none. The key is without its quotes; escapes in it are not
 * decoded. */
bool json_walk_next(struct json_walk *w, struct span *key, struct span *value);

#endif
