/* Prints programs; program_text.h describes the form. */
#include "program/program_text.h"

#include "base/err.h"
#include "base/text_out.h"
#include "graph/shape.h"
#include "program/program_print.h"

#include <inttypes.h>
#include <limits.h>

/* ---- printing tensors ---------------------------------------------------- */

static bool whole_row(const struct prog_tensor *t)
{
    const struct pack *p = t->pack;
    pl_dim row = t->n_dim > 0 ? t->dim[t->n_dim - 1] : (pl_dim){-1, PL_CONST};
    struct pack_span s;

    if (row.symbol != PL_CONST || p->k != row.n)
        return false;
    return p->n_chunk == 0 ||
           (pack_span_at(p, 0, &s) == p->n_chunk && s.k == 0 && s.rank == 0);
}

static void put_spans(struct text_out *o, const struct pack *p)
{
    if (p->n_chunk == 0)
        text_put(o, "nothing");
    for (int i = 0, n = 0; i < p->n_chunk; n++) {
        struct pack_span s;

        i = pack_span_at(p, i, &s);
        put_comma(o, n);
        text_put(o, "%" PRId64 "+%" PRId64 "{%d}", s.k, s.n, s.rank);
    }
}

static void put_pack(struct text_out *o, const struct prog_tensor *t)
{
    const struct pack *p = t->pack;
    const char *open = "(";
    bool rows = t->n_dim < 2 || t->dim[t->n_dim - 2].symbol != PL_CONST ||
                t->dim[t->n_dim - 2].n != p->n_row;

    text_put(o, " packed");
    if (rows) {
        text_put(o, "%srows %" PRId64, open, p->n_row);
        open = " ";
    }
    if (p->n_full != p->k) {
        text_put(o, "%sof %" PRId64, open, p->n_full);
        open = " ";
    }
    if (p->format != t->format) {
        text_put(o, "%sformat ", open);
        text_put_lower(o, format_info(p->format)->name);
        open = " ";
    }
    if (!whole_row(t)) {
        text_put(o, *open == '(' ? "(" : ": ");
        put_spans(o, p);
        open = " ";
    }
    if (*open != '(')
        text_put(o, ")");
}

static void put_tensor(struct text_out *o, const struct program *p, int i)
{
    const struct prog_tensor *t = &p->tensor[i];
    size_t bytes;
    char d[32];

    text_put(o, "  %%%d: ", i);
    text_put_lower(o, format_info(t->format)->name);
    text_put(o, "[");
    for (int k = 0; k < t->n_dim; k++)
        text_put(o, "%s%s", k ? ", " : "", dim_print(t->dim[k], d));
    if (p->in_buffer && p->in_buffer[i] >= 0)
        text_put(o, "] in %d @%zu", p->in_buffer[i], t->offset);
    else
        text_put(o, "] %s @%zu", form_regions[t->region], t->offset);
    if (t->q8)
        text_put(o, " q8");
    if (t->micro)
        text_put(o, " micro %d", t->micro);
    if (t->pack)
        put_pack(o, t);
    if (!form_tensor_bytes(t, &p->max, &bytes) || bytes != t->bytes)
        text_put(o, " bytes %zu", t->bytes);
    text_put(o, "\n");
}

static void put_buffer(struct text_out *o, int i, const struct prog_buffer *b)
{
    text_put(o, "  buffer %d: %zu %s", i, b->bytes, form_regions[b->region]);
    if (b->born >= 0)
        text_put(o, " born %d", b->born);
    if (b->variant > 0)
        text_put(o, " variant %d", b->variant);
    text_put(o, "\n");
}

/* ---- printing devices ---------------------------------------------------- */

static void put_max(struct text_out *o, const struct program *p,
                    const struct program *common)
{
    bool any = false;

    for (int i = PL_N_TOK; i <= (int)GRAPH_N_SEQ; i++) {
        const pl_dim one = {1, (pl_symbol)i};
        int64_t is = dim_value(one, &p->max);

        if (is == dim_value(one, &common->max))
            continue;
        text_put(o, "%s %s %" PRId64, any ? "" : "max", dim_symbols[i], is);
        any = true;
    }
    if (p->page_stride != common->page_stride) {
        text_put(o, "%s page_stride %d", any ? "" : "max", p->page_stride);
        any = true;
    }
    if (any)
        text_put(o, "\n");
}

static void put_device(struct text_out *o, const struct program *p,
                       const struct program *common)
{
    text_put(o, "device %d%s", p->dev, p->active ? "" : " idle");
    for (int r = 0; r < REGION_COUNT; r++)
        text_put(o, " %s %zu", form_regions[r], p->bytes[r]);
    text_put(o, " events %d groups %d\n", p->n_event, p->n_group);
    put_max(o, p, common);
    for (int i = 0; i < p->n_buffer; i++)
        put_buffer(o, i, &p->buffer[i]);
    for (int i = 0; i < p->n_tensor; i++)
        put_tensor(o, p, i);
}

/* ---- printing variants --------------------------------------------------- */

struct at { /* position in a device's variant up to which it has been printed */
    int insn, death, hold;
};

static void put_predicate(struct text_out *o, const struct insn *s)
{
    if (s->max_rows == 0)
        return;
    text_put(o, " if %s ", s->pred_out ? "n_out" : "n_tok");
    if (s->min_rows > 0)
        text_put(o, "%" PRId64, s->min_rows);
    text_put(o, "..");
    if (s->max_rows != INT64_MAX)
        text_put(o, "%" PRId64, s->max_rows);
}

static void put_head(struct text_out *o, const struct form_order *order,
                     int dev, const struct insn *s)
{
    text_put(o, "  %d%s", dev, s->queue == QUEUE_COPY ? " copy" : "");
    if (form_order(order, dev, s) != s->order)
        text_put(o, " order %d", s->order);
    if (s->micro)
        text_put(o, " micro %d", s->micro);
    if (s->node != -1)
        text_put(o, " node %d", s->node);
    put_predicate(o, s);
    text_put(o, ": ");
}

/* Prints those ranges of memory that become dead before the instruction that is
 * printed next, at->insn. */
static void put_dead_ranges(struct text_out *o, int dev,
                            const struct variant *x, struct at *at)
{
    int n = 0;

    for (; at->death < x->n_dead && x->dead[at->death].insn < at->insn;
         at->death++) {
        const struct dead_range *d = &x->dead[at->death];

        if (n == 0)
            text_put(o, "  %d: dies ", dev);
        put_comma(o, n++);
        text_put(o, "%zu @%zu", d->bytes, d->offset);
    }
    if (n > 0)
        text_put(o, "\n");
}

/* Prints the holds of a device up to position `until` of the total order. */
static void put_holds(struct text_out *o, int dev, const struct variant *x,
                      struct at *at, int until)
{
    for (int n = 0; at->hold < x->n_hold && x->hold[at->hold].until <= until;
         at->hold++) {
        if (n == 0)
            text_put(o, "  %d: holds ", dev);
        put_comma(o, n++);
        text_put(o, "%%%d", x->hold[at->hold].tensor);
        if (at->hold + 1 == x->n_hold || x->hold[at->hold + 1].until > until)
            text_put(o, "\n");
    }
}

/* Returns the device whose next instruction to print is the first in the total
 * order, or -1 if all have been printed. */
static int first_of(const struct program *p, int n_dev, int variant,
                    const struct at *at)
{
    int best = -1, order = 0;

    for (int d = 0; d < n_dev; d++) {
        const struct variant *x = &p[d].variant[variant];

        if (at[d].insn < x->n_insn &&
            (best < 0 || x->insn[at[d].insn].order < order)) {
            best = d;
            order = x->insn[at[d].insn].order;
        }
    }
    return best;
}

static void put_variant(struct text_out *o, const struct program *p, int n_dev,
                        int k)
{
    struct form_order order = {0};
    struct at at[FORM_MAX_DEV] = {{0, 0, 0}};
    int d;

    text_put(o, "variant");
    if (p->variant[k].n_micro != 1)
        text_put(o, " micro %d", p->variant[k].n_micro);
    text_put(o, "\n");
    while ((d = first_of(p, n_dev, k, at)) >= 0) {
        const struct variant *x = &p[d].variant[k];
        const struct insn *s = &x->insn[at[d].insn++];

        for (int i = 0; i < n_dev; i++)
            put_holds(o, i, &p[i].variant[k], &at[i], s->order);
        put_head(o, &order, d, s);
        program_put_insn(o, p, n_dev, d, s);
        text_put(o, "\n");
        form_order_took(&order, d, s);
        put_dead_ranges(o, d, x, &at[d]);
    }
    for (int i = 0; i < n_dev; i++)
        put_holds(o, i, &p[i].variant[k], &at[i], INT_MAX);
}

/* ---- programs that cannot be printed ------------------------------------- */

static pl_status refuse(const struct program *p, int step, const char *what,
                        pl_err *err)
{
    return err_set(err, PL_BAD_ARGUMENT,
                   "the program of device %d, instruction %d: %s, which the "
                   "text form cannot express",
                   p->dev, step, what);
}

static pl_status check_dead_ranges(const struct program *p,
                                   const struct variant *x, pl_err *err)
{
    for (int i = 0, last = 0; i < x->n_dead; i++) {
        if (x->dead[i].insn < last || x->dead[i].insn >= x->n_insn)
            return refuse(p, x->dead[i].insn, "a buffer dies out of order",
                          err);
        last = x->dead[i].insn;
    }
    return PL_OK;
}

static pl_status check(const struct program *p, int n_dev, pl_err *err)
{
    if (n_dev < 1 || n_dev > FORM_MAX_DEV || p->n_variant > PROG_MAX_VARIANT)
        return refuse(p, -1, "too many devices or variants", err);
    for (int d = 0; d < n_dev; d++) {
        if (p[d].dev != d)
            return refuse(&p[d], -1, "it belongs to another device", err);
        if (p[d].n_variant != p->n_variant)
            return refuse(&p[d], -1,
                          "its variants differ from those of device 0", err);
        for (int k = 0; k < p->n_variant; k++) {
            const struct variant *x = &p[d].variant[k];

            if (x->n_micro != p->variant[k].n_micro)
                return refuse(&p[d], -1,
                              "its micro-batches differ from those of device 0",
                              err);
            PL_TRY(check_dead_ranges(&p[d], x, err));
            for (int i = 0; i < x->n_insn; i++) {
                const char *odd = program_insn_oddity(&p[d], &x->insn[i]);

                if (odd)
                    return refuse(&p[d], i, odd, err);
            }
        }
    }
    return PL_OK;
}

pl_status program_print(const struct program *p, int n_dev, pl_write_fn *write,
                        void *user, pl_err *err)
{
    const struct program none = {.max = {.n_tok = -1}};
    struct text_out o = {.write = write, .user = user};

    PL_TRY(check(p, n_dev, err));
    text_put(&o, "programs %d\n", n_dev);
    put_max(&o, p, &none);
    for (int d = 0; d < n_dev; d++)
        put_device(&o, &p[d], p);
    for (int k = 0; k < p->n_variant; k++)
        put_variant(&o, p, n_dev, k);
    text_flush(&o);
    return PL_OK;
}
