/* Implements pl_inspect and pl_model_inspect: prints the contents of a GGUF
 * file as text or JSON.
 *
 * The file need not be a model that plait supports. Its strings are untrusted.
 * Control characters are never written to the terminal. Invalid UTF-8 becomes
 * \xNN in the text form and U+FFFD in JSON. Long values are truncated in the
 * text form; JSON truncates only arrays, and gives their length. */
#include "base/bytes.h"
#include "base/err.h"
#include "base/numeral.h"
#include "engine/engine.h"
#include "report/state_inspect.h"
#include "report/writer.h"
#include "tokenizer/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_STRING = 64, /* maximum number of bytes of a string that the text form
                         shows */
    TEXT_ARRAY = 6,   /* maximum number of elements of an array that the text
                         form shows */
    JSON_ARRAY_LEN = 32,
    MAX_COLUMN = 48, /* maximum width of the column with names; longer names
                        shift their line */
    MAX_ID = 64,     /* greater than the number of every tensor format that the
                        GGUF reader accepts */
};

struct total {
    int64_t n_tensor, n_value;
    uint64_t bytes;
};

static int64_t values_of(const struct gguf_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dim; i++)
        n *= t->dim[i];
    return n;
}

static void add_tensor(struct total *total, const struct gguf_tensor *t)
{
    total->n_tensor++;
    total->n_value += values_of(t);
    total->bytes += t->bytes;
}

/* Returns the sums over all tensors. Adds the tensors of each format to
 * by_id[], which has MAX_ID elements and is indexed by the format's number in
 * GGUF files. */
static struct total add_up(const struct gguf *g, struct total *by_id)
{
    struct total all = {0};

    for (int64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        add_tensor(&all, t);
        if (t->id < MAX_ID)
            add_tensor(&by_id[t->id], t);
    }
    return all;
}

/* Writes element i of a numeric metadata value as text. Every number, except
 * NaN and infinities, is parsed to the same value again. */
static void number_text(char buf[NUMERAL_SHORTEST], const struct gguf_kv *kv,
                        uint64_t i)
{
    uint64_t u = 0;
    int64_t v;
    double d = 0;

    if (kv->elem == GGUF_U64) {
        for (int k = 7; k >= 0; k--)
            u = u << 8 | kv->data[8 * i + (uint64_t)k];
        snprintf(buf, NUMERAL_SHORTEST, "%" PRIu64, u);
    } else if (kv->elem != GGUF_F32 && kv->elem != GGUF_F64 &&
               gguf_as_i64(kv, i, &v)) {
        snprintf(buf, NUMERAL_SHORTEST, "%" PRId64, v);
    } else {
        gguf_as_f64(kv, i, &d);
        if (kv->elem == GGUF_F32)
            numeral_shortest_float(buf, (float)d);
        else
            numeral_shortest(buf, d);
    }
}

/* ---- printing a file as text -------------------------------------------- */

static void say_pad(const struct sink *to, size_t from, size_t column)
{
    writer_printf(to, "%*s", from < column ? (int)(column - from) : 0, "");
}

/* Prints a string of the file. Escapes control characters and invalid UTF-8.
 * Prints at most `room` bytes, with "..." at the end if the string is longer.
 * Returns the number of bytes printed. */
static size_t say_escaped(const struct sink *to, const char *s, size_t len,
                          size_t room)
{
    size_t i = 0, n, written = 0;

    for (; i < len && i < room; i += n) {
        unsigned char c = (unsigned char)s[i];
        char buf[8];
        int shown;

        n = utf8_step(s + i, len - i, &shown);
        if (c < ' ' || c == 0x7f ||
            (n == 2 && c == 0xc2 && (unsigned char)s[i + 1] < 0xa0))
            shown = false;
        if (!shown)
            n = 1;
        if (shown)
            snprintf(buf, sizeof buf, "%.*s", (int)n, s + i);
        else
            snprintf(buf, sizeof buf, c == '\n' ? "\\n" : "\\x%02x", c);
        writer_printf(to, "%s", buf);
        written += strlen(buf);
    }
    if (i < len)
        writer_printf(to, "...");
    return i < len ? written + 3 : written;
}

static void say_element(const struct sink *to, const struct gguf_kv *kv,
                        uint64_t i)
{
    struct gguf_str s;
    bool b;
    char buf[NUMERAL_SHORTEST];

    if (gguf_as_str(kv, i, &s)) {
        writer_printf(to, "\"");
        say_escaped(to, s.s, s.len, TEXT_STRING);
        writer_printf(to, s.len > TEXT_STRING ? "\" (%zu bytes)" : "\"", s.len);
    } else if (kv->elem == GGUF_BOOL && gguf_as_bool(kv, i, &b)) {
        writer_printf(to, b ? "true" : "false");
    } else {
        number_text(buf, kv, i);
        writer_printf(to, "%s", buf);
    }
}

static void say_kv(const struct sink *to, const struct gguf_kv *kv,
                   size_t column)
{
    char type[48];
    uint64_t n = kv->count < TEXT_ARRAY ? kv->count : TEXT_ARRAY;

    writer_printf(to, "  ");
    say_pad(to, say_escaped(to, kv->key, strlen(kv->key), 256), column);
    if (kv->type != GGUF_ARRAY) {
        writer_printf(to, "  %-6s  ", gguf_type_name(kv->type));
        say_element(to, kv, 0);
        writer_printf(to, kv->overridden ? "  (override)\n" : "\n");
        return;
    }
    snprintf(type, sizeof type, "%s[%" PRIu64 "]", gguf_type_name(kv->elem),
             kv->count);
    writer_printf(to, "  %-6s  [", type);
    for (uint64_t i = 0; i < n; i++) {
        writer_printf(to, i ? ", " : "");
        say_element(to, kv, i);
    }
    writer_printf(to, n < kv->count ? ", ...]\n" : "]\n");
}

static void say_tensor(const struct sink *to, const struct gguf_tensor *t,
                       size_t column)
{
    char shape[96], id[24];
    size_t n = 0;

    for (int i = 0; i < t->n_dim; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%" PRId64,
                              i ? ", " : "[", t->dim[i]);
    snprintf(shape + n, sizeof shape - n, "]");
    writer_printf(to, "  ");
    say_pad(to, say_escaped(to, t->name, strlen(t->name), 256), column);
    writer_printf(to, "  %-22s  %-7s  %14zu%s\n", shape,
                  gguf_format_name(t->id, id), t->bytes,
                  t->format == PL_FORMAT_COUNT ? "  not supported" : "");
}

static void say_total(const struct sink *to, const char *name,
                      const struct total *t)
{
    char size[24];

    writer_printf(to,
                  "  %-7s  %6" PRId64 " tensors  %15" PRId64
                  " values  %15" PRIu64 " bytes  %s\n",
                  name, t->n_tensor, t->n_value, t->bytes,
                  bytes_text(size, t->bytes));
}

static size_t widen(size_t column, const char *name)
{
    size_t len = strlen(name);

    return len > MAX_COLUMN || len < column ? column : len;
}

static void print_text(const struct gguf *g, const struct sink *to)
{
    struct total by_id[MAX_ID] = {{0}}, all = add_up(g, by_id);
    size_t column = 0;
    char id[24], size[24];

    writer_printf(to, "file       ");
    say_escaped(to, gguf_path(g), strlen(gguf_path(g)), 4096);
    writer_printf(to, "\nsize       %zu bytes, %s", gguf_file_bytes(g),
                  bytes_text(size, gguf_file_bytes(g)));
    if (gguf_n_part(g) > 1)
        writer_printf(to, ", %d parts", gguf_n_part(g));
    writer_printf(to, "\nversion    %" PRIu32 "\nalignment  %zu\n\n",
                  gguf_version(g), gguf_alignment(g));

    writer_printf(to, "metadata: %" PRId64 " keys\n", gguf_n_kv(g));
    for (int64_t i = 0; i < gguf_n_kv(g); i++)
        column = widen(column, gguf_kv_at(g, i)->key);
    for (int64_t i = 0; i < gguf_n_kv(g); i++)
        say_kv(to, gguf_kv_at(g, i), column);

    writer_printf(to,
                  "\ntensors: %" PRId64
                  "; name, shape (outermost first), type, "
                  "bytes\n",
                  all.n_tensor);
    column = 0;
    for (int64_t i = 0; i < gguf_n_tensor(g); i++)
        column = widen(column, gguf_tensor_at(g, i)->name);
    for (int64_t i = 0; i < gguf_n_tensor(g); i++)
        say_tensor(to, gguf_tensor_at(g, i), column);

    writer_printf(to, "\ntotals by type\n");
    for (uint32_t i = 0; i < MAX_ID; i++)
        if (by_id[i].n_tensor > 0)
            say_total(to, gguf_format_name(i, id), &by_id[i]);
    say_total(to, "all", &all);
}

/* ---- printing a file as JSON -------------------------------------------- */

/* Writes element i of a metadata value. Numbers that JSON cannot represent,
 * such as NaN, become strings. */
static void put_element(struct json_out *j, const struct gguf_kv *kv,
                        uint64_t i)
{
    struct gguf_str s;
    int64_t v;
    double d = 0;
    bool b;
    char buf[NUMERAL_SHORTEST];

    if (gguf_as_str(kv, i, &s)) {
        json_put(j, "t", s.s, s.len);
    } else if (kv->elem == GGUF_BOOL && gguf_as_bool(kv, i, &b)) {
        json_put(j, "b", b);
    } else if (kv->elem != GGUF_F32 && kv->elem != GGUF_F64 &&
               gguf_as_i64(kv, i, &v)) {
        json_put(j, "I", v);
    } else {
        gguf_as_f64(kv, i, &d);
        number_text(buf, kv, i);
        if (kv->elem != GGUF_U64 && isfinite(d))
            json_put(j, "f", numeral_double(buf, NULL));
        else
            json_put(j, "s", buf);
    }
}

static void put_kv(struct json_out *j, const struct gguf_kv *kv)
{
    uint64_t n = kv->count < JSON_ARRAY_LEN ? kv->count : JSON_ARRAY_LEN;

    if (kv->type != GGUF_ARRAY) {
        json_put(j, "*:{type:s value:", kv->key, gguf_type_name(kv->type));
        put_element(j, kv, 0);
        if (kv->overridden)
            json_put(j, "overridden:b", true);
        json_put(j, "}");
        return;
    }
    json_put(j, "*:{type:s elem:s count:I values:[", kv->key, "array",
             gguf_type_name(kv->elem), kv->count);
    for (uint64_t i = 0; i < n; i++)
        put_element(j, kv, i);
    json_put(j, "]}");
}

static void put_tensor(struct json_out *j, const struct gguf_tensor *t)
{
    char id[24];

    json_put(j, "{name:s shape:[", t->name);
    for (int i = 0; i < t->n_dim; i++)
        json_put(j, "I", t->dim[i]);
    json_put(j, "] type:s bytes:I offset:I part:i supported:b}",
             gguf_format_name(t->id, id), t->bytes, t->offset, t->part,
             t->format != PL_FORMAT_COUNT);
}

static void put_total(struct json_out *j, const struct total *t)
{
    json_put(j, "tensors:I values:I bytes:I", t->n_tensor, t->n_value,
             t->bytes);
}

static void print_json(const struct gguf *g, const struct sink *to)
{
    struct total by_id[MAX_ID] = {{0}}, all = add_up(g, by_id);
    struct json_out j = {.to = to};
    char id[24];

    json_put(&j, "{file:s version:i parts:i alignment:I bytes:I metadata:{",
             gguf_path(g), (int)gguf_version(g), gguf_n_part(g),
             gguf_alignment(g), gguf_file_bytes(g));
    for (int64_t i = 0; i < gguf_n_kv(g); i++)
        put_kv(&j, gguf_kv_at(g, i));
    json_put(&j, "} tensors:[");
    for (int64_t i = 0; i < gguf_n_tensor(g); i++)
        put_tensor(&j, gguf_tensor_at(g, i));
    json_put(&j, "] totals:{");
    put_total(&j, &all);
    json_put(&j, "types:{");
    for (uint32_t i = 0; i < MAX_ID; i++)
        if (by_id[i].n_tensor > 0) {
            json_put(&j, "*:{", gguf_format_name(i, id));
            put_total(&j, &by_id[i]);
            json_put(&j, "}");
        }
    json_put(&j, "}}}");
}

static void print(const struct gguf *g, bool json, const struct sink *to)
{
    (json ? print_json : print_text)(g, to);
}

pl_status pl_inspect(const char *path, bool json, pl_write_fn *write,
                     void *user, pl_err *err)
{
    struct sink to = {write, user};
    struct gguf *g;

    PL_NEED(path, err);
    PL_NEED(write, err);
    if (state_is(path))
        return state_inspect(path, json, write, user, err);
    PL_TRY(gguf_open(&g, path, err));
    print(g, json, &to);
    gguf_close(g);
    return PL_OK;
}

pl_status pl_model_inspect(const pl_model *m, bool json, pl_write_fn *write,
                           void *user, pl_err *err)
{
    PL_NEED(m, err);
    PL_NEED(write, err);
    print(m->file, json, &(struct sink){write, user});
    return PL_OK;
}
