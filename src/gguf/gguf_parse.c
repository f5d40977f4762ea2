/* The GGUF parser: one file's header, metadata and tensor list.
 *
 *   "GGUF"  u32 version  u64 n_tensor  u64 n_kv
 *   n_kv     times:  string key, u32 type, value
 *   n_tensor times:  string name, u32 n_dim, u64 dim[n_dim] innermost first,
 *                    u32 type id, u64 offset from the start of the data
 *   padding to the alignment, then the data
 *
 * string = u64 length, bytes; array = u32 element type, u64 count, elements.
 *
 * Every count is compared with the remaining bytes before memory is allocated
 * for it. An element of a string array takes 16 bytes here and at least 8 in
 * the file. Names are copied once. All other allocations are at most about
 * 121 bytes for each key and 200 for each tensor, 34 MB for the limits in
 * gguf_parse.h.
 * So no file makes the reader allocate more than twice its size + 64 MiB,
 * besides the copy of the parsed bytes.
 *
 * Source: the GGUF specification (ggml, docs/gguf.md), versions 2 and 3. */
#include "gguf/gguf_parse.h"

#include "base/err.h"
#include "base/numeral.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAMAGED "the file is damaged or truncated: copy or convert it again"
#define REMAKE  "convert the model again with a current converter"

enum {
    HEADER_BYTES = 24,
    MIN_KV_BYTES = 8 + 1 + 4 + 1,
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8,
    DEFAULT_ALIGNMENT = 32,
};

/* State of the parser: the key or tensor that is being parsed, which errors
 * name. */
struct reader {
    struct gguf_part *part;
    const char *kind; /* word for the thing being parsed, for errors: "key" or
                         "tensor" */
    uint64_t i;       /* index of this key or tensor in the file, from 0 */
    const char *name; /* its name; NULL until the name has been parsed */
    pl_err *err;
};

/* Sets the error "FILE: byte 123: tensor 7 (blk.0.attn_q.weight): MESSAGE" and
 * returns its status. */
static pl_status __attribute__((format(printf, 4, 5)))
refuse(const struct reader *r, pl_status s, uint64_t at, const char *fmt, ...)
{
    char text[512], name[ERR_SHOWN] = "name not read yet";
    va_list ap;

    va_start(ap, fmt);
    numeral_vprint(text, sizeof text, fmt, ap);
    va_end(ap);
    if (r->name)
        err_shown(name, r->name, strlen(r->name));
    return err_set(r->err, s, "%s: byte %llu: %s %llu (%s): %s", r->part->label,
                   (unsigned long long)at, r->kind, (unsigned long long)r->i,
                   name, text);
}

size_t gguf_type_bytes(enum gguf_type t)
{
    static const unsigned char bytes[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2, [GGUF_I16] = 2,
        [GGUF_U32] = 4, [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };

    return (unsigned)t < GGUF_TYPE_COUNT ? bytes[t] : 0;
}

uint64_t gguf_load(const unsigned char *p, size_t n_bytes)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n_bytes; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* Checks that `n` more items of `bytes` bytes each follow in the file, and
 * copies these bytes to private memory (gguf_part_copy). Called before the
 * items are parsed and before memory is allocated for them. */
static pl_status need(const struct reader *r, uint64_t n, uint64_t bytes,
                      const char *what)
{
    uint64_t left = r->part->size - r->part->at;

    if (n <= left / bytes)
        return gguf_part_copy(r->part, r->part->at + n * bytes, r->err);
    return refuse(
        r, PL_BAD_FILE, r->part->at,
        "%s: needs %llu x %llu bytes, but %llu are left in the file; %s", what,
        (unsigned long long)n, (unsigned long long)bytes,
        (unsigned long long)left, DAMAGED);
}

static pl_status read_int(const struct reader *r, size_t n_bytes,
                          const char *what, uint64_t *out)
{
    PL_TRY(need(r, 1, n_bytes, what));
    *out = gguf_load(r->part->base + r->part->at, n_bytes);
    r->part->at += n_bytes;
    return PL_OK;
}

static pl_status read_str(const struct reader *r, const char *what,
                          struct gguf_str *out)
{
    uint64_t len;

    PL_TRY(read_int(r, 8, what, &len));
    PL_TRY(need(r, len, 1, what));
    out->s = (const char *)r->part->base + r->part->at;
    out->len = len;
    r->part->at += len;
    return PL_OK;
}

/* Reads the name of a key or tensor into *out, copied and NUL-terminated. */
static pl_status read_name(struct reader *r, struct arena *a, const char **out)
{
    size_t at = r->part->at;
    struct gguf_str name;
    char *copy;

    PL_TRY(read_str(r, "its name", &name));
    if (name.len == 0 || name.len > GGUF_MAX_NAME)
        return refuse(r, PL_BAD_FILE, at,
                      "a name of %zu bytes, 1 to %d are allowed; %s", name.len,
                      GGUF_MAX_NAME, DAMAGED);
    if (memchr(name.s, 0, name.len))
        return refuse(r, PL_BAD_FILE, at, "a zero byte in its name; %s",
                      DAMAGED);
    copy = arena_strndup(a, name.s, name.len);
    if (!copy)
        return err_no_memory(r->err, "a name in a GGUF file");
    r->name = *out = copy;
    return PL_OK;
}

pl_status gguf_parse_header(struct gguf_part *p, pl_err *err)
{
    uint64_t left, version;

    if (p->size < HEADER_BYTES)
        return err_set(err, PL_BAD_FILE,
                       "%s: byte 0: %zu bytes, a GGUF header has %d; %s",
                       p->label, p->size, HEADER_BYTES, DAMAGED);
    PL_TRY(gguf_part_copy(p, HEADER_BYTES, err));
    if (memcmp(p->base, "GGUF", 4) != 0)
        return err_set(err, PL_BAD_FILE,
                       "%s: byte 0: not a GGUF file: it starts with "
                       "%02x %02x %02x %02x instead of \"GGUF\"; give a .gguf "
                       "file, or convert the model to one",
                       p->label, p->base[0], p->base[1], p->base[2],
                       p->base[3]);
    version = gguf_load(p->base + 4, 4);
    if (version != 0 && (version & 0xffff) == 0)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: byte 4: version 0x%08llx: the file is big-endian; "
                       "convert it to little endian",
                       p->label, (unsigned long long)version);
    if (version != 2 && version != 3)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: byte 4: GGUF version %llu, 2 and 3 are supported; "
                       "%s",
                       p->label, (unsigned long long)version, REMAKE);
    p->version = (uint32_t)version;
    p->n_tensor = gguf_load(p->base + 8, 8);
    p->n_kv = gguf_load(p->base + 16, 8);
    p->at = HEADER_BYTES;
    left = p->size - HEADER_BYTES;
    if (p->n_kv > left / MIN_KV_BYTES)
        return err_set(err, PL_BAD_FILE,
                       "%s: byte 16: %llu keys announced, more than %llu bytes "
                       "can hold; %s",
                       p->label, (unsigned long long)p->n_kv,
                       (unsigned long long)left, DAMAGED);
    if (p->n_tensor > left / MIN_TENSOR_BYTES)
        return err_set(err, PL_BAD_FILE,
                       "%s: byte 8: %llu tensors announced, more than %llu "
                       "bytes can hold; %s",
                       p->label, (unsigned long long)p->n_tensor,
                       (unsigned long long)left, DAMAGED);
    if (p->n_kv > GGUF_MAX_KV)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: byte 16: %llu keys, at most %d are supported; "
                       "remove some",
                       p->label, (unsigned long long)p->n_kv, GGUF_MAX_KV);
    if (p->n_tensor > GGUF_MAX_TENSOR)
        return err_set(err, PL_UNSUPPORTED,
                       "%s: byte 8: %llu tensors, at most %d are supported; "
                       "merge the experts of a layer into one tensor",
                       p->label, (unsigned long long)p->n_tensor,
                       GGUF_MAX_TENSOR);
    return PL_OK;
}

/* Parses the kv->count elements, of type kv->elem, of the value that begins at
 * offset part->at of the file. */
static pl_status read_elements(const struct reader *r, struct gguf_kv *kv)
{
    struct gguf_part *p = r->part;
    size_t bytes = gguf_type_bytes(kv->elem);
    struct gguf_str *strs;

    kv->data = p->base + p->at;
    if (kv->elem != GGUF_STRING) {
        PL_TRY(need(r, kv->count, bytes, "its value"));
        for (uint64_t i = 0; kv->elem == GGUF_BOOL && i < kv->count; i++)
            if (kv->data[i] > 1)
                return refuse(r, PL_BAD_FILE, p->at + i,
                              "a bool of %d, expected 0 or 1; %s", kv->data[i],
                              DAMAGED);
        p->at += kv->count * bytes;
        return PL_OK;
    }
    PL_TRY(need(r, kv->count, 8, "its value"));
    strs = arena_alloc(&p->kv_arena, kv->count, sizeof *strs);
    if (!strs)
        return err_no_memory(r->err, "the strings of a GGUF file");
    kv->strs = strs;
    for (uint64_t i = 0; i < kv->count; i++)
        PL_TRY(read_str(r, "a string of its value", &strs[i]));
    return PL_OK;
}

static pl_status read_type(const struct reader *r, const char *what,
                           enum gguf_type *out)
{
    size_t at = r->part->at;
    uint64_t type;

    PL_TRY(read_int(r, 4, what, &type));
    if (type >= GGUF_TYPE_COUNT)
        return refuse(r, PL_BAD_FILE, at, "%s is %llu, not in 0 .. %d; %s",
                      what, (unsigned long long)type, GGUF_TYPE_COUNT - 1,
                      DAMAGED);
    *out = (enum gguf_type)type;
    return PL_OK;
}

static pl_status read_kv(struct reader *r, struct gguf_kv *kv)
{
    struct gguf_part *p = r->part;
    size_t at = p->at;
    int64_t twin;

    PL_TRY(read_name(r, &p->kv_arena, &kv->key));
    twin = gguf_index_add(&p->kv_index, r->i);
    if (twin >= 0)
        return refuse(r, PL_BAD_FILE, at, "key %lld has the same name; %s",
                      (long long)twin, REMAKE);
    PL_TRY(read_type(r, "its type", &kv->type));
    kv->elem = kv->type;
    kv->count = 1;
    if (kv->type == GGUF_ARRAY) {
        at = p->at;
        PL_TRY(read_type(r, "its element type", &kv->elem));
        if (kv->elem == GGUF_ARRAY)
            return refuse(r, PL_UNSUPPORTED, at,
                          "an array of arrays is not supported; remove the "
                          "key");
        PL_TRY(read_int(r, 8, "its element count", &kv->count));
    }
    return read_elements(r, kv);
}

static pl_status find_alignment(struct gguf_part *p, pl_err *err)
{
    int64_t i = gguf_index_find(&p->kv_index, "general.alignment"), a;

    p->alignment = DEFAULT_ALIGNMENT;
    if (i < 0)
        return PL_OK;
    PL_TRY(gguf_kv_i64(p, &p->kv[i], GGUF_MIN_ALIGNMENT, GGUF_MAX_ALIGNMENT, &a,
                       err));
    if (a & (a - 1))
        return err_set(err, PL_BAD_FILE,
                       "%s: byte %zu: key %lld (general.alignment): %lld is "
                       "not a power of two; %s",
                       p->label, (size_t)(p->kv[i].data - p->base),
                       (long long)i, (long long)a, REMAKE);
    p->alignment = (size_t)a;
    return PL_OK;
}

pl_status gguf_part_room(struct gguf_part *p, uint64_t n, pl_err *err)
{
    p->kv = arena_alloc(&p->kv_arena, n, sizeof *p->kv);
    p->asked = arena_alloc(&p->kv_arena, n, sizeof *p->asked);
    if (!p->kv || !p->asked ||
        !gguf_index_init(&p->kv_index, &p->kv_arena, p->kv, sizeof *p->kv, n))
        return err_no_memory(err, "the keys of a GGUF file");
    return PL_OK;
}

pl_status gguf_parse_kvs(struct gguf_part *p, pl_err *err)
{
    struct reader r = {.part = p, .kind = "key", .err = err};

    PL_TRY(gguf_part_room(p, p->n_kv, err));
    for (; r.i < p->n_kv; r.i++) {
        r.name = NULL;
        PL_TRY(read_kv(&r, &p->kv[r.i]));
    }
    return find_alignment(p, err);
}

/* Parses the dimensions of a tensor. Reverses them, so that the outermost is
 * first, and computes the size of the tensor in bytes. */
static pl_status read_shape(const struct reader *r, struct gguf_tensor *t)
{
    struct gguf_part *p = r->part;
    size_t at = p->at;
    uint64_t n_dim, dim, id;
    int64_t rows = 1, n_in;
    int block, block_bytes;
    char name[24];

    PL_TRY(read_int(r, 4, "its number of dimensions", &n_dim));
    if (n_dim < 1 || n_dim > GGUF_MAX_DIM)
        return refuse(r, PL_BAD_FILE, at,
                      "%llu dimensions, 1 to %d are allowed; %s",
                      (unsigned long long)n_dim, GGUF_MAX_DIM, DAMAGED);
    t->n_dim = (int)n_dim;
    for (int i = t->n_dim - 1; i >= 0; i--) {
        at = p->at;
        PL_TRY(read_int(r, 8, "its dimensions", &dim));
        if (dim == 0 || dim > INT64_MAX ||
            __builtin_mul_overflow(rows, (int64_t)dim, &rows))
            return refuse(r, PL_BAD_FILE, at,
                          "dimension %d is %llu: zero or too large; %s", i,
                          (unsigned long long)dim, DAMAGED);
        t->dim[i] = (int64_t)dim;
    }
    at = p->at;
    PL_TRY(read_int(r, 4, "its type", &id));
    t->id = (uint32_t)id;
    if (!gguf_format_block(t->id, &t->format, &block, &block_bytes))
        return refuse(r, PL_UNSUPPORTED, at,
                      "tensor type %llu is unknown; quantize the model to "
                      "another one, such as Q4_K or Q8_0",
                      (unsigned long long)id);
    n_in = t->dim[t->n_dim - 1];
    rows /= n_in;
    if (n_in % block)
        return refuse(r, PL_BAD_FILE, at,
                      "rows of %lld values are not whole blocks of %d (%s); %s",
                      (long long)n_in, block, gguf_format_name(t->id, name),
                      REMAKE);
    if (__builtin_mul_overflow((size_t)(n_in / block), (size_t)block_bytes,
                               &t->bytes) ||
        __builtin_mul_overflow(t->bytes, (size_t)rows, &t->bytes))
        return refuse(r, PL_BAD_FILE, at, "its size overflows; %s", DAMAGED);
    return PL_OK;
}

static pl_status read_tensor(struct reader *r, struct gguf_tensor *all,
                             struct gguf_tensor *t, struct gguf_index *x,
                             struct arena *a)
{
    size_t at = r->part->at;
    int64_t twin;

    PL_TRY(read_name(r, a, &t->name));
    twin = gguf_index_add(x, (uint64_t)(t - all));
    if (twin >= 0)
        return refuse(r, PL_BAD_FILE, at,
                      "part %d has a tensor of the same name; %s",
                      all[twin].part + 1, REMAKE);
    PL_TRY(read_shape(r, t));
    at = r->part->at;
    PL_TRY(read_int(r, 8, "its offset", &t->offset));
    if (t->offset % r->part->alignment)
        return refuse(r, PL_BAD_FILE, at,
                      "offset %llu is not a multiple of the alignment %zu; %s",
                      (unsigned long long)t->offset, r->part->alignment,
                      REMAKE);
    return PL_OK;
}

/* Converts the tensor's offset in bytes. In the file it counts from the start
 * of all data, data_at; afterwards it counts from the start of the file. Checks
 * that the tensor's data is inside the file. */
static pl_status place_tensor(const struct reader *r, struct gguf_tensor *t,
                              uint64_t data_at)
{
    const struct gguf_part *p = r->part;
    uint64_t end;

    if (__builtin_add_overflow(t->offset, data_at, &t->offset) ||
        __builtin_add_overflow(t->offset, t->bytes, &end))
        return refuse(r, PL_BAD_FILE, data_at, "its offset overflows; %s",
                      DAMAGED);
    if (end > p->size)
        return refuse(r, PL_BAD_FILE, t->offset,
                      "its %zu bytes of data end at byte %llu, the file at "
                      "%zu; %s",
                      t->bytes, (unsigned long long)end, p->size, DAMAGED);
    if (t->format != PL_FORMAT_COUNT)
        t->data = p->base + t->offset;
    return PL_OK;
}

struct span {
    uint64_t begin, end;
    uint64_t i;
};

static int span_compare(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Checks that no two tensors share bytes. Sorts them by offset, so that
 * comparing neighbours suffices. */
static pl_status check_overlap(struct reader *r, const struct gguf_tensor *t,
                               uint64_t n)
{
    struct span *s;
    pl_status status = PL_OK;
    char name[ERR_SHOWN];

    if (n < 2)
        return PL_OK;
    s = malloc(n * sizeof *s);
    if (!s)
        return err_no_memory(r->err, "checking the tensors of a GGUF file");
    for (uint64_t i = 0; i < n; i++)
        s[i] = (struct span){t[i].offset, t[i].offset + t[i].bytes, i};
    qsort(s, n, sizeof *s, span_compare);
    for (uint64_t i = 1; i < n && status == PL_OK; i++) {
        if (s[i].begin >= s[i - 1].end)
            continue;
        r->i = s[i].i;
        r->name = t[r->i].name;
        err_shown(name, t[s[i - 1].i].name, strlen(t[s[i - 1].i].name));
        status = refuse(r, PL_BAD_FILE, s[i].begin,
                        "its data overlaps that of %s, which ends at byte "
                        "%llu; %s",
                        name, (unsigned long long)s[i - 1].end, REMAKE);
    }
    free(s);
    return status;
}

pl_status gguf_parse_tensors(struct gguf_part *p, int part_no,
                             struct gguf_tensor *all, uint64_t first,
                             struct gguf_index *x, struct arena *a, pl_err *err)
{
    struct reader r = {.part = p, .kind = "tensor", .err = err};
    struct gguf_tensor *t = all + first;
    uint64_t data_at;

    for (; r.i < p->n_tensor; r.i++) {
        r.name = NULL;
        t[r.i].part = part_no;
        PL_TRY(read_tensor(&r, all, &t[r.i], x, a));
    }
    /* The sum cannot overflow: p->at is at most the file size, and the
     * alignment at most 64 MiB. */
    data_at =
        (p->at + (uint64_t)p->alignment - 1) / p->alignment * p->alignment;
    for (r.i = 0; r.i < p->n_tensor; r.i++) {
        r.name = t[r.i].name;
        PL_TRY(place_tensor(&r, &t[r.i], data_at));
    }
    return check_overlap(&r, t, p->n_tensor);
}
