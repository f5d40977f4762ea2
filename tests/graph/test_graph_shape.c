/* Shapes: what each op requires of its operands and its result's shape, as
 * lines of the text form. A line whose shape is not the inferred one is
 * rejected, so an accepted line proves the inference. */
#include "graph/graph.h"
#include "lib/support.h"

#include <stdio.h>
#include <string.h>

/* Operands of the lines below. */
static const char prelude[] = "ids: i32[n_tok] = input\n"
                              "ids2: i32[n_tok, 2] = input\n"
                              "ids3: i32[n_tok, 3] = input\n"
                              "out_ids: i32[n_out] = input\n"
                              "five: i32[5] = input\n"
                              "deep: i32[1, 1, 1, 5] = input\n"
                              "x: f32[n_tok, 64] = input\n"
                              "o: f32[n_out, 64] = input\n"
                              "c: f32[6, 64] = input\n"
                              "x3: f32[n_tok, 2, 64] = input\n"
                              "x1: f32[n_tok, 1, 64] = input\n"
                              "h: f32[n_tok, 4, 16] = input\n"
                              "kh: f32[n_tok, 2, 16] = input\n"
                              "kh2: f32[2*n_tok, 2, 16] = input\n"
                              "vh: f32[n_tok, 2, 32] = input\n"
                              "oh: f32[n_out, 4, 16] = input\n"
                              "t: f32[64, n_tok] = input\n"
                              "big: f32[1048576, 1, 1048576] = input\n"
                              "wide: f32[128, 1] = input\n"
                              "v64: f32[64] = weight\n"
                              "v16: f32[16] = weight\n"
                              "v8: f32[8] = weight\n"
                              "v4: f32[4] = weight\n"
                              "qv: q8_0[1, 64] = weight\n"
                              "h64: bf16[64] = weight\n"
                              "w: q4_0[128, 64] = weight\n"
                              "wf: f16[128, 64] = weight\n"
                              "w3: q8_0[4, 32, 64] = weight\n"
                              "w2: q8_0[2, 32, 64] = weight\n"
                              "ck: f16[n_slot, 2, 16] = memory\n"
                              "cv: f16[n_slot, 2, 32] = memory values=1\n"
                              "ck3: f16[n_slot, 3, 16] = memory\n"
                              "st: f32[n_slot1, 4, 512] = memory state=1"
                              " role=state\n"
                              "sc: f32[n_slot1, 64, 3] = memory state=1\n"
                              "taps: f32[64, 4] = weight\n"
                              "su: f32[n_slot1, 64, 3] = memory state=1\n"
                              "used: f32[n_tok, 64] = short_conv(x, taps, su)\n"
                              "taps16: f16[64, 4] = weight\n"
                              "tap: f32[64, 1] = weight\n"
                              "g4: f32[n_tok, 4] = input\n"
                              "g4o: f32[n_out, 4] = input\n"
                              "v4h: f32[n_tok, 4, 32] = input\n"
                              "r: f32[n_tok, 8] = input\n"
                              "b8: f32[8] = weight\n"
                              "ci: f16[n_slot, 1, 16] = memory values=0"
                              " role=cache_index\n"
                              "best: i32[n_tok, 3] = index_topk(h, g4, ci)"
                              " n_used=3\n"
                              "blocks: i32[n_tok, 2, 3] = index_blocks(kh, ci)"
                              " n_used=3 block=4\n"
                              "four: i32[n_tok, 4, 3] = index_blocks(h, ci)"
                              " n_used=3 block=4\n"
                              "cb: f16[n_slot, 2, 32] = memory values=1\n"
                              "cr: f32[n_slot, 1, 64] = memory values=1"
                              " role=cache_index\n"
                              "ape: f32[4, 32] = weight\n"
                              "ape3: f32[4, 33] = weight\n"
                              "pos: i32[n_tok] = input\n"
                              "s4: f32[4] = weight\n"
                              "s3: f32[3] = weight\n"
                              "w6: f32[n_tok, 6] = input\n"
                              "table: i32[9, 3] = weight\n"
                              "kw: f16[n_slot, 2, 16] = cache_write(ck, kh)\n";

/* Message NULL: accepted; else the text of the error. */
static const struct {
    const char *line, *message;
} cases[] = {
    /* leaves */
    {"y: q4_k[2, 512] = weight", NULL},
    {"y: q4_k[2, 320] = weight", "y: rows of 320 values; Q4_K needs"},
    {"y: q8_0[64] = weight", "y: 1 dimensions; Q8_0 needs a matrix of 2"},
    {"y: q8_0[2, 2, 2, 64] = weight", "y: 4 dimensions; Q8_0"},
    {"y: f32[n_tok, 2, n_out] = input", "y: more than one symbolic"},
    {"y: f32[8388608, 8388608] = input", NULL},
    {"y: f32[8388608, 8388609] = input", "y: dimension 1 is 8388609; sizes"},
    {"y: q8_0[3] = input", "rows of 3 values"},
    {"y: bf16[32] = input", "y: an input must be F32 or I32"},
    {"y: q4_k[n_slot, 2, 256] = memory",
     "y: a cache of Q4_K is not supported; use F32, F16, BF16, Q8_0, Q4_0, "
     "Q4_1, Q5_0, Q5_1 or IQ4_NL"},
    {"y: q4_0[n_slot, 2, 32] = memory", NULL},
    {"y: iq4_nl[n_slot, 2, 96] = memory", NULL},
    {"y: q8_0[n_slot, 2, 48] = memory",
     "y: rows of 48 values; Q8_0 needs a multiple of 32; give the cache F16, "
     "BF16 or F32 (-ctk, -ctv)"},
    {"y: q5_1[n_slot, 2, 80] = memory", "Q5_1 needs a multiple of 32; give"},
    /* any op */
    {"y: f32[n_tok] = sqr(ids)", "an I32 operand, expected values"},
    {"y: f32[64] = sqr(qv)",
     "a quantized weight can be read only by matmul and"},
    {"y: f32[n_tok, 64] = rms_norm(x, qv)",
     "a quantized weight can be read only by"},
    {"y: f32[n_tok, 64] = rms_norm(x, h64)", NULL},
    {"y: f32[64] = sum(wf)", "a half-precision weight must be cast to F32"},
    {"y: f32[128, 64] = softmax(wf)", "a half-precision weight must be cast"},
    {"y: f32[64, 128] = permute(wf) perm0=1", "a half-precision weight must"},
    {"y: f32[128, 64] = silu(wf)", NULL},
    {"y: f32[n_slot, 2, 16] = sqr(ck)", "expected a value"},
    {"y: f32[n_slot, 2, 16] = sqr(kw)", "expected a value"},
    {"y: f32[64] = input()", "'()' where"},
    /* gather_rows */
    {"y: f32[n_tok, 64] = gather_rows(w, ids)", NULL},
    {"y: f32[n_tok, 2, 64] = gather_rows(w, ids2)", NULL},
    {"y: f32[n_out, 64] = gather_rows(x, out_ids)", NULL},
    {"y: f32[n_tok, 64] = gather_rows(w, x)", "ids must be I32"},
    {"y: f32[n_tok, 64] = gather_rows(v64, ids)", "the table needs two"},
    {"y: f32[1, 1, 1, 5] = gather_rows(w, deep)", "too many dimensions of"},
    {"y: f32[n_tok, n_tok] = gather_rows(t, ids)", "more than one symbolic"},
    {"y: f32[5, n_tok] = gather_rows(t, five)", NULL},
    /* matmul */
    {"y: f32[n_tok, 128] = matmul(x, w)", NULL},
    {"y: f32[n_tok, 2, 128] = matmul(x3, wf)", NULL},
    {"y: f32[128] = matmul(v64, wf)", NULL},
    {"y: f32[128] = matmul(v64, wf) bf16=1", NULL},
    {"y: f32[128] = matmul(v64, wf) bf16=2",
     "bf16 must be 0, except for attention"},
    {"y: f32[n_tok, 128] = matmul(x, w) bf16=1", "16-bit weights"},
    {"y: f32[n_tok, 64] = sqr(x) bf16=1", "bf16 must be 0"},
    {"y: f32[n_tok, 128] = matmul(x, c)", "must be a weight [n, k]"},
    {"y: f32[n_tok, 128] = matmul(x, w3)", "must be a weight [n, k]"},
    {"y: f32[n_tok, 4, 128] = matmul(h, w)", "the last dimensions differ"},
    {"y: f32[n_tok, 128] = matmul(x)", "1 operands, expected 2 to 2"},
    /* head_matmul */
    {"y: f32[n_tok, 2, 32] = head_matmul(x3, w2)", NULL},
    {"y: f32[n_tok, 2, 32] = head_matmul(x, w2)", "x needs dimensions [t, h"},
    {"y: f32[n_tok, 2, 32] = head_matmul(x3, w)", "a weight [h, n, k]"},
    {"y: f32[n_tok, 2, 32] = head_matmul(x1, w2)", "numbers of heads differ"},
    {"y: f32[n_tok, 2, 32] = head_matmul(kh, w2)", "last dimensions differ"},
    /* experts */
    {"y: f32[n_tok, 2, 32] = expert_matmul(x3, w3, ids2)", NULL},
    {"y: f32[n_tok, 3, 32] = expert_matmul(x1, w3, ids3)", NULL},
    {"y: f32[n_tok, 3, 32] = expert_matmul(x3, w3, ids3)", "or one for all"},
    {"y: f32[n_tok, 2, 32] = expert_matmul(x, w3, ids2)", "x needs dimensions"},
    {"y: f32[n_tok, 2, 32] = expert_matmul(x3, w, ids2)", "a weight [e, n, k]"},
    {"y: f32[n_tok, 2, 32] = expert_matmul(x3, w3, ids)", "I32 [t, u]"},
    {"y: f32[n_tok, 2, 32] = expert_matmul(kh, w3, ids2)", "dimensions differ"},
    {"y: f32[n_tok, 2, 32] = expert_matmul(x3, w3)", "2 operands, expected 3"},
    {"y: f32[n_tok, 32] = expert_down(x3, w3, ids2)", NULL},
    {"y: f32[n_tok, 32] = expert_down(x1, w3, ids2)", "x must have the u"},
    /* rms_norm */
    {"y: f32[n_tok, 64] = rms_norm(x, v64) eps=1e-05", NULL},
    {"y: f32[n_tok, 2, 64] = rms_norm(x3)", NULL},
    {"y: f32[n_tok, 64] = rms_norm(x, v16)", "the weight must have x's last"},
    {"y: f32[64, n_tok] = rms_norm(t)", "the last dimension must be constant"},
    {"y: f32[n_tok, 64] = rms_norm(x, v64, v64)",
     "3 operands, expected 1 to 2"},
    /* rope */
    {"y: f32[n_tok, 4, 16] = rope(h, ids) base=1e4 n_rot=16", NULL},
    {"y: f32[n_tok, 4, 16] = rope(h, ids, v8) base=1e4 n_rot=16", NULL},
    {"y: f32[n_tok, 4, 16] = rope(h, ids, v4) base=1e4 n_rot=8", NULL},
    {"y: f32[n_tok, 4, 16] = rope(h, ids, v4) base=1e4 n_rot=16", "[n_rot / 2"},
    {"y: f32[n_tok, 4, 16] = rope(h, ids) base=1e4 n_rot=15", "n_rot must be"},
    {"y: f32[n_tok, 4, 16] = rope(h, ids) base=1e4 n_rot=18", "n_rot must be"},
    {"y: f32[n_tok, 4, 16] = rope(h, ids) base=1e4", "n_rot must be even"},
    {"y: f32[n_tok, 4, 16] = rope(h, ids) n_rot=16", "base must be positive"},
    {"y: f32[n_tok, 4, 16] = rope(h, out_ids) base=1e4 n_rot=16", "I32 [t]"},
    {"y: f32[n_tok, 64] = rope(x, ids) base=1e4 n_rot=16",
     "x needs dimensions"},
    /* cache_write */
    {"y: f16[n_slot, 2, 32] = cache_write(cv, vh)", NULL},
    {"y: f16[n_slot, 2, 32] = cache_write(cv, kh)", "[t, n_head, d_head] of"},
    {"y: f32[n_tok, 2, 32] = cache_write(vh, vh)", "expected a memory"},
    {"y: f16[n_slot, 2, 16] = cache_write(ck, kh2)", "one row per token"},
    {"y: f16[n_slot, 2, 16] = cache_write(kw, kh)", "was already written"},
    /* attention */
    {"y: f32[n_tok, 4, 32] = attention(h, kw, cv)", NULL},
    {"y: f32[n_tok, 4, 32] = attention(h, ck, cv, v4) window=8", NULL},
    {"y: f32[n_tok, 4, 32] = attention(h, ck, cv) bf16=1", NULL},
    {"y: f32[n_tok, 4, 32] = attention(h, cv, ck)",
     "keys must be a cache of keys"},
    {"y: f32[n_tok, 4, 32] = attention(h, kh, vh)", "expected a memory"},
    {"y: f32[n_tok, 2, 32] = attention(vh, ck, cv)", "with the keys' d"},
    {"y: f32[n_out, 4, 32] = attention(oh, ck, cv)", "one row per token"},
    {"y: f32[n_tok, 4, 32] = attention(h, ck3, cv)", "must be a multiple of"},
    {"y: f32[n_tok, 4, 32] = attention(h, ck, cv, v8)", "sinks must be"},
    {"y: f32[n_tok, 4, 32] = attention(h, ck, cv) window=-1", "negative"},
    /* bidirectional_attention */
    {"y: f32[n_tok, 4, 32] = bidirectional_attention(h, ck3, cv, ids)",
     "must be a multiple of"},
    {"y: f32[n_tok, 4, 32] = bidirectional_attention(h, ck, cv, ids) window=3",
     NULL},
    {"y: f32[n_tok, 4, 32] = bidirectional_attention(h, ck, cv, ids) window=-3",
     "negative"},
    {"y: f32[n_tok, 4, 32] = bidirectional_attention(h, ck, cv, out_ids)",
     "ends must be I32"},
    {"y: f32[n_tok, 4, 32] = bidirectional_attention(h, ck, cv, v4)",
     "ends must be I32"},
    {"y: f32[n_tok, 4, 32] = bidirectional_attention(h, ck, cv)",
     "3 operands, expected 4"},
    /* latent_attention */
    {"y: f32[n_tok, 2, 24] = latent_attention(vh, cv) d_value=24", NULL},
    {"y: f32[n_tok, 2, 32] = latent_attention(vh, cv) d_value=32", NULL},
    {"y: f32[n_tok, 4, 8] = latent_attention(h, ck) d_value=8", "of values"},
    {"y: f32[n_tok, 4, 8] = latent_attention(h, cv) d_value=8", "the keys' d"},
    {"y: f32[n_tok, 2, 33] = latent_attention(vh, cv) d_value=33", "at most"},
    {"y: f32[n_tok, 2, 1] = latent_attention(vh, cv)", "must be at least 1"},
    {"y: f32[n_tok, 2, 8] = latent_attention(vh, cv, best) d_value=8", NULL},
    {"y: f32[n_tok, 2, 8] = latent_attention(vh, cv, g4) d_value=8",
     "chosen positions must be I32"},
    /* index_topk */
    {"y: i32[n_tok, 900] = index_topk(h, g4, ci) n_used=900", NULL},
    {"y: i32[n_tok, 1] = index_topk(h, g4, ci)", "n_used must be at least 1"},
    {"y: i32[n_tok, 1] = index_topk(h, g4, ck) n_used=1", "with one head"},
    {"y: i32[n_tok, 1] = index_topk(h, r, ci) n_used=1", "w must be [t, j]"},
    {"y: i32[n_tok, 1] = index_topk(vh, g4, ci) n_used=1", "the keys' d"},
    {"y: i32[n_out, 1] = index_topk(oh, g4, ci) n_used=1", "one row per token"},
    {"y: i32[n_tok, 1] = index_topk(h, g4, ci) n_used=1 ratio=4", NULL},
    {"y: i32[n_tok, 1] = index_topk(h, g4, ci) n_used=1 ratio=-1",
     "ratio not negative"},
    {"y: f16[n_slot, 2, 16] = memory role=cache_index", "may have a role"},
    /* index_blocks */
    {"y: i32[n_tok, 4, 9] = index_blocks(h, ci) n_used=9 block=3 local=9",
     NULL},
    {"y: i32[n_tok, 4, 1] = index_blocks(h, ci) n_used=1", "at least 1"},
    {"y: i32[n_tok, 4, 1] = index_blocks(h, ci) block=3", "at least 1"},
    {"y: i32[n_tok, 4, 1] = index_blocks(h, ci) n_used=1 block=3 local=2",
     "local must be 0 to n_used"},
    {"y: i32[n_tok, 4, 1] = index_blocks(h, ck) n_used=1 block=3",
     "with one head"},
    /* attention_blocks */
    {"y: f32[n_tok, 4, 32] = attention_blocks(h, ck, cv, blocks) block=2",
     NULL},
    {"y: f32[n_tok, 4, 32] = attention_blocks(h, ck, cv, blocks)",
     "block must be at least 1"},
    {"y: f32[n_tok, 4, 32] = attention_blocks(h, ck, cv, blocks) block=2 "
     "ratio=1",
     "block and ratio must be 0"},
    {"y: f32[n_tok, 4, 32] = attention(h, ck, cv) block=2",
     "block and ratio must be 0"},
    {"y: f32[n_tok, 4, 32] = attention(h, ck, cv) ratio=1",
     "block and ratio must be 0"},
    {"y: i32[n_tok, 3] = index_topk(h, g4, ci) n_used=3 block=1",
     "block and ratio must be 0"},
    {"y: f32[n_tok, 4, 32] = attention_blocks(h, ck, cv, best) block=2",
     "chosen blocks must be I32 [t, n_kv, k]"},
    {"y: f32[n_tok, 4, 32] = attention_blocks(h, ck, cv, vh) block=2",
     "chosen blocks must be I32"},
    {"y: f32[n_tok, 4, 32] = attention_blocks(h, ck, cv, four) block=2",
     "chosen blocks must be I32 [t, n_kv, k]"},
    {"y: f16[n_slot2, 1, 16] = memory values=1 window=7 role=cache_index",
     NULL},
    /* compressed_attention */
    {"y: f32[n_tok, 4, 32] = compressed_attention(v4h, cv, cb, s4) window=1 "
     "ratio=4",
     NULL},
    {"y: f32[n_tok, 4, 32] = compressed_attention(v4h, cv, cb, s4, best) "
     "window=1"
     " ratio=4",
     NULL},
    {"y: f32[n_tok, 4, 32] = compressed_attention(v4h, cv, cb, s4) window=1",
     "the ratio must be at least 1"},
    {"y: f32[n_tok, 4, 32] = compressed_attention(v4h, cv, cb, s4) ratio=1",
     "the window must be in 1"},
    {"y: f32[n_tok, 4, 32] = compressed_attention(v4h, cv, cb, s3) ratio=1 "
     "window=1",
     "sinks must be [n_head]"},
    {"y: f32[n_tok, 4, 32] = compressed_attention(v4h, cv, ck, s4) ratio=1 "
     "window=1",
     "caches of values of all"},
    {"y: f32[n_tok, 4, 32] = compressed_attention(v4h, cv, cr, s4) ratio=1 "
     "window=1",
     "the same shape and format"},
    {"y: f32[n_tok, 4, 16] = compressed_attention(h, cv, cb, s4) ratio=1 "
     "window=1",
     "the keys' d"},
    {"y: f32[n_tok, 4, 32] = compressed_attention(v4h, cv, cb, s4, g4) ratio=1"
     " window=1",
     "chosen blocks must be I32"},
    /* block_mean */
    {"y: f32[n_tok, 32] = block_mean(cr, pos, ape) d_value=32", NULL},
    {"y: f32[n_tok, 16] = block_mean(cr, pos, ape) d_value=16", NULL},
    {"y: f32[n_tok, 8] = block_mean(cr, pos, ape) d_value=8",
     "two or four times"},
    {"y: f32[n_tok, 32] = block_mean(cv, pos, ape) d_value=32", "F32 cache"},
    {"cw: f32[n_slot2, 1, 64] = memory values=1 window=7 role=cache_index\n"
     "y: f32[n_tok, 32] = block_mean(cw, pos, ape) d_value=32",
     NULL},
    {"cw: f32[n_slot2, 1, 64] = memory values=1 window=7 role=cache_index\n"
     "y: f32[n_tok, 16] = block_mean(cw, pos, ape) d_value=16",
     "keeps fewer tokens"},
    {"y: f32[n_tok, 32] = block_mean(cr, g4, ape) d_value=32",
     "positions must be I32"},
    {"y: f32[n_tok, 32] = block_mean(cr, pos, ape3) d_value=32",
     "the bias must be"},
    /* residual streams */
    {"y: f32[n_tok, 8] = sinkhorn(r, s3, b8) n_iter=1", NULL},
    {"y: f32[n_tok, 8] = sinkhorn(r, s3, b8)", "n_iter must be at least 1"},
    {"y: f32[n_tok, 8] = sinkhorn(r, s4, b8) n_iter=1", "must be [3]"},
    {"y: f32[n_tok, 4] = sinkhorn(g4, s3, s4) n_iter=1", "[*, n (n + 2)]"},
    {"y: f32[n_tok, 2, 64] = mix_streams(x3, x, w6)", NULL},
    {"y: f32[n_tok, 2, 64] = mix_streams(x3, x, g4)", "the weights must be"},
    {"y: f32[n_tok, 2, 64] = mix_streams(x3, r, w6)", "and y [t, e]"},
    /* tables of numbers */
    {"y: i32[n_tok, 3] = gather_rows(table, pos)", NULL},
    {"y: f32[9, 9] = matmul(table, table)", "an I32 operand"},
    /* states */
    {"y: f32[n_slot1, 4, 3] = memory state=1 role=conv_state", NULL},
    {"y: f32[n_slot1, 4] = memory state=1", "a memory is [n_slot, n_head,"},
    {"y: f16[n_slot1, 4, 3] = memory state=1",
     "F16 of 'y' should be F32 by memory"},
    {"y: f32[n_slot, 4, 3] = memory state=1",
     "'y' is n_slot, but should be n_slot1 by"},
    {"y: f32[n_tok] = sqr(st)", "expected a value"},
    {"y: f32[n_slot1, 4, 512] = cache_write(st, v4h)", "only by its op"},
    {"y: f32[n_tok, 4, 512] = attention(h, ck, st)",
     "keys must be a cache of keys"},
    {"y: f32[n_tok, 4, 32] = attention(h, st, cv)",
     "keys must be a cache of keys"},
    /* short_conv */
    {"y: f32[n_tok, 64] = short_conv(x, taps, sc)", NULL},
    {"y: f32[n_tok, 64] = short_conv(x, taps, sc) silu=1", NULL},
    {"y: f32[n_tok, 2, 64] = short_conv(x3, taps, sc)", "x must be [t, c]"},
    {"y: f32[n_tok, 64] = short_conv(x, v64, sc)", "and the taps [c, n]"},
    {"y: f32[n_tok, 8] = short_conv(r, taps, sc)", "and the taps [c, n]"},
    {"y: f32[64, n_tok] = short_conv(t, taps, sc)", "and the taps [c, n]"},
    {"y: f32[n_tok, 64] = short_conv(x, taps16, sc)", "taps must be F32"},
    {"y: f32[n_tok, 64] = short_conv(x, tap, sc)", "[slots, c, taps - 1]"},
    {"y: f32[n_tok, 64] = short_conv(x, taps, st)", "[slots, c, taps - 1]"},
    {"y: f32[n_out, 64] = short_conv(o, taps, sc)", "one row per token"},
    {"y: f32[6, 64] = short_conv(c, taps, sc)", "one row per token"},
    {"y: f32[n_tok, 64] = short_conv(x, taps, su)", "already written"},
    {"y: f32[n_tok, 64] = short_conv(x, taps, x)", "expected a memory"},
    {"y: f32[n_tok, 64] = short_conv(x, taps)", "2 operands, expected 3 to 3"},
    /* delta_net */
    {"y: f32[n_tok, 4, 32] = delta_net(kh, kh, v4h, g4, g4, st)", NULL},
    {"y: f32[n_tok, 4, 32] = delta_net_tiled(kh, kh, v4h, g4, g4, st)", NULL},
    {"y: f32[n_tok, 4, 32] = delta_net(h, h, v4h, g4, g4, st)", NULL},
    {"y: f32[n_tok, 4, 32] = delta_net(x, x, v4h, g4, g4, st)",
     "q, k and v must be [t, n_head, d]"},
    {"y: f32[n_tok, 4, 32] = delta_net(h, kh, v4h, g4, g4, st)",
     "the same shape"},
    {"y: f32[n_tok, 4, 32] = delta_net(oh, oh, v4h, g4, g4, st)",
     "must be a multiple of k's"},
    {"y: f32[n_tok, 2, 32] = delta_net(h, h, vh, g4, g4, st)",
     "must be a multiple of k's"},
    {"y: f32[n_tok, 4, 32] = delta_net(kh, kh, v4h, r, g4, st)",
     "decay and beta must be [t, n_head]"},
    {"y: f32[n_tok, 4, 32] = delta_net(kh, kh, v4h, g4, g4o, st)",
     "decay and beta must be [t, n_head]"},
    {"y: f32[n_tok, 4, 32] = delta_net(kh, kh, v4h, g4, g4, sc)",
     "[slots, n_head, d_k * d_v]"},
    {"y: f32[n_tok, 4, 16] = delta_net(kh, kh, h, g4, g4, st)",
     "[slots, n_head, d_k * d_v]"},
    {"y: f32[n_out, 4, 16] = delta_net(oh, oh, oh, g4o, g4o, st)",
     "[slots, n_head, d_k * d_v]"},
    {"y: f32[n_tok, 4, 32] = delta_net(kh, kh, v4h, g4, g4, ck)",
     "[slots, n_head, d_k * d_v]"},
    {"y: f32[n_tok, 4, 32] = delta_net(kh, kh, v4h, g4, g4)",
     "5 operands, expected 6 to 6"},
    {"y: f32[n_tok, 4, 32] = delta_net_channels(kh, kh, v4h, h, g4, st)", NULL},
    {"y: f32[n_tok, 4, 32] = delta_net_channels(kh, kh, v4h, g4, g4, st)",
     "decay must be [t, n_head, d] and beta [t, n_head]"},
    {"y: f32[n_tok, 4, 32] = delta_net_channels(kh, kh, v4h, kh, g4, st)",
     "decay must be [t, n_head, d] and beta [t, n_head]"},
    {"y: f32[n_tok, 4, 32] = delta_net_channels(kh, kh, v4h, v4h, g4, st)",
     "a value for each of k's channels"},
    {"y: f32[n_tok, 4, 32] = delta_net_channels(kh, kh, v4h, h, h, st)",
     "decay must be [t, n_head, d] and beta [t, n_head]"},
    /* ssm_scan */
    {"y: f32[n_tok, 4, 32] = ssm_scan(kh, kh, v4h, g4, st)", NULL},
    {"y: f32[n_tok, 4, 32] = ssm_scan(h, h, v4h, g4, st)", NULL},
    {"y: f32[n_tok, 4, 32] = ssm_scan(x, x, v4h, g4, st)",
     "c, b and x must be [t, n_head, d]"},
    {"y: f32[n_tok, 4, 32] = ssm_scan(h, kh, v4h, g4, st)", "the same shape"},
    {"y: f32[n_tok, 4, 32] = ssm_scan(oh, oh, v4h, g4, st)",
     "must be a multiple of b's"},
    {"y: f32[n_tok, 2, 32] = ssm_scan(h, h, vh, g4, st)",
     "must be a multiple of b's"},
    {"y: f32[n_tok, 4, 32] = ssm_scan(kh, kh, v4h, g4o, st)",
     "the decay must be [t, n_head]"},
    {"y: f32[n_tok, 4, 32] = ssm_scan(kh, kh, v4h, g4, sc)",
     "[slots, n_head, d_state * d_head]"},
    {"y: f32[n_tok, 4, 16] = ssm_scan(kh, kh, h, g4, st)",
     "[slots, n_head, d_state * d_head]"},
    {"y: f32[n_tok, 4, 32] = ssm_scan(kh, kh, v4h, g4, ck)",
     "[slots, n_head, d_state * d_head]"},
    {"y: f32[n_tok, 4, 32] = ssm_scan(kh, kh, v4h, g4)",
     "4 operands, expected 5 to 5"},
    /* softmax, router */
    {"y: f32[n_tok, 64] = softmax(x)", NULL},
    {"y: f32[64, n_tok] = softmax(t)", "the last dimension must be constant"},
    {"y: i32[n_tok, 2] = router_topk(r) n_used=2", NULL},
    {"y: i32[n_tok, 8] = router_topk(r, b8) n_used=8 gating=1", NULL},
    {"y: i32[n_tok, 3] = router_topk(r) n_used=3 n_group=4 n_group_used=2",
     NULL},
    {"y: i32[n_tok, 9] = router_topk(r) n_used=9",
     "n_used must be in 1 .. n_expert"},
    {"y: i32[n_tok, 1] = router_topk(r)", "n_used must be in 1 .. n_expert"},
    {"y: i32[n_tok, 2] = router_topk(r, v64) n_used=2", "must be [n_expert]"},
    {"y: i32[n_tok, 2] = router_topk(r) n_used=2 gating=4", "unknown gating"},
    {"y: i32[n_tok, 3] = router_topk(r) n_used=3 n_group=4 n_group_used=1",
     "expert groups do not divide the experts"},
    {"y: i32[n_tok, 2] = router_topk(r) n_used=2 n_group=3 n_group_used=2",
     "expert groups do not divide the experts"},
    {"y: i32[n_tok, 2] = router_topk(r) n_used=2 n_group=8 n_group_used=4",
     "expert groups do not divide the experts"},
    {"y: f32[n_tok, 2] = router_weights(r, ids2) scale=1", NULL},
    {"y: f32[n_tok, 2] = router_weights(r, r) scale=1", "ids must be I32"},
    {"y: f32[n_tok] = router_weights(r, ids) scale=1", "ids must be I32"},
    {"y: f32[n_tok, 2] = router_weights(r, ids2) gating=-1", "unknown gating"},
    {"y: f32[n_tok, 2] = router_weights(o, ids2)",
     "as many rows as the logits"},
    /* elementwise */
    {"y: f32[n_tok, 64] = add(x, v64)", NULL},
    {"y: f32[n_tok, 64] = mul(v64, x)", NULL},
    {"y: f32[n_tok, 2, 64] = sub(x3, x1)", NULL},
    {"y: f32[n_tok, 128, 64] = div(x1, wide)", NULL},
    {"y: f32[n_tok, 64] = swiglu(x, x)", NULL},
    {"y: f32[n_tok, 64] = geglu(x, wf)", "the shapes do not broadcast"},
    {"y: f32[n_tok, 64] = add(x, v16)", "the shapes do not broadcast"},
    {"y: f32[n_tok, 64] = add(x, o)", "the shapes do not broadcast"},
    {"y: f32[n_tok, 64] = add(x, t)", "the shapes do not broadcast"},
    {"y: f32[1048576, 128, 1048576] = add(big, wide)", "more than 2^46"},
    {"y: f32[n_tok, 64] = swiglu_oai(x)", "1 operands, expected 2 to 2"},
    {"y: f32[n_tok, 64] = gelu(x, x)", "2 operands, expected 1 to 1"},
    /* sum, cast */
    {"y: f32[n_tok, 64] = sum(x3)", NULL},
    {"y: f32[n_tok] = sum(t)", NULL},
    {"y: f32[64] = sum(x)", "the summed dimension must be constant"},
    {"y: f32[] = sum(v64)", "where a size"},
    {"y: f32[1] = sum(v64)", "at least two dimensions"},
    {"y: f32[n_tok, 64] = cast(x) format=2", NULL},
    {"y: f32[n_tok, 64] = cast(x) format=3", "expected F32, F16 or BF16"},
    /* moving */
    {"y: f32[n_tok, 4, 16] = reshape(x)", NULL},
    {"y: f32[64*n_tok] = reshape(x)", NULL},
    {"y: i32[2*n_tok] = reshape(ids2)", NULL},
    {"y: f32[64] = reshape(x)", "another number of values"},
    {"y: f32[n_out, 64] = reshape(x)", "another number of values"},
    {"y: f32[n_tok, 65] = reshape(x)", "another number of values"},
    {"y: f32[4, n_tok, 16] = permute(h) perm0=1 perm1=0 perm2=2", NULL},
    {"y: f32[n_tok, 4, 16] = permute(h)", "not a permutation"},
    {"y: f32[n_tok, 4, 16] = permute(h) perm1=1 perm2=3", "not a permutation"},
    {"y: f32[n_tok, 4, 8] = slice(h) axis=2 start=8", NULL},
    {"y: f32[n_tok, 4, 9] = slice(h) axis=2 start=8", "outside the axis"},
    {"y: f32[n_tok, 4, 8] = slice(h) axis=2 start=-1", "outside the axis"},
    {"y: f32[n_tok, 4, 8] = slice(h) axis=3", "must be a constant dimension"},
    {"y: f32[n_tok, 4, 8] = slice(h)", "must be a constant dimension"},
    {"y: f32[n_tok, 4, n_tok] = slice(h) axis=2", "the range must be constant"},
    {"y: f32[n_tok, 3, 8] = slice(h) axis=2", "only the axis may change"},
    {"y: f32[n_tok, 64] = slice(h) axis=1", "another number of dimensions"},
    {"y: f32[n_tok, 6, 16] = concat(h, kh) axis=1", NULL},
    {"y: f32[n_tok, 64] = concat(x) axis=1", NULL},
    {"y: f32[n_tok, 8, 16] = concat(h, h) axis=0", "a constant dimension"},
    {"y: f32[n_tok, 8, 16] = concat(h, vh) axis=1", "only the axis may differ"},
    {"y: f32[n_tok, 8, 16] = concat(h, x) axis=1", "of dimensions differ"},
    {"y: f32[n_tok, 8, 16] = concat(h, -) axis=1", "operand 1 is missing"},
};

TEST(graph_shape_each_op_takes_what_fits_alone)
{
    char text[4096];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pl_graph *g;
        pl_err err;
        pl_status s;

        snprintf(text, sizeof text, "%s%s\n", prelude, cases[i].line);
        s = pl_graph_parse(&g, text, &err);
        if (s != PL_OK && !cases[i].message)
            fail_msg("%s: %s", cases[i].line, err.message);
        if (s == PL_OK && cases[i].message)
            fail_msg("accepted: %s", cases[i].line);
        if (s != PL_OK && !strstr(err.message, cases[i].message))
            fail_msg("%s: \"%s\", not \"%s\"", cases[i].line, err.message,
                     cases[i].message);
        pl_graph_free(g);
    }
}

/* An error is kept. Later calls pass it on and change nothing. */
TEST(graph_shape_first_error_stays)
{
    const pl_dim d[2] = {{1, PL_N_TOK}, {64, PL_CONST}};
    pl_graph *g;
    pl_tensor x, y;
    pl_err err;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    x = pl_input(g, "x", PL_F32, 2, d);
    assert_int_equal(pl_input(g, "x", PL_F32, 2, d), -1);
    y = pl_add(g, x, -1);
    assert_int_equal(y, -1);
    assert_int_equal(pl_softmax(g, x), -1);
    pl_name(g, y, "y");
    pl_output(g, y);
    assert_int_equal(pl_graph_check(g, &err), PL_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, "x: another tensor has this name"));
    assert_int_equal(pl_tensor_find(g, "x"), x);
    pl_graph_free(g);
}

/* Operands that are not tensors, counts out of range: errors, no crash. */
TEST(graph_shape_wrong_calls_are_refused)
{
    const pl_dim d[2] = {{1, PL_N_TOK}, {64, PL_CONST}};
    const pl_dim odd[1] = {{1, (pl_symbol)9}};
    const pl_interval run[2] = {{40, 1}, {24, 0}};
    const pl_layout l = {PL_SPLIT, 1, 64, 2, run};
    pl_tensor x[7] = {0};

    for (int i = 0; i < 17; i++) {
        pl_graph *g;

        assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
        assert_int_equal(pl_input(g, "x", PL_F32, 2, d), 0);
        switch (i) {
        case 0:
            pl_add(g, -1, 0);
            break;
        case 1:
            pl_add(g, 0, 7);
            break;
        case 2:
            pl_sqr(g, -5);
            break;
        case 3:
            pl_concat(g, 7, x, 1);
            break;
        case 4:
            pl_concat(g, 0, x, 1);
            break;
        case 5:
            pl_concat(g, 2, (pl_tensor[]){0, -1}, 1);
            break;
        case 6:
            pl_reshape(g, 0, 5, d);
            break;
        case 7:
            pl_reshape(g, 0, 1, odd);
            break;
        case 8:
            pl_input(g, "y", PL_F32, 1, odd);
            break;
        case 9:
            pl_input(g, "", PL_F32, 2, d);
            break;
        case 10:
            pl_input(g, NULL, PL_F32, 2, d);
            break;
        case 11:
            pl_input(g, "y", (pl_format)99, 2, d);
            break;
        case 12:
            pl_name(g, 0, "y");
            break;
        case 13:
            pl_want_layout(g, 0, &l);
            break;
        case 14:
            pl_slice(g, 0, 4, 0, 1);
            break;
        case 15:
            pl_set_numerics(g, (pl_numerics)2);
            break;
        default:
            pl_attention(g, 0, -1, -1, 0, 1, 0, 0);
        }
        if (pl_graph_check(g, NULL) == PL_OK)
            fail_msg("call %d was accepted", i);
        pl_graph_free(g);
    }
}

/* Ops have the numerics set before them, if these apply. */
TEST(graph_shape_ops_have_the_numerics_that_were_set)
{
    const pl_dim d[2] = {{1, PL_N_TOK}, {64, PL_CONST}};
    const int64_t m[2] = {32, 64};
    static const pl_format formats[] = {PL_F16, PL_BF16, PL_F32, PL_Q8_0};
    pl_graph *g;
    pl_tensor x;

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    x = pl_input(g, "x", PL_F32, 2, d);
    for (int i = 0; i < 4; i++) {
        char name[8];
        pl_tensor w, y[2];

        snprintf(name, sizeof name, "w%d", i);
        w = pl_weight(g, name, formats[i], 2, m, PL_ROLE_NONE);
        for (int fast = 1; fast >= 0; fast--) {
            pl_set_numerics(g, fast ? PL_NUMERICS_FAST : PL_NUMERICS_EXACT);
            y[fast] = pl_matmul(g, x, w);
        }
        assert_int_equal(g->node[y[1]].attr.bf16, i < 2);
        assert_int_equal(g->node[y[0]].attr.bf16, 0);
    }
    assert_int_equal(pl_graph_check(g, NULL), PL_OK);
    pl_graph_free(g);
}

/* Names do not decide layers: a tensor has the layer that was set before it. */
TEST(graph_shape_tensor_has_the_layer_that_was_set)
{
    static const int layers[] = {-1, 0, 61, 65535, -1, 7};
    const int64_t d = 4;
    pl_graph *g;
    char name[32];

    assert_int_equal(pl_graph_create(&g, NULL), PL_OK);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        pl_tensor t;

        if (i > 0) /* a new graph is outside of layers */
            pl_layer(g, layers[i]);
        snprintf(name, sizeof name, "blk.3.w%zu", i);
        t = pl_weight(g, name, PL_F32, 1, &d, PL_ROLE_NORM);
        assert_int_equal(g->node[t].layer, layers[i]);
        t = pl_silu(g, t);
        assert_int_equal(g->node[t].layer, layers[i]);
    }
    for (int layer = -2; layer < 65537; layer += 65536 + 2) {
        pl_graph *h;
        pl_err err;

        assert_int_equal(pl_graph_create(&h, NULL), PL_OK);
        pl_layer(h, layer);
        assert_int_equal(pl_graph_check(h, &err), PL_BAD_ARGUMENT);
        assert_non_null(strstr(err.message, "not in 0 .. 65535"));
        pl_graph_free(h);
    }
    pl_graph_free(g);
}
