/* Logits equal those of a second engine that knows nothing of GGUF: the Python
 * package `transformers`. tests/tools/transformers_models.py makes small models
 * of random weights, has it compute their logits, and writes them as files. */
#include "lib/engine_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { MAX_TOK = 64, MAX_RANKS = 3 };

/* greatest allowed difference of a logit; 2e-4 was the greatest that was
 * measured */
static const double limit = 1e-3;

/* Decodes one sequence, at once or token by token; its reference logits [n,
 * n_vocab] are next in `want`. Returns the largest difference. */
static double difference(const struct engine_run *r, int64_t n,
                         const int32_t *id, int64_t at_once, const float *want)
{
    float *got = test_need((size_t)(n * r->n_vocab), sizeof *got);
    double most = 0;
    pl_err err = {0};

    TEST_OK(pl_seq_trim(r->engine, 0, 0, NULL, &err), err);
    for (int64_t i = 0; i < n; i += at_once)
        engine_run_decode(r, 0, at_once, id + i, got + i * r->n_vocab);
    for (int64_t i = 0; i < n * r->n_vocab; i++) {
        double d = fabs((double)got[i] - (double)want[i]);

        if (!(d <= most)) /* true if d is NaN, too */
            most = d;
    }
    free(got);
    return most;
}

/* Compares the logits of all sequences of a model, computed with n_ranks ranks,
 * with those of `transformers`. */
static void check_model(const char *folder, const char *name, int n_ranks)
{
    char path[4200], what[200];
    pl_options o = engine_run_options();
    struct engine_run r;
    int32_t id[MAX_TOK];
    int64_t row = 0;
    size_t n_bytes;
    float *want;
    double most = 0;
    FILE *f;
    int n;

    o.cpu = "reference";
    o.n_ranks = n_ranks;
    o.no_fit = true;
    o.cache_set = true;
    o.cache_k = o.cache_v = PL_F32;
    snprintf(what, sizeof what, "%s, %d ranks", name, n_ranks);
    snprintf(path, sizeof path, "%s/%s.gguf", folder, name);
    engine_run_open(&r, path, what, &o);
    snprintf(path, sizeof path, "%s/%s.logits.bin", folder, name);
    want = test_read(path, &n_bytes);
    snprintf(path, sizeof path, "%s/%s.tokens.txt", folder, name);
    f = fopen(path, "r");
    assert_non_null(f);
    while (fscanf(f, "%d", &n) == 1) {
        assert_in_range(n, 1, MAX_TOK);
        for (int i = 0; i < n; i++)
            assert_int_equal(fscanf(f, "%d", &id[i]), 1);
        for (int k = 0; k < 2; k++) {
            double d = difference(&r, n, id, k ? 1 : n, want + row * r.n_vocab);

            if (!(d <= limit))
                fail_msg("%s, %d tokens %s: off by %.3g", what, n,
                         k ? "one by one" : "at once", d);
            most = fmax(most, d);
        }
        row += n;
    }
    fclose(f);
    assert_int_equal((size_t)(row * r.n_vocab) * sizeof *want, n_bytes);
    printf("%s: %.2g\n", what, most);
    free(want);
    engine_run_close(&r);
}

TEST(engine_agrees_with_transformers)
{
    const char *script = test_file("tests/tools/transformers_models.py");
    const char *folder = test_temp("transformers");
    char command[9000], name[64];
    int status, n_model = 0;
    FILE *f;

    assert_non_null(script);
    snprintf(command, sizeof command, "python3 '%s' '%s' %llu", script, folder,
             (unsigned long long)test_seed());
    status = system(command);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        TEST_SKIP("Python lacks torch, transformers (5), gguf or numpy");
    assert_int_equal(WEXITSTATUS(status), 0);
    snprintf(command, sizeof command, "%s/models.txt", folder);
    f = fopen(command, "r");
    assert_non_null(f);
    for (; fscanf(f, "%63s", name) == 1; n_model++)
        for (int n_ranks = 1; n_ranks <= MAX_RANKS; n_ranks++)
            check_model(folder, name, n_ranks);
    fclose(f);
    print_message("%d models\n", n_model);
}
