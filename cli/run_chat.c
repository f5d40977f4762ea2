/* plait run as a chat, with messages and a chat template. The model always sees
 * exactly what `plait render` prints for the messages. Each turn renders the
 * whole conversation to a prompt. The tokens with which both the sequence and
 * the prompt begin are kept, and the rest is computed. If the context is too
 * small, the oldest turns are left out. The content of an answer is written to
 * standard output, its reasoning to standard error. */
#include "chat_commands.h"
#include "line_editor.h"
#include "printable.h"
#include "run.h"
#include "server/json_text.h"
#include "server/request_tasks.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chat {
    struct run *r;
    const pl_template *form;
    char *extra;    /* variables of the chat template as JSON text, owned */
    json_t *system; /* the system message of --system, owned; NULL if none */
    /* all messages of the chat, also those left out of prompts, for /save */
    json_t *messages;
    /* number of messages that prompts leave out, counted after the system
     * messages */
    size_t n_left_out;
    struct line_editor *editor; /* NULL if lines are read from standard input
                                   directly */
    /* true if the text printed last is reasoning, after which nothing has
     * marked its end */
    bool reasons;
    /* true if the template failed to render the latest messages */
    bool refused;
    bool quits; /* true after the user has entered /quit or /exit */
};

static enum exit_code no_memory(void)
{
    return cli_error(CMD_RUN, EXIT_FAILED, "no memory for the conversation");
}

/* ---- prompts ------------------------------------------------------------- */

/* Renders messages with the template into *text. Sets err->message in all cases
 * of failure, including PL_NO_MEMORY. */
static pl_status render(const pl_template *form, const json_t *messages,
                        const char *extra, char **text, size_t *len,
                        pl_err *err)
{
    char *json = json_text_plain(messages, 0);
    const pl_conversation c = {
        .size = sizeof(c), .messages = json, .extra = extra};
    pl_status s = PL_NO_MEMORY;

    *text = NULL;
    snprintf(err->message, sizeof(err->message), "no memory for a prompt");
    if (json != NULL)
        s = pl_template_render(form, &c, text, len, err);
    free(json);
    return s;
}

/* Sets *out to the variables of the template as JSON, from --kwargs,
 * --reasoning, --reasoning-budget and --reasoning-effort. If --reasoning or a
 * budget of 0 is given, `reasons` turns reasoning on or off. */
static enum exit_code variables(const struct options *o, bool reasons,
                                char **out)
{
    json_t *j =
        o->kwargs != NULL ? json_loads(o->kwargs, 0, NULL) : json_object();
    char cut[SHOWN];

    *out = NULL;
    if (!json_is_object(j)) {
        json_decref(j);
        return cli_error(CMD_RUN, EXIT_USAGE,
                         "--kwargs %s: not a JSON object; give one, like "
                         "'{\"reasoning_effort\": \"high\"}'",
                         clip_printable(cut, o->kwargs));
    }
    if (o->reasoning != REASONING_AUTO || o->reasoning_budget == 0) {
        json_text_put(&j, "enable_thinking", json_boolean(reasons));
        json_text_put(&j, "thinking", json_boolean(reasons));
    }
    if (o->reasoning_effort != NULL)
        json_text_put(&j, "reasoning_effort", json_string(o->reasoning_effort));
    *out = json_text_plain(j, 0);
    json_decref(j);
    return *out != NULL ? EXIT_DONE : no_memory();
}

/* Checks that the template reacts to --reasoning: that a prompt with reasoning
 * on differs from one with reasoning off. */
static enum exit_code check_reasoning(const struct chat *c)
{
    const struct options *o = c->r->o;
    json_t *asked = json_pack("[{ssss}]", "role", "user", "content", "?");
    char *text[2] = {NULL, NULL};
    enum exit_code code = EXIT_DONE;
    pl_err err;

    for (int on = 0; on < 2 && code == EXIT_DONE; on++) {
        char *extra;

        code = variables(o, on, &extra);
        if (code == EXIT_DONE &&
            render(c->form, asked, extra, &text[on], NULL, &err) != PL_OK)
            code = cli_error(CMD_RUN, EXIT_FAILED, "%s", err.message);
        free(extra);
    }
    if (code == EXIT_DONE && strcmp(text[0], text[1]) == 0)
        code = cli_error(CMD_RUN, EXIT_USAGE,
                         "--reasoning %s: the chat template has no switch for "
                         "it (enable_thinking, thinking); leave it out",
                         o->reasoning == REASONING_ON ? "on" : "off");
    free(text[0]);
    free(text[1]);
    json_decref(asked);
    return code;
}

/* Makes these n tokens the contents of the sequence. Keeps the tokens at the
 * beginning that are the same, and computes the rest. */
static enum stop hold(struct run *r, const int32_t *ids, int64_t n)
{
    int64_t held = pl_seq_length(r->s.engine, 0), same = 0;
    double start = term_seconds();
    enum stop stop;

    while (same < held && same < n - 1 && r->held[same] == ids[same])
        same++;
    if (n > r->s.n_ctx) {
        r->n_refused = n;
        return STOP_FULL;
    }
    r->status =
        same < held ? pl_seq_trim(r->s.engine, 0, same, &same, &r->err) : PL_OK;
    if (r->status != PL_OK)
        return STOP_FAILED;
    for (int64_t i = same; i < n; i++)
        pl_sampler_accept(r->sampler, ids[i]);
    r->pending = -1;
    stop = run_prefill(r, ids + same, n - same, "reading the prompt");
    r->n_prompt += pl_seq_length(r->s.engine, 0) - same;
    r->prompt_s += term_seconds() - start;
    return stop;
}

/* ---- answers ------------------------------------------------------------- */

static void end_reasoning(struct chat *c)
{
    if (c->reasons)
        fputs(term_colors() ? "\033[0m\n\n"
              : isatty(2)   ? "\n\n"
                            : "\n",
              stderr);
    c->reasons = false;
}

/* Prints a part of a reply: reasoning and calls to standard error, content to
 * standard output. A pl_reply_fn. */
static void show_part(void *chat, const pl_reply_part *p)
{
    struct chat *c = chat;

    /* with show_special, write_piece prints all text and markers, so parts are
     * not printed here */
    if (c->r->o->show_special)
        return;
    if (p->kind == PL_REPLY_REASONING) {
        if (!c->reasons && term_colors())
            fputs("\033[2m", stderr); /* starts faint text */
        c->reasons = true;
        fwrite(p->text, 1, p->len, stderr);
        return;
    }
    end_reasoning(c);
    if (p->kind == PL_REPLY_CONTENT)
        run_print(c->r, p->text, p->len);
    else
        fprintf(stderr, "calls %s with %.*s\n", p->name, (int)p->len, p->text);
}

static json_t *last_message(const struct chat *c)
{
    size_t n = json_array_size(c->messages);

    return n > 0 ? json_array_get(c->messages, n - 1) : NULL;
}

static bool is_by(const json_t *message, const char *role)
{
    const char *by = json_string_value(json_object_get(message, "role"));

    return by != NULL && strcmp(by, role) == 0;
}

static bool add_message(struct chat *c, const char *role, const char *text,
                        size_t len)
{
    return json_array_append_new(c->messages,
                                 json_pack("{ssso}", "role", role, "content",
                                           json_stringn(text, len))) == 0;
}

static void drop_last(struct chat *c)
{
    if (json_array_size(c->messages) > 0)
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
}

/* Ends the parsing of the model's reply and appends the reply to the
 * messages. */
static enum stop keep_reply(struct chat *c)
{
    struct run *r = c->r;
    json_t *message = NULL;
    char *json = NULL;
    pl_status s;

    if (r->at_eog)
        pl_reply_uncut(r->reply);
    s = pl_reply_finish(r->reply, &r->err);
    if (s == PL_OK)
        s = pl_reply_message(r->reply, &json, &r->err);
    if (s == PL_OK) {
        message = json_loads(json, 0, NULL);
        /* parsing fails if the reply has integers of more than 64 bits, so
         * reads them as floats */
        if (message == NULL)
            message = json_loads(json, JSON_DECODE_INT_AS_REAL, NULL);
    }
    if (s == PL_OK && json_array_append_new(c->messages, message) != 0) {
        s = PL_NO_MEMORY;
        snprintf(r->err.message, sizeof(r->err.message),
                 "no memory for a message");
    }
    free(json);
    if (s != PL_OK)
        r->status = s;
    return s == PL_OK ? STOP_END : STOP_FAILED;
}

/* A prompt of the conversation as text and as tokens. */
struct prompt {
    char *text;
    size_t len;
    int32_t *ids;
    int64_t n;
};

static void prompt_free(struct prompt *p)
{
    free(p->text);
    free(p->ids);
    *p = (struct prompt){0};
}

/* Returns the number of leading system messages, which are never left out. */
static size_t count_lead(const struct chat *c)
{
    size_t n = 0;

    while (is_by(json_array_get(c->messages, n), "system") ||
           is_by(json_array_get(c->messages, n), "developer"))
        n++;
    return n;
}

/* Creates the prompt from all messages that are not left out. */
static pl_status make_prompt(struct chat *c, struct prompt *p)
{
    struct run *r = c->r;
    size_t lead = count_lead(c);
    json_t *seen = json_array();
    pl_status s;

    *p = (struct prompt){0};
    for (size_t i = 0; i < json_array_size(c->messages); i++)
        if (i < lead || i >= lead + c->n_left_out)
            json_text_add(&seen, json_incref(json_array_get(c->messages, i)));
    s = render(c->form, seen, c->extra, &p->text, &p->len, &r->err);
    if (s == PL_OK)
        s = request_chat_tokens(r->s.words, p->text, p->len, &p->ids, &p->n,
                                &r->err);
    json_decref(seen);
    if (s == PL_OK && p->n == 0) {
        s = PL_BAD_ARGUMENT;
        snprintf(r->err.message, sizeof(r->err.message),
                 "the chat template renders the messages as an empty prompt; "
                 "give another with --template FILE");
    }
    if (s != PL_OK)
        prompt_free(p);
    return s;
}

/* Leaves the oldest turn out of prompts: its messages up to the next user
 * message. Returns false if only one turn is left. */
static bool leave_turn_out(struct chat *c)
{
    size_t lead = count_lead(c), i = lead + c->n_left_out + 1;

    while (i < json_array_size(c->messages) &&
           !is_by(json_array_get(c->messages, i), "user"))
        i++;
    if (i >= json_array_size(c->messages))
        return false;
    c->n_left_out = i - lead;
    return true;
}

/* Makes a prompt that leaves space for an answer: an eighth of the context, or
 * -n tokens if that is less. If this does not fit, leaves out turns until the
 * prompt has at most three quarters of the context, so that the next turns fit
 * without leaving out more. */
static pl_status fit_prompt(struct chat *c, struct prompt *p)
{
    const int64_t n_ctx = c->r->s.n_ctx, limit = c->r->o->n_predict;
    int64_t room = n_ctx / 8, most;
    size_t before = c->n_left_out;
    char advice[SESSION_ADVICE];
    pl_status s = make_prompt(c, p);

    if (limit >= 0 && limit < room)
        room = limit;
    most = s == PL_OK && p->n + room > n_ctx ? n_ctx - n_ctx / 4 : n_ctx;
    while (s == PL_OK && p->n > most && leave_turn_out(c)) {
        prompt_free(p);
        s = make_prompt(c, p);
    }
    if (c->n_left_out > before)
        cli_error(CMD_RUN, EXIT_DONE,
                  "the context of %" PRId64
                  " tokens is full: the model no longer sees the oldest %zu "
                  "message%s; %s",
                  n_ctx, c->n_left_out, c->n_left_out > 1 ? "s" : "",
                  session_advise(advice, &c->r->s, n_ctx + 1, 2 * n_ctx));
    return s;
}

/* Generates an answer to the messages and appends it to them. *answered is
 * false if there is no answer to append. */
static enum stop answer(struct chat *c, bool *answered)
{
    struct run *r = c->r;
    struct prompt p;
    enum stop stop = STOP_FAILED, kept;

    *answered = false;
    r->last = '\0';
    r->status = fit_prompt(c, &p);
    c->refused = r->status != PL_OK && r->status != PL_NO_MEMORY;
    if (r->status == PL_OK)
        r->status = pl_reply_create(&r->reply, c->form, p.text, p.len, NULL,
                                    show_part, c, &r->err);
    if (r->status == PL_OK)
        stop = hold(r, p.ids, p.n);
    if (stop == STOP_END && r->status == PL_OK) {
        stop = run_generate(r);
        kept = keep_reply(c);
        *answered = kept == STOP_END;
        stop = *answered ? stop : kept;
        end_reasoning(c);
        run_end_line(r);
    }
    pl_reply_free(r->reply);
    r->reply = NULL;
    prompt_free(&p);
    return stop;
}

/* Answers the messages and reports errors. Returns true if the chat must end,
 * and sets *code on a fatal error. */
static bool chat_turn(struct chat *c, enum exit_code *code)
{
    struct run *r = c->r;
    char advice[SESSION_ADVICE];
    bool answered;
    enum stop stop = answer(c, &answered);

    if (!flush_out())
        return true;
    if (!answered && is_by(last_message(c), "user"))
        drop_last(c); /* removes the user's message that got no answer */
    if (stop == STOP_FULL && answered)
        run_warn_context_full(r);
    else if (stop == STOP_FULL)
        cli_error(
            CMD_RUN, EXIT_DONE,
            "the prompt has %" PRId64 " tokens, but the context has %" PRId64
            "; write a shorter message, or %s",
            r->n_refused, r->s.n_ctx,
            session_advise(advice, &r->s, r->n_refused + 1, 2 * r->n_refused));
    if (stop == STOP_FAILED && c->refused && isatty(0)) {
        cli_error(CMD_RUN, EXIT_DONE, "%s", r->err.message);
        /* continues the chat, because the template may accept another
         * message */
        stop = STOP_END;
    }
    if (stop == STOP_FAILED)
        *code = report(r->o, r->status, &r->err);
    return stop == STOP_FAILED || term_interrupts > 1;
}

/* ---- commands ------------------------------------------------------------ */

/* Writes "1 message" or "5 messages" to buf. Returns buf. */
static const char *count_text(char buf[32], size_t n)
{
    snprintf(buf, 32, "%zu message%s", n, n == 1 ? "" : "s");
    return buf;
}

/* The type of functions that run a command of the chat. `file` is the command's
 * argument, "" if none. Returns true if the model must then generate an
 * answer. */
typedef bool command_fn(struct chat *c, const char *file);

static bool chat_clear(struct chat *c, const char *file)
{
    size_t n = json_array_size(c->messages);
    char count[32];

    (void)file;
    n -= c->system != NULL && json_array_get(c->messages, 0) == c->system;
    json_array_clear(c->messages);
    c->n_left_out = 0;
    if (c->system != NULL)
        json_array_append(c->messages, c->system);
    cli_error(CMD_RUN, EXIT_DONE, "new chat, %s cleared%s",
              count_text(count, n),
              c->system != NULL ? "; the system message stays" : "");
    return false;
}

static bool chat_regen(struct chat *c, const char *file)
{
    (void)file;
    if (is_by(last_message(c), "assistant"))
        drop_last(c);
    if (is_by(last_message(c), "user"))
        return true;
    cli_error(CMD_RUN, EXIT_DONE, "/regen: no message yet; write one");
    return false;
}

static bool chat_save(struct chat *c, const char *file)
{
    char *json = json_text_plain(c->messages, JSON_INDENT(2));
    struct whole_file w = {0};
    enum exit_code code = EXIT_FAILED;
    char count[32], cut[SHOWN];

    if (json == NULL)
        no_memory();
    else
        code = atomic_file_open(&w, c->r->o, "/save", file);
    if (code == EXIT_DONE) {
        whole_write(&w, json, strlen(json));
        whole_write(&w, "\n", 1);
        code = atomic_file_close(&w, c->r->o, true, EXIT_DONE);
    }
    if (code == EXIT_DONE)
        cli_error(CMD_RUN, EXIT_DONE, "%s saved to %s",
                  count_text(count, json_array_size(c->messages)),
                  clip_printable(cut, file));
    free(json);
    return false;
}

/* Makes the JSON list `j` the messages of the chat if the template can render
 * them. Sets *n to the number of tokens of their prompt. */
static pl_status set_messages(struct chat *c, json_t *j, int64_t *n)
{
    struct run *r = c->r;
    char *prompt;
    int32_t *ids = NULL;
    size_t len;
    pl_status s = render(c->form, j, c->extra, &prompt, &len, &r->err);

    if (s == PL_OK)
        s = request_chat_tokens(r->s.words, prompt, len, &ids, n, &r->err);
    if (s == PL_OK) {
        json_decref(c->messages);
        c->messages = json_incref(j);
        c->n_left_out = 0;
    }
    free(ids);
    free(prompt);
    return s;
}

static bool chat_load(struct chat *c, const char *file)
{
    struct input in = {0};
    json_error_t e;
    json_t *j = NULL;
    char count[32], cut[SHOWN];
    int64_t n;

    if (strcmp(file, "-") == 0) {
        cli_error(
            CMD_RUN, EXIT_DONE,
            "/load -: standard input is taken by the messages; name a file");
        return false;
    }
    if (input_file(&in, c->r->o, file) == EXIT_DONE) {
        j = json_loadb(in.s, in.len, 0, &e);
        if (!json_is_array(j))
            cli_error(CMD_RUN, EXIT_DONE,
                      "/load %s: not a JSON list of messages%s%s",
                      clip_printable(cut, file), j == NULL ? ": " : "",
                      j == NULL ? e.text : "");
        else if (set_messages(c, j, &n) != PL_OK)
            cli_error(CMD_RUN, EXIT_DONE, "/load %s: %s",
                      clip_printable(cut, file), c->r->err.message);
        else
            cli_error(CMD_RUN, EXIT_DONE,
                      "%s, %" PRId64 " token%s, loaded from %s",
                      count_text(count, json_array_size(j)), n,
                      n == 1 ? "" : "s", clip_printable(cut, file));
    }
    json_decref(j);
    input_free(&in);
    return false;
}

static bool chat_quit(struct chat *c, const char *file)
{
    (void)file;
    c->quits = true;
    return false;
}

static bool chat_exit(struct chat *c, const char *file)
{
    return chat_quit(c, file);
}

static bool chat_help(struct chat *c, const char *file)
{
    (void)c;
    (void)file;
#define CHAT_LINE(name, arg, text)                                             \
    fprintf(stderr, "/%-12s%s\n", #name " " arg, text);
    CHAT_COMMAND_MAP(CHAT_LINE)
#undef CHAT_LINE
    fputs(CHAT_COMMAND_NOTE "\n", stderr);
    return false;
}

static const struct {
    const char *name;
    bool takes_file;
    command_fn *run;
} commands[] = {
#define CHAT_ROW(name, arg, text) {"/" #name, arg[0] != '\0', chat_##name},
    CHAT_COMMAND_MAP(CHAT_ROW)
#undef CHAT_ROW
};
enum { N_COMMAND_ROW = sizeof(commands) / sizeof(commands[0]) };

/* Runs the command in a line that begins with a slash, without its newline.
 * Returns true if the model must then generate an answer. */
static bool run_command(struct chat *c, char *line)
{
    size_t n = strcspn(line, " \t");
    char *file = line + n + strspn(line + n, " \t");
    size_t len = strlen(file);
    char cut[SHOWN];
    int i = 0;

    while (len > 0 && (file[len - 1] == ' ' || file[len - 1] == '\t'))
        file[--len] = '\0';
    line[n] = '\0';
    while (i < N_COMMAND_ROW && strcmp(commands[i].name, line) != 0)
        i++;
    if (i == N_COMMAND_ROW)
        cli_error(CMD_RUN, EXIT_DONE,
                  "unknown command %s; /help lists all; put a blank before a "
                  "message that begins with a slash",
                  clip_printable(cut, line));
    else if (commands[i].takes_file && len == 0)
        cli_error(CMD_RUN, EXIT_DONE, "%s: name a file: %s FILE", line, line);
    else if (!commands[i].takes_file && len > 0)
        cli_error(CMD_RUN, EXIT_DONE, "%s takes no value; leave out \"%s\"",
                  line, clip_printable(cut, file));
    else
        return commands[i].run(c, file);
    return false;
}

/* ---- lines --------------------------------------------------------------- */

/* Appends a typed line to a message, without the newline. If the line ends with
 * a backslash, appends a newline in place of the backslash and returns true,
 * because the message continues in the next line. */
static bool join(struct input *message, const struct input *line)
{
    size_t n = line->len;
    bool goes_on;
    char *s;

    n -= n > 0 && line->s[n - 1] == '\n';
    goes_on = n > 0 && line->s[n - 1] == '\\';
    s = realloc(message->s, message->len + n + 2);
    if (s == NULL)
        return false; /* memory ran out; the message ends before this line */
    message->s = s;
    memcpy(s + message->len, line->s, n);
    message->len += n;
    if (goes_on)
        s[message->len - 1] = '\n';
    s[message->len] = '\0';
    return goes_on;
}

/* Reads the next message or command, of one or more lines. Returns false at the
 * end of the input, and on an error, with *code set. */
static bool next_message(struct chat *c, struct input *message,
                         enum exit_code *code)
{
    struct input line = {0};
    bool more = true;

    input_free(message);
    while (more && run_next_line(c->r, c->editor,
                                 message->s == NULL ? "> " : "| ", &line, code))
        more = join(message, &line);
    input_free(&line);
    return message->s != NULL && *code == EXIT_DONE && term_interrupts < 2;
}

/* ---- the chat ------------------------------------------------------------ */

static bool is_blank(const char *s)
{
    return s[strspn(s, " \t\n")] == '\0';
}

static enum exit_code chat_loop(struct chat *c)
{
    enum exit_code code = EXIT_DONE;
    struct input message = c->r->prompt;
    bool given = message.s != NULL;

    c->r->prompt = (struct input){0};
    while (given || next_message(c, &message, &code)) {
        bool write = !is_blank(message.s);

        term_interrupts_reset();
        if (write && !given && message.s[0] == '/' &&
            strchr(message.s, '\n') == NULL) {
            write = run_command(c, message.s);
        } else if (write && !add_message(c, "user", message.s, message.len)) {
            cli_error(CMD_RUN, EXIT_DONE, "the message is not valid UTF-8");
            write = false;
        }
        given = false;
        if ((write && chat_turn(c, &code)) || code != EXIT_DONE || c->quits ||
            (write && c->r->o->single_turn))
            break;
    }
    input_free(&message);
    if (code == EXIT_DONE && term_interrupts > 1)
        code = EXIT_INTERRUPTED;
    return code;
}

static enum exit_code add_system(struct chat *c)
{
    const struct options *o = c->r->o;
    struct input text = {0};
    enum exit_code code;

    if (o->system != NULL && o->system_file != NULL)
        return cli_error(CMD_RUN, EXIT_USAGE,
                         "--system and --system-prompt-file both give the "
                         "system message; leave one out");
    code = o->system != NULL ? input_escaped(&text, o, o->system)
                             : input_file(&text, o, o->system_file);
    if (code == EXIT_DONE && !add_message(c, "system", text.s, text.len))
        code = cli_error(CMD_RUN, EXIT_USAGE,
                         "the system message is not valid UTF-8");
    input_free(&text);
    c->system = json_incref(last_message(c));
    return code;
}

enum exit_code run_chat_open(struct run *r)
{
    const struct options *o = r->o;
    struct chat *c = calloc(1, sizeof(*c));
    enum exit_code code;

    r->chat = c;
    if (c == NULL)
        return no_memory();
    *c = (struct chat){.r = r, .form = r->form, .messages = json_array()};
    code = variables(
        o, o->reasoning == REASONING_ON && o->reasoning_budget != 0, &c->extra);
    if (code == EXIT_DONE && c->messages == NULL)
        code = no_memory();
    if (code == EXIT_DONE && o->reasoning != REASONING_AUTO)
        code = check_reasoning(c);
    if (code == EXIT_DONE && (o->system != NULL || o->system_file != NULL))
        code = add_system(c);
    return code;
}

void run_chat_close(struct run *r)
{
    if (r->chat == NULL)
        return;
    json_decref(r->chat->system);
    json_decref(r->chat->messages);
    free(r->chat->extra);
    free(r->chat);
}

enum exit_code run_chat(struct run *r)
{
    enum exit_code code;

    r->chat->editor = line_editor_open();
    if (isatty(0) && isatty(2))
        fputs("Write a message; /help lists commands, /quit ends the chat.\n",
              stderr);
    code = chat_loop(r->chat);
    line_editor_close(r->chat->editor);
    return code;
}
