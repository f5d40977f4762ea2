/* Functions shared by the files that print programs. */
#ifndef PROGRAM_PROGRAM_PRINT_H
#define PROGRAM_PROGRAM_PRINT_H

#include "base/text_out.h"
#include "program/program_form.h"

/* Prints the separator before entry i of a list: nothing, a comma, or after
 * every 8 entries a comma and a line break. */
static inline void put_comma(struct text_out *o, int i)
{
    text_put(o, "%s", i == 0 ? "" : i % 8 ? ", " : ",\n      ");
}

/* Prints the part of an instruction's line after the colon. `s` is an
 * instruction of device `dev`; all[n_dev] are the programs of all devices. */
void program_put_insn(struct text_out *o, const struct program *all, int n_dev,
                      int dev, const struct insn *s);
/* Returns the reason why the text form cannot express an instruction, as part
 * of an error message. Returns NULL if the instruction can be printed. */
const char *program_insn_oddity(const struct program *p, const struct insn *s);

#endif
