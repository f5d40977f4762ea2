/* Weights that turn logits into NaN or infinity. A caller that requests such
 * logits gets an error that names the token, and no state changes. Once the
 * weights are sound the bits are as before. */
#include "lib/engine_run.h"
#include "pl_graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const model = "models/fable-moe-Q8_0.gguf";

enum { N = 70, N_SEQ = 2 }; /* N tokens are more than one step takes */

/* Tokens of two sequences in turns; the logits of the last of each are
 * wanted. */
struct turns {
    int32_t token[N], seq[N];
    uint8_t wanted[N];
    pl_batch b;
};

static void turns_init(struct turns *t, const struct engine_run *r, float *out)
{
    uint64_t random = test_seed();

    engine_run_tokens(r, &random, N, t->token);
    memset(t->wanted, 0, sizeof t->wanted);
    for (int i = 0; i < N; i++)
        t->seq[i] = i % N_SEQ;
    t->wanted[N - 2] = t->wanted[N - 1] = 1;
    t->b = (pl_batch){.size = sizeof(pl_batch),
                      .n = N,
                      .token = t->token,
                      .seq = t->seq,
                      .wanted = t->wanted,
                      .logits = out};
}

static void empty(const struct engine_run *r)
{
    for (int s = 0; s < N_SEQ; s++)
        assert_int_equal(pl_seq_trim(r->engine, s, 0, NULL, NULL), PL_OK);
}

/* Sets the first value of a norm before the output. */
static void set_weight(const struct engine_run *r, float v)
{
    pl_tensor t = pl_engine_tensor(r->engine, "output_norm.weight");

    assert_true(t >= 0);
    assert_int_equal(
        pl_tensor_set(pl_engine_exec(r->engine), t, &v, 0, sizeof v, NULL),
        PL_OK);
}

TEST(damage_to_logits_is_told_and_changes_nothing)
{
    static const char *const devices[] = {"cpu", "cpu*2", "sim*2"};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const char *const words[] = {"token 68 of the batch",
                                        "sequence 0, position 34", "logit 0 is",
                                        "weights are damaged"};

    for (int d = 0; d < 3; d++) {
        pl_options o = engine_run_options();
        struct engine_run r;
        struct turns t;
        float *want, *got, v;
        size_t bytes;
        pl_tensor w;

        o.devices = devices[d];
        o.split_mode = d == 1 ? PL_SPLIT_LAYER : PL_SPLIT_TENSOR;
        engine_run_open(&r, test_file(model), model, &o);
        bytes = 2 * (size_t)r.n_vocab * sizeof *want;
        want = test_need(bytes, 1);
        got = test_need(bytes, 1);
        turns_init(&t, &r, want);
        w = pl_engine_tensor(r.engine, "output_norm.weight");
        assert_int_equal(
            pl_tensor_get(pl_engine_exec(r.engine), w, &v, 0, sizeof v, NULL),
            PL_OK);
        assert_int_equal(pl_engine_decode(r.engine, &t.b, NULL, NULL), PL_OK);
        empty(&r);
        t.b.logits = got;
        for (int i = 0; i < 3; i++) {
            pl_err err;

            set_weight(&r, bad[i]);
            assert_int_equal(pl_engine_decode(r.engine, &t.b, NULL, &err),
                             PL_BAD_FILE);
            for (int k = 0; k < 4; k++)
                if (!strstr(err.message, words[k]))
                    fail_msg("no \"%s\": %s", words[k], err.message);
            assert_int_equal(pl_seq_length(r.engine, 0), 0);
            assert_int_equal(pl_seq_length(r.engine, 1), 0);
            /* a caller that requests no logits gets no error */
            memset(t.wanted, 0, sizeof t.wanted);
            TEST_OK(pl_engine_decode(r.engine, &t.b, NULL, &err), err);
            t.wanted[N - 2] = t.wanted[N - 1] = 1;
            assert_int_equal(pl_seq_length(r.engine, 1), N / 2);
            empty(&r);
        }
        set_weight(&r, v);
        assert_int_equal(pl_engine_decode(r.engine, &t.b, NULL, NULL), PL_OK);
        assert_memory_equal(want, got, bytes);
        free(want);
        free(got);
        engine_run_close(&r);
    }
}
