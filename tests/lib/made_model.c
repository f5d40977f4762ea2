/* Files of made models; see made_model.h.
 *
 * A description is one JSON object:
 *
 *   "vocabulary": "gpt2-384"      tests/refs/made/vocabulary-gpt2-384.json has
 *                                 more keys, which several models share
 *   "keys": [[TYPE, KEY, VALUE], ...]      VALUE may be an array of TYPE
 *   "tensors": [[NAME, FORMAT, [DIM, ...], SIZE, LAYERS], ...]
 *       DIM is outermost first. SIZE is [LO, HI], the range of a float format's
 *       values, or of blocks the root mean square. LAYERS, if there, lists the
 *       numbers that take the place of the % in NAME.
 *   "sequences": [{"n_prompt": N, "tokens": [ID, ...]}, ...]
 *   "logits": [[NUMBER, ...], ...]         made_model_numbers of each sequence
 *
 * Its other keys are those of the JSON files of reference models:
 * tensor_types, min_router_gap, measured. */
#include "lib/made_model.h"

#include "gguf/gguf_write.h"
#include "lib/model64.h"
#include "quant/format.h"
#include "synth/synth.h"
#include "test_paths.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char folder[] = PLAIT_SOURCE_DIR "/tests/refs/made";
static const double tolerance = 1e-6;

/* ---- descriptions -------------------------------------------------------- */

/* Reads a JSON file of tests/refs/made; NULL if there is no such file. The
 * caller releases the result. */
static json_t *load(const char *dir, const char *prefix, const char *name)
{
    char path[600];
    json_error_t e;
    json_t *j;

    snprintf(path, sizeof path, "%.400s/%s%.80s.json", dir, prefix, name);
    j = json_load_file(path, 0, &e);
    if (!j && json_error_code(&e) != json_error_cannot_open_file)
        fail_msg("%s: line %d: %s", path, e.line, e.text);
    return j;
}

static json_t *field(const json_t *j, const char *key)
{
    json_t *v = json_object_get(j, key);

    if (!v)
        fail_msg("a description lacks \"%s\"", key);
    return v;
}

static const char *text(const json_t *row, size_t i)
{
    const char *s = json_string_value(json_array_get(row, i));

    assert_non_null(s);
    return s;
}

static int64_t whole(const json_t *row, size_t i)
{
    return json_integer_value(json_array_get(row, i));
}

static double number(const json_t *row, size_t i)
{
    assert_true(json_is_number(json_array_get(row, i)));
    return json_number_value(json_array_get(row, i));
}

/* ---- the list ------------------------------------------------------------ */

enum { MAX_MADE = 512 };
static struct made_name made[MAX_MADE];
static int n_made;

static int64_t values_of(const json_t *row)
{
    const json_t *dim = json_array_get(row, 2);
    size_t n_layer = json_array_size(json_array_get(row, 4));
    int64_t n = n_layer ? (int64_t)n_layer : 1;

    for (size_t d = 0; d < json_array_size(dim); d++)
        n *= whole(dim, d);
    return n;
}

static void add(const char *file, int len)
{
    struct made_name *m = &made[n_made++];
    json_t *j, *row;
    size_t i;

    assert_in_range(n_made, 1, MAX_MADE);
    snprintf(m->name, sizeof m->name, "%.*s", len, file);
    j = load(folder, "", m->name);
    assert_non_null(j);
    json_array_foreach (field(j, "keys"), i, row)
        if (!strcmp(text(row, 1), "general.architecture"))
            snprintf(m->family, sizeof m->family, "%s", text(row, 2));
    json_array_foreach (field(j, "tensors"), i, row)
        m->n_value += values_of(row);
    json_decref(j);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct made_name *)a)->name,
                  ((const struct made_name *)b)->name);
}

static void mark_smallest(void)
{
    for (int i = 0; i < n_made; i++) {
        made[i].smallest = true;
        for (int k = 0; k < n_made; k++)
            made[i].smallest &= strcmp(made[i].family, made[k].family) != 0 ||
                                made[i].n_value <= made[k].n_value;
    }
}

const struct made_name *made_model_names(int *n)
{
    static const char vocabulary[] = "vocabulary-";
    DIR *d = n_made == 0 ? opendir(folder) : NULL;
    struct dirent *e;

    while (d && (e = readdir(d))) {
        int len = (int)strlen(e->d_name) - 5;

        if (len > 0 && !strcmp(e->d_name + len, ".json") &&
            strncmp(e->d_name, vocabulary, sizeof vocabulary - 1) != 0)
            add(e->d_name, len);
    }
    if (d) {
        closedir(d);
        qsort(made, (size_t)n_made, sizeof made[0], by_name);
        mark_smallest();
    }
    *n = n_made;
    return made;
}

/* ---- keys ---------------------------------------------------------------- */

static enum gguf_type type_of(const char *name)
{
    for (int t = 0; t < GGUF_TYPE_COUNT; t++)
        if (!strcmp(gguf_type_name((enum gguf_type)t), name))
            return (enum gguf_type)t;
    fail_msg("a description has a key of type \"%s\"", name);
    return GGUF_TYPE_COUNT;
}

/* Writes a key's value as in a GGUF file, little endian. Returns its length in
 * bytes. */
static size_t put_value(unsigned char *to, enum gguf_type type, const json_t *v)
{
    float f = (float)json_number_value(v);
    int64_t i = json_is_boolean(v) ? json_is_true(v) : json_integer_value(v);
    int32_t i32 = (int32_t)i;

    switch (type) {
    case GGUF_F32:
        memcpy(to, &f, sizeof f);
        return sizeof f;
    case GGUF_BOOL:
    case GGUF_U8:
    case GGUF_I8:
        to[0] = (unsigned char)i;
        return 1;
    case GGUF_U32:
    case GGUF_I32:
        memcpy(to, &i32, sizeof i32);
        return sizeof i32;
    case GGUF_U64:
    case GGUF_I64:
        memcpy(to, &i, sizeof i);
        return sizeof i;
    default:
        fail_msg("descriptions have no keys of type %s", gguf_type_name(type));
        return 0;
    }
}

static void put_key(struct gguf_writer *w, const json_t *row)
{
    const json_t *v = json_array_get(row, 2);
    bool is_array = json_is_array(v);
    enum gguf_type elem = type_of(text(row, 0));
    size_t n = is_array ? json_array_size(v) : 1, bytes = 0;
    struct gguf_str *strs = test_need(n, sizeof *strs);
    unsigned char *data = test_need(n, 8);

    for (size_t i = 0; i < n; i++) {
        const json_t *x = is_array ? json_array_get(v, i) : v;

        if (elem == GGUF_STRING)
            strs[i] =
                (struct gguf_str){json_string_value(x), json_string_length(x)};
        else
            bytes += put_value(data + bytes, elem, x);
    }
    gguf_put_kv(w, &(struct gguf_kv){.key = text(row, 1),
                                     .type = is_array ? GGUF_ARRAY : elem,
                                     .elem = elem,
                                     .count = n,
                                     .data = data,
                                     .strs = strs});
    free(strs);
    free(data);
}

static void put_keys(struct gguf_writer *w, const json_t *j)
{
    json_t *row;
    size_t i;

    json_array_foreach (field(j, "keys"), i, row)
        put_key(w, row);
}

/* ---- tensors ------------------------------------------------------------- */

enum { MAX_TENSOR = 1024, MAX_ROW_VALUES = 1 << 16 };

/* The rule by which the values of one tensor are drawn. */
struct drawn {
    pl_format format;
    int64_t width;   /* number of values in a row */
    double lo, hi;   /* range of the values if the format is a float format */
    uint64_t random; /* state of the random numbers */
    /* rule for the blocks if the format is a block format */
    struct synth_fill fill;
};

static bool fill(void *user, int64_t row, void *dst, size_t bytes)
{
    struct drawn *d = user;
    float *v;

    (void)row;
    if (format_info(d->format)->block > 1) {
        synth_fill_row(&d->fill, dst, bytes);
        return true;
    }
    v = test_need((size_t)d->width, sizeof *v);
    for (int64_t i = 0; i < d->width; i++) {
        double u = (double)(test_random(&d->random) >> 11) * 0x1p-53;

        v[i] = (float)(d->lo + (d->hi - d->lo) * u);
    }
    if (d->format == PL_F32)
        memcpy(dst, v, bytes);
    else if (d->format == PL_I32) /* different numbers, as those of experts */
        for (int64_t i = 0; i < d->width; i++)
            ((int32_t *)dst)[i] =
                (int32_t)(((int64_t)v[0] + i) % ((int64_t)d->hi + 1));
    else
        format_info(d->format)->encode(dst, v, d->width);
    free(v);
    return true;
}

struct tensors {
    struct gguf_writer *w;
    struct drawn drawn[MAX_TENSOR];
    int n;
};

/* Adds a tensor of a description's row to the file. The number `layer` replaces
 * the % in the row's name. */
static void put_tensor(struct tensors *t, const json_t *row, int layer)
{
    const json_t *dims = json_array_get(row, 2), *size = json_array_get(row, 3);
    struct drawn *d = &t->drawn[t->n++];
    const char *name = text(row, 0), *mark = strchr(name, '%');
    int n_dim = (int)json_array_size(dims);
    int64_t dim[GGUF_MAX_DIM];
    char full[96];

    assert_in_range(t->n, 1, MAX_TENSOR);
    assert_in_range(n_dim, 1, GGUF_MAX_DIM);
    for (int i = 0; i < n_dim; i++)
        dim[i] = whole(dims, (size_t)i);
    d->format = format_from_name(text(row, 1));
    assert_in_range(d->format, 0, PL_FORMAT_COUNT - 1);
    d->width = dim[n_dim - 1];
    d->random = (uint64_t)t->n;
    if (json_is_array(size)) {
        d->lo = number(size, 0);
        d->hi = number(size, 1);
    } else {
        synth_fill_init(&d->fill, d->format, json_number_value(size),
                        (uint64_t)t->n);
    }
    if (mark)
        snprintf(full, sizeof full, "%.*s%d%s", (int)(mark - name), name, layer,
                 mark + 1);
    else
        snprintf(full, sizeof full, "%s", name);
    gguf_put_tensor_fill(t->w, full, d->format, n_dim, dim, fill, d);
}

static bool has_layer(const json_t *row, int layer)
{
    const json_t *layers = json_array_get(row, 4);

    for (size_t i = 0; i < json_array_size(layers); i++)
        if (whole(layers, i) == layer)
            return true;
    return false;
}

/* Adds the tensors of all rows to the file: first those without a layer, then
 * layer by layer. */
static void put_tensors(struct tensors *t, const json_t *rows)
{
    json_t *row;
    size_t i;
    int before = -1;

    json_array_foreach (rows, i, row)
        if (!strchr(text(row, 0), '%'))
            put_tensor(t, row, 0);
    for (int layer = 0; t->n > before; layer++) {
        before = t->n;
        json_array_foreach (rows, i, row)
            if (has_layer(row, layer))
                put_tensor(t, row, layer);
    }
}

/* ---- files --------------------------------------------------------------- */

/* Writes the model of the description `j`, whose vocabulary is in `dir`. */
static void write_described(const json_t *j, const char *dir, const char *path)
{
    struct tensors *t = test_need(1, sizeof *t);
    json_t *words;
    pl_err err;

    words = load(dir, "vocabulary-", json_string_value(field(j, "vocabulary")));
    assert_non_null(words);
    TEST_OK(gguf_writer_create(&t->w, &err), err);
    put_keys(t->w, j);
    put_keys(t->w, words);
    put_tensors(t, field(j, "tensors"));
    TEST_OK(gguf_writer_save(t->w, path, &err), err);
    gguf_writer_free(t->w);
    free(t);
    json_decref(words);
}

void made_model_write(const char *dir, const char *name, const char *path)
{
    json_t *j = load(dir, "", name);

    assert_non_null(j);
    write_described(j, dir, path);
    json_decref(j);
}

static void write_gguf(const json_t *j, const char *name, const char *path)
{
    (void)j;
    made_model_write(folder, name, path);
}

static FILE *create(const char *path)
{
    FILE *f = fopen(path, "wb");

    if (!f)
        fail_msg("%s cannot be written", path);
    return f;
}

static void write_tokens(const json_t *j, const char *name, const char *path)
{
    FILE *f = create(path);
    json_t *s;
    size_t i;

    (void)name;
    json_array_foreach (field(j, "sequences"), i, s) {
        const json_t *id = field(s, "tokens");
        size_t n = json_array_size(id);
        int n_prompt = (int)json_integer_value(field(s, "n_prompt"));

        fprintf(f, "%d %d", n_prompt, (int)n - n_prompt);
        for (size_t k = 0; k < n; k++)
            fprintf(f, " %d", (int)whole(id, k));
        fputc('\n', f);
    }
    assert_int_equal(fclose(f), 0);
}

/* Writes the logits that eval64 computes for the model's sequences. */
static void write_logits(const json_t *j, const char *name, const char *path)
{
    struct ref_seq seq[REF_SEQS];
    struct model64 r;
    FILE *f = create(path);
    char own[80];
    double *x;

    (void)j;
    snprintf(own, sizeof own, "made/%s", name);
    ref_sequences(own, seq);
    model64_open(&r, ref_model_path(own));
    x = test_need((size_t)(REF_MAX_TOK * r.m->n_vocab), sizeof *x);
    for (const struct ref_seq *s = seq; s < seq + REF_SEQS; s++) {
        model64_sequence(&r, s, x);
        for (int64_t i = 0; i < s->n * r.m->n_vocab; i++) {
            float v = (float)x[i];

            assert_int_equal(fwrite(&v, sizeof v, 1, f), 1);
        }
    }
    free(x);
    model64_close(&r);
    assert_int_equal(fclose(f), 0);
}

/* Files that this process has made, by name; the paths are owned. */
static struct {
    char file[96];
    const char *path;
} files[3 * MAX_MADE];
static int n_file;

typedef void write_fn(const json_t *j, const char *name, const char *path);

/* Returns the function that writes such a file; NULL if `file` is not the name
 * of a made file. Sets *n to the length of the model's name in it. */
static write_fn *writer_of(const char *file, int *n)
{
    static const struct {
        const char *suffix;
        write_fn *write;
    } kinds[] = {{".gguf", write_gguf},
                 {".tokens.txt", write_tokens},
                 {".logits.bin", write_logits}};

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        *n = (int)strlen(file) - (int)strlen(kinds[i].suffix);
        if (*n > 0 && *n < 64 && !strcmp(file + *n, kinds[i].suffix))
            return kinds[i].write;
    }
    return NULL;
}

const char *made_model_file(const char *file)
{
    int n;
    write_fn *write = strchr(file, '/') ? NULL : writer_of(file, &n);
    const char *path;
    char name[64], temp[100];
    json_t *j;

    if (!write)
        return NULL;
    for (int i = 0; i < n_file; i++)
        if (!strcmp(files[i].file, file))
            return files[i].path;
    snprintf(name, sizeof name, "%.*s", n, file);
    j = load(folder, "", name);
    if (!j)
        return NULL;
    snprintf(temp, sizeof temp, "made-%.90s", file);
    path = test_temp(temp);
    /* writing may request other made files, such as the model for its logits */
    write(j, name, path);
    json_decref(j);
    assert_in_range(n_file, 0, 3 * MAX_MADE - 1);
    snprintf(files[n_file].file, sizeof files[0].file, "%s", file);
    files[n_file++].path = path;
    return path;
}

/* ---- numbers of logits --------------------------------------------------- */

void made_model_numbers(const double *logits, int64_t n,
                        double numbers[MADE_NUMBERS])
{
    numbers[0] = numbers[1] = 0;
    for (int64_t i = 0; i < n; i++) {
        numbers[0] += logits[i];
        numbers[1] += logits[i] * logits[i];
    }
    /* logits at equal distances, the last one included */
    for (int64_t k = 2; k < MADE_NUMBERS; k++)
        numbers[k] = logits[(n - 1) * (k - 1) / (MADE_NUMBERS - 2)];
}

void made_model_keeps(const char *name, int seq, const double *logits,
                      int64_t n)
{
    json_t *j = load(folder, "", name), *want;
    double got[MADE_NUMBERS], rms;

    assert_non_null(j);
    want = json_array_get(field(j, "logits"), (size_t)seq);
    made_model_numbers(logits, n, got);
    rms = sqrt(number(want, 1) / (double)n);
    for (int k = 0; k < MADE_NUMBERS; k++) {
        double scale = k == 0   ? rms * (double)n
                       : k == 1 ? number(want, 1)
                                : rms;
        double off = fabs(got[k] - number(want, (size_t)k)) / scale;

        if (!(off <= tolerance))
            fail_msg("made/%s: sequence %d: number %d of the logits is %.9g; "
                     "the description has %.9g",
                     name, seq, k, got[k], number(want, (size_t)k));
    }
    json_decref(j);
}

/* ---- blocks for multi-token prediction ----------------------------------- */

/* Makes the description's number of layers greater by one, and says that the
 * last is a block. Returns the number of layers without it. */
static int add_block_keys(json_t *j)
{
    json_t *row, *keys = field(j, "keys");
    char name[80] = "";
    int n = 0;
    size_t i;

    json_array_foreach (keys, i, row) {
        const char *key = text(row, 1), *dot = strchr(key, '.');

        if (!dot || strcmp(dot, ".block_count") != 0)
            continue;
        n = (int)whole(row, 2);
        json_array_set_new(row, 2, json_integer(n + 1));
        snprintf(name, sizeof name, "%.*s.nextn_predict_layers",
                 (int)(dot - key), key);
    }
    assert_true(n > 0);
    json_array_append_new(keys, json_pack("[s, s, i]", "u32", name, 1));
    return n;
}

/* Sets all rows of output.weight to zero but one in `every`. */
static void thin_out(const char *path, int every)
{
    const struct gguf_tensor *t;
    struct gguf *g;
    size_t n;
    char *all = test_read(path, &n);
    pl_err err;
    FILE *f;

    TEST_OK(gguf_open(&g, path, &err), err);
    t = gguf_find_tensor(g, "output.weight");
    assert_non_null(t);
    assert_int_equal(t->format, PL_F32);
    for (int64_t i = 0; i < t->dim[0]; i++)
        if (i % every != 0)
            memset(all + t->offset + (size_t)(i * t->dim[1]) * 4, 0,
                   (size_t)t->dim[1] * 4);
    gguf_close(g);
    f = create(path);
    assert_int_equal(fwrite(all, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(all);
}

const char *made_model_with_block(const char *name)
{
    enum { EVERY = 48 };
    json_t *j = load(folder, "", name), *row, *rows;
    char temp[100];
    const char *path;
    int64_t width = 0;
    int n;
    size_t i;

    assert_non_null(j);
    n = add_block_keys(j);
    rows = field(j, "tensors");
    json_array_foreach (rows, i, row) {
        if (!strcmp(text(row, 0), "output_norm.weight"))
            width = whole(json_array_get(row, 2), 0);
        if (has_layer(row, n - 1))
            json_array_append_new(json_array_get(row, 4), json_integer(n));
    }
    json_array_append_new(
        rows, json_pack("[s, s, [I, I], [f, f], [i]]",
                        "blk.%.nextn.eh_proj.weight", "F32", (json_int_t)width,
                        (json_int_t)(2 * width), -0.2, 0.2, n));
    for (int k = 0; k < 3; k++) {
        static const char *const norms[] = {"enorm", "hnorm",
                                            "shared_head_norm"};
        char base[60];

        snprintf(base, sizeof base, "blk.%%.nextn.%s.weight", norms[k]);
        json_array_append_new(rows,
                              json_pack("[s, s, [I], [f, f], [i]]", base, "F32",
                                        (json_int_t)width, 0.5, 1.5, n));
    }
    snprintf(temp, sizeof temp, "block-%.80s.gguf", name);
    path = test_temp(temp);
    write_described(j, folder, path);
    json_decref(j);
    thin_out(path, EVERY);
    return path;
}
