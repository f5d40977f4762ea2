/* Scenes in which earlier systems aborted or computed wrong results, each under
 * several split modes: the bits are those of one device. */
#include "lib/engine_run.h"
#include "lib/scene_model.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "lib/alloc_fail.h"

enum { N = 21, N_VOCAB = 96, LONG = 4500 };

/* One of the placements under which every scene runs. */
struct config {
    const char *devices;
    pl_split_mode mode;
    int hybrid_size;
    double share[4];
    int n_share;
};

static const struct config configs[] = {
    {"cpu*2", PL_SPLIT_TENSOR, 0, {0}, 0},
    {"cpu*3", PL_SPLIT_TENSOR, 0, {0}, 0},
    {"sim*3", PL_SPLIT_TENSOR, 0, {3, 1, 2}, 3},
    {"sim*4", PL_SPLIT_HYBRID, 2, {0}, 0},
    {"cpu*2,sim*2", PL_SPLIT_TENSOR, 0, {1, 0, 2, 1}, 4},
    {"cpu*2", PL_SPLIT_LAYER, 0, {0}, 0},
    {"sim*2", PL_SPLIT_LAYER, 0, {2, 1}, 2},
};

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

static pl_options options(const struct config *c, int n_ranks)
{
    pl_options o = engine_run_options();

    o.n_ranks = n_ranks;
    o.n_ubatch = 5;
    if (!c)
        return o;
    o.devices = c->devices;
    o.split_mode = c->mode;
    o.hybrid_size = c->hybrid_size;
    o.tensor_split = c->n_share ? c->share : NULL;
    o.n_tensor_split = c->n_share;
    o.sim_seed = (uint64_t)(c - configs) + 1;
    return o;
}

static void some_tokens(int32_t *token, int n)
{
    uint64_t random = 17;

    for (int i = 0; i < n; i++)
        token[i] = (int32_t)test_below(&random, N_VOCAB);
}

/* Decodes N tokens at once, then one more. */
static void logits(const struct engine_run *r, float *out)
{
    int32_t token[N + 1];

    some_tokens(token, N + 1);
    engine_run_decode(r, 0, N, token, out);
    engine_run_decode(r, 0, 1, token + N, out + N * N_VOCAB);
}

/* Options of a scene besides those of the placement. */
struct wish {
    const char *experts, *override;
    bool cache;
};

static void ask(pl_options *o, const struct wish *w)
{
    o->host_experts = w->experts;
    o->host_cache = w->cache;
    o->overrides = w->override ? &w->override : NULL;
    o->n_overrides = w->override != NULL;
}

/* Runs every split mode and offload, with the bits of one device. Returns how
 * many streamed weights or caches of the host. */
static int scene(const struct scene_model *m, int n_ranks, const struct wish *w)
{
    const char *path = scene_model_write(m);
    static float want[(N + 1) * N_VOCAB], got[(N + 1) * N_VOCAB];
    pl_options o = options(NULL, n_ranks);
    struct engine_run r;
    int n = 0;

    engine_run_open(&r, path, path, &o);
    logits(&r, want);
    engine_run_close(&r);
    for (int k = 0; k < 2 * COUNT(configs); k++) {
        o = options(&configs[k / 2], n_ranks);
        o.offload = k % 2 ? PL_OFFLOAD_ON : PL_OFFLOAD_OFF;
        ask(&o, w);
        engine_run_open(&r, path, path, &o);
        memset(got, 0xff, sizeof got);
        logits(&r, got);
        n += pl_engine_plan(r.engine)->compiled->variant[VARIANT_STREAMED] >= 0;
        engine_run_close(&r);
        if (memcmp(want, got, sizeof got))
            fail_msg("-dev %s, split mode %d, offload %d: other bits than one "
                     "device's",
                     o.devices, (int)o.split_mode, (int)o.offload);
    }
    return n;
}

/* ---- scenes -------------------------------------------------------------- */

static const struct scene_model plain = {3, 4, 2, 64, false};
static const struct scene_model fused = {3, 4, 2, 64, true};

TEST(scene_layer_of_which_every_tensor_is_on_the_host)
{
    scene(&plain, 3, &(struct wish){.override = "blk\\.1\\.=host"});
    scene(&fused, 4, &(struct wish){.override = "blk\\.1\\.=host"});
}

TEST(scene_cache_on_the_host_with_split_queries)
{
    static const struct scene_model m = {2, 6, 2, 64, false};

    /* 4 ranks divide groups of 3 query heads */
    assert_int_equal(scene(&m, 4, &(struct wish){.cache = true}),
                     COUNT(configs));
    scene(&m, 3, &(struct wish){.cache = true});
    scene(&m, 4, &(struct wish){.cache = true, .experts = "all"});
}

TEST(scene_experts_too_narrow_for_every_device)
{
    static const struct scene_model m = {2, 6, 3, 32, false};
    static const struct scene_model narrow = {2, 6, 3, 16, true};

    scene(&m, 3, &(struct wish){0});
    scene(&m, 3, &(struct wish){.experts = "all"});
    scene(&narrow, 3, &(struct wish){.experts = "1"});
}

TEST(scene_one_kv_head_on_four_ranks)
{
    static const struct scene_model m = {2, 8, 1, 64, true};

    scene(&m, 4, &(struct wish){0});
    scene(&m, 4, &(struct wish){.cache = true});
}

TEST(scene_uneven_shares_with_fused_gate_up_on_the_host)
{
    static const struct scene_model wide = {3, 4, 2, 192, true};

    assert_int_equal(scene(&wide, 3, &(struct wish){.experts = "all"}),
                     COUNT(configs));
    assert_int_equal(
        scene(&wide, 4, &(struct wish){.override = "gate_up_exps=host"}),
        COUNT(configs));
    scene(&fused, 3, &(struct wish){.experts = "all"});
}

/* ---- reading ------------------------------------------------------------- */

/* Reads the router's choices, backwards and one column at a time. */
TEST(scene_router_view_is_read_with_experts_on_the_host)
{
    static const char *const kept[] = {"ffn_moe_topk-*"};
    const char *path = scene_model_write(&plain);
    const pl_view view = {2, {2, 4}, {1, -2}, 6}; /* of [5, 2] */
    const pl_view part = {2, {6, 8}, {64, 3}, 5};
    int32_t token[5], want[8], got[8];
    float want_w[48], got_w[48];

    some_tokens(token, 5);
    for (int k = -1; k < COUNT(configs); k++) {
        pl_options o = options(k < 0 ? NULL : &configs[k], 3);
        struct engine_run r;
        pl_exec *x;
        pl_err err;

        o.keep = kept;
        o.n_keep = 1;
        o.host_experts = k < 0 ? NULL : "all";
        engine_run_open(&r, path, path, &o);
        engine_run_decode(&r, 0, 5, token, NULL);
        x = pl_engine_exec(r.engine);
        if (pl_tensor_get_view(x, pl_engine_tensor(r.engine, "ffn_moe_topk-1"),
                               &view, k < 0 ? want : got, &err) != PL_OK ||
            pl_tensor_get_view(
                x, pl_engine_tensor(r.engine, "blk.1.ffn_gate_inp.weight"),
                &part, k < 0 ? want_w : got_w, &err) != PL_OK)
            fail_msg("%s", err.message);
        engine_run_close(&r);
        for (int i = 0; i < 8 && k < 0; i++)
            assert_in_range(want[i], 0, 5);
        if (k >= 0 && (memcmp(got, want, sizeof got) ||
                       memcmp(got_w, want_w, sizeof got_w)))
            fail_msg("-dev %s, split mode %d: another view", o.devices,
                     (int)o.split_mode);
    }
}

/* Parts of fused tensors that begin and end inside segments. */
struct part {
    const char *name;
    size_t from, n;
};
static const struct part parts[] = {
    {"blk.1.attn_qkv.weight", 4 * 64 * 40 + 12, 4 * 64 * 70},
    {"blk.0.ffn_gate_up_exps.weight", 4 * 64 * 100 + 4, 4 * 64 * 90},
    {"cache_k.1", 70, 900},
};
enum { MOST = 4 * 64 * 100, N_PART = COUNT(parts) };

struct watch {
    const struct engine_run *r;
    unsigned char seen[N_PART][MOST];
    int n_call;
    unsigned char *data;
    size_t n, cap;
};

static void read_parts(struct watch *w)
{
    for (int i = 0; i < N_PART; i++) {
        pl_tensor t = pl_engine_tensor(w->r->engine, parts[i].name);
        pl_err err;

        assert_true(t >= 0);
        if (pl_tensor_get(pl_engine_exec(w->r->engine), t, w->seen[i],
                          parts[i].from, parts[i].n, &err) != PL_OK)
            fail_msg("%s: %s", parts[i].name, err.message);
    }
}

static bool take(void *user, const void *data, size_t n)
{
    struct watch *w = user;

    if (w->n_call++ < 3)
        read_parts(w);
    if (w->n + n > w->cap) {
        w->cap = 2 * (w->n + n);
        w->data = realloc(w->data, w->cap);
        assert_non_null(w->data);
    }
    memcpy(w->data + w->n, data, n);
    w->n += n;
    return true;
}

/* Saves an idle sequence, and reads parts in between. Both sequences
 * continue. */
static void save_and_read(struct watch *w, const struct engine_run *r,
                          float *out)
{
    int32_t token[N];
    pl_err err;

    some_tokens(token, N);
    w->r = r;
    w->n = 0;
    w->n_call = 0;
    TEST_OK(pl_state_save(r->engine, 1, 0, -1, take, w, &err), err);
    assert_true(w->n_call > 0);
    engine_run_decode(r, 0, 1, token, out);
    assert_int_equal(pl_seq_trim(r->engine, 1, 0, NULL, NULL), PL_OK);
    TEST_OK(pl_state_restore_memory(r->engine, 1, w->data, w->n, 0, &err), err);
    engine_run_decode(r, 1, 1, token, out + N_VOCAB);
}

TEST(scene_split_tensor_is_read_while_a_sequence_is_saved)
{
    static struct watch want, got;
    static int32_t token[LONG];
    static float bits[4 * N_VOCAB], other[4 * N_VOCAB];
    static const int which[] = {-1, 1, 2, 6};
    const char *path =
        scene_model_write(&(struct scene_model){2, 4, 2, 64, true});

    some_tokens(token, LONG);
    for (int k = 0; k < COUNT(which); k++) {
        const struct config *c = which[k] < 0 ? NULL : &configs[which[k]];
        pl_options o = options(c, 3);
        struct watch *w = k ? &got : &want;
        float *out = k ? other : bits;
        struct engine_run r;

        o.n_ctx = 5120;
        o.n_ubatch = 512;
        o.host_experts = k == 2 ? "all" : NULL;
        engine_run_open(&r, path, path, &o);
        engine_run_decode(&r, 1, 40, token, NULL);
        engine_run_decode(&r, 0, 30, token, NULL);
        save_and_read(w, &r, out);
        if (k)
            assert_memory_equal(want.seen, got.seen, sizeof got.seen);
        engine_run_decode(&r, 0, LONG - 31, token + 31, NULL);
        save_and_read(w, &r, out + 2 * N_VOCAB);
        if (k)
            assert_memory_equal(want.seen, got.seen, sizeof got.seen);
        if (k)
            assert_memory_equal(bits, other, sizeof bits);
        engine_run_close(&r);
    }
    free(want.data);
    free(got.data);
}

/* ---- many requests ------------------------------------------------------- */

TEST(scene_requests_in_a_row_leave_nothing_behind)
{
    const char *path = scene_model_write(&fused);
    pl_options o = options(&configs[2], 3);
    static float out[8 * N_VOCAB];
    int64_t live = 0;
    uint64_t random = 3;
    struct engine_run r;

    o.host_experts = "1";
    o.host_cache = true;
    engine_run_open(&r, path, path, &o);
    alloc_stat_reset();
    for (int i = 0; i < 500; i++) {
        int seq = i % 4;
        int32_t token[8];
        void *data;
        size_t n;
        pl_err err;

        some_tokens(token, 8);
        assert_int_equal(pl_seq_trim(r.engine, seq, 0, NULL, NULL), PL_OK);
        engine_run_decode(&r, seq, 1 + test_below(&random, 8), token, out);
        if (pl_state_save_memory(r.engine, seq, 0, -1, &data, &n, &err) !=
                PL_OK ||
            pl_seq_trim(r.engine, seq, 0, NULL, &err) != PL_OK ||
            pl_state_restore_memory(r.engine, seq, data, n, 0, &err) != PL_OK)
            fail_msg("request %d: %s", i, err.message);
        free(data);
        engine_run_decode(&r, seq, 1, token, out);
        if (i == 20)
            live = alloc_stat_get().live_bytes;
        if (i > 20 && alloc_stat_get().live_bytes > live)
            fail_msg("after request %d %lld bytes more are held than after 20",
                     i, (long long)(alloc_stat_get().live_bytes - live));
    }
    engine_run_close(&r);
}

/* ---- hardware ------------------------------------------------------------ */

/* Hardware may do this if its queues share a channel. */
TEST(scene_sim_devices_run_their_queues_as_one)
{
    static const struct scene_model m = {3, 4, 2, 192, true};

    setenv("PL_DEBUG", "merge", 1);
    scene(&m, 4, &(struct wish){0});
    scene(&m, 4, &(struct wish){.experts = "1"});
    scene(&plain, 3, &(struct wish){.cache = true, .experts = "all"});
    scene(&fused, 4, &(struct wish){.override = "blk\\.1\\.=host"});
    unsetenv("PL_DEBUG");
}
