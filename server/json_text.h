/* Converts text for JSON: valid UTF-8 from any bytes, in chunks cut anywhere.
 * Each maximal subpart of an ill-formed sequence becomes U+FFFD, as Unicode
 * advises (chapter 3, "substitution of maximal subparts"). */
#ifndef SERVER_JSON_TEXT_H
#define SERVER_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A growing string; {0} is empty. */
struct text {
    char *s; /* owned, terminated; NULL: nothing was added */
    size_t n, cap;
};

/* Returns false if out of memory; then nothing was added. */
bool text_add(struct text *t, const char *s, size_t n);
void text_free(struct text *t);

/* An incomplete character at the end of a chunk. */
struct utf8_tail {
    unsigned char byte[4];
    size_t n;
};

/* Appends the complete characters of the tail and s. Returns false if out of
 * memory. */
bool utf8_add(struct utf8_tail *tail, struct text *out, const char *s,
              size_t n);
/* Ends the text: an incomplete character becomes U+FFFD. */
bool utf8_end(struct utf8_tail *tail, struct text *out);

/* Closes truncated JSON after its last complete value; an open list or object
 * counts as one. Returns false if there is none, or if out of memory. */
bool json_text_close(const char *s, size_t n, struct text *out);

/* Returns a valid copy, malloc'ed; NULL if out of memory. */
char *utf8_copy(const char *s, size_t n);
/* Returns a JSON string of any bytes; NULL if out of memory. */
json_t *json_text(const char *s, size_t n);

#endif
