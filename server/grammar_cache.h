/* A cache of compiled grammars, with the token masks computed for each of them.
 * Clients that want one output format send the same grammar again and again. */
#ifndef SERVER_GRAMMAR_CACHE_H
#define SERVER_GRAMMAR_CACHE_H

#include "pl.h"

#include <pthread.h>

enum { GRAMMARS_KEPT = 16 };

struct grammars {
    /* Tokenizer that the grammars are compiled for; borrowed. */
    const pl_tokenizer *words;
    pthread_mutex_t lock;
    struct grammars_entry {
        /* The compiled grammar; NULL if the cache entry is free. */
        pl_grammar *grammar;
        pl_grammar_form form;
        char *text;
        int n_user;
        uint64_t used;
        /* The cached grammars, [n]; owned. n exceeds GRAMMARS_KEPT while more
     * grammars than that are in use at once. */
    } * entry;
    int n;
    uint64_t clock;
};

void grammars_init(struct grammars *g, const pl_tokenizer *words);
/* Frees the cache. No grammar may be in use. */
void grammars_fini(struct grammars *g);
/* Sets *out to the compiled grammar for the source `text`, from the cache if it
 * is there; otherwise compiles it and adds it to the cache. `name` names the
 * source in error messages. Errors are those of pl_grammar_create. The caller
 * gives *out back with grammars_give. */
pl_status grammars_take(struct grammars *g, pl_grammar_form form,
                        const char *text, const char *name, pl_grammar **out,
                        pl_err *err);
/* Counts down the users of a grammar from grammars_take. NULL is allowed. */
void grammars_give(struct grammars *g, pl_grammar *grammar);

#endif
