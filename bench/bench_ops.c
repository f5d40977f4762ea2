/* Measures kernels other than contractions on one thread. Usage: `bench-ops
 * [kernel set [text]]`; `text` selects the cases whose name contains it.
 *
 * Prints a line for each case: median and minimum of the calls in microseconds
 * of processor time, and bytes divided by the median. Bytes count each operand
 * once, and the visible part of caches. Operands stay in the processor's caches
 * between calls if they fit, as the activations of a step do. 4,096 positions
 * of K and V do not fit the second-level cache. */
#include "base/half.h"
#include "device/cpu/cpu_kernel.h"
#include "device/cpu/cpu_ops.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *only = "";
/* peak of one thread in float operations per second; its share of the rate of
 * reading memory, in bytes per second */
static double peak, bandwidth;

enum { N_RUN = 41, N_HEAD = 16, N_KV = 8, D = 128 };

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void *memory(size_t n)
{
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);

    if (p == NULL) {
        fprintf(stderr, "bench-ops: out of memory\n");
        exit(1);
    }
    return p;
}

/* Returns a float tensor [a, b, c] of values between -1 and 1. */
static struct cpu_tensor tensor(int64_t a, int64_t b, int64_t c)
{
    struct cpu_tensor t = {NULL, PL_F32, 3, {a, b, c}, NULL};

    t.data = memory((size_t)(a * b * c) * 4);
    for (int64_t i = 0; i < a * b * c; i++)
        ((float *)t.data)[i] = (float)(i * 7919 % 2001 - 1000) * 1e-3f;
    return t;
}

static struct cpu_tensor cache(pl_format f, int64_t n_slot, int64_t d)
{
    struct cpu_tensor t = {NULL, f, 3, {n_slot, N_KV, d}, NULL};
    size_t n = cache_tile_bytes(f, d) * (size_t)(n_slot / PAGE_TOKENS * N_KV);

    t.data = memory(n);
    for (size_t i = 0; i < n / 2; i++)
        ((uint16_t *)t.data)[i] = f32_to_f16((float)(i % 31) * 0.03f - 0.5f);
    return t;
}

/* Measures calls f(arg, 0), f(arg, 1), ... Each call moves `bytes` bytes and
 * executes `ops` float operations, where a fused multiply-add counts as one; 0
 * leaves out the rate. The last column is the median divided by the time that
 * the bytes take from memory, or the operations at the peak, if that is
 * longer. */
static void measure(const char *name, void (*f)(void *arg, int i), void *arg,
                    double bytes, double ops)
{
    double us[N_RUN], least;

    f(arg, 0);
    for (int i = 0; i < N_RUN; i++) {
        double t = now_us();

        f(arg, i + 1);
        us[i] = now_us() - t;
    }
    qsort(us, N_RUN, sizeof(us[0]), by_value);
    printf("%-32s %10.1f us %10.1f us %8.1f GB/s", name, us[N_RUN / 2], us[0],
           bytes / us[N_RUN / 2] * 1e-3);
    if (ops > 0)
        printf(" %7.1f Gop/s %4.0f %%", ops / us[N_RUN / 2] * 1e-3,
               100 * ops / us[N_RUN / 2] * 1e6 / peak);
    else
        printf("%21s", "");
    least = 1e6 * fmax(bytes / bandwidth, ops / peak);
    printf(" %6.2f x\n", us[N_RUN / 2] / least);
}

struct job {
    cpu_kernel *run;
    struct cpu_call c;
};

static void job_run(void *arg, int i)
{
    struct job *j = arg;

    (void)i;
    j->run(&j->c);
}

static void run(const struct cpu_kernels *k, const char *name,
                enum kernel kernel, struct cpu_call c, double bytes, double ops)
{
    const struct cpu_entry *e = cpu_entry_of(k, kernel, c.attr);
    struct job job = {e->run, c};

    if (strstr(name, only) == NULL)
        goto done;
    job.c.nth = 1;
    job.c.scratch = memory((e->scratch ? e->scratch(&c) : 0) + 64);
    measure(name, job_run, &job, bytes, ops);
    free(job.c.scratch);
done:
    for (int i = 0; i < GRAPH_MAX_IN; i++)
        free(c.in[i].data);
    free(c.out.data);
}

/* Measures attention of n_tok tokens, the last of a context of n_ctx, with
 * heads of d values. A name that begins with "bf16" selects BF16 products. */
static void run_attention(const struct cpu_kernels *k, const char *name,
                          pl_format f, int64_t d, int64_t n_tok, int64_t n_ctx)
{
    const struct graph_attr attr = {.scale = 0.088f,
                                    .bf16 = strncmp(name, "bf16", 4) == 0};
    static int32_t pos[4096], seq[4096], pages[128], head_map[N_HEAD];
    struct token_table b = {n_tok, n_tok, pos, seq, pages, 128};
    struct cpu_call c = {
        .n_in = 3, .attr = &attr, .table = &b, .head_map = head_map};
    double seen = 0;

    for (int i = 0; i < 128; i++)
        pages[i] = i;
    for (int i = 0; i < n_tok; i++) {
        pos[i] = (int32_t)(n_ctx - n_tok + i);
        seen += pos[i] + 1;
    }
    for (int i = 0; i < N_HEAD; i++)
        head_map[i] = i / (N_HEAD / N_KV);
    c.in[0] = tensor(n_tok, N_HEAD, d);
    c.in[1] = cache(f, n_ctx, d);
    c.in[2] = cache(f, n_ctx, d);
    c.out = tensor(n_tok, N_HEAD, d);
    run(k, name, KERNEL_attention, c,
        2.0 * (double)cache_tile_bytes(f, d) * N_KV *
            (double)(n_ctx / PAGE_TOKENS),
        2.0 * N_HEAD * (double)d * seen);
}

/* The sizes of DeepSeek-V3.2: an indexer with 64 heads and 2,048 chosen
 * positions, and 16 of the 128 heads that attend to latents. */
enum { INDEX_HEAD = 64, LATENT = 512, LATENT_KEY = 576, TOP = 2048 };

/* Sets up a table of n_tok tokens, the last of a context of n_ctx. */
static struct token_table last_tokens(int64_t n_tok, int64_t n_ctx)
{
    enum { MAX_TOK = 512, MAX_PAGE = 512 };
    static int32_t pos[MAX_TOK], seq[MAX_TOK], pages[MAX_PAGE];

    for (int i = 0; i < MAX_PAGE; i++)
        pages[i] = i;
    for (int i = 0; i < n_tok; i++)
        pos[i] = (int32_t)(n_ctx - n_tok + i);
    return (struct token_table){n_tok, n_tok, pos, seq, pages, MAX_PAGE};
}

/* Returns a cache with one head. */
static struct cpu_tensor shared_cache(int64_t n_slot, int64_t d)
{
    struct cpu_tensor t = cache(PL_F16, n_slot, d);

    t.dim[1] = 1;
    return t;
}

static void run_index(const struct cpu_kernels *k, const char *name,
                      int64_t n_tok, int64_t n_ctx)
{
    const struct graph_attr attr = {.n_used = TOP};
    struct token_table b = last_tokens(n_tok, n_ctx);
    struct cpu_call c = {.n_in = 3, .attr = &attr, .table = &b};

    c.in[0] = tensor(n_tok, INDEX_HEAD, D);
    c.in[1] = tensor(n_tok, INDEX_HEAD, 1);
    c.in[2] = shared_cache(n_ctx, D);
    c.out = tensor(n_tok, TOP, 1);
    c.in[1].n_dim = c.out.n_dim = 2;
    c.out.format = PL_I32;
    run(k, name, KERNEL_index_topk, c,
        (double)(cache_tile_bytes(PL_F16, D) * (size_t)(n_ctx / PAGE_TOKENS)),
        1.0 * INDEX_HEAD * D * (double)(n_tok * n_ctx));
}

/* Measures attention to latents: to all positions, or to TOP chosen ones if
 * `chosen`. */
static void run_latents(const struct cpu_kernels *k, const char *name,
                        bool chosen, int64_t n_tok, int64_t n_ctx)
{
    const struct graph_attr attr = {.scale = 0.05f, .d_value = LATENT};
    static const int32_t head_map[N_HEAD];
    struct token_table b = last_tokens(n_tok, n_ctx);
    struct cpu_call c = {
        .n_in = 2 + chosen, .attr = &attr, .table = &b, .head_map = head_map};
    int64_t seen = chosen ? TOP : n_ctx;

    c.in[0] = tensor(n_tok, N_HEAD, LATENT_KEY);
    c.in[1] = shared_cache(n_ctx, LATENT_KEY);
    if (chosen) {
        c.in[2] = tensor(n_tok, TOP, 1);
        c.in[2].n_dim = 2;
        c.in[2].format = PL_I32;
        for (int64_t i = 0; i < n_tok * TOP; i++)
            ((int32_t *)c.in[2].data)[i] = (int32_t)(i % TOP * n_ctx / TOP);
    }
    c.out = tensor(n_tok, N_HEAD, LATENT);
    run(k, name, KERNEL_latent_attention, c,
        (double)(n_tok * seen * LATENT_KEY * 2),
        1.0 * N_HEAD * (LATENT_KEY + LATENT) * (double)(n_tok * seen));
}

/* Sizes of MiniMax-M3's kind: an indexer chooses 16 blocks of 128 positions for
 * each of two KV heads. */
enum { BLOCK = 128, BLOCKS = 16, INDEX_KV = 2 };

static void run_index_blocks(const struct cpu_kernels *k, const char *name,
                             int64_t n_tok, int64_t n_ctx)
{
    const struct graph_attr attr = {
        .n_used = BLOCKS, .block = BLOCK, .local = 1};
    struct token_table b = last_tokens(n_tok, n_ctx);
    struct cpu_call c = {.n_in = 2, .attr = &attr, .table = &b};

    c.in[0] = tensor(n_tok, INDEX_KV, D);
    c.in[1] = shared_cache(n_ctx, D);
    c.out = tensor(n_tok, INDEX_KV, BLOCKS);
    c.out.format = PL_I32;
    run(k, name, KERNEL_index_blocks, c,
        (double)(cache_tile_bytes(PL_F16, D) * (size_t)(n_ctx / PAGE_TOKENS)),
        1.0 * INDEX_KV * D * (double)(n_tok * n_ctx));
}

static void run_blocks(const struct cpu_kernels *k, const char *name,
                       int64_t n_tok, int64_t n_ctx)
{
    const struct graph_attr attr = {.scale = 0.05f, .block = BLOCK};
    int32_t head_map[N_HEAD];
    struct token_table b = last_tokens(n_tok, n_ctx);
    struct cpu_call c = {
        .n_in = 4, .attr = &attr, .table = &b, .head_map = head_map};

    for (int h = 0; h < N_HEAD; h++)
        head_map[h] = h * INDEX_KV / N_HEAD;
    c.in[0] = tensor(n_tok, N_HEAD, D);
    for (int i = 1; i < 3; i++) {
        c.in[i] = cache(PL_F16, n_ctx, D);
        c.in[i].dim[1] = INDEX_KV;
    }
    c.in[3] = tensor(n_tok, INDEX_KV, BLOCKS);
    c.in[3].format = PL_I32;
    for (int64_t i = 0; i < n_tok * INDEX_KV * BLOCKS; i++)
        ((int32_t *)c.in[3].data)[i] =
            (int32_t)((i % BLOCKS + 1) * (n_ctx / BLOCK) / BLOCKS - 1);
    c.out = tensor(n_tok, N_HEAD, D);
    run(k, name, KERNEL_attention_blocks, c,
        (double)(n_tok * BLOCKS * BLOCK * INDEX_KV * 2 * D * 2),
        2.0 * N_HEAD * D * (double)(n_tok * BLOCKS * BLOCK));
}

/* Sizes of DeepSeek V4 Flash, with 16 of its 64 heads: keys are values, too;
 * a token attends to 128 tokens and, of the blocks of 4 tokens, to 512 chosen
 * ones. */
enum { V4_D = 512, V4_WINDOW = 128, V4_RATIO = 4, V4_TOP = 512, V4_E = 4096 };

static void run_compressed(const struct cpu_kernels *k, const char *name,
                           bool chosen, int64_t n_tok, int64_t n_ctx)
{
    const struct graph_attr attr = {
        .scale = 0.05f, .ratio = V4_RATIO, .window = V4_WINDOW};
    static const int32_t head_map[N_HEAD];
    struct token_table b = last_tokens(n_tok, n_ctx);
    struct cpu_call c = {
        .n_in = 4 + chosen, .attr = &attr, .table = &b, .head_map = head_map};
    const int64_t seen = V4_WINDOW + (chosen ? V4_TOP : n_ctx / V4_RATIO);

    c.in[0] = tensor(n_tok, N_HEAD, V4_D);
    c.in[1] = shared_cache(n_ctx, V4_D);
    c.in[2] = shared_cache(n_ctx, V4_D);
    c.in[3] = tensor(1, 1, N_HEAD);
    if (chosen) {
        c.in[4] = tensor(n_tok, V4_TOP, 1);
        c.in[4].n_dim = 2;
        c.in[4].format = PL_I32;
        for (int64_t i = 0; i < n_tok * V4_TOP; i++)
            ((int32_t *)c.in[4].data)[i] =
                (int32_t)(i % V4_TOP * (n_ctx / V4_RATIO) / V4_TOP);
    }
    c.out = tensor(n_tok, N_HEAD, V4_D);
    run(k, name, KERNEL_compressed_attention, c,
        (double)(n_tok * seen * V4_D * 2),
        2.0 * N_HEAD * V4_D * (double)(n_tok * seen));
}

static void run_block_mean(const struct cpu_kernels *k, const char *name,
                           int64_t n_tok)
{
    enum { N_SLOT = 4096, WIDTH = 2 * V4_D, ROWS = 2 * V4_RATIO };
    const size_t tile = cache_tile_bytes(PL_F32, 2 * WIDTH);
    struct token_table b = last_tokens(n_tok, N_SLOT);
    const struct graph_attr attr = {.scale = 1};
    struct cpu_call c = {.n_in = 3, .attr = &attr, .table = &b};
    const int64_t n_block = (n_tok + V4_RATIO - 1) / V4_RATIO;

    c.in[0] =
        (struct cpu_tensor){NULL, PL_F32, 3, {N_SLOT, 1, 2 * WIDTH}, NULL};
    c.in[0].data = memory(tile * (N_SLOT / PAGE_TOKENS));
    memset(c.in[0].data, 0, tile * (N_SLOT / PAGE_TOKENS));
    c.in[1] = tensor(n_tok, 1, 1);
    c.in[2] = tensor(V4_RATIO, WIDTH, 1);
    c.in[2].n_dim = 2;
    c.out = tensor(n_tok, V4_D, 1);
    c.out.n_dim = 2;
    run(k, name, KERNEL_block_mean, c,
        4.0 * (double)(n_block * ROWS * 2 * V4_D + n_tok * V4_D), 0);
}

static void run_streams(const struct cpu_kernels *k, const char *name,
                        enum kernel kernel, int64_t n_tok)
{
    enum { N = 4, WEIGHTS = N * (N + 2) };
    const struct graph_attr attr = {.n_iter = 20, .eps = 1e-6f};
    struct cpu_call c = {.n_in = 3, .attr = &attr};
    const bool mixes = kernel == KERNEL_mix_streams;

    c.in[0] = mixes ? tensor(n_tok, N, V4_E) : tensor(n_tok, 1, WEIGHTS);
    c.in[1] = mixes ? tensor(n_tok, 1, V4_E) : tensor(1, 1, 3);
    c.in[2] = tensor(mixes ? n_tok : 1, 1, mixes ? N * (N + 1) : WEIGHTS);
    c.out = mixes ? tensor(n_tok, N, V4_E) : tensor(n_tok, 1, WEIGHTS);
    run(k, name, kernel, c,
        4.0 * (double)n_tok *
            (mixes ? (2 * N + 1) * (double)V4_E : 2.0 * WEIGHTS),
        mixes ? (double)(n_tok * N * (N + 1) * V4_E) : 0);
}

static void run_cache_write(const struct cpu_kernels *k, const char *name,
                            pl_format f, bool values, int n_tok)
{
    enum { N_TOK = 512 };
    const struct graph_attr attr = {.values = values};
    static int32_t pos[N_TOK], seq[N_TOK], pages[N_TOK / PAGE_TOKENS];
    struct token_table b = {n_tok, n_tok, pos, seq, pages, N_TOK / PAGE_TOKENS};
    struct cpu_call c = {.n_in = 2, .attr = &attr, .table = &b};

    for (int i = 0; i < N_TOK; i++)
        pos[i] = i;
    for (int i = 0; i < N_TOK / PAGE_TOKENS; i++)
        pages[i] = i;
    c.out = cache(f, N_TOK, D);
    c.in[1] = tensor(n_tok, N_KV, D);
    run(k, name, KERNEL_cache_write, c,
        (double)n_tok * N_KV * D * 4 +
            (double)cache_tile_bytes(f, D) * N_KV * n_tok / PAGE_TOKENS,
        0);
}

static void run_rows(const struct cpu_kernels *k, const char *name,
                     enum kernel kernel, int64_t n_tok, int64_t d)
{
    const struct graph_attr attr = {
        .eps = 1e-6f, .base = 1e6f, .freq_scale = 1, .n_rot = D, .neox = 1};
    struct cpu_call c = {.n_in = 2, .attr = &attr};
    double n = (double)(n_tok * d) * 4;

    c.in[0] = tensor(n_tok, 1, d);
    c.out = tensor(n_tok, 1, d);
    if (kernel == KERNEL_rms_norm || kernel == KERNEL_layer_norm) {
        c.in[1] = tensor(1, 1, d);
    } else if (kernel == KERNEL_rope) {
        c.in[1] = tensor(n_tok, 1, 1);
        for (int i = 0; i < n_tok; i++)
            ((int32_t *)c.in[1].data)[i] = i;
        c.in[0].dim[1] = c.out.dim[1] = d / D;
        c.in[0].dim[2] = c.out.dim[2] = D;
    } else {
        c.in[1] = tensor(n_tok, 1, d);
    }
    run(k, name, kernel, c,
        kernel == KERNEL_rms_norm || kernel == KERNEL_layer_norm ||
                kernel == KERNEL_rope
            ? 2 * n
            : 3 * n,
        0);
}

/* ---- recurrent layers ---------------------------------------------------- */

/* The sizes of Qwen3-Next: 16 key heads, 32 value heads, and a convolution over
 * all of q, k and v. Successive calls use different states, so that calls with
 * one token find their state in memory, not in a processor's cache, as in a
 * model. */
enum { NET_K = 16, NET_V = 32, NET_CHANNELS = (2 * NET_K + NET_V) * D };
enum { NET_SLOTS = 24, NET_STATE = NET_V * D * D };

struct net_job {
    const struct cpu_kernels *k;
    struct cpu_delta_net a;
    /* [NET_SLOTS, NET_STATE] states, of which each call uses one */
    float *state;
    void *scratch;
};

static void net_run(void *arg, int i)
{
    struct net_job *j = arg;

    j->a.state_in = j->state + (int64_t)i % NET_SLOTS * NET_STATE;
    j->a.state_out = j->state + (int64_t)(i + 1) % NET_SLOTS * NET_STATE;
    j->k->delta_net(&j->a, 0, cpu_delta_net_items(&j->a), j->scratch);
}

static void run_delta_net(const struct cpu_kernels *k, const char *name,
                          int64_t n_tok, bool channels)
{
    static int32_t map[NET_V];
    const int64_t n_decay = channels ? NET_V * D : 1;
    struct cpu_tensor decay = tensor(n_tok, 1, n_decay);
    struct cpu_tensor qkv = tensor(n_tok, 1, NET_CHANNELS);
    struct cpu_tensor gate = tensor(n_tok, 2, NET_V);
    struct cpu_tensor out = tensor(n_tok, NET_V, D);
    struct cpu_tensor state = tensor(NET_SLOTS, NET_V, D * D);
    float *x = qkv.data, *g = gate.data, *by_channel = decay.data;
    struct net_job job = {
        .k = k,
        .state = state.data,
        .a = {.n_tok = n_tok,
              .n_head_k = NET_K,
              .n_head_v = NET_V,
              .d_k = D,
              .d_v = D,
              .head_map = map,
              .q = x,
              .k = x + NET_K * D,
              .v = x + 2 * NET_K * D,
              .channels = channels,
              .g = channels ? by_channel : g,
              .beta = g + NET_V,
              .q_stride = NET_CHANNELS,
              .k_stride = NET_CHANNELS,
              .v_stride = NET_CHANNELS,
              .g_stride = channels ? n_decay : 2 * NET_V,
              .beta_stride = 2 * NET_V,
              .eps = 1e-6f,
              .out = out.data,
              .out_stride = NET_V * D},
    };

    for (int i = 0; i < NET_V; i++)
        map[i] = i % NET_K;
    for (int64_t i = 0; i < n_tok * 2 * NET_V; i++)
        g[i] = -fabsf(g[i]);
    for (int64_t i = 0; i < n_tok * n_decay; i++)
        by_channel[i] = -fabsf(by_channel[i]);
    job.scratch = memory(cpu_delta_net_scratch(&job.a));
    if (strstr(name, only) != NULL)
        measure(name, net_run, &job,
                4.0 * (2.0 * NET_STATE +
                       (double)n_tok *
                           (double)(NET_CHANNELS + NET_V * D + n_decay)),
                4.0 * NET_STATE * (double)n_tok);
    free(job.scratch);
    free(decay.data);
    free(qkv.data);
    free(gate.data);
    free(out.data);
    free(state.data);
}

/* The sizes of Nemotron Nano 2: 8 groups, 128 heads. */
enum { SCAN_G = 8, SCAN_N = 128, SCAN_S = 128, SCAN_P = 80, SCAN_SLOTS = 20 };
enum { SCAN_ROW = (2 * SCAN_G * SCAN_S + SCAN_N * SCAN_P) };
enum { SCAN_STATE = SCAN_N * SCAN_S * SCAN_P };

struct scan_job {
    const struct cpu_kernels *k;
    struct cpu_ssm_scan a;
    /* [SCAN_SLOTS, SCAN_STATE] states, of which each call uses one */
    float *state;
    void *scratch;
};

static void scan_run(void *arg, int i)
{
    struct scan_job *j = arg;

    j->a.state_in = j->state + (int64_t)i % SCAN_SLOTS * SCAN_STATE;
    j->a.state_out = j->state + (int64_t)(i + 1) % SCAN_SLOTS * SCAN_STATE;
    j->k->ssm_scan(&j->a, 0, cpu_ssm_scan_items(&j->a), j->scratch);
}

static void run_ssm_scan(const struct cpu_kernels *k, const char *name,
                         int64_t n_tok)
{
    static int32_t map[SCAN_N];
    struct cpu_tensor cbx = tensor(n_tok, 1, SCAN_ROW);
    struct cpu_tensor decay = tensor(n_tok, 1, SCAN_N);
    struct cpu_tensor out = tensor(n_tok, SCAN_N, SCAN_P);
    struct cpu_tensor state = tensor(SCAN_SLOTS, SCAN_N, SCAN_S * SCAN_P);
    float *x = cbx.data, *g = decay.data;
    struct scan_job job = {
        .k = k,
        .state = state.data,
        .a = {.n_tok = n_tok,
              .n_group = SCAN_G,
              .n_head = SCAN_N,
              .d_state = SCAN_S,
              .d_head = SCAN_P,
              .head_map = map,
              .c = x,
              .b = x + SCAN_G * SCAN_S,
              .x = x + 2 * SCAN_G * SCAN_S,
              .g = g,
              .c_stride = SCAN_ROW,
              .b_stride = SCAN_ROW,
              .x_stride = SCAN_ROW,
              .g_stride = SCAN_N,
              .out = out.data,
              .out_stride = SCAN_N * SCAN_P},
    };

    for (int i = 0; i < SCAN_N; i++)
        map[i] = i / (SCAN_N / SCAN_G);
    for (int64_t i = 0; i < n_tok * SCAN_N; i++)
        g[i] = -fabsf(g[i]);
    job.scratch = memory(cpu_ssm_scan_scratch(&job.a));
    if (strstr(name, only) != NULL)
        measure(name, scan_run, &job,
                4.0 * (2.0 * SCAN_STATE +
                       (double)n_tok * (SCAN_ROW + SCAN_N * SCAN_P)),
                3.0 * SCAN_STATE * (double)n_tok);
    free(job.scratch);
    free(cbx.data);
    free(decay.data);
    free(out.data);
    free(state.data);
}

struct conv_job {
    const struct cpu_kernels *k;
    struct cpu_short_conv a;
    void *scratch;
};

static void conv_run(void *arg, int i)
{
    struct conv_job *j = arg;

    (void)i;
    j->k->short_conv(&j->a, 0, NET_CHANNELS, j->scratch);
}

static void run_short_conv(const struct cpu_kernels *k, const char *name,
                           int64_t n_tok)
{
    enum { N_TAP = 4 };
    struct cpu_tensor x = tensor(n_tok, 1, NET_CHANNELS);
    struct cpu_tensor out = tensor(n_tok, 1, NET_CHANNELS);
    struct cpu_tensor w = tensor(1, NET_CHANNELS, N_TAP);
    struct cpu_tensor state = tensor(1, N_TAP - 1, NET_CHANNELS);
    struct conv_job job = {
        .k = k,
        .a = {.n_tok = n_tok,
              .n_channel = NET_CHANNELS,
              .n_tap = N_TAP,
              .x = x.data,
              .x_stride = NET_CHANNELS,
              .w = w.data,
              .state_in = state.data,
              .state_out = state.data,
              .out = out.data,
              .out_stride = NET_CHANNELS,
              .silu = true},
    };

    job.scratch = memory(cpu_short_conv_scratch(&job.a));
    if (strstr(name, only) != NULL)
        measure(name, conv_run, &job,
                4.0 * NET_CHANNELS * (2.0 * (double)n_tok + 10), 0);
    free(job.scratch);
    free(x.data);
    free(out.data);
    free(w.data);
    free(state.data);
}

int main(int argc, char **argv)
{
    enum kernel_set set;
    struct cpu_kernels k;
    pl_limits limits;
    pl_meter *meter;
    pl_err err;

    if (kernel_set_find(&set, argc > 1 ? argv[1] : NULL, false, &err)) {
        fprintf(stderr, "bench-ops: %s\n", err.message);
        return 2;
    }
    if (argc > 2)
        only = argv[2];
    if (pl_meter_create(&meter, &err)) {
        fprintf(stderr, "bench-ops: %s\n", err.message);
        return 1;
    }
    for (int i = 0; i < 8; i++) { /* the best: others use the machine, too */
        pl_meter_measure(meter, NULL, &limits, sizeof limits, NULL);
        peak = fmax(peak, 0.5 * limits.float_ops_per_s / limits.n_threads);
        bandwidth = fmax(bandwidth, limits.read_bytes_per_s / limits.n_threads);
    }
    pl_meter_free(meter);
    cpu_kernels_init(&k, set);
    printf("%-32s %13s %13s; reads %.1f GB/s\n", kernel_set_name(set), "median",
           "least", bandwidth * 1e-9);
    run_rows(&k, "rms_norm_1x1024", KERNEL_rms_norm, 1, 1024);
    run_rows(&k, "rms_norm_512x1024", KERNEL_rms_norm, 512, 1024);
    run_rows(&k, "layer_norm_1x4096", KERNEL_layer_norm, 1, 4096);
    run_rows(&k, "layer_norm_512x4096", KERNEL_layer_norm, 512, 4096);
    run_rows(&k, "swiglu_1x3072", KERNEL_swiglu, 1, 3072);
    run_rows(&k, "swiglu_512x3072", KERNEL_swiglu, 512, 3072);
    run_rows(&k, "add_512x1024", KERNEL_add, 512, 1024);
    run_rows(&k, "rope_1x2048", KERNEL_rope, 1, 2048);
    run_rows(&k, "rope_512x2048", KERNEL_rope, 512, 2048);
    run_cache_write(&k, "cache_write_f16_keys_1", PL_F16, false, 1);
    run_cache_write(&k, "cache_write_f16_keys_512", PL_F16, false, 512);
    run_cache_write(&k, "cache_write_f16_values_512", PL_F16, true, 512);
    run_cache_write(&k, "cache_write_q8_0_keys_512", PL_Q8_0, false, 512);
    run_attention(&k, "attention_f16_decode_c512", PL_F16, D, 1, 512);
    run_attention(&k, "attention_f16_decode_c4096", PL_F16, D, 1, 4096);
    run_attention(&k, "attention_q8_0_decode_c512", PL_Q8_0, D, 1, 512);
    run_attention(&k, "attention_q8_0_decode_c4096", PL_Q8_0, D, 1, 4096);
    run_attention(&k, "attention_q4_0_decode_c4096", PL_Q4_0, D, 1, 4096);
    run_attention(&k, "attention_q5_1_decode_c4096", PL_Q5_1, D, 1, 4096);
    run_attention(&k, "attention_f16_prefill_512", PL_F16, D, 512, 512);
    run_attention(&k, "attention_q8_0_prefill_512", PL_Q8_0, D, 512, 512);
    run_attention(&k, "attention_f16_d64_prefill_512", PL_F16, 64, 512, 512);
    run_attention(&k, "attention_q8_0_d64_prefill_512", PL_Q8_0, 64, 512, 512);
    run_attention(&k, "attention_f16_128_c4096", PL_F16, D, 128, 4096);
    run_attention(&k, "attention_q8_0_128_c4096", PL_Q8_0, D, 128, 4096);
    run_attention(&k, "attention_f16_d64_128_c4096", PL_F16, 64, 128, 4096);
    run_attention(&k, "attention_q8_0_d64_128_c4096", PL_Q8_0, 64, 128, 4096);
    if (kernel_set_has_bf16(set)) {
        run_attention(&k, "bf16_attention_f16_decode_c4096", PL_F16, D, 1,
                      4096);
        run_attention(&k, "bf16_attention_bf16_decode_c4096", PL_BF16, D, 1,
                      4096);
        run_attention(&k, "bf16_attention_q8_0_decode_c4096", PL_Q8_0, D, 1,
                      4096);
        run_attention(&k, "bf16_attention_f16_prefill_512", PL_F16, D, 512,
                      512);
        run_attention(&k, "bf16_attention_f16_d64_prefill_512", PL_F16, 64, 512,
                      512);
        run_attention(&k, "bf16_attention_f16_128_c4096", PL_F16, D, 128, 4096);
        run_attention(&k, "bf16_attention_q8_0_128_c4096", PL_Q8_0, D, 128,
                      4096);
    }
    run_index(&k, "index_topk_decode_c4096", 1, 4096);
    run_index(&k, "index_topk_decode_c32768", 1, 32768);
    run_index(&k, "index_topk_16_c8192", 16, 8192);
    run_latents(&k, "latents_decode_c2048", false, 1, 2048);
    run_latents(&k, "latents_decode_c32768", false, 1, 32768);
    run_latents(&k, "chosen_latents_decode_c4096", true, 1, 4096);
    run_latents(&k, "chosen_latents_decode_c32768", true, 1, 32768);
    run_latents(&k, "chosen_latents_16_c8192", true, 16, 8192);
    run_index_blocks(&k, "index_blocks_decode_c32768", 1, 32768);
    run_index_blocks(&k, "index_blocks_16_c8192", 16, 8192);
    run_blocks(&k, "chosen_blocks_decode_c32768", 1, 32768);
    run_blocks(&k, "chosen_blocks_16_c8192", 16, 8192);
    run_compressed(&k, "compressed_decode_c4096", false, 1, 4096);
    run_compressed(&k, "compressed_chosen_decode_c16384", true, 1, 16384);
    run_compressed(&k, "compressed_chosen_16_c8192", true, 16, 8192);
    run_block_mean(&k, "block_mean_decode", 1);
    run_block_mean(&k, "block_mean_prefill_512", 512);
    run_streams(&k, "sinkhorn_1", KERNEL_sinkhorn, 1);
    run_streams(&k, "sinkhorn_512", KERNEL_sinkhorn, 512);
    run_streams(&k, "mix_streams_1x4x4096", KERNEL_mix_streams, 1);
    run_streams(&k, "mix_streams_512x4x4096", KERNEL_mix_streams, 512);
    run_delta_net(&k, "delta_net_decode", 1, false);
    run_delta_net(&k, "delta_net_prefill_512", 512, false);
    run_delta_net(&k, "delta_net_channels_decode", 1, true);
    run_delta_net(&k, "delta_net_channels_prefill_512", 512, true);
    run_ssm_scan(&k, "ssm_scan_decode", 1);
    run_ssm_scan(&k, "ssm_scan_prefill_512", 512);
    run_short_conv(&k, "short_conv_1x8192", 1);
    run_short_conv(&k, "short_conv_512x8192", 512);
    return 0;
}
