/* plait run: continues a prompt, chats (run_chat.c), or, without a chat
 * template, answers line by line. Only the text is written to standard output:
 * the prompt, then the generated text as it is produced. A saved state lets a
 * later run continue the text (run_state.c). */
#include "chat_templates.h"
#include "cmd.h"
#include "line_editor.h"
#include "printable.h"
#include "receipt_file.h"
#include "run.h"
#include "server/sampler_names.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- preparation -------------------------------------------------------- */

/* Sets the logit biases: those of the command line and, for --ignore-eos, minus
 * infinity for all tokens that end a text. */
static enum exit_code set_biases(struct run *r)
{
    const pl_sampling *given = &r->o->sampling;
    size_t n = (size_t)given->n_bias;
    size_t cap = n + (r->o->ignore_eos ? (size_t)r->s.n_vocab : 0) + 1;

    session_sampling(&r->sampling, r->o, r->s.model);
    r->bias_id = malloc(cap * sizeof(*r->bias_id));
    r->bias = malloc(cap * sizeof(*r->bias));
    if (r->bias_id == NULL || r->bias == NULL)
        return cli_error(CMD_RUN, EXIT_FAILED, "no memory for %zu biases", cap);
    for (size_t i = 0; i < n; i++) {
        r->bias_id[i] = given->bias_id[i];
        r->bias[i] = given->bias[i];
    }
    for (int64_t id = 0; r->o->ignore_eos && id < r->s.n_vocab; id++) {
        if (pl_token_is_eog(r->s.words, (int32_t)id)) {
            r->bias_id[n] = (int32_t)id;
            r->bias[n++] = -INFINITY;
        }
    }
    r->sampling.bias_id = r->bias_id;
    r->sampling.bias = r->bias;
    r->sampling.n_bias = (int)n;
    return EXIT_DONE;
}

/* Returns the name of an option that was given although it is only valid in a
 * chat; NULL if there is none. */
static const char *chat_option(const struct options *o)
{
    return o->chat_template != NULL         ? "--template"
           : o->template_text != NULL       ? "--chat-template"
           : o->system != NULL              ? "--system"
           : o->system_file != NULL         ? "--system-prompt-file"
           : o->kwargs != NULL              ? "--kwargs"
           : o->reasoning != REASONING_AUTO ? "--reasoning"
           : o->reasoning_effort != NULL    ? "--reasoning-effort"
                                            : NULL;
}

/* Opens the chat template, if this is a chat. */
static enum exit_code open_template(struct run *r)
{
    const struct options *o = r->o;
    const char *option = chat_option(o);
    bool talks = o->interactive || o->single_turn ||
                 (o->prompt == NULL && o->file == NULL &&
                  o->binary_file == NULL && o->state_load == NULL && isatty(0));
    struct input text = {0};
    enum exit_code c = EXIT_DONE;
    pl_status s;

    if (option != NULL && (o->no_template || !talks))
        return cli_error(
            CMD_RUN, EXIT_USAGE, "%s: only valid in a chat; %s", option,
            o->no_template ? "leave out --no-template" : "give -i");
    if (o->no_template || !talks)
        return EXIT_DONE;
    c = chat_template_read(&text, o);
    if (c != EXIT_DONE)
        return c;
    s = pl_model_template(&r->form, r->s.model, text.s, text.len, &r->err);
    input_free(&text);
    if (s == PL_NOT_FOUND && option == NULL)
        return EXIT_DONE;
    if (s != PL_OK)
        return cli_error(CMD_RUN, EXIT_FAILED, "%s%s", r->err.message,
                         !chat_template_given(o) && s != PL_NOT_FOUND &&
                                 s != PL_IO
                             ? "; --template FILE gives another one, "
                               "--no-template none"
                             : "");
    if (o->state_load != NULL || o->state_save != NULL)
        return cli_error(CMD_RUN, EXIT_USAGE,
                         "%s: a state has no messages; use /save and /load for "
                         "a chat, or --no-template to continue a text",
                         o->state_load != NULL ? "--state-load"
                                               : "--state-save");
    return EXIT_DONE;
}

static enum exit_code prepare(struct run *r)
{
    const struct options *o = r->o;
    enum exit_code c = session_require_tokenizer(&r->s, o);
    pl_status s;

    if (c == EXIT_DONE)
        c = run_open_grammar(r);
    if (c == EXIT_DONE)
        c = set_biases(r);
    if (c != EXIT_DONE)
        return c;
    r->s.pl.n_out = drafts_rows(o);
    r->s.pl.host_reserve = session_own_bytes(r->s.model, (int)r->s.pl.n_out);
    c = run_open_drafts(r);
    drafts_connect(&r->sources, &r->s.pl);
    if (c == EXIT_DONE)
        c = session_load(&r->s, o);
    if (c != EXIT_DONE)
        return c;
    s = drafts_attach(&r->sources, r->s.model, r->s.engine, &r->err);
    if (s != PL_OK)
        return report(o, s, &r->err);
    if (o->random_seed)
        r->sampling.seed = sampler_draw_seed();
    if (r->sampling.penalty_last_n < 0)
        r->sampling.penalty_last_n = (int)r->s.n_ctx;
    if (r->sampling.dry_last_n < 0)
        r->sampling.dry_last_n = r->s.n_ctx < SAMPLER_DRY_LAST_N
                                     ? (int)r->s.n_ctx
                                     : SAMPLER_DRY_LAST_N;
    r->sampling.tokenizer = r->s.words;
    s = pl_sampler_create(&r->sampler, &r->sampling, r->s.n_vocab, &r->err);
    if (s == PL_OK && o->receipt != NULL)
        c = atomic_file_open(&r->receipts, o, "--receipt", o->receipt);
    if (c != EXIT_DONE)
        return c;
    if (s == PL_OK) /* a chat also needs the texts of special tokens, because
                       markers in replies may be such tokens */
        s = pl_detokenizer_create(&r->text, r->s.words,
                                  o->show_special || r->form != NULL, &r->err);
    if (s != PL_OK)
        return report(o, s, &r->err);
    r->held = malloc(((size_t)r->s.n_ctx + 1) * sizeof(*r->held));
    r->logits =
        malloc((size_t)(drafts_rows(o) * r->s.n_vocab) * sizeof(*r->logits));
    r->wanted = calloc((size_t)r->s.n_ctx + 1, 1);
    if (r->logits == NULL || r->held == NULL || r->wanted == NULL)
        return cli_error(CMD_RUN, EXIT_FAILED,
                         "no memory for the logits of %" PRId64 " tokens",
                         r->s.n_vocab);
    return EXIT_DONE;
}

static enum exit_code run_free(struct run *r, enum exit_code c)
{
    c = atomic_file_close(&r->receipts, r->o, r->has_receipt, c);
    c = drafts_save(r->sources.drafter, r->o, 1, c);
    drafts_close(&r->sources);
    free(r->wanted);
    free(r->held);
    free(r->logits);
    pl_detokenizer_free(r->text);
    stop_fini(&r->stops);
    pl_receipt_free(r->receipt);
    jws_key_free(r->sign_key);
    pl_sampler_free(r->sampler);
    pl_grammar_free(r->grammar);
    free(r->bias);
    free(r->bias_id);
    input_free(&r->prompt);
    run_chat_close(r);
    pl_template_free(r->form);
    return session_close(&r->s, c);
}

/* ---- text --------------------------------------------------------------- */

void run_print(struct run *r, const char *text, size_t len)
{
    if (len == 0)
        return;
    write_out(NULL, text, len);
    r->last = text[len - 1];
}

static void say(struct run *r, const char *text)
{
    run_print(r, text, strlen(text));
}

void run_end_line(struct run *r)
{
    if (r->last != '\n' && r->last != '\0')
        say(r, "\n");
}

enum stop run_prefill(struct run *r, const int32_t *ids, int64_t n,
                      const char *what)
{
    int64_t at = pl_seq_length(r->s.engine, 0);

    if (at + n > r->s.n_ctx) {
        r->n_refused = n;
        return STOP_FULL;
    }
    if (n == 0)
        return STOP_END;
    memcpy(r->held + at, ids, (size_t)n * sizeof(*ids));
    /* If earlier tokens of the sequence are unknown, n_known must not count the
     * new ones. */
    if (r->n_known >= at)
        r->n_known = at + n;
    r->status = session_feed(&r->s, ids, n, r->logits, what,
                             r->saves ? NULL : &term_interrupts, &r->err);
    if (r->status == PL_OK) {
        r->n_seen = at + n;
        return STOP_END;
    }
    if (r->n_known > at)
        r->n_known = pl_seq_length(r->s.engine, 0);
    return r->status == PL_CANCELLED ? STOP_INTERRUPTED : STOP_FAILED;
}

bool run_can_write(const struct run *r)
{
    return r->n_seen > 0 && r->n_seen == pl_seq_length(r->s.engine, 0);
}

/* Appends the pending token and the tokens of a text to the sequence. Prints
 * the text if `show`. Returns STOP_END, or another reason of run_prefill if it
 * failed. */
static enum stop add_text(struct run *r, const char *text, size_t len,
                          int flags, bool show)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    const int had_pending = r->pending >= 0;
    int64_t held = pl_seq_length(r->s.engine, 0);
    double start = term_seconds();
    enum stop stop;

    r->status = pl_tokenize(r->s.words, text, len, flags, &ids, &n, &r->err);
    if (r->status != PL_OK)
        return STOP_FAILED;
    if (had_pending) {
        int32_t *more = realloc(ids, ((size_t)n + 1) * sizeof(*ids));

        if (more == NULL) {
            free(ids);
            r->status = PL_NO_MEMORY;
            snprintf(r->err.message, sizeof(r->err.message),
                     "no memory for %" PRId64 " tokens", n + 1);
            return STOP_FAILED;
        }
        ids = more;
        memmove(ids + 1, ids, (size_t)n * sizeof(*ids));
        ids[0] = r->pending;
    }
    n += had_pending;
    stop = held + n > r->s.n_ctx ? STOP_FULL : STOP_END;
    for (int64_t i = had_pending; stop == STOP_END && i < n; i++) {
        const char *piece = pl_detokenize(r->text, ids[i]);

        if (show)
            say(r, piece);
        pl_sampler_accept(r->sampler, ids[i]);
    }
    flush_out();
    if (stop == STOP_END)
        r->pending = -1;
    stop = run_prefill(r, ids, n, "reading the prompt");
    free(ids);
    r->n_prompt += pl_seq_length(r->s.engine, 0) - held;
    r->prompt_s += term_seconds() - start;
    return stop;
}

/* Prints a piece of generated text, or passes it to the parser r->reply if
 * there is one. Returns false on failure. A stop_write_fn; `run` is a struct
 * run *. */
static bool write_piece(void *run, const char *piece, size_t len)
{
    struct run *r = run;
    pl_status s = PL_OK;

    if (r->reply == NULL || r->o->show_special)
        run_print(r, piece, len);
    if (r->reply != NULL)
        s = pl_reply_add(r->reply, piece, len, &r->err);
    if (s != PL_OK)
        r->status = s;
    return s == PL_OK;
}

/* Passes a piece of generated text to write_piece, but holds back an end that
 * may begin a stop string. Returns false on failure. */
static bool take_piece(struct run *r, const char *piece)
{
    if (stop_add(&r->stops, piece, strlen(piece), write_piece, r))
        return true;
    /* stop_add itself failed, because memory ran out; write_piece did not */
    if (r->status == PL_OK) {
        r->status = PL_NO_MEMORY;
        snprintf(r->err.message, sizeof(r->err.message),
                 "no memory for a text");
    }
    return false;
}

/* Samples the next token into r->pending. Returns STOP_LENGTH if there is a
 * token to print, STOP_END if the token was an end-of-text token, STOP_FAILED
 * on failure. */
static enum stop choose(struct run *r)
{
    if (run_keep_grammar(r) != STOP_END)
        return STOP_FAILED;
    r->pending = pl_sample(r->sampler, r->logits + r->row * r->s.n_vocab);
    if (r->pending < 0) {
        r->status = pl_sampler_status(r->sampler, &r->err);
        return STOP_FAILED;
    }
    if (!pl_token_is_eog(r->s.words, r->pending))
        return STOP_LENGTH;
    r->pending = -1;
    r->at_eog = true;
    return STOP_END;
}

/* Makes the pending token part of the text, and computes the logits after it.
 * `left` is the number of tokens that may still be sampled, negative for no
 * limit. */
static enum stop advance(struct run *r, int64_t left)
{
    enum stop fed =
        r->drafts ? run_advance(r, left) : run_prefill(r, &r->pending, 1, NULL);

    if (fed == STOP_END)
        r->pending = -1;
    return fed;
}

enum stop run_generate(struct run *r)
{
    const int64_t limit = r->o->n_predict;
    double start = term_seconds();
    enum stop stop = STOP_LENGTH;

    stop_fini(&r->stops);
    r->status = stop_init(&r->stops, (const char *const *)r->o->stops.v,
                          r->o->stops.n, &r->err);
    if (r->status != PL_OK || run_begin_answer(r) != STOP_END ||
        run_begin_grammar(r) != STOP_END)
        return STOP_FAILED;
    /* Drafts need all tokens of the text. */
    r->drafts = r->sources.drafter != NULL && r->n_known == r->n_seen;
    if (r->drafts)
        run_begin_drafts(r);
    for (int64_t n = 0; limit < 0 || n < limit; n++) {
        if (r->pending >= 0) {
            enum stop fed = advance(r, limit < 0 ? -1 : limit - n);

            if (fed != STOP_END) {
                stop = fed;
                break;
            }
        }
        if (term_interrupts > 0) {
            stop = STOP_INTERRUPTED;
            break;
        }
        stop = choose(r);
        if (stop != STOP_LENGTH)
            break;
        r->n_written++;
        if (!take_piece(r, pl_detokenize(r->text, r->pending))) {
            stop = STOP_FAILED;
            break;
        }
        /* writing failed, because the reader of the output is gone or the disk
         * is full; finish_out reports that */
        if (!flush_out() || r->stops.hit >= 0 ||
            (r->reply != NULL && pl_reply_ended(r->reply))) {
            stop = STOP_END;
            break;
        }
    }
    if (!take_piece(r, pl_detokenize_flush(r->text)) ||
        (r->stops.hit < 0 && !stop_end(&r->stops, write_piece, r)))
        stop = STOP_FAILED;
    if (r->drafts)
        stop = run_settle(r, stop);
    r->written_s += term_seconds() - start;
    return run_end_answer(r, stop);
}

/* ---- one prompt, and a conversation ------------------------------------- */

static enum exit_code failed(struct run *r)
{
    return report(r->o, r->status, &r->err);
}

void run_warn_context_full(const struct run *r)
{
    char advice[SESSION_ADVICE];

    cli_error(CMD_RUN, EXIT_DONE,
              "the context of %" PRId64 " tokens is full; %s", r->s.n_ctx,
              session_advise(advice, &r->s, r->s.n_ctx + 1, 2 * r->s.n_ctx));
}

/* Returns the flags for tokenizing the prompt. BOS is added only if the prompt
 * begins the sequence, not if it continues a state. */
static int text_flags(const struct run *r)
{
    return r->n_past > 0 ? PL_PARSE_SPECIAL : PL_ADD_SPECIAL | PL_PARSE_SPECIAL;
}

static enum exit_code run_once(struct run *r)
{
    enum stop stop = add_text(r, r->prompt.s, r->prompt.len, text_flags(r),
                              !r->o->no_display_prompt);
    const int64_t n = r->n_past + r->n_refused;
    char advice[SESSION_ADVICE];

    if (stop == STOP_FULL)
        return cli_error(
            CMD_RUN, EXIT_FAILED,
            "the %s %" PRId64 " tokens, but the context has %" PRId64 "; %s",
            r->n_past > 0 ? "state and the prompt have" : "prompt has", n,
            r->s.n_ctx, session_advise(advice, &r->s, n + 1, 2 * n));
    if (stop == STOP_END && !run_can_write(r))
        return cli_error(
            CMD_RUN, EXIT_USAGE, "%s; give a text with -p",
            r->n_past > 0
                ? "the state does not say which token is next: it was not "
                  "saved by `plait run`, or before its prompt was complete"
                : "the prompt has no tokens");
    if (stop == STOP_END)
        stop = run_generate(r);
    if (isatty(1) && r->last != '\n')
        say(r, "\n");
    if (stop == STOP_FAILED)
        return failed(r);
    if (stop == STOP_FULL)
        run_warn_context_full(r);
    return stop == STOP_INTERRUPTED ? EXIT_INTERRUPTED : EXIT_DONE;
}

bool run_next_line(struct run *r, struct line_editor *editor,
                   const char *prompt, struct input *line, enum exit_code *code)
{
    for (;;) {
        bool interrupted;

        errno = 0;
        if (editor == NULL) {
            if (isatty(0) && isatty(2))
                fputs(prompt, stderr);
            if (input_line(line, r->o, code))
                return true;
            if (ferror(stdin) && errno != EINTR && term_interrupts < 2)
                *code =
                    cli_error(CMD_RUN, EXIT_FAILED,
                              "reading standard input: %s", strerror(errno));
        } else {
            size_t len;
            const char *s = line_editor_read(editor, prompt, &len);

            input_free(line);
            if (s != NULL) {
                line->s = strndup(s, len);
                line->len = len;
                if (line->s == NULL)
                    *code = cli_error(CMD_RUN, EXIT_FAILED,
                                      "no memory for the conversation");
                return line->s != NULL;
            }
        }
        interrupted = errno == EINTR && *code == EXIT_DONE;
        clearerr(stdin);
        if (!interrupted || term_interrupts > 1)
            return false;
        fputs("\nPress Ctrl-C again or Ctrl-D to quit.\n", stderr);
    }
}

static enum exit_code run_conversation(struct run *r)
{
    enum exit_code c = EXIT_DONE;
    struct input line = {0};
    int flags = text_flags(r);
    bool prompt = r->prompt.s != NULL;

    for (;;) {
        enum stop stop;

        if (prompt) {
            stop = add_text(r, r->prompt.s, r->prompt.len, flags,
                            !r->o->no_display_prompt);
            prompt = false;
        } else {
            if (!run_next_line(r, NULL, "> ", &line, &c))
                break;
            term_interrupts_reset();
            stop = add_text(r, line.s, line.len, flags, false);
        }
        flags = PL_PARSE_SPECIAL;
        if (stop == STOP_END && run_can_write(r))
            stop = run_generate(r);
        /* the printed text of each input line ends with a newline */
        run_end_line(r);
        if (!flush_out())
            break;
        if (stop == STOP_FULL)
            run_warn_context_full(r);
        if (stop == STOP_FAILED)
            c = failed(r);
        if (stop == STOP_FULL || stop == STOP_FAILED || term_interrupts > 1)
            break;
    }
    input_free(&line);
    return c == EXIT_DONE && term_interrupts > 1 ? EXIT_INTERRUPTED : c;
}

static void summary(const struct run *r)
{
    char plan[400] = "";

    pl_plan_summary(pl_engine_plan(r->s.engine), plan, sizeof(plan));
    fputc('\n', stderr);
    if (r->n_past > 0)
        fprintf(stderr, "state       %6" PRId64 " tokens\n", r->n_past);
    fprintf(stderr, "prompt      %6" PRId64 " tokens %9.1f t/s\n", r->n_prompt,
            r->prompt_s > 0.0 ? (double)r->n_prompt / r->prompt_s : 0.0);
    fprintf(stderr, "generation  %6" PRId64 " tokens %9.1f t/s\n", r->n_written,
            r->written_s > 0.0 ? (double)r->n_written / r->written_s : 0.0);
    if (r->sources.drafter != NULL) {
        pl_draft_counters n;

        pl_draft_read_counters(r->sources.drafter, -1, &n, sizeof n);
        fprintf(stderr,
                "drafts      %6" PRIu64 " tokens accepted of %" PRIu64 "\n",
                n.n_accepted, n.n_token);
    }
    if (r->sampling.temperature > 0.0f)
        fprintf(stderr, "seed        %" PRIu64 "\n", r->sampling.seed);
    fprintf(stderr, "plan        %s\n", plan);
}

/* Returns true if the state is to be saved after a run with exit code `c`. A
 * conversation is saved even after a failure, because the lines that the user
 * typed exist nowhere else. After a failed run with a single text the state
 * file stays as it was. */
static bool is_to_be_saved(const struct run *r, enum exit_code c)
{
    return c == EXIT_DONE || c == EXIT_INTERRUPTED ||
           (r->o->interactive && pl_seq_length(r->s.engine, 0) > r->n_past);
}

enum exit_code cmd_run(const struct options *o)
{
    struct run r = {.o = o, .pending = -1};
    enum exit_code c = EXIT_DONE;
    enum exit_code written;
    bool talks;

    if (o->model == NULL)
        return report_no_model(o, isatty(0) ? "" : ", and a text with -p TEXT");
    if (o->interactive && ((o->prompt != NULL && strcmp(o->prompt, "-") == 0) ||
                           (o->file != NULL && strcmp(o->file, "-") == 0)))
        return cli_error(CMD_RUN, EXIT_USAGE,
                         "-i reads its lines from standard input; give the "
                         "prompt itself, or a file");
    if (o->convert && o->state_load == NULL)
        return cli_error(
            CMD_RUN, EXIT_USAGE,
            "--convert: no state to convert; name one with --state-load FILE");
    if (o->state_load != NULL && strcmp(o->state_load, "-") == 0)
        return cli_error(
            CMD_RUN, EXIT_USAGE,
            "--state-load -: name a file; standard input is /dev/stdin");
    c = receipt_read_key(&r.sign_key, o);
    if (c == EXIT_DONE)
        c = session_open(&r.s, o);
    if (c == EXIT_DONE)
        c = open_template(&r);
    talks = o->interactive || r.form != NULL;
    if (c == EXIT_DONE && (!talks || o->prompt != NULL || o->file != NULL ||
                           o->binary_file != NULL))
        c = input_prompt(&r.prompt, o);
    if (c == EXIT_DONE && r.form != NULL)
        c = run_chat_open(&r);
    if (c == EXIT_DONE)
        c = prepare(&r);
    if (c == EXIT_DONE)
        c = run_load_state(&r);
    if (c == EXIT_DONE) {
        term_interrupts_count(talks ? 2 : 1);
        c = r.form != NULL   ? run_chat(&r)
            : o->interactive ? run_conversation(&r)
                             : run_once(&r);
        written = finish_out(o);
        if (c == EXIT_DONE || c == EXIT_INTERRUPTED)
            summary(&r);
        if (is_to_be_saved(&r, c)) {
            enum exit_code saved = run_save_state(&r);

            if (saved != EXIT_DONE)
                c = saved;
        }
        if (c == EXIT_DONE)
            c = written;
    }
    return run_free(&r, c);
}
