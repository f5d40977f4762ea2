/* Which models `plait serve` has, by its command line. */
#ifndef CLI_SERVE_LIST_H
#define CLI_SERVE_LIST_H

#include "serve_model.h"

struct serve_list {
    struct model_about *about; /* owned, [n] */
    struct serve_entry *entry; /* owned, [n]; what `own` of those is */
    int n;
    bool any_name; /* one was named by the command line, and no more */
    char *name;    /* owned; of that */
};

/* Prints what is wrong. serve_list_fini takes *l in all cases. */
enum exit_code serve_list_make(struct serve_list *l, const struct options *o);
void serve_list_fini(struct serve_list *l);

#endif
