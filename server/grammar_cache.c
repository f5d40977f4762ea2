/* Implements the cache of compiled grammars; see grammar_cache.h. */
#include "grammar_cache.h"

#include "fail.h"

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
        if (g->entry[i].form == form && strcmp(g->entry[i].text, text) == 0)
            return &g->entry[i];
    return NULL;
}

/* Returns the cache entry for a new grammar: a free entry; or, if there are
 * GRAMMARS_KEPT entries or more, the least recently used one whose grammar is
 * not in use; or an added entry. Moves the old contents of the entry to *old.
 * NULL if out of memory. */
static struct grammars_entry *evict_for(struct grammars *g,
                                        struct grammars_entry *old)
{
    struct grammars_entry *oldest = NULL, *more;

    for (int i = 0; i < g->n; i++) {
        struct grammars_entry *e = &g->entry[i];

        if (e->n_user == 0 && (!oldest || e->used < oldest->used))
            oldest = e;
    }
    if (oldest && g->n >= GRAMMARS_KEPT) {
        *old = *oldest;
        return oldest;
    }
    more = realloc(g->entry, (size_t)(g->n + 1) * sizeof *more);
    if (!more)
        return NULL;
    g->entry = more;
    return &more[g->n++];
}

static void entry_free(struct grammars_entry *e)
{
    pl_grammar_free(e->grammar);
    free(e->text);
}

/* Returns the cached grammar for this source text and counts a user of the
 * grammar; NULL if it is not cached. Caller holds g->lock. */
static pl_grammar *use(struct grammars *g, pl_grammar_form form,
                       const char *text)
{
    struct grammars_entry *e = find(g, form, text);

    if (!e)
        return NULL;
    e->n_user++;
    e->used = ++g->clock;
    return e->grammar;
}

/* Adds the new grammar *made to the cache, counts a user of the grammar, and
 * returns it. If another thread has added the same grammar meanwhile, returns
 * that one. Afterwards *made holds what the caller must free: an evicted
 * grammar, or the new one if it was not added. NULL if out of memory. */
static pl_grammar *keep(struct grammars *g, struct grammars_entry *made)
{
    struct grammars_entry old = {0}, *e;
    pl_grammar *found;

    pthread_mutex_lock(&g->lock);
    found = use(g, made->form, made->text);
    e = found ? NULL : evict_for(g, &old);
    if (e) {
        *e = *made;
        *made = old;
        found = use(g, e->form, e->text);
    }
    pthread_mutex_unlock(&g->lock);
    return found;
}

/* Compiles the grammar without holding g->lock, because compiling may take
 * long. So only the requesting thread waits. The loop's thread, which takes the
 * lock to give grammars back, does not wait. */
pl_status grammars_take(struct grammars *g, pl_grammar_form form,
                        const char *text, const char *name, pl_grammar **out,
                        pl_err *err)
{
    struct grammars_entry made = {.form = form};
    pl_status s;

    pthread_mutex_lock(&g->lock);
    *out = use(g, form, text);
    pthread_mutex_unlock(&g->lock);
    if (*out)
        return PL_OK;
    s = pl_grammar_create(&made.grammar, g->words, form, text, strlen(text),
                          name, err);
    if (s != PL_OK)
        return s;
    made.text = strdup(text);
    *out = made.text ? keep(g, &made) : NULL;
    entry_free(&made);
    if (*out)
        return PL_OK;
    return server_fail(err, PL_NO_MEMORY, "out of memory for a grammar");
}

void grammars_give(struct grammars *g, pl_grammar *grammar)
{
    pthread_mutex_lock(&g->lock);
    for (int i = 0; i < g->n && grammar; i++)
        g->entry[i].n_user -= g->entry[i].grammar == grammar;
    pthread_mutex_unlock(&g->lock);
}
