/* plait run as a chat, through a pipe and on a terminal: the bundled model gets
 * the right prompt. Its answers do not matter. */
#include "lib/command.h"
#include "lib/support.h"

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FABLE_BOS "<|endoftext|>"
#define FABLE_EOS "<|im_end|>"
#define CHAT      MODEL "-i -n 24 --temp 0 --ignore-eos "

static json_t *messages_of(const char *file)
{
    json_t *j = json_load_file(test_temp(file), 0, NULL);

    if (!json_is_array(j))
        fail_msg("%s has no messages", file);
    return j;
}

static const char *content(const json_t *messages, size_t i)
{
    return json_string_value(
        json_object_get(json_array_get(messages, i), "content"));
}

/* The model continues a rendered prompt as it answers in the chat, though the
 * chat's sequence contains earlier turns. */
TEST(cli_chat_answers_what_render_prints)
{
    struct ran chat, raw;
    char last[1000];
    json_t *m;

    chat =
        sh(0, "printf 'Of a king and the sea\\n/clear\\nOnce upon a time\\nAnd "
              "then?\\nNot so.\\n/regen\\n"
              "/save all.json\\n' | plait run " CHAT "--system 'Be\\nkind.'");
    m = messages_of("all.json");
    assert_int_equal(json_array_size(m), 7);
    assert_string_equal(content(m, 0), "Be\nkind.");
    assert_string_equal(content(m, 1), "Once upon a time");
    snprintf(last, sizeof last, "%s", content(m, 6));
    json_array_remove(m, 6);
    json_dump_file(m, test_temp("asked.json"), 0);
    raw = sh(0, "plait render " MODEL "--messages asked.json >prompt && echo "
                ">>prompt && plait run " MODEL "-n 24 --temp 0 --ignore-eos "
                "-f prompt --no-display-prompt");
    assert_string_equal(raw.out, last);
    assert_non_null(strstr(chat.out, last));
    json_decref(m);
}

TEST(cli_chat_commands_do_what_they_say)
{
    struct ran r;
    json_t *m;

    r = sh(0,
           "printf 'one\\\\\\ntwo\\n\\n /three\\n/save a.json\\n/clear\\n/save "
           "b.json\\n/load a.json\\nfour\\n/save c.json\\n' | plait run " CHAT);
    must_say(r, "4 messages saved to a.json\nplait run: new chat, 4 messages "
                "cleared\nplait run: 0 messages saved to b.json\nplait run: 4 "
                "messages, ");
    must_say(r, " tokens, loaded from a.json\n");
    m = messages_of("a.json");
    assert_int_equal(json_array_size(m), 4);
    assert_string_equal(content(m, 0), "one\ntwo");
    assert_string_equal(content(m, 2), " /three");
    json_decref(m);
    m = messages_of("b.json");
    assert_int_equal(json_array_size(m), 0);
    json_decref(m);
    m = messages_of("c.json");
    assert_int_equal(json_array_size(m), 6);
    assert_string_equal(content(m, 4), "four");
    json_decref(m);
    r = sh(0, "echo '[{}' >bad.json; printf '/sing\\n/save\\n/regen it\\n/regen"
              "\\n/load -\\n/load none\\n/load bad.json\\n/help\\n' | plait "
              "run " CHAT);
    must_say(r, "unknown command /sing; /help");
    must_say(r, "/save: name a file: /save FILE");
    must_say(r, "/regen takes no value; leave out \"it\"");
    must_say(r, "/regen: no message");
    must_say(r, "/load -: standard input");
    must_say(r, "opening none: No such file");
    must_say(r, "/load bad.json: not a JSON list of messages");
    must_say(r, "/clear       start a new chat");
    assert_string_equal(r.out, "");
    r = sh(0, "printf '/save no/a.json\\none\\n/clear\\n' | plait run " CHAT
              "--system Be.");
    assert_null(strstr(r.err, "saved"));
    must_say(r, "new chat, 2 messages cleared; the system message stays\n");
}

/* A chat that fills its context continues without its oldest turns, reports it,
 * and still saves them. */
TEST(cli_chat_leaves_out_the_oldest_turns)
{
    struct ran r, said;
    char last[1000];
    json_t *m, *seen = json_array();
    size_t n;

    r = sh(
        0,
        "for i in 1 2 3 4 5 6; do echo This is what I say $i; done | "
        "(cat; echo /save all.json; echo /exit; echo never) | plait run " MODEL
        "-i -n 12 -c 160 --temp 0 --ignore-eos --system Be.");
    must_say(r, "the model no longer sees the oldest ");
    m = messages_of("all.json");
    n = json_array_size(m);
    assert_int_equal(n, 13);
    assert_string_equal(content(m, 11), "This is what I say 6");
    snprintf(last, sizeof last, "%s", content(m, 12));
    /* The prompt had the system's message and some number of the last turns. */
    for (size_t from = 3;; from += 2) {
        if (from > 11)
            fail_msg("no number of turns gives the answer %s", last);
        json_array_clear(seen);
        json_array_append(seen, json_array_get(m, 0));
        for (size_t i = from; i < 12; i++)
            json_array_append(seen, json_array_get(m, i));
        json_dump_file(seen, test_temp("seen.json"), 0);
        said = sh(0, "plait render " MODEL "--messages seen.json >prompt && "
                     "echo >>prompt && plait run " MODEL "-n 12 --temp 0 "
                     "--ignore-eos -f prompt --no-display-prompt");
        if (strcmp(said.out, last) == 0)
            break;
    }
    json_decref(seen);
    json_decref(m);
    r = sh(0, "(echo Of a king; seq -s ' ' 200; echo And) | plait run " MODEL
              "-i -n 4 -c 128 --temp 0 --ignore-eos");
    must_say(r, "write a shorter message, or use -c ");
    must_say(r, "generation       8 tokens");
}

/* The prompt opens the reasoning, so all output is reasoning. */
TEST(cli_chat_reasoning_is_on_standard_error)
{
    static const char form[] =
        "printf '%s' '{% for m in messages %}{{ m.content }}{% endfor %}"
        "{% if enable_thinking %}<think>{% endif %}' >t.jinja";
    struct ran r;

    sh(0, form);
    r = sh(0, "echo Once upon a time | plait run " CHAT "--template t.jinja "
              "--reasoning on");
    assert_string_equal(r.out, "");
    assert_true(strcspn(r.err, "\n") > 6);
    r = sh(0, "echo Once upon a time | plait run " CHAT "--template t.jinja");
    assert_true(r.n_out > 6);
    assert_int_equal(r.err[0], '\n');
    /* a budget of 0 turns reasoning off, whatever the template takes */
    r = sh(0, "echo Once upon a time | plait run " CHAT "--template t.jinja "
              "--reasoning on --reasoning-budget 0");
    assert_true(r.n_out > 6);
    assert_int_equal(r.err[0], '\n');
    r = sh(0, "echo Once upon a time | plait run " CHAT "--template t.jinja "
              "--reasoning on --reasoning-budget -1");
    assert_string_equal(r.out, "");
    sh(0, "echo Once upon a time | plait run " CHAT "--reasoning-budget 0");
}

TEST(cli_chat_mistakes_name_option_and_remedy)
{
    static const struct {
        const char *line, *says;
        int code;
    } list[] = {
        {"plait run " MODEL "-i --reasoning maybe", "auto, on or off", 2},
        {"plait run " MODEL "-i --reasoning on", "no switch for it", 2},
        {"plait run " MODEL "-i --reasoning-budget 64",
         "give 0 or -1: `plait serve` keeps a budget", 2},
        {"plait run " MODEL "-i --kwargs 3", "not a JSON object", 2},
        {"plait run " MODEL "-i --no-template --system x",
         "leave out --no-template", 2},
        {"echo x >t; plait run " MODEL "-p x --template t", "give -i", 2},
        {"plait run " MODEL "-i --state-save x", "/save and /load", 2},
        {"plait run " MODEL "-i --template none",
         "--template none: No such file", 1},
        {"echo '{% if %}' >t.jinja; plait run " MODEL "-i --template t.jinja",
         "template line 1", 1},
        {"echo '{{ raise_exception(\"no\") }}' >t.jinja; echo x | plait "
         "run " MODEL "-i --template t.jinja",
         "template line 1: no", 2},
        {"echo '{# #}' >t.jinja; echo x | plait run " MODEL
         "-i --template t.jinja",
         "renders the messages as an empty prompt", 2},
    };

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        must_say(sh(list[i].code, list[i].line), list[i].says);
}

/* Output of a terminal; the text before `at` was awaited. */
struct terminal {
    int fd;
    size_t n, at;
    char shown[1 << 16];
};

static void type(const struct terminal *t, const char *keys)
{
    assert_int_equal(write(t->fd, keys, strlen(keys)), strlen(keys));
}

/* Types the keys, NULL for none, and reads until `text` arrives. A Ctrl-D just
 * after the prompt, while the line editor takes over the terminal, has no
 * effect, so it is typed again. */
static void await(struct terminal *t, const char *keys, const char *text)
{
    const char *found;

    if (keys)
        type(t, keys);
    while (!(found = strstr(t->shown + t->at, text))) {
        struct pollfd p = {.fd = t->fd, .events = POLLIN};
        ssize_t got = 0;

        if (poll(&p, 1, 200) == 1)
            got = read(t->fd, t->shown + t->n, sizeof t->shown - 1 - t->n);
        else if (keys && strchr(keys, '\004'))
            type(t, keys);
        if (got < 0)
            fail_msg("\"%s\" does not come: %s", text, t->shown);
        /* replaces zero bytes, which the terminal's echo may contain */
        for (; got > 0; got--, t->n++)
            if (t->shown[t->n] == '\0')
                t->shown[t->n] = ' ';
    }
    t->at = (size_t)(found - t->shown) + strlen(text);
}

/* Starts `plait run -m MODEL` with these words; the environment is that of an
 * xterm, but for name=value. */
static pid_t start_on(struct terminal *t, const char *name, const char *value,
                      const char *const *words)
{
    const char *argv[24] = {"plait", "run", "-m", test_model()};
    int n = 4;
    pid_t pid;

    for (; *words; words++)
        argv[n++] = *words;
    memset(t, 0, sizeof *t);
    pid = forkpty(&t->fd, NULL, NULL, NULL);
    if (pid == 0) {
        setenv("TERM", "xterm", 1);
        setenv("LC_ALL", "C.UTF-8", 1);
        unsetenv("NO_COLOR");
        if (name)
            setenv(name, value, 1);
        execv(command_path(), (char *const *)argv);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}
#define START(t, ...)                                                          \
    start_on(t, NULL, NULL, (const char *const[]){__VA_ARGS__, NULL})

/* Waits until the command ends, which must be with exit code 0. */
static void ends(struct terminal *t, pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(t->fd);
    assert_int_equal(command_status(status), 0);
}

/* On a terminal the user reads why the template rejects a message, and
 * continues; in a pipe that is an error, as above. */
TEST(cli_chat_on_a_terminal_survives_a_refused_message)
{
    static const char form[] =
        "{% for m in messages %}{{ m.content }}"
        "{% if m.content == 'bad' %}{{ raise_exception('not so') }}{% endif %}"
        "{% endfor %}";
    const char *path = test_temp("refuses.jinja");
    static struct terminal t;
    FILE *f = fopen(path, "w");
    pid_t pid;

    assert_non_null(f);
    fputs(form, f);
    fclose(f);
    pid = START(&t, "--template", path, "-n", "4", "--ignore-eos");
    await(&t, NULL, "> ");
    await(&t, "bad\r", "template line 1: not so");
    await(&t, NULL, "> ");
    await(&t, "good\r", "good\r\n");
    await(&t, NULL, "> ");
    /* Ctrl-U deletes the line, Ctrl-D ends the input */
    await(&t, "\025\004", "generation");
    ends(&t, pid);
}

/* A paste is one message, newlines, slashes and all, and only Enter sends
 * it. */
TEST(cli_chat_on_a_terminal_takes_a_paste_whole)
{
    const char *saved = test_temp("pasted.json");
    char keys[512];
    json_t *m;
    static struct terminal t;
    pid_t pid = START(&t, "-n", "4", "--ignore-eos");

    snprintf(keys, sizeof keys, "/save %s\r", saved);
    await(&t, NULL, "\033[?2004h");
    await(&t, "\033[200~/quit\ris no h\303\251ro\r\033[201~", "ro");
    await(&t, "!\r", "\033[?2004l");
    await(&t, NULL, "> ");
    await(&t, keys, "json");
    await(&t, NULL, "> ");
    await(&t, "/quit\r", "generation");
    ends(&t, pid);
    m = json_load_file(saved, 0, NULL);
    assert_int_equal(json_array_size(m), 2);
    assert_string_equal(content(m, 0), "/quit\nis no h\303\251ro!");
    json_decref(m);
}

/* A terminal that knows no escape sequences gets none, and a user who wants no
 * color gets none. */
TEST(cli_chat_writes_what_the_terminal_knows)
{
    static const struct {
        const char *name, *value;
        bool draws, colors;
    } list[] = {
        {"NO_COLOR", "", true, true},
        {"NO_COLOR", "1", true, false},
        {"TERM", "dumb", false, false},
    };
    const char *form = test_temp("thinks.jinja");
    const char *const words[] = {"-n",         "8",  "--ignore-eos",
                                 "--template", form, NULL};
    FILE *f = fopen(form, "w");

    assert_non_null(f);
    fputs("{% for m in messages %}{{ m.content }}{% endfor %}<think>", f);
    fclose(f);
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        static struct terminal t;
        pid_t pid = start_on(&t, list[i].name, list[i].value, words);

        await(&t, NULL, "> ");
        await(&t, "x\r", "x\r\n");
        await(&t, NULL, "> ");
        await(&t, "/quit\r", "generation");
        ends(&t, pid);
        assert_int_equal(strstr(t.shown, "\033[2m") != NULL, list[i].colors);
        assert_int_equal(strchr(t.shown, '\033') != NULL, list[i].draws);
    }
}

/* A chat saves its state when its terminal is closed, also under nohup, where
 * no signal reports that. */
TEST(cli_chat_is_saved_when_its_terminal_goes)
{
    const char *saved = test_temp("gone.state");
    char line[4300];
    static struct terminal t;
    int status;

    for (int nohup = 0; nohup < 2; nohup++) {
        pid_t pid;

        signal(SIGHUP, nohup ? SIG_IGN : SIG_DFL);
        pid =
            START(&t, "-i", "--no-template", "-n", "4", "--state-save", saved);
        signal(SIGHUP, SIG_DFL);
        await(&t, NULL, "> ");
        await(&t, "One\r", "> ");
        close(t.fd);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(command_status(status), nohup ? 0 : 128 + SIGHUP);
        snprintf(line, sizeof line, "plait inspect %s", saved);
        sh(0, line);
        assert_int_equal(unlink(saved), 0);
    }
}

/* The lines of a conversation cannot be had again, so what was computed before
 * a failure is kept. Here every token is forbidden. */
TEST(cli_conversation_that_fails_is_saved)
{
    sh(1, "echo Once | plait run " MODEL "-i --no-template --state-save "
          "failed.state $(seq -f '-l %g-inf' 0 4095)");
    sh(0, "plait inspect failed.state");
}

static char state_of(pid_t pid)
{
    char path[64], c = '\0';
    FILE *f;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*d %*s %c", &c), 1);
    fclose(f);
    return c;
}

/* A signal arrives between the last check for one and the read of the next
 * line. The prompt is written there, which the terminal holds up by Ctrl-S. */
TEST(cli_chat_ends_by_a_signal_just_before_it_reads)
{
    static struct terminal t;
    char text[256];
    int out[2], status;
    pid_t pid;
    const char *argv[] = {"plait",
                          "run",
                          "-m",
                          test_model(),
                          "-i",
                          "-n",
                          "2",
                          "-c",
                          "256",
                          "--no-template",
                          "--state-save",
                          test_temp("late.state"),
                          NULL};

    memset(&t, 0, sizeof t);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    pid = forkpty(&t.fd, NULL, NULL, NULL);
    if (pid == 0) {
        setenv("TERM", "dumb", 1);
        dup2(out[1], 1);
        execv(command_path(), (char *const *)argv);
        _exit(127);
    }
    close(out[1]);
    await(&t, NULL, "> ");
    type(&t, "One\r\023");
    do {
        ssize_t n = read(out[0], text, sizeof text);

        assert_true(n > 0);
        text[0] = text[n - 1];
    } while (text[0] != '\n'); /* the newline shows that the turn has ended */
    TEST_UNTIL(state_of(pid) == 'S');
    kill(pid, SIGTERM);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(command_status(status), 128 + SIGTERM);
    assert_int_equal(access(argv[11], R_OK), 0);
    close(t.fd);
    close(out[0]);
}

/* Ctrl-C stops an endless answer, and the chat continues. */
TEST(cli_chat_on_a_terminal_stops_an_answer_alone)
{
    const char *saved = test_temp("typed.json");
    char keys[512];
    json_t *m;
    static struct terminal t;
    pid_t pid =
        START(&t, "--temp", "0.5", "-s", "7", "--ignore-eos", "-c", "4096");

    snprintf(keys, sizeof keys, "/save %s\r", saved);
    await(&t, NULL, "> ");
    await(&t, "One\\\r", "| ");
    await(&t, "two\r", "two\r\n");
    await(&t, NULL, " "); /* a blank of the answer */
    await(&t, "\003", "> ");
    await(&t, keys, "json\r\n");
    await(&t, NULL, "> ");
    /* Ctrl-U deletes the line, Ctrl-D ends the input */
    await(&t, "\025\004", "generation");
    ends(&t, pid);
    m = json_load_file(saved, 0, NULL);
    assert_int_equal(json_array_size(m), 2);
    assert_string_equal(content(m, 0), "One\ntwo");
    json_decref(m);
}

/* Each template by name has its published form, of which the expected texts are
 * those of llama.cpp. */
TEST(cli_chat_templates_by_name_have_the_published_forms)
{
    static const struct {
        const char *name, *text;
    } list[] = {
        {"chatml", "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU"
                   "<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n"
                   "<|im_start|>user\nV<|im_end|>\n<|im_start|>assistant\n"},
        {"chatglm4", "[gMASK]<sop><|system|>\nS<|user|>\nU<|assistant|>\nA"
                     "<|user|>\nV<|assistant|>\n"},
        {"command-r",
         "<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>S<|END_OF_TURN_TOKEN|>"
         "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>U<|END_OF_TURN_TOKEN|>"
         "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>A<|END_OF_TURN_TOKEN|>"
         "<|START_OF_TURN_TOKEN|><|USER_TOKEN|>V<|END_OF_TURN_TOKEN|>"
         "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"},
        {"deepseek", "S### Instruction:\nU\n### Response:\nA\n<|EOT|>\n"
                     "### Instruction:\nV\n### Response:\n"},
        {"deepseek2", "S\n\nUser: U\n\nAssistant: A@User: V\n\nAssistant:"},
        {"deepseek3", "S\n\n<｜User｜>U<｜Assistant｜>A@<｜User｜>V"
                      "<｜Assistant｜>"},
        {"falcon3", "<|system|>\nS\n<|user|>\nU\n<|assistant|>\nA\n<|user|>\nV"
                    "\n<|assistant|>\n"},
        {"gemma", "<start_of_turn>user\nS\n\nU<end_of_turn>\n<start_of_turn>"
                  "model\nA<end_of_turn>\n<start_of_turn>user\nV<end_of_turn>"
                  "\n<start_of_turn>model\n"},
        {"gpt-oss", "<|start|>system<|message|>S<|end|><|start|>user<|message|>"
                    "U<|end|><|start|>assistant<|message|>A<|return|><|start|>"
                    "user<|message|>V<|end|><|start|>assistant"},
        {"granite",
         "<|start_of_role|>system<|end_of_role|>S<|end_of_text|>\n"
         "<|start_of_role|>user<|end_of_role|>U<|end_of_text|>\n"
         "<|start_of_role|>assistant<|end_of_role|>A<|end_of_text|>\n"
         "<|start_of_role|>user<|end_of_role|>V<|end_of_text|>\n"
         "<|start_of_role|>assistant<|end_of_role|>"},
        {"llama2", "[INST] <<SYS>>\nS\n<</SYS>>\n\nU [/INST] A @^[INST] V "
                   "[/INST]"},
        {"llama3",
         "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nU<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\nA<|eot_id|>"
         "<|start_header_id|>user<|end_header_id|>\n\nV<|eot_id|>"
         "<|start_header_id|>assistant<|end_header_id|>\n\n"},
        {"mistral-v1", " [INST] S\n\nU [/INST] A@ [INST] V [/INST]"},
        {"mistral-v3", "[INST] S\n\nU[/INST] A@[INST] V[/INST]"},
        {"mistral-v3-tekken", "[INST]S\n\nU[/INST]A@[INST]V[/INST]"},
        {"mistral-v7", "[SYSTEM_PROMPT] S[/SYSTEM_PROMPT][INST] U[/INST] A@"
                       "[INST] V[/INST]"},
        {"mistral-v7-tekken", "[SYSTEM_PROMPT]S[/SYSTEM_PROMPT][INST]U[/INST]"
                              "A@[INST]V[/INST]"},
        {"openchat", "GPT4 Correct System: S<|end_of_turn|>GPT4 Correct User: U"
                     "<|end_of_turn|>GPT4 Correct Assistant: A<|end_of_turn|>"
                     "GPT4 Correct User: V<|end_of_turn|>GPT4 Correct "
                     "Assistant:"},
        {"phi3", "<|system|>\nS<|end|>\n<|user|>\nU<|end|>\n<|assistant|>\nA"
                 "<|end|>\n<|user|>\nV<|end|>\n<|assistant|>\n"},
        {"phi4",
         "<|im_start|>system<|im_sep|>S<|im_end|><|im_start|>user<|im_sep|>U"
         "<|im_end|><|im_start|>assistant<|im_sep|>A<|im_end|><|im_start|>user"
         "<|im_sep|>V<|im_end|><|im_start|>assistant<|im_sep|>"},
        {"vicuna", "S\n\nUSER: U\nASSISTANT: A@\nUSER: V\nASSISTANT:"},
        {"zephyr", "<|system|>\nS@\n<|user|>\nU@\n<|assistant|>\nA@\n<|user|>\n"
                   "V@\n<|assistant|>\n"},
    };
    static const char ask[] =
        "echo '[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
        "\"content\":\"U\"},{\"role\":\"assistant\",\"content\":\"A\"},"
        "{\"role\":\"user\",\"content\":\"V\"}]' >m.json; "
        "plait render " MODEL "--messages m.json --chat-template ";

    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        char line[600], want[600] = "";
        size_t n = 0;

        for (const char *s = list[i].text; *s != '\0'; s++)
            n += (size_t)snprintf(want + n, sizeof want - n, "%s%.1s",
                                  *s == '@'   ? FABLE_EOS
                                  : *s == '^' ? FABLE_BOS
                                              : "",
                                  *s == '@' || *s == '^' ? "" : s);
        snprintf(line, sizeof line, "%s%s", ask, list[i].name);
        assert_string_equal(sh(0, line).out, want);
    }
    must_say(sh(2, "plait run " MODEL "-i --chat-template nobody"),
             "--chat-template nobody: neither the text of a template nor one "
             "of chatml, chatglm4, ");
    assert_string_equal(sh(0, "plait render --messages m.json --chat-template "
                              "'{{ messages[0].content }}!'")
                            .out,
                        "S!");
}

/* A turn of a chat from a start line of llama-cli. */
TEST(cli_chat_of_a_single_turn_ends_after_its_answer)
{
    struct ran one =
        sh(0, "plait run " MODEL "-cnv -st -n 8 --temp 0 --ignore-eos -p 'Once "
              "upon a time' --color --no-perf </dev/null");
    struct ran raw =
        sh(0, "echo '[{\"role\":\"user\",\"content\":\"Once upon a time\"}]' | "
              "plait render " MODEL "--messages - >prompt && plait run " MODEL
              "-n 8 --temp 0 --ignore-eos -bf prompt --no-display-prompt");

    must_say(one, "change no result here: --color, --no-perf\n");
    raw.out[strcspn(raw.out, "\n")] = '\0';
    one.out[strcspn(one.out, "\n")] = '\0';
    assert_string_equal(one.out, raw.out);
    must_say(sh(2, "echo x >b; plait run " MODEL "-i -sys a -sysf b"),
             "--system and --system-prompt-file");
    assert_string_equal(
        sh(0,
           "printf 'Be kind.' >sys; printf '/save m.json\\n' | plait run " MODEL
           "-i -sysf sys -n 1 >out; cat m.json")
            .out,
        "[\n  {\n    \"role\": \"system\",\n    \"content\": \"Be kind.\"\n  "
        "}\n]\n");
}

/* -r ends the text before the words, which may come in several tokens. */
TEST(cli_reverse_prompt_ends_the_text)
{
    struct ran whole =
        sh(0, "plait run " MODEL "-n 40 --temp 0 -p 'Once upon a "
              "time' --no-display-prompt");
    char line[400], stop[20], *at = whole.out + 30;

    assert_true(strlen(whole.out) > 50);
    snprintf(stop, sizeof stop, "%.7s", at);
    assert_null(strpbrk(stop, "'\\\n"));
    *strstr(whole.out, stop) = '\0';
    snprintf(line, sizeof line,
             "plait run " MODEL "-n 40 --temp 0 -p 'Once upon a time' "
             "--no-display-prompt -r nowhere -r '%s'",
             stop);
    assert_string_equal(sh(0, line).out, whole.out);
}
