/* The parts of plait bench: what is measured (cmd_bench.c), how (bench_run.c),
 * generation with drafts (bench_drafts.c), the upper bound (bench_roofline.c),
 * and the output formats (bench_print.c, bench_svg.c).
 *
 * A *test* computes a prompt of n_prompt tokens, generates n_gen tokens one by
 * one, or does both. It does so in n_seq sequences at once, each with n_depth
 * tokens already in the cache. A *configuration* is a model under one choice of
 * all options. The result is a row for each configuration and test: a JSON
 * object, from which all output formats are generated. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "drafts.h"
#include "options.h"
#include "pl_graph.h"
#include "session.h"

#include <jansson.h>

struct bench_test {
    /* numbers of tokens of the prompt and of the generation; one of them is 0,
     * unless -pg gave both */
    int n_prompt, n_gen;
    int n_depth, n_seq;
    int seq0; /* index of the test's first sequence; tests of different depths
                 use different sequences */
};

/* A text that grows; the user pointer of a pl_write_fn. */
struct bench_text {
    char *s; /* owned, NUL-terminated; NULL while empty */
    size_t n;
    bool failed; /* true if memory ran out while text was appended */
};
void bench_text_add(void *text, const char *s, size_t n);
/* Parses the text as JSON and empties it. Returns a value that the caller
 * releases, or NULL if the text is not JSON. */
json_t *bench_text_json(struct bench_text *text);

/* Return the value of `key` in the object `o`; 0 or "" if absent. */
double bench_number(const json_t *o, const char *key);
const char *bench_word(const json_t *o, const char *key);

/* ---- bench_roofline.c ---------------------------------------------------- */

/* The data that a step of a model reads, and the operations it executes. */
struct bench_model {
    const char *name; /* name of the file, in UTF-8, or of the shape;
                         borrowed */
    char type[64];    /* family and most frequent format: "qwen3 Q8_0" */
    double bytes;     /* size in bytes of all weights of the model */
    double n_param;
    /* fraction of the model's experts that one token uses; 1 without experts */
    double used;
    int n_expert;
    double weight[2]; /* weight[0]: bytes of the weights that every step reads;
                         weight[1]: bytes of the weights of all experts */
    /* Multiply-adds per token with weights that are quantized (int8), 16-bit
     * floats (half) and 32-bit floats (flt). Index 0 is for weights that every
     * token uses, 1 for those of all experts, and 2 for the output matrix, per
     * row of logits. */
    double int8[3], half[3], flt[3];
    /* Number of values in the recurrent states of a sequence. A step reads and
     * writes all of them. */
    double state;
    /* Sums over layers whose attention has the same window. */
    struct bench_memory {
        double window; /* window in tokens; 0 for all tokens */
        /* bytes that one token takes in the caches of these layers */
        double cache;
        /* Multiply-adds of attention in these layers for each pair of a token
         * and an earlier token that it attends to. */
        double attention;
    } memory[PL_MAX_POOL];
    int n_memory;
};

/* Fills `m` from the output of pl_inspect and of the plan. Returns false if out
 * of memory. */
bool bench_model_read(struct bench_model *m, const char *name, json_t *inspect,
                      json_t *plan);
/* The bytes that a test must read and the operations that it must execute. A
 * multiply-add counts as two operations. */
struct bench_work {
    double read_bytes, int8_ops, float_ops, bf16_ops;
};
struct bench_work bench_work(const struct bench_model *m,
                             const struct bench_test *t, pl_numerics numerics);
/* Returns the least time in seconds that the work takes on a machine with these
 * limits. */
double bench_roofline_s(const struct bench_work *w, const pl_limits *l);

/* ---- bench_run.c --------------------------------------------------------- */

/* Fractions of a device's time in a test: computing; waiting for other devices
 * and reducing their values; copying between groups. */
struct bench_share {
    double compute, wait, copy;
};

/* A test that generates a text without drafts and with them. */
struct bench_drafted {
    double *seconds; /* [n_round], owned: of runs with drafts */
    int32_t *token;  /* [n_seq][stride], owned: tokens of the texts, with those
                        that precede the generated ones */
    int64_t stride;
    uint64_t hash; /* of the generated tokens and their logits */
    /* Sums over the rounds, as in pl_draft_counters. */
    uint64_t n_token, n_accepted;
    uint64_t drafted_at[PL_DRAFT_MAX], accepted_at[PL_DRAFT_MAX];
};

struct bench_config {
    /* the command's options; each option that was given several values has one
     * of them here */
    struct options o;
    /* Options and values of this configuration that have no column of their own
     * in the output: "-ub 128 -ctk q8_0". */
    char varied[200];
    struct session s;
    json_t *plan; /* the plan as JSON (pl_plan_print), owned */
    /* [n_test][n_round], owned: seconds that each run of a test took */
    double *seconds;
    /* [n_test][n_round], owned: the machine's limits, the mean of measurements
     * before and after each run */
    pl_limits *limits;
    int n_dev; /* number of devices, including the host */
    /* [n_test][n_dev], owned: how each device spent its time in a test */
    struct bench_share *share;
    /* Sources of drafts, all NULL without --spec-type. */
    struct draft_sources drafts;
    bool drafting;                 /* the run in progress has drafts */
    struct bench_drafted *drafted; /* [n_test], owned; NULL without drafts */
    /* [n_seq], owned: 1 + index of the test whose text a sequence begins with,
     * and the same of the drafter's; 0 for none */
    int *held, *held_drafts;
};

/* State shared by all configurations. */
struct bench_set {
    const struct options *o;
    const struct bench_test *test;
    int n_test;
    int n_seq;     /* number of sequences that all tests together use */
    int64_t n_ctx; /* number of tokens that these sequences take in the cache */
    struct term_progress progress;
    pl_meter *meter; /* measures the limits of the machine; owned; NULL with
                        --no-limits */
    /* the latest limits that `meter` measured, and the best so far */
    pl_limits now, best;
    /* end of the latest measurement, in seconds by term_seconds */
    double measured;
};

/* Checks that the configuration's model, whose session is open, can be measured
 * by these tests. */
enum exit_code bench_check(const struct bench_config *c,
                           const struct bench_set *b);
/* Opens the engine of a configuration whose session is open. The engine appends
 * its trace to *trace unless NULL. */
enum exit_code bench_open(struct bench_config *c, const struct bench_set *b,
                          struct bench_text *trace);
/* Fills the sequences of each test to its depth, and runs each test once, with
 * at most 8 generated tokens. */
enum exit_code bench_warm(struct bench_config *c, const struct bench_set *b);
/* Runs a test once, generating at most `most` tokens per sequence. Sets
 * *seconds to the time that it took. */
enum exit_code bench_time(struct bench_config *c, const struct bench_test *t,
                          int most, double *seconds);
/* Opens the engine again with a trace, runs each test, computes c->share from
 * the trace, and closes the engine. */
enum exit_code bench_trace(struct bench_config *c, const struct bench_set *b);

/* ---- bench_drafts.c; no effect without --spec-type ----------------------- */

/* Creates the drafter of a configuration whose session is open. It must exist
 * before the engine, whose options bench_connect_drafts sets. */
enum exit_code bench_open_drafts(struct bench_config *c,
                                 const struct bench_set *b);
void bench_connect_drafts(struct bench_config *c, const struct bench_set *b);
/* Frees the drafter, and the results of all tests. */
void bench_close_drafts(struct bench_config *c, const struct bench_set *b);
/* Returns true if a test is run with drafts, too. */
bool bench_has_drafts(const struct bench_config *c, const struct bench_test *t);
/* Runs each such test once without drafts and once with them. Fails if the
 * texts or their logits differ. */
enum exit_code bench_warm_drafts(struct bench_config *c,
                                 const struct bench_set *b);
/* Runs test i once without drafts, which takes *seconds, and once with them,
 * whose time is stored for this round. Fails if the texts differ. */
enum exit_code bench_time_drafts(struct bench_config *c,
                                 const struct bench_set *b, int i, int round,
                                 double *seconds);

/* ---- bench_print.c, bench_svg.c ------------------------------------------ */

/* Returns the row of test `i`: its times, its work, and the upper bound of its
 * speed under the limits measured around each run. With `drafts`, returns the
 * row of its runs with drafts. Returns NULL if out of memory. */
json_t *bench_row(const struct bench_config *c, const struct bench_set *b,
                  int i, const struct bench_model *m, bool drafts);
/* Prints the rows. `best` contains the best limits measured during the
 * benchmark; NULL if limits were not requested. */
enum exit_code bench_print(const struct options *o, json_t *rows,
                           const pl_limits *best);
/* A column of a Markdown table. A column whose text is empty in all rows is
 * omitted. */
enum { BENCH_CELL = 200 };
/* Writes the text of a row's cell to buf[BENCH_CELL]. `key` is that of the
 * column. */
typedef void bench_cell(char *buf, const json_t *row, const char *key);
struct bench_column {
    const char *title;
    bench_cell *cell;
    const char *key; /* of the value in a row; NULL if `cell` takes several */
    bool right;      /* the column is right-aligned */
};
/* Write the row's value of `key`: a text, a whole number, and a number with two
 * decimals below 10, one below 1000, else none, or "-" if it is null. */
bench_cell bench_cell_text, bench_cell_count, bench_cell_figure;
void bench_print_table(const struct bench_column *columns, int n, json_t *rows);
/* Prints the rows in the format o->form, which must be JSON, JSON Lines, CSV or
 * SQL. */
void bench_print_data(const struct options *o, json_t *rows);
enum exit_code bench_draw(const struct options *o, json_t *rows);

#endif
