/* Builds the requests. Their prompts are random tokens; some begin with a
 * prefix that all or many share. All numbers are drawn from the seed and the
 * number of the request, so that two servers, or two runs, get the same
 * requests. */
#include "bench_serve.h"
#include "server/json_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Returns a random number (splitmix64) and advances *state. The initial state
 * depends on the seed, the number of the request, and the purpose of the
 * number. */
static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

enum purpose { LENGTHS, PAUSE, PREFIX, REST };

static uint64_t stream(const struct options *o, enum purpose p, int64_t i)
{
    uint64_t s = o->random_seed ? 0 : o->sampling.seed;

    s = draw(&s) ^ (uint64_t)p << 56;
    s = draw(&s) ^ (uint64_t)i;
    return draw(&s);
}

static int one_of(const struct option_list *l, int otherwise, uint64_t *state)
{
    return l->n > 0 ? l->v[draw(state) % (uint64_t)l->n] : otherwise;
}

void serve_draw(const struct options *o, int64_t i, struct serve_request *r)
{
    uint64_t s = stream(o, LENGTHS, i);

    r->n_prompt = one_of(&o->n_prompt, 512, &s);
    r->n_gen = one_of(&o->n_gen, 128, &s);
}

double serve_pause(const struct options *o, int64_t i, double rate)
{
    uint64_t s = stream(o, PAUSE, i);
    /* uniform in (0, 1], so that the logarithm below is finite */
    double u = (double)((draw(&s) >> 11) + 1) * 0x1p-53;

    return -log(u) / rate;
}

/* ---- prompts ------------------------------------------------------------- */

/* A prompt under construction: a list of token ids, or text made of words of
 * about one token each. */
struct prompt {
    json_t *ids;
    /* owned, with space for 8 bytes per word; NULL if `ids` is used */
    char *text;
    size_t n;
    int64_t n_vocab;
    bool failed;
};

static void add_word(struct prompt *p, uint64_t *state)
{
    static const char *const words[] = {
        " the",   " of",    " and",   " to",   " in",    " is",    " that",
        " for",   " it",    " as",    " was",  " with",  " be",    " by",
        " on",    " not",   " he",    " his",  " but",   " at",    " are",
        " this",  " have",  " from",  " or",   " had",   " an",    " they",
        " which", " one",   " you",   " were", " all",   " her",   " she",
        " there", " would", " their", " we",   " him",   " been",  " has",
        " when",  " who",   " will",  " no",   " more",  " if",    " out",
        " so",    " up",    " said",  " what", " its",   " about", " than",
        " into",  " them",  " can",   " only", " other", " time",  " new",
        " some"};
    uint64_t v = draw(state);

    if (p->ids != NULL) {
        p->failed |=
            json_array_append_new(
                p->ids, json_integer((json_int_t)(v % (uint64_t)p->n_vocab))) !=
            0;
    } else {
        const char *s = words[v % (sizeof(words) / sizeof(words[0]))];

        strcpy(p->text + p->n, s);
        p->n += strlen(s);
    }
}

/* Returns the prompt of request i, n tokens long. It begins with one of
 * o->n_prefix prefixes, which other requests share. */
static json_t *prompt(const struct options *o, const struct serve_target *t,
                      int64_t i, int64_t n)
{
    uint64_t rest = stream(o, REST, i);
    int64_t kind = (int64_t)(draw(&rest) % (uint64_t)o->n_prefix);
    uint64_t first = stream(o, PREFIX, kind);
    int64_t shared = (int64_t)((double)o->prefix * (double)n + 0.5);
    struct prompt p = {.n_vocab = t->n_vocab};
    json_t *j = NULL;

    if (t->n_vocab > 0 && !o->chat)
        p.ids = json_array();
    else
        p.text = calloc((size_t)n + 1, 8);
    for (int64_t k = 0; k < n && (p.ids != NULL || p.text != NULL); k++)
        add_word(&p, k < shared ? &first : &rest);
    if (p.text != NULL)
        j = json_stringn(p.text, p.n);
    else if (!p.failed)
        j = json_incref(p.ids);
    json_decref(p.ids);
    free(p.text);
    return j;
}

char *serve_body(const struct options *o, const struct serve_target *t,
                 int64_t i, const struct serve_request *r)
{
    json_t *said = prompt(o, t, i, r->n_prompt);
    json_t *j = o->chat ? json_pack("{s:[{s:s, s:o}]}", "messages", "role",
                                    "user", "content", said)
                        : json_pack("{s:o}", "prompt", said);
    json_t *more = json_pack(
        "{s:I, s:b, s:{s:b}, s:i, s:I, s:b}", "max_tokens",
        (json_int_t)r->n_gen, "stream", 1, "stream_options", "include_usage", 1,
        "temperature", 0, "seed", (json_int_t)i, "ignore_eos", 1);
    char *body = NULL;

    if (j != NULL && more != NULL && json_object_update(j, more) == 0 &&
        (t->model == NULL ||
         json_object_set_new(j, "model", json_string(t->model)) == 0))
        body = json_text_plain(j, JSON_COMPACT);
    json_decref(j);
    json_decref(more);
    return body;
}
