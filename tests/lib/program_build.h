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
    struct variant variant; /* its only one */
    struct prog_tensor tensor[BUILD_TENSOR];
    struct insn insn[BUILD_INSN];
    struct graph_attr attr[BUILD_INSN]; /* of kernels, by instruction */
    struct dead_range death[BUILD_DEATH];
};

/* Returns [n] programs for n devices with at most n_tok tokens; freed with
 * free(). */
struct build *build_new(int n, int64_t n_tok);
/* Returns the programs of all devices for device_set_load; freed with free().
 * Instructions get a total order, one that waits and barriers allow if
 * possible. A barrier that names no peers is of all devices. */
struct program *build_programs(struct build *b, int n);

/* Adds a float tensor [n_tok, width] of the work region; returns its index. */
int build_tensor(struct build *b, int64_t width);
int build_mail(struct build *b, int64_t width); /* in the inbox */
struct insn *build_insn(struct build *b, enum insn_kind kind);
/* Appends a kernel of one operand; c is its attr.scale. */
struct insn *build_op(struct build *b, enum kernel kernel, int out, int in,
                      float c);
void build_post(struct build *b, enum queue q, int event);
void build_wait(struct build *b, enum queue q, int dev, int event);
void build_death(struct build *b, int tensor); /* after the last instruction */
/* These have one copy descriptor, or one item. */
struct insn *build_pull(struct build *b, int out,
                        const struct copy_desc *piece);
struct insn *build_merge(struct build *b, const struct merge_item *item);

/* Parses n programs from a text (program_text.h); they live in the arena. Small
 * and fixed programs are written this way. */
struct program *build_text(struct arena *a, const char *text, int n);
/* Writes the floats of a tensor of a loaded program, from its start. */
void build_put(struct device_set *s, int dev, int tensor, const float *v,
               int64_t n);
void build_get(struct device_set *s, int dev, int tensor, float *v, int64_t n);

pl_dim build_const(int64_t n);
pl_dim build_per_tok(int64_t n); /* n * n_tok */

/* Describes all n_tok rows of `bytes` bytes, from rows of src_row at src_off to
 * rows of dst_row at dst_off. */
struct copy_desc build_rows(int dev, int src, int64_t src_off, int64_t src_row,
                            int64_t dst_off, int64_t dst_row, int64_t bytes);

/* Opens a set of devices with toy kernels: scale (in * attr.scale), add,
 * contiguous as `reverse`: out[i] = in[n - 1 - i] + attr.scale, and cast as
 * `who`: row t of out gets token t's position, sequence and page, then zeros.
 * Quantizing is the library's; tanh is missing. */
struct device_set *build_set(const char *spec, int n_thread, uint64_t seed);

/* Opens such a set with other options; kernels set there are kept. */
struct device_set *build_set_as(const char *spec, int n_thread,
                                const struct device_options *opt);

struct device_set *build_set_of(const struct device_list *l,
                                const struct device_options *opt);

/* Devices with all kernels and their own threads, for program_check; dev[n] is
 * borrowed. */
struct program_machine build_machine(const struct program_device *dev, int n);

struct cpu_kernels *build_toys(void); /* valid until the next call */

/* Adds the host as the list's last device; pinned: to the cores of all cpus. */
void build_add_host(struct device_list *l, int n_thread, bool pinned);

/* Creates a set and loads it with programs while the n-th allocation fails, for
 * n = 1, 2, ... until none does. */
void build_survives(const struct device_list *l,
                    const struct device_options *opt, const struct program *p);

/* Writes the values of `b` into the token table `tensor`. */
void build_put_token_table(struct device_set *s, int dev, int tensor,
                           const struct token_table *b, int64_t n_seq);

struct device_run build_run(int64_t n_tok);

/* For steps that must succeed; a failure is reported at the caller's line. */
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

/* Sums out[n] along the tree over addends: the left part has the largest power
 * of two below the count. */
void build_tree_sum(float *out, float *const *addend, int n_addend, int64_t n);
/* Sets n_add of each addend for that tree; returns the depth of the stack. */
int build_tree(struct merge_addend *a, int n);

#endif
