/* Arguments of the GPU kernels. The host code fills in these structs and the
 * kernel source reads them. Each member is aligned to its own size, so that all
 * compilers lay the structs out alike. Addresses are u64 device addresses,
 * which a kernel converts to pointers by AT(). An address of 0 means that the
 * tensor is absent. */

enum { TEXT_DIM = 4 }; /* greatest number of dimensions of a tensor */

/* Formats of unpacked float tensors, the values of members named `format`. */
enum { TEXT_F32 = 0, TEXT_F16 = 1, TEXT_BF16 = 2 };

struct unary_args {
    /* result [n] of F32, operand [n] of `format`; may be the same memory */
    u64 out, x;
    s64 n;
    s32 op, format; /* op: TEXT_SCALE .. TEXT_RELU */
    /* TEXT_SCALE: a is the factor; TEXT_CLAMP: a and b are the bounds */
    float a, b;
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
    TEXT_GELU_ERF,
    TEXT_RELU
};

/* Arguments of the kernel `binary`: out = x op y, element by element. dim[] are
 * the dimensions of the result, dim[0] the innermost. A stride is in elements;
 * it is 0 in a dimension along which the operand is broadcast. */
struct binary_args {
    /* result and operands; out may be the same memory as x or y */
    u64 out, x, y;
    s64 n, dim[TEXT_DIM], stride_x[TEXT_DIM], stride_y[TEXT_DIM];
    s32 op, format_x, format_y; /* op: TEXT_ADD .. TEXT_SWIGLU_OAI */
    /* for TEXT_SWIGLU_OAI only: bounds, and the sigmoid's factor */
    float lo, hi, alpha;
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
    u64 out, x; /* result [n] and operand [n] */
    s64 n;
    s32 from, to; /* formats of x and of out */
};

/* Arguments of the kernel rms_norm. A work group normalizes one row. A launch
 * may compute two norms: work groups 0 to n_row - 1 compute the first one, the
 * others the second. In such a launch y, sum and q8 are 0. */
struct rms_norm_args {
    /* result and operand [rows, d]; weights w [d] of `format`, 0: none */
    u64 out, x, w;
    /* if y is not 0: x + y is stored in `sum` and normalized instead of x */
    u64 y, sum;
    /* if q8 is not 0: the result is also quantized, to blocks at q8. `span` is
     * the struct text_span [n_span] that quantize_args has, too */
    u64 q8, span;
    /* result, operand and weights of the second norm; 0 if there is none */
    u64 out_2, x_2, w_2;
    s64 d;
    s32 format;
    float eps;
    s32 n_row;
    /* for q8: numbers of spans and of units, as in quantize_args */
    s32 n_span, n_part;
};

/* Arguments of the kernel layer_norm. A work group normalizes one row. */
struct layer_norm_args {
    /* result and operand [rows, d]; weights w [d] of `format`, 0: none */
    u64 out, x, w;
    s64 d;
    s32 format;
    float eps;
};

/* Arguments of the kernel softmax. A work group computes one row. */
struct softmax_args {
    u64 out, x; /* result and operand [rows, d]; may be the same memory */
    s64 d;
};

/* ---- copies of bytes, sums of addends ------------------------------------ */

/* A copy of n0 * n1 spans of `bytes` bytes each, in two nested loops. Span (i0,
 * i1) begins at dst + i0 * dst_s0 + i1 * dst_s1 and at src + i0 * src_s0 + i1 *
 * src_s1. A lane copies `unit` bytes at a time: 1, 2, 4 or 8, a divisor of all
 * addresses, sizes and strides. */
struct text_piece {
    u64 dst, src;
    s64 bytes, n0, dst_s0, src_s0, n1, dst_s1, src_s1;
    s32 unit, first; /* first: number of the copy's first work group */
};
enum { TEXT_PIECES = 6 };
struct copy_pieces_args {
    struct text_piece piece[TEXT_PIECES];
    s32 n;
};

/* An addend of a sum along the rank tree, which the kernel merge_tree computes.
 * The kernel pushes the addend on a stack. Then it replaces the two topmost
 * entries by their sum, lower + upper, n_add times. */
struct merge_tree_addend {
    /* address at which the summed value would begin if the addend's tensor held
     * all of it; the tensor may hold only a part */
    u64 at;
    /* further bytes to subtract from `at`: n_tok * skip_tok + n_out *
     * skip_out */
    s64 skip_tok, skip_out;
    s64 n_add;
};
enum { TEXT_DEPTH = 64 }; /* greatest number of entries of merge_tree's stack */
struct tree_piece {
    u64 dst;
    s64 src_at, bytes, n0, dst_s0, src_s0, n1, dst_s1, src_s1;
};
struct merge_tree_args {
    u64 addend; /* struct merge_tree_addend [n] */
    struct tree_piece piece;
    s64 n_tok, n_out, n;
};

/* Arguments of the kernel `pages`: copies cache tiles (one head of a page each)
 * from cache x with n_head_x heads to cache `out` with n_head heads. It copies
 * all pages that the micro-batch's sequences use. */
struct pages_args {
    /* map [n_head]: for each head of `out` the head of x to copy; -1: none */
    u64 out, x, map;
    /* the token table: [n_tok], [n_tok], [n_seq, page_stride] */
    u64 pos, seq, pages;
    s64 n_tok, page_stride, n_page, tile_bytes;
    /* n_entry: entries of a sequence's page table row that have work groups */
    s32 n_head, n_head_x, n_entry;
    s32 page_tokens;
};

/* Arguments of the kernel quantize. The values of a unit share a scale. A unit
 * is 32 values if n_span is 0. Otherwise a row has n_part units: spans, cut at
 * multiples of 256 values. */
struct quantize_args {
    /* blocks [n_row, k / 32], 0: none; x [n_row, k]; text_span [n_span] */
    u64 out, x, span;
    /* if y is not 0: x op y is stored in `made` and used instead of x */
    u64 y, made;
    /* if z is not 0: each row is multiplied by its factor in z [n_row] before
     * it is quantized, and stored in `product` */
    u64 z, product;
    s64 k, n_row;
    s32 n_span, n_part;
    s32 whole; /* the spans cover all k values of a row */
    s32 op; /* for x op y: TEXT_ADD .., with lo, hi, alpha as in binary_args */
    float lo, hi, alpha;
};

/* Arguments of router_topk. A work group chooses the experts of one row, that
 * is, of one token. */
struct router_topk_args {
    /* chosen ids [rows, n_used]; logits [rows, e]; bias [e] of `format`, 0:
     * none */
    u64 out, x, bias;
    /* [rows, 2 e] floats: scores of experts and of expert groups */
    u64 scratch;
    /* weights [rows, n_used] of the chosen experts; 0: not wanted */
    u64 weights;
    s64 e, n_used;
    s32 format, gating; /* format: of bias; gating: GATING_SOFTMAX .. */
    /* expert groups, and how many of them a token may use; n_group 0: any
     * expert may be chosen */
    s32 n_group, n_group_used;
    s32 normalise; /* for `weights`: divide a row's weights by their sum */
    float weight;  /* for `weights`: factor of all weights */
};
enum { GATING_SOFTMAX, GATING_SIGMOID, GATING_SELECTED, GATING_SQRT_SOFTPLUS };

/* Arguments of sinkhorn. A work group computes the weights of the n streams of
 * one row. */
struct sinkhorn_args {
    u64 out, x, scale,
        base; /* [rows, n (n + 2)]; scale [3], base [n (n + 2)] */
    s32 n, n_iter;
    s32 scale_format, base_format;
    float eps;
};

/* Arguments of mix_streams. A lane computes one value of all streams. */
struct mix_streams_args {
    u64 out, x, y, w; /* [n_tok, n, e] twice, [n_tok, e], [n_tok, n (n + 1)] */
    s64 e;
    s32 n_tok, n;
};

/* ---- contractions with weights ---- */

/* A run of k, the summed dimension: all or a part of the k of one rank. It
 * consists of n tiles of 32 values, or n values of a float format. They begin
 * at byte `off` of each panel, or of each row if the weights are unpacked. They
 * are multiplied with the activations from tile or value x on. `first` is the
 * index of the run's first tile in its super-block of 8 tiles, or of its first
 * value in its segment of 256 values. After the run the accumulator is pushed
 * on the stack, and the topmost n_add + 1 entries are added up. If n_add is -1,
 * the accumulator continues with the next run instead. n_unit is the number of
 * units of the run in the matvec kernels, and n_unit_inverse its inverse for
 * divide(). */
struct contract_run {
    u64 off;
    s32 x, n, first, n_add;
    s32 n_unit;
    u32 n_unit_inverse;
};
enum { CONTRACT_RUNS = 12 };

enum {
    /* row t * n_head + h of `out` is matrix h times the same row of x */
    CONTRACT_HEADS,
    /* row i of `out` is matrix id[i] times row i / share of x */
    CONTRACT_EXPERTS,
    /* row t of `out` is one sum over the token's experts u, by ascending id: of
     * matrix id[t, u] times row t * n_used + u of x */
    CONTRACT_DOWN
};

/* A bias that the matvec kernels add to their result [rows of out][n]. If
 * `made` is 0, `from` is one row [n], which is added to all rows. Otherwise
 * `from` is [n_matrix][n]: each row of the result gets the bias of the expert
 * whose matrix it was multiplied with, or zeros if the expert's id is invalid.
 * These biases are also stored in `made`, [rows of out][n]. The biased result
 * is stored in `sum`, and the result without bias in `out`. `from` is 0 if
 * there is no bias, `sum` is 0 if only `made` is wanted. */
struct contract_bias {
    u64 from, made, sum;
};

/* A further matrix of a matvec launch, multiplied with the same rows of
 * activations as the first matrix. Its work groups are those from number
 * `first` on. A launch with further matrices stores no partial sums at
 * `stack`. */
struct contract_more {
    u64 w, out, matrix_bytes;
    struct contract_bias bias;
    s32 n, n_panel;
    s32 first;
    s32 each, n_slice, sides; /* as in contract_args */
    u32 n_slice_inverse, pad;
};
/* CONTRACT_NO_MORE: value of `first` in an element that is not used */
enum { CONTRACT_MORE = 2, CONTRACT_NO_MORE = 0x7fffffff };

/* Work that a matvec launch does with its results. If `sum` is not 0, the
 * result of its one matrix plus y, both [rows of out][n], is stored there. Then
 * the last work group that finishes goes on, if `kind` is one of:
 *
 * TAIL_NORM    of each block of rows: normalizes these rows as the kernel
 *              rms_norm does with the arguments last.norm
 * TAIL_VALUES  of each block of rows and TAIL_COLUMNS columns, in launches of
 *              two matrices: computes the values of last.values and quantizes
 *              them as the kernel quantize does
 * TAIL_CHOICE  of each block of rows, with weights of floats: chooses experts
 *              as the kernel router_topk does with the arguments last.choice
 *
 * `count` has a counter of finished work for each of these, which is 0 before
 * and after the launch. */
struct contract_tail {
    u64 y, sum, count;
    s32 kind, pad;
    union {
        struct rms_norm_args norm;
        struct quantize_args values;
        struct router_topk_args choice;
    } last;
};
enum { TAIL_NONE, TAIL_NORM, TAIL_VALUES, TAIL_CHOICE };
/* TAIL_ROWS: most tokens of a step with such launches; TAIL_COUNTERS: most
 * counters of a launch */
enum { TAIL_COLUMNS = 256, TAIL_ROWS = 8, TAIL_COUNTERS = 128 };

/* Arguments of the contractions with weights. The sums of ranks are on a stack,
 * whose entries are [rows of out][n] floats. The first n_out entries are at
 * `out`, out_stride bytes apart, the others at `stack`, stack_stride bytes
 * apart. */
struct contract_args {
    u64 w, x, id, out, stack;
    u64 head, block, list; /* matmul kernels with experts: as in route_args */
    u64 matrix_bytes, panel_bytes, out_stride, stack_stride;
    struct contract_bias bias;
    s32 n, n_panel;   /* rows and panels of a weight matrix */
    s32 n_matrix;     /* ids 0 .. n_matrix - 1 are valid */
    s32 mode, x_step; /* x_step: dwords from one row of x to the next */
    /* matvec kernels: a work group computes one of n_slice slices, that is
     * `each` adjacent panels, and of them `sides`, 1 or 2, at a time. Slices of
     * one block of rows have adjacent numbers. A member named .._inverse is the
     * inverse of another one, for divide() */
    s32 each, n_slice, sides;
    u32 n_slice_inverse, n_block_inverse, share_inverse;
    /* CONTRACT_HEADS: all tokens, the tokens of a work group, and the number of
     * blocks of so many tokens; n_block is used by matvec kernels only */
    s32 n_tok, tok, n_block;
    s32 n_head, n_used, share;
    /* CONTRACT_DOWN: sum over the token's experts number `item` to item +
     * n_item - 1, counted by ascending id; n_item is at most 256 */
    s32 item, n_item;
    /* float formats: elements from one k to the next, and from one row to the
     * next */
    s32 w_k, w_row;
    /* n_out: stack entries at `out`; top: stack entries when the launch begins;
     * open: the accumulator starts with the partial sum that an earlier launch
     * left at entry `top` */
    s32 n_out, top, open;
    s32 n_run, pad;
    struct contract_run run[CONTRACT_RUNS];
    struct contract_more more[CONTRACT_MORE];
    struct contract_tail tail;
};

/* ---- attention and its cache ---- */

/* Formats of caches, in addition to those of plain tensors. Formats with blocks
 * of 4-bit or 5-bit codes are TEXT_CODES plus flags: TEXT_CODES_MIN if a block
 * has a minimum, TEXT_CODES_FIFTH if codes have 5 bits, TEXT_CODES_IQ4 if codes
 * select one of the 16 levels of IQ4_NL. */
enum { TEXT_Q8_0 = 8, TEXT_CODES = 16 };
enum { TEXT_CODES_MIN = 1, TEXT_CODES_FIFTH = 2, TEXT_CODES_IQ4 = 4 };
enum {
    TEXT_PAGE = 64, /* positions in a page, so in a cache tile */
    /* positions in a span, over which the softmax runs online */
    TEXT_SPAN = 256,
    /* floats of a softmax state before its sums of V: l [16], then m */
    TEXT_SOFT = 32,
    /* rows (token, query head) of a work group of the tile kernels */
    TILE_ROWS = 64
};

/* A write to a KV cache, done by the kernel rope in addition. If n_head is 0, x
 * is a result of this launch's RoPE, and the work groups that compute it also
 * write it to the cache. Otherwise x is [n_tok, n_head, d] and is written
 * without RoPE, by work groups of its own, from number `first` on. */
struct rope_put {
    /* the cache and the values to write; cache is 0 if there is no write */
    u64 cache, x;
    s64 tile_bytes;
    /* shape and format of the cache, as in cache_write_args */
    s32 n_head, d, format, values;
    s32 first, pad;
};
/* A work group of the kernel rope processes up to ROPE_HEADS heads of one
 * token. The host computes at most ROPE_POWERS powers of the base, the kernel
 * those in between. */
enum { ROPE_HEADS = 4, ROPE_POWERS = 32 };
struct rope_args {
    /* result and operand [n_tok, n_head, d]; may be the same memory */
    u64 out, x;
    u64 pos;     /* s32 [n_tok]: positions of the tokens */
    u64 factors; /* frequency divisors [n_rot / 2] of `format`; 0: none */
    s32 n_tok, n_head, d, n_rot;
    s32 format, neox, yarn;
    s32 stride; /* pairs between two elements of power[] */
    s32 temp_length;
    s32 start, back; /* angles are those of pos - start; negative if `back` */
    s32 pad;
    /* step: the power of a pair times `step` is that of the next pair; scale:
     * factor of angles; mscale: factor of sines and cosines; temp and
     * temp_length: those are multiplied by 1 + temp ln(floor(pos / temp_length)
     * + 1) too, unless temp_length is 0 */
    double step, scale, mscale, temp;
    /* YaRN: first pair, and number of pairs, of the ramp between the two
     * frequency scales */
    double low, width;
    double power[ROPE_POWERS];
    /* further heads of the same tokens, [n_tok, n_head_2, d]; if out_2 is 0,
     * they are only normalized, from raw_2 into x_2 */
    u64 out_2, x_2;
    s32 n_head_2; /* 0: no further heads */
    s32 first_2;  /* number of their first work group */
    /* if not 0: x and x_2 are computed first, as RMS norms of these heads */
    u64 raw, raw_2;
    u64 w, w_2; /* weights [d] of these norms, of w_format; 0: none */
    s32 w_format;
    float eps;
    struct rope_put put[2];
    u64 put_pos, seq, pages; /* the token table of the cache writes put[] */
    s64 page_stride;
};

/* A work group of cache_write processes up to CACHE_TOKENS tokens and
 * CACHE_VALUES values of one head. */
enum { CACHE_TOKENS = 32, CACHE_VALUES = 64 };
struct cache_write_args {
    u64 cache; /* cache tiles, with the layout of program/cache_tile.h */
    u64 x;     /* values to write, [n_tok, n_head, d] */
    u64 pos, seq, pages; /* the token table */
    s64 page_stride, tile_bytes;
    s32 n_tok, n_head, d, format, values;
    /* number of the first work group of cache_2, a second cache with the same
     * page table */
    s32 first_2;
    u64 cache_2, x_2;
    s64 tile_bytes_2;
    s32 n_head_2, d_2, format_2, values_2;
};

/* Number of floats of a stack entry of the tile kernels: the partial softmax
 * states of TILE_ROWS rows, each `wide` sums of V (acc), l [16] and m. */
#define TILE_ENTRY(wide) (TILE_ROWS * ((wide) + 16 + 1))

/* Work of the last work group that finishes of those for one tile of tokens and
 * the same heads: merges the rows' states, up to PART_STATES of each, as the
 * kernel attend_merge does. */
struct attend_tail {
    /* counters of finished work groups, [n_kv, n_part, n_tile], 0 before and
     * after the launch; 0: another launch merges */
    u64 count;
    u64 out, sink, q8; /* as in attend_merge_args */
    s32 sink_format;
    s32 by_part; /* for q8: quantizes in parts of MERGE_PART columns */
};

/* Arguments of the attention kernels. A work group processes a tile of tokens,
 * one KV head, and spans of positions. It writes softmax states to `part`. */
struct attend_args {
    u64 q, k, v; /* queries q [n_tok, n_head, d]; caches k and v */
    /* s32 [n_head]: KV head of each query head; used if per_kv is 0 */
    u64 head_map;
    u64 pos, seq, pages; /* the token table */
    /* states [end - first, n_head, n_state, TEXT_SOFT + e] of floats */
    u64 part;
    u64 stack; /* tile kernels: [n_group, depth, TILE_ENTRY(wide)] of floats */
    /* sizes in bytes of a cache tile of keys and one of values */
    s64 page_stride, key_bytes, value_bytes;
    u64 ends; /* s32 [n_tok]: last positions that tokens attend to; pos if their
                 own */
    s32 first, end; /* tokens first .. end - 1 */
    s32 n_head, n_kv, d, e;
    s32 key_format, value_format;
    s32 window; /* positions that a token attends to; 0: all up to its own */
    s32 per_kv; /* KV head of query head h is h / per_kv; if 0, see head_map */
    /* work groups: [n_span, n_kv, n_part, n_tile] */
    s32 n_tile, n_part, n_span;
    s32 heads;  /* most query heads of a KV head in a work group */
    s32 tokens; /* most tokens of a tile */
    s32 step;   /* tokens that a work group processes, tile by tile */
    s32 n_state;
    /* spans that one state covers, 2^depth; 1 except in tile kernels. With a
     * window, it is 1 or all spans of a row */
    s32 spans, depth;
    float scale, softcap;
    struct attend_tail tail;
};

/* Arguments of chosen_gather, which copies the chosen positions of tokens into
 * a cache of their own, with a token table in which each token has a sequence.
 * A work group copies the 64 positions of one page of a token. */
struct chosen_args {
    u64 cache, chosen;   /* the cache; s32 [n_tok, k], chosen positions */
    u64 pos, seq, pages; /* the token table */
    u64 to;              /* tiles [end - first, n_page, n_kv] */
    u64 to_pos, to_seq;  /* s32 [n_tok] */
    u64 to_pages;        /* s32 [end - first, n_page] */
    s64 page_stride, tile_bytes;
    s32 first, n_page, n_kv, k;
    /* a tile's planes: offset, and bytes of one position; copied in units of
     * `unit` bytes, 2 or 4 */
    s32 n_plane, unit;
    s32 plane[4], bytes[4];
    /* ratio > 0: gathers the last `window` positions, and then from the cache
     * `blocks` blocks of `ratio` tokens; all of them if `chosen` is 0, and else
     * at most k */
    s32 ratio, window;
    u64 blocks;
};

/* Arguments of block_mean. A lane computes one channel of a token. */
struct block_mean_args {
    u64 out, cache; /* [n_tok, d]; cache of values, of 2 width floats a token */
    u64 bias;       /* [ratio, width] of `format` */
    u64 pos, seq, pages;
    s64 page_stride, width, d;
    s32 ratio, format;
};

/* Arguments of blocks_gather, which lays the chosen blocks of positions of
 * tokens out as a cache, with a token table in which each group of query heads
 * of a token that share a KV head is a token with a sequence of its own. If
 * blocks are whole pages, the pages of that table are those of the caches; else
 * positions are copied. A work group processes one page of one KV head of one
 * token. */
struct blocks_args {
    u64 chosen;          /* s32 [n_tok, n_kv, k] */
    u64 pos, seq, pages; /* the token table */
    u64 head_map;        /* s32 [n_group]: KV head of each group */
    u64 to_pos, to_seq;  /* s32 [n_tok, n_group] */
    u64 to_pages;        /* s32 [end - first, n_group, n_page] */
    /* of keys, then of values: cache; tiles [end - first, n_kv, n_page] */
    u64 cache[2], to[2];
    s64 page_stride;
    s64 tile_bytes[2];
    /* groups of a token; if per_kv, group g is that of KV head g */
    s32 n_group, per_kv;
    s32 first, n_page, n_kv, k, block;
    s32 copies; /* blocks are not whole pages */
    /* a tile's planes: offset, and elements of a position and their bytes */
    s32 n_plane[2];
    s32 plane[2][4], count[2][4], size[2][4];
};

/* Arguments of index_score, index_fold and index_choose, of index_topk and
 * index_blocks. A work group of index_score computes the ranks of 256 positions
 * of a token, one of index_fold those of 256 blocks of a row, a head of a
 * token. One of index_choose chooses the positions of a token, or the blocks of
 * a row. */
enum { INDEX_HEADS = 16, INDEX_CHUNK = 32 };
struct index_args {
    u64 q, w, keys;      /* [n_tok, n_head, d], [n_tok, n_head], cache */
    u64 pos, seq, pages; /* the token table */
    u64 score;           /* u32 [end - first, n_row, n_pos] ranks */
    u64 best;            /* u32 [end - first, n_row, n_block] ranks of blocks;
                            0 in index_topk */
    u64 out;             /* s32 [n_tok, n_row, k] */
    s64 page_stride, key_bytes, n_pos, n_block;
    s32 first, n_span, n_head, d, key_format, k;
    s32 block, local; /* of index_blocks; block is 1 in index_topk */
    s32 n_row;        /* rows of a token: n_head in index_blocks, else 1 */
    s32 ratio;        /* tokens of a compressed key, else 1 */
};

/* Arguments of attend_merge, which merges softmax states of a row (token, query
 * head). A work group merges up to MERGE_STATES states of one row, for
 * MERGE_COLUMNS columns of the result. If n_part is not 0, the result is
 * quantized in parts of up to MERGE_PART columns of a token. Then a work group
 * computes one part, of rows that have at most PART_STATES states. */
enum { MERGE_STATES = 128, MERGE_COLUMNS = 32 };
enum { MERGE_PART = 256, PART_STATES = 16 };
struct attend_merge_args {
    u64 part; /* states to merge, [n_row, n_state, TEXT_SOFT + e] of floats */
    /* merged states [n_row, n_block, TEXT_SOFT + e]; 0 if n_block is 1 */
    u64 next;
    u64 out;  /* final result [n_row, e]; written if `next` is 0 */
    u64 sink; /* attention sinks [n_head] of sink_format; 0: none */
    u64 pos;  /* s32 [n_tok]: positions of the tokens */
    u64 ends; /* as in attend_args */
    u64 q8;   /* if not 0: the result is also quantized, to blocks at q8 */
    s32 first, n_head, e, window, sink_format;
    s32 spans; /* spans that a state of `part` covers */
    s32 n_state, n_block, n_column;
    /* for q8: parts of a token's columns, as in quantize_args; 0: each 32
     * columns are quantized alone */
    s32 n_part;
    u64 span;
};

/* ---- rows, permutations, recurrent states -------------------------------- */

/* The same structs as rank_span, tree_addend and pack_chunk, whose headers the
 * compilers of kernels cannot read. */
struct text_span {
    /* here: `local` in rank_span, which OpenCL reserves */
    s64 logical, here, n;
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

struct router_weights_args {
    /* weights [rows, n_used]; logits [rows, e]; chosen ids [rows, n_used] */
    u64 out, x, id;
    s64 e, n_used;
    s32 gating, normalise;
    float scale;
};

/* Arguments of the kernel sum. A lane computes one column; each row has one
 * work group for every 256 columns. */
struct sum_args {
    /* n_out results [rows, d], out_stride bytes apart; x [rows, u, d] */
    u64 out, x;
    /* text_span [n_span], text_item [n_item]: the rank tree; n_span 0: all rows
     * u of x belong to rank 0 */
    u64 span, item;
    s64 u, d, out_stride;
    s32 n_span, n_item, n_out;
};
enum { TEXT_RANKS = 64 };

/* Arguments of the kernel permute. dim[] are the dimensions of the result,
 * dim[0] the innermost; stride[] are the strides of x in these dimensions, in
 * elements of `size` bytes. */
struct permute_args {
    u64 out, x;
    s64 n, dim[TEXT_DIM], stride[TEXT_DIM];
    s32 size;
};
/* Arguments of the kernel transpose, a permutation in which x and the result
 * have different innermost dimensions. Dimension 0 is innermost in the result,
 * dimension 1 in x; 2 and 3 are the others. A work group moves a square of 32 *
 * 32 elements. */
struct transpose_args {
    u64 out, x;
    s64 n[TEXT_DIM], stride[TEXT_DIM], out_stride[TEXT_DIM];
    s32 size;
};

/* Arguments of the kernel gather, which looks up rows of a table by their ids.
 * quant/pack.h defines how codes become values. */
struct gather_args {
    u64 out, x, id; /* results [n_id, width]; the table; ids [n_id] */
    /* text_span [n_span], text_item [n_item]; text_chunk [n_chunk] if x is
     * packed */
    u64 span, item, chunk;
    u64 grid; /* code table of IQ1, IQ2 or IQ3 if x is unpacked */
    /* step: bytes of a panel, or of a row if x is unpacked */
    s64 n_row, width, out_stride, step;
    s32 n_span, n_item, n_out, n_chunk;
    s32 format; /* format of x: GATHER_F32 .. */
    s32 ints;   /* x and the results are s32 */
    s32 block;  /* unpacked x: values of a block, which has tile_bytes bytes */
    s32 low, high; /* packed x: bits of a code in the low and the high plane */
    s32 sub, sup;  /* kinds of scales: TEXT_SUB_.., TEXT_SUP_.. */
    /* level of a code: code - bias, or level[code] if `table` */
    s32 bias, table;
    s32 tile_bytes, sup_bytes, sub_bytes;
    u32 level[4]; /* 16 signed bytes: the level of each code */
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
enum { /* equal to the values of enum pl_format */
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

/* Arguments of short_conv and short_conv_state. pos, seq and pages are the
 * token table; a sequence's row of `pages` names its state slots. */
struct short_conv_args {
    /* out and x [n_tok, n_channel]; taps w [n_channel, n_tap]; states [slots,
     * n_channel, n_tap - 1] */
    u64 out, x, w, state;
    u64 pos, seq, pages;
    s64 n_channel, page_stride;
    s32 n_tok, n_tap, silu;
};
struct delta_net_args {
    /* as in struct cpu_delta_net (cpu_recurrent.h) */
    u64 out, q, k, v, g, beta, state, head_map;
    u64 pos, seq, pages;
    /* scratch: normalized keys and queries [n_tok, n_head_k, d_k], and the dot
     * product of each such pair [n_tok, n_head_k] */
    u64 kn, qn, kq;
    /* scratch: s32 [n_tok + 1, 4], a list of the micro-batch's runs. A run is
     * the tokens of one sequence */
    u64 run;
    s64 page_stride, n_head_k, n_head_v, d_k, d_v;
    /* n_split: work groups among which the runs are divided in turn */
    s32 n_tok, n_split, channels;
    float eps;
};
struct ssm_scan_args {
    /* as in struct cpu_ssm_scan (cpu_recurrent.h) */
    u64 out, c, b, x, g, state, head_map;
    u64 pos, seq, pages;
    s64 page_stride, n_group, n_head, d_state, d_head;
    /* n_split: work groups among which the runs are divided in turn */
    s32 n_tok, n_split;
};
enum { STATE_READ_WORD, STATE_WRITTEN_WORD, STATE_AT_WORD };
/* Arguments of the kernels that sort (token, expert) pairs by expert, for the
 * matmul kernels. Pair i = t * n_used + u is the u-th expert of token t. In
 * expert_matmul the key of a pair is its expert. In expert_down it is step *
 * (n_matrix + 1) + expert, where `step` is the number of the token's experts
 * with lower ids. An invalid id counts as expert n_matrix. In expert_down a
 * pair with an invalid id has no key (-1), except the first pair of a token
 * that has only invalid ids. Pairs with equal keys form blocks of up to 64
 * pairs: {expert, index of the first pair in `list`, number of pairs}. The
 * blocks of step s are head[s] .. head[s + 1] - 1. */
struct route_args {
    u64 id;  /* [n_tok, n_used]: ids of the tokens' experts */
    u64 key; /* [n_tok * n_used]: key of each pair; -1: none */
    /* [2][n_key]: index in `list` of a key's first pair; number of its pairs */
    u64 start;
    u64 head;        /* [n_step + 1]: number of each step's first block */
    u64 block, list; /* blocks [..][3]; pairs sorted by key, [n_tok * n_used] */
    s32 n_pair, n_used, n_matrix, n_step, n_key, mode;
};

/* ---- the self test ---- */

/* Results of the kernel probe: each lane computes all of these operations from
 * three words (probe.h). */
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
    /* results [n, PROBE_COUNT] and operands [n, 3], in 32-bit words */
    u64 out, x;
    s32 n;
};
