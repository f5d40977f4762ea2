/* Makes values and messages safe to print. */
#ifndef CLI_PRINTABLE_H
#define CLI_PRINTABLE_H

#include <stdio.h>

/* Copies `s` to `buf` for use in a message. A longer text is cut after about a
 * hundred bytes and "..." is appended. Returns buf. */
enum { SHOWN = 104 };
const char *clip_printable(char buf[SHOWN], const char *s);

/* Prints a message, at once if all of it is printable. Unprintable characters
 * are printed as \xNN. */
void show(FILE *f, const char *s);

#endif
