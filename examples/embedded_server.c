/* A program that serves text over HTTP by itself: the body of a POST is a
 * prompt, the answer its continuation, sent while it is generated.
 *
 *   embedded_server MODEL [PORT [DEVICES]]      port 0: any free port
 *   curl -N --data 'Once upon a time' http://127.0.0.1:8080/
 *
 * It serves one client at a time, of this machine. `plait serve` has queues,
 * limits and protocols; this shows the loop for a program that has its own. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_TOKENS = 48, MOST_BYTES = 1 << 16 };
/* Number of the signal that ends the program, 0 before. pl_engine_decode polls
 * it as its `cancel`. */
static volatile int stopped;
static int server;
static pl_model *model;
static pl_engine *engine;
static pl_sampler *sampler;
static pl_detokenizer *words;
static const pl_tokenizer *vocab;
static float *logits; /* [n_vocab] logits of the last token decoded */

static void stop(int sig)
{
    stopped = sig;
    shutdown(server, SHUT_RDWR); /* makes the waiting accept() return */
}

static int die(const char *message)
{
    fprintf(stderr, "embedded_server: %s\n", message);
    return 1;
}

static bool put(int fd, const char *text)
{
    size_t n = strlen(text);

    return send(fd, text, n, MSG_NOSIGNAL) == (ssize_t)n;
}

/* Reads a request into s; returns its body, or NULL if it is not a POST, is too
 * large, or does not come within the time limit. */
static char *read_request(int fd, char s[MOST_BYTES])
{
    size_t n = 0;

    for (;;) {
        ssize_t got = recv(fd, s + n, MOST_BYTES - 1 - n, 0);
        char *body, *length;

        if (got <= 0)
            return NULL;
        s[n += (size_t)got] = '\0';
        body = strstr(s, "\r\n\r\n");
        length = strcasestr(s, "\r\nContent-Length:");
        if (body && (strncmp(s, "POST ", 5) != 0 || !length || length > body))
            return NULL;
        if (body && strlen(body + 4) >= strtoul(length + 17, NULL, 10))
            return body + 4;
    }
}

/* Generates the continuation of `text` in sequence 0 and sends it to the client
 * while it is generated. Ends early if the client disconnects. */
static pl_status answer(const char *text, int fd, pl_err *err)
{
    /* Flags of the batch's tokens: 1 for the last one, whose logits are
     * wanted. */
    static uint8_t wanted[MOST_BYTES];
    pl_batch b = {.size = sizeof b, .wanted = wanted, .logits = logits};
    int32_t *ids = NULL;
    pl_status s = pl_seq_trim(engine, 0, 0, NULL, err);

    if (s == PL_OK)
        s = pl_tokenize(vocab, text, strlen(text), PL_ADD_SPECIAL, &ids, &b.n,
                        err);
    b.token = ids;
    for (int i = 0; s == PL_OK && b.n > 0 && i < MOST_TOKENS; i++, b.n = 1) {
        wanted[b.n - 1] = 1;
        s = pl_engine_decode(engine, &b, &stopped, err);
        wanted[b.n - 1] = 0;
        if (s != PL_OK || (ids[0] = pl_sample(sampler, logits)) < 0 ||
            pl_token_is_eog(vocab, ids[0]) ||
            !put(fd, pl_detokenize(words, ids[0])))
            break;
    }
    put(fd, pl_detokenize_flush(words));
    free(ids);
    return s;
}

int main(int argc, char **argv)
{
    static char request[MOST_BYTES];
    const struct sigaction act = {.sa_handler = stop};
    const struct timeval limit = {.tv_sec = 10};
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    pl_options opt = {.size = sizeof opt, .n_seq = 1};
    int client;
    pl_err err;

    if (argc < 2)
        return die("usage: embedded_server MODEL [PORT [DEVICES]]");
    at.sin_port = htons((uint16_t)(argc > 2 ? atoi(argv[2]) : 8080));
    opt.devices = argc > 3 ? argv[3] : "cpu";
    if (pl_model_open(&model, argv[1], &err) != PL_OK ||
        pl_engine_create(&engine, model, &opt, &err) != PL_OK ||
        pl_sampler_create(&sampler, NULL, pl_model_n_vocab(model), &err) !=
            PL_OK ||
        pl_detokenizer_create(&words, pl_model_tokenizer(model), false, &err) !=
            PL_OK)
        return die(err.message);
    vocab = pl_model_tokenizer(model);
    logits = calloc((size_t)pl_model_n_vocab(model), sizeof *logits);
    server = socket(AF_INET, SOCK_STREAM, 0);
    if (!logits || bind(server, (struct sockaddr *)&at, len) ||
        listen(server, 8) || getsockname(server, (struct sockaddr *)&at, &len))
        return die("no memory, or the port is in use");
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    printf("http://127.0.0.1:%d/\n", ntohs(at.sin_port));
    fflush(stdout);
    while (!stopped && (client = accept(server, NULL, NULL)) >= 0) {
        const char *text;

        setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        setsockopt(client, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        text = read_request(client, request);
        put(client, text ? "HTTP/1.0 200 OK\r\n" : "HTTP/1.0 400 No\r\n");
        put(client, "Content-Type: text/plain; charset=utf-8\r\n\r\n");
        if (text && answer(text, client, &err) != PL_OK)
            put(client, err.message);
        close(client);
    }
    close(server);
    free(logits);
    pl_detokenizer_free(words);
    pl_sampler_free(sampler);
    pl_engine_free(engine);
    pl_model_free(model);
    return 0;
}
