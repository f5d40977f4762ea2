/* Implements pl_quantize.h: plans the format of each tensor, then writes the
 * files. All formats are decided before a file is opened, so that a wrong
 * option costs no time. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "pl_quantize.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/ascii.h"
#include "base/err.h"
#include "base/sized.h"
#include "gguf/gguf_write.h"
#include "quant/format.h"
#include "quant/search.h"
#include "quantize/imatrix.h"
#include "quantize/mix.h"
#include "quantize/quantize_rows.h"

/* Version of the formats in general.quantization_version. */
enum { QUANTIZATION_VERSION = 2 };

/* The plan for one tensor. */
struct planned {
    pl_format to;         /* PL_FORMAT_COUNT: the tensor is copied */
    bool chosen;          /* `to` is of an option */
    pl_format instead_of; /* PL_FORMAT_COUNT if the tensor's width fits */
    const float *importance;
    struct rows_job job;
};

struct quantizing {
    pl_quantize_options o;
    enum mix mix;
    bool copy; /* type COPY: all tensors are copied */
    struct gguf *g;
    struct imatrix *imatrix;
    int64_t n_imatrix;    /* entries of `imatrix` that are used */
    struct planned *plan; /* [n] for each tensor of the file */
    int64_t n;
    struct rows *rows;
    pl_quantize_result result;
    struct arena arena;
};

/* ---- options ------------------------------------------------------------- */

static pl_status find_format(const char *name, const char *of, pl_format *out,
                             pl_err *err)
{
    char shown[ERR_SHOWN];

    *out = format_from_name(name);
    if (!quant_can_search(*out))
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: no format to quantize to is called \"%s\"; give "
                       "one like Q8_0, Q6_K or F16",
                       of, err_shown(shown, name, strlen(name)));
    return PL_OK;
}

static pl_status find_type(struct quantizing *q, pl_err *err)
{
    char shown[ERR_SHOWN];

    if (!q->o.type)
        return err_null(err, "pl_quantize", "type");
    q->copy = ascii_same(q->o.type, "COPY");
    q->mix = mix_find(q->o.type);
    if (!q->copy && q->mix == MIX_COUNT)
        return err_set(err, PL_BAD_ARGUMENT,
                       "no type is called \"%s\"; give one like Q4_K_M, Q8_0 "
                       "or F16",
                       err_shown(shown, q->o.type, strlen(q->o.type)));
    return PL_OK;
}

static bool contains_one(const char *name, const char *const *text, int n)
{
    for (int i = 0; i < n; i++)
        if (strstr(name, text[i]))
            return true;
    return false;
}

/* Returns true if options allow to use the importances of a matrix. */
static bool is_included(const struct quantizing *q, const char *name)
{
    const pl_quantize_options *o = &q->o;

    return !contains_one(name, o->exclude, o->n_exclude) &&
           (o->n_include == 0 || contains_one(name, o->include, o->n_include));
}

static pl_status open_imatrix(struct quantizing *q, pl_err *err)
{
    if (!q->o.imatrix)
        return PL_OK;
    PL_TRY(imatrix_open(&q->imatrix, q->o.imatrix, err));
    for (int64_t i = 0; i < imatrix_count(q->imatrix); i++)
        q->n_imatrix += is_included(q, imatrix_at(q->imatrix, i)->name);
    return PL_OK;
}

/* ---- the plan ------------------------------------------------------------ */

/* Gives the format of one REGEX=FORMAT to the tensors that match, unless an
 * earlier one did. */
static pl_status apply_pattern(struct quantizing *q, const char *text,
                               pl_err *err)
{
    const char *equals = strrchr(text, '=');
    char shown[ERR_SHOWN], why[100];
    pcre2_match_data *match = NULL;
    pcre2_code *code;
    PCRE2_SIZE at;
    pl_format to;
    int e, found = 0;

    err_shown(shown, text, strlen(text));
    if (!equals || equals == text)
        return err_set(err, PL_BAD_ARGUMENT,
                       "tensor type \"%s\": give a pattern and a format, like "
                       "attn_v=Q8_0",
                       shown);
    PL_TRY(find_format(equals + 1, shown, &to, err));
    code = pcre2_compile((PCRE2_SPTR)text, (PCRE2_SIZE)(equals - text),
                         PCRE2_CASELESS, &e, &at, NULL);
    if (!code) {
        pcre2_get_error_message(e, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(err, PL_BAD_ARGUMENT,
                       "tensor type \"%s\": offset %zu: %s; give a regular "
                       "expression",
                       shown, (size_t)at, why);
    }
    match = pcre2_match_data_create(1, NULL);
    for (int64_t i = 0; i < q->n && match; i++) {
        const char *name = gguf_tensor_at(q->g, i)->name;

        if (q->plan[i].to == PL_FORMAT_COUNT ||
            pcre2_match(code, (PCRE2_SPTR)name, strlen(name), 0, 0, match,
                        NULL) < 0)
            continue;
        if (!q->plan[i].chosen)
            q->plan[i].to = to;
        q->plan[i].chosen = true;
        found++;
    }
    pcre2_code_free(code);
    if (!match)
        return err_no_memory(err, "a regular expression");
    pcre2_match_data_free(match);
    if (found == 0)
        return err_set(err, PL_BAD_ARGUMENT,
                       "tensor type \"%s\": the pattern matches no tensor that "
                       "is quantized; `plait inspect` shows their names",
                       shown);
    return PL_OK;
}

/* Gives the format of an option to output.weight, or to embeddings. */
static pl_status apply_option(struct quantizing *q, bool output,
                              const char *format, pl_err *err)
{
    pl_format to;

    if (!format || q->copy)
        return PL_OK;
    PL_TRY(find_format(format,
                       output ? "the format of output.weight"
                              : "the format of token_embd.weight",
                       &to, err));
    for (int64_t i = 0; i < q->n; i++) {
        const char *name = gguf_tensor_at(q->g, i)->name;

        if (q->plan[i].to != PL_FORMAT_COUNT &&
            (output ? strcmp(name, "output.weight") == 0
                    : mix_is_embedding(name)))
            q->plan[i].to = to;
    }
    return PL_OK;
}

static int64_t count_values(const struct gguf_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dim[i];
    return n;
}

/* Finds the importances of a tensor, one for each column of each matrix. */
static pl_status find_importance(struct quantizing *q,
                                 const struct gguf_tensor *t, struct planned *p,
                                 pl_err *err)
{
    const struct imatrix_entry *e =
        q->imatrix ? imatrix_find(q->imatrix, t->name) : NULL;
    int64_t want = count_values(t);
    char shown[ERR_SHOWN];

    if (t->n_dim > 1)
        want /= t->dim[t->n_dim - 2];
    if (!e || !is_included(q, t->name))
        return PL_OK;
    if (e->n == want) {
        p->importance = e->value;
        return PL_OK;
    }
    /* The embedding is looked up, so its entry, if any, is of the output. */
    if (mix_is_embedding(t->name))
        return PL_OK;
    return err_set(err, PL_BAD_FILE,
                   "%s: %lld importances for %s, whose %lld columns need as "
                   "many; make the file of importances from this model",
                   q->o.imatrix, (long long)e->n,
                   err_shown(shown, t->name, strlen(t->name)), (long long)want);
}

/* Completes the plan of one tensor: its format if the width does not fit, and
 * importances. */
static pl_status settle(struct quantizing *q, const struct gguf_tensor *t,
                        struct planned *p, pl_err *err)
{
    const pl_format ruled = p->to;
    char shown[ERR_SHOWN];

    p->instead_of = PL_FORMAT_COUNT;
    if (p->to == PL_FORMAT_COUNT)
        return PL_OK;
    p->to = mix_fitting(ruled, t->dim[t->n_dim - 1]);
    if (p->to != ruled) {
        p->instead_of = ruled;
        q->result.n_fallback++;
    }
    if (p->to == t->format) {
        p->to = PL_FORMAT_COUNT;
        return PL_OK;
    }
    err_shown(shown, t->name, strlen(t->name));
    if (format_info(t->format)->block > 1 && !q->o.requantize)
        return err_set(err, PL_UNSUPPORTED,
                       "%s is %s already, and would lose more; quantize the "
                       "F16 or F32 model, or allow it with --allow-requantize",
                       shown, format_info(t->format)->name);
    PL_TRY(find_importance(q, t, p, err));
    if (!p->importance && mix_needs_imatrix(q->mix, p->to, t->name))
        return err_set(err, PL_UNSUPPORTED,
                       "%s: %s needs importances, which are not known; give "
                       "them with --imatrix FILE, or choose more bits",
                       shown, format_info(p->to)->name);
    q->result.n_quantized++;
    return PL_OK;
}

static pl_status plan(struct quantizing *q, pl_err *err)
{
    pl_format *to;

    q->n = gguf_n_tensor(q->g);
    q->plan = arena_alloc(&q->arena, (size_t)q->n, sizeof *q->plan);
    to = arena_alloc(&q->arena, (size_t)q->n, sizeof *to);
    if (!q->plan || !to)
        return err_no_memory(err, "the formats of tensors");
    if (!q->copy)
        PL_TRY(mix_plan(q->mix, q->g, q->o.pure, q->n_imatrix > 0, to, err));
    for (int64_t i = 0; i < q->n; i++)
        q->plan[i].to = q->copy ? PL_FORMAT_COUNT : to[i];
    for (int i = 0; i < q->o.n_tensor_types && !q->copy; i++)
        PL_TRY(apply_pattern(q, q->o.tensor_types[i], err));
    PL_TRY(apply_option(q, false, q->o.embedding_type, err));
    PL_TRY(apply_option(q, true, q->o.output_type, err));
    for (int64_t i = 0; i < q->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(q->g, i);
        struct planned *p = &q->plan[i];

        if (q->o.leave_output && strcmp(t->name, "output.weight") == 0)
            p->to = PL_FORMAT_COUNT;
        PL_TRY(settle(q, t, p, err));
        q->result.from_bytes += t->bytes;
        q->result.to_bytes += p->to == PL_FORMAT_COUNT
                                  ? t->bytes
                                  : format_row_bytes(p->to, count_values(t));
        q->result.n_values += (uint64_t)count_values(t);
    }
    q->result.n_tensor = (int)q->n;
    return PL_OK;
}

/* ---- reports ------------------------------------------------------------- */

/* Square root, so that the library needs no rounding mode of libm. */
static double root(double square, double of)
{
    return of > 0 ? __builtin_sqrt(square / of) : 0;
}

static void report(const struct quantizing *q, int64_t i)
{
    const struct gguf_tensor *t = gguf_tensor_at(q->g, i);
    const struct planned *p = &q->plan[i];
    const bool copied = p->to == PL_FORMAT_COUNT;
    const double *sum = p->job.sum;
    char name[24];
    pl_quantize_tensor r = {
        .name = t->name,
        .n_dim = t->n_dim,
        .dim = t->dim,
        .from = gguf_format_name(t->id, name),
        .from_bytes = t->bytes,
        .to_bytes =
            copied ? t->bytes : format_row_bytes(p->to, count_values(t)),
        .instead_of = p->instead_of == PL_FORMAT_COUNT
                          ? NULL
                          : format_info(p->instead_of)->name,
        .imatrix = p->importance != NULL,
        .error = -1,
        .weighted_error = -1,
    };

    r.to = copied ? r.from : format_info(p->to)->name;
    if (!copied && q->o.errors && !q->o.dry_run) {
        r.error = root(sum[0], sum[1]);
        r.weighted_error = root(sum[2], sum[3]);
    }
    if (q->o.tensor)
        q->o.tensor(q->o.tensor_user, &r);
}

static pl_status tensor_done(struct rows_job *job, pl_err *err)
{
    struct quantizing *q = job->user;

    (void)err;
    report(q, (struct planned *)((char *)job - offsetof(struct planned, job)) -
                  q->plan);
    return PL_OK;
}

/* ---- files --------------------------------------------------------------- */

/* Puts the keys that llama.cpp puts after importances were used. */
static void put_imatrix_keys(const struct quantizing *q, struct gguf_writer *w)
{
    const char *dataset;

    if (q->n_imatrix == 0)
        return;
    dataset = imatrix_dataset(q->imatrix);
    gguf_put_str(w, "quantize.imatrix.file", q->o.imatrix);
    if (dataset)
        gguf_put_str(w, "quantize.imatrix.dataset", dataset);
    gguf_put_u32(w, "quantize.imatrix.entries_count", (uint32_t)q->n_imatrix);
    if (imatrix_chunks(q->imatrix) > 0)
        gguf_put_u32(w, "quantize.imatrix.chunks_count",
                     (uint32_t)imatrix_chunks(q->imatrix));
}

/* Returns true if the output has a value of its own for a key, or lacks it. */
static bool is_replaced(const struct quantizing *q, const char *key)
{
    return strncmp(key, "split.", 6) == 0 ||
           strcmp(key, "general.quantization_version") == 0 ||
           (!q->copy && strcmp(key, "general.file_type") == 0) ||
           (q->n_imatrix > 0 && strncmp(key, "quantize.imatrix.", 17) == 0);
}

static void put_keys(const struct quantizing *q, struct gguf_writer *w,
                     int part, int n_part)
{
    if (part == 0) {
        for (int64_t i = 0; i < gguf_n_kv(q->g); i++)
            if (!is_replaced(q, gguf_kv_at(q->g, i)->key))
                gguf_put_kv(w, gguf_kv_at(q->g, i));
        gguf_put_u32(w, "general.quantization_version", QUANTIZATION_VERSION);
        if (!q->copy)
            gguf_put_u32(w, "general.file_type", mix_number(q->mix));
        put_imatrix_keys(q, w);
    }
    if (n_part > 1) {
        gguf_put_u16(w, "split.no", (uint16_t)part);
        gguf_put_u16(w, "split.count", (uint16_t)n_part);
        gguf_put_i32(w, "split.tensors.count", (int32_t)q->n);
    }
}

static void put_tensors(struct quantizing *q, struct gguf_writer *w, int part,
                        int n_part)
{
    for (int64_t i = 0; i < q->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(q->g, i);
        struct planned *p = &q->plan[i];
        const bool copied = p->to == PL_FORMAT_COUNT;

        if (n_part > 1 && t->part != part)
            continue;
        p->job = (struct rows_job){
            .rows = q->rows,
            .g = q->g,
            .t = t,
            .to = p->to,
            .copy = copied,
            .importance = p->importance,
            .errors = q->o.errors,
            .no_search = q->o.no_search,
            .done = tensor_done,
            .user = q,
        };
        if (copied)
            gguf_put_tensor_like(w, t, rows_fill, &p->job);
        else
            gguf_put_tensor_fill(w, t->name, p->to, t->n_dim, t->dim, rows_fill,
                                 &p->job);
    }
}

/* Returns the path of an output file; NULL if out of memory. */
static char *part_path(struct quantizing *q, const char *out, int part,
                       int n_part)
{
    size_t len = strlen(out);

    if (n_part == 1)
        return arena_strdup(&q->arena, out);
    if (len > 5 && strcmp(out + len - 5, ".gguf") == 0)
        len -= 5;
    return arena_printf(&q->arena, "%.*s-%05d-of-%05d.gguf", (int)len, out,
                        part + 1, n_part);
}

/* Fails if the output would replace a file that is read. */
static pl_status check_path(const struct quantizing *q, const char *path,
                            pl_err *err)
{
    struct stat a, b;

    if (gguf_has_file(q->g, path))
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s is a file of the model to quantize; name another",
                       path);
    if (q->o.imatrix && stat(path, &a) == 0 && stat(q->o.imatrix, &b) == 0 &&
        a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s is the file of importances; name another", path);
    return PL_OK;
}

static pl_status write_part(struct quantizing *q, pl_file *file,
                            const char *path, int part, int n_part, pl_err *err)
{
    struct gguf_writer *w = NULL;
    pl_status s = gguf_writer_create(&w, err);

    if (s == PL_OK) {
        put_keys(q, w, part, n_part);
        put_tensors(q, w, part, n_part);
        s = gguf_writer_write(w, file, path, err);
    }
    gguf_writer_free(w);
    /* The writer was stopped by a failure of rows_fill. */
    return s == PL_CANCELLED ? rows_status(q->rows, err) : s;
}

static pl_status write_files(struct quantizing *q, const char *out, pl_err *err)
{
    const int n = q->o.keep_split ? gguf_n_part(q->g) : 1;
    pl_file **file = arena_alloc(&q->arena, (size_t)n, sizeof *file);
    char **path = arena_alloc(&q->arena, (size_t)n, sizeof *path);
    pl_status s = PL_OK;

    if (!file || !path)
        return err_no_memory(err, "the names of files");
    for (int i = 0; i < n && s == PL_OK; i++) {
        path[i] = part_path(q, out, i, n);
        s = path[i] ? check_path(q, path[i], err)
                    : err_no_memory(err, "the name of a file");
    }
    for (int i = 0; i < n && s == PL_OK; i++) {
        s = pl_file_open(&file[i], path[i], 0, err);
        if (s == PL_OK)
            s = write_part(q, file[i], path[i], i, n, err);
    }
    for (int i = 0; i < n && s == PL_OK; i++) {
        s = pl_file_commit(file[i], err);
        q->result.n_file += s == PL_OK;
    }
    for (int i = 0; i < n; i++)
        pl_file_close(file[i]);
    return s;
}

/* ---- public functions, declared in pl_quantize.h ------------------------- */

static pl_status quantize(struct quantizing *q, const char *in, const char *out,
                          pl_err *err)
{
    const pl_quantize_options *o = &q->o;
    int n_threads = o->n_threads;

    PL_NEED_ARRAY(o->tensor_types, o->n_tensor_types, err);
    PL_NEED_ARRAY(o->include, o->n_include, err);
    PL_NEED_ARRAY(o->exclude, o->n_exclude, err);
    PL_TRY(find_type(q, err));
    PL_TRY(gguf_open(&q->g, in, err));
    PL_TRY(open_imatrix(q, err));
    PL_TRY(plan(q, err));
    if (o->dry_run) {
        for (int64_t i = 0; i < q->n; i++)
            report(q, i);
        return PL_OK;
    }
    if (n_threads <= 0)
        n_threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    PL_TRY(rows_create(&q->rows, n_threads, o->progress, o->progress_user,
                       o->cancel, q->result.n_values, err));
    PL_TRY(write_files(q, out, err));
    if (o->progress)
        o->progress(o->progress_user, "quantizing", q->result.n_values,
                    q->result.n_values);
    return PL_OK;
}

pl_status pl_quantize(const char *in, const char *out,
                      const pl_quantize_options *o, pl_quantize_result *result,
                      size_t size, pl_err *err)
{
    struct quantizing q = {0};
    pl_status s;

    sized_write(result, size, &q.result, sizeof q.result);
    PL_NEED(in, err);
    PL_NEED(o, err);
    PL_TRY(sized_read(&q.o, sizeof q.o, o, "pl_quantize_options",
                      "call pl_quantize_init", err));
    if (!q.o.dry_run)
        PL_NEED(out, err);
    s = quantize(&q, in, out, err);
    if (s == PL_OK)
        sized_write(result, size, &q.result, sizeof q.result);
    rows_free(q.rows);
    imatrix_free(q.imatrix);
    gguf_close(q.g);
    arena_fini(&q.arena);
    return s;
}

const char *pl_quantize_type(const char *text)
{
    enum mix m;

    if (!text)
        return NULL;
    if (ascii_same(text, "COPY"))
        return "COPY";
    m = mix_find(text);
    return m < MIX_COUNT ? mix_name(m) : NULL;
}

void pl_quantize_types(pl_write_fn *each, void *user)
{
    for (int m = 0; m < MIX_COUNT && each; m++)
        each(user, mix_name((enum mix)m), strlen(mix_name((enum mix)m)));
    if (each)
        each(user, "COPY", 4);
}
