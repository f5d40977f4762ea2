/* Pass "place": lists the values that cross from one group to another; see
 * transfers.h.
 *
 * A value is transferred as its readers need it: if a conversion is in between,
 * the transfer is the conversion. PARTIAL values cross rank by rank. Weights
 * and caches cross if they are read in another group than their home group. */
#include "lower/lower_inner.h"

#include "base/err.h"

/* The variant that is being placed. */
struct placing {
    struct lower *w;
    int variant;
    const int *at; /* [num->n] */
};

static int io_group(const struct lower *w)
{
    return w->opt->n_group - 1;
}

/* Returns the shards of group `from` from which shard u gets its ranks'
 * addends of PARTIAL value i: for each, the first that has it. */
static uint64_t rank_sources(const struct lower *w, int i, int from, int u)
{
    uint64_t left = w->present[i] & w->shard[u].u.ranks, out = 0;
    const struct lower_group *g = lower_group(w, from);

    for (int k = 0; k < g->n; k++)
        if (left & w->shard[g->first + k].u.ranks) {
            left &= ~w->shard[g->first + k].u.ranks;
            out |= (uint64_t)1 << k;
        }
    return out;
}

static pl_status add(const struct placing *p, enum transfer_kind kind,
                     int value, int as, int from, int to)
{
    struct lower *w = p->w;
    const struct transfer x = {
        .kind = kind, .value = value, .as = as, .from = from, .to = to};
    struct transfer *y;

    (void)transfers_add(w->transfers, p->variant, w->a, &x, &y);
    PL_TRY(lower_memory(w));
    for (int m = 0; y && m < lower_group(w, to)->n; m++) {
        int u = lower_group(w, to)->first + m;

        if (from == io_group(w))
            y->source[m] = 1;
        else if (kind == TRANSFER_RANKS)
            y->source[m] = rank_sources(w, value, from, u);
        else
            PL_TRY(lower_sources(w, u, from, value, as, &y->source[m]));
    }
    return PL_OK;
}

static pl_status add_table(const struct placing *p, int group)
{
    return p->w->g->n_pool == 0
               ? PL_OK
               : add(p, TRANSFER_TABLE, -1, -1, io_group(p->w), group);
}

/* Adds the transfer of value y to group b, where node i reads it. */
static pl_status operand(const struct placing *p, int i, int y, int b)
{
    const struct lower *w = p->w;
    bool memory = w->num->node[y].kind == NUM_OP &&
                  graph_memory(w->g, w->num->node[y].node) >= 0;
    int from = memory                      ? w->opt->home[lower_memory_of(w, y)]
               : lower_is(w, y, OP_weight) ? w->opt->home[y]
               : lower_is(w, y, OP_input)  ? io_group(w)
                                           : p->at[y];

    if (from == b)
        return PL_OK;
    if (lower_is(w, y, OP_input)) {
        PL_TRY(add(p, TRANSFER_INPUT, y, y, from, b));
        return add_table(p, b);
    }
    return add(p,
               memory                      ? TRANSFER_PAGES
               : lower_is(w, y, OP_weight) ? TRANSFER_WEIGHT
               : lower_is_partial(w, y) && lower_is_partial(w, i)
                   ? TRANSFER_RANKS
                   : TRANSFER_VALUE,
               y, y, from, b);
}

static bool reads_token_table(enum op op)
{
    enum kernel k = kernel_of_op(op);

    for (int i = 0; kernel_access(k, i); i++)
        if (kernel_arg_is_token_table(k, i))
            return true;
    return false;
}

/* Returns true if value i is what the caller may want of its graph node. */
static bool is_result(const struct lower *w, int i)
{
    int node = w->num->node[i].node;
    const struct graph_node *x = &w->g->node[node];

    return (x->output || x->keep) && graph_memory(w->g, node) < 0 &&
           w->num->value[node] == i && !lower_is_partial(w, i);
}

/* Records that group b sums the value of AllReduce i, if it is its first. */
static void add_sum(const struct lower *w, int i, int b)
{
    const struct graph_node *x = lower_node(w, i);
    const pl_dim row = lower_product(x->dim, 0, x->n_dim, 4);
    int64_t *bytes = &w->transfers->group[b].sum_bytes;

    if (*bytes == 0 && (row.symbol == PL_N_TOK || row.symbol == PL_N_OUT))
        *bytes = row.n;
}

static pl_status place_node(const struct placing *p, int i)
{
    const struct lower *w = p->w;
    const struct num_node *x = &w->num->node[i];
    int b = p->at[i];

    if (lower_is_leaf(w, i))
        return PL_OK;
    if (x->kind != NUM_OP && !lower_is_leaf(w, x->in[0]) &&
        p->at[x->in[0]] != b)
        PL_TRY(add(p, TRANSFER_VALUE, x->in[0], i, p->at[x->in[0]], b));
    else
        for (int k = 0; k < x->n_in; k++)
            if (x->in[k] >= 0)
                PL_TRY(operand(p, i, x->in[k], b));
    if (x->kind == NUM_ALL_REDUCE)
        add_sum(w, i, b);
    if (x->kind == NUM_OP && reads_token_table(lower_node(w, i)->op))
        PL_TRY(add_table(p, b));
    return is_result(w, i) ? add(p, TRANSFER_RESULT, i, i, b, io_group(w))
                           : PL_OK;
}

bool lower_are_subtrees(const struct lower *w, const struct lower_group *g,
                        int n)
{
    const struct shard *s = w->shard + g->first;

    for (int k = 0; k < g->n; k += n) {
        struct rank_tree t = {.n_out = 0};
        int n_rank = 0;

        for (int i = k; i < k + n && i < g->n; i++)
            n_rank += s[i].u.n_rank;
        if (!rank_tree_make(&t, w->a, w->num->n_rank, ~(uint64_t)0,
                            s[k].u.rank0, n_rank) ||
            t.n_out != 1)
            return false;
    }
    return g->n % n == 0;
}

/* Returns the number of shards of each machine, if the group is on several and
 * can sum within each first; see struct transfer_group. */
static int shards_per_machine(const struct lower *w,
                              const struct lower_group *g)
{
    int each = 0;

    for (int k = 0; k < g->n; k++) {
        int m = w->opt->dev[lower_dev(w, g->first + k)].machine;

        if (each == 0 && m != w->opt->dev[lower_dev(w, g->first)].machine)
            each = k;
        if (each > 0 &&
            m != w->opt->dev[lower_dev(w, g->first + k - k % each)].machine)
            return 0;
    }
    return each > 1 && lower_are_subtrees(w, g, each) ? each : 0;
}

/* Sets t to the machine: devices and groups. */
static pl_status machine(struct lower *w, struct transfers *t)
{
    const struct lower_options *opt = w->opt;

    t->n_value = w->num->n;
    t->n_dev = opt->n_dev;
    t->n_group = opt->n_group;
    t->n_variant = opt->n_variant;
    t->n_tok = opt->max.n_tok;
    t->dev = arena_alloc(w->a, (size_t)t->n_dev, sizeof *t->dev);
    t->group = arena_alloc(w->a, (size_t)t->n_group, sizeof *t->group);
    t->variant = arena_alloc(w->a, (size_t)t->n_variant, sizeof *t->variant);
    PL_TRY(lower_memory(w));
    for (int d = 0; d < t->n_dev; d++) {
        const struct lower_device *x = &opt->dev[d];

        t->dev[d] = (struct transfer_device){
            .machine = x->machine,
            .memory = x->memory,
            .one_queue = x->one_queue,
            .reads = x->reads,
            .link_bytes_per_s = (int64_t)x->link_bytes_per_s,
            .link_latency_ns = (int64_t)(x->link_latency_s * 1e9 + 0.5),
            .p2p_bytes_per_s = (int64_t)x->p2p_bytes_per_s,
            .network_bytes_per_s = (int64_t)x->network_bytes_per_s,
            .network_latency_ns = (int64_t)(x->network_latency_s * 1e9 + 0.5)};
    }
    for (int k = 0; k < t->n_group; k++) {
        const struct lower_group *g = lower_group(w, k);
        int *dev = arena_alloc(w->a, (size_t)g->n + 1, sizeof *dev);

        PL_TRY(lower_memory(w));
        for (int m = 0; m < g->n; m++)
            dev[m] = lower_dev(w, g->first + m);
        t->group[k] = (struct transfer_group){
            .n = g->n, .dev = dev, .per_machine = shards_per_machine(w, g)};
    }
    return PL_OK;
}

pl_status lower_place(struct lower *w)
{
    struct transfers *t = arena_alloc(w->a, 1, sizeof *t);

    PL_TRY(lower_memory(w));
    w->transfers = t;
    PL_TRY(machine(w, t));
    for (int v = 0; v < t->n_variant; v++) {
        const struct placing p = {w, v, w->opt->variant[v].at};
        int *first = arena_alloc(w->a, (size_t)t->n_value + 1, sizeof *first);

        PL_TRY(lower_memory(w));
        t->variant[v].first = first;
        for (int i = 0; i <= t->n_value; i++)
            first[i] = -1;
        for (int i = 0; i < w->num->n; i++)
            PL_TRY(place_node(&p, i));
    }
    return PL_OK;
}
