/* String functions that methods and filters share. Private to chat/. */
#ifndef CHAT_STRINGS_H
#define CHAT_STRINGS_H

#include "chat/render.h"

/* A list under construction. A zeroed struct is empty. */
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
    CASE_CAPITAL, /* first character upper case, the others lower */
    CASE_TITLE,   /* CASE_CAPITAL for each word, a sequence of letters */
    /* CASE_CAPITAL for each word. Blanks, dashes and opening brackets separate
     * words. */
    CASE_HEADING,
};
pl_status string_case(struct render *r, const struct string *s,
                      enum string_case to, struct value *out);
/* Returns true if s has letters that have upper and lower case, and all of them
 * are upper case, or lower case if not `upper`. */
bool string_has_case(const struct string *s, bool upper);

/* Removes characters of `chars`, or whitespace if it is NULL, from the left end
 * if `left` and from the right end if `right`. */
pl_status string_strip(struct render *r, const struct string *s,
                       const struct string *chars, bool left, bool right,
                       struct value *out);
/* Replaces the first `most` occurrences of `from` by `to`, or all if `most` is
 * negative. */
pl_status string_replace(struct render *r, const struct string *s,
                         const struct string *from, const struct string *to,
                         int64_t most, struct value *out);
pl_status string_lines(struct render *r, const struct string *s, bool ends,
                       struct items *out);
/* Pads `s` on both sides to `width` characters, with the character `fill`, or
 * with blanks if NULL. */
pl_status string_center(struct render *r, const struct string *s, int64_t width,
                        const struct string *fill, struct value *out);

/* Convert an argument of a call. Fail if it has another type. get_int returns
 * `usual` for V_ABSENT. */
pl_status need_string(struct render *r, struct value v, struct string **out);
pl_status get_int(struct render *r, struct value v, int64_t usual,
                  int64_t *out);

#endif
