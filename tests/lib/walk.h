/* Random walks over the functions of a header: a row a function, which draws
 * its arguments, calls it, and looks at how it ended. Arguments are such as the
 * header allows, forbids or says nothing about, but for pointers to memory that
 * is freed or too small. */
#ifndef TEST_WALK_H
#define TEST_WALK_H

#include "lib/support.h"
#include "pl.h"

struct walk {
    uint64_t rng;
    void *user;        /* what the rows work on */
    const char *call;  /* the function */
    int null_at;       /* -1: chance decides. Else the call is a right one, but
                          for its pointer with this number, which is NULL */
    int n_pointer;     /* drawn for the call so far */
    const char *wrong; /* an argument that is NULL and must not be */
    int n_wrong;
    bool inside; /* around a callback */
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

/* Calls the row's function with each of its pointers NULL in turn, all else
 * being right, and at last with all of them. */
void walk_nulls(struct walk *w, const struct walk_row *row);
/* Calls it once by chance. */
void walk_once(struct walk *w, const struct walk_row *row);

static inline bool walk_is_right(const struct walk *w)
{
    return w->null_at >= 0;
}

/* One time in n, never in a right call. */
bool walk_chance(struct walk *w, int n);
/* `right`, or any number: near it, near 0, the extremes. */
int64_t walk_int(struct walk *w, int64_t right);
int walk_i(struct walk *w, int right);

/* The argument, or NULL, which then must be refused by name. */
void *walk_need(struct walk *w, const char *argument, const void *p);
/* The argument, or NULL, which is allowed. */
void *walk_may(struct walk *w, const void *p);
/* An array of `have`, or NULL, and *n of it: beyond `have` where it is NULL
 * alone, and then it must be refused by name. */
void *walk_array(struct walk *w, const char *argument, const void *p,
                 int64_t have, int64_t *n);
void *walk_text(struct walk *w, const char *argument, const char *s,
                size_t have, size_t *n);
/* A size for a struct of the caller's. */
size_t walk_size(struct walk *w, size_t right);
/* A text: right, empty, long, not UTF-8. */
const char *walk_string(struct walk *w, const char *right);

pl_err *walk_err(struct walk *w);
/* The call has returned s; `empty`: all results that its pointers asked for are
 * NULL or 0. */
void walk_ended(struct walk *w, pl_status s, bool empty);
/* The same of one that gives no status; neutral: it gave what stands for
 * nothing. */
void walk_gave(struct walk *w, bool neutral);

#define NEED(w, argument, p)           walk_need(w, #argument, p)
#define ARRAY(w, argument, p, have, n) walk_array(w, #argument, p, have, n)
#define TEXT(w, argument, s, have, n)  walk_text(w, #argument, s, have, n)

#endif
