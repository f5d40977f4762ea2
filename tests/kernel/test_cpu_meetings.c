/* Barriers of a device's threads, pair by pair: there is one between two
 * instructions that may not run at once, and no other. */
#include "device/cpu/cpu_barriers.h"

#include "lib/support.h"

#include <string.h>

enum { N_TENSOR = 14, N_STEP = 24, MAX_RANGE = 12, MAX_ARG = 5 };

struct range {
    enum region region;
    size_t from, to;
    bool write;
};

struct plan {
    struct prog_tensor tensor[N_TENSOR];
    struct insn insn[N_STEP];
    struct merge_item item[N_STEP][2];
    struct merge_addend addend[N_STEP][2][3];
    struct copy_desc piece[N_STEP][2][3];
    /* memory ranges that each instruction accesses */
    struct range range[N_STEP][MAX_RANGE];
    int n_range[N_STEP];
    unsigned char how[N_STEP]; /* what cpu_barriers says of each instruction */
};

static void put(struct plan *p, int s, int tensor, size_t more, size_t off,
                bool write)
{
    const struct prog_tensor *t = &p->tensor[tensor];

    p->range[s][p->n_range[s]++] = (struct range){
        t->region, t->offset + off, t->offset + off + more + t->bytes, write};
}

/* Threads have scratch of their own, but those that share attention read each
 * other's. */
static void put_scratch(struct plan *p, int s, bool shared)
{
    p->range[s][p->n_range[s]++] = (struct range){REGION_COUNT, 0, 1, shared};
}

static int any(uint64_t *seed)
{
    return (int)test_below(seed, N_TENSOR);
}

static void draw_kernel(struct plan *p, int s, uint64_t *seed)
{
    static const enum kernel some[] = {KERNEL_concat, KERNEL_concat,
                                       KERNEL_quantize, KERNEL_cache_write,
                                       KERNEL_attention};
    struct insn_kernel *k = &p->insn[s].kernel;

    p->insn[s] = (struct insn){.kind = INSN_KERNEL};
    k->kernel = some[test_below(seed, 5)];
    k->n_arg = 2 + (int)test_below(seed, MAX_ARG - 1);
    k->tree = (struct rank_tree){.n = 1, .n_out = 1};
    put_scratch(p, s, k->kernel == KERNEL_attention);
    for (int i = 0; i < k->n_arg; i++) {
        int t = i < 2 || test_below(seed, 4) ? any(seed) : -1;

        k->arg[i] = (struct kernel_arg){t, i == 0 ? kernel_access(k->kernel, 0)
                                                  : ACCESS_READ};
        if (t >= 0 && i > 0)
            put(p, s, t, 0, 0, false);
    }
    /* the kernel writes the results of two subtrees */
    if (test_below(seed, 4) == 0) {
        k->tree.n_out = 2;
        k->out_stride = p->tensor[k->arg[0].tensor].bytes;
    }
    put(p, s, k->arg[0].tensor, k->out_stride, 0, true);
}

/* Draws a merge of device 0. Its reads of other devices do not concern its
 * threads. */
static void draw_merge(struct plan *p, int s, uint64_t *seed)
{
    struct insn_merge *st = &p->insn[s].merge;

    p->insn[s] = (struct insn){.kind = INSN_MERGE};
    st->n_item = 1 + (int)test_below(seed, 2);
    st->item = p->item[s];
    st->barrier = test_below(seed, 3) == 0;
    put_scratch(p, s, false);
    for (int m = 0; m < st->n_item; m++) {
        struct merge_item *it = &p->item[s][m];
        int n = 1 + (int)test_below(seed, 3);
        /* number of the device's own addends, which stand first */
        int n_own = (int)test_below(seed, n + 1);

        *it = (struct merge_item){.reduce = test_below(seed, 2),
                                  .out = any(seed)};
        put(p, s, it->out, 0, 0, true);
        for (int i = 0; i < n; i++) {
            int dev = i >= n_own, t = any(seed);
            size_t off = 64 * (size_t)test_below(seed, 2);

            if (it->reduce)
                p->addend[s][m][i] =
                    (struct merge_addend){.dev = dev, .tensor = t, .off = off};
            else
                p->piece[s][m][i] =
                    (struct copy_desc){.src_dev = dev, .src = t};
            if (dev == 0)
                put(p, s, t, 0, it->reduce ? off : 0, false);
        }
        it->n_addend = it->reduce ? n : 0;
        it->addend = p->addend[s][m];
        it->n_piece = it->reduce ? 0 : n;
        it->piece = p->piece[s][m];
    }
}

/* Draws a pull from another device, which does not concern this one's
 * threads. */
static void draw_pull(struct plan *p, int s, uint64_t *seed)
{
    struct insn *st = &p->insn[s];
    struct copy_desc *c = &p->piece[s][0][0];

    *c = (struct copy_desc){.src_dev = 1,
                            .bytes = {test_below(seed, 2) ? 64 : 1 << 20, 0},
                            .n0 = {1, 0},
                            .n1 = {1, 0}};
    *st = (struct insn){
        .kind = INSN_PULL,
        .queue = test_below(seed, 2) ? QUEUE_COPY : QUEUE_COMPUTE,
        .pull = {.out = any(seed), .n_piece = 1, .piece = c},
    };
    /* a pull in the copy queue is ordered by events instead */
    if (st->queue == QUEUE_COMPUTE)
        put(p, s, st->pull.out, 0, 0, true);
}

static void draw(struct plan *p, uint64_t *seed)
{
    memset(p, 0, sizeof *p);
    for (int t = 0; t < N_TENSOR; t++)
        p->tensor[t] = (struct prog_tensor){
            .n_dim = 2,
            .dim = {{1, PL_N_TOK}, {t % 3 ? 64 : 100000, PL_CONST}},
            .region = test_below(seed, 4)   ? REGION_WORK
                      : test_below(seed, 2) ? REGION_CACHE
                                            : REGION_WEIGHTS,
            .offset = 64 * (size_t)test_below(seed, 24),
            .bytes = 64 * (1 + (size_t)test_below(seed, 3))};
    for (int s = 0; s < N_STEP; s++)
        switch (test_below(seed, 14)) {
        case 0:
            p->insn[s] = (struct insn){.kind = test_below(seed, 2) ? INSN_POST
                                                                   : INSN_WAIT};
            break;
        case 1:
        case 2:
            draw_merge(p, s, seed);
            break;
        case 3:
            draw_pull(p, s, seed);
            break;
        default:
            draw_kernel(p, s, seed);
        }
}

static void find(struct plan *p)
{
    const struct variant variant = {
        .n_micro = 1, .n_insn = N_STEP, .insn = p->insn};

    assert_true(cpu_barriers(&variant, p->tensor, 0, p->how));
}

/* Returns true if the two instructions may not run at the same time. */
static bool clash(const struct plan *p, int a, int b)
{
    for (int i = 0; i < p->n_range[a]; i++)
        for (int k = 0; k < p->n_range[b]; k++) {
            const struct range *x = &p->range[a][i], *y = &p->range[b][k];

            if (x->region == y->region && x->region != REGION_WEIGHTS &&
                (x->write || y->write) && x->from < y->to && y->from < x->to &&
                x->from < x->to && y->from < y->to)
                return true;
        }
    return false;
}

TEST(cpu_threads_meet_between_steps_that_clash)
{
    uint64_t seed = test_seed();
    int n_trial = test_draws(5000, 50000);
    int n_meet = 0, n_free = 0;

    for (int trial = 0; trial < n_trial; trial++) {
        static struct plan p;
        /* index of the first instruction after the last barrier */
        int last = 0;

        draw(&p, &seed);
        find(&p);
        for (int s = 0; s < N_STEP; s++) {
            const struct insn *st = &p.insn[s];
            bool needed = false, meet = p.how[s] & CPU_BARRIER;
            bool fixed = st->kind == INSN_POST || insn_is_barrier(st);

            for (int k = last; k < s; k++)
                needed |= clash(&p, k, s);
            if (st->kind == INSN_WAIT || st->queue == QUEUE_COPY)
                /* threads wait for events each by itself, without a barrier */
                continue;
            if (st->kind == INSN_POST)
                /* devices that wait for the POST rely on the instructions
                 * before it */
                assert_true(meet);
            else if (fixed)
                assert_false(meet); /* the instruction is a barrier itself */
            else
                assert_int_equal(meet, needed);
            if (fixed || meet)
                last = s;
            n_meet += meet && !fixed;
            n_free += !meet && !fixed;
        }
    }
    assert_true(n_meet > n_trial && n_free > n_trial);
}

static const struct graph_sizes one = {1, 1, 1, {0}};

/* Returns true if all threads reach a barrier before an instruction of first +
 * 1 to last, in a step of a single token. */
static bool all_meet(const struct plan *p, int first, int last,
                     const struct graph_sizes *z)
{
    for (int k = first + 1; k <= last; k++)
        if (insn_enabled(&p->insn[k], 1, z) &&
            ((p->how[k] & CPU_BARRIER_DECODE) ||
             (insn_is_barrier(&p->insn[k]) && !(p->how[k] & CPU_FIRST_THREAD))))
            return true;
    return false;
}

/* Returns true if instructions i and j need a barrier between them, in a step
 * of a single token. */
static bool must_meet(const struct plan *p, int i, int j)
{
    const struct insn *a = &p->insn[i], *b = &p->insn[j];
    bool a_alone = p->how[i] & CPU_FIRST_THREAD,
         b_alone = p->how[j] & CPU_FIRST_THREAD;
    bool worked = !insn_is_event(a), works = !insn_is_event(b);
    bool tells = b->kind == INSN_POST || insn_is_barrier(b);

    return (worked && works && clash(p, i, j) && !(a_alone && b_alone)) ||
           (tells && worked && !a_alone) ||
           (insn_is_barrier(a) && a_alone && works && !b_alone);
}

/* Returns the tensor whose values measure a kernel's work: its result, or what
 * it writes there. */
static int most_of(const struct insn_kernel *k)
{
    return k->arg[k->arg[0].access == ACCESS_UPDATE].tensor;
}

/* The first thread executes small instructions alone, in order. All other
 * conflicts have a barrier between. Before a POST or a barrier with peers, all
 * work is complete. After the first thread alone has met peers, no thread
 * starts a shared instruction without a barrier. */
TEST(cpu_threads_meet_seldom_for_a_single_token)
{
    uint64_t seed = test_seed() + 1;
    int n_trial = test_draws(5000, 50000);
    int n_all = 0, n_one = 0, n_alone = 0;

    for (int trial = 0; trial < n_trial; trial++) {
        static struct plan p;

        draw(&p, &seed);
        find(&p);
        for (int j = 0; j < N_STEP; j++) {
            const struct insn *b = &p.insn[j];
            bool works = !insn_is_event(b),
                 b_alone = p.how[j] & CPU_FIRST_THREAD;

            if (b_alone)
                assert_true(works && b->queue == QUEUE_COMPUTE);
            if (b_alone && b->kind == INSN_KERNEL)
                assert_true(most_of(&b->kernel) % 3 != 0);
            n_alone += b_alone;
            n_all += (p.how[j] & CPU_BARRIER) || insn_is_barrier(b);
            n_one += (p.how[j] & CPU_BARRIER_DECODE) ||
                     (insn_is_barrier(b) && !b_alone);
            for (int i = 0; i < j; i++)
                if (must_meet(&p, i, j) && !all_meet(&p, i, j, &one))
                    fail_msg("trial %d: steps %d and %d", trial, i, j);
        }
    }
    assert_true(n_alone > n_trial && n_one > n_trial && n_one < n_all);
}

static void guard_some(struct plan *p, uint64_t *seed)
{
    static const struct {
        bool out;
        int64_t least, most;
    } guard[] = {{false, 0, 1},
                 {false, 2, INT64_MAX},
                 {true, 0, 1},
                 {true, 1, INT64_MAX},
                 {true, 2, INT64_MAX}};

    for (int s = 0; s < N_STEP; s++) {
        int k = (int)test_below(seed, 15);

        if (k >= 5)
            continue;
        p->insn[s].pred_out = guard[k].out;
        p->insn[s].min_rows = guard[k].least;
        p->insn[s].max_rows = guard[k].most;
    }
}

/* Returns true if there is a barrier before an instruction of first + 1 to
 * last, in a larger step. */
static bool meet_in(const struct plan *p, int first, int last,
                    const struct graph_sizes *z)
{
    for (int k = first + 1; k <= last; k++)
        if (insn_enabled(&p->insn[k], 1, z) &&
            ((p->how[k] & CPU_BARRIER) || insn_is_barrier(&p->insn[k])))
            return true;
    return false;
}

/* A step that skips an instruction skips its barrier too. */
TEST(cpu_threads_meet_whatever_a_run_passes_over)
{
    static const struct graph_sizes size[] = {{1, 1, 1, {0}},
                                              {1, 0, 1, {0}},
                                              {2, 0, 1, {0}},
                                              {2, 1, 1, {0}},
                                              {2, 2, 1, {0}}};
    uint64_t seed = test_seed() + 2;
    int n_trial = test_draws(5000, 50000);

    for (int trial = 0; trial < n_trial; trial++) {
        const struct graph_sizes *z = &size[trial % 5];
        static struct plan p;

        draw(&p, &seed);
        guard_some(&p, &seed);
        find(&p);
        for (int j = 0; j < N_STEP; j++)
            for (int i = 0; i < j; i++) {
                if (!insn_enabled(&p.insn[i], 1, z) ||
                    !insn_enabled(&p.insn[j], 1, z))
                    continue;
                if (z->n_tok == 1
                        ? must_meet(&p, i, j) && !all_meet(&p, i, j, z)
                        : clash(&p, i, j) && !meet_in(&p, i, j, z))
                    fail_msg("trial %d: steps %d and %d", trial, i, j);
            }
    }
}

/* Instructions that no step of a single token executes change nothing in one:
 * the others are executed alone, or have barriers, as if these did not
 * exist. */
TEST(cpu_threads_of_a_single_token_know_no_steps_of_many)
{
    uint64_t seed = test_seed() + 3;
    int n_trial = test_draws(5000, 50000);

    for (int trial = 0; trial < n_trial; trial++) {
        static struct plan all, single;
        struct variant some = {.n_micro = 1, .insn = single.insn};

        draw(&all, &seed);
        for (int s = 0; s < N_STEP; s++) {
            if (test_below(&seed, 4) == 0) {
                all.insn[s].min_rows = 2;
                all.insn[s].max_rows = INT64_MAX;
            } else {
                single.insn[some.n_insn++] = all.insn[s];
            }
        }
        find(&all);
        assert_true(cpu_barriers(&some, all.tensor, 0, single.how));
        for (int s = 0, k = 0; s < N_STEP; s++)
            if (all.insn[s].min_rows < 2)
                assert_int_equal(
                    all.how[s] & (CPU_FIRST_THREAD | CPU_BARRIER_DECODE),
                    single.how[k++] & (CPU_FIRST_THREAD | CPU_BARRIER_DECODE));
    }
}

/* Accesses are compared only as far as a table has space. The values of a long
 * collective count even if the device has no addend of its own. */
TEST(cpu_threads_meet_around_a_message_of_many_values)
{
    enum { N = 2000 };
    static struct merge_item item[N];
    struct prog_tensor t[2] = {{.region = REGION_WORK, .bytes = 64},
                               {.region = REGION_CACHE, .bytes = 64}};
    struct merge_addend others = {.dev = 1};
    const struct insn_kernel kernel = {
        .kernel = KERNEL_scale,
        .n_arg = 1,
        .arg = {{0, ACCESS_WRITE}},
    };

    for (int n = 480; n <= N; n = n < 540 ? n + 1 : n + 1460) {
        const struct insn insn[3] = {
            {.kind = INSN_KERNEL, .kernel = kernel},
            {.kind = INSN_MERGE, .merge = {.n_item = n, .item = item}},
            {.kind = INSN_KERNEL, .kernel = kernel},
        };
        const struct variant variant = {
            .n_micro = 1, .n_insn = 3, .insn = insn};
        unsigned char how[3];

        for (int i = 0; i < n; i++)
            item[i] = (struct merge_item){
                .reduce = true, .n_addend = 1, .addend = &others};
        assert_true(cpu_barriers(&variant, t, 0, how));
        assert_false(how[0] & CPU_BARRIER);
        assert_true((how[1] & CPU_BARRIER) && (how[2] & CPU_BARRIER));
    }
}
