/* Candidates for the next token, and the filters that keep some of them.
 *
 * Candidates are ordered by logit, equal ones by id, so that nothing depends on
 * how a sort treats ties. No filter sorts more than it keeps: candidates form a
 * heap and are taken from it, best first, until the filter has enough. Sums run
 * over candidates in their order in the array, which is fixed, so they are the
 * same everywhere. Every filter keeps at least one. */
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
    int32_t n;   /* number left */
    bool sorted; /* by logit, greatest first */
    double heat; /* product of temperatures applied so far */
};

/* Adds a candidate while there are fewer than `most`. Then replaces the worst,
 * c[0], unless the new one is worse. Call candidates_sort after all were
 * offered. */
void candidates_offer(struct candidates *a, int32_t most,
                      const struct candidate *c);
void candidates_sort(struct candidates *a);

/* Divides the logits by the heat, so that they can be changed. */
void candidates_settle(struct candidates *a);

/* Sets p of all; returns their sum. */
double candidates_weigh(struct candidates *a);

void candidates_top_k(struct candidates *a, int32_t k);
/* Keeps the likeliest that together have this share of the sum. */
void candidates_top_p(struct candidates *a, double mass);
/* Keeps those with at least this share of the best one's probability. */
void candidates_min_p(struct candidates *a, double share);
/* Keeps those whose surprise -ln p is nearest to the entropy, up to a mass. */
void candidates_typical(struct candidates *a, double mass);
/* Keeps those within n standard deviations of the logits from the best one. */
void candidates_top_n_sigma(struct candidates *a, double n);
/* If two or more have at least this probability, keeps only the least likely of
 * them, in addition to all below it. */
void candidates_xtc(struct candidates *a, double threshold);
/* Applies a temperature; 0 keeps only the best. */
void candidates_heat(struct candidates *a, double temperature);
/* Applies a temperature in `temperature` +- `range` (not below 0). It rises
 * with (entropy / greatest entropy) ^ `exponent`. */
void candidates_dynamic_heat(struct candidates *a, double temperature,
                             double range, double exponent);

/* Draws one by u in [0, 1). *p: its probability among those left; p may be
 * NULL. */
int32_t candidates_draw(struct candidates *a, double u, double *p);

#endif
