/* Downloads a model before a command begins. Shows a progress line on a
 * terminal; otherwise prints a message for every tenth of a file that has been
 * received. */
#include "fetch.h"
#include "session.h"
#include "term.h"

#include "hub/hub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct watch {
    const struct options *o;
    struct term_progress line;
    const char *name; /* name of the file that is downloaded now; NULL if
                         none */
    double start_s, shown_s;
    /* bytes of the file `name` that an earlier download had received */
    uint64_t start;
    /* number of tenths of the file for which a message was printed */
    int tenths;
};

static void on_log(void *user, pl_log_level level, const char *text)
{
    struct watch *w = user;

    if (level < PL_LOG_INFO && !w->o->verbose)
        return;
    term_progress_end(&w->line);
    cli_error(w->o->command, EXIT_DONE, "%s", text);
}

/* Writes a time as "12 min 5 s" to buf. Returns buf. */
static const char *time_text(char buf[32], double s)
{
    long n = s < 1e6 ? (long)s : 1000000;

    if (n >= 3600)
        snprintf(buf, 32, "%ld h %ld min", n / 3600, n / 60 % 60);
    else if (n >= 60)
        snprintf(buf, 32, "%ld min %ld s", n / 60, n % 60);
    else
        snprintf(buf, 32, "%ld s", n);
    return buf;
}

static void draw(struct watch *w, double now, uint64_t done, uint64_t total)
{
    enum { BAR = 20 };
    double part = (double)done / (double)total, s = now - w->start_s;
    double rate = s > 0 && done > w->start ? (double)(done - w->start) / s : 0;
    int full = (int)(part * BAR);
    char left[32] = "?";

    if (total == 0) {
        term_status(&w->line, "%.4g GB, %.3g MB/s", (double)done / 1e9,
                    rate / 1e6);
        return;
    }
    if (rate > 0)
        time_text(left, (double)(total - done) / rate);
    term_status(&w->line, "[%.*s%*s] %3.0f %% of %.4g GB, %.3g MB/s, %s left",
                full, "####################", BAR - full, "", 100 * part,
                (double)total / 1e9, rate / 1e6, left);
}

static void on_progress(void *user, const char *name, uint64_t done,
                        uint64_t total)
{
    struct watch *w = user;
    double now = term_seconds();
    int tenths = total > 0 ? (int)(10 * ((double)done / (double)total)) : 0;

    if (w->name != name) {
        w->name = name;
        w->start_s = w->shown_s = now;
        w->start = done;
        w->tenths = tenths;
    }
    if (total > 0 && done >= total) {
        term_progress_end(&w->line);
        w->name = NULL;
    } else if (isatty(2) && now - w->shown_s >= 0.2) {
        draw(w, now, done, total);
        w->shown_s = now;
    } else if (!isatty(2) && tenths > w->tenths && now - w->shown_s >= 5) {
        cli_error(w->o->command, EXIT_DONE, "%s: %d %%", name, 10 * tenths);
        w->tenths = tenths;
        w->shown_s = now;
    }
}

/* Returns the URL of the hub in the environment; NULL for the default. */
static const char *endpoint(void)
{
    const char *s = getenv("HF_ENDPOINT");

    return s != NULL && s[0] != '\0' ? s : NULL;
}

/* A download: what to get, by repository or URL, and where its path goes. */
struct wish {
    const char *repo, *file, *url;
    char **path;
};

static enum exit_code fetch(struct options *o, const struct wish *f,
                            const char *cache, const volatile int *cancel)
{
    const char *token = getenv("HF_TOKEN");
    struct watch w = {.o = o};
    const struct hub_options h = {
        .endpoint = endpoint(),
        .token = o->hf_token != NULL                 ? o->hf_token
                 : token != NULL && token[0] != '\0' ? token
                                                     : NULL,
        .cache = cache,
        .offline = o->offline,
        .stop = cancel,
        .progress = on_progress,
        .progress_user = &w,
        .log = on_log,
        .log_user = &w,
    };
    pl_err err;
    pl_status s = f->url != NULL
                      ? hub_fetch_url(f->path, &h, f->url, &err)
                      : hub_fetch(f->path, &h, f->repo, f->file, &err);

    term_progress_end(&w.line);
    if (s == PL_CANCELLED)
        return cli_error(o->command, EXIT_INTERRUPTED,
                         "stopped; run the command again to resume");
    return s == PL_OK ? EXIT_DONE : report(o, s, &err);
}

/* Downloads a model into the cache folder. */
static enum exit_code fetch_into_cache(struct options *o, const struct wish *f,
                                       const volatile int *cancel)
{
    char *cache = NULL;
    pl_err err;
    pl_status s = hub_cache_folder(&cache, &err);
    enum exit_code c =
        s == PL_OK ? fetch(o, f, cache, cancel) : report(o, s, &err);

    free(cache);
    return c;
}

/* Downloads the draft model that -hfd names. */
static enum exit_code fetch_draft(struct options *o, const volatile int *cancel)
{
    const struct wish f = {.repo = o->hf_repo_draft, .path = &o->fetched_draft};
    enum exit_code c = EXIT_DONE;

    if (o->hf_repo_draft == NULL || o->fetched_draft != NULL)
        return EXIT_DONE;
    if (o->model_draft != NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "-hfd and -md both name a draft model; leave one out");
    c = fetch_into_cache(o, &f, cancel);
    o->model_draft = o->fetched_draft;
    return c;
}

enum exit_code fetch_model(struct options *o)
{
    enum exit_code c;

    term_interrupts_count(1);
    c = fetch_model_for(o, &term_interrupts);
    term_interrupts_count(0);
    return c;
}

/* Downloads the model that -hf or -mu names. */
static enum exit_code fetch_main(struct options *o, const volatile int *cancel)
{
    const char *option = o->model_url != NULL ? "-mu" : "-hf";
    const struct wish f = {o->hf_repo, o->hf_file, o->model_url, &o->fetched};
    enum exit_code c;

    if (o->hf_file != NULL && o->hf_repo == NULL)
        return cli_error(
            o->command, EXIT_USAGE,
            "--hf-file %s: the repository is missing; give -hf USER/REPO",
            o->hf_file);
    if ((o->hf_repo == NULL && o->model_url == NULL) || o->fetched != NULL)
        return EXIT_DONE;
    if (o->hf_repo != NULL && o->model_url != NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "-hf and -mu both name a model; leave one out");
    if (o->model != NULL || o->shape != NULL)
        return cli_error(o->command, EXIT_USAGE,
                         "%s and %s both name a model; leave one out", option,
                         o->model == NULL            ? "--shape"
                         : o->command == CMD_INSPECT ? "the file"
                                                     : "-m");
    c = fetch_into_cache(o, &f, cancel);
    if (c == EXIT_DONE)
        o->model = o->fetched;
    return c;
}

enum exit_code fetch_model_for(struct options *o, const volatile int *cancel)
{
    enum exit_code c = fetch_main(o, cancel);

    return c == EXIT_DONE ? fetch_draft(o, cancel) : c;
}

enum exit_code fetch_cached(const struct options *o, hub_cached_fn *each,
                            void *user, char **folder)
{
    struct hub_options h = {.endpoint = endpoint()};
    pl_err err;
    pl_status s;

    *folder = NULL;
    s = hub_cache_folder(folder, &err);
    h.cache = *folder;
    if (s == PL_OK)
        s = hub_cached(&h, each, user, &err);
    return s == PL_OK || s == PL_NOT_FOUND ? EXIT_DONE : report(o, s, &err);
}
