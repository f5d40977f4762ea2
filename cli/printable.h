/* Makes values and messages safe to print. */
#ifndef CLI_PRINTABLE_H
#define CLI_PRINTABLE_H

#include <stdio.h>

/* Shortens a value for a message: cut after a hundred bytes, followed by
 * "...". */
enum { SHOWN = 104 };
const char *clip_printable(char buf[SHOWN], const char *s);

/* Prints a message; unprintable characters appear as \xNN. */
void show(FILE *f, const char *s);

#endif
