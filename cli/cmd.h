/* The commands, one file each (inspect and devices share one). They take
 * options and return an exit code. They print their result on standard output,
 * and everything else on standard error. */
#ifndef CLI_CMD_H
#define CLI_CMD_H

#include "options.h"

#define COMMAND_DECLARE(upper, lower, text, args, example)                     \
    enum exit_code cmd_##lower(const struct options *o);
COMMAND_MAP(COMMAND_DECLARE)
#undef COMMAND_DECLARE

/* Returns true if the options of `plait serve` may name more than one model.
 * Models of a hub are then downloaded on demand. */
bool serve_has_many(const struct options *o);

#endif
