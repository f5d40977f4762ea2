/* Parses tensors and packings of programs; program_text.h describes the
 * form. */
#include "program/program_read.h"

#include <inttypes.h>

static bool format(struct read *r, pl_format *f)
{
    char w[LEX_WORD];

    if (!lex_word(&r->x, w, "a format"))
        return false;
    *f = format_from_name(w);
    if (*f == PL_FORMAT_COUNT)
        return lex_fail(&r->x, PL_BAD_ARGUMENT, "unknown format '%s'", w);
    return true;
}

/* Reads a span of a packed weight's rows, such as "0+64{1}": first index,
 * number of indices, rank. */
static bool pack_span(struct read *r, pl_format f)
{
    struct pack_span *s = read_add(r, &r->part, sizeof *s);
    int grain = format_info(f)->pack->tile_values, rank;

    if (!s || !lex_int(&r->x, 0, INT32_MAX, &s->k) || !lex_need(&r->x, '+') ||
        !lex_int(&r->x, 0, INT32_MAX - s->k, &s->n))
        return false;
    if (s->k % grain || s->n % grain)
        return lex_fail(&r->x, PL_BAD_ARGUMENT,
                        "%" PRId64 "+%" PRId64
                        " is not aligned to multiples of %d",
                        s->k, s->n, grain);
    if (!lex_need(&r->x, '{') || !read_index(r, &rank) || !lex_need(&r->x, '}'))
        return false;
    s->rank = rank;
    return true;
}

/* Reads the description of a packed weight, which is in parentheses after the
 * word `packed`. Sets *told to true if it has spans. */
static bool pack_words(struct read *r, struct pack *p, bool *told)
{
    struct lex *x = &r->x;
    bool words = false;

    for (;; words = true)
        if (lex_accept_word(x, "rows")) {
            if (!lex_int(x, 0, INT32_MAX, &p->n_row))
                return false;
        } else if (lex_accept_word(x, "of")) {
            if (!lex_int(x, 0, INT32_MAX, &p->n_full))
                return false;
        } else if (lex_accept_word(x, "format")) {
            if (!format(r, &p->format))
                return false;
        } else {
            break;
        }
    if (words ? !lex_accept(x, ':') : lex_peek(x) == ')')
        return lex_need(x, ')');
    *told = true;
    if (!format_info(p->format)->pack)
        return true;
    if (lex_accept_word(x, "nothing"))
        return lex_need(x, ')');
    do
        if (!pack_span(r, p->format))
            return false;
    while (lex_accept(x, ','));
    return lex_need(x, ')');
}

/* Sets *p to the packing of a weight with the spans that have been parsed into
 * r->part. */
static bool pack_make(struct read *r, struct pack *p)
{
    const struct pack_span *span = r->part.p;
    struct pack_chunk *chunk;
    int64_t n_row = p->n_row, n_full = p->n_full, n = 0;
    size_t bytes;

    for (int i = 0; i < r->part.n; i++)
        n += pack_max_chunks(p->format, &span[i], 1);
    r->n_chunk += n;
    if (r->n_chunk > FORM_MAX_CHUNK)
        return lex_fail(&r->x, PL_BAD_ARGUMENT,
                        "the packings have more than %d chunks",
                        FORM_MAX_CHUNK);
    chunk = arena_alloc(r->a, (size_t)n, sizeof *chunk);
    if (!chunk)
        return read_no_memory(r);
    pack_init(p, p->format, n_row, 0, span, r->part.n, chunk);
    p->n_full = n_full < 0 ? p->k : n_full;
    r->part.n = 0;
    if (__builtin_mul_overflow(p->panel_bytes,
                               (size_t)((n_row + PACK_ROWS - 1) / PACK_ROWS),
                               &bytes) ||
        bytes > (size_t)FORM_MAX_BYTES)
        return lex_fail(&r->x, PL_BAD_ARGUMENT, "the packing is too large");
    return true;
}

/* Reads the description of a packed weight, if any, after the word `packed`.
 * Without a description, the packing follows from the tensor's shape. */
static bool packing(struct read *r, struct prog_tensor *t)
{
    struct pack *p = arena_alloc(r->a, 1, sizeof *p);
    const pl_dim *row = t->n_dim > 0 ? &t->dim[t->n_dim - 1] : NULL;
    bool told = false;

    if (!p)
        return read_no_memory(r);
    p->format = t->format;
    p->n_row = p->n_full = -1;
    r->part.n = 0;
    if (lex_accept(&r->x, '(') && !pack_words(r, p, &told))
        return false;
    if (!format_info(p->format)->pack)
        return lex_fail(&r->x, PL_BAD_ARGUMENT, "%s is never packed",
                        format_info(p->format)->name);
    if (p->n_row < 0 && t->n_dim > 1 && row[-1].symbol == PL_CONST &&
        row[-1].n <= INT32_MAX)
        p->n_row = row[-1].n;
    if (p->n_row < 0)
        return lex_expected(
            &r->x, "(rows N), because the dimensions do not determine it,");
    if (!told) {
        struct pack_span *s = read_add(r, &r->part, sizeof *s);

        if (!s)
            return false;
        if (!row || row->symbol != PL_CONST || row->n > INT32_MAX ||
            row->n % format_info(p->format)->pack->tile_values)
            return lex_expected(
                &r->x,
                "(K+N{RANK}), because the dimensions do not determine it,");
        s->n = row->n;
    }
    t->pack = p;
    return pack_make(r, p);
}

static bool dimensions(struct read *r, struct prog_tensor *t)
{
    if (!lex_need(&r->x, '['))
        return false;
    if (lex_accept(&r->x, ']'))
        return true;
    do {
        if (t->n_dim == GRAPH_MAX_DIM)
            return lex_expected(&r->x, "']' after four dimensions");
        if (!lex_dim(&r->x, &t->dim[t->n_dim++]))
            return false;
    } while (lex_accept(&r->x, ','));
    return lex_need(&r->x, ']');
}

/* Parses a buffer's line after the word `buffer`, such as "3: 256 work". */
bool read_buffer_line(struct read *r, struct read_dev *d)
{
    struct prog_buffer b = {.born = -1}, *to;
    int64_t i;

    if (!lex_int(&r->x, d->buffer.n, d->buffer.n, &i) ||
        !lex_need(&r->x, ':') || !read_bytes(r, &b.bytes))
        return false;
    b.region = lex_accept_word(&r->x, "inbox") ? REGION_INBOX : REGION_WORK;
    if (b.region == REGION_WORK && !lex_accept_word(&r->x, "work"))
        return lex_expected(&r->x, "work or inbox");
    if (lex_accept_word(&r->x, "born") && !read_index(r, &b.born))
        return false;
    if (lex_accept_word(&r->x, "variant") && !read_index(r, &b.variant))
        return false;
    if (b.bytes % 64)
        return lex_fail(&r->x, PL_BAD_ARGUMENT,
                        "buffer %d has %zu bytes; give a multiple of 64",
                        (int)i, b.bytes);
    d->buffer_bytes += b.bytes;
    if (d->buffer_bytes > (size_t)FORM_MAX_BYTES)
        return lex_fail(&r->x, PL_BAD_ARGUMENT, "the buffers are too large");
    to = read_add(r, &d->buffer, sizeof *to);
    if (to)
        *to = b;
    return to != NULL;
}

struct told { /* the properties of a tensor that its line states */
    bool offset, bytes;
    int buffer; /* -1: none */
};

/* Reads the number of a buffer after the word `in`. */
static bool in_buffer(struct read *r, const struct read_dev *d,
                      struct prog_tensor *t, struct told *told)
{
    const struct prog_buffer *b = d->buffer.p;
    int64_t i;

    if (d->buffer.n == 0)
        return lex_fail(&r->x, PL_BAD_ARGUMENT, "the device has no buffers");
    if (!lex_int(&r->x, 0, d->buffer.n - 1, &i))
        return false;
    told->buffer = (int)i;
    t->region = b[i].region;
    return true;
}

static bool tensor_word(struct read *r, const struct read_dev *d,
                        struct prog_tensor *t, struct told *told)
{
    if (lex_accept_word(&r->x, "in"))
        return in_buffer(r, d, t, told);
    for (int i = 0; i < REGION_COUNT; i++)
        if (lex_accept_word(&r->x, form_regions[i])) {
            t->region = (enum region)i;
            return true;
        }
    if (lex_accept(&r->x, '@'))
        return told->offset = read_bytes(r, &t->offset);
    if (lex_accept_word(&r->x, "bytes"))
        return told->bytes = read_bytes(r, &t->bytes);
    if (lex_accept_word(&r->x, "micro"))
        return read_index(r, &t->micro);
    if (lex_accept_word(&r->x, "q8"))
        return t->q8 = true;
    if (lex_accept_word(&r->x, "packed"))
        return packing(r, t);
    return lex_expected(&r->x, "weights, cache, work, inbox, in, @, bytes, q8, "
                               "micro or packed");
}

/* Checks that the tensor, which ends at `end`, lies in its buffer. */
static bool fits_buffer(struct read *r, const struct read_dev *d,
                        const struct prog_tensor *t, int buffer, size_t end)
{
    const struct prog_buffer *b =
        (const struct prog_buffer *)d->buffer.p + buffer;

    if (t->region != b->region || end > b->bytes)
        return lex_fail(&r->x, PL_BAD_ARGUMENT,
                        "the tensor is not in buffer %d", buffer);
    return true;
}

bool read_tensor_line(struct read *r, struct read_dev *d)
{
    struct prog_tensor t = {.region = REGION_WORK}, *to;
    struct told told = {false, false, -1};
    int64_t i;
    size_t end;
    int *in;

    if (!lex_accept(&r->x, '%') ||
        !lex_int(&r->x, d->tensor.n, d->tensor.n, &i) ||
        !lex_need(&r->x, ':') || !format(r, &t.format) || !dimensions(r, &t))
        return false;
    while (!lex_at_end(&r->x))
        if (!tensor_word(r, d, &t, &told))
            return false;
    if (!told.bytes && !form_tensor_bytes(&t, &d->p.max, &t.bytes))
        return lex_expected(
            &r->x, "bytes N, because the dimensions do not determine it,");
    if (!told.offset && told.buffer < 0)
        t.offset = d->end[t.region];
    end = (t.offset + t.bytes + 63) & ~(size_t)63;
    if (end > (size_t)FORM_MAX_BYTES)
        return lex_fail(&r->x, PL_BAD_ARGUMENT, "the region is too large");
    if (told.buffer >= 0 && !fits_buffer(r, d, &t, told.buffer, end))
        return false;
    if (end > d->end[t.region] && told.buffer < 0)
        d->end[t.region] = end;
    to = read_add(r, &d->tensor, sizeof *to);
    in = read_add(r, &d->in_buffer, sizeof *in);
    if (!to || !in)
        return false;
    *to = t;
    *in = told.buffer;
    return true;
}
