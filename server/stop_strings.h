/* Stop strings over a text that comes in pieces: what may begin one is held
 * back until that is known. How the text is cut makes no difference. */
#ifndef SERVER_STOP_STRINGS_H
#define SERVER_STOP_STRINGS_H

#include "pl.h"

struct stop_match; /* one of the strings */

struct stops {
    struct stop_match *match; /* [n], owned */
    int n;
    char *held; /* the end of the text that may begin a string; owned */
    size_t n_held, cap;
    int hit; /* the string that came; -1: none yet */
};

typedef bool stop_write_fn(void *user, const char *text, size_t len);

/* Strings are copied; an empty one gives PL_BAD_ARGUMENT. n may be 0. */
pl_status stop_init(struct stops *s, const char *const *string, int n,
                    pl_err *err);
void stop_fini(struct stops *s); /* takes {0} */
/* More of the text. What is surely before any stop string goes to `write`, in
 * at most one call; nothing does once one has come. If several end at one byte
 * the longest counts. False: no memory, or `write` said so. */
bool stop_add(struct stops *s, const char *text, size_t len,
              stop_write_fn *write, void *user);
/* The text has ended without one: writes what was held back. */
bool stop_end(struct stops *s, stop_write_fn *write, void *user);

#endif
