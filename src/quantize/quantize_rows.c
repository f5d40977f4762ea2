/* Implements quantize_rows.h. */
#include "quantize/quantize_rows.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "quant/format.h"
#include "quant/search.h"

/* A batch has at most this many values for each of at most MOST threads. */
enum { BATCH_VALUES = 1 << 20, MOST = 16, SUMS = 4 };

/* The least importance, of a mean of 1. Columns that the text never used still
 * get values of the right size. */
static const float LEAST = 1e-4f;

/* The buffers of one thread, all of n_in values. */
struct buffers {
    float *x, *y;
};

struct rows {
    int n_thread;
    pl_progress_fn *progress;
    void *user;
    const volatile int *cancel;
    uint64_t done, total;
    pl_status status;
    pl_err err;

    /* The current batch: rows first .. first + n - 1 of a tensor. */
    const struct rows_job *job;
    int64_t first, n, n_in;
    size_t from_bytes, to_bytes; /* of a row */
    unsigned char *from, *to;
    size_t from_room, to_room;
    double *sums; /* [n * SUMS] */
    size_t sums_room;
    float *values; /* [n_thread * 2 * n_in] the threads' buffers */
    size_t values_room;
    float *importance; /* [n_in * matrices] normalized */
    size_t importance_room;
    bool weighted;     /* `importance` is in use */
    atomic_llong next; /* first row of the batch that no thread has taken */
    atomic_llong bad;  /* least row with a value that the format cannot have */
};

pl_status rows_create(struct rows **out, int n_threads,
                      pl_progress_fn *progress, void *user,
                      const volatile int *cancel, uint64_t total, pl_err *err)
{
    struct rows *r = calloc(1, sizeof *r);

    *out = r;
    if (!r)
        return err_no_memory(err, "quantizing rows");
    r->n_thread = n_threads > 1 ? n_threads : 1;
    r->progress = progress;
    r->user = user;
    r->cancel = cancel;
    r->total = total;
    return PL_OK;
}

void rows_free(struct rows *r)
{
    if (!r)
        return;
    free(r->from);
    free(r->to);
    free(r->sums);
    free(r->values);
    free(r->importance);
    free(r);
}

pl_status rows_status(const struct rows *r, pl_err *err)
{
    return r->status == PL_OK ? PL_OK
                              : err_set(err, r->status, "%s", r->err.message);
}

/* Grows a buffer to `bytes`. Its contents are lost. Returns false if out of
 * memory. */
static bool grow(void **buffer, size_t *room, size_t bytes)
{
    if (bytes <= *room)
        return true;
    free(*buffer);
    *buffer = malloc(bytes);
    *room = *buffer ? bytes : 0;
    return *buffer != NULL;
}

static bool reserve(struct rows *r)
{
    size_t n = (size_t)r->n, in = (size_t)r->n_in;

    return grow((void **)&r->from, &r->from_room, n * r->from_bytes) &&
           grow((void **)&r->to, &r->to_room, n * r->to_bytes) &&
           grow((void **)&r->sums, &r->sums_room, n * SUMS * sizeof *r->sums) &&
           grow((void **)&r->values, &r->values_room,
                (size_t)r->n_thread * 2 * in * sizeof *r->values);
}

/* ---- importances --------------------------------------------------------- */

/* Divides the importances of each matrix by their mean. */
static bool normalize(struct rows *r, const struct rows_job *job, int64_t n)
{
    const int64_t n_in = r->n_in;

    r->weighted = job->importance != NULL;
    if (!r->weighted)
        return true;
    if (!grow((void **)&r->importance, &r->importance_room,
              (size_t)(n * n_in) * sizeof *r->importance))
        return false;
    for (int64_t m = 0; m < n; m++) {
        const float *from = job->importance + m * n_in;
        float *to = r->importance + m * n_in;
        double mean = 0;

        for (int64_t i = 0; i < n_in; i++)
            mean += (double)from[i];
        mean /= (double)n_in;
        for (int64_t i = 0; i < n_in; i++) {
            to[i] = mean > 0 ? (float)((double)from[i] / mean) : 1;
            to[i] = to[i] < LEAST ? LEAST : to[i];
        }
    }
    return true;
}

/* ---- one row ------------------------------------------------------------- */

/* Returns true if the format can have these values. Formats of floats can have
 * any, but F16 overflows. */
static bool fits(pl_format f, const float *x, int64_t n)
{
    if (f == PL_F32 || f == PL_BF16)
        return true;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= QUANT_SEARCH_MOST) &&
            (f != PL_F16 || isfinite(x[i])))
            return false;
    return true;
}

static void measure(const struct rows *r, const struct buffers *b,
                    const float *importance, double *sum)
{
    for (int k = 0; k < SUMS; k++)
        sum[k] = 0;
    for (int64_t i = 0; i < r->n_in; i++) {
        double e = (double)b->x[i] - (double)b->y[i], x = (double)b->x[i];
        double w = importance ? (double)importance[i] : 1;

        sum[0] += e * e;
        sum[1] += x * x;
        sum[2] += w * e * e;
        sum[3] += w * x * x;
    }
}

static void convert(struct rows *r, const struct buffers *b, int64_t i)
{
    const struct rows_job *job = r->job;
    const struct gguf_tensor *t = job->t;
    const int64_t per = t->n_dim > 1 ? t->dim[t->n_dim - 2] : 1;
    const int64_t matrix = (r->first + i) / per;
    const float *importance =
        r->weighted ? r->importance + matrix * r->n_in : NULL;
    unsigned char *to = r->to + (size_t)i * r->to_bytes;

    format_info(t->format)->decode(b->x, r->from + (size_t)i * r->from_bytes,
                                   r->n_in);
    if (!fits(job->to, b->x, r->n_in)) {
        long long bad = atomic_load(&r->bad);

        while (i < bad && !atomic_compare_exchange_weak(&r->bad, &bad, i))
            continue;
        return;
    }
    if (job->no_search)
        quant_round(job->to, to, b->x, r->n_in);
    else
        quant_search(job->to, to, b->x, importance, r->n_in);
    if (!job->errors)
        return;
    format_info(job->to)->decode(b->y, to, r->n_in);
    measure(r, b, importance, r->sums + i * SUMS);
}

/* ---- a batch on threads -------------------------------------------------- */

struct worker {
    struct rows *r;
    struct buffers b;
    pthread_t thread;
};

static void *work(void *user)
{
    const struct worker *w = user;
    const int64_t chunk = w->r->n_in < 8192 ? 8192 / w->r->n_in : 1;

    for (;;) {
        int64_t i = atomic_fetch_add(&w->r->next, chunk);
        int64_t end = i + chunk < w->r->n ? i + chunk : w->r->n;

        if (i >= end)
            return NULL;
        for (; i < end; i++)
            convert(w->r, &w->b, i);
    }
}

/* Converts the batch. A thread that cannot be started is done without. */
static pl_status run(struct rows *r, pl_err *err)
{
    struct worker *w = calloc((size_t)r->n_thread, sizeof *w);
    int started = 1;

    if (!w)
        return err_no_memory(err, "threads");
    atomic_store(&r->next, 0);
    atomic_store(&r->bad, INT64_MAX);
    for (int i = 0; i < r->n_thread; i++) {
        float *x = r->values + (int64_t)i * 2 * r->n_in;

        w[i] = (struct worker){.r = r, .b = {x, x + r->n_in}};
    }
    while (started < r->n_thread &&
           pthread_create(&w[started].thread, NULL, work, &w[started]) == 0)
        started++;
    work(&w[0]);
    for (int i = 1; i < started; i++)
        pthread_join(w[i].thread, NULL);
    free(w);
    return PL_OK;
}

/* Reports a row with a value that the format cannot have. */
static pl_status unfit(struct rows *r, int64_t i, pl_err *err)
{
    const struct gguf_tensor *t = r->job->t;
    char name[ERR_SHOWN];
    float *x = r->values;
    int64_t k = 0;

    format_info(t->format)->decode(x, r->from + (size_t)i * r->from_bytes,
                                   r->n_in);
    while (k < r->n_in - 1 && fits(r->job->to, x + k, 1))
        k++;
    return err_set(err, PL_BAD_FILE,
                   "%s: row %lld, column %lld is %g, and %s has only finite "
                   "values up to %g; convert the model again, or choose BF16",
                   err_shown(name, t->name, strlen(t->name)),
                   (long long)(r->first + i), (long long)k, (double)x[k],
                   format_info(r->job->to)->name, (double)QUANT_SEARCH_MOST);
}

static int64_t rows_of(const struct gguf_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dim - 1; i++)
        n *= t->dim[i];
    return n;
}

/* Begins a tensor: sizes of rows, importances. */
static pl_status begin(struct rows *r, const struct rows_job *job, pl_err *err)
{
    const struct gguf_tensor *t = job->t;
    const int64_t n_row = rows_of(t);

    r->job = job;
    r->n = 0;
    r->n_in = t->dim[t->n_dim - 1];
    r->from_bytes = t->bytes / (size_t)n_row;
    r->to_bytes =
        job->copy ? r->from_bytes : format_row_bytes(job->to, r->n_in);
    if (!normalize(r, job, t->n_dim > 1 ? n_row / t->dim[t->n_dim - 2] : 1))
        return err_no_memory(err, "importances");
    return PL_OK;
}

/* Reads and converts the batch that begins with row `first`. */
static pl_status next_batch(struct rows *r, struct rows_job *job, int64_t first,
                            pl_err *err)
{
    const int64_t left = rows_of(job->t) - first;
    const int64_t most =
        (int64_t)BATCH_VALUES * (r->n_thread < MOST ? r->n_thread : MOST);

    PL_TRY(err_cancelled(r->cancel, err));
    r->done += (uint64_t)(r->n * r->n_in);
    if (r->progress)
        r->progress(r->user, "quantizing", r->done, r->total);
    r->first = first;
    r->n = most / r->n_in > 1 ? most / r->n_in : 1;
    r->n = r->n < left ? r->n : left;
    if (!reserve(r))
        return err_no_memory(err, "rows of a tensor");
    PL_TRY(gguf_read(job->g, job->t, (size_t)first * r->from_bytes,
                     job->copy ? r->to : r->from, (size_t)r->n * r->from_bytes,
                     err));
    if (job->copy)
        return PL_OK;
    PL_TRY(run(r, err));
    if (atomic_load(&r->bad) < r->n)
        return unfit(r, atomic_load(&r->bad), err);
    for (int64_t i = 0; i < r->n && job->errors; i++)
        for (int k = 0; k < SUMS; k++)
            job->sum[k] += r->sums[i * SUMS + k];
    return PL_OK;
}

bool rows_fill(void *user, int64_t row, void *dst, size_t bytes)
{
    struct rows_job *job = user;
    struct rows *r = job->rows;

    if (r->status == PL_OK && row == 0) {
        r->done += r->job ? (uint64_t)(r->n * r->n_in) : 0;
        r->status = begin(r, job, &r->err);
    }
    if (r->status == PL_OK && (row == 0 || row == r->first + r->n))
        r->status = next_batch(r, job, row, &r->err);
    if (r->status != PL_OK)
        return false;
    memcpy(dst, r->to + (size_t)(row - r->first) * r->to_bytes, bytes);
    if (row == rows_of(job->t) - 1 && job->done)
        r->status = job->done(job, &r->err);
    return r->status == PL_OK;
}
