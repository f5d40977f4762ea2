/* Builds the tree of a vocabulary; see token_trie.h. */
#include "grammar/token_trie.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

/* A token while they are sorted. */
struct sorted {
    const char *s;
    uint32_t len;
    int32_t id;
};

static int by_text(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    int d = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);

    if (d == 0)
        d = (x->len > y->len) - (x->len < y->len);
    return d != 0 ? d : (x->id > y->id) - (x->id < y->id);
}

static pl_status check_tokens(const struct grammar_token *token, int32_t n,
                              size_t *n_byte, pl_err *err)
{
    *n_byte = 0;
    for (int32_t i = 0; i < n; i++) {
        if (token[i].len > GRAMMAR_TOKEN_BYTES)
            return err_set(err, PL_UNSUPPORTED,
                           "token %d has %u bytes, for grammars tokens may "
                           "have %d: take a model with another vocabulary",
                           (int)i, (unsigned)token[i].len,
                           (int)GRAMMAR_TOKEN_BYTES);
        *n_byte += token[i].len;
    }
    return PL_OK;
}

static void copy_tokens(struct grammar_vocab *v,
                        const struct grammar_token *token)
{
    size_t at = 0;

    for (int32_t i = 0; i < v->n_token; i++) {
        v->at[i] = at;
        v->kind[i] = (uint8_t)token[i].kind;
        if (token[i].len)
            memcpy(v->bytes + at, token[i].s, token[i].len);
        at += token[i].len;
        if (token[i].kind == GRAMMAR_TOKEN_END)
            v->end[v->n_end++] = i;
    }
    v->at[v->n_token] = at;
}

static uint32_t sort_tokens(const struct grammar_vocab *v,
                            struct sorted *sorted)
{
    uint32_t n = 0;

    for (int32_t i = 0; i < v->n_token; i++) {
        uint32_t len = (uint32_t)(v->at[i + 1] - v->at[i]);

        if (v->kind[i] == GRAMMAR_TOKEN_TEXT && len > 0)
            sorted[n++] = (struct sorted){v->bytes + v->at[i], len, i};
    }
    qsort(sorted, n, sizeof *sorted, by_text);
    return n;
}

static uint32_t common(const struct sorted *a, const struct sorted *b)
{
    uint32_t most = a->len < b->len ? a->len : b->len, n = 0;

    while (n < most && a->s[n] == b->s[n])
        n++;
    return n;
}

/* How many nodes the sorted tokens make. */
static uint32_t count_nodes(const struct sorted *t, uint32_t n)
{
    uint32_t nodes = 0;

    for (uint32_t i = 0; i < n; i++)
        nodes += t[i].len - (i ? common(&t[i - 1], &t[i]) : 0);
    return nodes;
}

/* `open` has room for a node of each depth: those the last token passes. */
static void add_nodes(struct grammar_vocab *v, const struct sorted *t,
                      uint32_t n, uint32_t *open)
{
    uint32_t n_open = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = i ? common(&t[i - 1], &t[i]) : 0;

        while (n_open > same)
            v->node[open[--n_open]].skip = v->n_node;
        for (uint32_t d = same; d < t[i].len; d++) {
            struct trie_node *node = &v->node[v->n_node];

            node->first = i;
            node->depth = (uint16_t)d;
            node->byte = (uint8_t)t[i].s[d];
            open[n_open++] = v->n_node++;
        }
        v->n_level = n_open > v->n_level ? n_open : v->n_level;
        v->order[i] = t[i].id;
    }
    while (n_open > 0)
        v->node[open[--n_open]].skip = v->n_node;
    /* A node that tokens pass on their way has the first of them; those that
     * end in it come first, so where the next node begins they are over. */
    v->node[v->n_node] = (struct trie_node){.first = n, .skip = v->n_node};
    v->n_order = n;
}

/* ---- what comes behind a node -------------------------------------------- */

unsigned token_group(unsigned byte)
{
    enum { SMALL, LARGE, DIGIT, CONTROL, TAB, LINE, RETURN, DELETE, MARK };
    unsigned before = byte > '`' ? 62 : byte > 'Z' ? 36 : byte > '9' ? 10 : 0;

    if (byte >= 'a' && byte <= 'z')
        return SMALL;
    if (byte >= 'A' && byte <= 'Z')
        return LARGE;
    if (byte >= '0' && byte <= '9')
        return DIGIT;
    if (byte == 0x7f)
        return DELETE;
    if (byte < ' ')
        return byte == '\t'   ? TAB
               : byte == '\n' ? LINE
               : byte == '\r' ? RETURN
                              : CONTROL;
    return MARK + byte - ' ' - before;
}

/* May `second` follow `first` in a character? Unicode 15, table 3-7. */
static bool may_follow(unsigned first, unsigned second)
{
    unsigned lo = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned hi = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

    return second >= lo && second <= hi;
}

/* What node `i` begins, the first byte of a character: that one, whole or as
 * far as tokens go, and what comes behind it. */
static struct trie_below below_from(const struct grammar_vocab *v, uint32_t i)
{
    const struct trie_below bad = {1ull << GROUP_BAD, 1};
    const struct trie_node *t = v->node;
    unsigned b = t[i].byte;
    uint32_t more = b < 0xe0 ? 1 : b < 0xf0 ? 2 : 3;
    struct trie_below all = {1ull << (GROUP_TWO + more - 1), 1};

    if (b < 0x80)
        return (struct trie_below){1ull << token_group(b) | v->below[i].groups,
                                   1 + v->below[i].n_char};
    if (b < 0xc2 || b > 0xf4)
        return bad;
    for (uint32_t k = i + 1; k < t[i].skip;) {
        uint32_t d = t[k].depth - (uint32_t)t[i].depth;

        if ((t[k].byte & 0xc0) != 0x80 || (d == 1 && !may_follow(b, t[k].byte)))
            return bad;
        if (d == more) {
            all.groups |= v->below[k].groups;
            if (1 + v->below[k].n_char > all.n_char)
                all.n_char = 1 + v->below[k].n_char;
        }
        k = d == more ? t[k].skip : k + 1;
    }
    return all;
}

static void fill_below(struct grammar_vocab *v)
{
    for (uint32_t i = v->n_node; i-- > 0;) {
        struct trie_below *below = &v->below[i];

        for (uint32_t k = i + 1; k < v->node[i].skip; k = v->node[k].skip) {
            struct trie_below from = below_from(v, k);

            below->groups |= from.groups;
            if (from.n_char > below->n_char)
                below->n_char = from.n_char;
        }
    }
}

/* ---- all of it ----------------------------------------------------------- */

static pl_status build(struct grammar_vocab *v,
                       const struct grammar_token *token, int32_t n,
                       pl_err *err)
{
    size_t n_byte, most = (size_t)n + 1;
    struct sorted *sorted;
    uint32_t open[GRAMMAR_TOKEN_BYTES];

    PL_TRY(check_tokens(token, n, &n_byte, err));
    v->n_token = n;
    v->bytes = malloc(n_byte + 1);
    v->at = calloc(most, sizeof *v->at);
    v->kind = calloc(most, sizeof *v->kind);
    v->end = calloc(most, sizeof *v->end);
    v->order = calloc(most, sizeof *v->order);
    sorted = calloc(most, sizeof *sorted);
    if (v->bytes && v->at && v->kind && v->end && v->order && sorted) {
        uint32_t n_sorted;
        size_t n_node;

        copy_tokens(v, token);
        n_sorted = sort_tokens(v, sorted);
        n_node = (size_t)count_nodes(sorted, n_sorted) + 1;
        v->node = calloc(n_node, sizeof *v->node);
        v->below = calloc(n_node, sizeof *v->below);
        if (v->node && v->below) {
            add_nodes(v, sorted, n_sorted, open);
            fill_below(v);
        }
    }
    free(sorted);
    return v->node && v->below ? PL_OK
                               : err_no_memory(err, "a vocabulary's texts");
}

pl_status grammar_vocab_create(struct grammar_vocab **out,
                               const struct grammar_token *token, int32_t n,
                               pl_err *err)
{
    pl_status s;

    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_no_memory(err, "a vocabulary's texts");
    s = build(*out, token, n, err);
    if (s != PL_OK) {
        grammar_vocab_free(*out);
        *out = NULL;
    }
    return s;
}

void grammar_vocab_free(struct grammar_vocab *v)
{
    if (!v)
        return;
    free(v->node);
    free(v->below);
    free(v->order);
    free(v->end);
    free(v->bytes);
    free(v->at);
    free(v->kind);
    free(v);
}
