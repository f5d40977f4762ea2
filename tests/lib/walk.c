/* Calls the functions of a header with random arguments; walk.h describes the
 * functions. */
#include "lib/walk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---------------------------------------------------------------- */

static bool has_row(const struct walk_row *row, int n, const char *name,
                    size_t len)
{
    for (int i = 0; i < n; i++)
        if (strlen(row[i].name) == len && memcmp(row[i].name, name, len) == 0)
            return true;
    return false;
}

/* Returns the name of the function that the declaration at s declares, *len
 * bytes long. */
static const char *declared(const char *s, size_t *len)
{
    const char *end = strchr(s, '('), *name = end;

    assert_non_null(end);
    while (name > s &&
           strchr("abcdefghijklmnopqrstuvwxyz0123456789_", name[-1]) != NULL)
        name--;
    *len = (size_t)(end - name);
    return name;
}

void walk_names_all(const char *header, const struct walk_row *row, int n)
{
    static const char mark[] = "\nPL_API ";
    const char *path = test_file(header);
    size_t size, len;
    char *text;
    int n_declared = 0;

    if (!path)
        fail_msg("%s is not at hand", header);
    text = test_read(path, &size);
    for (const char *s = text; (s = strstr(s, mark)) != NULL; n_declared++) {
        const char *name = declared(s += strlen(mark), &len);

        if (!has_row(row, n, name, len))
            fail_msg("%s: no row calls %.*s", header, (int)len, name);
    }
    free(text);
    if (n_declared != n)
        fail_msg("%s declares %d functions; %d rows call some", header,
                 n_declared, n);
}

static void call(struct walk *w, const struct walk_row *row)
{
    w->call = row->name;
    w->n_pointer = 0;
    w->n_wrong = 0;
    memset(&w->err, 0, sizeof w->err);
    row->call(w);
}

void walk_nulls(struct walk *w, const struct walk_row *row)
{
    w->null_at = 0;
    do
        call(w, row);
    while (w->n_pointer > w->null_at++);
    w->null_at = -1;
}

void walk_once(struct walk *w, const struct walk_row *row)
{
    w->null_at = -1;
    call(w, row);
}

/* ---- arguments ----------------------------------------------------------- */

bool walk_chance(struct walk *w, int n)
{
    return !walk_is_right(w) && test_below(&w->rng, n) == 0;
}

int64_t walk_int(struct walk *w, int64_t right)
{
    static const int64_t odd[] = {
        0, 1, -1, 2, 64, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 1 << 20};

    if (walk_chance(w, 3))
        return odd[test_below(&w->rng, (int64_t)(sizeof odd / sizeof odd[0]))];
    return walk_chance(w, 4) ? right + test_below(&w->rng, 9) - 4 : right;
}

int walk_i(struct walk *w, int right)
{
    return (int)walk_int(w, right);
}

static bool drops(struct walk *w)
{
    int k = w->n_pointer++;

    return walk_is_right(w) ? k == w->null_at : walk_chance(w, 12);
}

static void must_refuse(struct walk *w, const char *argument)
{
    w->wrong = argument;
    w->n_wrong++;
}

void *walk_need(struct walk *w, const char *argument, const void *p)
{
    if (p && !drops(w))
        return (void *)p;
    must_refuse(w, argument);
    return NULL;
}

void *walk_may(struct walk *w, const void *p)
{
    return drops(w) ? NULL : (void *)p;
}

void *walk_array(struct walk *w, const char *argument, const void *p,
                 int64_t have, int64_t *n)
{
    static const int64_t any[] = {1, 0, -1, INT64_MAX, INT64_MIN, 5};

    if (drops(w)) {
        *n = any[walk_is_right(w) ? 0 : test_below(&w->rng, 6)];
        if (*n > 0)
            must_refuse(w, argument);
        return NULL;
    }
    *n = have;
    if (walk_chance(w, 3))
        *n = test_below(&w->rng, have + 1);
    else if (walk_chance(w, 6))
        *n = any[2 + 2 * test_below(&w->rng, 2)];
    return (void *)p;
}

void *walk_text(struct walk *w, const char *argument, const char *s,
                size_t have, size_t *n)
{
    static const size_t any[] = {1, 0, SIZE_MAX, 77};

    if (drops(w)) {
        *n = any[walk_is_right(w) ? 0 : test_below(&w->rng, 4)];
        if (*n > 0)
            must_refuse(w, argument);
        return NULL;
    }
    *n = walk_chance(w, 4) ? (size_t)test_below(&w->rng, (int64_t)have + 1)
                           : have;
    return (void *)s;
}

size_t walk_size(struct walk *w, size_t right)
{
    static const size_t odd[] = {0, 1, 7, 8, SIZE_MAX, (size_t)1 << 40};

    return walk_chance(w, 12) ? odd[test_below(&w->rng, 6)] : right;
}

const char *walk_string(struct walk *w, const char *right)
{
    static char text[9000];

    if (!walk_chance(w, 5))
        return right;
    switch (test_below(&w->rng, 4)) {
    case 0:
        return "";
    case 1:
        return "\xff\xc0\x80 \xed\xa0\x80\x01%s%n";
    case 2:
        memset(text, 'a', sizeof text - 1);
        return text;
    default:
        for (size_t i = 0; i + 1 < 300; i++)
            text[i] = (char)(1 + test_below(&w->rng, 255));
        text[299] = '\0';
        return text;
    }
}

/* ---- ends ---------------------------------------------------------------- */

pl_err *walk_err(struct walk *w)
{
    return walk_chance(w, 8) ? NULL : &w->err;
}

void walk_ended(struct walk *w, pl_status s, bool empty)
{
    char words[64];

    if ((unsigned)s > PL_CANCELLED)
        fail_msg("%s: status %d", w->call, (int)s);
    if (s == PL_OK) {
        w->n_ok++;
        if (w->n_wrong > 0)
            fail_msg("%s: took NULL for %s", w->call, w->wrong);
        return;
    }
    w->n_refused++;
    if (!empty)
        fail_msg("%s: failed (%s: %s) and left a result", w->call,
                 pl_status_name(s), w->err.message);
    if (w->err.status != PL_OK && (w->err.status != s || !w->err.message[0]))
        fail_msg("%s: %s, and the message is of %s: %s", w->call,
                 pl_status_name(s), pl_status_name(w->err.status),
                 w->err.message);
    if (w->n_wrong > 0 && s != PL_BAD_ARGUMENT)
        fail_msg("%s: %s is NULL, and the status %s", w->call, w->wrong,
                 pl_status_name(s));
    snprintf(words, sizeof words, "%.40s is NULL", w->wrong ? w->wrong : "");
    if (w->n_wrong == 1 && walk_is_right(w) && !strstr(w->err.message, words))
        fail_msg("%s: %s, and the message is: %s", w->call, words,
                 w->err.message);
}

void walk_gave(struct walk *w, bool neutral)
{
    w->n_ok++;
    if (w->n_wrong > 0 && !neutral)
        fail_msg("%s: %s is NULL, and it gave something", w->call, w->wrong);
}
