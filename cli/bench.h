/* plait bench in parts: what is measured (cmd_bench.c), how (bench_run.c), what
 * would be the most (bench_roofline.c), and the forms of what comes out
 * (bench_print.c, bench_svg.c).
 *
 * A *test* is a prompt of so many tokens, or so many generated one by one, in a
 * number of sequences, behind a number of tokens that are in the cache already.
 * A *configuration* is a model under one choice of all options. What comes out
 * is a row for each configuration and test: a JSON object, from which all forms
 * are made. */
#ifndef CLI_BENCH_H
#define CLI_BENCH_H

#include "options.h"
#include "pl_graph.h"
#include "session.h"

#include <jansson.h>

struct bench_test {
    int n_prompt, n_gen; /* one of them is 0 */
    int n_depth, n_seq;
    int seq0; /* the first of its sequences; those of other depths are others */
};

/* Text that grows; a pl_write_fn's user. */
struct bench_text {
    char *s; /* owned, terminated; NULL while empty */
    size_t n;
    bool failed; /* memory ran out */
};
void bench_text_add(void *text, const char *s, size_t n);
/* What it says as JSON, to be released; NULL if it is none. Empties it. */
json_t *bench_text_json(struct bench_text *text);

/* A value of an object; 0 or "" if there is none. */
double bench_number(const json_t *o, const char *key);
const char *bench_word(const json_t *o, const char *key);

/* ---- bench_roofline.c -------------------------------------------------------
 */

/* What a model has that must be read and multiplied. */
struct bench_model {
    const char *name; /* the file's, in UTF-8, or the shape's; borrowed */
    char type[64];    /* "qwen3 Q8_0": family, most frequent format */
    double bytes;     /* of all weights */
    double n_param;
    double used; /* experts used, of all; 1: there are none */
    int n_expert;
    double weight[2]; /* bytes that every step reads; of all experts */
    /* Multiply-adds of a token with quantized weights, with floats of 16 and of
     * 32 bits: with what every token needs, with all experts, for a row of
     * logits. */
    double int8[3], half[3], flt[3];
    /* Of layers whose attention sees as many tokens. */
    double state; /* values of a sequence's states, which each step reads and
                     writes */
    struct bench_memory {
        double window;    /* 0: all */
        double cache;     /* bytes of a token in the cache */
        double attention; /* multiply-adds of a token with one in the cache */
    } memory[PL_MAX_POOL];
    int n_memory;
};

/* From what pl_inspect and the plan say; false: no memory. */
bool bench_model_read(struct bench_model *m, const char *name, json_t *inspect,
                      json_t *plan);
/* What a test must do at least; a multiply-add counts as two operations. */
struct bench_work {
    double read_bytes, int8_ops, float_ops, bf16_ops;
};
struct bench_work bench_work(const struct bench_model *m,
                             const struct bench_test *t, pl_numerics numerics);
/* The least time that it takes under these limits, in seconds. */
double bench_roofline_s(const struct bench_work *w, const pl_limits *l);

/* ---- bench_run.c --------------------------------------------------------- */

/* Shares of the time of a run: computing, waiting for others (and adding what
 * they sent), copying between groups. */
struct bench_share {
    double compute, wait, copy;
};

struct bench_config {
    struct options o; /* with one value of each */
    char varied[200]; /* of what no column shows: "-ub 128 -ctk q8_0" */
    struct session s;
    json_t *plan;              /* owned */
    double *seconds;           /* [n_test][n_round], owned */
    pl_limits *limits;         /* [n_test][n_round], owned: around each run */
    int n_dev;                 /* devices, the host's too */
    struct bench_share *share; /* [n_test][n_dev], owned */
};

/* What all configurations have in common. */
struct bench_set {
    const struct options *o;
    const struct bench_test *test;
    int n_test;
    int n_seq;     /* sequences of all tests */
    int64_t n_ctx; /* and their tokens in the cache */
    struct term_progress progress;
    pl_meter *meter;     /* owned; NULL: --no-limits */
    pl_limits now, best; /* what it has measured last, and at best */
    double measured;     /* when, by term_seconds */
};

/* Opens the engine; a configuration's session is open. */
enum exit_code bench_open(struct bench_config *c, const struct bench_set *b,
                          struct bench_text *trace);
/* Fills caches and runs each test once. */
enum exit_code bench_warm(struct bench_config *c, const struct bench_set *b);
/* Runs a test once; n_gen at most `most`. */
enum exit_code bench_time(struct bench_config *c, const struct bench_test *t,
                          int most, double *seconds);
/* Opens the engine once more, with a trace, and finds c->share. */
enum exit_code bench_trace(struct bench_config *c, const struct bench_set *b);

/* ---- bench_print.c, bench_svg.c ------------------------------------------ */

/* A row: seconds[n_round] of test `i`, its work, and what the limits around
 * each of its runs make of that; NULL: no memory. */
json_t *bench_row(const struct bench_config *c, const struct bench_set *b,
                  int i, const struct bench_model *m);
/* `best`: the limits of the whole time; NULL: nobody asked for them. */
enum exit_code bench_print(const struct options *o, json_t *rows,
                           const pl_limits *best);
/* One column of a table in Markdown; one that is empty in all rows is left out.
 */
enum { BENCH_CELL = 200 };
struct bench_column {
    const char *title;
    void (*cell)(char *buf, const json_t *row); /* buf[BENCH_CELL] */
    bool right;                                 /* aligned so */
};
void bench_print_table(const struct bench_column *columns, int n, json_t *rows);
/* The keys of the first row that are no lists or objects. */
void bench_print_csv(json_t *rows);
/* "12.3", with no more than four digits; in a cell. */
void bench_figure(char *buf, double v);
enum exit_code bench_draw(const struct options *o, json_t *rows);

#endif
