/* Downloads the models of -hf, -mu and -hfd, unless they are in the cache
 * folder. */
#ifndef CLI_FETCH_H
#define CLI_FETCH_H

#include "options.h"

#include "hub/hub.h"

/* Downloads the model that -hf or -mu names and the draft model that -hfd
 * names, unless they are in the cache folder, and sets o->model and
 * o->model_draft to their paths. Does nothing for options that are not given.
 * Ctrl-C ends the download; the received part stays, so that the next call
 * resumes it. */
enum exit_code fetch_model(struct options *o);
/* Downloads the model like fetch_model(), but can be called on any thread.
 * Another thread ends the download by setting *cancel; Ctrl-C does not end
 * it. */
enum exit_code fetch_model_for(struct options *o, const volatile int *cancel);
/* Calls `each` for each model in the cache folder, as hub_cached() does, and
 * sets *folder to the folder's path, malloc'ed; NULL if the environment names
 * none. */
enum exit_code fetch_cached(const struct options *o, hub_cached_fn *each,
                            void *user, char **folder);

#endif
