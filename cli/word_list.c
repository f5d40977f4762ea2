/* Lists of words that own copies of their words; word_list.h describes the
 * functions. */
#include "word_list.h"

#include <stdlib.h>
#include <string.h>

bool word_list_add(struct word_list *w, const char *word)
{
    char **more = realloc(w->v, ((size_t)w->n + 1) * sizeof(*more));

    if (more == NULL)
        return false;
    w->v = more;
    more[w->n] = strdup(word);
    return more[w->n] != NULL && ++w->n > 0;
}

bool word_list_join(struct word_list *w, const struct word_list *more)
{
    bool ok = true;

    for (int i = 0; i < more->n && ok; i++)
        ok = word_list_add(w, more->v[i]);
    return ok;
}

bool word_list_end(struct word_list *w)
{
    char **more = realloc(w->v, ((size_t)w->n + 1) * sizeof(*more));

    if (more == NULL)
        return false;
    w->v = more;
    more[w->n] = NULL;
    return true;
}

void word_list_free(struct word_list *w)
{
    for (int i = 0; i < w->n; i++)
        free(w->v[i]);
    free(w->v);
    *w = (struct word_list){0};
}
