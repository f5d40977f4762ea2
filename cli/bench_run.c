/* Runs the tests of plait bench on random tokens. After each test its sequences
 * are trimmed to the depth at which the test began. */
#include "bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void bench_text_add(void *user, const char *s, size_t n)
{
    struct bench_text *t = user;
    char *more = t->failed ? NULL : realloc(t->s, t->n + n + 1);

    if (more == NULL) {
        t->failed = true;
        return;
    }
    t->s = more;
    memcpy(t->s + t->n, s, n);
    t->n += n;
    t->s[t->n] = '\0';
}

json_t *bench_text_json(struct bench_text *t)
{
    json_t *j =
        t->failed || t->s == NULL ? NULL : json_loadb(t->s, t->n, 0, NULL);

    free(t->s);
    *t = (struct bench_text){0};
    return j;
}

enum exit_code bench_check(const struct bench_config *c,
                           const struct bench_set *b)
{
    bool generates = drafts_enabled(&c->o) != 0;

    for (int i = 0; i < b->n_test; i++)
        generates |= b->test[i].n_gen > 0 || b->test[i].n_depth > 0;
    if (!generates || !pl_model_is_encoder(c->s.model))
        return EXIT_DONE;
    return cli_error(CMD_BENCH, EXIT_USAGE,
                     "an encoder computes whole texts; measure it with -p N "
                     "-n 0, without -pg, -d and drafts");
}

enum exit_code bench_open(struct bench_config *c, const struct bench_set *b,
                          struct bench_text *trace)
{
    struct bench_text text = {0};
    pl_err err;
    pl_status r;

    c->s.pl.n_seq = b->n_seq;
    c->s.pl.n_ctx = b->n_ctx;
    c->s.pl.n_out = b->n_seq;
    c->s.pl.progress = term_progress;
    c->s.pl.progress_user = &c->s.progress;
    c->s.pl.hidden = NULL;
    c->s.pl.mtp_texts = 0;
    if (trace == NULL)
        bench_connect_drafts(c, b);
    c->s.pl.trace = trace != NULL ? bench_text_add : NULL;
    c->s.pl.trace_user = trace;
    r = pl_engine_create(&c->s.engine, c->s.model, &c->s.pl, &err);
    term_progress_end(&c->s.progress);
    if (r == PL_OK && trace == NULL)
        r = drafts_attach(&c->drafts, c->s.model, c->s.engine, &err);
    if (r == PL_OK && c->plan == NULL) {
        r = pl_plan_print(pl_engine_plan(c->s.engine), true, bench_text_add,
                          &text, &err);
        c->plan = bench_text_json(&text);
        c->n_dev = (int)json_array_size(json_object_get(c->plan, "devices"));
    }
    return r == PL_OK ? EXIT_DONE : report(&c->o, r, &err);
}

/* ---- one test ------------------------------------------------------------ */

/* Appends n random tokens to each of n_seq sequences, beginning with seq0, in
 * one call of the engine. Stores the logits of each sequence's last token in
 * `logits` unless NULL, or of an encoder its embedding. */
static pl_status feed(struct bench_config *c, int seq0, int n_seq, int n,
                      float *logits, pl_err *err)
{
    size_t all = (size_t)n_seq * (size_t)n;
    int32_t *id = malloc(2 * all * sizeof(*id)), *seq = id + all;
    uint8_t *wanted = calloc(all, 1);
    pl_batch b = {.size = sizeof b,
                  .n = (int64_t)all,
                  .token = id,
                  .seq = seq,
                  .wanted = wanted};
    pl_status r = PL_NO_MEMORY;
    /* never seeded, so that each process draws the same token ids */
    static uint32_t random;

    if (pl_model_is_encoder(c->s.model))
        b.norm_out = logits;
    else
        b.logits = logits;
    if (id != NULL && wanted != NULL) {
        for (size_t i = 0; i < all; i++) {
            random = random * 1664525 + 1013904223;
            id[i] = (int32_t)((random >> 8) % (uint64_t)c->s.n_vocab);
            seq[i] = seq0 + (int32_t)(i / (size_t)n);
            wanted[i] = logits != NULL && i % (size_t)n == (size_t)n - 1;
        }
        r = pl_engine_decode(c->s.engine, &b, &term_interrupts, err);
    } else {
        err->status = r;
        snprintf(err->message, sizeof(err->message), "no memory for %zu tokens",
                 all);
    }
    free(id);
    free(wanted);
    return r;
}

enum exit_code bench_time(struct bench_config *c, const struct bench_test *t,
                          int most, double *seconds)
{
    int n = t->n_gen < most ? t->n_gen : most;
    size_t row = (size_t)c->s.n_vocab + (size_t)pl_model_d_model(c->s.model);
    float *logits = malloc((size_t)t->n_seq * row * sizeof(*logits));
    pl_status r = PL_OK;
    pl_err err;
    double start = term_seconds();

    if (logits == NULL)
        return cli_error(CMD_BENCH, EXIT_FAILED,
                         "no memory for %d rows of logits", t->n_seq);
    if (t->n_prompt > 0)
        r = feed(c, t->seq0, t->n_seq, t->n_prompt, logits, &err);
    for (int i = 0; i < n && r == PL_OK; i++)
        r = feed(c, t->seq0, t->n_seq, 1, logits, &err);
    *seconds = term_seconds() - start;
    for (int i = 0; i < t->n_seq && r == PL_OK; i++)
        r = pl_seq_trim(c->s.engine, t->seq0 + i, t->n_depth, NULL, &err);
    free(logits);
    return r == PL_OK ? EXIT_DONE : report(&c->o, r, &err);
}

/* Fills the sequences of a test to its depth. Computes the first sequence and
 * restores its state in the others, so that each has pages of its own. A step
 * would read pages that sequences share only once. */
static pl_status fill(struct bench_config *c, const struct bench_test *t,
                      pl_err *err)
{
    void *data = NULL;
    size_t bytes = 0;
    pl_status r = PL_OK;

    if (t->n_depth == 0)
        return PL_OK;
    if (pl_seq_length(c->s.engine, t->seq0) == 0)
        r = feed(c, t->seq0, 1, t->n_depth, NULL, err);
    if (r == PL_OK && t->n_seq > 1)
        r = pl_state_swap_out(c->s.engine, t->seq0, &data, &bytes, err);
    for (int i = 1; i < t->n_seq && r == PL_OK; i++)
        if (pl_seq_length(c->s.engine, t->seq0 + i) == 0)
            r = pl_state_restore_memory(c->s.engine, t->seq0 + i, data, bytes,
                                        0, err);
    free(data);
    return r;
}

enum exit_code bench_warm(struct bench_config *c, const struct bench_set *b)
{
    enum { ENOUGH = 8 };
    enum exit_code code = EXIT_DONE;
    pl_err err;
    double s;

    for (int i = 0; i < b->n_test && code == EXIT_DONE; i++) {
        pl_status r;

        if (c->s.pl.trace == NULL && bench_has_drafts(c, &b->test[i]))
            continue;
        r = fill(c, &b->test[i], &err);
        code = r == PL_OK ? bench_time(c, &b->test[i], ENOUGH, &s)
                          : report(&c->o, r, &err);
    }
    if (c->s.pl.trace == NULL && code == EXIT_DONE)
        code = bench_warm_drafts(c, b);
    return code;
}

/* ---- trace --------------------------------------------------------------- */

/* Adds the times of the events in a part of the trace to share[], by device, as
 * fractions of `seconds`, the duration of that part. `trace` is JSON text like
 * ",\n{...},\n{...}". */
static bool add_events(struct bench_config *c, struct bench_text *trace,
                       double seconds, struct bench_share *share)
{
    struct bench_text all = {0};
    json_t *events, *e;
    size_t i, skip = trace->n > 0 && trace->s[0] == ',';

    bench_text_add(&all, "[", 1);
    if (trace->s != NULL)
        bench_text_add(&all, trace->s + skip, trace->n - skip);
    bench_text_add(&all, "]", 1);
    events = bench_text_json(&all);
    json_array_foreach (events, i, e) {
        json_int_t dev = json_integer_value(json_object_get(e, "pid"));
        const char *what = json_string_value(json_object_get(e, "cat"));
        double part =
            json_number_value(json_object_get(e, "dur")) * 1e-6 / seconds;

        if (dev < 0 || dev >= c->n_dev || what == NULL)
            continue; /* the event is one of the io device, or names a track */
        if (strcmp(what, "op") == 0)
            share[dev].compute += part;
        else if (strcmp(what, "copy") == 0)
            share[dev].copy += part;
        if (json_integer_value(json_object_get(e, "tid")) == 0 &&
            strcmp(what, "message") != 0)
            share[dev].wait -= part;
    }
    /* share[d].wait is minus the device's busy fraction here; the rest of its
     * time counts as waiting */
    for (int d = 0; d < c->n_dev; d++)
        share[d].wait = share[d].wait > -1 ? 1 + share[d].wait : 0;
    json_decref(events);
    return events != NULL;
}

enum exit_code bench_trace(struct bench_config *c, const struct bench_set *b)
{
    enum { ENOUGH = 16 };
    struct bench_text trace = {0};
    enum exit_code code = bench_open(c, b, &trace);

    c->share =
        calloc((size_t)b->n_test * (size_t)c->n_dev + 1, sizeof(*c->share));
    if (code == EXIT_DONE)
        code = bench_warm(c, b);
    for (int i = 0; i < b->n_test && code == EXIT_DONE; i++) {
        pl_traced before, after;
        double s;

        trace.n = 0; /* drops events of the trace from before this test */
        pl_engine_traced(c->s.engine, &before, sizeof before);
        code = bench_time(c, &b->test[i], ENOUGH, &s);
        pl_engine_traced(c->s.engine, &after, sizeof after);
        if (code == EXIT_DONE &&
            (c->share == NULL ||
             !add_events(c, &trace, after.seconds - before.seconds,
                         c->share + i * c->n_dev)))
            code = cli_error(CMD_BENCH, EXIT_FAILED, "no memory for a trace");
    }
    pl_engine_free(c->s.engine);
    c->s.engine = NULL;
    free(trace.s);
    return code;
}
