/* A greedy cover of all pairs: runs of parameters with few values each, until
 * any two values of any two parameters have occurred together in one. */
#ifndef TEST_PAIRS_H
#define TEST_PAIRS_H

#include <stdbool.h>
#include <stdint.h>

enum { PAIRS_MAX_PARAM = 24 };

struct pairs {
    int n_param, n_total;
    int n_value[PAIRS_MAX_PARAM];
    int base[PAIRS_MAX_PARAM]; /* index of a parameter's first value */
    unsigned char *met;        /* owned; [n_total, n_total] */
};

/* n_value(p) returns how many values parameter p has, p < n_param. */
void pairs_init(struct pairs *s, int n_param, int (*n_value)(int p));
void pairs_fini(struct pairs *s);

/* Draws v[n_param], any values. */
void pairs_draw(const struct pairs *s, int *v, uint64_t *random);
/* Chooses v[n_param] for the next run, around two values that have not occurred
 * together: the best of some random fillings. Returns false if all pairs have
 * occurred. */
bool pairs_next(struct pairs *s, int *v, uint64_t *random);

#endif
