/* Converts arbitrary bytes to valid UTF-8 for JSON strings. The bytes may
 * arrive in chunks, which may end within a character. Each maximal subpart of
 * an ill-formed sequence becomes U+FFFD, as Unicode recommends (chapter 3,
 * "substitution of maximal subparts"). */
#ifndef SERVER_JSON_TEXT_H
#define SERVER_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A growing string. text_add appends to it; {0} is the empty string. */
struct text {
    /* The bytes of the string, NUL-terminated; owned; NULL until something is
     * added. */
    char *s;
    size_t n, cap;
};

/* Appends the bytes s[0 ... n - 1] to the string. Returns false and leaves *t
 * unchanged if out of memory. */
bool text_add(struct text *t, const char *s, size_t n);
void text_free(struct text *t);

/* The first bytes of a UTF-8 character that is divided between two chunks of
 * text. The next chunk completes it. */
struct utf8_tail {
    unsigned char byte[4];
    size_t n;
};

/* Appends the bytes in *tail and s [n] to *out, as valid UTF-8. Only complete
 * characters are appended; the bytes of an incomplete one at the end are kept
 * in *tail. Returns false if out of memory. */
bool utf8_add(struct utf8_tail *tail, struct text *out, const char *s,
              size_t n);
/* Ends a text: if *tail holds an incomplete character, appends U+FFFD to *out
 * instead. Returns false if out of memory. */
bool utf8_end(struct utf8_tail *tail, struct text *out);

/* Repairs a truncated JSON text: copies it to *out up to the last complete
 * value, and closes the open lists and objects. An empty list or object that is
 * still open counts as a complete value. Returns false if there is no complete
 * value, or if out of memory. */
bool json_text_close(const char *s, size_t n, struct text *out);

/* Parses JSON as jansson's json_loadb does, except for two cases. An integer of
 * more than 64 bits becomes a string that begins with a mark. The escape of
 * half a surrogate pair becomes U+FFFD; JavaScript programs write such escapes
 * where they cut a text. `e` may be NULL. */
json_t *json_text_load(const char *s, size_t n, size_t flags, json_error_t *e);
/* Returns the digits, with the sign, of an integer of more than 64 bits (see
 * json_text_load); NULL if `j` is another value. */
const char *json_text_wide(const json_t *j);
/* Replaces integers of more than 64 bits (see json_text_load) in a list or
 * object by real numbers. Leaves the members of the object whose names are in
 * the list `but` unchanged. Returns false if out of memory. */
bool json_text_round(json_t *j, const char *const *but);
/* Returns the JSON text of `j`, malloc'ed. Integers of more than 64 bits (see
 * json_text_load) are integers in this text. NULL if out of memory. */
char *json_text_dump(const json_t *j, size_t flags);

/* Add a value to an object or list and take ownership of it. If that fails, or
 * the value is NULL, they free the object or list and set it to NULL. */
void json_text_put(json_t **object, const char *key, json_t *value);
void json_text_add(json_t **list, json_t *value);
/* Copy a list or an object, and return the JSON text of `j`, malloc'ed, as
 * jansson's json_copy and json_dumps do; but these leave out members and
 * characters for which there is no memory, while these here then return
 * NULL. */
json_t *json_text_copy(json_t *j);
char *json_text_plain(const json_t *j, size_t flags);

/* Returns a NUL-terminated copy of s [n] as valid UTF-8, malloc'ed; NULL if out
 * of memory. */
char *utf8_copy(const char *s, size_t n);
/* Returns a new JSON string of the bytes s [n], converted to valid UTF-8; NULL
 * if out of memory. */
json_t *json_text(const char *s, size_t n);

#endif
