/* Creates the drafter of run and serve; see drafts.h. */
#include "drafts.h"

#include "atomic_file.h"
#include "printable.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static pl_status failed(pl_err *err, const char *path, int e)
{
    char name[SHOWN];

    err->status = e == ENOMEM ? PL_NO_MEMORY : PL_IO;
    snprintf(err->message, sizeof err->message, "lookup file %s: %s",
             clip_printable(name, path), strerror(e));
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

pl_status drafts_create(pl_drafter **out, const struct options *o,
                        const pl_model *m, int n_seq, pl_err *err)
{
    pl_draft_options own = o->drafts;
    pl_status s;

    *out = NULL;
    if (own.limits.sources == 0)
        return PL_OK;
    own.n_seq = n_seq;
    own.n_vocab = pl_model_n_vocab(m);
    own.learn = o->lookup_dynamic != NULL;
    s = pl_drafter_create(out, &own, err);
    if (s == PL_OK)
        s = load(*out, true, o->lookup_static, err);
    if (s == PL_OK)
        s = load(*out, false, o->lookup_dynamic, err);
    if (s == PL_OK)
        return s;
    pl_drafter_free(*out);
    *out = NULL;
    return s;
}

int64_t drafts_rows(const struct options *o)
{
    const pl_draft_limits *limits = &o->drafts.limits;

    if (limits->sources == 0)
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
