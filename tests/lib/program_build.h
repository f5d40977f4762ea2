/* Programs written by hand, for tests of devices: as text, or tensors and steps
 * appended one by one. Arrays are of fixed size; asserts say when they are too
 * small.
 *
 * Kernels here are toys that make mistakes visible: `reverse` reads what other
 * threads wrote, so a missing meeting shows. */
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
    struct graph_attr attr[BUILD_INSN]; /* of kernels, by step */
    struct dead_range death[BUILD_DEATH];
};

/* [n] programs for n devices at most n_tok tokens; freed with free(). */
struct build *build_new(int n, int64_t n_tok);
/* The programs of all, as device_set_load wants them; freed with free(). Steps
 * get places in a total order, one that waits and meetings allow if there is
 * one; who meets without saying whom meets all. */
struct program *build_programs(struct build *b, int n);

/* A float tensor [n_tok, width] of the work region; its index. */
int build_tensor(struct build *b, int64_t width);
int build_mail(struct build *b, int64_t width); /* of the inbox */
struct insn *build_insn(struct build *b, enum insn_kind kind);
/* A kernel of one operand; c is its attr.scale. */
struct insn *build_op(struct build *b, enum kernel kernel, int out, int in,
                      float c);
void build_post(struct build *b, enum queue q, int event);
void build_wait(struct build *b, enum queue q, int dev, int event);
void build_death(struct build *b, int tensor); /* after the last step */
/* Of one piece; of one item. */
struct insn *build_pull(struct build *b, int out,
                        const struct copy_desc *piece);
struct insn *build_merge(struct build *b, const struct merge_item *item);

/* The programs of a text (program_text.h), n of them; they live in the arena.
 * What small and fixed programs are written in. */
struct program *build_text(struct arena *a, const char *text, int n);
/* Floats of a tensor of a loaded program, from its start. */
void build_put(struct device_set *s, int dev, int tensor, const float *v,
               int64_t n);
void build_get(struct device_set *s, int dev, int tensor, float *v, int64_t n);

pl_dim build_const(int64_t n);
pl_dim build_per_tok(int64_t n); /* n * n_tok */

/* All n_tok rows of `bytes` bytes, from rows of src_row at src_off to rows of
 * dst_row at dst_off. */
struct copy_desc build_rows(int dev, int src, int64_t src_off, int64_t src_row,
                            int64_t dst_off, int64_t dst_row, int64_t bytes);

/* A set of devices with toy kernels: scale (in * attr.scale), add, contiguous
 * as `reverse`: out[i] = in[n - 1 - i] + attr.scale, and cast as `who`: row t
 * of out gets token t's position, sequence and page, then zeros. Quantizing is
 * the library's; there is no tanh. */
struct device_set *build_set(const char *spec, int n_thread, uint64_t seed);

/* The same with other options, whose kernels stay if they have some. */
struct device_set *build_set_as(const char *spec, int n_thread,
                                const struct device_options *opt);

struct device_set *build_set_of(const struct device_list *l,
                                const struct device_options *opt);

/* Devices that have all kernels and threads of their own, for program_check;
 * dev[n] is borrowed. */
struct program_machine build_machine(const struct program_device *dev, int n);

struct cpu_kernels *build_toys(void); /* until the next call */

/* The host as the list's last device; pinned: to the cores of all cpus. */
void build_add_host(struct device_list *l, int n_thread, bool pinned);

/* Creates a set and loads it with programs, the n-th allocation failing, for
 * n = 1, 2, ... until none does. */
void build_survives(const struct device_list *l,
                    const struct device_options *opt, const struct program *p);

/* What `b` says into the token table that `tensor` is. */
void build_put_token_table(struct device_set *s, int dev, int tensor,
                           const struct token_table *b, int64_t n_seq);

struct device_run build_run(int64_t n_tok);

/* For what must work; a failure is reported where it stands. */
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

/* out[n] = the tree over addends: the left part takes the largest power of two
 * below the count. */
void build_tree_sum(float *out, float *const *addend, int n_addend, int64_t n);
/* n_add of each addend for that tree; returns the depth of the stack. */
int build_tree(struct merge_addend *a, int n);

#endif
