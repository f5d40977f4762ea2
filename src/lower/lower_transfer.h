/* How pieces of a value come to a device of another group: what values,
 * streamed weights and pages of caches have in common. */
#ifndef LOWER_LOWER_TRANSFER_H
#define LOWER_LOWER_TRANSFER_H

#include "lower/lower_inner.h"

/* What goes to one unit. */
struct transfer {
    int u, node;        /* of the graph: what comes */
    struct placed *src; /* whose ready[] events are made; NULL: always ready */
    int group;          /* that has it */
    int room, out; /* receiver: event that says that its inbox has room; its
                      tensor */
    struct arrival *arrives, *done;
};

/* May device d's copies read what device `from` has? */
bool lower_can_read(const struct lower *w, int d, int from);
/* Do all devices of group b read what group a has? */
bool lower_all_can_read(const struct lower *w, int a, int b);
/* Has some device of the group no copy queue? */
bool lower_one_queue(const struct lower *w, int group);
enum queue lower_copy_queue(const struct lower *w, int d);
/* Pieces from one device after another: how many of p[n] have p[0]'s device,
 * itself and those behind it. */
int lower_same_source(const struct copy_desc *p, int n);
/* The unit of a group on a device. */
int lower_shard_on(const struct lower *w, int group, int dev);
/* Must somebody push to device d what pieces p[n] carry? */
bool lower_needs_push(const struct lower *w, int d, const struct copy_desc *p,
                      int n);
/* Adds the bytes that pieces p[n] carry. */
void lower_count_pieces(pl_dim sum[2], const struct copy_desc *p, int n);

/* Of value i, which group `from` has, to unit m of dst's group. */
struct transfer lower_transfer_init(const struct lower *w, int i, int from,
                                    const struct placed *dst, int m,
                                    struct arrival *done);
/* y->out, a new tensor for what comes (see lower_tensor): in the inbox, which
 * has room when y->room has come, if it is pushed, else among the unit's
 * buffers. */
pl_status lower_alloc_dst(struct lower *w, struct transfer *y, bool pushed,
                          pl_format f, int n_dim, const pl_dim *dim,
                          int entries, size_t *stride);
/* The same for `bytes` of the local part of weight or cache i. */
pl_status lower_alloc_resident_dst(struct lower *w, struct transfer *y,
                                   bool pushed, int i, size_t bytes);
/* Adds an event to those that must have come. */
pl_status lower_add_arrival(struct lower *w, struct arrival *a, int dev,
                            int event);
/* Unit y->u takes step[n], transfers into its tensors, when `from` has come. */
pl_status lower_pull(struct lower *w, const struct transfer *y,
                     const struct arrival *from, struct insn *insn, int n);
/* Device s takes step x, which writes into the receiver's inbox, when it has
 * the value, its own events of `ready` have come (-1: none), and the receiver's
 * place is free. */
pl_status lower_push(struct lower *w, const struct transfer *y, int s,
                     const int ready[2], struct insn *x);
/* Brings pieces p[n] of y->src to unit y->u: pulled where it can read them,
 * else pushed. out_bytes: see insn_pull. */
pl_status lower_transfer(struct lower *w, const struct transfer *y,
                         const struct copy_desc *p, int n, size_t out_bytes);
/* Value i has gone to another group: so many bytes, or pages of a cache. */
pl_status lower_record_copy(struct lower *w, int i, int from, int to,
                            bool pages, const pl_dim bytes[2]);

#endif
