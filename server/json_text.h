/* Texts on their way into JSON: valid UTF-8 whatever bytes come, in pieces cut
 * anywhere. Each maximal part of what is no UTF-8 becomes U+FFFD, as Unicode
 * advises (chapter 3, "substitution of maximal subparts"). */
#ifndef SERVER_JSON_TEXT_H
#define SERVER_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Grows; {0} is empty. */
struct text {
    char *s; /* owned, terminated; NULL: nothing was added */
    size_t n, cap;
};

/* False: no memory, and nothing was added. */
bool text_add(struct text *t, const char *s, size_t n);
void text_free(struct text *t);

/* A character whose end has not come yet. */
struct utf8_tail {
    unsigned char byte[4];
    size_t n;
};

/* Appends what is whole of the tail and s; false: no memory. */
bool utf8_add(struct utf8_tail *tail, struct text *out, const char *s,
              size_t n);
/* The text has ended: an unfinished character becomes U+FFFD. */
bool utf8_end(struct utf8_tail *tail, struct text *out);

/* JSON that breaks off, closed behind the last of its values that is whole, a
 * list or an object that has begun being one. False: there is none, or no
 * memory. */
bool json_text_close(const char *s, size_t n, struct text *out);

/* A valid copy, malloc'ed; NULL: no memory. */
char *utf8_copy(const char *s, size_t n);
/* A JSON string of any bytes; NULL: no memory. */
json_t *json_text(const char *s, size_t n);

#endif
