/* Calls the functions of a public header at random. Each function has a row,
 * which draws its arguments, calls it, and checks how it ended. Arguments are
 * such as the header allows, forbids or says nothing about, except pointers to
 * memory that was freed or is too small. */
#ifndef TEST_WALK_H
#define TEST_WALK_H

#include "lib/support.h"
#include "pl.h"

struct walk {
    uint64_t rng;
    void *user;       /* objects that all rows work on, the test's own */
    const char *call; /* name of the function that is called */
    /* -1 for random arguments. Otherwise all arguments are correct, except that
     * the pointer with this number is NULL. */
    int null_at;
    int n_pointer; /* number of pointers drawn for this call so far */
    /* name of an argument that is NULL although it must not be; NULL if none */
    const char *wrong;
    int n_wrong;
    bool inside; /* true while the library calls one of the test's callbacks */
    pl_err err;
    int64_t n_ok, n_refused;
};

struct walk_row {
    const char *name;
    void (*call)(struct walk *w);
};

/* Fails the case unless row[n] has each function that a header of include/
 * declares, and no other. */
void walk_names_all(const char *header, const struct walk_row *row, int n);

/* Calls a row's function with each of its pointers NULL in turn and correct
 * other arguments, then with all pointers NULL. */
void walk_nulls(struct walk *w, const struct walk_row *row);
/* Calls a row's function once with random arguments. */
void walk_once(struct walk *w, const struct walk_row *row);

static inline bool walk_is_right(const struct walk *w)
{
    return w->null_at >= 0;
}

/* Returns true once in n times; never if the arguments shall be correct. */
bool walk_chance(struct walk *w, int n);
/* Returns `right`, or a random number near it, near 0 or at the limits of its
 * type. */
int64_t walk_int(struct walk *w, int64_t right);
int walk_i(struct walk *w, int right);

/* Returns p, or NULL, which the function must then reject with a message that
 * names `argument`. */
void *walk_need(struct walk *w, const char *argument, const void *p);
/* Returns p, or NULL, which the function allows. */
void *walk_may(struct walk *w, const void *p);
/* Returns the array p of `have` elements, or NULL, and sets *n to its length.
 * Only with NULL is *n above `have`; the function must then reject the call
 * with a message that names `argument`. */
void *walk_array(struct walk *w, const char *argument, const void *p,
                 int64_t have, int64_t *n);
void *walk_text(struct walk *w, const char *argument, const char *s,
                size_t have, size_t *n);
/* Returns a value for the argument `size` of a struct, `right` or another. */
size_t walk_size(struct walk *w, size_t right);
/* Returns `right`, or a text that is empty, long or not UTF-8. */
const char *walk_string(struct walk *w, const char *right);

pl_err *walk_err(struct walk *w);
/* Checks that the call may return the status s. `empty`: all results that it
 * returned through pointers are NULL or 0. */
void walk_ended(struct walk *w, pl_status s, bool empty);
/* Checks the result of a function without a status. `neutral`: the function
 * returned the value that stands for no result. */
void walk_gave(struct walk *w, bool neutral);

#define NEED(w, argument, p)           walk_need(w, #argument, p)
#define ARRAY(w, argument, p, have, n) walk_array(w, #argument, p, have, n)
#define TEXT(w, argument, s, have, n)  walk_text(w, #argument, s, have, n)

#endif
