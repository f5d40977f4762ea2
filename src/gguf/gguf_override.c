/* Sets keys over those of a file: parses texts KEY=TYPE:VALUE, in the notation
 * of llama.cpp's --override-kv, into entries like those that the parser makes.
 *
 * A float has 32 bits, as converters write it, so that a file with the same
 * value gives the same bits. */
#include "gguf/gguf_parse.h"

#include "base/err.h"
#include "base/numeral.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct override_type {
    const char *name;
    enum gguf_type type;
    const char *value; /* description of a valid value, for errors */
} types[] = {
    {"int", GGUF_I64, "a whole number of at most 64 bits"},
    {"float", GGUF_F32, "a finite number of 32 bits"},
    {"bool", GGUF_BOOL, "true or false"},
    {"str", GGUF_STRING, "a text"},
};
enum { N_TYPE = sizeof types / sizeof types[0] };

const char *gguf_override_type(const struct gguf_kv *kv)
{
    for (int i = 0; i < N_TYPE; i++)
        if (types[i].type == kv->type)
            return types[i].name;
    return "";
}

static uint64_t count_items(const char *text)
{
    uint64_t n = 1;

    for (; *text; text++)
        n += *text == ',';
    return n;
}

/* Returns the next KEY=TYPE:VALUE of *text without its quotes, and moves *text
 * after the comma that follows it, or to NULL at the end. Returns "" if a quote
 * is not closed, NULL if out of memory. */
static char *next_item(struct arena *a, const char **text)
{
    const char *s = *text;
    char *item = arena_alloc(a, strlen(s) + 1, 1), *to = item;
    bool quoted = *s == '"';

    if (!item)
        return NULL;
    s += quoted;
    while (*s && (quoted || *s != ',')) {
        if (quoted && *s == '"') {
            quoted = *++s == '"';
            if (!quoted)
                continue;
        }
        *to++ = *s++;
    }
    if (quoted)
        to = item;
    *to = '\0';
    *text = *s ? s + 1 : NULL;
    return item;
}

static bool read_int(const char *s, int64_t *v)
{
    char *end;

    if (strspn(s, "-0123456789") != strlen(s))
        return false;
    errno = 0;
    *v = strtoll(s, &end, 10);
    return end != s && !*end && errno == 0;
}

static bool read_float(const char *s, float *v)
{
    char *end;

    *v = numeral_float(s, &end);
    return strspn(s, "+-.0123456789eE") == strlen(s) && end != s && !*end &&
           isfinite(*v);
}

/* Writes the value `s` to `data` in the form that values have in GGUF files: 8
 * bytes, for a string its length and then its text. Returns false if `s` is not
 * a value of this type. */
static bool write_value(enum gguf_type type, const char *s, unsigned char *data)
{
    const size_t len = strlen(s);
    uint64_t bits = 0;
    int64_t i;
    float f;

    if (type == GGUF_I64 && read_int(s, &i))
        bits = (uint64_t)i;
    else if (type == GGUF_F32 && read_float(s, &f))
        memcpy(&bits, &f, sizeof f);
    else if (type == GGUF_BOOL && (!strcmp(s, "true") || !strcmp(s, "false")))
        bits = *s == 't';
    else if (type == GGUF_STRING)
        bits = len;
    else
        return false;
    bits = htole64(bits);
    memcpy(data, &bits, sizeof bits);
    if (type == GGUF_STRING)
        memcpy(data + sizeof bits, s, len);
    return true;
}

/* Parses one KEY=TYPE:VALUE into *kv. A KEY that begins with a dot stays so. */
static pl_status read_item(struct gguf_part *p, const char *item,
                           struct gguf_kv *kv, pl_err *err)
{
    const char *equals = strchr(item, '='),
               *colon = equals ? strchr(equals, ':') : NULL;
    const struct override_type *t = NULL;
    struct gguf_str *text;
    unsigned char *data;
    char shown[ERR_SHOWN];

    err_shown(shown, item, strlen(item));
    for (int i = 0; colon && equals > item && i < N_TYPE; i++)
        if (strlen(types[i].name) == (size_t)(colon - equals - 1) &&
            !memcmp(equals + 1, types[i].name, strlen(types[i].name)))
            t = &types[i];
    if (!t)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: the override '%s' is not KEY=TYPE:VALUE with a "
                       "type of int, float, bool or str; correct it",
                       p->label, shown);
    *kv = (struct gguf_kv){
        .key = arena_strndup(&p->kv_arena, item, (size_t)(equals - item)),
        .type = t->type,
        .elem = t->type,
        .count = 1,
        .overridden = true};
    data = arena_alloc(&p->kv_arena, 8 + strlen(colon), 1);
    text = arena_alloc(&p->kv_arena, 1, sizeof *text);
    if (!kv->key || !data || !text)
        return err_no_memory(err, "the overrides of a GGUF file");
    if (!write_value(t->type, colon + 1, data))
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: the override '%s' has no valid value; after %s: "
                       "give %s",
                       p->label, shown, t->name, t->value);
    kv->data = data;
    if (t->type == GGUF_STRING) {
        *text = (struct gguf_str){(const char *)data + 8, strlen(colon + 1)};
        kv->strs = text;
    }
    return PL_OK;
}

/* Puts the name of the architecture before a key that begins with a dot. */
static pl_status add_arch(struct gguf_part *p, struct gguf_kv *kv, pl_err *err)
{
    int64_t i = gguf_index_find(&p->kv_index, "general.architecture");
    struct gguf_str arch;

    if (i < 0 || !gguf_as_str(&p->kv[i], 0, &arch))
        return err_set(err, PL_BAD_FILE,
                       "%s: key general.architecture is missing, so the "
                       "override of ARCH%s has no key; give the whole key",
                       p->label, kv->key);
    kv->key =
        arena_printf(&p->kv_arena, "%.*s%s",
                     (int)(arch.len < 64 ? arch.len : 64), arch.s, kv->key);
    return kv->key ? PL_OK : err_no_memory(err, "a key");
}

static void put(struct gguf_part *p, const struct gguf_kv *kv)
{
    int64_t i = gguf_index_find(&p->kv_index, kv->key);

    if (i >= 0) {
        p->kv[i] = *kv;
    } else {
        p->kv[p->n_kv] = *kv;
        gguf_index_add(&p->kv_index, p->n_kv++);
    }
}

/* Parses the KEY=TYPE:VALUE of a text and sets these keys: only the keys that
 * begin with a dot if `dot`, else only the others. */
static pl_status put_items(struct gguf_part *p, const char *text, bool dot,
                           pl_err *err)
{
    while (text) {
        const char *item = next_item(&p->kv_arena, &text);
        struct gguf_kv kv;

        if (!item)
            return err_no_memory(err, "the overrides of a GGUF file");
        if ((*item == '.') != dot)
            continue;
        PL_TRY(read_item(p, item, &kv, err));
        if (dot)
            PL_TRY(add_arch(p, &kv, err));
        put(p, &kv);
    }
    return PL_OK;
}

pl_status gguf_part_override(struct gguf_part *p, const char *const *text,
                             int n, pl_err *err)
{
    const struct gguf_kv *file = p->kv;
    uint64_t room = p->n_kv;

    for (int i = 0; i < n; i++)
        room += count_items(text[i]);
    PL_TRY(gguf_part_room(p, room, err));
    for (uint64_t i = 0; i < p->n_kv; i++) {
        p->kv[i] = file[i];
        gguf_index_add(&p->kv_index, i);
    }
    for (int dot = 0; dot < 2; dot++)
        for (int i = 0; i < n; i++)
            PL_TRY(put_items(p, text[i], dot, err));
    return PL_OK;
}

pl_status gguf_check_overrides(const struct gguf *g, pl_err *err)
{
    char shown[ERR_SHOWN];

    for (int64_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);

        if (kv->overridden && !gguf_was_asked(g, i))
            return err_set(err, PL_BAD_ARGUMENT,
                           "%s: the override of key %s changes nothing, as no "
                           "code reads the key with the other keys as they "
                           "are; leave it out, or correct its name",
                           gguf_path(g),
                           err_shown(shown, kv->key, strlen(kv->key)));
    }
    return PL_OK;
}
