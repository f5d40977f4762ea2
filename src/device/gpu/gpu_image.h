/* A program laid out on a GPU: the address and current size of each tensor, and
 * the launches of its instructions.
 *
 * Launches depend only on the sizes of a step and on a bound of its sequence
 * lengths. So those of a variant are made once and kept while these stay.
 * Kernels access no host memory that is not mapped. Instructions that need it
 * have no launches; the issuing thread copies their bytes (gpu_transfer.c). */
#ifndef DEVICE_GPU_GPU_IMAGE_H
#define DEVICE_GPU_GPU_IMAGE_H

#include "base/arena.h"
#include "device/device_ops.h"
#include "device/gpu/gpu_access.h"
#include "device/gpu/gpu_kernel.h"
#include "device/gpu/gpu_tables.h"
#include "program/copy_loops.h"

/* Received bytes, `at` from the start of the inbox and of the device-side
 * inbox. */
struct gpu_arrival {
    size_t at, bytes;
};

struct gpu_inbox {
    uint64_t mapped; /* the host inbox's address for kernels; 0: not mapped */
    /* owned, [n]: received ranges that the variant copies */
    struct gpu_arrival *arrival;
    int n, n_max;
    int *first; /* owned, [most instructions of a variant + 1] of arrival */
    /* owned, [prog->n_tensor]: copied by an earlier instruction */
    bool *is_copied[QUEUE_COUNT];
    /* owned, [prog->n_tensor]: order of the last push to it in variant
     * `pushed_in` (NULL: none yet); -1: none */
    int *pushed;
    const struct variant *pushed_in;
    bool no_memory; /* something was left out */
};

/* The destination of pushes to a GPU (gpu_peer.c). */
struct peer_inbox {
    uint64_t device_inbox; /* its address */
    /* owned, [tensors of its program]: all peers push it to the device-side
     * inbox; NULL: the device is not of this backend */
    bool *direct;
};

/* An allocation boundary: from offset `from` on, the region lies at `at`. */
struct gpu_cut {
    enum region region;
    size_t from;
    uint64_t at;
};

enum { GPU_MAX_CUTS = 16 };

struct gpu_image {
    struct device_set *set;     /* borrowed */
    const struct program *prog; /* borrowed */
    int n_unit;                 /* compute units of the GPU */
    /* borrowed, [devices of the set]; NULL: no pushes to device-side inboxes */
    const struct peer_inbox *box;
    /* of the device's regions; for the inbox the device-side one */
    uint64_t base[REGION_COUNT];
    struct gpu_cut cut[GPU_MAX_CUTS]; /* ascending within a region */
    int n_cut;
    uint64_t scratch[QUEUE_COUNT];
    /* owned, [devices of the set][REGION_COUNT]: address for kernels; 0:
     * none */
    uint64_t *view;
    struct arena arena; /* of tables made here */
    struct gpu_tables tables;
    uint64_t tables_at;
    struct gpu_tensor *tensor; /* owned, [prog->n_tensor] */
    struct graph_sizes sizes[PROG_MAX_MICRO];
    int64_t n_page[PROG_MAX_MICRO]; /* of gpu_image_pages() */
    int n_micro;
    const struct variant *variant; /* whose launches are made; NULL: none */
    bool by_insn; /* requested: each instruction has its own launches */
    bool is_by_insn;
    struct launch_list list; /* owned */
    struct gpu_inbox inbox;
    int *first; /* owned, [most instructions of a variant + 1] of list.launch */
    /* owned, [most instructions]: the instruction whose launches do its work */
    int *fused_into;
    int *queue; /* owned, [most instructions]: for fusing, as the next two */
    bool *is_fusion_barrier; /* owned, [most instructions] */
    int *touched; /* owned, [most instructions + 1] of touches.touch */
    struct gpu_access_set touches;
};

/* Prepares the image of a device that has its program, and collects its tables.
 * base[] and inbox.mapped are set before. The caller then fills in scratch[]
 * and view[] and calls gpu_image_place(). fini takes half-made images. */
pl_status gpu_image_init(struct gpu_image *m, struct device_set *set,
                         const struct device *d, pl_err *err);
void gpu_image_place(struct gpu_image *m);
void gpu_image_fini(struct gpu_image *m);

/* Lists the kernels that steps of its program can launch. Needs no GPU. box: as
 * in struct gpu_image. */
pl_status gpu_list_kernels(struct device_set *set, const struct device *d,
                           const struct peer_inbox *box,
                           bool want[GPU_KERNEL_COUNT], pl_err *err);

/* Makes the launches of a step unless they equal the last step's. Returns false
 * if memory is short. */
bool gpu_image_prepare(struct gpu_image *m, const struct device *d,
                       const struct device_run *run);
/* Forgets the launches after a failed step, which may have left anything. */
static inline void gpu_image_forget(struct gpu_image *m)
{
    m->variant = NULL;
}

/* Returns the scratch bytes that the instructions of a queue need on a GPU with
 * n_unit units. Returns GPU_SCRATCH_UNKNOWN, with which no program is loaded,
 * if memory is too short to find out. */
#define GPU_SCRATCH_UNKNOWN (SIZE_MAX / 8)
size_t gpu_image_scratch(const struct program *p, int n_unit, enum queue q);

/* Returns the pages of a sequence that the launches of micro-batch k are made
 * for. It is the count of the longest sequence, rounded up to a power of two of
 * spans, so that launches are kept while sequences grow. 0: all pages of a
 * table. */
int64_t gpu_image_pages(const struct device_run *run, int k);

/* Returns true if the step has these sizes. */
bool gpu_image_same_sizes(int n_micro, const struct graph_sizes *sizes,
                          const int64_t *n_page, const struct device_run *run);

/* Returns the bytes of its queue's scratch that the instruction needs, at the
 * sizes of the step. */
size_t gpu_image_insn_scratch(const struct gpu_image *m, const struct insn *st);

/* Returns true if kernels can access all operands of the instruction. */
bool gpu_image_reaches(const struct gpu_image *m, const struct insn *st);

/* Returns the address of a byte in a region of the device itself, or 0 if it
 * has none. */
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

/* Returns a tensor's address for kernels, or 0 if it has none. */
static inline uint64_t gpu_image_at(const struct gpu_image *m, int dev,
                                    int tensor)
{
    const struct prog_tensor *t = &device_of(m->set, dev)->prog->tensor[tensor];
    uint64_t base = m->view[dev * REGION_COUNT + (int)t->region];

    if (dev == m->prog->dev)
        return gpu_image_byte(m, t->region, t->offset);
    return base ? base + t->offset : 0;
}

/* Returns true if a tensor is pushed to its device-side inbox. */
static inline bool gpu_image_near(const struct gpu_image *m, int dev,
                                  int tensor)
{
    return m->box && m->box[dev].direct && m->box[dev].direct[tensor];
}

/* The same, but the address where pushed bytes arrive. For the device's own
 * inbox it is the host inbox, unless the tensor is pushed to the device-side
 * one. */
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

/* The same for the host, or NULL if this device cannot access it. */
static inline unsigned char *gpu_image_host(const struct gpu_image *m, int dev,
                                            int tensor)
{
    const struct device *d = device_of(m->set, dev);
    const struct prog_tensor *t = &d->prog->tensor[tensor];

    return d->at[t->region] ? d->at[t->region] + t->offset : NULL;
}

/* Returns true for a long span between host and device. The driver copies it
 * instead of a kernel, because that is fastest. */
static inline bool gpu_image_long(const struct copy_extent *l)
{
    return l->n0 == 1 && l->n1 == 1 && l->bytes >= 64 << 10;
}

/* Returns the page table that a PAGES instruction reads, whose host copy is at
 * `data`. */
struct token_table gpu_image_table(const struct gpu_image *m,
                                   const struct insn *st, const void *data);

/* Counts the work of an instruction in the device's counters. pages: the table
 * of a PAGES instruction. */
void gpu_image_count(const struct gpu_image *m, struct device *d,
                     const struct insn *st, const void *pages);

/* ---- private to these files ---- */

/* Adds the tables made of an instruction's copy descriptors. */
void gpu_move_tables(struct gpu_image *m, const struct insn *st);
/* Adds the launches of an instruction that moves bytes, except long spans
 * between host and device. */
void gpu_move_launch(struct gpu_image *m, const struct insn *st);

/* ---- gpu_inbox.c ---- */
/* Takes a zeroed inbox in which only `mapped` is set. Returns false if memory
 * is short. */
bool gpu_inbox_init(struct gpu_inbox *x, const struct program *p, int n_step);
void gpu_inbox_free(struct gpu_inbox *x);
/* Begins the instructions of variant c. */
void gpu_inbox_begin(struct gpu_image *m, const struct variant *c);
/* Adds the ranges that an instruction reads and that the device-side inbox
 * lacks so far. */
void gpu_inbox_insn(struct gpu_image *m, const struct insn *st);
/* Returns true if an item reads its received bytes from the host inbox
 * itself. */
bool gpu_inbox_direct(const struct gpu_image *m, const struct insn *st,
                      const struct merge_item *it);

#endif
