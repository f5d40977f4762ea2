/* A table gives for each role the axis by which its tensors are split, and the
 * dimension that is split. Attention is split by KV head if every rank with
 * query heads gets a KV head. Otherwise it is split by query head, and several
 * ranks hold the same head of K and V. Layers that read the same cache are
 * split alike, so that queries need no transfer. Per-layer embeddings are split
 * once for all layers. Shares are apportioned in grains, which are groups of
 * adjacent heads or values. Splits within the rows of a quantized matrix are at
 * multiples of 32 values. Each rank gets the whole grains of its share. The
 * grains that are left go to those ranks that have the fewest bytes, compared
 * with their share, in the layers so far. So in each layer a rank differs from
 * its share by at most one grain, and over all layers the differences nearly
 * cancel. Short names: d is the state of the computation, y a layer, x one of
 * the layer's axes. */
#include "plan/roles.h"

#include "base/err.h"
#include "plan/apportion.h"
#include "quant/format.h"

#include <math.h>
#include <string.h>

/* The axis along which a tensor is split, which tells what the indices of the
 * split dimension mean. */
enum axis {
    AXIS_NONE, /* the tensor is not split */
    AXIS_HEAD, /* indices of query heads, each with the same number of values */
    AXIS_KV,   /* indices of KV heads; several query heads share one */
    AXIS_GROUP,    /* indices of groups of adjacent query heads */
    AXIS_QKV,      /* indices of the heads of q, then of k, then of v, in one
                  tensor */
    AXIS_GATES,    /* two values per query head, ordered by KV head: first one
                   value of each of the KV head's query heads, then the
                   other value of each */
    AXIS_SSM_HEAD, /* indices of the heads of a state space model */
    AXIS_SSM,      /* indices of z, x, b, c and dt of a state space model, or
                      of its x, b and c */
    AXIS_FF,       /* width of the feed-forward part */
    AXIS_FF2,      /* twice the width of the feed-forward part: gate, then up */
    AXIS_EXP,      /* width of an expert */
    AXIS_EXP2,     /* twice the width of an expert: gate, then up */
    AXIS_VOCAB,    /* ids of the vocabulary's tokens */
    AXIS_PER_LAYER,  /* per-layer embedding of a single layer */
    AXIS_PER_LAYERS, /* per-layer embeddings of all layers, one after another */
};

static const struct role_row {
    const char *name;
    enum axis axis;
    int dim; /* index of the dimension that is split */
} rows[PL_ROLE_COUNT] = {
    [PL_ROLE_NONE] = {"none", AXIS_NONE, 0},
    [PL_ROLE_TOKEN_EMBD] = {"token_embd", AXIS_VOCAB, 0},
    [PL_ROLE_OUTPUT] = {"output", AXIS_VOCAB, 0},
    [PL_ROLE_NORM] = {"norm", AXIS_NONE, 0},
    [PL_ROLE_ATTN_Q] = {"attn_q", AXIS_HEAD, 0},
    [PL_ROLE_ATTN_K] = {"attn_k", AXIS_KV, 0},
    [PL_ROLE_ATTN_V] = {"attn_v", AXIS_KV, 0},
    [PL_ROLE_ATTN_QKV] = {"attn_qkv", AXIS_QKV, 0},
    [PL_ROLE_ATTN_Q_BIAS] = {"attn_q_bias", AXIS_HEAD, 0},
    [PL_ROLE_ATTN_K_BIAS] = {"attn_k_bias", AXIS_KV, 0},
    [PL_ROLE_ATTN_V_BIAS] = {"attn_v_bias", AXIS_KV, 0},
    [PL_ROLE_ATTN_QKV_BIAS] = {"attn_qkv_bias", AXIS_QKV, 0},
    [PL_ROLE_ATTN_Q_A] = {"attn_q_a", AXIS_NONE, 0},
    [PL_ROLE_ATTN_KV_A] = {"attn_kv_a", AXIS_NONE, 0},
    [PL_ROLE_ATTN_KV_B] = {"attn_kv_b", AXIS_HEAD, 0},
    [PL_ROLE_ATTN_K_B] = {"attn_k_b", AXIS_HEAD, 0},
    [PL_ROLE_ATTN_V_B] = {"attn_v_b", AXIS_HEAD, 0},
    [PL_ROLE_ATTN_SINKS] = {"attn_sinks", AXIS_HEAD, 0},
    [PL_ROLE_ATTN_OUT] = {"attn_out", AXIS_HEAD, 1},
    [PL_ROLE_ATTN_OUT_BIAS] = {"attn_out_bias", AXIS_NONE, 0},
    [PL_ROLE_FFN_GATE] = {"ffn_gate", AXIS_FF, 0},
    [PL_ROLE_FFN_UP] = {"ffn_up", AXIS_FF, 0},
    [PL_ROLE_FFN_GATE_UP] = {"ffn_gate_up", AXIS_FF2, 0},
    [PL_ROLE_FFN_DOWN] = {"ffn_down", AXIS_FF, 1},
    [PL_ROLE_ROUTER] = {"router", AXIS_NONE, 0},
    [PL_ROLE_ROUTER_BIAS] = {"router_bias", AXIS_NONE, 0},
    [PL_ROLE_INDEXER] = {"indexer", AXIS_NONE, 0},
    [PL_ROLE_INDEXER_Q] = {"indexer_q", AXIS_KV, 0},
    [PL_ROLE_FFN_GATE_EXPS] = {"ffn_gate_exps", AXIS_EXP, 1},
    [PL_ROLE_FFN_UP_EXPS] = {"ffn_up_exps", AXIS_EXP, 1},
    [PL_ROLE_FFN_GATE_UP_EXPS] = {"ffn_gate_up_exps", AXIS_EXP2, 1},
    [PL_ROLE_FFN_DOWN_EXPS] = {"ffn_down_exps", AXIS_EXP, 2},
    [PL_ROLE_FFN_GATE_EXPS_BIAS] = {"ffn_gate_exps_bias", AXIS_EXP, 1},
    [PL_ROLE_FFN_UP_EXPS_BIAS] = {"ffn_up_exps_bias", AXIS_EXP, 1},
    [PL_ROLE_FFN_DOWN_EXPS_BIAS] = {"ffn_down_exps_bias", AXIS_NONE, 0},
    [PL_ROLE_PER_LAYER_EMBD] = {"per_layer_embd", AXIS_PER_LAYERS, 1},
    [PL_ROLE_PER_LAYER_PROJ] = {"per_layer_proj", AXIS_PER_LAYERS, 0},
    [PL_ROLE_PER_LAYER_GATE] = {"per_layer_gate", AXIS_PER_LAYER, 0},
    [PL_ROLE_PER_LAYER_OUT] = {"per_layer_out", AXIS_PER_LAYER, 1},
    [PL_ROLE_ROPE_FREQS] = {"rope_freqs", AXIS_NONE, 0},
    [PL_ROLE_SCALE] = {"scale", AXIS_NONE, 0},
    [PL_ROLE_ATTN_GATE] = {"attn_gate", AXIS_HEAD, 0},
    [PL_ROLE_CONV] = {"conv", AXIS_QKV, 0},
    [PL_ROLE_DELTA_GATE] = {"delta_gate", AXIS_HEAD, 0},
    [PL_ROLE_DELTA_GATES] = {"delta_gates", AXIS_GATES, 0},
    [PL_ROLE_MTP_PROJ] = {"mtp_proj", AXIS_NONE, 0},
    [PL_ROLE_CACHE_K] = {"cache_k", AXIS_KV, 1},
    [PL_ROLE_CACHE_V] = {"cache_v", AXIS_KV, 1},
    [PL_ROLE_CACHE_INDEX] = {"cache_index", AXIS_NONE, 0},
    [PL_ROLE_STATE] = {"state", AXIS_HEAD, 1},
    [PL_ROLE_CONV_STATE] = {"conv_state", AXIS_QKV, 1},
    [PL_ROLE_SSM_IN] = {"ssm_in", AXIS_SSM, 0},
    [PL_ROLE_SSM_CONV] = {"ssm_conv", AXIS_SSM, 0},
    [PL_ROLE_SSM_GATE] = {"ssm_gate", AXIS_SSM_HEAD, 0},
    [PL_ROLE_SSM_OUT] = {"ssm_out", AXIS_SSM_HEAD, 1},
    [PL_ROLE_SSM_STATE] = {"ssm_state", AXIS_SSM_HEAD, 1},
    [PL_ROLE_SSM_CONV_STATE] = {"ssm_conv_state", AXIS_SSM, 1},
    [PL_ROLE_DELTA_GATE_A] = {"delta_gate_a", AXIS_NONE, 0},
    [PL_ROLE_ATTN_OUT_A] = {"attn_out_a", AXIS_GROUP, 0},
    [PL_ROLE_EXPERT_IDS] = {"expert_ids", AXIS_NONE, 0},
};

const char *role_name(pl_role r)
{
    return (unsigned)r < PL_ROLE_COUNT ? rows[r].name : "unknown";
}

/* The split of one axis of a layer, common to all tensors with that axis.
 * `size` and the layout `l` count heads for attention, else elements. */
struct dealt {
    int64_t size;
    bool quantized;     /* some tensor on the axis is quantized and split within
                           its rows */
    double bytes;       /* size in bytes of all tensors on the axis */
    const pl_layout *l; /* layout by which the axis is split, or MIRRORED; its
                           field `dim` is unused */
};

/* A layer and its axes. In attention, `head` counts query heads and `kv` KV
 * heads. In a delta net, `head` counts value heads and `kv` key heads. In a
 * state space model, `head` counts heads and `kv` groups. */
struct layer {
    /* Index in deal.layer of the layer that owns the cache that this layer
     * reads; its split of heads applies to this layer, too. */
    int heads;
    /* Numbers of heads, and numbers of values per head of keys and of values; 0
     * if unknown. */
    int64_t n_head, n_kv, d_k, d_v;
    int64_t n_out;   /* greatest common divisor of the input
                      widths of the output matrices, 0 if
                      unknown */
    int64_t n_group; /* number of groups of adjacent query heads that stay
                        whole; 0 if there are none */
    bool delta; /* the layer is a delta net, whose q and k have `n_kv` heads */
    bool ssm;   /* the layer is a state space model with `n_kv` groups */
    bool tiled; /* head h uses KV head h % n_kv; else
                   adjacent heads share a KV head */
    struct dealt head, kv, ff, exp;
};

struct deal {
    const pl_graph *g;
    struct arena *a;
    int n_rank;
    double share[PL_MAX_RANKS];  /* share of the work of each rank; the shares
                                    add up to 1 */
    double behind[PL_MAX_RANKS]; /* for each rank, the bytes that it lacks so
                                    far compared with its share */
    struct layer *layer;         /* [n_layer + 1] the layers; element 0 is for
                                    tensors outside of layers */
    struct layer *scan;          /* [n_layer + 1] the same, for the heads of a
                                    state space model, which a layer may have
                                    besides attention */
    int n_layer;
    struct dealt vocab[2];
    struct dealt per_layer; /* split of per-layer embeddings, common to all
                               layers because one weight contains the embeddings
                               of all */
};

/* Divides `units` grains of unit_bytes bytes each among the ranks and sets
 * count[r] to the number for rank r. Each rank gets the whole grains of its
 * share. Those ranks that lack most bytes, compared with their share in all
 * layers so far, get one more. */
static void apportion_units(const struct deal *d, int64_t units,
                            double unit_bytes, int64_t *count)
{
    double need[PL_MAX_RANKS];
    int64_t left = units;

    for (int r = 0; r < d->n_rank; r++) {
        double want = d->share[r] * (double)units;

        count[r] = (int64_t)floor(want + 1e-9);
        left -= count[r];
        need[r] = d->share[r] > 0
                      ? (want - (double)count[r]) * unit_bytes + d->behind[r]
                      : -INFINITY;
    }
    while (left > 0) {
        int best = 0;

        for (int r = 1; r < d->n_rank; r++)
            if (need[r] > need[best] + 1e-6 * unit_bytes)
                best = r;
        count[best]++;
        /* The rank gets no further grain here: each gets at most one more. */
        need[best] = -1e300;
        left--;
    }
}

static void account(struct deal *d, const struct dealt *x, const int64_t *count,
                    int64_t units)
{
    double unit_bytes = x->bytes / (double)units;

    for (int r = 0; r < d->n_rank; r++)
        d->behind[r] +=
            (d->share[r] * (double)units - (double)count[r]) * unit_bytes;
}

static void runs(struct deal *d, struct dealt *x, const int64_t *count,
                 int64_t grain)
{
    x->l = layout_from_counts(d->a, 0, x->size, grain, d->n_rank, count);
}

/* Splits an axis whose indices are elements, not heads: feed-forward, expert,
 * vocabulary or per-layer width. */
static void deal_width(struct deal *d, struct dealt *x)
{
    int64_t grain = x->quantized ? 32 : split_grain(x->size, d->n_rank);
    int64_t units, count[PL_MAX_RANKS];

    if (x->size == 0)
        return;
    units = (x->size + grain - 1) / grain;
    apportion_units(d, units, x->bytes / (double)units, count);
    account(d, x, count, units);
    runs(d, x, count, grain);
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b ? gcd(b, a % b) : a;
}

/* Splits the heads of each group of a state space model alike, so that a norm
 * over a group needs only the sum of the ranks' squares. All ranks hold b and c
 * of all groups. Returns false if some rank with a share would get no head. */
static bool deal_in_groups(struct deal *d, struct layer *y, int64_t uq)
{
    int64_t r = y->n_head / y->n_kv, count[PL_MAX_RANKS];

    if (y->n_kv == 1 || r % uq)
        return false;
    apportion_units(d, r / uq, y->head.bytes / (double)(r / uq), count);
    for (int i = 0; i < d->n_rank; i++)
        if (d->share[i] > 0 && count[i] == 0)
            return false;
    account(d, &y->head, count, r / uq);
    y->head.l = layout_from_counts(d->a, 0, r, uq, d->n_rank, count);
    y->kv.l = &layout_mirrored;
    return true;
}

static void deal_heads(struct deal *d, struct layer *y)
{
    int64_t r = y->n_head / y->n_kv;
    int64_t block = y->head.quantized ? 32 : 1;
    int64_t d_out = y->n_out ? y->n_out / y->n_head : y->d_v;
    int64_t uq = block / gcd(block, d_out); /* number of query heads per
                                               grain */
    int64_t uk = block / gcd(block, y->tiled ? d_out : d_out * r);
    int64_t per = y->n_group ? y->n_head / y->n_group : 1;
    int64_t nq, nk = (y->n_kv + uk - 1) / uk;
    int64_t cq[PL_MAX_RANKS], ck[PL_MAX_RANKS];
    bool by_kv = true;
    pl_interval *kv;
    struct run_walk w;

    per = per > 0 ? per : 1;
    uq = uq / gcd(uq, per) * per;
    nq = (y->n_head + uq - 1) / uq;
    y->head.size = y->n_head;
    y->kv.size = y->n_kv;
    apportion_units(d, nq, y->head.bytes / (double)nq, cq);
    apportion_units(d, nk, y->head.bytes / (double)nk, ck);
    for (int i = 0; i < d->n_rank; i++)
        by_kv &= cq[i] == 0 || ck[i] > 0;
    if (by_kv) {
        account(d, &y->head, ck, nk);
        for (int i = 0; i < d->n_rank; i++)
            ck[i] *= uk;
        runs(d, &y->kv, ck, 1);
        if (y->tiled)
            y->head.l = y->kv.l; /* This layout of n_kv heads repeats until all
                                    query heads are covered. */
        else
            runs(d, &y->head, ck, r);
        return;
    }
    if (y->ssm && deal_in_groups(d, y, uq))
        return;
    account(d, &y->head, cq, nq);
    runs(d, &y->head, cq, uq);
    y->kv.l = &layout_mirrored;
    if (y->head.l->kind != PL_SPLIT)
        return;
    kv = arena_alloc(d->a, (size_t)y->n_kv, sizeof *kv);
    if (!kv)
        return;
    for (int64_t i = 0; i < y->n_kv; i++)
        kv[i].len = 1;
    run_walk_first(&w, y->head.l, y->n_head);
    do {
        for (int64_t h = w.pos; h < w.pos + w.left; h++)
            kv[y->tiled ? h % y->n_kv : h / r].owners |= run_walk_owners(&w);
    } while (run_walk_next(&w));
    y->kv.l = layout_split(d->a, 0, y->n_kv, (int)y->n_kv, kv, d->n_rank);
}

/* Returns a layout of dimension `dim` of a tensor, which has `size` elements,
 * like layout `l` of an axis with `units` indices. So an index of `l` stands
 * for size / units elements. If `l` is shorter than the dimension, it repeats.
 * Returns NULL if `l` is not a split or does not fit. */
static const pl_layout *place(const struct deal *d, const pl_layout *l, int dim,
                              int64_t size, int64_t units)
{
    int64_t scale = units ? size / units : 0;
    pl_interval *run;

    if (!l || l->kind != PL_SPLIT || scale == 0 || size % (l->period * scale))
        return NULL;
    run = arena_alloc(d->a, (size_t)l->n_run, sizeof *run);
    if (!run)
        return NULL;
    for (int i = 0; i < l->n_run; i++)
        run[i] = (pl_interval){l->run[i].len * scale, l->run[i].owners};
    return layout_split(d->a, dim, size, l->n_run, run, d->n_rank);
}

/* Returns what place() does, for a layout `l` of n heads. Returns NULL if the
 * dimension's `size` is not a multiple of n. */
static const pl_layout *place_heads(const struct deal *d, const pl_layout *l,
                                    int dim, int64_t size, int64_t n)
{
    return n > 0 && size % n == 0 ? place(d, l, dim, size, n) : NULL;
}

/* Returns the layout of a dimension of `n` groups of query heads (AXIS_GROUP).
 * Returns NULL if some rank has a part of a group. */
static const pl_layout *place_groups(const struct deal *d,
                                     const struct layer *y, int dim, int64_t n)
{
    int64_t per = y->n_head ? y->n_head / n : 0;
    const pl_layout *l = y->head.l;
    pl_interval *run;

    if (per == 0 || !l || l->kind != PL_SPLIT || l->period % per)
        return NULL;
    run = arena_alloc(d->a, (size_t)l->n_run, sizeof *run);
    if (!run)
        return NULL;
    for (int i = 0; i < l->n_run; i++) {
        if (l->run[i].len % per)
            return NULL;
        run[i] = (pl_interval){l->run[i].len / per, l->run[i].owners};
    }
    return layout_split(d->a, dim, n, l->n_run, run, d->n_rank);
}

/* Returns the layout of a tensor with two gates per query head (AXIS_GATES). If
 * a rank has only some of the query heads that share a KV head, no layout
 * expresses the gates of that rank. Then returns NULL, and all ranks hold all
 * gates, which are small. */
static const pl_layout *split_gates(const struct deal *d, const struct layer *y,
                                    int dim, int64_t size)
{
    int64_t r = y->n_kv ? y->n_head / y->n_kv : 0;
    pl_interval *run;
    struct run_walk w;

    if (!y->n_head || y->head.l->kind != PL_SPLIT || size != 2 * y->n_head)
        return NULL;
    run = arena_alloc(d->a, (size_t)y->n_kv, sizeof *run);
    if (!run)
        return NULL;
    run_walk_first(&w, y->head.l, y->n_head);
    do {
        if (w.pos % r || w.left % r)
            return NULL;
        for (int64_t k = w.pos / r; k < (w.pos + w.left) / r; k++)
            run[k] = (pl_interval){2 * r, run_walk_owners(&w)};
    } while (run_walk_next(&w));
    return layout_split(d->a, dim, size, (int)y->n_kv, run, d->n_rank);
}

/* A part of a dimension: n heads of `scale` indices each, which `l` divides. */
struct segment {
    const pl_layout *l;
    int64_t n, scale;
};

/* Returns the layout of a dimension that consists of segments: their layouts,
 * concatenated. Returns NULL if `head`, the layout of heads, is not a split or
 * the size is another. */
static const pl_layout *place_segments(const struct deal *d,
                                       const pl_layout *head,
                                       const struct segment *s, int n, int dim,
                                       int64_t size)
{
    int64_t cap = 0, sum = 0;
    pl_interval *run;
    int k = 0;

    for (int i = 0; i < n; i++) {
        cap += s[i].n;
        sum += s[i].n * s[i].scale;
    }
    if (cap == 0 || head->kind != PL_SPLIT || size != sum)
        return NULL;
    run = arena_alloc(d->a, (size_t)cap, sizeof *run);
    if (!run)
        return NULL;
    for (int i = 0; i < n; i++) {
        struct run_walk w;

        if (s[i].l->kind != PL_SPLIT) {
            run[k++] = (pl_interval){s[i].n * s[i].scale, ranks_all(d->n_rank)};
            continue;
        }
        run_walk_first(&w, s[i].l, s[i].n);
        do
            run[k++] = (pl_interval){w.left * s[i].scale, run_walk_owners(&w)};
        while (run_walk_next(&w));
    }
    return layout_split(d->a, dim, size, k, run, d->n_rank);
}

/* Returns the layout of a tensor with the heads of q, k and v one after another
 * (AXIS_QKV), or of one of them if they have the same heads. */
static const pl_layout *place_qkv(const struct deal *d, const struct layer *y,
                                  int dim, int64_t size)
{
    const struct segment head = {y->head.l, y->n_head, y->d_v};
    const struct segment kv = {y->kv.l, y->n_kv, y->d_k};
    const struct segment q = {y->head.l, y->n_head, y->d_k};
    const struct segment v = {y->kv.l, y->n_kv, y->d_v};
    const struct segment all[3] = {y->delta ? kv : q, kv, y->delta ? head : v};

    if (y->n_head == y->n_kv && y->d_k == y->d_v && size == head.n * head.scale)
        return place_heads(d, y->head.l, dim, size, y->n_head);
    return y->n_head ? place_segments(d, y->head.l, all, 3, dim, size) : NULL;
}

/* Returns the layout of a tensor with z, x, b, c and dt of a state space model
 * one after another, or only x, b and c (AXIS_SSM). */
static const pl_layout *place_ssm(const struct deal *d, const struct layer *y,
                                  int dim, int64_t size)
{
    const struct segment x = {y->head.l, y->n_head, y->d_v};
    const struct segment b = {y->kv.l, y->n_kv, y->d_k};
    const struct segment dt = {y->head.l, y->n_head, 1};
    const struct segment all[5] = {x, x, b, b, dt};
    const bool conv = size == x.n * x.scale + 2 * b.n * b.scale;

    return y->n_head ? place_segments(d, y->head.l, conv ? all + 1 : all,
                                      conv ? 3 : 5, dim, size)
                     : NULL;
}

static double leaf_bytes(const struct graph_node *n)
{
    const struct format_info *f = format_info(n->format);
    double count = 1;

    for (int i = 0; i < n->n_dim; i++)
        count *= (double)n->dim[i].n;
    return count / f->block * f->block_bytes;
}

static void add(struct dealt *x, const struct graph_node *n, int64_t size)
{
    const bool input = rows[n->role].dim == n->n_dim - 1;

    if (x->size == 0)
        x->size = size;
    x->bytes += leaf_bytes(n);
    x->quantized |= input && format_info(n->format)->block > 1;
}

/* Returns the cache or state that node n reads if n is attention, a delta net,
 * a scan or a short convolution without these, the ops with heads. Else returns
 * -1. */
static int memory_of_heads(const pl_graph *g, const struct graph_node *n)
{
    switch (n->op) {
    case OP_attention:
    case OP_bidirectional_attention:
    case OP_latent_attention:
    case OP_attention_blocks:
    case OP_compressed_attention:
        return graph_memory(g, n->in[1]);
    case OP_delta_net:
    case OP_delta_net_tiled:
    case OP_delta_net_channels:
        return graph_memory(g, n->in[5]);
    case OP_ssm_scan:
        return graph_memory(g, n->in[4]);
    case OP_short_conv: {
        int state = graph_memory(g, n->in[2]);

        return g->node[state].role == PL_ROLE_STATE ? state : -1;
    }
    default:
        return -1;
    }
}

/* Sets y->heads of each layer to the layer that owns the cache that layer y
 * reads, so that both have the same split of heads. */
static void find_heads(struct deal *d)
{
    for (int i = 0; i <= d->n_layer; i++)
        d->layer[i].heads = i;
    for (int i = 0; i < d->g->n_node; i++) {
        const struct graph_node *n = &d->g->node[i];
        int k = memory_of_heads(d->g, n);

        if (k >= 0 && n->op != OP_ssm_scan)
            d->layer[n->layer + 1].heads = d->g->node[k].layer + 1;
    }
}

static struct layer *heads_of(const struct deal *d, int layer)
{
    return &d->layer[d->layer[layer + 1].heads];
}

/* Returns the layer's heads to which a tensor with axis `x` belongs. */
static struct layer *heads_on(const struct deal *d, int layer, enum axis x)
{
    return x == AXIS_SSM || x == AXIS_SSM_HEAD ? &d->scan[layer + 1]
                                               : heads_of(d, layer);
}

/* If node n is an op with heads, records their numbers in *h, the layer that
 * owns its cache. Several layers that read this cache may have different
 * numbers of query heads. n_head becomes their greatest common divisor. */
static void survey_heads(const struct deal *d, const struct graph_node *n,
                         struct layer *h)
{
    int memory = memory_of_heads(d->g, n);
    const struct graph_node *k;

    if (memory < 0)
        return;
    if (n->op == OP_short_conv) { /* Each channel is a head. */
        h->n_head = h->n_kv = n->dim[1].n;
        h->d_k = h->d_v = 1;
        return;
    }
    h->tiled = n->op == OP_delta_net_tiled;
    h->delta =
        h->tiled || n->op == OP_delta_net || n->op == OP_delta_net_channels;
    h->ssm = n->op == OP_ssm_scan;
    k = &d->g->node[h->delta || h->ssm ? n->in[0] : memory];
    /* If a layer's caches have different numbers of heads, those of the last
     * cache are used. */
    h->n_head = gcd(k->dim[1].n == h->n_kv ? h->n_head : 0, n->dim[1].n);
    h->n_kv = k->dim[1].n;
    h->d_k = k->dim[2].n;
    h->d_v = n->dim[2].n;
}

/* Computes the size of each axis of each layer, from the weights and from the
 * nodes with heads. */
static void collect_axes(struct deal *d)
{
    for (int i = 0; i < d->g->n_node; i++) {
        const struct graph_node *n = &d->g->node[i];
        const struct role_row *row = &rows[n->role];
        struct layer *y = &d->layer[n->layer + 1];
        struct layer *h = heads_on(d, n->layer, row->axis);
        int64_t size = n->n_dim > row->dim ? n->dim[row->dim].n : 0;

        survey_heads(d, n, n->op == OP_ssm_scan ? &d->scan[n->layer + 1] : h);
        if (n->op != OP_weight || size == 0)
            continue;
        switch (row->axis) {
        case AXIS_GROUP:
            h->n_group = size;
            add(&h->head, n, 0);
            break;
        case AXIS_HEAD:
        case AXIS_KV:
        case AXIS_QKV:
        case AXIS_GATES:
        case AXIS_SSM_HEAD:
        case AXIS_SSM:
            if (row->dim == 1)
                h->n_out = gcd(h->n_out, size);
            add(&h->head, n, 0);
            break;
        case AXIS_FF:
            add(&y->ff, n, size);
            break;
        case AXIS_FF2:
            add(&y->ff, n, size / 2);
            break;
        case AXIS_EXP:
            add(&y->exp, n, size);
            break;
        case AXIS_EXP2:
            add(&y->exp, n, size / 2);
            break;
        case AXIS_VOCAB:
            add(&d->vocab[d->vocab[0].size && d->vocab[0].size != size], n,
                size);
            break;
        case AXIS_PER_LAYERS:
            add(&d->per_layer, n, 0);
            break;
        case AXIS_PER_LAYER:
            add(&d->per_layer, n, size);
            break;
        default:
            break;
        }
    }
}

static const pl_layout *leaf_layout(const struct deal *d,
                                    const struct graph_node *n)
{
    const struct role_row *row = &rows[n->role];
    const struct layer *y = &d->layer[n->layer + 1];
    const struct layer *h = heads_on(d, n->layer, row->axis);
    int64_t size = n->n_dim > row->dim ? n->dim[row->dim].n : 0;
    const pl_layout *l = NULL;

    if (size == 0)
        return NULL;
    switch (row->axis) {
    case AXIS_HEAD:
    case AXIS_SSM_HEAD:
        return place_heads(d, h->head.l, row->dim, size, h->n_head);
    case AXIS_GROUP:
        return place_groups(d, h, row->dim, size);
    case AXIS_KV:
        return place_heads(d, h->kv.l, row->dim, size, h->n_kv);
    case AXIS_QKV:
        return place_qkv(d, h, row->dim, size);
    case AXIS_SSM:
        return place_ssm(d, h, row->dim, size);
    case AXIS_GATES:
        return split_gates(d, h, row->dim, size);
    case AXIS_FF:
    case AXIS_FF2:
        l = y->ff.l;
        break;
    case AXIS_EXP:
    case AXIS_EXP2:
        l = y->exp.l;
        break;
    case AXIS_VOCAB:
        l = d->vocab[d->vocab[0].size != size].l;
        break;
    case AXIS_PER_LAYER:
    case AXIS_PER_LAYERS:
        l = d->per_layer.l;
        break;
    default:
        break;
    }
    return place(d, l, row->dim, size, size);
}

pl_status roles_layouts(const pl_graph *g, int n_rank, const double *share,
                        struct arena *a, const pl_layout **leaf, pl_err *err)
{
    struct deal d = {.g = g, .a = a, .n_rank = n_rank};
    double sum = 0;

    memset(leaf, 0, (size_t)g->n_node * sizeof *leaf);
    for (int r = 0; r < n_rank; r++)
        sum += share[r];
    for (int r = 0; r < n_rank; r++)
        d.share[r] = share[r] / sum;
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].layer >= d.n_layer)
            d.n_layer = g->node[i].layer + 1;
    d.layer = arena_alloc(a, (size_t)d.n_layer + 1, sizeof *d.layer);
    d.scan = arena_alloc(a, (size_t)d.n_layer + 1, sizeof *d.scan);
    if (!d.layer || !d.scan)
        return err_no_memory(err, "a table of layers");
    find_heads(&d);
    collect_axes(&d);
    for (int i = 0; i < 2; i++)
        deal_width(&d, &d.vocab[i]);
    deal_width(&d, &d.per_layer);
    for (int i = 0; i <= d.n_layer; i++) {
        struct layer *y = &d.layer[i];

        if (y->n_head)
            deal_heads(&d, y);
        if (d.scan[i].n_head)
            deal_heads(&d, &d.scan[i]);
        deal_width(&d, &y->ff);
        deal_width(&d, &y->exp);
    }
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_weight || g->node[i].op == OP_memory)
            leaf[i] = leaf_layout(&d, &g->node[i]);
    return arena_check(a, "layouts", err);
}
