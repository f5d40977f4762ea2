/* Decides how many drafted tokens a step computes.
 *
 * Each drafted token adds a row to the step. More rows take longer, and produce
 * more tokens if the drafts are likely. cost_choose() chooses the number of
 * rows with the most expected tokens a second. The times of steps are measured,
 * by the number of rows, while the program runs. A row whose time is not known
 * is assumed to cost 0.15 of the first one.
 *
 * The tokens of a draft model are computed one after another, so each position
 * of the drafts adds a step of that model. Its times are measured, too.
 *
 * A wrong decision costs time. So the time that drafts lost against plain steps
 * is added up, with the time that it took to propose them. Drafts of unknown
 * success are tried only while that sum is small against the time of all steps.
 * All numbers are integers. */
#ifndef DRAFT_COST_H
#define DRAFT_COST_H

#include "pl_draft.h"

/* A chance of 1. */
enum { CHANCE_ONE = 1 << 16 };
/* Ranges of numbers of rows that have a common time. */
enum { COST_BUCKETS = 16 };

/* Times of steps in nanoseconds, by number of rows: moving averages, 0 where
 * none was measured. */
struct cost_times {
    int64_t ns[COST_BUCKETS];
};

struct draft_cost {
    struct cost_times step;
    /* Times of the searches for n-grams, by the number of texts. */
    struct cost_times search;
    /* Nanoseconds of all steps, and those that drafts lost; negative if they
     * gained. */
    int64_t spent, lost;
    int64_t since_plain; /* steps since the last one without drafts */
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
int64_t cost_ns(const struct cost_times *t, int64_t rows);
/* Returns true if the time of any step is known. */
bool cost_is_known(const struct cost_times *t);
/* Updates the times by a step that took `ns` nanoseconds. Returns the time that
 * counts: less than `ns` if the step took much longer than expected, because
 * other programs that run meanwhile make single steps many times as long, and 0
 * for the first step of all, because it takes longer than later ones. */
int64_t cost_add(struct cost_times *t, int64_t rows, int64_t ns);

/* A step for `texts` texts. */
struct cost_step {
    int64_t texts, rows;
    /* Rows of drafted tokens, and rows that are there only because earlier
     * drafts were rejected. */
    int64_t drafted, again;
    int64_t accepted; /* drafted tokens that were accepted */
    int64_t draft_ns; /* time that it took to propose the drafts */
};

/* Records a step that took `ns` nanoseconds, without draft_ns. */
void cost_measure(struct draft_cost *c, const struct cost_step *s, int64_t ns);
/* Returns true if drafts of unknown success may be tried: earlier ones have not
 * lost too much time, and the next step is not to measure a plain one. */
bool cost_may_try(const struct draft_cost *c);
/* Chooses the lengths d[i].take of the drafts of n texts, at most `most` tokens
 * together, for a step with `rows` other rows. A text may have an empty draft.
 * `model` has the times of the draft model that is still to compute the tokens;
 * it is NULL if they are there. */
void cost_choose(const struct draft_cost *c, const struct cost_times *model,
                 struct cost_draft *d, int n, int64_t rows, int64_t most);

#endif
