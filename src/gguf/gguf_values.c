/* Typed access to metadata values, and the names of types.
 *
 * Numbers are converted from the file's bytes on each call; nothing is cached.
 * Tensor types that plait supports are in the format table (quant/format.h).
 * The others are listed here, so that their byte ranges can be checked and
 * `inspect` can name them. */
#include "gguf/gguf_parse.h"

#include "base/err.h"
#include "base/numeral.h"
#include "quant/format.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Tensor formats that occur in files but that plait cannot compute with, with
 * the number of values and of bytes in a block. Source: the type traits of
 * ggml. */
static const struct other_format {
    uint32_t id;
    int block, block_bytes;
    const char *name;
} other_formats[] = {
    {9, 32, 36, "Q8_1"},   {15, 256, 292, "Q8_K"}, {24, 1, 1, "I8"},
    {25, 1, 2, "I16"},     {27, 1, 8, "I64"},      {28, 1, 8, "F64"},
    {41, 128, 18, "Q1_0"},
};

static const struct other_format *other_format(uint32_t id)
{
    size_t n = sizeof other_formats / sizeof other_formats[0];

    for (size_t i = 0; i < n; i++)
        if (other_formats[i].id == id)
            return &other_formats[i];
    return NULL;
}

bool gguf_format_block(uint32_t id, pl_format *f, int *block, int *block_bytes)
{
    const struct other_format *o;

    *f = format_from_id(id);
    if (*f != PL_FORMAT_COUNT) {
        *block = format_info(*f)->block;
        *block_bytes = format_info(*f)->block_bytes;
        return true;
    }
    o = other_format(id);
    if (!o)
        return false;
    *block = o->block;
    *block_bytes = o->block_bytes;
    return true;
}

const char *gguf_format_name(uint32_t id, char buf[24])
{
    pl_format f = format_from_id(id);
    const struct other_format *o = other_format(id);

    if (f != PL_FORMAT_COUNT)
        return format_info(f)->name;
    if (o)
        return o->name;
    snprintf(buf, 24, "type %" PRIu32, id);
    return buf;
}

const char *gguf_type_name(enum gguf_type t)
{
    static const char *const names[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = "u8",       [GGUF_I8] = "i8",     [GGUF_U16] = "u16",
        [GGUF_I16] = "i16",     [GGUF_U32] = "u32",   [GGUF_I32] = "i32",
        [GGUF_F32] = "f32",     [GGUF_BOOL] = "bool", [GGUF_STRING] = "string",
        [GGUF_ARRAY] = "array", [GGUF_U64] = "u64",   [GGUF_I64] = "i64",
        [GGUF_F64] = "f64",
    };

    return (unsigned)t < GGUF_TYPE_COUNT ? names[t] : "unknown type";
}

static uint64_t element(const struct gguf_kv *kv, uint64_t i)
{
    size_t bytes = gguf_type_bytes(kv->elem);

    return gguf_load(kv->data + i * bytes, bytes);
}

/* Returns element i of a metadata value as a double. The elements must be f32
 * or f64. */
static double element_float(const struct gguf_kv *kv, uint64_t i)
{
    uint64_t u = element(kv, i);
    uint32_t u32 = (uint32_t)u;
    float f;
    double d;

    memcpy(&f, &u32, sizeof f);
    memcpy(&d, &u, sizeof d);
    return kv->elem == GGUF_F32 ? f : d;
}

bool gguf_as_i64(const struct gguf_kv *kv, uint64_t i, int64_t *out)
{
    uint64_t u;
    double d;

    if (i >= kv->count)
        return false;
    switch (kv->elem) {
    case GGUF_U8:
    case GGUF_U16:
    case GGUF_U32:
    case GGUF_U64:
        u = element(kv, i);
        if (u > INT64_MAX)
            return false;
        *out = (int64_t)u;
        return true;
    case GGUF_I8:
        *out = (int8_t)element(kv, i);
        return true;
    case GGUF_I16:
        *out = (int16_t)element(kv, i);
        return true;
    case GGUF_I32:
        *out = (int32_t)element(kv, i);
        return true;
    case GGUF_I64:
        *out = (int64_t)element(kv, i);
        return true;
    case GGUF_F32:
    case GGUF_F64:
        d = element_float(kv, i);
        if (!(d >= -0x1p63 && d < 0x1p63) || d != trunc(d))
            return false;
        *out = (int64_t)d;
        return true;
    default:
        return false;
    }
}

bool gguf_as_f64(const struct gguf_kv *kv, uint64_t i, double *out)
{
    int64_t v;

    if (i >= kv->count)
        return false;
    if (kv->elem == GGUF_F32 || kv->elem == GGUF_F64)
        *out = element_float(kv, i);
    else if (kv->elem == GGUF_U64)
        *out = (double)element(kv, i);
    else if (gguf_as_i64(kv, i, &v))
        *out = (double)v;
    else
        return false;
    return true;
}

bool gguf_as_bool(const struct gguf_kv *kv, uint64_t i, bool *out)
{
    int64_t v;

    if (i >= kv->count)
        return false;
    if (kv->elem == GGUF_BOOL)
        v = kv->data[i];
    else if (!gguf_as_i64(kv, i, &v) || (v != 0 && v != 1))
        return false;
    *out = v;
    return true;
}

bool gguf_as_str(const struct gguf_kv *kv, uint64_t i, struct gguf_str *out)
{
    if (i >= kv->count || kv->elem != GGUF_STRING)
        return false;
    *out = kv->strs[i];
    return true;
}

const char *gguf_value_text(const struct gguf_kv *kv, char buf[80])
{
    int64_t v;
    double d;

    static_assert(ERR_SHOWN == 80, "as in gguf.h");
    if (kv->type == GGUF_ARRAY)
        snprintf(buf, ERR_SHOWN, "an array of %" PRIu64 " %s", kv->count,
                 gguf_type_name(kv->elem));
    else if (kv->type == GGUF_STRING)
        err_shown(buf, kv->strs[0].s, kv->strs[0].len);
    else if (kv->type == GGUF_BOOL)
        snprintf(buf, ERR_SHOWN, "%s", kv->data[0] ? "true" : "false");
    else if (gguf_as_i64(kv, 0, &v))
        snprintf(buf, ERR_SHOWN, "%" PRId64, v);
    else if (gguf_as_f64(kv, 0, &d))
        numeral_print(buf, ERR_SHOWN, "%g", d);
    return buf;
}

static pl_status wrong(const struct gguf_part *p, const struct gguf_kv *kv,
                       const char *expected, pl_err *err)
{
    char key[ERR_SHOWN], value[ERR_SHOWN];

    if (kv->overridden)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: the override of key %s is %s:%s where %s is "
                       "expected; correct it",
                       p->label, err_shown(key, kv->key, strlen(kv->key)),
                       gguf_override_type(kv), gguf_value_text(kv, value),
                       expected);
    return err_set(err, PL_BAD_FILE,
                   "%s: byte %zu: key %s is %s (type %s) where %s is expected; "
                   "convert the model again with a current converter",
                   p->label, (size_t)(kv->data - p->base),
                   err_shown(key, kv->key, strlen(kv->key)),
                   gguf_value_text(kv, value), gguf_type_name(kv->type),
                   expected);
}

static pl_status absent(const struct gguf *g, const char *key, pl_err *err)
{
    return err_set(err, PL_BAD_FILE,
                   "%s: key %s is missing; convert the model again with a "
                   "current converter",
                   gguf_first_part(g)->label, key);
}

pl_status gguf_kv_i64(const struct gguf_part *p, const struct gguf_kv *kv,
                      int64_t lo, int64_t hi, int64_t *out, pl_err *err)
{
    int64_t v = 0;
    char expected[80];

    if (kv->type != GGUF_ARRAY && gguf_as_i64(kv, 0, &v) && v >= lo &&
        v <= hi) {
        *out = v;
        return PL_OK;
    }
    if (hi == INT64_MAX)
        snprintf(expected, sizeof expected, "an integer of at least %" PRId64,
                 lo);
    else
        snprintf(expected, sizeof expected,
                 "an integer from %" PRId64 " to %" PRId64, lo, hi);
    return wrong(p, kv, expected, err);
}

pl_status gguf_get_i64(const struct gguf *g, const char *key, int64_t def,
                       int64_t lo, int64_t hi, int64_t *out, pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    *out = def;
    return kv ? gguf_kv_i64(gguf_first_part(g), kv, lo, hi, out, err) : PL_OK;
}

pl_status gguf_need_i64(const struct gguf *g, const char *key, int64_t lo,
                        int64_t hi, int64_t *out, pl_err *err)
{
    if (!gguf_find(g, key))
        return absent(g, key, err);
    return gguf_get_i64(g, key, 0, lo, hi, out, err);
}

pl_status gguf_get_f64(const struct gguf *g, const char *key, double def,
                       double *out, pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    double v;

    *out = def;
    if (!kv)
        return PL_OK;
    if (kv->type == GGUF_ARRAY || !gguf_as_f64(kv, 0, &v) || !isfinite(v))
        return wrong(gguf_first_part(g), kv, "a finite number", err);
    *out = v;
    return PL_OK;
}

pl_status gguf_need_f64(const struct gguf *g, const char *key, double *out,
                        pl_err *err)
{
    if (!gguf_find(g, key))
        return absent(g, key, err);
    return gguf_get_f64(g, key, 0, out, err);
}

pl_status gguf_get_bool(const struct gguf *g, const char *key, bool def,
                        bool *out, pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    *out = def;
    if (kv && (kv->type == GGUF_ARRAY || !gguf_as_bool(kv, 0, out)))
        return wrong(gguf_first_part(g), kv, "a bool", err);
    return PL_OK;
}

pl_status gguf_get_str(const struct gguf *g, const char *key,
                       struct gguf_str *out, pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    *out = (struct gguf_str){NULL, 0};
    if (kv && (kv->type == GGUF_ARRAY || !gguf_as_str(kv, 0, out)))
        return wrong(gguf_first_part(g), kv, "a string", err);
    return PL_OK;
}
