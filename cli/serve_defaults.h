/* The options of `plait serve` that stand for a field of each request, such as
 * --reasoning-format. */
#ifndef CLI_SERVE_DEFAULTS_H
#define CLI_SERVE_DEFAULTS_H

#include "options.h"

#include <jansson.h>

/* Sets *out to an object with the fields, which a request has unless it says
 * otherwise; see request_rules.defaults. The caller releases it in all cases.
 * Prints an error and returns its code if an option is invalid. */
enum exit_code serve_defaults(json_t **out, const struct options *o);

#endif
