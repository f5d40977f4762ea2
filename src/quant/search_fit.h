/* The least-squares fit of one block, which all searches share; internal to
 * src/quant.
 *
 * A block's values are approximated by d * l + m, where each l is one of the
 * format's *levels*. Sums are of four partial sums each, in a fixed order, so
 * that results are the same on every machine. */
#ifndef QUANT_SEARCH_FIT_H
#define QUANT_SEARCH_FIT_H

#include <stdbool.h>
#include <stdint.h>

enum { LEVELS_BINS = 4 * 128 };

/* The levels of a format: all integers lo .. hi if n is 0, else level[n],
 * ascending integers from -128 to 127. */
struct levels {
    float lo, hi;
    int n;
    float level[16];
    uint8_t code[16]; /* the format's codes of level[n] */
    /* Index of the level that is nearest to a number t, by the integer part of
     * 2 (t + 128). The middle between two levels is a multiple of 1/2. */
    uint8_t nearest[LEVELS_BINS];
    /* Candidates for the scale are tried up to `below` of these units below the
     * scale at which the largest value has the outermost level, and up to
     * `above` units above it. */
    float unit, below, above;
    bool simple; /* no search: the largest value has the outermost level */
};

/* One block, with its weights. The number of values is a multiple of 4. */
struct quant_fit_block {
    const float *x, *w;
    int n;
};

struct quant_fit {
    float d, m;
    float error; /* sum of w (x - d l - m)^2 with the nearest levels */
};

enum quant_fit_min {
    FIT_NO_MIN,       /* m is 0 */
    FIT_NEGATIVE_MIN, /* m <= 0 */
    FIT_ANY_MIN,
};

/* Returns the error of d and m with the nearest level of each value. */
float quant_fit_error(const struct levels *v, const struct quant_fit_block *b,
                      float d, float m);

/* Weighted sums over a block, where l are the levels nearest to (x - m) / d. */
struct quant_fit_sums {
    float w, x, l, ll, xl;
};
void quant_fit_measure(const struct levels *v, const struct quant_fit_block *b,
                       float d, float m, struct quant_fit_sums *out);

/* Searches d and m of a block. */
struct quant_fit quant_fit_search(const struct levels *v,
                                  const struct quant_fit_block *b,
                                  enum quant_fit_min min);

/* Writes the index of the level nearest to (x - m) / d of each value: the level
 * minus lo, or its index in the table. */
void quant_fit_codes(const struct levels *v, const struct quant_fit_block *b,
                     float d, float m, uint8_t *code);

/* Sets the table levels of `v` to n ascending numbers. */
void quant_fit_table(struct levels *v, const float *level, int n);

/* Rounds to the nearest finite F16. */
float quant_fit_half(float x);

#endif
