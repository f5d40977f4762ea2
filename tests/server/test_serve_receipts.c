/* A server's answers come with receipts that hold, in every protocol, streamed
 * or not, in company, after cached prompts, with tokens that the server chose.
 */
#include "lib/command.h"
#include "lib/jws_try.h"
#include "lib/serve_try.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHAT "\"messages\":[{\"role\":\"user\",\"content\":\"Hello there\"}]"

static const struct ask {
    const char *path, *body;
    int n; /* receipts */
} asks[] = {
    {"/completion", "\"prompt\":\"Once upon a time\",\"n_predict\":8", 1},
    {"/completion",
     "\"prompt\":\"Once upon a time\",\"n_predict\":8,\"temperature\":1.5,"
     "\"top_k\":0,\"repeat_penalty\":1.1,\"ignore_eos\":true,"
     "\"grammar\":\"root ::= [a-z ,.]+\"",
     1},
    {"/v1/completions", "\"prompt\":\"Once upon a time\",\"max_tokens\":0", 1},
    {"/v1/completions",
     "\"prompt\":\"Once upon a time\",\"max_tokens\":6,\"n\":2", 2},
    {"/v1/completions",
     "\"prompt\":[\"One day\",\"The old\"],\"max_tokens\":6,\"stop\":[\"a\"]",
     2},
    {"/v1/completions",
     "\"prompt\":\"One day\",\"max_tokens\":1,\"echo\":true,\"logprobs\":1", 1},
    {"/v1/chat/completions", CHAT ",\"max_tokens\":8,\"logprobs\":true", 1},
    {"/v1/chat/completions",
     CHAT ",\"max_tokens\":24,\"response_format\":{\"type\":\"json_schema\","
          "\"json_schema\":{\"name\":\"a\",\"schema\":{\"type\":\"object\","
          "\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"]}}}",
     1},
    {"/v1/messages", CHAT ",\"max_tokens\":8", 1},
    {"/v1/responses", "\"input\":\"Hello there\",\"max_output_tokens\":8", 1},
    {"/api/chat", CHAT ",\"options\":{\"num_predict\":8}", 1},
    {"/api/generate",
     "\"prompt\":\"Hello there\",\"options\":{\"num_predict\":8}", 1},
    {"/v1/completions",
     "\"prompt\":\"Once upon a time\",\"max_tokens\":12,\"min_tokens\":9,"
     "\"stop_token_ids\":[300,301,302,260,261,262,263,264,265],"
     "\"bad_words\":[\"the\",\"a little\"]",
     1},
    {"/completion",
     "\"prompt\":\"Once upon a time\",\"n_predict\":8,\"temperature\":2,"
     "\"allowed_token_ids\":[300,301,302,303,304],\"repetition_penalty\":1.1",
     1},
};
enum { N_ASK = sizeof asks / sizeof *asks };

/* Appends the receipts of a JSON value to a file; returns their number. */
static int keep(FILE *f, const json_t *j)
{
    json_t *plait =
        json_object_get(json_is_array(j) ? json_array_get(j, 0) : j, "plait");
    json_t *list = json_object_get(plait, "receipts"), *r;
    size_t i, n = 0;

    json_array_foreach (list, i, r)
        n += json_dumpf(r, f, JSON_COMPACT) == 0 && fputc('\n', f) == '\n';
    r = json_object_get(plait, "receipt");
    if (r)
        n += json_dumpf(r, f, JSON_COMPACT) == 0 && fputc('\n', f) == '\n';
    return (int)n;
}

/* Appends the receipts of a response to a file: a JSON text, or a stream with
 * one a line. Returns their number. */
static int keep_all(FILE *f, const char *body)
{
    json_t *whole = json_loads(body, 0, NULL);
    int n = whole ? keep(f, whole) : 0;

    for (const char *s = body; !whole && *s;
         s += strcspn(s, "\n"), s += *s == '\n') {
        const char *from = strncmp(s, "data: ", 6) == 0 ? s + 6 : s;
        json_t *j = json_loadb(from, strcspn(from, "\n"), 0, NULL);

        n += keep(f, j);
        json_decref(j);
    }
    json_decref(whole);
    return n;
}

static char *request(const struct ask *a, bool stream, const char *more)
{
    char *body;

    assert_true(asprintf(&body, "{\"model\":\"fable\",\"stream\":%s,%s%s}",
                         stream ? "true" : "false", a->body, more) > 0);
    return body;
}

/* Asks all at once, then reads the responses. */
static int ask_all(struct serve_try *s, FILE *f, bool stream)
{
    struct try_client c[N_ASK];
    int n = 0;

    for (int i = 0; i < N_ASK; i++) {
        char *body = request(&asks[i], stream, "");

        try_connect(&s->t, &c[i]);
        serve_try_send(&c[i], asks[i].path, body);
        free(body);
    }
    for (int i = 0; i < N_ASK; i++) {
        struct try_answer a = {0};
        int got;

        try_read(&c[i], &a, false);
        assert_int_equal(a.status, 200);
        got = keep_all(f, a.body);
        if (got != asks[i].n)
            fail_msg("%s %s: %d receipts, not %d: %s", asks[i].path,
                     stream ? "streamed" : "whole", got, asks[i].n, a.body);
        n += got;
        free(a.body);
        try_close(&c[i]);
    }
    return n;
}

static const char *write_file(const char *name, const char *text)
{
    const char *path = test_temp(name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
    return path;
}

TEST(serve_receipts_hold_in_every_protocol)
{
    const char *path = test_temp("receipts.jsonl");
    const char *private = write_file("key.pem", JWS_TRY_PRIVATE);
    const char *public = write_file("trust.pem", JWS_TRY_PUBLIC);
    struct serve_try s;
    char line[800], said[80];
    FILE *f = fopen(path, "w");
    int n = 0;

    assert_non_null(f);
    snprintf(line, sizeof line,
             "-a fable --receipts --receipt-form full --sign-key '%s'",
             private);
    serve_try_start(&s, "", line);
    n += ask_all(&s, f, false);
    n += ask_all(&s, f, true); /* from cached prompts */
    fclose(f);
    serve_try_stop(&s);
    snprintf(line, sizeof line,
             "plait verify " MODEL "-dev 'sim*2' '%s' --trust '%s'", path,
             public);
    snprintf(said, sizeof said, "%d receipts: %d hold, 0 differ, 0 cannot", n,
             n);
    must_say(sh(0, line), said);
}

/* The server keeps receipts that no client asked for: the same, byte for byte,
 * whatever the devices. */
TEST(serve_keeps_receipts_in_a_file)
{
    static const char *const devices[] = {"cpu*2 -ts 3,1",
                                          "sim*3 --rank-split 3,1"};
    char more[400], line[400], name[32];
    const char *path[2];

    for (int i = 0; i < 2; i++) {
        struct serve_try s;

        snprintf(name, sizeof name, "kept-%d.jsonl", i);
        path[i] = test_temp(name);
        snprintf(more, sizeof more,
                 "-a fable -s 7 -dev %s --receipt-form full --receipt '%s'",
                 devices[i], path[i]);
        serve_try_start(&s, "", more);
        for (int k = 0; k < 6; k++) {
            char *body = request(&asks[k], k % 2, "");
            char *answer = serve_try_post(&s, asks[k].path, body, 200);

            assert_null(strstr(answer, "\"receipt"));
            free(answer);
            free(body);
        }
        serve_try_stop(&s);
    }
    snprintf(line, sizeof line, "cmp '%s' '%s'", path[0], path[1]);
    sh(0, line);
    snprintf(line, sizeof line, "plait-emu verify " MODEL "-dev emu '%s'",
             path[0]);
    must_say(sh(0, line), "9 receipts: 9 hold");
}

/* In a cache of a few pages tasks are preempted, after which their sampler and
 * their receipt go on. The tasks are choices of one request, so that they begin
 * together however slow the clients are. */
TEST(serve_receipts_hold_after_preemption)
{
    const char *path = test_temp("preempted.jsonl");
    struct serve_try s;
    char line[400];

    snprintf(line, sizeof line,
             "-np 6 -c 320 -ub 64 --max-waiting 64 --receipt-form full "
             "--receipt '%s'",
             path);
    serve_try_start(&s, "", line);
    free(
        serve_try_post(&s, "/v1/completions",
                       "{\"prompt\":\"Once upon a time there was a king. And\","
                       "\"seed\":3,\"max_tokens\":110,\"n\":8,"
                       "\"repeat_penalty\":1.1,\"ignore_eos\":true}",
                       200));
    assert_true(serve_try_metric(&s, "plait_preemptions_total") > 0);
    serve_try_stop(&s);
    snprintf(line, sizeof line, "plait verify " MODEL "'%s'", path);
    must_say(sh(0, line), "8 receipts: 8 hold");
}

/* A request asks for a receipt, or for none, and for its form. */
TEST(serve_receipts_are_what_the_request_asks_for)
{
    static const struct {
        const char *more;
        int n;
        const char *has, *lacks;
    } row[] = {
        {"", 0, NULL, NULL},
        {",\"receipt\":false", 0, NULL, NULL},
        {",\"receipt\":true", 1, "\"sha256\"", "\"prompt\":{\"tokens\""},
        {",\"receipt\":\"brief\"", 1, "\"sha256\"", NULL},
        {",\"receipt\":\"full\"", 1, "\"tokens\"", NULL},
        {",\"receipt\":\"hashes\"", 1, "\"sha256\"", "\"tokens\""},
    };
    const char *path = test_temp("receipt.json");
    struct serve_try s;

    serve_try_start(&s, "", "-a fable");
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        char *body = request(&asks[0], false, row[i].more), *answer, *text;
        FILE *f = fopen(path, "w");
        size_t n;

        answer = serve_try_post(&s, asks[0].path, body, 200);
        assert_int_equal(keep_all(f, answer), row[i].n);
        fclose(f);
        text = test_read(path, &n);
        if ((row[i].has && !strstr(text, row[i].has)) ||
            (row[i].lacks && strstr(text, row[i].lacks)))
            fail_msg("%s: %s", row[i].more, text);
        free(text);
        free(answer);
        free(body);
    }
    for (int i = 0; i < 2 * N_ASK; i++) { /* in every protocol */
        const struct ask *a = &asks[i / 2];
        char *body = request(a, i % 2, ",\"receipt\":true");
        char *answer = serve_try_post(&s, a->path, body, 200);
        FILE *f = fopen(path, "w");

        if (keep_all(f, answer) != a->n)
            fail_msg("%s: %s", a->path, answer);
        fclose(f);
        free(answer);
        free(body);
    }
    free(serve_try_post(&s, "/completion",
                        "{\"prompt\":\"a\",\"receipt\":\"all\"}", 400));
    free(serve_try_post(&s, "/api/generate",
                        "{\"prompt\":\"a\",\"receipt\":\"all\"}", 400));
    serve_try_stop(&s);
}

/* The receipts of a request are in the order of its choices, though the second
 * ends first, by the stop string. */
TEST(serve_keeps_receipts_in_the_order_of_choices)
{
    const char *path = test_temp("ordered.jsonl");
    struct serve_try s;
    char more[400], line[400];
    struct ran r;

    snprintf(more, sizeof more, "-a fable --temp 0 --receipt '%s'", path);
    serve_try_start(&s, "", more);
    free(serve_try_post(&s, "/v1/completions",
                        "{\"max_tokens\":40,\"stop\":[\"time\"],\"prompt\":["
                        "\"Once upon a time\",\"Once upon a\"]}",
                        200));
    serve_try_stop(&s);
    snprintf(line, sizeof line, "grep -o '\"reason\":\"[a-z]*' '%s'", path);
    r = sh(0, line);
    assert_string_equal(r.out, "\"reason\":\"length\n\"reason\":\"stop\n");
}

/* Waits until a text is in a file, n times. */
static void await_texts(const char *path, const char *text, int n)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    size_t size;

    for (int i = 0; i < 3000; i++) {
        char *all = test_read(path, &size);
        int found = 0;

        for (const char *s = all; (s = strstr(s, text)); s += strlen(text))
            found++;
        free(all);
        if (found >= n)
            return;
        nanosleep(&pause, NULL);
    }
    fail_msg("%s: \"%s\" is not there %d times", path, text, n);
}

/* The file has each receipt soon after its answer, so that a server that is
 * killed leaves them. The next one continues the file, even after half a
 * line. */
TEST(serve_keeps_the_receipts_of_a_server_that_is_killed)
{
    const char *path = test_temp("killed.jsonl");
    char *body = request(&asks[0], false, "");
    char line[400];
    struct serve_try s;
    struct ran r;
    int status;

    snprintf(line, sizeof line, "-a fable --receipt-form full --receipt '%s'",
             path);
    serve_try_start(&s, "", line);
    for (int i = 1; i <= 2; i++) {
        free(serve_try_post(&s, asks[0].path, body, 200));
        await_texts(path, "\n", i);
    }
    assert_int_equal(kill(s.pid, SIGKILL), 0);
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    snprintf(line, sizeof line, "plait verify " MODEL "'%s'", path);
    must_say(sh(0, line), "2 receipts: 2 hold");
    snprintf(line, sizeof line, "head -c 300 '%s' >half && cat half >>'%s'",
             path, path);
    sh(0, line);
    snprintf(line, sizeof line, "-a fable --receipt-form full --receipt '%s'",
             path);
    serve_try_start(&s, "", line);
    free(serve_try_post(&s, asks[0].path, body, 200));
    serve_try_stop(&s);
    snprintf(line, sizeof line, "plait verify " MODEL "'%s'", path);
    r = sh(2, line);
    assert_non_null(strstr(r.out, "killed.jsonl:4: holds"));
    must_say(r, "killed.jsonl:3: not a receipt");
    must_say(r, "4 receipts: 3 hold, 0 differ, 1 cannot");
    free(body);
}

/* Reads from a pipe until it has given n lines. */
static void read_lines(int fd, int n)
{
    char buf[4096];

    while (n > 0) {
        ssize_t k = read(fd, buf, sizeof buf);

        assert_true(k > 0);
        for (ssize_t i = 0; i < k; i++)
            n -= buf[i] == '\n';
    }
}

/* Starts a server whose receipts go to a pipe that nobody reads, and sends n
 * requests, which it answers. Returns the pipe, for reading. */
static int stall(struct serve_try *s, const char *more, int n)
{
    const char *path = test_temp("stalled");
    char line[400];
    int fd, i;

    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0 && fcntl(fd, F_SETPIPE_SZ, 4096) >= 0 &&
                fcntl(fd, F_SETFL, 0) == 0);
    snprintf(line, sizeof line, "-a fable --receipt-form full --receipt '%s'",
             path);
    serve_try_start(s, "", line);
    for (i = 0; i < n; i++) {
        char *body = request(&asks[0], false, more);

        free(serve_try_post(s, asks[0].path, body, 200));
        free(body);
    }
    return fd;
}

/* A reader that has stalled gets all receipts when it goes on. */
TEST(serve_answers_while_nobody_reads_receipts)
{
    struct serve_try s;
    int n = 12, fd = stall(&s, "", n);

    read_lines(fd, n);
    serve_try_stop(&s);
    close(fd);
}

/* If it never goes on, the server stops all the same, and says what is lost. */
TEST(serve_stops_while_nobody_reads_receipts)
{
    struct serve_try s;
    int fd = stall(&s, "", 12), status;
    char *log;
    size_t size;

    assert_int_equal(kill(s.pid, SIGTERM), 0);
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    assert_int_equal(command_status(status), 1);
    log = test_read(s.log, &size);
    assert_non_null(strstr(log, "has stalled for"));
    free(log);
    close(fd);
}

/* Receipts that wait take bounded memory: of 60 receipts of 1.5 MB those that
 * do not fit are lost, which the log says once. */
TEST(serve_bounds_the_receipts_that_nobody_reads)
{
    char word[6 * 1000 + 1], *more, *log, *at;
    size_t size = 256 * (sizeof word + 3) + 100, used;
    struct serve_try s;
    int fd, status;

    for (int i = 0; i < 1000; i++)
        memcpy(word + 6 * (size_t)i, "\\u0001", 7);
    more = test_need(size, 1);
    used = (size_t)snprintf(more, size, ",\"n\":60,\"stop\":[\"%s\"", word);
    for (int i = 1; i < 256; i++)
        used += (size_t)snprintf(more + used, size - used, ",\"%s\"", word);
    snprintf(more + used, size - used, "]");
    fd = stall(&s, more, 1);
    log = test_read(s.log, &used);
    at = strstr(log, "receipts are lost until it is");
    assert_non_null(at);
    assert_null(strstr(at + 1, "receipts are lost until it is"));
    assert_true(serve_try_use(&s).bytes < (int64_t)600 << 20);
    kill(s.pid, SIGTERM);
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    assert_int_equal(command_status(status), 1);
    free(log);
    free(more);
    close(fd);
}

/* Returns the sum of the log probabilities of a choice's prompt: of all tokens
 * but the first, which has none, and the last, which was generated. */
static double loglikelihood(const json_t *choice)
{
    const json_t *list =
        json_object_get(json_object_get(choice, "logprobs"), "token_logprobs");
    size_t n = json_array_size(list);
    double sum = 0;

    assert_true(n > 3);
    for (size_t i = 0; i + 1 < n; i++)
        sum += json_number_value(json_array_get(list, i));
    return sum;
}

/* The receipts of prompts whose probabilities a client has asked for, as
 * lm-evaluation-harness does, prove their sums. */
TEST(serve_receipts_prove_the_loglikelihood_of_prompts)
{
    static const char body[] =
        "{\"prompt\":[\"Once upon a time there was\",\"One day the old\"],"
        "\"max_tokens\":1,\"echo\":true,\"logprobs\":1,\"temperature\":0,"
        "\"receipt\":\"%s\"}";
    const char *path = test_temp("scores.jsonl");
    char line[800], *answer, *text;
    struct serve_try s;
    json_t *all, *list;
    size_t size;

    snprintf(line, sizeof line,
             "-a fable -dev 'cpu*2' --receipt-form full --receipt '%s'", path);
    serve_try_start(&s, "", line);
    snprintf(line, sizeof line, body, "full");
    answer = serve_try_post(&s, "/v1/completions", line, 200);
    all = serve_try_json(answer);
    list = json_object_get(json_object_get(all, "plait"), "prompt_receipts");
    assert_int_equal(json_array_size(list), 2);
    for (size_t i = 0; i < 2; i++) {
        const char *nll = json_string_value(json_object_get(
            json_object_get(json_array_get(list, i), "output"), "nll"));
        double sum =
            loglikelihood(json_array_get(json_object_get(all, "choices"), i));

        assert_non_null(nll);
        if (!(fabs(strtod(nll, NULL) + sum) < 1e-4 * fabs(sum)))
            fail_msg("prompt %zu: %s, but the response has %.9g", i, nll, sum);
    }
    json_decref(all);
    free(answer);
    snprintf(line, sizeof line, body, "brief");
    answer = serve_try_post(&s, "/v1/completions", line, 200);
    assert_null(strstr(answer, "prompt_receipt"));
    free(answer);
    snprintf(line, sizeof line,
             "{\"prompt\":\"Once upon a time\",\"max_tokens\":0,\"echo\":true,"
             "\"logprobs\":1,\"receipt\":\"full\",\"stream\":true}");
    answer = serve_try_post(&s, "/v1/completions", line, 200);
    assert_non_null(strstr(answer, "\"prompt_receipt\":{"));
    free(answer);
    serve_try_stop(&s);
    snprintf(line, sizeof line, "plait verify " MODEL "-dev 'sim*3' '%s'",
             path);
    must_say(sh(0, line), "10 receipts: 10 hold");
    /* The prompt's receipt precedes that of the output. */
    text = test_read(path, &size);
    assert_true(strstr(text, "\"nll\"") < strchr(text, '\n'));
    free(text);
    snprintf(line, sizeof line,
             "sed 's/\"nll\":\"/&1/' '%s' >other.jsonl; plait verify " MODEL
             "other.jsonl",
             path);
    must_say(sh(1, line), "10 receipts: 5 hold, 5 differ");
}

/* The log names lost receipts while the server runs, once. */
TEST(serve_says_that_receipts_are_lost)
{
    static const char said[] = "all later ones are lost";
    char *body = request(&asks[0], false, ""), *log, *at;
    struct serve_try s;
    int status;
    size_t n;

    serve_try_start(&s, "", "-a fable --receipt /dev/full");
    for (int i = 0; i < 2; i++)
        free(serve_try_post(&s, asks[0].path, body, 200));
    await_texts(s.log, said, 1);
    assert_int_equal(kill(s.pid, SIGTERM), 0);
    assert_int_equal(waitpid(s.pid, &status, 0), s.pid);
    assert_int_equal(command_status(status), 1);
    log = test_read(s.log, &n);
    at = strstr(log, said);
    assert_null(strstr(at + 1, said));
    assert_non_null(strstr(log, "2 receipts are lost"));
    free(log);
    free(body);
}

/* The file of --receipt must not be that of a model, wherever it is named. */
TEST(serve_does_not_overwrite_a_model_by_receipts)
{
    sh(0, "mkdir -p d && cp models/fable-moe-Q8_0.gguf d/x.gguf");
    sh(0, "printf '[a]\nmodel = d/x.gguf\n' >a.ini");
    must_say(sh(2, "plait serve --models-dir d --port 0 --receipt d/x.gguf"),
             "would overwrite the file of -m");
    must_say(
        sh(2, "plait serve --models-preset a.ini --port 0 --receipt d/x.gguf"),
        "would overwrite the file of -m");
    sh(0, "cmp d/x.gguf models/fable-moe-Q8_0.gguf");
}

/* A file without write permission stays, root's too, and so does one that is
 * not regular. */
TEST(serve_appends_receipts_to_no_file_without_write_permission)
{
    sh(0, "echo old >a && chmod 400 a && mkdir b");
    must_say(sh(1, "plait serve " MODEL "--port 0 --receipt a"),
             "write-protected");
    sh(0, "test \"$(cat a)\" = old");
    must_say(sh(2, "plait serve " MODEL "--port 0 --receipt b"), "a directory");
}
