/* Emission of transfers: functions shared by values, streamed weights, pages of
 * caches, inputs and results. */
#ifndef LOWER_LOWER_TRANSFER_H
#define LOWER_LOWER_TRANSFER_H

#include "lower/lower_inner.h"

/* A shard that receives its part of a transfer. */
struct receiver {
    int u, node; /* shard; graph node */
    const struct transport_info *by;
    uint64_t sources; /* by the list: a bit per shard of `group` */
    /* source; its ready[] events are used; NULL if always ready */
    struct placed *src;
    int group; /* the group of the source */
    /* event of the receiver that signals that its inbox is free; -1 if it is
     * free anyway */
    int inbox_free;
    int out; /* tensor of the receiver */
    /* lists to which events of the transfer are added; NULL if `by` posts none
     * that is waited for later */
    struct arrival *arrives, *done;
};

enum queue lower_copy_queue(const struct lower *w, int d);
/* Returns the number of copies at the beginning of p[n] that have the same
 * source device. */
int lower_same_source(const struct copy_desc *p, int n);
/* Returns the shard of a group on a device. */
int lower_shard_on(const struct lower *w, int group, int dev);
/* Adds the bytes of the copies p[n]. */
void lower_count_pieces(pl_dim sum[2], const struct copy_desc *p, int n);

/* Returns receiver m of a transfer whose value is placed in dst. dst is NULL if
 * none of its events is waited for later. */
struct receiver lower_receiver(const struct lower *w, const struct transfer *t,
                               const struct placed *dst, int m,
                               struct arrival *done);
/* Sets y->out to a new tensor for the transfer (see lower_tensor). If it is
 * pushed, the tensor is in the inbox, and y->inbox_free is the event after
 * which its memory is free. */
pl_status lower_alloc_dst(struct lower *w, struct receiver *y, pl_format f,
                          int n_dim, const pl_dim *dim, int entries,
                          size_t *stride);
/* Sets y->out to a new tensor for `bytes` of the local part of weight or cache
 * i. */
pl_status lower_alloc_resident_dst(struct lower *w, struct receiver *y, int i,
                                   size_t bytes);
/* Adds an event to those to wait for, once. */
pl_status lower_add_arrival(struct lower *w, struct arrival *a, int dev,
                            int event);
/* Emits the instructions insn[n] of the receiver, which copy into tensors of
 * its own, after the events of `from`. */
pl_status lower_pull(struct lower *w, const struct receiver *y,
                     const struct arrival *from, struct insn *insn, int n);
/* Emits instruction x of device s, which writes into the receiver's inbox,
 * after the value's own events `ready` (-1: none) and after the receiver's
 * memory is free. */
pl_status lower_push(struct lower *w, const struct receiver *y, int s,
                     const int ready[2], struct insn *x);
/* Checks that a value was found on the shards of the list of transfers: a bit
 * each. */
pl_status lower_check_sources(const struct lower *w, const struct receiver *y,
                              uint64_t found);
/* Transfers the copies p[n] to the receiver, as y->by states. out_bytes: see
 * insn_pull. */
pl_status lower_transfer(struct lower *w, const struct receiver *y,
                         const struct copy_desc *p, int n, size_t out_bytes);
/* Records that a value was transferred: so many bytes, or pages of a cache. */
pl_status lower_record_copy(struct lower *w, const struct transfer *t,
                            const pl_dim bytes[2]);

#endif
