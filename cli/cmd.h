/* The commands, one file each (inspect and devices share one): options in, exit
 * code out. They print; what they print to standard output is what they are
 * for, everything else goes to standard error. */
#ifndef CLI_CMD_H
#define CLI_CMD_H

#include "options.h"

#define COMMAND_DECLARE(upper, lower, text, args, example)                     \
    enum exit_code cmd_##lower(const struct options *o);
COMMAND_MAP(COMMAND_DECLARE)
#undef COMMAND_DECLARE

/* Does `plait serve` have more than one model, or may it? Those of a hub are
 * downloaded when they are asked for, then. */
bool serve_has_many(const struct options *o);

#endif
