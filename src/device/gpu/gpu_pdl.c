/* A chain of launches that turn a row of numbers around and add one to each: a
 * number which is read too early is too small in the end. */
#include "device/gpu/gpu_pdl.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/gpu/gpu_kernel_cache.h"
#include "device/gpu/gpu_launch.h"
#include "device/gpu/gpu_switch.h"
#include "device/gpu/gpu_text.h"

enum {
    N = 1 << 14,   /* numbers of a row; all groups are under way at once */
    N_LAUNCH = 64, /* of the graph; even, so the last one writes row 0 */
    N_RUN = 2,
    LANES = 256
};

struct rows {
    float row[2][N], one;
};

/* ---- what came of it before ---------------------------------------------- */

struct overlap_key {
    char what[16], identity[256];
    uint64_t text;
};

static bool key_of(struct overlap_key *key, struct gpu_device *x)
{
    memset(key, 0, sizeof *key);
    snprintf(key->what, sizeof key->what, "overlap 1");
    key->text = gpu_text.hash;
    return x->driver->identity &&
           x->driver->identity(x->gpu, key->identity, sizeof key->identity,
                               NULL) == PL_OK;
}

/* What came of a trial. */
enum found { UNTRIED, WAITS, WAITS_NOT };

static enum found remember(const struct overlap_key *key)
{
    size_t n = 0;
    unsigned char *kept = gpu_cache_load(key, sizeof *key, &n);
    enum found f = n != 1 ? UNTRIED : *kept == WAITS ? WAITS : WAITS_NOT;

    free(kept);
    return f;
}

/* ---- the chain ----------------------------------------------------------- */

/* Rows at `at`: launch i reads row i % 2 from its end on, and writes the other.
 */
static struct binary_args launch(uint64_t at, int i)
{
    uint64_t from = at + (uint64_t)(i % 2) * N * sizeof(float);
    uint64_t to = at + (uint64_t)((i + 1) % 2) * N * sizeof(float);

    return (struct binary_args){.out = to,
                                .x = from + (N - 1) * sizeof(float),
                                .y = at + offsetof(struct rows, one),
                                .n = N,
                                .dim = {N, 1, 1, 1},
                                .stride_x = {-1},
                                .op = TEXT_ADD,
                                .format_x = gpu_format(PL_F32),
                                .format_y = gpu_format(PL_F32)};
}

static pl_status make(struct gpu_device *x, uint64_t at, struct gpu_graph **out,
                      pl_err *err)
{
    struct binary_args args[N_LAUNCH];
    struct gpu_graph_node node[N_LAUNCH];
    int before[N_LAUNCH];

    for (int i = 0; i < N_LAUNCH; i++) {
        args[i] = launch(at, i);
        before[i] = i - 1;
        node[i] = (struct gpu_graph_node){.kernel = GPU_binary,
                                          .n_group = N / LANES,
                                          .args = &args[i],
                                          .after = &before[i],
                                          .n_after = i > 0};
    }
    return x->driver->graph_make(x->gpu, node, N_LAUNCH, out, err);
}

/* r: what the device has at `at`, before and then after. */
static pl_status run(struct gpu_device *x, struct rows *r, uint64_t at,
                     const struct gpu_graph *graph, pl_err *err)
{
    enum queue q = QUEUE_COMPUTE;

    PL_TRY(x->driver->write(x->gpu, q, at, r, sizeof *r, err));
    for (int i = 0; i < N_RUN; i++)
        PL_TRY(x->driver->graph_run(x->gpu, q, graph, err));
    PL_TRY(x->driver->read(x->gpu, q, r, at, sizeof r->row[0], err));
    return gpu_drain(x, q, err);
}

static bool is_right(const struct rows *r)
{
    for (int i = 0; i < N; i++)
        if (r->row[0][i] != (float)(i + N_LAUNCH * N_RUN))
            return false;
    return true;
}

static pl_status try(struct gpu_device *x, struct rows *r, uint64_t at,
                     enum found *f, pl_err *err)
{
    struct gpu_graph *graph = NULL;
    pl_status s;

    for (int i = 0; i < N; i++)
        r->row[0][i] = (float)i;
    r->one = 1;
    if (make(x, at, &graph, NULL) != PL_OK)
        return PL_OK; /* runs do without, and another time it may be made */
    s = run(x, r, at, graph, err);
    *f = s == PL_OK && is_right(r) ? WAITS : WAITS_NOT;
    if (s != PL_OK && !x->lost)
        x->driver->finish(x->gpu, QUEUE_COMPUTE, NULL);
    if (!x->lost)
        x->driver->graph_free(x->gpu, graph);
    return s;
}

static pl_status try_in_memory(struct gpu_device *x, enum found *f, pl_err *err)
{
    struct rows *r = calloc(1, sizeof *r);
    uint64_t at = 0;
    pl_status s = r ? x->driver->alloc(x->gpu, sizeof *r, &at, err)
                    : err_no_memory(err, "a self test");

    if (s == PL_OK) {
        s = try(x, r, at, f, err);
        if (!x->lost)
            x->driver->release(x->gpu, at);
    }
    if (!x->lost) /* else it may be copied to for ever */
        free(r);
    return s;
}

pl_status gpu_pdl_check(struct gpu_device *x, pl_err *err)
{
    struct overlap_key key;
    enum found f = UNTRIED;
    bool has_key, on;

    PL_TRY(gpu_switch(
        "PLAIT_OVERLAP",
        "starts each launch of a graph only when the previous one is done", &on,
        err));
    if (!x->driver->overlap || !x->driver->overlap(x->gpu, on))
        return PL_OK;
    has_key = key_of(&key, x);
    if (has_key)
        f = remember(&key);
    if (f == UNTRIED) {
        PL_TRY(try_in_memory(x, &f, err));
        if (has_key && f != UNTRIED) /* if not kept, it is tried again */
            gpu_cache_save(&key, sizeof key, &(unsigned char){(unsigned char)f},
                           1, NULL);
    }
    x->driver->overlap(x->gpu, f == WAITS);
    return PL_OK;
}
