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

/* Sorted tokens [from .. to) that have the same `depth` bytes, and more. */
struct range {
    uint32_t from, to, depth;
};

/* Returns the end of the tokens of r, from token i on, that have the same byte
 * at offset r.depth as token i. Sets *more to the first of them that continues
 * after this byte. If these are enough for a node, *is_node is set. */
static uint32_t same_byte(const struct sorted *t, uint32_t i, struct range r,
                          uint32_t *more, bool *is_node)
{
    const char byte = t[i].s[r.depth];

    while (i < r.to && t[i].len == r.depth + 1 && t[i].s[r.depth] == byte)
        i++;
    *more = i;
    while (i < r.to && t[i].s[r.depth] == byte)
        i++;
    *is_node = i - *more >= TRIE_NODE_LEAVES;
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

/* Adds to a node its leaves of one byte, its longer leaves, its children and
 * all nodes below. `r` has its tokens. Sets depth[] to the length of the
 * children's prefixes. */
static void add_below(struct grammar_vocab *v, const struct sorted *t,
                      uint32_t i_node, struct range r, uint32_t *depth)
{
    struct trie_node *node = &v->node[i_node];
    uint32_t more, next, child = v->n_node;
    bool is_node;

    node->leaf = v->n_leaf;
    node->child = child;
    for (uint32_t i = r.from; i < r.to; i++)
        if (t[i].len == r.depth + 1)
            add_leaf(v, &t[i], r.depth);
    node->tail = v->n_leaf;
    for (uint32_t i = r.from; i < r.to; i = next) {
        next = same_byte(t, i, r, &more, &is_node);
        for (; more < next && !is_node; more++)
            add_leaf(v, &t[more], r.depth);
        if (is_node) {
            depth[v->n_node] = r.depth + 1;
            v->node_byte[v->n_node++] = (uint8_t)t[more].s[r.depth];
        }
    }
    node->n_child = (uint16_t)(v->n_node - child);
    for (uint32_t i = r.from; i < r.to; i = next) {
        next = same_byte(t, i, r, &more, &is_node);
        if (is_node)
            add_below(v, t, child++, (struct range){more, next, r.depth + 1},
                      depth);
    }
    node->end = v->n_leaf;
}

/* Adds all nodes and leaves for the n sorted tokens. */
static void add_nodes(struct grammar_vocab *v, const struct sorted *t,
                      uint32_t n, uint32_t *depth)
{
    struct range r = {0};

    v->n_node = REACHES;
    for (uint32_t reach = 0; reach < REACHES; reach++) {
        r.from = r.to;
        while (r.to < n && t[r.to].reach == (int)reach)
            r.to++;
        add_below(v, t, reach, r, depth);
        if (reach_chars((int)reach) <= TRIE_CHARS)
            v->n_short = v->n_node;
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

/* Returns the number of bytes that follow the first byte `b` of a character. */
static int more_of(unsigned b)
{
    return !trie_begins_char(b) ? 0 : b < 0xe0 ? 1 : b < 0xf0 ? 2 : 3;
}

/* Adds the characters of s[0 .. n) to the characters that follow the prefix of
 * `node`, and raises its n_char to their number. */
static void add_text(struct trie_node *node, const uint8_t *s, uint32_t n)
{
    struct char_kinds *kinds = &node->kinds;
    uint16_t n_char = 0;
    int more = 0;

    for (uint32_t i = 0; i < n; i++) {
        unsigned b = s[i];

        if (more > 0) {
            /* Only the first byte of a character limits the next one. */
            if (!may_follow(more == more_of(s[i - 1]) ? s[i - 1] : 0, b))
                kinds->others |= OTHER_BAD;
            more--;
            continue;
        }
        n_char++;
        more = more_of(b);
        if (b < 0x80)
            kinds->ascii[b >> 6] |= 1ull << (b & 63);
        else
            kinds->others |= more > 0 ? OTHER_TWO << (more - 1) : OTHER_BAD;
    }
    node->n_char = n_char > node->n_char ? n_char : node->n_char;
}

/* Sets the kinds of all nodes. depth[] has the lengths of their prefixes. If a
 * prefix ends with the first byte of a longer character, the character counts,
 * too. */
static void fill_kinds(struct grammar_vocab *v, const uint32_t *depth)
{
    for (uint32_t i = 0; i < v->n_node; i++) {
        struct trie_node *node = &v->node[i];
        uint32_t from =
            depth[i] - (i >= REACHES && trie_begins_char(v->node_byte[i]));

        for (uint32_t k = node->leaf; k < node->end; k++) {
            size_t at = v->at[v->leaf_id[k]], end = v->at[v->leaf_id[k] + 1];

            add_text(node, (const uint8_t *)v->bytes + at + from,
                     (uint32_t)(end - at) - from);
        }
    }
}

/* ---- masks of nodes with many leaves ------------------------------------- */

static pl_status fill_wide(struct grammar_vocab *v, pl_err *err)
{
    for (uint32_t i = 0; i < v->n_node; i++)
        if (v->node[i].end - v->node[i].leaf >= TRIE_WIDE)
            v->node[i].wide = ++v->n_wide;
    v->wide =
        arena_alloc(&v->memory, v->n_wide, (size_t)v->n_word * sizeof *v->wide);
    for (uint32_t i = 0; i < v->n_node && v->wide; i++) {
        const struct trie_node *node = &v->node[i];
        uint32_t *bits;

        if (!node->wide)
            continue;
        bits = v->wide + (size_t)(node->wide - 1) * v->n_word;
        for (uint32_t k = node->leaf; k < node->end; k++)
            bits[v->leaf_id[k] / 32] |= 1u << v->leaf_id[k] % 32;
    }
    return arena_check(&v->memory, "a vocabulary's texts", err);
}

/* ---- construction of the trie -------------------------------------------- */

/* Builds the trie. Its scratch arrays are in the arena `scratch`. */
static pl_status build(struct grammar_vocab *v,
                       const struct grammar_token *token, int32_t n,
                       struct arena *scratch, pl_err *err)
{
    struct arena *a = &v->memory;
    size_t n_byte, most = (size_t)n + 1, n_node;
    struct sorted *sorted = arena_alloc(scratch, most, sizeof *sorted);
    uint32_t *depth;

    PL_TRY(check_tokens(token, n, &n_byte, err));
    /* A node takes a byte of TRIE_NODE_LEAVES tokens or more. */
    n_node = REACHES + n_byte / TRIE_NODE_LEAVES;
    v->n_owner = 1;
    v->n_token = n;
    v->n_word = ((uint32_t)n + 31) / 32;
    v->bytes = arena_alloc(a, n_byte, 1);
    v->at = arena_alloc(a, most, sizeof *v->at);
    v->kind = arena_alloc(a, most, sizeof *v->kind);
    v->end = arena_alloc(a, most, sizeof *v->end);
    v->rest = arena_alloc(a, n_byte, 1);
    v->rest_at = arena_alloc(a, most, sizeof *v->rest_at);
    v->leaf_byte = arena_alloc(a, most, sizeof *v->leaf_byte);
    v->leaf_id = arena_alloc(a, most, sizeof *v->leaf_id);
    v->node = arena_alloc(scratch, n_node, sizeof *v->node);
    v->node_byte = arena_alloc(scratch, n_node, sizeof *v->node_byte);
    depth = arena_alloc(scratch, n_node, sizeof *depth);
    PL_TRY(arena_check(a, "a vocabulary's texts", err));
    PL_TRY(arena_check(scratch, "a vocabulary's texts", err));
    copy_tokens(v, token);
    add_nodes(v, sorted, sort_tokens(v, sorted), depth);
    fill_kinds(v, depth);
    v->node = arena_memdup(a, v->node, v->n_node, sizeof *v->node);
    v->node_byte =
        arena_memdup(a, v->node_byte, v->n_node, sizeof *v->node_byte);
    PL_TRY(arena_check(a, "a vocabulary's texts", err));
    return fill_wide(v, err);
}

pl_status grammar_vocab_create(struct grammar_vocab **out,
                               const struct grammar_token *token, int32_t n,
                               pl_err *err)
{
    struct grammar_vocab *v = calloc(1, sizeof *v);
    struct arena scratch = {0};
    pl_status s;

    *out = NULL;
    if (!v)
        return err_no_memory(err, "a vocabulary's texts");
    s = build(v, token, n, &scratch, err);
    arena_fini(&scratch);
    if (s == PL_OK)
        *out = v;
    else
        grammar_vocab_free(v);
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
    arena_fini(&v->memory);
    free(v);
}
