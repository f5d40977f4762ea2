/* What a mask costs: for texts that are generated token by token, the time of
 * grammar_mask before each token, and of grammar_accept.
 *
 * Vocabularies: that of a model, and one of 128,000 made up texts: words of all
 * lengths with and without a blank before, numbers, runs of blanks, marks and
 * their pairs, and letters of other scripts, whole and in parts. Texts: random
 * ones of each grammar, a token drawn from each mask. "cold" begins with
 * nothing known, text after text; "warm" are the same texts once more. Times
 * are the thread's own.
 *
 *   bench-grammar [TEXTS [MODEL]]    TEXTS of 400 tokens; 20 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gguf/gguf.h"
#include "grammar/grammar.h"
#include "timing.h"
#include "tokenizer/tokenizer.h"

enum {
    N_MADE = 128000,
    TOKENS = 400,
    MOST_TEXTS = 200,
    PIECE_BYTES = 4096,
};

static const char json[] =
    "root ::= object\n"
    "value ::= object | array | string | number |"
    " (\"true\" | \"false\" | \"null\") ws\n"
    "object ::= \"{\" ws (string \":\" ws value"
    " (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
    "string ::= \"\\\"\" char* \"\\\"\" ws\n"
    "char ::= [^\"\\\\\\x7F\\x00-\\x1F] |"
    " \"\\\\\" ([\"\\\\/bfnrt] | \"u\" [0-9a-fA-F]{4})\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)?"
    " ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static const char arithmetic[] =
    "root ::= (expr \"=\" ws term \"\\n\")+\n"
    "expr ::= term ([-+*/] ws term)*\n"
    "term ::= ident | num | \"(\" ws expr \")\" ws\n"
    "ident ::= [a-z] [a-z0-9_]* ws\n"
    "num ::= [0-9]+ ws\n"
    "ws ::= [ \\t\\n]*\n";

static const char lines[] = "root ::= (line \"\\n\")+\n"
                            "line ::= \"- \" [^\\n]+\n";

/* Strings of bounded length are long rows of states. */
static const char schema[] =
    "{\"type\": \"array\", \"items\": {\"type\": \"object\", \"properties\":"
    " {\"name\": {\"type\": \"string\", \"maxLength\": 200}, \"kind\":"
    " {\"enum\": [\"first\", \"second\", \"third\"]}, \"count\": {\"type\":"
    " \"integer\", \"minimum\": 0, \"maximum\": 5000}, \"id\": {\"type\":"
    " \"string\", \"format\": \"uuid\"}, \"tags\": {\"type\": \"array\","
    " \"items\": {\"type\": \"string\"}}}, \"required\": [\"name\", "
    "\"kind\"]}}";

struct times {
    double *us; /* [n] of [cap], owned */
    int n, cap;
};

static void add_time(struct times *t, double us)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 1024;
        t->us = realloc(t->us, (size_t)t->cap * sizeof *t->us);
        if (!t->us)
            bench_die("times", "out of memory");
    }
    t->us[t->n++] = us;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void print_times(const char *what, struct times *t)
{
    double sum = 0;

    qsort(t->us, (size_t)t->n, sizeof *t->us, by_value);
    for (int i = 0; i < t->n; i++)
        sum += t->us[i];
    if (t->n)
        printf("  %-12s %7d  mean %8.2f  p99 %8.2f  max %8.2f us\n", what, t->n,
               sum / t->n, t->us[t->n - 1 - t->n / 100], t->us[t->n - 1]);
    t->n = 0;
}

/* Seconds that this thread computed, whatever others did meanwhile. */
static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- vocabularies -------------------------------------------------------- */

struct pieces {
    struct grammar_token *token; /* [n], owned, with their texts */
    int32_t n;
};

static void add_piece(struct pieces *p, const char *s, size_t len,
                      enum grammar_token_kind kind)
{
    char *copy = malloc(len + 1);

    if (!copy)
        bench_die("vocabulary", "out of memory");
    memcpy(copy, s, len);
    p->token[p->n++] = (struct grammar_token){copy, (uint32_t)len, kind};
}

static uint64_t random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* A word of letters as texts have them: syllables. */
static size_t make_word(char *out, uint64_t *rng)
{
    static const char first[] = "bcdfghjklmnprstvwz", second[] = "aeiouy";
    size_t n = 0, most = 2 + random_next(rng) % 10;

    while (n < most) {
        out[n++] = first[random_next(rng) % (sizeof first - 1)];
        out[n++] = second[random_next(rng) % (sizeof second - 1)];
    }
    if (random_next(rng) % 4 == 0)
        out[0] = (char)(out[0] - 'a' + 'A');
    return n;
}

/* One to four characters of another script, at times without the last byte. */
static size_t make_foreign(char *out, uint64_t *rng)
{
    size_t n = 0;

    for (uint64_t k = 1 + random_next(rng) % 4; k > 0; k--) {
        uint32_t c = 0x4e00 + (uint32_t)(random_next(rng) % 3000);

        if (random_next(rng) % 2) {
            c = 0x430 + (uint32_t)(random_next(rng) % 32);
            out[n++] = (char)(0xc0 | c >> 6);
        } else {
            out[n++] = (char)(0xe0 | c >> 12);
            out[n++] = (char)(0x80 | (c >> 6 & 63));
        }
        out[n++] = (char)(0x80 | (c & 63));
    }
    return n > 1 && random_next(rng) % 16 == 0 ? n - 1 : n;
}

static size_t make_marks(char *out, uint64_t *rng)
{
    static const char marks[] = "\"\",,::{}[]()\\\\//..;;<>=+-*_'!?#&%$@|~^`"
                                " \n\t";
    size_t n = 1 + random_next(rng) % 4;

    for (size_t i = 0; i < n; i++)
        out[i] = marks[random_next(rng) % (sizeof marks - 1)];
    return n;
}

static void make_vocabulary(struct pieces *p)
{
    uint64_t rng = 1;
    char s[256];

    p->n = 0;
    p->token = calloc(N_MADE, sizeof *p->token);
    if (!p->token)
        bench_die("vocabulary", "out of memory");
    for (int i = 0; i < 256; i++) {
        s[0] = (char)i;
        add_piece(p, s, 1, GRAMMAR_TOKEN_TEXT);
    }
    for (int i = 1; i <= 100; i++) {
        memset(s, ' ', (size_t)i);
        add_piece(p, s, (size_t)i, GRAMMAR_TOKEN_TEXT);
    }
    for (int i = 0; i < 1000; i++)
        add_piece(p, s, (size_t)snprintf(s, sizeof s, "%d", i),
                  GRAMMAR_TOKEN_TEXT);
    while (p->n < N_MADE - 1) {
        uint64_t kind = random_next(&rng) % 100;
        size_t n = 0;

        if (kind < 40)
            s[n++] = ' ';
        n += kind < 70   ? make_word(s + n, &rng)
             : kind < 93 ? make_foreign(s + n, &rng)
                         : make_marks(s + n, &rng);
        add_piece(p, s, n, GRAMMAR_TOKEN_TEXT);
    }
    add_piece(p, "", 0, GRAMMAR_TOKEN_END);
}

static void read_vocabulary(struct pieces *p, const char *path)
{
    struct gguf *f = NULL;
    struct tokenizer *t = NULL;
    static char s[PIECE_BYTES];
    pl_err err = {0};
    int32_t n;

    if (gguf_open(&f, path, &err) != PL_OK ||
        tokenizer_create(&t, f, &err) != PL_OK)
        bench_die(path, err.message);
    n = tokenizer_n_vocab(t);
    p->n = 0;
    p->token = calloc((size_t)n + 1, sizeof *p->token);
    if (!p->token)
        bench_die(path, "out of memory");
    for (int32_t i = 0; i < n; i++)
        add_piece(p, s, tokenizer_piece(t, i, 0, s, sizeof s),
                  tokenizer_is_eog(t, i)       ? GRAMMAR_TOKEN_END
                  : tokenizer_is_control(t, i) ? GRAMMAR_TOKEN_NEVER
                                               : GRAMMAR_TOKEN_TEXT);
    tokenizer_free(t);
    gguf_close(f);
}

static void free_pieces(struct pieces *p)
{
    for (int32_t i = 0; i < p->n; i++)
        free((char *)p->token[i].s);
    free(p->token);
}

/* ---- texts --------------------------------------------------------------- */

struct bench {
    struct grammar_masks *m;
    const struct pieces *p;
    uint32_t *bits; /* owned */
    struct times mask, accept;
};

/* A token that may come next and is no end: three times of four a short one,
 * so that texts have structure. -1: there is none. */
static int32_t draw(const struct bench *b, uint64_t *rng)
{
    int32_t found = -1;
    bool want_short = random_next(rng) % 4 != 0;
    int32_t from = (int32_t)(random_next(rng) % (uint64_t)b->p->n);

    for (int32_t k = 0; k < b->p->n; k++) {
        int32_t id = (from + k) % b->p->n;

        if (!(b->bits[id / 32] >> id % 32 & 1) ||
            b->p->token[id].kind != GRAMMAR_TOKEN_TEXT)
            continue;
        found = id;
        if (!want_short || b->p->token[id].len <= 2)
            break;
    }
    return found;
}

static void run_text(struct bench *b, uint64_t seed)
{
    struct grammar_state *s = NULL;
    pl_err err = {0};

    if (grammar_state_create(&s, b->m, &err) != PL_OK)
        bench_die("state", err.message);
    for (int i = 0; i < TOKENS; i++) {
        double start = now(), masked;
        int32_t id;

        if (grammar_mask(s, b->bits, &err) != PL_OK)
            bench_die("mask", err.message);
        masked = now();
        add_time(&b->mask, 1e6 * (masked - start));
        id = draw(b, &seed);
        if (id < 0)
            break;
        start = now();
        if (grammar_accept(s, id, &err) != PL_OK)
            bench_die("accept", err.message);
        add_time(&b->accept, 1e6 * (now() - start));
    }
    grammar_state_free(s);
}

static void run_grammar(const char *name, const char *text,
                        const struct pieces *p, const struct grammar_vocab *v,
                        int n_text)
{
    struct bench b = {.p = p};
    struct grammar *g = NULL;
    double start = now();
    pl_err err = {0};

    if ((text == schema ? grammar_from_schema : grammar_from_gbnf)(
            &g, text, strlen(text), name, &err) != PL_OK)
        bench_die(name, err.message);
    printf("%s, %d tokens: read in %.2f ms\n", name, (int)p->n,
           1e3 * (now() - start));
    b.bits = calloc((size_t)p->n / 32 + 1, sizeof *b.bits);
    if (!b.bits || grammar_masks_create(&b.m, g, v, 0, &err) != PL_OK)
        bench_die(name, "out of memory");
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < n_text; i++)
            run_text(&b, (uint64_t)i);
        print_times(round ? "mask, warm" : "mask, cold", &b.mask);
        print_times("accept", &b.accept);
    }
    free(b.mask.us);
    free(b.accept.us);
    free(b.bits);
    grammar_masks_free(b.m);
    grammar_free(g);
}

static void run_vocabulary(struct pieces *p, int n_text)
{
    struct grammar_vocab *v = NULL;
    double start = now();
    pl_err err = {0};

    if (grammar_vocab_create(&v, p->token, p->n, &err) != PL_OK)
        bench_die("vocabulary", err.message);
    printf("vocabulary of %d: %.1f ms\n", (int)p->n, 1e3 * (now() - start));
    run_grammar("json", json, p, v, n_text);
    run_grammar("arithmetic", arithmetic, p, v, n_text);
    run_grammar("lines", lines, p, v, n_text);
    run_grammar("schema", schema, p, v, n_text);
    grammar_vocab_free(v);
    free_pieces(p);
}

int main(int argc, char **argv)
{
    int n_text = argc > 1 ? atoi(argv[1]) : 20;
    struct pieces p = {0};

    if (n_text < 1 || n_text > MOST_TEXTS)
        bench_die("TEXTS", "1 to 200");
    if (argc > 2) {
        read_vocabulary(&p, argv[2]);
        run_vocabulary(&p, n_text);
    }
    make_vocabulary(&p);
    run_vocabulary(&p, n_text);
    return 0;
}
