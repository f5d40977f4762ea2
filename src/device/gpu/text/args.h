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

/* A group a row. */
struct rms_norm_args {
    u64 out, x, w; /* [rows, d]; w [d] of format, or none */
    s64 d;
    s32 format;
    float eps;
};

/* A group a row. */
struct softmax_args {
    u64 out, x; /* [rows, d]; x may be out */
    s64 d;
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

/* Of the stack's entries, [rows of out][n], the first n_out lie at `out`, the
 * others at `stack`. */
struct contract_args {
    u64 w, x, id, out, stack;
    u64 head, block, list; /* many rows of experts: as in route_args */
    u64 matrix_bytes, panel_bytes, out_stride, stack_stride;
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
};

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
