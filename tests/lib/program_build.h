/* Programs written by hand for tests of devices: as text, or with tensors and
 * instructions appended one by one. Arrays have a fixed size; asserts report
 * when they are too small.
 *
 * The kernels are toys that make mistakes visible: `reverse` reads what other
 * threads wrote, so a missing barrier shows. */
#ifndef TEST_PROGRAM_BUILD_H
#define TEST_PROGRAM_BUILD_H

#include "device/cpu/cpu_kernel.h"
#include "device/device_inner.h"
#include "device/device_spec.h"
#include "lib/support.h"
#include "program/program_check.h"

enum { BUILD_TENSOR = 64, BUILD_INSN = 4096, BUILD_DEATH = 512 };

struct build {
    struct program p;
    struct variant variant; /* the only variant of the program */
    struct prog_tensor tensor[BUILD_TENSOR];
    struct insn insn[BUILD_INSN];
    /* attributes of the kernel instructions, by index of the instruction */
    struct graph_attr attr[BUILD_INSN];
    struct dead_range death[BUILD_DEATH];
};

/* Returns n programs for n devices with at most n_tok tokens. The caller calls
 * free(). */
struct build *build_new(int n, int64_t n_tok);
/* Returns the programs of all devices for device_set_load. The caller calls
 * free(). Gives the instructions a total order, one that waits and barriers
 * allow if there is any. A barrier that names no peers is one of all
 * devices. */
struct program *build_programs(struct build *b, int n);

/* Adds a float tensor [n_tok, width] of the work region; returns its index. */
int build_tensor(struct build *b, int64_t width);
/* Adds a float tensor [n_tok, width] of the inbox; returns its index. */
int build_mail(struct build *b, int64_t width);
struct insn *build_insn(struct build *b, enum insn_kind kind);
/* Appends a kernel instruction with one operand, the tensor `in`. `c` becomes
 * its attr.scale. */
struct insn *build_op(struct build *b, enum kernel kernel, int out, int in,
                      float c);
void build_post(struct build *b, enum queue q, int event);
void build_wait(struct build *b, enum queue q, int dev, int event);
/* notes that the tensor's memory is dead after the last instruction */
void build_death(struct build *b, int tensor);
/* Append a PULL with one copy descriptor, and a MERGE with one item. */
struct insn *build_pull(struct build *b, int out,
                        const struct copy_desc *piece);
struct insn *build_merge(struct build *b, const struct merge_item *item);

/* Parses n programs from text (program_text.h); they live in the arena. Tests
 * write small programs of fixed size as text. */
struct program *build_text(struct arena *a, const char *text, int n);
/* Writes n floats to a tensor of a loaded program, from the tensor's start;
 * build_get reads them. */
void build_put(struct device_set *s, int dev, int tensor, const float *v,
               int64_t n);
void build_get(struct device_set *s, int dev, int tensor, float *v, int64_t n);

pl_dim build_const(int64_t n);
pl_dim build_per_tok(int64_t n); /* returns the dimension n * n_tok */

/* Returns the descriptor of a copy of n_tok rows of `bytes` bytes each. In the
 * source they begin at src_off and are src_row bytes apart; in the destination
 * they begin at dst_off and are dst_row bytes apart. */
struct copy_desc build_rows(int dev, int src, int64_t src_off, int64_t src_row,
                            int64_t dst_off, int64_t dst_row, int64_t bytes);

/* Opens a set of devices with toy kernels. scale: in * attr.scale. add.
 * contiguous, called `reverse`: out[i] = in[n - 1 - i] + attr.scale. cast,
 * called `who`: row t of out gets position, sequence and page of token t, then
 * zeros. quantize is the library's; tanh is missing. */
struct device_set *build_set(const char *spec, int n_thread, uint64_t seed);

/* Opens a set of devices like build_set, with other options. If opt->kernels is
 * set, uses those kernels instead of the toys. */
struct device_set *build_set_as(const char *spec, int n_thread,
                                const struct device_options *opt);

struct device_set *build_set_of(const struct device_list *l,
                                const struct device_options *opt);

/* Returns a description of devices dev[n] (borrowed) for program_check: they
 * have all kernels, and threads of their own. */
struct program_machine build_machine(const struct program_device *dev, int n);

/* the toy kernels; valid until the next call */
struct cpu_kernels *build_toys(void);

/* Adds a host device as the last device of the list. `pinned`: its threads may
 * run on the cores of all cpu devices. */
void build_add_host(struct device_list *l, int n_thread, bool pinned);

/* Creates a set of devices and loads the programs into it while the n-th
 * allocation fails, for n = 1, 2, ... until no allocation fails. */
void build_survives(const struct device_list *l,
                    const struct device_options *opt, const struct program *p);

/* Writes the positions, sequences and pages in `b` to the tensor `tensor`, a
 * token table. */
void build_put_token_table(struct device_set *s, int dev, int tensor,
                           const struct token_table *b, int64_t n_seq);

struct device_run build_run(int64_t n_tok);

/* Runs a step that must succeed; otherwise fails the case at the line of the
 * macro. */
#define RUN_OK(s, run)                                                         \
    do {                                                                       \
        pl_err e_;                                                             \
        if (device_set_run(s, run, &e_) != PL_OK)                              \
            fail_msg("%s", e_.message);                                        \
    } while (0)
#define LOAD_OK(s, p)                                                          \
    do {                                                                       \
        pl_err e_;                                                             \
        if (device_set_load(s, p, &e_) != PL_OK)                               \
            fail_msg("%s", e_.message);                                        \
    } while (0)

/* Computes out[n] as the sum of n_addend addends, in the order of the summation
 * tree, whose left part has the largest power of two below the count. */
void build_tree_sum(float *out, float *const *addend, int n_addend, int64_t n);
/* Sets n_add of each of n addends for the summation tree of build_tree_sum.
 * Returns the depth of the stack of partial sums. */
int build_tree(struct merge_addend *a, int n);

#endif
