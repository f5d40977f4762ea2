/* Tokens and merges in two open-addressing hash tables.
 *
 * A merge is found by the ids of its two sides, not by their text, so that one
 * step of byte-pair encoding costs the same however long the tokens are. Does
 * not check that a vocabulary makes sense, only that it is safe to use. */
#include "tokenizer/vocab.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define VOCAB_NO_PAIR UINT64_MAX

/* Tokens and merges each; so that ids of symbols fit an int32_t. */
enum { VOCAB_MAX = 1 << 28 };

/* FNV-1a (Fowler, Noll, Vo), finished by a multiplication so that the low
 * bits depend on every byte. */
static uint32_t hash_text(const char *s, size_t len)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * 0x100000001b3u;
    return (uint32_t)((h * 0x9e3779b97f4a7c15u) >> 32);
}

static uint32_t hash_pair(uint64_t pair)
{
    pair = (pair ^ pair >> 32) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(pair >> 32);
}

/* The slot that holds this text, or the empty one where it belongs. */
static uint32_t *slot_of(const struct vocab *v, const char *s, size_t len)
{
    uint32_t mask = v->n_slot - 1;

    for (uint32_t i = hash_text(s, len) & mask;; i = (i + 1) & mask) {
        const struct token *t;

        if (v->slot[i] == 0)
            return &v->slot[i];
        t = &v->token[v->slot[i] - 1];
        if (t->len == len && memcmp(t->s, s, len) == 0)
            return &v->slot[i];
    }
}

int32_t vocab_find_symbol(const struct vocab *v, const char *s, size_t len)
{
    if (len == 0 || len > v->max_len)
        return -1;
    return (int32_t)*slot_of(v, s, len) - 1;
}

int32_t vocab_find(const struct vocab *v, const char *s, size_t len)
{
    int32_t id = vocab_find_symbol(v, s, len);

    return id < v->n_token ? id : -1;
}

/* Makes room for n more entries, keeping the text table at most half full. */
static pl_status reserve(struct vocab *v, int32_t n, pl_err *err)
{
    int64_t want = (int64_t)v->n_symbol + n;

    if (want > v->cap) {
        int64_t cap = want > 2 * (int64_t)v->cap ? want : 2 * (int64_t)v->cap;
        struct token *t = realloc(v->token, (size_t)cap * sizeof *t);

        if (!t)
            return err_no_memory(err, "the vocabulary");
        v->token = t;
        v->cap = (int32_t)cap;
    }
    if (2 * want > v->n_slot) {
        uint32_t n_slot = v->n_slot ? v->n_slot : 16;
        uint32_t *slot;

        while (n_slot < 2 * want)
            n_slot *= 2;
        slot = calloc(n_slot, sizeof *slot);
        if (!slot)
            return err_no_memory(err, "the vocabulary's table");
        free(v->slot);
        v->slot = slot;
        v->n_slot = n_slot;
        for (int32_t i = 0; i < v->n_symbol; i++)
            if (v->token[i].len > 0)
                *slot_of(v, v->token[i].s, v->token[i].len) = (uint32_t)i + 1;
    }
    return PL_OK;
}

/* An array of the file with one element a token, or NULL if absent. */
static pl_status per_token(const struct gguf *g, const char *key, uint64_t n,
                           const struct gguf_kv **out, pl_err *err)
{
    *out = gguf_find(g, key);
    if (!*out)
        return PL_OK;
    if ((*out)->type != GGUF_ARRAY)
        return err_set(err, PL_BAD_FILE,
                       "%s: %s has type %s, an array is expected", gguf_path(g),
                       key, gguf_type_name((*out)->type));
    if ((*out)->count != n)
        return err_set(err, PL_BAD_FILE,
                       "%s: %s has %llu elements for %llu tokens: convert the "
                       "model again",
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
            return err_set(err, PL_BAD_FILE,
                           "%s: element %llu of tokenizer.ggml.scores is no "
                           "number",
                           gguf_path(g), (unsigned long long)i);
        if (types &&
            (!gguf_as_i64(types, i, &type) || type < 0 || type > TOKEN_BYTE))
            return err_set(err, PL_BAD_FILE,
                           "%s: element %llu of tokenizer.ggml.token_type is "
                           "not one of 0 .. %d",
                           gguf_path(g), (unsigned long long)i, TOKEN_BYTE);
        t->score = (float)score;
        /* 0 is "undefined": such tokens have no text of their own either */
        t->type = type == 0 ? TOKEN_UNUSED : (uint8_t)type;
    }
    return PL_OK;
}

/* An array of strings of sensible length, as tokens and merges are. */
static pl_status need_strs(const struct gguf *g, const char *key,
                           const struct gguf_kv **out, pl_err *err)
{
    const struct gguf_kv *kv = gguf_find(g, key);

    if (!kv)
        return err_set(err, PL_NOT_FOUND,
                       "%s: %s is missing: this file has no usable tokenizer",
                       gguf_path(g), key);
    if (kv->type != GGUF_ARRAY || kv->elem != GGUF_STRING)
        return err_set(err, PL_BAD_FILE, "%s: %s is no array of strings",
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
    arena_init(&v->text);
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
    text = arena_alloc(&v->text, bytes, 1);
    if (!text)
        return err_no_memory(err, "the vocabulary's texts");
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
        *slot_of(v, t->s, t->len) = (uint32_t)i + 1; /* the last one wins */
    }
    v->n_token = v->n_symbol = (int32_t)kv->count;
    return read_columns(v, g, err);
}

void vocab_fini(struct vocab *v)
{
    arena_fini(&v->text);
    free(v->token);
    free(v->slot);
    free(v->merge);
    memset(v, 0, sizeof *v);
}

/* The id of this text, which becomes a symbol if it is not known. */
static pl_status intern(struct vocab *v, const char *s, size_t len, int32_t *id,
                        pl_err *err)
{
    char *copy;

    *id = vocab_find_symbol(v, s, len);
    if (*id >= 0)
        return PL_OK;
    PL_TRY(reserve(v, 1, err));
    copy = arena_memdup(&v->text, s, len, 1);
    if (!copy)
        return err_no_memory(err, "the text of a merge");
    *id = v->n_symbol++;
    v->token[*id] =
        (struct token){.s = copy, .len = (uint32_t)len, .type = TOKEN_UNUSED};
    if (len > v->max_len)
        v->max_len = (uint32_t)len;
    *slot_of(v, copy, len) = (uint32_t)*id + 1;
    return PL_OK;
}

static struct vocab_merge *merge_slot(const struct vocab *v, uint64_t pair)
{
    uint32_t mask = v->n_merge_slot - 1, i = hash_pair(pair) & mask;

    while (v->merge[i].pair != VOCAB_NO_PAIR && v->merge[i].pair != pair)
        i = (i + 1) & mask;
    return &v->merge[i];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

const struct vocab_merge *vocab_find_merge(const struct vocab *v, int32_t left,
                                           int32_t right)
{
    const struct vocab_merge *m;

    if (v->n_merge_slot == 0 || left < 0 || right < 0)
        return NULL;
    m = merge_slot(v, pair_of(left, right));
    return m->pair == VOCAB_NO_PAIR ? NULL : m;
}

/* "left right": the blank is searched from the second byte on, so that a
 * blank may itself be the left side. */
static pl_status add_merge(struct vocab *v, const struct gguf *g, uint64_t i,
                           struct gguf_str m, char *join, pl_err *err)
{
    const char *blank = m.len > 2 ? memchr(m.s + 1, ' ', m.len - 1) : NULL;
    size_t n_left = blank ? (size_t)(blank - m.s) : 0;
    int32_t left, right, joined;
    struct vocab_merge *slot;

    if (!blank || n_left + 1 >= m.len)
        return err_set(err, PL_BAD_FILE,
                       "%s: element %llu of tokenizer.ggml.merges is not two "
                       "texts with a blank between: convert the model again",
                       gguf_path(g), (unsigned long long)i);
    memcpy(join, m.s, n_left);
    memcpy(join + n_left, blank + 1, m.len - n_left - 1);
    PL_TRY(intern(v, m.s, n_left, &left, err));
    PL_TRY(intern(v, blank + 1, m.len - n_left - 1, &right, err));
    PL_TRY(intern(v, join, m.len - 1, &joined, err));
    slot = merge_slot(v, pair_of(left, right));
    if (slot->pair == VOCAB_NO_PAIR) /* of equal merges the first counts */
        *slot = (struct vocab_merge){pair_of(left, right), (int32_t)i, joined};
    return PL_OK;
}

pl_status vocab_read_merges(struct vocab *v, const struct gguf *g, pl_err *err)
{
    const struct gguf_kv *kv;
    uint32_t n_slot = 16;
    size_t longest = 1;
    char *join;
    pl_status s = PL_OK;

    PL_TRY(need_strs(g, "tokenizer.ggml.merges", &kv, err));
    while (n_slot / 3 * 2 < kv->count)
        n_slot *= 2;
    v->merge = malloc(n_slot * sizeof *v->merge);
    if (!v->merge)
        return err_no_memory(err, "the table of merges");
    v->n_merge_slot = n_slot;
    for (uint32_t i = 0; i < n_slot; i++)
        v->merge[i].pair = VOCAB_NO_PAIR;
    for (uint64_t i = 0; i < kv->count; i++)
        if (kv->strs[i].len > longest)
            longest = kv->strs[i].len;
    if (longest > UINT32_MAX)
        return err_set(err, PL_BAD_FILE, "%s: a merge has %zu bytes, too many",
                       gguf_path(g), longest);
    join = malloc(longest);
    if (!join)
        return err_no_memory(err, "a merge");
    for (uint64_t i = 0; i < kv->count && s == PL_OK; i++)
        s = add_merge(v, g, i, kv->strs[i], join, err);
    free(join);
    return s;
}
