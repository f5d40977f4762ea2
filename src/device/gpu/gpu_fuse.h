/* Fewer launches for the same steps.
 *
 * Of a list those are taken out whose results are there already: sorting the
 * routes of tokens to experts, where the launches before have sorted the same
 * ones and nothing has touched them since.
 *
 * And a launch joins an earlier one that can do its work too
 * (gpu_fuse_rules.h). It is done earlier then, so no step between the two may
 * touch what it writes, or write what it touches. */
#ifndef DEVICE_GPU_GPU_FUSE_H
#define DEVICE_GPU_GPU_FUSE_H

#include "device/gpu/gpu_deps.h"
#include "device/gpu/gpu_kernel.h"

/* Routes that are sorted now. */
struct gpu_sorted {
    int launch;    /* the first of those that did it; -1: none are */
    uint64_t from; /* bytes of their ids: from .. to - 1 */
    uint64_t to;
};

/* The list's launches from `first` on are a step's: do they sort, and for
 * nothing, they are taken out; else *s is of them. False: they do not sort. */
bool gpu_fuse_routes(struct gpu_sorted *s, struct launch_list *l, int first);
/* Bytes that are written. */
void gpu_fuse_written(struct gpu_sorted *s, uint64_t from, uint64_t to);

/* Steps between one and another that does its work, at most. */
enum { GPU_FUSE_REACH = 24 };

/* Steps one after another as the pass sees them: step i is a queue's, -1: it is
 * not done at all. It touches touch[touched[i]] to touch[touched[i + 1] - 1].
 */
struct gpu_fuse_insns {
    int n;
    const int *queue;              /* [n] */
    const bool *is_fusion_barrier; /* [n]: it stays where it is, and nothing of
                                      its queue moves past it */
    const struct gpu_access *touch;
    const int *touched; /* [n + 1] */
};

/* The launches of step i are first[i] .. first[i + 1] - 1 of the list, before
 * and after. host[i]: the step whose launches do the work of i, most often its
 * own. l->no_memory may be set. */
void gpu_fuse_insns(struct launch_list *l, int *first,
                    const struct gpu_fuse_insns *s, int *host);

#endif
