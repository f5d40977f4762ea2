/* Implements imatrix.h. */
#include "quantize/imatrix.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"
#include "gguf/gguf.h"
#include "gguf/gguf_index.h"

/* Limits of a file. The largest model so far has about 2000 matrices in an
 * imatrix file, as all experts of a layer share one entry. */
enum { MAX_ENTRY = 1 << 17, MAX_NAME = 4096 };

struct imatrix {
    struct imatrix_entry *entry; /* [n] */
    int64_t n;
    const char *dataset;
    int64_t chunks;
    struct arena arena;
    struct gguf_index index;
};

/* ---- the binary form ----------------------------------------------------- */

struct reader {
    const unsigned char *data;
    size_t size, at;
    const char *name; /* of the file */
};

static pl_status bad(const struct reader *r, const char *what, pl_err *err)
{
    return err_set(err, PL_BAD_FILE,
                   "%s: offset %zu: %s; the file is damaged or no importance "
                   "matrix, make it again with llama-imatrix",
                   r->name, r->at, what);
}

static pl_status read_i32(struct reader *r, int32_t lo, int32_t hi,
                          const char *what, int32_t *out, pl_err *err)
{
    char text[100];

    if (r->size - r->at < 4)
        return bad(r, "the file ends", err);
    memcpy(out, r->data + r->at, 4);
    if (*out < lo || *out > hi) {
        snprintf(text, sizeof text, "%s is %d, expected %d to %d", what, *out,
                 lo, hi);
        return bad(r, text, err);
    }
    r->at += 4;
    return PL_OK;
}

static pl_status read_text(struct reader *r, struct arena *a, int32_t least,
                           const char **out, pl_err *err)
{
    char *text;
    int32_t len;

    PL_TRY(read_i32(r, least, MAX_NAME, "the length of a name", &len, err));
    if (r->size - r->at < (size_t)len)
        return bad(r, "a name goes beyond the end", err);
    if (memchr(r->data + r->at, 0, (size_t)len))
        return bad(r, "a name has a zero byte", err);
    text = arena_strndup(a, (const char *)r->data + r->at, (size_t)len);
    if (!text)
        return err_no_memory(err, "an importance matrix");
    r->at += (size_t)len;
    *out = text;
    return PL_OK;
}

static pl_status read_entry(struct imatrix *m, struct reader *r, int64_t i,
                            pl_err *err)
{
    struct imatrix_entry *e = &m->entry[i];
    int32_t n_call, n;

    PL_TRY(read_text(r, &m->arena, 1, &e->name, err));
    PL_TRY(read_i32(r, 0, INT32_MAX, "the number of calls", &n_call, err));
    PL_TRY(read_i32(r, 1, INT32_MAX, "the number of values", &n, err));
    if ((r->size - r->at) / sizeof(float) < (size_t)n)
        return bad(r, "the values of a matrix go beyond the end", err);
    e->n = n;
    e->value =
        arena_memdup(&m->arena, r->data + r->at, (size_t)n, sizeof(float));
    if (!e->value)
        return err_no_memory(err, "an importance matrix");
    for (int32_t k = 0; k < n; k++)
        if (n_call > 0)
            e->value[k] /= (float)n_call;
    r->at += (size_t)n * sizeof(float);
    return PL_OK;
}

/* Creates the list for n entries. */
static pl_status make_room(struct imatrix *m, int64_t n, pl_err *err)
{
    m->entry = arena_alloc(&m->arena, (size_t)n, sizeof *m->entry);
    if (!m->entry || !gguf_index_init(&m->index, &m->arena, m->entry,
                                      sizeof *m->entry, (uint64_t)n))
        return err_no_memory(err, "an importance matrix");
    return PL_OK;
}

/* Adds entry m->n, whose fields are set, after it checked its values. */
static pl_status add(struct imatrix *m, const char *file, pl_err *err)
{
    struct imatrix_entry *e = &m->entry[m->n];
    char shown[ERR_SHOWN];

    err_shown(shown, e->name, strlen(e->name));
    for (int64_t i = 0; i < e->n; i++)
        if (!isfinite(e->value[i]) || e->value[i] < 0)
            return err_set(err, PL_BAD_FILE,
                           "%s: %s: importance %lld is %g, not a number of 0 "
                           "or more; make the file again",
                           file, shown, (long long)i, (double)e->value[i]);
    if (gguf_index_add(&m->index, (uint64_t)m->n) >= 0)
        return err_set(err, PL_BAD_FILE,
                       "%s: %s is there twice; make the file again", file,
                       shown);
    m->n++;
    return PL_OK;
}

static pl_status read_binary(struct imatrix *m, struct reader *r, pl_err *err)
{
    int32_t n, chunks;

    PL_TRY(read_i32(r, 1, MAX_ENTRY, "the number of matrices", &n, err));
    /* an entry has at least 17 bytes */
    if ((r->size - r->at) / 17 < (size_t)n)
        return bad(r, "more matrices than the file has room for", err);
    PL_TRY(make_room(m, n, err));
    for (int32_t i = 0; i < n; i++) {
        PL_TRY(read_entry(m, r, i, err));
        PL_TRY(add(m, r->name, err));
    }
    if (r->at == r->size) /* files of early versions end here */
        return PL_OK;
    PL_TRY(read_i32(r, 0, INT32_MAX, "the number of chunks", &chunks, err));
    m->chunks = chunks;
    PL_TRY(read_text(r, &m->arena, 0, &m->dataset, err));
    return r->at == r->size ? PL_OK : bad(r, "bytes after the end", err);
}

/* ---- the GGUF form ------------------------------------------------------- */

static const char SUMS[] = ".in_sum2", COUNTS[] = ".counts";

static bool is_floats(const struct gguf_tensor *t)
{
    return t->format == PL_F32;
}

static int64_t elements(const struct gguf_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dim[i]; /* the reader has checked that they fit */
    return n;
}

/* Sets entry m->n to the sums `t` of a matrix divided by their counts. */
static pl_status read_sums(struct imatrix *m, const struct gguf *g,
                           const struct gguf_tensor *t, pl_err *err)
{
    struct imatrix_entry *e = &m->entry[m->n];
    size_t len = strlen(t->name) - (sizeof SUMS - 1);
    const struct gguf_tensor *counts;
    char *name = arena_alloc(&m->arena, 1, len + sizeof COUNTS);
    char shown[ERR_SHOWN];
    float *count;
    int64_t n, per;

    if (!name)
        return err_no_memory(err, "an importance matrix");
    memcpy(name, t->name, len);
    memcpy(name + len, COUNTS, sizeof COUNTS);
    counts = gguf_find_tensor(g, name);
    err_shown(shown, t->name, strlen(t->name));
    if (len == 0 || !counts || !is_floats(t) || !is_floats(counts) ||
        elements(t) % elements(counts) != 0)
        return err_set(err, PL_BAD_FILE,
                       "%s: %s: needs F32 sums, and F32 counts for each "
                       "expert in a tensor with %s; make the file again",
                       gguf_path(g), shown, COUNTS);
    n = elements(counts);
    per = elements(t) / n;
    name[len] = '\0';
    e->name = name;
    e->n = n * per;
    e->value = arena_alloc(&m->arena, (size_t)e->n, sizeof *e->value);
    count = arena_alloc(&m->arena, (size_t)n, sizeof *count);
    if (!e->value || !count)
        return err_no_memory(err, "an importance matrix");
    PL_TRY(gguf_read(g, t, 0, e->value, t->bytes, err));
    PL_TRY(gguf_read(g, counts, 0, count, counts->bytes, err));
    for (int64_t x = 0; x < n; x++)
        for (int64_t i = 0; i < per; i++) {
            float *v = &e->value[x * per + i];

            *v = count[x] > 0 ? *v / count[x] : isfinite(*v) ? 1 : *v;
        }
    return PL_OK;
}

static pl_status read_keys(struct imatrix *m, const struct gguf *g, pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(g, "imatrix.datasets");
    struct gguf_str s;

    if (kv && gguf_as_str(kv, 0, &s) && !memchr(s.s, 0, s.len)) {
        m->dataset = arena_strndup(&m->arena, s.s, s.len);
        if (!m->dataset)
            return err_no_memory(err, "an importance matrix");
    }
    return gguf_get_i64(g, "imatrix.chunk_count", 0, 0, UINT32_MAX, &m->chunks,
                        err);
}

static bool is_sums(const struct gguf_tensor *t)
{
    size_t len = strlen(t->name);

    return len >= sizeof SUMS - 1 &&
           strcmp(t->name + len - (sizeof SUMS - 1), SUMS) == 0;
}

static pl_status read_gguf(struct imatrix *m, const struct gguf *g, pl_err *err)
{
    int64_t n = 0;

    for (int64_t i = 0; i < gguf_n_tensor(g); i++)
        n += is_sums(gguf_tensor_at(g, i));
    if (n == 0)
        return err_set(err, PL_BAD_FILE,
                       "%s: no tensor of importances (%s); name a file that "
                       "llama-imatrix has written",
                       gguf_path(g), SUMS);
    PL_TRY(make_room(m, n, err));
    for (int64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        if (!is_sums(t))
            continue;
        PL_TRY(read_sums(m, g, t, err));
        PL_TRY(add(m, gguf_path(g), err));
    }
    return read_keys(m, g, err);
}

/* ---- both ---------------------------------------------------------------- */

static pl_status create(struct imatrix **out, pl_err *err)
{
    *out = calloc(1, sizeof **out);
    return *out ? PL_OK : err_no_memory(err, "an importance matrix");
}

static bool is_gguf(const void *data, size_t size)
{
    return size >= 4 && memcmp(data, "GGUF", 4) == 0;
}

pl_status imatrix_read(struct imatrix **out, const void *data, size_t size,
                       const char *name, pl_err *err)
{
    struct reader r = {data, size, 0, name};
    struct imatrix *m = NULL;
    struct gguf *g = NULL;
    pl_status s;

    *out = NULL;
    PL_TRY(create(&m, err));
    if (is_gguf(data, size)) {
        s = gguf_open_memory(&g, data, size, name, err);
        if (s == PL_OK)
            s = read_gguf(m, g, err);
        gguf_close(g);
    } else {
        s = read_binary(m, &r, err);
    }
    if (s == PL_OK)
        *out = m;
    else
        imatrix_free(m);
    return s;
}

/* Reads all of a file into memory, which the caller frees. */
static pl_status load(const char *path, void **data, size_t *size, pl_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t got = 0;

    *data = NULL;
    *size = 0;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        pl_status s =
            err_set(err, fd < 0 && errno == ENOENT ? PL_NOT_FOUND : PL_IO,
                    "%s: cannot be read: %s; name a file of "
                    "importances",
                    path, fd < 0 ? strerror(errno) : "not a plain file");

        if (fd >= 0)
            close(fd);
        return s;
    }
    *data = malloc((size_t)st.st_size + 1);
    while (*data && *size < (size_t)st.st_size) {
        got = read(fd, (char *)*data + *size, (size_t)st.st_size - *size);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        *size += (size_t)got;
    }
    close(fd);
    if (!*data)
        return err_no_memory(err, "an importance matrix");
    return got < 0 ? err_set(err, PL_IO, "%s: reading it: %s; check the disk",
                             path, strerror(errno))
                   : PL_OK;
}

pl_status imatrix_open(struct imatrix **out, const char *path, pl_err *err)
{
    void *data;
    size_t size;
    pl_status s;

    *out = NULL;
    s = load(path, &data, &size, err);
    if (s == PL_OK)
        s = imatrix_read(out, data, size, path, err);
    free(data);
    return s;
}

void imatrix_free(struct imatrix *m)
{
    if (!m)
        return;
    arena_fini(&m->arena);
    free(m);
}

int64_t imatrix_count(const struct imatrix *m)
{
    return m->n;
}

const struct imatrix_entry *imatrix_at(const struct imatrix *m, int64_t i)
{
    return &m->entry[i];
}

const struct imatrix_entry *imatrix_find(const struct imatrix *m,
                                         const char *name)
{
    int64_t i = gguf_index_find(&m->index, name);

    return i < 0 ? NULL : &m->entry[i];
}

const char *imatrix_dataset(const struct imatrix *m)
{
    return m->dataset;
}

int64_t imatrix_chunks(const struct imatrix *m)
{
    return m->chunks;
}
