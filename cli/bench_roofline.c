/* Computes the bytes that a test must read and the operations it must execute,
 * and from these an upper bound of its speed on a machine: a roofline. A step
 * takes at least as long as reading each needed byte once, and at least as long
 * as its multiplications. Roles and formats come from the plan, sizes from the
 * file. Activations are not counted because they stay in CPU caches. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

double bench_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

const char *bench_word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s != NULL ? s : "";
}

/* Returns the counters to which multiply-adds with weights of this format are
 * added: int8, half or flt of `m`. */
static double *macs_of(struct bench_model *m, const char *format)
{
    bool half = strcmp(format, "F16") == 0 || strcmp(format, "BF16") == 0;

    return half ? m->half : strcmp(format, "F32") == 0 ? m->flt : m->int8;
}

/* Returns the size in bytes of a value in a cache. Formats that are not listed,
 * F16 and BF16, have 2 bytes. */
static double cache_bytes(const char *format)
{
    static const struct {
        const char *format;
        double bytes;
    } row[] = {{"F32", 4},          {"Q8_0", 34 / 32.}, {"Q4_0", 18 / 32.},
               {"Q4_1", 20 / 32.},  {"Q5_0", 22 / 32.}, {"Q5_1", 24 / 32.},
               {"IQ4_NL", 18 / 32.}};

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        if (strcmp(row[i].format, format) == 0)
            return row[i].bytes;
    return 2;
}

/* Returns the entry of m->memory for layers with this window; adds it if it is
 * new. There is always space: a model has at most PL_MAX_POOL windows. */
static struct bench_memory *memory_of(struct bench_model *m, double window)
{
    int i = 0;

    while (i < m->n_memory && m->memory[i].window != window)
        i++;
    if (i == m->n_memory && i < PL_MAX_POOL)
        m->memory[m->n_memory++].window = window;
    return &m->memory[i < PL_MAX_POOL ? i : PL_MAX_POOL - 1];
}

/* Returns the entry of m->memory for the cache that the attention of a layer
 * reads; NULL if the layer has a recurrent state instead. */
static struct bench_memory *memory_at(struct bench_model *m, json_t *caches,
                                      double layer)
{
    json_t *t, *reader;
    size_t i, k;

    json_array_foreach (caches, i, t)
        json_array_foreach (json_object_get(t, "readers"), k, reader)
            if (json_number_value(reader) == layer)
                return json_is_true(json_object_get(t, "state"))
                           ? NULL
                           : memory_of(m, bench_number(t, "window"));
    return memory_of(m, 0);
}

static void read_cache(struct bench_model *m, const json_t *t)
{
    const json_t *shape = json_object_get(t, "shape");
    double values = json_number_value(json_array_get(shape, 1)) *
                    json_number_value(json_array_get(shape, 2));

    if (json_is_true(json_object_get(t, "state")))
        m->state += values;
    else
        memory_of(m, bench_number(t, "window"))->cache +=
            values * cache_bytes(bench_word(t, "format"));
}

static void read_tensor(struct bench_model *m, const json_t *t, double bytes,
                        bool tied, json_t *caches)
{
    const json_t *shape = json_object_get(t, "shape");
    const char *role = bench_word(t, "role");
    size_t n_dim = json_array_size(shape);
    bool expert = strstr(role, "_exps") != NULL;
    bool bias = strstr(role, "_bias") != NULL;
    bool table = strcmp(role, "token_embd") == 0;
    bool output = table || strcmp(role, "output") == 0;
    struct bench_memory *memory;
    bool rows = (table && !tied) || strcmp(role, "per_layer_embd") == 0;
    double *macs = macs_of(m, bench_word(t, "format"));
    /* number of values if the tensor is a matrix; 0 for vectors and biases */
    double values = n_dim > 1 && !bias;
    /* Multiply-adds of attention scores in the tensor's layer, for each pair of
     * a token and a token that it attends to. */
    double wide = 0;

    if (rows)
        /* embedding tables are not counted, because a step reads only a few of
         * their rows */
        return;
    for (size_t i = 0; i < n_dim; i++)
        values *= json_number_value(json_array_get(shape, i));
    m->weight[expert] += bytes;
    macs[output ? 2 : expert] += values;
    if (expert)
        m->n_expert = (int)json_integer_value(json_array_get(shape, 0));
    if (strcmp(role, "attn_out") == 0)
        wide = json_number_value(json_array_get(shape, 1));
    /* this tensor exists in models with attention over latents */
    if (strcmp(role, "attn_v_b") == 0)
        wide = json_number_value(json_array_get(shape, 0)) *
               (json_number_value(json_array_get(shape, 2)) -
                json_number_value(json_array_get(shape, 1)));
    if (wide == 0)
        return;
    memory = memory_at(m, caches, bench_number(t, "layer"));
    /* twice, because summing the values takes as many multiply-adds as the
     * scores */
    if (memory)
        memory->attention += 2 * wide;
}

static void name_type(struct bench_model *m, const json_t *totals,
                      const char *arch)
{
    const char *format, *most = "";
    json_t *v;
    double bytes = 0;

    json_object_foreach (json_object_get(totals, "types"), format, v) {
        if (bench_number(v, "bytes") <= bytes)
            continue;
        bytes = bench_number(v, "bytes");
        most = format;
    }
    snprintf(m->type, sizeof(m->type), "%.30s %.30s", arch, most);
}

bool bench_model_read(struct bench_model *m, const char *name, json_t *inspect,
                      json_t *plan)
{
    const json_t *totals = json_object_get(inspect, "totals");
    const char *arch = bench_word(plan, "arch");
    json_t *caches = json_object_get(plan, "caches");
    json_t *bytes = json_object(), *t;
    char key[128];
    size_t i;
    bool tied = true;

    *m = (struct bench_model){.name = name, .used = 1};
    m->bytes = bench_number(totals, "bytes");
    m->n_param = bench_number(totals, "values");
    name_type(m, totals, arch);
    json_array_foreach (json_object_get(inspect, "tensors"), i, t) {
        if (json_object_set(bytes, bench_word(t, "name"),
                            json_object_get(t, "bytes")) != 0) {
            json_decref(bytes);
            return false;
        }
    }
    json_array_foreach (json_object_get(plan, "tensors"), i, t)
        tied &= strcmp(bench_word(t, "role"), "output") != 0;
    json_array_foreach (caches, i, t)
        read_cache(m, t);
    json_array_foreach (json_object_get(plan, "tensors"), i, t)
        read_tensor(m, t, bench_number(bytes, bench_word(t, "name")), tied,
                    caches);
    snprintf(key, sizeof(key), "%.60s.expert_used_count", arch);
    if (m->n_expert > 0)
        m->used = bench_number(json_object_get(
                                   json_object_get(inspect, "metadata"), key),
                               "value") /
                  m->n_expert;
    json_decref(bytes);
    return true;
}

/* Returns the mean number of tokens that a token attends to, itself included.
 * The mean is over n tokens that follow `depth` others. `window` is the
 * attention window in tokens, 0 for none. */
static double mean_seen(double depth, double n, double window)
{
    double growing = window == 0 ? n : fmin(n, fmax(0, window - depth));

    return (growing * (depth + (growing + 1) / 2) + (n - growing) * window) / n;
}

/* Returns the bytes and operations of a test that computes a prompt and then
 * generates tokens. */
static struct bench_work work_of_both(const struct bench_model *m,
                                      const struct bench_test *t,
                                      pl_numerics numerics)
{
    struct bench_test prompt = *t, after = *t;
    struct bench_work a, b;

    prompt.n_gen = after.n_prompt = 0;
    after.n_depth += t->n_prompt;
    a = bench_work(m, &prompt, numerics);
    b = bench_work(m, &after, numerics);
    return (struct bench_work){
        a.read_bytes + b.read_bytes, a.int8_ops + b.int8_ops,
        a.float_ops + b.float_ops, a.bf16_ops + b.bf16_ops};
}

struct bench_work bench_work(const struct bench_model *m,
                             const struct bench_test *t, pl_numerics numerics)
{
    double n_seq = t->n_seq, n_tok = t->n_prompt > 0 ? t->n_prompt : t->n_gen;
    double tokens = n_seq * n_tok, steps = t->n_gen > 0 ? n_tok : 1;
    double rows = n_seq * (t->n_gen > 0 ? n_tok : 1);
    /* Expected fraction of all experts that the tokens of one step use, if each
     * token chooses its experts at random. */
    double met = 1 - pow(1 - m->used, tokens / steps);
    double read = steps * (m->weight[0] + met * m->weight[1]);
    /* multiply-adds of all tokens, and of all rows of logits, by the format of
     * the weights */
    double macs[3], flt, half;
    const double *of[3] = {m->int8, m->half, m->flt};

    if (t->n_prompt > 0 && t->n_gen > 0)
        return work_of_both(m, t, numerics);
    for (int i = 0; i < 3; i++)
        macs[i] = tokens * (of[i][0] + m->used * of[i][1]) + rows * of[i][2];
    half = macs[1];
    flt = macs[2];

    /* A token takes four multiply-adds for each value of a state: its decay, a
     * product with the key, one with the query, and the update. */
    read += steps * n_seq * 2 * sizeof(float) * m->state;
    flt += tokens * 4 * m->state;
    for (int i = 0; i < m->n_memory; i++) {
        const struct bench_memory *x = &m->memory[i];
        double seen = mean_seen(t->n_depth, n_tok, x->window);

        read += steps * n_seq * seen * x->cache;
        half += tokens * seen * x->attention;
    }
    if (numerics == PL_NUMERICS_EXACT) {
        flt += half;
        half = 0;
    }
    return (struct bench_work){read, 2 * macs[0], 2 * flt, 2 * half};
}

double bench_roofline_s(const struct bench_work *w, const pl_limits *l)
{
    double bf16 =
        l->bf16_ops_per_s > 0 ? l->bf16_ops_per_s : l->float_ops_per_s;
    double multiply_s = w->int8_ops / l->int8_ops_per_s +
                        w->float_ops / l->float_ops_per_s + w->bf16_ops / bf16;

    return fmax(w->read_bytes / l->read_bytes_per_s, multiply_s);
}
