/* plait verify: checks receipts with the model that they name, on any devices;
 * plait diff: tells where two receipts differ. Exit codes: 0 if all receipts
 * hold or the two agree, 1 if receipts differ, 2 if one cannot be compared or
 * an error ended the command. */
#include "chat_templates.h"
#include "cmd.h"
#include "input.h"
#include "printable.h"
#include "receipt_file.h"
#include "server/json_text.h"
#include "server/request_tasks.h"
#include "session.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct verify {
    const struct options *o;
    struct session s;
    struct receipt_list list;
    struct jws_trust *trust;      /* keys of --trust; owned; NULL if none */
    struct input prompt, grammar; /* empty if not given */
    int32_t *ids;                 /* of the prompt; owned */
    int64_t n_ids;
    uint64_t seed;     /* of the choice of --sample */
    pl_options used;   /* those of s.engine */
    int count[3];      /* receipts by enum pl_receipt_verdict */
    int64_t n_checked; /* tokens */
    double nll;        /* sum of -ln p of texts whose receipts hold */
    int64_t n_scored;  /* tokens of these */
    double busy_s;     /* spent in checks */
};

static const char *const words[] = {[PL_RECEIPT_HOLDS] = "holds",
                                    [PL_RECEIPT_DIFFERS] = "differs",
                                    [PL_RECEIPT_CANNOT] = "cannot compare"};

/* ---- preparation -------------------------------------------------------- */

/* Reads the texts of the options for the prompt and the grammar, if they are
 * given. */
static enum exit_code read_given(struct verify *v)
{
    const struct options *o = v->o;
    enum exit_code c = EXIT_DONE;
    bool text = o->prompt != NULL || o->file != NULL;

    if (text && o->messages != NULL)
        return cli_error(CMD_VERIFY, EXIT_USAGE,
                         "-p or -f and --messages give two prompts; leave one "
                         "out");
    if (text)
        c = input_prompt(&v->prompt, o);
    if (c == EXIT_DONE && o->grammar_file != NULL)
        c = input_file(&v->grammar, o, o->grammar_file);
    return c;
}

static enum exit_code read_trust(struct verify *v)
{
    struct input pem = {0};
    enum exit_code c = EXIT_DONE;
    char why[JWS_WHY], cut[SHOWN];

    if (v->o->trust == NULL)
        return EXIT_DONE;
    c = input_file(&pem, v->o, v->o->trust);
    if (c == EXIT_DONE && !jws_trust_read(&v->trust, pem.s, pem.len, why))
        c = cli_error(CMD_VERIFY, EXIT_USAGE, "--trust %s: %s",
                      clip_printable(cut, v->o->trust), why);
    input_free(&pem);
    return c;
}

/* Renders the prompt of --messages, and tokenizes it or that of -p or -f. */
static enum exit_code tokenize(struct verify *v)
{
    pl_err err;
    pl_status s;

    if (v->prompt.s == NULL && v->o->messages == NULL)
        return EXIT_DONE;
    if (v->s.words == NULL)
        return session_require_tokenizer(&v->s, v->o);
    if (v->prompt.s == NULL) {
        enum exit_code c = render_prompt(&v->prompt, v->o, v->s.model);

        if (c != EXIT_DONE)
            return c;
        s = request_chat_tokens(v->s.words, v->prompt.s, v->prompt.len, &v->ids,
                                &v->n_ids, &err);
    } else {
        s = pl_tokenize(v->s.words, v->prompt.s, v->prompt.len,
                        PL_ADD_SPECIAL | PL_PARSE_SPECIAL, &v->ids, &v->n_ids,
                        &err);
    }
    return s == PL_OK ? EXIT_DONE : report(v->o, s, &err);
}

/* Sets the context length so that every receipt fits with the prompt that was
 * given, unless -c is given. Sets the maximum rows of logits of a step to as
 * many as take 64 MiB, at most 512, because each checked token needs a row. */
static void set_sizes(struct verify *v)
{
    const int64_t row = v->s.n_vocab * (int64_t)sizeof(float), most = 64 << 20;
    const bool given = v->s.pl.n_ctx != 0;

    for (int i = 0; i < v->list.n && !given; i++) {
        pl_options pl;

        pl_options_init(&pl);
        if (pl_receipt_options(v->list.v[i].receipt, &pl, NULL) == PL_OK &&
            pl.n_ctx + v->n_ids > v->s.pl.n_ctx)
            v->s.pl.n_ctx = pl.n_ctx + v->n_ids;
    }
    v->s.pl.n_out = most / row < 1 ? 1 : most / row > 512 ? 512 : most / row;
}

static bool same_strings(const char *const *a, int n, const char *const *b,
                         int m)
{
    bool same = n == m;

    for (int i = 0; same && i < n; i++)
        same = strcmp(a[i], b[i]) == 0;
    return same;
}

/* Returns true if engines with the options `a` and with the options `b` have
 * the same numerics. */
static bool same_options(const pl_options *a, const pl_options *b)
{
    bool same = a->n_ranks == b->n_ranks && a->numerics == b->numerics &&
                a->cache_k == b->cache_k && a->cache_v == b->cache_v &&
                a->mtp == b->mtp;

    for (int i = 0; same && i < a->n_ranks; i++)
        same = a->rank_split[i] == b->rank_split[i];
    return same && same_strings(a->keep, a->n_keep, b->keep, b->n_keep) &&
           same_strings(a->overrides, a->n_overrides, b->overrides,
                        b->n_overrides);
}

/* Loads an engine with the options `pl`, unless the engine that is loaded was
 * created with the same numeric options. If the options, of which the receipt
 * chose some, do not fit the model or the devices, returns EXIT_DONE and puts
 * the reason into *r. */
static enum exit_code load(struct verify *v, const pl_options *pl,
                           pl_receipt_result *r)
{
    pl_options given = v->s.pl;
    enum exit_code c;
    pl_status s;
    pl_err err;

    if (v->s.engine != NULL && same_options(&v->used, pl))
        return EXIT_DONE;
    pl_engine_free(v->s.engine);
    v->s.engine = NULL;
    v->s.pl = *pl;
    c = session_try_load(&v->s, v->o, &s, &err);
    v->used = *pl;
    v->s.pl = given;
    if (s != PL_BAD_ARGUMENT && s != PL_UNSUPPORTED && s != PL_NOT_FOUND)
        return s == PL_OK ? c : report(v->o, s, &err);
    snprintf(r->text, sizeof(r->text), "%.700s", err.message);
    return EXIT_DONE;
}

/* ---- checks -------------------------------------------------------------- */

static void print(struct verify *v, const struct receipt_entry *e,
                  const pl_receipt_result *r)
{
    char cut[SHOWN], line[32] = "";

    v->count[r->verdict]++;
    v->n_checked += r->n_checked;
    if (v->o->json) {
        json_t *j = json_pack(
            "{s:o, s:i, s:s, s:o, s:I, s:I, s:I, s:I}", "file",
            json_text(e->file, strlen(e->file)), "line", e->line, "verdict",
            words[r->verdict], "text", json_text(r->text, strlen(r->text)),
            "checked", (json_int_t)r->n_checked, "at", (json_int_t)r->at,
            "written", (json_int_t)r->written, "sampled",
            (json_int_t)r->sampled);
        char *text = j != NULL ? json_text_plain(j, JSON_COMPACT) : NULL;

        printf("%s\n", text != NULL ? text : "null");
        free(text);
        json_decref(j);
        return;
    }
    if (e->line > 1 || v->list.n + v->list.n_bad > 1)
        snprintf(line, sizeof(line), ":%d", e->line);
    show(stdout, clip_printable(cut, e->file));
    printf("%s: %s%s", line,
           r->verdict == PL_RECEIPT_HOLDS ? "" : words[r->verdict],
           r->verdict == PL_RECEIPT_HOLDS ? "" : ": ");
    show(stdout, r->text);
    putchar('\n');
}

/* Judges the signature of a receipt. Returns true with a verdict in *r if the
 * receipt needs no further check. */
static bool judge_signer(const struct verify *v, const struct receipt_entry *e,
                         pl_receipt_result *r)
{
    r->verdict =
        e->signer == JWS_FORGED ? PL_RECEIPT_DIFFERS : PL_RECEIPT_CANNOT;
    if (e->signer == JWS_FORGED)
        snprintf(r->text, sizeof(r->text),
                 "it is not what the key %s signed; get the receipt from its "
                 "writer",
                 e->key);
    else if (v->trust == NULL || e->signer == JWS_VALID)
        return false;
    else if (e->signer == JWS_NONE)
        snprintf(r->text, sizeof(r->text),
                 "it is not signed; leave out --trust to check it without");
    else
        snprintf(r->text, sizeof(r->text),
                 "it is signed by the key \"%s\", which --trust does not have",
                 e->key);
    return true;
}

/* Adds the signer to the verdict on a receipt that holds. */
static void name_signer(const struct receipt_entry *e, pl_receipt_result *r)
{
    size_t n = strlen(r->text);

    if (r->verdict != PL_RECEIPT_HOLDS || e->signer == JWS_NONE)
        return;
    snprintf(r->text + n, sizeof(r->text) - n,
             e->signer == JWS_VALID ? "; signed by %s"
                                    : "; the signature of \"%s\" is not "
                                      "checked without --trust",
             e->key);
}

static enum exit_code check(struct verify *v, const struct receipt_entry *e)
{
    pl_receipt_given given = {.size = sizeof(given),
                              .prompt = v->ids,
                              .n_prompt = v->n_ids,
                              .grammar = v->grammar.s,
                              .grammar_len = v->grammar.len,
                              .n_sample = v->o->n_sample,
                              .seed = v->seed++,
                              .progress = term_progress,
                              .progress_user = &v->s.progress,
                              .cancel = &term_interrupts};
    pl_receipt_result result = {
        .verdict = PL_RECEIPT_CANNOT, .at = -1, .written = -1, .sampled = -1};
    double start;
    pl_options pl = v->s.pl;
    pl_err err;
    enum exit_code c;
    pl_status s;

    if (judge_signer(v, e, &result)) {
        print(v, e, &result);
        return EXIT_DONE;
    }
    s = pl_receipt_options(e->receipt, &pl, &err);
    if (s == PL_UNSUPPORTED || s == PL_BAD_FILE) {
        snprintf(result.text, sizeof(result.text), "%.700s", err.message);
        print(v, e, &result);
        return EXIT_DONE;
    }
    if (s != PL_OK)
        return report(v->o, s, &err);
    c = load(v, &pl, &result);
    if (c == EXIT_DONE && v->s.engine == NULL)
        print(v, e, &result);
    if (c != EXIT_DONE || v->s.engine == NULL)
        return c;
    start = term_seconds();
    s = pl_receipt_verify(e->receipt, v->s.engine, &given, &result,
                          sizeof(result), &err);
    v->busy_s += term_seconds() - start;
    term_progress_end(&v->s.progress);
    if (s != PL_OK)
        return report(v->o, s, &err);
    if (result.verdict == PL_RECEIPT_HOLDS &&
        !isnan(pl_receipt_nll(e->receipt))) {
        v->nll += pl_receipt_nll(e->receipt);
        v->n_scored += result.n_checked;
    }
    name_signer(e, &result);
    print(v, e, &result);
    return EXIT_DONE;
}

static void summary(const struct verify *v)
{
    int n = v->list.n + v->list.n_bad;

    fprintf(stderr,
            "%d receipt%s: %d hold%s, %d differ%s, %d cannot be compared; "
            "%" PRId64 " tokens in %.1f s, %.1f t/s\n",
            n, n == 1 ? "" : "s", v->count[PL_RECEIPT_HOLDS],
            v->count[PL_RECEIPT_HOLDS] == 1 ? "s" : "",
            v->count[PL_RECEIPT_DIFFERS],
            v->count[PL_RECEIPT_DIFFERS] == 1 ? "s" : "",
            v->count[PL_RECEIPT_CANNOT], v->n_checked, v->busy_s,
            v->busy_s > 0 ? (double)v->n_checked / v->busy_s : 0.0);
    if (v->n_scored > 0)
        fprintf(stderr, "perplexity of the %" PRId64 " given tokens: %.4f\n",
                v->n_scored, exp(v->nll / (double)v->n_scored));
}

/* Returns the exit code of a command that could not do its work: 2 in place of
 * 1, because 1 means that receipts differ, as in cmp and diff. */
static enum exit_code trouble(enum exit_code c)
{
    return c == EXIT_FAILED ? EXIT_USAGE : c;
}

enum exit_code cmd_verify(const struct options *o)
{
    struct verify v = {.o = o};
    enum exit_code c = EXIT_DONE;

    if (o->files.n == 0)
        return cli_error(o->command, EXIT_USAGE,
                         "no receipt; give a file, as `plait run --receipt "
                         "FILE` writes it");
    c = read_trust(&v);
    for (int i = 0; i < o->files.n && c == EXIT_DONE; i++)
        c = receipt_file_read(&v.list, o, o->files.v[i], v.trust);
    if (c == EXIT_DONE)
        c = read_given(&v);
    if (c == EXIT_DONE)
        c = session_open(&v.s, o);
    if (c == EXIT_DONE) {
        c = tokenize(&v);
        set_sizes(&v);
    }
    /* The seed is random, so that an author of a false receipt cannot know
     * which tokens will be checked. */
    if (getrandom(&v.seed, sizeof(v.seed), 0) != (ssize_t)sizeof(v.seed))
        v.seed = 0;
    term_interrupts_count(1);
    for (int i = 0; i < v.list.n && c == EXIT_DONE; i++)
        c = check(&v, &v.list.v[i]);
    if (c == EXIT_DONE)
        c = finish_out(o);
    c = trouble(c);
    if (c == EXIT_DONE) {
        v.count[PL_RECEIPT_CANNOT] += v.list.n_bad;
        summary(&v);
        c = v.count[PL_RECEIPT_DIFFERS] > 0  ? EXIT_FAILED
            : v.count[PL_RECEIPT_CANNOT] > 0 ? EXIT_USAGE
                                             : EXIT_DONE;
    }
    c = session_close(&v.s, c);
    receipt_list_free(&v.list);
    input_free(&v.prompt);
    input_free(&v.grammar);
    jws_trust_free(v.trust);
    free(v.ids);
    return c;
}

/* Prints a line in which texts of a receipt may occur, without executing their
 * escape sequences. */
static void show_line(void *user, const char *text, size_t len)
{
    char line[2048];

    (void)user;
    snprintf(line, sizeof(line), "%.*s", (int)len, text);
    show(stdout, line);
}

enum exit_code cmd_diff(const struct options *o)
{
    struct receipt_list list = {0};
    enum exit_code c = EXIT_DONE;
    bool same = false;
    pl_status s;
    pl_err err;

    if (o->files.n != 2)
        return cli_error(o->command, EXIT_USAGE,
                         "%d files; give two, each with one receipt",
                         o->files.n);
    for (int i = 0; i < 2 && c == EXIT_DONE; i++) {
        c = receipt_file_read(&list, o, o->files.v[i], NULL);
        if (c == EXIT_DONE && list.n_bad > 0)
            c = EXIT_USAGE;
        if (c == EXIT_DONE && list.n != i + 1)
            c = cli_error(o->command, EXIT_USAGE,
                          "%s has %d receipts; give a file with one",
                          o->files.v[i], list.n - i);
    }
    if (c == EXIT_DONE) {
        s = pl_receipt_diff(list.v[0].receipt, list.v[1].receipt, &same,
                            show_line, NULL, &err);
        c = s != PL_OK ? report(o, s, &err) : finish_out(o);
    }
    if (c == EXIT_DONE && same)
        fprintf(stderr, "the receipts agree\n");
    receipt_list_free(&list);
    return c == EXIT_DONE && !same ? EXIT_FAILED : trouble(c);
}
