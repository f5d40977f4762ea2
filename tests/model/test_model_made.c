/* Models made from a description (lib/made_model.h), which replace reference
 * models that a checkout does not have. Their logits in double are those stored
 * when the equations agreed with another engine's, so a fresh clone finds an
 * error in any family's graph.
 *
 *   PLAIT_WRITE_MADE=FOLDER build/plait-test test_model_made
 *
 * writes descriptions of all reference models at hand that tests/refs neither
 * has itself nor describes. Run test_model_logits first: the equations must be
 * right. */
#include "lib/made_model.h"
#include "lib/model64.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SMALL = 1 << 20 }; /* most values of a model that the short tier tries */

static void write_all(const char *folder)
{
    for (const char *const *name = ref_models(true); *name; name++) {
        char own[128], made[128];

        snprintf(own, sizeof own, "tests/refs/%s.gguf", *name);
        snprintf(made, sizeof made, "tests/refs/made/%s.json", *name);
        if (strncmp(*name, "made/", 5) != 0 && !test_file(own) &&
            !test_file(made))
            made_model_describe(*name, folder);
    }
}

static void keeps(const char *name)
{
    struct ref_seq seq[REF_SEQS];
    struct model64 r;
    char made[80];
    double *x;

    snprintf(made, sizeof made, "made/%s", name);
    ref_sequences(made, seq);
    model64_open(&r, ref_model_path(made));
    x = test_need((size_t)(REF_MAX_TOK * r.m->n_vocab), sizeof *x);
    for (int s = 0; s < REF_SEQS; s++) {
        model64_sequence(&r, &seq[s], x);
        made_model_keeps(name, s, x, seq[s].n * r.m->n_vocab);
    }
    free(x);
    model64_close(&r);
}

/* If PLAIT_WRITE_MADE names a folder, writes descriptions there instead of
 * checking the models. */
TEST(made_models_keep_their_logits)
{
    const char *folder = getenv("PLAIT_WRITE_MADE");
    const struct made_name *made;
    int n, n_run = 0;

    if (folder && folder[0]) {
        write_all(folder);
        return;
    }
    made = made_model_names(&n);
    assert_true(n > 0);
    for (int i = 0; i < n; i++)
        if (test_long() || made[i].n_value <= SMALL) {
            keeps(made[i].name);
            n_run++;
        }
    print_message("%d of %d made models\n", n_run, n);
}

static bool same_key(const struct gguf_kv *a, const struct gguf_kv *b)
{
    if (!b || a->type != b->type || a->elem != b->elem || a->count != b->count)
        return false;
    for (uint64_t i = 0; i < a->count; i++) {
        struct gguf_str s, t;
        double x, y;

        if (gguf_as_str(a, i, &s)) {
            if (!gguf_as_str(b, i, &t) || s.len != t.len ||
                memcmp(s.s, t.s, s.len) != 0)
                return false;
        } else if (a->elem == GGUF_BOOL) {
            bool p = gguf_as_bool(a, i, &p) && p,
                 q = gguf_as_bool(b, i, &q) && q;

            if (p != q)
                return false;
        } else if (!gguf_as_f64(a, i, &x) || !gguf_as_f64(b, i, &y) || x != y) {
            return false;
        }
    }
    return true;
}

/* Compares all keys of a file and all tensors except their values. */
static void same_file(const char *name, const struct gguf *a,
                      const struct gguf *b)
{
    assert_int_equal(gguf_n_kv(a), gguf_n_kv(b));
    for (int64_t i = 0; i < gguf_n_kv(a); i++) {
        const struct gguf_kv *kv = gguf_kv_at(a, i);

        if (!same_key(kv, gguf_find(b, kv->key)))
            fail_msg("%s: key %s is another one when made", name, kv->key);
    }
    assert_int_equal(gguf_n_tensor(a), gguf_n_tensor(b));
    for (int64_t i = 0; i < gguf_n_tensor(a); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(a, i);
        const struct gguf_tensor *u = gguf_find_tensor(b, t->name);

        if (!u || u->format != t->format || u->n_dim != t->n_dim ||
            memcmp(u->dim, t->dim, (size_t)t->n_dim * sizeof t->dim[0]) != 0)
            fail_msg("%s: tensor %s is another one when made", name, t->name);
    }
}

/* For reference models that are at hand, as those of tests/refs always are. */
TEST(made_models_have_the_form_of_their_reference_models)
{
    int n, n_file = 0;

    made_model_names(&n);
    for (const char *const *name = ref_models(true); *name; name++) {
        char file[80];
        struct gguf *a, *b;
        pl_err err;

        snprintf(file, sizeof file, "%.64s.gguf", *name);
        if (!strncmp(*name, "made/", 5) || !made_model_file(file))
            continue;
        TEST_OK(gguf_open(&a, ref_model_path(*name), &err), err);
        TEST_OK(gguf_open(&b, made_model_file(file), &err), err);
        same_file(*name, a, b);
        gguf_close(b);
        gguf_close(a);
        n_file++;
    }
    print_message("%d of %d reference models are at hand\n", n_file, n);
}

TEST(made_models_are_the_same_each_time)
{
    const struct made_name *made;
    size_t n_a, n_b;
    int n;

    made = made_model_names(&n);
    for (int i = 0; i < n; i++) {
        char file[80], *a, *b;

        if (!made[i].smallest)
            continue;
        snprintf(file, sizeof file, "%s.gguf", made[i].name);
        a = test_read(made_model_file(file), &n_a);
        made_model_write(test_file("tests/refs/made"), made[i].name,
                         test_temp("again.gguf"));
        b = test_read(test_temp("again.gguf"), &n_b);
        assert_int_equal(n_a, n_b);
        assert_memory_equal(a, b, n_a);
        free(a);
        free(b);
    }
}
