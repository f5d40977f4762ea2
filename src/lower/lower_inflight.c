/* Copies in flight: a buffer that other groups copy may not be overwritten
 * before they have done so.
 *
 * The source does not wait for that at once. A copy is in flight until a few
 * more have started between the same two groups. By then it has long arrived,
 * and the wait costs nothing. Buffers of copies that are still in flight when
 * the variant ends are kept to its end. */
#include "lower/lower_inner.h"

#include "base/err.h"

#include <string.h>

/* Number of copies between two groups before the first is waited for. */
enum { IN_TRANSIT = 4 };

/* A copy in flight between two groups. What it reads may be overwritten when
 * all receivers have posted. */
struct inflight_copy {
    int from, to, micro;
    int n_src, *src_shard, *src_tensor;
    int n_done;
    struct insn_event *done; /* [n_done] */
};

/* Makes device d wait until all its tensors of the copy have been copied. */
static pl_status await_inflight(struct lower *w, int d,
                                const struct inflight_copy *t)
{
    for (int i = 0; i < t->n_done; i++)
        if (t->done[i].dev != d || !w->opt->dev[d].one_queue)
            PL_TRY(lower_wait(w, d, QUEUE_COMPUTE, t->done[i].dev,
                              t->done[i].event));
    return PL_OK;
}

static pl_status retire(struct lower *w, int k)
{
    struct inflight_copy *x = w->inflight, t = x[k];
    const struct cursor was = w->now;

    w->n_inflight--;
    memmove(x + k, x + k + 1, (size_t)(w->n_inflight - k) * sizeof t);
    w->now.micro = t.micro; /* in the step whenever the copy is */
    for (int s = 0; s < t.n_src; s++) {
        int d = lower_dev(w, t.src_shard[s]);

        if (s == 0 || lower_dev(w, t.src_shard[s - 1]) != d)
            PL_TRY(await_inflight(w, d, &t));
        PL_TRY(lower_hold(w, d, t.src_tensor[s]));
    }
    w->now = was;
    return PL_OK;
}

pl_status lower_track_inflight(struct lower *w, const struct placed *h, int to,
                               const struct arrival *done, bool by_rank)
{
    const struct lower_group *a = lower_group(w, h->h.group);
    struct inflight_copy t = {.from = h->h.group,
                              .to = to,
                              .micro = w->now.micro,
                              .done = done->event,
                              .n_done = done->n};
    int same = 0;

    for (int k = w->n_inflight - 1; k >= 0; k--)
        if (w->inflight[k].from == t.from && w->inflight[k].to == to &&
            ++same >= IN_TRANSIT) {
            PL_TRY(retire(w, k));
            break;
        }
    t.src_shard = arena_alloc(w->a, (size_t)a->n, sizeof(int));
    t.src_tensor = arena_alloc(w->a, (size_t)a->n, sizeof(int));
    w->inflight = arena_extended(w->a, w->inflight, (size_t)w->n_inflight,
                                 sizeof *w->inflight);
    PL_TRY(lower_memory(w));
    for (int s = 0; s < a->n; s++) {
        int tensor = by_rank ? h->by_rank[s].tensor : h->h.v[s].tensor;

        if (tensor < 0)
            continue;
        t.src_shard[t.n_src] = a->first + s;
        t.src_tensor[t.n_src++] = tensor;
    }
    w->inflight[w->n_inflight++] = t;
    return PL_OK;
}

pl_status lower_extend_inflight(struct lower *w)
{
    for (int k = 0; k < w->n_inflight; k++) {
        const struct inflight_copy *t = &w->inflight[k];

        for (int s = 0; s < t->n_src; s++)
            PL_TRY(
                lower_hold(w, lower_dev(w, t->src_shard[s]), t->src_tensor[s]));
    }
    w->n_inflight = 0;
    return PL_OK;
}
