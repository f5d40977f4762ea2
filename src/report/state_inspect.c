/* Implements pl_inspect for a saved state: prints the model and the contents,
 * after all data has been read and all checksums have been verified. */
#include "report/state_inspect.h"

#include "base/err.h"
#include "quant/format.h"
#include "report/writer.h"
#include "state/state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static int64_t read_file(void *user, void *data, size_t n)
{
    FILE *f = user;
    size_t got = fread(data, 1, n, f);

    return got < n && ferror(f) ? -1 : (int64_t)got;
}

bool state_is(const char *path)
{
    char b[8] = "";
    /* A pipe is not opened, because opening it could wait, and reading it would
     * consume its data. */
    struct stat st;
    bool regular = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    FILE *f = regular ? fopen(path, "rb") : NULL;
    bool is = f && fread(b, 1, sizeof b, f) == sizeof b && state_begins(b);

    if (f)
        fclose(f);
    return is;
}

/* Reads all data of a saved state after its head, so that the checksums are
 * verified. */
static pl_status read_data(struct state_reader *r, const struct state_head *h,
                           pl_err *err)
{
    unsigned char piece[16384];
    int64_t n;

    for (int i = 0; i < h->n_seq; i++) {
        const struct state_seq *q = &h->seq[i];

        for (int64_t pos = q->first + q->n_like; (n = state_chunk(q, pos)) > 0;
             pos += n) {
            uint64_t left = 0;

            for (int c = 0; c < h->n_cache; c++)
                left += state_row_bytes(&h->cache[c]) *
                        (uint64_t)state_rows(&h->cache[c], q, pos);
            while (left > 0) {
                size_t k = left < sizeof piece ? (size_t)left : sizeof piece;

                PL_TRY(state_get(r, piece, k, err));
                left -= k;
            }
            PL_TRY(state_get_sum(r, err));
        }
    }
    return state_get_end(r, err);
}

static void print_text(const char *path, const struct state_head *h,
                       const struct sink *to)
{
    uint64_t position = 0, state = 0;

    for (int i = 0; i < h->n_cache; i++)
        *(h->cache[i].state ? &state : &position) +=
            state_row_bytes(&h->cache[i]);
    writer_printf(to, "state      %.400s\n", path);
    writer_printf(to, "           %s bytes, intact: all checksums match\n",
                  size_text(state_bytes(h)).s);
    writer_printf(to, "model      %s (%016" PRIx64 ")\n", h->name, h->model);
    writer_printf(to, "numerics   %016" PRIx64 ", %d rank%s\n", h->numeric,
                  h->n_rank, h->n_rank > 1 ? "s" : "");
    writer_printf(to, "cache      %d tensors, %s bytes per position\n",
                  h->n_cache, size_text(position).s);
    if (state > 0)
        writer_printf(to, "states     %s bytes per sequence\n",
                      size_text(state).s);
    if (h->note_bytes > 0)
        writer_printf(to, "note       %s bytes\n", size_text(h->note_bytes).s);
    writer_printf(to, "sequences  %d%s\n", h->n_seq,
                  h->whole ? ", the whole cache" : "");
    for (int i = 0; i < h->n_seq; i++) {
        const struct state_seq *q = &h->seq[i];

        writer_printf(to, "  %-8d %" PRId64 " positions from %" PRId64, q->id,
                      q->n, q->first);
        if (q->n_like > 0)
            writer_printf(to, ", %" PRId64 " shared with sequence %d",
                          q->n_like, h->seq[q->like].id);
        writer_printf(to, "\n");
    }
}

static void print_json(const struct state_head *h, const struct sink *to)
{
    struct json_out j = {.to = to};
    char model[20], numeric[20];

    snprintf(model, sizeof model, "%016" PRIx64, h->model);
    snprintf(numeric, sizeof numeric, "%016" PRIx64, h->numeric);
    json_put(&j,
             "{kind:s version:i bytes:I model:s fingerprint:s numeric_hash:s"
             " n_ranks:i n_vocab:I whole_cache:b note_bytes:I caches:[",
             "state", STATE_VERSION, state_bytes(h), h->name, model, numeric,
             h->n_rank, h->n_vocab, h->whole, h->note_bytes);
    for (int i = 0; i < h->n_cache; i++) {
        const struct state_cache *c = &h->cache[i];

        json_put(&j, "{layer:i holds:s type:s n_head:I d_head:I window:I}",
                 c->layer,
                 c->state    ? "state"
                 : c->values ? "values"
                             : "keys",
                 format_info(c->format)->name, c->n_head, c->d_head, c->window);
    }
    json_put(&j, "] sequences:[");
    for (int i = 0; i < h->n_seq; i++) {
        const struct state_seq *q = &h->seq[i];

        json_put(&j, "{id:i first:I n:I n_shared:I shared_with:i}", q->id,
                 q->first, q->n, q->n_like, h->seq[q->like].id);
    }
    json_put(&j, "]}");
}

pl_status state_inspect(const char *path, bool json, pl_write_fn *write,
                        void *user, pl_err *err)
{
    const struct sink to = {write, user};
    struct arena a = {0};
    struct state_reader r;
    struct state_head h;
    pl_err why = {0};
    FILE *f = fopen(path, "rb");
    pl_status s;

    if (!f)
        return err_set(err, PL_IO, "%s: %s", path, strerror(errno));
    state_reader_init(&r, read_file, f);
    s = state_get_head(&r, &h, &a, &why);
    if (s == PL_OK)
        s = read_data(&r, &h, &why);
    fclose(f);
    if (s != PL_OK)
        err_set(err, s, "%s: %.900s", path, why.message);
    else if (json)
        print_json(&h, &to);
    else
        print_text(path, &h, &to);
    arena_fini(&a);
    return s;
}
