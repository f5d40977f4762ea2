/* Instructions that one launch does: the groups that are planned for a program,
 * what the sizes of a step change, and equal values. */
#include "lib/program_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/gpu/gpu_device.h"
#include "device/gpu/gpu_fuse.h"
#include "device/gpu/gpu_launch.h"

/* ---- plans --------------------------------------------------------------- */

enum { MOST = 8 };

/* Plans the fusion of a program with these tensors and n instructions, for few
 * rows or for any number. */
static void plan_for(bool few, const char *tensors, const char *insns, int n,
                     struct gpu_fused *out)
{
    struct arena a = {0};
    const struct program *p;
    char text[4000];

    assert_true(n <= MOST);
    snprintf(text, sizeof text,
             "programs 1\nmax n_tok 3 n_slot 128 n_seq 1 page_stride 2\n"
             "device 0 events 1\n%svariant\n%s",
             tensors, insns);
    p = build_text(&a, text, 1);
    assert_int_equal(p->variant->n_insn, n);
    memset(out, 0, (size_t)n * sizeof *out);
    gpu_fuse_plan(out, p, p->variant, few);
    arena_fini(&a);
}

static void plan(const char *tensors, const char *insns, int n,
                 struct gpu_fused *out)
{
    plan_for(false, tensors, insns, n, out);
}

/* Checks the groups of n instructions, by the index of their first one. */
static void groups_for(bool few, const char *tensors, const char *insns, int n,
                       const int *want)
{
    struct gpu_fused f[MOST];

    plan_for(few, tensors, insns, n, f);
    for (int i = 0; i < n; i++)
        if (f[i].group != want[i])
            fail_msg("instruction %d is in group %d, not %d, of\n%s%s", i,
                     f[i].group, want[i], tensors, insns);
}
static void groups_are(const char *tensors, const char *insns, int n,
                       const int *want)
{
    groups_for(false, tensors, insns, n, want);
}
#define FEW_GROUPS(tensors, insns, ...)                                        \
    groups_for(true, tensors, insns,                                           \
               sizeof((int[]){__VA_ARGS__}) / sizeof(int),                     \
               (int[]){__VA_ARGS__})
#define GROUPS(tensors, insns, ...)                                            \
    groups_are(tensors, insns, sizeof((int[]){__VA_ARGS__}) / sizeof(int),     \
               (int[]){__VA_ARGS__})

TEST(gpu_fuse_joins_matrices_of_the_same_rows)
{
    GROUPS("  %0: f32[n_tok, 64]\n"
           "  %1: f32[n_tok, 64] q8\n"
           "  %2: q8_0[64, 64] weights packed\n"
           "  %3: q8_0[32, 64] weights packed\n"
           "  %4: q4_0[32, 64] weights packed\n"
           "  %5: f32[n_tok, 64]\n"
           "  %6: f32[n_tok, 32]\n"
           "  %7: f32[n_tok, 32]\n"
           "  %8: f32[n_tok, 32]\n"
           "  %9: f32[n_tok, 32]\n"
           "  %10: f32[n_tok, 64] q8\n"
           "  %11: f32[n_tok, 32]\n",
           "  0: %5 = matmul(%0, %2, %1)\n"
           "  0: %6 = matmul(%0, %3, %1)\n"
           "  0: %7 = matmul(%0, %3, %1)\n"
           /* more than a launch takes, another format, other rows */
           "  0: %8 = matmul(%0, %3, %1)\n"
           "  0: %9 = matmul(%0, %4, %1)\n"
           "  0: %11 = matmul(%0, %4, %10)\n",
           0, 0, 0, 3, 4, 5);
}

/* Ranks whose sums are kept apart have as many results in each matrix. */
TEST(gpu_fuse_joins_matrices_of_the_same_ranks)
{
    static const char tensors[] = "  %0: f32[n_tok, 64]\n"
                                  "  %1: f32[16, 64] weights\n"
                                  "  %2: f32[n_tok, 16] work @4096\n"
                                  "  %3: f32[n_tok, 16] work @8192\n";

    GROUPS(tensors,
           "  0: %2 = matmul(%0, %1, -) tree(0, 1) spans(0+32{0}, 32+32{1})"
           " stride 512\n"
           "  0: %3 = matmul(%0, %1, -) tree(0, 1) spans(0+32{0}, 32+32{1})"
           " stride 512\n",
           0, 0);
    GROUPS(tensors,
           "  0: %2 = matmul(%0, %1, -) tree(0, 1) spans(0+32{0}, 32+32{1})"
           " stride 512\n"
           "  0: %3 = matmul(%0, %1, -) tree(0, 1) spans(0+16{0}, 16+48{1})"
           " stride 512\n",
           0, 1);
    /* partial sums on a stack */
    GROUPS(tensors,
           "  0: %2 = matmul(%0, %1, -) tree(0, 1+) spans(0+32{0}, 32+32{1})\n"
           "  0: %3 = matmul(%0, %1, -) tree(0, 1+) spans(0+32{0}, 32+32{1})\n",
           0, 1);
}

static const char sums[] = "  %0: f32[n_tok, 64]\n"
                           "  %1: f32[n_tok, 64] q8\n"
                           "  %2: q8_0[64, 64] weights packed\n"
                           "  %3: f32[n_tok, 64]\n"
                           "  %4: f32[n_tok, 64]\n"
                           "  %5: f32[64] work\n"
                           "  %6: f32[n_tok, 64]\n"
                           "  %7: f32[n_tok, 64]\n";

/* Sums join if they add to a row, but not to what other groups write or
 * read. */
TEST(gpu_fuse_joins_matrices_with_sums)
{
    static const struct {
        const char *sum;
        int group;
    } of[] = {{"%6 = add(%3, %5)", 0}, {"%6 = add(%4, %5)", 0},
              {"%6 = sub(%3, %5)", 2}, {"%6 = add(%3, %4)", 2},
              {"%6 = add(%3, %3)", 2}, {"%6 = add(%3, %7)", 2},
              {"%4 = add(%3, %5)", 2}, {"%3 = add(%3, %5)", 2},
              {"%0 = add(%3, %5)", 2}, {"%5 = add(%3, %5)", 2}};
    char insns[300];

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(insns, sizeof insns,
                 "  0: %%3 = matmul(%%0, %%2, %%1)\n"
                 "  0: %%4 = matmul(%%0, %%2, %%1)\n"
                 "  0: %s\n",
                 of[i].sum);
        GROUPS(sums, insns, 0, 0, of[i].group);
    }
}

/* Rows of two tables belong to the matrices to whose results they are added. */
TEST(gpu_fuse_joins_experts_with_their_rows)
{
    static const char tensors[] = "  %0: f32[n_tok, 1, 64]\n"
                                  "  %1: f32[3, 32, 64] weights packed\n"
                                  "  %2: i32[n_tok, 2]\n"
                                  "  %3: f32[3, 32] weights\n"
                                  "  %4: f32[n_tok, 2, 32]\n"
                                  "  %5: f32[n_tok, 2, 32]\n"
                                  "  %6: f32[n_tok, 2, 32]\n"
                                  "  %7: f32[n_tok, 2, 32]\n"
                                  "  %8: f32[n_tok, 2, 32]\n"
                                  "  %9: f32[n_tok, 2, 32]\n"
                                  "  %10: i32[n_tok, 2]\n";

    GROUPS(tensors,
           "  0: %4 = expert_matmul(%0, %1, %2, -)\n"
           "  0: %5 = expert_matmul(%0, %1, %2, -)\n"
           "  0: %6 = gather_rows(%3, %2)\n"
           "  0: %7 = add(%4, %6)\n"
           "  0: %8 = gather_rows(%3, %2)\n"
           "  0: %9 = add(%5, %8)\n",
           0, 0, 0, 0, 0, 0);
    /* other ids; then rows that are added to something else */
    GROUPS(tensors,
           "  0: %4 = expert_matmul(%0, %1, %2, -)\n"
           "  0: %6 = gather_rows(%3, %10)\n"
           "  0: %7 = add(%4, %6)\n",
           0, 1, 2);
    GROUPS(tensors,
           "  0: %4 = expert_matmul(%0, %1, %2, -)\n"
           "  0: %6 = gather_rows(%3, %2)\n"
           "  0: %7 = add(%5, %6)\n",
           0, 1, 2);
}

static const char norms[] = "  %0: f32[n_tok, 64] work @0\n"
                            "  %1: f32[n_tok, 64] work @768\n"
                            "  %2: f32[n_tok, 64] work @1536\n"
                            "  %3: f32[n_tok, 64] work @2304\n"
                            "  %4: f32[n_tok, 64] work @3072 q8\n"
                            "  %5: f32[n_tok, 64] work @3072\n"
                            "  %6: f32[n_tok, 64] work @3840\n"
                            "  %7: f32[n_tok, 64] work @768 q8\n"
                            "  %8: f32[n_tok, 64] work @800\n";

/* Blocks may lie over what the group accesses; the step decides. */
TEST(gpu_fuse_joins_norms_with_sums_and_blocks)
{
    struct gpu_fused f[3];

    for (int over = 0; over < 2; over++) {
        plan(norms,
             over ? "  0: %2 = add(%0, %1)\n"
                    "  0: %3 = rms_norm(%2, -)\n"
                    "  0: %7 = quantize(%3)\n"
                  : "  0: %2 = add(%0, %1)\n"
                    "  0: %3 = rms_norm(%2, -)\n"
                    "  0: %4 = quantize(%3)\n",
             3, f);
        assert_true(f[1].group == 0 && f[2].group == 0);
        assert_true(!f[1].is_over && f[2].is_over == (over > 0));
    }
    /* operands that are broadcast */
    GROUPS("  %0: f32[n_tok, 64]\n  %1: f32[64]\n"
           "  %2: f32[n_tok, 64]\n  %3: f32[n_tok, 64]\n",
           "  0: %2 = add(%0, %1)\n"
           "  0: %3 = rms_norm(%2, -)\n",
           0, 1);
}

TEST(gpu_fuse_joins_values_with_products_and_blocks)
{
    static const char tensors[] = "  %0: f32[n_tok, 2, 64]\n"
                                  "  %1: f32[n_tok, 2, 64]\n"
                                  "  %2: f32[n_tok, 2, 64]\n"
                                  "  %3: f32[n_tok, 2, 1]\n"
                                  "  %4: f32[n_tok, 2, 64]\n"
                                  "  %5: f32[n_tok, 2, 64] q8\n"
                                  "  %6: f32[1]\n"
                                  "  %7: f32[64]\n";

    GROUPS(tensors,
           "  0: %2 = swiglu(%0, %1)\n"
           "  0: %4 = mul(%2, %3)\n"
           "  0: %5 = quantize(%4)\n",
           0, 0, 0);
    GROUPS(tensors,
           "  0: %2 = swiglu(%0, %1)\n"
           "  0: %4 = mul(%2, %6)\n",
           0, 0);
    /* a factor for each column; then values from before the product */
    GROUPS(tensors,
           "  0: %2 = swiglu(%0, %1)\n"
           "  0: %4 = mul(%2, %7)\n",
           0, 1);
    GROUPS(tensors,
           "  0: %2 = swiglu(%0, %1)\n"
           "  0: %4 = mul(%2, %3)\n"
           "  0: %5 = quantize(%2)\n",
           0, 0, 2);
}

/* An instruction moves before those that are independent of it, and no
 * others. */
TEST(gpu_fuse_keeps_what_is_read_and_written_between)
{
    static const struct {
        const char *between;
        int group; /* of the blocks */
    } of[] = {{"%6 = scale(%2)", 0},
              {"%6 = scale(%3)", 0}, /* reads what both read */
              {"%5 = scale(%2)", 2}, /* writes where the blocks are written */
              {"%6 = scale(%5)", 2}, /* reads what the blocks overwrite */
              {"%3 = scale(%2)", 2}, /* writes the values to quantize */
              {"%8 = scale(%2)", 0}, /* writes what the norm has read */
              {"%3 = sub(%2, %2)", 1}};
    char insns[200];

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(insns, sizeof insns,
                 "  0: %%3 = rms_norm(%%1, -)\n"
                 "  0: %s\n"
                 "  0: %%4 = quantize(%%3)\n",
                 of[i].between);
        GROUPS(norms, insns, 0, 1, of[i].group);
    }
    /* an instruction that has joined the group is done before, not between */
    GROUPS(norms,
           "  0: %2 = add(%0, %1)\n"
           "  0: %6 = scale(%0)\n"
           "  0: %3 = rms_norm(%2, -)\n"
           "  0: %4 = quantize(%3)\n",
           0, 1, 0, 0);
}

TEST(gpu_fuse_keeps_queues_events_and_predicates_apart)
{
    static const struct {
        const char *between, *blocks;
        int group;
    } of[] = {{"0: post 0", "0: %4 = quantize(%3)", 2},
              {"0 copy: post 0", "0: %4 = quantize(%3)", 0},
              {"0 copy: post 0", "0 copy: %4 = quantize(%3)", 2},
              {"0: post 0", "0 if n_tok 1..2: %4 = quantize(%3)", 2},
              {"0 copy: post 0", "0 if n_tok 1..2: %4 = quantize(%3)", 2}};
    char insns[200];

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(insns, sizeof insns,
                 "  0: %%3 = rms_norm(%%1, -)\n  %s\n  %s\n", of[i].between,
                 of[i].blocks);
        GROUPS(norms, insns, 0, 1, of[i].group);
    }
}

/* Groups run in any order, so none may read what another writes. */
TEST(gpu_fuse_keeps_groups_apart)
{
    /* the second product overwrites what the first reads, then its result */
    GROUPS(sums,
           "  0: %3 = matmul(%0, %2, %1)\n"
           "  0: %0 = matmul(%0, %2, %1)\n",
           0, 1);
    GROUPS(sums,
           "  0: %3 = matmul(%0, %2, %1)\n"
           "  0: %3 = matmul(%0, %2, %1)\n",
           0, 1);
    /* values that lie across the result */
    GROUPS(norms,
           "  0: %1 = rms_norm(%0, -)\n"
           "  0: %3 = rms_norm(%8, -)\n",
           0, 1);
}

/* Norms of two kinds of heads and their ropes, as in a layer. */
TEST(gpu_fuse_joins_norms_of_heads_with_turns)
{
    static const struct {
        /* offsets of the results: of the second norm, and of the two ropes */
        int norm, turn, other, group[4];
    } of[] = {
        /* a result lies over what the first norm reads */
        {0, 16384, 20480, {0, 1, 0, 1}},
        /* a result lies over what the second norm reads */
        {12288, 4096, 20480, {0, 0, 2, 2}},
        {12288, 16384, 0, {0, 0, 0, 3}},
        {12288, 16384, 20480, {0, 0, 0, 0}},
    };
    char tensors[500];

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(tensors, sizeof tensors,
                 "  %%0: f32[n_tok, 6, 32] work @0\n"
                 "  %%1: f32[n_tok, 3, 32] work @4096\n"
                 "  %%2: f32[n_tok, 6, 32] work @8192\n"
                 "  %%3: f32[n_tok, 3, 32] work @%d\n"
                 "  %%4: f32[n_tok, 6, 32] work @%d\n"
                 "  %%5: f32[n_tok, 3, 32] work @%d\n"
                 "  %%6: i32[n_tok] work @24576\n",
                 of[i].norm, of[i].turn, of[i].other);
        groups_are(tensors,
                   "  0: %2 = rms_norm(%0, -)\n"
                   "  0: %3 = rms_norm(%1, -)\n"
                   "  0: %4 = rope(%2, %6, -) n_rot=32\n"
                   "  0: %5 = rope(%3, %6, -) n_rot=32\n",
                   4, of[i].group);
    }
    /* heads that are rotated in another way */
    GROUPS(tensors,
           "  0: %2 = rms_norm(%0, -)\n"
           "  0: %3 = rms_norm(%1, -)\n"
           "  0: %4 = rope(%2, %6, -) n_rot=32\n"
           "  0: %5 = rope(%3, %6, -) n_rot=16\n",
           0, 0, 0, 3);
}

/* Heads with RoPE, and heads without, are written to caches in one launch. */
TEST(gpu_fuse_joins_turns_with_caches)
{
    static const struct {
        int keys, values; /* offsets of the caches */
        const char *x;    /* source of the second one */
        int group[4];
    } of[] = {
        {32768, 65536, "%4", {0, 0, 0, 0}},
        /* a cache lies over the source of other heads */
        {0, 65536, "%4", {0, 0, 2, 2}},
        {32768, 4096, "%4", {0, 0, 0, 3}},
        /* the second cache's source is the result of RoPE, too */
        {32768, 65536, "%2", {0, 0, 0, 3}},
    };
    char tensors[500], insns[300];

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(tensors, sizeof tensors,
                 "  %%0: f32[n_tok, 1, 32] work @0\n"
                 "  %%1: f32[n_tok, 1, 32] work @4096\n"
                 "  %%2: f32[n_tok, 1, 32] work @8192\n"
                 "  %%3: f32[n_tok, 1, 32] work @12288\n"
                 "  %%4: f32[n_tok, 1, 32] work @16384\n"
                 "  %%5: i32[n_tok] work @20480\n"
                 "  %%6: i32[8] work @24576\n"
                 "  %%7: f16[n_slot, 1, 32] work @%d\n"
                 "  %%8: f16[n_slot, 1, 32] work @%d\n",
                 of[i].keys, of[i].values);
        snprintf(insns, sizeof insns,
                 "  0: %%2 = rope(%%0, %%5, -) n_rot=32\n"
                 "  0: %%3 = rope(%%1, %%5, -) n_rot=32\n"
                 "  0: %%7 = cache_write(%%3, %%6)\n"
                 "  0: %%8 = cache_write(%s, %%6) values=1\n",
                 of[i].x);
        groups_are(tensors, insns, 4, of[i].group);
    }
}

TEST(gpu_fuse_joins_choices_with_their_weights)
{
    static const struct {
        const char *weights;
        int group;
    } of[] = {{"%3 = router_weights(%0, %2)", 0},
              /* weights of experts chosen from other logits */
              {"%3 = router_weights(%1, %2)", 1},
              /* the weights overwrite logits of other rows */
              {"%4 = router_weights(%0, %2)", 1}};
    char insns[200];

    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        snprintf(insns, sizeof insns,
                 "  0: %%2 = router_topk(%%0, -) n_used=2\n  0: %s\n",
                 of[i].weights);
        GROUPS("  %0: f32[n_tok, 8] work @0\n"
               "  %1: f32[n_tok, 8] work @256\n"
               "  %2: i32[n_tok, 2] work @512\n"
               "  %3: f32[n_tok, 2] work @768\n"
               "  %4: f32[n_tok, 2] work @0\n",
               insns, 0, of[i].group);
    }
}

/* Attention quantizes its result, whatever its shape. */
TEST(gpu_fuse_joins_attention_with_blocks)
{
    static const char tensors[] = "  %0: f32[n_tok, 64] work @0\n"
                                  "  %1: f32[n_tok, 2, 32] work @4096\n"
                                  "  %2: f16[n_slot, 1, 32] cache\n"
                                  "  %3: i32[8] work @8192\n"
                                  "  %4: f32[n_tok, 2, 32] work @12288\n"
                                  "  %5: f32[n_tok, 64] work @12288\n"
                                  "  %6: f32[n_tok, 64] work @16384 q8\n";

    GROUPS(tensors,
           "  0: %4 = attention(%1, %2, %2, -, %3) heads(0, 0)\n"
           "  0: %6 = quantize(%5)\n",
           0, 0);
    GROUPS(tensors,
           "  0: %4 = attention(%1, %2, %2, -, %3) heads(0, 0)\n"
           "  0: %6 = quantize(%0)\n",
           0, 1);
}

/* A norm of what is added to a product, and its blocks: the last work group
 * goes on with them. The product may be either operand. The norm may
 * lie over the product's activations, but not the sum, which all groups write.
 * In a plan for any number of rows the sum keeps its own launch. */
TEST(gpu_fuse_lets_the_last_work_group_go_on)
{
    static const char down[] = "  %0: f32[n_tok, 64]\n"
                               "  %1: f32[64, 64] weights\n"
                               "  %2: f32[n_tok, 64]\n"
                               "  %3: f32[n_tok, 64]\n"
                               "  %4: f32[n_tok, 64]\n"
                               "  %5: f32[n_tok, 64]\n"
                               "  %6: f32[n_tok, 64] q8\n";

    FEW_GROUPS(down,
               "  0: %3 = matmul(%0, %1, -)\n"
               "  0: %4 = add(%3, %2)\n"
               "  0: %5 = rms_norm(%4, -)\n"
               "  0: %6 = quantize(%5)\n",
               0, 0, 0, 0);
    FEW_GROUPS(down,
               "  0: %3 = matmul(%0, %1, -)\n"
               "  0: %2 = add(%2, %3)\n"
               "  0: %5 = rms_norm(%2, -)\n",
               0, 0, 0);
    FEW_GROUPS(down,
               "  0: %3 = matmul(%0, %1, -)\n"
               "  0: %0 = add(%3, %2)\n"
               "  0: %5 = rms_norm(%0, -)\n",
               0, 1, 1);
    FEW_GROUPS(down,
               "  0: %3 = matmul(%0, %1, -)\n"
               "  0: %4 = add(%3, %2)\n"
               "  0: %0 = rms_norm(%4, -)\n",
               0, 0, 0);
    GROUPS(down,
           "  0: %3 = matmul(%0, %1, -)\n"
           "  0: %4 = add(%3, %2)\n"
           "  0: %5 = rms_norm(%4, -)\n"
           "  0: %6 = quantize(%5)\n",
           0, 1, 1, 1);
}

/* A bias is added before the residual sum, and before the values of two
 * matrices are computed. */
TEST(gpu_fuse_lets_the_last_work_group_go_on_after_biases)
{
    static const char tensors[] = "  %0: f32[n_tok, 64]\n"
                                  "  %1: f32[64, 64] weights\n"
                                  "  %2: f32[64] work\n"
                                  "  %3: f32[n_tok, 64]\n"
                                  "  %4: f32[n_tok, 64]\n"
                                  "  %5: f32[n_tok, 64]\n"
                                  "  %6: f32[n_tok, 64]\n"
                                  "  %7: f32[n_tok, 64]\n"
                                  "  %8: f32[n_tok, 64] q8\n";

    FEW_GROUPS(tensors,
               "  0: %3 = matmul(%0, %1, -)\n"
               "  0: %4 = add(%3, %2)\n"
               "  0: %6 = add(%5, %4)\n"
               "  0: %7 = rms_norm(%6, -)\n"
               "  0: %8 = quantize(%7)\n",
               0, 0, 0, 0, 0);
    FEW_GROUPS(tensors,
               "  0: %3 = matmul(%0, %1, -)\n"
               "  0: %4 = matmul(%0, %1, -)\n"
               "  0: %5 = add(%3, %2)\n"
               "  0: %6 = add(%4, %2)\n"
               "  0: %7 = swiglu_oai(%5, %6)\n"
               "  0: %8 = quantize(%7)\n",
               0, 0, 0, 0, 0, 0);
    /* a sum that the launch does not give */
    FEW_GROUPS(tensors,
               "  0: %4 = add(%3, %2)\n"
               "  0: %6 = add(%5, %4)\n",
               0, 1);
}

/* The last work group of a router chooses the experts and computes their
 * weights, with a bias or without. */
TEST(gpu_fuse_lets_the_last_work_group_choose)
{
    static const char tensors[] = "  %0: f32[n_tok, 64]\n"
                                  "  %1: f32[8, 64] weights\n"
                                  "  %2: f32[n_tok, 8]\n"
                                  "  %3: f32[8] work\n"
                                  "  %4: f32[n_tok, 8]\n"
                                  "  %5: i32[n_tok, 2]\n"
                                  "  %6: f32[n_tok, 2]\n"
                                  "  %7: i32[n_tok, 2]\n"
                                  "  %8: f32[8, 64] weights packed\n";
    static const char plain[] = "  0: %2 = matmul(%0, %1, -)\n"
                                "  0: %5 = router_topk(%2, -) n_used=2\n"
                                "  0: %6 = router_weights(%2, %5)\n";

    FEW_GROUPS(tensors, plain, 0, 0, 0);
    GROUPS(tensors, plain, 0, 1, 1);
    FEW_GROUPS(tensors,
               "  0: %2 = matmul(%0, %1, -)\n"
               "  0: %4 = add(%2, %3)\n"
               "  0: %5 = router_topk(%4, -) n_used=2\n"
               "  0: %6 = router_weights(%4, %5)\n",
               0, 0, 0, 0);
    /* other logits, then other experts */
    FEW_GROUPS(tensors,
               "  0: %2 = matmul(%0, %1, -)\n"
               "  0: %5 = router_topk(%4, -) n_used=2\n",
               0, 1);
    FEW_GROUPS(tensors,
               "  0: %2 = matmul(%0, %1, -)\n"
               "  0: %5 = router_topk(%2, -) n_used=2\n"
               "  0: %6 = router_weights(%2, %7)\n",
               0, 0, 2);
}

/* A choice is executed with its router, before the instructions in between. So
 * none of these may have something in the scratch memory that it uses. */
TEST(gpu_fuse_keeps_scratch_between_router_and_choice)
{
    for (int scratch = 0; scratch < 2; scratch++) {
        struct gpu_fused f[3] = {0};
        struct arena a = {0};
        const struct program *p =
            build_text(&a,
                       "programs 1\n"
                       "max n_tok 3\n"
                       "device 0\n"
                       "  %0: f32[n_tok, 64]\n"
                       "  %1: f32[8, 64] weights\n"
                       "  %2: f32[n_tok, 8]\n"
                       "  %3: f32[n_tok, 8]\n"
                       "  %4: i32[n_tok, 2]\n"
                       "variant\n"
                       "  0: %2 = matmul(%0, %1, -)\n"
                       "  0: %3 = scale(%3)\n"
                       "  0: %4 = router_topk(%2, -) n_used=2\n",
                       1);

        f[1].has_scratch = scratch;
        gpu_fuse_plan(f, p, p->variant, true);
        assert_int_equal(f[2].group, scratch ? 2 : 0);
        arena_fini(&a);
    }
}

/* ---- launches ------------------------------------------------------------ */

/* Returns true if one launch can do both, in a list of these two. */
static bool folds(enum gpu_rewrite r, enum gpu_kernel first, const void *a,
                  enum gpu_kernel second, const void *b, bool alone)
{
    struct launch_list l = {0};
    unsigned parts = 0;
    bool folded;

    gpu_list_add(&l, first, 4, a);
    gpu_list_add(&l, second, 2, b);
    folded = gpu_fuse_launches(&l, 0, r, alone, 0x1000, 0, &parts);
    assert_false(l.no_memory);
    assert_int_equal(l.n, folded ? 1 : 2);
    assert_true(parts == (folded ? 1U << r : 0));
    gpu_list_free(&l);
    return folded;
}

/* A norm that lies over the activations is written by the last work group of
 * all rows, not of a block of them. The last group's work needs counters. */
TEST(gpu_fuse_has_the_last_group_write_over_activations)
{
    struct contract_args matrix = {
        .n = 64,
        .n_slice = 4,
        .tail = {.sum = 0x2000},
        .more = {{.first = CONTRACT_NO_MORE}, {.first = CONTRACT_NO_MORE}}};
    const struct rms_norm_args norm = {.x = 0x2000, .d = 64};

    for (int i = 0; i < 8; i++) {
        bool alone = i & 1, blocks = i & 2, counts = i & 4;
        unsigned parts = 1U << REWRITE_RESIDUAL;
        struct launch_list l = {0};

        gpu_list_add(&l, GPU_matvec_q8_0, blocks ? 8 : 4, &matrix);
        gpu_list_add(&l, GPU_rms_norm, 1, &norm);
        assert_true(gpu_fuse_launches(&l, 0, REWRITE_LAST_NORM, alone, 0x1000,
                                      counts ? 0x3000 : 0, &parts) ==
                    (counts && !(alone && blocks)));
        gpu_list_free(&l);
    }
}

/* Units of columns go on apart, so what is quantized together must be in one:
 * blocks of 32 values, or parts of one span that begin where units do. */
TEST(gpu_fuse_quantizes_units_of_columns)
{
    static const struct {
        int32_t k, n_span, n_part;
        bool folds;
    } row[] = {{96, 0, 0, true},
               {512, 1, 2, true},
               {512, 1, 3, false},
               {512, 2, 2, false},
               {96, 1, 1, false}};

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct contract_args matrix = {
            .tail = {.kind = TAIL_VALUES,
                     .last.values = {.made = 0x2000, .k = row[i].k}}};
        const struct quantize_args blocks = {.x = 0x2000,
                                             .k = row[i].k,
                                             .n_span = row[i].n_span,
                                             .n_part = row[i].n_part,
                                             .whole = 1};
        unsigned parts = 1U << REWRITE_MATRICES | 1U << REWRITE_LAST_VALUES;
        struct launch_list l = {0};

        gpu_list_add(&l, GPU_matvec_q8_0, 4, &matrix);
        gpu_list_add(&l, GPU_quantize, 1, &blocks);
        assert_true(gpu_fuse_launches(&l, 0, REWRITE_LAST_PARTS, false, 0x1000,
                                      0x3000, &parts) == row[i].folds);
        gpu_list_free(&l);
    }
}

/* The last work group of a KV head quantizes its heads' columns, so the parts
 * of a row must be among these. */
TEST(gpu_fuse_quantizes_columns_of_heads)
{
    static const struct {
        int32_t heads, per_kv, n_span, n_part;
        bool counts, folds;
    } row[] = {{4, 4, 1, 2, true, true},  {4, 4, 1, 2, false, false},
               {2, 2, 1, 2, true, false}, {2, 2, 0, 0, true, true},
               {4, 4, 1, 3, true, false}, {4, 4, 2, 2, true, false},
               {4, 6, 1, 2, true, false}};

    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const struct attend_args attend = {
            .n_head = 8,
            .e = 64,
            .heads = row[i].heads,
            .per_kv = row[i].per_kv,
            .tail = {.count = row[i].counts ? 0x3000 : 0}};
        const struct quantize_args blocks = {.k = 512,
                                             .n_span = row[i].n_span,
                                             .n_part = row[i].n_part,
                                             .whole = 1};

        assert_true(folds(REWRITE_ATTEND_BLOCKS, GPU_attend_8, &attend,
                          GPU_quantize, &blocks, false) == row[i].folds);
    }
}

/* The numbers of tokens, of softmax states and of work groups, and the kernel
 * for many rows. */
TEST(gpu_fuse_keeps_launches_that_sizes_forbid)
{
    struct attend_merge_args merge = {.e = 32, .n_head = 2};
    struct contract_args matrix = {
        .out = 0x1000,
        .more = {{.first = CONTRACT_NO_MORE}, {.first = CONTRACT_NO_MORE}}};
    struct rms_norm_args norm = {.d = 64};

    for (int over = 0; over < 2; over++) {
        struct rope_args rope = {.d = 32, .n_tok = CACHE_TOKENS + over};
        struct cache_write_args w = {.x = 0x1000, .n_tok = rope.n_tok};
        struct quantize_args q = {
            .k = 64, .n_row = 1, .n_span = 1, .n_part = 2, .whole = 1};
        enum gpu_kernel k = over ? GPU_matmul_q8_0 : GPU_matvec_q8_0;

        merge.n_state = PART_STATES + over;
        assert_true(folds(REWRITE_ROPE_WRITE, GPU_rope, &rope, GPU_cache_write,
                          &w, false) == !over);
        assert_true(folds(REWRITE_ATTEND_BLOCKS, GPU_attend_merge, &merge,
                          GPU_quantize, &q, false) == !over);
        assert_true(folds(REWRITE_MATRICES, k, &matrix, k, &matrix, false) ==
                    !over);
        assert_true(folds(REWRITE_NORM_BLOCKS, GPU_rms_norm, &norm,
                          GPU_quantize, &q, over) == !over);
    }
}

/* Rows that are quantized in part, a second bias, another gating. */
TEST(gpu_fuse_keeps_launches_that_kernels_cannot_do)
{
    struct binary_args sum = {.y = 0x2000, .n = 64, .out = 0x3000};

    for (int other = 0; other < 2; other++) {
        struct attend_merge_args merge = {.e = 32, .n_head = 2, .n_state = 1};
        struct quantize_args q = {.k = 64, .n_span = 1, .whole = !other};
        struct contract_args matrix = {
            .out = 0x1000,
            .bias = {.from = other ? 0x4000 : 0},
            .more = {{.first = CONTRACT_NO_MORE}, {.first = CONTRACT_NO_MORE}}};
        struct router_topk_args choice = {.gating = 0};
        struct router_weights_args weights = {.gating = other};

        q.n_row = q.n_part = 1;
        assert_true(folds(REWRITE_ATTEND_BLOCKS, GPU_attend_merge, &merge,
                          GPU_quantize, &q, false) == !other);
        assert_true(folds(REWRITE_VALUES_BLOCKS, GPU_binary, &sum, GPU_quantize,
                          &q, false) == !other);
        assert_true(folds(REWRITE_MATRIX_SUM, GPU_matvec_q8_0, &matrix,
                          GPU_binary, &sum, false) == !other);
        assert_true(folds(REWRITE_CHOICE_WEIGHTS, GPU_router_topk, &choice,
                          GPU_router_weights, &weights, false) == !other);
    }
}

/* ---- programs ------------------------------------------------------------ */

enum { TOK = 3, WIDE = 64, N_OUT = TOK * WIDE, VALUES = 10 };

/* Values %0 to %5 overlap in pairs. The blocks %13 lie over rows of %9, whose
 * first values are %14. */
static const char head[] = "programs 1\n"
                           "max n_tok 3\n"
                           "device 0\n"
                           "  %0: f32[n_tok, 64] work @0\n"
                           "  %1: f32[n_tok, 64] work @512\n"
                           "  %2: f32[n_tok, 64] work @2048\n"
                           "  %3: f32[n_tok, 64] work @2560\n"
                           "  %4: f32[n_tok, 64] work @4096\n"
                           "  %5: f32[n_tok, 64] work @4608\n"
                           "  %6: f32[n_tok, 64] work @6144\n"
                           "  %7: f32[n_tok, 64] work @8192\n"
                           "  %8: f32[n_tok, 64] work @10240\n"
                           "  %9: f32[n_tok, 64] work @12288\n"
                           "  %10: f32[64, 64] weights packed\n"
                           "  %11: q8_0[64, 64] weights packed\n"
                           "  %12: f32[64] weights\n"
                           "  %13: f32[n_tok, 64] work @12544 q8\n"
                           "  %14: f32[n_tok, 1] work @12288\n"
                           "variant\n";

/* Runs a program on a GPU, whose values must have the CPU's bits. Returns its
 * number of launches in a step of n_tok tokens. */
static int launches(const char *insns, int64_t n_tok)
{
    struct arena a = {0};
    struct device_run run = build_run(n_tok);
    float x[VALUES][N_OUT], w[WIDE * WIDE], out[2][VALUES][N_OUT];
    char text[3000];
    uint64_t seed = 5;
    struct cpu_kernels plain;
    int n = 0;

    cpu_kernels_init(&plain, KERNEL_SET_GENERIC);
    for (int i = 0; i < VALUES * N_OUT; i++)
        x[i / N_OUT][i % N_OUT] = test_unit(&seed);
    for (int i = 0; i < WIDE * WIDE; i++)
        w[i] = test_unit(&seed);
    snprintf(text, sizeof text, "%s%s", head, insns);
    for (int k = 0; k < 2; k++) {
        struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC,
                                     .kernels = &plain};
        struct device_set *s = build_set_as(k ? "emu" : "cpu", 1, &opt);

        LOAD_OK(s, build_text(&a, text, 1));
        for (int i = 0; i < VALUES; i++)
            build_put(s, 0, i, x[i], N_OUT);
        build_put(s, 0, 10, w, WIDE * WIDE);
        build_put(s, 0, 12, w, WIDE);
        for (int i = 0; i < 3; i++)
            RUN_OK(s, &run);
        for (int i = 0; i < VALUES; i++)
            build_get(s, 0, i, out[k][i], N_OUT);
        if (k)
            n = ((const struct gpu_device *)device_of(s, 0)->own)->image.list.n;
        device_set_free(s);
    }
    for (int i = 0; i < VALUES * N_OUT; i++) {
        float c = out[0][i / N_OUT][i % N_OUT],
              g = out[1][i / N_OUT][i % N_OUT];

        if (memcmp(&c, &g, sizeof c) != 0 && (c == c || g == g))
            fail_msg("%%%d has %g, not %g, in steps of %d tokens of\n%s",
                     i / N_OUT, (double)g, (double)c, (int)n_tok, insns);
    }
    arena_fini(&a);
    return n;
}

TEST(gpu_programs_have_fewer_launches_and_the_same_values)
{
    assert_int_equal(launches("  0: %7 = add(%0, %2)\n"
                              "  0: %4 = rms_norm(%7, -) eps=1e-5\n"
                              "  0: %8 = matmul(%4, %10, -)\n"
                              "  0: %9 = matmul(%4, %10, -)\n"
                              "  0: %6 = add(%9, %12)\n",
                              3),
                     2);
    /* blocks over an operand of the sum, in steps of one row and of several */
    for (int n = 1; n <= 2; n++)
        assert_int_equal(launches("  0: %7 = add(%0, %9)\n"
                                  "  0: %4 = rms_norm(%7, -) eps=1e-5\n"
                                  "  0: %13 = quantize(%4)\n",
                                  n),
                         n);
    /* blocks over the sum, in steps of one row apart from it */
    for (int n = 1; n <= TOK; n += 2)
        assert_int_equal(launches("  0: %9 = add(%0, %7)\n"
                                  "  0: %4 = rms_norm(%9, -) eps=1e-5\n"
                                  "  0: %13 = quantize(%4)\n",
                                  n),
                         n == 1 ? 1 : 2);
    /* the second product overwrites what the blocks read, which are done before
     * the first one or, in steps of several rows, after it */
    for (int n = 1; n <= TOK; n += 2)
        assert_int_equal(launches("  0: %7 = add(%0, %9)\n"
                                  "  0: %8 = matmul(%2, %10, -)\n"
                                  "  0: %4 = rms_norm(%7, -) eps=1e-5\n"
                                  "  0: %13 = quantize(%4)\n"
                                  "  0: %4 = matmul(%2, %10, -)\n",
                                  n),
                         n == 1 ? 2 : 4);
    /* an operand of both products is computed again in between */
    assert_int_equal(launches("  0: %7 = matmul(%0, %10, -)\n"
                              "  0: %0 = scale(%0) scale=2\n"
                              "  0: %8 = matmul(%0, %10, -)\n",
                              3),
                     3);
    /* an instruction in between reads what the second product overwrites */
    assert_int_equal(launches("  0: %7 = matmul(%0, %10, -)\n"
                              "  0: %4 = scale(%8) scale=2\n"
                              "  0: %8 = matmul(%0, %10, -)\n",
                              3),
                     3);
    assert_int_equal(launches("  0: %7 = matmul(%0, %10, -)\n"
                              "  0: %4 = scale(%2) scale=2\n"
                              "  0: %8 = matmul(%0, %10, -)\n",
                              3),
                     2);
}

/* The weights of the norm come into the inbox after the sum, others in each
 * step. */
TEST(gpu_fuse_moves_nothing_before_the_bytes_of_the_inbox)
{
    struct device_options opt = {.kernel_set = KERNEL_SET_GENERIC};
    struct device_set *s = build_set_as("cpu*1,emu", 1, &opt);
    struct device_run run = build_run(1);
    struct arena a = {0};
    float x[WIDE], w[WIDE], out[2][WIDE];

    LOAD_OK(s, build_text(&a,
                          "programs 2\nmax n_tok 1\n"
                          "device 0\n"
                          "  %0: f32[64]\n"
                          "device 1\n"
                          "  %0: f32[64] inbox\n"
                          "  %1: f32[n_tok, 64]\n"
                          "  %2: f32[n_tok, 64]\n"
                          "  %3: f32[n_tok, 64]\n"
                          "variant\n"
                          "  0: push 1.%0 <- %0 256\n"
                          "  0: post 0\n"
                          "  1: wait 0.0\n"
                          "  1: %2 = add(%1, %1)\n"
                          "  1: %3 = rms_norm(%2, %0) eps=1e-5\n",
                          2));
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < WIDE; i++) {
            x[i] = (float)i;
            w[i] = (float)(k + 1);
        }
        build_put(s, 0, 0, w, WIDE);
        build_put(s, 1, 1, x, WIDE);
        RUN_OK(s, &run);
        build_get(s, 1, 3, out[k], WIDE);
    }
    for (int i = 0; i < WIDE; i++)
        assert_true(out[1][i] == 2 * out[0][i]);
    device_set_free(s);
    arena_fini(&a);
}

static bool is_over(int a, int b)
{
    return a == b || (a < 6 && b < 6 && a / 2 == b / 2);
}

/* Draws a value that is not over `out`, mostly `last`. */
static int draw(uint64_t *rng, int out, int last)
{
    int i = last;

    if (test_below(rng, 3) == 0)
        i = (int)test_below(rng, VALUES);
    while (i < 0 || is_over(i, out))
        i = (int)test_below(rng, VALUES);
    return i;
}

/* Appends an instruction to the text. Returns the value that it computes. */
static int add_insn(char *text, size_t max, uint64_t *rng, int last)
{
    static const char *const of[] = {"%%%d = add(%%%d, %%%d)",
                                     "%%%d = swiglu(%%%d, %%%d)",
                                     "%%%d = mul(%%%d, %%14)",
                                     "%%%d = rms_norm(%%%d, -) eps=1e-5",
                                     "%%%d = matmul(%%%d, %%10, -)",
                                     "%%%d = add(%%%d, %%12)",
                                     "%%%d = rms_norm(%%%d, %%12) eps=1e-5"};
    size_t n = strlen(text), kind = (size_t)test_below(rng, 9);
    int out = (int)test_below(rng, 9), x = draw(rng, out, last);

    n += (size_t)snprintf(text + n, max - n, "  0: ");
    if (kind >= sizeof of / sizeof *of) {
        snprintf(text + n, max - n, "%%13 = quantize(%%%d)\n", x);
        return last;
    }
    n += (size_t)snprintf(text + n, max - n, of[kind], out, x,
                          draw(rng, out, -1));
    snprintf(text + n, max - n, "\n");
    return out;
}

TEST(gpu_fusion_keeps_the_values_of_any_program)
{
    enum { PROGRAMS = 100, INSNS = 10 };
    uint64_t rng = test_seed();
    int n_insn = 0, n_launch = 0;

    for (int i = 0; i < PROGRAMS; i++) {
        char insns[1000] = "";
        int last = -1;

        for (int k = 0; k < INSNS; k++)
            last = add_insn(insns, sizeof insns, &rng, last);
        n_launch += launches(insns, i % 2 ? 1 : TOK);
        n_insn += INSNS;
    }
    if (n_launch > n_insn * 19 / 20)
        fail_msg("%d instructions are %d launches", n_insn, n_launch);
}
