/* plait logits: writes the raw logits of every position of a text to a file, as
 * float32 [n_tok, n_vocab], little endian. The text is given as token ids
 * (--tokens), to which no special tokens are added. */
#include "atomic_file.h"
#include "cmd.h"
#include "input.h"
#include "session.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool write_floats(struct whole_file *w, float *v, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, &v[i], sizeof(bits));
        bits = htole32(bits);
        memcpy(&v[i], &bits, sizeof(bits));
    }
    return pl_file_write(w->f, v, n * sizeof(*v));
}

/* Computes and writes the logits of all positions, s->piece positions at a
 * time, which limits the memory for them. */
static enum exit_code write_logits(struct session *s, const struct options *o,
                                   const int32_t *ids, int64_t n,
                                   struct whole_file *w)
{
    int64_t piece = s->piece < n ? s->piece : n;
    size_t row = (size_t)s->n_vocab;
    float *logits = malloc((size_t)piece * row * sizeof(*logits));
    enum exit_code c = EXIT_DONE;
    pl_err err;

    if (logits == NULL)
        return cli_error(o->command, EXIT_FAILED,
                         "no memory for the logits of %" PRId64
                         " positions; give a smaller -b",
                         piece);
    for (int64_t i = 0; i < n && c == EXIT_DONE; i += piece) {
        pl_batch b = {.size = sizeof b,
                      .n = n - i < piece ? n - i : piece,
                      .token = ids + i,
                      .logits = logits};
        pl_status r;

        term_progress(&s->progress, "computing", (uint64_t)i, (uint64_t)n);
        r = pl_engine_decode(s->engine, &b, &term_interrupts, &err);
        if (r != PL_OK)
            c = report(o, r, &err);
        else if (!write_floats(w, logits, (size_t)b.n * row))
            break; /* a write failed, which atomic_file_close reports */
    }
    term_progress_end(&s->progress);
    free(logits);
    return c;
}

static enum exit_code check_ids(const struct session *s,
                                const struct options *o, const int32_t *ids,
                                int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] >= s->n_vocab)
            return cli_error(
                o->command, EXIT_USAGE,
                "--tokens: %" PRId32
                " is not a token of this model; ids are 0 to %" PRId64,
                ids[i], s->n_vocab - 1);
    }
    return EXIT_DONE;
}

enum exit_code cmd_logits(const struct options *o)
{
    struct session s = {0};
    int32_t *ids = NULL;
    int64_t n = 0;
    struct whole_file w = {0};
    enum exit_code c;

    if (o->tokens == NULL || o->output == NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "%s; see `plait logits --help`",
                         o->tokens == NULL ? "no tokens; give --tokens 1,2,3"
                                           : "no file to write; give -o FILE");
    c = input_ids(o, &ids, &n);
    if (c == EXIT_DONE)
        c = session_open(&s, o);
    if (c == EXIT_DONE)
        c = check_ids(&s, o, ids, n);
    if (c != EXIT_DONE)
        goto done;
    /* The cache must hold all tokens. All tokens of a step have logits, so
     * n_out is set to -ub; a smaller n_out would shorten the steps. */
    if (s.pl.n_ctx == 0)
        s.pl.n_ctx = n;
    s.pl.n_out = s.pl.n_ubatch > 0 ? s.pl.n_ubatch : 512;
    if (s.pl.n_out > n)
        s.pl.n_out = n;
    c = atomic_file_open(&w, o, "-o", o->output);
    if (c == EXIT_DONE)
        c = session_load(&s, o);
    if (c != EXIT_DONE)
        goto done;
    term_interrupts_count(1);
    c = write_logits(&s, o, ids, n, &w);
done:
    c = atomic_file_close(&w, o, c == EXIT_DONE, c);
    c = session_close(&s, c);
    free(ids);
    return c;
}
