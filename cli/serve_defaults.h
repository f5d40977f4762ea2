/* The options of `plait serve` that set default values for fields of requests,
 * such as --ignore-eos. */
#ifndef CLI_SERVE_DEFAULTS_H
#define CLI_SERVE_DEFAULTS_H

#include "options.h"

#include <jansson.h>

/* Sets *out to an object with the fields that are added to requests without
 * them; see request_rules.defaults. The caller releases it, also after an
 * error. */
pl_status serve_defaults(json_t **out, const struct options *o, pl_err *err);

#endif
