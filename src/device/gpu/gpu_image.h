/* A program laid out on a GPU: where each tensor lies, how large it is in this
 * run, and the launches that its steps are.
 *
 * Launches depend on the sizes of a run, and on a bound of how long its
 * sequences are, and on nothing else that changes, so those of a script are
 * made once and kept while these stay. What kernels cannot reach, memory of
 * this process that is not mapped, they do not touch: such steps have no
 * launches, and the issuing thread carries the bytes (gpu_transfer.c). */
#ifndef DEVICE_GPU_GPU_IMAGE_H
#define DEVICE_GPU_GPU_IMAGE_H

#include "base/arena.h"
#include "device/device_ops.h"
#include "device/gpu/gpu_access.h"
#include "device/gpu/gpu_kernel.h"
#include "device/gpu/gpu_tables.h"
#include "program/copy_loops.h"

/* Bytes that have come, `at` from the start of the inbox and of its mirror. */
struct gpu_arrival {
    size_t at, bytes;
};

struct gpu_inbox {
    uint64_t mapped; /* the host's, where kernels find it; 0: nowhere */
    struct gpu_arrival *arrival; /* owned, [n]: what the script copies */
    int n, n_max;
    int *first; /* owned, [most steps of a script + 1] of arrival */
    bool
        *is_copied[QUEUE_COUNT]; /* owned, [prog->n_tensor]: by a step before */
    int *pushed; /* owned, [prog->n_tensor] order of the last push to it, in
                    the script `pushed_in` (NULL: none yet); -1: none */
    const struct variant *pushed_in;
    bool no_memory; /* something was left out */
};

/* Where what is pushed to a GPU comes to (gpu_peer.c). */
struct peer_inbox {
    uint64_t device_inbox; /* of its inbox */
    bool *direct; /* owned, [tensors of its program]: it is pushed there by
                        all who do; NULL: it is none of the bank's */
};

/* A region lies in several allocations: from a tensor on in another one. */
struct gpu_cut {
    enum region region;
    size_t from;
    uint64_t at;
};

enum { GPU_MAX_CUTS = 16 };

struct gpu_image {
    struct device_set *set;           /* borrowed */
    const struct program *prog;       /* borrowed */
    int n_unit;                       /* of the GPU */
    const struct peer_inbox *box;     /* borrowed, [devices of the set]; NULL:
                                         nothing is pushed to mirrors */
    uint64_t base[REGION_COUNT];      /* of the device's regions; of the inbox
                                         its mirror */
    struct gpu_cut cut[GPU_MAX_CUTS]; /* of a region ascending */
    int n_cut;
    uint64_t scratch[QUEUE_COUNT];
    uint64_t *view;     /* owned, [devices of the set][REGION_COUNT]:
                                  where kernels find it; 0: nowhere */
    struct arena arena; /* of tables that are made here */
    struct gpu_tables tables;
    uint64_t tables_at;
    struct gpu_tensor *tensor; /* owned, [prog->n_tensor] */
    struct graph_sizes sizes[PROG_MAX_MICRO];
    int64_t n_page[PROG_MAX_MICRO]; /* of gpu_image_pages() */
    int n_micro;
    const struct variant *variant; /* that the launches are of; NULL: of none */
    bool by_insn; /* asked for: each step has its own launches */
    bool is_by_insn;
    struct launch_list list; /* owned */
    struct gpu_inbox inbox;
    int *first; /* owned, [most steps of a script + 1] of list.launch */
    int *
        fused_into; /* owned, [most instructions]: whose launches do its work */
    int *queue;     /* owned, [most steps]: for fusing, as the next two */
    bool *is_fusion_barrier; /* owned, [most steps] */
    int *touched;            /* owned, [most steps + 1] of touches.touch */
    struct gpu_access_set touches;
};

/* Of a device that has its program; collects its tables. base[] and
 * inbox.mapped are there; scratch[] and view[] are filled in by the caller, and
 * gpu_image_place() is called then. fini takes half-made ones. */
pl_status gpu_image_init(struct gpu_image *m, struct device_set *set,
                         const struct device *d, pl_err *err);
void gpu_image_place(struct gpu_image *m);
void gpu_image_fini(struct gpu_image *m);

/* The kernels that runs of its program can launch; needs nothing of a GPU. box:
 * as struct gpu_image has it. */
pl_status gpu_list_kernels(struct device_set *set, const struct device *d,
                           const struct peer_inbox *box,
                           bool want[GPU_KERNEL_COUNT], pl_err *err);

/* Makes the launches of a run, if they are not those of the last one. False:
 * there is no memory for them. */
bool gpu_image_prepare(struct gpu_image *m, const struct device *d,
                       const struct device_run *run);
/* A failed run may have left anything: all is made anew. */
static inline void gpu_image_forget(struct gpu_image *m)
{
    m->variant = NULL;
}

/* Bytes of scratch that the steps of a queue need, on a GPU of so many units;
 * where there is no memory to find out, GPU_SCRATCH_UNKNOWN, with which no
 * program is loaded. */
#define GPU_SCRATCH_UNKNOWN (SIZE_MAX / 8)
size_t gpu_image_scratch(const struct program *p, int n_unit, enum queue q);

/* How many pages of a sequence the launches of micro-batch k are made for:
 * those that its longest one has, rounded up to a power of two of spans, so
 * that launches are kept while sequences grow; 0: all that a table has. */
int64_t gpu_image_pages(const struct device_run *run, int k);

/* Has the run these sizes? */
bool gpu_image_same_sizes(int n_micro, const struct graph_sizes *sizes,
                          const int64_t *n_page, const struct device_run *run);

/* Bytes of its queue's scratch that the step needs, at the sizes of the run. */
size_t gpu_image_insn_scratch(const struct gpu_image *m, const struct insn *st);

/* Can kernels reach all that the step touches? */
bool gpu_image_reaches(const struct gpu_image *m, const struct insn *st);

/* Where a byte of a region of the device itself lies; 0: nowhere. */
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

/* Where a tensor of a device lies for kernels; 0: nowhere. */
static inline uint64_t gpu_image_at(const struct gpu_image *m, int dev,
                                    int tensor)
{
    const struct prog_tensor *t = &device_of(m->set, dev)->prog->tensor[tensor];
    uint64_t base = m->view[dev * REGION_COUNT + (int)t->region];

    if (dev == m->prog->dev)
        return gpu_image_byte(m, t->region, t->offset);
    return base ? base + t->offset : 0;
}

/* Is a tensor pushed to the mirror of its inbox? */
static inline bool gpu_image_near(const struct gpu_image *m, int dev,
                                  int tensor)
{
    return m->box && m->box[dev].direct && m->box[dev].direct[tensor];
}

/* The same where what is pushed comes: of the device's own inbox not the
 * mirror, unless it is pushed there. */
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

/* And for the host, if it is open to this device. */
static inline unsigned char *gpu_image_host(const struct gpu_image *m, int dev,
                                            int tensor)
{
    const struct device *d = device_of(m->set, dev);
    const struct prog_tensor *t = &d->prog->tensor[tensor];

    return d->at[t->region] ? d->at[t->region] + t->offset : NULL;
}

/* A long run of bytes between the host and the device: copied, as the drivers
 * do best, by no kernel. */
static inline bool gpu_image_long(const struct copy_extent *l)
{
    return l->n0 == 1 && l->n1 == 1 && l->bytes >= 64 << 10;
}

/* The table of pages that a PAGES step reads, as the host has it at `data`. */
struct token_table gpu_image_table(const struct gpu_image *m,
                                   const struct insn *st, const void *data);

/* Tells the device what a step does. pages: of a PAGES step, its table. */
void gpu_image_count(const struct gpu_image *m, struct device *d,
                     const struct insn *st, const void *pages);

/* ---- of these files alone ---- */

/* Adds what is made of a program's pieces to the tables. */
void gpu_move_tables(struct gpu_image *m, const struct insn *st);
/* Adds the launches of a step that moves bytes, but for long runs between the
 * host and the device. */
void gpu_move_launch(struct gpu_image *m, const struct insn *st);

/* ---- gpu_inbox.c ---- */
/* Takes what is zero but for `mapped`. False: there is no memory. */
bool gpu_inbox_init(struct gpu_inbox *x, const struct program *p, int n_step);
void gpu_inbox_free(struct gpu_inbox *x);
/* The steps of script c follow. */
void gpu_inbox_begin(struct gpu_image *m, const struct variant *c);
/* Adds what a step reads and the mirror does not have yet. */
void gpu_inbox_insn(struct gpu_image *m, const struct insn *st);
/* Does an item read what has come in the inbox itself? */
bool gpu_inbox_direct(const struct gpu_image *m, const struct insn *st,
                      const struct merge_item *it);

#endif
