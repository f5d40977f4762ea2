/* Finds stop strings in a text that arrives in chunks. Text that may be the
 * beginning of a stop string is held back until later text shows if it is one.
 * The result does not depend on how the text is divided into chunks. */
#ifndef SERVER_STOP_STRINGS_H
#define SERVER_STOP_STRINGS_H

#include "pl.h"

struct stop_match; /* a stop string and its automaton */

struct stops {
    /* The stop strings with their automata, [n]; owned. */
    struct stop_match *match;
    int n;
    /* The end of the text, which is held back because it may begin a stop
     * string; owned. */
    char *held;
    size_t n_held, cap;
    /* Index in `match` of the stop string that was found; -1 if none was found
     * yet. */
    int hit;
    bool muted; /* a stop string that ends now is not found */
    bool shown; /* the stop string that was found is a part of the text */
};

typedef bool stop_write_fn(void *user, const char *text, size_t len);

/* Initializes *s for the n stop strings string[], which are copied; n may be 0.
 * BAD_ARGUMENT: a stop string is empty. Other errors: NO_MEMORY. */
pl_status stop_init(struct stops *s, const char *const *string, int n,
                    pl_err *err);
void stop_fini(struct stops *s); /* Frees the contents of *s. {0} is allowed. */
/* Adds a chunk of the text. Passes the text that cannot belong to a stop string
 * any more to `write`, in at most one call. Once a stop string is found, sets
 * s->hit and passes nothing more. If several stop strings end at the same byte,
 * takes the longest, and passes it, too, if s->shown is set. Returns false if
 * out of memory, or if `write` returned false. */
bool stop_add(struct stops *s, const char *text, size_t len,
              stop_write_fn *write, void *user);
/* Ends a text in which no stop string was found: passes the text that is held
 * back to `write`. Returns false if `write` returned false. */
bool stop_end(struct stops *s, stop_write_fn *write, void *user);

#endif
