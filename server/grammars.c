/* See grammars.h. */
#include "grammars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void grammars_init(struct grammars *g, const pl_tokenizer *words)
{
    *g = (struct grammars){.words = words};
    pthread_mutex_init(&g->lock, NULL);
}

void grammars_fini(struct grammars *g)
{
    for (int i = 0; i < g->n; i++) {
        pl_grammar_free(g->entry[i].grammar);
        free(g->entry[i].text);
    }
    free(g->entry);
    pthread_mutex_destroy(&g->lock);
}

static struct grammars_entry *find(struct grammars *g, pl_grammar_form form,
                                   const char *text)
{
    for (int i = 0; i < g->n; i++)
        if (g->entry[i].grammar && g->entry[i].form == form &&
            strcmp(g->entry[i].text, text) == 0)
            return &g->entry[i];
    return NULL;
}

/* A free entry, or that of the grammar that was longest unused, or a new one;
 * NULL: no memory. */
static struct grammars_entry *make_place(struct grammars *g)
{
    struct grammars_entry *oldest = NULL, *more;

    for (int i = 0; i < g->n; i++) {
        struct grammars_entry *e = &g->entry[i];

        if (!e->grammar)
            return e;
        if (e->n_user == 0 && (!oldest || e->used < oldest->used))
            oldest = e;
    }
    if (oldest && g->n >= GRAMMARS_KEPT) {
        pl_grammar_free(oldest->grammar);
        free(oldest->text);
        *oldest = (struct grammars_entry){0};
        return oldest;
    }
    more = realloc(g->entry, (size_t)(g->n + 1) * sizeof *more);
    if (!more)
        return NULL;
    g->entry = more;
    more[g->n] = (struct grammars_entry){0};
    return &more[g->n++];
}

static pl_status make(struct grammars *g, pl_grammar_form form,
                      const char *text, const char *name,
                      struct grammars_entry **out, pl_err *err)
{
    struct grammars_entry *e = make_place(g);
    char *copy = strdup(text);
    pl_status s = PL_NO_MEMORY;

    if (e && copy)
        s = pl_grammar_create(&e->grammar, g->words, form, text, strlen(text),
                              name, err);
    else if (err)
        *err = (pl_err){PL_NO_MEMORY, "out of memory for a grammar"};
    if (s != PL_OK) {
        free(copy);
        return s;
    }
    e->text = copy;
    e->form = form;
    *out = e;
    return PL_OK;
}

pl_status grammars_take(struct grammars *g, pl_grammar_form form,
                        const char *text, const char *name, pl_grammar **out,
                        pl_err *err)
{
    struct grammars_entry *e;
    pl_status s = PL_OK;

    pthread_mutex_lock(&g->lock);
    e = find(g, form, text);
    if (!e)
        s = make(g, form, text, name, &e, err);
    if (s == PL_OK) {
        e->n_user++;
        e->used = ++g->clock;
        *out = e->grammar;
    }
    pthread_mutex_unlock(&g->lock);
    return s;
}

void grammars_give(struct grammars *g, pl_grammar *grammar)
{
    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < g->n && grammar; i++)
        g->entry[i].n_user -= g->entry[i].grammar == grammar;
    pthread_mutex_unlock(&g->lock);
}
