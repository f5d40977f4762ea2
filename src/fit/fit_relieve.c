/* What does not fit goes to the host: experts layer by layer, as many as the
 * exact bytes say; or whole layers, found by bisection, since what is left on
 * devices shrinks with each. Before that the context is the shortest
 * allowed and the micro-batch smaller, if they were left open. */
#include "fit/fit_inner.h"

#include "base/err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- experts ----------------------------------------------------------- */

static uint64_t stored(const struct program *p, int tensor)
{
    return tensor < 0 ? 0 : (p->tensor[tensor].bytes + 63) / 64 * 64;
}

/* bytes[layer * n_dev + device] of experts, as planned. */
static uint64_t *expert_bytes(const struct compiled *q)
{
    size_t n = (size_t)compiled_devices(q);
    uint64_t *bytes = calloc(((size_t)q->place.n_layer + 1) * n, sizeof *bytes);

    for (int i = 0; bytes && i < q->num->n; i++) {
        const struct graph_node *x = &q->g->node[q->num->node[i].node];

        if (q->num->node[i].kind != NUM_OP || x->op != OP_weight ||
            x->layer < 0 || !graph_is_experts(x))
            continue;
        for (const struct lowered_held *h = lowered_leaf(q->low, i); h;
             h = h->next)
            for (int k = 0; k < q->low->group[h->group].n; k++) {
                int d = q->low->unit[q->low->group[h->group].first + k].dev;

                bytes[(size_t)x->layer * n + (size_t)d] +=
                    stored(&q->low->prog[d], h->v[k].tensor) +
                    stored(&q->low->prog[d], h->v[k].plain);
            }
    }
    return bytes;
}

/* More layers' experts to the host, first ones first, until all that devices
 * lack is made up for. n: devices of the table, without a host's. */
static bool move_more(const struct fit *f, const struct compiled *q, int n,
                      const uint64_t *bytes, bool *on)
{
    bool *now = calloc((size_t)f->asked.n_layer + 1, sizeof *now),
         moved = false;

    for (int d = 0; now && d < n; d++) {
        int64_t lack = fit_missing(q, d, f->margin);

        for (int pass = 0; pass < 2; pass++)
            for (int l = 0; l < f->asked.n_layer && lack > 0; l++) {
                uint64_t b = bytes[(size_t)l * (size_t)n + (size_t)d];

                if (b == 0 || (pass == 0 ? !now[l] : on[l]))
                    continue;
                on[l] = now[l] = moved = true;
                lack -= (int64_t)b;
            }
    }
    free(now);
    return moved;
}

/* Those that fit after all come back, last ones first. */
static bool give_back(const struct fit *f, const struct compiled *q, int n,
                      const uint64_t *bytes, bool *on)
{
    int64_t *room = calloc((size_t)n + 1, sizeof *room);
    bool back = false;

    for (int d = 0; room && d < n; d++)
        room[d] = fit_missing(q, d, f->margin);
    for (int l = f->asked.n_layer - 1; room && l >= 0; l--) {
        const uint64_t *b = bytes + (size_t)l * (size_t)n;
        bool fits = on[l];

        for (int d = 0; d < n; d++)
            fits &= b[d] == 0 || room[d] == INT64_MIN ||
                    room[d] + (int64_t)b[d] <= 0;
        if (!fits)
            continue;
        on[l] = false;
        back = true;
        for (int d = 0; d < n; d++)
            if (room[d] != INT64_MIN)
                room[d] += (int64_t)b[d];
    }
    free(room);
    return back;
}

static pl_status consider_experts(struct fit *f, const struct intent *in,
                                  const bool *on, struct fit_plan **out,
                                  pl_err *err)
{
    struct intent x = *in;

    x.experts =
        arena_memdup(&f->arena, on, (size_t)f->asked.n_layer + 1, sizeof *on);
    if (!x.experts)
        return err_no_memory(err, "the placement of experts");
    return fit_consider(f, &x, out, err);
}

/* *fits: it was enough to move experts of p. */
static pl_status experts(struct fit *f, struct fit_plan *p, bool *fits,
                         pl_err *err)
{
    const struct intent *in = &p->in;
    bool *on = calloc((size_t)f->asked.n_layer + 1, sizeof *on);
    uint64_t *bytes = expert_bytes(p->q);
    struct fit_plan *t = fit_hold(p);
    int n = compiled_devices(p->q);
    pl_status s = PL_OK;

    if (!on || !bytes)
        s = err_no_memory(err, "the placement of experts");
    for (int i = 0; i < 8 && s == PL_OK && t && t->missing > 0; i++) {
        bool moved = move_more(f, t->q, n, bytes, on);

        fit_drop(t);
        t = NULL;
        if (!moved)
            break;
        s = consider_experts(f, in, on, &t, err);
    }
    *fits = s == PL_OK && t && t->missing == 0;
    if (*fits && give_back(f, t->q, n, bytes, on))
        s = consider_experts(f, in, on, NULL, err);
    fit_drop(t);
    free(bytes);
    free(on);
    return s;
}

/* ---- layers ------------------------------------------------------------ */

static pl_status layers(struct fit *f, const struct intent *in, bool all,
                        pl_err *err)
{
    struct intent x = *in;
    int lo = -1, hi = f->asked.n_layer + 1; /* of lo the devices hold their
                                               part, of hi they do not */
    bool *on;

    if (all) {
        on = arena_alloc(&f->arena, (size_t)f->asked.n_layer + 1, sizeof *on);
        if (!on)
            return err_no_memory(err, "the placement of experts");
        memset(on, 1, (size_t)f->asked.n_layer);
        x.experts = on;
    }
    while (hi - lo > 1) {
        struct fit_plan *p;
        bool held;

        x.n_on = lo < 0 ? 0 : lo + (hi - lo) / 2;
        PL_TRY(fit_consider(f, &x, &p, err));
        held = p != NULL;
        for (int d = 0; held && d < f->asked.list.n; d++)
            held = fit_missing(p->q, d, f->margin) <= 0;
        fit_drop(p);
        if (held) /* if anybody lacks memory it is the host */
            lo = x.n_on;
        else
            hi = x.n_on;
        if (lo < 0)
            break;
    }
    return PL_OK;
}

/* ---- all of it --------------------------------------------------------- */

/* Something fits, and what may be better is not worth more plans. */
static bool enough(const struct fit *f)
{
    return f->best && f->n_plan >= f->budget;
}

/* Of one micro-batch. */
static pl_status relieve(struct fit *f, struct fit_plan *p, pl_err *err)
{
    bool light = false;

    if (f->may.experts)
        PL_TRY(experts(f, p, &light, err));
    if (f->may.layers && !enough(f))
        PL_TRY(layers(f, &p->in, false, err));
    if (f->may.layers && f->may.experts && !light)
        PL_TRY(layers(f, &p->in, true, err));
    return PL_OK;
}

pl_status fit_relieve(struct fit *f, struct fit_plan *p, pl_err *err)
{
    struct intent x = p->in;
    int n_fit = f->n_fit;

    /* the least micro-batch where nothing else will do, the host alone does, or
     * plans are cheap */
    for (int i = 0; i < FIT_N_UBATCH && (i < 2 || f->n_fit == n_fit ||
                                         (f->best && f->best->in.n_on == 0) ||
                                         f->asked.list.n <= FIT_FEW);
         i++) {
        struct fit_plan *t = fit_hold(p);
        pl_status s = PL_OK;
        bool fits;

        if (i > 0 && (!f->may.ubatch || enough(f))) {
            fit_drop(t);
            break;
        }
        x.n_ubatch = fit_ubatch(&p->in, i);
        if (f->may.ctx)
            x.n_ctx = f->ctx_least;
        if (f->may.ctx || i > 0) {
            fit_drop(t);
            PL_TRY(fit_consider(f, &x, &t, err));
        }
        fits = !t || t->missing == 0;
        if (!fits)
            s = relieve(f, t, err);
        fit_drop(t);
        PL_TRY(s);
        if (fits)
            break;
    }
    return PL_OK;
}
