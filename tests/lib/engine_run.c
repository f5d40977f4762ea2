/* Opens engines for tests; engine_run.h describes the functions. The checks are
 * in the tests. */
#include "lib/engine_run.h"

#include <stdlib.h>
#include <string.h>

pl_options engine_run_options(void)
{
    return (pl_options){.size = sizeof(pl_options),
                        .devices = "cpu",
                        .split_mode = PL_SPLIT_TENSOR,
                        .n_threads = 1,
                        .no_pin = true,
                        .n_ctx = 256,
                        .n_ubatch = 64,
                        .n_seq = 4};
}

void engine_run_open(struct engine_run *r, const char *path, const char *name,
                     const pl_options *o)
{
    pl_err err = {0};

    memset(r, 0, sizeof *r);
    if (!path)
        fail_msg("%s is not at hand", name);
    if (pl_model_open(&r->model, path, &err) != PL_OK ||
        pl_engine_create(&r->engine, r->model, o, &err) != PL_OK)
        fail_msg("%s: %s", name, err.message);
    r->n_vocab = pl_model_n_vocab(r->model);
}

void engine_run_close(struct engine_run *r)
{
    pl_engine_free(r->engine);
    pl_model_free(r->model);
    memset(r, 0, sizeof *r);
}

void engine_run_decode(const struct engine_run *r, int seq, int64_t n,
                       const int32_t *token, float *out)
{
    int32_t *seqs = malloc((size_t)n * sizeof *seqs);
    uint8_t *wanted = calloc((size_t)n, 1);
    pl_batch b = {
        .size = sizeof b, .n = n, .token = token, .seq = seqs, .logits = out};
    pl_err err = {0};
    pl_status s;

    assert_true(seqs && wanted);
    for (int64_t i = 0; i < n; i++)
        seqs[i] = seq;
    if (!out)
        b.wanted = wanted;
    s = pl_engine_decode(r->engine, &b, NULL, &err);
    free(seqs);
    free(wanted);
    if (s != PL_OK)
        fail_msg("%s", err.message);
}

void engine_run_tokens(const struct engine_run *r, uint64_t *random, int64_t n,
                       int32_t *token)
{
    for (int64_t i = 0; i < n; i++)
        token[i] = (int32_t)test_below(random, r->n_vocab);
}
