/* See whole_json.h. A copy is compared by its size, and a text that lacks a
 * part is not returned. */
#include "base/whole_json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

json_t *whole_json_copy(json_t *j)
{
    json_t *copy = json_copy(j);

    if (json_array_size(copy) == json_array_size(j) &&
        json_object_size(copy) == json_object_size(j))
        return copy;
    json_decref(copy);
    return NULL;
}

struct taken {
    char *s; /* owned, [cap] */
    size_t n, cap;
    bool failed;
};

static int take(const char *s, size_t n, void *user)
{
    struct taken *t = user;

    if (n >= t->cap - t->n && !t->failed) {
        size_t cap = 2 * t->cap + n;
        char *more = realloc(t->s, cap);

        t->failed = !more;
        t->s = more ? more : t->s;
        t->cap = more ? cap : t->cap;
    }
    if (t->failed)
        return -1;
    memcpy(t->s + t->n, s, n);
    t->n += n;
    return 0;
}

char *whole_json_dumps(const json_t *j, size_t flags)
{
    struct taken t = {.cap = 64};

    t.s = malloc(t.cap);
    if (t.s && json_dump_callback(j, take, &t, flags) == 0 && !t.failed) {
        t.s[t.n] = '\0';
        return t.s;
    }
    free(t.s);
    return NULL;
}
