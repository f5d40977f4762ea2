/* Loads and saves the state of plait run.
 *
 * A state file can contain a note of the application. The note of plait run
 * contains the tokens, which penalties and detokenization need, and the logits
 * after the last token, from which the next one is sampled. Little endian:
 *
 *   0   4  n, tokens
 *   4   4  n_logits: size of the vocabulary; 0 if prefill was stopped
 *   8      n times 4, token ids
 *          n_logits times 4, floats */
#include "printable.h"
#include "run.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD = 8 };

/* ---- the note ----------------------------------------------------------- */

static uint32_t get4(const unsigned char *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof(v));
    return le32toh(v);
}

static unsigned char *put4(unsigned char *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, sizeof(v));
    return p + sizeof(v);
}

/* Restores tokens and logits from a note of make_note. Ignores a note that does
 * not match the sequence. Without tokens and logits the state can still be
 * continued, but only by a text that the user gives. */
static void read_note(struct run *r, const unsigned char *p, size_t bytes)
{
    int64_t n, n_logits;

    if (bytes < HEAD)
        return;
    n = get4(p);
    n_logits = get4(p + 4);
    if (n != r->n_past || (n_logits != 0 && n_logits != r->s.n_vocab) ||
        bytes != HEAD + 4 * (size_t)(n + n_logits))
        return;
    p += HEAD;
    for (int64_t i = 0; i < n; i++, p += 4)
        if (get4(p) >= (uint64_t)r->s.n_vocab)
            return;
    p -= 4 * n;
    for (int64_t i = 0; i < n; i++, p += 4) {
        r->held[i] = (int32_t)get4(p);
        pl_sampler_accept(r->sampler, r->held[i]);
        pl_detokenize(r->text, r->held[i]);
    }
    r->n_known = n;
    for (int64_t i = 0; i < n_logits; i++, p += 4) {
        uint32_t v = get4(p);

        memcpy(&r->logits[i], &v, sizeof(v));
    }
    if (n_logits > 0)
        r->n_seen = n;
}

/* Sets *note to the note for the sequence, malloc'ed. If not all tokens of the
 * sequence are known, sets it to NULL and returns PL_OK. */
static pl_status make_note(struct run *r, unsigned char **note, size_t *bytes)
{
    int64_t n = pl_seq_length(r->s.engine, 0);
    int64_t n_logits = run_can_write(r) ? r->s.n_vocab : 0;
    unsigned char *p;

    *note = NULL;
    *bytes = 0;
    if (r->n_known != n)
        return PL_OK;
    *bytes = HEAD + 4 * (size_t)(n + n_logits);
    *note = p = malloc(*bytes);
    if (p == NULL) {
        snprintf(r->err.message, sizeof(r->err.message),
                 "no memory for a state's note of %zu bytes", *bytes);
        return PL_NO_MEMORY;
    }
    p = put4(p, (uint32_t)n);
    p = put4(p, (uint32_t)n_logits);
    for (int64_t i = 0; i < n; i++)
        p = put4(p, (uint32_t)r->held[i]);
    for (int64_t i = 0; i < n_logits; i++) {
        uint32_t v;

        memcpy(&v, &r->logits[i], sizeof(v));
        p = put4(p, v);
    }
    return PL_OK;
}

/* ---- to and from a file ------------------------------------------------- */

enum exit_code run_load_state(struct run *r)
{
    const struct options *o = r->o;
    void *note = NULL;
    size_t bytes = 0;
    pl_status s;

    if (o->state_load == NULL)
        return EXIT_DONE;
    s = pl_state_restore_file(r->s.engine, 0, o->state_load,
                              o->convert ? PL_STATE_CONVERT : 0, &note, &bytes,
                              &r->err);
    if (s != PL_OK)
        return cli_error(CMD_RUN, EXIT_FAILED, "%s", r->err.message);
    r->n_past = pl_seq_length(r->s.engine, 0);
    read_note(r, note, bytes);
    free(note);
    return EXIT_DONE;
}

enum exit_code run_save_state(struct run *r)
{
    const struct options *o = r->o;
    char name[SHOWN];
    unsigned char *note = NULL;
    size_t bytes = 0;
    pl_status s = PL_OK;
    enum exit_code c;

    if (o->state_save == NULL)
        return EXIT_DONE;
    r->saves = true;
    if (r->pending >= 0 && pl_seq_length(r->s.engine, 0) >= r->s.n_ctx) {
        cli_error(CMD_RUN, EXIT_DONE,
                  "%s lacks the last token, because the context of %" PRId64
                  " tokens is full",
                  clip_printable(name, o->state_save), r->s.n_ctx);
    } else if (r->pending >= 0 &&
               run_prefill(r, &r->pending, 1, NULL) != STOP_END) {
        s = r->status;
    }
    /* Checks again, because files may have been replaced since whole_check
     * compared them. */
    c = whole_compare(o, "--state-save", o->state_save);
    if (c != EXIT_DONE)
        return c;
    if (s == PL_OK)
        s = make_note(r, &note, &bytes);
    if (s == PL_OK)
        s = pl_state_save_file(r->s.engine, 0, 0, -1, note, bytes,
                               o->state_save, &r->err);
    free(note);
    return s == PL_OK ? EXIT_DONE : report(o, s, &r->err);
}
