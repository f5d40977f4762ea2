/* Candidates for the next token, and the filters that keep some of them.
 *
 * Candidates are ordered by logit, equal ones by id, so that nothing depends on
 * how a sort treats ties. No filter sorts more than it keeps: candidates are
 * made a heap and taken from it, best first, until the filter has enough. Sums
 * run over candidates in their order in the array, which is fixed, so they are
 * the same everywhere. Every filter keeps at least one. */
#ifndef SAMPLING_CANDIDATES_H
#define SAMPLING_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

struct candidate {
    double key; /* greatest first in the heap; ties: lowest id */
    double p;   /* probability, unnormalised: e^((logit - greatest) / heat) */
    float logit;
    int32_t id;
};

struct candidates {
    struct candidate *c;
    int32_t n;   /* left */
    bool sorted; /* by logit, greatest first */
    double heat; /* temperatures applied so far: their product */
};

/* Adds one while there are less than `most`, then puts it in the place of the
 * worst, c[0], unless it is worse. candidates_sort when all were offered. */
void candidates_offer(struct candidates *a, int32_t most,
                      const struct candidate *c);
void candidates_sort(struct candidates *a);

/* Divides the logits by the heat, for who wants to change them. */
void candidates_settle(struct candidates *a);

/* Sets p of all; returns their sum. */
double candidates_weigh(struct candidates *a);

void candidates_top_k(struct candidates *a, int32_t k);
/* The likeliest that have this share of the sum together. */
void candidates_top_p(struct candidates *a, double mass);
/* Those with this share of the best one's probability. */
void candidates_min_p(struct candidates *a, double share);
/* Those whose surprise -ln p is nearest to the entropy, up to a mass. */
void candidates_typical(struct candidates *a, double mass);
/* Those within n standard deviations of the logits from the best one. */
void candidates_top_n_sigma(struct candidates *a, double n);
/* Of two or more that have at least this probability the least likely alone,
 * beside all that have less. */
void candidates_xtc(struct candidates *a, double threshold);
/* 0: the best one alone. */
void candidates_heat(struct candidates *a, double temperature);
/* A temperature in `temperature` +- `range` (not below 0), the higher the
 * nearer the entropy, as a share of the greatest one, to the power of
 * `exponent`, is to 1. */
void candidates_dynamic_heat(struct candidates *a, double temperature,
                             double range, double exponent);

/* Draws one by u in [0, 1); *p: its probability among those left, where that is
 * wanted. */
int32_t candidates_draw(struct candidates *a, double u, double *p);

#endif
