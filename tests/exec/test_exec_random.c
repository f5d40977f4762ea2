/* Random graphs, split at random, agree with an unsplit evaluation in double
 * precision; linear ones on small integers agree in every bit. Each is run
 * twice with only devices and threads changed, which must not change bits.
 *
 * A number determines the graph. A failure prints it, and PLAIT_SEED=number
 * begins with that graph. A graph is drawn anew if a choice of experts is
 * nearly a tie, or if rounding errors would show in the result.
 *
 * Every combination of op, split letter and conversion that the rows of ops.def
 * allow (random_aim.c) must occur 20 times (in the long tier 100), and no
 * other. While some are rare, every other graph has blocks aimed at one of
 * them. The number's high bits have the aim. */
#include "exec/exec.h"
#include "layout/rules.h"
#include "lib/eval64.h"
#include "lib/random_feed.h"
#include "lib/random_layout.h"
#include "lib/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STEP = 3 };

struct job {
    struct random_graph r;
    struct random_feed f;
    int n_rank;
    /* [n_node] true if the value was rounded by a cast to fewer bits, owned */
    bool *rounded;
    /* [n_node] expected results and memories of each step, owned */
    double **want[MAX_STEP];
    /* [n_node][1] change of a result that noise causes, owned */
    double **spread[MAX_STEP];
    /* [n_node] bytes of the first execution, owned */
    unsigned char **got[MAX_STEP];
    uint64_t seed; /* number from which the graph was drawn */
};

#define JOB_FAIL(j, ...)                                                       \
    do {                                                                       \
        feed_show(&(j)->r, (j)->seed, (j)->n_rank);                            \
        fail_msg(__VA_ARGS__);                                                 \
    } while (0)

static bool is_memory(const struct graph_node *n)
{
    return n->op == OP_memory;
}

static double as_double(const struct graph_node *n, const unsigned char *b,
                        int64_t i)
{
    int32_t id;
    float v;

    if (n->format == PL_I32) {
        memcpy(&id, b + 4 * i, 4);
        return id;
    }
    memcpy(&v, b + 4 * i, 4);
    return (double)v;
}

/* ---- the reference ------------------------------------------------------- */

/* Evaluates all steps; values that can be read are written to out[s][node].
 * Returns false if one is out of range, or a choice is nearly a tie. */
static bool evaluate(struct job *j, double noise, double **out[MAX_STEP])
{
    struct eval64 *e = eval64_create(j->r.g, RANDOM_N_SEQ, RANDOM_MAX_POS);
    double most = j->r.exact ? 1 << 21 : 1e5;
    bool ok = true;

    e->noise = noise;
    e->seed = j->seed;
    for (int i = 0; i < j->r.n_node; i++)
        if (j->r.bytes[i])
            eval64_weight(e, i, j->r.bytes[i]);
    for (int s = 0; s < j->f.n_step && ok; s++) {
        const pl_step_tokens *p = &j->f.rows[s];
        const struct eval_rows rows = {p->n_tok, p->n_out, RANDOM_MAX_POS,
                                       p->pos, p->seq};

        for (int i = 0; i < j->r.n_node; i++)
            if (j->f.input[s][i]) {
                struct eval_value *v = eval64_input(e, i, &rows);

                for (int64_t k = 0; k < v->n; k++)
                    v->x[k] = as_double(&j->r.g->node[i], j->f.input[s][i], k);
            }
        eval64_step(e, &rows);
        for (int i = 0; i < j->r.n_node; i++) {
            const struct eval_value *v = &e->value[i];

            for (int64_t k = 0; k < v->n; k++)
                /* false if the value is NaN, too */
                ok &= fabs(v->x[k]) <= most;
            if (!feed_is_read(&j->r.g->node[i]) && !is_memory(&j->r.g->node[i]))
                continue;
            out[s][i] = test_need((size_t)v->n, sizeof(double));
            memcpy(out[s][i], v->x, (size_t)v->n * sizeof(double));
        }
    }
    ok &= e->gap >= 1e-3;
    eval64_free(e);
    return ok;
}

static double size_of(const double *x, int64_t n)
{
    double s = 0;

    for (int64_t i = 0; i < n; i++)
        s += x[i] * x[i];
    return n ? sqrt(s / (double)n) : 0;
}

static void job_free(struct job *j)
{
    for (int s = 0; s < MAX_STEP; s++) {
        feed_table_free(&j->r, j->want[s]);
        feed_table_free(&j->r, j->spread[s]);
        feed_table_free(&j->r, j->got[s]);
    }
    free(j->rounded);
    feed_free(&j->f);
    random_graph_free(&j->r);
}

/* Measures how far noise of the size of float's rounding moves the results.
 * Returns false if that is too far for a meaningful comparison. */
static bool well_conditioned(struct job *j)
{
    double **other[MAX_STEP];
    bool ok;

    for (int s = 0; s < MAX_STEP; s++)
        other[s] = test_need((size_t)j->r.n_node, sizeof **other);
    ok = evaluate(j, 1e-6, other);
    for (int s = 0; s < j->f.n_step && ok; s++)
        for (int i = 0; i < j->r.n_node; i++) {
            int64_t n = feed_count(&j->f, i, s);
            double most = 0, limit;

            if (!j->want[s][i])
                continue;
            for (int64_t k = 0; k < n; k++)
                most = fmax(most, fabs(other[s][i][k] - j->want[s][i][k]));
            limit = j->rounded[i] ? 2e-2 : 1e-3;
            ok &= most <= limit * (size_of(j->want[s][i], n) + 1e-2);
            j->spread[s][i] = test_need(1, sizeof(double));
            *j->spread[s][i] = most;
        }
    for (int s = 0; s < MAX_STEP; s++)
        feed_table_free(&j->r, other[s]);
    return ok;
}

/* Draws data for the graph and evaluates it. Returns false if it must be drawn
 * anew. */
static bool job_fill(struct job *j, uint64_t *seed)
{
    bool ok;

    feed_make(&j->f, &j->r, MAX_STEP, seed);
    j->rounded = test_need((size_t)j->r.n_node, sizeof *j->rounded);
    for (int i = 0; i < j->r.n_node; i++) {
        const struct graph_node *n = &j->r.g->node[i];

        j->rounded[i] = n->op == OP_cast && n->attr.format != PL_F32;
        for (int k = 0; k < n->n_in; k++)
            j->rounded[i] |= n->in[k] >= 0 && j->rounded[n->in[k]];
    }
    for (int k = 0; k < MAX_STEP; k++) {
        j->want[k] = test_need((size_t)j->r.n_node, sizeof **j->want);
        j->spread[k] = test_need((size_t)j->r.n_node, sizeof **j->spread);
        j->got[k] = test_need((size_t)j->r.n_node, sizeof **j->got);
    }
    ok = evaluate(j, 0, j->want);
    return ok && (j->r.exact || well_conditioned(j));
}

/* A seed is a number below 2^AIM_SHIFT. Above that it has an aim's index in the
 * list, counted from 1; 0: none. */
enum { AIM_SHIFT = 48 };

static bool job_make(struct job *j, uint64_t seed)
{
    const struct random_aim *aim = NULL;
    uint64_t s = seed, a = seed >> AIM_SHIFT;
    int n;

    memset(j, 0, sizeof *j);
    j->seed = seed;
    if (a > 0 && a <= (uint64_t)(random_aims(&n), n))
        aim = &random_aims(&n)[a - 1];
    j->n_rank = aim ? 2 + (int)test_below(&s, 7) : 1 + (int)test_below(&s, 8);
    random_graph_make(&j->r, j->n_rank, aim, &s);
    return job_fill(j, &s);
}

/* ---- counts -------------------------------------------------------------- */

enum { N_LETTER = 128 };
static int64_t seen[OP_COUNT][N_LETTER][NUM_KIND_COUNT];

/* Returns the operand of an op with heads several of which share one of another
 * operand, *few; -1 for other ops. */
static int many_heads(enum op op, int *few)
{
    bool delta = op == OP_delta_net || op == OP_delta_net_tiled ||
                 op == OP_delta_net_channels || op == OP_ssm_scan;

    *few = delta ? 0 : 1;
    return delta ? 2 : graph_is_attention(op) ? 0 : -1;
}

/* Returns true if query heads that share a KV head are divided among ranks. */
static bool cuts_heads(const struct numeric *p, const struct num_node *n,
                       int many, int few)
{
    const struct num_node *q = &p->node[n->in[many]], *k = &p->node[n->in[few]];
    int64_t heads = p->g->node[q->node].dim[1].n;
    int64_t shared = p->g->node[k->node].dim[1].n, per = heads / shared;
    bool tiled = p->g->node[n->node].op == OP_delta_net_tiled;

    for (int64_t h = 0; h < heads; h++)
        if (naive_owners(q->layout, h, p->n_rank) !=
            naive_owners(q->layout, tiled ? h % shared : h / per * per,
                         p->n_rank))
            return true;
    return false;
}

/* Returns the split of a node of the plan: a letter of its row, or one of the
 * signs of random_graph.h. */
static int letter_of(const struct numeric *p, const struct num_node *n)
{
    const struct graph_node *x = &p->g->node[n->node];
    bool moves = !strcmp(op_info(x->op)->dims, "MOVE");
    struct node_letters l;
    int few, many = many_heads(x->op, &few);

    if (n->layout->kind == PL_PARTIAL && !n->sum)
        return RANDOM_PASSES;
    if (many >= 0 && p->node[n->in[many]].layout->kind == PL_SPLIT)
        return cuts_heads(p, n, many, few) ? 'r' : 'g';
    if (!moves)
        rules_letters(p->g, x, &l);
    for (int i = 0; i < n->n_in; i++) {
        const pl_layout *in;
        int a;

        if (n->in[i] < 0)
            continue;
        in = p->node[n->in[i]].layout;
        if (in->kind != PL_SPLIT)
            continue;
        if (moves)
            return RANDOM_MOVED;
        a = l.in[i][in->dim].a;
        if (a)
            return a < N_LETTER ? a : '*';
    }
    return RANDOM_WHOLE;
}

static void count_plan(const struct numeric *p)
{
    for (int i = 0; i < p->n; i++) {
        const struct num_node *n = &p->node[i];
        enum op op = p->g->node[n->node].op;

        if (n->kind != NUM_OP || !op_info(op)->dims)
            continue;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0)
                seen[op][letter_of(p, n)][p->node[n->in[k]].kind]++;
    }
}

/* ---- running ------------------------------------------------------------- */

/* Sets the bytes of a tensor, sometimes in parts that begin and end
 * anywhere. */
static void set_bytes(struct job *j, pl_exec *x, int node, const void *data,
                      size_t size, uint64_t *seed)
{
    const unsigned char *b = data;
    size_t cut[4] = {0, size, size, size};
    int n = 1;
    pl_err err;

    if (size > 2 && test_below(seed, 4) == 0) {
        cut[1] = (size_t)test_below(seed, (int64_t)size);
        cut[2] = cut[1] + (size_t)test_below(seed, (int64_t)(size - cut[1]));
        n = 3;
    }
    /* sets the weight in parts, the last part first */
    for (int k = n - 1; k >= 0; k--)
        if (pl_tensor_set(x, node, b + cut[k], cut[k], cut[k + 1] - cut[k],
                          &err) != PL_OK)
            JOB_FAIL(j, "setting: %s", err.message);
}

static void set_all(struct job *j, pl_exec *x, int s, uint64_t *seed)
{
    for (int i = 0; i < j->r.n_node; i++) {
        const struct graph_node *n = &j->r.g->node[i];
        size_t size = 4 * (size_t)feed_count(&j->f, i, s);

        if (s == 0 && n->op == OP_weight) {
            size = feed_weight_bytes(&j->f, i);
            set_bytes(j, x, i, j->r.bytes[i], size, seed);
        }
        if (n->op == OP_input)
            set_bytes(j, x, i, j->f.input[s][i], size, seed);
    }
}

/* Checks that weights read back are the bytes that were set, whole and in
 * part. */
static void check_weights(struct job *j, pl_exec *x, uint64_t *seed)
{
    for (int i = 0; i < j->r.n_node; i++) {
        const struct graph_node *n = &j->r.g->node[i];
        size_t size, from, len;
        unsigned char *b;
        pl_err err;

        if (n->op != OP_weight)
            continue;
        size = feed_weight_bytes(&j->f, i);
        from = (size_t)test_below(seed, (int64_t)size);
        len = 1 + (size_t)test_below(seed, (int64_t)(size - from));
        if (test_below(seed, 2)) {
            from = 0;
            len = size;
        }
        b = test_need(size, 1);
        if (pl_tensor_get(x, i, b, from, len, &err) != PL_OK)
            JOB_FAIL(j, "reading a weight: %s", err.message);
        if (memcmp(b, (unsigned char *)j->r.bytes[i] + from, len))
            JOB_FAIL(j, "%s is read back changed", n->name);
        free(b);
    }
}

/* Compares with the reference; in memories only what was written. */
static void compare(struct job *j, int node, int s, const unsigned char *b,
                    const bool *written)
{
    const struct graph_node *n = &j->r.g->node[node];
    int64_t c = feed_count(&j->f, node, s);
    const double *want = j->want[s][node];
    double limit = 0;

    if (!j->r.exact && n->format != PL_I32)
        limit = 1e-6 + 3e-5 * size_of(want, c) + 30 * *j->spread[s][node];
    for (int64_t k = 0; k < c; k++) {
        double got = as_double(n, b, k);

        if (written && !written[k])
            continue;
        if (!(fabs(got - want[k]) <= limit))
            JOB_FAIL(j, "%s[%lld] of step %d is %.9g, not %.9g (+- %.2g)",
                     n->name, (long long)k, s, got, want[k], limit);
    }
}

/* Checks a memory, read as the tensor it is: slot by slot, through its
 * pages. */
static void check_memory(struct job *j, pl_exec *x, int node, int last)
{
    const struct graph_node *n = &j->r.g->node[node];
    int64_t row = n->dim[1].n * n->dim[2].n;
    int64_t n_all = feed_slots(n) * row;
    unsigned char *all = test_need((size_t)n_all, 4);
    unsigned char *mine = test_need((size_t)feed_count(&j->f, node, last), 4);
    bool *written =
        test_need((size_t)feed_count(&j->f, node, last), sizeof *written);
    pl_err err;

    if (pl_tensor_get(x, node, all, 0, 4 * (size_t)n_all, &err) != PL_OK)
        JOB_FAIL(j, "reading: %s", err.message);
    for (int s = 0; s <= last; s++)
        for (int64_t t = 0; t < j->f.rows[s].n_tok; t++) {
            int64_t from = feed_slot(&j->f, node, s, t);
            int64_t to = feed_row(&j->f, node, s, t);

            memcpy(mine + 4 * to * row, all + 4 * from * row, 4 * (size_t)row);
            for (int64_t k = 0; k < row; k++)
                written[to * row + k] = true;
        }
    compare(j, node, last, mine, written);
    free(written);
    free(mine);
    free(all);
}

/* The first run is compared with the reference, unless it uses 8-bit kernels;
 * the second with the first one's bits. */
enum mode { CHECK, CHECK_AGAIN, FAST, FAST_AGAIN };

static void read_all(struct job *j, pl_exec *x, int s, enum mode mode,
                     uint64_t *seed)
{
    for (int i = 0; i < j->r.n_node; i++) {
        const struct graph_node *n = &j->r.g->node[i];
        size_t size = 4 * (size_t)feed_count(&j->f, i, s);
        size_t from = (size_t)test_below(seed, (int64_t)size);
        size_t len = (size_t)test_below(seed, (int64_t)(size - from) + 1);
        unsigned char *b, *part;
        pl_err err;

        if (!feed_is_read(n))
            continue;
        b = test_need(size, 1);
        part = test_need(size, 1);
        if (pl_tensor_get(x, i, b, 0, size, &err) != PL_OK ||
            pl_tensor_get(x, i, part, from, len, &err) != PL_OK)
            JOB_FAIL(j, "reading: %s", err.message);
        if (memcmp(part, b + from, len))
            JOB_FAIL(j, "%s: a part reads otherwise than the whole", n->name);
        free(part);
        if (mode == CHECK)
            compare(j, i, s, b, NULL);
        if (mode == CHECK || mode == FAST) {
            free(j->got[s][i]);
            j->got[s][i] = b;
            continue;
        }
        for (size_t k = 0; k < size; k += 4)
            if (memcmp(b + k, j->got[s][i] + k, 4))
                JOB_FAIL(j, "%s[%zu] of step %d: %.9g, on other devices %.9g",
                         n->name, k / 4, s,
                         as_double(n, j->got[s][i], (int64_t)k / 4),
                         as_double(n, b, (int64_t)k / 4));
        free(b);
    }
}

/* Runs once on some devices. The second run compares bits with the first. */
static void run(struct job *j, enum mode mode, uint64_t *seed)
{
    static const char *const kernel_sets[] = {"reference", "generic", NULL};
    static const char *const kinds[] = {"cpu", "sim", "proc"};
    int n_dev = 1 + (int)test_below(seed, 4);
    double share[4];
    char dev[32];
    pl_options o = {.size = sizeof o,
                    .devices = dev,
                    .n_ranks = j->n_rank,
                    .n_threads = 1 + (test_below(seed, 4) == 0),
                    .no_pin = true,
                    .cpu = mode >= FAST ? kernel_sets[1 + j->seed % 2]
                           : j->r.quantized || j->r.exact
                               ? "reference"
                               : kernel_sets[j->seed % 3],
                    .n_ctx = FEED_N_CTX,
                    .n_ubatch = RANDOM_MAX_TOK,
                    .n_out = RANDOM_MAX_TOK,
                    .n_seq = RANDOM_N_SEQ,
                    .sim_seed = test_random(seed)};
    pl_counters c;
    pl_exec *x;
    pl_err err;

    snprintf(dev, sizeof dev, "%s*%d", kinds[test_below(seed, 3)], n_dev);
    /* half of the runs have uneven shares, perhaps with a device that gets
     * none */
    if (test_below(seed, 2)) {
        for (int d = 0; d < n_dev; d++)
            share[d] = (double)test_below(seed, 4);
        share[test_below(seed, n_dev)] += 1;
        o.tensor_split = share;
        o.n_tensor_split = n_dev;
    }
    if (pl_exec_create(&x, j->r.g, &o, &err) != PL_OK)
        JOB_FAIL(j, "%s", err.message);
    if (mode == CHECK)
        count_plan(x->plan->num);
    for (int s = 0; s < j->f.n_step; s++) {
        set_all(j, x, s, seed);
        if (s == 0)
            check_weights(j, x, seed);
        if (pl_exec_step(x, &j->f.rows[s], &err) != PL_OK)
            JOB_FAIL(j, "step %d: %s", s, err.message);
        read_all(j, x, s, mode, seed);
    }
    for (int i = 0; i < j->r.n_node; i++)
        if (mode < FAST && is_memory(&j->r.g->node[i]))
            check_memory(j, x, i, j->f.n_step - 1);
    pl_exec_counters(x, &c, sizeof c);
    assert_int_equal(c.steps, j->f.n_step);
    pl_exec_free(x);
}

/* ---- coverage ------------------------------------------------------------ */

/* Returns how often each combination of op, split and conversion must occur. */
static int64_t often(void)
{
    return test_draws(4, 100);
}

/* Returns true if the counts must be complete. The brief tier draws too few
 * graphs for that; its checks of results are the same. */
static bool counts(void)
{
    return test_draws(20, 20) == 20;
}

static int64_t seen_of(const struct random_aim *a)
{
    return seen[a->op][a->letter][a->kind];
}

/* Returns a combination that is still rare, by its index counted from 1; 0:
 * none. */
static uint64_t some_rare(uint64_t *seed)
{
    uint64_t found = 0;
    int n, rare = 0;
    const struct random_aim *list = random_aims(&n);

    for (int i = 0; i < n; i++)
        if (!list[i].never && seen_of(&list[i]) < often() &&
            test_below(seed, ++rare) == 0)
            found = (uint64_t)i + 1;
    return found;
}

static void print_one(enum op op, int letter, int kind, const char *note)
{
    print_message(
        "%s split by %c after %s: %lld times: %s\n", op_info(op)->name, letter,
        kind == NUM_OP ? "nothing" : num_kind_name((enum num_kind)kind),
        (long long)seen[op][letter][kind], note);
}

/* Prints counts, a row for each op and letter; '.' is not from the op's row,
 * "never" has its reason in random_aim.c. */
static void print_table(const struct random_aim *list, int n)
{
    print_message("%-14s %s", "op", "letter, after");
    for (int k = 0; k < NUM_KIND_COUNT; k++)
        print_message(" %13s",
                      k == NUM_OP ? "-" : num_kind_name((enum num_kind)k));
    for (int i = 0, k = NUM_KIND_COUNT; i < n; i++) {
        const struct random_aim *a = &list[i];

        if (i == 0 || a->op != a[-1].op || a->letter != a[-1].letter) {
            for (; i > 0 && k < NUM_KIND_COUNT; k++)
                print_message(" %13s", ".");
            print_message("\n%-14s %-13c", op_info(a->op)->name, a->letter);
            k = 0;
        }
        for (; k < (int)a->kind; k++)
            print_message(" %13s", ".");
        if (a->never)
            print_message(" %13s", "never");
        else
            print_message(" %13lld", (long long)seen_of(a));
        k++;
    }
    print_message("\n");
}

/* Returns true if exactly the allowed combinations occurred often enough.
 * Prints the table and the exceptions. */
static bool complete(void)
{
    static bool listed[OP_COUNT][N_LETTER][NUM_KIND_COUNT];
    int n, possible = 0, wrong = 0;
    const struct random_aim *list = random_aims(&n);
    int64_t least = INT64_MAX;

    print_table(list, n);
    for (int i = 0; i < n; i++) {
        const struct random_aim *a = &list[i];
        int64_t c = seen_of(a);

        listed[a->op][a->letter][a->kind] = true;
        possible += !a->never;
        if (!a->never && c < least)
            least = c;
        if (a->never ? c == 0 : c >= often() || !counts())
            continue;
        wrong++;
        print_one(a->op, a->letter, (int)a->kind,
                  a->never ? a->never : "wanted more often");
    }
    for (int op = 0; op < OP_COUNT; op++)
        for (int l = 0; l < N_LETTER; l++)
            for (int k = 0; k < NUM_KIND_COUNT; k++)
                if (seen[op][l][k] && !listed[op][l][k]) {
                    wrong++;
                    print_one((enum op)op, l, k, "not from its row");
                }
    print_message("%d combinations of op, letter and conversion can occur and "
                  "came up %lld times or more each; %d cannot\n",
                  possible, (long long)least, n - possible);
    return wrong == 0;
}

TEST(exec_random_graphs_equal_the_unsplit_evaluation)
{
    const int enough = test_draws(600, 20000);
    const int most = counts() ? 5 * enough : enough;
    const uint64_t low = ((uint64_t)1 << AIM_SHIFT) - 1;
    uint64_t seed = test_seed(), drawn = seed;
    int n = 0, redrawn = 0, aimed = 0;

    memset(seen, 0, sizeof seen);
    /* reading this machine's topology for each run takes longer than the run */
    assert_int_equal(setenv("HWLOC_SYNTHETIC", "core:2 pu:1", 1), 0);
    while (n < enough || (n < most && some_rare(&drawn))) {
        uint64_t other = seed ^ 0x5a5a5a5a;
        struct job j;

        if (job_make(&j, seed)) {
            run(&j, CHECK, &other);
            run(&j, CHECK_AGAIN, &other);
            if (j.r.quantized) {
                run(&j, FAST, &other);
                run(&j, FAST_AGAIN, &other);
            }
            n++;
            aimed += seed > low;
        } else {
            redrawn++;
        }
        job_free(&j);
        seed = (seed + 1) & low;
        if (seed % 2)
            seed |= some_rare(&drawn) << AIM_SHIFT;
    }
    unsetenv("HWLOC_SYNTHETIC");
    print_message("%d graphs (%d of them aimed, %d more redrawn)\n", n, aimed,
                  redrawn);
    assert_true(complete());
}

/* Graphs of cases that random graphs rarely contain. */
static const char *const corners[] = {
    /* the first rank has no addend: values that all have are added all the
     * same */
    "a: f32[n_tok, 6] = input\nb: f32[4] = weight\n"
    "w: f32[4, 6] = weight !want=split(1: 3{1} 3{2})\n"
    "v: f32[4, 6] = weight !want=split(1: 2{2} 4{1})\n"
    "d: f32[n_tok, 4] = matmul(a, w)\ne: f32[n_tok, 4] = matmul(a, v)\n"
    "s: f32[n_tok, 4] = add(d, b)\nt: f32[n_tok, 4] = add(s, e)\n"
    "y: f32[n_tok, 4] = rms_norm(t) eps=0.01 !output\n",
    /* a MIRRORED value is subtracted from a PARTIAL one, and a PARTIAL one from
     * it */
    "a: f32[n_tok, 6] = input\nb: f32[4] = weight\n"
    "w: f32[4, 6] = weight !want=split(1: 3{1} 3{2})\n"
    "v: f32[4, 6] = weight !want=split(1: 2{2} 4{1})\n"
    "d: f32[n_tok, 4] = matmul(a, w)\ne: f32[n_tok, 4] = matmul(a, v)\n"
    "s: f32[n_tok, 4] = sub(b, d)\nu: f32[n_tok, 4] = sub(e, b)\n"
    "t: f32[n_tok, 4] = sub(s, u)\n"
    "y: f32[n_tok, 4] = rms_norm(t) eps=0.01 !output\n",
    /* two sums whose addends are on different ranks */
    "a: f32[n_tok, 6] = input\n"
    "w: f32[4, 6] = weight !want=split(1: 6{2})\n"
    "v: f32[4, 6] = weight !want=split(1: 2{0} 4{1})\n"
    "d: f32[n_tok, 4] = matmul(a, w)\ne: f32[n_tok, 4] = matmul(a, v)\n"
    "s: f32[n_tok, 4] = sub(d, e)\n"
    "y: f32[n_tok, 4] = tanh(s) !output\nz: f32[n_tok, 4] = tanh(e) !output\n",
    /* a reshape or permute stands between two contractions and the sum of
     * both */
    "a: f32[n_tok, 6] = input\n"
    "w: f32[12, 6] = weight !want=split(1: 1{0} 3{1} 2{2})\n"
    "v: f32[6, 6] = weight !want=split(1: 2{2} 4{1})\n"
    "d: f32[n_tok, 12] = matmul(a, w)\n"
    "r: f32[n_tok, 3, 4] = reshape(d)\n"
    "p: f32[n_tok, 4, 3] = permute(r) perm1=2 perm2=1\n"
    "l: f32[n_tok, 2, 3] = slice(p) axis=1 start=1\n"
    "q: f32[n_tok, 6] = reshape(l)\ne: f32[n_tok, 6] = matmul(a, v)\n"
    "k: f32[n_tok, 6] = scale(e) scale=0.5\n"
    "c: f32[n_tok, 6] = contiguous(q)\n"
    "s: f32[n_tok, 6] = add(c, k)\ny: f32[n_tok, 6] = tanh(s) !output\n",
    /* a PARTIAL value is the left or the right factor, and an addend is
     * broadcast */
    "a: f32[n_tok, 6] = input\nm: f32[n_tok, 4] = input\n"
    "w: f32[4, 6] = weight !want=split(1: 1{0} 3{1} 2{2})\n"
    "v: f32[1, 6] = weight !want=split(1: 2{2} 4{1})\n"
    "d: f32[n_tok, 4] = matmul(a, w)\ne: f32[n_tok, 1] = matmul(a, v)\n"
    "f: f32[n_tok, 4] = mul(m, d)\ng: f32[n_tok, 4] = swiglu(m, f)\n"
    "s: f32[n_tok, 4] = add(e, g)\ny: f32[n_tok, 4] = tanh(s) !output\n",
    /* the weight of a norm is a sum over ranks, which has further readers */
    "a: f32[1, 6] = input\nx: f32[n_tok, 4] = input\n"
    "w: f32[4, 6] = weight !want=split(1: 1{0} 3{1} 2{2})\n"
    "v: f32[4, 4] = weight !want=split(1: 1{0} 3{2})\n"
    "d: f32[1, 4] = matmul(a, w)\nr: f32[4] = reshape(d)\n"
    "n: f32[n_tok, 4] = rms_norm(x, r) eps=0.01\n"
    "m: f32[n_tok, 4] = matmul(x, v)\n"
    "s: f32[n_tok, 4] = add(n, m)\ny: f32[n_tok, 4] = tanh(s) !output\n",
    /* a contraction of a PARTIAL by a whole weight, slots summed */
    "a: f32[n_tok, 2, 6] = input\nu: f32[n_tok, 4] = input\n"
    "w: f32[8, 6] = weight !want=split(1: 1{0} 3{1} 2{2})\n"
    "v: f32[4, 8] = weight\nz: f32[4, 4] = weight !want=split(1: 3{1} 1{2})\n"
    "d: f32[n_tok, 2, 8] = matmul(a, w)\n"
    "e: f32[n_tok, 2, 4] = matmul(d, v)\n"
    "f: f32[n_tok, 4] = sum(e)\ng: f32[n_tok, 4] = matmul(u, z)\n"
    "s: f32[n_tok, 4] = add(f, g)\ny: f32[n_tok, 4] = tanh(s) !output\n",
    /* a sum without a reader, one that is read and kept in several forms */
    "a: f32[n_tok, 6] = input\n"
    "w: f32[4, 6] = weight !want=split(1: 1{0} 3{1} 2{2})\n"
    "d: f32[n_tok, 4] = matmul(a, w)\n"
    "e: f32[n_tok, 4] = matmul(a, w) !want=split(1: 1{2} 3{0})\n"
    "f: f32[n_tok, 4] = scale(e) scale=2 !keep\n"
    "g: f32[n_tok, 4] = scale(e) scale=3 !output !want=split(1: 3{1} 1{0})\n"
    "h: f32[n_tok, 4] = scale(e) scale=4 !output !want=mirrored\n",
};

TEST(exec_corners_equal_the_unsplit_evaluation)
{
    uint64_t seed = test_seed();
    int n = 0;

    for (size_t c = 0; c < sizeof corners / sizeof *corners; c++)
        for (int k = 0; k < 8; k++) {
            struct job j = {.n_rank = 3 + k % 2, .seed = seed++};
            uint64_t s = j.seed;
            pl_err err;

            TEST_OK(random_graph_parse(&j.r, corners[c], &s, &err), err);
            if (job_fill(&j, &s)) {
                run(&j, CHECK, &s);
                run(&j, CHECK_AGAIN, &s);
                n++;
            }
            job_free(&j);
        }
    assert_true(n > 4 * (int)(sizeof corners / sizeof *corners));
}
