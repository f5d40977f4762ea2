/* Draws a row of two charts of the time to first token: on the left over its
 * percentile, with a line for each load; on the right over the due time of the
 * request, with a dot for each request. Below it draws the same for the mean
 * time between tokens. */
#include "bench_serve.h"
#include "cli/svg_chart.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { HIGH = 280, TOP = 40, BOTTOM = 50 };

struct panel {
    struct svg_chart chart; /* most_y is in milliseconds */
    const struct serve_load *load;
    int n;
    serve_time *of;
};

static void draw_axes(const struct svg_chart *c, const char *title,
                      const char *below)
{
    svg_say(c->w, "<text x='%.1f' y='%.1f'>%s, ms</text>\n", svg_x(c, 0),
            c->y0 + TOP - 16, title);
    svg_axes(c);
    svg_say(c->w, "<text x='%.1f' y='%.1f' text-anchor='end'>%s</text>\n",
            svg_x(c, c->most_x), svg_y(c, 0) + 32, below);
}

/* Draws the percentile curve of load k. Returns false if out of memory. */
static bool draw_curve(const struct panel *p, int k)
{
    const struct serve_load *l = &p->load[k];
    const struct svg_chart *c = &p->chart;
    double *v = malloc(((size_t)l->n_request + 1) * sizeof(*v));
    int64_t n;

    if (v == NULL)
        return false;
    n = serve_times(v, l, p->of);
    svg_say(c->w, "<path stroke='%s' d='", svg_colour(k));
    for (int i = 1; i <= 100 && n > 0; i++)
        svg_say(c->w, "%s%.1f %.1f", i == 1 ? "M" : "L", svg_x(c, i),
                svg_y(c, 1e3 * serve_percentile(v, n, 0.01 * i)));
    svg_say(c->w, "'/>\n");
    free(v);
    return true;
}

/* Draws a dot for each successful request of load k, and a cross at the bottom
 * for each failed one. */
static void draw_dots(const struct panel *p, int k)
{
    const struct serve_load *l = &p->load[k];
    const struct svg_chart *c = &p->chart;

    for (int64_t i = 0; i < l->n_request; i++) {
        const struct serve_request *r = &l->request[i];
        double x = svg_x(c, r->due - l->began);

        if (r->failure >= 0)
            svg_say(c->w,
                    "<path d='M%.1f %.1fl6 6m0 -6l-6 6' stroke='#c00'/>\n",
                    x - 3, svg_y(c, 0) - 3);
        else if (p->of(r) >= 0)
            svg_say(c->w, "<circle cx='%.1f' cy='%.1f' r='2' fill='%s'/>\n", x,
                    svg_y(c, 1e3 * p->of(r)), svg_colour(k));
    }
}

static void draw_names(struct whole_file *w, const struct serve_load *l, int n)
{
    for (int i = 0; i < n; i++) {
        svg_say(w, "<text x='%d' y='%d' fill='%s'>",
                SVG_CHART_LEFT + i % 4 * 220, 2 * HIGH + 16 + 16 * (i / 4),
                svg_colour(i));
        if (l[i].rate > 0)
            svg_say(w, "%g a second%s", l[i].rate, l[i].at_once ? ", " : "");
        if (l[i].at_once > 0)
            svg_say(w, "%d at once", l[i].at_once);
        svg_say(w, "</text>\n");
    }
}

static bool draw_pair(struct panel p, const char *title)
{
    struct svg_chart *c = &p.chart;
    double end = 0;
    bool ok = true;

    c->most_y = 1e-3;
    for (int k = 0; k < p.n; k++)
        for (int64_t i = 0; i < p.load[k].n_request; i++) {
            const struct serve_request *r = &p.load[k].request[i];

            end = fmax(end, r->due - p.load[k].began);
            if (r->failure < 0)
                c->most_y = fmax(c->most_y, 1e3 * p.of(r));
        }
    c->most_x = 100;
    draw_axes(c, title, "percentile");
    for (int k = 0; k < p.n && ok; k++)
        ok = draw_curve(&p, k);
    c->most_x = fmax(end, 1e-3);
    c->x0 = SVG_CHART_WIDE;
    draw_axes(c, title, "seconds");
    for (int k = 0; k < p.n; k++)
        draw_dots(&p, k);
    return ok;
}

enum exit_code serve_draw_svg(const struct options *o,
                              const struct serve_load *load, int n)
{
    struct whole_file w;
    enum exit_code c = svg_begin(&w, o, 2 * HIGH + 20 + 16 * ((n + 3) / 4));
    struct panel p = {
        .chart = {.w = &w, .high = HIGH, .top = TOP, .bottom = BOTTOM},
        .load = load,
        .n = n,
        .of = serve_first};
    bool ok;

    if (c != EXIT_DONE)
        return c;
    ok = draw_pair(p, "time to first token");
    p.of = serve_between;
    p.chart.y0 = HIGH;
    ok = draw_pair(p, "time between tokens") && ok;
    draw_names(&w, load, n);
    if (!ok)
        c = cli_error(CMD_BENCH, EXIT_FAILED, "no memory for the picture");
    return svg_end(&w, o, ok, c);
}
