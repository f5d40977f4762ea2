/* Functions that methods, filters and tests of the template language share.
 * Used only by files of chat/. */
#ifndef CHAT_STRINGS_H
#define CHAT_STRINGS_H

#include "chat/render.h"

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

/* Return the string or the integer `v`. Fail if `v` has another type. */
struct string *need_string(struct render *r, struct value v);
int64_t need_int(struct render *r, struct value v);

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
