/* Random walks over the functions of a header. Each function has a row, which
 * draws its arguments, calls it, and checks how it ended. Arguments are such as
 * the header allows, forbids or says nothing about, except pointers to memory
 * that is freed or too small. */
#ifndef TEST_WALK_H
#define TEST_WALK_H

#include "lib/support.h"
#include "pl.h"

struct walk {
    uint64_t rng;
    void *user;        /* the objects that the rows work on */
    const char *call;  /* the function */
    int null_at;       /* -1: random arguments. Else the call is correct except
                        * that its pointer with this number is NULL */
    int n_pointer;     /* pointers drawn for the call so far */
    const char *wrong; /* an argument that is NULL but must not be */
    int n_wrong;
    bool inside; /* during a callback */
    pl_err err;
    int64_t n_ok, n_refused;
};

struct walk_row {
    const char *name;
    void (*call)(struct walk *w);
};

/* Fails unless `row` has each function that a header of include/ declares, and
 * no other. */
void walk_names_all(const char *header, const struct walk_row *row, int n);

/* Calls the row's function with each of its pointers NULL in turn and
 * everything else correct, then with all of them NULL. */
void walk_nulls(struct walk *w, const struct walk_row *row);
/* Calls it once with random arguments. */
void walk_once(struct walk *w, const struct walk_row *row);

static inline bool walk_is_right(const struct walk *w)
{
    return w->null_at >= 0;
}

/* Returns true one time in n, never in a correct call. */
bool walk_chance(struct walk *w, int n);
/* Returns `right` or any number: near it, near 0, the extremes. */
int64_t walk_int(struct walk *w, int64_t right);
int walk_i(struct walk *w, int right);

/* Returns the argument, or NULL, which the function must then reject by
 * name. */
void *walk_need(struct walk *w, const char *argument, const void *p);
/* Returns the argument, or NULL, which is allowed. */
void *walk_may(struct walk *w, const void *p);
/* Returns an array of `have`, or NULL, and *n of it. Only with NULL is *n above
 * `have`; the function must then reject it by name. */
void *walk_array(struct walk *w, const char *argument, const void *p,
                 int64_t have, int64_t *n);
void *walk_text(struct walk *w, const char *argument, const char *s,
                size_t have, size_t *n);
/* Returns a size for a struct of the caller's. */
size_t walk_size(struct walk *w, size_t right);
/* Returns a text: correct, empty, long, or not UTF-8. */
const char *walk_string(struct walk *w, const char *right);

pl_err *walk_err(struct walk *w);
/* Checks that the call may return s. `empty`: all results that its pointers
 * requested are NULL or 0. */
void walk_ended(struct walk *w, pl_status s, bool empty);
/* Checks the result of a function without status. neutral: it returned the
 * value that stands for nothing. */
void walk_gave(struct walk *w, bool neutral);

#define NEED(w, argument, p)           walk_need(w, #argument, p)
#define ARRAY(w, argument, p, have, n) walk_array(w, #argument, p, have, n)
#define TEXT(w, argument, s, have, n)  walk_text(w, #argument, s, have, n)

#endif
