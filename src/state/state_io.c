/* Saves sequences to streams and restores them (state_io.h): copies rows
 * between caches and streams.
 *
 * Rows are copied through one buffer, one page of one cache at a time. A
 * restore changes no sequence before the last checksum was verified. A saved
 * sequence that begins at position 0 is read into the target's shadow
 * (kv/pages.h), which is swapped with the target at the end. One that begins
 * later is read into pages that are reserved after the target's end.
 * state_file.c writes files atomically. */
#include "state/state_io.h"

#include "base/err.h"
#include "exec/cache_io.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static_assert((int)STATE_CHUNK == (int)PAGE_TOKENS,
              "a chunk must be in one page");

/* The data and buffers of one save or restore. */
struct trip {
    pl_engine *e;
    struct arena arena;
    struct exec_caches io;
    /* Head that describes this engine and, when saving, the state that is
     * written; head of the state that is restored. */
    struct state_head ours, theirs;
    bool convert;
    /* Owned: the rows of a chunk of one cache, in the format of the state. */
    unsigned char *rows;
    /* Owned: the rows of a chunk converted to the engine's cache format. */
    unsigned char *own;
    /* Owned: the rows of a chunk as floats, while formats are converted. */
    float *wide;
};

static void trip_close(struct trip *t)
{
    exec_caches_close(&t->io);
    arena_fini(&t->arena);
    free(t->rows);
    free(t->own);
    free(t->wide);
}

static pl_status trip_open(struct trip *t, pl_engine *e, pl_err *err)
{
    memset(t, 0, sizeof *t);
    t->e = e;
    PL_TRY(exec_wait_async(e->exec, err));
    PL_TRY(state_describe(&t->ours, &t->arena, e, err));
    return exec_caches_open(&t->io, e->exec, -1, err);
}

/* Allocates the buffers of a save or restore, for the largest chunk of a state
 * with head h. t->own and t->wide are needed only if cache formats differ. */
static pl_status trip_buffers(struct trip *t, const struct state_head *h,
                              pl_err *err)
{
    size_t rows = 1, own = 1, wide = 1;

    for (int i = 0; i < h->n_cache; i++) {
        const struct state_cache *c = &h->cache[i];
        size_t n = state_row_bytes(c), k = state_row_bytes(&t->ours.cache[i]);
        size_t v = (size_t)(c->n_head * c->d_head);

        size_t most = c->state ? 1 : STATE_CHUNK;

        rows = most * n > rows ? most * n : rows;
        own = most * k > own ? most * k : own;
        wide = most * v > wide ? most * v : wide;
    }
    t->rows = calloc(rows, 1);
    if (t->convert) {
        t->own = malloc(own);
        t->wide = malloc(wide * sizeof *t->wide);
    }
    if (!t->rows || (t->convert && (!t->own || !t->wide)))
        return err_no_memory(err, "rows of the cache");
    return PL_OK;
}

/* The place of a chunk's rows in a cache: a page, and the first position in
 * that page. */
struct state_place {
    int32_t page;
    int slot;
};

static struct state_place place_of(const struct trip *t, int c, int row,
                                   int64_t pos)
{
    return (struct state_place){
        kv_page(&t->e->kv, dim_pool(t->io.cache[c].g->dim[0]), row, pos),
        (int)(pos % PAGE_TOKENS)};
}

/* Saving sequences --------------------------------------------------------- */

static pl_status one_seq(struct trip *t, int seq, int64_t first, int64_t n,
                         pl_err *err)
{
    int64_t end;

    if (!engine_is_seq(t->e, seq))
        return engine_no_seq(t->e, seq, err);
    end = t->e->kv.length[seq];
    if (first < 0 || first > end || n > end - first)
        return err_set(err, PL_BAD_ARGUMENT,
                       "cannot save %" PRId64
                       " positions (-1: all) from %" PRId64
                       " of sequence %d; it has %" PRId64,
                       n < 0 ? -1 : n, first, seq, end);
    if (n < 0)
        n = end - first;
    if (n > 0 && kv_trimmable_length(&t->e->kv, seq, first + n) < first + n)
        return err_set(
            err, PL_NOT_FOUND,
            "cannot save %" PRId64 " positions from %" PRId64
            " of sequence %d: window or state data after them was evicted; "
            "save to its end, or at most its first %" PRId64,
            n, first, seq, kv_trimmable_length(&t->e->kv, seq, first + n));
    t->ours.seq[0] = (struct state_seq){seq, 0, first, n, 0};
    t->ours.n_seq = 1;
    return PL_OK;
}

/* Lists all sequences that are not empty in t->ours. Positions whose pages are
 * shared with a sequence that is listed earlier are saved with that one
 * only. */
static void all_seqs(struct trip *t)
{
    struct state_head *h = &t->ours;

    h->whole = true;
    for (int s = 0; s < t->e->kv.n_seq; s++) {
        struct state_seq *q = &h->seq[h->n_seq];

        if (t->e->kv.length[s] == 0)
            continue;
        *q = (struct state_seq){s, h->n_seq, 0, t->e->kv.length[s], 0};
        for (int i = 0; i < h->n_seq; i++) {
            int64_t n = kv_shared_length(&t->e->kv, s, h->seq[i].id);

            /* Saves at least the last chunk of each sequence, because the
             * recurrent state is in it. */
            if (n == q->n && t->e->kv.states >= 0)
                n = (n - 1) / STATE_CHUNK * STATE_CHUNK;
            if (n > q->n_like) {
                q->like = i;
                q->n_like = n;
            }
        }
        h->n_seq++;
    }
}

static pl_status write_seq(struct trip *t, struct state_writer *w,
                           const struct state_seq *q, pl_err *err)
{
    int64_t n;

    for (int64_t pos = q->first + q->n_like; (n = state_chunk(q, pos)) > 0;
         pos += n) {
        for (int c = 0; c < t->io.n; c++) {
            int64_t k = state_rows(&t->ours.cache[c], q, pos);
            struct state_place at;

            if (k == 0)
                continue;
            at = t->ours.cache[c].state
                     ? (struct state_place){kv_state(&t->e->kv, q->id,
                                                     q->first + q->n),
                                            0}
                     : place_of(t, c, q->id, pos);
            PL_TRY(exec_cache_read(&t->io, c, at.page, at.slot, (int)k, t->rows,
                                   err));
            PL_TRY(state_put(w, t->rows,
                             (size_t)k * state_row_bytes(&t->ours.cache[c]),
                             err));
        }
        PL_TRY(state_put_sum(w, err));
    }
    return PL_OK;
}

static pl_status write_all(struct trip *t, pl_state_write_fn *write, void *user,
                           pl_err *err)
{
    struct state_writer w;

    PL_TRY(trip_buffers(t, &t->ours, err));
    state_writer_init(&w, write, user);
    PL_TRY(state_put_head(&w, &t->ours, err));
    for (int i = 0; i < t->ours.n_seq; i++)
        PL_TRY(write_seq(t, &w, &t->ours.seq[i], err));
    return PL_OK;
}

static pl_status save(pl_engine *e, const struct state_range *what,
                      pl_state_write_fn *write, void *user, uint64_t *bytes,
                      pl_err *err)
{
    struct trip t;
    pl_status s = trip_open(&t, e, err);

    if (s != PL_OK)
        goto done;
    t.ours.seq =
        arena_alloc(&t.arena, (size_t)e->kv.n_seq + 1, sizeof *t.ours.seq);
    if (!t.ours.seq) {
        s = err_no_memory(err, "the header of a state");
        goto done;
    }
    t.ours.note = what->note;
    t.ours.note_bytes = what->note_bytes;
    if (what->note_bytes > STATE_MAX_NOTE)
        s = err_set(err, PL_BAD_ARGUMENT,
                    "a note of %zu bytes; the limit is %d", what->note_bytes,
                    STATE_MAX_NOTE);
    else if (what->seq >= 0)
        s = one_seq(&t, what->seq, what->first, what->n, err);
    else if (what->seq < -1)
        s = engine_no_seq(e, what->seq, err);
    else if (what->first == 0 && what->n < 0)
        all_seqs(&t);
    else
        s = err_set(
            err, PL_BAD_ARGUMENT,
            "all sequences can only be saved whole; give 0 and -1, not %" PRId64
            " and %" PRId64,
            what->first, what->n);
    if (s == PL_OK && bytes)
        *bytes = state_bytes(&t.ours);
    if (s == PL_OK && write && !what->aside)
        s = state_lasts(&t.ours, e, err);
    if (s == PL_OK && write)
        s = write_all(&t, write, user, err);
done:
    trip_close(&t);
    return s;
}

pl_status state_save(pl_engine *e, const struct state_range *what,
                     pl_state_write_fn *write, void *user, uint64_t *bytes,
                     pl_err *err)
{
    pl_status s;

    PL_TRY(exec_enter(e->exec, err));
    exec_allow_callback_reads(e->exec);
    s = save(e, what, write, user, bytes, err);
    exec_leave(e->exec);
    return s;
}

/* Restoring sequences ------------------------------------------------------ */

/* Returns the sequence of the engine to which saved sequence i is restored:
 * `seq`, or the one with the saved id if `seq` is -1. */
static int target(const struct trip *t, int seq, int i)
{
    return seq >= 0 ? seq : t->theirs.seq[i].id;
}

/* Returns the sequence into which saved sequence i is read. If it begins at
 * position 0, it is the shadow of the target, so that the target stays
 * unchanged until the state is verified; else the target itself. */
static int builds_in(const struct trip *t, int seq, int i)
{
    int dst = target(t, seq, i);

    return t->theirs.seq[i].first > 0 ? dst : kv_shadow_seq(&t->e->kv, dst);
}

static pl_status check_seqs(const struct trip *t, int seq, pl_err *err)
{
    const struct state_head *h = &t->theirs;
    const pl_engine *e = t->e;

    if (seq < -1 || (seq >= 0 && !engine_is_seq(e, seq)))
        return engine_no_seq(e, seq, err);
    if (seq >= 0 && h->n_seq != 1)
        return err_set(err, PL_BAD_ARGUMENT,
                       "the state has %d sequences, which cannot all become "
                       "sequence %d; restore each to its own (-1)",
                       h->n_seq, seq);
    for (int i = 0; i < h->n_seq; i++) {
        const struct state_seq *q = &h->seq[i];
        int dst = target(t, seq, i);

        if (!engine_is_seq(e, dst))
            return err_set(err, PL_FULL,
                           "the state has sequence %d, but planned are 0 to "
                           "%d; plan for %d",
                           dst, e->kv.n_seq - 1, dst + 1);
        if (q->first > 0 && (h->whole || e->kv.length[dst] != q->first))
            return err_set(err, PL_BAD_ARGUMENT,
                           "the state has positions %" PRId64 " to %" PRId64
                           ", which must follow %" PRId64
                           " others, but sequence %d has %" PRId64,
                           q->first, q->first + q->n - 1, q->first, dst,
                           e->kv.length[dst]);
        if (q->first + q->n > e->plan->n_ctx)
            return err_set(err, PL_FULL,
                           "the state needs a context of %" PRId64
                           " tokens, this one has %" PRId64 "; use -c %" PRId64
                           " or more",
                           q->first + q->n, e->plan->n_ctx, q->first + q->n);
    }
    return PL_OK;
}

/* Returns the number of pages of a pool that the restored sequences need. Sets
 * *freed to the number of pages that become free if the sequences that the
 * state replaces are emptied first. */
static int64_t count_pages(const struct trip *t, int seq, int pool,
                           int64_t *freed)
{
    const struct state_head *h = &t->theirs;
    const struct kv *kv = &t->e->kv;
    const struct kv_pool *p = &kv->pool[pool];
    int64_t need = 0;

    *freed = h->whole ? p->n_page - kv_free_pages(kv, pool) : 0;
    for (int i = 0; i < h->n_seq; i++) {
        const struct state_seq *q = &h->seq[i];
        int from = kv_first_visible(p->window, q->n);

        if (from < kv_pages_of(q->n_like))
            from = kv_pages_of(q->n_like);
        if (q->first > 0)
            need += kv_pages_needed(kv, pool, target(t, seq, i), q->n, true);
        else
            need += kv_pages_of(q->n) - from;
        if (q->first == 0 && !h->whole)
            *freed += kv_private_pages(kv, pool, target(t, seq, i));
    }
    return need;
}

/* Checks that a pool has enough pages for the state. If the free pages suffice,
 * old and new contents are held together until the state is verified. If not,
 * sets *in_place: the sequences that the state replaces must be emptied before
 * it is read. That is allowed only if the state can be read twice (`twice`),
 * because the first reading verifies it. Returns PL_FULL if there are too few
 * pages. */
static pl_status check_pool(const struct trip *t, int seq, bool twice, int pool,
                            bool *in_place, pl_err *err)
{
    int n_free = kv_free_pages(&t->e->kv, pool);
    int n_page = t->e->kv.pool[pool].n_page;
    int64_t freed, need = count_pages(t, seq, pool, &freed);

    if (need <= n_free)
        return PL_OK;
    *in_place = true;
    if (twice && need <= n_free + freed)
        return PL_OK;
    if (need <= n_free + freed)
        return err_set(err, PL_FULL,
                       "the state needs %" PRId64
                       " pages of %d tokens; %d of %d are free, and %" PRId64
                       " more only after it is verified; restore it from a "
                       "file or memory, or empty the sequence first",
                       need, PAGE_TOKENS, n_free, n_page, freed);
    return err_set(
        err, PL_FULL,
        "the state needs %" PRId64
        " pages of %d tokens; %d of %d are free, and it replaces %" PRId64
        "; use a larger context or end a sequence",
        need, PAGE_TOKENS, n_free, n_page, freed);
}

static pl_status check_pages(const struct trip *t, int seq, bool twice,
                             bool *in_place, pl_err *err)
{
    *in_place = false;
    /* The pool of states is not checked: a slot for each sequence is
     * planned. */
    for (int k = 0; k < t->e->kv.n_pool; k++)
        if (k != t->e->kv.states)
            PL_TRY(check_pool(t, seq, twice, k, in_place, err));
    return PL_OK;
}

/* Writes n rows of cache c from t->rows into the pages of sequence `row` at
 * position `pos`, or, if they are a recurrent state, into the state slot that
 * is reserved for the sequence. Converts them if formats differ. */
static pl_status put_rows(struct trip *t, int c, int row, int64_t pos,
                          int64_t n, pl_err *err)
{
    const struct state_cache *from = &t->theirs.cache[c];
    struct state_place at =
        from->state ? (struct state_place){kv_state_written(&t->e->kv, row), 0}
                    : place_of(t, c, row, pos);
    const void *rows = t->rows;

    if (from->format != t->ours.cache[c].format) {
        format_info(from->format)
            ->decode(t->wide, t->rows, n * from->n_head * from->d_head);
        exec_cache_encode(&t->io, c, (int)n, t->wide, t->own);
        rows = t->own;
    }
    return exec_cache_write(&t->io, c, at.page, at.slot, (int)n, rows, err);
}

/* Reads the rows of saved sequence q into the pages of sequence `row`. If `row`
 * is -1, only verifies the checksums. */
static pl_status read_seq(struct trip *t, struct state_reader *r,
                          const struct state_seq *q, int row, pl_err *err)
{
    int64_t n;

    for (int64_t pos = q->first + q->n_like; (n = state_chunk(q, pos)) > 0;
         pos += n) {
        for (int c = 0; c < t->io.n; c++) {
            int64_t k = state_rows(&t->theirs.cache[c], q, pos);

            if (k == 0)
                continue;
            PL_TRY(state_get(r, t->rows,
                             (size_t)k * state_row_bytes(&t->theirs.cache[c]),
                             err));
            if (row >= 0)
                PL_TRY(put_rows(t, c, row, pos, k, err));
        }
        PL_TRY(state_get_sum(r, err));
    }
    return PL_OK;
}

/* Reads all saved sequences, into shadows or into pages reserved after the end
 * of their targets. If all succeed, makes them the contents of the targets. If
 * one fails, no sequence is changed. */
static pl_status build(struct trip *t, int seq, struct state_reader *r,
                       const struct state_source *from, pl_err *err)
{
    const struct state_head *h = &t->theirs;
    struct kv *kv = &t->e->kv;
    int n_built = 0;
    pl_status s = PL_OK;

    for (int i = 0; i < h->n_seq && s == PL_OK; i++) {
        const struct state_seq *q = &h->seq[i];
        int row = builds_in(t, seq, i);
        int64_t n = q->n - q->n_like;

        if (q->n_like > 0)
            kv_share(kv, row, builds_in(t, seq, q->like), q->n_like);
        s = kv_reserve(kv, row, n, true, engine_copy_page, t->e, err);
        if (s != PL_OK)
            break;
        n_built++;
        if (q->first == 0)
            kv_commit(kv, row, n, true);
        s = read_seq(t, r, q, row, err);
    }
    if (s == PL_OK && from->rewind)
        s = state_get_end(r, err);
    for (int i = 0; i < h->n_seq; i++) {
        const struct state_seq *q = &h->seq[i];
        int row = builds_in(t, seq, i);

        if (q->first == 0) {
            if (s == PL_OK)
                kv_swap(kv, target(t, seq, i), row);
            kv_trim(kv, row, 0);
        } else if (s == PL_OK) {
            kv_commit(kv, row, q->n, true);
        } else if (i < n_built) {
            kv_cancel_reserve(kv, row, q->n);
        }
        if (s == PL_OK)
            kv_trim_windows(kv, target(t, seq, i));
    }
    return s;
}

/* Empties sequences before or after a restore: if `replaced`, those that the
 * state replaces, and if the state is one of the whole cache, also those that
 * it does not contain. */
static void empty(const struct trip *t, int seq, bool replaced)
{
    const struct state_head *h = &t->theirs;
    struct kv *kv = &t->e->kv;

    for (int k = 0, i = 0; k < kv->n_seq; k++) {
        bool named;

        while (i < h->n_seq && target(t, seq, i) < k)
            i++;
        named = i < h->n_seq && target(t, seq, i) == k;
        if (named ? replaced && h->seq[i].first == 0 : h->whole)
            kv_trim(kv, k, 0);
    }
}

/* Verifies a state before the sequences that it replaces are emptied. Reads it
 * to its end, reads its head a second time, and then empties the sequences. */
static pl_status look_first(struct trip *t, int seq, struct state_reader *r,
                            const struct state_source *from, pl_err *err)
{
    /* hash after the first reading of the head, to detect a change in
     * between */
    const struct hash64 sum = r->sum;
    struct state_head again;

    for (int i = 0; i < t->theirs.n_seq; i++)
        PL_TRY(read_seq(t, r, &t->theirs.seq[i], -1, err));
    PL_TRY(state_get_end(r, err));
    if (!from->rewind(from->user))
        return err_set(err, PL_IO, "the state cannot be read a second time");
    state_reader_init(r, from->read, from->user);
    PL_TRY(state_get_head(r, &again, &t->arena, err));
    if (memcmp(&sum, &r->sum, sizeof sum) != 0)
        return err_set(err, PL_IO, "the state was changed while it was read");
    empty(t, seq, true);
    return PL_OK;
}

/* Sets *note to a malloc'ed copy of the note stored with the state. */
static pl_status copy_note(const struct state_head *h, void **note, pl_err *err)
{
    *note = malloc(h->note_bytes + 1);
    if (!*note)
        return err_no_memory(err, "the note of a state");
    memcpy(*note, h->note, h->note_bytes);
    return PL_OK;
}

static pl_status restore(struct trip *t, int seq,
                         const struct state_source *from, unsigned flags,
                         pl_err *err)
{
    struct state_reader r;
    bool in_place;
    void *note = NULL;
    pl_status s;

    state_reader_init(&r, from->read, from->user);
    PL_TRY(state_get_head(&r, &t->theirs, &t->arena, err));
    if (!t->theirs.aside)
        PL_TRY(state_lasts(&t->ours, t->e, err));
    PL_TRY(state_match(&t->theirs, &t->ours, flags & PL_STATE_CONVERT,
                       &t->convert, err));
    PL_TRY(check_seqs(t, seq, err));
    PL_TRY(check_pages(t, seq, from->rewind, &in_place, err));
    PL_TRY(trip_buffers(t, &t->theirs, err));
    if (in_place)
        PL_TRY(look_first(t, seq, &r, from, err));
    if (from->note)
        PL_TRY(copy_note(&t->theirs, &note, err));
    s = build(t, seq, &r, from, err);
    if (s != PL_OK) {
        free(note);
        return s;
    }
    if (from->note) {
        *from->note = note;
        *from->note_bytes = t->theirs.note_bytes;
    }
    empty(t, seq, false);
    t->e->has_foreign |= !t->theirs.aside &&
                         (t->convert || t->theirs.numeric != t->ours.numeric);
    state_note(t->e, &t->theirs, &t->ours, t->convert);
    return PL_OK;
}

pl_status state_restore(pl_engine *e, int seq, const struct state_source *from,
                        unsigned flags, pl_err *err)
{
    struct trip t;
    pl_status s;

    if (flags & ~(unsigned)PL_STATE_CONVERT)
        return err_set(err, PL_BAD_ARGUMENT,
                       "unknown flags %#x of a restore; use PL_STATE_CONVERT",
                       flags);
    PL_TRY(exec_enter(e->exec, err));
    s = trip_open(&t, e, err);
    if (s == PL_OK)
        s = restore(&t, seq, from, flags, err);
    trip_close(&t);
    exec_leave(e->exec);
    return s;
}
