/* Decides how many drafted tokens a step computes.
 *
 * Each drafted token adds a row to the step. More rows take longer, and produce
 * more tokens if the drafts are likely. cost_choose() chooses the number of
 * rows with the most expected tokens a second. The times of steps are measured,
 * by the number of rows, while the program runs. A row whose time is not known
 * is assumed to cost 0.15 of the first one.
 *
 * A wrong decision costs time. So the time that drafts lost against plain steps
 * is added up. Drafts of unknown success are tried only while that sum is small
 * against the time of all steps. All numbers are integers. */
#ifndef DRAFT_COST_H
#define DRAFT_COST_H

#include "pl_draft.h"

/* A chance of 1. */
enum { CHANCE_ONE = 1 << 16 };
/* Ranges of numbers of rows that have a common time. */
enum { COST_BUCKETS = 16 };

struct draft_cost {
    /* Times of steps in nanoseconds, by number of rows: moving averages, 0
     * where none was measured. */
    int64_t ns[COST_BUCKETS];
    /* Nanoseconds of all steps, and those that drafts lost; negative if they
     * gained. */
    int64_t spent, lost;
};

/* A draft to choose the length of. */
struct cost_draft {
    int n;                 /* number of proposed tokens */
    const int32_t *chance; /* [n]: chance that a token is accepted if all before
                              it are */
    bool fixed;            /* all n tokens are taken while rows last */
    int take;              /* result: number of tokens to draft */
    int64_t reach;         /* chance that the taken tokens are accepted */
};

/* Returns the expected time of a step in nanoseconds; never 0. */
int64_t cost_ns(const struct draft_cost *c, int64_t rows);
/* A step for `texts` texts. */
struct cost_step {
    int64_t texts, rows;
    /* Rows of drafted tokens, and rows that are there only because earlier
     * drafts were rejected. */
    int64_t drafted, again;
    int64_t accepted; /* drafted tokens that were accepted */
};

/* Records a step that took `ns` nanoseconds. */
void cost_measure(struct draft_cost *c, const struct cost_step *s, int64_t ns);
/* Returns true if drafts of unknown success may be tried: earlier ones have not
 * lost too much time. */
bool cost_may_try(const struct draft_cost *c);
/* Chooses the lengths d[i].take of the drafts of n texts, at most `most` tokens
 * together, for a step with `rows` other rows. A text may have an empty
 * draft. */
void cost_choose(const struct draft_cost *c, struct cost_draft *d, int n,
                 int64_t rows, int64_t most);

#endif
