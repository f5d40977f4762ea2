/* The whole engine against logits of an independent one, and against itself.
 *
 * Every reference model runs under many configurations: ranks, devices of every
 * backend, uneven shares, micro-batches, threads, and a second sequence in the
 * same batches. Reference kernels with an F32 cache must meet the float limits
 * (max 1e-3, rms 1e-4, greedy ids equal). The default kernels with an F16 cache
 * must meet the limits for rounded caches and 8-bit activations. All runs with
 * equal ranks and numerics must agree in every bit, whichever devices carry the
 * ranks. A model that is made here (lib/made_model.h) is compared with its
 * logits in double.
 *
 * The short tier covers all pairs of values of any two parameters, among them
 * the smallest model of each family with float weights and the smallest with
 * quantized ones. Each other model has a run with reference kernels and one
 * with the default ones. The long tier runs the full product of all models with
 * random company; reference kernels, which decode all weights for each token,
 * run on one sequence. It also has every model on GPUs of each driver, emulated
 * or behind fake libraries, one rank a device as on cpus. Section 3 of the
 * reference data's README has the limits and their measurement. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/fake_cuda_use.h"
#include "lib/pairs.h"
#include "lib/ref_models.h"
#include "pl.h"

enum { MAX_MODEL = 1024, MAX_TOK = REF_MAX_TOK };

/* Parameters of a run: the index of a value each. */
enum param {
    P_MODEL,
    P_KERNELS,
    P_RANKS,
    P_DEVICES,
    P_SHARES,
    P_UBATCH,
    P_THREADS,
    P_COMPANY,
    P_COUNT
};

/* numbers of ranks; 0 for one per device */
static const int rank_values[] = {0, 1, 2, 3, 4, 5, 8};
struct devices {
    const char *spec;
    int n;
};
static const struct devices device_values[] = {
    {"cpu", 1},     {"cpu*2", 2},  {"cpu*3", 3},       {"cpu*4", 4},
    {"sim", 1},     {"sim*2", 2},  {"sim*3", 3},       {"sim*4", 4},
    {"cpu,sim", 2}, {"proc*2", 2}, {"cpu,sim,proc", 3}};
/* device strings that the running case combines */
static const struct devices *devices = device_values;
/* uneven shares of the devices, one of which gets none */
static const double shares[] = {3, 1, 0, 2};
static const int ubatch_values[] = {1, 7, 512};

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

struct ref_model {
    const char *path, *name;
    struct ref_seq seq[REF_SEQS];
    int n_seq;
    int64_t n_row, n_vocab;
    float *logits; /* [n_row, n_vocab] reference logits, owned */
    /* experts: the name has "moe"; half: every weight is in F32, F16 or BF16 */
    bool experts, half;
    /* root mean square error that the other engine's 8-bit activations cause; 0
     * if it is unknown */
    double row_rms;
    int64_t n_bytes; /* size of the model's file */
    /* true if no model of the same family and kind of weights is smaller */
    bool first;
};

static struct ref_model models[MAX_MODEL];
/* n_first: number of models with `first`, which stand first in models[] */
static int n_model, n_first;

static void read_json(struct ref_model *m)
{
    char file[128];
    json_t *j, *types;
    json_t *rms;

    snprintf(file, sizeof file, "%s.json", m->name);
    j = json_load_file(test_ref_need(file), 0, NULL);
    assert_non_null(j);
    types = json_object_get(j, "tensor_types");
    m->half = true;
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *t = json_string_value(json_array_get(types, i));

        m->half &= !strcmp(t, "F32") || !strcmp(t, "F16") || !strcmp(t, "BF16");
    }
    rms = json_object_get(json_object_get(json_object_get(j, "measured"),
                                          "llama_cpp_on_stored_weights"),
                          "row_rms_median");
    m->row_rms = json_is_number(rms) ? json_number_value(rms) : 0;
    m->experts = json_is_number(json_object_get(j, "min_router_gap"));
    json_decref(j);
}

static void read_model(const char *name)
{
    struct ref_model *m = &models[n_model++];
    struct stat st;
    size_t n;

    assert_in_range(n_model, 1, MAX_MODEL);
    *m = (struct ref_model){
        .path = ref_model_path(name), .name = name, .n_seq = REF_SEQS};
    assert_int_equal(stat(m->path, &st), 0);
    m->n_bytes = st.st_size;
    m->n_row = ref_sequences(name, m->seq);
    m->logits = test_read(test_ref_logits(name), &n);
    m->n_vocab = (int64_t)(n / 4) / m->n_row;
    read_json(m);
}

static bool same_kind(const struct ref_model *a, const struct ref_model *b)
{
    const char *x = strchr(a->name, '/'), *y = strchr(b->name, '/');
    size_t n;

    x = x ? x + 1 : a->name;
    y = y ? y + 1 : b->name;
    n = strcspn(x, "-");
    return a->half == b->half && !strncmp(x, y, n + 1);
}

/* Returns true for the smaller model, or by name if they are equal. */
static bool smaller(const struct ref_model *a, const struct ref_model *b)
{
    return a->n_bytes != b->n_bytes ? a->n_bytes < b->n_bytes
                                    : strcmp(a->name, b->name) < 0;
}

static int by_order(const void *a, const void *b)
{
    const struct ref_model *x = a, *y = b;

    return x->first != y->first ? y->first - x->first
                                : strcmp(x->name, y->name);
}

static void read_models(void)
{
    if (n_model)
        return;
    for (const char *const *name = ref_models(test_long()); *name; name++)
        read_model(*name);
    for (int i = 0; i < n_model; i++) {
        models[i].first = ref_model_is_core(models[i].name);
        for (int k = 0; k < n_model; k++)
            models[i].first &= !same_kind(&models[i], &models[k]) ||
                               !smaller(&models[k], &models[i]);
        n_first += models[i].first;
    }
    qsort(models, (size_t)n_model, sizeof models[0], by_order);
}

/* Runs -------------------------------------------------------------------- */

static int n_values(int p)
{
    switch (p) {
    case P_MODEL:
        return test_long() ? n_model : n_first;
    case P_RANKS:
        return COUNT(rank_values);
    case P_DEVICES:
        return COUNT(device_values);
    case P_UBATCH:
    case P_THREADS:
        return 3;
    default:
        return 2;
    }
}

/* Bits of all logits of a numeric configuration, as first seen. */
struct seen {
    char key[160];
    uint64_t bits;
    char by[200];
};
static struct seen *seen;
static int n_seen, cap_seen;

static void same_bits(const char *key, uint64_t bits, const char *by)
{
    for (int i = 0; i < n_seen; i++)
        if (!strcmp(seen[i].key, key)) {
            if (seen[i].bits != bits)
                fail_msg("%s\n and %s\n share ranks and numerics (%s) and "
                         "differ in bits",
                         seen[i].by, by, key);
            return;
        }
    if (n_seen == cap_seen) {
        cap_seen = cap_seen ? 2 * cap_seen : 256;
        seen = realloc(seen, (size_t)cap_seen * sizeof *seen);
        assert_non_null(seen);
    }
    snprintf(seen[n_seen].key, sizeof seen[0].key, "%s", key);
    snprintf(seen[n_seen].by, sizeof seen[0].by, "%s", by);
    seen[n_seen++].bits = bits;
}

/* Decodes the prompt at once, with another sequence's tokens among it if
 * requested, then one token at a time. The sequence's rows are written to
 * out. */
static void run_sequence(pl_engine *e, const struct ref_seq *s, int64_t n_vocab,
                         bool company, float *out, const char *what)
{
    int32_t id[2 * MAX_TOK], seq[2 * MAX_TOK];
    uint8_t wanted[2 * MAX_TOK];
    pl_err err = {0};

    for (int i = 0; i < 2; i++)
        TEST_OK(pl_seq_trim(e, i, 0, NULL, &err), err);
    for (int at = 0; at < s->n;) {
        int n = at == 0 ? s->n_prompt : 1, k = 0;
        pl_batch b = {.size = sizeof b,
                      .token = id,
                      .seq = seq,
                      .wanted = wanted,
                      .logits = out + (int64_t)at * n_vocab};

        for (int i = 0; i < n; i++) {
            /* tokens of the second sequence are mixed in between */
            if (company && (at + i) % 3 != 1) {
                id[k] = (s->id[at + i] * 7 + 3) % (int)n_vocab;
                seq[k] = 1;
                wanted[k++] = 0;
            }
            id[k] = s->id[at + i];
            seq[k] = 0;
            wanted[k++] = 1;
        }
        b.n = k;
        if (pl_engine_decode(e, &b, NULL, &err) != PL_OK)
            fail_msg("%s: %s", what, err.message);
        at += n;
    }
}

struct measured {
    double max, rms, row_median;
    int same_top, rows, greedy_wrong;
    uint64_t bits;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int top(const float *row, int64_t n)
{
    int best = 0;

    for (int64_t i = 1; i < n; i++)
        if (row[i] > row[best])
            best = (int)i;
    return best;
}

static void compare(const struct ref_model *m, const float *got,
                    struct measured *r)
{
    double *rows = test_need(1, (size_t)m->n_row * sizeof *rows), sum = 0;
    int64_t row = 0;

    memset(r, 0, sizeof *r);
    r->bits = 14695981039346656037u;
    for (int s = 0; s < m->n_seq; s++)
        for (int i = 0; i < m->seq[s].n; i++, row++) {
            const float *a = got + row * m->n_vocab;
            const float *b = m->logits + row * m->n_vocab;
            int best = top(a, m->n_vocab);
            double d2 = 0;

            for (int64_t k = 0; k < m->n_vocab; k++) {
                double d = fabs((double)a[k] - (double)b[k]);
                uint32_t u;

                if (!(d <= r->max)) /* true if d is NaN, too */
                    r->max = d;
                d2 += d * d;
                memcpy(&u, &a[k], 4);
                r->bits = (r->bits ^ u) * 1099511628211u;
            }
            sum += d2;
            rows[row] = sqrt(d2 / (double)m->n_vocab);
            r->same_top += best == top(b, m->n_vocab);
            if (i >= m->seq[s].n_prompt - 1 && i < m->seq[s].n - 1)
                r->greedy_wrong += best != m->seq[s].id[i + 1];
        }
    r->rows = (int)row;
    r->rms = sqrt(sum / (double)(row * m->n_vocab));
    qsort(rows, (size_t)row, sizeof *rows, by_value);
    r->row_median = rows[row / 2];
    free(rows);
}

static void judge(const struct ref_model *m, bool floats,
                  const struct measured *r, const char *what)
{
    bool ok;

    if (floats)
        ok = r->max <= 1e-3 && r->rms <= 1e-4 && r->greedy_wrong == 0;
    else if (m->half) /* float activations, F16 cache; with experts, a near-tie
                       * of the router may flip in one row */
        ok = (r->max <= 5e-2 || m->experts) && r->rms <= 5e-3;
    else
        ok = r->row_median <= 2 * m->row_rms && r->same_top >= 0.9 * r->rows;
    if (!ok || isnan(r->max))
        fail_msg("%s: max %.3g rms %.3g row median %.3g, top-1 %d of %d, %d "
                 "greedy ids wrong",
                 what, r->max, r->rms, r->row_median, r->same_top, r->rows,
                 r->greedy_wrong);
}

/* Returns a copy of the model that has only sequence `s`. */
static struct ref_model alone(const struct ref_model *m, int s)
{
    struct ref_model one = *m;

    for (int i = 0; i < s; i++)
        one.logits += (int64_t)m->seq[i].n * m->n_vocab;
    one.seq[0] = m->seq[s];
    one.n_seq = 1;
    one.n_row = m->seq[s].n;
    return one;
}

/* Runs the combination v with all sequences, or with sequence `only` if that is
 * not negative. */
static void run(const int *v, int only)
{
    const struct ref_model one =
        only < 0 ? models[v[P_MODEL]]
                 : alone(&models[v[P_MODEL]], only % models[v[P_MODEL]].n_seq);
    const struct ref_model *m = &one;
    int n_dev = devices[v[P_DEVICES]].n;
    bool floats = v[P_KERNELS] == 0, uneven = v[P_SHARES] && n_dev > 1;
    pl_options o = {
        .size = sizeof o,
        .devices = devices[v[P_DEVICES]].spec,
        .split_mode = PL_SPLIT_TENSOR,
        .n_ranks = rank_values[v[P_RANKS]],
        .n_threads = v[P_THREADS] + 1,
        .n_ubatch = ubatch_values[v[P_UBATCH]],
        .n_ctx = 512,
        .n_seq = 2,
        .cpu = floats ? "reference" : NULL,
        .sim_seed = test_seed() + (uint64_t)v[P_MODEL],
        .no_pin = true,
        .no_fit = true, /* fitting might give the ranks unequal shares */
    };
    char what[200], key[160], dealt[32];
    pl_err err = {0};
    pl_model *pm;
    pl_engine *e;
    float *out = malloc((size_t)(m->n_row * m->n_vocab) * sizeof *out);
    struct measured r;
    int64_t row = 0;

    if (floats) {
        o.cache_set = true;
        o.cache_k = o.cache_v = PL_F32;
    }
    if (uneven) {
        o.tensor_split = shares;
        o.n_tensor_split = n_dev;
    }
    snprintf(what, sizeof what, "%.60s -dev %s --ranks %d -t %d -ub %d%s%s%s",
             m->name, o.devices, o.n_ranks, o.n_threads, (int)o.n_ubatch,
             uneven ? " uneven" : "", floats ? " reference" : "",
             v[P_COMPANY] ? " with company" : "");
    assert_non_null(out);
    if (pl_model_open(&pm, m->path, &err) != PL_OK ||
        pl_engine_create(&e, pm, &o, &err) != PL_OK)
        fail_msg("%s: %s", what, err.message);
    assert_int_equal(pl_model_n_vocab(pm), m->n_vocab);
    for (int s = 0; s < m->n_seq; s++) {
        run_sequence(e, &m->seq[s], m->n_vocab, v[P_COMPANY],
                     out + row * m->n_vocab, what);
        row += m->seq[s].n;
    }
    pl_engine_free(e);
    pl_model_free(pm);
    compare(m, out, &r);
    judge(m, floats, &r, what);
    /* with --ranks, shares apportion whole ranks and change no bit */
    if (o.n_ranks)
        snprintf(dealt, sizeof dealt, "%d", o.n_ranks);
    else
        snprintf(dealt, sizeof dealt, "%d%s", n_dev, uneven ? " uneven" : "");
    snprintf(key, sizeof key, "%.60s/%d, ranks %s%s", m->name,
             only < 0 ? -1 : only % models[v[P_MODEL]].n_seq, dealt,
             floats ? ", reference" : "");
    same_bits(key, r.bits, what);
    free(out);
}

/* Returns true if other values give the same configuration: sim devices have no
 * threads of their own, one device has no shares, and as many equal ranks as
 * devices are the default. */
static bool another_name(const int *v)
{
    const char *spec = device_values[v[P_DEVICES]].spec;
    int n_dev = device_values[v[P_DEVICES]].n;

    return (v[P_THREADS] > 0 && !strncmp(spec, "sim", 3)) ||
           (v[P_SHARES] && n_dev == 1) ||
           (!v[P_SHARES] && rank_values[v[P_RANKS]] == n_dev);
}

/* The float limits hold row by row, so one sequence suffices. The other limits
 * are for all rows of a model together. */
static int only_of(const int *v, uint64_t *random)
{
    return v[P_KERNELS] == 0 ? (int)test_below(random, REF_SEQS) : -1;
}

TEST_FLAGGED(__FILE__, engine_agrees_with_reference_logits, TEST_SHARES)
{
    uint64_t random = test_seed();
    int v[P_COUNT] = {0}, runs = 0, part, n_part, n_run = 0;
    struct pairs pairs;

    read_models();
    test_part(&part, &n_part);
    if (test_long()) { /* runs all combinations, counting like an odometer */
        for (bool more = true; more; runs++) {
            v[P_COMPANY] = (int)test_below(&random, 2);
            if (runs % n_part == part && !another_name(v)) {
                run(v, only_of(v, &random));
                n_run++;
            }
            /* P_COMPANY is drawn at random instead of being combined */
            v[P_COMPANY] = n_values(P_COMPANY) - 1;
            more = false;
            for (int p = 0; p < P_COUNT && !more; p++) {
                more = ++v[p] < n_values(p);
                if (!more)
                    v[p] = 0;
            }
        }
    } else {
        pairs_init(&pairs, P_COUNT, n_values);
        for (; pairs_next(&pairs, v, &random); n_run++)
            run(v, only_of(v, &random));
        for (int m = n_first; m < n_model; m++)
            for (int kernels = 0; kernels < 2; kernels++, n_run++) {
                pairs_draw(&pairs, v, &random);
                v[P_MODEL] = m;
                v[P_KERNELS] = kernels;
                run(v, only_of(v, &random));
            }
        pairs_fini(&pairs);
    }
    print_message("%d models, %d runs, %d numeric configurations agree\n",
                  n_model, n_run, n_seen);
}

/* On GPUs ----------------------------------------------------------------- */

/* indices in rank_values[] and device_values[] */
enum { RANKS_2 = 2, CPU_2 = 1 };

/* Runs each model at two ranks, on cpu*2 and on each of these GPUs: within the
 * limits, and with the same bits. Self test results are cached. */
static void models_on(const struct devices *gpu, int n_gpu)
{
    int v[P_COUNT] = {[P_KERNELS] = 1, [P_RANKS] = RANKS_2, [P_UBATCH] = 2};
    int part, n_part, n_run = 0, n = 0;

    read_models();
    test_part(&part, &n_part);
    assert_int_equal(setenv("XDG_CACHE_HOME", test_temp("cache"), 1), 0);
    for (v[P_MODEL] = part; v[P_MODEL] < n_model; v[P_MODEL] += n_part, n++) {
        devices = device_values;
        v[P_DEVICES] = CPU_2;
        run(v, -1);
        devices = gpu;
        for (v[P_DEVICES] = 0; v[P_DEVICES] < n_gpu; v[P_DEVICES]++, n_run++)
            run(v, -1);
    }
    devices = device_values;
    print_message("%d models, %d runs have the bits of cpu*2\n", n, n_run);
}

TEST_FLAGGED(__FILE__, reference_models_on_emulated_gpus_have_the_bits_of_cpus,
             TEST_LONG_TIER | TEST_SHARES)
{
    static const struct devices gpu[] = {{"emu*2", 2}, {"cpu*1,emu", 2}};

    models_on(gpu, COUNT(gpu));
}

/* Runs the models on GPUs of the fake CUDA and HIP libraries. */
TEST_FLAGGED(__FILE__, reference_models_on_cuda_have_the_bits_of_cpus,
             TEST_LONG_TIER | TEST_SHARES)
{
    static const struct devices gpu[] = {{"cuda:0*2", 2}};

    fake_cuda_use();
    models_on(gpu, COUNT(gpu));
}

TEST_FLAGGED(__FILE__, reference_models_on_hip_have_the_bits_of_cpus,
             TEST_LONG_TIER | TEST_SHARES)
{
    static const struct devices gpu[] = {{"hip:0*2", 2}};

    fake_hip_use();
    models_on(gpu, COUNT(gpu));
}
