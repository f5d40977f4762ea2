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
