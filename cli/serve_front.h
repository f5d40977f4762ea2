/* The front of `plait serve --hosts`: the parent of mpirun. It holds the
 * server's addresses while no job does, answers 503 with Retry-After then, and
 * starts a job again that has lost a machine. */
#ifndef CLI_SERVE_FRONT_H
#define CLI_SERVE_FRONT_H

#include "options.h"

#include "server/http.h"

/* Runs the command line word[], an mpirun of `plait serve`, until a signal ends
 * the server, or until a job ends with an error that another job would meet
 * again. Returns the exit code. */
enum exit_code serve_front(const struct options *o, char *const *word);

/* Returns the options of the HTTP server that `o` has, without keys. */
struct http_options serve_http_options(const struct options *o);

#endif
