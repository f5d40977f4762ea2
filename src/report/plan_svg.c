/* Draws a plan as an SVG picture. Rows are devices, columns are layers, and
 * boxes are tensors. The area of a box is proportional to the bytes of the
 * tensor on the device. Collectives and copies are vertical lines in the gap to
 * the right of their layer.
 *
 * plan_svg_page.c computes the positions; this file only draws. A cell, which
 * is one device and one layer, consists of horizontal bands, one per kind of
 * tensors. In a band the boxes of the tensors are side by side. */
#include "report/plan_svg.h"

#include "base/err.h"
#include "base/numeral.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *fill;
} kinds[PLAN_KINDS] = {
    [PLAN_ATTENTION] = {"attention", "#7fb3e6"},
    [PLAN_FEED_FORWARD] = {"feed-forward", "#8fd19e"},
    [PLAN_EXPERTS] = {"experts", "#f2c46d"},
    [PLAN_EMBEDDING] = {"embedding, output", "#c9a3e0"},
    [PLAN_CACHE] = {"cache", "#f2a3a3"},
    [PLAN_OTHER] = {"norms, router, other", "#b8c0c8"},
};

static const struct {
    const char *stroke, *dash, *legend;
} lines[] = {
    [SVG_COLLECTIVE] =
        {"#1f4e8c", "",
         "collective: devices of a group sum or exchange values"},
    [SVG_COPY] = {"#c2410c", "",
                  "copy: values are sent from one group to another"},
    [SVG_STREAM] = {"#7e22ce", " stroke-dasharray='5 3'",
                    "streamed: weights or cache are sent with them"},
};

/* Prints a text escaped for XML. Names from a file may contain any bytes; those
 * that are not printable ASCII become '?'. */
static void say_escaped(const struct sink *to, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '<':
            writer_printf(to, "&lt;");
            break;
        case '>':
            writer_printf(to, "&gt;");
            break;
        case '&':
            writer_printf(to, "&amp;");
            break;
        default:
            writer_printf(to, "%c", *s >= ' ' && *s <= '~' ? *s : '?');
        }
}

static void __attribute__((format(printf, 5, 6)))
say_text(const struct sink *to, double x, double y, const char *attributes,
         const char *fmt, ...)
{
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    numeral_vprint(text, sizeof text, fmt, ap);
    va_end(ap);
    writer_printf(to, "<text x='%.1f' y='%.1f'%s>", x, y, attributes);
    say_escaped(to, text);
    writer_printf(to, "</text>\n");
}

static void say_rect(const struct sink *to, double x, double y, double w,
                     double h, const char *attributes)
{
    writer_printf(to,
                  "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f'%s/>\n", x,
                  y, w, h, attributes);
}

/* ---- drawing boxes ------------------------------------------------------ */

static double text_width(const char *s)
{
    return 5.3 * (double)strlen(s); /* estimated width of a text in px, in a
                                       font of 9 px */
}

/* Writes a short name of a tensor, which labels the tensor's box, such as
 * "gate" for "ffn_gate_exps". The kind of the tensor need not be named, because
 * the color of the box shows it. */
static void box_name(const struct plan_tensor *t, char name[PLAN_NAME])
{
    char all[PLAN_NAME];
    const char *s = plan_short_name(t->node->name, all);
    size_t n;

    s += !strncmp(s, "ffn_", 4) ? 4 : !strncmp(s, "attn_", 5) ? 5 : 0;
    n = strlen(s);
    if (n > 5 && !strcmp(s + n - 5, "_exps"))
        n -= 5;
    snprintf(name, PLAN_NAME, "%.*s", (int)n, s);
}

static void draw_box(const struct sink *to, const struct plan_tensor *t,
                     uint64_t bytes, double x, double y, double w, double h)
{
    const struct size_text size = size_text(bytes);
    char name[PLAN_NAME], label[PLAN_NAME + 20];

    box_name(t, name);
    writer_printf(to,
                  "<rect x='%.1f' y='%.1f' width='%.1f' height='%.1f'><title>",
                  x, y, w, h);
    snprintf(label, sizeof label, "%s %s", name, size.s);
    say_escaped(to, label);
    writer_printf(to, "</title></rect>\n");
    if (h < 10)
        return;
    if (h >= 22 && text_width(name) < w - 3) {
        say_text(to, x + w / 2, y + h / 2 - 2, " class='b'", "%s", name);
        say_text(to, x + w / 2, y + h / 2 + 8, " class='b'", "%s", size.s);
    } else if (text_width(name) < w - 3) {
        say_text(to, x + w / 2, y + h / 2 + 3, " class='b'", "%s",
                 text_width(label) < w - 3 ? label : name);
    }
}

static void draw_cell(const struct svg_page *g, const struct svg_lane *c,
                      int row)
{
    double x = c->at, y, w = c->size;
    uint64_t kind[PLAN_KINDS], all = svg_bytes(g, c, row, kind);

    if (all == 0)
        return;
    y = g->row.v[row].at + SVG_PAD;
    for (int k = 0; k < PLAN_KINDS; k++) {
        double h = (double)kind[k] * g->scale / w, at = x;
        bool named = false;

        if (kind[k] == 0)
            continue;
        writer_printf(g->to, "<g fill='%s'>\n", kinds[k].fill);
        /* The band of this kind is too thin for boxes of single tensors, so one
         * box stands for all of them. */
        if (k == PLAN_OTHER || h < 10) {
            say_rect(g->to, x, y, w, h < 0.7 ? 0.7 : h, "");
            named = true;
        }
        for (int i = 0; i < g->f->n_tensor && !named; i++) {
            const struct plan_tensor *t = &g->f->tensor[i];
            uint64_t n = g->mean[i * g->row.n + row];
            double part = (double)n / (double)kind[k] * w;

            if (n == 0 || svg_column_of(g, t) != c ||
                plan_kind(t->node) != (enum plan_kind)k)
                continue;
            draw_box(g->to, t, n, at, y, part, h);
            at += part;
        }
        writer_printf(g->to, "</g>\n");
        if (named && h >= 9)
            say_text(g->to, x + w / 2, y + h / 2 + 3, " class='b'", "%s %s",
                     kinds[k].name, size_text(kind[k]).s);
        y += h;
    }
    say_text(g->to, x + w / 2, y + 11, " class='s m'", "%s", size_text(all).s);
}

/* ---- drawing lines ------------------------------------------------------ */

static double middle(const struct svg_lane *v)
{
    return v->at + v->size / 2;
}

static void draw_line(const struct svg_page *g, const struct svg_line *l)
{
    const char *color = lines[l->kind].stroke;
    double y0 = 1e9, y1 = 0, x = l->x, at = 1e9;
    int n;
    char label[80];

    for (int i = 0; i < g->row.n; i++)
        if (l->from[i] || l->to[i]) {
            y0 = middle(&g->row.v[i]) < y0 ? middle(&g->row.v[i]) : y0;
            y1 = middle(&g->row.v[i]) > y1 ? middle(&g->row.v[i]) : y1;
        }
    if (y0 > y1)
        return;
    /* Finds a height for the label of the line at which no row has an arrow or
     * circle. */
    for (int i = 0; i < g->row.n; i++)
        if (middle(&g->row.v[i]) > y0 + 1 && middle(&g->row.v[i]) < at)
            at = middle(&g->row.v[i]);
    at = (y0 + (y1 - y0 < 1 ? y0 : at)) / 2;
    if (y1 - y0 < 1) { /* Both ends are in the same row, so the line gets a
                          length of its own. */
        y0 -= 26;
        y1 += 26;
    }
    writer_printf(g->to,
                  "<g stroke='%s' stroke-width='1.6' fill='%s'><path d='M%.1f "
                  "%.1fV%.1f'%s/>\n",
                  color, color, x, y0, y1, lines[l->kind].dash);
    for (int i = 0; i < g->row.n; i++) {
        double y = middle(&g->row.v[i]);

        if (l->to[i] && l->kind != SVG_COLLECTIVE)
            writer_printf(
                g->to,
                "<path d='M%.1f %.1fh7'/><path stroke='none' d='M%.1f "
                "%.1fl-6 -4v8z'/>\n",
                x, y, x + 11, y);
        else if (l->from[i] || l->to[i])
            writer_printf(g->to, "<circle cx='%.1f' cy='%.1f' r='3'%s/>\n", x,
                          y, l->kind == SVG_COLLECTIVE ? "" : " fill='#fff'");
    }
    writer_printf(g->to, "</g>\n");
    n = l->n > 1 ? snprintf(label, sizeof label, "%d x ", l->n) : 0;
    snprintf(label + n, sizeof label - (size_t)n, "%s: %s", l->name,
             size_text(l->bytes).s);
    writer_printf(g->to,
                  "<text class='s m' fill='%s' transform='translate(%.1f %.1f) "
                  "rotate(-90)'>",
                  color, x - 4, at);
    say_escaped(g->to, label);
    writer_printf(g->to, "</text>\n");
}

/* ---- drawing the whole picture ------------------------------------------ */

static void draw_row(const struct svg_page *g, const struct svg_lane *v)
{
    const struct device_desc *x = &g->p->compiled->list.dev[v->first];
    const struct plan_device *d = &g->f->dev[v->first];
    const struct size_text all = size_text(x->memory_bytes);
    const struct size_text buffers = size_text(d->buffers);
    const struct size_text block = size_text(d->block);
    double y = v->at + 18;

    say_rect(g->to, 8, v->at, g->width - 16, v->size, " fill='#eef1f4' rx='5'");
    if (v->more) {
        say_text(g->to, 18, middle(v) + 4, " class='s'", "... %d more devices",
                 v->n);
        return;
    }
    say_text(g->to, 18, y, " class='h'", "%s%s%s", x->name,
             v->n > 1 ? " - " : "", v->n > 1 ? x[v->n - 1].name : "");
    if (v->n > 1)
        say_text(g->to, 18, y += 13, " class='s'", "%d devices, alike", v->n);
    say_text(g->to, 18, y += 13, " class='s'", "group %.40s%s", v->groups,
             x->host ? ": host memory" : "");
    say_text(g->to, 18, y += 13, " class='s'", "weights %s, cache %s%s%s",
             size_text(d->weights).s, size_text(d->cache).s,
             g->p->block ? ", block " : "", g->p->block ? block.s : "");
    y += 13;
    if (x->available_bytes < x->memory_bytes)
        say_text(g->to, 18, y, " class='s'", "buffers %s; %s of %s free",
                 buffers.s, size_text(x->available_bytes).s, all.s);
    else if (x->memory_bytes > 0)
        say_text(g->to, 18, y, " class='s'", "buffers %s; it has %s", buffers.s,
                 all.s);
    else
        say_text(g->to, 18, y, " class='s'", "buffers %s", buffers.s);
}

static void draw_column(const struct svg_page *g, const struct svg_lane *c)
{
    const struct placement *y = &g->p->compiled->place;
    char text[64];

    if (c->first < 0)
        snprintf(text, sizeof text, "embedding");
    else if (c->first >= y->n_layer)
        snprintf(text, sizeof text, "output");
    else if (c->n > 1)
        snprintf(text, sizeof text, "layers %d-%d", c->first,
                 c->first + c->n - 1);
    else
        snprintf(text, sizeof text, "layer %d", c->first);
    say_text(g->to, c->at + c->size / 2, SVG_TOP - 20, " class='h m'", "%s",
             text);
    if (c->more)
        snprintf(text, sizeof text, "not drawn");
    else if (c->n > 1)
        snprintf(text, sizeof text, "\xc3\x97 %d, %s", c->n,
                 c->differ ? "on average" : "each like this one");
    else if (c->first >= y->n_layer && g->tied)
        snprintf(text, sizeof text, "by token_embd");
    else
        return;
    writer_printf(g->to, "<text class='s m' x='%.1f' y='%d'>%s</text>\n",
                  c->at + c->size / 2, SVG_TOP - 8, text);
}

static void draw_title(const struct svg_page *g)
{
    const struct compiled *q = g->p->compiled;
    const struct plan_estimate *e = &g->f->estimate;
    const char *path = gguf_path(g->p->model->file);
    int n = compiled_devices(q);

    for (int d = 0; d < compiled_devices(q); d++)
        n -= q->list.dev[d].host;
    say_text(g->to, 10, 24, " class='t'", "%.200s: %d layers on %d device%s%s",
             strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
             q->place.n_layer, n, n == 1 ? "" : "s",
             n < compiled_devices(q) ? " and the host" : "");
    say_text(g->to, 10, 42, " class='s'",
             "%d rank%s, %" PRId64 " tokens of context; estimated: prompt %.0f "
             "t/s, generation %.*f t/s",
             q->place.n_rank, q->place.n_rank > 1 ? "s" : "", g->p->n_ctx,
             e->prefill_tps, e->decode_tps < 100, e->decode_tps);
}

static void draw_legend(const struct svg_page *g)
{
    const struct svg_lane *end = &g->row.v[g->row.n - 1];
    double x = 10, y = end->at + end->size + 22, side = svg_side(g);

    for (int k = 0; k < PLAN_KINDS; k++) {
        if (!g->has_kind[k])
            continue;
        writer_printf(g->to, "<g fill='%s'>", kinds[k].fill);
        say_rect(g->to, x, y - 10, 12, 12, "");
        writer_printf(g->to, "</g>");
        say_text(g->to, x + 17, y, " class='s'", "%s", kinds[k].name);
        x += 36 + 5.8 * (double)strlen(kinds[k].name);
    }
    y += 20;
    say_rect(g->to, 10, y - 12, side, side, " fill='#6b7280'");
    say_text(g->to, 16 + side, y, " class='s'",
             "= %s bytes (K = 1024): the area of a box is the size of the "
             "tensor on the device",
             size_text((uint64_t)(side * side / g->scale + 0.5)).s);
    say_rect(g->to, 460, y - 10, 18, 12, " fill='#fff' stroke='#cbd5e1'");
    say_text(g->to, 484, y, " class='s'",
             "white: devices of the group that runs the layer");
    y += side > 18 ? side : 18;
    for (size_t k = 0; k < sizeof lines / sizeof lines[0]; k++) {
        if (!g->has_line[k])
            continue;
        writer_printf(
            g->to, "<path d='M10 %.1fh26' stroke='%s' stroke-width='1.6'%s/>\n",
            y - 4, lines[k].stroke, lines[k].dash);
        if (k == SVG_STREAM)
            say_text(
                g->to, 44, y, " class='s'",
                "%s in steps of at least %" PRId64
                " tokens; bytes per step, for a cache per token of context",
                lines[k].legend, g->p->compiled->variants.stream_from);
        else
            say_text(g->to, 44, y, " class='s'", "%s; bytes per token%s",
                     lines[k].legend,
                     k == SVG_COPY ? "; from the circles to the arrows" : "");
        y += 16;
    }
}

static void draw(const struct svg_page *g)
{
    writer_printf(g->to,
                  "<svg xmlns='http://www.w3.org/2000/svg' width='%.0f' "
                  "height='%.0f' viewBox='0 0 %.0f %.0f' "
                  "font-family='Helvetica,Arial,sans-serif'>\n",
                  g->width, g->height, g->width, g->height);
    writer_printf(g->to,
                  "<style>.t{font-size:17px;font-weight:bold}.h{font-size:12px;"
                  "font-weight:bold}.s{font-size:10px}.m{text-anchor:middle}"
                  ".b{font-size:9px;text-anchor:middle;fill:#111;stroke:none}"
                  "rect{stroke-width:.6}g>rect{stroke:#fff}</style>\n");
    writer_printf(g->to, "<rect width='100%%' height='100%%' fill='#fff'/>\n");
    draw_title(g);
    for (int i = 0; i < g->row.n; i++)
        draw_row(g, &g->row.v[i]);
    for (int k = 0; k < g->column.n; k++) {
        const struct svg_lane *c = &g->column.v[k];

        draw_column(g, c);
        for (int i = 0; i < g->row.n; i++) {
            const struct svg_lane *v = &g->row.v[i];

            if (c->more || v->more)
                continue;
            if (svg_runs(g, c, v->first))
                say_rect(g->to, c->at - 4, v->at + 3, c->size + 8, v->size - 6,
                         " fill='#fff' rx='3'");
            draw_cell(g, c, i);
        }
    }
    for (int i = 0; i < g->n_line; i++)
        draw_line(g, &g->line[i]);
    draw_legend(g);
    writer_printf(g->to, "</svg>\n");
}

pl_status pl_plan_svg(const pl_plan *p, pl_write_fn *write, void *user,
                      pl_err *err)
{
    struct sink to = {write, user};
    struct plan_facts f;
    pl_status s;

    PL_NEED(p, err);
    PL_NEED(write, err);
    s = plan_facts_init(&f, p, err);
    if (s == PL_OK) {
        struct svg_page g = {.p = p, .f = &f, .to = &to};

        s = svg_page_init(&g, &f.arena, err);
        if (s == PL_OK)
            draw(&g);
    }
    plan_facts_fini(&f);
    return s;
}
