/* Opens a model on devices and runs it, for the commands that compute. */
#include "session.h"
#include "printable.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum exit_code exit_code_of(pl_status s)
{
    return s == PL_CANCELLED      ? EXIT_INTERRUPTED
           : s == PL_BAD_ARGUMENT ? EXIT_USAGE
                                  : EXIT_FAILED;
}

enum exit_code report(const struct options *o, pl_status s, const pl_err *err)
{
    return cli_error(o->command, exit_code_of(s), "%s",
                     s == PL_CANCELLED ? "stopped" : err->message);
}

enum exit_code report_no_model(const struct options *o, const char *more)
{
    return cli_error(o->command, EXIT_USAGE,
                     "no model; give one with -m FILE, or download one with "
                     "-hf USER/REPO%s",
                     more);
}

/* errno of the first failed write to standard output; 0 if none failed */
static int out_errno;

/* Writes directly, because stdio drops buffered data if a signal interrupts a
 * write. Ctrl-C must end an answer but not lose output. */
void write_out(void *user, const char *text, size_t len)
{
    (void)user;
    flush_out();
    while (len > 0 && out_errno == 0) {
        ssize_t n = write(STDOUT_FILENO, text, len);

        if (n > 0) {
            text += n;
            len -= (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            out_errno = n == 0 ? EIO : errno;
        }
    }
}

bool flush_out(void)
{
    if (fflush(stdout) != 0 && out_errno == 0)
        out_errno = errno;
    return out_errno == 0 && !ferror(stdout);
}

enum exit_code finish_out(const struct options *o)
{
    if (flush_out())
        return EXIT_DONE;
    if (out_errno == EPIPE) /* the reader of the pipe, such as `head`, has
                               ended */
        return EXIT_PIPE;
    return cli_error(o->command, EXIT_FAILED, "writing standard output: %s",
                     out_errno != 0 ? strerror(out_errno) : "write error");
}

/* ---- open and close ----------------------------------------------------- */

/* Returns true if the same warning was printed before. `plait bench` opens many
 * similar engines, which log the same warnings. */
static bool was_said(const char *text)
{
    /* warnings that were printed; if all elements are used, further warnings
     * are printed each time */
    static char *said[32];
    size_t i = 0;

    for (; i < sizeof(said) / sizeof(said[0]) && said[i] != NULL; i++)
        if (strcmp(said[i], text) == 0)
            return true;
    if (i < sizeof(said) / sizeof(said[0]))
        said[i] = strdup(text);
    return false;
}

static void log_quiet(void *user, pl_log_level level, const char *text)
{
    const struct options *o = user;

    if (o->verbose || (level >= PL_LOG_WARN && !was_said(text)))
        cli_error(o->command, EXIT_DONE, "%s", text);
}

void session_settings(pl_options *pl, int64_t *piece, const struct options *o)
{
    *pl = o->pl;
    if (o->pl.n_tensor_split > 0)
        pl->tensor_split = o->split;
    if (o->pl.n_rank_split > 0)
        pl->rank_split = o->rank_split;
    pl->n_seq = 1;
    *piece = o->pl.n_ubatch > 0 ? o->pl.n_ubatch : 512;
    if (o->n_batch > 0 && o->n_batch < *piece)
        pl->n_ubatch = o->n_batch;
    if (o->n_batch > 0)
        *piece = o->n_batch;
}

uint64_t session_own_bytes(const pl_model *m, int n)
{
    enum { FIXED = 4 << 20, OF_TOKEN = 16 };

    return FIXED + (uint64_t)n * OF_TOKEN * (uint64_t)pl_model_n_vocab(m);
}

pl_status session_model(pl_model **m, const struct options *o, pl_err *err)
{
    return pl_model_open_override(m, o->model,
                                  (const char *const *)o->kv_overrides.v,
                                  o->kv_overrides.n, err);
}

enum exit_code session_open(struct session *s, const struct options *o)
{
    pl_err err;
    pl_status r;

    memset(s, 0, sizeof(*s));
    s->o = o;
    session_settings(&s->pl, &s->piece, o);
    s->pl.log = log_quiet;
    s->pl.log_user = (void *)o;
    if (o->model == NULL)
        return report_no_model(o, "");
    r = session_model(&s->model, o, &err);
    if (r != PL_OK)
        return report(o, r, &err);
    s->pl.host_reserve = session_own_bytes(s->model, 1);
    s->n_vocab = pl_model_n_vocab(s->model);
    s->words = pl_model_tokenizer(s->model);
    return EXIT_DONE;
}

/* ---- trace -------------------------------------------------------------- */

static enum exit_code open_trace(struct session *s)
{
    if (s->o->trace == NULL)
        return EXIT_DONE;
    s->pl.trace = whole_write;
    s->pl.trace_user = &s->trace;
    return atomic_file_open(&s->trace, s->o, "--trace", s->o->trace);
}

/* Writes a time as "1.23 s", "4.56 ms" or "0.78 us" to buf. Returns buf. */
static const char *seconds_text(double s, char buf[24])
{
    static const char *const units[] = {"s", "ms", "us"};
    int unit = 0;

    for (; s < 1 && unit < 2; unit++)
        s *= 1e3;
    snprintf(buf, 24, "%.2f %s", s, units[unit]);
    return buf;
}

static void say_traced(struct session *s)
{
    char text[24];
    pl_traced t;

    pl_engine_traced(s->engine, &t, sizeof t);
    fprintf(stderr, "trace: %" PRIu64 " step%s, %s", t.runs,
            t.runs == 1 ? "" : "s", seconds_text(t.seconds, text));
    if (t.copy_s > 0)
        fprintf(stderr, "; copies between groups took %s, %.0f %% of it hidden",
                seconds_text(t.copy_s, text), 100 * t.hidden_s / t.copy_s);
    fprintf(stderr, "\n");
}

void session_check_context(const pl_model *m, int64_t n_ctx,
                           const struct options *o)
{
    int64_t trained = pl_model_n_ctx_train(m);

    if (trained > 0 && n_ctx > trained)
        cli_error(o->command, EXIT_DONE,
                  "-c %" PRId64 ": the model was trained on %" PRId64
                  " tokens, beyond which its output gets poor; use -c %" PRId64,
                  n_ctx, trained, trained);
}

const char *session_advise(char buf[SESSION_ADVICE], const struct session *s,
                           int64_t least, int64_t want)
{
    int64_t trained = pl_model_n_ctx_train(s->model);

    if (trained <= 0 || want <= trained)
        snprintf(buf, SESSION_ADVICE, "use -c %" PRId64, want);
    else if (least <= trained)
        snprintf(buf, SESSION_ADVICE,
                 "use -c %" PRId64 ", all that the model was trained on",
                 trained);
    else
        snprintf(buf, SESSION_ADVICE,
                 "use -c %" PRId64
                 ", but expect poor output beyond the %" PRId64
                 " tokens that the model was trained on",
                 want, trained);
    return buf;
}

enum exit_code session_load(struct session *s, const struct options *o)
{
    pl_err err;
    pl_status status;
    enum exit_code c = session_try_load(s, o, &status, &err);

    return status == PL_OK ? c : report(o, status, &err);
}

enum exit_code session_try_load(struct session *s, const struct options *o,
                                pl_status *status, pl_err *err)
{
    enum exit_code c = open_trace(s);

    *status = PL_OK;
    if (c != EXIT_DONE)
        return c;
    s->pl.progress = term_progress;
    s->pl.progress_user = &s->progress;
    *status = pl_engine_create(&s->engine, s->model, &s->pl, err);
    term_progress_end(&s->progress);
    if (*status != PL_OK)
        return EXIT_FAILED;
    s->n_ctx = pl_engine_n_ctx(s->engine);
    session_check_context(s->model, s->n_ctx, o);
    return EXIT_DONE;
}

enum exit_code session_close(struct session *s, enum exit_code c)
{
    bool ran = s->engine != NULL;

    if (ran && s->trace.f != NULL)
        say_traced(s);
    pl_engine_free(s->engine); /* pl_engine_free writes the end of the trace */
    pl_model_free(s->model);
    s->engine = NULL;
    s->model = NULL;
    return atomic_file_close(&s->trace, s->o, ran, c);
}

enum exit_code session_require_tokenizer(const struct session *s,
                                         const struct options *o)
{
    if (s->words != NULL)
        return EXIT_DONE;
    return cli_error(o->command, EXIT_FAILED,
                     "%s has no tokenizer; `plait logits` takes token ids",
                     o->model);
}

void session_sampling(pl_sampling *s, const struct options *o,
                      const pl_model *m)
{
    pl_sampling usual, file;
    pl_err err;

    *s = o->sampling;
    pl_sampling_init(&usual);
    file = usual;
    if (pl_model_sampling(m, &file, &err) != PL_OK)
        cli_error(o->command, EXIT_DONE, "%s", err.message);
    if (s->n_step == 0) {
        s->n_step = file.n_step;
        memcpy(s->step, file.step, sizeof(s->step));
    }
    /* The fields before n_step are numbers of four bytes, so they can be
     * compared one by one. */
    for (size_t i = 0; i < offsetof(pl_sampling, n_step); i += 4) {
        char *to = (char *)s + i;

        if (!o->sampling_given[i] &&
            memcmp((char *)&file + i, (char *)&usual + i, 4) != 0)
            memcpy(to, (char *)&file + i, 4);
    }
}

/* ---- tokens ------------------------------------------------------------- */

pl_status session_feed(struct session *s, const int32_t *ids, int64_t n,
                       float *logits, const char *what,
                       const volatile int *cancel, pl_err *err)
{
    pl_status r = PL_OK;
    int64_t piece = n < s->piece ? n : s->piece;
    uint8_t *wanted = calloc((size_t)piece + 1, 1);

    if (wanted == NULL) {
        snprintf(err->message, sizeof(err->message),
                 "no memory for %" PRId64 " flags; give a smaller -b", piece);
        return PL_NO_MEMORY;
    }
    for (int64_t i = 0; i < n && r == PL_OK; i += piece) {
        bool last = n - i <= piece;
        pl_batch b = {
            .size = sizeof b, .n = last ? n - i : piece, .token = ids + i};

        b.wanted = wanted;
        b.logits = last ? logits : NULL;
        if (last && logits != NULL)
            wanted[b.n - 1] = 1;
        if (what != NULL)
            term_progress(&s->progress, what, (uint64_t)i, (uint64_t)n);
        r = pl_engine_decode(s->engine, &b, cancel, err);
    }
    if (what != NULL)
        term_progress_end(&s->progress);
    free(wanted);
    return r;
}
