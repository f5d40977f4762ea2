/* Shared by the files that print programs. */
#ifndef PROGRAM_PROGRAM_PRINT_H
#define PROGRAM_PROGRAM_PRINT_H

#include "base/text_out.h"
#include "program/program_form.h"

/* Separates entry i of a list from the one before: nothing, a comma, or every 8
 * entries a new line. */
static inline void put_comma(struct text_out *o, int i)
{
    text_put(o, "%s", i == 0 ? "" : i % 8 ? ", " : ",\n      ");
}

/* Prints what follows the colon of an instruction's line. */
void program_put_insn(struct text_out *o, const struct program *all, int n_dev,
                      int dev, const struct insn *s);
/* Returns why an instruction cannot be printed, or NULL if it can. */
const char *program_insn_oddity(const struct program *p, const struct insn *s);

#endif
