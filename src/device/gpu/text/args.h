/* Arguments of the kernels: what the host fills and the text reads. Members
 * are aligned by their own size on both sides, so all compilers lay them out
 * alike. An address is what AT() takes; 0 is none. */

enum { TEXT_DIM = 4 }; /* most dimensions of a tensor */

/* Formats of plain tensors, as `format` members say them. */
enum { TEXT_F32 = 0, TEXT_F16 = 1, TEXT_BF16 = 2 };

struct unary_args {
    u64 out, x; /* [n]; x of format, may be out */
    s64 n;
    s32 op, format; /* op: TEXT_SCALE .. */
    float a, b;     /* scale: the factor; clamp: its bounds */
};
enum {
    TEXT_SCALE,
    TEXT_CLAMP,
    TEXT_SQR,
    TEXT_SQRT,
    TEXT_EXP,
    TEXT_TANH,
    TEXT_SIGMOID,
    TEXT_SOFTPLUS,
    TEXT_SILU,
    TEXT_GELU,
    TEXT_RELU
};

/* dim[0] is the innermost; a stride counts elements, 0 where the operand is
 * broadcast. */
struct binary_args {
    u64 out, x, y; /* out may be x or y */
    s64 n, dim[TEXT_DIM], stride_x[TEXT_DIM], stride_y[TEXT_DIM];
    s32 op, format_x, format_y; /* op: TEXT_ADD .. */
    float lo, hi, alpha;        /* swiglu_oai */
};
enum {
    TEXT_ADD,
    TEXT_SUB,
    TEXT_MUL,
    TEXT_DIV,
    TEXT_SWIGLU,
    TEXT_GEGLU,
    TEXT_SWIGLU_OAI
};

struct cast_args {
    u64 out, x; /* [n] */
    s64 n;
    s32 from, to; /* formats */
};

/* A group a row. Of two norms in one launch, the second has the rows from n_row
 * on, and neither has the rest. */
struct rms_norm_args {
    u64 out, x, w;       /* [rows, d]; w [d] of format, or none */
    u64 y, sum;          /* x + y, which goes there, is normed; or none */
    u64 q8, span;        /* the result is quantized too; or none */
    u64 out_2, x_2, w_2; /* the second */
    s64 d;
    s32 format;
    float eps;
    s32 n_row;
    s32 n_span, n_part; /* as quantize's */
};

/* A group a row. */
struct softmax_args {
    u64 out, x; /* [rows, d]; x may be out */
    s64 d;
};

/* ---- what steps move ---- */

/* Two nested strided loops over runs of bytes, in units of 1, 2, 4 or 8
 * that divide all of it. */
struct text_piece {
    u64 dst, src;
    s64 bytes, n0, dst_s0, src_s0, n1, dst_s1, src_s1;
    s32 unit, first; /* first: of its groups */
};
enum { TEXT_PIECES = 6 };
struct copy_pieces_args {
    struct text_piece piece[TEXT_PIECES];
    s32 n;
};

/* One value, [n] floats by the loops; src_at counts from each addend. After an
 * addend, n_add times the two on top of the stack are replaced by their sum,
 * lower + upper. */
struct merge_tree_addend {
    u64 at; /* of the addend, less what it does not begin with of a value */
    s64 skip_tok, skip_out; /* and less so much by n_tok, by n_out */
    s64 n_add;
};
enum { TEXT_DEPTH = 64 }; /* most entries of the stack */
struct tree_piece {
    u64 dst;
    s64 src_at, bytes, n0, dst_s0, src_s0, n1, dst_s1, src_s1;
};
struct merge_tree_args {
    u64 addend; /* struct merge_tree_addend [n] */
    struct tree_piece piece;
    s64 n_tok, n_out, n;
};

/* Tiles, [page, head], of the pages that the micro-batch's sequences use; out
 * has n_head heads, x n_head_x. */
struct pages_args {
    u64 out, x, map;     /* map [n_head]: head of x, or -1 */
    u64 pos, seq, pages; /* [n_tok], [n_tok], [rows, page_stride] */
    s64 n_tok, page_stride, n_page, tile_bytes;
    s32 n_head, n_head_x, n_entry; /* n_entry: of a row, to look at */
    s32 page_tokens;
};

/* ---- contractions with weights ---- */

/* Weights whose k is one rank's, all or a part: n tiles of 32 values, of float
 * formats n values, from byte `off` of a panel (of a plain row) on, that meet
 * the activations' tile or value x and on. `first` is the place of the first in
 * its super-block of 8 tiles or segment of 256 values. Behind the run the
 * accumulator is pushed on the stack and summed with the n_add entries below;
 * -1: it goes on. */
struct contract_run {
    u64 off;
    s32 x, n, first, n_add;
};
enum { CONTRACT_RUNS = 12 };

enum {
    CONTRACT_HEADS,   /* row t * n_head + h of x and out meets matrix h */
    CONTRACT_EXPERTS, /* row i of out: matrix id[i], row i / share of x */
    CONTRACT_DOWN     /* row t of out: one accumulator over rows t * n_used + u
                         of x with matrix id[t, u], by ascending id */
};

/* What is added to a result of few rows, [rows of out][n], when it is whole:
 * row [n] at `from`; or, if `made`, that of the matrix which an expert's row
 * has met, of [n_matrix, n], zeros where there is none: it is left there,
 * [rows of out][n]. The sum goes to `sum`. An address of 0: nothing. */
struct contract_bias {
    u64 from, made, sum;
};

/* Another matrix that the same rows meet, of few: its groups are those from
 * `first` on. Such a launch has no entries at `stack`. */
struct contract_more {
    u64 w, out, matrix_bytes;
    struct contract_bias bias;
    s32 n, n_panel;
    s32 first, pad;
};
enum { CONTRACT_MORE = 2, CONTRACT_NO_MORE = 0x7fffffff /* as first */ };

/* Of the stack's entries, [rows of out][n], the first n_out lie at `out`, the
 * others at `stack`. */
struct contract_args {
    u64 w, x, id, out, stack;
    u64 head, block, list; /* many rows of experts: as in route_args */
    u64 matrix_bytes, panel_bytes, out_stride, stack_stride;
    struct contract_bias bias;
    s32 n, n_panel;   /* rows of weights */
    s32 n_matrix;     /* ids from 0 on that exist */
    s32 mode, x_step; /* x_step: dwords a row of x */
    s32 n_tok, tok;   /* heads: how many, and of them a group */
    s32 n_head, n_used, share;
    s32 item, n_item;     /* down: experts from the item-th on, up to 256 */
    s32 w_k, w_row;       /* plain and float: elements from k to k, row to
                               row */
    s32 n_out, top, open; /* entries when it begins; `open`: the accumulator
                               goes on from another one behind them */
    s32 n_run;
    struct contract_run run[CONTRACT_RUNS];
    struct contract_more more[CONTRACT_MORE];
};

/* ---- attention and its cache ---- */

/* Formats of caches besides those of plain tensors. From TEXT_CODES on, blocks
 * of codes of 4 bits, and bits that say more of them. */
enum { TEXT_Q8_0 = 8, TEXT_CODES = 16 };
enum { TEXT_CODES_MIN = 1, TEXT_CODES_FIFTH = 2, TEXT_CODES_IQ4 = 4 };
enum {
    TEXT_PAGE = 64,  /* positions a tile */
    TEXT_SPAN = 256, /* positions that one softmax runs through online */
    TEXT_SOFT = 32,  /* floats before a state's sums: l [16], m */
    TILE_ROWS = 64   /* of queries, in a group's tile of a prompt */
};

/* Heads [n_tok, n_head, d] that a cache takes. n_head 0: x is the result of
 * heads that turn, and their groups do it; else groups from `first` on. */
struct rope_put {
    u64 cache, x; /* cache 0: none */
    s64 tile_bytes;
    s32 n_head, d, format, values; /* as cache_write's */
    s32 first, pad;
};
/* A group some heads of a token. */
enum { ROPE_HEADS = 4, ROPE_POWERS = 32 };
struct rope_args {
    u64 out, x;  /* [n_tok, n_head, d]; x may be out */
    u64 pos;     /* s32 [n_tok] */
    u64 factors; /* [n_rot / 2] of format, or none */
    s32 n_tok, n_head, d, n_rot;
    s32 format, neox, yarn;
    s32 stride;                 /* pairs between two of `power` */
    double step, scale, mscale; /* a pair's power times `step` is the next's */
    double low, width;          /* YaRN: pairs */
    double power[ROPE_POWERS];
    u64 out_2, x_2; /* other heads of the same tokens; out_2 0: x_2 is only made
                     */
    s32 n_head_2;   /* 0: none */
    s32 first_2;    /* of their groups */
    u64 raw, raw_2; /* x, x_2 are these, normed by head; or none */
    u64 w, w_2;     /* as rms_norm's */
    s32 w_format;
    float eps;
    struct rope_put put[2];
    u64 put_pos, seq, pages; /* the token table, for caches */
    s64 page_stride;
};

/* A group some tokens and values of a head. */
enum { CACHE_TOKENS = 32, CACHE_VALUES = 64 };
struct cache_write_args {
    u64 cache;           /* tiles as program/cache_tile.h has them */
    u64 x;               /* [n_tok, n_head, d] */
    u64 pos, seq, pages; /* the token table */
    s64 page_stride, tile_bytes;
    s32 n_tok, n_head, d, format, values;
    s32 first_2; /* of the groups of another cache of the same pages */
    u64 cache_2, x_2;
    s64 tile_bytes_2;
    s32 n_head_2, d_2, format_2, values_2;
};

/* Floats that a tile of prompts puts aside of 64 rows: acc, l, m. */
#define TILE_ENTRY(wide) (TILE_ROWS * ((wide) + 16 + 1))

/* A group a tile of tokens, a KV head, a span; states go to `part`. */
struct attend_args {
    u64 q, k, v;         /* q [n_tok, n_head, d] */
    u64 head_map;        /* s32 [n_head] */
    u64 pos, seq, pages; /* the token table */
    u64 part;            /* [end - first, n_head, n_state, TEXT_SOFT + e] */
    u64 stack;           /* tiles: [n_group, depth, TILE_ENTRY(wide)] */
    s64 page_stride, key_bytes, value_bytes; /* bytes: of a tile */
    s32 first, end;                          /* tokens */
    s32 n_head, n_kv, d, e;
    s32 key_format, value_format;
    s32 window; /* 0: none */
    s32 per_kv; /* KV head of query head h is h / per_kv; 0: as head_map says */
    s32 n_tile, n_part, n_span; /* groups: [n_span, n_kv, n_part, n_tile] */
    s32 heads;                  /* of a KV head, at most so many a part */
    s32 tokens;                 /* most of a tile */
    s32 step;                   /* tokens that a group looks after */
    s32 n_state;
    s32 spans, depth; /* spans in one state, 2^depth; tiles alone have several.
                         With a window they are one, or a row's all */
    float scale, softcap;
};

/* A group a row (token, head), some of its states, and some columns. Where
 * super-blocks are made of the result, a part of all of a token's columns, of
 * few states. */
enum { MERGE_STATES = 128, MERGE_COLUMNS = 32 };
enum { MERGE_PART = 256, PART_STATES = 16 };
struct attend_merge_args {
    u64 part; /* [n_row, n_state, TEXT_SOFT + e] */
    u64 next; /* [n_row, n_block, TEXT_SOFT + e]; or, n_block 1: none */
    u64 out;  /* [n_row, e], if there is no next */
    u64 sink; /* [n_head] of sink_format, or none */
    u64 pos;  /* s32 [n_tok] */
    u64 q8;   /* the result is quantized too, by blocks; or none */
    s32 first, n_head, e, window, sink_format;
    s32 spans; /* in one of the states */
    s32 n_state, n_block, n_column;
    s32 n_part; /* parts of a token's columns, as quantize has them; 0: none */
    u64 span;
};

/* ---- rows, moves, states ---- */

/* struct rank_span, struct tree_addend and struct pack_chunk, as they are. */
struct text_span {
    s64 logical, here, n; /* here: `local` */
    s32 rank, pad;
};
struct text_item {
    s32 rank, n_add;
};
struct text_chunk {
    s64 k;
    s32 n, rank;
    s64 k_loc;
    u64 off;
};

/* Units of 32 values, or, where there are spans, n_part of them a row: parts
 * of spans between multiples of 256. */
struct quantize_args {
    u64 out, x, span; /* blocks [n_row, k / 32], or none; x [n_row, k] */
    u64 y, made;      /* x op y, which goes there, is meant; or none */
    u64 z, product;   /* times z [n_row], which goes there; or none */
    s64 k, n_row;
    s32 n_span, n_part;
    s32 whole; /* spans are all of a row */
    s32 op;    /* as binary's */
    float lo, hi, alpha;
};

/* A group a row. */
struct router_topk_args {
    u64 out, x, bias; /* [rows, n_used]; [rows, e]; [e] of format, or none */
    u64 scratch;      /* [rows, 2 e] floats */
    u64 weights;      /* of the chosen: [rows, n_used]; or none */
    s64 e, n_used;
    s32 format, gating;        /* gating: GATING_SOFTMAX .. */
    s32 n_group, n_group_used; /* n_group 0: all may be chosen */
    s32 normalise;             /* weights: as router_weights' */
    float weight;              /* its scale */
};
enum { GATING_SOFTMAX, GATING_SIGMOID, GATING_SELECTED };
struct router_weights_args {
    u64 out, x, id; /* [rows, n_used]; [rows, e] */
    s64 e, n_used;
    s32 gating, normalise;
    float scale;
};

/* A lane a column; groups go by row, then by 256 columns. */
struct sum_args {
    u64 out, x;     /* [rows, d], out_stride bytes apart; [rows, u, d] */
    u64 span, item; /* n_span 0: all of u is rank 0's */
    s64 u, d, out_stride;
    s32 n_span, n_item, n_out;
};
enum { TEXT_RANKS = 64 };

/* dim[0] is the innermost; strides count elements of x, `size` bytes each. */
struct permute_args {
    u64 out, x;
    s64 n, dim[TEXT_DIM], stride[TEXT_DIM];
    s32 size;
};
/* The same where neighbours of the result and of x run along two dimensions:
 * first of the result [n[0]], first of x [n[1]], and two others. A group takes
 * a square of 32. */
struct transpose_args {
    u64 out, x;
    s64 n[TEXT_DIM], stride[TEXT_DIM], out_stride[TEXT_DIM];
    s32 size;
};

/* Rows by index. How codes become values is said by quant/pack.h. */
struct gather_args {
    u64 out, x, id;                     /* [n_id, width]; id [n_id] */
    u64 span, item, chunk;              /* chunk: of packed weights */
    u64 grid;                           /* of plain IQ1, IQ2, IQ3 */
    s64 n_row, width, out_stride, step; /* step: bytes a panel or plain row */
    s32 n_span, n_item, n_out, n_chunk;
    s32 format;      /* GATHER_F32 .. */
    s32 block;       /* values of a plain block, tile_bytes long */
    s32 low, high;   /* bits of the planes */
    s32 sub, sup;    /* TEXT_SUB_.. TEXT_SUP_.. */
    s32 bias, table; /* table: levels are those of level[] */
    s32 tile_bytes, sup_bytes, sub_bytes;
    u32 level[4]; /* 16 signed bytes */
};
enum {
    TEXT_SUB_NONE,
    TEXT_SUB_F16,
    TEXT_SUB_F16_MIN,
    TEXT_SUB_E8M0,
    TEXT_SUB_S8,
    TEXT_SUB_S8X2,
    TEXT_SUB_U8_MIN,
    TEXT_SUB_U8X2_MIN,
    TEXT_SUB_ODD4X2,
    TEXT_SUB_UE4M3X2
};
enum { TEXT_SUP_NONE, TEXT_SUP_D, TEXT_SUP_D_8TH, TEXT_SUP_D_DMIN };
enum { /* as enum pl_format */
       GATHER_F32,
       GATHER_F16,
       GATHER_BF16,
       GATHER_Q8_0,
       GATHER_Q4_0,
       GATHER_Q4_1,
       GATHER_Q5_0,
       GATHER_Q5_1,
       GATHER_Q2_K,
       GATHER_Q3_K,
       GATHER_Q4_K,
       GATHER_Q5_K,
       GATHER_Q6_K,
       GATHER_IQ4_NL,
       GATHER_IQ4_XS,
       GATHER_MXFP4,
       GATHER_IQ1_S,
       GATHER_IQ1_M,
       GATHER_IQ2_XXS,
       GATHER_IQ2_XS,
       GATHER_IQ2_S,
       GATHER_IQ3_XXS,
       GATHER_IQ3_S,
       GATHER_TQ1_0,
       GATHER_TQ2_0,
       GATHER_NVFP4,
       GATHER_I32
};

/* Memories of recurrent layers, and who the tokens are: struct token_table. */
struct short_conv_args {
    u64 out, x, w, state; /* [n_tok, n_channel] twice; [n_channel, n_tap];
                             [slots, n_channel, n_tap - 1] */
    u64 pos, seq, pages;
    s64 n_channel, page_stride;
    s32 n_tok, n_tap, silu;
};
struct delta_net_args {
    u64 out, q, k, v, g, beta, state, head_map; /* cpu_recurrent.h */
    u64 pos, seq, pages;
    u64 kn, qn, kq; /* normed keys and queries, [n_tok, n_head_k, d_k], and
                       their products, [n_tok, n_head_k] */
    u64 run;        /* s32 [n_tok + 1, 4]: the list of runs */
    s64 page_stride, n_head_k, n_head_v, d_k, d_v;
    s32 n_tok, n_split; /* n_split: groups that take the runs in turn */
    float eps;
};
enum { STATE_READ_WORD, STATE_WRITTEN_WORD, STATE_AT_WORD };
/* Which rows of activations meet which matrix, for many rows. A pair is i = t *
 * n_used + u; pairs are sorted by key, ascending: by expert, or by place among
 * the token's experts in ascending order, then expert. An id that there is not
 * counts as n_matrix; for expert_down it has no key, but for one of a token
 * that has nothing else. Blocks of up to 64 pairs of one key are {expert, first
 * in list, how many}; those of step s are head[s] .. head[s + 1] - 1. */
struct route_args {
    u64 id;          /* [n_tok, n_used] */
    u64 key;         /* [n_tok * n_used] -1: none */
    u64 start;       /* [2][n_key] first in the list, how many */
    u64 head;        /* [n_step + 1] */
    u64 block, list; /* [..][3], [n_tok * n_used] */
    s32 n_pair, n_used, n_matrix, n_step, n_key, mode;
};

/* ---- the self test ---- */

/* A lane takes three words and gives what probe.h makes of them. */
enum {
    PROBE_ADD,
    PROBE_SUB,
    PROBE_MUL,
    PROBE_DIV,
    PROBE_FMA,
    PROBE_MUL_ADD,
    PROBE_SQRT,
    PROBE_RINT,
    PROBE_TO_F16,
    PROBE_TO_BF16,
    PROBE_EXP,
    PROBE_TANH,
    PROBE_DADD,
    PROBE_DMUL,
    PROBE_DDIV,
    PROBE_DSUB,
    PROBE_COS,
    PROBE_SIN,
    PROBE_FROM_F16,
    PROBE_DOT4,
    PROBE_INT,
    PROBE_COUNT
};
struct probe_args {
    u64 out, x; /* [n, PROBE_COUNT], [n, 3] words */
    s32 n;
};
