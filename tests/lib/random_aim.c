/* Lists what a plan may contain, from the rows of ops.def.
 *
 * An op is WHOLE, or split by a letter that a row does not mark '!', or passes
 * a PARTIAL through, or moves runs. That decides the conversions before an
 * operand. One with the split letter must be SPLIT, so it is sliced, exchanged
 * or scattered as a sum. The others must be MIRRORED, so they are gathered or
 * summed for all. Ids are not sums; weights and caches are never converted.
 * Combinations that this allows but that cannot occur have their reason in
 * `excuses`. random_block.c draws a graph that shows one. */
#include "lib/random_draw.h"

#include <string.h>

enum { MAX_AIM = 1024, ANY = (1 << NUM_KIND_COUNT) - 1 };

/* ---- rows ---------------------------------------------------------------- */

int aim_row(enum op op, struct aim_operand in[GRAPH_MAX_IN])
{
    int n = 0;

    memset(in, 0, GRAPH_MAX_IN * sizeof *in);
    for (const char *p = op_info(op)->dims; *p != '-'; p++) {
        struct aim_operand *o = &in[n];

        if (*p == ',') {
            n++;
        } else if (*p == '(') {
            o->item[o->n++] = (struct aim_item){p[1], p[2], false};
            p += 3;
        } else if (*p == '!') {
            o->item[o->n - 1].whole = true;
        } else if (*p == '?') {
            o->optional = true;
        } else {
            o->item[o->n++] = (struct aim_item){*p, 0, false};
        }
    }
    return n + 1;
}

bool aim_moves(enum op op)
{
    return !strcmp(op_info(op)->dims, "MOVE");
}

static bool bears(const struct aim_operand *o, int letter)
{
    for (int i = 0; i < o->n; i++)
        if (!o->item[i].whole &&
            (o->item[i].a == letter || o->item[i].b == letter))
            return true;
    return false;
}

/* For each op, the kinds of its operands: 'f' any value, 'w' a weight, 'i' ids,
 * 'c' a cache, 's' a state. `linear`: the op maps small integers to small
 * integers, so that float sums have no rounding. */
static const struct {
    const char *takes;
    bool linear;
} ops[OP_COUNT] = {
    [OP_gather_rows] = {"fi", true},
    [OP_matmul] = {"fw", true},
    [OP_head_matmul] = {"fw", true},
    [OP_expert_matmul] = {"fwi", true},
    [OP_expert_down] = {"fwi", true},
    [OP_rms_norm] = {"ff", false},
    [OP_layer_norm] = {"ff", false},
    [OP_rope] = {"fif", false},
    [OP_cache_write] = {"cf", false},
    [OP_attention] = {"fccf", false},
    [OP_bidirectional_attention] = {"fcci", false},
    [OP_latent_attention] = {"fci", false},
    [OP_attention_blocks] = {"fcci", false},
    [OP_index_topk] = {"ffc", false},
    [OP_index_blocks] = {"fc", false},
    [OP_compressed_attention] = {"fccfi", false},
    [OP_block_mean] = {"cif", false},
    [OP_sinkhorn] = {"fff", false},
    [OP_mix_streams] = {"fff", false},
    [OP_short_conv] = {"ffs", false},
    [OP_delta_net] = {"fffffs", false},
    [OP_delta_net_tiled] = {"fffffs", false},
    [OP_delta_net_channels] = {"fffffs", false},
    [OP_ssm_scan] = {"ffffs", false},
    [OP_softmax] = {"f", false},
    [OP_router_topk] = {"ff", false},
    [OP_router_weights] = {"fi", false},
    [OP_add] = {"ff", true},
    [OP_sub] = {"ff", true},
    [OP_mul] = {"ff", true},
    [OP_div] = {"ff", false},
    [OP_swiglu] = {"ff", false},
    [OP_geglu] = {"ff", false},
    [OP_swiglu_oai] = {"ff", false},
    [OP_scale] = {"f", true},
    [OP_clamp] = {"f", false},
    [OP_sqr] = {"f", false},
    [OP_sqrt] = {"f", false},
    [OP_exp] = {"f", false},
    [OP_tanh] = {"f", false},
    [OP_sigmoid] = {"f", false},
    [OP_softplus] = {"f", false},
    [OP_silu] = {"f", false},
    [OP_gelu] = {"f", false},
    [OP_gelu_erf] = {"f", false},
    [OP_relu] = {"f", false},
    [OP_sum] = {"f", true},
    [OP_cast] = {"f", false},
    [OP_contiguous] = {"f", true},
    [OP_reshape] = {"f", true},
    [OP_permute] = {"f", true},
    [OP_slice] = {"f", true},
    [OP_concat] = {"fff", true},
};

bool aim_linear(enum op op)
{
    return ops[op].linear;
}

int aim_operands(enum op op)
{
    return (int)strlen(ops[op].takes);
}

bool aim_takes(enum op op, int i, char what)
{
    return ops[op].takes[i] == what;
}

/* ---- the list ------------------------------------------------------------ */

/* Combinations of op, split letter and conversion that the rows of ops.def
 * allow but that cannot occur, with the reason. */
static const struct {
    enum op op;
    char letter;
    int kinds; /* set of bits 1 << enum num_kind */
    const char *why;
} excuses[] = {
    {OP_cache_write, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_attention, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_bidirectional_attention, 't', ANY,
     "the rows are the step's, a symbolic size"},
    {OP_latent_attention, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_attention_blocks, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_index_topk, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_index_blocks, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_compressed_attention, 't', ANY,
     "the rows are the step's, a symbolic size"},
    {OP_block_mean, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_short_conv, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_delta_net, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_delta_net_tiled, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_delta_net_channels, 't', ANY,
     "the rows are the step's, a symbolic size"},
    {OP_ssm_scan, 't', ANY, "the rows are the step's, a symbolic size"},
    {OP_matmul, 'k', TO_ALL, "both operands have all of k: no broadcast"},
    {OP_head_matmul, 'k', TO_ALL, "both operands have all of k: no broadcast"},
    {OP_head_matmul, 'h', TO_ALL, "both operands have all heads"},
    {OP_expert_matmul, 'k', KIND(ALL_REDUCE),
     "x has all of k: no broadcast; ids are no sum"},
    {OP_expert_matmul, 't', TO_ALL, "x and ids have the same rows"},
    {OP_expert_down, 'k', KIND(ALL_REDUCE),
     "x has all of k: no broadcast; ids are no sum"},
    {OP_expert_down, 't', TO_ALL, "x and ids have the same rows"},
    {OP_cache_write, 'g', TO_ALL, "x has all heads of the cache"},
    {OP_attention, 'g', TO_ALL, "queries and sinks have all heads"},
    {OP_attention, 'r', TO_ALL, "queries and sinks have all heads"},
    {OP_bidirectional_attention, 'g', TO_ALL, "queries have all heads"},
    {OP_bidirectional_attention, 'r', TO_ALL, "queries have all heads"},
    {OP_latent_attention, 'g', TO_ALL, "queries have all heads"},
    {OP_latent_attention, 'r', TO_ALL, "queries have all heads"},
    {OP_attention_blocks, 'g', TO_ALL, "queries and choices have all heads"},
    {OP_compressed_attention, 'g', TO_ALL, "queries and sinks have all heads"},
    {OP_compressed_attention, 'r', TO_ALL, "queries and sinks have all heads"},
    {OP_mix_streams, 't', TO_ALL, "all have the same rows"},
    {OP_delta_net, 'g', TO_ALL, "all have all heads of the state"},
    {OP_delta_net_tiled, 'g', TO_ALL, "all have all heads of the state"},
    {OP_delta_net_channels, 'g', TO_ALL, "all have all heads of the state"},
    {OP_ssm_scan, 'g', TO_ALL, "all have all heads of the state"},
    {OP_short_conv, 'c', TO_ALL, "x and taps have all channels"},
    {OP_router_weights, '*', TO_ALL, "logits and ids have the same rows"},
};

static const char *excuse(enum op op, int letter, enum num_kind kind)
{
    for (size_t i = 0; i < sizeof excuses / sizeof *excuses; i++)
        if (excuses[i].op == op && excuses[i].letter == letter &&
            excuses[i].kinds >> kind & 1)
            return excuses[i].why;
    return NULL;
}

/* Returns those of the conversions `kinds` (bits) that are possible before an
 * operand of kind `what`. */
static int kinds_before(char what, int kinds)
{
    return what == 'f' ? kinds : what == 'i' ? kinds & ~SUMS : 0;
}

int aim_kinds(enum op op, int letter, int which)
{
    const char *takes = ops[op].takes;
    unsigned partial = op_info(op)->partial;
    struct aim_operand in[GRAPH_MAX_IN];
    int kinds = 0, n = (int)strlen(takes), bearers = 0;

    if (!aim_moves(op))
        aim_row(op, in);
    for (int i = 0; i < n && !aim_moves(op); i++)
        bearers += bears(&in[i], letter);
    for (int i = 0; i < n; i++) {
        int k = 0;

        if (which >= 0 && which != i)
            continue;
        if (letter == RANDOM_WHOLE) {
            k = TO_ALL;
        } else if (letter == RANDOM_PASSES) {
            /* if another operand is PARTIAL, this one may have to be
             * MIRRORED */
            for (int p = 0; p < n; p++)
                if (p != i && ((partial & PL_OP_SUM) || (partial >> p & 1)))
                    k = TO_ALL;
        } else if (letter == RANDOM_MOVED) {
            k = TO_SPLIT | (n > 1 ? TO_ALL : 0);
        } else if (bears(&in[i], letter)) {
            k = TO_SPLIT;
            /* in this operand the dimension may have size 1, so that it is not
             * split */
            if (bearers > 1)
                k |= TO_ALL;
        } else {
            k = TO_ALL;
        }
        kinds |= kinds_before(takes[i], k);
    }
    return kinds | KIND(OP);
}

/* Writes the letters of the op's row by which the op may be split. Returns
 * their number. */
static int letters_of(enum op op, char letters[16])
{
    struct aim_operand in[GRAPH_MAX_IN];
    int n_in = 0, n = 0;

    memset(letters, 0, 16);
    letters[n++] = RANDOM_WHOLE;
    if (op_info(op)->partial)
        letters[n++] = RANDOM_PASSES;
    if (aim_moves(op)) {
        letters[n++] = RANDOM_MOVED;
    } else {
        n_in = aim_row(op, in);
        assert_int_equal(n_in, aim_operands(op));
    }
    for (int i = 0; i < n_in; i++)
        for (int k = 0; k < 2 * in[i].n; k++) {
            const struct aim_item *m = &in[i].item[k / 2];
            char c = k % 2 ? m->b : m->a;

            if (c && !m->whole && !strchr(letters, c))
                letters[n++] = c;
        }
    assert_true(n < 16);
    return n;
}

static int fill(struct random_aim *list)
{
    int n = 0;

    for (enum op op = 0; op < OP_COUNT; op++) {
        char letters[16];
        int n_letter;

        if (!op_info(op)->dims || *op_info(op)->dims == '-')
            /* skips leaves, and custom ops, whose rows belong to their nodes */
            continue;
        if (!ops[op].takes)
            fail_msg("%s: say in random_aim.c what it takes",
                     op_info(op)->name);
        n_letter = letters_of(op, letters);
        for (int l = 0; l < n_letter; l++)
            for (int k = 0; k < NUM_KIND_COUNT; k++) {
                if (!(aim_kinds(op, letters[l], -1) >> k & 1))
                    continue;
                assert_true(n < MAX_AIM);
                list[n++] = (struct random_aim){
                    op, letters[l], (enum num_kind)k,
                    excuse(op, letters[l], (enum num_kind)k)};
            }
    }
    return n;
}

const struct random_aim *random_aims(int *n)
{
    static struct random_aim list[MAX_AIM];
    static int n_list;

    if (n_list == 0)
        n_list = fill(list);
    *n = n_list;
    return list;
}
