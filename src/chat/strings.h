/* String functions that methods and filters of the template language share.
 * Used only by files of chat/. */
#ifndef CHAT_STRINGS_H
#define CHAT_STRINGS_H

#include "chat/render.h"

/* A list of values under construction. A zeroed struct is the empty list. */
struct items {
    struct value *item;
    size_t n, cap;
};
pl_status items_add(struct render *r, struct items *l, struct value v);
pl_status items_add_view(struct render *r, struct items *l, const char *s,
                         size_t len);
pl_status items_list(struct render *r, const struct items *l,
                     struct list **out);
pl_status items_take(struct render *r, const struct items *l,
                     enum value_kind kind, struct value *out);

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
pl_status string_case(struct render *r, const struct string *s,
                      enum string_case to, struct value *out);
/* Returns true if s contains letters that have upper and lower case, and all of
 * them are in upper case; in lower case if not `upper`. */
bool string_has_case(const struct string *s, bool upper);

/* Sets *out to `s` without the characters of the set `chars` (whitespace if
 * NULL) at its left end if `left`, and at its right end if `right`. */
pl_status string_strip(struct render *r, const struct string *s,
                       const struct string *chars, bool left, bool right,
                       struct value *out);
/* Sets *out to `s` with the first `most` occurrences of `from` replaced by
 * `to`; all of them if `most` is negative. */
pl_status string_replace(struct render *r, const struct string *s,
                         const struct string *from, const struct string *to,
                         int64_t most, struct value *out);
pl_status string_lines(struct render *r, const struct string *s, bool ends,
                       struct items *out);
/* Sets *out to `s`, padded on both sides to `width` characters with the
 * character `fill`; with blanks if `fill` is NULL. */
pl_status string_center(struct render *r, const struct string *s, int64_t width,
                        const struct string *fill, struct value *out);

/* Convert an argument of a call to a C value. Fail if the argument has another
 * type. get_int returns `usual` if the argument is absent. */
pl_status need_string(struct render *r, struct value v, struct string **out);
pl_status get_int(struct render *r, struct value v, int64_t usual,
                  int64_t *out);

#endif
