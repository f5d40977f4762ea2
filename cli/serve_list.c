/* From the command line to a list of models. See serve_list.h. */
#include "serve_list.h"

#include <stdlib.h>
#include <string.h>

/* A model's name for clients: the file's, without its ending. */
static char *name_of(const struct options *o)
{
    const char *at = o->alias != NULL ? o->alias : o->model;
    const char *slash = o->alias != NULL ? NULL : strrchr(at, '/');
    size_t n;

    at = slash != NULL ? slash + 1 : at;
    n = strlen(at);
    if (o->alias == NULL && n > 5 && strcmp(at + n - 5, ".gguf") == 0)
        n -= 5;
    return strndup(at, n);
}

enum exit_code serve_list_make(struct serve_list *l, const struct options *o)
{
    *l = (struct serve_list){.any_name = true};
    if (o->model == NULL)
        return complain(o->command, EXIT_USAGE,
                        "no model; give one with -m FILE, like -m "
                        "models/fable-moe-Q8_0.gguf");
    l->about = calloc(1, sizeof(*l->about));
    l->entry = calloc(1, sizeof(*l->entry));
    l->name = name_of(o);
    if (l->about == NULL || l->entry == NULL || l->name == NULL)
        return complain(o->command, EXIT_FAILED, "no memory for a model");
    l->n = 1;
    l->entry[0] = (struct serve_entry){.o = o, .at_start = true};
    l->about[0] = (struct model_about){
        .name = l->name, .path = o->model, .pinned = true, .own = &l->entry[0]};
    return EXIT_DONE;
}

void serve_list_fini(struct serve_list *l)
{
    free(l->about);
    free(l->entry);
    free(l->name);
}
