/* Writes descriptions of made models from the reference models; see
 * made_model.h.
 *
 * Keys, names, shapes and formats are copied. Only the size of the values is
 * kept. Tensors that differ only in their layer share a row. Arrays of a
 * vocabulary are written to a file of their own, which several models share. */
#include "lib/made_model.h"

#include "gguf/gguf.h"
#include "lib/model64.h"
#include "quant/format.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROW = 512, MAX_LAYER = 64, N_GREEDY = 16, N_TRY = 2000 };

/* Returns the length of the prompt of sequence `s`. The longest fills a block
 * of tokens, and a window, that the model has. */
static int prompt_of(const struct model *m, int s)
{
    static const int prompts[REF_SEQS] = {1, 17, 40};
    const int64_t kept = m->v4.kept;

    return s == 2 && kept > prompts[s] ? (int)kept + 7 : prompts[s];
}

/* The least margins of the made sequences: the best token leads by least_margin
 * in its logit, and the last chosen expert by least_gap in its score. So a
 * different order of sums changes no choice. */
static const double least_margin = 0.04, least_gap = 3e-4;
/* least number of different tokens in a continuation */
enum { LEAST_DISTINCT = 4 };

/* Relative error as large as that of 8-bit activations. It may change the best
 * token of at most 1 in CHANGED rows of logits; tests of such activations allow
 * 1 in 10. */
static const double noise = 4e-3;
enum { CHANGED = 16 };

/* ---- keys ---------------------------------------------------------------- */

static void put_string(FILE *f, const char *s, size_t n)
{
    json_t *v = json_stringn(s, n);
    char *quoted;

    assert_non_null(v); /* NULL if the text is not UTF-8 */
    quoted = json_dumps(v, JSON_ENCODE_ANY);
    fputs(quoted, f);
    free(quoted);
    json_decref(v);
}

static void put_element(FILE *f, const struct gguf_kv *kv, uint64_t i)
{
    struct gguf_str s;
    int64_t v;
    double d;
    bool b;

    if (kv->elem == GGUF_STRING && gguf_as_str(kv, i, &s))
        put_string(f, s.s, s.len);
    else if (kv->elem == GGUF_BOOL && gguf_as_bool(kv, i, &b))
        fputs(b ? "true" : "false", f);
    else if (kv->elem == GGUF_F32 && gguf_as_f64(kv, i, &d))
        fprintf(f, "%.9g", d);
    else if (gguf_as_i64(kv, i, &v))
        fprintf(f, "%" PRId64, v);
    else
        fail_msg("%s has a value that descriptions cannot have", kv->key);
}

static void put_key(FILE *f, const struct gguf_kv *kv)
{
    fprintf(f, "[\"%s\", \"%s\", ", gguf_type_name(kv->elem), kv->key);
    if (kv->type == GGUF_ARRAY)
        fputc('[', f);
    for (uint64_t i = 0; i < kv->count; i++) {
        /* 16 elements per line, because one line for each or for all would be
         * too long */
        if (i > 0)
            fputs(i % 16 ? ", " : ",\n   ", f);
        put_element(f, kv, i);
    }
    fputs(kv->type == GGUF_ARRAY ? "]]" : "]", f);
}

static bool of_vocabulary(const struct gguf_kv *kv)
{
    return kv->type == GGUF_ARRAY && !strncmp(kv->key, "tokenizer.", 10);
}

/* Writes the keys of the vocabulary or, if not `vocabulary`, all other keys. */
static void put_keys(FILE *f, const struct gguf *g, bool vocabulary)
{
    bool more = false;

    fputs("\"keys\": [", f);
    for (int64_t i = 0; i < gguf_n_kv(g); i++)
        if (of_vocabulary(gguf_kv_at(g, i)) == vocabulary) {
            fputs(more ? ",\n  " : "\n  ", f);
            put_key(f, gguf_kv_at(g, i));
            more = true;
        }
    fputs("\n]", f);
}

/* Writes the vocabulary to a file of its own unless a file has the same one.
 * Sets `name` to the name of the file. Vocabularies of the same kind and size
 * with different words are numbered. */
static void vocabulary(const struct gguf *g, const char *folder, char name[64])
{
    char path[512], *text = NULL;
    struct gguf_str kind;
    size_t n_text = 0, n;
    FILE *f = open_memstream(&text, &n_text);
    pl_err err;

    assert_non_null(f);
    fputs("{", f);
    put_keys(f, g, true);
    fputs("}\n", f);
    assert_int_equal(fclose(f), 0);
    TEST_OK(gguf_get_str(g, "tokenizer.ggml.model", &kind, &err), err);
    for (int i = 1;; i++) {
        const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
        char *old = NULL;
        int at = snprintf(name, 64, "%.*s-%d", (int)kind.len, kind.s,
                          (int)tokens->count);

        if (i > 1)
            snprintf(name + at, 64 - (size_t)at, "-%d", i);
        snprintf(path, sizeof path, "%.400s/vocabulary-%s.json", folder, name);
        f = fopen(path, "rb");
        if (!f)
            break;
        fclose(f);
        old = test_read(path, &n);
        if (n == n_text && !memcmp(old, text, n)) {
            free(old);
            free(text);
            return;
        }
        free(old);
    }
    f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    free(text);
}

/* ---- tensors ------------------------------------------------------------- */

/* Tensors that differ only in their layer, which share a row of the
 * description. */
struct row {
    /* name of the tensors, with % in place of the layer's number */
    char name[96];
    const struct gguf_tensor *t;
    int layer[MAX_LAYER], n_layer;
    /* number, sum, sum of squares, minimum and maximum of all values of these
     * tensors */
    double n, sum, squares, lo, hi;
};

static struct row *row_of(struct row *rows, int *n, const struct gguf_tensor *t)
{
    char name[96];
    int layer = -1, at = 0;
    struct row *r;

    snprintf(name, sizeof name, "%.90s", t->name);
    if (sscanf(t->name, "blk.%d.%n", &layer, &at) == 1)
        snprintf(name, sizeof name, "blk.%%.%.80s", t->name + at);
    for (r = rows; r < rows + *n; r++)
        if (!strcmp(r->name, name) && r->t->format == t->format &&
            r->t->n_dim == t->n_dim &&
            !memcmp(r->t->dim, t->dim, (size_t)t->n_dim * sizeof t->dim[0]))
            break;
    if (r == rows + *n) {
        assert_in_range(++*n, 1, MAX_ROW);
        snprintf(r->name, sizeof r->name, "%s", name);
        r->t = t;
        r->lo = INFINITY;
        r->hi = -INFINITY;
    }
    if (layer >= 0) {
        assert_in_range(r->n_layer, 0, MAX_LAYER - 1);
        r->layer[r->n_layer++] = layer;
    }
    return r;
}

static void measure(struct row *r, const struct gguf_tensor *t)
{
    const struct format_info *info = format_info(t->format);
    int64_t n = (int64_t)(t->bytes / (size_t)info->block_bytes) * info->block;
    float *v = test_need((size_t)n, sizeof *v);

    info->decode(v, t->data, n);
    for (int64_t i = 0; i < n; i++) {
        double x = (double)v[i];

        r->n++;
        r->sum += x;
        r->squares += x * x;
        r->lo = fmin(r->lo, x);
        r->hi = fmax(r->hi, x);
    }
    free(v);
}

static void put_row(FILE *f, const struct row *r)
{
    const struct gguf_tensor *t = r->t;
    double mean = r->sum / r->n;
    double spread = sqrt(3 * fmax(r->squares / r->n - mean * mean, 0));

    fprintf(f, "\n  [\"%s\", \"%s\", [", r->name, format_info(t->format)->name);
    for (int d = 0; d < t->n_dim; d++)
        fprintf(f, "%s%" PRId64, d ? ", " : "", t->dim[d]);
    if (format_info(t->format)->block > 1)
        fprintf(f, "], %.4g", sqrt(r->squares / r->n));
    else
        /* the range of equally distributed values with the same mean and root
         * mean square, cut to the range of the real values */
        fprintf(f, "], [%.4g, %.4g]", fmax(r->lo, mean - spread),
                fmin(r->hi, mean + spread));
    for (int i = 0; i < r->n_layer; i++)
        fprintf(f, "%s%d", i ? ", " : ", [", r->layer[i]);
    fputs(r->n_layer ? "]]" : "]", f);
}

static void put_tensors(FILE *f, const struct gguf *g)
{
    struct row *rows = test_need(MAX_ROW + 1, sizeof *rows);
    int n = 0;

    for (int64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        measure(row_of(rows, &n, t), t);
    }
    fputs(",\n\"tensors\": [", f);
    for (int i = 0; i < n; i++) {
        fputs(i ? "," : "", f);
        put_row(f, &rows[i]);
    }
    fputs("\n]", f);
    free(rows);
}

/* Writes the formats of the weights, and the errors that were measured with the
 * reference model. */
static void put_limits(FILE *f, const char *name)
{
    char file[128];
    json_t *j;
    char *types, *median;

    snprintf(file, sizeof file, "%s.json", name);
    j = json_load_file(test_ref(file), 0, NULL);
    assert_non_null(j);
    types = json_dumps(json_object_get(j, "tensor_types"), JSON_ENCODE_ANY);
    median = json_dumps(
        json_object_get(json_object_get(json_object_get(j, "measured"),
                                        "llama_cpp_on_stored_weights"),
                        "row_rms_median"),
        JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    fprintf(f, ",\n\"tensor_types\": %s", types);
    if (median)
        fprintf(f,
                ",\n\"measured\": {\"llama_cpp_on_stored_weights\":\n"
                "  {\"row_rms_median\": %s}}",
                median);
    free(types);
    free(median);
    json_decref(j);
}

/* ---- sequences ----------------------------------------------------------- */

struct told {
    struct ref_seq seq[REF_SEQS];
    double numbers[REF_SEQS][MADE_NUMBERS];
    double margin, gap, sum, squares, n;
};

/* Returns by how much the largest of x[n] exceeds the second largest. *best is
 * the index of the largest. */
static double lead(const double *x, int64_t n, int32_t *best)
{
    double first = -INFINITY, second = -INFINITY;

    for (int64_t i = 0; i < n; i++)
        if (x[i] > first) {
            second = first;
            first = x[i];
            *best = (int32_t)i;
        } else {
            second = fmax(second, x[i]);
        }
    return first - second;
}

/* Returns how many rows of the logits x have another best token if noise is
 * added to all results. */
static int n_changed(struct model64 *r, const struct ref_seq *s,
                     const double *x)
{
    const int64_t v = r->m->n_vocab;
    double *y = test_need((size_t)(s->n * v), sizeof *y);
    int32_t a = 0, b = 0;
    int n = 0;

    r->e->noise = noise;
    r->e->seed = 1;
    model64_sequence(r, s, y);
    r->e->noise = 0;
    for (int i = 0; i < s->n; i++) {
        lead(x + i * v, v, &a);
        lead(y + i * v, v, &b);
        n += a != b;
    }
    free(y);
    return n;
}

static int distinct(const int32_t *id, int n)
{
    int count = 0;

    for (int i = 0; i < n; i++) {
        bool again = false;

        for (int k = 0; k < i; k++)
            again |= id[k] == id[i];
        count += !again;
    }
    return count;
}

/* Draws a prompt and continues it greedily into `s`; x gets the logits. Returns
 * false if a choice had too small a margin. Otherwise sets *margin and *gap to
 * the least margins of tokens and of experts. */
static bool continued(struct model64 *r, struct ref_seq *s, double *x,
                      uint64_t *random, double *margin, double *gap)
{
    const int64_t v = r->m->n_vocab;

    r->e->gap = INFINITY;
    *margin = INFINITY;
    s->n = s->n_prompt + N_GREEDY;
    for (int i = 0; i < s->n_prompt; i++)
        s->id[i] = (int32_t)test_below(random, v);
    for (int at = 0, n = s->n_prompt; at < s->n; at += n, n = 1) {
        const double *got = model64_step(r, s->id + at, at, n);

        memcpy(x + at * v, got, (size_t)(n * v) * sizeof *x);
        if (at + n < s->n)
            *margin = fmin(*margin, lead(got + (n - 1) * v, v, &s->id[at + n]));
        if (*margin < least_margin || r->e->gap < least_gap)
            return false;
    }
    *gap = r->e->gap;
    return distinct(s->id + s->n_prompt, N_GREEDY) >= LEAST_DISTINCT &&
           n_changed(r, s, x) <= s->n / CHANGED;
}

/* Draws the sequences of the model in `path` until their choices are clear.
 * Returns false if those of one never are. */
static bool find_sequences(struct told *t, const char *name, const char *path)
{
    struct model64 r;
    uint64_t random = test_seed();
    bool clear = true;
    double *x;

    model64_open(&r, path);
    x = test_need((size_t)(REF_MAX_TOK * r.m->n_vocab), sizeof *x);
    t->margin = t->gap = INFINITY;
    for (int s = 0; s < REF_SEQS; s++) {
        int64_t n = (prompt_of(r.m, s) + N_GREEDY) * r.m->n_vocab;
        double margin, gap;
        int tries = 1;

        t->seq[s].n_prompt = prompt_of(r.m, s);
        while (clear && !continued(&r, &t->seq[s], x, &random, &margin, &gap))
            clear = tries++ < N_TRY;
        printf("%s: sequence %d: %d tries\n", name, s, tries);
        if (!clear)
            break;
        t->margin = fmin(t->margin, margin);
        t->gap = fmin(t->gap, gap);
        made_model_numbers(x, n, t->numbers[s]);
        t->sum += t->numbers[s][0];
        t->squares += t->numbers[s][1];
        t->n += (double)n;
    }
    free(x);
    model64_close(&r);
    return clear;
}

static void put_sequences(FILE *f, const struct told *t)
{
    double mean = t->sum / t->n;

    fprintf(f, ",\n\"logits_std\": %.4g,\n\"min_greedy_margin\": %.4g",
            sqrt(t->squares / t->n - mean * mean), t->margin);
    if (isfinite(t->gap))
        fprintf(f, ",\n\"min_router_gap\": %.4g", t->gap);
    fputs(",\n\"sequences\": [", f);
    for (int s = 0; s < REF_SEQS; s++) {
        fprintf(f, "%s\n  {\"n_prompt\": %d, \"tokens\": [", s ? "," : "",
                t->seq[s].n_prompt);
        for (int i = 0; i < t->seq[s].n; i++)
            fprintf(f, "%s%d",
                    i == 0   ? ""
                    : i % 20 ? ", "
                             : ",\n    ",
                    t->seq[s].id[i]);
        fputs("]}", f);
    }
    fputs("\n],\n\"logits\": [", f);
    for (int s = 0; s < REF_SEQS; s++) {
        fputs(s ? ",\n  [" : "\n  [", f);
        for (int k = 0; k < MADE_NUMBERS; k++)
            fprintf(f, "%s%.10g", k ? ", " : "", t->numbers[s][k]);
        fputs("]", f);
    }
    fputs("\n]", f);
}

/* ---- descriptions -------------------------------------------------------- */

void made_model_describe(const char *name, const char *folder)
{
    char path[512], words[64];
    struct told *t = test_need(1, sizeof *t);
    bool clear = false;
    struct gguf *g;
    FILE *f;
    pl_err err;

    TEST_OK(gguf_open(&g, ref_model_path(name), &err), err);
    snprintf(path, sizeof path, "%.400s/%.80s.json", folder, name);
    vocabulary(g, folder, words);
    /* first writes the model's description, then again with numbers of the
     * logits that the made model has */
    for (int whole = 0; whole < 2; whole++) {
        f = fopen(path, "wb");
        if (!f)
            fail_msg("%s cannot be written", path);
        fprintf(f, "{\"vocabulary\": \"%s\",\n", words);
        put_keys(f, g, false);
        put_tensors(f, g);
        put_limits(f, name);
        if (whole)
            put_sequences(f, t);
        fputs("}\n", f);
        assert_int_equal(fclose(f), 0);
        if (!whole) {
            made_model_write(folder, name, test_temp("described.gguf"));
            clear = find_sequences(t, name, test_temp("described.gguf"));
        }
        if (!clear) {
            remove(path);
            break;
        }
    }
    if (!clear)
        printf("%s: not described: some choice is always close; set another "
               "PLAIT_SEED\n",
               name);
    else
        printf("%s: margin %.3g, router's gap %.3g\n", name, t->margin, t->gap);
    gguf_close(g);
    free(t);
}
