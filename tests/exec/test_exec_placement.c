/* Random graphs with random placements give every bit that one device gives.
 *
 * Each weight and cache gets a home group and each node a group, regardless of
 * cost or of what a model would do. Groups are any devices, also overlapping
 * ones, with any share of the ranks. A placement has three variants: a resident
 * one, a pipeline of several micro-batches, and a second resident one placed
 * otherwise (as streaming is). Steps have any number of micro-batches. Only the
 * numeric plan decides bits, so results and caches equal those of one device in
 * every variant. The programs' text parses into the same programs.
 *
 * Two constraints hold. Writes into a cache are in its home group, and sums in
 * that of their addends. In a pipeline attention is in its cache's home group;
 * otherwise it is never in another group that shares a device with that.
 *
 * PLAIT_SEED=number begins with that graph and placement. */
#include "exec/exec.h"
#include "lib/program_same.h"
#include "lib/random_feed.h"
#include "lib/support.h"

#include "base/err.h"
#include "quant/format.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_GROUP = 6, MAX_DEV = 8 };

struct job {
    struct random_graph r;
    struct random_feed f;
    int n_rank;
    /* [n_node] outputs of each step on one device, owned */
    unsigned char **want[FEED_MAX_STEP];
    /* [n_node] contents of caches after the last step on one device, owned */
    unsigned char **cache;
    const char *kernels;
    uint64_t seed; /* number from which the graph was drawn */
};

/* The thread sanitizer does not see that another process has waited. Two
 * threads of this process that write into its inbox one after the other, "io"
 * and the host, look like a race. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TWO_PROC   "cpu*2"
#define MIXED_PROC "cpu,sim"
#endif
#endif
#ifndef MIXED_PROC
#define TWO_PROC   "proc*2"
#define MIXED_PROC "cpu,sim,proc"
#endif

static void show_placement(const struct compiled *p)
{
    const struct lowered *l = p->low;

    for (int g = 0; l && g < l->n_group; g++) {
        print_message("group %d:", g);
        for (int u = l->group[g].first; u < l->group[g].first + l->group[g].n;
             u++)
            print_message(" %s (ranks %d+%d)",
                          p->list.dev[l->shard[u].dev].name, l->shard[u].rank0,
                          l->shard[u].n_rank);
        print_message("\n");
    }
    for (int i = 0; l && i < p->num->n; i++) {
        print_message("%3d %-13s %-24s", i, num_kind_name(p->num->node[i].kind),
                      p->g->node[p->num->node[i].node].name);
        for (int k = 0; k < l->n_variant; k++)
            print_message(" %d", l->variant[k].at[i]);
        print_message("\n");
    }
}

#define JOB_FAIL(j, p, ...)                                                    \
    do {                                                                       \
        feed_show(&(j)->r, (j)->seed, (j)->n_rank);                            \
        if (p)                                                                 \
            show_placement(p);                                                 \
        fail_msg(__VA_ARGS__);                                                 \
    } while (0)

static size_t slot_bytes(const struct graph_node *n)
{
    return (size_t)n->dim[1].n * format_row_bytes(n->format, n->dim[2].n);
}

/* ---- data ---------------------------------------------------------------- */

static void job_make(struct job *j, uint64_t seed)
{
    static const char *const kernels[] = {"reference", "generic", NULL};
    uint64_t s = seed;

    memset(j, 0, sizeof *j);
    j->seed = seed;
    j->n_rank = 1 + (int)test_below(&s, 8);
    j->kernels = kernels[test_below(&s, 3)];
    random_graph_make(&j->r, j->n_rank, NULL, &s);
    feed_make(&j->f, &j->r, FEED_MAX_STEP, &s);
    j->cache = test_need((size_t)j->r.n_node, sizeof *j->cache);
    for (int k = 0; k < j->f.n_step; k++)
        j->want[k] = test_need((size_t)j->r.n_node, sizeof **j->want);
}

static void job_free(struct job *j)
{
    for (int s = 0; s < j->f.n_step; s++)
        feed_table_free(&j->r, j->want[s]);
    feed_table_free(&j->r, j->cache);
    feed_free(&j->f);
    random_graph_free(&j->r);
}

/* ---- placements ---------------------------------------------------------- */

struct groups {
    struct lower_group group[MAX_GROUP];
    struct lower_shard unit[MAX_GROUP * MAX_DEV];
    int n_group, n_unit;
};

/* Makes a group of some devices; each carries ranks in order. */
static void draw_group(struct groups *o, const int *dev, int n, int n_rank,
                       uint64_t *seed)
{
    struct lower_group *g = &o->group[o->n_group];
    int at = 0;

    *g = (struct lower_group){o->n_unit, 0};
    for (int k = 0; k < n && at < n_rank; k++) {
        int m = (int)test_below(seed, n_rank - at + 1);

        if (k + 1 == n)
            m = n_rank - at;
        if (m == 0)
            continue;
        o->unit[o->n_unit++] =
            (struct lower_shard){o->n_group, dev[k], at, m, ranks_all(m) << at};
        g->n++;
        at += m;
    }
    o->n_group++;
}

static void draw_groups(struct groups *o, const struct device_list *l,
                        int n_rank, uint64_t *seed)
{
    int host[MAX_DEV], n_host = 0, n = 1 + (int)test_below(seed, MAX_GROUP - 1);

    memset(o, 0, sizeof *o);
    for (int d = 0; d < l->n; d++)
        if (l->dev[d].host && !l->dev[d].io)
            host[n_host++] = d;
    for (int k = 0; k < n; k++) {
        int dev[MAX_DEV], m = 0;

        while (m == 0)
            for (int d = 0; d < l->n; d++)
                if (!l->dev[d].host && test_below(seed, 2))
                    dev[m++] = d;
        draw_group(o, dev, m, n_rank, seed);
    }
    if (n_host)
        draw_group(o, host, n_host, n_rank, seed);
}

/* Returns the memory that a node of the plan is or writes, or -1. */
static int written_by(const pl_graph *g, const struct num_node *n)
{
    int up = op_info(g->node[n->node].op)->updates;

    if (n->kind != NUM_OP)
        return -1;
    return graph_memory(g, up < 0 ? n->node : g->node[n->node].in[up]);
}

static bool overlap(const struct groups *o, int a, int b)
{
    for (int i = 0; i < o->n_unit; i++)
        for (int k = 0; k < o->n_unit; k++)
            if (o->unit[i].group == a && o->unit[k].group == b &&
                o->unit[i].dev == o->unit[k].dev)
                return true;
    return false;
}

/* Draws a group for each node; stay_home: that of a weight that it reads. An op
 * that writes a memory is in its home group. So is one that reads a cache in a
 * pipeline, or if the two groups share a device. Returns false if two caches
 * disagree on that. */
static bool draw_at(const struct compiled *p, const int *home,
                    const struct groups *o, bool pipeline, bool stay_home,
                    int *at, uint64_t *seed)
{
    int64_t stay = 1 + test_below(seed, 8);
    int last = (int)test_below(seed, o->n_group);

    for (int i = 0; i < p->num->n; i++) {
        const struct num_node *n = &p->num->node[i];
        const struct graph_node *x = &p->g->node[n->node];
        int cache = written_by(p->g, n);

        if (test_below(seed, stay) == 0)
            last = (int)test_below(seed, o->n_group);
        at[i] = last;
        if (x->op == OP_weight || cache >= 0)
            at[i] = home[cache >= 0 ? cache : n->node];
        else if (n->kind == NUM_ALL_REDUCE || n->kind == NUM_REDUCE_SCATTER)
            at[i] = at[n->in[0]];
        for (int k = 0; stay_home && n->kind == NUM_OP && k < n->n_in; k++)
            if (n->in[k] >= 0 && cache < 0 &&
                p->g->node[p->num->node[n->in[k]].node].op == OP_weight)
                at[i] = home[p->num->node[n->in[k]].node];
        for (int k = 0; n->kind == NUM_OP && k < n->n_in && cache < 0; k++) {
            int c = n->in[k] < 0
                        ? -1
                        : graph_memory(p->g, p->num->node[n->in[k]].node);

            if (c >= 0 && (pipeline || overlap(o, at[i], home[c])))
                at[i] = home[c];
        }
        for (int k = 0; n->kind == NUM_OP && k < n->n_in && cache < 0; k++) {
            int c = n->in[k] < 0
                        ? -1
                        : graph_memory(p->g, p->num->node[n->in[k]].node);

            if (c >= 0 && at[i] != home[c] &&
                (pipeline || overlap(o, at[i], home[c])))
                return false;
        }
    }
    return true;
}

/* Replaces p's programs by those of a random placement. stay_home: only ops
 * with several weights read some of them from elsewhere. */
static pl_status replace(struct compiled *p, bool stay_home, uint64_t *seed,
                         pl_err *err)
{
    static struct lower_device dev[MAX_DEV];
    struct groups o;
    size_t n = (size_t)p->num->n;
    int *at[3] = {test_need(n, sizeof(int)), test_need(n, sizeof(int)),
                  test_need(n, sizeof(int))};
    int *home = test_need((size_t)p->g->n_node, sizeof *home);
    int *of = test_need(n, sizeof *of);
    bool piped = false, together = test_below(seed, 2);
    struct lower_variant script[3];
    pl_status s;

    assert_in_range(p->list.n, 1, MAX_DEV);
    draw_groups(&o, &p->list, p->num->n_rank, seed);
    do {
        for (int i = 0; i < p->g->n_node; i++) {
            home[i] = (int)test_below(seed, o.n_group);
            if (together && p->g->node[i].op == OP_memory)
                home[i] = o.n_group - 1;
        }
        /* if this draw fails, the next one keeps all caches together */
        together = true;
    } while (!draw_at(p, home, &o, false, stay_home, at[1], seed) ||
             !draw_at(p, home, &o, false, stay_home, at[2], seed));
    piped = draw_at(p, home, &o, true, stay_home, at[0], seed);
    for (size_t i = 0; i < n; i++)
        of[i] = home[p->num->node[i].node];
    for (int d = 0; d < p->list.n; d++)
        dev[d] = compiled_device(p, d);
    script[0] = (struct lower_variant){1, at[1]};
    script[1] = (struct lower_variant){1, at[2]};
    script[2] = (struct lower_variant){
        2 + (int)test_below(seed, FEED_MAX_STEP - 1), at[0]};
    lowered_free(p->low);
    p->low = NULL;
    s = lower(&p->low, p->num,
              &(struct lower_options){.n_dev = p->list.n,
                                      .n_group = o.n_group,
                                      .n_shard = o.n_unit,
                                      .n_variant = piped ? 3 : 2,
                                      .group = o.group,
                                      .shard = o.unit,
                                      .home = of,
                                      .variant = script,
                                      .dev = dev,
                                      .max = p->max,
                                      .page_stride = p->page_stride},
              err);
    p->variant[VARIANT_RESIDENT] = 0;
    p->variant[VARIANT_STREAMED] = 1;
    p->variant[VARIANT_PIPELINED] = piped ? 2 : -1;
    p->variants.n_micro[VARIANT_STREAMED] = 1;
    p->variants.stream_from = 1 + test_below(seed, RANDOM_MAX_TOK + 1);
    free(at[0]);
    free(at[1]);
    free(at[2]);
    free(home);
    free(of);
    return s;
}

/* ---- reads of the copy queue --------------------------------------------- */

enum { MAX_USE = 512 };

/* Bytes of the device's own work region that an instruction accesses in one
 * way. */
struct touch {
    const struct program *p;
    enum access access;
    int n;
    size_t from[MAX_USE], to[MAX_USE];
};

static void add_touch(void *user, const struct insn_access *u)
{
    struct touch *x = user;
    const struct prog_tensor *t = &x->p->tensor[u->tensor];

    if (u->dev != x->p->dev || t->region != REGION_WORK ||
        !(u->access & x->access))
        return;
    assert_in_range(x->n, 0, MAX_USE - 1);
    x->from[x->n] = t->offset + u->off;
    x->to[x->n] = x->from[x->n] + (u->bytes ? u->bytes : t->bytes);
    x->n++;
}

static bool meets_touch(const struct touch *a, const struct touch *b)
{
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if (a->from[i] < b->to[k] && b->from[k] < a->to[i])
                return true;
    return false;
}

/* Returns true if the compute queue knows at instruction `at` that the copy
 * queue has finished instruction `copy`. */
static bool is_told(const struct program *p, const struct variant *x, int copy,
                    int at)
{
    for (int w = copy + 1; w < at; w++) {
        const struct insn *wait = &x->insn[w];

        if (wait->kind != INSN_WAIT || wait->queue != QUEUE_COMPUTE ||
            wait->event.dev != p->dev ||
            (wait->micro > x->insn[at].micro &&
             wait->micro > x->insn[copy].micro))
            /* a step may execute both instructions and skip this one */
            continue;
        for (int i = copy + 1; i < w; i++)
            if (x->insn[i].kind == INSN_POST &&
                x->insn[i].queue == QUEUE_COPY &&
                x->insn[i].event.event == wait->event.event)
                return true;
    }
    return false;
}

/* Checks that data read by the copy queue is not overwritten before that. A
 * step shows it only if the copy is late enough. */
static void copies_are_read(struct job *j, const struct compiled *p,
                            int *n_copy)
{
    static struct touch from, to;

    for (int d = 0; d < p->list.n; d++)
        for (int k = 0; k < p->low->n_variant && !p->list.dev[d].one_queue;
             k++) {
            const struct program *g = &p->low->prog[d];
            const struct variant *x = &g->variant[k];

            for (int i = 0; i < x->n_insn; i++) {
                if (x->insn[i].queue != QUEUE_COPY)
                    continue;
                from = (struct touch){.p = g, .access = ACCESS_READ};
                insn_accesses(&x->insn[i], d, g->tensor, add_touch, &from);
                *n_copy += from.n > 0;
                for (int m = i + 1; m < x->n_insn && from.n > 0; m++) {
                    if (x->insn[m].queue != QUEUE_COMPUTE)
                        continue;
                    to = (struct touch){.p = g, .access = ACCESS_WRITE};
                    insn_accesses(&x->insn[m], d, g->tensor, add_touch, &to);
                    if (meets_touch(&from, &to) && !is_told(g, x, i, m))
                        JOB_FAIL(j, p,
                                 "%s, variant %d: step %d writes what step %d "
                                 "may still read",
                                 p->list.dev[d].name, k, m, i);
                }
            }
        }
}

/* Checks that no queue waits twice in a row for the same event of its device's
 * other queue. */
static void waits_are_new(struct job *j, const struct compiled *p)
{
    for (int d = 0; d < p->list.n; d++)
        for (int k = 0; k < p->low->n_variant; k++) {
            const struct variant *x = &p->low->prog[d].variant[k];
            const struct insn *last[QUEUE_COUNT] = {NULL};

            for (int i = 0; i < x->n_insn; i++) {
                const struct insn *s = &x->insn[i], *t = last[s->queue];

                if (t && t->kind == INSN_WAIT && s->kind == INSN_WAIT &&
                    t->event.dev == d && s->event.dev == d &&
                    t->event.event == s->event.event && t->micro == s->micro)
                    JOB_FAIL(j, p, "%s, variant %d: step %d waits once more",
                             p->list.dev[d].name, k, i);
                last[s->queue] = s;
            }
        }
}

/* ---- steps --------------------------------------------------------------- */

static void set_inputs(struct job *j, pl_exec *x, int s, int micro)
{
    pl_err err;

    for (int i = 0; i < j->r.n_node; i++)
        if (j->r.g->node[i].op == OP_input &&
            exec_set_input(x, micro, i, j->f.input[s][i], 0,
                           4 * (size_t)feed_count(&j->f, i, s), &err) != PL_OK)
            JOB_FAIL(j, x->plan, "setting: %s", err.message);
}

static void set_weights(struct job *j, pl_exec *x)
{
    pl_err err;

    for (int i = 0; i < j->r.n_node; i++)
        if (j->r.g->node[i].op == OP_weight &&
            pl_tensor_set(x, i, j->r.bytes[i], 0, feed_weight_bytes(&j->f, i),
                          &err) != PL_OK)
            JOB_FAIL(j, x->plan, "setting: %s", err.message);
}

static void check_weights(struct job *j, pl_exec *x)
{
    for (int i = 0; i < j->r.n_node; i++) {
        unsigned char *b;
        pl_err err;

        if (j->r.g->node[i].op != OP_weight)
            continue;
        b = test_need(feed_weight_bytes(&j->f, i), 1);
        if (pl_tensor_get(x, i, b, 0, feed_weight_bytes(&j->f, i), &err) !=
            PL_OK)
            JOB_FAIL(j, x->plan, "reading: %s", err.message);
        if (memcmp(b, j->r.bytes[i], feed_weight_bytes(&j->f, i)))
            JOB_FAIL(j, x->plan, "%s is read back changed",
                     j->r.g->node[i].name);
        free(b);
    }
}

/* Keeps the results of the first execution, and compares the others with
 * them. */
static void read_outputs(struct job *j, pl_exec *x, int s, int micro,
                         bool first)
{
    for (int i = 0; i < j->r.n_node; i++) {
        const struct graph_node *n = &j->r.g->node[i];
        size_t size = 4 * (size_t)feed_count(&j->f, i, s);
        unsigned char *b;
        pl_err err;

        if (!feed_is_read(n))
            continue;
        b = test_need(size, 1);
        if (exec_get_output(x, micro, i, b, 0, size, &err) != PL_OK)
            JOB_FAIL(j, x->plan, "reading: %s", err.message);
        if (first) {
            j->want[s][i] = b;
            continue;
        }
        for (size_t k = 0; k < size; k += 4)
            if (memcmp(b + k, j->want[s][i] + k, 4)) {
                float is, want;

                memcpy(&is, b + k, 4);
                memcpy(&want, j->want[s][i] + k, 4);
                JOB_FAIL(j, x->plan,
                         "%s[%zu] of step %d (micro-batch %d, variant %d): "
                         "%.9g, on one device %.9g",
                         n->name, k / 4, s, micro, x->last_variant, (double)is,
                         (double)want);
            }
        free(b);
    }
}

static void read_caches(struct job *j, pl_exec *x, bool first)
{
    for (int i = 0; i < j->r.n_node; i++) {
        const struct graph_node *n = &j->r.g->node[i];
        size_t row = slot_bytes(n);
        unsigned char *b;
        pl_err err;

        if (n->op != OP_memory)
            continue;
        b = test_need((size_t)feed_slots(n), row);
        if (pl_tensor_get(x, i, b, 0, (size_t)feed_slots(n) * row, &err) !=
            PL_OK)
            JOB_FAIL(j, x->plan, "reading: %s", err.message);
        if (first) {
            j->cache[i] = b;
            continue;
        }
        for (int s = 0; s < j->f.n_step; s++)
            for (int64_t t = 0; t < j->f.rows[s].n_tok; t++) {
                size_t at = (size_t)feed_slot(&j->f, i, s, t) * row;

                if (memcmp(b + at, j->cache[i] + at, row))
                    JOB_FAIL(j, x->plan, "%s, position %d differs", n->name,
                             (int)j->f.pos[s][t]);
            }
        free(b);
    }
}

static pl_options options(const struct job *j, const char *devices)
{
    return (pl_options){.size = sizeof(pl_options),
                        .devices = devices,
                        .n_ranks = j->n_rank,
                        .n_threads = 1,
                        .no_pin = true,
                        .no_fit = true,
                        .split_mode = PL_SPLIT_NONE,
                        .cpu = j->kernels,
                        .n_ctx = FEED_N_CTX,
                        .n_ubatch = RANDOM_MAX_TOK,
                        .n_out = RANDOM_MAX_TOK,
                        .n_seq = RANDOM_N_SEQ};
}

/* Executes the job's steps with up to `most` micro-batches each, and compares
 * the results with `want`. */
static void run_steps(struct job *j, pl_exec *x, int most, bool first,
                      uint64_t *seed)
{
    pl_err err;

    for (int s = 0, n; s < j->f.n_step; s += n) {
        n = 1 + (int)test_below(seed, most);
        if (n > j->f.n_step - s)
            n = j->f.n_step - s;
        for (int k = 0; k < n; k++)
            set_inputs(j, x, s + k, k);
        if (exec_run_micro_batches(x, n, &j->f.rows[s], &err) != PL_OK)
            JOB_FAIL(j, x->plan, "step %d: %s", s, err.message);
        for (int k = 0; k < n; k++)
            read_outputs(j, x, s + k, k, first);
    }
    read_caches(j, x, first);
}

static void run_alone(struct job *j, uint64_t *seed)
{
    pl_options o = options(j, "cpu");
    pl_exec *x;
    pl_err err;

    if (pl_exec_create(&x, j->r.g, &o, &err) != PL_OK)
        JOB_FAIL(j, NULL, "%s", err.message);
    set_weights(j, x);
    run_steps(j, x, 1, true, seed);
    pl_exec_free(x);
}

/* Makes a placement and checks its programs before they run. Returns NULL if a
 * weight cannot be read away from home. */
static struct compiled *placed(struct job *j, bool stay_home, pl_options *o,
                               int *n_copy, uint64_t *seed)
{
    static const char *const devices[] = {
        "cpu*3",       "sim*3",     "cpu*2,sim*2", "sim*4",
        "cpu,sim",     "cpu*2",     "cpu*4",       "sim:16GB/s:10us*2",
        "sim*2,cpu*1", "cpu,sim*2", TWO_PROC,      MIXED_PROC};
    struct compiled *p;
    pl_err err;
    pl_status s;

    *o = options(j, devices[test_below(seed, 12)]);
    o->sim_seed = test_random(seed);
    o->n_threads = 1 + (test_below(seed, 4) == 0);
    if (test_below(seed, 2))
        /* no layer is on a device, so the host computes */
        o->device_layers = "0";
    if (compile_graph(&p, j->r.g, o, &err) != PL_OK)
        JOB_FAIL(j, NULL, "%s", err.message);
    s = replace(p, stay_home, seed, &err);
    if (s == PL_UNSUPPORTED) {
        compiled_free(p);
        return NULL;
    }
    if (s != PL_OK)
        JOB_FAIL(j, NULL, "%s", err.message);
    program_reads_back(p->low->prog, p->low->n_dev);
    copies_are_read(j, p, n_copy);
    waits_are_new(j, p);
    return p;
}

/* Returns false if a weight cannot be read away from home. */
static bool run_placed(struct job *j, bool stay_home, int *n_copy,
                       uint64_t *seed)
{
    pl_options o;
    struct compiled *p = placed(j, stay_home, &o, n_copy, seed);
    pl_exec *x;
    pl_err err;
    pl_status s;

    if (!p)
        return false;
    if (test_below(seed, 4) == 0)
        setenv("PL_DEBUG", "guard", 1);
    s = exec_create(&x, p, &o, &err);
    unsetenv("PL_DEBUG");
    if (s != PL_OK)
        JOB_FAIL(j, p, "%s", err.message);
    set_weights(j, x);
    check_weights(j, x);
    run_steps(j, x, p->variant[VARIANT_PIPELINED] < 0 ? 1 : exec_n_micro(x),
              false, seed);
    check_weights(j, x);
    exec_free(x);
    compiled_free(p);
    return true;
}

TEST(exec_random_placements_equal_one_device)
{
    /* further placements of each graph that are planned and checked, but not
     * run */
    enum { N_SEEN = 10 };
    const int enough = test_draws(120, 20000);
    uint64_t seed = test_seed();
    int refused = 0, again = 0, n_copy = 0;

    assert_int_equal(setenv("HWLOC_SYNTHETIC", "core:2 pu:1", 1), 0);
    for (int n = 0; n < enough; n++, seed++) {
        uint64_t other = seed ^ 0x5a5a5a5a;
        struct job j;

        job_make(&j, seed);
        run_alone(&j, &other);
        for (int k = 0; k < 2; k++)
            if (!run_placed(&j, false, &n_copy, &other)) {
                refused++;
                again += !run_placed(&j, true, &n_copy, &other);
            }
        for (int k = 0; k < N_SEEN; k++) {
            pl_options o;

            compiled_free(placed(&j, true, &o, &n_copy, &other));
        }
        job_free(&j);
    }
    unsetenv("HWLOC_SYNTHETIC");
    print_message("%d placements agree, %d of them with every weight read at "
                  "home since one cannot be streamed; %d copies read buffers\n",
                  2 * enough - again, refused - again, n_copy);
    assert_in_range(again, 0, enough / 50);
}
