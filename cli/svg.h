/* Pictures in SVG: text into a file that is written as a whole. */
#ifndef CLI_SVG_H
#define CLI_SVG_H

#include "atomic_file.h"

/* At most 600 bytes at once. */
void svg_say(struct whole_file *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* What others wrote, so that it is text and nothing else. */
void svg_text(struct whole_file *w, const char *s);
/* Of lines, told apart by those who do not see red or green well; any i >= 0.
 */
const char *svg_colour(int i);
/* A step of an axis, 1, 2 or 5 times a power of ten, so that a handful fit into
 * `most`. */
double svg_tick(double most);

#endif
