/* Draws four charts of tokens per second. The upper two are for prompts, the
 * lower two for generation. The left ones are over the depth, the right ones
 * over the number of devices. A line joins the rows that differ only in the
 * quantity on the x axis. */
#include "bench.h"
#include "svg_chart.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { HIGH = 300, TOP = 40, BOTTOM = 110 };

/* Returns true if the row belongs in the charts for prompts; if `prompt` is
 * false, in those for generation. */
static bool in_panel(const json_t *row, bool prompt)
{
    return bench_number(row, prompt ? "n_gen" : "n_prompt") == 0;
}

/* Writes the name of the line that a row belongs to: all its settings except
 * `x`, the quantity on the x axis. If `x` is the number of devices, also leaves
 * out settings that depend on it. */
static void line_name(char *buf, size_t size, const json_t *row, const char *x)
{
    static const char *const keys[] = {
        "model_filename", "split_mode", "tensor_split", "devices",
        "varied",         "spec_type",  "n_threads",    "n_depth",
        "n_seq",          "n_prompt",   "n_gen"};
    static const char *const units[] = {
        "", "", "", "", "", "", " threads", " deep", " seq", " tok", " tok"};
    bool over_devices = strcmp(x, "n_devices") == 0;
    size_t n = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]) && n < size; i++) {
        const json_t *v = json_object_get(row, keys[i]);
        const char *s = json_string_value(v);
        const char *slash = s != NULL && i == 0 ? strrchr(s, '/') : NULL;

        if (strcmp(keys[i], x) == 0 || (over_devices && i > 1 && i < 4) ||
            (over_devices && strcmp(keys[i], "n_threads") == 0))
            continue;
        if (s != NULL && s[0] != '\0')
            n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? ", " : "",
                                  slash != NULL ? slash + 1 : s);
        else if (json_number_value(v) > 0)
            n += (size_t)snprintf(
                buf + n, size - n, ", %.0f%s", json_number_value(v),
                strcmp(units[i], " threads") == 0 && json_number_value(v) == 1
                    ? " thread"
                    : units[i]);
    }
}

struct panel {
    struct svg_chart chart;
    json_t *rows;
    const char *x;
    bool prompt;
};

/* Draws the line that begins with row `first` through all rows that belong to
 * it. `index` chooses the colour. */
static void draw_line(const struct panel *p, size_t first, int index)
{
    const char *colour = svg_colour(index);
    const struct svg_chart *c = &p->chart;
    char name[300], other[300];
    json_t *row;
    double before_x = 0, before_y = 0;

    line_name(name, sizeof(name), json_array_get(p->rows, first), p->x);
    for (size_t i = first; i < json_array_size(p->rows); i++) {
        double x, y;

        row = json_array_get(p->rows, i);
        line_name(other, sizeof(other), row, p->x);
        if (!in_panel(row, p->prompt) || strcmp(name, other) != 0)
            continue;
        x = svg_x(c, bench_number(row, p->x));
        y = svg_y(c, bench_number(row, "median_ts"));
        if (i > first)
            svg_say(c->w, "<path d='M%.1f %.1f L%.1f %.1f' stroke='%s'/>\n",
                    before_x, before_y, x, y, colour);
        svg_say(c->w, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'/>\n", x, y,
                colour);
        before_x = x;
        before_y = y;
    }
    if (index > 4)
        return; /* the chart has space for the names of five lines only */
    svg_say(c->w, "<text x='%.1f' y='%.1f' fill='%s'>", c->x0 + SVG_CHART_LEFT,
            c->y0 + HIGH - BOTTOM + 36 + 14 * index, colour);
    svg_text(c->w, name);
    svg_say(c->w, "</text>\n");
}

/* Returns true if row i is the first row of its line. */
static bool begins(const struct panel *p, size_t i)
{
    char name[300], other[300];

    line_name(name, sizeof(name), json_array_get(p->rows, i), p->x);
    for (size_t k = 0; k < i; k++) {
        line_name(other, sizeof(other), json_array_get(p->rows, k), p->x);
        if (in_panel(json_array_get(p->rows, k), p->prompt) &&
            strcmp(name, other) == 0)
            return false;
    }
    return true;
}

static void draw_panel(struct panel p)
{
    json_t *row;
    size_t i;
    int n = 0;

    p.chart.most_x = p.chart.most_y = 1;
    json_array_foreach (p.rows, i, row) {
        if (!in_panel(row, p.prompt))
            continue;
        p.chart.most_x = fmax(p.chart.most_x, bench_number(row, p.x));
        p.chart.most_y = fmax(p.chart.most_y, bench_number(row, "median_ts"));
    }
    svg_say(p.chart.w, "<text x='%.1f' y='%.1f'>%s: t/s over %s</text>\n",
            svg_x(&p.chart, 0), p.chart.y0 + TOP - 20,
            p.prompt ? "prompt" : "generation",
            strcmp(p.x, "n_depth") == 0 ? "depth" : "devices");
    svg_axes(&p.chart);
    json_array_foreach (p.rows, i, row)
        if (in_panel(row, p.prompt) && begins(&p, i))
            draw_line(&p, i, n++);
}

enum exit_code bench_draw(const struct options *o, json_t *rows)
{
    struct whole_file w;
    enum exit_code c = svg_begin(&w, o, 2 * HIGH);

    if (c != EXIT_DONE)
        return c;
    for (int i = 0; i < 4; i++)
        draw_panel((struct panel){.chart = {.w = &w,
                                            .x0 = i % 2 * SVG_CHART_WIDE,
                                            .y0 = i / 2 * HIGH,
                                            .high = HIGH,
                                            .top = TOP,
                                            .bottom = BOTTOM,
                                            .least_tick = 1},
                                  .rows = rows,
                                  .x = i % 2 == 0 ? "n_depth" : "n_devices",
                                  .prompt = i < 2});
    return svg_end(&w, o, true, c);
}
