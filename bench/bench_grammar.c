/* Measures token masks. For texts that are generated token by token, measures
 * grammar_mask before each token and grammar_accept after it, over many
 * grammars (battery.c).
 *
 * Vocabularies: one of a model, and one of 128,000 made-up tokens. These are
 * words of all lengths with and without a blank before them, numbers, runs of
 * blanks, signs and pairs of signs, and letters of other scripts, whole and in
 * parts. Texts: for each grammar random texts, of which each token is drawn
 * from its mask.
 *
 * Row "cold" begins with empty caches and takes text after text. Row "warm"
 * takes the same texts again. Row "alone" takes single masks, each with an
 * empty cache. Row "made" is the time that a first request waits: for reading
 * the grammar and for memory for its masks. Everything is repeated several
 * times from the start, and the least time of each mask counts.
 *
 *   bench-grammar [TEXTS [MODEL [GRAMMAR]]]    TEXTS of 400 tokens; 4 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "battery.h"
#include "gguf/gguf.h"
#include "grammar/grammar.h"
#include "timing.h"
#include "tokenizer/tokenizer.h"

enum {
    N_MADE = 128000,
    TOKENS = 400,
    MOST_TEXTS = 200,
    PIECE_BYTES = 4096,
    ROUNDS = 5,
    /* number of masks of the first text that row "alone" measures */
    ALONE = 24,
};

struct times {
    double *us; /* owned: n times in microseconds, with space for `cap` */
    int n, cap;
};

static void times_add(struct times *t, double us)
{
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 1024;
        t->us = realloc(t->us, (size_t)t->cap * sizeof *t->us);
        if (!t->us)
            bench_die("times", "out of memory");
    }
    t->us[t->n++] = us;
}

/* Stores the i-th time, in microseconds, if it is less than the i-th time of
 * earlier rounds. */
static void times_keep(struct times *t, int i, double us)
{
    if (i == t->n)
        times_add(t, us);
    else if (us < t->us[i])
        t->us[i] = us;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* Sorts the times and prints their mean, 99th percentile and maximum in
 * microseconds. */
static void times_print(struct times *t)
{
    double sum = 0;

    qsort(t->us, (size_t)t->n, sizeof *t->us, by_value);
    for (int i = 0; i < t->n; i++)
        sum += t->us[i];
    if (t->n)
        printf(" %7.1f %7.1f %7.1f", sum / t->n, t->us[t->n - 1 - t->n / 100],
               t->us[t->n - 1]);
}

/* Returns the processor time of this thread in microseconds, which other
 * processes do not change. */
static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* ---- vocabularies -------------------------------------------------------- */

struct pieces {
    /* [n] tokens; the array and the texts of its tokens are owned */
    struct grammar_token *token;
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

/* Writes a word of syllables to `out`. Returns its length in bytes. */
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

/* Writes a token of one to four characters of another script, sometimes without
 * its last byte. Returns its length in bytes. */
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
    const struct battery_item *item;
    const struct pieces *p;
    const struct grammar_vocab *v;
    struct grammar *g;
    int n_text;
    /* [n_text, TOKENS] ids of the texts, owned; -1 after the last token of a
     * text */
    int32_t *id;
    uint32_t *bits; /* the mask, one bit per token of the vocabulary; owned */
    struct times cold, warm, alone, accept, made;
};

static struct grammar *read_grammar(const struct battery_item *item)
{
    struct grammar *g = NULL;
    pl_err err = {0};

    size_t len = strlen(item->text);
    pl_status s =
        item->schema
            ? grammar_from_schema(&g, item->text, len, item->name, &err)
            : grammar_from_gbnf(&g, item->text, len, NULL, item->name, &err);

    if (s != PL_OK)
        bench_die(item->name, err.message);
    return g;
}

static struct grammar_masks *make_masks(const struct bench *b,
                                        const struct grammar *g)
{
    struct grammar_masks *m = NULL;
    pl_err err = {0};

    if (grammar_masks_create(&m, g, b->v, 0, &err) != PL_OK)
        bench_die(b->item->name, err.message);
    return m;
}

static struct grammar_state *begin(const struct bench *b,
                                   struct grammar_masks *m)
{
    struct grammar_state *s = NULL;
    pl_err err = {0};

    if (grammar_state_create(&s, m, &err) != PL_OK)
        bench_die(b->item->name, err.message);
    return s;
}

/* Computes the mask for state `s` into b->bits. Returns the microseconds. */
static double mask(const struct bench *b, struct grammar_state *s)
{
    double start = now_us(), end;
    pl_err err = {0};
    pl_status st = grammar_mask(s, b->bits, &err);

    end = now_us();
    if (st != PL_OK)
        bench_die(b->item->name, err.message);
    return end - start;
}

static double accept(const struct bench *b, struct grammar_state *s, int32_t id)
{
    double start = now_us(), end;
    pl_err err = {0};
    pl_status st = grammar_accept(s, id, &err);

    end = now_us();
    if (st != PL_OK)
        bench_die(b->item->name, err.message);
    return end - start;
}

/* Draws a token that the mask b->bits allows and that does not end the text; -1
 * if there is none. Three times out of four prefers tokens of at most two
 * bytes, so that texts have structure. */
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

static void draw_texts(struct bench *b)
{
    struct grammar_masks *m = make_masks(b, b->g);

    for (int i = 0; i < b->n_text; i++) {
        struct grammar_state *s = begin(b, m);
        int32_t *id = b->id + (ptrdiff_t)i * TOKENS;
        uint64_t rng = (uint64_t)i;

        for (int k = 0; k < TOKENS; k++) {
            mask(b, s);
            id[k] = k > 0 && id[k - 1] < 0 ? -1 : draw(b, &rng);
            if (id[k] >= 0)
                accept(b, s, id[k]);
        }
        grammar_state_free(s);
    }
    grammar_masks_free(m);
}

/* Measures the masks of all texts, using and filling the cache of masks `m`. */
static void run_texts(struct bench *b, struct grammar_masks *m, bool warm)
{
    int at = 0, accepted = 0;

    for (int i = 0; i < b->n_text; i++) {
        struct grammar_state *s = begin(b, m);
        const int32_t *id = b->id + (ptrdiff_t)i * TOKENS;

        for (int k = 0; k < TOKENS; k++) {
            times_keep(warm ? &b->warm : &b->cold, at++, mask(b, s));
            if (id[k] < 0)
                break;
            times_keep(&b->accept, accepted++, accept(b, s, id[k]));
        }
        grammar_state_free(s);
    }
}

/* Measures masks at some positions of the first text, each with an empty cache
 * of masks. */
static void run_alone(struct bench *b)
{
    int n = 0, step;

    while (n < TOKENS && b->id[n] >= 0)
        n++;
    step = n / ALONE + 1;
    for (int i = 0; i < n; i += step) {
        struct grammar_masks *m = make_masks(b, b->g);
        struct grammar_state *s = begin(b, m);

        for (int k = 0; k < i; k++)
            accept(b, s, b->id[k]);
        times_keep(&b->alone, i / step, mask(b, s));
        grammar_state_free(s);
        grammar_masks_free(m);
    }
}

static void run_rounds(struct bench *b)
{
    for (int r = 0; r < ROUNDS; r++) {
        double start = now_us();
        struct grammar *g = read_grammar(b->item);
        struct grammar_masks *m = make_masks(b, g);

        times_keep(&b->made, 0, now_us() - start);
        run_texts(b, m, false);
        run_texts(b, m, true);
        grammar_masks_free(m);
        grammar_free(g);
        run_alone(b);
    }
}

static void move_times(struct times *to, struct times *from)
{
    for (int i = 0; i < from->n; i++)
        times_add(to, from->us[i]);
    free(from->us);
}

/* Measures a grammar, prints its times, and adds them to those in `all`. */
static void run_grammar(const struct battery_item *item, struct bench *all)
{
    struct bench b = {
        .item = item, .p = all->p, .v = all->v, .n_text = all->n_text};

    b.bits = calloc((size_t)b.p->n / 32 + 1, sizeof *b.bits);
    b.id = calloc((size_t)b.n_text * TOKENS, sizeof *b.id);
    if (!b.bits || !b.id)
        bench_die(item->name, "out of memory");
    b.g = read_grammar(item);
    draw_texts(&b);
    run_rounds(&b);
    printf("%-17s %7.2f", item->name, 1e-3 * b.made.us[0]);
    times_print(&b.cold);
    times_print(&b.alone);
    times_print(&b.warm);
    printf("\n");
    move_times(&all->cold, &b.cold);
    move_times(&all->warm, &b.warm);
    move_times(&all->alone, &b.alone);
    move_times(&all->accept, &b.accept);
    move_times(&all->made, &b.made);
    free(b.bits);
    free(b.id);
    grammar_free(b.g);
}

static void print_all(struct bench *all)
{
    printf("%-17s %7s", "all", "");
    times_print(&all->cold);
    times_print(&all->alone);
    times_print(&all->warm);
    printf("\n%-25s", "all, accept");
    times_print(&all->accept);
    printf("\n%-25s", "all, made");
    times_print(&all->made);
    printf("\n");
    free(all->cold.us);
    free(all->warm.us);
    free(all->alone.us);
    free(all->accept.us);
    free(all->made.us);
}

static void run_vocabulary(struct pieces *p, int n_text, const char *only)
{
    struct battery_item item[BATTERY_MOST];
    struct grammar_vocab *v = NULL;
    double start = now_us();
    struct bench all = {.p = p, .n_text = n_text};
    int n = battery_make(item);
    pl_err err = {0};

    if (grammar_vocab_create(&v, p->token, p->n, &err) != PL_OK)
        bench_die("vocabulary", err.message);
    all.v = v;
    printf("vocabulary of %d, made in %.1f ms; microseconds of the thread's "
           "own time,\nthe least of %d; mean, p99 and max\n%-17s %7s %23s "
           "%23s %23s\n",
           (int)p->n, 1e-3 * (now_us() - start), (int)ROUNDS, "grammar",
           "made ms", "cold", "alone", "warm");
    for (int i = 0; i < n; i++)
        if (!only || strcmp(only, item[i].name) == 0)
            run_grammar(&item[i], &all);
    print_all(&all);
    grammar_vocab_free(v);
    free_pieces(p);
}

int main(int argc, char **argv)
{
    int n_text = argc > 1 ? atoi(argv[1]) : 4;
    const char *only = argc > 3 ? argv[3] : NULL;
    struct pieces p = {0};

    if (n_text < 1 || n_text > MOST_TEXTS)
        bench_die("TEXTS", "1 to 200");
    if (argc > 2 && argv[2][0]) {
        read_vocabulary(&p, argv[2]);
        run_vocabulary(&p, n_text, only);
    }
    make_vocabulary(&p);
    run_vocabulary(&p, n_text, only);
    return 0;
}
