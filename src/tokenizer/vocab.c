/* Tokens and merges of a vocabulary, in two hash tables with open addressing.
 *
 * A merge is found by the ids of the two symbols that it joins, not by their
 * texts. So finding it takes the same time however long the symbols are. This
 * file checks only that a vocabulary is safe to use, not that it makes
 * sense. */
#include "tokenizer/vocab.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

/* Maximum number of tokens, and of merges. So the ids of all symbols fit in an
 * int32_t. */
enum { VOCAB_MAX = 1 << 28 };

/* The hash of texts: FNV-1a (Fowler, Noll, Vo) byte by byte. A final
 * multiplication makes the low bits depend on every byte. */
#define HASH_START 0xcbf29ce484222325u

static uint64_t hash_more(uint64_t h, char c)
{
    return (h ^ (unsigned char)c) * 0x100000001b3u;
}

static uint32_t hash_end(uint64_t h)
{
    return (uint32_t)((h * 0x9e3779b97f4a7c15u) >> 32);
}

static uint32_t hash_text(const char *s, size_t len)
{
    uint64_t h = HASH_START;

    for (size_t i = 0; i < len; i++)
        h = hash_more(h, s[i]);
    return hash_end(h);
}

static uint32_t hash_pair(uint64_t pair)
{
    pair = (pair ^ pair >> 32) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(pair >> 32);
}

/* Returns the entry of the hash table of texts for s[0 .. len), or the free
 * entry for a new symbol with this text. */
static struct vocab_slot *slot_of(const struct vocab *v, uint32_t hash,
                                  const char *s, size_t len)
{
    uint32_t mask = v->n_slot - 1;

    for (uint32_t i = hash & mask;; i = (i + 1) & mask) {
        struct vocab_slot *slot = &v->slot[i];

        if (slot->id1 == 0)
            return slot;
        if (slot->hash == hash) {
            const struct token *t = &v->token[slot->id1 - 1];

            if (t->len == len && memcmp(t->s, s, len) == 0)
                return slot;
        }
    }
}

static int32_t find_hashed(const struct vocab *v, uint32_t hash, const char *s,
                           size_t len)
{
    return (int32_t)slot_of(v, hash, s, len)->id1 - 1;
}

static void fetch_slot(const struct vocab *v, uint32_t hash)
{
    __builtin_prefetch(&v->slot[hash & (v->n_slot - 1)]);
}

/* Prefetches the token to which a hash table entry refers. The entry itself was
 * prefetched by fetch_slot. */
static void fetch_token(const struct vocab *v, uint32_t hash)
{
    uint32_t id1 = v->slot[hash & (v->n_slot - 1)].id1;

    if (id1 != 0)
        __builtin_prefetch(&v->token[id1 - 1]);
}

/* Adds tokens from .. to - 1 to the hash table of texts. If several tokens have
 * the same text, the last one is found. The table is far larger than the L2
 * cache, so entries for several tokens are prefetched before they are used. */
static void enter(struct vocab *v, int32_t from, int32_t to)
{
    enum { AT_ONCE = 16 };
    uint32_t hash[AT_ONCE];

    for (int32_t n; from < to; from += n) {
        const struct token *t = &v->token[from];

        n = to - from < AT_ONCE ? to - from : AT_ONCE;
        for (int32_t i = 0; i < n; i++) {
            hash[i] = hash_text(t[i].s, t[i].len);
            fetch_slot(v, hash[i]);
        }
        for (int32_t i = 0; i < n; i++) {
            struct vocab_slot *slot;

            if (t[i].len == 0)
                continue;
            slot = slot_of(v, hash[i], t[i].s, t[i].len);
            v->has_same = v->has_same || slot->id1 != 0;
            *slot = (struct vocab_slot){(uint32_t)(from + i) + 1, hash[i]};
        }
    }
}

int32_t vocab_find_symbol(const struct vocab *v, const char *s, size_t len)
{
    if (len == 0 || len > v->max_len)
        return -1;
    return find_hashed(v, hash_text(s, len), s, len);
}

int32_t vocab_find(const struct vocab *v, const char *s, size_t len)
{
    int32_t id = vocab_find_symbol(v, s, len);

    return id < v->n_token ? id : -1;
}

void vocab_walk_init(const struct vocab *v, struct vocab_walk *w, const char *s,
                     size_t n)
{
    *w = (struct vocab_walk){
        .s = s, .n = n < v->max_len ? n : v->max_len, .hash = HASH_START};
}

int32_t vocab_walk_next(const struct vocab *v, struct vocab_walk *w)
{
    while (w->len < w->n) {
        int32_t id;

        w->hash = hash_more(w->hash, w->s[w->len++]);
        id = find_hashed(v, hash_end(w->hash), w->s, w->len);
        if (id >= 0 && id < v->n_token)
            return id;
    }
    return -1;
}

/* Reserves space for n more symbols, and enlarges the hash table of texts so
 * that at most half of its entries are used. */
static pl_status reserve(struct vocab *v, int32_t n, pl_err *err)
{
    int64_t want = (int64_t)v->n_symbol + n;

    if (want > v->cap) {
        int64_t cap = want + want / 8;
        struct token *t = arena_alloc(&v->memory, (size_t)cap, sizeof *t);

        if (!t)
            return err_no_memory(err, "the vocabulary");
        if (v->n_symbol > 0)
            memcpy(t, v->token, (size_t)v->n_symbol * sizeof *t);
        v->token = t;
        v->cap = (int32_t)cap;
    }
    if (2 * want > v->n_slot) {
        uint32_t n_slot = v->n_slot ? v->n_slot : 16;
        struct vocab_slot *slot;

        while (n_slot < 2 * want)
            n_slot *= 2;
        slot = arena_alloc(&v->memory, n_slot, sizeof *slot);
        if (!slot)
            return err_no_memory(err, "the vocabulary's table");
        v->slot = slot;
        v->n_slot = n_slot;
        enter(v, 0, v->n_symbol);
    }
    return PL_OK;
}

/* Sets *out to the array of the file under `key`, which has one element per
 * token; NULL if the file lacks it. Fails if it has another type or length. */
static pl_status per_token(const struct gguf *g, const char *key, uint64_t n,
                           const struct gguf_kv **out, pl_err *err)
{
    *out = gguf_find(g, key);
    if (!*out)
        return PL_OK;
    if ((*out)->type != GGUF_ARRAY)
        return err_set(err, PL_BAD_FILE,
                       "%s: %s has type %s, expected an array", gguf_path(g),
                       key, gguf_type_name((*out)->type));
    if ((*out)->count != n)
        return err_set(
            err, PL_BAD_FILE,
            "%s: %s has %llu elements for %llu tokens; convert the model again",
            gguf_path(g), key, (unsigned long long)(*out)->count,
            (unsigned long long)n);
    return PL_OK;
}

static pl_status read_columns(struct vocab *v, const struct gguf *g,
                              pl_err *err)
{
    const struct gguf_kv *scores, *types;
    uint64_t n = (uint64_t)v->n_token;

    PL_TRY(per_token(g, "tokenizer.ggml.scores", n, &scores, err));
    PL_TRY(per_token(g, "tokenizer.ggml.token_type", n, &types, err));
    for (uint64_t i = 0; i < n; i++) {
        struct token *t = &v->token[i];
        double score = 0;
        int64_t type = TOKEN_NORMAL;

        if (scores && !gguf_as_f64(scores, i, &score))
            return err_set(
                err, PL_BAD_FILE,
                "%s: element %llu of tokenizer.ggml.scores is not a number",
                gguf_path(g), (unsigned long long)i);
        if (types &&
            (!gguf_as_i64(types, i, &type) || type < 0 || type > TOKEN_BYTE))
            return err_set(err, PL_BAD_FILE,
                           "%s: element %llu of tokenizer.ggml.token_type is "
                           "not in 0 .. %d",
                           gguf_path(g), (unsigned long long)i, TOKEN_BYTE);
        t->score = (float)score;
        /* Type 0, "undefined", is taken for "unused": tokens of both types have
         * no text. */
        t->type = type == 0 ? TOKEN_UNUSED : (uint8_t)type;
    }
    return PL_OK;
}

/* Sets *out to the array of strings of the file under `key`. Fails if it is
 * absent, has another type, or has too many elements. */
static pl_status need_strs(const struct gguf *g, const char *key,
                           const struct gguf_kv **out, pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    if (!kv)
        return err_set(err, PL_NOT_FOUND,
                       "%s: %s is missing, so the file has no usable tokenizer",
                       gguf_path(g), key);
    if (kv->type != GGUF_ARRAY || kv->elem != GGUF_STRING)
        return err_set(err, PL_BAD_FILE, "%s: %s is not an array of strings",
                       gguf_path(g), key);
    if (kv->count > VOCAB_MAX)
        return err_set(err, PL_BAD_FILE,
                       "%s: %s has %llu elements, more than "
                       "the %d that are supported",
                       gguf_path(g), key, (unsigned long long)kv->count,
                       VOCAB_MAX);
    *out = kv;
    return PL_OK;
}

pl_status vocab_init(struct vocab *v, const struct gguf *g, pl_err *err)
{
    const struct gguf_kv *kv;
    size_t bytes = 0;
    char *text;

    memset(v, 0, sizeof *v);
    arena_init(&v->memory);
    PL_TRY(need_strs(g, "tokenizer.ggml.tokens", &kv, err));
    if (kv->count == 0)
        return err_set(err, PL_BAD_FILE, "%s: tokenizer.ggml.tokens is empty",
                       gguf_path(g));
    for (uint64_t i = 0; i < kv->count; i++) {
        size_t len = kv->strs[i].len;

        if (len > UINT32_MAX || __builtin_add_overflow(bytes, len, &bytes))
            return err_set(err, PL_BAD_FILE,
                           "%s: token %llu has %zu bytes, too many",
                           gguf_path(g), (unsigned long long)i, len);
    }
    text = arena_alloc(&v->memory, bytes, 1);
    if (!text)
        return err_no_memory(err, "the vocabulary's strings");
    PL_TRY(reserve(v, (int32_t)kv->count, err));
    for (uint64_t i = 0; i < kv->count; i++) {
        struct token *t = &v->token[i];

        *t = (struct token){.s = text, .len = (uint32_t)kv->strs[i].len};
        if (t->len == 0)
            continue;
        memcpy(text, kv->strs[i].s, t->len);
        text += t->len;
        if (t->len > v->max_len)
            v->max_len = t->len;
    }
    v->n_token = v->n_symbol = (int32_t)kv->count;
    enter(v, 0, v->n_token);
    return read_columns(v, g, err);
}

void vocab_fini(struct vocab *v)
{
    arena_fini(&v->memory);
    memset(v, 0, sizeof *v);
}

/* Sets *id to the id of the symbol with the text s[0 .. len), whose hash is
 * `hash`. Adds the symbol if it is new. */
static pl_status intern(struct vocab *v, uint32_t hash, const char *s,
                        size_t len, int32_t *id, pl_err *err)
{
    char *copy;

    *id = find_hashed(v, hash, s, len);
    if (*id >= 0)
        return PL_OK;
    PL_TRY(reserve(v, 1, err));
    copy = arena_memdup(&v->memory, s, len, 1);
    if (!copy)
        return err_no_memory(err, "the text of a merge");
    *id = v->n_symbol++;
    v->token[*id] =
        (struct token){.s = copy, .len = (uint32_t)len, .type = TOKEN_UNUSED};
    if (len > v->max_len)
        v->max_len = (uint32_t)len;
    enter(v, *id, *id + 1);
    return PL_OK;
}

/* first_slot returns the entry of the table of merges where the search for a
 * pair of symbols begins. merge_slot returns the pair's entry, or the free one
 * for it. */
static struct vocab_merge *first_slot(const struct vocab *v, uint64_t pair)
{
    return &v->merge[hash_pair(pair) & (v->n_merge_slot - 1)];
}

static struct vocab_merge *merge_slot(const struct vocab *v, uint64_t pair)
{
    struct vocab_merge *m = first_slot(v, pair);

    while (m->pair != 0 && m->pair != pair)
        m = m + 1 < v->merge + v->n_merge_slot ? m + 1 : v->merge;
    return m;
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

const struct vocab_merge *vocab_find_merge(const struct vocab *v, int32_t left,
                                           int32_t right)
{
    const struct vocab_merge *m;

    if (v->n_merge_slot == 0 || left < 0 || right < 0)
        return NULL;
    m = merge_slot(v, pair_of(left, right));
    return m->pair == 0 ? NULL : m;
}

/* A merge of the file while it passes the stages of add_merges: the texts of
 * the two symbols that it joins, their hashes, and the entry to be stored. */
struct sides {
    const char *left, *right;
    uint32_t n_left, n_right, hash_left, hash_right;
    struct vocab_merge merge;
};

/* Splits merge i of the file, "left right", at its blank. Searches the blank
 * from the second byte on, because the left symbol may be a blank itself. */
static pl_status read_sides(struct sides *m, const struct gguf *g, uint64_t i,
                            struct gguf_str s, pl_err *err)
{
    const char *blank = s.len > 2 ? memchr(s.s + 1, ' ', s.len - 1) : NULL;
    const char *end = s.s + s.len;

    if (!blank || blank + 1 == end)
        return err_set(err, PL_BAD_FILE,
                       "%s: element %llu of tokenizer.ggml.merges is not two "
                       "strings separated by a blank; convert the model again",
                       gguf_path(g), (unsigned long long)i);
    m->left = s.s;
    m->right = blank + 1;
    m->n_left = (uint32_t)(blank - s.s);
    m->n_right = (uint32_t)(end - m->right);
    m->hash_left = hash_text(m->left, m->n_left);
    m->hash_right = hash_text(m->right, m->n_right);
    m->merge.rank = (int32_t)i;
    return PL_OK;
}

/* Returns true if the text of token `id` is the left text of a merge followed
 * by the right one. */
static bool is_joined(const struct vocab *v, int32_t id, const struct sides *m)
{
    const struct token *t = &v->token[id];

    return id < v->n_token && !v->has_same &&
           t->len == (size_t)m->n_left + m->n_right &&
           memcmp(t->s, m->left, m->n_left) == 0 &&
           memcmp(t->s + m->n_left, m->right, m->n_right) == 0;
}

/* Finds the ids of the two symbols that a merge joins, and of its result.
 * `before` is the result of the previous merge. Most vocabularies have tokens
 * in the order of their merges, so the token after `before` is tried first,
 * which saves a search. `join` is scratch for the joined text. */
static pl_status find_sides(struct vocab *v, struct sides *m, char *join,
                            int32_t before, pl_err *err)
{
    int32_t left, right, joined = before + 1;

    PL_TRY(intern(v, m->hash_left, m->left, m->n_left, &left, err));
    PL_TRY(intern(v, m->hash_right, m->right, m->n_right, &right, err));
    if (!is_joined(v, joined, m)) {
        size_t n = (size_t)m->n_left + m->n_right;

        memcpy(join, m->left, m->n_left);
        memcpy(join + m->n_left, m->right, m->n_right);
        PL_TRY(intern(v, hash_text(join, n), join, n, &joined, err));
    }
    m->merge.pair = pair_of(left, right);
    m->merge.joined = joined;
    return PL_OK;
}

/* Adds all merges of the file to the table of merges. Each merge passes four
 * stages, AHEAD merges apart from each other. Each stage prefetches the memory
 * that the next one reads, because most of the time would be spent waiting for
 * memory. */
static pl_status add_merges(struct vocab *v, const struct gguf *g,
                            const struct gguf_kv *kv, char *join, pl_err *err)
{
    enum { AHEAD = 8, N_RING = 4 * AHEAD };
    struct sides ring[N_RING];
    int32_t joined = -1;

    for (uint64_t i = 0; i < kv->count + 3 * AHEAD; i++) {
        struct sides *m = &ring[i % N_RING];

        if (i < kv->count) {
            PL_TRY(read_sides(m, g, i, kv->strs[i], err));
            fetch_slot(v, m->hash_left);
            fetch_slot(v, m->hash_right);
        }
        if (i >= AHEAD && i < kv->count + AHEAD) {
            m = &ring[(i - AHEAD) % N_RING];
            fetch_token(v, m->hash_left);
            fetch_token(v, m->hash_right);
        }
        if (i >= 2 * AHEAD && i < kv->count + 2 * AHEAD) {
            m = &ring[(i - 2 * AHEAD) % N_RING];
            PL_TRY(find_sides(v, m, join, joined, err));
            joined = m->merge.joined;
            __builtin_prefetch(first_slot(v, m->merge.pair));
        }
        if (i >= 3 * AHEAD) {
            struct vocab_merge *slot;

            m = &ring[(i - 3 * AHEAD) % N_RING];
            slot = merge_slot(v, m->merge.pair);
            /* If the file has several merges of the same pair, the first one is
             * kept. */
            if (slot->pair == 0)
                *slot = m->merge;
        }
    }
    return PL_OK;
}

pl_status vocab_read_merges(struct vocab *v, const struct gguf *g, pl_err *err)
{
    const struct gguf_kv *kv;
    uint32_t n_slot = 16;
    size_t longest = 1;
    char *join;
    pl_status s;

    PL_TRY(need_strs(g, "tokenizer.ggml.merges", &kv, err));
    while (n_slot / 3 * 2 < kv->count)
        n_slot *= 2;
    v->merge = arena_alloc(&v->memory, n_slot, sizeof *v->merge);
    if (!v->merge)
        return err_no_memory(err, "the table of merges");
    v->n_merge_slot = n_slot;
    for (uint64_t i = 0; i < kv->count; i++)
        if (kv->strs[i].len > longest)
            longest = kv->strs[i].len;
    if (longest > UINT32_MAX)
        return err_set(err, PL_BAD_FILE, "%s: a merge has %zu bytes, too many",
                       gguf_path(g), longest);
    join = malloc(longest);
    if (!join)
        return err_no_memory(err, "a merge");
    s = add_merges(v, g, kv, join, err);
    free(join);
    return s;
}
