/* Fuzzes the reader of GGUF files: opening gives a status, and an opened file
 * can be read to the last byte.
 *
 * Aborts if the reader contradicts itself; the sanitizer finds reads beyond the
 * input. */
#include "gguf/gguf.h"

#include <string.h>

int fuzz_gguf(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

/* Reads the first and the last of the n bytes at p, so that the sanitizer
 * reports memory that is not the input's. */
static void touch(const void *p, size_t n)
{
    const volatile unsigned char *bytes = p;

    if (n > 0) {
        (void)bytes[0];
        (void)bytes[n - 1];
    }
}

static void walk_kv(const struct gguf *g, const struct gguf_kv *kv)
{
    struct gguf_str s;
    int64_t v;
    double d;
    bool b;

    require(gguf_find(g, kv->key) == kv);
    require(kv->type == GGUF_ARRAY || (kv->count == 1 && kv->elem == kv->type));
    for (uint64_t i = 0; i < kv->count; i++) {
        if (gguf_as_str(kv, i, &s))
            touch(s.s, s.len);
        if (gguf_as_i64(kv, i, &v))
            require(gguf_as_f64(kv, i, &d) && d == (double)v);
        if (gguf_as_bool(kv, i, &b))
            require(kv->elem == GGUF_BOOL || v == b);
    }
    require(!gguf_as_i64(kv, kv->count, &v) && !gguf_as_str(kv, kv->count, &s));
    if (gguf_get_i64(g, kv->key, 7, 0, 100, &v, NULL) == PL_OK)
        require(v >= 0 && v <= 100);
    gguf_need_f64(g, kv->key, &d, NULL);
    gguf_get_bool(g, kv->key, true, &b, NULL);
    gguf_get_str(g, kv->key, &s, NULL);
}

static void walk_tensor(const struct gguf *g, const struct gguf_tensor *t,
                        size_t file_bytes)
{
    char id[24];

    require(gguf_find_tensor(g, t->name) == t);
    require(t->n_dim >= 1 && t->n_dim <= GGUF_MAX_DIM && t->bytes > 0);
    for (int i = 0; i < t->n_dim; i++)
        require(t->dim[i] > 0);
    require(t->offset <= file_bytes && t->bytes <= file_bytes - t->offset);
    require((t->data == NULL) == (t->format == PL_FORMAT_COUNT));
    require(strlen(gguf_format_name(t->id, id)) > 0);
    if (t->data)
        touch(t->data, t->bytes);
}

int fuzz_gguf(const uint8_t *data, size_t n)
{
    struct gguf *g;
    pl_err err;

    if (gguf_open_memory(&g, data, n, "fuzz.gguf", &err) != PL_OK) {
        require(g == NULL && strlen(err.message) > 0);
        return 0;
    }
    for (int64_t i = 0; i < gguf_n_kv(g); i++)
        walk_kv(g, gguf_kv_at(g, i));
    for (int64_t i = 0; i < gguf_n_tensor(g); i++)
        walk_tensor(g, gguf_tensor_at(g, i), gguf_file_bytes(g));
    require(gguf_file_bytes(g) == n);
    gguf_close(g);
    return 0;
}
