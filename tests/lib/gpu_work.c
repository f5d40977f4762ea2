/* Calls each function of a GPU's driver; gpu_work.h describes the functions. */
#include "lib/gpu_work.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/err.h"
#include "lib/fake_cuda.h"
#include "lib/support.h"

enum { N = GPU_WORK_N, PAGE = 4096 };

void *test_pages(size_t bytes, int protection)
{
    void *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    return p;
}

struct binary_args gpu_work_sum(uint64_t out, uint64_t x, uint64_t y)
{
    return (struct binary_args){.out = out,
                                .x = x,
                                .y = y,
                                .n = N,
                                .dim = {N, 1, 1, 1},
                                .stride_x = {1},
                                .stride_y = {1},
                                .op = TEXT_ADD};
}

pl_status gpu_work_take(struct gpu_work *w, int index, pl_err *err)
{
    PL_TRY(w->d->open(&w->g, index, err));
    for (int i = 0; i < 4; i++)
        PL_TRY(w->d->alloc(w->g, N * sizeof(float), &w->at[i], err));
    PL_TRY(w->d->host_alloc(w->g, N * sizeof(float), &w->pinned, err));
    w->out = w->pinned;
    memset(w->out, 0xff, N * sizeof(float));
    if (index == FAKE_FAR)
        return PL_OK;
    return w->d->map(w->g, (void *)w->shared, PAGE, &w->shared_at, err);
}

static bool graph_has_words(const struct gpu_work *w)
{
    return w->shared_at && w->d->has_graph_words && w->d->has_graph_words(w->g);
}

/* Computes out = 4 out with a device graph of three launches. The first two
 * compute 2 out each and may run in any order; the third adds their results.
 * Then the graph stores a word and waits for it, if it can. */
static pl_status run_graph(struct gpu_work *w, pl_err *err)
{
    static const int after[] = {0, 1}, last = 2;
    const uint64_t x = w->at[0], out = w->at[2], copy = w->at[3];
    struct binary_args a[] = {gpu_work_sum(copy, out, out),
                              gpu_work_sum(x, out, out),
                              gpu_work_sum(out, x, copy)};
    const struct gpu_word_op op[] = {{w->shared + 7, 9, false},
                                     {w->shared + 7, 9, true}};
    struct gpu_graph_node node[4] = {
        [3] = {.op = op, .n_op = 2, .after = &last, .n_after = 1}};

    for (int i = 0; i < 3; i++)
        node[i] = (struct gpu_graph_node){.kernel = GPU_binary,
                                          .n_group = (N + 255) / 256,
                                          .args = &a[i],
                                          .after = after,
                                          .n_after = i < 2 ? 0 : 2};
    PL_TRY(w->d->graph_make(w->g, node, graph_has_words(w) ? 4 : 3, &w->graph,
                            err));
    memset(a, 0xff, sizeof a);
    return w->d->graph_run(w->g, QUEUE_COMPUTE, w->graph, err);
}

const bool gpu_work_wanted[GPU_KERNEL_COUNT] = {
    [GPU_binary] = true, [GPU_unary] = true};

pl_status gpu_work_do(struct gpu_work *w, pl_err *err)
{
    struct gpu *g = w->g;
    struct binary_args a = gpu_work_sum(w->at[2], w->at[0], w->at[1]);
    char name[256];
    bool yes;

    PL_TRY(w->d->identity(g, name, sizeof name, err));
    PL_TRY(w->d->compile_kernels(g, gpu_work_wanted, 2,
                                 &(struct gpu_progress){0}, err));
    PL_TRY(w->d->write(g, QUEUE_COPY, w->at[0], w->x, N * sizeof(float), err));
    PL_TRY(w->d->write(g, QUEUE_COPY, w->at[1], w->y, N * sizeof(float), err));
    PL_TRY(w->d->fence_record(g, QUEUE_COPY, 0, err));
    PL_TRY(w->d->fence_wait(g, QUEUE_COMPUTE, 0, err));
    PL_TRY(
        w->d->launch(g, QUEUE_COMPUTE, GPU_binary, (N + 255) / 256, &a, err));
    PL_TRY(run_graph(w, err));
    memset(&a, 0xff, sizeof a);
    PL_TRY(w->d->flush(g, QUEUE_COMPUTE, err));
    PL_TRY(w->d->fence_record(g, QUEUE_COMPUTE, GPU_MAX_MARKS - 1, err));
    PL_TRY(w->d->fence_wait(g, QUEUE_COPY, GPU_MAX_MARKS - 1, err));
    PL_TRY(
        w->d->copy(g, QUEUE_COPY, w->at[3], w->at[2], N * sizeof(float), err));
    PL_TRY(w->d->read(g, QUEUE_COPY, w->out, w->at[3], N * sizeof(float), err));
    if (w->shared_at) {
        PL_TRY(w->d->signal_word(g, QUEUE_COPY, w->shared + 5, 7, err));
        PL_TRY(w->d->wait_word(g, QUEUE_COMPUTE, w->shared + 5, 7, err));
        PL_TRY(w->d->signal_word(g, QUEUE_COMPUTE, w->shared + 6, 8, err));
        PL_TRY(w->d->finish(g, QUEUE_COMPUTE, err));
    }
    PL_TRY(w->d->finish(g, QUEUE_COPY, err));
    PL_TRY(w->d->fence_query(g, 0, &yes, err));
    assert_true(yes);
    return PL_OK;
}

/* Writes to the peer's memory once with a copy and once with a kernel. */
static pl_status put_to_peer(struct gpu_work *w, pl_err *err)
{
    const size_t bytes = N * sizeof(float);
    const struct binary_args a =
        gpu_work_sum(w->peer_at + bytes, w->at[3], w->at[3]);

    PL_TRY(w->d->copy(w->g, QUEUE_COMPUTE, w->peer_at, w->at[3], bytes, err));
    PL_TRY(w->d->launch(w->g, QUEUE_COMPUTE, GPU_binary, (N + 255) / 256, &a,
                        err));
    return w->d->finish(w->g, QUEUE_COMPUTE, err);
}

pl_status gpu_work_meet(struct gpu_work *w, int peer, pl_err *err)
{
    const size_t bytes = 2 * N * sizeof(float);

    PL_TRY(w->d->open(&w->peer, peer, err));
    PL_TRY((w->d->alloc_shared ? w->d->alloc_shared : w->d->alloc)(
        w->peer, bytes, &w->peer_at, err));
    PL_TRY(w->d->enable_peer_access(w->g, w->peer, err));
    PL_TRY(put_to_peer(w, err));
    PL_TRY(w->d->read(w->peer, QUEUE_COPY, w->met, w->peer_at, bytes, err));
    return w->d->finish(w->peer, QUEUE_COPY, err);
}

void gpu_work_give_back(struct gpu_work *w)
{
    /* before the peer is closed, no work may use its memory any more */
    if (w->peer) {
        w->d->finish(w->g, QUEUE_COMPUTE, NULL);
        w->d->release(w->peer, w->peer_at);
    }
    w->d->close(w->peer);
    if (w->g) {
        w->d->graph_free(w->g, w->graph);
        if (w->shared_at)
            w->d->unmap(w->g, (void *)w->shared);
        w->d->host_release(w->g, w->pinned);
        for (int i = 0; i < 4; i++)
            w->d->release(w->g, w->at[i]);
    }
    w->d->close(w->g);
}

void gpu_work_init(struct gpu_work *w, const struct gpu_driver *d)
{
    uint64_t seed = test_seed();

    *w = (struct gpu_work){.d = d,
                           .x = test_need(N, sizeof(float)),
                           .y = test_need(N, sizeof(float)),
                           .met = test_need(2 * N, sizeof(float)),
                           .shared = test_pages(PAGE, PROT_READ | PROT_WRITE)};
    for (int i = 0; i < N; i++) {
        w->x[i] = test_unit(&seed);
        w->y[i] = test_unit(&seed);
    }
}

void gpu_work_fini(struct gpu_work *w)
{
    free(w->x);
    free(w->y);
    free(w->met);
    munmap((void *)w->shared, PAGE);
}

pl_status gpu_work_all(struct gpu_work *w, int index, pl_err *err)
{
    PL_TRY(gpu_work_take(w, index, err));
    return gpu_work_do(w, err);
}

void gpu_work_must_be_right(const struct gpu_driver *d, int index)
{
    struct gpu_work w;
    pl_err err;

    gpu_work_init(&w, d);
    TEST_OK(gpu_work_all(&w, index, &err), err);
    for (int i = 0; i < N; i++)
        assert_true(w.out[i] == 4 * (w.x[i] + w.y[i]));
    assert_int_equal(w.shared[6], w.shared_at ? 8 : 0);
    assert_int_equal(w.shared[7], graph_has_words(&w) ? 9 : 0);
    gpu_work_give_back(&w);
    gpu_work_fini(&w);
}
