/* Measures a GPU. Usage: `bench-gpu [-t] [DRIVER[:I]]`, where DRIVER is cuda,
 * hip, opencl or emu. Without DRIVER it takes the first GPU that CUDA, HIP or
 * OpenCL has. -t takes tiny sizes, which only tests this program; the times
 * then mean nothing.
 *
 * Prints a line for each case: microseconds per call, as median over rounds of
 * many calls in a row, and a rate. Rates in bytes are compared with the rate at
 * which the GPU copies in its own memory, where read and written bytes count; a
 * multiply-add counts as two operations. Successive calls take their weights
 * and caches from successive parts of a pool that is larger than any GPU's
 * cache. Operands are random bytes, because results are checked elsewhere, by
 * the tests. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu/emu_driver.h"
#include "program/cache_tile.h"
#include "quant/pack.h"
#include "quant/q8.h"
#include "timing.h"

enum { N_ROUND = 9, N_HEAD = 32, N_KV = 8, D = 128, MAX_COPY = 4096 };

/* Sizes of the operands, of a full run and of a tiny one (-t). */
struct sizes {
    /* bytes of the pool in device memory, and of the host's buffer */
    size_t pool, host;
    int64_t rows[2], k; /* rows and columns of the weight matrices */
    int64_t tokens[2], context[2];
    int n_launch;
    double least_s; /* shortest duration of a round, in seconds */
};
static const struct sizes full = {
    (size_t)768 << 20, (size_t)64 << 20, {4096, 14336}, 4096,
    {512, 2048},       {4096, 32768},    2000,          0.03,
};
static const struct sizes tiny = {
    4 << 20, 1 << 20, {64, 128}, 256, {9, 16}, {128, 256}, 20, 0,
};

static struct {
    const struct gpu_driver *d;
    struct gpu *g;
    const struct sizes *size;
    /* addresses of buffers in device memory: pool of weights and caches,
     * activations, result, scratch */
    uint64_t pool, x, out, scratch;
    size_t x_bytes, out_bytes, scratch_bytes;
    /* buffer of host memory from the driver, filled with random bytes */
    unsigned char *host;
    /* Bytes a second that the GPU copies in its own memory, read and written; 0
     * before it is measured. */
    double copy_rate;
    int n_unit; /* number of the GPU's multiprocessors */
} b;

static pl_err err;

static void must(pl_status s, const char *what)
{
    if (s != PL_OK)
        bench_die(what, err.message);
}

/* ---- rounds -------------------------------------------------------------- */

typedef void step(void *user, int i);

static double round_of(step *f, void *user, int n)
{
    double t = bench_now();

    for (int i = 0; i < n; i++)
        f(user, i);
    for (int q = 0; q < QUEUE_COUNT; q++)
        must(b.d->finish(b.g, (enum queue)q, &err), "finish");
    return bench_now() - t;
}

/* Returns the seconds of one call of f(): the median over rounds of many
 * calls. */
static double measure(step *f, void *user)
{
    double v[N_ROUND], once;
    int n = 1;

    /* the first call may compile kernels, so it is not measured */
    round_of(f, user, 1);
    once = round_of(f, user, 1);
    while (n * once < b.size->least_s && n < 4096)
        n *= 2;
    for (int i = 0; i < N_ROUND; i++)
        v[i] = round_of(f, user, n) / n;
    return bench_median(v, N_ROUND);
}

static void say_bytes(const char *name, double s, double bytes)
{
    printf("%-36s %10.2f us %9.1f GB/s", name, s * 1e6, bytes / s * 1e-9);
    if (b.copy_rate > 0)
        printf(" %5.0f %%", 100 * bytes / s / b.copy_rate);
    printf("\n");
}

/* ---- copies and queues --------------------------------------------------- */

static void step_write(void *user, int i)
{
    (void)user;
    (void)i;
    must(b.d->write(b.g, QUEUE_COPY, b.pool, b.host, b.size->host, &err),
         "write");
}

static void step_read(void *user, int i)
{
    (void)user;
    (void)i;
    must(b.d->read(b.g, QUEUE_COPY, b.host, b.pool, b.size->host, &err),
         "read");
}

static void step_copy(void *user, int i)
{
    size_t half = b.size->pool / 2;

    (void)user;
    (void)i;
    must(b.d->copy(b.g, QUEUE_COMPUTE, b.pool + half, b.pool, half, &err),
         "copy");
}

/* Makes each of the two queues wait for a fence of the other. */
static void step_marks(void *user, int i)
{
    (void)user;
    (void)i;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        must(b.d->fence_record(b.g, (enum queue)q, q, &err), "mark");
        must(b.d->fence_wait(b.g, (enum queue) !q, q, &err), "await");
    }
}

static void copies(void)
{
    double bytes = (double)b.size->host, s;

    say_bytes("copy_host_to_device", measure(step_write, NULL), bytes);
    say_bytes("copy_device_to_host", measure(step_read, NULL), bytes);
    s = measure(step_copy, NULL);
    say_bytes("copy_on_device", s, (double)b.size->pool);
    b.copy_rate = (double)b.size->pool / s;
    printf("%-36s %10.2f us\n", "queues_wait_for_each_other",
           measure(step_marks, NULL) * 1e6);
}

/* ---- kernels ------------------------------------------------------------- */

/* Calls of one kernel that differ only in the address of their weights or
 * caches. */
struct job {
    enum kernel kernel;
    struct gpu_call c;
    struct launch_list list[MAX_COPY]; /* [n] the launches of each call */
    int n;
};

static void step_job(void *user, int i)
{
    const struct job *j = user;
    const struct launch_list *l = &j->list[i % j->n];

    for (int k = 0; k < l->n; k++)
        must(b.d->launch(b.g, QUEUE_COMPUTE, l->launch[k].kernel,
                         l->launch[k].n_group, l->bytes + l->launch[k].args,
                         &err),
             "launch");
}

/* Makes calls of `j` and returns the seconds of one. The n_pooled operands
 * in[first], in[first + 1], ... have `bytes` bytes each. They lie next to each
 * other in the pool, elsewhere for each call. */
static double run_job(struct job *j, int first, int n_pooled, size_t bytes)
{
    const struct gpu_entry *e = &gpu_entries[j->kernel];
    size_t each = (bytes + 255) / 256 * 256 * (size_t)n_pooled;
    double s;

    if (each > b.size->pool)
        bench_die("pool", "an operand is larger");
    j->n =
        (int)(b.size->pool / each < MAX_COPY ? b.size->pool / each : MAX_COPY);
    if (e->scratch && e->scratch(&j->c) > b.scratch_bytes)
        bench_die("scratch", "a kernel wants more");
    j->c.scratch = b.scratch;
    j->c.n_unit = b.n_unit;
    for (int i = 0; i < j->n; i++) {
        for (int k = 0; k < n_pooled; k++)
            j->c.in[first + k].at = b.pool + (uint64_t)i * each +
                                    (uint64_t)k * (each / (size_t)n_pooled);
        j->list[i] = (struct launch_list){0};
        e->launch(&j->list[i], &j->c);
        if (j->list[i].no_memory)
            bench_die("launches", "no memory");
    }
    s = measure(step_job, j);
    for (int i = 0; i < j->n; i++)
        gpu_list_free(&j->list[i]);
    return s;
}

static struct gpu_tensor plain(uint64_t at, int64_t n0, int64_t n1)
{
    return (struct gpu_tensor){
        .at = at, .format = PL_F32, .n_dim = 2, .dim = {n0, n1}};
}

/* Returns the seconds of a product of n_tok rows of activations [n_tok, k] with
 * a weight [n, k]. Sets *bytes to the bytes of weights, activations and
 * result. */
static double product(pl_format f, int64_t n, int64_t k, int64_t n_tok,
                      double *bytes)
{
    static struct job j;
    static const struct tree_addend item = {0, 0};
    const struct pack_span span = {0, k, 0};
    struct pack_chunk *chunk =
        calloc((size_t)pack_max_chunks(f, &span, 1), sizeof *chunk);
    struct pack p;
    double s;

    if (!chunk)
        bench_die("product", "no memory");
    pack_init(&p, f, n, k, &span, 1, chunk);
    j = (struct job){
        .kernel = KERNEL_matmul,
        .c = {.n_in = 2,
              .q8 = b.x,
              .tree = {.n = 1, .n_out = 1, .item = &item, .depth = 1}}};
    j.c.in[0] = plain(b.x, n_tok, k);
    j.c.out = plain(b.out, n_tok, n);
    j.c.in[1] = plain(0, n, k);
    j.c.in[1].format = f;
    j.c.in[1].pack = &p;
    s = run_job(&j, 1, 1, p.matrix_bytes);
    *bytes = (double)p.matrix_bytes + 4.0 * (double)(n_tok * (n + k));
    free(chunk);
    return s;
}

static const pl_format formats[] = {PL_Q8_0, PL_Q4_K, PL_BF16};

static void products(void)
{
    const struct sizes *z = b.size;
    char name[64];
    double bytes, s;

    for (int f = 0; f < 3; f++)
        for (int i = 0; i < 2; i++) {
            s = product(formats[f], z->rows[i], z->k, 1, &bytes);
            snprintf(name, sizeof name, "matvec_%s_%lldx%lld",
                     format_info(formats[f])->name, (long long)z->rows[i],
                     (long long)z->k);
            say_bytes(name, s, bytes);
        }
    for (int f = 0; f < 3; f++)
        for (int i = 0; i < 2; i++) {
            s = product(formats[f], z->rows[1], z->k, z->tokens[i], &bytes);
            snprintf(name, sizeof name, "matmul_%s_%lldx%lld_%lld",
                     format_info(formats[f])->name, (long long)z->rows[1],
                     (long long)z->k, (long long)z->tokens[i]);
            printf("%-36s %10.2f us %9.2f TOPS\n", name, s * 1e6,
                   2e-12 * (double)(z->rows[1] * z->k * z->tokens[i]) / s);
        }
}

/* ---- attention ----------------------------------------------------------- */

/* Writes position, sequence, page table and head map of a sequence's last n_tok
 * tokens to device memory at `at`, and sets the fields of `c` to their
 * addresses. */
static void put_tables(struct gpu_call *c, uint64_t at, int64_t n_tok,
                       int64_t n_ctx)
{
    int64_t n_page = n_ctx / PAGE_TOKENS, n = 2 * n_tok + n_page + N_HEAD;
    int32_t *w = (int32_t *)(void *)b.host, *map;

    for (int64_t i = 0; i < n_tok; i++) {
        w[i] = (int32_t)(n_ctx - n_tok + i);
        w[n_tok + i] = 0;
    }
    for (int64_t i = 0; i < n_page; i++)
        w[2 * n_tok + i] = (int32_t)i;
    map = w + 2 * n_tok + n_page;
    for (int i = 0; i < N_HEAD; i++)
        map[i] = i / (N_HEAD / N_KV);
    must(b.d->write(b.g, QUEUE_COMPUTE, at, w, (size_t)n * 4, &err), "write");
    must(b.d->finish(b.g, QUEUE_COMPUTE, &err), "finish");
    c->table = (struct token_table){
        .n_tok = n_tok, .n_out = n_tok, .page_stride = n_page};
    c->pos = at;
    c->seq = at + (uint64_t)n_tok * 4;
    c->pages = c->seq + (uint64_t)n_tok * 4;
    c->head_map_at = c->pages + (uint64_t)n_page * 4;
    c->head_map = map;
}

static double attention(int64_t n_tok, int64_t n_ctx, double *bytes)
{
    static struct job j;
    const struct graph_attr attr = {.scale = 0.088f};
    size_t cache = cache_tile_bytes(PL_F16, D) * (size_t)N_KV *
                   (size_t)(n_ctx / PAGE_TOKENS);
    struct gpu_tensor heads = {
        .at = b.x, .format = PL_F32, .n_dim = 3, .dim = {n_tok, N_HEAD, D}};

    j = (struct job){.kernel = KERNEL_attention,
                     .c = {.n_in = 3, .attr = &attr}};
    j.c.in[0] = j.c.out = heads;
    j.c.out.at = b.out;
    for (int i = 1; i < 3; i++)
        j.c.in[i] = (struct gpu_tensor){
            .format = PL_F16, .n_dim = 3, .dim = {n_ctx, N_KV, D}};
    put_tables(&j.c, b.out + (uint64_t)(n_tok * N_HEAD * D) * 4, n_tok, n_ctx);
    *bytes = 2.0 * (double)cache;
    return run_job(&j, 1, 2, cache);
}

static void attentions(void)
{
    const struct sizes *z = b.size;
    char name[64];
    double bytes, s;

    for (int i = 0; i < 2; i++) {
        s = attention(1, z->context[i], &bytes);
        snprintf(name, sizeof name, "attention_f16_decode_%lld",
                 (long long)z->context[i]);
        say_bytes(name, s, bytes);
    }
    s = attention(z->tokens[0], z->context[0], &bytes);
    snprintf(name, sizeof name, "attention_f16_prompt_%lld_of_%lld",
             (long long)z->tokens[0], (long long)z->context[0]);
    printf("%-36s %10.2f us %9.2f TFLOP/s\n", name, s * 1e6,
           4e-12 * N_HEAD * D * (double)z->tokens[0] *
               ((double)z->context[0] - 0.5 * (double)z->tokens[0]) / s);
}

/* ---- launches ------------------------------------------------------------ */

/* Returns the seconds from one launch of a device graph with n launches to the
 * next launch. */
static double graph_gap(const struct gpu_graph *graph, int n)
{
    double gap[N_ROUND];

    for (int r = -1; r < N_ROUND; r++) {
        double t = bench_now();

        must(b.d->graph_run(b.g, QUEUE_COMPUTE, graph, &err), "a graph");
        must(b.d->finish(b.g, QUEUE_COMPUTE, &err), "finish");
        if (r >= 0)
            gap[r] = (bench_now() - t) / n;
    }
    return bench_median(gap, N_ROUND);
}

/* Measures a device graph of the same launch n_launch times in a row. Prints
 * the error instead if the launch cannot be captured. */
static void graph_launches(const struct launch_list *l, const char *what)
{
    int n = b.size->n_launch;
    struct gpu_graph_node *node = calloc((size_t)n, sizeof *node);
    int *before = calloc((size_t)n, sizeof *before);
    struct gpu_graph *graph;

    if (!node || !before)
        bench_die("a graph", "no memory");
    for (int i = 0; i < n; i++) {
        before[i] = i - 1;
        node[i] = (struct gpu_graph_node){.kernel = l->launch[0].kernel,
                                          .n_group = l->launch[0].n_group,
                                          .args = l->bytes + l->launch[0].args,
                                          .after = &before[i],
                                          .n_after = i > 0};
    }
    if (b.d->graph_make(b.g, node, n, &graph, &err) == PL_OK) {
        printf("%-36s %10.2f us\n", what, 1e6 * graph_gap(graph, n));
        b.d->graph_free(b.g, graph);
    } else {
        printf("%-36s %s\n", what, err.message);
    }
    free(node);
    free(before);
}

/* Measures small kernels launched in a row: the time from one to the next, and
 * the time that the issuing thread needs for each. */
static void launches(void)
{
    static struct job j;
    const struct graph_attr attr = {.scale = 0.5f};
    double gap[N_ROUND], issue[N_ROUND];

    j = (struct job){
        .kernel = KERNEL_scale, .n = 1, .c = {.n_in = 1, .attr = &attr}};
    j.c.in[0] = plain(b.x, 1, 256);
    j.c.out = plain(b.out, 1, 256);
    gpu_entries[j.kernel].launch(&j.list[0], &j.c);
    round_of(step_job, &j, 1);
    for (int r = 0; r < N_ROUND; r++) {
        double t = bench_now();

        for (int i = 0; i < b.size->n_launch; i++)
            step_job(&j, i);
        issue[r] = (bench_now() - t) / b.size->n_launch;
        must(b.d->finish(b.g, QUEUE_COMPUTE, &err), "finish");
        gap[r] = (bench_now() - t) / b.size->n_launch;
    }
    printf("%-36s %10.2f us\n", "launch_to_launch",
           1e6 * bench_median(gap, N_ROUND));
    printf("%-36s %10.2f us\n", "launch_issued",
           1e6 * bench_median(issue, N_ROUND));
    if (b.d->graph_make && b.d->overlap && b.d->overlap(b.g, true)) {
        graph_launches(&j.list[0], "launch_to_launch_overlapped");
        b.d->overlap(b.g, false);
    }
    if (b.d->graph_make)
        graph_launches(&j.list[0], "launch_to_launch_in_a_graph");
    gpu_list_free(&j.list[0]);
}

/* ---- a GPU --------------------------------------------------------------- */

/* Opens the i-th GPU of a driver, or the first that is not one of this
 * machine's processors. Returns false if there is none. */
static bool open_gpu(const struct gpu_driver *d, int i)
{
    struct gpu_info info[64];
    int n = 0, at = i < 0 ? 0 : i;
    uint64_t free_bytes;

    if (d->list(info, 64, &n, &err) != PL_OK)
        return false;
    while (i < 0 && at < n && info[at].on_cores)
        at++;
    if (at >= n) {
        snprintf(err.message, sizeof err.message, "%s has %d GPUs here",
                 d->name, n);
        return false;
    }
    if (d->open(&b.g, info[at].index, &err) != PL_OK)
        return false;
    b.d = d;
    b.n_unit = info[at].n_unit;
    free_bytes = info[at].available_bytes;
    if (d->free_memory)
        must(d->free_memory(info[at].index, &free_bytes, &err), "its memory");
    printf("%s:%d  %s, %d units, %.1f GB free\n", d->name, at, info[at].title,
           b.n_unit, (double)free_bytes * 1e-9);
    return true;
}

static void find(const char *name)
{
    static const struct gpu_driver *const drivers[] = {&gpu_cuda, &gpu_hip,
                                                       &gpu_opencl, &gpu_emu};
    size_t n = name ? strcspn(name, ":") : 0;

    for (int i = 0; i < 4; i++) {
        const char *own = drivers[i]->name;

        if (name && strlen(own) == n && strncmp(own, name, n) == 0) {
            if (!open_gpu(drivers[i], name[n] ? atoi(name + n + 1) : 0))
                bench_die(name, err.message);
            return;
        }
        if (!name && i < 3 && open_gpu(drivers[i], -1))
            return;
        if (!name && i < 3)
            fprintf(stderr, "no %s: %s\n", own, err.message);
    }
    bench_die(name ? name : "GPUs",
              name ? "a driver is cuda, hip, opencl or emu"
                   : "none of CUDA, HIP and OpenCL has one");
}

static void allocate(void)
{
    const struct sizes *z = b.size;
    int64_t n = z->tokens[1];
    uint64_t random = 1;

    b.x_bytes = (size_t)(n * (z->k > N_HEAD * D ? z->k : N_HEAD * D)) * 4;
    b.out_bytes =
        (size_t)(n * (z->rows[1] > N_HEAD * D ? z->rows[1] : N_HEAD * D)) * 4 +
        (1 << 20);
    b.scratch_bytes = (size_t)256 << 20;
    must(b.d->alloc(b.g, z->pool, &b.pool, &err), "pool");
    must(b.d->alloc(b.g, b.x_bytes, &b.x, &err), "operands");
    must(b.d->alloc(b.g, b.out_bytes, &b.out, &err), "results");
    must(b.d->alloc(b.g, b.scratch_bytes, &b.scratch, &err), "scratch");
    must(b.d->host_alloc(b.g, z->host, (void **)&b.host, &err), "host memory");
    for (size_t i = 0; i < z->host / 8; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        ((uint64_t *)(void *)b.host)[i] = random ^ random >> 29;
    }
    for (size_t at = 0; at < z->pool; at += z->host)
        must(b.d->write(b.g, QUEUE_COPY, b.pool + at, b.host, z->host, &err),
             "write");
    for (size_t at = 0, part; at < b.x_bytes; at += part) {
        part = b.x_bytes - at < z->host ? b.x_bytes - at : z->host;
        must(b.d->write(b.g, QUEUE_COPY, b.x + at, b.host, part, &err),
             "write");
    }
    must(b.d->finish(b.g, QUEUE_COPY, &err), "finish");
}

int main(int argc, char **argv)
{
    int c;

    /* writes each line at once, because the process may be killed */
    setvbuf(stdout, NULL, _IOLBF, 0);
    b.size = &full;
    while ((c = getopt(argc, argv, "t")) != -1) {
        if (c != 't')
            return 2;
        b.size = &tiny;
    }
    find(optind < argc ? argv[optind] : NULL);
    allocate();
    copies();
    launches();
    products();
    attentions();
    b.d->host_release(b.g, b.host);
    b.d->close(b.g);
    return 0;
}
