/* Chooses combinations of parameters with few values each, until any two values
 * of any two parameters have occurred together in one combination (pairwise
 * testing, greedily). */
#ifndef TEST_PAIRS_H
#define TEST_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

enum { PAIRS_MAX_PARAM = 24 };

struct pairs {
    int n_param, n_total;
    int n_value[PAIRS_MAX_PARAM];
    /* number of a parameter's first value, if the values of all parameters are
     * counted */
    int base[PAIRS_MAX_PARAM];
    /* [n_total, n_total], owned: nonzero if the two values have occurred
     * together */
    unsigned char *met;
};

/* n_value(p) returns how many values parameter p has, p < n_param. */
void pairs_init(struct pairs *s, int n_param, int (*n_value)(int p));
void pairs_fini(struct pairs *s);

/* Draws any value for each parameter into v[n_param]. */
void pairs_draw(const struct pairs *s, int *v, uint64_t *random);
/* Chooses a value for each parameter into v[n_param], around two values that
 * have not occurred together. Takes the combination with the most new pairs out
 * of some random ones. Returns false if all pairs have occurred. */
bool pairs_next(struct pairs *s, int *v, uint64_t *random);

#endif
