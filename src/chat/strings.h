/* Functions that methods, filters and tests of the template language share.
 * Used only by files of chat/. */
#ifndef CHAT_STRINGS_H
#define CHAT_STRINGS_H

#include "chat/render.h"
#include "chat/unicode.h"

/* Decodes the character at offset *at of the string and advances *at past it.
 * Returns false at the end of the string. */
static inline bool string_next(const struct string *s, size_t *at, uint32_t *c)
{
    if (*at >= s->len)
        return false;
    *at += unicode_get(s->s + *at, s->len - *at, c);
    return true;
}

enum string_case {
    CASE_LOWER,
    CASE_UPPER,
    CASE_SWAP,
    /* The first character in upper case, the others in lower case. */
    CASE_CAPITAL,
    /* As CASE_CAPITAL, for each word; words are sequences of letters. */
    CASE_TITLE,
    /* As CASE_CAPITAL, for each word; words are separated by blanks, dashes and
     * opening brackets. */
    CASE_HEADING,
};
struct value string_case(struct render *r, const struct string *s,
                         enum string_case to);

/* Returns a list of the lines of `s`, with their ends if `ends`. */
struct list string_lines(struct render *r, const struct string *s, bool ends);

/* Returns the number that the string consists of, of at most 18 digits; -1 if
 * it is not such a number. */
int64_t string_index(const struct string *s);

/* Parse a number as Python's float() and int() do. If `base` is 0, the prefix
 * of the text, such as 0x, determines the base. Return false if the text is not
 * such a number, is too long, or is an integer of more than 64 bits. */
bool string_to_float(const struct string *s, double *out);
bool string_to_int(const struct string *s, int64_t base, int64_t *out);

/* Return the string or the integer `v`. Fail if `v` has another type. */
struct string *need_string(struct render *r, struct value v);
int64_t need_int(struct render *r, struct value v);

/* Appends the string s[0 .. len), which is borrowed, to the list. */
static inline void list_add_view(struct render *r, struct list *l,
                                 const char *s, size_t len)
{
    list_add(&r->w, l, value_view(&r->w, s, len));
}

/* Returns a list of the positional arguments from `first` on. */
struct list args_list(struct render *r, const struct args *args, int first);

/* Functions of both methods and filters or tests, for rows of their tables.
 * `what` of the row is, in order: an enum string_case; SIDE_LEFT, SIDE_RIGHT or
 * both; 0; how to pad, '<', '>' or '^'; true for upper case; and an enum view.
 * string_replace takes the parameters old, new and count; string_justify the
 * width and the fill character. */
enum { SIDE_LEFT = 1, SIDE_RIGHT = 2 };
builtin_fn string_cased, string_strip, string_replace, string_justify,
    string_is_case, dict_view;

#endif
