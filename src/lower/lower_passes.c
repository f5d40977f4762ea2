/* What is done to a script, in order: from the numeric plan's nodes to a sealed
 * list of steps for each device. All passes over programs stand here. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <stdlib.h>

/* ---- what outlives its last step ---------------------------------------- */

/* Buffers of what is on its way, and of what peers, other groups or the copy
 * queue may still read when the script ends. */
static pl_status extend_live_ranges(struct lower *w, struct lowered_variant *o)
{
    lower_end_arrivals(w, o->n_micro);
    lower_extend_inflight(w);
    lower_end_collectives(w);
    lower_end_token_tables(w, o->n_micro);
    return PL_OK;
}

/* ---- places -------------------------------------------------------------- */

/* Steps for which a place rests in a device's own memory. There a step may be
 * done in one launch with an earlier one, if that touches nothing that it
 * writes (device/gpu/gpu_fuse.h). With three, matrices of the same rows are one
 * launch with what is added to their results. */
enum { REST = 3 };

static int reuse_distance(const struct lower *w, int d, int region)
{
    return region == REGION_WORK && w->opt->dev[d].memory < 0 ? REST : 0;
}

static pl_status place_buffers(struct lower *w, struct lowered_variant *o)
{
    (void)o;
    for (int d = 0; d < w->opt->n_dev; d++) {
        struct program_builder *v = &w->dev[d];

        for (int r = REGION_WORK; r <= REGION_INBOX; r++) {
            size_t bytes;

            if (!buffers_place(v->buf, v->n_buf, (enum region)r,
                               reuse_distance(w, d, r), &bytes))
                return err_no_memory(w->err, "a program");
            if (bytes > v->bytes[r])
                v->bytes[r] = bytes;
        }
        for (int t = v->first_tensor; t < v->n_tensor; t++)
            if (v->buffer[t] >= 0)
                v->tensor[t].offset =
                    v->buf[v->buffer[t]].offset + v->inside[t];
    }
    return PL_OK;
}

static int by_insn(const void *a, const void *b)
{
    const struct dead_range *x = a, *y = b;

    if (x->insn != y->insn)
        return (x->insn > y->insn) - (x->insn < y->insn);
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static struct variant *variant_of(struct lower *w, int d)
{
    return (struct variant *)&w->out->prog[d].variant[w->variant.index];
}

/* When buffers of the work region die, for devices that poison what is dead.
 * The inbox has no such list: peers may write a place there before this device
 * has come to the step behind which the place is free. */
static pl_status list_dead_ranges(struct lower *w, struct lowered_variant *o)
{
    (void)o;
    for (int d = 0; d < w->opt->n_dev; d++) {
        const struct program_builder *v = &w->dev[d];
        struct variant *s = variant_of(w, d);
        struct dead_range *death =
            arena_alloc(w->a, (size_t)v->n_buf + 1, sizeof *death);

        if (!death)
            return err_no_memory(w->err, "a program");
        for (int b = 0; b < v->n_buf; b++)
            if (v->buf[b].region == REGION_WORK && v->buf[b].bytes &&
                v->buf[b].death < v->n_insn)
                death[s->n_dead++] = (struct dead_range){
                    v->buf[b].death, v->buf[b].offset, v->buf[b].bytes};
        qsort(death, (size_t)s->n_dead, sizeof *death, by_insn);
        s->dead = death;
    }
    return PL_OK;
}

/* ---- the end ------------------------------------------------------------- */

/* The draft is empty again, for the next script. */
static void reset_builder(struct program_builder *v)
{
    for (int t = v->first_tensor; t < v->n_tensor; t++)
        v->buffer[t] = -1; /* another script's buffers are other ones */
    v->first_tensor = v->n_tensor;
    v->n_insn = v->n_buf = 0;
    lower_reset_events(&v->events);
}

static pl_status finish_variant(struct lower *w, struct lowered_variant *o)
{
    for (int d = 0; d < w->opt->n_dev; d++) {
        struct program_builder *v = &w->dev[d];
        struct variant *s = variant_of(w, d);

        s->n_micro = o->n_micro;
        s->n_insn = v->n_insn;
        s->insn =
            arena_memdup(w->a, v->insn, (size_t)v->n_insn, sizeof *v->insn);
        if (!s->insn)
            return err_no_memory(w->err, "a program");
        reset_builder(v);
    }
    return PL_OK;
}

/* Only "order instructions" adds instructions and records how long the buffers
 * of each live; "live to the end" adds the rest. From "place buffers" on live
 * ranges are fixed, so a pass that changes instructions must precede it. */
static const struct {
    const char *name;
    pl_status (*run)(struct lower *w, struct lowered_variant *o);
} passes[] = {
    {"order instructions", lower_order},
    {"live to the end", extend_live_ranges},
    {"place buffers", place_buffers},
    {"list dead ranges", list_dead_ranges},
    {"seal", finish_variant},
};

pl_status lower_passes(struct lower *w, struct lowered_variant *o)
{
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++)
        PL_TRY(passes[i].run(w, o));
    return PL_OK;
}
