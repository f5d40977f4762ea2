/* Messages by inboxes, in one shot or two; see lower_message.c. */
#include "exec/lower_inner.h"

#include "base/err.h"

#include <string.h>

/* A message of one group under way. */
struct exchange {
    struct lower *w;
    int group, n;
    const struct lower_group *g;
    const int *item;       /* [n] conversions */
    struct lower_item *it; /* [units][n] */
    const pl_dim *bytes;   /* [2] */
    int *event;            /* [units] of the shot under way */
};

static struct lower_item *item_of(const struct exchange *e, int k, int j)
{
    return &e->it[k * e->n + j];
}

static int dev_of(const struct exchange *e, int k)
{
    return e->w->unit[e->g->first + k].u.dev;
}

/* Device `from` pushes p[n] into tensor `out` of the inbox of `to`. */
static pl_status push(struct lower *w, int from, int to, int out,
                      const struct copy_piece *p, int n)
{
    const struct step s = {
        .kind = STEP_PUSH,
        .node = -1,
        .push = {.dev = to, .out = out, .piece = p, .n_piece = n}};

    if (n == 0)
        return PL_OK;
    return lower_step(w, from, &s);
}

/* ---- what is pushed ---------------------------------------------------- */

/* The addend's entry as a tensor of its own. */
static pl_status entry_of(const struct exchange *e, int j,
                          const struct merge_addend *ad, int *tensor)
{
    const struct graph_node *x =
        &e->w->g->node[e->w->num->node[e->item[j]].node];

    *tensor = ad->tensor;
    return ad->off ? lower_alias(e->w, ad->dev, ad->tensor, x->n_dim, x->dim,
                                 ad->off, tensor)
                   : PL_OK;
}

/* The pieces of a sum, from an entry of the sender into the same places of a
 * staging tensor. */
static pl_status push_addend(const struct exchange *e, int k, int j,
                             struct merge_addend *ad, int64_t most)
{
    struct lower *w = e->w;
    const struct lower_item *it = item_of(e, k, j);
    const struct graph_node *x = &w->g->node[w->num->node[e->item[j]].node];
    int d = dev_of(e, k), from = ad->dev, entry, t;
    struct copy_piece *p;
    int told = lower_told(w, e->g->first + k);

    PL_TRY(entry_of(e, j, ad, &entry));
    p = arena_memdup(w->a, it->m.piece, (size_t)it->m.n_piece, sizeof *p);
    if (!p)
        return err_no_memory(w->err, "a program");
    PL_TRY(lower_mail(w, d, x->format, x->n_dim, x->dim, told, most, &t));
    for (int i = 0; i < it->m.n_piece; i++) {
        p[i].src_dev = from;
        p[i].src = entry;
        p[i].dst_off = it->m.piece[i].src_off;
        p[i].dst_at = it->m.piece[i].src_at;
        p[i].dst_s0 = it->m.piece[i].src_s0;
        p[i].dst_s1 = it->m.piece[i].src_s1;
    }
    PL_TRY(push(w, from, d, t, p, it->m.n_piece));
    *ad = (struct merge_addend){.dev = d, .tensor = t, .n_add = ad->n_add};
    return PL_OK;
}

/* Unit s pushes to unit k what it has of item j; a gather's parts go straight
 * into the result. */
static pl_status push_item(const struct exchange *e, int s, int k, int j,
                           struct merge_item *m, int64_t most)
{
    struct lower_item *it = item_of(e, k, j);
    struct merge_addend *ad = (struct merge_addend *)m->addend;
    int from = dev_of(e, s), first = 0;

    for (int i = 0; m->reduce && m->n_piece > 0 && i < m->n_addend; i++)
        if (ad[i].dev == from)
            PL_TRY(push_addend(e, k, j, &ad[i], most));
    for (int i = 0; !m->reduce && i < it->remote.n; i++) {
        first = it->remote.p[i].src_dev == from ? first : i + 1;
        if (it->remote.p[i].src_dev == from &&
            (i + 1 == it->remote.n || it->remote.p[i + 1].src_dev != from))
            PL_TRY(push(e->w, from, dev_of(e, k), m->out, it->remote.p + first,
                        i + 1 - first));
    }
    return PL_OK;
}

/* ---- the range of elements that a unit sums ---------------------------- */

/* Elements of the value for each n_tok or n_out. */
static pl_dim elements(const struct exchange *e, int j)
{
    const struct graph_node *x =
        &e->w->g->node[e->w->num->node[e->item[j]].node];

    return lower_product(x->dim, 0, x->n_dim, 1);
}

/* Where unit k's range begins, in bytes. */
static pl_dim range_at(const struct exchange *e, int j, int k)
{
    pl_dim all = elements(e, j);

    return (pl_dim){all.n * k / e->g->n * 4, all.symbol};
}

static struct copy_piece range_piece(const struct exchange *e, int j, int k)
{
    pl_dim at = range_at(e, j, k), end = range_at(e, j, k + 1);

    return (struct copy_piece){
        .src_off = at,
        .dst_off = at,
        .bytes = {end.n - at.n, at.symbol},
        .n0 = {1, PL_CONST},
        .n1 = {1, PL_CONST},
    };
}

/* Unit k's range of one addend, to a staging tensor that holds no more. */
static pl_status push_range(const struct exchange *e, int k, int j,
                            struct merge_addend *ad)
{
    struct lower *w = e->w;
    struct copy_piece *p = arena_alloc(w->a, 1, sizeof *p);
    pl_dim part;
    int d = dev_of(e, k), from = ad->dev, t;

    if (!p)
        return err_no_memory(w->err, "a program");
    *p = range_piece(e, j, k);
    p->src_dev = from;
    PL_TRY(entry_of(e, j, ad, &p->src));
    p->dst_off = (pl_dim){0, PL_CONST};
    part = (pl_dim){p->bytes.n / 4, p->bytes.symbol};
    PL_TRY(lower_mail(w, d, PL_F32, 1, &part, lower_told(w, e->g->first + k), 0,
                      &t));
    PL_TRY(push(w, from, d, t, p, 1));
    *ad = (struct merge_addend){
        .dev = d, .tensor = t, .skip = range_at(e, j, k), .n_add = ad->n_add};
    return PL_OK;
}

/* Unit k has its range of the sum, and pushes it into the results of all. */
static pl_status push_sum(const struct exchange *e, int k, int s, int j)
{
    struct copy_piece *p = arena_alloc(e->w->a, 1, sizeof *p);

    if (!p)
        return err_no_memory(e->w->err, "a program");
    *p = range_piece(e, j, k);
    p->src_dev = dev_of(e, k);
    p->src = item_of(e, k, j)->m.out;
    return push(e->w, dev_of(e, k), dev_of(e, s), item_of(e, s, j)->m.out, p,
                p->bytes.n > 0);
}

/* ---- shots ------------------------------------------------------------- */

/* Each has pushed: posts, and waits for the others. */
static pl_status all_told(const struct exchange *e, int k)
{
    for (int s = 0; s < e->g->n; s++)
        if (s != k)
            PL_TRY(lower_wait(e->w, dev_of(e, k), QUEUE_COMPUTE, dev_of(e, s),
                              e->event[s]));
    return PL_OK;
}

static pl_status tell(const struct exchange *e, int k)
{
    return lower_post(e->w, dev_of(e, k), QUEUE_COMPUTE, &e->event[k]);
}

static bool is_sum(const struct exchange *e, int j)
{
    return e->w->num->node[e->item[j]].kind == NUM_ALL_REDUCE;
}

/* Items as they are before addends are pointed at what is staged. */
static pl_status copies(const struct exchange *e, int k, struct merge_item *m)
{
    for (int j = 0; j < e->n; j++) {
        m[j] = item_of(e, k, j)->m;
        m[j].addend = arena_memdup(e->w->a, m[j].addend, (size_t)m[j].n_addend,
                                   sizeof *m[j].addend);
        if (m[j].n_addend > 0 && !m[j].addend)
            return err_no_memory(e->w->err, "a program");
    }
    return PL_OK;
}

/* The first shot: all push, and each puts together what has come. ranges: of
 * sums only the unit's own range. */
static pl_status shot(const struct exchange *e, bool ranges, int64_t most)
{
    struct lower *w = e->w;
    struct merge_item *m =
        arena_alloc(w->a, (size_t)(e->n * e->g->n) + 1, sizeof *m);

    if (!m)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < e->g->n; k++)
        PL_TRY(copies(e, k, m + k * e->n));
    for (int s = 0; s < e->g->n; s++) {
        for (int i = 1; i < e->g->n; i++) { /* each begins with its neighbour */
            int k = (s + i) % e->g->n;

            for (int j = 0; j < e->n; j++) {
                struct merge_item *x = &m[k * e->n + j];
                struct merge_addend *ad = (struct merge_addend *)x->addend;

                if (!ranges || !is_sum(e, j)) {
                    PL_TRY(push_item(e, s, k, j, x, most));
                    continue;
                }
                for (int a = 0; a < x->n_addend; a++)
                    if (ad[a].dev == dev_of(e, s))
                        PL_TRY(push_range(e, k, j, &ad[a]));
            }
        }
        PL_TRY(tell(e, s));
    }
    for (int k = 0; k < e->g->n; k++) {
        struct step s = {.queue = QUEUE_COMPUTE};

        for (int j = 0; ranges && j < e->n; j++)
            if (is_sum(e, j)) {
                struct copy_piece *p = arena_alloc(w->a, 1, sizeof *p);

                if (!p)
                    return err_no_memory(w->err, "a program");
                *p = range_piece(e, j, k);
                m[k * e->n + j].piece = p;
                m[k * e->n + j].n_piece = p->bytes.n > 0;
            }
        PL_TRY(all_told(e, k));
        PL_TRY(lower_merge(w, e->g->first + k, e->n, e->item, m + k * e->n,
                           e->bytes, &s));
    }
    return PL_OK;
}

static pl_status second_shot(const struct exchange *e)
{
    for (int k = 0; k < e->g->n; k++) {
        for (int i = 1; i < e->g->n; i++)
            for (int j = 0; j < e->n; j++)
                if (is_sum(e, j))
                    PL_TRY(push_sum(e, k, (k + i) % e->g->n, j));
        PL_TRY(tell(e, k));
    }
    for (int k = 0; k < e->g->n; k++) {
        struct draft *v = &e->w->dev[dev_of(e, k)];

        PL_TRY(all_told(e, k));
        for (int j = 0; j < e->n; j++) /* peers have written it until here */
            lower_use(v, item_of(e, k, j)->m.out, v->n_step - 1);
    }
    return PL_OK;
}

/* ---- one or two -------------------------------------------------------- */

/* Rows up to which one shot is taken: while the bytes that two would save go
 * over a link of 16 GB/s in less than the 10 us of another shot, and no more
 * are staged than the value has at its largest, a quarter. */
static int64_t few_rows(const struct exchange *e, int j)
{
    const double saved_bytes = 160e3;
    int64_t row = elements(e, j).n * 4, n = e->g->n;
    int64_t most = e->w->opt->max.n_tok / (4 * (n - 1));
    double rows =
        saved_bytes / ((double)row * (double)(n - 1) * (1 - 2.0 / (double)n));

    if (rows < (double)most)
        most = (int64_t)rows;
    return most > 1 ? most : 1;
}

/* Guards of the two ways; GUARD_NONE twice: one way does. */
static void guards(const struct exchange *e, enum guard *few, enum guard *many)
{
    *few = *many = GUARD_NONE;
    for (int j = 0; j < e->n && e->g->n > 2; j++) {
        pl_symbol s = elements(e, j).symbol;

        if (!is_sum(e, j) || (s != PL_N_TOK && s != PL_N_OUT))
            continue;
        if (e->w->few == 0)
            e->w->few = few_rows(e, j);
        *few = s == PL_N_TOK ? GUARD_FEW_TOK : GUARD_FEW_OUT;
        *many = s == PL_N_TOK ? GUARD_MANY_TOK : GUARD_MANY_OUT;
        return;
    }
}

/* Sums over both n_tok and n_out, or of other sizes, in one message: the guard
 * says nothing of the others' sizes. */
static int64_t most_of(const struct exchange *e, enum guard few)
{
    pl_symbol s = few == GUARD_FEW_TOK ? PL_N_TOK : PL_N_OUT;

    for (int j = 0; j < e->n; j++)
        if (elements(e, j).symbol != s)
            return 0;
    return few == GUARD_NONE ? 0 : e->w->few;
}

pl_status lower_exchange(struct lower *w, int group, int n, const int *item,
                         struct lower_item *it, const pl_dim bytes[2])
{
    struct exchange e = {.w = w,
                         .group = group,
                         .n = n,
                         .g = &w->opt->group[group],
                         .item = item,
                         .it = it,
                         .bytes = bytes};
    enum guard few, many;
    int *first;

    guards(&e, &few, &many);
    e.event = arena_alloc(w->a, (size_t)e.g->n, sizeof *e.event);
    first = arena_alloc(w->a, (size_t)e.g->n, sizeof *first);
    if (!e.event || !first)
        return err_no_memory(w->err, "a program");
    for (int k = 0; k < e.g->n;
         k++) /* whatever follows, its POST comes later */
        first[k] = w->dev[dev_of(&e, k)].n_step;
    w->guard = few;
    PL_TRY(shot(&e, false, most_of(&e, few)));
    if (few != GUARD_NONE) {
        w->guard = many;
        PL_TRY(shot(&e, true, 0));
        PL_TRY(second_shot(&e));
    }
    w->guard = GUARD_NONE;
    for (int k = 0; k < e.g->n; k++)
        w->unit[e.g->first + k].told[w->instance] = first[k];
    return PL_OK;
}
