/* A cache of compiled grammars and of the token masks computed for them.
 * Clients that want one output format send the same grammar again and again. */
#ifndef SERVER_GRAMMAR_CACHE_H
#define SERVER_GRAMMAR_CACHE_H

#include "pl.h"

#include <pthread.h>

enum { GRAMMARS_KEPT = 16 };

struct grammars {
    const pl_tokenizer *words; /* borrowed */
    pthread_mutex_t lock;
    struct grammars_entry {
        pl_grammar *grammar; /* NULL if the entry is free */
        pl_grammar_form form;
        char *text;
        int n_user;
        uint64_t used;
    } * entry; /* owned, [n]; n exceeds GRAMMARS_KEPT if more grammars are in
                  use at once */
    int n;
    uint64_t clock;
};

void grammars_init(struct grammars *g, const pl_tokenizer *words);
void grammars_fini(struct grammars *g); /* requires that no grammar is in use */
/* Sets *out to the grammar for a source text: a cached one, or a new one that
 * is added to the cache. `name` names the source in error messages. Errors are
 * those of pl_grammar_create. The caller returns *out with grammars_give. */
pl_status grammars_take(struct grammars *g, pl_grammar_form form,
                        const char *text, const char *name, pl_grammar **out,
                        pl_err *err);
/* Ends the use that grammars_take began. NULL is allowed. */
void grammars_give(struct grammars *g, pl_grammar *grammar);

#endif
