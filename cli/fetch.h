/* Downloads the model of -hf and -mu, unless it is in the cache folder. */
#ifndef CLI_FETCH_H
#define CLI_FETCH_H

#include "options.h"

/* Sets o->model to the path of the model that these options name, if they are
 * given. Ctrl-C ends the download; the received part stays. */
enum exit_code fetch_model(struct options *o);
/* The same, but ended only by *cancel, which another thread may set. */
enum exit_code fetch_model_for(struct options *o, const volatile int *cancel);

#endif
