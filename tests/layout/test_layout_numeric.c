/* Numeric plans as text: a graph gives the expected layouts and conversions.
 *
 * The text has one line a node, `name: layout = op(operands)`. A value's later
 * versions, made by conversions, have primes. Leaves that all ranks hold are
 * left out. In blocks of models, a layer of experts has two collectives,
 * however its experts are written. */
#include "base/err.h"
#include "layout/numeric.h"
#include "lib/alloc_fail.h"
#include "lib/random_graph.h"
#include "lib/random_layout.h"
#include "lib/support.h"
#include "plan/roles.h"

#include "quant/format.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct planned_text {
    pl_graph *g;
    struct numeric *p;
    struct arena arena; /* memory of the leaves' layouts */
};

static pl_status make(struct planned_text *t, const char *graph, int n_rank,
                      const double *share, pl_err *err)
{
    double equal[PL_MAX_RANKS];
    const pl_layout **leaf;
    pl_status s;

    memset(t, 0, sizeof *t);
    for (int r = 0; r < PL_MAX_RANKS; r++)
        equal[r] = 1;
    PL_TRY(pl_graph_parse(&t->g, graph, err));
    leaf = malloc(((size_t)t->g->n_node + 1) * sizeof *leaf);
    if (!leaf)
        return err_no_memory(err, "a test");
    s = roles_layouts(t->g, n_rank, share ? share : equal, &t->arena, leaf,
                      err);
    if (s == PL_OK)
        s = numeric_create(&t->p, t->g, n_rank, leaf, err);
    free(leaf);
    return s;
}

static void drop(struct planned_text *t)
{
    numeric_free(t->p);
    arena_fini(&t->arena);
    pl_graph_free(t->g);
}

static void plan(struct planned_text *t, const char *graph, int n_rank,
                 const double *share)
{
    pl_err err;

    TEST_OK(make(t, graph, n_rank, share, &err), err);
}

/* Writes "x''" for the third version of x. */
static int put_label(char *buf, size_t size, const struct numeric *p, int i)
{
    int n = snprintf(buf, size, "%s", p->g->node[p->node[i].node].name);

    for (int k = 0; k < i; k++)
        if (p->node[k].node == p->node[i].node)
            n += snprintf(buf + n, size - (size_t)n, "'");
    return n;
}

static void put_plan(char *buf, size_t size, const struct numeric *p)
{
    size_t n = 0;

    buf[0] = '\0';
    for (int i = 0; i < p->n; i++) {
        const struct num_node *x = &p->node[i];
        const struct op_info *op = op_info(p->g->node[x->node].op);
        char l[512];

        if (x->kind == NUM_OP && !op->dims && x->layout->kind != PL_SPLIT)
            continue;
        n += (size_t)put_label(buf + n, size - n, p, i);
        n += (size_t)snprintf(buf + n, size - n, ": %s",
                              layout_print(x->layout, l, sizeof l));
        if (x->n_in > 0)
            n += (size_t)snprintf(buf + n, size - n, " = %s",
                                  x->kind == NUM_OP ? op->name
                                                    : num_kind_name(x->kind));
        for (int k = 0; k < x->n_in; k++) {
            n += (size_t)snprintf(buf + n, size - n, "%s", k ? ", " : "(");
            if (x->in[k] >= 0)
                n += (size_t)put_label(buf + n, size - n, p, x->in[k]);
        }
        n += (size_t)snprintf(buf + n, size - n, x->n_in > 0 ? ")\n" : "\n");
        assert_true(n < size);
    }
}

static const struct {
    int n_rank;
    const char *graph, *plan;
} texts[] = {
    /* gate and up by columns, down by rows: one sum */
    {2,
     "x: f32[n_tok, 64] = input\n"
     "blk.0.ffn_norm: f32[64] = weight role=norm\n"
     "h: f32[n_tok, 64] = rms_norm(x, blk.0.ffn_norm) eps=1e-05\n"
     "blk.0.gate: q8_0[96, 64] = weight role=ffn_gate\n"
     "blk.0.up: q8_0[96, 64] = weight role=ffn_up\n"
     "blk.0.down: q8_0[64, 96] = weight role=ffn_down\n"
     "g: f32[n_tok, 96] = matmul(h, blk.0.gate)\n"
     "u: f32[n_tok, 96] = matmul(h, blk.0.up)\n"
     "a: f32[n_tok, 96] = swiglu(g, u)\n"
     "d: f32[n_tok, 64] = matmul(a, blk.0.down)\n"
     "y: f32[n_tok, 64] = add(x, d) !output\n",
     "h: mirrored = rms_norm(x, blk.0.ffn_norm)\n"
     "blk.0.gate: split(0: 64{0} 32{1})\n"
     "g: split(1: 64{0} 32{1}) = matmul(h, blk.0.gate)\n"
     "blk.0.up: split(0: 64{0} 32{1})\n"
     "u: split(1: 64{0} 32{1}) = matmul(h, blk.0.up)\n"
     "a: split(1: 64{0} 32{1}) = swiglu(g, u)\n"
     "blk.0.down: split(1: 64{0} 32{1})\n"
     "d: partial = matmul(a, blk.0.down)\n"
     "d': mirrored = AllReduce(d)\n"
     "y: mirrored = add(x, d')\n"},
    /* 8 query heads over 2 KV heads on 3 ranks: by query head, KV heads with
       two owners */
    {3,
     "h: f32[n_tok, 64] = input\n"
     "pos: i32[n_tok] = input\n"
     "blk.0.q: f32[64, 64] = weight role=attn_q\n"
     "blk.0.k: f32[16, 64] = weight role=attn_k\n"
     "blk.0.v: f32[16, 64] = weight role=attn_v\n"
     "blk.0.o: f32[64, 64] = weight role=attn_out\n"
     "q: f32[n_tok, 64] = matmul(h, blk.0.q)\n"
     "k: f32[n_tok, 16] = matmul(h, blk.0.k)\n"
     "v: f32[n_tok, 16] = matmul(h, blk.0.v)\n"
     "qh: f32[n_tok, 8, 8] = reshape(q)\n"
     "kh: f32[n_tok, 2, 8] = reshape(k)\n"
     "vh: f32[n_tok, 2, 8] = reshape(v)\n"
     "qr: f32[n_tok, 8, 8] = rope(qh, pos) base=10000 n_rot=8\n"
     "kr: f32[n_tok, 2, 8] = rope(kh, pos) base=10000 n_rot=8\n"
     "cache_k.0: f16[n_slot, 2, 8] = memory values=0\n"
     "cache_v.0: f16[n_slot, 2, 8] = memory values=1\n"
     "ck: f16[n_slot, 2, 8] = cache_write(cache_k.0, kr)\n"
     "cv: f16[n_slot, 2, 8] = cache_write(cache_v.0, vh) values=1\n"
     "att: f32[n_tok, 8, 8] = attention(qr, ck, cv) scale=0.35\n"
     "af: f32[n_tok, 64] = reshape(att)\n"
     "o: f32[n_tok, 64] = matmul(af, blk.0.o)\n"
     "y: f32[n_tok, 64] = add(h, o) !output\n",
     "blk.0.q: split(0: 24{0} 24{1} 16{2})\n"
     "q: split(1: 24{0} 24{1} 16{2}) = matmul(h, blk.0.q)\n"
     "blk.0.k: split(0: 8{0,1} 8{1,2})\n"
     "k: split(1: 8{0,1} 8{1,2}) = matmul(h, blk.0.k)\n"
     "blk.0.v: split(0: 8{0,1} 8{1,2})\n"
     "v: split(1: 8{0,1} 8{1,2}) = matmul(h, blk.0.v)\n"
     "qh: split(1: 3{0} 3{1} 2{2}) = reshape(q)\n"
     "kh: split(1: 1{0,1} 1{1,2}) = reshape(k)\n"
     "vh: split(1: 1{0,1} 1{1,2}) = reshape(v)\n"
     "qr: split(1: 3{0} 3{1} 2{2}) = rope(qh, pos)\n"
     "kr: split(1: 1{0,1} 1{1,2}) = rope(kh, pos)\n"
     "cache_k.0: split(1: 1{0,1} 1{1,2})\n"
     "cache_v.0: split(1: 1{0,1} 1{1,2})\n"
     "ck: split(1: 1{0,1} 1{1,2}) = cache_write(cache_k.0, kr)\n"
     "cv: split(1: 1{0,1} 1{1,2}) = cache_write(cache_v.0, vh)\n"
     "att: split(1: 3{0} 3{1} 2{2}) = attention(qr, ck, cv)\n"
     "af: split(1: 24{0} 24{1} 16{2}) = reshape(att)\n"
     "blk.0.o: split(1: 24{0} 24{1} 16{2})\n"
     "o: partial = matmul(af, blk.0.o)\n"
     "o': mirrored = AllReduce(o)\n"
     "y: mirrored = add(h, o')\n"},
    /* one sum for two contractions; the bias flows along, rank 0 adds it */
    {2,
     "x: f32[n_tok, 64] = input\n"
     "a: f32[n_tok, 96] = input\n"
     "e: f32[n_tok, 2, 32] = input\n"
     "ids: i32[n_tok, 2] = input\n"
     "blk.0.down: f32[64, 96] = weight role=ffn_down\n"
     "blk.0.bias: f32[64] = weight\n"
     "blk.0.down_exps: f32[4, 64, 32] = weight role=ffn_down_exps\n"
     "n1: f32[64] = weight role=norm\n"
     "d: f32[n_tok, 64] = matmul(a, blk.0.down)\n"
     "b: f32[n_tok, 64] = add(d, blk.0.bias)\n"
     "m: f32[n_tok, 64] = expert_down(e, blk.0.down_exps, ids)\n"
     "s: f32[n_tok, 64] = add(m, b)\n"
     "y: f32[n_tok, 64] = add(x, s) !output\n"
     "z: f32[n_tok, 64] = rms_norm(y, n1) eps=1e-05 !output\n",
     "a': split(1: 64{0} 32{1}) = Slice(a)\n"
     "blk.0.down: split(1: 64{0} 32{1})\n"
     "d: partial = matmul(a', blk.0.down)\n"
     "b: partial = add(d, blk.0.bias)\n"
     "e': split(2: 16{0} 16{1}) = Slice(e)\n"
     "blk.0.down_exps: split(2: 16{0} 16{1})\n"
     "m: partial = expert_down(e', blk.0.down_exps, ids)\n"
     "s: partial = add(m, b)\n"
     "s': mirrored = AllReduce(s)\n"
     "y: mirrored = add(x, s')\n"
     "z: mirrored = rms_norm(y, n1)\n"},
    /* two PARTIAL values that are normed apart need a sum each */
    {2,
     "x: f32[n_tok, 64] = input\n"
     "blk.0.down: f32[64, 96] = weight role=ffn_down\n"
     "blk.0.down_exps: f32[4, 64, 32] = weight role=ffn_down_exps\n"
     "n1: f32[64] = weight role=norm\n"
     "n2: f32[64] = weight role=norm\n"
     "a: f32[n_tok, 96] = input\n"
     "e: f32[n_tok, 2, 32] = input\n"
     "ids: i32[n_tok, 2] = input\n"
     "d: f32[n_tok, 64] = matmul(a, blk.0.down)\n"
     "m: f32[n_tok, 64] = expert_down(e, blk.0.down_exps, ids)\n"
     "dn: f32[n_tok, 64] = rms_norm(d, n1) eps=1e-05\n"
     "mn: f32[n_tok, 64] = rms_norm(m, n2) eps=1e-05\n"
     "s: f32[n_tok, 64] = add(dn, mn)\n"
     "y: f32[n_tok, 64] = add(x, s) !output\n",
     "a': split(1: 64{0} 32{1}) = Slice(a)\n"
     "blk.0.down: split(1: 64{0} 32{1})\n"
     "d: partial = matmul(a', blk.0.down)\n"
     "d': mirrored = AllReduce(d)\n"
     "e': split(2: 16{0} 16{1}) = Slice(e)\n"
     "blk.0.down_exps: split(2: 16{0} 16{1})\n"
     "m: partial = expert_down(e', blk.0.down_exps, ids)\n"
     "m': mirrored = AllReduce(m)\n"
     "dn: mirrored = rms_norm(d', n1)\n"
     "mn: mirrored = rms_norm(m', n2)\n"
     "s: mirrored = add(dn, mn)\n"
     "y: mirrored = add(x, s)\n"},
    /* segments of fused matrices; 4 KV heads on 8 ranks */
    {8,
     "h: f32[n_tok, 64] = input\n"
     "blk.0.gu: f32[192, 64] = weight role=ffn_gate_up\n"
     "blk.0.down: f32[64, 96] = weight role=ffn_down\n"
     "gu: f32[n_tok, 192] = matmul(h, blk.0.gu)\n"
     "g: f32[n_tok, 96] = slice(gu) axis=1\n"
     "u: f32[n_tok, 96] = slice(gu) axis=1 start=96\n"
     "a: f32[n_tok, 96] = swiglu(g, u)\n"
     "d: f32[n_tok, 64] = matmul(a, blk.0.down) !output\n"
     "blk.0.qkv: f32[128, 64] = weight role=attn_qkv\n"
     "qkv: f32[n_tok, 128] = matmul(h, blk.0.qkv)\n"
     "q: f32[n_tok, 64] = slice(qkv) axis=1\n"
     "k: f32[n_tok, 32] = slice(qkv) axis=1 start=64\n"
     "v: f32[n_tok, 32] = slice(qkv) axis=1 start=96\n"
     "qh: f32[n_tok, 8, 8] = reshape(q)\n"
     "kh: f32[n_tok, 4, 8] = reshape(k)\n"
     "vh: f32[n_tok, 4, 8] = reshape(v)\n"
     "cache_k.0: f16[n_slot, 4, 8] = memory values=0\n"
     "cache_v.0: f16[n_slot, 4, 8] = memory values=1\n"
     "ck: f16[n_slot, 4, 8] = cache_write(cache_k.0, kh)\n"
     "cv: f16[n_slot, 4, 8] = cache_write(cache_v.0, vh) values=1\n"
     "att: f32[n_tok, 8, 8] = attention(qh, ck, cv) scale=0.35 !output\n",
     "blk.0.gu: split(0: 16{0} 16{1} 16{2} 16{3} 8{4} 8{5} 8{6} 8{7})\n"
     "gu: split(1: 16{0} 16{1} 16{2} 16{3} 8{4} 8{5} 8{6} 8{7}) = matmul(h, "
     "blk.0.gu)\n"
     "g: split(1: 16{0} 16{1} 16{2} 16{3} 8{4} 8{5} 8{6} 8{7}) = slice(gu)\n"
     "u: split(1: 16{0} 16{1} 16{2} 16{3} 8{4} 8{5} 8{6} 8{7}) = slice(gu)\n"
     "a: split(1: 16{0} 16{1} 16{2} 16{3} 8{4} 8{5} 8{6} 8{7}) = swiglu(g, u)\n"
     "blk.0.down: split(1: 16{0} 16{1} 16{2} 16{3} 8{4} 8{5} 8{6} 8{7})\n"
     "d: partial = matmul(a, blk.0.down)\n"
     "d': mirrored = AllReduce(d)\n"
     "blk.0.qkv: split(0: 8{0} 8{1} 8{2} 8{3} 8{4} 8{5} 8{6} 8{7} 8{0,1} "
     "8{2,3} 8{4,5} 8{6,7} 8{0,1} 8{2,3} 8{4,5} 8{6,7})\n"
     "qkv: split(1: 8{0} 8{1} 8{2} 8{3} 8{4} 8{5} 8{6} 8{7} 8{0,1} 8{2,3} "
     "8{4,5} 8{6,7} 8{0,1} 8{2,3} 8{4,5} 8{6,7}) = matmul(h, blk.0.qkv)\n"
     "q: split(1: 8{0} 8{1} 8{2} 8{3} 8{4} 8{5} 8{6} 8{7}) = slice(qkv)\n"
     "k: split(1: 8{0,1} 8{2,3} 8{4,5} 8{6,7}) = slice(qkv)\n"
     "v: split(1: 8{0,1} 8{2,3} 8{4,5} 8{6,7}) = slice(qkv)\n"
     "qh: split(1: 1{0} 1{1} 1{2} 1{3} 1{4} 1{5} 1{6} 1{7}) = reshape(q)\n"
     "kh: split(1: 1{0,1} 1{2,3} 1{4,5} 1{6,7}) = reshape(k)\n"
     "vh: split(1: 1{0,1} 1{2,3} 1{4,5} 1{6,7}) = reshape(v)\n"
     "cache_k.0: split(1: 1{0,1} 1{2,3} 1{4,5} 1{6,7})\n"
     "cache_v.0: split(1: 1{0,1} 1{2,3} 1{4,5} 1{6,7})\n"
     "ck: split(1: 1{0,1} 1{2,3} 1{4,5} 1{6,7}) = cache_write(cache_k.0, kh)\n"
     "cv: split(1: 1{0,1} 1{2,3} 1{4,5} 1{6,7}) = cache_write(cache_v.0, vh)\n"
     "att: split(1: 1{0} 1{1} 1{2} 1{3} 1{4} 1{5} 1{6} 1{7}) = attention(qh, "
     "ck, cv)\n"},
    /* a reshape that runs cannot follow gathers; a SPLIT value already takes
     * its share of a sum */
    {2,
     "x: f32[n_tok, 12] = input !want=split(1: 5{0} 7{1})\n"
     "r: f32[n_tok, 3, 4] = reshape(x) !output\n"
     "w: f32[6, 12] = weight !want=split(1: 5{0} 7{1})\n"
     "p: f32[n_tok, 6] = matmul(x, w)\n"
     "s: f32[n_tok, 6] = input !want=split(1: 2{0} 4{1})\n"
     "t: f32[n_tok, 6] = add(p, s) !output\n",
     "x: split(1: 5{0} 7{1})\n"
     "x': mirrored = AllGather(x)\n"
     "r: mirrored = reshape(x')\n"
     "w: split(1: 5{0} 7{1})\n"
     "p: partial = matmul(x, w)\n"
     "p': split(1: 2{0} 4{1}) = ReduceScatter(p)\n"
     "s: split(1: 2{0} 4{1})\n"
     "t: split(1: 2{0} 4{1}) = add(p', s)\n"},
    /* layouts that a graph requests are reached by AllToAll */
    {3,
     "x: f32[n_tok, 8] = input !want=split(1: 6{0} 2{1,2})\n"
     "y: f32[n_tok, 8] = sqr(x)\n"
     "z: f32[n_tok, 8] = add(y, x) !want=split(1: 2{0} 6{2})\n"
     "o: f32[n_tok, 8] = tanh(z) !output !want=mirrored\n"
     "t: f32[n_tok, 5] = input !want=split(1: 1{0} 4{1})\n"
     "c: f32[n_tok, 13] = concat(o, t) axis=1 !output\n",
     "x: split(1: 6{0} 2{1,2})\n"
     "y: split(1: 6{0} 2{1,2}) = sqr(x)\n"
     "z: split(1: 6{0} 2{1,2}) = add(y, x)\n"
     "z': split(1: 2{0} 6{2}) = AllToAll(z)\n"
     "o: split(1: 2{0} 6{2}) = tanh(z')\n"
     "o': mirrored = AllGather(o)\n"
     "t: split(1: 1{0} 4{1})\n"
     "c: split(1: 8{0,1,2} 1{0} 4{1}) = concat(o', t)\n"},
    /* tied embeddings: rows by one side, columns of the product by the other */
    {2,
     "ids: i32[n_tok] = input\n"
     "token_embd.weight: f16[256, 64] = weight role=token_embd\n"
     "n: f32[64] = weight role=norm\n"
     "x: f32[n_tok, 64] = gather_rows(token_embd.weight, ids)\n"
     "h: f32[n_tok, 64] = rms_norm(x, n) eps=1e-05\n"
     "out: i32[n_out] = input\n"
     "r: f32[n_out, 64] = gather_rows(h, out)\n"
     "logits: f32[n_out, 256] = matmul(r, token_embd.weight) !output\n",
     "token_embd.weight: split(0: 128{0} 128{1})\n"
     "x: partial = gather_rows(token_embd.weight, ids)\n"
     "x': mirrored = AllReduce(x)\n"
     "h: mirrored = rms_norm(x', n)\n"
     "r: mirrored = gather_rows(h, out)\n"
     "logits: split(1: 128{0} 128{1}) = matmul(r, token_embd.weight)\n"},
    /* rows are gathered before the sum, so only the wanted rows are summed */
    {2,
     "a: f32[n_tok, 96] = input\n"
     "x: f32[n_tok, 64] = input\n"
     "out: i32[n_out] = input\n"
     "blk.0.down: f32[64, 96] = weight role=ffn_down\n"
     "d: f32[n_tok, 64] = matmul(a, blk.0.down)\n"
     "y: f32[n_tok, 64] = add(x, d)\n"
     "r: f32[n_out, 64] = gather_rows(y, out)\n"
     "h: f32[n_out, 64] = rms_norm(r) eps=1e-05 !output\n",
     "a': split(1: 64{0} 32{1}) = Slice(a)\n"
     "blk.0.down: split(1: 64{0} 32{1})\n"
     "d: partial = matmul(a', blk.0.down)\n"
     "y: partial = add(x, d)\n"
     "r: partial = gather_rows(y, out)\n"
     "r': mirrored = AllReduce(r)\n"
     "h: mirrored = rms_norm(r')\n"},
    /* a split that gives all ranks everything is not a split */
    {2,
     "q: f32[n_tok, 6, 4] = input !want=split(1: 3{0} 3{1})\n"
     "cache_k: f32[n_slot, 1, 4] = memory values=0 !want=split(1: 1{0,1})\n"
     "cache_v: f32[n_slot, 1, 4] = memory values=1 !want=split(1: 1{0,1})\n"
     "att: f32[n_tok, 6, 4] = attention(q, cache_k, cache_v) scale=0.5 "
     "!output\n",
     "q: split(1: 3{0} 3{1})\n"
     "att: split(1: 3{0} 3{1}) = attention(q, cache_k, cache_v)\n"},
    /* if caches should differ, the owners of either hold both */
    {3,
     "q: f32[n_tok, 4, 4] = input\n"
     "x: f32[n_tok, 2, 4] = input\n"
     "k: f32[n_slot, 2, 4] = memory values=0 !want=split(1: 1{0} 1{1})\n"
     "v: f32[n_slot, 2, 4] = memory values=1 !want=split(1: 1{0,2} 1{2})\n"
     "w: f32[n_slot, 2, 4] = cache_write(v, x) values=1\n"
     "a: f32[n_tok, 4, 4] = attention(q, k, w) scale=0.5 !output\n",
     "k: split(1: 1{0,2} 1{1,2})\n"
     "v: split(1: 1{0,2} 1{1,2})\n"
     "x': split(1: 1{0,2} 1{1,2}) = Slice(x)\n"
     "w: split(1: 1{0,2} 1{1,2}) = cache_write(v, x')\n"
     "q': split(1: 2{0,2} 2{1,2}) = Slice(q)\n"
     "a: split(1: 2{0,2} 2{1,2}) = attention(q', k, w)\n"},
    /* the caches of two attentions are held alike if they share one */
    {3,
     "q: f32[n_tok, 2, 4] = input\n"
     "k: f32[n_slot, 2, 4] = memory values=0 !want=split(1: 1{0} 1{1})\n"
     "l: f32[n_slot, 2, 4] = memory values=0 !want=split(1: 1{0} 1{2})\n"
     "v: f32[n_slot, 2, 4] = memory values=1 !want=split(1: 1{0} 1{1})\n"
     "a: f32[n_tok, 2, 4] = attention(q, k, v) scale=0.5 !output\n"
     "b: f32[n_tok, 2, 4] = attention(q, l, v) scale=0.5 !output\n",
     "k: split(1: 1{0} 1{1,2})\n"
     "l: split(1: 1{0} 1{1,2})\n"
     "v: split(1: 1{0} 1{1,2})\n"
     "q': split(1: 1{0} 1{1,2}) = Slice(q)\n"
     "a: split(1: 1{0} 1{1,2}) = attention(q', k, v)\n"
     "b: split(1: 1{0} 1{1,2}) = attention(q', l, v)\n"},
    /* these caches are MIRRORED if one of them must be */
    {2,
     "q: f32[n_tok, 2, 4] = input !want=split(1: 1{1} 1{0})\n"
     "k: f32[n_slot, 2, 4] = memory values=0 !want=split(1: 1{0} 1{1})\n"
     "v: f32[n_slot, 2, 4] = memory values=1 !want=mirrored\n"
     "a: f32[n_tok, 2, 4] = attention(q, k, v) scale=0.5 !output\n",
     "q: split(1: 1{1} 1{0})\n"
     "a: split(1: 1{1} 1{0}) = attention(q, k, v)\n"},
};
enum { N_TEXT = sizeof texts / sizeof *texts };

TEST(layout_numeric_plans_read_as_expected)
{
    static char buf[1 << 14];

    for (int i = 0; i < N_TEXT; i++) {
        struct planned_text t;

        plan(&t, texts[i].graph, texts[i].n_rank, NULL);
        put_plan(buf, sizeof buf, t.p);
        assert_string_equal(buf, texts[i].plan);
        drop(&t);
    }
}

/* ---- a layer of experts -------------------------------------------------- */

static const char layer_head[] =
    "x: f32[n_tok, 64] = input\npos: i32[n_tok] = input\n"
    "blk.0.an: f32[64] = weight role=norm\n"
    "blk.0.q: q8_0[64, 64] = weight role=attn_q\n"
    "blk.0.k: q8_0[32, 64] = weight role=attn_k\n"
    "blk.0.v: q8_0[32, 64] = weight role=attn_v\n"
    "blk.0.qn: f32[8] = weight role=norm\n"
    "blk.0.o: q8_0[64, 64] = weight role=attn_out\n"
    "h: f32[n_tok, 64] = rms_norm(x, blk.0.an) eps=1e-06\n"
    "q: f32[n_tok, 64] = matmul(h, blk.0.q)\n"
    "k: f32[n_tok, 32] = matmul(h, blk.0.k)\n"
    "v: f32[n_tok, 32] = matmul(h, blk.0.v)\n"
    "qh: f32[n_tok, 8, 8] = reshape(q)\nkh: f32[n_tok, 4, 8] = reshape(k)\n"
    "vh: f32[n_tok, 4, 8] = reshape(v)\n"
    "qn: f32[n_tok, 8, 8] = rms_norm(qh, blk.0.qn) eps=1e-06\n"
    "kn: f32[n_tok, 4, 8] = rms_norm(kh, blk.0.qn) eps=1e-06\n"
    "qr: f32[n_tok, 8, 8] = rope(qn, pos) base=10000 n_rot=8 neox=1\n"
    "kr: f32[n_tok, 4, 8] = rope(kn, pos) base=10000 n_rot=8 neox=1\n"
    "cache_k.0: f16[n_slot, 4, 8] = memory values=0\n"
    "cache_v.0: f16[n_slot, 4, 8] = memory values=1\n"
    "ck: f16[n_slot, 4, 8] = cache_write(cache_k.0, kr)\n"
    "cv: f16[n_slot, 4, 8] = cache_write(cache_v.0, vh) values=1\n"
    "att: f32[n_tok, 8, 8] = attention(qr, ck, cv) scale=0.35\n"
    "af: f32[n_tok, 64] = reshape(att)\n"
    "o: f32[n_tok, 64] = matmul(af, blk.0.o)\n"
    "x1: f32[n_tok, 64] = add(x, o)\n"
    "blk.0.fn: f32[64] = weight role=norm\n"
    "blk.0.router: f32[8, 64] = weight role=router\n"
    "f: f32[n_tok, 64] = rms_norm(x1, blk.0.fn) eps=1e-06\n"
    "lg: f32[n_tok, 8] = matmul(f, blk.0.router)\n"
    "ids: i32[n_tok, 2] = router_topk(lg) n_used=2\n"
    "rw: f32[n_tok, 2] = router_weights(lg, ids) normalise=1 scale=1\n"
    "w: f32[n_tok, 2, 1] = reshape(rw)\n"
    "f1: f32[n_tok, 1, 64] = reshape(f)\n"
    "blk.0.ge: q8_0[8, 96, 64] = weight role=ffn_gate_exps\n"
    "blk.0.ue: q8_0[8, 96, 64] = weight role=ffn_up_exps\n"
    "blk.0.de: q8_0[8, 64, 96] = weight role=ffn_down_exps\n"
    "g: f32[n_tok, 2, 96] = expert_matmul(f1, blk.0.ge, ids)\n"
    "u: f32[n_tok, 2, 96] = expert_matmul(f1, blk.0.ue, ids)\n"
    "a: f32[n_tok, 2, 96] = swiglu(g, u)\n";

static const char *const layer_tails[] = {
    /* as the models write it */
    "aw: f32[n_tok, 2, 96] = mul(a, w)\n"
    "e: f32[n_tok, 64] = expert_down(aw, blk.0.de, ids)\n"
    "y: f32[n_tok, 64] = add(x1, e)\n",
    /* two multiplications, one with gathered scales, and a sum over slots */
    "sc: f32[8] = weight role=scale\nsc1: f32[8, 1] = reshape(sc)\n"
    "s: f32[n_tok, 2, 1] = gather_rows(sc1, ids)\n"
    "d: f32[n_tok, 2, 64] = expert_matmul(a, blk.0.de, ids)\n"
    "d1: f32[n_tok, 2, 64] = mul(d, s)\n"
    "d2: f32[n_tok, 2, 64] = mul(d1, w)\n"
    "e: f32[n_tok, 64] = sum(d2)\n"
    "y: f32[n_tok, 64] = add(x1, e)\n",
    /* with a shared expert, and a bias for each token */
    "aw: f32[n_tok, 2, 96] = mul(a, w)\n"
    "e: f32[n_tok, 64] = expert_down(aw, blk.0.de, ids)\n"
    "blk.0.gs: q8_0[96, 64] = weight role=ffn_gate\n"
    "blk.0.us: q8_0[96, 64] = weight role=ffn_up\n"
    "blk.0.ds: q8_0[64, 96] = weight role=ffn_down\n"
    "blk.0.eb: f32[8, 64] = weight\n"
    "bs: f32[n_tok, 2, 64] = gather_rows(blk.0.eb, ids)\n"
    "bw: f32[n_tok, 2, 64] = mul(bs, w)\n"
    "b: f32[n_tok, 64] = sum(bw)\n"
    "gs: f32[n_tok, 96] = matmul(f, blk.0.gs)\n"
    "us: f32[n_tok, 96] = matmul(f, blk.0.us)\n"
    "as: f32[n_tok, 96] = swiglu(gs, us)\n"
    "ds: f32[n_tok, 64] = matmul(as, blk.0.ds)\n"
    "eb: f32[n_tok, 64] = add(e, b)\n"
    "es: f32[n_tok, 64] = add(eb, ds)\n"
    "y: f32[n_tok, 64] = add(x1, es)\n",
};

TEST(layout_numeric_expert_layer_sums_twice)
{
    static const char end[] = "z: f32[n_tok, 64] = rms_norm(y) eps=1e-06 "
                              "!output\n";
    const struct graph_sizes s = {7, 1, 1, {64}};
    char text[8192];

    for (int n_rank = 2; n_rank <= 8; n_rank++)
        for (size_t i = 0; i < sizeof layer_tails / sizeof *layer_tails; i++) {
            struct planned_text t;
            int n = 0;

            snprintf(text, sizeof text, "%s%s%s", layer_head, layer_tails[i],
                     end);
            plan(&t, text, n_rank, NULL);
            for (int k = 0; k < t.p->n; k++) {
                if (t.p->node[k].kind == NUM_OP ||
                    t.p->node[k].kind == NUM_SLICE)
                    continue;
                assert_int_equal(t.p->node[k].kind, NUM_ALL_REDUCE);
                assert_int_equal(numeric_bytes(t.p, k, &s), 7 * 64 * 4);
                n++;
            }
            assert_int_equal(n, 2);
            drop(&t);
        }
}

/* ---- properties of every plan -------------------------------------------- */

static bool fits_kind(const struct num_node *from, const struct num_node *to,
                      int64_t size)
{
    bool sum = from->layout->kind == PL_PARTIAL;
    bool split = to->layout->kind == PL_SPLIT;

    switch (to->kind) {
    case NUM_ALL_REDUCE:
        return sum && to->layout->kind == PL_MIRRORED;
    case NUM_REDUCE_SCATTER:
        return sum && split;
    case NUM_ALL_GATHER:
        return from->layout->kind == PL_SPLIT &&
               to->layout->kind == PL_MIRRORED;
    case NUM_ALL_TO_ALL:
        return from->layout->kind == PL_SPLIT && split &&
               !layout_contains(from->layout, to->layout, size);
    default:
        return !sum && split && layout_contains(from->layout, to->layout, size);
    }
}

/* Checks every plan: operands precede their readers; conversions do what their
 * kind says; a PARTIAL is read by rows that allow it, or by its sum, and by
 * nothing outside; requests are met. */
static void check_plan(const struct numeric *p)
{
    for (int i = 0; i < p->n; i++) {
        const struct num_node *n = &p->node[i];
        const struct graph_node *x = &p->g->node[n->node];
        unsigned partial = 0, rule = op_info(x->op)->partial;
        int64_t size =
            n->layout->kind == PL_SPLIT ? x->dim[n->layout->dim].n : 1;

        for (int k = 0; k < n->n_in; k++) {
            assert_true(n->in[k] < i);
            if (n->in[k] >= 0 && p->node[n->in[k]].layout->kind == PL_PARTIAL)
                partial |= 1u << k;
        }
        if (n->kind != NUM_OP) {
            assert_int_equal(n->n_in, 1);
            assert_int_equal(p->node[n->in[0]].node, n->node);
            assert_true(fits_kind(&p->node[n->in[0]], n, size));
            continue;
        }
        if (partial) {
            assert_int_equal(n->layout->kind, PL_PARTIAL);
            assert_true((rule & PL_OP_SUM) ||
                        ((rule & PL_OP_ONE) && (partial & rule & 0xff) &&
                         (partial & (partial - 1)) == 0));
        }
        assert_true(n->layout->kind == PL_PARTIAL || !n->sum);
        assert_true(n->layout->kind != PL_PARTIAL || partial || n->sum);
    }
    for (int v = 0; v < p->g->n_node; v++) {
        const struct graph_node *x = &p->g->node[v];

        assert_in_range(p->value[v], 0, p->n - 1);
        assert_int_equal(p->node[p->value[v]].node, v);
        if (x->output || x->keep)
            assert_true(p->node[p->value[v]].layout->kind != PL_PARTIAL);
        if (x->want && x->op != OP_weight) {
            const pl_layout *l = p->node[p->value[v]].layout;
            int64_t size =
                x->want->kind == PL_SPLIT ? x->dim[x->want->dim].n : 1;

            assert_true(layout_contains(l, x->want, size));
        }
    }
}

TEST(layout_numeric_every_graph_has_a_lawful_plan)
{
    uint64_t seed = test_seed();
    int n = test_long() ? 20000 : 1000;

    for (int k = 0; k < n; k++) {
        int n_rank = 1 + (int)test_below(&seed, k % 8 ? 8 : 64);
        const pl_layout **leaf;
        double share[PL_MAX_RANKS];
        struct random_graph r;
        struct arena a = {0};
        struct numeric *p = NULL, *again = NULL;
        pl_err err;

        random_graph_make(&r, n_rank, NULL, &seed);
        for (int i = 0; i < n_rank; i++)
            share[i] = (double)test_below(&seed, 4);
        share[test_below(&seed, n_rank)] += 1;
        leaf = test_need((size_t)r.n_node, sizeof *leaf);
        if (roles_layouts(r.g, n_rank, share, &a, leaf, &err) != PL_OK ||
            numeric_create(&p, r.g, n_rank, leaf, &err) != PL_OK)
            fail_msg("%s", err.message);
        check_plan(p);
        TEST_OK(numeric_create(&again, r.g, n_rank, leaf, &err), err);
        assert_true(p->hash == again->hash);
        numeric_free(p);
        numeric_free(again);
        free(leaf);
        arena_fini(&a);
        random_graph_free(&r);
    }
}

static uint64_t hash_of(const char *graph, int n_rank, const double *share)
{
    struct planned_text t;
    uint64_t h;

    plan(&t, graph, n_rank, share);
    h = t.p->hash;
    drop(&t);
    return h;
}

TEST(layout_numeric_hash_tells_plans_apart)
{
    static const double uneven[] = {3, 1};
    const char *graphs[] = {
        "x: f32[8, 8] = input\ny: f32[8, 8] = scale(x) scale=2 !output\n",
        "x: f32[8, 8] = input\ny: f32[8, 8] = scale(x) scale=3 !output\n",
        "x: f32[8, 9] = input\ny: f32[8, 9] = scale(x) scale=2 !output\n",
        "x: f32[8, 8] = input !want=split(0: 4{0} 4{1})\n"
        "y: f32[8, 8] = scale(x) scale=2 !output\n",
        "x: f32[8, 8] = input !want=split(1: 4{0} 4{1})\n"
        "y: f32[8, 8] = scale(x) scale=2 !output\n",
        "x: f32[8, 8] = input !want=split(1: 3{0} 5{1})\n"
        "y: f32[8, 8] = scale(x) scale=2 !output\n",
        "x: f32[8, 8] = input !want=split(1: 4{1} 4{0})\n"
        "y: f32[8, 8] = scale(x) scale=2 !output\n",
        "x: f32[8, 8] = input\nw: f32[8, 8] = weight\n"
        "y: f32[8, 8] = matmul(x, w) !output\n",
        "x: f32[8, 8] = input\nw: f16[8, 8] = weight\n"
        "y: f32[8, 8] = matmul(x, w) !output\n",
    };
    enum { N = sizeof graphs / sizeof *graphs };
    uint64_t h[N];

    for (int i = 0; i < N; i++) {
        h[i] = hash_of(graphs[i], 2, NULL);
        for (int k = 0; k < i; k++)
            assert_true(h[i] != h[k]);
    }
    assert_true(hash_of(graphs[0], 3, NULL) != h[0]);
    assert_true(hash_of(texts[1].graph, 2, NULL) !=
                hash_of(texts[1].graph, 2, uneven));
    /* names and the context's length decide no bits */
    assert_true(hash_of("a: f32[8, 8] = input\n"
                        "b: f32[8, 8] = scale(a) scale=2 !output\n",
                        2, NULL) == h[0]);
}

/* ---- shares -------------------------------------------------------------- */

/* Each rank's part of each weight matrix is within a grain of its share: a KV
 * group for attention, 32 values for widths. */
TEST(layout_numeric_shares_are_met_within_a_grain)
{
    uint64_t seed = test_seed();

    for (int k = 0; k < 300; k++) {
        int n_rank = 2 + (int)test_below(&seed, 7);
        double share[PL_MAX_RANKS], sum = 0;
        struct planned_text t;
        char text[8192];

        for (int r = 0; r < n_rank; r++) {
            share[r] = k % 2 ? 1 : 1 + (double)test_below(&seed, 4);
            sum += share[r];
        }
        snprintf(text, sizeof text, "%s%s", layer_head, layer_tails[2]);
        plan(&t, text, n_rank, share);
        for (int i = 0; i < t.p->n; i++) {
            const struct num_node *n = &t.p->node[i];
            const struct graph_node *x = &t.g->node[n->node];
            int64_t size, grain = 32;

            if (x->op != OP_weight || x->n_dim < 2 ||
                x->role == PL_ROLE_ROUTER || x->role == PL_ROLE_NONE)
                continue;
            assert_int_equal(n->layout->kind, PL_SPLIT);
            size = x->dim[n->layout->dim].n;
            if (x->role == PL_ROLE_ATTN_K || x->role == PL_ROLE_ATTN_V)
                /* K and V may have replicas, so their shares are not
                 * compared */
                continue;
            for (int r = 0; r < n_rank; r++) {
                double want = share[r] / sum * (double)size;
                double got =
                    (double)layout_local_size(n->layout, size, (rankset)1 << r);

                assert_true(fabs(got - want) <= (double)grain + 1e-6);
            }
        }
        drop(&t);
    }
}

/* ---- rejections ---------------------------------------------------------- */

TEST(layout_numeric_refusals_name_the_tensor)
{
    static const struct {
        const char *graph, *message;
    } cases[] = {
        {"x: f32[8] = input !want=split(0: 4{0} 4{2})\n", "x: run 1"},
        {"x: f32[8] = input !want=partial\n", "x: PARTIAL cannot be"},
        {"w: q8_0[4, 64] = weight !want=split(1: 16{0} 48{1})\n",
         "w: rows of Q8_0 can be split only at multiples of 32"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct planned_text t;
        pl_err err;

        if (make(&t, cases[i].graph, 2, NULL, &err) == PL_OK)
            fail_msg("accepted: %s", cases[i].graph);
        if (strncmp(err.message, cases[i].message, strlen(cases[i].message)))
            fail_msg("\"%s\" instead of \"%s\"", err.message, cases[i].message);
        drop(&t);
    }
    for (int n_rank = 0; n_rank <= 65; n_rank += 65) {
        struct numeric *p;
        struct pl_graph *g;

        assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
        assert_int_equal(numeric_create(&p, g, n_rank, NULL, NULL),
                         PL_BAD_ARGUMENT);
        assert_null(p);
        pl_graph_free(g);
    }
}

/* A layer of a delta net with 2 key heads and 6 value heads of 3 values, after
 * a convolution. Gates are from two matrices, or from one with their rows in
 * pairs of threes. */
#define DELTA_TOP                                                              \
    "x: f32[n_tok, 8] = input\n"                                               \
    "qkv: f32[30, 8] = weight role=attn_qkv\n"                                 \
    "taps: f32[30, 4] = weight role=conv\n"                                    \
    "before: f32[n_slot, 30, 3] = memory state=1 role=conv_state\n"            \
    "state: f32[n_slot, 6, 9] = memory state=1 role=state\n"                   \
    "bias: f32[6] = weight role=delta_gate\n"                                  \
    "gate: f32[18, 8] = weight role=attn_gate\n"                               \
    "out: f32[8, 18] = weight role=attn_out\n"                                 \
    "y: f32[n_tok, 30] = matmul(x, qkv)\n"                                     \
    "c: f32[n_tok, 30] = short_conv(y, taps, before) silu=1\n"                 \
    "q: f32[n_tok, 6] = slice(c) axis=1\n"                                     \
    "k: f32[n_tok, 6] = slice(c) axis=1 start=6\n"                             \
    "v: f32[n_tok, 18] = slice(c) axis=1 start=12\n"                           \
    "qh: f32[n_tok, 2, 3] = reshape(q)\nkh: f32[n_tok, 2, 3] = reshape(k)\n"   \
    "vh: f32[n_tok, 6, 3] = reshape(v)\n"
#define DELTA_TWO                                                              \
    "wa: f32[6, 8] = weight role=delta_gate\n"                                 \
    "wb: f32[6, 8] = weight role=delta_gate\n"                                 \
    "a: f32[n_tok, 6] = matmul(x, wa)\nb: f32[n_tok, 6] = matmul(x, wb)\n"
#define DELTA_PAIRS                                                            \
    "ab: f32[12, 8] = weight role=delta_gates\n"                               \
    "p: f32[n_tok, 12] = matmul(x, ab)\n"                                      \
    "p4: f32[n_tok, 2, 2, 3] = reshape(p)\n"                                   \
    "a4: f32[n_tok, 2, 1, 3] = slice(p4) axis=2\n"                             \
    "b4: f32[n_tok, 2, 1, 3] = slice(p4) axis=2 start=1\n"                     \
    "a: f32[n_tok, 6] = reshape(a4)\nb: f32[n_tok, 6] = reshape(b4)\n"
#define DELTA_END(op)                                                          \
    "d: f32[n_tok, 6] = add(a, bias)\n"                                        \
    "m: f32[n_tok, 6, 3] = " op "(qh, kh, vh, d, b, state) eps=0.01\n"         \
    "z: f32[n_tok, 18] = matmul(x, gate)\n"                                    \
    "zh: f32[n_tok, 6, 3] = reshape(z)\n"                                      \
    "n: f32[n_tok, 6, 3] = swiglu(zh, m)\n"                                    \
    "f: f32[n_tok, 18] = reshape(n)\n"                                         \
    "o: f32[n_tok, 8] = matmul(f, out)\nr: f32[n_tok, 8] = add(o, x) "         \
    "!output\n"

static const pl_layout *layout_of(const struct planned_text *t,
                                  const char *name)
{
    pl_tensor x = pl_tensor_find(t->g, name);

    for (int i = 0; i < t->p->n; i++)
        if (t->p->node[i].node == x && t->p->node[i].kind == NUM_OP)
            return t->p->node[i].layout;
    fail_msg("no %s", name);
    return NULL;
}

static void owned(const struct planned_text *t, const char *name, int64_t i,
                  rankset owners)
{
    if (naive_owners(layout_of(t, name), i, t->p->n_rank) != owners)
        fail_msg("%d ranks: index %d of %s is not where its head is",
                 t->p->n_rank, (int)i, name);
}

/* The owner of a value head has all of its own data and its key head. */
static void delta_net_lies_together(const char *text, bool tiled, bool pairs,
                                    int n_rank)
{
    struct planned_text t;
    rankset key[2] = {0}, all = 0;

    plan(&t, text, n_rank, NULL);
    for (int h = 0; h < 6; h++) {
        rankset o = naive_owners(layout_of(&t, "state"), h, n_rank);

        assert_true(o != 0);
        key[tiled ? h % 2 : h / 3] |= o;
        all |= o;
        owned(&t, "bias", h, o);
        for (int i = 0; i < 3; i++) {
            owned(&t, "qkv", 12 + 3 * h + i, o);
            owned(&t, "gate", 3 * h + i, o);
            owned(&t, "out", 3 * h + i, o);
        }
        for (int i = 0; i < 2 && !pairs; i++)
            owned(&t, i ? "wb" : "wa", h, o);
    }
    /* if several ranks share a key head, each has all rows of the pairs of
     * gates */
    for (int i = 0; i < 12 && pairs; i++)
        owned(&t, "ab", i,
              key[0] & (key[0] - 1) ? ranks_all(n_rank) : key[i / 6]);
    for (int i = 0; i < 12; i++)
        owned(&t, "qkv", i, key[i / 3 % 2]);
    for (int i = 0; i < 30; i++) {
        rankset o = naive_owners(layout_of(&t, "qkv"), i, n_rank);

        owned(&t, "taps", i, o);
        owned(&t, "before", i, o);
    }
    assert_int_equal(__builtin_popcountll(all), n_rank < 6 ? n_rank : 6);
    for (int i = 0, n = 0; i < t.p->n; i++) {
        enum num_kind k = t.p->node[i].kind;

        if (k != NUM_OP && k != NUM_SLICE && (k != NUM_ALL_REDUCE || n++ > 0))
            fail_msg("%d ranks: %s of %s", n_rank, num_kind_name(k),
                     t.g->node[t.p->node[i].node].name);
    }
    drop(&t);
}

TEST(layout_numeric_delta_nets_lie_together)
{
    static const int ranks[] = {1, 2, 3, 5, 8};

    for (int i = 0; i < 5; i++) {
        delta_net_lies_together(DELTA_TOP DELTA_TWO DELTA_END("delta_net"),
                                false, false, ranks[i]);
        delta_net_lies_together(DELTA_TOP DELTA_PAIRS DELTA_END("delta_net"),
                                false, true, ranks[i]);
        delta_net_lies_together(
            DELTA_TOP DELTA_TWO DELTA_END("delta_net_tiled"), true, false,
            ranks[i]);
    }
}

/* q, k or v of six heads, three values wide, after a convolution of its own. */
#define KDA_PART(p)                                                            \
    "w" p ": f32[18, 8] = weight role=attn_" p "\n"                            \
    "t" p ": f32[18, 1, 4] = weight role=conv\n"                               \
    "s" p ": f32[n_slot, 18, 3] = memory state=1 role=conv_state\n"            \
    "f" p ": f32[18, 4] = reshape(t" p ")\n"                                   \
    "y" p ": f32[n_tok, 18] = matmul(x, w" p ")\n"                             \
    "c" p ": f32[n_tok, 18] = short_conv(y" p ", f" p ", s" p ") silu=1\n"     \
    "h" p ": f32[n_tok, 6, 3] = reshape(c" p ")\n"

/* A layer of a delta net with a decay per channel. */
static const char kda_text[] =
    "x: f32[n_tok, 8] = input\n" KDA_PART("q") KDA_PART("k") KDA_PART(
        "v") "state: f32[n_slot, 6, 9] = memory state=1 role=state\n"
             "fa: f32[4, 8] = weight role=delta_gate_a\n"
             "fb: f32[18, 4] = weight role=delta_gate\n"
             "dt: f32[18] = weight role=delta_gate\n"
             "a: f32[6, 1] = weight role=delta_gate\n"
             "wb: f32[6, 8] = weight role=delta_gate\n"
             "out: f32[8, 18] = weight role=attn_out\n"
             "b: f32[n_tok, 6] = matmul(x, wb)\n"
             "l: f32[n_tok, 4] = matmul(x, fa)\ng0: f32[n_tok, 18] = matmul(l, "
             "fb)\n"
             "g1: f32[n_tok, 18] = add(g0, dt)\ng2: f32[n_tok, 6, 3] = "
             "reshape(g1)\n"
             "g: f32[n_tok, 6, 3] = mul(g2, a)\n"
             "m: f32[n_tok, 6, 3] = delta_net_channels(hq, hk, hv, g, b, "
             "state) "
             "eps=0.01\n"
             "f: f32[n_tok, 18] = reshape(m)\n"
             "o: f32[n_tok, 8] = matmul(f, out)\nr: f32[n_tok, 8] = add(o, x) "
             "!output\n";

/* The owner of a head has its rows of all matrices, taps and states, so that
 * only the output is exchanged. */
static void kda_lies_together(int n_rank)
{
    static const char *const rows[] = {"wq", "wk", "wv", "tq", "tk", "tv",
                                       "sq", "sk", "sv", "fb", "dt", "out"};
    static const char *const heads[] = {"state", "a", "wb"};
    struct planned_text t;

    plan(&t, kda_text, n_rank, NULL);
    for (int h = 0; h < 6; h++) {
        rankset o = naive_owners(layout_of(&t, "state"), h, n_rank);

        assert_int_equal(__builtin_popcountll(o), 1);
        for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
            owned(&t, heads[i], h, o);
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
            for (int k = 3 * h; k < 3 * h + 3; k++)
                owned(&t, rows[i], k, o);
    }
    for (int i = 0, n = 0; i < t.p->n; i++) {
        enum num_kind k = t.p->node[i].kind;

        if (k != NUM_OP && k != NUM_SLICE && (k != NUM_ALL_REDUCE || n++ > 0))
            fail_msg("%d ranks: %s of %s", n_rank, num_kind_name(k),
                     t.g->node[t.p->node[i].node].name);
    }
    drop(&t);
}

TEST(layout_numeric_delta_nets_with_channels_lie_together)
{
    static const int ranks[] = {2, 3, 5};

    for (int i = 0; i < 3; i++)
        kda_lies_together(ranks[i]);
}

/* Two groups of three heads, three values wide, with states of two rows. */
static const char scan_text[] =
    "x: f32[n_tok, 8] = input\n"
    "in: f32[50, 8] = weight role=ssm_in\n"
    "taps: f32[26, 4] = weight role=ssm_conv\n"
    "before: f32[n_slot, 26, 3] = memory state=1 role=ssm_conv_state\n"
    "state: f32[n_slot, 6, 6] = memory state=1 role=ssm_state\n"
    "bias: f32[6] = weight role=ssm_gate\n"
    "out: f32[8, 18] = weight role=ssm_out\n"
    "y: f32[n_tok, 50] = matmul(x, in)\n"
    "z: f32[n_tok, 18] = slice(y) axis=1\n"
    "xbc: f32[n_tok, 26] = slice(y) axis=1 start=18\n"
    "dt: f32[n_tok, 6] = slice(y) axis=1 start=44\n"
    "v: f32[n_tok, 26] = short_conv(xbc, taps, before) silu=1\n"
    "xs: f32[n_tok, 18] = slice(v) axis=1\n"
    "b: f32[n_tok, 4] = slice(v) axis=1 start=18\n"
    "c: f32[n_tok, 4] = slice(v) axis=1 start=22\n"
    "xh: f32[n_tok, 6, 3] = reshape(xs)\nbh: f32[n_tok, 2, 2] = reshape(b)\n"
    "ch: f32[n_tok, 2, 2] = reshape(c)\nd: f32[n_tok, 6] = add(dt, bias)\n"
    "m: f32[n_tok, 6, 3] = ssm_scan(ch, bh, xh, d, state)\n"
    "f: f32[n_tok, 18] = reshape(m)\nn: f32[n_tok, 18] = swiglu(z, f)\n"
    "q: f32[n_tok, 18] = sqr(n)\nq4: f32[n_tok, 2, 9, 1] = reshape(q)\n"
    "s: f32[n_tok, 2, 1] = sum(q4)\nnh: f32[n_tok, 2, 9] = reshape(n)\n"
    "g: f32[n_tok, 2, 9] = div(nh, s)\ne: f32[n_tok, 18] = reshape(g)\n"
    "o: f32[n_tok, 8] = matmul(e, out)\nr: f32[n_tok, 8] = add(o, x) "
    "!output\n";

/* The owner of a head has all of its own data and b and c of its group. Up to
 * three ranks, each has whole groups or some heads of each, so that only sums
 * are exchanged: those of the norm and those of the output. */
static void scan_lies_together(int n_rank)
{
    struct planned_text t;
    rankset group[2] = {0};
    int n_reduce = 0;

    plan(&t, scan_text, n_rank, NULL);
    for (int h = 0; h < 6; h++) {
        rankset o = naive_owners(layout_of(&t, "state"), h, n_rank);

        assert_true(o != 0);
        group[h / 3] |= o;
        owned(&t, "bias", h, o);
        owned(&t, "in", 44 + h, o);
        for (int i = 0; i < 3; i++) {
            owned(&t, "in", 3 * h + i, o);
            owned(&t, "in", 18 + 3 * h + i, o);
            owned(&t, "out", 3 * h + i, o);
        }
    }
    for (int i = 0; i < 4; i++) {
        owned(&t, "in", 36 + i, group[i / 2]);
        owned(&t, "in", 40 + i, group[i / 2]);
    }
    for (int i = 0; i < 26; i++) {
        rankset o = naive_owners(layout_of(&t, "in"), 18 + i, n_rank);

        owned(&t, "taps", i, o);
        owned(&t, "before", i, o);
    }
    for (int i = 0; i < t.p->n && n_rank <= 3; i++) {
        enum num_kind k = t.p->node[i].kind;

        n_reduce += k == NUM_ALL_REDUCE;
        if (k != NUM_OP && k != NUM_SLICE && k != NUM_ALL_REDUCE)
            fail_msg("%d ranks: %s of %s", n_rank, num_kind_name(k),
                     t.g->node[t.p->node[i].node].name);
    }
    if (n_rank <= 3)
        assert_int_equal(n_reduce, n_rank - 1);
    drop(&t);
}

TEST(layout_numeric_scans_lie_together)
{
    static const int ranks[] = {1, 2, 3, 5, 8};

    for (int i = 0; i < 5; i++)
        scan_lies_together(ranks[i]);
}

TEST(layout_numeric_out_of_memory_is_a_status)
{
    for (int64_t n = 0; alloc_each(&n);) {
        struct planned_text t;
        pl_err err;

        alloc_ran(make(&t, texts[1].graph, 3, NULL, &err));
        drop(&t);
    }
}
