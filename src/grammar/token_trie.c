/* Builds the trie of a vocabulary; see token_trie.h. */
#include "grammar/token_trie.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

/* A token with its text and reach, for sorting. */
struct sorted {
    const char *s;
    uint32_t len;
    int32_t id;
    int reach;
};

static int by_text(const void *a, const void *b)
{
    const struct sorted *x = a, *y = b;
    int d = x->reach - y->reach;

    if (d != 0)
        return d;
    d = memcmp(x->s, y->s, x->len < y->len ? x->len : y->len);
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
                           "token %d has %u bytes, but grammars support at "
                           "most %d; use a model with another vocabulary",
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

static int reach_of(const char *s, uint32_t len)
{
    uint32_t n = 0;
    int reach = 0;

    for (uint32_t i = 0; i < len; i++)
        n += (s[i] & 0xc0) != 0x80;
    while (n > reach_chars(reach))
        reach++;
    return reach;
}

static uint32_t sort_tokens(const struct grammar_vocab *v,
                            struct sorted *sorted)
{
    uint32_t n = 0;

    for (int32_t i = 0; i < v->n_token; i++) {
        uint32_t len = (uint32_t)(v->at[i + 1] - v->at[i]);
        const char *text = v->bytes + v->at[i];

        if (v->kind[i] == GRAMMAR_TOKEN_TEXT && len > 0)
            sorted[n++] = (struct sorted){text, len, i, reach_of(text, len)};
    }
    qsort(sorted, n, sizeof *sorted, by_text);
    return n;
}

static uint32_t common(const struct sorted *a, const struct sorted *b)
{
    uint32_t most = a->len < b->len ? a->len : b->len, n = 0;

    while (n < most && a->s[n] == b->s[n] && a->reach == b->reach)
        n++;
    return n;
}

/* Returns an upper bound of the number of trie nodes for n sorted tokens. Nodes
 * are common prefixes of adjacent tokens that are shorter than both tokens. Two
 * tokens add a node for each byte by which their common prefix is longer than
 * that of the pair before. */
static size_t count_nodes(const struct sorted *t, uint32_t n)
{
    size_t nodes = REACHES;
    uint32_t before = 0;

    for (uint32_t i = 1; i < n; i++) {
        uint32_t same = common(&t[i - 1], &t[i]);

        if (same == t[i].len || same == t[i - 1].len)
            same--;
        nodes += same > before ? same - before : 0;
        before = same;
    }
    return nodes;
}

/* A trie node whose leaves and children are still to be added. Its tokens are
 * the sorted tokens [from .. to), and its prefix has `depth` bytes. */
struct branch {
    uint32_t node, from, to, depth;
};

/* Returns the end of the range of sorted tokens, from token i on, that have the
 * same byte at offset b.depth as token i. Sets *more to the first token of the
 * range that continues after this byte. */
static uint32_t same_byte(const struct sorted *t, uint32_t i, struct branch b,
                          uint32_t *more)
{
    const char byte = t[i].s[b.depth];

    while (i < b.to && t[i].len == b.depth + 1 && t[i].s[b.depth] == byte)
        i++;
    *more = i;
    while (i < b.to && t[i].s[b.depth] == byte)
        i++;
    return i;
}

static void add_leaf(struct grammar_vocab *v, const struct sorted *t,
                     uint32_t depth)
{
    uint32_t i = v->n_leaf++, n = t->len - depth - 1;

    v->leaf_byte[i] = (uint8_t)t->s[depth];
    v->leaf_id[i] = t->id;
    memcpy(v->rest + v->rest_at[i], t->s + depth + 1, n);
    v->rest_at[i + 1] = v->rest_at[i] + n;
}

/* Adds to node b.node its leaves of one byte, its longer leaves and its
 * children. Appends the children, which are still empty, to open[] in reverse
 * order, and returns their number. */
static uint32_t add_row(struct grammar_vocab *v, const struct sorted *t,
                        struct branch b, struct branch *open)
{
    struct trie_node *node = &v->node[b.node];
    uint32_t n = 0, more, next;

    node->leaf = v->n_leaf;
    for (uint32_t i = b.from; i < b.to; i++)
        if (t[i].len == b.depth + 1)
            add_leaf(v, &t[i], b.depth);
    node->tail = v->n_leaf;
    node->child = v->n_node;
    for (uint32_t i = b.from; i < b.to; i = next) {
        next = same_byte(t, i, b, &more);
        if (next - more < TRIE_NODE_LEAVES) {
            for (; more < next; more++)
                add_leaf(v, &t[more], b.depth);
            continue;
        }
        v->node_byte[v->n_node] = (uint8_t)t[more].s[b.depth];
        open[n++] = (struct branch){v->n_node++, more, next, b.depth + 1};
    }
    node->n_child = (uint16_t)n;
    node->end = v->n_leaf;
    for (uint32_t i = 0; i < n / 2; i++) {
        struct branch other = open[i];

        open[i] = open[n - 1 - i];
        open[n - 1 - i] = other;
    }
    return n;
}

/* Adds all nodes and leaves for the n sorted tokens. open[] is scratch for the
 * nodes whose leaves are still to be added. */
static void add_nodes(struct grammar_vocab *v, const struct sorted *t,
                      uint32_t n, struct branch *open)
{
    uint32_t from = 0;

    v->n_node = REACHES;
    for (uint32_t r = 0; r < REACHES; r++) {
        uint32_t to = from, n_open = 0;

        while (to < n && t[to].reach == (int)r)
            to++;
        open[n_open++] = (struct branch){r, from, to, 0};
        while (n_open > 0) {
            struct branch b = open[--n_open];

            n_open += add_row(v, t, b, &open[n_open]);
        }
        if (reach_chars((int)r) <= TRIE_CHARS)
            v->n_short = v->n_node;
        from = to;
    }
    for (uint32_t i = v->n_node; i-- > 0;) {
        struct trie_node *node = &v->node[i];

        if (node->n_child)
            node->end = v->node[node->child + node->n_child - 1].end;
    }
}

/* ---- characters that follow a node's prefix ------------------------------ */

/* Returns true if the byte `second` may follow the byte `first` within a UTF-8
 * character (Unicode 15, table 3-7). `first` is the character's first byte, or
 * 0 if the byte before `second` is a later one. */
static bool may_follow(unsigned first, unsigned second)
{
    unsigned lo = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned hi = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;

    return second >= lo && second <= hi;
}

static struct char_kinds kinds_join(struct char_kinds a, struct char_kinds b)
{
    return (struct char_kinds){
        {a.ascii[0] | b.ascii[0], a.ascii[1] | b.ascii[1]},
        (uint8_t)(a.others | b.others)};
}

static struct char_kinds kind_of(unsigned b)
{
    struct char_kinds kinds = {0};

    if (b < 0x80)
        kinds.ascii[b >> 6] = 1ull << (b & 63);
    else if (b < 0xc2 || b > 0xf4)
        kinds.others = OTHER_BAD;
    else
        kinds.others = b < 0xe0   ? OTHER_TWO
                       : b < 0xf0 ? OTHER_THREE
                                  : OTHER_FOUR;
    return kinds;
}

/* Returns the number of bytes that follow the first byte `b` of a character. */
static int more_of(unsigned b)
{
    return b < 0xc2 || b > 0xf4 ? 0 : b < 0xe0 ? 1 : b < 0xf0 ? 2 : 3;
}

/* Adds the characters of s[0 .. n) to the characters that follow the prefix of
 * `node`, and raises its n_char to their number. The first `more` bytes of `s`
 * complete a character; `first` is its first byte, or 0 if further bytes of it
 * precede `s`. Besides these, the text has n_char characters of the types
 * `kinds` before `s`. */
static void add_text(struct trie_node *node, const uint8_t *s, uint32_t n,
                     unsigned first, int more, struct char_kinds kinds,
                     uint32_t n_char)
{
    for (uint32_t i = 0; i < n; i++) {
        if (more == 0) {
            first = s[i];
            more = more_of(first);
            kinds = kinds_join(kinds, kind_of(first));
            n_char++;
            continue;
        }
        if (!may_follow(first, s[i]))
            kinds.others |= OTHER_BAD;
        first = 0;
        more--;
    }
    node->kinds = kinds_join(node->kinds, kinds);
    if (n_char > node->n_char)
        node->n_char = (uint16_t)n_char;
}

static void add_leaf_text(const struct grammar_vocab *v, struct trie_node *node,
                          uint32_t leaf, unsigned first, int more,
                          struct char_kinds kinds, uint32_t n_char)
{
    uint32_t n = 1 + v->rest_at[leaf + 1] - v->rest_at[leaf];
    const char *end = v->bytes + v->at[v->leaf_id[leaf] + 1];

    add_text(node, (const uint8_t *)end - n, n, first, more, kinds, n_char);
}

/* Calls add_text for the texts of all tokens below the node `from`, whose
 * prefix ends within a character that `more` further bytes complete. */
static void add_from(const struct grammar_vocab *v, struct trie_node *node,
                     const struct trie_node *from, unsigned first, int more,
                     struct char_kinds kinds)
{
    if (more == 0) {
        add_text(node, NULL, 0, 0, 0, kinds_join(kinds, from->kinds),
                 1u + from->n_char);
        return;
    }
    for (uint32_t i = from->leaf; i < trie_leaf_end(v, from); i++)
        add_leaf_text(v, node, i, first, more, kinds, 1);
    for (uint32_t i = from->child; i < from->child + from->n_child; i++) {
        struct char_kinds of = kinds;

        if (!may_follow(first, v->node_byte[i]))
            of.others |= OTHER_BAD;
        add_from(v, node, &v->node[i], 0, more - 1, of);
    }
}

static void fill_kinds(struct grammar_vocab *v)
{
    const struct char_kinds none = {0};

    for (uint32_t i = v->n_node; i-- > 0;) {
        struct trie_node *node = &v->node[i];

        for (uint32_t k = node->leaf; k < trie_leaf_end(v, node); k++)
            add_leaf_text(v, node, k, 0, 0, none, 0);
        for (uint32_t k = 0; k < node->n_child; k++) {
            uint32_t child = node->child + k;
            unsigned b = v->node_byte[child];

            add_from(v, node, &v->node[child], b, more_of(b), kind_of(b));
        }
    }
    for (uint32_t i = REACHES; i < v->n_node; i++) {
        unsigned b = v->node_byte[i];
        struct trie_node all = {0};

        if (more_of(b) == 0)
            continue;
        add_from(v, &all, &v->node[i], b, more_of(b), kind_of(b));
        v->node[i].kinds = all.kinds;
        v->node[i].n_char = all.n_char;
    }
}

/* ---- masks of nodes with many leaves ------------------------------------- */

static bool fill_wide(struct grammar_vocab *v)
{
    for (uint32_t i = 0; i < v->n_node; i++)
        if (v->node[i].end - v->node[i].leaf >= TRIE_WIDE)
            v->node[i].wide = ++v->n_wide;
    v->wide = calloc((size_t)v->n_wide * v->n_word + 1, sizeof *v->wide);
    for (uint32_t i = 0; i < v->n_node && v->wide; i++) {
        const struct trie_node *node = &v->node[i];
        uint32_t *bits;

        if (!node->wide)
            continue;
        bits = v->wide + (size_t)(node->wide - 1) * v->n_word;
        for (uint32_t k = node->leaf; k < node->end; k++)
            bits[v->leaf_id[k] / 32] |= 1u << v->leaf_id[k] % 32;
    }
    return v->wide != NULL;
}

/* ---- construction of the trie -------------------------------------------- */

static pl_status build(struct grammar_vocab *v,
                       const struct grammar_token *token, int32_t n,
                       pl_err *err)
{
    size_t n_byte, most = (size_t)n + 1;
    struct sorted *sorted;
    struct branch *open = NULL;
    bool good = false;

    PL_TRY(check_tokens(token, n, &n_byte, err));
    v->n_token = n;
    v->n_word = ((uint32_t)n + 31) / 32;
    v->bytes = malloc(n_byte + 1);
    v->at = calloc(most, sizeof *v->at);
    v->kind = calloc(most, sizeof *v->kind);
    v->end = calloc(most, sizeof *v->end);
    v->rest = malloc(n_byte + 1);
    v->rest_at = calloc(most, sizeof *v->rest_at);
    v->leaf_byte = calloc(most, sizeof *v->leaf_byte);
    v->leaf_id = calloc(most, sizeof *v->leaf_id);
    sorted = calloc(most, sizeof *sorted);
    if (v->bytes && v->at && v->kind && v->end && v->rest && v->rest_at &&
        v->leaf_byte && v->leaf_id && sorted) {
        uint32_t n_sorted;
        size_t n_node;

        copy_tokens(v, token);
        n_sorted = sort_tokens(v, sorted);
        n_node = count_nodes(sorted, n_sorted);
        v->node = calloc(n_node, sizeof *v->node);
        v->node_byte = calloc(n_node, sizeof *v->node_byte);
        open = calloc(n_node, sizeof *open);
        if (v->node && v->node_byte && open) {
            add_nodes(v, sorted, n_sorted, open);
            fill_kinds(v);
            good = fill_wide(v);
        }
    }
    free(sorted);
    free(open);
    return good ? PL_OK : err_no_memory(err, "a vocabulary's texts");
}

pl_status grammar_vocab_create(struct grammar_vocab **out,
                               const struct grammar_token *token, int32_t n,
                               pl_err *err)
{
    pl_status s;

    *out = calloc(1, sizeof **out);
    if (!*out)
        return err_no_memory(err, "a vocabulary's texts");
    (*out)->n_owner = 1;
    s = build(*out, token, n, err);
    if (s != PL_OK) {
        grammar_vocab_free(*out);
        *out = NULL;
    }
    return s;
}

struct grammar_vocab *grammar_vocab_share(struct grammar_vocab *v)
{
    v->n_owner++;
    return v;
}

void grammar_vocab_free(struct grammar_vocab *v)
{
    if (!v || --v->n_owner > 0)
        return;
    free(v->node);
    free(v->node_byte);
    free(v->wide);
    free(v->rest);
    free(v->rest_at);
    free(v->leaf_byte);
    free(v->leaf_id);
    free(v->end);
    free(v->bytes);
    free(v->at);
    free(v->kind);
    free(v);
}
