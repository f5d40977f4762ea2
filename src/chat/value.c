/* Creates values of the template language, and looks up keys of dicts.
 * Operators on values are in operate.c. */
#include "chat/value.h"

#include "base/hash64.h"
#include "base/numeral.h"

#include <math.h>
#include <string.h>

/* Dicts with at most this number of pairs are searched linearly. */
enum { FEW = 8 };

const char *value_kind_name(enum value_kind kind)
{
    static const char *const names[] = {
#define VALUE_KIND_NAME(name, text) [V_##name] = (text),
        VALUE_KIND_MAP(VALUE_KIND_NAME)
#undef VALUE_KIND_NAME
    };

    return names[kind];
}

double value_as_float(struct value v)
{
    /* Space for the digits of an integer; one with more digits exceeds the
     * range of a double. */
    char digits[320];

    if (v.kind != V_FLOAT)
        return (double)value_as_int(v);
    if (!value_is_wide(v))
        return v.f;
    if (v.str->len >= sizeof digits)
        return v.str->s[0] == '-' ? -HUGE_VAL : HUGE_VAL;
    memcpy(digits, v.str->s, v.str->len);
    digits[v.str->len] = '\0';
    return numeral_double(digits, NULL);
}

bool value_truth(struct value v)
{
    switch ((enum value_kind)v.kind) {
    case V_ABSENT:
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.truth;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return value_as_float(v) != 0;
    case V_STR:
        return v.str->len > 0;
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
        return v.list->n > 0;
    case V_DICT:
        return v.dict->n > 0;
    case V_RANGE:
        return v.range->n > 0;
    default:
        return true;
    }
}

static bool is_ascii(const char *s, size_t len)
{
    unsigned char all = 0;

    for (size_t i = 0; i < len; i++)
        all |= (unsigned char)s[i];
    return all < 0x80;
}

struct string *string_view(struct arena *a, const char *s, size_t len)
{
    struct string *v = arena_alloc(a, 1, sizeof *v);

    if (v)
        *v = (struct string){.s = s, .len = len, .ascii = is_ascii(s, len)};
    return v;
}

struct string *string_copy(struct arena *a, const char *s, size_t len)
{
    char *copy = arena_alloc(a, len, 1);

    if (!copy)
        return NULL;
    if (len > 0)
        memcpy(copy, s, len);
    return string_view(a, copy, len);
}

uint32_t string_hash(struct string *s)
{
    if (s->hash == 0) {
        uint64_t h = hash64(0, s->s, s->len);

        s->hash = (uint32_t)(h ^ h >> 32) | 1;
    }
    return s->hash;
}

bool string_equal(struct string *a, struct string *b)
{
    return a == b ||
           (a->len == b->len && (!a->hash || !b->hash || a->hash == b->hash) &&
            memcmp(a->s, b->s, a->len) == 0);
}

bool string_is(const struct string *s, const char *text)
{
    return strlen(text) == s->len && memcmp(s->s, text, s->len) == 0;
}

struct list *list_create(struct arena *a, size_t n)
{
    struct list *l = arena_alloc(a, 1, sizeof *l);

    if (!l)
        return NULL;
    l->n = n;
    l->item = arena_alloc(a, n, sizeof *l->item);
    return l->item ? l : NULL;
}

struct dict *dict_create(struct arena *a, size_t cap)
{
    struct dict *d = arena_alloc(a, 1, sizeof *d);

    if (!d)
        return NULL;
    d->cap = cap > 0 ? cap : 1;
    d->pair = arena_alloc(a, d->cap, sizeof *d->pair);
    return d->pair ? d : NULL;
}

bool value_is_key(struct value v)
{
    return v.kind == V_STR || v.kind == V_NONE || value_is_number(v);
}

/* Returns the hash of a dict key. Equal keys have equal hashes: 1, 1.0 and true
 * are the same key. */
static uint32_t key_hash(struct value key)
{
    double f;

    if (key.kind == V_STR)
        return string_hash(key.str);
    if (key.kind == V_NONE)
        return 1;
    /* Adding 0.0 maps -0 to +0, which is the same key. */
    f = value_as_float(key) + 0.0;
    return (uint32_t)hash64(0, &f, sizeof f);
}

static bool key_equal(struct value a, struct value b)
{
    if (a.kind == V_STR || b.kind == V_STR)
        return a.kind == b.kind && string_equal(a.str, b.str);
    if (a.kind == V_NONE || b.kind == V_NONE)
        return a.kind == b.kind;
    if (a.kind == V_FLOAT || b.kind == V_FLOAT)
        return value_as_float(a) == value_as_float(b);
    return value_as_int(a) == value_as_int(b);
}

static void slot_add(struct dict *d, size_t i)
{
    uint32_t at = key_hash(d->pair[i].key) & d->slot_mask;

    while (d->slot[at] != 0)
        at = (at + 1) & d->slot_mask;
    d->slot[at] = (uint32_t)i + 1;
}

struct value *dict_find(const struct dict *d, struct value key)
{
    if (!d->slot) {
        for (size_t i = 0; i < d->n; i++)
            if (key_equal(d->pair[i].key, key))
                return &d->pair[i].value;
        return NULL;
    }
    for (uint32_t at = key_hash(key) & d->slot_mask; d->slot[at] != 0;
         at = (at + 1) & d->slot_mask) {
        struct pair *p = &d->pair[d->slot[at] - 1];

        if (key_equal(p->key, key))
            return &p->value;
    }
    return NULL;
}

/* Doubles the capacity of a dict for pairs. Drops its hash table, because
 * dict_put then builds a larger one. */
static bool dict_grow(struct arena *a, struct dict *d)
{
    size_t cap = 2 * d->cap;
    struct pair *pair = arena_alloc(a, cap, sizeof *pair);

    if (!pair || cap > UINT32_MAX / 4)
        return false;
    memcpy(pair, d->pair, d->n * sizeof *pair);
    d->pair = pair;
    d->cap = cap;
    d->slot = NULL;
    return true;
}

static bool dict_index(struct arena *a, struct dict *d)
{
    uint32_t n_slot = 16;

    while (n_slot < 2 * d->cap)
        n_slot *= 2;
    d->slot = arena_alloc(a, n_slot, sizeof *d->slot);
    if (!d->slot)
        return false;
    d->slot_mask = n_slot - 1;
    for (size_t i = 0; i < d->n; i++)
        slot_add(d, i);
    return true;
}

bool dict_put(struct arena *a, struct dict *d, struct value key,
              struct value value)
{
    struct value *there = dict_find(d, key);

    if (there) {
        *there = value;
        return true;
    }
    if (d->n == d->cap && !dict_grow(a, d))
        return false;
    d->pair[d->n++] = (struct pair){key, value};
    if (d->slot)
        slot_add(d, d->n - 1);
    else if (d->n > FEW && !dict_index(a, d))
        return false;
    return true;
}
