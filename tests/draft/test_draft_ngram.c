/* Sources of drafts: they propose what followed equal tokens earlier, as a
 * search of the whole text would, and read and write llama.cpp's lookup
 * files. */
#include "lib/alloc_fail.h"
#include "lib/support.h"
#include "pl_draft.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static pl_drafter *create(pl_draft_options *o, uint32_t sources)
{
    pl_drafter *d;
    pl_err err;

    o->limits.sources = sources;
    TEST_OK(pl_drafter_create(&d, o, &err), err);
    return d;
}

static int propose(pl_drafter *d, const int32_t *text, int64_t n, int32_t *out)
{
    pl_draft q = {.text = text, .n_text = n, .n_most = 63, .token = out};
    pl_err err;

    TEST_OK(pl_draft_propose(d, &q, 1, 1, 63, &err), err);
    return q.n;
}

/* Returns the latest end below n of an n-gram equal to the last one, or -1. */
static int64_t search(const int32_t *text, int64_t n, int size)
{
    for (int64_t end = n - 1; end >= size && n >= size; end--)
        if (memcmp(text + end - size, text + n - size,
                   (size_t)size * sizeof *text) == 0)
            return end;
    return -1;
}

TEST(draft_simple_is_what_followed_the_latest_occurrence)
{
    enum { N = 1500 };
    uint64_t seed = test_seed();
    int32_t text[N], out[PL_DRAFT_MAX];
    int n_found = 0;

    for (int size = 1; size < 5; size++) {
        pl_draft_options o;
        pl_drafter *d;

        pl_draft_init(&o);
        o.limits.n_max = 6;
        o.simple_n = size;
        d = create(&o, 1 << PL_DRAFT_NGRAM_SIMPLE);
        for (int64_t n = 0; n < N; n++) {
            int64_t end = search(text, n, size);
            int got = propose(d, text, n, out);

            assert_int_equal(got, end >= 0 ? 6 : 0);
            for (int i = 0; i < got; i++)
                assert_int_equal(out[i], end + i < n ? text[end + i]
                                                     : out[end + i - n]);
            n_found += got > 0;
            text[n] = (int32_t)test_below(&seed, 7);
            if (n % 500 == 499) /* the number serves another text */
                pl_draft_forget(d, 0);
        }
        pl_drafter_free(d);
    }
    assert_true(n_found > N);
}

TEST(draft_map_is_what_followed_most_occurrences)
{
    /* 1 2 was followed by 3 4 twice, and last by 5 6 */
    static const int32_t text[] = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 5, 6, 1, 2};
    int32_t out[PL_DRAFT_MAX];
    pl_draft_options o;
    pl_drafter *d;

    pl_draft_init(&o);
    o.limits.n_max = 2;
    o.map_n = 2;
    o.map_hits = 3;
    d = create(&o, 1 << PL_DRAFT_NGRAM_MAP_K);
    assert_int_equal(propose(d, text, 10, out), 0); /* two hits */
    assert_int_equal(propose(d, text, 14, out), 2);
    assert_int_equal(out[0], 3);
    assert_int_equal(out[1], 4);
    pl_drafter_free(d);
    o.limits.p_min = 0.7f; /* two of three are fewer */
    d = create(&o, 1 << PL_DRAFT_NGRAM_MAP_K);
    assert_int_equal(propose(d, text, 14, out), 0);
    pl_drafter_free(d);
    o.limits.p_min = 0.6f;
    o.limits.n_min = 3;
    d = create(&o, 1 << PL_DRAFT_NGRAM_MAP_K);
    assert_int_equal(propose(d, text, 14, out), 0);
    pl_drafter_free(d);
}

TEST(draft_tokens_outside_the_vocabulary_are_not_drafted)
{
    static const int32_t text[] = {1, 2, 3, 99, 1, 2};
    int32_t out[PL_DRAFT_MAX];
    pl_draft_options o;
    pl_drafter *d;

    pl_draft_init(&o);
    o.limits.n_max = 9;
    o.simple_n = 2;
    o.n_vocab = 99;
    d = create(&o, 1 << PL_DRAFT_NGRAM_SIMPLE);
    assert_int_equal(propose(d, text, 6, out), 1);
    assert_int_equal(out[0], 3);
    pl_drafter_free(d);
}

/* An n-gram, a number of followers, and pairs of a token and its count. */
static const int32_t lookup[] = {7,  8, -1, -1, 2, 9, 5, 4, 1, 8, -1, -1,
                                 -1, 1, 9,  12, 9, 8, 7, 6, 1, 3, 1};

TEST(draft_lookup_files_are_llama_cpps)
{
    int32_t text[] = {5, 7, 8}, out[PL_DRAFT_MAX], turned[64];
    struct test_text written = {0};
    pl_draft_options o;
    pl_drafter *d;
    pl_err err;

    pl_draft_init(&o);
    o.limits.n_max = 1;
    o.learn = true;
    d = create(&o, 1 << PL_DRAFT_NGRAM_CACHE);
    assert_int_equal(propose(d, text, 3, out), 0);
    TEST_OK(pl_draft_load(d, false, lookup, sizeof lookup, "a.bin", &err), err);
    assert_int_equal(propose(d, text, 3, out), 1);
    assert_int_equal(out[0], 9);
    pl_draft_save(d, test_text_add, &written);
    assert_int_equal(written.n, sizeof lookup);
    /* the followers of an n-gram have no order */
    memcpy(turned, written.s, written.n);
    assert_memory_equal(turned, lookup, 5 * sizeof *lookup);
    assert_int_equal(turned[5] + turned[7], 13);
    free(written.s);
    written = (struct test_text){0};
    pl_draft_forget(d, 0); /* adds 5 7 8 */
    pl_draft_save(d, test_text_add, &written);
    assert_true(written.n > sizeof lookup);
    free(written.s);
    pl_drafter_free(d);
    d = create(&o, 1 << PL_DRAFT_NGRAM_CACHE);
    TEST_OK(pl_draft_load(d, true, lookup, sizeof lookup, "a.bin", &err), err);
    assert_int_equal(propose(d, text, 3, out), 1);
    assert_int_equal(out[0], 9);
    written = (struct test_text){0};
    pl_draft_save(d, test_text_add, &written);
    assert_int_equal(written.n, 0); /* fixed ones are not written */
    pl_drafter_free(d);
}

TEST(draft_damaged_lookup_files_are_rejected_by_name)
{
    static const int at[] = {0, 3, 4, 5, 6, 11};
    static const int32_t wrong[] = {-1, 5, 3000, -4, 0, 7};
    pl_draft_options o;
    pl_drafter *d;
    pl_err err;

    pl_draft_init(&o);
    d = create(&o, 1 << PL_DRAFT_NGRAM_CACHE);
    for (size_t n = 1; n < sizeof lookup; n++) {
        pl_status s = pl_draft_load(d, true, lookup, n, "a.bin", &err);
        bool whole = n == 9 * 4 || n == 16 * 4;

        assert_int_equal(s, whole ? PL_OK : PL_BAD_FILE);
        assert_true(whole || strstr(err.message, "a.bin: offset "));
    }
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        int32_t bad[sizeof lookup / sizeof *lookup];

        memcpy(bad, lookup, sizeof lookup);
        bad[at[i]] = wrong[i];
        if (pl_draft_load(d, true, bad, sizeof bad, "a.bin", &err) !=
            PL_BAD_FILE)
            fail_msg("number %d may be %d", at[i], wrong[i]);
    }
    pl_drafter_free(d);
}

TEST(draft_options_out_of_range_are_rejected_by_name)
{
    pl_draft_options o;
    pl_draft q = {.seq = 1};
    pl_drafter *d;
    pl_err err;

    pl_draft_init(&o);
    o.map_hits = 0;
    assert_int_equal(pl_drafter_create(&d, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "map_hits is 0; give 1 to 1024"));
    assert_null(d);
    pl_draft_init(&o);
    o.limits.sources = 1 << PL_DRAFT_CALLER;
    assert_int_equal(pl_drafter_create(&d, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "set propose"));
    o.limits.sources = 0;
    o.limits.p_min = NAN;
    assert_int_equal(pl_drafter_create(&d, &o, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "p_min"));
    o.limits.p_min = 0;
    o.limits.sources = 1 << PL_DRAFT_N_SOURCE;
    assert_int_equal(pl_drafter_create(&d, &o, &err), PL_BAD_ARGUMENT);
    assert_int_equal(pl_drafter_create(&d, NULL, &err), PL_BAD_ARGUMENT);
    assert_int_equal(pl_drafter_create(NULL, &o, &err), PL_BAD_ARGUMENT);
    pl_draft_init(&o);
    TEST_OK(pl_drafter_create(&d, &o, &err), err);
    assert_int_equal(pl_draft_propose(d, &q, 1, 1, 1, &err), PL_BAD_ARGUMENT);
    assert_int_equal(pl_draft_load(d, true, NULL, 1, "a", &err),
                     PL_BAD_ARGUMENT);
    pl_draft_record(d, 1, 1);
    pl_draft_record(NULL, 0, 1);
    pl_draft_measure(NULL, 1);
    pl_draft_forget(d, -1);
    pl_draft_save(NULL, test_text_add, NULL);
    pl_drafter_free(d);
    pl_drafter_free(NULL);
    assert_string_equal(pl_draft_source_name(PL_DRAFT_NGRAM_MAP_K),
                        "ngram-map-k");
    assert_string_equal(pl_draft_source_name(-1), "");
    assert_int_equal(pl_draft_source_find("ngram", 5), -1);
}

/* Wrong numbers and missing arrays of a call change nothing. */
TEST(draft_calls_out_of_range_are_rejected_by_name)
{
    int32_t text[] = {1, 2, 1, 2}, token[PL_DRAFT_MAX];
    const pl_draft right = {
        .text = text, .n_text = 4, .n_most = 5, .token = token};
    pl_draft_options o;
    pl_draft_counters c;
    pl_drafter *d;
    pl_draft q;
    pl_err err;

    pl_draft_init(&o);
    o.limits.sources = 1 << PL_DRAFT_NGRAM_SIMPLE;
    o.limits.n_max = 5;
    o.simple_n = 1;
    TEST_OK(pl_drafter_create(&d, &o, &err), err);
    q = right;
    q.text = NULL;
    assert_int_equal(pl_draft_propose(d, &q, 1, 1, 5, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "text is NULL"));
    q = right;
    q.token = NULL;
    assert_int_equal(pl_draft_propose(d, &q, 1, 1, 5, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "token is NULL"));
    q = right;
    q.n_text = -1;
    assert_int_equal(pl_draft_propose(d, &q, 1, 1, 5, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "n_text is -1"));
    q = right;
    assert_int_equal(pl_draft_propose(d, &q, 1, -1, 5, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "rows is -1"));
    for (int n_accepted = -7; n_accepted < 1000; n_accepted += 1006) {
        TEST_OK(pl_draft_propose(d, &q, 1, 1, 5, &err), err);
        assert_int_equal(q.n, 5);
        pl_draft_record(d, 0, n_accepted);
        pl_draft_measure(d, INT64_MAX);
    }
    pl_draft_read_counters(d, -1, &c, sizeof c);
    assert_int_equal(c.n_draft, 2);
    assert_int_equal(c.n_token, 10);
    assert_int_equal(c.n_accepted, 5);
    pl_drafter_free(d);
}

/* Only the latest occurrences of an n-gram are looked at. */
TEST(draft_of_an_n_gram_that_must_have_occurred_often_is_found)
{
    int32_t text[100] = {0}, token[PL_DRAFT_MAX];
    pl_draft q = {.text = text, .n_text = 100, .n_most = 5, .token = token};
    pl_draft_options o;
    pl_drafter *d;
    pl_err err;

    for (int source = 0; source <= PL_DRAFT_NGRAM_MAP_K; source++) {
        pl_draft_init(&o);
        o.limits.sources = 1u << source;
        o.limits.n_max = 5;
        o.simple_n = o.map_n = 1;
        o.simple_hits = o.map_hits = 50;
        TEST_OK(pl_drafter_create(&d, &o, &err), err);
        TEST_OK(pl_draft_propose(d, &q, 1, 1, 5, &err), err);
        assert_int_equal(q.n, 5);
        pl_drafter_free(d);
    }
}

/* Text that is drafted without a fixed length: right drafts grow, wrong ones
 * end. */
TEST(draft_lengths_follow_success)
{
    int32_t text[4000], out[PL_DRAFT_MAX];
    pl_draft_options o;
    pl_draft_counters c;
    pl_drafter *d;
    int n = 0;

    for (int i = 0; i < 4000; i++)
        text[i] = i % 10;
    pl_draft_init(&o);
    o.simple_n = 3;
    d = create(&o, 1 << PL_DRAFT_NGRAM_SIMPLE);
    for (int i = 0; i < 40; i++) {
        n = propose(d, text, 40 + i, out);
        pl_draft_record(d, 0, n);
        pl_draft_measure(d, 1000000 + 20000 * n);
    }
    assert_true(n > 20);
    pl_draft_read_counters(d, PL_DRAFT_NGRAM_SIMPLE, &c, sizeof c);
    assert_int_equal(c.n_token, c.n_accepted);
    assert_int_equal(c.n_draft, c.accepted_at[0]);
    for (int i = 0; i < 400; i++) {
        n = propose(d, text, 400 + i, out);
        pl_draft_record(d, 0, 0);
        pl_draft_measure(d, 1000000 + 20000 * n);
    }
    pl_draft_read_counters(d, -1, &c, sizeof c);
    /* its last proposals were dropped, and few others were not */
    assert_true(c.n_draft < 100);
    assert_true(c.n_accepted < c.n_token);
    pl_drafter_free(d);
}

/* Creates a drafter that uses all sources and a lookup file, and lets it
 * propose. */
static pl_status use_all(pl_drafter **d, const int32_t *text, int n,
                         pl_err *err)
{
    int32_t out[PL_DRAFT_MAX];
    pl_draft q = {.text = text, .n_text = n, .n_most = 63, .token = out};
    pl_draft_options o;
    pl_status s;

    pl_draft_init(&o);
    o.limits.sources = (1 << PL_DRAFT_CALLER) - 1;
    o.simple_n = 20; /* does not occur, so the others are used as well */
    s = pl_drafter_create(d, &o, err);
    if (s == PL_OK)
        s = pl_draft_load(*d, true, lookup, sizeof lookup, "a.bin", err);
    if (s == PL_OK)
        s = pl_draft_propose(*d, &q, 1, 1, 63, err);
    assert_true(s == PL_OK || q.n == 0);
    return s;
}

TEST(draft_survives_each_failed_allocation)
{
    int32_t text[40];

    for (int i = 0; i < 40; i++)
        text[i] = i * i % 37;
    for (int64_t n = 0; alloc_each(&n);) {
        pl_drafter *d;
        pl_err err;

        alloc_ran(use_all(&d, text, 40, &err));
        pl_drafter_free(d);
    }
}
