/* What is done to a script, in order: from the numeric plan's nodes to a sealed
 * list of steps for each device. All passes over programs stand here. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

/* ---- what outlives its last step ---------------------------------------- */

/* What is on its way and never waited for may come until the script's end. */
static pl_status hold_arrivals(struct lower *w, struct lowered_script *o)
{
    for (int k = 0; k < o->n_micro; k++)
        for (int i = 0; i < w->num->n; i++)
            for (const struct held *h = w->value[k][i]; h;
                 h = (const struct held *)h->h.next)
                for (int m = 0; m < w->opt->group[h->h.group].n; m++) {
                    int u = w->opt->group[h->h.group].first + m;
                    struct draft *d = &w->dev[w->unit[u].u.dev];

                    if (h->arrives[m].n == 0)
                        continue;
                    lower_use(d, h->h.v[m].tensor, d->n_step);
                    lower_use(d, h->h.v[m].plain, d->n_step);
                    if (h->by_rank)
                        lower_use(d, h->by_rank[m].tensor, d->n_step);
                }
    return PL_OK;
}

/* What peers, other groups or the copy queue may still read, or copies carry
 * away. */
static pl_status hold_lent(struct lower *w, struct lowered_script *o)
{
    lower_end_copies(w);
    for (int u = 0; u < w->opt->n_unit; u++) {
        struct unit *x = &w->unit[u];
        struct draft *d = &w->dev[x->u.dev];

        for (int i = 0; i < x->n_peers; i++) /* no later message guards these */
            lower_use(d, x->peers[i].tensor, d->n_step);
        x->n_peers = 0;
        for (int i = 0; i < PROG_MAX_MICRO; i++)
            x->told[i] = -1;
        for (int k = 0; k < o->n_micro; k++)
            if (x->batch[k].lent)
                lower_use(d, x->batch[k].tensor, d->n_step);
    }
    return PL_OK;
}

/* ---- places -------------------------------------------------------------- */

static pl_status place_buffers(struct lower *w, struct lowered_script *o)
{
    (void)o;
    for (int d = 0; d < w->opt->n_dev; d++) {
        struct draft *v = &w->dev[d];

        for (int r = REGION_WORK; r <= REGION_MAIL; r++) {
            size_t bytes;

            if (!buffers_place(v->buf, v->n_buf, (enum region)r, &bytes))
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

static int by_step(const void *a, const void *b)
{
    const struct prog_death *x = a, *y = b;

    if (x->step != y->step)
        return (x->step > y->step) - (x->step < y->step);
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static struct script *script_of(struct lower *w, int d)
{
    return (struct script *)&w->out->prog[d].script[w->script];
}

/* When buffers of the work region die. Those of the inbox are peers' to write
 * before anybody could tell. */
static pl_status list_deaths(struct lower *w, struct lowered_script *o)
{
    (void)o;
    for (int d = 0; d < w->opt->n_dev; d++) {
        const struct draft *v = &w->dev[d];
        struct script *s = script_of(w, d);
        struct prog_death *death =
            arena_alloc(w->a, (size_t)v->n_buf + 1, sizeof *death);

        if (!death)
            return err_no_memory(w->err, "a program");
        for (int b = 0; b < v->n_buf; b++)
            if (v->buf[b].region == REGION_WORK && v->buf[b].bytes &&
                v->buf[b].death < v->n_step)
                death[s->n_death++] = (struct prog_death){
                    v->buf[b].death, v->buf[b].offset, v->buf[b].bytes};
        qsort(death, (size_t)s->n_death, sizeof *death, by_step);
        s->death = death;
    }
    return PL_OK;
}

/* ---- the end ------------------------------------------------------------- */

/* The draft is empty again, for the next script. */
static void clear(struct draft *v)
{
    for (int t = v->first_tensor; t < v->n_tensor; t++)
        v->buffer[t] = -1; /* another script's buffers are other ones */
    v->first_tensor = v->n_tensor;
    v->n_step = v->n_buf = 0;
    v->owed = -1; /* nobody waits */
    v->first_late = v->n_event;
    for (int e = 0; e < v->late_cap; e++)
        v->late[e].waits = false;
    memset(v->posts, 0, sizeof v->posts);
}

static pl_status seal(struct lower *w, struct lowered_script *o)
{
    o->copy = arena_memdup(w->a, w->copy, (size_t)o->n_copy, sizeof *o->copy);
    if (o->n_copy && !o->copy)
        return err_no_memory(w->err, "a program");
    for (int d = 0; d < w->opt->n_dev; d++) {
        struct draft *v = &w->dev[d];
        struct script *s = script_of(w, d);

        s->n_micro = o->n_micro;
        s->n_step = v->n_step;
        s->step =
            arena_memdup(w->a, v->step, (size_t)v->n_step, sizeof *v->step);
        if (!s->step)
            return err_no_memory(w->err, "a program");
        clear(v);
    }
    return PL_OK;
}

/* Steps are only added by the first; those up to "place buffers" only say how
 * long buffers live. A pass that turns several steps into one stands before
 * that. */
static const struct {
    const char *name;
    pl_status (*run)(struct lower *w, struct lowered_script *o);
} passes[] = {
    {"order steps", lower_order},     {"hold arrivals", hold_arrivals},
    {"hold lent buffers", hold_lent}, {"place buffers", place_buffers},
    {"list deaths", list_deaths},     {"seal", seal},
};

pl_status lower_passes(struct lower *w, struct lowered_script *o)
{
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++)
        PL_TRY(passes[i].run(w, o));
    return PL_OK;
}
