/* Shared by the files that print programs. */
#ifndef PROGRAM_PROGRAM_PRINT_H
#define PROGRAM_PROGRAM_PRINT_H

#include "base/text_out.h"
#include "program/program_form.h"

/* Before entry i of a list: nothing, a comma, or now and then a new line. */
static inline void put_comma(struct text_out *o, int i)
{
    text_put(o, "%s", i == 0 ? "" : i % 8 ? ", " : ",\n      ");
}

/* What stands behind the colon of a step's line. */
void program_put_insn(struct text_out *o, const struct program *all, int n_dev,
                      int dev, const struct insn *s);
/* Why a step cannot be printed; NULL: it can. */
const char *program_insn_oddity(const struct program *p, const struct insn *s);

#endif
