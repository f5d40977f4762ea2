/* Masks equal those of a naive checker: random grammars, random vocabularies,
 * random walks. The checker tries the rules one after another, without automata
 * or stacks. It shares nothing with the grammar but the text. */
#include "lib/support.h"

#include "grammar/grammar.h"
#include "lib/alloc_fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- random grammars ----------------------------------------------------- */

enum node_kind { LITERAL, CLASS, REF, SEQ, ALT, REPEAT };

enum {
    MOST_CHILD = 4,
    MOST_RULE = 6,
    MOST_NODE = 512,
    UNLIMITED = -1,
    /* steps after which the naive checker gives up a search */
    MOST_STEPS = 20000,
    MOST_TEXT = 160,
};

struct node {
    enum node_kind kind;
    int n; /* number of children or of ranges, or the index of the rule */
    const struct node *child[MOST_CHILD];
    char text[16]; /* text of a literal */
    uint32_t first[MOST_CHILD], last[MOST_CHILD];
    bool negated;
    int min, max;
};

struct random_grammar {
    struct node node[MOST_NODE];
    int n_node, n_rule;
    const struct node *rule[MOST_RULE];
    uint64_t rng;
};

static const uint32_t letters[] = {'a',  'b',  'c',    '"',
                                   0xe9, 0xe8, 0x732b, 0x1f600};
enum { N_LETTER = sizeof letters / sizeof letters[0] };

static int put_char(char *out, uint32_t c)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

static uint32_t random_letter(uint64_t *rng)
{
    /* most letters are among the first three, so that random texts match more
     * often */
    int64_t n = test_below(rng, 3) ? 3 : N_LETTER;

    return letters[test_below(rng, n)];
}

static void fill_literal(struct random_grammar *g, struct node *t)
{
    int n = 0;

    for (int64_t i = test_below(&g->rng, 4); i > 0; i--)
        n += put_char(t->text + n, random_letter(&g->rng));
    t->text[n] = '\0';
}

static void fill_class(struct random_grammar *g, struct node *t)
{
    t->n = 1 + (int)test_below(&g->rng, 2);
    t->negated = test_below(&g->rng, 4) == 0;
    /* all characters but the quote, as in JSON strings */
    if (test_below(&g->rng, 3) == 0) {
        t->n = 1;
        t->negated = true;
        t->first[0] = t->last[0] = '"';
        return;
    }
    for (int i = 0; i < t->n; i++) {
        uint32_t a = random_letter(&g->rng), b = random_letter(&g->rng);

        t->first[i] = a < b ? a : b;
        t->last[i] = test_below(&g->rng, 2) ? t->first[i] : a < b ? b : a;
    }
}

static const struct node *random_node(struct random_grammar *g, int depth)
{
    struct node *t = &g->node[g->n_node++];
    int64_t kind = test_below(&g->rng, depth > 0 ? 8 : 3);

    *t = (struct node){0};
    t->kind = kind < 2    ? LITERAL
              : kind == 2 ? CLASS
              : kind == 3 ? REF
              : kind < 6  ? SEQ
              : kind == 6 ? ALT
                          : REPEAT;
    if (g->n_node > MOST_NODE - 64)
        t->kind = LITERAL;
    if (t->kind == LITERAL)
        fill_literal(g, t);
    if (t->kind == CLASS)
        fill_class(g, t);
    if (t->kind == REF)
        t->n = (int)test_below(&g->rng, g->n_rule);
    if (t->kind == REPEAT) {
        t->n = 1;
        t->min = (int)test_below(&g->rng, 3);
        t->max = test_below(&g->rng, 2) ? UNLIMITED
                                        : t->min + (int)test_below(&g->rng, 3);
    }
    if (t->kind == SEQ || t->kind == ALT)
        t->n = 2 + (int)test_below(&g->rng, MOST_CHILD - 1);
    for (int i = 0; i < t->n && t->kind >= SEQ; i++)
        t->child[i] = random_node(g, depth - 1);
    return t;
}

static void make_random(struct random_grammar *g, uint64_t seed)
{
    g->rng = seed;
    g->n_node = 0;
    g->n_rule = 1 + (int)test_below(&g->rng, MOST_RULE);
    for (int i = 0; i < g->n_rule; i++)
        g->rule[i] = random_node(g, 3);
}

/* Makes one repetition of something random, with a count at which tokens of
 * some length begin to tell it from others, and a possible continuation. */
static void make_row(struct random_grammar *g, uint64_t seed)
{
    static const int count[] = {0, 1, 3, 4, 5, 6, 8, 9, 12, 16, 17, 18, 40, 66};
    enum { N = sizeof count / sizeof count[0] };
    struct node *root, *row;

    g->rng = seed;
    g->n_node = 2;
    g->n_rule = 1 + (int)test_below(&g->rng, 3);
    root = &g->node[0];
    row = &g->node[1];
    *row = (struct node){.kind = REPEAT, .n = 1};
    row->child[0] = random_node(g, (int)test_below(&g->rng, 3));
    row->min = count[test_below(&g->rng, N)];
    row->max = test_below(&g->rng, 6) == 0
                   ? UNLIMITED
                   : row->min + count[test_below(&g->rng, N)];
    *root = (struct node){.kind = SEQ, .n = 2};
    root->child[0] = row;
    root->child[1] = random_node(g, 1);
    if (test_below(&g->rng, 4) == 0) { /* repeats the repeated row once more */
        struct node *outer = &g->node[g->n_node++];

        *outer = *row;
        outer->child[0] = root;
        outer->max = outer->min + count[test_below(&g->rng, 6)];
        root = outer;
    }
    g->rule[0] = root;
    for (int i = 1; i < g->n_rule; i++)
        g->rule[i] = random_node(g, 2);
}

/* ---- as GBNF ------------------------------------------------------------- */

static void say(struct test_text *out, const char *s)
{
    test_text_add(out, s, strlen(s));
}

static void say_char(struct test_text *out, uint32_t c)
{
    char s[16];

    snprintf(s, sizeof s, "\\U%08X", (unsigned)c);
    say(out, s);
}

static void say_literal(struct test_text *out, const char *text)
{
    say(out, "\"");
    for (; *text; text++) {
        if (*text == '"')
            say(out, "\\");
        test_text_add(out, text, 1);
    }
    say(out, "\"");
}

static void say_repeat(struct test_text *out, const struct node *t)
{
    char s[32];

    if (t->max == UNLIMITED && t->min < 2)
        say(out, t->min ? "+" : "*");
    else if (t->max == 1 && t->min == 0)
        say(out, "?");
    else {
        snprintf(s, sizeof s, t->max == UNLIMITED ? "{%d,}" : "{%d,%d}", t->min,
                 t->max);
        say(out, s);
    }
}

static void say_node(struct test_text *out, const struct node *t)
{
    char s[16];

    switch (t->kind) {
    case LITERAL:
        say_literal(out, t->text);
        return;
    case CLASS:
        say(out, t->negated ? "[^" : "[");
        for (int i = 0; i < t->n; i++) {
            say_char(out, t->first[i]);
            say(out, "-");
            say_char(out, t->last[i]);
        }
        say(out, "]");
        return;
    case REF:
        snprintf(s, sizeof s, "%s", "root");
        if (t->n > 0)
            snprintf(s, sizeof s, "r%d", t->n);
        say(out, s);
        return;
    default:
        break;
    }
    say(out, "(");
    for (int i = 0; i < t->n; i++) {
        say(out, i == 0 ? "" : t->kind == ALT ? " | " : " ");
        say_node(out, t->child[i]);
    }
    say(out, ")");
    if (t->kind == REPEAT)
        say_repeat(out, t);
}

static void say_grammar(struct test_text *out, const struct random_grammar *g)
{
    char s[16];

    for (int i = 0; i < g->n_rule; i++) {
        snprintf(s, sizeof s, i ? "r%d ::= " : "root ::= ", i);
        say(out, s);
        say_node(out, g->rule[i]);
        say(out, "\n");
    }
}

/* ---- the naive checker --------------------------------------------------- */

/* The continuation after a node: its next sibling, or another repetition. */
struct rest {
    const struct node *t; /* the sequence or the repetition that continues */
    /* index of the next child, or number of repetitions that were done */
    int i;
    int start; /* offset in the text at which the last repetition began */
    const struct rest *next;
};

struct search {
    const struct random_grammar *g;
    const char *s;
    int n;
    /* true if the grammar's text must end where the given text ends; else it
     * may continue */
    bool whole;
    int n_step;
};

static bool match(struct search *q, const struct node *t, int at,
                  const struct rest *rest);

static bool turns(struct search *q, const struct node *t, int i, int at,
                  const struct rest *rest);

static bool resume(struct search *q, int at, const struct rest *rest)
{
    const struct rest *r = rest;

    if (!r)
        return at == q->n;
    if (r->t->kind == REPEAT) {
        /* further repetitions that match nothing change nothing, so the search
         * ends them */
        if (at == r->start)
            return resume(q, at, r->next);
        return turns(q, r->t, r->i, at, r->next);
    }
    if (r->i == r->t->n)
        return resume(q, at, r->next);
    return match(q, r->t->child[r->i], at,
                 &(struct rest){r->t, r->i + 1, 0, r->next});
}

static bool turns(struct search *q, const struct node *t, int i, int at,
                  const struct rest *rest)
{
    if (i >= t->min && resume(q, at, rest))
        return true;
    if (t->max != UNLIMITED && i >= t->max)
        return false;
    return match(q, t->child[0], at, &(struct rest){t, i + 1, at, rest});
}

static bool in_class(const struct node *t, uint32_t c)
{
    bool in = false;

    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return false;
    for (int i = 0; i < t->n; i++)
        in |= c >= t->first[i] && c <= t->last[i];
    return in != t->negated;
}

/* Matches a character of the class, or a whole rest of the text as the start of
 * one. */
static bool match_class(struct search *q, const struct node *t, int at,
                        const struct rest *rest)
{
    static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned b = (unsigned char)q->s[at];
    int len = b < 0x80   ? 1
              : b < 0xc0 ? 0
              : b < 0xe0 ? 2
              : b < 0xf0 ? 3
              : b < 0xf8 ? 4
                         : 0;
    int have = len < q->n - at ? len : q->n - at;
    uint32_t c = len == 1 ? b : b & (0x7fu >> len), step;

    if (len == 0)
        return false;
    for (int i = 1; i < have; i++) {
        b = (unsigned char)q->s[at + i];
        if ((b & 0xc0) != 0x80)
            return false;
        c = c << 6 | (b & 63);
    }
    step = 1u << 6 * (len - have);
    if (have == len)
        return c >= least[len] && in_class(t, c) && resume(q, at + len, rest);
    for (uint32_t k = c * step; k < (c + 1) * step && !q->whole; k++)
        if (k >= least[len] && in_class(t, k))
            return true;
    return false;
}

static bool match_literal(struct search *q, const struct node *t, int at,
                          const struct rest *rest)
{
    for (const char *s = t->text; *s; s++, at++) {
        if (at == q->n)
            return !q->whole;
        if (q->s[at] != *s)
            return false;
    }
    return resume(q, at, rest);
}

static bool match(struct search *q, const struct node *t, int at,
                  const struct rest *rest)
{
    if (++q->n_step > MOST_STEPS)
        return false;
    switch (t->kind) {
    case LITERAL:
        return match_literal(q, t, at, rest);
    case CLASS:
        return at == q->n ? !q->whole : match_class(q, t, at, rest);
    case REF:
        return match(q, q->g->rule[t->n], at, rest);
    case REPEAT:
        return turns(q, t, 0, at, rest);
    case SEQ:
        return resume(q, at, &(struct rest){t, 0, 0, rest});
    case ALT:
        break;
    }
    for (int i = 0; i < t->n; i++)
        if (match(q, t->child[i], at, rest))
            return true;
    return false;
}

/* Returns 1 if the text matches, 0 if not, and -1 if the search was given
 * up. */
static int naive(const struct random_grammar *g, const char *s, int n,
                 bool whole)
{
    struct search q = {g, s, n, whole, 0};
    bool found = match(&q, g->rule[0], 0, NULL);

    return !found && q.n_step > MOST_STEPS ? -1 : found;
}

/* ---- random vocabularies ------------------------------------------------- */

enum { N_TOKEN = 77, TOKEN_BYTES = 96, LONG_BYTES = TOKEN_BYTES - 4 };

struct random_vocab {
    char text[N_TOKEN][TOKEN_BYTES];
    struct grammar_token token[N_TOKEN];
};

/* Makes letters, sometimes cut in the middle of one, of any length down to
 * zero; a few are long. With `rows`, more are, many of one letter alone. */
static void make_vocab(struct random_vocab *v, bool rows, uint64_t *rng)
{
    for (int i = 0; i < N_TOKEN; i++) {
        int n = 0, from = 0;
        uint32_t one = rows && i % 2 ? random_letter(rng) : 0;
        int64_t len = i < N_LETTER           ? 1
                      : rows && i % 4 == 1   ? 3 + test_below(rng, 16)
                      : rows && i % 16 == 11 ? 50 + test_below(rng, 40)
                      : i % 16 == 9          ? 14 + test_below(rng, 6)
                                             : test_below(rng, 5);

        for (int64_t k = len; k > 0 && n < LONG_BYTES; k--)
            n += put_char(v->text[i] + n, i < N_LETTER ? letters[i]
                                          : one        ? one
                                                       : random_letter(rng));
        if (test_below(rng, 3) == 0 && n > 1 && i >= N_LETTER)
            n--;
        if (test_below(rng, 3) == 0 && n > 1 && i >= N_LETTER)
            from = 1;
        v->token[i] = (struct grammar_token){
            v->text[i] + from, (uint32_t)(n - from), GRAMMAR_TOKEN_TEXT};
    }
    v->token[N_TOKEN - 1].kind = GRAMMAR_TOKEN_END;
    v->token[N_TOKEN - 2].kind = GRAMMAR_TOKEN_NEVER;
    v->token[40].kind = GRAMMAR_TOKEN_END;
}

/* ---- the property -------------------------------------------------------- */

enum { N_WORD = (N_TOKEN + 31) / 32 };

struct trip {
    const struct random_grammar *g;
    const struct random_vocab *v;
    const char *gbnf;
    struct grammar_state *s;
    char text[MOST_TEXT + TOKEN_BYTES];
    int n, most;
    /* number of tokens compared, of those allowed, and of those for which the
     * checker gave up */
    int64_t n_seen, n_allowed, n_left;
};

static bool has(const uint32_t *bits, int i)
{
    return bits[i / 32] >> i % 32 & 1;
}

/* Returns the naive checker's answer for token `id`: 1 allowed, 0 not, -1 given
 * up. */
static int expected(struct trip *p, int id)
{
    const struct grammar_token *t = &p->v->token[id];

    if (t->kind == GRAMMAR_TOKEN_END)
        return naive(p->g, p->text, p->n, true);
    if (t->kind == GRAMMAR_TOKEN_NEVER || t->len == 0)
        return 0;
    memcpy(p->text + p->n, t->s, t->len);
    return naive(p->g, p->text, p->n + (int)t->len, false);
}

static void check_mask(struct trip *p, uint32_t *bits)
{
    pl_err err = {0};

    TEST_OK(grammar_mask(p->s, bits, &err), err);
    for (int id = 0; id < N_TOKEN; id++) {
        int want = expected(p, id);

        p->n_seen++;
        p->n_allowed += want == 1;
        p->n_left += want < 0;
        if (want >= 0 && want != has(bits, id))
            fail_msg("%s\nafter \"%.*s\" token %d \"%.*s\" is %d, not %d",
                     p->gbnf, p->n, p->text, id, (int)p->v->token[id].len,
                     p->v->token[id].s, has(bits, id), want);
    }
    for (int id = N_TOKEN; id < 32 * N_WORD; id++)
        assert_false(has(bits, id));
}

/* Accepts an allowed token that is not an end. Returns false if there is none.
 * A rejected one changes nothing. */
static bool take_one(struct trip *p, const uint32_t *bits, uint64_t *rng)
{
    int first = (int)test_below(rng, N_TOKEN), id = first;
    uint32_t after[N_WORD];
    pl_err err = {0};

    if (!has(bits, first)) {
        assert_int_equal(grammar_accept(p->s, first, &err), PL_BAD_ARGUMENT);
        TEST_OK(grammar_mask(p->s, after, &err), err);
        assert_memory_equal(bits, after, sizeof after);
    }
    while (!has(bits, id) || p->v->token[id].kind == GRAMMAR_TOKEN_END) {
        id = (id + 1) % N_TOKEN;
        if (id == first)
            return false;
    }
    TEST_OK(grammar_accept(p->s, id, &err), err);
    memcpy(p->text + p->n, p->v->token[id].s, p->v->token[id].len);
    p->n += (int)p->v->token[id].len;
    return true;
}

static void go(struct trip *p, struct grammar_masks *m, uint64_t *rng)
{
    struct grammar_state *copy;
    uint32_t bits[N_WORD];
    pl_err err = {0};

    p->n = 0;
    TEST_OK(grammar_state_create(&p->s, m, &err), err);
    for (int i = 0; i < 8 && p->n < p->most; i++) {
        int whole = naive(p->g, p->text, p->n, true);

        if (whole >= 0)
            assert_int_equal(grammar_is_whole(p->s), whole);
        check_mask(p, bits);
        TEST_OK(grammar_state_copy(&copy, p->s, &err), err);
        /* continues with the copy of the state or with the state itself */
        if (test_below(rng, 2)) {
            grammar_state_free(p->s);
            p->s = copy;
        } else {
            grammar_state_free(copy);
        }
        if (!take_one(p, bits, rng))
            break;
    }
    grammar_state_free(p->s);
}

/* Tries one random grammar. Returns false if it is rejected. */
static bool try_grammar(uint64_t seed, bool row, struct trip *p,
                        size_t cache_bytes)
{
    struct random_grammar *g = test_need(1, sizeof *g);
    struct random_vocab *v = test_need(1, sizeof *v);
    struct test_text text = {0};
    struct grammar *made = NULL;
    struct grammar_vocab *vocab = NULL;
    struct grammar_masks *m = NULL;
    pl_err err = {0};

    (row ? make_row : make_random)(g, seed);
    make_vocab(v, row, &g->rng);
    p->most = row ? MOST_TEXT : 32;
    say_grammar(&text, g);
    if (grammar_from_gbnf(&made, text.s, text.n, NULL, "random", &err) ==
        PL_OK) {
        TEST_OK(grammar_vocab_create(&vocab, v->token, N_TOKEN, &err), err);
        TEST_OK(grammar_masks_create(&m, made, vocab, cache_bytes, &err), err);
        p->g = g;
        p->v = v;
        p->gbnf = text.s;
        for (int i = 0; i < 3; i++)
            go(p, m, &g->rng);
    }
    grammar_masks_free(m);
    grammar_vocab_free(vocab);
    grammar_free(made);
    free(text.s);
    free(g);
    free(v);
    return made != NULL;
}

TEST(grammar_masks_equal_a_naive_checker)
{
    int n = test_draws(8000, 200000), n_good = 0;
    struct trip *p = test_need(1, sizeof *p);
    uint64_t rng = test_seed();

    for (int i = 0; i < n; i++)
        n_good += try_grammar(test_random(&rng), false, p, i % 2 ? 0 : 200);
    printf("%d grammars of %d, %lld tokens, %lld allowed, %lld given up\n",
           n_good, n, (long long)p->n_seen, (long long)p->n_allowed,
           (long long)p->n_left);
    assert_true(n_good > n / 4);
    assert_true(p->n_allowed > p->n_seen / 100);
    assert_true(p->n_left < p->n_seen / 50);
    free(p);
}

/* Near both ends of a repetition and far from them: positions that tokens
 * cannot tell apart share their masks, others never do. */
TEST(grammar_masks_of_long_rows_equal_a_naive_checker)
{
    int n = test_draws(400, 60000), n_good = 0;
    struct trip *p = test_need(1, sizeof *p);
    uint64_t rng = test_seed();

    for (int i = 0; i < n; i++)
        n_good += try_grammar(test_random(&rng), true, p, 0);
    printf("%d grammars of %d, %lld tokens, %lld allowed, %lld given up\n",
           n_good, n, (long long)p->n_seen, (long long)p->n_allowed,
           (long long)p->n_left);
    assert_true(n_good > n / 2);
    assert_true(p->n_allowed > p->n_seen / 100);
    assert_true(p->n_left < p->n_seen / 10);
    free(p);
}

/* ---- many tokens --------------------------------------------------------- */

/* Vocabularies large enough to use everything known of branches, compared with
 * tokens tried one by one. */

enum { N_MANY = 4000, MANY_BYTES = 96 };

struct many {
    char text[N_MANY][MANY_BYTES];
    struct grammar_token token[N_MANY];
    uint32_t bits[(N_MANY + 31) / 32];
};

static void make_many(struct many *v, uint64_t *rng)
{
    static const char *const part[] = {
        "a",  "b",        "ab", "ba", "e",  " ",           "1",
        "20", ",",        "-",  "\"", "\\", "{",           "\n",
        ":",  "\xc3\xa9", "z",  ".",  "[",  "\xe7\x8c\xab"};

    for (int i = 0; i < N_MANY; i++) {
        int64_t most = i % 50 ? 7 : 26, of = test_below(rng, 3) ? 6 : 20;
        int n = 0;

        for (int64_t k = 1 + test_below(rng, most); k > 0; k--)
            n += snprintf(v->text[i] + n, MANY_BYTES - (size_t)n, "%s",
                          part[test_below(rng, of)]);
        v->token[i] =
            (struct grammar_token){v->text[i], (uint32_t)n, GRAMMAR_TOKEN_TEXT};
    }
}

static void try_each(const struct many *v, const struct grammar_state *s,
                     const char *gbnf)
{
    struct grammar_state *copy;
    pl_err err = {0};

    for (int i = 0; i < N_MANY; i++) {
        bool goes_on;

        TEST_OK(grammar_state_copy(&copy, s, &err), err);
        goes_on = grammar_accept(copy, i, NULL) == PL_OK;
        grammar_state_free(copy);
        if (goes_on != has(v->bits, i))
            fail_msg("%s\ntoken %d \"%s\" is %d", gbnf, i, v->text[i],
                     !goes_on);
    }
}

static void walk_many(struct many *v, const char *gbnf, uint64_t *rng)
{
    struct grammar *g = NULL;
    struct grammar_vocab *vocab = NULL;
    struct grammar_masks *m = NULL;
    struct grammar_state *s = NULL;
    pl_err err = {0};

    TEST_OK(grammar_from_gbnf(&g, gbnf, strlen(gbnf), NULL, "many", &err), err);
    TEST_OK(grammar_vocab_create(&vocab, v->token, N_MANY, &err), err);
    TEST_OK(grammar_masks_create(&m, g, vocab, 0, &err), err);
    TEST_OK(grammar_state_create(&s, m, &err), err);
    for (int i = 0; i < 12; i++) {
        int first = (int)test_below(rng, N_MANY), id = first;

        TEST_OK(grammar_mask(s, v->bits, &err), err);
        try_each(v, s, gbnf);
        while (!has(v->bits, id) && (id + 1) % N_MANY != first)
            id = (id + 1) % N_MANY;
        if (!has(v->bits, id))
            break;
        TEST_OK(grammar_accept(s, id, &err), err);
    }
    grammar_state_free(s);
    grammar_masks_free(m);
    grammar_vocab_free(vocab);
    grammar_free(g);
}

TEST(grammar_masks_equal_tokens_tried_one_by_one)
{
    static const char *const gbnf[] = {
        "root ::= [^\"]*\n",
        "root ::= [a-z ]{0,9} \".\" root?\n",
        "root ::= ([^\"\\\\]{0,40} | \"\\\\\" [^\\n]) \"\\\"\" root |"
        " [a-b]{3,7} \":\" root | \"\"\n",
        "root ::= \"[\" root \"]\" | \"{\" root \"}\" | [a-z ,]* | big big\n"
        "big ::= [a-z]* ([0-9]{1,3} [a-z ]+){0,9} | \"(\" root \")\"\n",
        "root ::= (p | q | r)* \".\"\n"
        "p ::= [ab]{0,5} \",\" (p | q)? \"-\"\n"
        "q ::= [ab ]{0,6} \",\" (q | r)? \"\\n\"\n"
        "r ::= [a-e]{0,7} \",\" (r | p)? \":\"\n",
        "root ::= ([a-z]{0,6} \",\"?){0,6} [\\u00c0-\\u00ff]* \"1\" root?\n",
        "root ::= (c* [ae] c* [ae])* \"z\"\n"
        "c ::= [b-df-z ] | \"\\u732b\"\n",
    };
    enum { N = sizeof gbnf / sizeof gbnf[0] };
    struct many *v = test_need(1, sizeof *v);
    uint64_t rng = test_seed();

    for (int i = 0; i < test_draws(4 * N, 100 * N); i++) {
        make_many(v, &rng);
        walk_many(v, gbnf[i % N], &rng);
    }
    free(v);
}

/* ---- memory -------------------------------------------------------------- */

static pl_status use_all(const struct grammar *g, const struct grammar_vocab *v)
{
    struct grammar_masks *m = NULL;
    struct grammar_state *a = NULL, *b = NULL;
    uint32_t bits[1];
    pl_status s = grammar_masks_create(&m, g, v, 0, NULL);

    if (s == PL_OK)
        s = grammar_state_create(&a, m, NULL);
    if (s == PL_OK)
        s = grammar_mask(a, bits, NULL);
    if (s == PL_OK)
        s = grammar_accept(a, 0, NULL);
    if (s == PL_OK)
        s = grammar_state_copy(&b, a, NULL);
    if (s == PL_OK)
        s = grammar_mask(b, bits, NULL);
    grammar_state_free(a);
    grammar_state_free(b);
    grammar_masks_free(m);
    return s;
}

TEST(grammar_allocation_failures_leave_nothing)
{
    static const char text[] = "root ::= \"(\" (root | x)* \")\"\n"
                               "x ::= [^()]* [a-c] | root\n";
    static const struct grammar_token token[] = {{"(", 1, GRAMMAR_TOKEN_TEXT},
                                                 {"a)", 2, GRAMMAR_TOKEN_TEXT},
                                                 {"((a", 3, GRAMMAR_TOKEN_TEXT},
                                                 {"abc", 3, GRAMMAR_TOKEN_TEXT},
                                                 {"", 0, GRAMMAR_TOKEN_END}};
    struct grammar *g = NULL;
    struct grammar_vocab *v = NULL;
    pl_err err = {0};

    for (int64_t n = 0; alloc_each(&n);) {
        alloc_ran(grammar_vocab_create(&v, token, 5, NULL));
        grammar_vocab_free(v);
    }
    TEST_OK(grammar_from_gbnf(&g, text, strlen(text), NULL, "g", &err), err);
    TEST_OK(grammar_vocab_create(&v, token, 5, &err), err);
    for (int64_t n = 0; alloc_each(&n);)
        alloc_ran(use_all(g, v));
    grammar_vocab_free(v);
    grammar_free(g);
}

/* Each palindrome has stacks of its own. Stacks that were dropped are not
 * needed again: each text ends as it should. */
TEST(grammar_long_use_keeps_memory_small)
{
    static const char text[] = "root ::= \"a\" root \"a\" | \"b\" root \"b\""
                               " | \"c\"";
    static const struct grammar_token token[] = {{"a", 1, GRAMMAR_TOKEN_TEXT},
                                                 {"b", 1, GRAMMAR_TOKEN_TEXT},
                                                 {"c", 1, GRAMMAR_TOKEN_TEXT},
                                                 {"", 0, GRAMMAR_TOKEN_END}};
    enum { N = 1500, TEXTS = 400 };
    struct grammar *g = NULL;
    struct grammar_vocab *v = NULL;
    struct grammar_masks *m = NULL;
    struct grammar_state *s = NULL;
    uint64_t rng = test_seed();
    int32_t *id = test_need(N, sizeof *id);
    pl_err err = {0};

    TEST_OK(grammar_from_gbnf(&g, text, strlen(text), NULL, "g", &err), err);
    TEST_OK(grammar_vocab_create(&v, token, 4, &err), err);
    TEST_OK(grammar_masks_create(&m, g, v, 1 << 20, &err), err);
    alloc_stat_reset();
    for (int k = 0; k < TEXTS; k++) {
        uint32_t bits;

        TEST_OK(grammar_state_create(&s, m, &err), err);
        for (int i = 0; i < 2 * N + 1; i++) {
            int32_t next = i == N ? 2 : id[i < N ? i : 2 * N - i];

            if (i < N)
                next = id[i] = (int32_t)test_below(&rng, 2);
            TEST_OK(grammar_mask(s, &bits, &err), err);
            assert_int_equal(bits, i <= N ? 7 : 1u << next);
            TEST_OK(grammar_accept(s, next, &err), err);
        }
        TEST_OK(grammar_mask(s, &bits, &err), err);
        assert_int_equal(bits, 8);
        grammar_state_free(s);
    }
    assert_true(alloc_stat_get().peak_bytes < 128 << 20);
    free(id);
    grammar_masks_free(m);
    grammar_vocab_free(v);
    grammar_free(g);
}
