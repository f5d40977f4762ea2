/* The model of -hf and -mu: downloaded, if it is not in the cache folder. */
#ifndef CLI_FETCH_H
#define CLI_FETCH_H

#include "options.h"

/* Sets o->model to the path of what these options name, if they are given.
 * Ctrl-C ends it, and what has come stays. */
enum exit_code fetch_model(struct options *o);
/* The same, but ended by *cancel alone, which another thread may set. */
enum exit_code fetch_model_for(struct options *o, const volatile int *cancel);

#endif
