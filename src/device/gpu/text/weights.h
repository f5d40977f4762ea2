/* Contractions with weights, for every weight format: kernels matvec_*() for
 * few rows of activations, matmul_*() for many; launch_contract.c chooses.
 * Orders of operations are those of device/cpu/cpu_matmul.h. quant/pack.h
 * defines the packed formats. */

/* Begin a kernel whose name is the value of a macro. */
#define KERNEL_OF(name, args, lanes) KERNEL(name, args, lanes)
#if HAVE_MMA_S8_16832
#define KERNEL_MANY_OF(name, args, lanes) KERNEL_DENSE(name, args, lanes)
#else
#define KERNEL_MANY_OF(name, args, lanes) KERNEL(name, args, lanes)
#endif
#define KERNEL_AHEAD_OF(name, args, lanes) KERNEL_AHEAD(name, args, lanes)
#define WEIGHTS_PASTE(a, b)                a##_##b
#define WEIGHTS_JOIN(a, b)                 WEIGHTS_PASTE(a, b)
#define OF(name)                           WEIGHTS_JOIN(name, FORMAT)

enum {
    TILE = 32, /* values of a weight row in a tile */
    ROWS = 16, /* weight rows of a panel */
    /* dwords of a quantized block of activations: d, two sums, 32 values */
    X_BLOCK = 10,
    SEGMENT = 256,   /* float formats: values of k that one chain of fma sums */
    FEW_TOKENS = 4,  /* most rows of activations of a matvec work group */
    FEW_ITEMS = 256, /* most experts that one launch adds to an accumulator */
    MANY_TOKENS = 64, /* most rows of activations of a matmul work group */
    MANY_PANELS = 8,  /* panels of a matmul work group */
    SUPER = 8,        /* tiles of a super-block, at most those of a chunk */
    /* matmul has two buffers of activations in shared memory; tiles of each row
     * in one of them */
    STAGE_TILES = 4,
    STAGE_LANES = 4, /* lanes that copy a row's blocks to a buffer */
    /* dwords of a buffer that a lane copies */
    STAGE_LOADS = STAGE_TILES * X_BLOCK / STAGE_LANES,
    /* dwords from one block of activations to the next in matvec's shared
     * memory: rows that a warp reads together begin in different banks */
    X_STRIDE = 12,
    /* values of k in each of matmul's two buffers, float formats */
    FLOAT_STAGE = 16,
    /* floats from one k to the next in matmul's buffer of weights: its 128
     * rows, and 4 more, so that accesses go to different banks */
    FLOAT_ROWS = 132,
    /* floats from one k to the next in matmul's buffer of activations: its 64
     * rows, and 4 more. Both are multiples of 4, because four are read at
     * once */
    FLOAT_TOKENS = 68
};

/* Kinds of sub scales and super scales, as in quant/pack.h. */
#define SUB_NONE     0
#define SUB_F16      1
#define SUB_F16_MIN  2
#define SUB_E8M0     3
#define SUB_S8       4
#define SUB_S8X2     5
#define SUB_U8_MIN   6
#define SUB_U8X2_MIN 7
#define SUB_ODD4X2   8
#define SUB_UE4M3X2  9
#define SUP_NONE     0
#define SUP_D        1
#define SUP_D_8TH    2
#define SUP_D_DMIN   3

/* Returns the bytes of a table of 16, t0 to t3, that the four bytes of c
 * select. Each byte of c is 0 to 15. */
DEV u32 look16(u32 c, u32 t0, u32 t1, u32 t2, u32 t3)
{
#if HAVE_PRMT
    u32 s = c & 0x07070707u, high = prmt_(c << 4, 0, 0xba98u);

    s |= s >> 4;
    s = (s & 255) | (s >> 8 & 0xff00u);
    return (prmt_(t0, t1, s) & ~high) | (prmt_(t2, t3, s) & high);
#else
    u32 out = 0;

    UNROLL
    for (s32 i = 0; i < 32; i += 8) {
        u32 v = c >> i & 15, lo = v & 4 ? t1 : t0, hi = v & 4 ? t3 : t2;

        out |= ((v & 8 ? hi : lo) >> (v & 3) * 8 & 255) << i;
    }
    return out;
#endif
}

#if HAVE_PRMT
/* Looks up the eight nibbles of c. The bytes of *a are those for the low and
 * the high nibble of byte 0 of c, then of byte 1; those of *b for bytes 2 and
 * 3. */
DEV void look_pairs(u32 c, u32 t0, u32 t1, u32 t2, u32 t3, u32 *a, u32 *b)
{
    u32 s = c & 0x77777777u, half = (c >> 1 & 0x44444444u) | 0x32103210u;

    *a = prmt_(prmt_(t0, t1, s), prmt_(t2, t3, s), half);
    s >>= 16;
    *b = prmt_(prmt_(t0, t1, s), prmt_(t2, t3, s), half >> 16);
}
/* Brings a block's 32 values v[] into the order of look_pairs(): v[q] and v[q +
 * 4], which belong to the low and the high nibbles of one dword, become those
 * of *a and of *b. */
DEV void pair_values(u32 *v)
{
    UNROLL
    for (s32 q = 0; q < 4; q++) {
        u32 lo = v[q], hi = v[q + 4];

        v[q] = prmt_(lo, hi, 0x5140u);
        v[q + 4] = prmt_(lo, hi, 0x7362u);
    }
}
#endif

/* Return half of a scale of MXFP4 (a power of two) or of NVFP4 (an unsigned
 * E4M3 number). The levels of these formats are stored doubled. */
DEV float e8m0_half(u32 e)
{
    if (e == 255)
        return float_from_bits(0x7fc00000u);
    return float_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}
DEV float ue4m3_half(u32 x)
{
    u32 e = x >> 3 & 15, m = x & 7;

    if (x == 127)
        return 0;
    return e == 0 ? mul_(int_float((s32)m), 0x1p-10f)
                  : float_from_bits((e + 119) << 23 | m << 20);
}

/* Returns the address of entry e of the stack of partial sums. ENTRY_OF does so
 * for the matrix whose first entry is at `out`. */
#define ENTRY(type, e) ENTRY_OF(AT, a.out, type, e)
#define ENTRY_OF(at, out, type, e)                                             \
    ((e) < a.n_out ? (GLOBAL type *)(at(u8, out) + (u64)(e)*a.out_stride)      \
                   : (GLOBAL type *)(AT(u8, a.stack) +                         \
                                     (u64)((e)-a.n_out) * a.stack_stride))

/* Returns member `what` of the matrix that the work group computes, the
 * launch's first one or one of a.more[]. */
#define OWN(what)                                                              \
    (GROUP() < a.more[0].first   ? a.what                                      \
     : GROUP() < a.more[1].first ? a.more[0].what                              \
                                 : a.more[1].what)
#define OWN_FIRST                                                              \
    (GROUP() < a.more[0].first   ? 0                                           \
     : GROUP() < a.more[1].first ? a.more[0].first                             \
                                 : a.more[1].first)
#define OWN_ENTRY(type, e) ENTRY_OF(AT_HELD, own_out, type, e)

/* Adds the matrix's bias (struct contract_bias) to the variable `acc`, the
 * result at index `at`. f is the struct few of the work group, `row` the weight
 * row, and `rows` the number of weight rows. */
#define ADD_BIAS(f, at, row, rows, acc)                                        \
    do {                                                                       \
        u64 from = OWN(bias.from), made = OWN(bias.made), sum = OWN(bias.sum); \
        float value = 0;                                                       \
                                                                               \
        if (made == 0)                                                         \
            value = AT_HELD(const float, from)[row];                           \
        else if ((f).n_item > 0)                                               \
            value = add_(                                                      \
                AT_HELD(const float, from)[(s64)(f).matrix * (rows) + (row)],  \
                0.0f);                                                         \
        if (made)                                                              \
            AT_HELD(float, made)[at] = value;                                  \
        if (sum)                                                               \
            AT_HELD(float, sum)[at] = acc = add_(acc, value);                  \
    } while (0)

/* Adds to `acc`, the result at index `at`, the value that struct contract_tail
 * names. */
#define ADD_TAIL(at, acc)                                                      \
    do {                                                                       \
        if (a.tail.sum)                                                        \
            AT(float, a.tail.sum)                                              \
        [at] = add_(acc, AT(const float, a.tail.y)[at]);                       \
    } while (0)

/* Ends a work group of block `block`, with the rows of the struct few f, that
 * has computed panels p0 to p1 - 1 of n_panel: goes on, if wanted, with what
 * only the last one can do. `words` is shared memory that nothing else needs,
 * LAST_WORDS dwords. */
#if HAVE_COUNT
#define GO_ON(f, block, p0, p1, n_panel, words)                                \
    do {                                                                       \
        if (a.tail.kind == TAIL_NORM &&                                        \
            is_last(AT(u32, a.tail.count) + (block), (u32)((p1) - (p0)),       \
                    (u32)(n_panel), words))                                    \
            LAST_NORM(f, words);                                               \
        if (a.tail.kind == TAIL_VALUES)                                        \
            for (s32 area = (p0) / 16; 16 * area < (p1); area++) {             \
                s32 from = 16 * area > (p0) ? 16 * area : (p0);                \
                s32 to = 16 * area + 16 < (p1) ? 16 * area + 16 : (p1);        \
                s32 all = (n_panel)-16 * area < 16 ? (n_panel)-16 * area : 16; \
                                                                               \
                if (is_last(AT(u32, a.tail.count) +                            \
                                (block) * (((n_panel) + 15) / 16) + area,      \
                            (u32)(to - from), (u32)(2 * all), words))          \
                    LAST_VALUES(f, area, words);                               \
            }                                                                  \
    } while (0)
#define LAST_NORM(f, words)                                                    \
    for (s32 j = 0; j < (f).n; j++) {                                          \
        s64 first = ((f).out + (s64)j * a.n_head) * a.tail.last.norm.d;        \
                                                                               \
        BARRIER();                                                             \
        last_norm(AT(const float, a.tail.last.norm.x) + first,                 \
                  AT(float, a.tail.last.norm.out) + first,                     \
                  AT(const void, a.tail.last.norm.w), a.tail.last.norm.w != 0, \
                  a.tail.last.norm.format, a.tail.last.norm.d,                 \
                  a.tail.last.norm.eps,                                        \
                  AT(u32, a.tail.last.norm.q8) + first / 32 * Q8_DWORDS,       \
                  a.tail.last.norm.q8 != 0,                                    \
                  AT(const struct text_span, a.tail.last.norm.span),           \
                  a.tail.last.norm.n_span, a.tail.last.norm.n_part, words);    \
    }
#define LAST_VALUES(f, u, words)                                               \
    last_values(AT(const float, a.tail.last.values.x),                         \
                AT(const float, a.tail.last.values.y),                         \
                AT(float, a.tail.last.values.made),                            \
                AT(const float, a.tail.last.values.z),                         \
                a.tail.last.values.z != 0,                                     \
                AT(float, a.tail.last.values.product),                         \
                AT(u32, a.tail.last.values.out), a.tail.last.values.out != 0,  \
                a.tail.last.values.n_span > 0, a.tail.last.values.op,          \
                a.tail.last.values.lo, a.tail.last.values.hi,                  \
                a.tail.last.values.alpha, a.tail.last.values.k,                \
                (s64)(u)*TAIL_COLUMNS, (f).out, a.n_head, (f).n, words)
/* The same for the kernels of floats, in addition. */
#define CHOOSE_LAST(f, block, n_panel, words)                                  \
    if (a.tail.kind == TAIL_CHOICE &&                                          \
        is_last(AT(u32, a.tail.count) + (block), 1, (u32)(n_panel), words))    \
        for (s32 j = 0; j < (f).n; j++) {                                      \
            s64 at_row = (f).out + (s64)j * a.n_head;                          \
                                                                               \
            BARRIER();                                                         \
            CHOOSE(at_row, (LOCAL float *)(words));                            \
        }
#define CHOOSE(row, words)                                                     \
    choose_experts(                                                            \
        AT(const float, a.tail.last.choice.x) + (row)*a.tail.last.choice.e,    \
        AT(const void, a.tail.last.choice.bias), a.tail.last.choice.bias != 0, \
        a.tail.last.choice.format, a.tail.last.choice.e,                       \
        a.tail.last.choice.n_used, a.tail.last.choice.gating,                  \
        a.tail.last.choice.n_group, a.tail.last.choice.n_group_used,           \
        a.tail.last.choice.weights != 0, a.tail.last.choice.normalise,         \
        a.tail.last.choice.weight,                                             \
        AT(s32, a.tail.last.choice.out) + (row)*a.tail.last.choice.n_used,     \
        a.tail.last.choice.weights ? AT(float, a.tail.last.choice.weights) +   \
                                         (row)*a.tail.last.choice.n_used       \
                                   : AT(float, a.tail.last.choice.scratch),    \
        AT(float, a.tail.last.choice.scratch) +                                \
            (row)*2 * a.tail.last.choice.e,                                    \
        words, (words) + 256)
#else
#define GO_ON(f, block, p0, p1, n_panel, words) (void)(words)
#define CHOOSE_LAST(f, block, n_panel, words)   (void)(words)
#endif

/* Returns x / n, where `inverse` is the integer part of (2^32 - 1) / n. x and n
 * must be less than 2^31, and n positive. The high half of x * inverse is the
 * quotient or one less. */
DEV s32 divide(s32 x, s32 n, u32 inverse)
{
    u32 q = (u32)((u64)(u32)x * inverse >> 32);

    return (s32)(q + ((u32)x - q * (u32)n >= (u32)n));
}

/* The rows and the matrix of a matvec work group. */
struct few {
    s32 n; /* number of rows of activations; results are n_head rows apart */
    /* index of the first row of the result and of the activations */
    s32 out, x;
    s32 matrix; /* index of the matrix; not yet known if id[] selects it */
    s32 n_item; /* number of matrices whose products an accumulator adds up */
};
DEV struct few few_find(s32 block, s32 mode, s32 n_tok, s32 tok, s32 n_head,
                        s32 n_block, u32 n_block_inverse, s32 share,
                        u32 share_inverse)
{
    struct few f;

    f.n = f.n_item = 1;
    f.out = f.x = block;
    f.matrix = 0;
    if (mode == CONTRACT_HEADS) {
        s32 first;

        f.matrix = divide(block, n_block, n_block_inverse);
        first = (block - f.matrix * n_block) * tok;
        f.n = n_tok - first < tok ? n_tok - first : tok;
        f.out = f.x = first * n_head + f.matrix;
    } else {
        f.x = divide(block, share, share_inverse);
    }
    return f;
}

/* Prefetches the beginning of the n bytes from `at` on of a matrix: each lane
 * one line of 128 bytes. */
DEV void few_prefetch(u64 matrix, u64 matrix_bytes, u64 at, u64 n)
{
    u64 line = (u64)LANE() * 128;

    if (line < n && at + line < matrix_bytes) {
        PREFETCH(matrix + at + line);
    }
    (void)matrix;
}

/* A run of k (struct contract_run), as the lanes of matvec read it. */
struct few_run {
    /* the panel's weights in matrix 0, at the run's start */
    GLOBAL const u8 *w;
    GLOBAL const u32 *x;  /* activations of row 0, at the run's start */
    GLOBAL const s32 *id; /* if `down`: experts of all tokens */
    /* if `down`: the token's experts by ascending id, as indices */
    LOCAL const s32 *order;
    u64 matrix_bytes;
    /* dwords from one row of x to the next, and between two rows of the work
     * group */
    s64 x_step, x_next;
    s32 x_row;     /* index of the first row of activations */
    s32 matrix, n; /* matrix: its index; n: rows of activations */
    /* len, first: n and first of contract_run; n_unit: units of the run, for
     * one expert */
    s32 len, first, n_unit;
    u32 n_unit_inverse;
    s32 down;        /* the sum goes over the token's experts (CONTRACT_DOWN) */
    u64 panel_bytes; /* quantized formats: bytes from one panel to the next */
};

/* Sets *f to a run of k of quantized weights: w and x are the weights and
 * activations of the first matrix. Returns the number of units of n_item
 * experts. */
DEV s32 few_begin(struct few_run *f, struct contract_run run,
                  GLOBAL const u8 *w, GLOBAL const u32 *x, s32 n_item)
{
    f->w = w + run.off;
    f->x = x + (s64)run.x * X_BLOCK;
    f->len = run.n;
    f->first = run.first;
    f->n_unit = run.n_unit;
    f->n_unit_inverse = run.n_unit_inverse;
    return run.n_unit * n_item;
}

/* Loads a block of activations: its scale d, two sums, 32 values. */
DEV void block_get(u32 *block, GLOBAL const u32 *p)
{
    UNROLL
    for (s32 i = 0; i < X_BLOCK; i += 2)
        dwords2_fetch(block + i, p + i);
}

/* Adds the products of 32 weights of a row, with the levels level[], and the
 * values v[] of a block of activations to *lo. If `halves`, adds those of the
 * second 16 values to *hi instead. level[q] has the levels of values 4 q to 4 q
 * + 3, level[q + 4] those of values 16 + 4 q to 19 + 4 q. */
DEV void few_dot(const u32 *level, const u32 *v, s32 halves, s32 *lo, s32 *hi)
{
    s32 a = *lo, b = *hi;

    UNROLL
    for (s32 q = 0; q < 4; q++)
        a = dot4(level[q], v[q], a);
    UNROLL
    for (s32 q = 4; q < 8; q++) {
        if (halves)
            b = dot4(level[q], v[q], b);
        else
            a = dot4(level[q], v[q], a);
    }
    *lo = a;
    *hi = b;
}

/* Sorts the n_used experts of a token by ascending id; equal ids keep their
 * order and invalid ids are dropped. Stores the indices of the experts from the
 * from-th on, at most n, in order[]. Returns how many it stored. */
DEV s32 few_order(GLOBAL const s32 *id, s32 n_used, s32 n_matrix, s32 from,
                  s32 n, s32 lane, LOCAL s32 *order)
{
    s32 all = 0;

    for (s32 u = 0; u < n_used; u++)
        all += id[u] >= 0 && id[u] < n_matrix;
    for (s32 u = lane; u < n_used; u += 256) {
        s32 at = -from;

        if (id[u] < 0 || id[u] >= n_matrix)
            continue;
        for (s32 v = 0; v < n_used; v++)
            at += id[v] >= 0 && (id[v] < id[u] || (id[v] == id[u] && v < u));
        if (at >= 0 && at < n)
            order[at] = u;
    }
    all = all > from ? all - from : 0;
    return all < n ? all : n;
}

/* The rows and the matrix of a matmul work group. */
struct many {
    s32 n; /* number of rows of activations; 0: nothing to compute */
    /* first of these rows: index of a token, or of a pair in route_args.list */
    s32 first;
    s32 matrix; /* index of the matrix; n_matrix or more: results are zeros */
};
DEV struct many many_find(s32 block, s32 mode, s32 n_tok,
                          GLOBAL const s32 *head, GLOBAL const s32 *blocks,
                          s32 step)
{
    s32 n_block = (n_tok + MANY_TOKENS - 1) / MANY_TOKENS;
    struct many f;

    f.n = 0;
    if (mode == CONTRACT_HEADS) {
        f.matrix = block / n_block;
        f.first = block % n_block * MANY_TOKENS;
        f.n = n_tok - f.first < MANY_TOKENS ? n_tok - f.first : MANY_TOKENS;
    } else if (head[step] + block < head[step + 1]) {
        blocks += 3 * (head[step] + block);
        f.matrix = blocks[0];
        f.first = blocks[1];
        f.n = blocks[2];
    }
    return f;
}

/* Sets row_x[i] and row_out[i] to the indices of the work group's i-th row in
 * the activations and in the result. */
DEV void many_rows(const struct many *f, s32 i, s32 mode, s32 n_head,
                   s32 n_used, s32 share, GLOBAL const s32 *list,
                   LOCAL s32 *row_x, LOCAL s32 *row_out)
{
    if (mode == CONTRACT_HEADS) {
        row_x[i] = row_out[i] = (f->first + i) * n_head + f->matrix;
    } else {
        s32 pair = list[f->first + i];

        row_x[i] = pair / share;
        row_out[i] = mode == CONTRACT_DOWN ? pair / n_used : pair;
    }
}

/* Returns the index in a stack entry of the result for row `tok` of the work
 * group's activations and weight row `row`, or -1 if one of them does not
 * exist. */
DEV s64 many_at(LOCAL const s32 *row_out, s32 n_tok, s32 tok, s32 n, s32 row)
{
    return tok < n_tok && row < n ? (s64)row_out[tok] * n + row : -1;
}
/* Index in a stack entry of sum c of the lane (mma.h), for the e-th STEP rows
 * of activations; -1 if there is no such result. */
#define OUT_AT(e, c)                                                           \
    many_at(row_out, f.n, STEP *(e) + LANE_TOKEN(q, c), a.n,                   \
            row + (NEXT_ROW + ROWS * NEXT_PANEL) * LANE_ROW(c))

/* Copy the blocks of n tiles of a row of activations, at `from`, to a buffer of
 * matmul, at `to`. The row's STAGE_LANES lanes share that; a lane's number
 * among them is `part`. stage_ask() begins to copy, stage_put() ends it;
 * between them next[] belongs to them. After both and a BARRIER() the blocks
 * can be read. When stage_ask() is called, no lane may read the buffer any
 * more. */
#if HAVE_COPY
DEV void stage_ask(LOCAL u32 *to, GLOBAL const u32 *from, s32 n, s32 part,
                   u32 *next)
{
    s32 end = n * X_BLOCK;

    /* blocks have 40 bytes, so an address is a multiple of 8 only */
    if ((end & 3) == 0 && ((u64)from & 15) == 0) {
        UNROLL
        for (s32 j = 0; j < (STAGE_LOADS + 3) / 4; j++) {
            s32 at = 4 * (part + j * STAGE_LANES);

            if (at < end)
                copy_16(to + at, from + at);
        }
    } else {
        UNROLL
        for (s32 j = 0; j < STAGE_LOADS / 2; j++) {
            s32 at = 2 * (part + j * STAGE_LANES);

            if (at < end)
                copy_8(to + at, from + at);
        }
    }
    (void)next;
}
DEV void stage_put(LOCAL u32 *to, s32 part, const u32 *next)
{
    copy_wait();
    (void)to;
    (void)part;
    (void)next;
}
#else
DEV void stage_ask(LOCAL u32 *to, GLOBAL const u32 *from, s32 n, s32 part,
                   u32 *next)
{
    UNROLL
    for (s32 j = 0; j < STAGE_LOADS / 2; j++) {
        s32 at = 2 * (part + j * STAGE_LANES);

        next[2 * j] = next[2 * j + 1] = 0;
        if (at < n * X_BLOCK)
            dwords2_fetch(next + 2 * j, from + at);
    }
    (void)to;
}
DEV void stage_put(LOCAL u32 *to, s32 part, const u32 *next)
{
    UNROLL
    for (s32 j = 0; j < STAGE_LOADS / 2; j++)
        dwords2_put(to + 2 * (part + j * STAGE_LANES), next[2 * j],
                    next[2 * j + 1]);
}
#endif

/* Returns the minima's product of a tile for factors m[2] of a weight row. The
 * block of activations has `sums`, the sums of its halves. */
DEV s32 many_mins(const s32 *m, u32 sums)
{
    return m[0] * (s16)(sums & 0xffff) + m[1] * (s16)(sums >> 16);
}

/* Returns how many values of k, from `at` on, the float matmul stores in a
 * buffer: at most FLOAT_STAGE, all of one segment. */
DEV s32 stage_floats(s32 at, s32 len, s32 first)
{
    s32 n = SEGMENT - (at + first) % SEGMENT;

    n = n < len - at ? n : len - at;
    return n < FLOAT_STAGE ? n : FLOAT_STAGE;
}
/* Returns the weight row of a lane of the float matmul with index p, 0 to 7,
 * relative to its first one: four adjacent rows, and four rows that are 64
 * further. */
DEV s32 float_row(s32 p)
{
    return p / 4 * 64 + p % 4;
}
DEV void stage_put_floats(LOCAL float *w, LOCAL float *x, s32 buffer, s32 w_k,
                          s32 id, const float *next_w, const float *next_x)
{
    s32 lo = id & 15, hi = id >> 4;

    w += buffer * FLOAT_STAGE * FLOAT_ROWS +
         (w_k == ROWS ? hi * FLOAT_ROWS + lo : lo * FLOAT_ROWS + hi);
    x += buffer * FLOAT_STAGE * FLOAT_TOKENS + lo * FLOAT_TOKENS + hi;
    UNROLL
    for (s32 p = 0; p < 8; p++)
        w[p * ROWS] = next_w[p];
    UNROLL
    for (s32 j = 0; j < 4; j++)
        x[16 * j] = next_x[j];
}

/* Conversion of a tile's integer sum to float. For NVIDIA's matrix units the
 * sum starts with the bits of 1.5 * 2^23. Read as a float, it is then 1.5 *
 * 2^23 + sum, because the sum is less than 2^22. */
#if HAVE_MMA_S8_16832
#define SUM_START    0x4b400000
#define SUM_FLOAT(i) sub_(float_from_bits((u32)(i)), 12582912.0f)
#else
#define SUM_START    0
#define SUM_FLOAT(i) int_float(i)
#endif

#define FORMAT q8_0
#define LOW    8
#define HIGH   0
#define SUB    SUB_F16
#define SUP    SUP_NONE
#define BIAS   128
#include "weights_tmpl.h"

#define FORMAT q4_0
#define LOW    4
#define HIGH   0
#define SUB    SUB_F16
#define SUP    SUP_NONE
#define BIAS   8
#include "weights_tmpl.h"

#define FORMAT q4_1
#define LOW    4
#define HIGH   0
#define SUB    SUB_F16_MIN
#define SUP    SUP_NONE
#define BIAS   0
#include "weights_tmpl.h"

#define FORMAT q5_0
#define LOW    4
#define HIGH   1
#define SUB    SUB_F16
#define SUP    SUP_NONE
#define BIAS   16
#include "weights_tmpl.h"

#define FORMAT q5_1
#define LOW    4
#define HIGH   1
#define SUB    SUB_F16_MIN
#define SUP    SUP_NONE
#define BIAS   0
#include "weights_tmpl.h"

#define FORMAT q2_k
#define LOW    2
#define HIGH   0
#define SUB    SUB_U8X2_MIN
#define SUP    SUP_D_DMIN
#define BIAS   0
#include "weights_tmpl.h"

#define FORMAT q3_k
#define LOW    2
#define HIGH   1
#define SUB    SUB_S8X2
#define SUP    SUP_D
#define BIAS   4
#include "weights_tmpl.h"

#define FORMAT q4_k
#define LOW    4
#define HIGH   0
#define SUB    SUB_U8_MIN
#define SUP    SUP_D_DMIN
#define BIAS   0
#include "weights_tmpl.h"

#define FORMAT q5_k
#define LOW    4
#define HIGH   1
#define SUB    SUB_U8_MIN
#define SUP    SUP_D_DMIN
#define BIAS   0
#include "weights_tmpl.h"

#define FORMAT q6_k
#define LOW    4
#define HIGH   2
#define SUB    SUB_S8X2
#define SUP    SUP_D
#define BIAS   32
#include "weights_tmpl.h"

/* The sixteen levels of IQ4_NL and IQ4_XS. Caches of IQ4_NL use them, too. */
#define IQ4_LEVEL0 0xbfad9881u
#define IQ4_LEVEL1 0xf6eaddcfu
#define IQ4_LEVEL2 0x26190d01u
#define IQ4_LEVEL3 0x71594535u
#define LEVEL0     IQ4_LEVEL0
#define LEVEL1     IQ4_LEVEL1
#define LEVEL2     IQ4_LEVEL2
#define LEVEL3     IQ4_LEVEL3
#define FORMAT     iq4_nl
#define LOW        4
#define HIGH       0
#define SUB        SUB_F16
#define SUP        SUP_NONE
#include "weights_tmpl.h"

#define FORMAT iq4_xs
#define LOW    4
#define HIGH   0
#define SUB    SUB_S8
#define SUP    SUP_D
#include "weights_tmpl.h"
#undef LEVEL0
#undef LEVEL1
#undef LEVEL2
#undef LEVEL3

/* Levels of MXFP4 and NVFP4: twice the E2M1 numbers. */
#define LEVEL0 0x03020100u
#define LEVEL1 0x0c080604u
#define LEVEL2 0xfdfeff00u
#define LEVEL3 0xf4f8fafcu
#define FORMAT mxfp4
#define LOW    4
#define HIGH   0
#define SUB    SUB_E8M0
#define SUP    SUP_NONE
#include "weights_tmpl.h"

#define FORMAT nvfp4
#define LOW    4
#define HIGH   0
#define SUB    SUB_UE4M3X2
#define SUP    SUP_NONE
#include "weights_tmpl.h"
#undef LEVEL0
#undef LEVEL1
#undef LEVEL2
#undef LEVEL3

#define FORMAT iq1_s
#define LOW    2
#define HIGH   0
#define SUB    SUB_U8_MIN
#define SUP    SUP_D_8TH
#define BIAS   0
#include "weights_tmpl.h"

/* Levels of IQ1_M, in units of 1/8. */
#define LEVEL0 0x000901f9u
#define LEVEL1 0x0007fff7u
#define LEVEL2 0
#define LEVEL3 0
#define FORMAT iq1_m
#define LOW    2
#define HIGH   1
#define SUB    SUB_ODD4X2
#define SUP    SUP_D_8TH
#include "weights_tmpl.h"
#undef LEVEL0
#undef LEVEL1

/* Levels of IQ2_XXS, IQ2_XS and IQ2_S, in units of 1/8. These formats have the
 * same packed form. */
#define LEVEL0 0x002b1908u
#define LEVEL1 0x00d5e7f8u
#define FORMAT iq2
#define LOW    2
#define HIGH   1
#define SUB    SUB_ODD4X2
#define SUP    SUP_D_8TH
#include "weights_tmpl.h"
#undef LEVEL0
#undef LEVEL1
#undef LEVEL2
#undef LEVEL3

#define LEVEL0 0x38281808u
#define LEVEL1 0x7c685848u
#define LEVEL2 0xc8d8e8f8u
#define LEVEL3 0x8498a8b8u
#define FORMAT iq3_xxs
#define LOW    4
#define HIGH   0
#define SUB    SUB_ODD4X2
#define SUP    SUP_D_8TH
#include "weights_tmpl.h"
#undef LEVEL1
#undef LEVEL3

#define LEVEL1 0x78685848u
#define LEVEL3 0x8898a8b8u
#define FORMAT iq3_s
#define LOW    4
#define HIGH   0
#define SUB    SUB_ODD4X2
#define SUP    SUP_D_8TH
#include "weights_tmpl.h"
#undef LEVEL0
#undef LEVEL1
#undef LEVEL2
#undef LEVEL3

/* The packed form of both TQ1_0 and TQ2_0. */
#define FORMAT tq
#define LOW    2
#define HIGH   0
#define SUB    SUB_NONE
#define SUP    SUP_D
#define BIAS   1
#include "weights_tmpl.h"

#define FORMAT   f32
#define WORD     float
#define VALUE(x) (x)
#include "floats_tmpl.h"

#define FORMAT   f16
#define WORD     u16
#define VALUE(x) f16_to_f32(x)
#include "floats_tmpl.h"

#define FORMAT   bf16
#define WORD     u16
#define VALUE(x) bf16_float(x)
#include "floats_tmpl.h"
