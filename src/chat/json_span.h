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
    char quote;  /* in a string: the quote that opened it */
    char before; /* last character outside strings that is not a blank */
    /* reply_add_escaped: number of characters of None that were converted */
    int n_none;
    /* If set, the scan does not pass a character outside strings that JSON does
     * not have there, and with which a marker may begin: <, `, or a [ that does
     * not begin a value. */
    bool to_marker;
};

/* Advances the scan by one character outside or inside a string. Does not count
 * it. A single quote opens a string where a key or value may begin, because
 * some models write dicts of Python. */
void json_step(struct json_scan *s, char c);

/* Scans the JSON object or list at the beginning of `t`. Returns true if it is
 * complete; it ends at offset s->at then. Returns false if it is incomplete:
 * call again with the same `s` once `t` has grown, and the scan continues. Also
 * returns false before the character at which s->to_marker stops the scan; then
 * s->at < t.n and s->depth > 0. Does not validate the contents. Strings may
 * have single quotes, as in Python. */
bool json_scan(struct json_scan *s, struct span t);

/* Returns true if t is exactly one valid JSON value. If out of memory, sets
 * *no_memory to true, and the result has no meaning. */
bool json_is_valid(struct span t, bool *no_memory);

/* Returns the length of the key without quotes at the beginning of `t`: a word
 * that a colon follows, after blanks. Returns 0 if there is none. Sets *part if
 * there may be one once more text has arrived. The word and the blanks have
 * fewer than JSON_BARE bytes. */
size_t json_bare_key(struct span t, bool *part);
enum { JSON_BARE = 256 };

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
