/* Writes and reads saved states except for the rows of caches: the head and the
 * checksums. state.h describes the format; state_io.c copies the rows. */
#include "state/state.h"

#include "base/err.h"
#include "kv/pages.h"
#include "quant/format.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = {'p', 'l', 'a', 'i', 't', 'k', 'v', 0x1a};

enum {
    FIXED_BYTES = 160,
    CACHE_BYTES = 32,
    SEQ_BYTES = 40,
    SUM_BYTES = 8,
    MAX_HEADS = 1 << 16,
    MAX_WIDTH = 1 << 16,
    MAX_ROW = 1 << 20,   /* maximum number of elements of a cache at one
                            position */
    MAX_STATE = 1 << 26, /* maximum number of elements of a recurrent state */
    FLAG_WHOLE = 1,
    FLAG_ASIDE = 2,
};

static const uint32_t ids[PL_FORMAT_COUNT] = {
#define ID(name, id) [PL_##name] = id,
    PL_FORMAT_MAP(ID)
#undef ID
};

bool state_begins(const char b[8])
{
    return memcmp(b, magic, sizeof magic) == 0;
}

/* Sizes of heads, rows and chunks ------------------------------------------ */

size_t state_head_bytes(const struct state_head *h)
{
    return FIXED_BYTES + CACHE_BYTES * (size_t)h->n_cache +
           SEQ_BYTES * (size_t)h->n_seq + h->note_bytes + SUM_BYTES;
}

size_t state_row_bytes(const struct state_cache *c)
{
    return (size_t)c->n_head * format_row_bytes(c->format, c->d_head);
}

int64_t state_chunk(const struct state_seq *s, int64_t pos)
{
    int64_t end = pos - pos % STATE_CHUNK + STATE_CHUNK;

    return (end < s->first + s->n ? end : s->first + s->n) - pos;
}

/* Returns the first position whose row of cache c is saved for sequence s. A
 * cache with a window lacks the rows to which no later token attends. */
static int64_t first_there(const struct state_cache *c,
                           const struct state_seq *s)
{
    return (int64_t)kv_first_visible(c->window, s->first + s->n) * STATE_CHUNK;
}

int64_t state_rows(const struct state_cache *c, const struct state_seq *s,
                   int64_t pos)
{
    int64_t n = state_chunk(s, pos);

    if (c->state)
        return n > 0 && pos + n == s->first + s->n;
    return pos >= first_there(c, s) ? n : 0;
}

uint64_t state_bytes(const struct state_head *h)
{
    uint64_t all = state_head_bytes(h);

    for (int i = 0; i < h->n_seq; i++) {
        const struct state_seq *s = &h->seq[i];
        int64_t from = s->first + s->n_like, end = s->first + s->n;

        if (from >= end)
            continue;
        for (int k = 0; k < h->n_cache; k++) {
            const struct state_cache *c = &h->cache[k];
            int64_t there = first_there(c, s);

            there = there > from ? there : from;
            all += state_row_bytes(c) * (uint64_t)(c->state ? 1 : end - there);
        }
        all += SUM_BYTES *
               (uint64_t)((end - 1) / STATE_CHUNK - from / STATE_CHUNK + 1);
    }
    return all;
}

/* Integers as little-endian bytes ------------------------------------------ */

static unsigned char *put4(unsigned char *p, uint64_t v)
{
    uint32_t x = htole32((uint32_t)v);

    memcpy(p, &x, 4);
    return p + 4;
}

static unsigned char *put8(unsigned char *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, 8);
    return p + 8;
}

static uint32_t get4(const unsigned char **p)
{
    uint32_t v;

    memcpy(&v, *p, 4);
    *p += 4;
    return le32toh(v);
}

static uint64_t get8(const unsigned char **p)
{
    uint64_t v;

    memcpy(&v, *p, 8);
    *p += 8;
    return le64toh(v);
}

/* Writing heads and checksums ---------------------------------------------- */

void state_writer_init(struct state_writer *w, pl_state_write_fn *write,
                       void *user)
{
    *w = (struct state_writer){.write = write, .user = user};
    hash64_init(&w->sum, 0);
}

static pl_status put_raw(struct state_writer *w, const void *data, size_t n,
                         pl_err *err)
{
    if (!w->write(w->user, data, n))
        return err_set(err, PL_IO,
                       "writing a state failed after %" PRIu64 " bytes", w->at);
    w->at += n;
    return PL_OK;
}

pl_status state_put(struct state_writer *w, const void *data, size_t n,
                    pl_err *err)
{
    hash64_add(&w->sum, data, n);
    return put_raw(w, data, n, err);
}

pl_status state_put_sum(struct state_writer *w, pl_err *err)
{
    uint64_t sum = hash64_end(&w->sum);
    unsigned char b[SUM_BYTES];

    put8(b, sum);
    hash64_init(&w->sum, sum);
    return put_raw(w, b, sizeof b, err);
}

pl_status state_put_head(struct state_writer *w, const struct state_head *h,
                         pl_err *err)
{
    size_t bytes = state_head_bytes(h);
    unsigned char *b = calloc(1, bytes), *p = b;
    pl_status s;

    if (!b)
        return err_no_memory(err, "the header of a state");
    memcpy(p, magic, sizeof magic);
    p = put4(p + sizeof magic, STATE_VERSION);
    p = put4(p, bytes);
    p = put8(p, h->model);
    p = put8(p, h->numeric);
    p = put8(p, (uint64_t)h->n_vocab);
    p = put4(p, (uint64_t)h->n_rank);
    p = put4(p, (h->whole ? FLAG_WHOLE : 0) | (h->aside ? FLAG_ASIDE : 0));
    p = put4(p, (uint64_t)h->n_cache);
    p = put4(p, (uint64_t)h->n_seq);
    p = put8(p, h->note_bytes);
    memcpy(p, h->name, strnlen(h->name, STATE_NAME - 1));
    p += STATE_NAME;
    for (int i = 0; i < h->n_cache; i++) {
        const struct state_cache *c = &h->cache[i];

        p = put4(p, (uint64_t)c->layer);
        p = put4(p, c->state ? 2 : c->values);
        p = put4(p, ids[c->format]);
        p = put4(p, (uint64_t)c->n_head);
        p = put8(p, (uint64_t)c->d_head);
        p = put8(p, (uint64_t)c->window);
    }
    for (int i = 0; i < h->n_seq; i++) {
        const struct state_seq *q = &h->seq[i];

        p = put4(p, (uint64_t)q->id);
        p = put4(p, (uint64_t)q->like);
        p = put8(p, (uint64_t)q->first);
        p = put8(p, (uint64_t)q->n);
        p = put8(p, (uint64_t)q->n_like);
        p = put8(p, 0);
    }
    if (h->note_bytes > 0)
        memcpy(p, h->note, h->note_bytes);
    p += h->note_bytes;
    s = state_put(w, b, (size_t)(p - b), err);
    free(b);
    return s == PL_OK ? state_put_sum(w, err) : s;
}

/* Reading heads and checksums ---------------------------------------------- */

void state_reader_init(struct state_reader *r, pl_state_read_fn *read,
                       void *user)
{
    *r = (struct state_reader){.read = read, .user = user};
    hash64_init(&r->sum, 0);
}

static pl_status get_raw(struct state_reader *r, void *data, size_t n,
                         pl_err *err)
{
    int64_t got = r->read(r->user, data, n);

    if (got < 0)
        return err_set(err, PL_IO,
                       "reading a state failed after %" PRIu64 " bytes", r->at);
    r->at += (uint64_t)got;
    if ((size_t)got != n)
        return err_set(err, PL_BAD_FILE,
                       "the state is truncated: it ends after %" PRIu64
                       " bytes, %zu short of the next part",
                       r->at, n - (size_t)got);
    return PL_OK;
}

pl_status state_get(struct state_reader *r, void *data, size_t n, pl_err *err)
{
    PL_TRY(get_raw(r, data, n, err));
    hash64_add(&r->sum, data, n);
    return PL_OK;
}

pl_status state_get_sum(struct state_reader *r, pl_err *err)
{
    uint64_t want = hash64_end(&r->sum);
    unsigned char b[SUM_BYTES];
    const unsigned char *p = b;

    PL_TRY(get_raw(r, b, sizeof b, err));
    if (get8(&p) != want)
        return err_set(
            err, PL_BAD_FILE,
            "the state is damaged: the checksum of the bytes before %" PRIu64
            " does not match",
            r->at);
    hash64_init(&r->sum, want);
    return PL_OK;
}

pl_status state_get_end(struct state_reader *r, pl_err *err)
{
    char byte;
    int64_t got = r->read(r->user, &byte, 1);

    if (got < 0)
        return err_set(err, PL_IO,
                       "reading a state failed after %" PRIu64 " bytes", r->at);
    if (got > 0)
        return err_set(err, PL_BAD_FILE,
                       "the state should end after %" PRIu64
                       " bytes, but more follow",
                       r->at);
    return PL_OK;
}

static pl_status senseless(pl_err *err, const char *what, int64_t v)
{
    return err_set(err, PL_BAD_FILE,
                   "the state's header is damaged: %s %" PRId64, what, v);
}

static pl_status get_cache(const unsigned char **p, struct state_cache *c,
                           pl_err *err)
{
    uint32_t holds, id, n_head;
    uint64_t d_head, window;

    c->layer = (int32_t)get4(p);
    holds = get4(p);
    id = get4(p);
    n_head = get4(p);
    d_head = get8(p);
    window = get8(p);
    c->values = holds > 0;
    c->state = holds == 2;
    c->format = format_from_id(id);
    c->n_head = n_head;
    c->d_head = (int64_t)d_head;
    c->window = (int64_t)window;
    if (c->layer < -1 || holds > 2)
        return senseless(err, "a cache of layer", c->layer);
    if (window > INT32_MAX)
        return senseless(err, "a cache of window", c->window);
    if (!format_is_cache(c->format))
        return senseless(err, "a cache of format", id);
    if (n_head < 1 || n_head > MAX_HEADS)
        return senseless(err, "heads of a cache:", n_head);
    if (c->state && (window != 0 || c->format != PL_F32))
        return senseless(err, "a state of format", id);
    if (d_head < 1 || d_head > MAX_WIDTH ||
        d_head * n_head > (c->state ? MAX_STATE : MAX_ROW) ||
        d_head % (uint64_t)format_info(c->format)->block != 0)
        return senseless(err, "values of a head:", (int64_t)d_head);
    return PL_OK;
}

static pl_status get_seq(const unsigned char **p, struct state_head *h, int i,
                         pl_err *err)
{
    struct state_seq *s = &h->seq[i];
    uint32_t id = get4(p), like = get4(p);
    uint64_t first = get8(p), n = get8(p), n_like = get8(p);

    if (id > INT32_MAX || (i > 0 && (int)id <= s[-1].id))
        return senseless(err, "sequence", id);
    if (first > INT32_MAX || n > INT32_MAX || first + n > INT32_MAX)
        return senseless(err, "positions of a sequence:", (int64_t)n);
    if (like > (uint32_t)i || n_like > n ||
        (n_like % STATE_CHUNK != 0 && n_like != n) ||
        (n_like > 0 && ((int)like == i || first > 0 || h->seq[like].first > 0 ||
                        n_like > (uint64_t)h->seq[like].n)))
        return senseless(err,
                         "positions shared by sequences:", (int64_t)n_like);
    if (get8(p) != 0)
        return senseless(err, "sequence", id);
    *s = (struct state_seq){(int)id, (int)like, (int64_t)first, (int64_t)n,
                            (int64_t)n_like};
    for (int k = 0; k < h->n_cache; k++) {
        int64_t from = first_there(&h->cache[k], s);

        if (h->cache[k].state && n > 0 && n_like == n)
            return senseless(err, "a sequence without recurrent state:", id);
        if (from < s->n_like && from < first_there(&h->cache[k], &h->seq[like]))
            return senseless(err, "positions in no sequence:", from);
    }
    return PL_OK;
}

/* Reads and checks the first FIXED_BYTES of the head, which have the same
 * layout in every state. */
static pl_status get_fixed(struct state_reader *r, struct state_head *h,
                           pl_err *err)
{
    unsigned char b[FIXED_BYTES];
    const unsigned char *p = b + sizeof magic;
    uint32_t version, bytes, n_rank, flags, n_cache, n_seq;
    uint64_t note_bytes;

    /* Reads the first 8 bytes alone, to reject data that is not a saved
     * state. */
    PL_TRY(state_get(r, b, sizeof magic, err));
    if (!state_begins((const char *)b))
        return err_set(err, PL_BAD_FILE,
                       "not a state: it does not begin with \"plaitkv\"");
    PL_TRY(state_get(r, b + sizeof magic, 4, err));
    version = get4(&p);
    if (version != STATE_VERSION)
        return err_set(
            err, PL_UNSUPPORTED,
            "the state has version %" PRIu32 "; supported is %d, %s", version,
            STATE_VERSION,
            version < STATE_VERSION
                ? "not an older one: compute it again from its text, and save "
                  "that"
                : "not a newer one: use the version of plait that saved it");
    PL_TRY(state_get(r, b + sizeof magic + 4, FIXED_BYTES - sizeof magic - 4,
                     err));
    bytes = get4(&p);
    h->model = get8(&p);
    h->numeric = get8(&p);
    h->n_vocab = (int64_t)get8(&p);
    n_rank = get4(&p);
    flags = get4(&p);
    n_cache = get4(&p);
    n_seq = get4(&p);
    note_bytes = get8(&p);
    if (flags > (FLAG_WHOLE | FLAG_ASIDE))
        return senseless(err, "flags", flags);
    if (note_bytes > STATE_MAX_NOTE)
        return senseless(err, "bytes of a note:", (int64_t)note_bytes);
    if (n_rank < 1 || n_rank > PL_MAX_RANKS)
        return senseless(err, "ranks:", n_rank);
    if (n_cache > STATE_MAX_CACHE)
        return senseless(err, "caches:", n_cache);
    if (n_seq > STATE_MAX_SEQ)
        return senseless(err, "sequences:", n_seq);
    h->n_rank = (int)n_rank;
    h->whole = flags & FLAG_WHOLE;
    h->aside = flags & FLAG_ASIDE;
    h->n_cache = (int)n_cache;
    h->n_seq = (int)n_seq;
    h->note_bytes = (size_t)note_bytes;
    if (bytes != state_head_bytes(h))
        return senseless(err, "its size:", bytes);
    memcpy(h->name, p, STATE_NAME);
    h->name[STATE_NAME - 1] = 0;
    for (char *c = h->name; *c; c++)
        /* Replaces characters that are not printable, because messages with the
         * name are printed to terminals. */
        *c = *c < ' ' || *c > '~' ? '?' : *c;
    return PL_OK;
}

pl_status state_get_head(struct state_reader *r, struct state_head *h,
                         struct arena *a, pl_err *err)
{
    size_t rest;
    unsigned char *b, *note;
    const unsigned char *p;
    pl_status s;

    memset(h, 0, sizeof *h);
    PL_TRY(get_fixed(r, h, err));
    rest = state_head_bytes(h) - FIXED_BYTES - SUM_BYTES;
    h->cache = arena_alloc(a, (size_t)h->n_cache, sizeof *h->cache);
    h->seq = arena_alloc(a, (size_t)h->n_seq, sizeof *h->seq);
    h->note = note = arena_alloc(a, h->note_bytes + 1, 1);
    p = b = malloc(rest + 1);
    s = h->cache && h->seq && note && b
            ? PL_OK
            : err_no_memory(err, "the header of a state");
    if (s == PL_OK)
        s = state_get(r, b, rest, err);
    /* Verifies the checksum of the head before anything in it is used. */
    if (s == PL_OK)
        s = state_get_sum(r, err);
    for (int i = 0; i < h->n_cache && s == PL_OK; i++)
        s = get_cache(&p, &h->cache[i], err);
    for (int i = 0; i < h->n_seq && s == PL_OK; i++)
        s = get_seq(&p, h, i, err);
    if (s == PL_OK)
        memcpy(note, p, h->note_bytes);
    free(b);
    return s;
}
