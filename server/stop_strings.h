/* Finds stop strings in a text that arrives in chunks. Text that may begin one
 * is held back until that is decided. The result does not depend on how the
 * text is cut. */
#ifndef SERVER_STOP_STRINGS_H
#define SERVER_STOP_STRINGS_H

#include "pl.h"

struct stop_match; /* one of the strings */

struct stops {
    struct stop_match *match; /* [n], owned */
    int n;
    char *held; /* the end of the text that may begin a string; owned */
    size_t n_held, cap;
    int hit; /* index of the string found; -1: none yet */
};

typedef bool stop_write_fn(void *user, const char *text, size_t len);

/* Copies the strings; an empty one is PL_BAD_ARGUMENT. n may be 0. */
pl_status stop_init(struct stops *s, const char *const *string, int n,
                    pl_err *err);
void stop_fini(struct stops *s); /* takes {0} */
/* Adds text. What cannot belong to a stop string is passed to `write`, in at
 * most one call, and nothing once a string was found. If several end at one
 * byte the longest counts. Returns false if out of memory or `write` returned
 * false. */
bool stop_add(struct stops *s, const char *text, size_t len,
              stop_write_fn *write, void *user);
/* Ends a text without stop string: writes what was held back. */
bool stop_end(struct stops *s, stop_write_fn *write, void *user);

#endif
