/* Transfers of parts of a value to a device of another group: functions shared
 * by values, streamed weights and pages of caches. */
#ifndef LOWER_LOWER_TRANSFER_H
#define LOWER_LOWER_TRANSFER_H

#include "lower/lower_inner.h"

/* A transfer to one shard. */
struct transfer {
    int u, node; /* receiving shard; graph node */
    /* source; its ready[] events are used; NULL if always ready */
    struct placed *src;
    int group; /* the group of the source */
    /* event of the receiver that signals that its inbox is free; its tensor */
    int room, out;
    struct arrival *arrives, *done;
};

/* Returns true if device d's copies can read the memory of device `from`. */
bool lower_can_read(const struct lower *w, int d, int from);
/* Returns true if all devices of group b can read the memory of group a. */
bool lower_all_can_read(const struct lower *w, int a, int b);
/* Returns true if any device of the group has no copy queue. */
bool lower_one_queue(const struct lower *w, int group);
enum queue lower_copy_queue(const struct lower *w, int d);
/* Returns the number of copies at the beginning of p[n] that have the same
 * source device. */
int lower_same_source(const struct copy_desc *p, int n);
/* Returns the shard of a group on a device. */
int lower_shard_on(const struct lower *w, int group, int dev);
/* Returns true if any of the copies p[n] must be pushed to device d. */
bool lower_needs_push(const struct lower *w, int d, const struct copy_desc *p,
                      int n);
/* Adds the bytes of the copies p[n]. */
void lower_count_pieces(pl_dim sum[2], const struct copy_desc *p, int n);

/* Returns a transfer of value i from group `from` to shard m of dst's group. */
struct transfer lower_transfer_init(const struct lower *w, int i, int from,
                                    const struct placed *dst, int m,
                                    struct arrival *done);
/* Sets y->out to a new tensor for the transfer (see lower_tensor). If `pushed`,
 * it is in the inbox, and y->room is the event after which its memory is
 * free. */
pl_status lower_alloc_dst(struct lower *w, struct transfer *y, bool pushed,
                          pl_format f, int n_dim, const pl_dim *dim,
                          int entries, size_t *stride);
/* Sets y->out to a new tensor for `bytes` of the local part of weight or cache
 * i. */
pl_status lower_alloc_resident_dst(struct lower *w, struct transfer *y,
                                   bool pushed, int i, size_t bytes);
/* Adds an event to those to wait for, once. */
pl_status lower_add_arrival(struct lower *w, struct arrival *a, int dev,
                            int event);
/* Emits the transfers insn[n] into tensors of shard y->u, after the events of
 * `from`. */
pl_status lower_pull(struct lower *w, const struct transfer *y,
                     const struct arrival *from, struct insn *insn, int n);
/* Emits instruction x of device s, which writes into the receiver's inbox,
 * after the value's own events `ready` (-1: none) and after the receiver's
 * memory is free. */
pl_status lower_push(struct lower *w, const struct transfer *y, int s,
                     const int ready[2], struct insn *x);
/* Transfers the copies p[n] of y->src to shard y->u: by a pull if it can read
 * all of them, else by pushes. out_bytes: see insn_pull. */
pl_status lower_transfer(struct lower *w, const struct transfer *y,
                         const struct copy_desc *p, int n, size_t out_bytes);
/* Records that value i is copied to another group: so many bytes, or pages of a
 * cache. */
pl_status lower_record_copy(struct lower *w, int i, int from, int to,
                            bool pages, const pl_dim bytes[2]);

#endif
