/* Candidates for the next token, and the filters that drop some of them.
 *
 * Candidates are ordered by logit, and by id if logits are equal, so that no
 * result depends on how a sort treats equal logits. No filter sorts more
 * candidates than it keeps: they form a heap, and the filter removes the best
 * one from it until it has enough. Sums are computed in the order of the array,
 * which is the same on all machines, so their bits are the same, too. Every
 * filter keeps at least one candidate. "Heat" is the temperature. */
#ifndef SAMPLING_CANDIDATES_H
#define SAMPLING_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

struct candidate {
    /* Order in a heap: candidates with the greatest key first, of equal keys
     * the lowest id. */
    double key;
    /* Probability before division by the sum: e^((logit - greatest logit) /
     * heat). */
    double p;
    float logit;
    int32_t id;
};

struct candidates {
    struct candidate *c;
    int32_t n;   /* number of candidates that no filter dropped */
    bool sorted; /* c[] is ordered by logit, greatest first */
    double heat; /* product of the temperatures applied so far */
};

/* Adds a candidate if there are fewer than `most`. Otherwise replaces the worst
 * candidate, which is c[0], if the new one is better. After the last candidate
 * the caller must call candidates_sort. */
void candidates_offer(struct candidates *a, int32_t most,
                      const struct candidate *c);
void candidates_sort(struct candidates *a);

/* Divides all logits by the temperature applied so far and sets `heat` to 1, so
 * that penalties can be subtracted from the logits. */
void candidates_settle(struct candidates *a);

/* Sets p of all candidates from their logits and the temperature. Returns the
 * sum of all p. */
double candidates_weigh(struct candidates *a);

void candidates_top_k(struct candidates *a, int32_t k);
/* Keeps the most likely candidates: as few as have a sum of probabilities of at
 * least `mass`. */
void candidates_top_p(struct candidates *a, double mass);
/* Keeps the candidates whose probability is at least `share` times that of the
 * most likely one. */
void candidates_min_p(struct candidates *a, double share);
/* Locally typical sampling: keeps the candidates whose surprise -ln p is
 * nearest to the entropy, as few as have a sum of probabilities of at least
 * `mass`. */
void candidates_typical(struct candidates *a, double mass);
/* Keeps the candidates whose logit is at most n standard deviations below the
 * greatest logit. The deviation is that of all candidates' logits. */
void candidates_top_n_sigma(struct candidates *a, double n);
/* Drops all candidates with a probability of at least `threshold`, except the
 * least likely one of these. */
void candidates_xtc(struct candidates *a, double threshold);
/* Multiplies the temperature applied so far by `temperature`. If it is 0, keeps
 * only the best candidate. */
void candidates_heat(struct candidates *a, double temperature);
/* Applies a temperature that depends on the entropy of the candidates. It rises
 * from `temperature` - `range`, but at least 0, to `temperature` + `range`,
 * with (entropy / greatest possible entropy) ^ `exponent`. */
void candidates_dynamic_heat(struct candidates *a, double temperature,
                             double range, double exponent);

/* Draws a candidate by its probability, with the random number u in [0, 1), and
 * returns its id. Sets *p to its probability among the candidates left, unless
 * p is NULL. */
int32_t candidates_draw(struct candidates *a, double u, double *p);

#endif
