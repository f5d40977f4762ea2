/* Several micro-batches in one step. A pipeline over the groups of a model's
 * layers gives each the bits that it has alone on one device, for every number
 * of micro-batches and any sizes, whatever transports move its values, and on
 * several machines too. */
#include "device/device_ops.h"
#include "exec/exec.h"
#include "lib/pair_network.h"
#include "lib/place_model.h"
#include "lib/support.h"
#include "lower/transfers.h"

#include "quant/format.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    N_LAYER = 6,
    MOST = 8, /* greatest number of micro-batches */
    MAX_TOK = 9,
    WORDS = 256,
    N_CTX = 256,
    PAGES = N_CTX / 64,
    N_SEQ = 2,
};

static const struct {
    const char *devices;
    pl_split_mode mode;
    int hybrid_size;
    const char *experts, *layers;
    bool cache;
} splits[] = {
    {"cpu*2", PL_SPLIT_LAYER, 0, NULL, NULL, false},
    {"cpu*3", PL_SPLIT_LAYER, 0, "1", NULL, false},
    {"sim*2", PL_SPLIT_LAYER, 0, NULL, NULL, false},
    {"sim*3", PL_SPLIT_LAYER, 0, "all", NULL, false},
    /* each device has a thread of its own */
    {"sim:8GB/s*3", PL_SPLIT_LAYER, 0, "all", NULL, false},
    {"cpu,sim", PL_SPLIT_LAYER, 0, NULL, NULL, true},
    {"cpu*4", PL_SPLIT_HYBRID, 2, NULL, NULL, false},
    {"sim*4", PL_SPLIT_HYBRID, 2, "2", NULL, false},
    {"cpu*2,sim*2", PL_SPLIT_HYBRID, 2, NULL, NULL, false},
    {"sim*3", PL_SPLIT_HYBRID, 2, NULL, NULL, true},
    /* experts of layers 0 to 2 are on the host */
    {"sim*2", PL_SPLIT_TENSOR, 0, NULL, "3", false},
    {"cpu*2", PL_SPLIT_TENSOR, 0, "all", NULL, false},
    {"sim", PL_SPLIT_NONE, 0, NULL, "4", false},
};

struct batch {
    int64_t n, n_out;
    int32_t token[MAX_TOK], pos[MAX_TOK], seq[MAX_TOK], out[MAX_TOK];
    float logits[MAX_TOK * WORDS], middle[MAX_TOK * 128];
};

struct graph {
    pl_graph *g;
    pl_tensor tokens, pos, out_ids, logits, middle;
    void **bytes; /* [n_node] data of the weights, owned */
};

static size_t weight_bytes(const struct graph_node *n)
{
    const struct graph_sizes one = {1, 1, 1, {1}};
    int64_t row = n->dim[n->n_dim - 1].n;

    return format_row_bytes(n->format, row) *
           (size_t)(graph_count(n, &one) / row);
}

static void make(struct graph *y, uint64_t *seed)
{
    y->g = place_model(N_LAYER);
    assert_non_null(y->g);
    y->tokens = pl_tensor_find(y->g, "tokens");
    y->pos = pl_tensor_find(y->g, "pos");
    y->out_ids = pl_tensor_find(y->g, "out_ids");
    y->logits = y->g->n_node - 1;
    y->middle = pl_tensor_find(y->g, "l_out.3");
    assert_true(y->g->node[y->logits].output && y->middle >= 0);
    pl_keep(y->g, y->middle);
    y->bytes = test_need((size_t)y->g->n_node, sizeof *y->bytes);
    for (int i = 0; i < y->g->n_node; i++) {
        const struct graph_node *n = &y->g->node[i];
        size_t size;
        unsigned char *b;

        if (n->op != OP_weight)
            continue;
        size = weight_bytes(n);
        b = y->bytes[i] = malloc(size);
        assert_non_null(b);
        for (size_t k = 0; k < size; k++)
            b[k] = (unsigned char)test_random(seed);
        for (size_t k = 0; n->format == PL_Q8_0 && k < size; k += 34) {
            b[k] = 0; /* sets the block's scale to 2^-9 */
            b[k + 1] = 0x18;
        }
        for (size_t k = 0; n->format == PL_F32 && k < size; k += 4) {
            float v = 1 + 0.5f * test_unit(seed);

            memcpy(b + k, &v, 4);
        }
    }
}

/* Draws tokens of one or two sequences, each continuing where it ended. */
static void draw(struct batch *b, int n, uint64_t *seed)
{
    int32_t next[N_SEQ] = {0};

    for (int k = 0; k < n; k++) {
        int64_t first;

        b[k].n = 1 + test_below(seed, MAX_TOK);
        b[k].n_out = 1 + test_below(seed, b[k].n);
        first = test_below(seed, 2) ? b[k].n : test_below(seed, b[k].n + 1);
        for (int64_t t = 0; t < b[k].n; t++) {
            b[k].seq[t] = t >= first;
            b[k].pos[t] = next[b[k].seq[t]]++;
            b[k].token[t] = (int32_t)test_below(seed, WORDS);
            b[k].out[t] = (int32_t)test_below(seed, b[k].n);
        }
    }
}

static void set_weights(const struct graph *y, pl_exec *x)
{
    pl_err err;

    for (int i = 0; i < y->g->n_node; i++)
        if (y->bytes[i] &&
            pl_tensor_set(x, i, y->bytes[i], 0, weight_bytes(&y->g->node[i]),
                          &err) != PL_OK)
            fail_msg("%s", err.message);
}

static pl_exec *open_exec(const struct graph *y, const pl_options *o)
{
    pl_exec *x;
    pl_err err;

    TEST_OK(pl_exec_create(&x, y->g, o, &err), err);
    set_weights(y, x);
    return x;
}

/* Runs n micro-batches at once; results are written to their buffers. */
static void step(const struct graph *y, pl_exec *x, struct batch *b, int n)
{
    static const int32_t pages[N_SEQ * PAGES] = {2, 0, 0, 0, 1, 3, 3, 3};
    pl_step_tokens rows[MOST] = {0};
    pl_err err;

    for (int k = 0; k < n; k++) {
        size_t size = 4 * (size_t)b[k].n;

        rows[k] = (pl_step_tokens){sizeof(pl_step_tokens),
                                   b[k].n,
                                   b[k].n_out,
                                   b[k].pos,
                                   b[k].seq,
                                   {pages},
                                   PAGES};
        if (exec_set_input(x, k, y->tokens, b[k].token, 0, size, &err) ||
            exec_set_input(x, k, y->pos, b[k].pos, 0, size, &err) ||
            exec_set_input(x, k, y->out_ids, b[k].out, 0,
                           4 * (size_t)b[k].n_out, &err))
            fail_msg("%s", err.message);
    }
    TEST_OK(exec_run_micro_batches(x, n, rows, &err), err);
    memset(b[0].logits, 0xff, sizeof b[0].logits);
    for (int k = 0; k < n; k++)
        if (exec_get_output(x, k, y->logits, b[k].logits, 0,
                            4 * WORDS * (size_t)b[k].n_out, &err) ||
            exec_get_output(x, k, y->middle, b[k].middle, 0,
                            4 * 128 * (size_t)b[k].n, &err))
            fail_msg("%s", err.message);
}

static pl_options options(int n_ranks)
{
    return (pl_options){.size = sizeof(pl_options),
                        .devices = "cpu",
                        .n_ranks = n_ranks,
                        .n_threads = 1,
                        .no_pin = true,
                        .no_fit = true,
                        .n_ctx = N_CTX,
                        .n_ubatch = MAX_TOK,
                        .n_out = MAX_TOK,
                        .n_seq = N_SEQ};
}

static pl_options options_of(int split, int n_ranks, uint64_t *seed)
{
    pl_options o = options(n_ranks);

    o.split_mode = splits[split].mode;
    o.hybrid_size = splits[split].hybrid_size;
    o.devices = splits[split].devices;
    o.host_experts = splits[split].experts;
    o.device_layers = splits[split].layers;
    o.host_cache = splits[split].cache;
    o.sim_seed = test_random(seed);
    return o;
}

/* Fails the case unless a step of n micro-batches gives each the bits that it
 * has alone. */
static void same_as_alone(const struct graph *y, pl_exec *x, pl_exec *alone,
                          int n, uint64_t *seed, const pl_options *o)
{
    static struct batch want[MOST], got[MOST];

    draw(want, n, seed);
    memcpy(got, want, sizeof got);
    for (int k = 0; k < n; k++)
        step(y, alone, &want[k], 1);
    step(y, x, got, n);
    /* the logits are neither zero nor infinite */
    assert_true(isnormal(got[0].logits[0]));
    assert_true(isnormal(got[0].middle[0]));
    for (int k = 0; k < n; k++)
        if (memcmp(got[k].logits, want[k].logits,
                   4 * WORDS * (size_t)want[k].n_out) ||
            memcmp(got[k].middle, want[k].middle, 4 * 128 * (size_t)want[k].n))
            fail_msg("-dev %s, split mode %d: micro-batch %d of %d differs",
                     o->devices, (int)o->split_mode, k, n);
}

static void unmake(struct graph *y)
{
    for (int i = 0; i < y->g->n_node; i++)
        free(y->bytes[i]);
    free(y->bytes);
    pl_graph_free(y->g);
}

TEST(pipeline_gives_each_micro_batch_its_own_bits)
{
    uint64_t seed = test_seed();
    struct graph y;
    int n_run = 0, rounds = test_long() ? 8 : 1;

    make(&y, &seed);
    for (int r = 0; r < rounds * (int)(sizeof splits / sizeof *splits); r++) {
        int ranks = 2 + r % 3;
        pl_options o = options(ranks);
        pl_exec *alone = open_exec(&y, &o), *x;

        o = options_of(r / rounds, ranks, &seed);
        o.offload = PL_OFFLOAD_OFF;
        x = open_exec(&y, &o);
        assert_int_equal(exec_n_micro(x),
                         x->plan->variant[VARIANT_PIPELINED] < 0 ? 1 : MOST);
        for (int n = 1; n <= exec_n_micro(x); n++, n_run++)
            same_as_alone(&y, x, alone, n, &seed, &o);
        pl_exec_free(x);
        pl_exec_free(alone);
    }
    unmake(&y);
    print_message("%d runs of 1 to %d micro-batches agree\n", n_run, MOST);
    assert_true(n_run > MOST * 10);
}

/* ---- transports ---------------------------------------------------------- */

/* Counts of the drawn transports, and of the choices that differ from the
 * plan. */
struct drawn {
    int by[TRANSPORT_COUNT], changed, late, inbox, two_shots;
};

/* Returns true, at random, if receiver m is to have another transport. The
 * inputs of a group move together, so the number `inputs` decides for all. */
static bool draws_other(const struct transfer *x, int m, uint64_t inputs,
                        uint64_t *seed)
{
    if (x->kind == TRANSFER_INPUT || x->kind == TRANSFER_TABLE)
        return inputs >> (x->to * 8 + m) % 64 & 1;
    return test_below(seed, 2);
}

/* Gives the transfer, at random, another transport for some receivers: a push
 * needs nothing that a pull does not, and a transfer may start late. */
static void draw_transports(struct transfers *t, int variant, int k,
                            uint64_t inputs, struct arena *a, uint64_t *seed,
                            struct drawn *drawn)
{
    struct transfer *x = &t->variant[variant].item[k], *y;
    const struct transfer table = {.kind = TRANSFER_TABLE,
                                   .value = -1,
                                   .as = -1,
                                   .from = t->n_group - 1,
                                   .to = x->from,
                                   .late = true};

    if (x->kind == TRANSFER_RESULT)
        return;
    if (test_below(seed, 3) == 0 && !x->late) {
        x->late = true;
        drawn->late++;
    }
    for (int m = 0; m < t->group[x->to].n; m++) {
        static const enum transport other[TRANSPORT_COUNT] = {
            [TRANSPORT_PULL] = TRANSPORT_PUSH,
            [TRANSPORT_FETCH] = TRANSPORT_FEED};

        if (other[x->by[m]] && draws_other(x, m, inputs, seed)) {
            x->by[m] = other[x->by[m]];
            drawn->changed++;
        }
        drawn->by[x->by[m]]++;
    }
    if (x->kind != TRANSFER_PAGES)
        return;
    /* a source that pushes pages reads the token table */
    assert_true(transfers_add(t, variant, a, &table, &y));
    for (int m = 0; y && m < t->group[y->to].n; m++) {
        y->source[m] = 1;
        y->by[m] = TRANSPORT_FEED;
    }
}

/* Gives some groups that share memory inboxes instead, and those with inboxes
 * another limit of one shot, or none: any number of devices can sum in two. */
static void draw_exchanges(struct transfers *t, uint64_t *seed,
                           struct drawn *drawn)
{
    int64_t rows = 1 + test_below(seed, MAX_TOK);

    for (int g = 0; g < t->n_group; g++) {
        struct transfer_group *x = &t->group[g];

        if (x->exchange == EXCHANGE_SHARED && test_below(seed, 2)) {
            x->exchange = EXCHANGE_INBOX;
            drawn->inbox++;
        }
        if (x->exchange != EXCHANGE_INBOX)
            continue;
        x->one_shot_rows = test_below(seed, 2) ? rows : 0;
        drawn->two_shots += x->one_shot_rows > 0 && rows < MAX_TOK;
    }
}

/* Returns the transfers of the plan, by way of their text. */
static struct transfers *transfers_of(const struct compiled *p, struct arena *a)
{
    struct test_text text = {0};
    const struct lower_dump dump = {"transfer", test_text_add, &text};
    struct transfers *t;
    pl_err err;

    TEST_OK(compiled_dump(p, &dump, &err), err);
    TEST_OK(transfers_parse(&t, a, text.s, strlen(text.s), &err), err);
    free(text.s);
    return t;
}

/* Lowers the plan again, from the text of its transfers and with transports
 * drawn at random. */
static void lower_by_drawn(struct compiled *p, uint64_t *seed,
                           struct drawn *drawn)
{
    struct lower_options opt = p->lowering;
    struct arena a = {0};
    struct transfers *t = transfers_of(p, &a);
    pl_err err;

    draw_exchanges(t, seed, drawn);
    for (int v = 0; v < t->n_variant; v++) {
        uint64_t inputs = test_random(seed);

        for (int k = 0; k < t->variant[v].n; k++)
            draw_transports(t, v, k, inputs, &a, seed, drawn);
    }
    opt.transfers = t;
    lowered_free(p->low);
    TEST_OK(lower(&p->low, p->num, &opt, &err), err);
    arena_fini(&a);
}

/* No bit of the results depends on who moves a value, when, or in how many
 * shots. */
TEST(pipeline_any_transport_gives_the_same_bits)
{
    uint64_t seed = test_seed();
    struct drawn drawn = {.changed = 0};
    struct graph y;
    int rounds = test_long() ? 40 : 2;

    make(&y, &seed);
    for (int r = 0; r < rounds * (int)(sizeof splits / sizeof *splits); r++) {
        pl_options o = options(2 + r % 3);
        pl_exec *alone = open_exec(&y, &o), *x;
        struct compiled *p;
        pl_err err;

        o = options_of(r / rounds, 2 + r % 3, &seed);
        TEST_OK(compile_graph(&p, y.g, &o, &err), err);
        p->variants.stream_from = 2;
        lower_by_drawn(p, &seed, &drawn);
        TEST_OK(exec_create(&x, p, &o, &err), err);
        set_weights(&y, x);
        same_as_alone(&y, x, alone, 1, &seed, &o);
        same_as_alone(&y, x, alone, exec_n_micro(x), &seed, &o);
        exec_free(x);
        compiled_free(p);
        pl_exec_free(alone);
    }
    unmake(&y);
    print_message("%d pulls, %d pushes, %d fetches, %d feeds; %d changed, %d "
                  "late, %d groups by inbox, %d in two shots\n",
                  drawn.by[TRANSPORT_PULL], drawn.by[TRANSPORT_PUSH],
                  drawn.by[TRANSPORT_FETCH], drawn.by[TRANSPORT_FEED],
                  drawn.changed, drawn.late, drawn.inbox, drawn.two_shots);
    assert_true(drawn.by[TRANSPORT_PULL] && drawn.by[TRANSPORT_PUSH]);
    assert_true(drawn.by[TRANSPORT_FETCH] && drawn.by[TRANSPORT_FEED]);
    assert_true(drawn.late && drawn.inbox && drawn.two_shots);
}

/* The list of transfers has the shards from which each value is copied, and the
 * programs copy from no others. */
TEST(pipeline_transfers_from_other_shards_are_refused)
{
    uint64_t seed = test_seed();
    int n_refused = 0;
    struct graph y;

    make(&y, &seed);
    for (int r = 0; r < (int)(sizeof splits / sizeof *splits); r++) {
        pl_options o = options_of(r, 2, &seed);
        struct arena a = {0};
        struct lower_options opt;
        struct lowered *low;
        struct compiled *p;
        pl_err err;

        TEST_OK(compile_graph(&p, y.g, &o, &err), err);
        opt = p->lowering;
        opt.transfers = transfers_of(p, &a);
        for (int k = 0; k < opt.transfers->variant->n; k += 3) {
            const struct transfer *t = &opt.transfers->variant->item[k];

            /* inputs are transferred together */
            if (t->kind == TRANSFER_INPUT || t->kind == TRANSFER_TABLE)
                continue;
            *t->source ^= 1;
            assert_int_equal(lower(&low, p->num, &opt, &err), PL_BAD_ARGUMENT);
            *t->source ^= 1;
            n_refused++;
        }
        TEST_OK(lower(&low, p->num, &opt, &err), err);
        lowered_free(low);
        compiled_free(p);
        arena_fini(&a);
    }
    unmake(&y);
    print_message("%d lists refused\n", n_refused);
    assert_true(n_refused > 20);
}

/* ---- several machines ---------------------------------------------------- */

enum { MACHINES = 3 };

/* A plan whose devices are on several machines, and their processes. */
struct job {
    struct pair_network net;
    const struct graph *y;
    struct compiled *p;
    /* adjacent devices are on one machine; else they are on the machines in
     * turn */
    bool adjacent;
    /* of the other machines: they compile a plan for fewer tokens; their first
     * instruction fails */
    bool differs, fails;
    pid_t child[MACHINES]; /* of machines 1, 2 ... */
};

static struct compiled *compile_for(const struct job *j, const pl_options *o,
                                    struct network *net)
{
    struct arena a = {0};
    struct notes notes = {.a = &a};
    struct plan_config in = {0};
    struct compiled *p;
    pl_err err;

    TEST_OK(plan_config_parse(&in, &a, j->y->g, NULL, o, &notes, &err), err);
    for (int d = 0; d < in.list.n; d++)
        in.list.dev[d].machine =
            j->adjacent ? d * net->n_machine / in.list.n : d % net->n_machine;
    TEST_OK(compile_config(&p, &in, &err), err);
    p->variants.stream_from = 2;
    p->list.network = net;
    plan_config_free(&in);
    arena_fini(&a);
    return p;
}

/* Executes the orders of machine 0 in a process of its own. */
static void serve(struct job *j, const pl_options *o, int machine)
{
    pl_options own = *o;
    pl_status s;
    pl_exec *x;
    pl_err err;

    pair_network_join(&j->net, machine);
    own.n_ubatch -= j->differs;
    if (j->differs)
        j->p = compile_for(j, &own, &j->net.net);
    s = exec_create(&x, j->p, &own, &err);
    for (int d = 0; s == PL_OK && j->fails && d < j->p->list.n; d++)
        device_of(x->set, d)->fail_insn = 0;
    if (s == PL_OK) {
        s = device_set_serve(x->set, &err);
        exec_free(x);
    }
    pair_network_close(&j->net);
    _exit((int)s);
}

/* Compiles a plan, starts the processes, and makes this one machine 0. */
static void start_job(struct job *j, const pl_options *o, int n_machine)
{
    pair_network_open(&j->net, n_machine);
    j->p = compile_for(j, o, &j->net.net);
    for (int m = 1; m < n_machine; m++) {
        j->child[m] = fork();
        assert_true(j->child[m] >= 0);
        if (j->child[m] == 0)
            serve(j, o, m);
    }
    pair_network_join(&j->net, 0);
}

/* Fails the case unless the process of each other machine ended with status
 * `want`. */
static void end_job(struct job *j, pl_status want)
{
    for (int m = 1; m < j->net.net.n_machine; m++) {
        int status;

        assert_int_equal(waitpid(j->child[m], &status, 0), j->child[m]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), want);
    }
    pair_network_close(&j->net);
    compiled_free(j->p);
}

/* Returns the number of devices of a split. */
static int count_devices(const char *devices)
{
    int n = 0;

    for (const char *s = devices; s; s = strchr(s, ',')) {
        const char *star;

        s += *s == ',';
        star = strchr(s, '*');
        n += star && (!strchr(s, ',') || star < strchr(s, ',')) ? atoi(star + 1)
                                                                : 1;
    }
    return n;
}

/* Fails the case unless the devices of all machines have counted the work of
 * one device. */
static void same_counts(const pl_exec *x, const pl_exec *alone)
{
    pl_counters got = {0}, want = {0};

    device_set_counters(x->set, &got);
    device_set_counters(alone->set, &want);
    assert_memory_equal(got.macs, want.macs, sizeof got.macs);
    assert_true(got.macs[0] > 0);
}

/* Fails the case unless the trace of the last step has each instruction of the
 * devices of all machines once. */
static void traces_all(const pl_exec *x)
{
    int n_event, n_micro = x->last_micro + 1;
    const struct device_timing *e = device_set_trace(x->set, &n_event);
    int *n = test_need((size_t)x->plan->list.n, sizeof *n);

    for (int i = 0; i < n_event; i++) {
        assert_in_range(e[i].dev, 0, x->plan->list.n - 1);
        assert_true(e[i].begin_s <= e[i].end_s);
        n[e[i].dev]++;
    }
    for (int d = 0; d < x->plan->list.n; d++) {
        const struct variant *v =
            &x->plan->low->prog[d].variant[x->last_variant];

        for (int i = 0; i < v->n_insn; i++)
            n[d] -= v->insn[i].kind != INSN_POST &&
                    v->insn[i].kind != INSN_WAIT &&
                    insn_enabled(&v->insn[i], n_micro, x->sizes);
        assert_int_equal(n[d], 0);
    }
    free(n);
}

/* Fails the case unless devices of each machine have sent to others. */
static void sends_from_all(const pl_exec *x)
{
    uint64_t bytes[PROG_MAX_MACHINE] = {0};

    for (int d = 0; d < x->plan->list.n; d++) {
        pl_device_traffic t = device_set_traffic(x->set, d);

        assert_int_equal(t.machine, x->plan->list.dev[d].machine);
        assert_true((t.messages > 0) == (t.bytes > 0));
        bytes[t.machine] += t.bytes;
    }
    for (int m = 0; m < x->plan->list.network->n_machine; m++)
        assert_true(bytes[m] > 0);
}

/* Two or three processes, each with some of the devices and its own copy of all
 * inboxes, compute the bits of one device. Their traces and counters show all
 * of them. */
TEST(pipeline_over_machines_gives_the_same_bits)
{
    int n_split = (int)(sizeof splits / sizeof *splits);
    uint64_t seed = test_seed();
    struct graph y;

    make(&y, &seed);
    for (int r = 0; r < n_split * test_draws(1, 10); r++) {
        pl_options o = options_of(r % n_split, 2 + r % 3, &seed);
        pl_options one = options(2 + r % 3);
        int n_dev = count_devices(o.devices);
        struct job j = {.y = &y, .adjacent = test_below(&seed, 2)};
        struct test_text trace = {0};
        pl_exec *alone, *x;
        pl_err err;

        if (n_dev < 2)
            continue;
        o.trace = test_text_add;
        o.trace_user = &trace;
        start_job(&j, &o, n_dev == 2 ? 2 : 2 + (int)test_below(&seed, 2));
        j.net.delay = (int)test_below(&seed, 4);
        TEST_OK(exec_create(&x, j.p, &o, &err), err);
        set_weights(&y, x);
        alone = open_exec(&y, &one);
        same_as_alone(&y, x, alone, 1, &seed, &o);
        same_as_alone(&y, x, alone, exec_n_micro(x), &seed, &o);
        same_counts(x, alone);
        traces_all(x);
        sends_from_all(x);
        pl_exec_free(alone);
        exec_free(x);
        free(trace.s);
        end_job(&j, PL_OK);
    }
    unmake(&y);
}

/* Two machines of two devices, or three, sum within each first. On six devices
 * with seven ranks, a machine does not carry a subtree, and they do not. */
TEST(pipeline_machines_of_several_devices_sum_first)
{
    static const struct {
        const char *devices;
        int n_ranks, n_machine;
        bool within;
    } cases[] = {
        {"cpu*4", 4, 2, true},  {"cpu*4", 8, 2, true},
        {"cpu*6", 6, 3, true},  {"cpu*6", 8, 3, true},
        {"cpu*6", 7, 3, false}, {"cpu*2,sim*2", 4, 2, true},
    };
    uint64_t seed = test_seed();
    struct graph y;

    make(&y, &seed);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_options one = options(cases[i].n_ranks), o = one;
        struct job j = {.y = &y, .adjacent = true};
        struct test_text text = {0};
        const struct lower_dump dump = {"transfer", test_text_add, &text};
        pl_exec *alone = open_exec(&y, &one), *x;
        pl_err err;

        o.devices = cases[i].devices;
        o.split_mode = PL_SPLIT_TENSOR;
        o.sim_seed = test_random(&seed);
        start_job(&j, &o, cases[i].n_machine);
        j.net.delay = (int)i % 4;
        TEST_OK(compiled_dump(j.p, &dump, &err), err);
        assert_int_equal(strstr(text.s, "per_machine 2 by machine") != NULL,
                         cases[i].within);
        free(text.s);
        TEST_OK(exec_create(&x, j.p, &o, &err), err);
        set_weights(&y, x);
        for (int k = 0; k < 3; k++)
            same_as_alone(&y, x, alone, 1, &seed, &o);
        same_as_alone(&y, x, alone, exec_n_micro(x), &seed, &o);
        same_counts(x, alone);
        pl_exec_free(alone);
        exec_free(x);
        end_job(&j, PL_OK);
    }
    unmake(&y);
}

/* Machines with other programs, or without devices, are refused by all before
 * the first step. */
TEST(pipeline_machines_with_other_programs_are_refused)
{
    uint64_t seed = test_seed();
    struct graph y;
    struct job j = {.y = &y, .differs = true};
    pl_options o = options(2);
    pl_exec *x;
    pl_err err;

    make(&y, &seed);
    o.devices = "cpu*2";
    start_job(&j, &o, 2);
    assert_int_equal(exec_create(&x, j.p, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "machine 1 has other programs"));
    assert_non_null(strstr(err.message, "use the same version"));
    end_job(&j, PL_BAD_ARGUMENT);
    j.differs = false;
    o.devices = "cpu";
    start_job(&j, &o, 2);
    assert_int_equal(exec_create(&x, j.p, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "machine 1 of 2 has no device"));
    end_job(&j, PL_BAD_ARGUMENT);
    unmake(&y);
}

/* Runs a step that fails; returns its error. */
static pl_err failed_step(pl_exec *x)
{
    static const int32_t zero[PAGES];
    const pl_step_tokens row = {sizeof row, 1, 1, zero, zero, {zero}, PAGES};
    pl_err err;

    assert_int_equal(exec_run_micro_batches(x, 1, &row, &err), PL_DEVICE);
    return err;
}

/* Starts a job of one cpu device a machine, and loads its weights. */
static pl_exec *open_cpus(struct job *j, const pl_options *o, int n_machine)
{
    pl_exec *x;
    pl_err err;

    start_job(j, o, n_machine);
    TEST_OK(exec_create(&x, j->p, o, &err), err);
    set_weights(j->y, x);
    return x;
}

/* A device that fails on one machine fails each step on all. */
TEST(pipeline_device_of_another_machine_may_fail)
{
    uint64_t seed = test_seed();
    struct graph y;
    struct job j = {.y = &y, .fails = true};
    pl_options o = options(3);
    pl_exec *x;

    make(&y, &seed);
    o.devices = "cpu*3";
    x = open_cpus(&j, &o, 3);
    for (int i = 0; i < 3; i++) {
        pl_err err = failed_step(x);

        assert_non_null(strstr(err.message, "instruction 0 of its program"));
    }
    exec_free(x);
    end_job(&j, PL_OK);
    unmake(&y);
}

/* A machine whose process is killed fails the step. The other one ends as it
 * should. */
TEST(pipeline_machine_may_be_lost)
{
    uint64_t seed = test_seed();
    struct graph y;
    struct job j = {.y = &y};
    pl_options o = options(3);
    pl_exec *x;
    pl_err err;

    make(&y, &seed);
    o.devices = "cpu*3";
    x = open_cpus(&j, &o, 3);
    kill(j.child[2], SIGKILL);
    assert_int_equal(waitpid(j.child[2], NULL, 0), j.child[2]);
    err = failed_step(x);
    assert_non_null(strstr(err.message, "cpu2: its machine was lost"));
    exec_free(x);
    j.net.net.n_machine = 2;
    end_job(&j, PL_OK);
    unmake(&y);
}
