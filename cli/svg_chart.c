/* Writes charts as text; svg_chart.h describes the functions. */
#include "svg_chart.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void svg_say(struct whole_file *w, const char *fmt, ...)
{
    char buf[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    whole_write(w, buf, strlen(buf));
}

void svg_text(struct whole_file *w, const char *s)
{
    for (; *s != '\0'; s++)
        if (*s == '<' || *s == '>' || *s == '&')
            svg_say(w, *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : "&amp;");
        else if ((unsigned char)*s >= ' ')
            whole_write(w, s, 1);
}

const char *svg_colour(int i)
{
    static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73",
                                          "#cc79a7", "#56b4e9", "#e69f00"};

    return colours[i % 6];
}

/* Returns the distance between the ticks of an axis from 0 to `most`: 1, 2 or 5
 * times a power of ten, so that there are about 4 to 10 ticks. */
static double tick(double most)
{
    double p = pow(10, floor(log10(most / 4)));

    return most / 4 < 2 * p ? p : most / 4 < 5 * p ? 2 * p : 5 * p;
}

enum exit_code svg_begin(struct whole_file *w, const struct options *o,
                         int high)
{
    const int wide = 2 * SVG_CHART_WIDE;
    enum exit_code c = atomic_file_open(w, o, "--svg", o->svg);

    if (c == EXIT_DONE)
        svg_say(w,
                "<svg xmlns='http://www.w3.org/2000/svg' width='%d' "
                "height='%d' viewBox='0 0 %d %d'>\n<style>text{font:12px "
                "sans-serif}path{fill:none}.axis{stroke:#888}</style>\n",
                wide, high, wide, high);
    return c;
}

enum exit_code svg_end(struct whole_file *w, const struct options *o, bool keep,
                       enum exit_code c)
{
    svg_say(w, "</svg>\n");
    return atomic_file_close(w, o, keep, c);
}

double svg_x(const struct svg_chart *p, double v)
{
    enum { RIGHT = 20 };

    return p->x0 + SVG_CHART_LEFT +
           v / p->most_x * (SVG_CHART_WIDE - SVG_CHART_LEFT - RIGHT);
}

double svg_y(const struct svg_chart *p, double v)
{
    return p->y0 + p->high - p->bottom -
           v / p->most_y * (p->high - p->top - p->bottom);
}

void svg_axes(const struct svg_chart *p)
{
    double x = svg_x(p, 0), y = svg_y(p, 0);

    svg_say(p->w, "<path d='M%.1f %.1f V%.1f H%.1f' class='axis'/>\n", x,
            svg_y(p, p->most_y), y, svg_x(p, p->most_x));
    for (double v = 0; v <= p->most_y; v += tick(p->most_y))
        svg_say(p->w, "<text x='%.1f' y='%.1f' text-anchor='end'>%g</text>\n",
                x - 6, svg_y(p, v) + 4, v);
    for (double v = 0; v <= p->most_x;
         v += fmax(tick(p->most_x), p->least_tick))
        svg_say(p->w,
                "<text x='%.1f' y='%.1f' text-anchor='middle'>%g</text>\n",
                svg_x(p, v), y + 16, v);
}
