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

/* ---- attention and its cache ---- */

/* A format of caches beside those of plain tensors. */
enum { TEXT_Q8_0 = 8 };
enum {
    TEXT_PAGE = 64,  /* positions a tile */
    TEXT_SPAN = 256, /* positions that one softmax runs through online */
    TEXT_SOFT = 32,  /* floats before a state's sums: l [16], m */
    TILE_ROWS = 64   /* of queries, in a group's tile of a prompt */
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
};

/* A group some tokens and values of a head. */
enum { CACHE_TOKENS = 32, CACHE_VALUES = 64 };
struct cache_write_args {
    u64 cache;           /* tiles as program/cache_tile.h has them */
    u64 x;               /* [n_tok, n_head, d] */
    u64 pos, seq, pages; /* the token table */
    s64 page_stride, tile_bytes;
    s32 n_tok, n_head, d, format, values;
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

/* A group a row (token, head), some of its states, and some columns. */
enum { MERGE_STATES = 128, MERGE_COLUMNS = 32 };
struct attend_merge_args {
    u64 part; /* [n_row, n_state, TEXT_SOFT + e] */
    u64 next; /* [n_row, n_block, TEXT_SOFT + e]; or, n_block 1: none */
    u64 out;  /* [n_row, e], if there is no next */
    u64 sink; /* [n_head] of sink_format, or none */
    u64 pos;  /* s32 [n_tok] */
    s32 first, n_head, e, window, sink_format;
    s32 spans; /* in one of the states */
    s32 n_state, n_block, n_column;
};
