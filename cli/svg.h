/* SVG pictures, written as text into a file that appears complete. */
#ifndef CLI_SVG_H
#define CLI_SVG_H

#include "atomic_file.h"

/* Appends printf-style text to the picture, truncated to 599 bytes. */
void svg_say(struct whole_file *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends text that plait did not write, such as a file name, with <, > and &
 * escaped. */
void svg_text(struct whole_file *w, const char *s);
/* Returns the colour of the chart's line i, for any i >= 0. The colours suit
 * readers who see red or green poorly. */
const char *svg_colour(int i);
/* Returns the distance between the ticks of an axis from 0 to `most`: 1, 2 or 5
 * times a power of ten, so that there are about 4 to 10 ticks. */
double svg_tick(double most);

#endif
