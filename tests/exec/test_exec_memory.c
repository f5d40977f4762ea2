/* Memory of a plan and of an engine: a status if it runs out, exactly the
 * planned bytes, and no allocation in a step.
 *
 * Devices' regions below 1 MiB come from malloc and are among the allocations
 * that fail; larger ones are mapped, and appear in the process's resident
 * memory. */
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/engine.h"
#include "lib/alloc_fail.h"
#include "lib/engine_run.h"

static const char smallest[] = "llama-q-q4_0.gguf";

/* Out of memory ----------------------------------------------------------- */

/* Opens a model, plans, creates an engine, decodes, and frees everything.
 * Returns the first failure. */
static pl_status life(const char *path, const pl_options *o, bool shared,
                      pl_err *err)
{
    static const int32_t token[3] = {1, 2, 3};
    static float logits[4096];
    static const uint8_t wanted[3] = {0, 0, 1};
    pl_batch b = {.size = sizeof b,
                  .n = 3,
                  .token = token,
                  .seq = NULL,
                  .wanted = wanted,
                  .logits = logits};
    pl_model *m = NULL;
    pl_plan *p = NULL;
    pl_engine *e = NULL;
    pl_status s = pl_model_open(&m, path, err);

    if (s == PL_OK)
        s = pl_plan_create(&p, m, o, err);
    if (s == PL_OK)
        s = pl_engine_create(&e, m, o, err);
    if (s == PL_OK)
        s = pl_engine_decode(e, &b, NULL, err);
    if (s == PL_OK && shared)
        s = pl_seq_copy(e, 1, 0, err);
    pl_engine_free(e);
    pl_plan_free(p);
    pl_model_free(m);
    return s;
}

/* Lets every n-th allocation fail once, one n after the other; in the short
 * tier at most `most` values of n, evenly spread. */
static void fail_each(const char *file, pl_options o, int most)
{
    const char *path = test_ref_need(file), *devices = o.devices;
    uint64_t random = test_seed();
    int64_t n, step, runs = 0;
    pl_err err;

    /* fills tables that are made on first use */
    TEST_OK(life(path, &o, true, &err), err);
    alloc_stat_reset();
    TEST_OK(life(path, &o, true, &err), err);
    n = alloc_stat_get().n_call;
    assert_int_equal(alloc_stat_get().live_bytes, 0);
    assert_true(n > 100);
    step = 1 + (n - 1) / test_draws(most, INT_MAX);
    for (int64_t i = 1 + (step > 1 ? test_below(&random, step) : 0); i <= n;
         i += step, runs++) {
        pl_status s;
        bool failed;

        memset(&err, 0, sizeof err);
        alloc_stat_reset();
        alloc_fail_at(i);
        s = life(path, &o, true, &err);
        failed = alloc_fail_off();
        if (!failed && s == PL_OK)
            /* threads allocate in any order, so fewer allocations may have been
             * made */
            continue;
        if (s != PL_NO_MEMORY && s != PL_NO_DEVICE_MEMORY)
            fail_msg("allocation %" PRId64 " of %" PRId64
                     " failed on %s: status %s, \"%s\"",
                     i, n, devices, pl_status_name(s), err.message);
        if (err.status != s || !err.message[0])
            fail_msg("allocation %" PRId64 ": no message for %s", i,
                     pl_status_name(s));
        if (alloc_stat_get().live_bytes)
            fail_msg("allocation %" PRId64 " of %" PRId64
                     " failed on %s: %" PRId64 " bytes leak",
                     i, n, devices, alloc_stat_get().live_bytes);
    }
    print_message("%s: %" PRId64 " of %" PRId64 " allocations failed in turn\n",
                  devices, runs, n);
}

TEST(memory_out_gives_a_status_on_cpu)
{
    pl_options o = engine_run_options();

    o.devices = "cpu*2";
    fail_each(smallest, o, 300);
}

TEST(memory_out_gives_a_status_on_sim)
{
    pl_options o = engine_run_options();

    o.devices = "sim*2";
    fail_each(smallest, o, 300);
}

/* Allocations of the child processes are made to fail too, and fork() as one of
 * them. */
TEST(memory_out_gives_a_status_on_proc)
{
    pl_options o = engine_run_options();

    o.devices = "proc*2";
    fail_each(smallest, o, 300);
}

/* Planned and taken ------------------------------------------------------- */

/* Returns the resident anonymous memory of the process. Memory that other cases
 * freed is first returned to the system. */
static int64_t resident(void)
{
    char line[256];
    long long kib = 0;
    FILE *f;

    malloc_trim(0);
    f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    /* anonymous memory and shared memory, in which inboxes are */
    while (fgets(line, sizeof line, f)) {
        long long more;

        if (sscanf(line, "RssAnon: %lld", &more) == 1 ||
            sscanf(line, "RssShmem: %lld", &more) == 1)
            kib += more;
    }
    fclose(f);
    return kib * 1024;
}

/* Returns the bytes of all devices' regions, from the plan. */
static int64_t planned_bytes(const struct compiled *p, int from, int to)
{
    int64_t n = 0;

    for (int d = 0; d < p->list.n; d++) {
        for (int r = from; r < to; r++)
            n += (int64_t)p->low->prog[d].bytes[r];
        if (to == REGION_COUNT)
            n += (int64_t)device_scratch_bytes(&p->list.dev[d], p->kernel_set,
                                               &p->low->prog[d]);
    }
    return n;
}

TEST(memory_planned_is_what_is_taken)
{
    static const char *const devices[] = {"cpu", "cpu*3", "sim*2"};
    const char *path = test_ref_need("llama-wide-q4_k_m.gguf");
    pl_err err = {0};

    if (TEST_SANITIZED)
        TEST_SKIP("sanitizers take memory of their own");
    for (int i = 0; i < 3; i++) {
        pl_options o = engine_run_options();
        pl_model *m;
        pl_plan *p;
        pl_engine *e;
        int64_t before, got, want, slack;

        o.devices = devices[i];
        /* so that the regions are much larger than the host's tables */
        o.n_ctx = 32768;
        TEST_OK(pl_model_open(&m, path, &err), err);
        TEST_OK(pl_plan_create(&p, m, &o, &err), err);
        want = planned_bytes(p->compiled, 0, REGION_COUNT);
        malloc_trim(0); /* memory freed earlier must not be returned during the
                         * test */
        before = resident();
        TEST_OK(pl_engine_create(&e, m, &o, &err), err);
        got = resident() - before;
        /* huge pages round up, and tables and the second plan add to it */
        slack = want / 16 + (4 << 20);
        if (got < want - (1 << 20) || got > want + slack)
            fail_msg("%s: %" PRId64 " bytes are planned, %" PRId64
                     " were taken",
                     devices[i], want, got);
        assert_int_equal(
            planned_bytes(pl_engine_plan(e)->compiled, 0, REGION_COUNT), want);
        pl_engine_free(e);
        pl_plan_free(p);
        pl_model_free(m);
    }
}

/* Returns the size in bytes of all tensors in the file. */
static int64_t file_bytes(const pl_plan *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->graph->n_node; i++) {
        const struct graph_node *x = &p->graph->node[i];
        int64_t row = x->dim[x->n_dim - 1].n;

        if (x->op == OP_weight)
            n += (int64_t)format_row_bytes(x->format, row) *
                 (graph_count(x, &p->compiled->max) / row);
    }
    return n;
}

/* Returns the bytes stored twice: a super block that two ranks share has its
 * scales on both sides of the cut. */
static int64_t cut_bytes(const struct compiled *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->num->n; i++) {
        const struct num_node *x = &p->num->node[i];
        const struct graph_node *g = &p->g->node[x->node];
        const struct pack *k = NULL;
        int64_t chunks = 0;

        if (g->op != OP_weight || x->layout->kind != PL_SPLIT ||
            x->layout->dim != g->n_dim - 1)
            continue;
        for (int u = 0; u < p->low->n_shard; u++) {
            int t = lowered_stored(p->low, i)->v[u].tensor;

            if (!p->low->prog[p->low->shard[u].dev].tensor[t].pack)
                continue;
            k = p->low->prog[p->low->shard[u].dev].tensor[t].pack;
            chunks += k->n_chunk;
        }
        if (k && k->rule->sup_bytes)
            n += (chunks - k->n_full / format_info(g->format)->block) *
                 ((k->n_row + PACK_ROWS - 1) / PACK_ROWS) * k->rule->sup_bytes *
                 (g->n_dim == 3 ? g->dim[0].n : 1);
    }
    return n;
}

/* Returns the bytes of zero rows that fill groups of 16. They are constant for
 * a matrix, outweigh much of a router of three experts, and do not matter in
 * real models. */
static int64_t padding_bytes(const struct compiled *p)
{
    int64_t n = 0;

    for (int d = 0; d < p->list.n; d++)
        for (int t = 0; t < p->low->prog[d].n_tensor; t++) {
            const struct prog_tensor *x = &p->low->prog[d].tensor[t];

            if (x->pack && x->pack->n_row % PACK_ROWS)
                n += (PACK_ROWS - x->pack->n_row % PACK_ROWS) *
                     (int64_t)(x->pack->panel_bytes / PACK_ROWS) *
                     (x->n_dim == 3 ? x->dim[0].n : 1);
        }
    return n;
}

TEST(weights_take_little_more_than_their_file)
{
    static const char *const refs[] = {
        "llama-wide-q4_k_m.gguf", "qwen3moe-wide-q4_k_m.gguf",
        "qwen35moe-wide-q4_k_m.gguf", "qwen3-q-q4_k_m.gguf"};
    static const struct {
        const char *devices;
        int ranks;
    } on[] = {{"cpu", 0}, {"cpu*2", 0}, {"cpu*3", 0}, {"cpu", 8}};

    for (int i = 0; i < 5; i++) {
        const char *name = i < 4 ? refs[i] : "models/fable-moe-Q8_0.gguf";
        const char *path = i < 4 ? test_ref_need(name) : test_model();

        for (int k = 0; k < 4; k++) {
            pl_options o = engine_run_options();
            struct engine_run r;
            const pl_plan *p;
            pl_counters c;
            int64_t held = 0, replicas = 0, file, got;

            o.devices = on[k].devices;
            o.n_ranks = on[k].ranks;
            got = resident();
            engine_run_open(&r, path, name, &o);
            got = resident() - got;
            p = pl_engine_plan(r.engine);
            held = planned_bytes(p->compiled, 0, REGION_WEIGHTS + 1);
            pl_engine_counters(r.engine, &c, sizeof c);
            /* a device stores an index once, however many of its ranks own it,
             * so one device has no replicas */
            for (int d = 1; d < p->compiled->list.n; d++)
                replicas += (int64_t)c.replica_bytes[d];
            replicas += cut_bytes(p->compiled) + padding_bytes(p->compiled);
            file = file_bytes(p);
            if ((double)held > 1.03 * (double)file + (double)replicas)
                fail_msg("%s on %s: %" PRId64 " bytes of weights take %" PRId64
                         ", %" PRId64 " of them replicas",
                         name, o.devices, file, held, replicas);
            if (!TEST_SANITIZED && (double)got > 1.03 * (double)file +
                                                     (double)replicas +
                                                     (double)(64 << 20))
                fail_msg("%s on %s: %" PRId64 " bytes are resident for %" PRId64
                         " of weights",
                         name, o.devices, got, file);
            engine_run_close(&r);
        }
    }
}

/* Steps ------------------------------------------------------------------- */

TEST(steps_allocate_nothing)
{
    static const char *const devices[] = {"cpu", "cpu*3", "sim*2", "cpu,sim"};
    static const char *const names[] = {"llama-q-q8_0.gguf",
                                        "qwen3moe-q-q4_k_m.gguf"};
    enum { N = 40 };
    int32_t token[N], seq[N];
    pl_err err = {0};

    for (int i = 0; i < 16; i++) {
        const char *name = names[i / 4 % 2];
        pl_options o = engine_run_options();
        struct engine_run r;
        uint64_t random = test_seed();
        float *logits;

        o.devices = devices[i % 4];
        o.n_threads = 2;
        /* options with several micro-batches per step, copies between groups,
         * and streaming */
        if (i >= 8) {
            o.split_mode = i % 4 == 1 ? PL_SPLIT_TENSOR : PL_SPLIT_LAYER;
            o.n_ubatch = 6;
            o.host_experts = "1";
            o.host_cache = i % 2;
            o.offload = PL_OFFLOAD_ON;
        }
        engine_run_open(&r, test_ref(name), name, &o);
        engine_run_tokens(&r, &random, N, token);
        for (int k = 0; k < N; k++)
            seq[k] = k % 3;
        logits = test_need(1, (size_t)(N * r.n_vocab) * sizeof *logits);
        /* the first step may allocate */
        engine_run_decode(&r, 0, 2, token, logits);
        alloc_stat_reset();
        for (int n = 1; n <= N; n += 13) {
            pl_batch b = {.size = sizeof b,
                          .n = n,
                          .token = token,
                          .seq = seq,
                          .wanted = NULL,
                          .logits = logits};

            TEST_OK(pl_engine_decode(r.engine, &b, NULL, &err), err);
        }
        TEST_OK(pl_seq_copy(r.engine, 3, 0, &err), err);
        TEST_OK(pl_seq_trim(r.engine, 3, 5, NULL, &err), err);
        for (int k = 0; k < N; k++)
            seq[k] = 3;
        {
            pl_batch b = {.size = sizeof b,
                          .n = N,
                          .token = token,
                          .seq = seq,
                          .wanted = NULL,
                          .logits = logits};

            TEST_OK(pl_engine_decode(r.engine, &b, NULL, &err), err);
        }
        if (alloc_stat_get().n_call)
            fail_msg("%s on %s: %" PRId64 " allocations in steps", name,
                     o.devices, alloc_stat_get().n_call);
        free(logits);
        engine_run_close(&r);
    }
}

/* This case comes last: it leaves a large heap, which would hide
 * allocations. */
TEST(memory_out_gives_a_status_in_any_placement)
{
    const char *override = "attn_output=sim0,ffn_norm=host,attn_v=mirrored";
    pl_options o = engine_run_options();

    o.devices = "cpu,sim*2";
    o.split_mode = PL_SPLIT_LAYER;
    o.host_experts = "1";
    o.offload = PL_OFFLOAD_ON;
    o.overrides = &override;
    o.n_overrides = 1;
    fail_each("llama-moe-f32.gguf", o, 64);
    o.devices = "sim*3";
    o.split_mode = PL_SPLIT_HYBRID;
    o.hybrid_size = 2;
    o.host_experts = NULL;
    o.host_cache = true;
    o.device_layers = "2";
    fail_each("llama-moe-f32.gguf", o, 64);
}
