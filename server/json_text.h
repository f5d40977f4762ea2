/* Converts arbitrary bytes to valid UTF-8 for JSON strings. The bytes may
 * arrive in chunks that split characters. Each maximal subpart of an ill-formed
 * sequence becomes U+FFFD, as Unicode recommends (chapter 3, "substitution of
 * maximal subparts"). */
#ifndef SERVER_JSON_TEXT_H
#define SERVER_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A string that text_add enlarges; {0} is the empty string. */
struct text {
    char *s; /* owned, NUL-terminated; NULL until something is added */
    size_t n, cap;
};

/* Appends n bytes. Returns false and leaves *t unchanged if out of memory. */
bool text_add(struct text *t, const char *s, size_t n);
void text_free(struct text *t);

/* The first bytes of a character that a chunk ended in; the next chunk
 * completes it. */
struct utf8_tail {
    unsigned char byte[4];
    size_t n;
};

/* Appends to *out the bytes of the tail and of s [n] up to the last complete
 * character, as valid UTF-8. Keeps an incomplete character in *tail. Returns
 * false if out of memory. */
bool utf8_add(struct utf8_tail *tail, struct text *out, const char *s,
              size_t n);
/* Ends the text: appends U+FFFD to *out if *tail holds an incomplete character.
 * Returns false if out of memory. */
bool utf8_end(struct utf8_tail *tail, struct text *out);

/* Repairs a truncated JSON text: copies it to *out up to the last complete
 * value, and closes the open lists and objects. An empty list or object that is
 * still open counts as a complete value. Returns false if there is no complete
 * value, or if out of memory. */
bool json_text_close(const char *s, size_t n, struct text *out);

/* Parses JSON as json_loadb does, but integers of more than 64 bits become
 * strings with a mark, and the escape of half a surrogate
 * pair, which programs in JavaScript write where they cut a text, becomes
 * U+FFFD. `e` may be NULL. */
json_t *json_text_load(const char *s, size_t n, size_t flags, json_error_t *e);
/* Makes reals of such integers in a list or an object, but for its members
 * whose names are in the list `but`. Returns false if out of memory. */
bool json_text_round(json_t *j, const char *const *but);
/* Returns the JSON text of `j`, malloc'ed, in which such integers are integers;
 * NULL if out of memory. */
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
/* Returns a JSON string of the bytes s [n], converted to valid UTF-8; NULL if
 * out of memory. */
json_t *json_text(const char *s, size_t n);

#endif
