/* An image: a program prepared for a GPU, with the address and current size of
 * each tensor, and the launches of the instructions.
 *
 * Launches depend only on the sizes of a step and on a bound of its sequence
 * lengths. So the launches of a variant are created once and kept until the
 * sizes or the bound change. Kernels access no host memory that is not mapped.
 * An instruction that needs such memory has no launches; the issuing thread
 * copies the bytes (gpu_transfer.c). */
#ifndef DEVICE_GPU_GPU_IMAGE_H
#define DEVICE_GPU_GPU_IMAGE_H

#include "base/arena.h"
#include "device/device_ops.h"
#include "device/gpu/gpu_fuse.h"
#include "device/gpu/gpu_kernel.h"
#include "device/gpu/gpu_tables.h"
#include "program/copy_loops.h"

/* A range of received bytes that is copied from the host inbox to the
 * device-side inbox. `at` is its offset in both. */
struct gpu_arrival {
    size_t at, bytes;
};

struct gpu_inbox {
    /* device address of the host inbox; 0 if it is not mapped */
    uint64_t mapped;
    /* ranges that the current step copies to the device-side inbox, [n];
     * owned */
    struct gpu_arrival *arrival;
    int n, n_max;
    /* by instruction, the index of its first range in `arrival`; [most
     * instructions of a variant + 1]; owned */
    int *first;
    /* by queue and tensor: an earlier instruction of the queue had the tensor
     * copied to the device-side inbox, and no push to it follows;
     * [prog->n_tensor] each; owned */
    bool *is_copied[QUEUE_COUNT];
    /* by tensor, insn.order of the last push to it in variant `pushed_in`; -1
     * if none. Not valid if `pushed_in` is NULL. [prog->n_tensor]; owned */
    int *pushed;
    const struct variant *pushed_in;
    bool no_memory; /* out of memory: ranges are missing */
};

/* Where bytes pushed to a device must be written (gpu_peer.c). */
struct peer_inbox {
    uint64_t device_inbox; /* device address of the device-side inbox */
    /* by tensor of the device's program: true if all devices push it to the
     * device-side inbox, false if to the host inbox. NULL if the device belongs
     * to another backend. Owned */
    bool *direct;
};

/* The start of a further allocation of a region: the bytes of `region` from
 * offset `from` are at address `at`. */
struct gpu_cut {
    enum region region;
    size_t from;
    uint64_t at;
};

enum { GPU_MAX_CUTS = 16 };

struct gpu_image {
    struct device_set *set;     /* the device set; borrowed */
    const struct program *prog; /* the device's program; borrowed */
    int n_unit; /* number of the GPU's compute units; 0 if unknown */
    /* by device of the set, where pushes to it go; NULL if there are no
     * device-side inboxes; borrowed */
    const struct peer_inbox *box;
    /* device addresses of the device's regions; for REGION_INBOX, of the
     * device-side inbox */
    uint64_t base[REGION_COUNT];
    /* starts of further allocations, [n_cut], ascending within a region */
    struct gpu_cut cut[GPU_MAX_CUTS];
    int n_cut;
    uint64_t scratch[QUEUE_COUNT];
    /* by device of the set and region, the device address at which kernels
     * access it; 0 if they cannot; owned */
    uint64_t *view;
    /* memory of tables that are made for the image and not part of the
     * program */
    struct arena arena;
    struct gpu_tables tables;
    uint64_t tables_at;
    /* the program's tensors at their current sizes, [prog->n_tensor]; owned */
    struct gpu_tensor *tensor;
    struct graph_sizes sizes[PROG_MAX_MICRO];
    /* by micro-batch: the result of gpu_image_pages() */
    int64_t n_page[PROG_MAX_MICRO];
    int n_micro;
    /* variant whose launches are in `list`; NULL if none */
    const struct variant *variant;
    /* set by the caller: do not fuse launches of different instructions */
    bool by_insn;
    bool is_by_insn;
    struct launch_list list; /* the launches of the current sizes; owned */
    struct gpu_inbox inbox;
    /* by instruction, the index of its first launch in list.launch; [most
     * instructions of a variant + 1]; owned */
    int *first;
    /* by instruction, the index of the instruction into whose launches it was
     * fused, or its own; [most instructions of a variant]; owned */
    int *fused_into;
    /* by instruction, which fusions were made; [most instructions of a
     * variant]; owned */
    struct gpu_done {
        unsigned parts; /* rewrites of its launch, as in gpu_fuse_launches() */
        bool sorted;    /* the scratch memory has the routes of its experts */
    } * done;
    /* by variant, which fusions are planned, [n_insn]; `few` for steps with few
     * rows, if the device counts groups; owned */
    struct gpu_fused *plan[PROG_MAX_VARIANT], *few[PROG_MAX_VARIANT];
    /* set by the caller before gpu_image_init(): the last work group of a
     * launch may go on (struct contract_tail) */
    bool counts;
    /* device address of the counters of work groups, TAIL_COUNTERS for each
     * instruction; 0 if there are none */
    uint64_t counters_at;
    unsigned char *counters; /* their first contents; in the arena */
    size_t counters_bytes;
};

/* Prepares the image of device `d`, whose program is set, and collects the
 * program's tables. The caller sets base[] and inbox.mapped before; afterwards
 * it sets scratch[], view[] and tables_at and calls gpu_image_place(), which
 * sets the tensors' addresses. gpu_image_fini() must be called even after a
 * failure. */
pl_status gpu_image_init(struct gpu_image *m, struct device_set *set,
                         const struct device *d, pl_err *err);
void gpu_image_place(struct gpu_image *m);
void gpu_image_fini(struct gpu_image *m);

/* Sets want[k] to true if steps of the device's program may launch kernel k,
 * else to false. Does not use the GPU. `box` is as in struct gpu_image. */
pl_status gpu_list_kernels(struct device_set *set, const struct device *d,
                           const struct peer_inbox *box,
                           bool want[GPU_KERNEL_COUNT], pl_err *err);

/* Creates the launches of a step, unless those of the last step are the same.
 * Returns false if out of memory. */
bool gpu_image_prepare(struct gpu_image *m, const struct device *d,
                       const struct device_run *run);
/* Discards the launches after a failed step, so that the next step creates them
 * again. */
static inline void gpu_image_forget(struct gpu_image *m)
{
    m->variant = NULL;
}

/* Returns the size in bytes of the scratch memory that queue `q` of program `p`
 * needs on a GPU with n_unit compute units. If out of memory, returns
 * GPU_SCRATCH_UNKNOWN; loading the program then fails. */
#define GPU_SCRATCH_UNKNOWN (SIZE_MAX / 8)
size_t gpu_image_scratch(const struct program *p, int n_unit, enum queue q);

/* Returns how many pages per sequence the launches of micro-batch `k` must
 * support: the page count of the longest sequence, rounded up to a span
 * (TEXT_SPAN tokens) times a power of two. Because of the rounding, launches
 * are kept while sequences grow. Returns 0 if the count is unknown: launches
 * then support all pages of the page table. */
int64_t gpu_image_pages(const struct device_run *run, int k);

/* Returns true if `run` has n_micro micro-batches, and for these the sizes
 * sizes[] and the results n_page[] of gpu_image_pages(). */
bool gpu_image_same_sizes(int n_micro, const struct graph_sizes *sizes,
                          const int64_t *n_page, const struct device_run *run);

/* Returns how many bytes of its queue's scratch memory the instruction uses, at
 * the current sizes. */
size_t gpu_image_insn_scratch(const struct gpu_image *m, const struct insn *st);

/* Returns true if kernels can access all memory that instruction `st` reads and
 * writes. */
bool gpu_image_reaches(const struct gpu_image *m, const struct insn *st);

/* Returns the address of the byte at `offset` in region r of the device itself,
 * or 0 if the region has no memory. */
static inline uint64_t gpu_image_byte(const struct gpu_image *m, enum region r,
                                      size_t offset)
{
    uint64_t base = m->base[r];
    size_t from = 0;

    for (int i = 0; i < m->n_cut; i++)
        if (m->cut[i].region == r && m->cut[i].from <= offset) {
            base = m->cut[i].at;
            from = m->cut[i].from;
        }
    return base ? base + (offset - from) : 0;
}

/* Returns the address of a tensor of device `dev` for kernels, or 0 if they
 * cannot access it. */
static inline uint64_t gpu_image_at(const struct gpu_image *m, int dev,
                                    int tensor)
{
    const struct prog_tensor *t = &device_of(m->set, dev)->prog->tensor[tensor];
    uint64_t base = m->view[dev * REGION_COUNT + (int)t->region];

    if (dev == m->prog->dev)
        return gpu_image_byte(m, t->region, t->offset);
    return base ? base + t->offset : 0;
}

/* Returns true if pushes to a tensor of device `dev` go directly to that
 * device's device-side inbox. */
static inline bool gpu_image_near(const struct gpu_image *m, int dev,
                                  int tensor)
{
    return m->box && m->box[dev].direct && m->box[dev].direct[tensor];
}

/* Returns the device address to which pushes to a tensor of device `dev` write,
 * or 0 if they cannot. For a tensor in the device's own inbox it is in the host
 * inbox, unless the tensor is pushed to the device-side inbox. */
static inline uint64_t gpu_image_box(const struct gpu_image *m, int dev,
                                     int tensor)
{
    const struct prog_tensor *t = &device_of(m->set, dev)->prog->tensor[tensor];

    if (gpu_image_near(m, dev, tensor))
        return dev == m->prog->dev ? gpu_image_at(m, dev, tensor)
                                   : m->box[dev].device_inbox + t->offset;
    if (dev != m->prog->dev || t->region != REGION_INBOX)
        return gpu_image_at(m, dev, tensor);
    return m->inbox.mapped ? m->inbox.mapped + t->offset : 0;
}

/* Returns the address of a tensor of device `dev` for the CPU, or NULL if the
 * CPU cannot access it. */
static inline unsigned char *gpu_image_host(const struct gpu_image *m, int dev,
                                            int tensor)
{
    const struct device *d = device_of(m->set, dev);
    const struct prog_tensor *t = &d->prog->tensor[tensor];

    return d->at[t->region] ? d->at[t->region] + t->offset : NULL;
}

/* Returns true if a copy is one span of 64 KiB or more. The driver copies such
 * spans, because it is faster than a kernel. */
static inline bool gpu_image_long(const struct copy_extent *l)
{
    return l->n0 == 1 && l->n1 == 1 && l->bytes >= 64 << 10;
}

/* Returns the token table that a PAGES instruction reads; `data` is a host copy
 * of it. */
struct token_table gpu_image_table(const struct gpu_image *m,
                                   const struct insn *st, const void *data);

/* Adds an instruction to the device's counters. `pages` is a host copy of the
 * token table if it is a PAGES instruction. */
void gpu_image_count(const struct gpu_image *m, struct device *d,
                     const struct insn *st, const void *pages);

/* ---- internal functions of an image -------------------------------------- */

/* Adds the tables for the launches of an instruction that is not a KERNEL. */
void gpu_move_tables(struct gpu_image *m, const struct insn *st);
/* Adds the launches of an instruction that copies or sums (MERGE, PULL, PUSH,
 * PAGES), except for the spans of gpu_image_long(). */
void gpu_move_launch(struct gpu_image *m, const struct insn *st);

/* ---- gpu_inbox.c ---- */
/* Allocates the arrays of an inbox that is zeroed except for `mapped`. `n_step`
 * is the number of instructions of the longest variant. Returns false if out of
 * memory; the caller then still calls gpu_inbox_free. */
bool gpu_inbox_init(struct gpu_inbox *x, const struct program *p, int n_step);
void gpu_inbox_free(struct gpu_inbox *x);
/* Returns at least the number of bytes that the tensor has in this step. */
size_t gpu_image_bytes(const struct gpu_image *m, int tensor);
/* Discards all ranges and begins variant `c`. */
void gpu_inbox_begin(struct gpu_image *m, const struct variant *c);
/* Adds the ranges that instruction `st` reads from the inbox and that were not
 * copied to the device-side inbox yet. Called for all instructions of the
 * variant, in order. */
void gpu_inbox_insn(struct gpu_image *m, const struct insn *st);
/* Returns true if the launches of MERGE item `it` read received bytes directly
 * from the mapped host inbox, so that they are not copied. */
bool gpu_inbox_direct(const struct gpu_image *m, const struct insn *st,
                      const struct merge_item *it);

#endif
