/* Loads a model of plait serve with its own options; serve_model.h describes
 * the functions. */
#include "serve_model.h"

#include "atomic_file.h"
#include "chat_templates.h"
#include "fetch.h"
#include "receipt_file.h"
#include "serve_defaults.h"
#include "server/json_text.h"
#include "server/sampler_names.h"
#include "session.h"

#include "server/tier_disk.h"

#include "pl_receipt.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

void serve_log(void *user, pl_log_level level, const char *text)
{
    const struct options *o = user;
    const time_t now = time(NULL);
    struct tm t;
    char when[32];

    if (!o->verbose && level < PL_LOG_INFO)
        return;
    localtime_r(&now, &t);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S%z", &t);
    cli_error(o->command, EXIT_DONE, "%s %s", when, text);
}

static void log_warnings(void *user, pl_log_level level, const char *text)
{
    const struct options *o = user;

    if (o->verbose || level >= PL_LOG_WARN)
        serve_log(user, level, text);
}

static pl_status fail(pl_err *err, pl_status s, const char *text)
{
    err->status = s;
    snprintf(err->message, sizeof err->message, "%s", text);
    return s;
}

/* ---- what needs no model ------------------------------------------------- */

/* Returns the greatest size in bytes that the folder of --cache-dir may
 * reach. */
static uint64_t disk_limit(const struct options *o)
{
    return o->cache_disk == 0 ? (uint64_t)16 << 30 : o->cache_disk;
}

/* Checks the syntax of the chat template that an option names. */
static enum exit_code check_template(struct serve_entry *e)
{
    enum exit_code c = chat_template_read(&e->form, e->o);
    pl_template *t = NULL;
    pl_err err;

    if (c == EXIT_DONE && e->form.s != NULL &&
        pl_template_create(&t, e->form.s, e->form.len, NULL, &err) != PL_OK)
        c = cli_error(CMD_SERVE, EXIT_USAGE, "%s%s: %s",
                      e->o->chat_template != NULL ? "--template "
                                                  : "--chat-template",
                      e->o->chat_template != NULL ? e->o->chat_template : "",
                      err.message);
    pl_template_free(t);
    return c;
}

/* Checks that the directory of an option exists and can be written to. */
static enum exit_code check_directory(const char *option, const char *path)
{
    struct stat st;
    int e = 0;

    if (stat(path, &st) != 0)
        e = errno;
    else if (!S_ISDIR(st.st_mode))
        e = ENOTDIR;
    else if (faccessat(AT_FDCWD, path, W_OK | X_OK, AT_EACCESS) != 0)
        e = errno;
    if (e == 0)
        return EXIT_DONE;
    return cli_error(CMD_SERVE, EXIT_FAILED, "%s %s: %s%s", option, path,
                     strerror(e), e == ENOENT ? "; create it" : "");
}

/* Creates the directory of --cache-dir, or checks it. */
static enum exit_code check_cache(const struct options *o)
{
    struct tier_disk d;
    pl_err err;

    if (tier_disk_open(&d, o->cache_dir, disk_limit(o), &err) != PL_OK)
        return cli_error(
            CMD_SERVE, EXIT_FAILED, "--cache-dir: %s%s", err.message,
            err.status == PL_NOT_FOUND ? "; create its parent" : "");
    tier_disk_close(&d);
    return EXIT_DONE;
}

enum exit_code serve_entry_prepare(struct serve_entry *e)
{
    /* The file of the model is not needed before it is loaded. */
    enum exit_code c = whole_check_inputs(e->o, false);

    if (c == EXIT_DONE)
        c = check_template(e);
    if (c == EXIT_DONE)
        c = serve_defaults(&e->defaults, e->o);
    if (c == EXIT_DONE)
        c = receipt_read_key(&e->sign_key, e->o);
    if (c == EXIT_DONE && e->o->slot_dir != NULL)
        c = check_directory("--slot-save-path", e->o->slot_dir);
    if (c == EXIT_DONE && e->o->cache_dir != NULL)
        c = check_cache(e->o);
    return c;
}

void serve_entry_fini(struct serve_entry *e)
{
    input_free(&e->form);
    json_decref(e->defaults);
    e->defaults = NULL;
    jws_key_free(e->sign_key);
    e->sign_key = NULL;
}

/* Prepares an entry whose files were missing before. */
static pl_status prepare_again(struct serve_entry *e, pl_err *err)
{
    char why[sizeof err->message];
    enum exit_code c;

    serve_entry_fini(e);
    cli_error_copy(why, sizeof why);
    c = serve_entry_prepare(e);
    cli_error_copy(NULL, 0);
    e->unprepared = c != EXIT_DONE;
    return c == EXIT_DONE ? PL_OK : fail(err, PL_IO, why);
}

/* ---- text ---------------------------------------------------------------- */

static pl_status open_template(struct service *v, const struct serve_entry *e,
                               pl_err *err)
{
    pl_status s = pl_model_template(&v->form, v->model, e->form.s, e->form.len,
                                    &v->no_form);

    if (s == PL_NOT_FOUND) {
        const char *chatml = chat_template_named("chatml");

        cli_error(CMD_SERVE, EXIT_DONE,
                  "the model has no chat template: chats use ChatML");
        s = pl_model_template(&v->form, v->model, chatml, strlen(chatml),
                              &v->no_form);
    }
    if (s == PL_NO_MEMORY || (s != PL_OK && e->form.s != NULL)) {
        *err = v->no_form;
        return s;
    }
    if (s != PL_OK)
        cli_error(CMD_SERVE, EXIT_DONE, "chats are disabled: %s",
                  v->no_form.message);
    return PL_OK;
}

/* Checks the grammar that is applied to requests without a grammar. */
static pl_status check_grammar(const struct service *v, pl_err *err)
{
    const json_t *schema = json_object_get(v->defaults, "json_schema");
    const char *gbnf =
        json_string_value(json_object_get(v->defaults, "grammar"));
    char *text =
        schema != NULL ? json_text_dump(schema, JSON_ENCODE_ANY) : NULL;
    const char *grammar = text != NULL ? text : gbnf;
    pl_grammar *g = NULL;
    pl_status s = PL_OK;

    if (grammar != NULL)
        s = pl_grammar_create(&g, v->words,
                              text ? PL_GRAMMAR_JSON_SCHEMA : PL_GRAMMAR_GBNF,
                              grammar, strlen(grammar),
                              text ? "--json-schema" : "--grammar", err);
    pl_grammar_free(g);
    free(text);
    return s;
}

/* ---- memory -------------------------------------------------------------- */

/* Returns the default of --cache-ram in bytes: an eighth of the host memory, at
 * most 8 GiB, divided by the number of models loaded at once. Most memory is
 * left to other programs, because the machine may be shared. In a container,
 * the host memory is the container's limit. */
static uint64_t default_ram(const struct serve_models *all)
{
    const uint64_t most = (uint64_t)8 << 30;
    uint64_t bytes;
    pl_err err;

    if (pl_host_memory(&bytes, NULL, &err) != PL_OK)
        return 0; /* pl_engine_create will report the error */
    bytes = bytes / 8 < most ? bytes / 8 : most;
    return bytes / (uint64_t)(all->most > 0 ? all->most : 1);
}

/* Returns the limit in bytes of the part of a model's prefix cache that is in
 * host memory. */
static uint64_t ram_of(const struct serve_models *all, const struct options *o)
{
    if (o->cache_ram == 1) /* option_set_bytes stores 1 for --cache-ram 0 */
        return 0;
    /* for --cache-ram -1: all memory that is available */
    if (o->cache_ram == UINT64_MAX) {
        uint64_t available = 0;
        pl_err err;

        (void)pl_host_memory(NULL, &available, &err);
        return available;
    }
    return o->cache_ram == 0 ? default_ram(all) : o->cache_ram;
}

/* Returns the bytes by which the prefix caches of all loaded models may still
 * grow in host memory. */
static uint64_t promised_bytes(const struct serve_models *all)
{
    uint64_t sum = 0;

    for (int i = 0; i < all->n; i++) {
        const struct serve_entry *e = &all->entry[i];
        struct tiers_counts c;
        uint64_t ram;

        if (e->service == NULL || e->service->tiers == NULL)
            continue;
        tiers_counts(e->service->tiers, &c);
        ram = ram_of(all, e->o);
        sum += ram > c.ram_bytes ? ram - c.ram_bytes : 0;
    }
    return sum;
}

/* ---- loading ------------------------------------------------------------- */

/* Bytes of host memory for connections, requests and answers of a few
 * clients. */
enum { SERVE_BYTES = 4 << 20 };
/* Checkpoints of recurrent models besides those of drafts: pl_options's
 * default. */
enum { CHECKPOINTS = 4 };

/* Creates the engine of a model. Reserves host memory for its prefix cache and
 * for those of the loaded models in `all`; `all` is NULL if there is only one
 * model. Sets *piece to the limit of tokens in one call of the engine. */
static pl_status load(struct service *v, struct serve_entry *e,
                      const struct serve_models *all,
                      const volatile int *cancel, int64_t *piece, pl_err *err)
{
    const struct options *o = e->o;
    static const char *const kept[] = {"result_norm"};
    struct term_progress progress = {0};
    pl_options pl;
    pl_status s;

    session_settings(&pl, piece, o);
    pl.log = log_warnings;
    pl.log_user = (void *)o;
    pl.progress = term_progress;
    pl.progress_user = &progress;
    pl.cancel = cancel;
    drafts_connect(&e->drafts, &pl);
    pl.n_seq = o->n_parallel;
    pl.prefix_cache = true;
    /* A step with a draft begins and ends at a checkpoint. */
    if (drafts_enabled(o) != 0 && pl.n_checkpoint == 0)
        pl.n_checkpoint = CHECKPOINTS + 2 * o->n_parallel;
    if (v->pooling != EMBEDDINGS_OFF && v->pooling != EMBEDDINGS_RANK &&
        !pl_model_is_encoder(v->model)) {
        pl.keep = kept;
        pl.n_keep = 1;
    }
    pl.host_reserve = SERVE_BYTES + session_own_bytes(v->model, o->n_parallel);
    if (all != NULL)
        pl.host_reserve += promised_bytes(all) + ram_of(all, o);
    s = pl_engine_create(&v->engine, v->model, &pl, err);
    term_progress_end(&progress);
    if (s == PL_OK)
        s = drafts_attach(&e->drafts, v->model, v->engine, err);
    /* Computes the checksum of the weights now, so that an error fails the
     * load. The files of --cache-dir and of saved slots contain it. */
    if (s == PL_OK && (o->cache_dir || o->slot_dir))
        s = pl_engine_sum(v->engine, cancel, err);
    if (s != PL_OK)
        return s;
    session_check_context(v->model, pl_engine_n_ctx(v->engine), o);
    return PL_OK;
}

static pl_status open_tiers(struct service *v, const struct options *o,
                            const struct serve_models *all, pl_err *err)
{
    struct tiers_options to = {.ram = ram_of(all, o),
                               .dir = o->cache_dir,
                               .disk = disk_limit(o),
                               .log = serve_log,
                               .log_user = (void *)o};

    if (to.ram == 0 && !to.dir)
        return PL_OK;
    return tiers_open(&v->tiers, &to, v->engine, err);
}

static pl_status start_loop(struct service *v, const struct options *o,
                            int64_t piece, pl_err *err)
{
    const struct loop_options lo = {
        .n_seq = o->n_parallel,
        .max_waiting = o->n_waiting,
        .step = piece,
        .chunk = o->prefill_share > 0
                     ? (int64_t)ceil((double)o->prefill_share * (double)piece)
                     : 0,
        .drafter = v->drafter,
        .tiers = v->tiers,
        .d_model = v->pooling == EMBEDDINGS_OFF    ? 0
                   : v->pooling == EMBEDDINGS_RANK ? pl_model_n_label(v->model)
                                                   : pl_model_d_model(v->model),
        .scores = v->pooling == EMBEDDINGS_RANK,
        .whole = pl_model_is_encoder(v->model),
        .log = serve_log,
        .log_user = (void *)o,
        .lost = service_lost,
        .lost_user = v};

    return loop_create(&v->loop, v->engine, v->words, &lo, err);
}

/* Sets the pooling of embeddings to the option's, else to the one that the
 * model's file names, else to POOLING_LAST. An encoder computes nothing else,
 * so it has them without the option. */
static pl_status set_pooling(struct service *v, const struct options *o,
                             pl_err *err)
{
    static const enum embeddings_pooling by_option[] = {
        [POOLING_LAST] = EMBEDDINGS_LAST, [POOLING_MEAN] = EMBEDDINGS_MEAN,
        [POOLING_CLS] = EMBEDDINGS_CLS,   [POOLING_NONE] = EMBEDDINGS_NONE,
        [POOLING_RANK] = EMBEDDINGS_RANK,
    };
    static const enum embeddings_pooling by_file[] = {
        [PL_POOLING_NONE] = EMBEDDINGS_NONE,
        [PL_POOLING_MEAN] = EMBEDDINGS_MEAN,
        [PL_POOLING_CLS] = EMBEDDINGS_CLS,
        [PL_POOLING_LAST] = EMBEDDINGS_LAST,
        [PL_POOLING_RANK] = EMBEDDINGS_RANK,
    };
    const pl_pooling file = pl_model_pooling(v->model);

    if (!o->embeddings && !o->rerank && !pl_model_is_encoder(v->model))
        v->pooling = EMBEDDINGS_OFF;
    else if (o->rerank)
        v->pooling = EMBEDDINGS_RANK;
    else if (o->pooling != POOLING_AUTO)
        v->pooling = by_option[o->pooling];
    else
        v->pooling = file == PL_POOLING_UNSET ? EMBEDDINGS_LAST : by_file[file];
    if (v->pooling == EMBEDDINGS_RANK && pl_model_n_label(v->model) == 0)
        return fail(err, PL_UNSUPPORTED,
                    "the model has no class head (its file's pooling_type is "
                    "not 4, rank), so it cannot rank; use a reranker, or for "
                    "embeddings --pooling last, mean, cls or none");
    return PL_OK;
}

static const enum request_reasoning reasonings[] = {
    [THOUGHTS_AUTO] = REASONING_APART,
    [THOUGHTS_NONE] = REASONING_WITHIN,
    [THOUGHTS_DEEPSEEK] = REASONING_APART,
    [THOUGHTS_LEGACY] = REASONING_BOTH,
};

static pl_status open_service(struct service *v, struct serve_entry *e,
                              const struct serve_models *all,
                              const volatile int *cancel, pl_err *err)
{
    const struct options *o = e->o;
    const bool alone = o != &e->own;
    pl_receipt *receipt;
    int64_t piece;
    pl_status s = session_model(&v->model, o, err);

    if (s != PL_OK)
        return s;
    v->log = serve_log;
    v->log_user = (void *)o;
    v->words = pl_model_tokenizer(v->model);
    if (v->words == NULL)
        return fail(
            err, PL_UNSUPPORTED,
            "the model has no tokenizer; `plait logits` takes token ids");
    v->defaults = json_incref(e->defaults);
    v->sign_key = e->sign_key;
    if (all->receipts != NULL) {
        v->keep_receipt = serve_receipts_keep;
        v->keep_user = all->receipts;
        v->keep_flags = all->receipt_flags;
    }
    s = model_facts_read(&v->facts, v->model, err);
    if (s == PL_OK)
        s = set_pooling(v, o, err);
    if (s == PL_OK)
        s = check_grammar(v, err);
    if (s == PL_OK)
        s = open_template(v, e, err);
    if (s == PL_OK)
        s = drafts_open(&e->drafts, o, v->model, o->n_parallel, log_warnings,
                        cancel, err);
    if (s == PL_OK)
        s = load(v, e, alone ? NULL : all, cancel, &piece, err);
    if (s != PL_OK)
        return s;
    v->created = (int64_t)time(NULL);
    session_sampling(&v->sampling, o, v->model);
    v->sampling.tokenizer = v->words;
    if (o->random_seed)
        v->sampling.seed = SAMPLER_ANY_SEED;
    v->max_tokens = o->n_predict;
    v->reasoning = reasonings[o->reasoning_format];
    v->limits_thinking = o->reasoning_budget > 0;
    v->think_tokens = o->reasoning_budget;
    v->time_s = o->timeout_s;
    v->ping_s = o->ping_s > 0 ? o->ping_s : 0;
    s = open_tiers(v, o, all, err);
    /* Hashes the weights now, so that the first receipt need not wait. */
    if (s == PL_OK && (o->receipts || all->receipts != NULL)) {
        s = pl_receipt_begin(&receipt, v->engine, NULL, 0, err);
        pl_receipt_free(receipt);
    }
    if (s == PL_OK)
        s = slots_init(&v->slots, o->slot_dir, v->engine, err);
    v->drafts = o->drafts.limits;
    v->drafts.sources = drafts_enabled(o);
    v->drafter = e->drafts.drafter;
    v->no_source = (e->drafts.engine == NULL ? 1u << PL_DRAFT_SIMPLE : 0) |
                   (e->drafts.mtp_texts == 0 ? 1u << PL_DRAFT_MTP : 0);
    return s == PL_OK ? start_loop(v, o, piece, err) : s;
}

pl_status serve_model_open(void *user, const struct model_about *about,
                           const volatile int *cancel, struct service **out,
                           pl_err *err)
{
    struct serve_entry *e = about->own;
    struct service *v;
    pl_status s;

    *out = NULL;
    if (e->unprepared && (s = prepare_again(e, err)) != PL_OK)
        return s;
    v = calloc(1, sizeof(*v));
    if (v == NULL)
        return fail(err, PL_NO_MEMORY, "no memory for a model");
    if (e->o->model == NULL ||
        (e->o->hf_repo_draft != NULL && e->o->model_draft == NULL)) {
        enum exit_code c = fetch_model_for(&e->own, cancel);

        if (c != EXIT_DONE)
            free(v);
        if (c == EXIT_INTERRUPTED)
            return fail(err, PL_CANCELLED, "its download was cancelled");
        if (c != EXIT_DONE)
            return fail(err, PL_IO,
                        "its download failed; see the server's log");
    }
    v->name = about->name;
    v->path = e->o->model;
    metrics_init(&v->metrics);
    response_store_init(&v->stored);
    grammars_init(&v->grammars, NULL);
    s = open_service(v, e, user, cancel, err);
    v->grammars.words = v->words;
    if (s == PL_OK) {
        *out = e->service = v;
    } else {
        drafts_close(&e->drafts); /* there is no loop that uses it */
        serve_model_close(user, v);
    }
    return s;
}

void serve_model_close(void *user, struct service *v)
{
    const struct serve_models *all = user;

    struct serve_entry *e = NULL;

    for (int i = 0; i < all->n; i++)
        if (all->entry[i].service == v) {
            e = &all->entry[i];
            e->service = NULL;
        }
    slots_fini(&v->slots);
    loop_free(v->loop); /* ends requests that are still running */
    if (e != NULL) {    /* the model was served; an error is printed */
        (void)drafts_save(v->drafter, e->o, e->o->n_parallel, EXIT_DONE);
        drafts_close(&e->drafts);
    }
    tiers_free(v->tiers);
    grammars_fini(&v->grammars);
    metrics_fini(&v->metrics);
    response_store_fini(&v->stored);
    pl_template_free(v->form);
    json_decref(v->defaults);
    pl_engine_free(v->engine);
    pl_model_free(v->model);
    free(v);
}
