/* Creates the drafter of run and serve; see drafts.h. */
#include "drafts.h"

#include "atomic_file.h"
#include "printable.h"
#include "session.h"
#include "term.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static pl_status failed(pl_err *err, const char *path, int e)
{
    char name[SHOWN];

    err->status = e == ENOMEM ? PL_NO_MEMORY : PL_IO;
    if (strcmp(path, "-") == 0)
        snprintf(err->message, sizeof err->message,
                 "lookup file -: standard input is not read; name a file");
    else
        snprintf(err->message, sizeof err->message, "lookup file %s: %s%s",
                 clip_printable(name, path), strerror(e),
                 e == ENOENT ? "; check the path" : "");
    return err->status;
}

/* Reads a file of unknown size. Returns 0 or an errno. */
static int read_all(const char *path, char **data, size_t *n)
{
    FILE *f = fopen(path, "rb"), *to;
    char part[4096];
    size_t got;
    int e = 0;

    *data = NULL;
    *n = 0;
    if (f == NULL)
        return errno;
    to = open_memstream(data, n);
    if (to == NULL)
        e = ENOMEM;
    errno = 0;
    while (e == 0 && (got = fread(part, 1, sizeof part, f)) > 0)
        if (fwrite(part, 1, got, to) != got)
            e = ENOMEM;
    if (e == 0 && ferror(f))
        e = errno != 0 ? errno : EIO;
    if (to != NULL && fclose(to) != 0 && e == 0)
        e = ENOMEM;
    fclose(f);
    return e;
}

/* Reads a lookup file, which may be missing if `fixed` is false. */
static pl_status load(pl_drafter *d, bool fixed, const char *path, pl_err *err)
{
    char name[SHOWN], *data;
    size_t n;
    pl_status s = PL_OK;
    int e;

    if (path == NULL)
        return PL_OK;
    e = read_all(path, &data, &n);
    if (e != 0 && (fixed || e != ENOENT))
        s = failed(err, path, e);
    else if (e == 0)
        s = pl_draft_load(d, fixed, data, n, clip_printable(name, path), err);
    free(data);
    return s;
}

uint32_t drafts_enabled(const struct options *o)
{
    if (!o->drafts_given && o->model_draft != NULL)
        return 1u << PL_DRAFT_SIMPLE;
    return o->drafts.limits.sources;
}

int drafts_mtp_texts(const struct options *o, const pl_model *m, int n_seq)
{
    const bool asked = drafts_enabled(o) >> PL_DRAFT_MTP & 1;

    return asked && pl_model_n_mtp(m) > 0 ? n_seq : 0;
}

/* ---- the draft model ----------------------------------------------------- */

/* Sets the options of the draft model's engine: its own, and those of the
 * command that are not of one model alone. */
static void set_options(pl_options *pl, const struct options *o, int n_seq)
{
    /* Checkpoints of recurrent models besides those of drafts: pl_options's
     * default. */
    enum { CHECKPOINTS = 4 };

    *pl = o->draft;
    if (pl->devices == NULL)
        pl->devices = o->pl.devices;
    if (pl->n_threads == 0)
        pl->n_threads = o->pl.n_threads;
    if (pl->n_ctx == 0)
        pl->n_ctx = o->pl.n_ctx;
    pl->n_ubatch = o->pl.n_ubatch;
    pl->fit_ctx = o->pl.fit_ctx;
    pl->fit_margin = o->pl.fit_margin;
    pl->no_fit = o->pl.no_fit;
    pl->no_pin = o->pl.no_pin;
    pl->inexact = o->pl.inexact;
    pl->cpu = o->pl.cpu;
    pl->numerics = o->pl.numerics;
    pl->sim_seed = o->pl.sim_seed;
    pl->n_seq = n_seq;
    /* A draft ends at a token that is often rejected. */
    pl->n_checkpoint = CHECKPOINTS + 2 * n_seq;
    pl->prefix_cache = true;
}

/* Adds the name of the option to a message. */
static pl_status name_option(pl_err *err, const char *option)
{
    char why[sizeof err->message];

    memcpy(why, err->message, sizeof why);
    snprintf(err->message, sizeof err->message, "%s: %.*s", option,
             (int)(sizeof why - 32), why);
    return err->status;
}

static pl_status open_model(struct draft_sources *d, const struct options *o,
                            const pl_model *m, int n_seq, pl_log_fn *log,
                            const volatile int *cancel, pl_err *err)
{
    const char *option =
        o->hf_repo_draft != NULL ? "--hf-repo-draft" : "--model-draft";
    struct term_progress progress = {0};
    pl_options pl;
    pl_status s;

    if (o->model_draft == NULL) {
        err->status = PL_BAD_ARGUMENT;
        snprintf(err->message, sizeof err->message,
                 "--spec-type draft-simple: there is no draft model; give one "
                 "with --model-draft FILE");
        return err->status;
    }
    s = pl_model_open(&d->model, o->model_draft, err);
    if (s == PL_OK)
        s = pl_draft_check_model(m, d->model, err);
    if (s != PL_OK)
        return name_option(err, option);
    set_options(&pl, o, n_seq);
    pl.host_reserve = session_own_bytes(d->model, n_seq);
    pl.log = log;
    pl.log_user = (void *)o;
    pl.cancel = cancel;
    pl.progress = term_progress;
    pl.progress_user = &progress;
    s = pl_engine_create(&d->engine, d->model, &pl, err);
    term_progress_end(&progress);
    return s == PL_OK || s == PL_CANCELLED ? s : name_option(err, option);
}

/* ---- the drafter --------------------------------------------------------- */

pl_status drafts_open(struct draft_sources *d, const struct options *o,
                      const pl_model *m, int n_seq, pl_log_fn *log,
                      const volatile int *cancel, pl_err *err)
{
    pl_draft_options own = o->drafts;
    pl_status s = PL_OK;

    *d = (struct draft_sources){0};
    own.limits.sources = drafts_enabled(o);
    if (own.limits.sources == 0)
        return PL_OK;
    if (own.limits.sources >> PL_DRAFT_SIMPLE & 1)
        s = open_model(d, o, m, n_seq, log, cancel, err);
    else if (o->model_draft != NULL)
        cli_error(o->command, EXIT_DONE,
                  "--model-draft is not used, because --spec-type lacks "
                  "draft-simple");
    d->mtp_texts = drafts_mtp_texts(o, m, n_seq);
    if (own.limits.sources >> PL_DRAFT_MTP & 1 && d->mtp_texts == 0) {
        cli_error(o->command, EXIT_DONE,
                  "--spec-type draft-mtp is not used, because the model has no "
                  "layers for multi-token prediction");
        own.limits.sources &= ~(1u << PL_DRAFT_MTP);
    }
    if (s != PL_OK)
        return s;
    own.n_seq = n_seq;
    own.n_vocab = pl_model_n_vocab(m);
    own.learn = o->lookup_dynamic != NULL;
    own.model = d->model;
    own.engine = d->engine;
    s = pl_drafter_create(&d->drafter, &own, err);
    if (s == PL_OK)
        s = load(d->drafter, true, o->lookup_static, err);
    if (s == PL_OK)
        s = load(d->drafter, false, o->lookup_dynamic, err);
    return s;
}

void drafts_close(struct draft_sources *d)
{
    pl_drafter_free(d->drafter);
    pl_engine_free(d->engine);
    pl_model_free(d->model);
    *d = (struct draft_sources){0};
}

void drafts_connect(struct draft_sources *d, pl_options *pl)
{
    if (d->mtp_texts == 0)
        return;
    pl->mtp_texts = d->mtp_texts;
    pl->hidden = pl_draft_hidden;
    pl->hidden_user = d->drafter;
}

pl_status drafts_attach(struct draft_sources *d, const pl_model *m,
                        pl_engine *e, pl_err *err)
{
    return d->mtp_texts == 0 ? PL_OK : pl_draft_attach(d->drafter, m, e, err);
}

int64_t drafts_rows(const struct options *o)
{
    const pl_draft_limits *limits = &o->drafts.limits;

    if (drafts_enabled(o) == 0)
        return 1;
    return 1 + (limits->n_max >= 0 && limits->n_max < PL_DRAFT_MAX
                    ? limits->n_max
                    : PL_DRAFT_MAX);
}

enum exit_code drafts_save(pl_drafter *d, const struct options *o, int n_seq,
                           enum exit_code c)
{
    struct whole_file f = {0};
    enum exit_code opened;

    if (d == NULL || o->lookup_dynamic == NULL)
        return c;
    for (int i = 0; i < n_seq; i++)
        pl_draft_forget(d, i);
    opened =
        atomic_file_open(&f, o, "--lookup-cache-dynamic", o->lookup_dynamic);
    if (opened != EXIT_DONE)
        return c == EXIT_DONE ? opened : c;
    pl_draft_save(d, whole_write, &f);
    return atomic_file_close(&f, o, true, c);
}
