/* Draws a row of two charts of the time to first token: on the left over its
 * percentile, with a line for each load; on the right over the due time of the
 * request, with a dot for each request. Below it draws the same for the mean
 * time between tokens. */
#include "bench_serve.h"
#include "svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDE = 460, HIGH = 280, LEFT = 60, TOP = 40, RIGHT = 20, BOTTOM = 50 };

typedef double time_fn(const struct serve_request *r);

static double first_of(const struct serve_request *r)
{
    return r->n_event > 0 ? r->first - r->due : -1;
}

struct panel {
    struct whole_file *w;
    const struct serve_load *load;
    int n;
    time_fn *of;
    /* x0, y0: upper left corner of the chart in pixels; most_x, most_y:
     * greatest values on the axes, most_y in milliseconds */
    double x0, y0, most_x, most_y;
};

static bool counts(const struct panel *p, const struct serve_request *r)
{
    return r->failure < 0 && p->of(r) >= 0;
}

static double at_x(const struct panel *p, double v)
{
    return p->x0 + LEFT + v / p->most_x * (WIDE - LEFT - RIGHT);
}

static double at_y(const struct panel *p, double v)
{
    return p->y0 + HIGH - BOTTOM - v / p->most_y * (HIGH - TOP - BOTTOM);
}

static void draw_axes(const struct panel *p, const char *title,
                      const char *below)
{
    double x = at_x(p, 0), y = at_y(p, 0);

    svg_say(p->w, "<text x='%.1f' y='%.1f'>%s, ms</text>\n", x,
            p->y0 + TOP - 16, title);
    svg_say(p->w, "<path d='M%.1f %.1f V%.1f H%.1f' class='axis'/>\n", x,
            at_y(p, p->most_y), y, at_x(p, p->most_x));
    for (double v = 0; v <= p->most_y; v += svg_tick(p->most_y))
        svg_say(p->w, "<text x='%.1f' y='%.1f' text-anchor='end'>%g</text>\n",
                x - 6, at_y(p, v) + 4, v);
    for (double v = 0; v <= p->most_x; v += svg_tick(p->most_x))
        svg_say(p->w,
                "<text x='%.1f' y='%.1f' text-anchor='middle'>%g</text>\n",
                at_x(p, v), y + 16, v);
    svg_say(p->w, "<text x='%.1f' y='%.1f' text-anchor='end'>%s</text>\n",
            at_x(p, p->most_x), y + 32, below);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Draws the percentile curve of load k. Returns false if out of memory. */
static bool draw_curve(const struct panel *p, int k)
{
    const struct serve_load *l = &p->load[k];
    double *v = malloc(((size_t)l->n_request + 1) * sizeof(*v));
    int64_t n = 0;

    if (v == NULL)
        return false;
    for (int64_t i = 0; i < l->n_request; i++)
        if (counts(p, &l->request[i]))
            v[n++] = 1e3 * p->of(&l->request[i]);
    qsort(v, (size_t)n, sizeof(*v), by_value);
    svg_say(p->w, "<path stroke='%s' d='", svg_colour(k));
    for (int i = 1; i <= 100 && n > 0; i++)
        svg_say(p->w, "%s%.1f %.1f", i == 1 ? "M" : "L", at_x(p, i),
                at_y(p, serve_percentile(v, n, 0.01 * i)));
    svg_say(p->w, "'/>\n");
    free(v);
    return true;
}

/* Draws a dot for each successful request of load k, and a cross at the bottom
 * for each failed one. */
static void draw_dots(const struct panel *p, int k)
{
    const struct serve_load *l = &p->load[k];

    for (int64_t i = 0; i < l->n_request; i++) {
        const struct serve_request *r = &l->request[i];
        double x = at_x(p, r->due - l->began);

        if (r->failure >= 0)
            svg_say(p->w,
                    "<path d='M%.1f %.1fl6 6m0 -6l-6 6' stroke='#c00'/>\n",
                    x - 3, at_y(p, 0) - 3);
        else if (p->of(r) >= 0)
            svg_say(p->w, "<circle cx='%.1f' cy='%.1f' r='2' fill='%s'/>\n", x,
                    at_y(p, 1e3 * p->of(r)), svg_colour(k));
    }
}

static void draw_names(struct whole_file *w, const struct serve_load *l, int n)
{
    for (int i = 0; i < n; i++) {
        svg_say(w, "<text x='%d' y='%d' fill='%s'>", LEFT + i % 4 * 220,
                2 * HIGH + 16 + 16 * (i / 4), svg_colour(i));
        if (l[i].rate > 0)
            svg_say(w, "%g a second%s", l[i].rate, l[i].at_once ? ", " : "");
        if (l[i].at_once > 0)
            svg_say(w, "%d at once", l[i].at_once);
        svg_say(w, "</text>\n");
    }
}

static bool draw_pair(struct panel p, const char *title)
{
    double end = 0;
    bool ok = true;

    p.most_y = 1e-3;
    for (int k = 0; k < p.n; k++)
        for (int64_t i = 0; i < p.load[k].n_request; i++) {
            const struct serve_request *r = &p.load[k].request[i];

            end = fmax(end, r->due - p.load[k].began);
            if (counts(&p, r))
                p.most_y = fmax(p.most_y, 1e3 * p.of(r));
        }
    p.most_x = 100;
    draw_axes(&p, title, "percentile");
    for (int k = 0; k < p.n && ok; k++)
        ok = draw_curve(&p, k);
    p.most_x = fmax(end, 1e-3);
    p.x0 = WIDE;
    draw_axes(&p, title, "seconds");
    for (int k = 0; k < p.n; k++)
        draw_dots(&p, k);
    return ok;
}

enum exit_code serve_draw_svg(const struct options *o,
                              const struct serve_load *load, int n)
{
    const int high = 2 * HIGH + 20 + 16 * ((n + 3) / 4);
    struct whole_file w;
    enum exit_code c = atomic_file_open(&w, o, "--svg", o->svg);
    struct panel p = {.w = &w, .load = load, .n = n};
    bool ok;

    if (c != EXIT_DONE)
        return c;
    svg_say(&w,
            "<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' "
            "viewBox='0 0 %d %d'>\n<style>text{font:12px sans-serif}"
            "path{fill:none}.axis{stroke:#888}</style>\n",
            2 * WIDE, high, 2 * WIDE, high);
    p.of = first_of;
    ok = draw_pair(p, "time to first token");
    p.of = serve_between;
    p.y0 = HIGH;
    ok = draw_pair(p, "time between tokens") && ok;
    draw_names(&w, load, n);
    svg_say(&w, "</svg>\n");
    if (!ok)
        c = cli_error(CMD_BENCH, EXIT_FAILED, "no memory for the picture");
    return atomic_file_close(&w, o, ok, c);
}
