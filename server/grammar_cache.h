/* A cache of compiled grammars with the masks computed for them, because
 * clients that want one output format send the same grammar again and again. */
#ifndef SERVER_GRAMMAR_CACHE_H
#define SERVER_GRAMMAR_CACHE_H

#include "pl.h"

#include <pthread.h>

enum { GRAMMARS_KEPT = 16 };

struct grammars {
    const pl_tokenizer *words; /* borrowed */
    pthread_mutex_t lock;
    struct grammars_entry {
        pl_grammar *grammar; /* NULL: free */
        pl_grammar_form form;
        char *text;
        int n_user;
        uint64_t used;
    } * entry; /* owned, [n]; grows if more are in use at once */
    int n;
    uint64_t clock;
};

void grammars_init(struct grammars *g, const pl_tokenizer *words);
void grammars_fini(struct grammars *g); /* no grammar may be in use */
/* Returns a cached or a new grammar. Fails as pl_grammar_create. */
pl_status grammars_take(struct grammars *g, pl_grammar_form form,
                        const char *text, const char *name, pl_grammar **out,
                        pl_err *err);
void grammars_give(struct grammars *g, pl_grammar *grammar); /* takes NULL */

#endif
