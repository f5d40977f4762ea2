/* The GGUF writer. Metadata is serialized when it is put. Tensors are listed,
 * and their data is written while saving. Their sizes follow from shape and
 * format. Data is in the order of the calls; each tensor starts at a multiple
 * of the alignment, and the end of the file is padded to one. */
#include "gguf/gguf_write.h"

#include "base/err.h"
#include "gguf/gguf_parse.h"
#include "quant/format.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 3, DEFAULT_ALIGNMENT = 32 };

/* A growing array of bytes. */
struct bytes {
    unsigned char *data; /* owned: `size` bytes, with space for `room` */
    size_t size, room;
};

struct item {
    /* Name of the key or tensor, owned by the arena. It is the first member,
     * because gguf_index finds the name there. */
    const char *name;
    uint32_t id; /* number of the format in GGUF files */
    int n_dim;
    int64_t dim[GGUF_MAX_DIM]; /* sizes of the dimensions, outermost first */
    size_t row_bytes;
    int64_t n_row;
    uint64_t offset; /* offset in bytes of the tensor's data from the start of
                        all data, set while saving */
    /* the tensor's data, borrowed until the file is saved; NULL if `fill` or
     * `hole` replaces it */
    const void *data;
    gguf_fill_fn *fill; /* called to generate each row of the data; NULL if not
                           used */
    void *user;
    bool hole; /* the data is a hole in the file, a range that was never written
                  and reads as zeros */
};

struct list {
    struct item *item; /* [n] keys or tensors, owned */
    size_t n, room;
};

struct gguf_writer {
    struct bytes kv; /* the metadata put so far, in the format of GGUF files */
    struct list key; /* the keys put so far; of their items only the names are
                        set */
    struct list tensor;
    size_t alignment;
    struct arena arena;
    pl_status status; /* status of the first call that failed, whose message is
                         in err */
    pl_err err;
};

pl_status gguf_writer_create(struct gguf_writer **out, pl_err *err)
{
    struct gguf_writer *w = calloc(1, sizeof *w);

    *out = w;
    if (!w)
        return err_no_memory(err, "a GGUF writer");
    w->alignment = DEFAULT_ALIGNMENT;
    return PL_OK;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (!w)
        return;
    free(w->kv.data);
    free(w->key.item);
    free(w->tensor.item);
    arena_fini(&w->arena);
    free(w);
}

/* Grows `array`, whose elements have `size` bytes each, so that it has space
 * for at least `need` elements. *room is the number of elements for which it
 * has space. Returns the array, or NULL after an error. */
static void *grown(struct gguf_writer *w, void *array, size_t *room,
                   size_t need, size_t size)
{
    size_t more = *room < 16 ? 16 : *room;
    void *p;

    if (need <= *room)
        return array;
    while (more < need && more <= SIZE_MAX / 2)
        more *= 2;
    p = more >= need && more <= SIZE_MAX / size ? realloc(array, more * size)
                                                : NULL;
    if (!p) {
        w->status = err_no_memory(&w->err, "a GGUF writer");
        return NULL;
    }
    *room = more;
    return p;
}

static void put_bytes(struct gguf_writer *w, const void *p, size_t n)
{
    struct bytes *b = &w->kv;
    unsigned char *data;

    if (w->status != PL_OK || n == 0)
        return;
    data = n <= SIZE_MAX - b->size ? grown(w, b->data, &b->room, b->size + n, 1)
                                   : NULL;
    if (!data)
        return;
    b->data = data;
    memcpy(b->data + b->size, p, n);
    b->size += n;
}

static void store(unsigned char *p, uint64_t v, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        p[i] = (unsigned char)(v >> 8 * i);
}

static void put_int(struct gguf_writer *w, uint64_t v, size_t n_bytes)
{
    unsigned char p[8];

    store(p, v, n_bytes);
    put_bytes(w, p, n_bytes);
}

static void put_chars(struct gguf_writer *w, const char *s, size_t len)
{
    put_int(w, len, 8);
    put_bytes(w, s, len);
}

/* Appends an item, which is a key or a tensor, with this name to the list.
 * Returns the item, or NULL after an error. */
static struct item *add(struct gguf_writer *w, struct list *list,
                        const char *name)
{
    size_t len = strlen(name);
    struct item *items;
    char shown[ERR_SHOWN];

    if (w->status != PL_OK)
        return NULL;
    if (len == 0 || len > GGUF_MAX_NAME) {
        w->status = err_set(&w->err, PL_BAD_ARGUMENT,
                            "%s: a name of %zu bytes, 1 to %d are allowed",
                            err_shown(shown, name, len), len, GGUF_MAX_NAME);
        return NULL;
    }
    items = grown(w, list->item, &list->room, list->n + 1, sizeof *items);
    if (!items)
        return NULL;
    list->item = items;
    items += list->n;
    memset(items, 0, sizeof *items);
    items->name = arena_strdup(&w->arena, name);
    if (!items->name) {
        w->status = err_no_memory(&w->err, "a GGUF writer");
        return NULL;
    }
    list->n++;
    return items;
}

static void put_key(struct gguf_writer *w, const char *key, enum gguf_type t)
{
    if (!add(w, &w->key, key))
        return;
    put_chars(w, key, strlen(key));
    put_int(w, t, 4);
}

/* If the key is general.alignment, stores its value as the alignment of the
 * file. Rejects values that the reader would reject. */
static void note_alignment(struct gguf_writer *w, const struct gguf_kv *kv)
{
    int64_t a;

    if (w->status != PL_OK || strcmp(kv->key, "general.alignment") != 0)
        return;
    if (kv->type == GGUF_ARRAY || !gguf_as_i64(kv, 0, &a) ||
        a < GGUF_MIN_ALIGNMENT || a > GGUF_MAX_ALIGNMENT || (a & (a - 1)))
        w->status = err_set(&w->err, PL_BAD_ARGUMENT,
                            "general.alignment: not a power of two from %d to "
                            "%d",
                            GGUF_MIN_ALIGNMENT, GGUF_MAX_ALIGNMENT);
    else
        w->alignment = (size_t)a;
}

void gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv)
{
    put_key(w, kv->key, kv->type);
    if (kv->type == GGUF_ARRAY) {
        put_int(w, kv->elem, 4);
        put_int(w, kv->count, 8);
    }
    if (kv->elem == GGUF_STRING)
        for (uint64_t i = 0; i < kv->count && w->status == PL_OK; i++)
            put_chars(w, kv->strs[i].s, kv->strs[i].len);
    else
        put_bytes(w, kv->data, kv->count * gguf_type_bytes(kv->elem));
    note_alignment(w, kv);
}

static void put_scalar(struct gguf_writer *w, const char *key, enum gguf_type t,
                       uint64_t bits)
{
    unsigned char data[8];

    store(data, bits, sizeof data);
    gguf_put_kv(w, &(struct gguf_kv){key, t, t, 1, data, NULL, false});
}

void gguf_put_u16(struct gguf_writer *w, const char *key, uint16_t v)
{
    put_scalar(w, key, GGUF_U16, v);
}

void gguf_put_i32(struct gguf_writer *w, const char *key, int32_t v)
{
    put_scalar(w, key, GGUF_I32, (uint32_t)v);
}

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v)
{
    put_scalar(w, key, GGUF_U32, v);
}

void gguf_put_i64(struct gguf_writer *w, const char *key, int64_t v)
{
    put_scalar(w, key, GGUF_I64, (uint64_t)v);
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    put_scalar(w, key, GGUF_F32, bits);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v)
{
    put_scalar(w, key, GGUF_BOOL, v);
}

void gguf_put_str(struct gguf_writer *w, const char *key, const char *v)
{
    struct gguf_str s = {v, strlen(v)};

    gguf_put_kv(w, &(struct gguf_kv){key, GGUF_STRING, GGUF_STRING, 1, NULL, &s,
                                     false});
}

void gguf_put_strs(struct gguf_writer *w, const char *key,
                   const struct gguf_str *v, uint64_t n)
{
    gguf_put_kv(
        w, &(struct gguf_kv){key, GGUF_ARRAY, GGUF_STRING, n, NULL, v, false});
}

void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type elem,
                    const void *v, uint64_t n)
{
    size_t bytes = gguf_type_bytes(elem);

    if (bytes == 0 || n > SIZE_MAX / bytes) {
        if (w->status == PL_OK)
            w->status =
                err_set(&w->err, PL_BAD_ARGUMENT,
                        "%s: an array of %llu %s; use a number type, "
                        "or gguf_put_strs",
                        key, (unsigned long long)n, gguf_type_name(elem));
        return;
    }
    put_key(w, key, GGUF_ARRAY);
    put_int(w, elem, 4);
    put_int(w, n, 8);
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
        put_bytes(w, v, n * bytes);
    else
        for (uint64_t i = 0; i < n * bytes; i++)
            put_bytes(w, (const char *)v + (i ^ (bytes - 1)), 1);
}

/* Computes the number of rows of a tensor and their size in bytes from its
 * shape and format. Returns false if the row is not whole blocks of the format
 * or the size overflows. */
static bool measure(struct item *t, pl_format format)
{
    const struct format_info *f = format_info(format);
    int64_t n_in = t->dim[t->n_dim - 1], bytes;

    t->n_row = 1;
    for (int i = 0; i < t->n_dim; i++)
        if (t->dim[i] <= 0 ||
            (i < t->n_dim - 1 &&
             __builtin_mul_overflow(t->n_row, t->dim[i], &t->n_row)))
            return false;
    if (n_in % f->block ||
        __builtin_mul_overflow(n_in / f->block, f->block_bytes, &bytes))
        return false;
    t->row_bytes = (size_t)bytes;
    return !__builtin_mul_overflow(bytes, t->n_row, &bytes);
}

static void put_tensor(struct gguf_writer *w, const char *name, pl_format f,
                       int n_dim, const int64_t *dim, const void *data,
                       gguf_fill_fn *fill, void *user, bool hole)
{
    static const uint32_t ids[PL_FORMAT_COUNT] = {
#define ID(name, id) [PL_##name] = id,
        PL_FORMAT_MAP(ID)
#undef ID
    };
    struct item *t = add(w, &w->tensor, name);

    if (!t)
        return;
    t->n_dim = n_dim;
    t->data = data;
    t->fill = fill;
    t->user = user;
    t->hole = hole;
    if (n_dim >= 1 && n_dim <= GGUF_MAX_DIM && (unsigned)f < PL_FORMAT_COUNT &&
        (data || fill || hole)) {
        t->id = ids[f];
        memcpy(t->dim, dim, (size_t)n_dim * sizeof *dim);
        if (measure(t, f))
            return;
    }
    w->status =
        err_set(&w->err, PL_BAD_ARGUMENT,
                "tensor %s: needs 1 to %d positive dimensions, rows of whole "
                "blocks, a pl_format, and data or a fill function",
                t->name, GGUF_MAX_DIM);
}

void gguf_put_tensor(struct gguf_writer *w, const char *name, pl_format f,
                     int n_dim, const int64_t *dim, const void *data)
{
    put_tensor(w, name, f, n_dim, dim, data, NULL, NULL, false);
}

void gguf_put_tensor_fill(struct gguf_writer *w, const char *name, pl_format f,
                          int n_dim, const int64_t *dim, gguf_fill_fn *fill,
                          void *user)
{
    put_tensor(w, name, f, n_dim, dim, NULL, fill, user, false);
}

void gguf_put_tensor_hole(struct gguf_writer *w, const char *name, pl_format f,
                          int n_dim, const int64_t *dim)
{
    put_tensor(w, name, f, n_dim, dim, NULL, NULL, NULL, true);
}

void gguf_put_tensor_like(struct gguf_writer *w, const struct gguf_tensor *from,
                          gguf_fill_fn *fill, void *user)
{
    struct item *t = add(w, &w->tensor, from->name);

    if (!t)
        return;
    t->id = from->id;
    t->n_dim = from->n_dim;
    memcpy(t->dim, from->dim, sizeof t->dim);
    t->n_row = 1;
    for (int i = 0; i < t->n_dim - 1; i++)
        t->n_row *= t->dim[i];
    t->row_bytes = from->bytes / (size_t)t->n_row;
    t->fill = fill;
    t->user = user;
}

/* ---- writing the file --------------------------------------------------- */

static pl_status check_unique(const struct list *list, const char *kind,
                              pl_err *err)
{
    struct arena a = {0};
    struct gguf_index x;
    pl_status s = PL_OK;

    if (!gguf_index_init(&x, &a, list->item, sizeof *list->item, list->n))
        s = err_no_memory(err, "a GGUF writer");
    for (size_t i = 0; i < list->n && s == PL_OK; i++)
        if (gguf_index_add(&x, i) >= 0)
            s = err_set(err, PL_BAD_ARGUMENT, "%s %s was added twice", kind,
                        list->item[i].name);
    arena_fini(&a);
    return s;
}

static uint64_t padding(uint64_t size, size_t alignment)
{
    return (alignment - size % alignment) % alignment;
}

/* Writes an integer of n_bytes bytes, little endian. The write_ functions
 * return no status, because the stream `f` records its first error. */
static void write_int(FILE *f, uint64_t v, size_t n_bytes)
{
    unsigned char p[8];

    store(p, v, n_bytes);
    fwrite(p, 1, n_bytes, f);
}

static void write_zeros(FILE *f, uint64_t n)
{
    while (n-- > 0)
        putc(0, f);
}

static void write_info(FILE *f, const struct item *t)
{
    size_t len = strlen(t->name);

    write_int(f, len, 8);
    fwrite(t->name, 1, len, f);
    write_int(f, (uint64_t)t->n_dim, 4);
    for (int i = t->n_dim - 1; i >= 0; i--)
        write_int(f, (uint64_t)t->dim[i], 8);
    write_int(f, t->id, 4);
    write_int(f, t->offset, 8);
}

static pl_status write_data(FILE *f, const struct item *t, size_t alignment,
                            pl_err *err)
{
    uint64_t bytes = t->row_bytes * (uint64_t)t->n_row;

    if (t->data) {
        fwrite(t->data, 1, bytes, f);
        /* A hole is made by seeking. Its last byte is written, because seeking
     * alone would not extend the file. */
    } else if (t->hole) {
        if (bytes > INT64_MAX || fseeko(f, (off_t)bytes - 1, SEEK_CUR) != 0)
            return err_set(err, PL_IO, "tensor %s: too large", t->name);
        putc(0, f);
    } else {
        void *row = malloc(t->row_bytes);
        bool goes_on = true;

        if (!row)
            return err_no_memory(err, "a row of a tensor");
        for (int64_t i = 0; i < t->n_row && goes_on && !ferror(f); i++) {
            goes_on = t->fill(t->user, i, row, t->row_bytes);
            fwrite(row, 1, t->row_bytes, f);
        }
        free(row);
        if (!goes_on)
            return err_set(err, PL_CANCELLED, "tensor %s: writing was stopped",
                           t->name);
    }
    write_zeros(f, padding(bytes, alignment));
    return PL_OK;
}

static pl_status write_all(struct gguf_writer *w, FILE *f, pl_err *err)
{
    uint64_t offset = 0, bytes;
    long end;

    fwrite("GGUF", 1, 4, f);
    write_int(f, VERSION, 4);
    write_int(f, w->tensor.n, 8);
    write_int(f, w->key.n, 8);
    fwrite(w->kv.data ? w->kv.data : (const void *)"", 1, w->kv.size, f);
    for (size_t i = 0; i < w->tensor.n; i++) {
        struct item *t = &w->tensor.item[i];

        bytes = t->row_bytes * (uint64_t)t->n_row;
        t->offset = offset;
        if (__builtin_add_overflow(offset, bytes + w->alignment, &offset))
            return err_set(err, PL_BAD_ARGUMENT, "tensor %s: too large",
                           t->name);
        offset = t->offset + bytes + padding(bytes, w->alignment);
        write_info(f, t);
    }
    if (w->tensor.n == 0)
        return PL_OK;
    end = ftell(f);
    if (end >= 0)
        write_zeros(f, padding((uint64_t)end, w->alignment));
    for (size_t i = 0; i < w->tensor.n; i++)
        PL_TRY(write_data(f, &w->tensor.item[i], w->alignment, err));
    return PL_OK;
}

/* Returns the writer's first failure, `path` before it, or that of a name that
 * was added twice. */
static pl_status check(const struct gguf_writer *w, const char *path,
                       pl_err *err)
{
    if (w->status != PL_OK)
        return err_set(err, w->status, "%s: %s", path, w->err.message);
    PL_TRY(check_unique(&w->key, "key", err));
    return check_unique(&w->tensor, "tensor", err);
}

pl_status gguf_writer_bytes(struct gguf_writer *w, char **out, size_t *size,
                            pl_err *err)
{
    pl_status s = check(w, "memory", err);
    FILE *f = NULL;
    bool whole;

    *out = NULL;
    if (s != PL_OK)
        return s;
    f = open_memstream(out, size);
    if (!f)
        return err_no_memory(err, "a GGUF writer");
    s = write_all(w, f, err);
    whole = !ferror(f);
    if ((fclose(f) != 0 || !whole) && s == PL_OK)
        s = err_no_memory(err, "a GGUF writer");
    if (s != PL_OK) {
        free(*out);
        *out = NULL;
    }
    return s;
}

pl_status gguf_writer_write(struct gguf_writer *w, pl_file *file,
                            const char *path, pl_err *err)
{
    FILE *f = NULL;
    pl_status s = check(w, path, err);
    int fd;

    if (s != PL_OK)
        return s;
    /* A duplicate of the descriptor, because fclose(f) closes it. */
    fd = fcntl(pl_file_fd(file), F_DUPFD_CLOEXEC, 0);
    f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    s = f ? write_all(w, f, err) : err_no_memory(err, "writing a file");
    if (f && s == PL_OK && (fflush(f) != 0 || ferror(f)))
        s = err_set(
            err, PL_IO,
            "%s: writing failed: %s; check the directory and its free space",
            path, strerror(errno));
    if (f)
        fclose(f);
    else if (fd >= 0)
        close(fd);
    return s;
}

pl_status gguf_writer_save(struct gguf_writer *w, const char *path, pl_err *err)
{
    pl_file *file;
    pl_status s;

    PL_TRY(pl_file_open(&file, path, 0, err));
    s = gguf_writer_write(w, file, path, err);
    if (s == PL_OK)
        s = pl_file_commit(file, err);
    pl_file_close(file);
    return s;
}
