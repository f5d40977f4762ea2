/* Handles requests that generate text. Each choice of a request is a task of
 * the loop, and the output of the tasks becomes the response.
 *
 * The handler's thread creates the generation and submits all its tasks
 * together. From then on the generation belongs to the loop's thread, which
 * frees it after its last task. When the client disconnects, only a flag is
 * set. */
#include "jws.h"

#include "clock.h"
#include "logprob.h"
#include "ollama.h"
#include "request_tasks.h"
#include "response.h"
#include "sampler_names.h"
#include "service.h"
#include "stop_strings.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A client may leave at most this many bytes of output unread before its tasks
 * are paused. */
enum { MAX_BACKLOG = 1 << 20 };

struct choice {
    struct generation *of;
    int index;
    pl_detokenizer *text;
    struct stops stops;
    /* Splits the output into content, reasoning and tool calls; NULL if the
     * request is not a conversation. */
    pl_reply *reply;
    bool prompt_sent; /* response_prompt was called for this choice */
    /* A part of the output was not sent, because memory was short or the client
     * disconnected. */
    bool broken;
    bool called;  /* the output contains a tool call, complete or not */
    bool stopped; /* the output ends here, by a token of request.stop_id */
    /* The output ends here: the request allows a single tool call, and the
     * model continued after it. */
    bool full;
    /* begin_reply is passing request.begun to the parser. The parts that the
     * parser emits meanwhile are not sent, because the client has this text. */
    bool begins;
    /* The output ends here, because the limit request.n_indent or request.max_s
     * was reached. */
    bool cut;
    bool indents; /* the current line of the output has only blanks so far */
    /* Number of bytes of the current line of the output so far. */
    int64_t n_blank;
    /* Number of bytes of request.begun that skip_begun has removed from the
     * output so far. */
    size_t n_begun;
    int64_t n_prompt, n_cached;
    int64_t n_token;   /* number of generated tokens so far */
    int64_t n_thought; /* number of generated tokens of reasoning so far */
    /* Tokens of the text that ends reasoning, which on_forced makes the task
     * generate when the reasoning is too long; [n_forced]; owned. */
    int32_t *forced;
    int64_t n_forced, at_forced;
    pl_receipt *scored; /* receipt of the prompt; owned; NULL if none */
    /* Receipts for service.keep_receipt, of the prompt and of the output;
     * owned; NULL if there is none. */
    char *kept_prompt, *kept;
    pl_err scoring; /* the error of `scored`; its status is PL_OK if none */
    /* Times by clock_now of the first progress report, of the first token and
     * of the last token, in seconds; 0 if not reached. */
    double began_s, first_token_s, last_token_s;
};

struct generation {
    /* Kept loaded by service_hold until generation_free. */
    struct service *service;
    struct http_request *r;
    struct request request;
    struct response *response;
    /* The compiled grammar, from grammars_take; given back by grammars_give at
     * the end of the generation; NULL if none. */
    pl_grammar *grammar;
    /* `grammar` describes also the reasoning that precedes the answer. */
    bool reasons;
    /* Text of the rendered conversation; owned; NULL if the request has
     * prompts. */
    char *prompt;
    /* ids[p]: the tokens of prompt p, NULL if not tokenized yet;
     * [request.n_prompt]; owned with its elements. */
    int32_t **ids;
    /* texts[p]: the text of prompt p, empty if the response does not contain
     * it; [request.n_prompt]; owned. */
    struct text *texts;
    /* Time of the request's arrival, in seconds by clock_now. */
    double arrival_s;
    /* Seconds for which the request waited until its model was loaded. */
    double load_s;
    /* Time when data was last sent to the client, in seconds by clock_now. */
    double last_sent_s;
    atomic_bool gone; /* the client has disconnected; set by another thread */
    bool begun;       /* http_begin was called, so the stream has begun */
    /* `r` has its response by http_respond: an error, or a body that is not
     * streamed. */
    bool answered;
    /* Numbers of tokens for the log: of the prompts, of the cached part of the
     * prompts, and generated ones. */
    int64_t n_prompt, n_cached, n_written;
    int n_left; /* number of choices whose tasks have not ended */
    int n_choice;
    struct choice choice[]; /* the choices of the response, one for each task */
};

static void generation_free(struct generation *g)
{
    for (int i = 0; i < g->n_choice; i++) {
        pl_detokenizer_free(g->choice[i].text);
        stop_fini(&g->choice[i].stops);
        pl_reply_free(g->choice[i].reply);
        free(g->choice[i].forced);
        pl_receipt_free(g->choice[i].scored);
        free(g->choice[i].kept_prompt);
        free(g->choice[i].kept);
    }
    for (int i = 0; g->ids && i < g->request.n_prompt; i++)
        free(g->ids[i]);
    for (int i = 0; g->texts && i < g->request.n_prompt; i++)
        text_free(&g->texts[i]);
    free(g->ids);
    free(g->texts);
    response_free(g->response);
    grammars_give(&g->service->grammars, g->grammar);
    request_fini(&g->request);
    free(g->prompt);
    service_drop(g->service);
    free(g);
}

/* ---- sending output to the client ---------------------------------------- */

static bool write_out(void *user, const void *data, size_t n)
{
    struct generation *g = user;

    if (g->answered) /* The task of another choice failed, so `r` already has an
                        error response. */
        return false;
    g->last_sent_s = clock_now();
    if (g->request.stream) {
        if (!g->begun)
            http_begin(g->r, 200, response_type(g->response));
        g->begun = true;
        return http_send(g->r, data, n);
    }
    http_respond(g->r, 200, response_type(g->response), data, n);
    g->answered = true;
    return true;
}

static void keep_items(void *user, const char *id, const json_t *items)
{
    response_store_put(&((struct generation *)user)->service->stored, id,
                       items);
}

/* ---- processing the output of a choice ----------------------------------- */

/* Removes from the beginning of *part, a part of the output, the bytes that
 * continue request.begun, because the client already has this text. */
static void skip_begun(struct choice *c, pl_reply_part *part)
{
    const char *begun = c->of->request.begun;
    size_t n = strlen(begun);

    for (; part->len > 0 && c->n_begun < n; c->n_begun++) {
        if (*part->text != begun[c->n_begun]) {
            /* The parser changed the text, so it differs from request.begun.
             * Send the rest. */
            c->n_begun = n;
            return;
        }
        part->text++;
        part->len--;
    }
}

/* Returns true if a part of the output is the beginning of a tool call that the
 * request requires. Such an output has no content, but the reply parser takes a
 * call that is cut before its arguments for content. Reasoning that is returned
 * within the content is not a part of the call. */
static bool is_cut_call(const struct choice *c, const pl_reply_part *part)
{
    return c->of->request.must_call && part->kind == PL_REPLY_CONTENT &&
           !(c->of->request.reasoning == REASONING_WITHIN &&
             pl_reply_end_of_reasoning(c->reply));
}

static void send_part(void *user, const pl_reply_part *part)
{
    struct choice *c = user;
    pl_reply_part rest = *part;

    if (c->of->request.begun &&
        part->kind == (c->of->request.begun_reasoning ? PL_REPLY_REASONING
                                                      : PL_REPLY_CONTENT)) {
        skip_begun(c, &rest);
        if (rest.len == 0)
            return;
    }
    if (c->begins)
        return;
    part = &rest;
    c->full |= c->called && c->of->request.single_call &&
               part->kind != PL_REPLY_CALL_MORE;
    c->called |= part->kind == PL_REPLY_CALL;
    if (!c->full && !is_cut_call(c, part))
        c->broken |= !response_part(c->of->response, c->index, part);
}

/* Returns how many of the next `len` bytes of output to send. Sets c->cut if
 * the output must end after them, because of the limit request.n_indent or
 * request.max_s. */
static size_t limit_lines(struct choice *c, const char *text, size_t len)
{
    const struct request *a = &c->of->request;
    size_t n = 0;

    for (; n < len && !c->cut; n++) {
        if (c->indents && text[n] != ' ' && text[n] != '\t') {
            c->indents = false;
            c->cut = c->n_blank < a->n_indent;
            if (c->cut)
                return n;
        }
        c->n_blank++;
        if (text[n] != '\n')
            continue;
        c->indents = a->n_indent > 0;
        c->n_blank = 0;
        c->cut = a->max_s > 0 && clock_now() - c->first_token_s > a->max_s;
    }
    return n;
}

/* Handles output that cannot belong to a stop string any more: sends it, or
 * passes it to the reply parser. A stop_write_fn. */
static bool take_text(void *user, const char *text, size_t len)
{
    struct choice *c = user;
    pl_reply_part part = {.kind = PL_REPLY_CONTENT, .text = text, .len = len};

    if (!c->reply) {
        part.len = limit_lines(c, text, len);
        return response_part(c->of->response, c->index, &part);
    }
    return pl_reply_add(c->reply, text, len, NULL) == PL_OK && !c->broken;
}

static bool is_written(const struct choice *c)
{
    return c->stops.hit >= 0 || c->full || c->cut ||
           (c->reply && pl_reply_ended(c->reply));
}

/* ---- sending tokens and their probabilities ------------------------------ */

enum { N_TOKEN = 1 + REQUEST_MAX_TOP };

/* Sets the text and length of each of n tokens to its bytes in the vocabulary.
 * Returns the memory that holds the bytes, which the caller frees; NULL if out
 * of memory. */
static char *name_tokens(const pl_tokenizer *words, struct response_token *t,
                         int n)
{
    size_t all = 0;
    char *names, *at;

    for (int i = 0; i < n; i++)
        all += t[i].len = pl_token_bytes(words, t[i].id, NULL, 0);
    at = names = malloc(all + 1);
    for (int i = 0; i < n && names; i++) {
        pl_token_bytes(words, t[i].id, at, t[i].len);
        t[i].text = at;
        at += t[i].len;
    }
    return names;
}

/* Fills t[0] for token `id` and t[1 ...] for its alternatives, all with their
 * probabilities. If `logits` is NULL, the token has no probability. Returns the
 * memory that holds the tokens' bytes, which the caller frees; NULL if out of
 * memory. */
static char *describe(const struct choice *c, int32_t id, const float *logits,
                      struct response_token t[static N_TOKEN])
{
    const struct generation *g = c->of;
    struct logprob own = {id, NAN}, top[REQUEST_MAX_TOP];
    int n = 0;

    if (logits)
        n = logprob_read(logits, pl_tokenizer_n_vocab(g->service->words), &own,
                         top, g->request.n_top);
    t[0] = (struct response_token){
        .id = id, .logprob = own.p, .top = t + 1, .n_top = n};
    for (int i = 0; i < n; i++)
        t[1 + i] =
            (struct response_token){.id = top[i].id, .logprob = top[i].p};
    return name_tokens(g->service->words, t, 1 + n);
}

static bool send_token(struct choice *c, int32_t id, const float *logits)
{
    const struct response_times times = {c->first_token_s - c->began_s,
                                         c->last_token_s - c->first_token_s};
    struct response_token t[N_TOKEN];
    char *names = NULL;
    bool ok = true;

    t[0] = (struct response_token){.id = id};
    if (c->of->request.probs)
        ok = (names = describe(c, id, logits, t)) != NULL;
    ok = ok && response_token(c->of->response, c->index, t, &times);
    free(names);
    return ok;
}

/* Returns true if token `at` of the prompt is the BOS token that the tokenizer
 * added before the prompt's text. */
static bool is_added(const struct choice *c, int64_t at, int32_t id)
{
    const struct generation *g = c->of;
    const struct request_prompt *p =
        &g->request.prompt[c->index / g->request.n];

    return at == 0 && p->n > 0 && p->piece[0].text && !p->bare &&
           pl_tokenizer_adds_bos(g->service->words) &&
           id == pl_tokenizer_bos(g->service->words);
}

/* Sends token `at` of the prompt and its probability. `logits` were computed at
 * the token before it and give the probability; NULL for the first token. */
static void send_prompt_token(struct choice *c, int64_t at, const float *logits)
{
    const struct generation *g = c->of;
    int32_t id = g->ids[c->index / g->request.n][at];
    struct response_token t[N_TOKEN];
    char *names = describe(c, id, logits, t);

    t[0].hidden = is_added(c, at, id);
    c->broken |= !names || !response_prompt_token(g->response, c->index, t);
    free(names);
}

/* Returns true if a prompt whose probabilities are in the response has its
 * receipt with this choice: receipts contain the tokens of prompts, and the
 * choice is the first of its prompt. */
static bool has_scored_prompt(const struct choice *c)
{
    const struct generation *g = c->of;
    const struct service *v = g->service;
    unsigned flags = (g->request.receipt ? g->request.receipt_flags : 0) |
                     (v->keep_receipt ? v->keep_flags : 0);

    return (flags & PL_RECEIPT_FULL) && c->index % g->request.n == 0;
}

/* Adds token `at` of the prompt to the receipt of the prompt. `logits` were
 * computed at the token before it. */
static void score_prompt_token(struct choice *c, int64_t at,
                               const float *logits)
{
    const struct generation *g = c->of;
    const int32_t *ids = g->ids[c->index / g->request.n];
    pl_status s = c->scoring.status;

    if (s == PL_OK && !c->scored)
        s = pl_receipt_begin(&c->scored, g->service->engine, ids, 1,
                             &c->scoring);
    if (s == PL_OK)
        s = pl_receipt_score(c->scored, logits, ids[at], NULL, &c->scoring);
    c->broken |= s != PL_OK;
}

static void on_prompt_logits(void *user, int64_t at, const float *logits)
{
    if (at == 0)
        send_prompt_token(user, 0, NULL);
    send_prompt_token(user, at + 1, logits);
    if (has_scored_prompt(user))
        score_prompt_token(user, at + 1, logits);
}

static void send_prompt(struct choice *c)
{
    const struct generation *g = c->of;
    const char *text = g->prompt;

    if (c->prompt_sent)
        return;
    c->prompt_sent = true;
    if (!text)
        text = g->texts[c->index / g->request.n].s;
    if (g->request.prompt_probs && c->n_prompt == 1)
        send_prompt_token(c, 0, NULL);
    response_prompt(g->response, c->index, c->n_prompt, c->n_cached, text);
}

static void on_placed(void *user, int slot)
{
    const struct choice *c = user;

    response_placed(c->of->response, c->index, slot);
}

static void on_progress(void *user, int64_t done, int64_t total, int64_t cached)
{
    struct choice *c = user;
    double now = clock_now();

    c->n_cached = cached;
    if (c->began_s == 0)
        c->began_s = now;
    response_progress(c->of->response, c->index, done, total, cached,
                      now - c->began_s);
}

/* ---- callbacks of the loop's tasks --------------------------------------- */

static bool is_stop(const struct choice *c, int32_t id)
{
    const pl_sampling *s = &c->of->request.sampling;

    for (int i = 0; i < s->n_stop; i++)
        if (s->stop[i] == id)
            return true;
    return false;
}

static bool on_token(void *user, int32_t id, const float *logits)
{
    struct choice *c = user;
    const bool hidden = is_stop(c, id) && !c->of->request.shows_stop;
    const char *text = hidden ? "" : pl_detokenize(c->text, id);
    double now = clock_now();

    c->n_token++;
    c->n_thought += pl_reply_end_of_reasoning(c->reply) != NULL;

    if (c->last_token_s > 0)
        metrics_add_token(&c->of->service->metrics, now - c->last_token_s);
    else
        c->first_token_s = now;
    c->last_token_s = now;
    send_prompt(c);
    c->stopped = is_stop(c, id);
    if (hidden)
        return false;
    c->stops.muted = c->n_token <= c->of->request.min_tokens;
    c->broken |= !send_token(c, id, logits);
    if (!stop_add(&c->stops, text, strlen(text), take_text, c))
        c->broken = true;
    return !c->broken && !c->stopped && !is_written(c);
}

/* Returns the token that the task must generate next, or -1 if the model may
 * choose. Tokens are forced to end reasoning that has reached its limit
 * (request.think_tokens). */
static int32_t on_forced(void *user)
{
    struct choice *c = user;
    const struct request *a = &c->of->request;
    const char *end = pl_reply_end_of_reasoning(c->reply);
    bool over =
        a->limits_thinking && end != NULL && c->n_thought >= a->think_tokens;

    if (c->at_forced < c->n_forced)
        return c->forced[c->at_forced++];
    if (end == NULL || (over && c->n_forced == 0)) {
        free(c->forced);
        c->forced = NULL;
        c->at_forced = c->n_forced = 0;
    }
    if (!over || c->n_forced > 0 || /* The forced tokens did not end the
                                       reasoning, so they are not forced
                                       again. */
        pl_tokenize(c->of->service->words, end, strlen(end), PL_PARSE_SPECIAL,
                    &c->forced, &c->n_forced, NULL) != PL_OK ||
        c->n_forced == 0)
        return -1;
    return c->forced[c->at_forced++];
}

/* Returns true if the grammar constrains the task from the next token on. A
 * grammar describes the content or the tool calls, so the reasoning before
 * these is not constrained, unless the grammar describes it, too
 * (g->reasons). */
static bool on_grammar_applies(void *user)
{
    const struct choice *c = user;

    return !c->reply || c->of->reasons || pl_reply_in_content(c->reply);
}

static enum client_state on_poll_client(void *user)
{
    const struct generation *g = ((struct choice *)user)->of;
    const double ping_s = g->service->ping_s;

    if (g->gone)
        return CLIENT_GONE;
    if (!g->request.stream)
        return CLIENT_READY;
    if (http_backlog(g->r) > MAX_BACKLOG)
        return CLIENT_BACKLOGGED;
    if (ping_s > 0 && clock_now() - g->last_sent_s > ping_s)
        response_ping(g->response);
    return CLIENT_READY;
}

static enum response_end_reason finish_reason(const struct choice *c,
                                              enum task_finish why)
{
    if (c->stops.hit >= 0)
        return RESPONSE_STOP;
    return why == FINISH_LENGTH || c->cut ? RESPONSE_LENGTH : RESPONSE_ENDED;
}

/* Sends the text of a choice that is still held back, because it is an
 * incomplete character or may be the beginning of a stop string or marker.
 * Returns false if a part of the output is lost (c->broken). */
static bool finish_text(struct choice *c, const struct task_report *report)
{
    const char *rest = pl_detokenize_flush(c->text);

    c->n_cached = report->n_cached;
    send_prompt(c);
    if (c->stops.hit < 0)
        c->broken |= !stop_add(&c->stops, rest, strlen(rest), take_text, c) ||
                     (c->stops.hit < 0 && !stop_end(&c->stops, take_text, c));
    if (report->why == FINISH_EOG || c->stopped)
        pl_reply_uncut(c->reply);
    if (c->reply)
        c->broken |= pl_reply_finish(c->reply, NULL) != PL_OK;
    return !c->broken;
}

static pl_receipt_end receipt_end(const struct choice *c,
                                  const struct task_report *report)
{
    if (report->why == FINISH_EOG)
        return PL_RECEIPT_EOG;
    if (report->why == FINISH_LENGTH)
        return report->n_written == c->of->request.max_tokens
                   ? PL_RECEIPT_LENGTH
                   : PL_RECEIPT_CONTEXT;
    return c->stops.hit >= 0           ? PL_RECEIPT_STOP
           : c->reply && is_written(c) ? PL_RECEIPT_MESSAGE
                                       : PL_RECEIPT_OTHER;
}

static void pass_kept(const struct service *v, char **json)
{
    if (*json)
        v->keep_receipt(v->keep_user, *json);
    free(*json);
    *json = NULL;
}

/* Passes the receipts of all choices to service.keep_receipt, in the order of
 * the choices: which one ends first depends on the speed of devices. */
static void keep_receipts(struct generation *g)
{
    for (int i = 0; i < g->n_choice; i++) {
        pass_kept(g->service, &g->choice[i].kept_prompt);
        pass_kept(g->service, &g->choice[i].kept);
    }
}

/* Writes a receipt for service.keep_receipt and for the response, if they have
 * one. `need` are flags that their forms must have. The caller frees the
 * texts. */
static bool write_receipt(const struct generation *g, const pl_receipt *r,
                          unsigned need, char **kept, char **json)
{
    const struct request *a = &g->request;
    const struct service *v = g->service;

    if (v->keep_receipt && (v->keep_flags & need) == need &&
        jws_receipt(kept, r, v->keep_flags, v->sign_key, NULL) != PL_OK)
        return false;
    return !a->receipt || (a->receipt_flags & need) != need ||
           jws_receipt(json, r, a->receipt_flags, v->sign_key, NULL) == PL_OK;
}

/* Completes the receipts of a choice, and keeps them if the server does. Sets
 * *json and *prompt_json to their texts for the response, which the caller
 * frees; NULL if there is none. */
static bool write_receipts(struct choice *c, const struct task_report *report,
                           char **json, char **prompt_json)
{
    struct generation *g = c->of;
    const struct request *a = &g->request;
    bool done = true;

    *json = *prompt_json = NULL;
    if (report->receipt)
        done = pl_receipt_set_end(report->receipt, receipt_end(c, report),
                                  a->max_tokens, a->stop, a->n_stop,
                                  NULL) == PL_OK &&
               write_receipt(g, report->receipt, 0, &c->kept, json);
    if (c->scored)
        done = done && write_receipt(g, c->scored, PL_RECEIPT_FULL,
                                     &c->kept_prompt, prompt_json);
    if (done && g->n_left == 1) /* before the client has the whole response */
        keep_receipts(g);
    return done;
}

static bool send_end(struct choice *c, const struct task_report *report)
{
    const struct generation *g = c->of;
    struct response_end end = {.why = finish_reason(c, report->why),
                               .n_prompt = report->n_prompt,
                               .n_cached = report->n_cached,
                               .n_written = report->n_written,
                               .n_drafted = report->n_drafted,
                               .n_accepted = report->n_accepted,
                               .times = {report->prompt_s, report->written_s},
                               .load_s = g->load_s};
    char *receipt, *prompt_receipt;
    bool done;

    end.full =
        report->why == FINISH_LENGTH && report->n_prompt + report->n_written >=
                                            pl_engine_n_ctx(g->service->engine);
    end.total_s = g->load_s + clock_now() - g->arrival_s;
    if (c->stops.hit >= 0)
        end.stop = g->request.stop[c->stops.hit];
    done = write_receipts(c, report, &receipt, &prompt_receipt);
    end.receipt = receipt;
    end.prompt_receipt = prompt_receipt;
    done = done && response_end(g->response, c->index, &end);
    free(receipt);
    free(prompt_receipt);
    return done;
}

static void fail_all(struct generation *g, const struct api_error *why)
{
    if (g->answered || g->gone)
        return;
    if (g->begun) {
        response_fail(g->response, why);
        return;
    }
    service_reject(g->r, why);
    g->answered = true;
}

static void reject_end(struct api_error *why, const struct choice *c,
                       const struct task_report *report)
{
    if (report->why == FINISH_ERROR)
        api_error_set_status(why, report->err.status, &report->err);
    else if (c->scoring.status != PL_OK)
        api_error_set_status(why, c->scoring.status, &c->scoring);
    else if (report->why == FINISH_TIMEOUT)
        api_error_set(why, 408, "timeout", "",
                      "the request timed out after %g s; send a shorter one, "
                      "or start the server with a larger --request-timeout",
                      c->of->service->time_s);
    else if (report->why == FINISH_CANCELLED)
        api_error_set(why, 503, "unavailable", "", "the server is stopping");
    else
        api_error_set_memory(why);
}

/* Adds the numbers of tokens of an ended task to the request's line in the log.
 * The tokens of a prompt count once, even if several choices share the
 * prompt. */
static void note_tokens(struct choice *c, const struct task_report *report)
{
    struct generation *g = c->of;

    if (c->index % g->request.n == 0) {
        g->n_prompt += report->n_prompt;
        g->n_cached += report->n_cached;
    }
    g->n_written += report->n_written;
    if (!g->answered)
        service_note_tokens(g->r, g->n_prompt, g->n_cached, g->n_written);
}

static void on_end(void *user, const struct task_report *report)
{
    struct choice *c = user;
    struct generation *g = c->of;
    bool ended = report->why == FINISH_EOG || report->why == FINISH_STOPPED ||
                 report->why == FINISH_LENGTH;
    struct api_error why;

    metrics_add(&g->service->metrics, report);
    note_tokens(c, report);
    reject_end(&why, c, report);
    if (c->broken || !ended || !finish_text(c, report) ||
        !send_end(c, report)) {
        fail_all(g, &why);
        /* The flag makes on_poll_client cancel the tasks of the other
         * choices. */
        atomic_store(&g->gone, true);
    }
    if (--g->n_left > 0)
        return;
    keep_receipts(g);
    if (g->begun)
        http_end(g->r);
    else if (!g->answered)
        service_reject(g->r, &why); /* No response was begun, because the client
                                       has disconnected. */
    generation_free(g);
}

/* ---- creating a generation and submitting its tasks ---------------------- */

/* Inserts the tokens of request.context before the *n tokens of a rendered
 * conversation. Drops the BOS token with which the conversation may begin. */
static bool add_context(const struct generation *g, int32_t **ids, int64_t *n,
                        struct api_error *why)
{
    const struct request *a = &g->request;
    int64_t skip =
        *n > 0 && (*ids)[0] == pl_tokenizer_bos(g->service->words) ? 1 : 0;
    int32_t *all = malloc((size_t)(a->n_context + *n - skip + 1) * sizeof *all);

    if (!all)
        return api_error_set_memory(why);
    memcpy(all, a->context, (size_t)a->n_context * sizeof *all);
    memcpy(all + a->n_context, *ids + skip, (size_t)(*n - skip) * sizeof *all);
    free(*ids);
    *ids = all;
    *n += a->n_context - skip;
    return true;
}

/* Tokenizes prompt p of the request. Sets *ids to its *n tokens, malloc'ed. */
static bool read_prompt(const struct generation *g, int p, int32_t **ids,
                        int64_t *n, struct api_error *why)
{
    const pl_tokenizer *words = g->service->words;
    pl_err err;
    pl_status s =
        g->prompt
            ? request_chat_tokens(words, g->prompt, strlen(g->prompt), ids, n,
                                  &err)
            : request_prompt_tokens(&g->request.prompt[p], words, ids, n, &err);

    if (s != PL_OK)
        return api_error_set_status(why, s, &err);
    return g->request.n_context == 0 || add_context(g, ids, n, why);
}

/* Passes request.begun, the beginning of the answer, to the reply parser
 * without sending it, because the client already has this text. The parser may
 * hold back the end of the text as the possible beginning of a marker. It emits
 * the held-back text later, and skip_begun removes it. */
static pl_status begin_reply(struct choice *c, pl_err *err)
{
    const char *begun = c->of->request.begun;
    pl_status s;

    c->begins = true;
    s = pl_reply_add(c->reply, begun, strlen(begun), err);
    c->begins = false;
    return s;
}

static bool make_choice(struct generation *g, int index, struct api_error *why)
{
    struct choice *c = &g->choice[index];
    const size_t n_begun = g->request.begun ? strlen(g->request.begun) : 0;
    pl_err err;
    pl_status s;

    c->of = g;
    c->index = index;
    s = pl_detokenizer_create(&c->text, g->service->words,
                              g->prompt != NULL || g->request.special, &err);
    if (s == PL_OK)
        s = stop_init(&c->stops, g->request.stop, g->request.n_stop, &err);
    c->stops.shown = g->request.shows_stop;
    if (s == PL_OK && g->prompt)
        s = pl_reply_create(
            &c->reply, g->service->form, g->prompt, strlen(g->prompt) - n_begun,
            g->request.tools ? g->request.tools : "[]", send_part, c, &err);
    if (s == PL_OK && c->reply) /* The parser reports tool calls in fragments
                                   even if the response is not streamed, so that
                                   a whole response equals a streamed one. */
        pl_reply_in_pieces(c->reply);
    if (s == PL_OK && c->reply && g->request.schema)
        pl_reply_of_document(c->reply);
    if (s == PL_OK && g->request.reasoning == REASONING_WITHIN)
        pl_reply_keep_reasoning(c->reply);
    if (s == PL_OK && c->reply && n_begun > 0)
        s = begin_reply(c, &err);
    return s == PL_OK || api_error_set_status(why, s, &err);
}

/* Sets g->texts[p] to the text of prompt p, if the response contains it. For
 * /v1/completions ("echo", "__verbose") this is the text that the client sent.
 * For other protocols it is the text of all tokens, with the special tokens
 * that were added. */
static bool keep_text(struct generation *g, int p, int64_t n,
                      struct api_error *why)
{
    const struct request *a = &g->request;
    const pl_tokenizer *words = g->service->words;
    pl_err err;
    pl_status s = PL_OK;

    if (g->prompt)
        return true;
    if (a->kind != REQUEST_COMPLETIONS)
        s = request_ids_text(words, g->ids[p], n, &g->texts[p], &err);
    else if (a->echo || a->verbose)
        s = request_prompt_text(&a->prompt[p], words, &g->texts[p], &err);
    return s == PL_OK || api_error_set_status(why, s, &err);
}

/* Fills params[i] and how[i], the parameters of the task of choice i and of its
 * sampler, for all choices. */
static bool make_task_params(struct generation *g, struct task_params *params,
                             pl_sampling *how, struct api_error *why)
{
    int64_t n = 0;

    for (int i = 0; i < g->n_choice; i++) {
        struct choice *c = &g->choice[i];
        int p = i / g->request.n;

        if (i % g->request.n == 0 &&
            (!read_prompt(g, p, &g->ids[p], &n, why) ||
             !service_check_length(g->service, n, why) ||
             !keep_text(g, p, n, why)))
            return false;
        if (!response_prompt_ids(g->response, i, g->ids[p], n))
            return api_error_set_memory(why);
        c->n_prompt = n;
        request_fill_params(&g->request, i % g->request.n, &params[i], &how[i]);
        params[i].prompt = g->ids[p];
        params[i].n_prompt = n;
        params[i].grammar = g->grammar;
        params[i].receipt =
            g->request.receipt || g->service->keep_receipt != NULL;
        params[i].client = http_client(g->r);
        params[i].time_s = g->service->time_s;
        params[i].listener =
            (struct task_callbacks){.placed = on_placed,
                                    .progress = on_progress,
                                    .prompt_logits = on_prompt_logits,
                                    .token = on_token,
                                    .forced = on_forced,
                                    .grammar_applies = on_grammar_applies,
                                    .poll_client = on_poll_client,
                                    .end = on_end,
                                    .user = c};
    }
    return true;
}

/* Creates the choices and submits their tasks to the loop. If this function
 * returns true, the loop's thread owns `g`. */
static bool go(struct generation *g, struct api_error *why)
{
    size_t n = (size_t)g->n_choice, n_prompt = (size_t)g->request.n_prompt;
    struct task_params *params = calloc(n + 1, sizeof *params);
    pl_sampling *how = calloc(n + 1, sizeof *how);
    bool ok;

    g->n_left = g->n_choice;

    g->ids = calloc(n_prompt + 1, sizeof *g->ids);
    g->texts = calloc(n_prompt + 1, sizeof *g->texts);
    ok = (g->ids && g->texts && params && how) || api_error_set_memory(why);
    for (int i = 0; i < (int)n && ok; i++)
        ok = make_choice(g, i, why);
    ok = ok && make_task_params(g, params, how, why) &&
         service_submit(g->service, g->r, params, g->n_choice, &g->gone, why);
    free(params);
    free(how);
    return ok;
}

static struct generation *make(struct service *v, struct http_request *r,
                               struct request *a)
{
    int n = a->n * a->n_prompt;
    struct generation *g = calloc(1, sizeof *g + (size_t)n * sizeof *g->choice);

    if (!g) {
        request_fini(a);
        return NULL;
    }
    g->service = v;
    service_hold(v);
    g->arrival_s = g->last_sent_s = clock_now();
    g->r = r;
    g->request = *a;
    g->n_choice = n;
    return g;
}

static bool make_response(struct generation *g, struct api_error *why)
{
    char id[48];
    struct response_about about = {.model = g->service->name,
                                   .id = id,
                                   .created = (int64_t)time(NULL),
                                   .write = write_out,
                                   .keep = keep_items,
                                   .user = g};
    pl_status s;
    pl_err err;

    snprintf(id, sizeof id, "%" PRIx64 "n%" PRIuFAST64, g->service->created,
             atomic_fetch_add(&g->service->n_response, 1));
    s = response_create(&g->response, &g->request, &about, &err);
    return s == PL_OK || api_error_set_status(why, s, &err);
}

/* Sets a grammar that admits only tool calls. If `content` is not NULL, the
 * grammar also admits an answer without calls: a JSON document of the JSON
 * Schema `content`. */
static pl_status set_tool_grammar(struct generation *g, const char *content,
                                  pl_err *err)
{
    const struct request *a = &g->request;
    char *text = NULL;
    pl_status s = pl_template_calls(g->service->form, a->tools, a->call,
                                    a->single_call || a->call, content, &text,
                                    &g->reasons, err);

    if (s == PL_OK)
        s = grammars_take(&g->service->grammars, PL_GRAMMAR_CALLS, text,
                          "the tools", &g->grammar, err);
    free(text);
    g->reasons = g->reasons && s == PL_OK;
    return s;
}

/* Adds the response header Plait-Warning. It names the parts of the JSON
 * Schemas that the grammar does not enforce. */
static void send_notes(struct generation *g)
{
    const char *notes = pl_grammar_notes(g->grammar);
    char line[1024];
    size_t n = 0;

    for (; *notes && n + 4 < sizeof line; notes++) {
        if (*notes == '\n')
            line[n++] = ';';
        line[n++] = *notes;
        if (line[n - 1] < ' ' || line[n - 1] > '~')
            line[n - 1] = ' ';
    }
    line[n] = '\0';
    if (n > 0)
        http_set_header(g->r, "Plait-Warning", line);
}

/* Sets g->grammar to the compiled grammar of the request's JSON Schema, grammar
 * or regular expression, if it has one of these. */
static bool set_content_grammar(struct generation *g, struct api_error *why)
{
    const struct request *a = &g->request;
    const char *text = a->schema ? a->schema : a->grammar;
    pl_err err;
    pl_status s;

    if (!text)
        return true;
    s = grammars_take(&g->service->grammars,
                      a->schema  ? PL_GRAMMAR_JSON_SCHEMA
                      : a->regex ? PL_GRAMMAR_REGEX
                                 : PL_GRAMMAR_GBNF,
                      text, a->format, &g->grammar, &err);
    if (s == PL_OK)
        return true;
    api_error_set_status(why, s, &err);
    if (why->status == 400)
        snprintf(why->param, sizeof why->param, "%s", a->format);
    return false;
}

static bool set_grammar(struct generation *g, struct api_error *why)
{
    pl_err err;
    pl_status s = PL_OK;

    if (g->request.must_call) {
        s = set_tool_grammar(g, NULL, &err);
        if (s == PL_OK)
            return true;
        if (s == PL_NO_MEMORY)
            return api_error_set_memory(why);
        return api_error_set(why, 400, "unsupported_value", "tool_choice",
                             "tool_choice: %s", err.message);
    }
    /* If no grammar of both tool calls and document can be made, the grammar
     * admits only the document. */
    return (g->request.schema && g->request.tools &&
            set_tool_grammar(g, g->request.schema, &err) == PL_OK) ||
           set_content_grammar(g, why);
}

static bool has_role(const json_t *messages, size_t i, const char *role)
{
    const char *own =
        json_string_value(json_object_get(json_array_get(messages, i), "role"));

    return own && !strcmp(own, role);
}

/* Removes the oldest turn from *messages, the JSON text of a conversation. A
 * turn is the first message that is not from the system, and those after it up
 * to the next user message. Returns false if there is only one turn, or if out
 * of memory. */
static bool drop_turn(char **messages)
{
    json_t *all = json_text_load(*messages, strlen(*messages), 0, NULL);
    size_t n = json_array_size(all), from = 0, to;
    char *text = NULL;

    while (from < n && has_role(all, from, "system"))
        from++;
    for (to = from + 1; to < n && !has_role(all, to, "user");)
        to++;
    for (size_t i = from; i < to && to < n; i++)
        json_array_remove(all, from);
    if (to < n)
        text = json_text_dump(all, JSON_COMPACT);
    json_decref(all);
    if (!text)
        return false;
    free(*messages);
    *messages = text;
    return true;
}

/* Renders the conversation to the prompt. If the request allows it
 * (drop_turns), leaves out the oldest turns until the rest fits in the context.
 * A quarter of the context, or max_tokens tokens if that is less, is kept free
 * for the answer. A single turn that is too long is rejected later, in
 * make_task_params. */
static bool render(struct generation *g, struct api_error *why)
{
    const struct service *v = g->service;
    const int64_t n_ctx = pl_engine_n_ctx(v->engine);
    const int64_t limit = g->request.max_tokens;
    const int64_t room = limit >= 0 && limit < n_ctx / 4 ? limit : n_ctx / 4;
    int64_t n = 0;
    int32_t *ids;
    int n_turn = 0;

    for (;; n_turn++) {
        free(g->prompt);
        g->prompt = NULL;
        if (!service_render(v, &g->request, &g->prompt, NULL, why))
            return false;
        if (!g->request.drop_turns)
            return true;
        if (!read_prompt(g, 0, &ids, &n, why))
            return false;
        free(ids);
        if (n + room < n_ctx || !drop_turn(&g->request.messages))
            break;
    }
    if (v->log && n_turn > 0) {
        char text[200];

        snprintf(text, sizeof text,
                 "%.80s: left out %d turns of a conversation that is too long "
                 "for the context",
                 v->name, n_turn);
        v->log(v->log_user, PL_LOG_INFO, text);
    }
    return true;
}

/* Responds to a request of Ollama's API that asks only to load its model, and
 * frees the request. */
static void respond_loaded(struct service *v, struct http_request *r,
                           struct request *a)
{
    service_respond(r,
                    ollama_empty_body(a->kind == REQUEST_OLLAMA_CHAT,
                                      a->model ? a->model : v->name, "load"));
    request_fini(a);
}

/* Logs the names of the request's options that have no effect here. Also logs
 * an Ollama "num_ctx" that is larger than the context. */
static void log_ignored(struct service *v, const struct request *a)
{
    char text[400];
    const int64_t n_ctx = pl_engine_n_ctx(v->engine);
    const int64_t trained = pl_model_n_ctx_train(v->model);
    int n;

    if (v->log && a->passed_over[0]) {
        snprintf(text, sizeof text, "%s: options without effect here: %s",
                 v->name, a->passed_over);
        v->log(v->log_user, PL_LOG_INFO, text);
    }
    if (v->log && a->num_ctx > n_ctx && a->num_ctx > v->most_num_ctx) {
        v->most_num_ctx = a->num_ctx;
        n = snprintf(text, sizeof text,
                     "%.100s: num_ctx %" PRId64 ": the context has %" PRId64
                     " tokens",
                     v->name, a->num_ctx, n_ctx);
        if (trained > 0 && trained <= n_ctx)
            snprintf(text + n, sizeof text - (size_t)n,
                     ", and the model was trained on %" PRId64, trained);
        else
            snprintf(text + n, sizeof text - (size_t)n,
                     "; start the server with -c %" PRId64,
                     trained > 0 && trained < a->num_ctx ? trained
                                                         : a->num_ctx);
        v->log(v->log_user, PL_LOG_INFO, text);
    }
}

void generation_start(void *service, struct http_request *r)
{
    struct service *v = service;
    const enum request_kind kind = (enum request_kind)http_route_arg(r);
    const double load_s = http_age(r);
    struct request_rules rules = service_rules(v);
    struct generation *g = NULL;
    struct request a = {0};
    struct api_error why;
    size_t len;
    const char *body = http_body(r, &len);
    bool ok;

    rules.seed = sampler_draw_seed();
    rules.can = REQUEST_GRAMMAR | REQUEST_SCHEMA | REQUEST_CALL |
                ollama_traits(pl_template_text(v->form, false),
                              pl_template_text(v->form, true));
    ok = request_parse(&a, kind, body, len, &rules, &why);
    if (ok && a.load_only) {
        respond_loaded(v, r, &a);
        return;
    }
    if (ok)
        log_ignored(v, &a);
    if (ok && !(g = make(v, r, &a)))
        ok = api_error_set_memory(&why);
    if (ok)
        g->load_s = load_s;
    if (ok && g->request.messages)
        ok = render(g, &why);
    ok = ok && set_grammar(g, &why) && make_response(g, &why);
    if (ok)
        send_notes(g);
    ok = ok && go(g, &why);
    if (ok)
        return;
    if (g)
        generation_free(g);
    service_reject(r, &why);
}
