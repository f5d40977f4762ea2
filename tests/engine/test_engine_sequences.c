/* Sequences of an engine are independent of each other and of their past.
 * Whatever was decoded with them, trimmed or copied, their logits have the bits
 * of the same tokens decoded alone into an empty sequence. */
#include "lib/engine_run.h"

#include "device/device_inner.h"
#include "engine/engine.h"

#include <stdlib.h>
#include <string.h>

/* ALONE is the sequence in which tokens are decoded alone */
enum { ALONE = 3, MAX_TOKEN = 200 };

static const char *const model = "qwen2-bias-f32.gguf";
static const struct machine {
    const char *spec;
    pl_split_mode mode;
} devices[] = {
    {"cpu", PL_SPLIT_TENSOR},
    {"cpu*2", PL_SPLIT_TENSOR},
    {"sim*3", PL_SPLIT_TENSOR},
    {"sim*2", PL_SPLIT_LAYER}, /* this engine has a pipeline of micro-batches */
};
enum { N_DEVICES = sizeof devices / sizeof devices[0] };

struct run {
    struct engine_run e;
    uint64_t seed;
    int32_t token[MAX_TOKEN];
    /* [MAX_TOKEN, n_vocab] computed and expected logits, owned */
    float *got, *want;
    struct device *lost; /* the device to lose after a step of a batch, or
                          * NULL */
};

static void run_open_traced(struct run *r, const struct machine *m,
                            pl_write_fn *trace)
{
    pl_options o = engine_run_options();

    o.devices = m->spec;
    o.split_mode = m->mode;
    o.n_ctx = 1024;
    o.n_ubatch = 24;
    o.trace = trace;
    o.trace_user = r;
    memset(r, 0, sizeof *r);
    r->seed = test_seed();
    engine_run_open(&r->e, test_ref(model), model, &o);
    r->got = calloc((size_t)(MAX_TOKEN * r->e.n_vocab), sizeof(float));
    r->want = calloc((size_t)(MAX_TOKEN * r->e.n_vocab), sizeof(float));
    assert_true(r->got && r->want);
}

static void run_open(struct run *r, const struct machine *m)
{
    run_open_traced(r, m, NULL);
}

static void run_close(struct run *r)
{
    free(r->got);
    free(r->want);
    engine_run_close(&r->e);
}

static void trim(struct run *r, int seq, int64_t n)
{
    assert_int_equal(pl_seq_trim(r->e.engine, seq, n, NULL, NULL), PL_OK);
    assert_int_equal(pl_seq_length(r->e.engine, seq), n);
}

/* Sets r->want to the logits of token[0 .. n-1], decoded alone. */
static void alone(struct run *r, const int32_t *token, int64_t n)
{
    trim(r, ALONE, 0);
    engine_run_decode(&r->e, ALONE, n, token, r->want);
}

/* Checks that rows [first, n) of `want` are rows [0, n - first) of `got`. */
static void same(const struct run *r, int64_t first, int64_t n)
{
    size_t row = (size_t)r->e.n_vocab;

    assert_memory_equal(r->want + (size_t)first * row, r->got,
                        (size_t)(n - first) * row * sizeof(float));
}

/* Tokens of several sequences mixed, some of them wanted: row by row. */
TEST(engine_rows_keep_the_order_of_the_batch)
{
    enum { N_SEQ = 3, N = 90 };

    for (int d = 0; d < N_DEVICES; d++) {
        int32_t seq[N], own[N_SEQ][N];
        uint8_t wanted[N];
        int64_t n[N_SEQ] = {0}, at[N], row = 0;
        struct run r;
        size_t bytes;
        pl_batch b = {.size = sizeof b, .n = N, .seq = seq, .wanted = wanted};

        run_open(&r, &devices[d]);
        bytes = (size_t)r.e.n_vocab * sizeof(float);
        engine_run_tokens(&r.e, &r.seed, N, r.token);
        for (int i = 0; i < N; i++) {
            seq[i] = (int32_t)test_below(&r.seed, N_SEQ);
            wanted[i] = test_below(&r.seed, 3) > 0;
            at[i] = n[seq[i]];
            own[seq[i]][n[seq[i]]++] = r.token[i];
        }
        b.token = r.token;
        b.logits = r.got;
        assert_int_equal(pl_engine_decode(r.e.engine, &b, NULL, NULL), PL_OK);
        for (int s = 0; s < N_SEQ; s++, row = 0) {
            alone(&r, own[s], n[s]);
            for (int i = 0; i < N; i++) {
                if (wanted[i] && seq[i] == s)
                    assert_memory_equal(r.got + row * r.e.n_vocab,
                                        r.want + at[i] * r.e.n_vocab, bytes);
                row += wanted[i];
            }
        }
        run_close(&r);
    }
}

TEST(engine_goes_on_where_a_sequence_was_cut)
{
    static const int64_t keep[] = {150, 128, 127, 65, 64, 63, 1, 0};
    enum { MORE = 20 };

    for (int d = 0; d < N_DEVICES; d++) {
        struct run r;

        run_open(&r, &devices[d]);
        engine_run_tokens(&r.e, &r.seed, MAX_TOKEN, r.token);
        /* so that sequence 0 does not begin in the first page */
        engine_run_decode(&r.e, 1, 3, r.token, NULL);
        engine_run_decode(&r.e, 0, 170, r.token, NULL);
        for (size_t k = 0; k < sizeof keep / sizeof keep[0]; k++) {
            trim(&r, 0, keep[k]);
            engine_run_tokens(&r.e, &r.seed, MORE, r.token + keep[k]);
            engine_run_decode(&r.e, 0, MORE, r.token + keep[k], r.got);
            alone(&r, r.token, keep[k] + MORE);
            same(&r, keep[k], keep[k] + MORE);
        }
        run_close(&r);
    }
}

/* A copy shares pages. Either may be written afterwards, at the end or, after a
 * trim, in the middle, without changing the other. */
TEST(engine_copies_go_their_own_ways)
{
    static const int64_t keep[] = {150, 100, 64, 30};
    enum { FIRST = 150, MORE = 30 };

    for (int d = 0; d < N_DEVICES; d++)
        for (size_t k = 0; k < 2 * sizeof keep / sizeof keep[0]; k++) {
            int64_t kept = keep[k / 2];
            /* which of the two sequences is trimmed: the source (0) or the copy
             * (1) */
            int cut = k % 2;
            int32_t other[MAX_TOKEN];
            struct run r;

            run_open(&r, &devices[d]);
            engine_run_tokens(&r.e, &r.seed, MAX_TOKEN, r.token);
            engine_run_decode(&r.e, 0, FIRST, r.token, NULL);
            assert_int_equal(pl_seq_copy(r.e.engine, 1, 0, NULL), PL_OK);
            assert_int_equal(pl_seq_length(r.e.engine, 1), FIRST);
            memcpy(other, r.token, sizeof other);
            engine_run_tokens(&r.e, &r.seed, MORE, other + kept);
            trim(&r, cut, kept);
            engine_run_decode(&r.e, cut, MORE, other + kept, r.got);
            alone(&r, other, kept + MORE);
            same(&r, kept, kept + MORE);
            engine_run_decode(&r.e, !cut, MORE, r.token + FIRST, r.got);
            alone(&r, r.token, FIRST + MORE);
            same(&r, FIRST, FIRST + MORE);
            run_close(&r);
        }
}

/* A device is lost in the middle of a step. Sequences have the length from
 * before the batch, and the same tokens can be decoded again. */
TEST(engine_forgets_a_run_that_failed)
{
    enum { FIRST = 70, MORE = 90 };

    for (int d = 0; d < N_DEVICES; d++)
        for (int k = 0; k < 4; k++) {
            const struct variant *c;
            struct device *lost;
            struct run r;
            pl_batch b = {.size = sizeof b, .n = MORE};

            run_open(&r, &devices[d]);
            /* any device but io, which may have no instructions */
            lost =
                &r.e.engine->exec->set->dev[k % (r.e.engine->exec->set->n - 1)];
            engine_run_tokens(&r.e, &r.seed, FIRST + MORE, r.token);
            engine_run_decode(&r.e, 0, FIRST, r.token, NULL);
            c = &lost->prog->variant[lost->prog->n_variant - 1];
            lost->fail_insn = c->n_insn * k / 4;
            while (c->insn[lost->fail_insn].micro > 0 ||
                   c->insn[lost->fail_insn].max_rows > 0)
                /* other instructions may be skipped by their predicate */
                lost->fail_insn--;
            b.token = r.token + FIRST;
            b.logits = r.got;
            assert_int_equal(pl_engine_decode(r.e.engine, &b, NULL, NULL),
                             PL_DEVICE);
            lost->fail_insn = -1;
            assert_int_equal(pl_seq_length(r.e.engine, 0), FIRST);
            engine_run_decode(&r.e, 0, MORE, b.token, r.got);
            alone(&r, r.token, FIRST + MORE);
            same(&r, FIRST, FIRST + MORE);
            run_close(&r);
        }
}

/* A pl_write_fn for the trace, which is called at the end of each step: loses a
 * device in the next step. */
static void lose_the_next(void *user, const char *text, size_t n)
{
    struct run *r = user;

    (void)text;
    (void)n;
    if (r->lost)
        r->lost->fail_insn = 0;
}

/* A device is lost after the first steps of a batch. Nothing of these remains
 * in any sequence, and shared pages are intact. */
TEST(engine_forgets_a_batch_that_failed)
{
    enum { FIRST = 70, MORE = 90 };

    /* without the last devices, whose pipeline takes all tokens in one step */
    for (int d = 0; d < N_DEVICES - 1; d++) {
        int32_t seq[MORE], token[MORE];
        struct run r;
        pl_batch b = {.size = sizeof b, .n = MORE, .token = token, .seq = seq};

        run_open_traced(&r, &devices[d], lose_the_next);
        engine_run_tokens(&r.e, &r.seed, FIRST + MORE, r.token);
        engine_run_decode(&r.e, 0, FIRST, r.token, NULL);
        assert_int_equal(pl_seq_copy(r.e.engine, 1, 0, NULL), PL_OK);
        for (int i = 0; i < MORE; i++) {
            seq[i] = i % 3;
            token[i] = r.token[FIRST + i];
        }
        b.logits = r.got;
        r.lost = &r.e.engine->exec->set->dev[0];
        assert_int_equal(pl_engine_decode(r.e.engine, &b, NULL, NULL),
                         PL_DEVICE);
        r.lost->fail_insn = -1;
        r.lost = NULL;
        assert_int_equal(pl_seq_length(r.e.engine, 0), FIRST);
        assert_int_equal(pl_seq_length(r.e.engine, 1), FIRST);
        assert_int_equal(pl_seq_length(r.e.engine, 2), 0);
        for (int s = 0; s < 2; s++) {
            engine_run_decode(&r.e, s, MORE, token, r.got);
            alone(&r, r.token, FIRST + MORE);
            same(&r, FIRST, FIRST + MORE);
        }
        run_close(&r);
    }
}
