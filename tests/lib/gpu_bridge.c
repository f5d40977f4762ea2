/* Translates a cpu_call into launches on the emulator or on a GPU; gpu_bridge.h
 * describes the functions. */
#include "lib/gpu_bridge.h"

#include "lib/gpu_copies.h"
#include "lib/support.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "emu/emu_driver.h"
#include "emu/emu_run.h"
#include "quant/grid.h"

/* copies of the call's operands in device memory; NULL if kernels use the
 * operands where they are, as in the emulator */
static _Thread_local const struct gpu_copies *copies;

static uint64_t address(const void *p)
{
    return copies ? gpu_copies_at(copies, p) : (uint64_t)(uintptr_t)p;
}

static struct gpu_tensor tensor(const struct cpu_tensor *t)
{
    size_t bytes;
    struct gpu_tensor g = {.at = address(t->data),
                           .format = t->format,
                           .n_dim = t->n_dim,
                           .pack = t->pack,
                           .chunk = t->pack ? address(t->pack->chunk) : 0,
                           .grid = address(quant_grid(t->format, &bytes))};

    memcpy(g.dim, t->dim, sizeof g.dim);
    return g;
}

static struct gpu_call translate(const struct cpu_call *c)
{
    struct gpu_call g = {.out = tensor(&c->out),
                         .n_in = c->n_in,
                         .attr = c->attr,
                         .q8 = address(c->q8),
                         .head_map = c->head_map,
                         .head_map_at = address(c->head_map),
                         .tree = c->tree,
                         .tree_at = address(c->tree.item),
                         .span = c->span,
                         .span_at = address(c->span),
                         .n_span = c->n_span,
                         .out_stride = c->out_stride};

    for (int i = 0; i < GRAPH_MAX_IN; i++)
        g.in[i] = tensor(&c->in[i]);
    if (c->table) {
        gpu_call_set_table(&g, c->table);
        g.pos = address(c->table->pos);
        g.seq = address(c->table->seq);
        g.pages = address(c->table->pages);
    }
    return g;
}

/* Returns the number of multiprocessors that the GPU claims to have, by which
 * it chooses kernels for few rows or for many: in turn unknown (0), one, and
 * more than any call has groups for. */
static int units(int turn)
{
    static const int n[] = {0, 1, 4096};

    return n[turn % 3];
}

/* ---- in the emulator ----------------------------------------------------- */

/* Computes a call in the emulator. If `known`, the host knows the tokens'
 * positions and passes them on. */
static void emulate(const struct cpu_call *c, enum kernel k, int turn,
                    bool known)
{
    static _Thread_local struct emu *emu;
    struct launch_list l = {0};
    struct gpu_call g;
    size_t bytes;
    void *scratch;

    if (!emu)
        emu = emu_new(1);
    assert_non_null(emu);
    g = translate(c);
    if (!known)
        g.n_seq = g.n_page = 0;
    g.n_unit = units(turn);
    bytes = gpu_entries[k].scratch ? gpu_entries[k].scratch(&g) : 0;
    scratch = aligned_alloc(256, (bytes + 256) / 256 * 256);
    assert_non_null(scratch);
    memset(scratch, 0xff, bytes);
    g.scratch = address(scratch);
    gpu_entries[k].launch(&l, &g);
    assert_false(l.no_memory);
    for (int i = 0; i < l.n; i++) {
        const char *wrong =
            emu_launch(emu, l.launch[i].kernel, l.launch[i].n_group,
                       l.bytes + l.launch[i].args);

        if (wrong)
            fail_msg("%s: %s", gpu_kernel_name(l.launch[i].kernel), wrong);
    }
    gpu_list_free(&l);
    free(scratch);
}

/* Computes a call in the emulator. If the host does not know the tokens'
 * positions, attention has other launches, but the results must be the same.
 * Every fourth call of attention, and each with a very large page table, is
 * computed both ways. */
static void run_emulated(const struct cpu_call *c, enum kernel k, int turn)
{
    static _Thread_local int both;
    size_t bytes = sizeof(float);
    void *first;

    emulate(c, k, turn, true);
    if ((!kernel_is_attention(k) && !kernel_is_index(k)) ||
        (both++ % 4 && c->table->page_stride < 1000))
        return;
    for (int i = 0; i < c->out.n_dim; i++)
        bytes *= (size_t)c->out.dim[i];
    first = test_need(1, bytes);
    memcpy(first, c->out.data, bytes);
    memset(c->out.data, 0xa5, bytes);
    emulate(c, k, turn + 1, false);
    assert_memory_equal(c->out.data, first, bytes);
    free(first);
}

/* ---- by a driver --------------------------------------------------------- */

static struct {
    const struct gpu_driver *d; /* driver of the GPU; NULL for the emulator */
    struct gpu *g;
    uint64_t at; /* address of the device memory to which operands are copied */
    size_t bytes;
    int n_call;
} driver;

/* Opens the GPU that is number i in the driver's list, which -dev counts in the
 * same order. */
static pl_status open_listed(int i, pl_err *err)
{
    struct gpu_info info[64];
    int n;

    PL_TRY(driver.d->list(info, 64, &n, err));
    if (i < 0 || i >= n)
        fail_msg("PLAIT_GPU_TEST: %s has %d GPUs", driver.d->name, n);
    return driver.d->open(&driver.g, info[i].index, err);
}

static void say_calls(void)
{
    printf("%s%d\n", GPU_BRIDGE_CALLS, driver.n_call);
    driver.d->close(driver.g);
}

/* Opens the GPU of $PLAIT_GPU_TEST, which is NAME or NAME:I: a driver, and an
 * index into its list of GPUs. */
static void begin(void)
{
    static const struct gpu_driver *const drivers[] = {&gpu_emu, &gpu_cuda,
                                                       &gpu_hip, &gpu_opencl};
    const char *wanted = getenv("PLAIT_GPU_TEST");
    const char *cache = getenv("PLAIT_TEST_CACHE");
    size_t n;
    pl_err err;

    if (driver.g || !wanted)
        return;
    assert_int_equal(
        setenv("XDG_CACHE_HOME", cache ? cache : test_temp("cache"), 1), 0);
    n = strcspn(wanted, ":");
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
        if (strlen(drivers[i]->name) == n &&
            strncmp(drivers[i]->name, wanted, n) == 0)
            driver.d = drivers[i];
    if (!driver.d)
        fail_msg("PLAIT_GPU_TEST=%s: a driver is emu, cuda, hip or opencl",
                 wanted);
    TEST_OK(open_listed(wanted[n] ? atoi(wanted + n + 1) : 0, &err), err);
    assert_int_equal(atexit(say_calls), 0);
}

/* ---- a selection --------------------------------------------------------- */

/* A kind of calls: kernel, formats of its two operands, and number of rows. */
struct kind {
    enum kernel kernel;
    pl_format format[2];
    enum gpu_bridge_rows rows;
};

enum { MAX_KIND = 2048 };

static struct seen {
    struct kind kind;
    /* number of calls of this kind, and how many of them a GPU's kernel
     * computed */
    int n, n_run;
} seen[MAX_KIND];
static int n_seen;

static enum gpu_bridge_rows rows_of(const struct cpu_call *c)
{
    int64_t n = c->in[0].dim[0];

    return n == 1    ? ROWS_ONE
           : n <= 8  ? ROWS_FEW
           : n <= 32 ? ROWS_SOME
                     : ROWS_MANY;
}

static bool is_contraction(enum kernel k)
{
    return k == KERNEL_matmul || k == KERNEL_head_matmul ||
           k == KERNEL_expert_matmul || k == KERNEL_expert_down;
}

static struct seen *seen_of(const struct cpu_call *c, enum kernel k)
{
    struct kind want;
    int i = 0;

    memset(&want, 0, sizeof want);
    want.kernel = k;
    want.format[0] = c->in[0].format;
    want.format[1] = c->in[1].format;
    want.rows = rows_of(c);
    while (i < n_seen && memcmp(&seen[i].kind, &want, sizeof want) != 0)
        i++;
    if (i == n_seen) {
        assert_true(n_seen < MAX_KIND);
        seen[n_seen++].kind = want;
    }
    return &seen[i];
}

int gpu_bridge_calls(enum kernel k, pl_format weights,
                     enum gpu_bridge_rows rows)
{
    int n = 0;

    for (int i = 0; i < n_seen; i++) {
        const struct kind *at = &seen[i].kind;

        if (at->kernel == k && at->format[1] == weights && at->rows == rows)
            n += seen[i].n_run;
    }
    return n;
}

/* Returns true for weight formats that the short tier tries through OpenCL.
 * OpenCL's compilers take seconds per kernel, and each weight format has
 * several kernels. */
static bool is_common(const struct cpu_tensor *w)
{
    return test_long() || !w->pack || w->format == PL_Q8_0 ||
           w->format == PL_Q4_K || w->format == PL_BF16;
}

/* Returns true if a GPU's kernel computes call number `nth` of its kind;
 * otherwise plain C does. With OpenCL the first three calls of each kind, and
 * then one in sixteen. In the emulator and the short tier, of contractions,
 * which are most of the work, the first two of each kind, and then one in
 * eight; fewer in the brief tier. All calls of other kernels, and all calls
 * with other drivers. */
static bool chosen(const struct cpu_call *c, enum kernel k, int nth)
{
    if (driver.d == &gpu_opencl)
        return is_common(&c->in[0]) && is_common(&c->in[1]) &&
               (nth < 3 || nth % 16 == 0);
    if (driver.d || test_long() || !is_contraction(k))
        return true;
    return test_brief() ? nth == 0 || nth % 32 == 7 : nth < 2 || nth % 8 == 7;
}

static void need_room(size_t bytes)
{
    pl_err err;

    if (bytes <= driver.bytes)
        return;
    if (driver.at)
        driver.d->release(driver.g, driver.at);
    driver.bytes = bytes * 2;
    TEST_OK(driver.d->alloc(driver.g, driver.bytes, &driver.at, &err), err);
}

static void run_driven(const struct cpu_call *c, enum kernel k)
{
    const struct gpu_driver *d = driver.d;
    int n_unit = units(driver.n_call);
    enum queue q = driver.n_call++ % QUEUE_COUNT;
    struct launch_list l = {0};
    struct gpu_copies m;
    struct gpu_call g;
    unsigned char *image;
    pl_err err;

    gpu_copies_of(&m, k, c);
    copies = &m;
    g = translate(c);
    g.n_unit = n_unit;
    gpu_copies_add_scratch(
        &m, gpu_entries[k].scratch ? gpu_entries[k].scratch(&g) : 0);
    need_room(m.bytes);
    m.at = driver.at;
    g = translate(c);
    g.n_unit = n_unit;
    copies = NULL;
    g.scratch = m.at + m.scratch;
    image = test_need(1, m.bytes);
    gpu_copies_fill(&m, image);
    gpu_entries[k].launch(&l, &g);
    assert_false(l.no_memory);
    TEST_OK(d->write(driver.g, q, m.at, image, m.bytes, &err), err);
    for (int i = 0; i < l.n; i++)
        TEST_OK(d->launch(driver.g, q, l.launch[i].kernel, l.launch[i].n_group,
                          l.bytes + l.launch[i].args, &err),
                err);
    TEST_OK(d->read(driver.g, q, image, m.at, m.bytes, &err), err);
    TEST_OK(d->finish(driver.g, q, &err), err);
    gpu_copies_take(&m, image);
    gpu_list_free(&l);
    free(image);
}

/* Computes in plain C a call that was not chosen. */
static void run_plain(const struct cpu_call *c, enum kernel k)
{
    struct cpu_kernels plain;
    struct cpu_call one = *c;
    size_t bytes;

    cpu_kernels_init(&plain, KERNEL_SET_GENERIC);
    one.nth = 1;
    one.taken = NULL;
    bytes = plain.kernel[k].scratch ? plain.kernel[k].scratch(&one) : 0;
    one.scratch = aligned_alloc(64, (bytes + 64) / 64 * 64);
    assert_non_null(one.scratch);
    plain.kernel[k].run(&one);
    free(one.scratch);
}

static void run(const struct cpu_call *c, enum kernel k)
{
    struct seen *of;
    int nth;

    if (c->ith > 0)
        return;
    of = seen_of(c, k);
    nth = of->n++;
    if (!chosen(c, k, nth)) {
        run_plain(c, k);
        return;
    }
    of->n_run++;
    if (driver.d)
        run_driven(c, k);
    else
        /* successive calls of a kind claim different numbers of
         * multiprocessors */
        run_emulated(c, k, (int)(of - seen) + of->n_run);
}

/* ---- tables -------------------------------------------------------------- */

#define KERNEL(name, args, values)                                             \
    static void run_##name(const struct cpu_call *c)                           \
    {                                                                          \
        run(c, KERNEL_##name);                                                 \
    }
#include "program/kernels.def"
#undef KERNEL

bool gpu_bridge_has(enum kernel k)
{
    return gpu_entries[k].launch != NULL;
}

void gpu_bridge_init(struct cpu_kernels *k)
{
    begin();
    cpu_kernels_init(k, KERNEL_SET_GENERIC);
#define KERNEL(name, args, values)                                             \
    if (gpu_bridge_has(KERNEL_##name))                                         \
        k->kernel[KERNEL_##name] = (struct cpu_entry){run_##name, NULL};
#include "program/kernels.def"
#undef KERNEL
}
