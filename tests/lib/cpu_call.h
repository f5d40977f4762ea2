/* Calls CPU kernels from tests, with tensors on the heap. Any number of threads
 * run one after another and share nothing but the result and, in attention, the
 * work that they divide. Scratch has exactly the size that the kernel requests.
 *
 * The rule that holds for all kernels: every kernel set that this machine can
 * run, with 1, 2, 3 and 7 threads, and the GPUs' kernels give the bits of plain
 * C with one thread. Only CPUs have products of BF16. */
#ifndef TEST_CPU_CALL_H
#define TEST_CPU_CALL_H

#include "lib/support.h"

#include "base/half.h"
#include "device/cpu/cpu_kernel.h"
#include "device/cpu/cpu_ops.h"
#include "lib/gpu_bridge.h"

#include <stdlib.h>
#include <string.h>

/* Returns a tensor of random values in [-range, range). The caller frees its
 * data. */
static inline struct cpu_tensor call_tensor(pl_format f, int n_dim,
                                            const int64_t *dim, float range,
                                            uint64_t *seed)
{
    struct cpu_tensor t = {.format = f, .n_dim = n_dim};
    int64_t n = 1;

    for (int i = 0; i < n_dim; i++) {
        t.dim[i] = dim[i];
        n *= dim[i];
    }
    t.data = test_need(1, (size_t)n * 4 + 1);
    for (int64_t i = 0; i < n; i++) {
        float x = range * test_unit(seed);

        if (f == PL_F16)
            ((uint16_t *)t.data)[i] = f32_to_f16(x);
        else if (f == PL_BF16)
            ((uint16_t *)t.data)[i] = f32_to_bf16(x);
        else
            ((float *)t.data)[i] = x;
    }
    return t;
}

/* Returns element i, counted in memory order, of a tensor of floats or
 * integers. */
static inline double call_value(const struct cpu_tensor *t, int64_t i)
{
    if (t->format == PL_F16)
        return (double)f16_to_f32(((uint16_t *)t->data)[i]);
    if (t->format == PL_BF16)
        return (double)bf16_to_f32(((uint16_t *)t->data)[i]);
    return (double)((float *)t->data)[i];
}

static inline void call_table(const struct cpu_kernels *k, enum kernel kernel,
                              struct cpu_call c, int nth)
{
    static const char mark[16] = "end of scratch.";
    const struct cpu_entry *e = cpu_entry_of(k, kernel, c.attr);
    size_t n;
    char *scratch;

    assert_non_null(e->run);
    c.nth = nth;
    n = e->scratch ? e->scratch(&c) : 0;
    scratch = aligned_alloc(64, (n + sizeof(mark) + 63) / 64 * 64);
    assert_non_null(scratch);
    memcpy(scratch + n, mark, sizeof(mark));
    c.scratch = scratch;
    for (c.ith = 0; c.ith < nth; c.ith++) {
        memset(scratch, 0xff, n);
        e->run(&c);
    }
    assert_memory_equal(scratch + n, mark, sizeof(mark));
    free(scratch);
}

/* Calls the kernel once for each of nth threads, in random order. The threads'
 * scratch lies side by side, because a kernel's threads may share work. */
static inline void call_helping(const struct cpu_kernels *k, enum kernel kernel,
                                struct cpu_call c, int nth, uint64_t *seed)
{
    const struct cpu_entry *e = cpu_entry_of(k, kernel, c.attr);
    int first = (int)test_below(seed, nth), back = (int)test_below(seed, 2);
    size_t n;
    char *scratch;

    c.nth = nth;
    n = e->scratch ? e->scratch(&c) : 0;
    c.scratch_stride = (n + 1 + 63) / 64 * 64;
    scratch = aligned_alloc(64, (size_t)nth * c.scratch_stride);
    c.taken = aligned_alloc(128, (size_t)nth * sizeof *c.taken);
    assert_true(scratch && c.taken);
    memset(c.taken, 0, (size_t)nth * sizeof *c.taken);
    memset(scratch, 0xff, (size_t)nth * c.scratch_stride);
    for (int i = 0; i < nth; i++) {
        c.ith = (first + (back ? nth - i : i)) % nth;
        c.scratch = scratch + (size_t)c.ith * c.scratch_stride;
        e->run(&c);
    }
    for (int i = 0; i < nth; i++)
        assert_int_equal((scratch + n)[(size_t)i * c.scratch_stride], (char)-1);
    free(scratch);
    free(c.taken);
}

static inline void call_run(enum kernel_set set, enum kernel kernel,
                            struct cpu_call c, int nth)
{
    struct cpu_kernels k;

    cpu_kernels_init(&k, set);
    call_table(&k, kernel, c, nth);
}

/* Computes the call with plain C into c.out.data [out_bytes]. Then checks that
 * all kernel sets and thread counts, and the GPUs' kernel, give the same
 * bits. */
static inline void call_all(enum kernel kernel, const struct cpu_call *c,
                            size_t out_bytes)
{
    static const int threads[] = {1, 2, 3, 7};
    const bool shares = kernel_is_attention(kernel) || kernel_is_index(kernel);
    struct cpu_call other = *c;
    struct cpu_kernels k, gpu;
    uint64_t seed = test_seed();

    memset(c->out.data, 0xa5, out_bytes);
    call_run(KERNEL_SET_GENERIC, kernel, *c, 1);
    other.out.data = test_need(1, out_bytes + 1);
    for (int f = KERNEL_SET_REFERENCE; f < KERNEL_SET_COUNT; f++) {
        if (!kernel_set_runs(f) ||
            (c->attr && c->attr->bf16 && !kernel_set_has_bf16(f)))
            continue;
        for (int i = 0; i < 4; i++) {
            memset(other.out.data, 0xa5, out_bytes);
            call_run(f, kernel, other, threads[i]);
            assert_memory_equal(other.out.data, c->out.data, out_bytes);
            if (!shares || threads[i] == 3)
                continue;
            cpu_kernels_init(&k, f);
            memset(other.out.data, 0xa5, out_bytes);
            call_helping(&k, kernel, other, threads[i], &seed);
            assert_memory_equal(other.out.data, c->out.data, out_bytes);
        }
    }
    gpu_bridge_init(&gpu);
    if (cpu_entry_of(&gpu, kernel, c->attr)->run) {
        memset(other.out.data, 0xa5, out_bytes);
        call_table(&gpu, kernel, other, 1);
        assert_memory_equal(other.out.data, c->out.data, out_bytes);
    }
    free(other.out.data);
}

#endif
