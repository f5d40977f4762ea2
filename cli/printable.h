/* Values and messages as people can bear to see them. */
#ifndef CLI_PRINTABLE_H
#define CLI_PRINTABLE_H

#include <stdio.h>

/* A value in a message: cut after a hundred bytes, with "..." behind. */
enum { SHOWN = 104 };
const char *clip_printable(char buf[SHOWN], const char *s);

/* Prints a message: what is no printable character shows as \xNN. */
void show(FILE *f, const char *s);

#endif
