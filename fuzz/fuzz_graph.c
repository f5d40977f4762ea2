/* Fuzzes the parser of a graph's text: parsing gives a status, and a parsed
 * graph prints a text that parses to a graph which prints the same.
 *
 * Aborts if it does not. The seeds in corpus/graph have every op, every kind of
 * leaf, outputs and kept tensors, layouts, quoted names, and some damage. */
#include "pl_graph.h"

#include <stdlib.h>
#include <string.h>

int fuzz_graph(const uint8_t *data, size_t n);

static void require(bool ok)
{
    if (!ok)
        __builtin_trap();
}

struct text {
    char *s; /* the printed text, owned; NUL-terminated unless NULL */
    size_t len, cap;
};

static void collect(void *user, const char *s, size_t len)
{
    struct text *t = user;

    if (t->len + len + 1 > t->cap) {
        t->cap = 2 * (t->len + len + 1);
        t->s = realloc(t->s, t->cap);
        require(t->s != NULL);
    }
    memcpy(t->s + t->len, s, len);
    t->len += len;
    t->s[t->len] = '\0';
}

int fuzz_graph(const uint8_t *data, size_t n)
{
    struct text in = {0}, first = {0}, second = {0};
    pl_graph *g;
    pl_err err;

    collect(&in, (const char *)data, n);
    if (pl_graph_parse(&g, in.s, &err) != PL_OK) {
        require(g == NULL && strlen(err.message) > 0);
        free(in.s);
        return 0;
    }
    collect(&first, "", 0);
    require(pl_graph_print(g, collect, &first, &err) == PL_OK);
    pl_graph_free(g);
    collect(&second, "", 0);
    require(pl_graph_parse(&g, first.s, &err) == PL_OK);
    require(pl_graph_print(g, collect, &second, &err) == PL_OK);
    pl_graph_free(g);
    require(!strcmp(first.s, second.s));
    free(in.s);
    free(first.s);
    free(second.s);
    return 0;
}
