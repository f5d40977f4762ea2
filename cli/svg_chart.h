/* Pictures of charts in SVG, written into a file that appears complete. */
#ifndef CLI_SVG_CHART_H
#define CLI_SVG_CHART_H

#include "atomic_file.h"

/* A chart of a picture. The caller sets all fields. */
struct svg_chart {
    struct whole_file *w;
    double x0, y0;         /* upper left corner in pixels */
    int high, top, bottom; /* height, and margins above and below the axes */
    double most_x, most_y; /* greatest values on the axes */
    double least_tick;     /* least distance of ticks on the x axis */
};

enum { SVG_CHART_WIDE = 460, SVG_CHART_LEFT = 60 };

/* Begins the file of --svg, a picture that has two charts side by side and is
 * `high` pixels high. Returns EXIT_DONE, or the exit code of a printed error.
 * svg_end ends it; without `keep`, it discards the picture. */
enum exit_code svg_begin(struct whole_file *w, const struct options *o,
                         int high);
enum exit_code svg_end(struct whole_file *w, const struct options *o, bool keep,
                       enum exit_code c);

/* Return the position in pixels of a value on an axis. */
double svg_x(const struct svg_chart *p, double v);
double svg_y(const struct svg_chart *p, double v);
/* Draws the axes, with ticks. */
void svg_axes(const struct svg_chart *p);

/* Appends printf-style text to the picture, truncated to 599 bytes. */
void svg_say(struct whole_file *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Appends text that plait did not write, such as a file name, with <, > and &
 * escaped. */
void svg_text(struct whole_file *w, const char *s);
/* Returns the colour of the chart's line i, for any i >= 0. The colours suit
 * readers who see red or green poorly. */
const char *svg_colour(int i);

#endif
