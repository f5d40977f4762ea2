/* The response object: the code for formatting responses that all protocols
 * share. */
#include "response_inner.h"

#include "fail.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const struct response_protocol *const protocols[] = {
    [REQUEST_CHAT] = &protocol_chat,
    [REQUEST_COMPLETIONS] = &protocol_completions,
    [REQUEST_COMPLETION] = &protocol_llama,
    [REQUEST_MESSAGES] = &protocol_messages,
    [REQUEST_RESPONSES] = &protocol_responses,
    [REQUEST_INFILL] = &protocol_llama,
    [REQUEST_OLLAMA_CHAT] = &protocol_ollama,
    [REQUEST_OLLAMA_GENERATE] = &protocol_ollama,
};

/* ---- creating and freeing a response ------------------------------------- */

pl_status response_create(struct response **out, const struct request *a,
                          const struct response_about *about, pl_err *err)
{
    struct response *w = calloc(1, sizeof(*w));
    const char *prefix = protocols[a->kind]->prefix;
    /* Space for the response's id: utf8_copy may replace a byte by three. */
    size_t n_id = strlen(prefix) + 3 * strlen(about->id) + 1;

    *out = w;
    if (w == NULL)
        goto no_memory;
    w->protocol = protocols[a->kind];
    w->a = a;
    w->about = *about;
    w->about.model = utf8_copy(about->model, strlen(about->model));
    w->about.id = utf8_copy(about->id, strlen(about->id));
    w->id = malloc(n_id);
    w->n = a->n_prompt * a->n;
    w->streamed = a->stream;
    w->choice = calloc((size_t)w->n, sizeof(*w->choice));
    if (w->about.model == NULL || w->about.id == NULL || w->id == NULL ||
        w->choice == NULL)
        goto no_memory;
    snprintf(w->id, n_id, "%s%s", prefix, w->about.id);
    for (int i = 0; i < w->n; i++) {
        struct response_choice *c = &w->choice[i];

        c->index = i;
        c->slot = a->slot;
        c->probs = a->probs ? json_array() : NULL;
        c->ids = a->ids ? json_array() : NULL;
        c->offsets =
            a->probs && a->kind == REQUEST_COMPLETIONS ? json_array() : NULL;
        if ((a->probs && c->probs == NULL) || (a->ids && c->ids == NULL))
            goto no_memory;
    }
    return PL_OK;
no_memory:
    response_free(w);
    *out = NULL;
    return server_fail(err, PL_NO_MEMORY,
                       "out of memory for the response; try again later");
}

static void choice_fini(struct response_choice *c)
{
    for (int i = 0; i < c->n_block; i++) {
        text_free(&c->block[i].text);
        free(c->block[i].name);
        free(c->block[i].id);
    }
    free(c->block);
    text_free(&c->prompt);
    text_free(&c->stop);
    json_decref(c->probs);
    json_decref(c->ids);
    json_decref(c->prompt_ids);
    json_decref(c->offsets);
    json_decref(c->plait);
}

void response_free(struct response *w)
{
    if (w == NULL)
        return;
    for (int i = 0; w->choice != NULL && i < w->n; i++)
        choice_fini(&w->choice[i]);
    free(w->choice);
    free((char *)w->about.model);
    free((char *)w->about.id);
    free(w->id);
    free(w);
}

const char *response_type(const struct response *w)
{
    return !w->streamed         ? "application/json"
           : w->protocol->lines ? "application/x-ndjson"
                                : "text/event-stream";
}

/* ---- writing the response to the client ---------------------------------- */

static void write_all(struct response *w, const char *s, size_t n)
{
    w->begun = w->begun || !w->failed;
    w->failed = w->failed || !w->about.write(w->about.user, s, n);
}

/* Appends to a text that the response needs. */
static void append(struct response *w, struct text *t, const char *s, size_t n)
{
    w->failed = w->failed || !text_add(t, s, n);
}

/* Returns true if the response has failed, or lacks a part. */
static bool is_lost(const struct response *w)
{
    bool lost = w->failed;

    for (int i = 0; i < w->n; i++)
        lost = lost || w->choice[i].lost;
    return lost;
}

void response_send_event(struct response *w, const char *name, json_t *j)
{
    char *s = json_text_dump(j, JSON_COMPACT | JSON_REAL_PRECISION(10));
    struct text t = {0};

    json_decref(j);
    w->failed = is_lost(w) || s == NULL;
    if (name != NULL) {
        append(w, &t, "event: ", 7);
        append(w, &t, name, strlen(name));
        append(w, &t, "\n", 1);
    }
    if (!w->protocol->lines)
        append(w, &t, "data: ", 6);
    append(w, &t, s, s != NULL ? strlen(s) : 0);
    append(w, &t, "\n\n", w->protocol->lines ? 1 : 2);
    free(s);
    write_all(w, t.s, t.n);
    text_free(&t);
    w->n_event++;
}

/* Sends the event that ends a stream of OpenAI's. */
static void send_done(struct response *w)
{
    static const char done[] = "data: [DONE]\n\n";

    if (w->protocol->object != NULL)
        write_all(w, done, sizeof(done) - 1);
}

static void send_receipts(struct response *w, struct response_choice *c)
{
    json_t *plait = json_text_copy(c->plait);
    json_t *j;

    json_text_put(&plait, "index", json_integer(c->index));
    if (w->protocol->receipt != NULL) {
        w->protocol->receipt(w, c, plait);
        return;
    }
    j = response_around(w, json_array(), w->protocol->object);
    json_text_put(&j, "plait", plait);
    response_send_event(w, NULL, j);
}

/* Adds to *plait the list `name` of the receipts `key` of all choices that have
 * one. */
static void add_list(const struct response *w, json_t **plait, const char *name,
                     const char *key)
{
    json_t *all = json_array();

    for (int i = 0; i < w->n; i++) {
        json_t *one = json_object_get(w->choice[i].plait, key);

        if (one != NULL)
            json_text_add(&all, json_incref(one));
    }
    if (all != NULL && json_array_size(all) == 0)
        json_decref(all);
    else
        json_text_put(plait, name, all);
}

/* Adds the receipts of all choices to the body of a response. If the body is a
 * list, the receipts of each choice are added to the list's item for it. */
static void add_receipts(const struct response *w, json_t **body)
{
    json_t *plait;

    if (w->choice[0].plait == NULL || *body == NULL)
        return;
    if (json_is_array(*body)) {
        for (int i = 0; i < w->n && *body != NULL; i++) {
            json_t *one = json_incref(json_array_get(*body, (size_t)i));

            json_text_put(&one, "plait", json_incref(w->choice[i].plait));
            json_decref(one);
            if (one == NULL) {
                json_decref(*body);
                *body = NULL;
            }
        }
        return;
    }
    plait = w->n == 1 ? json_incref(w->choice[0].plait) : json_object();
    if (w->n > 1) {
        add_list(w, &plait, "receipts", "receipt");
        add_list(w, &plait, "prompt_receipts", "prompt_receipt");
    }
    json_text_put(body, "plait", plait);
}

/* Ends the response once all choices have ended: writes the end of the stream
 * or, if the response is not streamed, the body. */
static bool finish(struct response *w)
{
    json_t *j;
    char *s;

    w->over = true;
    if (w->streamed) {
        if (w->protocol->object != NULL && w->a->usage) {
            j = response_around(w, json_array(), w->protocol->object);
            response_add_usage(w, &j);
            response_send_event(w, NULL, j);
        }
        send_done(w);
        return !w->failed;
    }
    j = w->protocol->whole(w);
    add_receipts(w, &j);
    s = json_text_dump(j, JSON_COMPACT | JSON_REAL_PRECISION(10));
    json_decref(j);
    w->failed = is_lost(w) || s == NULL;
    write_all(w, s, s != NULL ? strlen(s) : 0);
    free(s);
    return !w->failed;
}

/* ---- adding text and calls to blocks ------------------------------------- */

const struct response_block *response_last(const struct response_choice *c)
{
    return &c->block[c->n_block - 1];
}

int response_count(const struct response_choice *c, pl_reply_kind kind)
{
    int n = 0;

    for (int i = 0; i < c->n_block; i++)
        n += c->block[i].kind == kind;
    return n;
}

json_t *response_string(const struct text *t)
{
    return json_text(t->s != NULL ? t->s : "", t->n);
}

json_t *response_arguments(const struct response_block *b)
{
    const char *s = b->text.s ? b->text.s : "";
    struct text whole = {0};
    json_t *input = json_text_load(s, b->text.n, JSON_ALLOW_NUL, NULL);

    if (!input && json_text_close(s, b->text.n, &whole))
        input = json_text_load(whole.s, whole.n, JSON_ALLOW_NUL, NULL);
    text_free(&whole);
    if (json_is_object(input))
        return input;
    json_decref(input);
    return json_object();
}

json_t *response_joined(const struct response_choice *c, pl_reply_kind kind)
{
    struct text all = {0};
    json_t *j = NULL;
    bool ok = true;

    for (int i = 0; i < c->n_block && ok; i++)
        if (c->block[i].kind == kind)
            ok = text_add(&all, c->block[i].text.s, c->block[i].text.n);
    if (ok)
        j = response_string(&all);
    text_free(&all);
    return j;
}

/* Sends the first events of a choice, once. Returns false if the response has
 * failed. */
static bool begin(struct response *w, struct response_choice *c)
{
    bool first = !c->begun;

    c->begun = true;
    if (first && !w->failed && w->streamed && w->protocol->begin != NULL)
        w->protocol->begin(w, c);
    return !w->failed;
}

/* Appends an empty block (struct response_block) to a choice and returns it;
 * NULL if out of memory. */
static struct response_block *
add_block(struct response *w, struct response_choice *c, pl_reply_kind kind)
{
    if (c->n_block == c->cap_block) {
        int cap = 2 * c->cap_block + 4;
        struct response_block *b = realloc(c->block, (size_t)cap * sizeof(*b));

        if (b == NULL) {
            w->failed = true;
            return NULL;
        }
        c->block = b;
        c->cap_block = cap;
    }
    c->block[c->n_block] = (struct response_block){.kind = kind};
    return &c->block[c->n_block++];
}

/* Appends text to the last block of a choice. If the response is streamed, also
 * sends the text. `ends`: the block ends, so an incomplete character at its end
 * becomes U+FFFD. */
static void emit_text(struct response *w, struct response_choice *c,
                      const char *s, size_t n, bool ends)
{
    struct text t = {0};

    w->failed = w->failed || !utf8_add(&c->tail, &t, s, n) ||
                (ends && !utf8_end(&c->tail, &t));
    if (t.n > 0)
        append(w, &c->block[c->n_block - 1].text, t.s, t.n);
    if (t.n > 0 && !w->failed && w->streamed)
        w->protocol->text(w, c, t.s, t.n);
    text_free(&t);
}

/* Completes the last block of a choice, if there is one. */
static bool end_block(struct response *w, struct response_choice *c)
{
    if (c->n_block == 0)
        return !w->failed;
    emit_text(w, c, "", 0, true);
    if (!w->failed && w->streamed && w->protocol->block_end != NULL)
        w->protocol->block_end(w, c);
    return !w->failed;
}

static bool add_text(struct response *w, struct response_choice *c,
                     pl_reply_kind kind, const char *s, size_t n)
{
    if (n == 0 || !begin(w, c))
        return !w->failed;
    if ((c->n_block == 0 || response_last(c)->kind != kind) &&
        (!end_block(w, c) || add_block(w, c, kind) == NULL))
        return false;
    emit_text(w, c, s, n, false);
    return !w->failed;
}

/* Adds a copy of the reasoning, once it has ended, to the beginning of the
 * choice's content (REASONING_BOTH). */
static bool repeat_thoughts(struct response *w, struct response_choice *c)
{
    const struct text why =
        c->thinks ? response_last(c)->text : (struct text){0};
    struct text all = {0};

    if (!c->thinks)
        return !w->failed;
    c->thinks = false;
    append(w, &all, "<think>", 7);
    append(w, &all, why.s, why.n);
    append(w, &all, "</think>", 8);
    if (!w->failed)
        add_text(w, c, PL_REPLY_CONTENT, all.s, all.n);
    text_free(&all);
    return !w->failed;
}

/* Makes an id for tool call n of a choice, if the model gave it none. The id
 * has nine letters and digits, because some templates, such as Mistral's,
 * accept only such ids when a client sends the call back. */
static void make_id(const struct response *w, const struct response_choice *c,
                    int n, char id[static 10])
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz";
    /* FNV-1a hash of the text from which the id is made. */
    uint64_t h = 0xcbf29ce484222325u;
    char text[96];

    snprintf(text, sizeof(text), "%.64s %d %d", w->about.id, c->index, n);
    for (const char *s = text; *s != '\0'; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    for (int i = 0; i < 9; i++, h /= 62)
        id[i] = digits[h % 62];
    id[9] = '\0';
}

static bool add_call(struct response *w, struct response_choice *c,
                     const pl_reply_part *p)
{
    int n = response_count(c, PL_REPLY_CALL);
    struct response_block *b;
    const char *name, *own;
    char id[10];

    if (!begin(w, c) || !end_block(w, c))
        return false;
    b = add_block(w, c, PL_REPLY_CALL);
    if (b == NULL)
        return false;
    make_id(w, c, n, id);
    name = p->name != NULL ? p->name : "";
    own = p->id != NULL ? p->id : id;
    b->name = utf8_copy(name, strlen(name));
    b->id = utf8_copy(own, strlen(own));
    w->failed = b->name == NULL || b->id == NULL;
    if (!w->failed && w->streamed && w->protocol->call != NULL)
        w->protocol->call(w, c, n);
    emit_text(w, c, p->text, p->len, false);
    return !w->failed;
}

bool response_part(struct response *w, int choice, const pl_reply_part *p)
{
    struct response_choice *c = &w->choice[choice];
    enum request_reasoning how = w->a->reasoning;

    if (w->failed || w->over || c->ended)
        return !w->failed;
    if (p->kind == PL_REPLY_REASONING && how == REASONING_HIDDEN)
        return true;
    c->thinks |= p->kind == PL_REPLY_REASONING && how == REASONING_BOTH;
    if (p->kind != PL_REPLY_REASONING && !repeat_thoughts(w, c))
        return false;
    if (p->kind == PL_REPLY_CALL)
        return add_call(w, c, p);
    if (p->kind != PL_REPLY_CALL_MORE)
        return add_text(w, c, p->kind, p->text, p->len);
    emit_text(w, c, p->text, p->len, false);
    return !w->failed;
}

/* ---- progress, prompt, tokens and end of a choice ------------------------ */

bool response_ping(struct response *w)
{
    static const char comment[] = ":\n\n";

    if (w->failed || w->over || !w->streamed)
        return !w->failed;
    if (w->protocol->ping)
        w->protocol->ping(w);
    else
        write_all(w, comment, sizeof(comment) - 1);
    return !w->failed;
}

void response_placed(struct response *w, int choice, int slot)
{
    w->choice[choice].slot = slot;
}

bool response_progress(struct response *w, int choice, int64_t done,
                       int64_t total, int64_t n_cached, double seconds)
{
    struct response_choice *c = &w->choice[choice];

    c->n_prompt = total;
    c->n_cached = n_cached;
    c->n_done = done;
    c->end.times.prompt_s = seconds;
    if (w->a->progress && !w->failed && !w->over && !c->begun && w->streamed &&
        w->protocol->progress != NULL)
        w->protocol->progress(w, c, done, total, seconds);
    return !w->failed;
}

bool response_prompt_ids(struct response *w, int choice, const int32_t *ids,
                         int64_t n)
{
    json_t *list;

    if (!w->protocol->wants_prompt_ids || !w->a->ids || w->failed)
        return !w->failed;
    w->choice[choice].prompt_ids = list = json_array();
    for (int64_t i = 0; i < n && !w->failed; i++)
        w->failed = json_array_append_new(list, json_integer(ids[i])) != 0;
    return !w->failed;
}

bool response_prompt(struct response *w, int choice, int64_t n_prompt,
                     int64_t n_cached, const char *text)
{
    struct response_choice *c = &w->choice[choice];

    if (w->failed || w->over || c->begun)
        return !w->failed;
    c->n_prompt = c->n_done = n_prompt;
    c->n_cached = n_cached;
    if (text != NULL)
        append(w, &c->prompt, text, strlen(text));
    /* In a conversation, the echo is the beginning of the answer that the
     * client has sent. */
    if (w->a->messages != NULL)
        text = w->a->begun;
    if (!begin(w, c) || text == NULL || !w->a->echo)
        return !w->failed;
    return add_text(w, c, PL_REPLY_CONTENT, text, strlen(text));
}

/* Returns a token with its probability as a JSON object; NULL if out of memory.
 * JSON has no infinity, so the logarithm minus infinity becomes -9999, as in
 * OpenAI's API. */
static json_t *token_json(const struct response_token *t)
{
    json_t *bytes = json_array();

    for (size_t i = 0; i < t->len; i++)
        json_text_add(&bytes, json_integer((unsigned char)t->text[i]));
    return json_pack("{sIsososo}", "id", (json_int_t)t->id, "token",
                     json_text(t->text, t->len), "bytes", bytes, "logprob",
                     isnan(t->logprob) ? json_null()
                                       : json_real(fmax(t->logprob, -9999)));
}

/* Returns how many UTF-8 characters have their first byte in s[0 ... n - 1]. */
static int64_t characters(const char *s, size_t n)
{
    int64_t all = 0;

    for (size_t i = 0; i < n; i++)
        all += ((unsigned char)s[i] & 0xc0) != 0x80;
    return all;
}

/* Adds a token, its alternatives and their probabilities to c->probs. Adds the
 * token's offset in the text, in characters, to c->offsets. */
static bool add_probs(struct response *w, struct response_choice *c,
                      const struct response_token *t)
{
    json_t *j = token_json(t), *top = json_array();

    if (isnan(t->logprob)) {
        json_decref(top);
        top = json_null();
    }
    for (int i = 0; i < t->n_top && !w->failed; i++)
        w->failed = json_array_append_new(top, token_json(&t->top[i])) != 0;
    json_text_put(&j, "top_logprobs", top);
    if (json_array_append_new(c->probs, j) != 0)
        w->failed = true;
    if (c->offsets != NULL && !w->failed)
        w->failed =
            json_array_append_new(c->offsets, json_integer(c->n_char)) != 0;
    if (!t->hidden)
        c->n_char += characters(t->text, t->len);
    return !w->failed;
}

bool response_prompt_token(struct response *w, int choice,
                           const struct response_token *t)
{
    struct response_choice *c = &w->choice[choice];

    if (w->failed || w->over || c->begun || c->probs == NULL)
        return !w->failed;
    return add_probs(w, c, t);
}

bool response_token(struct response *w, int choice,
                    const struct response_token *t,
                    const struct response_times *times)
{
    struct response_choice *c = &w->choice[choice];

    if (w->failed || w->over || c->ended)
        return !w->failed;
    c->n_token++;
    c->end.times = *times;
    if (c->ids != NULL)
        w->failed = json_array_append_new(c->ids, json_integer(t->id)) != 0;
    return w->failed || c->probs == NULL ? !w->failed : add_probs(w, c, t);
}

/* Returns the object "plait" with the receipts of a choice; NULL if out of
 * memory. */
static json_t *parse_receipts(const struct response_end *end)
{
    json_t *plait = json_object();

    json_text_put(&plait, "receipt", json_loads(end->receipt, 0, NULL));
    if (end->prompt_receipt != NULL)
        json_text_put(&plait, "prompt_receipt",
                      json_loads(end->prompt_receipt, 0, NULL));
    return plait;
}

bool response_end(struct response *w, int choice,
                  const struct response_end *end)
{
    struct response_choice *c = &w->choice[choice];

    if (w->failed || w->over || c->ended)
        return !w->failed;
    c->n_prompt = c->n_done = end->n_prompt;
    c->n_token = end->n_written;
    c->n_cached = end->n_cached;
    c->end = *end;
    if (end->stop != NULL)
        append(w, &c->stop, end->stop, strlen(end->stop));
    c->end.stop = c->stop.s;
    c->end.receipt = c->end.prompt_receipt = NULL;
    if (end->receipt != NULL)
        c->plait = parse_receipts(end);
    w->failed |= end->receipt != NULL && c->plait == NULL;
    if (!begin(w, c) || !repeat_thoughts(w, c) || !end_block(w, c))
        return false;
    c->ended = true;
    if (w->streamed && c->plait != NULL)
        send_receipts(w, c);
    if (w->streamed && !w->failed)
        w->protocol->end(w, c);
    if (++w->n_ended == w->n && !w->failed)
        return finish(w);
    return !w->failed;
}

bool response_fail(struct response *w, const struct api_error *why)
{
    char *body;

    if (w->failed || w->over)
        return !w->failed;
    w->over = true;
    if (w->streamed && w->protocol->fail != NULL) {
        w->protocol->fail(w, why);
    } else if (w->streamed) {
        response_send_event(w, w->protocol->error,
                            api_error_json(why, request_shape(w->a->kind)));
        send_done(w);
    } else {
        body = api_error_body(why, request_shape(w->a->kind));
        w->failed = body == NULL;
        write_all(w, body, body != NULL ? strlen(body) : 0);
        free(body);
    }
    return !w->failed;
}

/* ---- functions that the protocols share ---------------------------------- */

/* Moves the items of a list to a new list and returns the new list; NULL if the
 * list was empty. Items that were sent are not kept in memory, because the
 * probabilities of one token may take 50 KB. */
static json_t *new_of(struct response_choice *c, json_t *list)
{
    json_t *new;

    if (json_array_size(list) == 0)
        return NULL;
    new = json_text_copy(list);
    c->lost = c->lost || new == NULL;
    json_array_clear(list);
    return new;
}

json_t *response_new_probs(struct response_choice *c)
{
    return new_of(c, c->probs);
}

json_t *response_new_ids(struct response_choice *c)
{
    return new_of(c, c->ids);
}

json_t *response_new_offsets(struct response_choice *c)
{
    return new_of(c, c->offsets);
}

/* Returns how many engine steps generated n_written tokens. The first token is
 * not counted, because the step that ended the prompt generated it, too. */
static int64_t steps(int64_t n_written)
{
    return n_written > 0 ? n_written - 1 : 0;
}

struct response_sums response_sums(const struct response *w)
{
    struct response_sums s = {0};

    for (int i = 0; i < w->n; i++) {
        const struct response_choice *c = &w->choice[i];

        if (i % w->a->n == 0) {
            s.n_prompt += c->n_prompt;
            s.n_cached += c->n_cached;
            s.times.prompt_s += c->end.times.prompt_s;
        }
        s.n_written += c->end.n_written;
        s.n_drafted += c->end.n_drafted;
        s.n_accepted += c->end.n_accepted;
        s.n_step += steps(c->end.n_written);
        s.times.written_s += c->end.times.written_s;
    }
    return s;
}

static double per(double a, double b)
{
    return b > 0 ? a / b : 0;
}

json_t *response_timings(const struct response *w,
                         const struct response_choice *c)
{
    struct response_sums s = response_sums(w);
    double n, m;
    json_t *all;

    if (c != NULL) {
        s.n_prompt = c->n_done;
        s.n_cached = c->n_cached;
        s.n_written = c->n_token;
        s.n_drafted = c->end.n_drafted;
        s.n_accepted = c->end.n_accepted;
        s.n_step = steps(s.n_written);
        s.times = c->end.times;
    }
    n = (double)(s.n_prompt - s.n_cached);
    m = (double)s.n_step;
    all = json_pack("{sIsIsfsfsfsIsfsfsf}", "cache_n", (json_int_t)s.n_cached,
                    "prompt_n", (json_int_t)(s.n_prompt - s.n_cached),
                    "prompt_ms", 1e3 * s.times.prompt_s, "prompt_per_token_ms",
                    per(1e3 * s.times.prompt_s, n), "prompt_per_second",
                    per(n, s.times.prompt_s), "predicted_n",
                    (json_int_t)s.n_written, "predicted_ms",
                    1e3 * s.times.written_s, "predicted_per_token_ms",
                    per(1e3 * s.times.written_s, m), "predicted_per_second",
                    per(m, s.times.written_s));
    if (s.n_drafted > 0) { /* as in llama-server, only with drafts */
        json_text_put(&all, "draft_n", json_integer(s.n_drafted));
        json_text_put(&all, "draft_n_accepted", json_integer(s.n_accepted));
    }
    return all;
}

void response_add_timings(const struct response *w,
                          const struct response_choice *c, json_t **event)
{
    if (w->a->timings)
        json_text_put(event, "timings", response_timings(w, c));
}

void response_add_progress(const struct response_choice *c, json_t **event,
                           int64_t done, int64_t total, double seconds)
{
    json_text_put(event, "prompt_progress",
                  json_pack("{s:I, s:I, s:I, s:I}", "total", (json_int_t)total,
                            "cache", (json_int_t)c->n_cached, "processed",
                            (json_int_t)done, "time_ms",
                            (json_int_t)(1e3 * seconds)));
}

json_t *response_around(const struct response *w, json_t *choices,
                        const char *object)
{
    return json_pack("{s:o, s:I, s:s, s:s, s:s, s:s}", "choices", choices,
                     "created", (json_int_t)w->about.created, "id", w->id,
                     "model", w->about.model, "system_fingerprint",
                     pl_version(), "object", object);
}

static json_t *usage(const struct response *w)
{
    struct response_sums s = response_sums(w);

    return json_pack("{sIsIsIs{sI}}", "prompt_tokens", (json_int_t)s.n_prompt,
                     "completion_tokens", (json_int_t)s.n_written,
                     "total_tokens", (json_int_t)(s.n_prompt + s.n_written),
                     "prompt_tokens_details", "cached_tokens",
                     (json_int_t)s.n_cached);
}

void response_add_usage(const struct response *w, json_t **event)
{
    json_text_put(event, "usage", usage(w));
    json_text_put(event, "timings", response_timings(w, NULL));
}
