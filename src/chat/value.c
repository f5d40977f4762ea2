/* Creates values of the template language, and looks up keys of dicts.
 * Operators on values are in operate.c. */
#include "chat/value.h"

#include "base/err.h"
#include "base/hash64.h"
#include "base/numeral.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* Dicts with at most this number of pairs are searched linearly. */
enum { FEW = 8 };

/* ---- limits and the first failure -------------------------------------- */

void work_init(struct work *w, const struct chat_limits *limits, pl_err *err)
{
    *w = (struct work){
        .left = *limits, .err = err, .empty = {.s = "", .ascii = true}};
}

struct value work_fail(struct work *w, pl_status s, const char *fmt, ...)
{
    char text[sizeof w->err->message];
    va_list ap;

    if (w->status == PL_OK) {
        va_start(ap, fmt);
        numeral_vprint(text, sizeof text, fmt, ap);
        va_end(ap);
        w->status = w->line > 0 ? err_set(w->err, s, "template line %d: %s",
                                          w->line, text)
                                : err_set(w->err, s, "%s", text);
    }
    return value_undefined();
}

void work_no_memory(struct work *w)
{
    if (w->status == PL_OK)
        w->status = err_no_memory(w->err, "a chat template");
}

void work_spend(struct work *w, uint64_t steps)
{
    if (steps <= w->left.steps)
        w->left.steps -= steps;
    else
        work_fail(w, PL_FULL,
                  "the template exceeds the step limit; it may loop endlessly");
}

bool work_enter(struct work *w)
{
    work_spend(w, 1);
    if (w->left.depth == 0)
        work_fail(w, PL_BAD_ARGUMENT,
                  "macros, expressions or values nest too deeply; "
                  "simplify the template");
    if (w->status != PL_OK)
        return false;
    w->left.depth--;
    return true;
}

void *work_alloc(struct work *w, size_t n, size_t size)
{
    size_t bytes;
    void *p;

    if (__builtin_mul_overflow(n, size, &bytes) ||
        bytes > w->left.memory_bytes ||
        w->arena.used_bytes > w->left.memory_bytes - bytes)
        work_fail(w, PL_FULL,
                  "the template's values exceed the memory limit of %zu bytes",
                  w->left.memory_bytes);
    if (w->status != PL_OK)
        return NULL;
    p = arena_alloc(&w->arena, n, size);
    if (!p)
        work_no_memory(w);
    return p;
}

void *work_extended(struct work *w, void *from, size_t n, size_t size)
{
    void *more;

    if ((n & (n - 1)) != 0 && w->status == PL_OK)
        return from;
    more = work_alloc(w, n > 0 ? 2 * n : 1, size);
    if (more && n > 0)
        memcpy(more, from, n * size);
    return more;
}

/* ---- single values ----------------------------------------------------- */

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

struct value value_view(struct work *w, const char *s, size_t len)
{
    const struct string v = {.s = s, .len = len, .ascii = is_ascii(s, len)};
    struct value out = value_new(w, V_STR, &v, sizeof v);

    work_spend(w, len / 64);
    return out.kind == V_STR ? out : value_str(&w->empty);
}

struct value value_copy(struct work *w, const char *s, size_t len)
{
    char *copy = work_alloc(w, len, 1);

    if (!copy)
        return value_str(&w->empty);
    if (len > 0)
        memcpy(copy, s, len);
    return value_view(w, copy, len);
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

struct value value_new(struct work *w, enum value_kind kind, const void *object,
                       size_t size)
{
    void *p = work_alloc(w, 1, size);

    if (!p)
        return value_undefined();
    memcpy(p, object, size);
    return (struct value){.kind = (uint8_t)kind, .object = p};
}

/* ---- lists ------------------------------------------------------------- */

struct value value_list(struct work *w, enum value_kind kind, struct list l)
{
    return value_new(w, kind, &l, sizeof l);
}

struct value value_pair(struct work *w, struct value a, struct value b)
{
    struct list l = list_with(w, 2);

    list_add(w, &l, a);
    list_add(w, &l, b);
    return value_list(w, V_TUPLE, l);
}

struct list list_with(struct work *w, size_t n)
{
    struct list l = {.item = work_alloc(w, n, sizeof *l.item)};

    l.cap = l.item ? n : 0;
    return l;
}

void list_add(struct work *w, struct list *l, struct value v)
{
    if (l->n >= l->cap) {
        struct list more = list_with(w, l->n < 2 ? 4 : 2 * l->n);

        if (more.cap == 0)
            return;
        work_spend(w, l->n / 4);
        if (l->n > 0)
            memcpy(more.item, l->item, l->n * sizeof *l->item);
        more.n = l->n;
        *l = more;
    }
    l->item[l->n++] = v;
}

/* ---- dicts ------------------------------------------------------------- */

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

/* Moves the pairs of a dict to an array with the capacity `cap`. Gives a dict
 * with more than a few pairs a hash table. */
static bool dict_resize(struct work *w, struct dict *d, size_t cap)
{
    const uint32_t n_slot = cap > FEW && cap <= UINT32_MAX / 4
                                ? 1u << (33 - __builtin_clz((uint32_t)cap))
                                : 0;
    struct pair *pair = work_alloc(w, cap, sizeof *pair);
    uint32_t *slot = work_alloc(w, n_slot, sizeof *slot);

    work_spend(w, d->n);
    if (!pair || !slot || cap > UINT32_MAX / 4)
        return false;
    if (d->n > 0)
        memcpy(pair, d->pair, d->n * sizeof *pair);
    *d = (struct dict){.n = d->n, .cap = cap, .pair = pair};
    if (n_slot == 0)
        return true;
    d->slot = slot;
    d->slot_mask = n_slot - 1;
    for (size_t i = 0; i < d->n; i++)
        slot_add(d, i);
    return true;
}

struct dict dict_with(struct work *w, size_t n)
{
    struct dict d = {0};

    dict_resize(w, &d, n);
    return d;
}

void dict_put(struct work *w, struct dict *d, struct value key,
              struct value value)
{
    struct value *there;

    if (!value_is(key, KINDS_KEY)) {
        work_fail(w, PL_BAD_ARGUMENT, "a %s cannot be a dict key",
                  value_kind_name(key.kind));
        return;
    }
    there = dict_find(d, key);
    if (there) {
        *there = value;
    } else if (d->n < d->cap || dict_resize(w, d, d->n < 4 ? 4 : 2 * d->n)) {
        d->pair[d->n++] = (struct pair){key, value};
        if (d->slot)
            slot_add(d, d->n - 1);
    }
}
