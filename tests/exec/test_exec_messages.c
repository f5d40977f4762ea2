/* Collectives between devices: as few as possible, and as many as the plan
 * says.
 *
 * A model with experts (qwen3moe, glm4moe) has one collective after the
 * embedding and two a layer, each of d_model values a token. This also holds
 * with expert scales, each of which is a multiplication of its own, and with a
 * shared expert, whose sum is added to that of the chosen ones. After real
 * steps the counters must equal what the plan's list of collectives gives for
 * the steps' sizes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "gguf/gguf_write.h"
#include "lib/engine_run.h"
#include "lib/place_model.h"

static const char *const devices[] = {"cpu*2", "cpu*3", "cpu*4",  "sim*2",
                                      "sim*3", "sim*4", "cpu,sim"};
enum { N_DEVICES = sizeof devices / sizeof devices[0] };

/* Checks collective k of a layer, -1 for those before all layers. `second`: how
 * many values the feed-forward part's collective carries. */
static void check_message(const struct compiled *p, int layer, int k,
                          int second, int64_t d_model, int64_t gathered,
                          int n_layer, int at, const char *what)
{
    const struct lowered_collective *m = &p->low->variant->collective[at];
    const bool gather = layer < 0 && k == 1;
    const enum num_kind kind = gather ? NUM_ALL_GATHER : NUM_ALL_REDUCE;
    const int64_t due = gather                 ? 4 * gathered
                        : layer >= 0 && k == 1 ? 4 * second * d_model
                                               : 4 * d_model;
    /* after its last attention a model needs only the rows whose logits are
     * wanted */
    bool last = layer == n_layer - 1;
    const pl_dim b = m->bytes[0].n ? m->bytes[0] : m->bytes[1];

    if (m->kind != kind || m->layer != layer || b.n != due ||
        (b.symbol != PL_N_TOK && !(last && b.symbol == PL_N_OUT)))
        fail_msg("%s: message %d is %s of layer %d, %" PRId64
                 " bytes a row of symbol %d; %s of layer %d and %" PRId64
                 " bytes are due",
                 what, at, num_kind_name(m->kind), m->layer, b.n, (int)b.symbol,
                 num_kind_name(kind), layer, due);
}

/* Expects two a layer, or three if tokens contribute to each layer, which also
 * costs one more before all layers. */
static void two_a_layer(const struct compiled *p, int second, const char *what)
{
    int64_t d_model = 0, gathered = 0;
    int n_layer = 0, at = 0, n_message;

    for (int i = 0; i < p->g->n_node; i++) {
        const struct graph_node *g = &p->g->node[i];

        if (g->op != OP_weight)
            continue;
        if (g->role == PL_ROLE_TOKEN_EMBD)
            d_model = g->dim[1].n;
        if (g->role == PL_ROLE_PER_LAYER_PROJ)
            gathered = g->dim[0].n;
        if (g->layer >= n_layer)
            n_layer = g->layer + 1;
    }
    n_message = gathered ? 2 + 3 * n_layer : 1 + 2 * n_layer;
    if (p->low->variant->n_collective != n_message)
        fail_msg("%s: %d messages for %d layers, %d are due", what,
                 p->low->variant->n_collective, n_layer, n_message);
    for (int layer = -1; layer < n_layer; layer++)
        for (int k = 0; k < (layer < 0 ? 1 : 2) + (gathered > 0); k++)
            check_message(p, layer, k, second, d_model, gathered, n_layer, at++,
                          what);
}

/* Runs steps of several sizes and compares counters with the plan. */
static void counted(const char *path, const char *name, const char *on,
                    int ranks, const double *split, int second)
{
    static const int sizes[] = {1, 5, 1, 30, 2};
    enum { MAX = 30 };
    pl_options o = engine_run_options();
    struct engine_run r;
    const struct compiled *p;
    uint64_t random = test_seed(), messages = 0, bytes = 0, steps = 0;
    int32_t token[MAX];
    float *logits;
    pl_counters c;
    pl_err err = {0};
    char what[128];

    o.devices = on;
    o.n_ranks = ranks;
    o.tensor_split = split;
    o.n_tensor_split = split ? 3 : 0;
    o.n_ubatch = 16; /* so that a batch of 30 tokens takes two steps */
    snprintf(what, sizeof what, "%s on %s, %d ranks", name, on, ranks);
    engine_run_open(&r, path, name, &o);
    p = pl_engine_plan(r.engine)->compiled;
    two_a_layer(p, second, what);
    logits = test_need(1, (size_t)(MAX * r.n_vocab) * sizeof *logits);
    engine_run_tokens(&r, &random, MAX, token);
    for (int i = 0; i < 5; i++) {
        uint8_t wanted[MAX];
        pl_batch b = {.size = sizeof b,
                      .n = sizes[i],
                      .token = token,
                      .seq = NULL,
                      .wanted = wanted,
                      .logits = logits};

        /* the logits of all, of no, or of every third token are wanted */
        for (int k = 0; k < sizes[i]; k++)
            wanted[k] = i == 1 || (i == 3 && k % 3 == 0) || (i == 0);
        TEST_OK(pl_engine_decode(r.engine, &b, NULL, &err), err);
        for (int from = 0; from < sizes[i]; from += 16) {
            struct graph_sizes z = {
                sizes[i] - from < 16 ? sizes[i] - from : 16, 0, 1, {0}};

            for (int k = from; k < from + z.n_tok; k++)
                z.n_out += wanted[k];
            for (int k = 0; k < p->low->variant->n_collective; k++)
                bytes += (uint64_t)dim_value(
                             p->low->variant->collective[k].bytes[0], &z) +
                         (uint64_t)dim_value(
                             p->low->variant->collective[k].bytes[1], &z);
            messages += (uint64_t)p->low->variant->n_collective;
            steps++;
        }
    }
    pl_engine_counters(r.engine, &c, sizeof c);
    if (c.steps != steps || c.messages != messages || c.message_bytes != bytes)
        fail_msg("%s: %" PRIu64 " steps, %" PRIu64 " messages of %" PRIu64
                 " bytes were counted; %" PRIu64 ", %" PRIu64 " and %" PRIu64
                 " were planned",
                 what, c.steps, c.messages, c.message_bytes, steps, messages,
                 bytes);
    free(logits);
    engine_run_close(&r);
}

TEST(messages_are_two_a_layer)
{
    static const struct {
        const char *name;
        /* values per token in a layer's second collective, in multiples of
         * d_model */
        int second;
    } models[] = {
        {"qwen3moe-f32.gguf", 1},
        {"qwen3moe-q-q4_k_m.gguf", 1},
        {"qwen3moe-wide-q4_k_m.gguf", 1},
        {"glm4moe-f32.gguf", 1},
        {"glm4moe-q-q4_k_m.gguf", 1},
        {"glm4moe-wide-q4_k_m.gguf", 1},
        {"gemma3-swa-f32.gguf", 1},
        {"gptoss-f32.gguf", 1},
        {"gptoss-wide-mxfp4-q8_0.gguf", 1},
        {"gemma4-dense-f32.gguf", 1},
        {"gemma4-ple-sharedkv-f32.gguf", 1},
        /* experts and the dense part have a norm each, so both are summed */
        {"gemma4-moe-f32.gguf", 2},
        {"gemma4-moe-wide-q4_k_m.gguf", 2},
        {"deepseek2-mla-f32.gguf", 1},

        {"qwen35-dense-f32.gguf", 1},
        {"qwen35moe-f32.gguf", 1},
        {"qwen35moe-q-q4_k_m.gguf", 1},
        {"qwen35moe-wide-q4_k_m.gguf", 1}};
    enum { N = sizeof models / sizeof models[0] };

    for (int i = 0; i <= N; i++) {
        const char *name =
            i < N ? models[i].name : "models/fable-moe-Q8_0.gguf";
        const int second = i < N ? models[i].second : 1;
        const char *path = i < N ? test_ref_need(name) : test_model();

        for (int k = 0; k < N_DEVICES; k++) {
            counted(path, name, devices[k], 0, NULL, second);
            if (k % 3 == 0 || test_long())
                counted(path, name, devices[k], 8, NULL, second);
        }
    }
}

/* qwen3next has the gates of its delta nets in one matrix, interleaved by key
 * head. Ranks that share a key head, here more than two, have all of them. */
TEST(messages_of_gates_in_turns_are_two_a_layer)
{
    const char *path = test_ref_need("qwen3next-f32.gguf");

    for (int k = 0; k < N_DEVICES; k++)
        for (int n = 2; n <= 4; n++)
            counted(path, "qwen3next-f32.gguf", devices[k], n, NULL, 1);
}

/* Counters are the same whichever device carries no ranks; the first one
 * may. */
TEST(messages_are_counted_whoever_is_idle)
{
    static const char *const on[] = {"cpu*3", "sim*3", "sim*2,cpu"};
    static const double split[] = {0, 1, 2};
    const char *path = test_ref("qwen3moe-f32.gguf");

    for (int k = 0; k < 3; k++) {
        counted(path, "qwen3moe-f32.gguf", on[k], 4, split, 1);
        counted(path, "qwen3moe-f32.gguf", on[k], 0, split, 1);
    }
}

TEST(messages_are_as_planned_in_every_kernel_set)
{
    static const char *const names[] = {
        "llama-q-q8_0.gguf", "qwen2-bias-f32.gguf", "qwen3-tied-f32.gguf",
        "llama-moe-f32.gguf"};

    for (int i = 0; i < 4; i++) {
        const char *path = test_ref_need(names[i]);

        for (int k = 0; k < N_DEVICES; k++)
            counted(path, names[i], devices[k], 0, NULL, 1);
    }
}

/* Writes an f32 model with a scale for each matrix of a layer and each
 * expert. */
static const char *with_scales(const char *path)
{
    static float scale[8] = {1.5f, 0.5f, 1, 2, 0.75f, 1.25f, 3, 0.25f};
    const char *out = test_temp("scales.gguf");
    struct gguf *f;
    struct gguf_writer *w;
    pl_err err = {0};
    char name[64];

    TEST_OK(gguf_open(&f, path, &err), err);
    TEST_OK(gguf_writer_create(&w, &err), err);
    for (int64_t i = 0; i < gguf_n_kv(f); i++)
        gguf_put_kv(w, gguf_kv_at(f, i));
    for (int64_t i = 0; i < gguf_n_tensor(f); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f, i);
        const int64_t n = t->n_dim == 3 ? t->dim[0] : 1;

        gguf_put_tensor(w, t->name, t->format, t->n_dim, t->dim, t->data);
        if (t->n_dim < 2 || strncmp(t->name, "blk.", 4) != 0)
            continue;
        assert_in_range(n, 1, 8);
        snprintf(name, sizeof name, "%.*s.scale",
                 (int)(strrchr(t->name, '.') - t->name), t->name);
        gguf_put_tensor(w, name, PL_F32, 1, &n, scale);
    }
    TEST_OK(gguf_writer_save(w, out, &err), err);
    gguf_writer_free(w);
    gguf_close(f);
    return out;
}

TEST(messages_with_expert_scales_are_two_a_layer)
{
    static const char *const names[] = {"qwen3moe-f32", "glm4moe-f32"};
    char file[32], what[48];

    for (int i = 0; i < 2; i++) {
        const char *path;

        snprintf(file, sizeof file, "%s.gguf", names[i]);
        snprintf(what, sizeof what, "%s with scales", names[i]);
        path = with_scales(test_ref_need(file));
        for (int k = 0; k < N_DEVICES; k++)
            counted(path, what, devices[k], 0, NULL, 1);
    }
}

/* Scales are gathered by reshape and row gather and multiplied, like the
 * router's weights, into the addends of a split contraction. The one reduction
 * waits until slots are summed and the residual is added. */
TEST(messages_wait_for_scales_and_slots)
{
    enum { E = 6, U = 2, D = 64, K = 96, T = 5 };
    static const int64_t w_dim[] = {E, D, K}, e_dim[] = {E}, d_dim[] = {D};
    static const pl_interval runs[] = {{32, 1}, {64, 2}};
    const pl_layout by_k = {PL_SPLIT, 2, K, 2, runs};
    const pl_dim x_dim[] = {{1, PL_N_TOK}, {1, PL_CONST}, {K, PL_CONST}};
    const pl_dim ids_dim[] = {{1, PL_N_TOK}, {U, PL_CONST}};
    const pl_dim rw_dim[] = {{1, PL_N_TOK}, {U, PL_CONST}, {1, PL_CONST}};
    const pl_dim r_dim[] = {{1, PL_N_TOK}, {D, PL_CONST}};
    const pl_dim column[] = {{E, PL_CONST}, {1, PL_CONST}};
    float first[T * D], out[T * D];
    pl_err err = {0};

    for (int on = 0; on < 4; on++) {
        static const char *const dev[] = {"cpu", "cpu*2", "sim*2", "cpu,sim"};
        pl_options o = {.size = sizeof o,
                        .devices = dev[on],
                        .n_ranks = 2,
                        .n_threads = 1,
                        .n_ubatch = T,
                        .no_pin = true,
                        .n_ctx = 64};
        uint64_t random = test_seed();
        float f[E * D * K];
        int32_t id[T * U];
        pl_graph *g;
        pl_exec *x;
        pl_tensor in, ids, rw, res, w, s, norm, y;
        pl_step_tokens rows = {.size = sizeof rows, .n_tok = T, .n_out = T};
        pl_counters c;

        TEST_OK(pl_graph_create(&g, &err), err);
        in = pl_input(g, "x", PL_F32, 3, x_dim);
        ids = pl_input(g, "ids", PL_I32, 2, ids_dim);
        rw = pl_input(g, "weights", PL_F32, 3, rw_dim);
        res = pl_input(g, "residual", PL_F32, 2, r_dim);
        w = pl_weight(g, "w", PL_F32, 3, w_dim, PL_ROLE_NONE);
        s = pl_weight(g, "scales", PL_F32, 1, e_dim, PL_ROLE_SCALE);
        norm = pl_weight(g, "norm", PL_F32, 1, d_dim, PL_ROLE_NORM);
        pl_want_layout(g, w, &by_k);
        y = pl_expert_matmul(g, in, w, ids);
        y = pl_mul(g, y, pl_gather_rows(g, pl_reshape(g, s, 2, column), ids));
        y = pl_mul(g, y, rw);
        y = pl_add(g, pl_sum(g, y), res);
        y = pl_rms_norm(g, y, norm, 1e-6f);
        pl_output(g, y);
        if (pl_exec_create(&x, g, &o, &err) != PL_OK)
            fail_msg("%s: %s", dev[on], err.message);
        for (int i = 0; i < E * D * K; i++)
            f[i] = test_unit(&random);
        for (int i = 0; i < T * U; i++)
            id[i] = (int32_t)test_below(&random, E);
        pl_tensor_set(x, w, f, 0, sizeof f, &err);
        pl_tensor_set(x, s, f + 7, 0, E * 4, &err);
        pl_tensor_set(x, norm, f + 99, 0, D * 4, &err);
        pl_tensor_set(x, in, f + 1000, 0, T * K * 4, &err);
        pl_tensor_set(x, rw, f + 2000, 0, T * U * 4, &err);
        pl_tensor_set(x, res, f + 3000, 0, T * D * 4, &err);
        pl_tensor_set(x, ids, id, 0, sizeof id, &err);
        if (pl_exec_step(x, &rows, &err) != PL_OK ||
            pl_tensor_get(x, y, out, 0, sizeof out, &err) != PL_OK)
            fail_msg("%s: %s", dev[on], err.message);
        pl_exec_counters(x, &c, sizeof c);
        assert_int_equal(c.messages, on > 0);
        assert_int_equal(c.message_bytes, on > 0 ? 4 * D * T : 0);
        if (on == 0)
            memcpy(first, out, sizeof first);
        assert_memory_equal(first, out, sizeof first);
        pl_exec_free(x);
        pl_graph_free(g);
    }
}

/* Checks that a push of a collective ends inside its tensor. */
static void must_fit(const struct program *all, const struct insn *s,
                     const struct graph_sizes *z)
{
    if (s->kind != INSN_PUSH || s->push.between_groups)
        return;
    for (int k = 0; k < s->push.n_to; k++) {
        const struct push_to *to = &s->push.to[k];
        const struct prog_tensor *t = &all[to->dev].tensor[to->out];
        int n;
        const struct copy_desc *p = push_pieces(&s->push, k, &n);

        for (; n > 0; n--, p++) {
            int64_t end = (int64_t)to->at + p->dst_const +
                          dim_value(p->dst_off, z) +
                          (dim_value(p->n0, z) - 1) * dim_value(p->dst_s0, z) +
                          (dim_value(p->n1, z) - 1) * dim_value(p->dst_s1, z) +
                          dim_value(p->bytes, z);

            if (end > (int64_t)t->bytes)
                fail_msg("%d rows end at %d of %d bytes", (int)z->n_tok,
                         (int)end, (int)t->bytes);
        }
    }
}

/* If the number of rows chooses between one-shot and two-shot, each number
 * executes one of them and has space for its staging. */
TEST(messages_go_one_way_for_any_rows)
{
    static const char *const on[] = {"sim*2", "sim*3", "sim*4", "sim*5"};

    for (size_t k = 0; k < sizeof on / sizeof *on; k++) {
        pl_graph *g = place_model(4);
        pl_options o = {.size = sizeof o,
                        .devices = on[k],
                        .n_ranks = 8,
                        .no_fit = true,
                        .no_pin = true,
                        .n_threads = 1,
                        .n_ctx = 256,
                        .n_ubatch = 64};
        struct compiled *p;
        bool guarded = false;
        pl_err err;

        assert_non_null(g);
        if (compile_graph(&p, g, &o, &err) != PL_OK)
            fail_msg("%s: %s", on[k], err.message);
        for (int64_t n = 1; n <= 64; n++) {
            const struct graph_sizes z = {n, n, 1, {0}};
            int counted = 0;

            for (int d = 0; d < p->low->n_dev; d++)
                for (int i = 0; i < p->low->prog[d].variant->n_insn; i++) {
                    const struct insn *s = &p->low->prog[d].variant->insn[i];

                    guarded |= s->max_rows > 0;
                    if (insn_enabled(s, 1, &z))
                        must_fit(p->low->prog, s, &z);
                    counted += insn_is_collective(s) && s->merge.counted &&
                               insn_enabled(s, 1, &z);
                }
            if (counted != p->low->variant->n_collective)
                fail_msg("%s: of %d messages %d are sent for %d rows", on[k],
                         p->low->variant->n_collective, counted, (int)n);
        }
        assert_int_equal(guarded, k > 0);
        compiled_free(p);
        pl_graph_free(g);
    }
}

/* Returns the number of rows up to which a plan for the described devices uses
 * one shot. */
static int rows_of_one_shot(const char *spec)
{
    pl_graph *g = place_model(1);
    pl_options o = {.size = sizeof o,
                    .device_spec = spec,
                    .split_mode = PL_SPLIT_TENSOR,
                    .no_fit = true,
                    .n_ctx = 4096,
                    .n_ubatch = 4096};
    struct compiled *p;
    int most = 0;
    pl_err err;

    assert_non_null(g);
    if (compile_graph(&p, g, &o, &err) != PL_OK)
        fail_msg("%s: %s", spec, err.message);
    for (int i = 0; i < p->low->prog[0].variant->n_insn; i++) {
        const struct insn *st = &p->low->prog[0].variant->insn[i];

        if (st->max_rows > 0 && st->max_rows < INT64_MAX)
            most = (int)st->max_rows;
    }
    compiled_free(p);
    pl_graph_free(g);
    return most;
}

/* A row is 512 bytes. A second shot saves half of what is sent to three peers,
 * which is 768 bytes a row. The limit is what the slowest link carries in its
 * latency. */
TEST(messages_take_one_shot_while_that_is_sooner)
{
    static const struct {
        const char *spec;
        int rows;
    } cases[] = {
        /* at the default of 16 GB/s and 10 us a latency is as long as 160 kB */
        {"gpu:1GiB:1TB/s*4", 208},
        {"gpu:1GiB:1TB/s:link=8GB/s:latency=5us*4", 52},
        {"gpu:1GiB:1TB/s:link=8GB/s:latency=5us*3,"
         "gpu:1GiB:1TB/s:link=8GB/s:latency=10us",
         104},
        {"gpu:1GiB:1TB/s:link=8GB/s:p2p=32GB/s:latency=5us*4", 208},
        {"gpu:1GiB:1TB/s:link=8GB/s:p2p=32GB/s:latency=5us*3,"
         "gpu:1GiB:1TB/s:link=8GB/s:latency=5us",
         52},
        {"gpu:1GiB:1TB/s:link=900GB/s*4", 341}, /* a quarter is staged */
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int rows = rows_of_one_shot(cases[i].spec);

        if (rows != cases[i].rows)
            fail_msg("%s: %d rows, not %d", cases[i].spec, rows, cases[i].rows);
    }
}
