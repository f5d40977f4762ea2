/* Parses preset files line by line. See preset.h. */
#include "preset.h"

#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SECTIONS = 4096, MAX_KEYS = 1024, MAX_LINE = 64 << 10 };

static pl_status fail(pl_err *err, int line, const char *form, ...)
    __attribute__((format(printf, 3, 4)));
static pl_status fail(pl_err *err, int line, const char *form, ...)
{
    char text[512];
    va_list a;

    va_start(a, form);
    vsnprintf(text, sizeof text, form, a);
    va_end(a);
    return server_fail(err, PL_BAD_FILE, "line %d: %s", line, text);
}

static pl_status no_memory(pl_err *err)
{
    return server_fail(err, PL_NO_MEMORY, "out of memory for presets");
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* Removes the blanks at both ends of the text *s [*n], by changing *s and
 * *n. */
static void trim(const char **s, size_t *n)
{
    while (*n > 0 && is_blank(**s)) {
        ++*s;
        --*n;
    }
    while (*n > 0 && is_blank((*s)[*n - 1]))
        --*n;
}

const struct preset_section *preset_find(const struct preset *p,
                                         const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->section[i].name, name) == 0)
            return &p->section[i];
    return NULL;
}

static pl_status add_section(struct preset *p, const char *s, size_t n,
                             int line, pl_err *err)
{
    struct preset_section *more;
    char *name;

    if (n < 2 || s[n - 1] != ']')
        return fail(err, line, "section header without \"]\"; write [NAME]");
    s++;
    n -= 2;
    trim(&s, &n);
    if (n == 0)
        return fail(err, line,
                    "section without a name; write one, for example [tales]");
    if (p->n == MAX_SECTIONS)
        return fail(err, line, "more than %d sections; remove some",
                    MAX_SECTIONS);
    name = strndup(s, n);
    if (!name)
        return no_memory(err);
    if (preset_find(p, name)) {
        fail(err, line,
             "section [%.80s] is already defined in line %d; merge or rename "
             "one",
             name, preset_find(p, name)->line);
        free(name);
        return PL_BAD_FILE;
    }
    more = realloc(p->section, ((size_t)p->n + 1) * sizeof *more);
    if (!more) {
        free(name);
        return no_memory(err);
    }
    p->section = more;
    more[p->n++] = (struct preset_section){.name = name, .line = line};
    return PL_OK;
}

static pl_status add_key(struct preset_section *t, const char *key, size_t n,
                         const char *value, size_t n_value, int line,
                         pl_err *err)
{
    struct preset_key *more, *k;

    if (t->n_key == MAX_KEYS)
        return fail(err, line, "more than %d keys in a section; remove some",
                    MAX_KEYS);
    more = realloc(t->key, ((size_t)t->n_key + 1) * sizeof *more);
    if (!more)
        return no_memory(err);
    t->key = more;
    k = &more[t->n_key++];
    *k = (struct preset_key){
        .key = strndup(key, n), .value = strndup(value, n_value), .line = line};
    return k->key && k->value ? PL_OK : no_memory(err);
}

static pl_status read_key(struct preset *p, const char *s, size_t n, int line,
                          pl_err *err)
{
    const char *equals = memchr(s, '=', n), *value;
    size_t n_key, n_value;

    if (!equals)
        return fail(err, line, "neither [NAME] nor KEY = VALUE: \"%.*s\"",
                    n < 80 ? (int)n : 80, s);
    value = equals + 1;
    n_key = (size_t)(equals - s);
    n_value = n - n_key - 1;
    trim(&s, &n_key);
    trim(&value, &n_value);
    if (n_key == 0)
        return fail(err, line, "no key before the \"=\"; write KEY = VALUE");
    if (p->n > 0)
        return add_key(&p->section[p->n - 1], s, n_key, value, n_value, line,
                       err);
    if (n_key != 7 || memcmp(s, "version", 7) != 0)
        return fail(err, line,
                    "key %.*s is before any section; put it in one ([*] "
                    "applies to all models)",
                    n_key < 80 ? (int)n_key : 80, s);
    if (n_value != 1 || *value != '1')
        return fail(err, line, "unknown version of presets; write version = 1");
    return PL_OK;
}

static pl_status read_line(struct preset *p, const char *s, size_t n, int line,
                           pl_err *err)
{
    if (n > MAX_LINE)
        return fail(err, line, "longer than %d bytes; shorten it", MAX_LINE);
    if (memchr(s, '\0', n))
        return fail(err, line,
                    "contains a NUL byte; save the file as plain text");
    trim(&s, &n);
    if (n == 0 || *s == '#' || *s == ';')
        return PL_OK;
    if (*s == '[')
        return add_section(p, s, n, line, err);
    return read_key(p, s, n, line, err);
}

pl_status preset_read(struct preset *p, const char *text, size_t len,
                      pl_err *err)
{
    pl_status s = PL_OK;

    *p = (struct preset){0};
    /* Skips the byte order mark of UTF-8, if the file begins with it. */
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        len -= 3;
    }
    for (int line = 1; len > 0 && s == PL_OK; line++) {
        const char *end = memchr(text, '\n', len);
        size_t n = end ? (size_t)(end - text) : len;

        s = read_line(p, text, n, line, err);
        n += end != NULL;
        text += n;
        len -= n;
    }
    return s;
}

void preset_free(struct preset *p)
{
    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < p->section[i].n_key; k++) {
            free(p->section[i].key[k].key);
            free(p->section[i].key[k].value);
        }
        free(p->section[i].key);
        free(p->section[i].name);
    }
    free(p->section);
    *p = (struct preset){0};
}
