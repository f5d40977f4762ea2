/* JSON as a text: where a value ends, and the members of an object, without
 * reading them, so that their text stays as it is. */
#ifndef CHAT_JSON_SPAN_H
#define CHAT_JSON_SPAN_H

#include "chat/reply_format.h"

/* How far a value was followed; zeros: not yet. */
struct json_scan {
    size_t at; /* bytes looked at */
    int64_t depth;
    bool in_string, escaped;
};

/* Follows the object or list that t begins with; goes on where it stopped when
 * t has grown. True: it ends at `at`. What it holds is not checked. */
bool json_scan(struct json_scan *s, struct span t);

/* Is t one JSON value, alone? With *no_memory set it is not known. */
bool json_is_valid(struct span t, bool *no_memory);

/* The members of the object that t begins with, if it does. */
struct json_walk {
    struct span rest;
};
struct json_walk json_walk(struct span t);
/* `key` without its quotes, escapes left as they are. */
bool json_walk_next(struct json_walk *w, struct span *key, struct span *value);

#endif
