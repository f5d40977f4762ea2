/* Works on JSON as text: finds the end of a value and the members of an object
 * without parsing them, so that their text stays unchanged. */
#ifndef CHAT_JSON_SPAN_H
#define CHAT_JSON_SPAN_H

#include "chat/reply_format.h"

/* Progress of a scan. Zeros: not started. */
struct json_scan {
    size_t at; /* bytes scanned */
    int64_t depth;
    bool in_string, escaped;
};

/* Scans the object or list that t begins with. Continues where it stopped if t
 * has grown. Returns true if the value ends at `at`. Does not validate the
 * contents. */
bool json_scan(struct json_scan *s, struct span t);

/* Returns true if t is exactly one JSON value. If *no_memory is set, the result
 * means nothing. */
bool json_is_valid(struct span t, bool *no_memory);

/* An iteration over the members of the object that t begins with, if any. */
struct json_walk {
    struct span rest;
};
struct json_walk json_walk(struct span t);
/* Returns false at the end. `key` is without its quotes; escapes are
 * unchanged. */
bool json_walk_next(struct json_walk *w, struct span *key, struct span *value);

#endif
