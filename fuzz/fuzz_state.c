/* Fuzzes the reader of saved states: reading gives a status. A state that was
 * read completely has the length that its header says, and is written back with
 * the same header.
 *
 * A wrong checksum would end reading before most checks, so the bytes are read
 * a second time with the header's checksum corrected. */
#include "state/state.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

int fuzz_state(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

struct stream {
    const uint8_t *data;
    size_t n, at;
};

static int64_t get(void *user, void *data, size_t n)
{
    struct stream *s = user;

    n = n < s->n - s->at ? n : s->n - s->at;
    memcpy(data, s->data + s->at, n);
    s->at += n;
    return (int64_t)n;
}

/* A pl_state_write_fn: checks that the n bytes written equal the next n bytes
 * of the input. */
static bool same(void *user, const void *data, size_t n)
{
    struct stream *s = user;

    require(n <= s->n - s->at && !memcmp(s->data + s->at, data, n));
    s->at += n;
    return true;
}

static pl_status read_chunks(struct state_reader *r, const struct state_head *h,
                             pl_err *err)
{
    unsigned char piece[4096];

    for (int i = 0; i < h->n_seq; i++) {
        const struct state_seq *q = &h->seq[i];
        int64_t n;

        for (int64_t p = q->first + q->n_like; (n = state_chunk(q, p)) > 0;
             p += n) {
            uint64_t left = 0;

            require(n <= STATE_CHUNK);
            for (int c = 0; c < h->n_cache; c++)
                left += state_row_bytes(&h->cache[c]) *
                        (uint64_t)state_rows(&h->cache[c], q, p);
            while (left > 0) {
                size_t k = left < sizeof piece ? (size_t)left : sizeof piece;

                PL_TRY(state_get(r, piece, k, err));
                left -= k;
            }
            PL_TRY(state_get_sum(r, err));
        }
    }
    return state_get_end(r, err);
}

/* Returns true if the name consists of printable characters and then zeros, as
 * plait writes names. */
static bool plain_name(const uint8_t *name)
{
    size_t n = 0;

    while (n < STATE_NAME && name[n] >= ' ' && name[n] <= '~')
        n++;
    for (size_t i = n; i < STATE_NAME; i++)
        if (name[i] != 0)
            return false;
    return n < STATE_NAME;
}

static void read_one(const uint8_t *data, size_t n)
{
    struct stream s = {data, n, 0};
    struct arena a = {0};
    struct state_reader r;
    struct state_head h;
    struct state_writer w;
    pl_err err = {0};
    pl_status got;

    state_reader_init(&r, get, &s);
    got = state_get_head(&r, &h, &a, &err);
    if (got == PL_OK) {
        uint64_t bytes = state_bytes(&h);

        require(s.at == state_head_bytes(&h));
        got = read_chunks(&r, &h, &err);
        require(got != PL_OK || bytes == n);
        s.at = 0;
        state_writer_init(&w, same, &s);
        if (plain_name(data + 64))
            require(state_put_head(&w, &h, &err) == PL_OK);
    } else {
        require(err.status == got && strlen(err.message) > 0);
    }
    arena_fini(&a);
}

int fuzz_state(const uint8_t *data, size_t n)
{
    uint8_t *copy;
    uint64_t sum;
    uint32_t bytes;

    read_one(data, n);
    if (n < 16)
        return 0;
    memcpy(&bytes, data + 12, sizeof bytes);
    if (bytes < 8 || bytes > n)
        return 0;
    copy = malloc(n);
    require(copy != NULL);
    memcpy(copy, data, n);
    sum = hash64(0, data, bytes - 8);
    memcpy(copy + bytes - 8, &sum, sizeof sum);
    read_one(copy, n);
    free(copy);
    return 0;
}
