/* The format of states: written states are read back, and all others are
 * rejected. test_engine_state.c checks models and sequences. */
#include "state/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cache_formats.h"
#include "lib/support.h"
#include "quant/format.h"

/* ---- checksum ------------------------------------------------------------ */

TEST(hash64_does_not_see_portions)
{
    unsigned char data[1000];
    uint64_t seed = test_seed();

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)test_random(&seed);
    for (int k = 0; k < 2000; k++) {
        size_t n = (size_t)test_below(&seed, sizeof data + 1), at = 0;
        struct hash64 h;

        hash64_init(&h, (uint64_t)k);
        while (at < n) {
            size_t part = (size_t)test_below(&seed, 1 + test_below(&seed, 150));

            part = part < n - at ? part : n - at;
            hash64_add(&h, data + at, part);
            at += part;
        }
        assert_int_equal(hash64_end(&h), hash64((uint64_t)k, data, n));
    }
}

TEST(hash64_sees_every_change)
{
    unsigned char data[200] = {0};
    uint64_t last;

    for (size_t n = 0; n <= sizeof data; n++) {
        last = hash64(7, data, n);
        assert_int_not_equal(last, hash64(8, data, n));
        if (n < sizeof data) /* one more zero byte changes the hash */
            assert_int_not_equal(last, hash64(7, data, n + 1));
        for (size_t i = 0; i < n; i++)
            for (int b = 0; b < 8; b++) {
                data[i] ^= (unsigned char)(1 << b);
                assert_int_not_equal(last, hash64(7, data, n));
                data[i] ^= (unsigned char)(1 << b);
            }
    }
}

/* The hash is stored in files, so it must be the same on all machines. */
TEST(hash64_is_the_same_everywhere)
{
    unsigned char data[300];

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * 7);
    assert_int_equal(hash64(0, data, 0), 0x2ce6971240d22122u);
    assert_int_equal(hash64(0, data, 5), 0x80573aa51ad222aeu);
    assert_int_equal(hash64(1, data, 300), 0x672ca1ca8dabb558u);
}

/* ---- streams ------------------------------------------------------------- */

enum { MAX_CACHE = 6, MAX_SEQ = 4, MAX_BYTES = 1 << 21 };

struct stream {
    unsigned char *data; /* [MAX_BYTES] bytes written and read, owned */
    size_t n, at;
};

static bool put(void *user, const void *data, size_t n)
{
    struct stream *s = user;

    assert_true(n <= MAX_BYTES - s->n);
    memcpy(s->data + s->n, data, n);
    s->n += n;
    return true;
}

static int64_t get(void *user, void *data, size_t n)
{
    struct stream *s = user;

    n = n < s->n - s->at ? n : s->n - s->at;
    memcpy(data, s->data + s->at, n);
    s->at += n;
    return (int64_t)n;
}

struct made {
    struct state_head h;
    struct state_cache cache[MAX_CACHE];
    struct state_seq seq[MAX_SEQ];
};

/* Returns the first position of a sequence that a cache still has. */
static int64_t first_there(const struct state_cache *c,
                           const struct state_seq *q)
{
    int64_t pos = 0;

    while (state_chunk(q, pos) > 0 && !state_rows(c, q, pos))
        pos++;
    return pos;
}

static void make_head(struct made *m, uint64_t *seed)
{
    bool states = false;

    memset(m, 0, sizeof *m);
    m->h = (struct state_head){.model = test_random(seed),
                               .numeric = test_random(seed),
                               .n_vocab = test_below(seed, 1 << 20),
                               .n_rank = 1 + (int)test_below(seed, 64),
                               .whole = test_below(seed, 2),
                               .aside = test_below(seed, 2),
                               .name = "a model",
                               .n_cache = (int)test_below(seed, MAX_CACHE + 1),
                               .n_seq = (int)test_below(seed, MAX_SEQ + 1),
                               .cache = m->cache,
                               .seq = m->seq,
                               .note = "a note",
                               .note_bytes = (size_t)test_below(seed, 7)};
    for (int i = 0; i < m->h.n_cache; i++) {
        bool state = test_below(seed, 6) == 0;

        m->cache[i] = (struct state_cache){
            .layer = i / 2,
            .values = state || i % 2,
            .state = state,
            .format = state ? PL_F32
                            : cache_formats[test_below(seed, N_CACHE_FORMAT)],
            .n_head = 1 + test_below(seed, 3),
            .d_head = 32 * (1 + test_below(seed, 2)),
            .window = state || i % 3 ? 0 : test_below(seed, 200)};
        states |= state;
    }
    for (int i = 0; i < m->h.n_seq; i++) {
        struct state_seq *q = &m->seq[i];
        int like = (int)test_below(seed, i + 1);

        q->id = (i > 0 ? q[-1].id : 0) + 1 + (int)test_below(seed, 3);
        q->like = i;
        q->first = test_below(seed, 3) ? 0 : test_below(seed, 200);
        q->n = test_below(seed, 200);
        if (like < i && q->first == 0 && m->seq[like].first == 0) {
            q->like = like;
            q->n_like = q->n < m->seq[like].n ? q->n : m->seq[like].n;
            if (states && q->n_like == q->n && q->n > 0)
                /* with recurrent states the last token is not shared, because
                 * the state is the sequence's own */
                q->n_like--;
            if (q->n_like < q->n)
                q->n_like -= q->n_like % STATE_CHUNK;
            for (int c = 0; c < m->h.n_cache; c++)
                if (q->n_like > 0 && !m->cache[c].state &&
                    state_rows(&m->cache[c], q, q->n_like - 1) &&
                    !state_rows(&m->cache[c], &m->seq[like],
                                first_there(&m->cache[c], q)))
                    q->n_like = 0;
        }
    }
}

/* Returns a byte that depends on sequence, position, cache and offset. */
static unsigned char byte_at(int seq, int64_t pos, int cache, size_t i)
{
    return (unsigned char)(seq * 31 + pos * 7 + cache * 13 + (int64_t)i);
}

static void write_made(const struct made *m, struct stream *s)
{
    struct state_writer w;
    unsigned char row[2000];
    int64_t n;

    s->n = s->at = 0;
    state_writer_init(&w, put, s);
    assert_int_equal(state_put_head(&w, &m->h, NULL), PL_OK);
    assert_int_equal(s->n, state_head_bytes(&m->h));
    for (int q = 0; q < m->h.n_seq; q++)
        for (int64_t p = m->seq[q].first + m->seq[q].n_like;
             (n = state_chunk(&m->seq[q], p)) > 0; p += n) {
            assert_true(n <= STATE_CHUNK);
            assert_int_equal(p / STATE_CHUNK, (p + n - 1) / STATE_CHUNK);
            for (int c = 0; c < m->h.n_cache; c++)
                for (int64_t i = 0; i < state_rows(&m->cache[c], &m->seq[q], p);
                     i++) {
                    size_t bytes = state_row_bytes(&m->cache[c]);

                    for (size_t k = 0; k < bytes; k++)
                        row[k] = byte_at(q, p + i, c, k);
                    assert_int_equal(state_put(&w, row, bytes, NULL), PL_OK);
                }
            assert_int_equal(state_put_sum(&w, NULL), PL_OK);
        }
    assert_int_equal(s->n, state_bytes(&m->h));
}

/* Reads a stream to its end; h and its data are m's if `m` is not NULL. */
static pl_status read_all(struct stream *s, const struct made *m, pl_err *err)
{
    struct arena a = {0};
    struct state_reader r;
    struct state_head h;
    unsigned char row[2000];
    int64_t n;
    pl_status got;

    s->at = 0;
    state_reader_init(&r, get, s);
    got = state_get_head(&r, &h, &a, err);
    if (got == PL_OK && m) {
        assert_int_equal(h.model, m->h.model);
        assert_int_equal(h.numeric, m->h.numeric);
        assert_int_equal(h.n_vocab, m->h.n_vocab);
        assert_int_equal(h.n_rank, m->h.n_rank);
        assert_int_equal(h.whole, m->h.whole);
        assert_int_equal(h.aside, m->h.aside);
        assert_string_equal(h.name, m->h.name);
        assert_int_equal(h.n_cache, m->h.n_cache);
        assert_int_equal(h.n_seq, m->h.n_seq);
        assert_int_equal(h.note_bytes, m->h.note_bytes);
        if (h.note_bytes > 0)
            assert_memory_equal(h.note, m->h.note, h.note_bytes);
        for (int i = 0; i < h.n_cache; i++) {
            assert_int_equal(h.cache[i].layer, m->cache[i].layer);
            assert_int_equal(h.cache[i].values, m->cache[i].values);
            assert_int_equal(h.cache[i].state, m->cache[i].state);
            assert_int_equal(h.cache[i].format, m->cache[i].format);
            assert_int_equal(h.cache[i].n_head, m->cache[i].n_head);
            assert_int_equal(h.cache[i].d_head, m->cache[i].d_head);
            assert_int_equal(h.cache[i].window, m->cache[i].window);
        }
        for (int i = 0; i < h.n_seq; i++) {
            assert_int_equal(h.seq[i].id, m->seq[i].id);
            assert_int_equal(h.seq[i].like, m->seq[i].like);
            assert_int_equal(h.seq[i].first, m->seq[i].first);
            assert_int_equal(h.seq[i].n, m->seq[i].n);
            assert_int_equal(h.seq[i].n_like, m->seq[i].n_like);
        }
    }
    for (int q = 0; got == PL_OK && q < h.n_seq; q++)
        for (int64_t p = h.seq[q].first + h.seq[q].n_like;
             got == PL_OK && (n = state_chunk(&h.seq[q], p)) > 0; p += n) {
            for (int c = 0; c < h.n_cache; c++)
                for (int64_t i = 0;
                     got == PL_OK && i < state_rows(&h.cache[c], &h.seq[q], p);
                     i++) {
                    size_t bytes = state_row_bytes(&h.cache[c]);

                    assert_true(bytes <= sizeof row);
                    got = state_get(&r, row, bytes, err);
                    for (size_t k = 0; m && got == PL_OK && k < bytes; k++)
                        assert_int_equal(row[k], byte_at(q, p + i, c, k));
                }
            if (got == PL_OK)
                got = state_get_sum(&r, err);
        }
    if (got == PL_OK)
        got = state_get_end(&r, err);
    arena_fini(&a);
    return got;
}

static void stream_init(struct stream *s)
{
    *s = (struct stream){.data = malloc(MAX_BYTES)};
    assert_non_null(s->data);
}

TEST(kv_state_comes_back)
{
    uint64_t seed = test_seed();
    struct stream s;
    struct made m;

    stream_init(&s);
    for (int k = 0; k < 100; k++) {
        pl_err err = {0};

        make_head(&m, &seed);
        write_made(&m, &s);
        if (read_all(&s, &m, &err))
            fail_msg("%s", err.message);
    }
    free(s.data);
}

TEST(kv_state_cut_changed_or_shuffled_is_refused)
{
    uint64_t seed = test_seed();
    struct stream s, t;
    struct made m;
    pl_err err = {0};
    size_t head, chunk;

    stream_init(&s);
    stream_init(&t);
    do
        make_head(&m, &seed);
    while (m.h.n_seq == 0 || m.seq[0].first > 0 || m.h.n_cache != 2 ||
           m.seq[0].n < 3 * STATE_CHUNK);
    write_made(&m, &s);
    memcpy(t.data, s.data, s.n);
    for (t.n = 0; t.n < s.n; t.n += 1 + t.n / 1000) {
        err.message[0] = 0;
        assert_int_equal(read_all(&t, NULL, &err), PL_BAD_FILE);
        assert_true(err.message[0]);
    }
    t.n = s.n + 1;
    assert_int_equal(read_all(&t, NULL, &err), PL_BAD_FILE);
    assert_non_null(strstr(err.message, "more follow"));
    t.n = s.n;
    for (int i = 0; i < 2000; i++) {
        size_t at = (size_t)(i < 400 ? i : test_below(&seed, (int64_t)s.n));
        unsigned char by = (unsigned char)(1 + test_below(&seed, 255));

        if (at >= s.n)
            continue;
        t.data[at] ^= by;
        assert_int_not_equal(read_all(&t, NULL, &err), PL_OK);
        t.data[at] ^= by;
    }
    /* exchanges two complete chunks, each with its checksum */
    head = state_head_bytes(&m.h);
    chunk = STATE_CHUNK *
                (state_row_bytes(&m.cache[0]) + state_row_bytes(&m.cache[1])) +
            8;
    memcpy(t.data + head, s.data + head + chunk, chunk);
    memcpy(t.data + head + chunk, s.data + head, chunk);
    assert_int_equal(read_all(&t, NULL, &err), PL_BAD_FILE);
    assert_non_null(strstr(err.message, "checksum"));
    free(s.data);
    free(t.data);
}

static void set_bytes(unsigned char *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++, v >>= 8)
        p[i] = (unsigned char)v;
}

/* Headers with a valid checksum and a number that no writer writes are
 * rejected. */
TEST(kv_state_head_without_sense_is_refused)
{
    /* Each row: offset in the header, bytes, and the value written there.
     * Descriptions of the sequences follow those of two caches. */
    enum { CACHE = 160, SEQ = CACHE + 2 * 32, SUM = SEQ + 2 * 40 };
    static const struct {
        int at, n;
        uint64_t v;
        pl_status want;
    } bad[] = {
        {0, 1, 'P', PL_BAD_FILE},
        {8, 4, 1, PL_UNSUPPORTED},
        {8, 4, 2, PL_UNSUPPORTED},
        {8, 4, 3, PL_UNSUPPORTED},
        {8, 4, 5, PL_UNSUPPORTED},
        {12, 4, 0, PL_BAD_FILE},
        {12, 4, SUM, PL_BAD_FILE},
        {40, 4, 0, PL_BAD_FILE},
        {40, 4, 65, PL_BAD_FILE},
        {44, 4, 4, PL_BAD_FILE},
        {48, 4, UINT32_MAX, PL_BAD_FILE},
        {52, 4, UINT32_MAX, PL_BAD_FILE},
        {52, 4, 3, PL_BAD_FILE},
        {56, 8, 1, PL_BAD_FILE},
        {56, 8, STATE_MAX_NOTE + 1, PL_BAD_FILE},
        {56, 8, UINT64_MAX, PL_BAD_FILE},
        {CACHE, 4, (uint32_t)-2, PL_BAD_FILE},
        {CACHE + 4, 4, 2, PL_BAD_FILE}, /* the recurrent state has format F16 */
        {CACHE + 4, 4, 3, PL_BAD_FILE},
        {CACHE + 8, 4, 99, PL_BAD_FILE},
        {CACHE + 8, 4, 12, PL_BAD_FILE}, /* the cache has format Q4_K */
        {CACHE + 12, 4, 0, PL_BAD_FILE},
        {CACHE + 12, 4, UINT32_MAX, PL_BAD_FILE},
        {CACHE + 16, 8, 0, PL_BAD_FILE},
        {CACHE + 16, 8, UINT64_MAX, PL_BAD_FILE},
        {CACHE + 24, 8, (uint64_t)1 << 31, PL_BAD_FILE},
        /* 33 values per row, though Q8_0 has blocks of 32 */
        {CACHE + 32 + 16, 8, 33, PL_BAD_FILE},
        {SEQ, 4, UINT32_MAX, PL_BAD_FILE},
        /* sequence 5 twice: it is also the id of the next one */
        {SEQ, 4, 5, PL_BAD_FILE},
        {SEQ + 4, 4, 1, PL_BAD_FILE},
        {SEQ + 8, 8, 1ull << 62, PL_BAD_FILE},
        {SEQ + 8, 8, INT32_MAX, PL_BAD_FILE},
        {SEQ + 16, 8, UINT64_MAX, PL_BAD_FILE},
        /* the sequence shares tokens with itself */
        {SEQ + 24, 8, 64, PL_BAD_FILE},
        {SEQ + 32, 8, 1, PL_BAD_FILE},
        {SEQ + 40, 4, 4, PL_BAD_FILE},
        {SEQ + 40 + 4, 4, 2, PL_BAD_FILE},
        {SEQ + 40 + 8, 8, 1, PL_BAD_FILE},
        {SEQ + 40 + 24, 8, 63, PL_BAD_FILE},
        {SEQ + 40 + 24, 8, 192, PL_BAD_FILE},
        {SEQ + 40 + 24, 8, UINT64_MAX - 63, PL_BAD_FILE},
    };
    struct made m = {.h = {.n_rank = 1, .n_cache = 2, .n_seq = 2},
                     .cache = {{0, false, false, PL_F16, 1, 32, 0},
                               {0, true, false, PL_Q8_0, 1, 32, 0}},
                     .seq = {{4, 0, 0, 150, 0}, {5, 0, 0, 200, 128}}};
    struct stream s;

    m.h.cache = m.cache;
    m.h.seq = m.seq;
    stream_init(&s);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pl_err err = {0};
        pl_status got;

        write_made(&m, &s);
        assert_int_equal(state_head_bytes(&m.h), SUM + 8);
        set_bytes(s.data + bad[i].at, bad[i].v, bad[i].n);
        set_bytes(s.data + SUM, hash64(0, s.data, SUM), 8);
        got = read_all(&s, NULL, &err);
        if (got != bad[i].want || !err.message[0] ||
            strstr(err.message, "checksum"))
            fail_msg("%" PRIu64 " at %d: %s, \"%s\"", bad[i].v, bad[i].at,
                     pl_status_name(got), err.message);
    }
    free(s.data);
}

/* If there are states, each sequence has its own, in F32, of bounded size. */
TEST(kv_state_head_with_states_is_bounded)
{
    static const struct {
        struct state_cache cache;
        int64_t n_like;
        /* text that the error must contain; NULL if the header is accepted */
        const char *says;
    } heads[] = {
        {{0, true, true, PL_F32, 1 << 10, 1 << 16, 0}, 64, NULL},
        {{0, true, true, PL_F32, (1 << 10) + 1, 1 << 16, 0}, 64, "values"},
        {{0, true, false, PL_F32, 1 << 10, 1 << 16, 0}, 64, "values"},
        {{0, true, true, PL_F32, 1 << 16, 3, 0}, 64, NULL},
        {{0, true, true, PL_F32, (1 << 16) + 1, 3, 0}, 64, "heads"},
        {{0, true, true, PL_F16, 2, 32, 0}, 64, "a state of format"},
        {{0, true, true, PL_Q8_0, 2, 32, 0}, 64, "a state of format"},
        {{0, true, true, PL_F32, 2, 32, 8}, 64, "a state of format"},
        {{0, true, true, PL_F32, 2, 32, 0}, 0, NULL},
        {{0, true, true, PL_F32, 2, 32, 0}, 128, "without recurrent state"},
        {{0, true, false, PL_F32, 2, 32, 0}, 128, NULL},
    };
    struct stream s;

    stream_init(&s);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        struct made m = {
            .h = {.n_rank = 1, .n_cache = 1, .n_seq = 2},
            .cache = {heads[i].cache},
            .seq = {{4, 0, 0, 150, 0}, {5, 0, 0, 128, heads[i].n_like}}};
        struct arena a = {0};
        struct state_writer w;
        struct state_reader r;
        struct state_head h;
        pl_err err = {0};
        pl_status got;

        m.h.cache = m.cache;
        m.h.seq = m.seq;
        s.n = s.at = 0;
        state_writer_init(&w, put, &s);
        assert_int_equal(state_put_head(&w, &m.h, NULL), PL_OK);
        state_reader_init(&r, get, &s);
        got = state_get_head(&r, &h, &a, &err);
        if (got != (heads[i].says ? PL_BAD_FILE : PL_OK) ||
            (heads[i].says && !strstr(err.message, heads[i].says)))
            fail_msg("head %zu: %s, \"%s\"", i, pl_status_name(got),
                     err.message);
        arena_fini(&a);
    }
    free(s.data);
}

/* ---- the fuzzer's corpus ------------------------------------------------- */

/* fuzz/corpus/state has states of this version, so that none is rejected for
 * its version before its content is read. PLAIT_WRITE_STATES=DIR writes
 * them. */
TEST(kv_state_corpus_is_of_this_version)
{
#define KEYS                                                                   \
    {                                                                          \
        0, false, false, PL_F16, 1, 8, 0                                       \
    }
#define VALUES                                                                 \
    {                                                                          \
        0, true, false, PL_Q8_0, 1, 32, 0                                      \
    }
#define WINDOW                                                                 \
    {                                                                          \
        1, true, false, PL_F32, 2, 4, 9                                        \
    }
#define STATE                                                                  \
    {                                                                          \
        2, true, true, PL_F32, 2, 9, 0                                         \
    }
    static const struct {
        const char *file;
        struct made m;
    } corpus[] = {
        {"none", {.h = {.n_cache = 2}, .cache = {KEYS, VALUES}}},
        {"bare", {.h = {.n_cache = 0, .whole = true}}},
        {"note", {.h = {.n_cache = 0, .note = "a note", .note_bytes = 6}}},
        {"empty",
         {.h = {.n_cache = 1, .n_seq = 1},
          .cache = {KEYS},
          .seq = {{.id = 3}}}},
        {"one",
         {.h = {.n_cache = 2, .n_seq = 1},
          .cache = {KEYS, VALUES},
          .seq = {{0, 0, 0, 70, 0}}}},
        {"range",
         {.h = {.n_cache = 2, .n_seq = 1},
          .cache = {KEYS, VALUES},
          .seq = {{0, 0, 30, 40, 0}}}},
        {"like",
         {.h = {.n_cache = 2, .n_seq = 3, .whole = true},
          .cache = {KEYS, VALUES},
          .seq = {{0, 0, 0, 70, 0}, {2, 0, 0, 70, 70}, {5, 1, 0, 66, 64}}}},
        {"window",
         {.h = {.n_cache = 2, .n_seq = 2},
          .cache = {KEYS, WINDOW},
          .seq = {{0, 0, 0, 129, 0}, {1, 0, 0, 130, 128}}}},
        {"state",
         {.h = {.n_cache = 3, .n_seq = 2, .whole = true},
          .cache = {KEYS, STATE, STATE},
          .seq = {{0, 0, 0, 70, 0}, {1, 0, 0, 66, 64}}}},
    };
    const char *dir = getenv("PLAIT_WRITE_STATES");
    struct stream s;

    stream_init(&s);
    for (size_t i = 0; i < sizeof corpus / sizeof corpus[0]; i++) {
        struct made m = corpus[i].m;
        char path[600];
        size_t n = 0;
        void *file;

        m.h.n_rank = 2;
        m.h.cache = m.cache;
        m.h.seq = m.seq;
        snprintf(m.h.name, sizeof m.h.name, "%s", corpus[i].file);
        for (int q = 0; q < m.h.n_seq; q++)
            m.seq[q].like = m.seq[q].n_like ? m.seq[q].like : q;
        write_made(&m, &s);
        assert_int_equal(read_all(&s, &m, NULL), PL_OK);
        snprintf(path, sizeof path, "%.500s/%s",
                 dir ? dir : "fuzz/corpus/state", corpus[i].file);
        if (dir) {
            FILE *f = fopen(path, "wb");

            assert_non_null(f);
            assert_int_equal(fwrite(s.data, 1, s.n, f), s.n);
            assert_int_equal(fclose(f), 0);
            continue;
        }
        assert_non_null(test_file(path));
        file = test_read(test_file(path), &n);
        if (n != s.n || memcmp(file, s.data, n) != 0)
            fail_msg("%s is another state", path);
        free(file);
    }
    free(s.data);
}
