/* Candidates for the next token, and the filters that keep some of them.
 *
 * Candidates are ordered by logit, and by id if logits are equal, so that no
 * result depends on how a sort treats ties. No filter sorts more than it keeps:
 * candidates form a heap and are taken from it, best first, until the filter
 * has enough. Sums are computed in the order of the array, which is the same on
 * all machines, so their bits are too. Every filter keeps at least one
 * candidate. "Heat" is the temperature. */
#ifndef SAMPLING_CANDIDATES_H
#define SAMPLING_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

struct candidate {
    double key; /* order in a heap: the greatest first; ties: lowest id */
    double p;   /* unnormalised probability: e^((logit - greatest) / heat) */
    float logit;
    int32_t id;
};

struct candidates {
    struct candidate *c;
    int32_t n;   /* number of candidates left */
    bool sorted; /* by logit, greatest first */
    double heat; /* product of the temperatures applied so far */
};

/* Adds a candidate if there are fewer than `most`. Otherwise replaces the worst
 * candidate, c[0], if the new one is better. The caller calls candidates_sort
 * after the last one. */
void candidates_offer(struct candidates *a, int32_t most,
                      const struct candidate *c);
void candidates_sort(struct candidates *a);

/* Divides the logits by the heat and sets the heat to 1, so that logits can be
 * changed. */
void candidates_settle(struct candidates *a);

/* Sets `p` of all candidates and returns their sum. */
double candidates_weigh(struct candidates *a);

void candidates_top_k(struct candidates *a, int32_t k);
/* Keeps the fewest of the likeliest candidates whose probabilities add up to at
 * least `mass`. */
void candidates_top_p(struct candidates *a, double mass);
/* Keeps the candidates with at least `share` times the probability of the best
 * one. */
void candidates_min_p(struct candidates *a, double share);
/* Keeps the candidates whose surprise -ln p is nearest to the entropy, until
 * their probabilities add up to at least `mass`. */
void candidates_typical(struct candidates *a, double mass);
/* Keeps the candidates whose logit is at most n standard deviations of all
 * logits below the best one. */
void candidates_top_n_sigma(struct candidates *a, double n);
/* If two or more candidates have at least the probability `threshold`, drops
 * all of these except the least likely one. */
void candidates_xtc(struct candidates *a, double threshold);
/* Applies a temperature. 0 keeps only the best candidate. */
void candidates_heat(struct candidates *a, double temperature);
/* Applies a temperature from `temperature` - `range`, at least 0, to
 * `temperature` + `range`. It rises with (entropy / greatest possible entropy)
 * ^ `exponent`. */
void candidates_dynamic_heat(struct candidates *a, double temperature,
                             double range, double exponent);

/* Draws a candidate by the random number u in [0, 1) and returns its id. Sets
 * *p, unless p is NULL, to its probability among the candidates left. */
int32_t candidates_draw(struct candidates *a, double u, double *p);

#endif
