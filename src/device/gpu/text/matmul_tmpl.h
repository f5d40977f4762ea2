/* Template of the kernel matmul: many rows of activations times weights of a
 * packed, quantized format (weights_tmpl.h).
 *
 * A work group computes MANY_PANELS panels for up to MANY_TOKENS rows of
 * activations. It has the activations of a few tiles at a time, a stage, in
 * shared memory, and copies those of the next stage meanwhile. 32 lanes share a
 * panel, or 64 lanes share two. mma.h says which weight rows and which rows of
 * activations a lane has, according to the GPU's matrix units. Their operands
 * are the dwords of a packed tile, unchanged. On a GPU without matrix units a
 * lane computes the same sums itself.
 *
 * Order of operations: a tile's products are added up as integers. A format
 * without super-blocks then adds them to the lane's float, tile by tile. Others
 * multiply them by the tile's integer scale and add up the tiles of a chunk,
 * the part of a super-block that a run of k has; a chunk is closed by adding
 * its sums to the float. */

/* Dwords from one row of activations to the next in a buffer: the rows that
 * lanes read together begin in different banks. */
#if STEP == 16
#define MANY_STRIDE (STAGE_TILES * X_BLOCK + 2)
#elif HAVE_MMA_S8_16832 && !HALVES
#define MANY_STRIDE (STAGE_TILES * X_BLOCK)
#else
#define MANY_STRIDE (STAGE_TILES * X_BLOCK + 4)
#endif
#define MANY_BUFFER (MANY_TOKENS * MANY_STRIDE)
/* Matrix units add up the products of a chunk's minima, when it is closed. */
#if HAVE_MMA_S8_16832 && WHOLE && HAS_MIN
#define MIN_MMA 1
#else
#define MIN_MMA 0
#endif

/* ---- weights ---- */

/* fetch_tile() loads a lane's share of a tile: RAWS dwords with codes and SUBS
 * with sub scales. many_levels() converts codes to level[2][LANE_ROWS]
 * [LANE_DWORDS]; the first index is the half, or with NVIDIA's matrix units the
 * j of LANE_DWORD(). row_sub() returns in sub[2] the sub scales of the lane's
 * h-th row as fetch_sub() loads them. fetch_sups() and row_sup() do the same
 * with SUPS dwords of super scales. */
#if HAVE_MMA_S8_16832
/* The dword of the tile that a lane has as the j-th, 0 or 1, and that with its
 * codes; each of CODES loads has the codes of both rows. */
#define LANE_DWORD(q, j) (HALVES ? (q) + 4 * (j) : 2 * (q) + (j))
#define CODE_DWORD(x)    (LOW == 8 ? (x) : LOW == 4 ? (x)&3 : (x)&1)
#define CODES            (LOW == 8 || !HALVES ? 2 : 1)
#define RAWS             (2 * (CODES + (HIGH > 0)))
#define SUBS             2
#define SUPS             2
#define SUB_FLOAT        (SUB == SUB_F16 || SUB == SUB_F16_MIN)
DEV void OF(fetch_tile)(GLOBAL const u8 *tile, s64 second, s32 r, s32 q,
                        u32 *raw, u32 *sub)
{
    GLOBAL const u32 *low = (GLOBAL const u32 *)(tile + SUB_BYTES) + r;

    UNROLL
    for (s32 j = 0; j < CODES; j++)
        dwords2_fetch(raw + 2 * j,
                      low + 16 * (CODE_DWORD(LANE_DWORD(q, 0)) + j));
#if HIGH > 0
    dwords2_fetch(raw + 2 * CODES, low + 16 * (LOW + (HIGH == 2 ? q & 1 : 0)));
#endif
    sub[0] = sub[1] = 0;
#if SUB_FLOAT
    sub[0] = ((GLOBAL const u32 *)tile)[r >> 1];
#elif SUB != SUB_NONE
    sub[0] = ((GLOBAL const u16 *)tile)[r >> 1];
#endif
#if SUB == SUB_F16_MIN
    sub[1] = ((GLOBAL const u32 *)tile)[8 + (r >> 1)];
#elif SUB_BYTES == 32 && !SUB_FLOAT && SUB != SUB_U8_MIN
    sub[1] = ((GLOBAL const u16 *)tile)[8 + (r >> 1)];
#endif
    (void)second;
}
DEV void OF(many_levels)(const u32 *raw, s32 q, u32 *level)
{
    UNROLL
    for (s32 j = 0; j < 2; j++) {
        s32 x = LANE_DWORD(q, j), shift = 4 * (x >> 2) + (LOW == 4 ? 0 : x & 2);

        UNROLL
        for (s32 h = 0; h < 2; h++) {
            u32 v = raw[2 * (j % CODES) + h];

#if LOW == 4
            v = v >> shift & 0x0f0f0f0fu;
#elif LOW == 2
            v = v >> shift & 0x03030303u;
#endif
#if HIGH == 2
            v |= (raw[2 * CODES + h] >> (4 * (x >> 2) + (x & 2)) & 0x03030303u)
                 << LOW;
#elif HIGH == 1
            v |= (raw[2 * CODES + h] >> x & 0x01010101u) << LOW;
#endif
            level[2 * j + h] = OF(levels)(v);
        }
        (void)shift;
    }
}
DEV void OF(row_sub)(const u32 *subs, s32 h, u32 *sub)
{
    UNROLL
    for (s32 i = 0; i < 2; i++)
        sub[i] =
            SUB_FLOAT ? subs[i] >> 16 * h & 0xffff : subs[i] >> 8 * h & 255;
}
DEV void OF(fetch_sups)(GLOBAL const u8 *at, s64 second, s32 r, u32 *sups)
{
    sups[0] = sups[1] = 0;
#if WHOLE
    sups[0] = ((GLOBAL const u32 *)at)[r >> 1];
#endif
#if SUP == SUP_D_DMIN
    sups[1] = ((GLOBAL const u32 *)at)[8 + (r >> 1)];
#endif
    (void)at;
    (void)second;
    (void)r;
}
DEV void OF(row_sup)(const u32 *sups, s32 h, u32 *sup)
{
    sup[0] = sups[0] >> 16 * h & 0xffff;
    sup[1] = sups[1] >> 16 * h & 0xffff;
}
#else
#define RAWS (LANE_ROWS * LANE_DWORDS * RAW)
#define SUBS (2 * LANE_ROWS)
#define SUPS (2 * LANE_ROWS)
/* The panel of the second row is `second` bytes after that of the first. */
DEV void OF(fetch_tile)(GLOBAL const u8 *tile, s64 second, s32 r, s32 q,
                        u32 *raw, u32 *sub)
{
    UNROLL
    for (s32 j = 0; j < LANE_DWORDS; j++) {
        UNROLL
        for (s32 h = 0; h < LANE_ROWS; h++)
            OF(fetch)
        (tile + h * second, r + h * NEXT_ROW, LANE_FIRST(q) + j,
         raw + (h * LANE_DWORDS + j) * RAW);
    }
    UNROLL
    for (s32 h = 0; h < LANE_ROWS; h++)
        OF(fetch_sub)(tile + h * second, r + h * NEXT_ROW, sub + 2 * h);
    (void)q;
}
DEV void OF(many_levels)(const u32 *raw, s32 q, u32 *level)
{
    UNROLL
    for (s32 j = 0; j < LANE_DWORDS; j++) {
        UNROLL
        for (s32 h = 0; h < LANE_ROWS; h++)
            OF(unpack)
        (raw + (h * LANE_DWORDS + j) * RAW, LANE_FIRST(q) + j,
         &level[h * LANE_DWORDS + j],
         &level[(LANE_ROWS + h) * LANE_DWORDS + j]);
    }
    (void)q;
}
DEV void OF(row_sub)(const u32 *subs, s32 h, u32 *sub)
{
    sub[0] = subs[2 * h];
    sub[1] = subs[2 * h + 1];
}
DEV void OF(fetch_sups)(GLOBAL const u8 *at, s64 second, s32 r, u32 *sups)
{
    UNROLL
    for (s32 h = 0; h < LANE_ROWS; h++)
        OF(fetch_sup)(at + h * second, r + h * NEXT_ROW, sups + 2 * h);
}
DEV void OF(row_sup)(const u32 *sups, s32 h, u32 *sup)
{
    sup[0] = sups[2 * h];
    sup[1] = sups[2 * h + 1];
}
#endif

/* ---- products ---- */

/* Sets lo[STEP_SUMS], or lo[] and hi[] if halves are apart, to the lane's sums
 * of products of a tile. `rows` are the STEP rows of activations, at the
 * tile. */
DEV void OF(many_dot)(const u32 *level, LOCAL const u32 *rows, s32 id, s32 q,
                      s32 *lo, s32 *hi)
{
#if HAVE_MMA
    LOCAL const u32 *v = rows + LANE_X(id) * MANY_STRIDE + 2;
    u32 own[2 * LANE_DWORDS];
#endif

    UNROLL
    for (s32 c = 0; c < STEP_SUMS; c++)
        lo[c] = hi[c] = WHOLE ? 0 : SUM_START;
#if HAVE_MMA_S8_16832 && !HALVES
    dwords2_get(own, v + 2 * q);
#elif HAVE_MMA
#if LANE_DWORDS > 1
    UNROLL
    for (s32 j = 0; j < LANE_DWORDS; j += 2) {
        dwords2_get(own + j, v + LANE_FIRST(q) + j);
        dwords2_get(own + LANE_DWORDS + j, v + LANE_FIRST(q) + 4 + j);
    }
#else
    own[0] = v[LANE_FIRST(q)];
    own[1] = v[LANE_FIRST(q) + 4];
#endif
#endif
#if HAVE_MMA && HALVES
    mma_halves(lo, hi, level, own);
#elif HAVE_MMA
    mma_tile(lo, level, own);
#else
    UNROLL
    for (s32 c = 0; c < 2; c++) {
        u32 v[TILE / 4];

        UNROLL
        for (s32 j = 0; j < TILE / 4; j += 2)
            dwords2_get(v + j, rows + LANE_TOKEN(q, c) * MANY_STRIDE + 2 + j);
        UNROLL
        for (s32 j = 0; j < 4; j++) {
            lo[c] = dot4(level[j], v[j], lo[c]);
            lo[c + 2] = dot4(level[j + 4], v[j], lo[c + 2]);
#if HALVES
            hi[c] = dot4(level[j + 8], v[j + 4], hi[c]);
            hi[c + 2] = dot4(level[j + 12], v[j + 4], hi[c + 2]);
#else
            lo[c] = dot4(level[j + 8], v[j + 4], lo[c]);
            lo[c + 2] = dot4(level[j + 12], v[j + 4], lo[c + 2]);
#endif
        }
    }
#endif
    (void)id;
    (void)q;
}

#if WHOLE
/* Adds a tile's products to the sums isum[] and msum[] of a chunk, for STEP
 * rows of activations. s[] and m[] are the factors of the lane's rows. */
DEV void OF(many_add)(const s32 *lo, const s32 *hi, const s32 *s, const s32 *m,
                      LOCAL const u32 *rows, s32 q, s32 *isum, s32 *msum)
{
    UNROLL
    for (s32 c = 0; c < STEP_SUMS; c++) {
        s32 h = 2 * LANE_ROW(c);

        isum[c] += s[h] * lo[c];
#if HALVES
        isum[c] += s[h + 1] * hi[c];
#endif
#if HAS_MIN && !MIN_MMA
        msum[c] += many_mins(m + h, rows[LANE_TOKEN(q, c) * MANY_STRIDE + 1]);
#endif
    }
    (void)hi;
    (void)m;
    (void)rows;
    (void)q;
    (void)msum;
}

#if MIN_MMA
/* Loads the minima of a chunk that a lane supplies to the matrix units: those
 * of its rows for tiles 2 q and 2 q + 1 of the super-block. The chunk has tiles
 * `begin` to `end` - 1, the first one at `tile`; others count as zeros. */
DEV void OF(fetch_mins)(GLOBAL const u8 *tile, s32 begin, s32 end, s32 r, s32 q,
                        u32 *mins)
{
    UNROLL
    for (s32 j = 0; j < 2; j++) {
        s32 i = 2 * q + j;

        mins[j] = mins[2 + j] = 0;
        if (i >= begin && i < end) {
            GLOBAL const u16 *at =
                (GLOBAL const u16 *)(tile + (i - begin) * TILE_BYTES) +
                (r >> 1);

#if SUB == SUB_U8X2_MIN
            mins[j] = at[0];
#endif
            mins[2 + j] = at[8];
        }
    }
}
/* Sets msum[] to the sums of products of a chunk's minima, for 8 rows of
 * activations. `sums` are the sums of the lane's row LANE_X(id), of tiles 2 q
 * and 2 q + 1. The sums have 16 bits, so high and low bytes are multiplied
 * apart. */
DEV void OF(many_close_mins)(const u32 *mins, LOCAL const u32 *sums, s32 *msum)
{
    u32 a[2], b[2];
    s32 high[4];

#if SUB == SUB_U8X2_MIN
    UNROLL
    for (s32 j = 0; j < 2; j++)
        /* of both rows, the minima of both halves */
        b[j] =
            prmt_(mins[j] >> 4 & 0x0f0fu, mins[2 + j] >> 4 & 0x0f0fu, 0x5140u);
    a[0] = prmt_(b[0], b[1], 0x5410u);
    a[1] = prmt_(b[0], b[1], 0x7632u);
#else
    /* the halves have the same one */
    a[0] = prmt_(mins[2], mins[3], 0x4400u);
    a[1] = prmt_(mins[2], mins[3], 0x5511u);
#endif
    dwords2_get(b, sums);
    UNROLL
    for (s32 c = 0; c < 4; c++)
        high[c] = msum[c] = 0;
    mma_u8_s8_k16(high, a, prmt_(b[0], b[1], 0x7531u));
    mma_u8_u8_k16(msum, a, prmt_(b[0], b[1], 0x6420u));
    UNROLL
    for (s32 c = 0; c < 4; c++)
        msum[c] += high[c] * 256;
}
#endif

/* Adds the sums of a chunk to acc[] and clears them, for STEP rows of
 * activations. d[] are the float scales of the lane's rows. `rows` are the rows
 * of activations at one of the chunk's tiles, which all have the same scale. */
DEV void OF(many_close)(const float *d, LOCAL const u32 *rows, s32 q, s32 *isum,
                        s32 *msum, float *acc)
{
    UNROLL
    for (s32 c = 0; c < STEP_SUMS; c++) {
        s32 h = 2 * LANE_ROW(c);
        float dx = float_from_bits(rows[LANE_TOKEN(q, c) * MANY_STRIDE]);

        acc[c] = fma_(mul_(d[h], dx), int_float(isum[c]), acc[c]);
        isum[c] = 0;
#if HAS_MIN
        acc[c] = fma_(mul_(d[h + 1], dx), int_float(msum[c]), acc[c]);
        msum[c] = 0;
#endif
    }
    (void)msum;
}
#else
/* Adds a tile's products to acc[], for STEP rows of activations. d[] and m[]
 * are the float scales and the factors of the lane's rows. */
DEV void OF(many_add)(const s32 *lo, const s32 *hi, const float *d,
                      const s32 *m, LOCAL const u32 *rows, s32 q, float *acc)
{
    UNROLL
    for (s32 c = 0; c < STEP_SUMS; c++) {
        s32 h = 2 * LANE_ROW(c);
        LOCAL const u32 *v = rows + LANE_TOKEN(q, c) * MANY_STRIDE;
        float dx;
#if HAS_MIN
        u32 head[2];

        dwords2_get(head, v);
        dx = float_from_bits(head[0]);
#else
        dx = float_from_bits(v[0]);
#endif

        acc[c] = fma_(mul_(d[h], dx), SUM_FLOAT(lo[c]), acc[c]);
#if TWO_D
        acc[c] = fma_(mul_(d[h + 1], dx), SUM_FLOAT(hi[c]), acc[c]);
#elif HAS_MIN
        acc[c] = fma_(mul_(d[h + 1], dx), int_float(many_mins(m + h, head[1])),
                      acc[c]);
#endif
    }
    (void)hi;
    (void)m;
}
#endif

/* Returns the number of tiles, from tile t on, of a stage: at most STAGE_TILES,
 * all of one chunk. The run has `len` tiles and begins with tile `first` of its
 * super-block. */
DEV s32 OF(stage_tiles)(s32 t, s32 len, s32 first)
{
    s32 n =
        WHOLE ? STAGE_TILES - ((t + first) & (STAGE_TILES - 1)) : STAGE_TILES;

    return n < len - t ? n : len - t;
}

/* The kernel of this file. Shared memory: two stages of the activations'
 * blocks, [MANY_TOKENS][MANY_STRIDE] dwords each, the rows' indices, and with
 * matrix units the blocks' sums for minima. */
KERNEL_MANY_OF(OF(matmul), struct contract_args, 256)
{
    LOCAL_ARRAY(struct dwords, blocks, 2 * MANY_BUFFER / 4);
    LOCAL_ARRAY(s32, row_x, MANY_TOKENS);
    LOCAL_ARRAY(s32, row_out, MANY_TOKENS);
#if MIN_MMA
    /* of the chunk that is computed, and of the one that is copied: the sums of
     * each row's blocks */
    LOCAL_ARRAY(struct dwords2, sum_pairs, MANY_TOKENS * SUPER);
    LOCAL u32 *sums = (LOCAL u32 *)sum_pairs;
    s32 sum_buffer = 0;
#endif
    LOCAL u32 *held = (LOCAL u32 *)blocks;
    s32 id = LANE(), r = LANE_R(id), q = LANE_Q(id);
    s32 n_wide = (a.n_panel + MANY_PANELS - 1) / MANY_PANELS;
    s32 panel = GROUP() % n_wide * MANY_PANELS + LANE_PANEL(id);
    s32 top = a.top, buffer = 0, row = panel * ROWS + r;
    /* the row of activations that the lane copies, and its share of it */
    s32 own = id / STAGE_LANES, part = id % STAGE_LANES, copies;
    struct many f =
        many_find(GROUP() / n_wide, a.mode, a.n_tok, AT(const s32, a.head),
                  AT(const s32, a.block), a.item);
    s64 second =
        panel + NEXT_PANEL < a.n_panel ? NEXT_PANEL * (s64)a.panel_bytes : 0;
    float acc[32];
    GLOBAL const float *before;
    GLOBAL float *after;
#if WHOLE
    s32 isum[32], msum[32];
#endif

    if (f.n == 0)
        return;
    if (id < f.n)
        many_rows(&f, id, a.mode, a.n_head, a.n_used, a.share,
                  AT(const s32, a.list), row_x, row_out);
    BARRIER();
    copies = own < f.n;
    before = ENTRY(const float, top);
    UNROLL
    for (s32 e = 0; e < MANY_TOKENS / STEP; e++) {
        UNROLL
        for (s32 c = 0; c < STEP_SUMS; c++) {
            s64 at = a.open ? OUT_AT(e, c) : -1;

            acc[STEP_SUMS * e + c] = at < 0 ? 0 : before[at];
#if WHOLE
            isum[STEP_SUMS * e + c] = msum[STEP_SUMS * e + c] = 0;
#endif
        }
    }
    for (s32 k = 0; k < a.n_run; k++) {
        s32 len = f.matrix < a.n_matrix ? a.run[k].n : 0;
        s32 first = a.run[k].first, n_add;
        s32 n = OF(stage_tiles)(0, len, first), n_next;
        GLOBAL const u32 *x = AT(const u32, a.x) + (s64)a.run[k].x * X_BLOCK +
                              (copies ? row_x[own] : 0) * (s64)a.x_step;
        /* the tile to load next */
        GLOBAL const u8 *tile =
            AT(const u8, a.w) + (u64)f.matrix * a.matrix_bytes +
            (u64)panel * a.panel_bytes + a.run[k].off + SUP_BYTES;
        u32 next[STAGE_LOADS], raw[RAWS], sub[SUBS];
#if WHOLE
        s32 begin = first; /* the chunk's first tile, in its super-block */
#endif

        UNROLL
        for (s32 j = 0; j < RAWS; j++)
            raw[j] = 0;
        UNROLL
        for (s32 j = 0; j < SUBS; j++)
            sub[j] = 0;
        if (panel < a.n_panel && len > 0)
            OF(fetch_tile)(tile, second, r, q, raw, sub);
        stage_ask(held + buffer + own * MANY_STRIDE, x, copies ? n : 0, part,
                  next);
#if MIN_MMA
        if (copies && part < n)
            copy_4(sums + sum_buffer + own * SUPER + (first & (SUPER - 1)) +
                       part,
                   x + part * X_BLOCK + 1);
#endif
        for (s32 t = 0; t < len; t += n, n = n_next) {
            LOCAL const u32 *rows = held + buffer;
            s32 closes =
                WHOLE && (t + n == len || ((t + n + first) & (SUPER - 1)) == 0);
#if MIN_MMA
            LOCAL const u32 *sums_now = sums + sum_buffer;
#endif

            stage_put(held + buffer + own * MANY_STRIDE, part, next);
            BARRIER();
            n_next = OF(stage_tiles)(t + n, len, first);
            x += n * X_BLOCK;
            buffer = MANY_BUFFER - buffer;
            stage_ask(held + buffer + own * MANY_STRIDE, x, copies ? n_next : 0,
                      part, next);
#if MIN_MMA
            sum_buffer = closes ? MANY_TOKENS * SUPER - sum_buffer : sum_buffer;
            if (copies && part < n_next)
                copy_4(sums + sum_buffer + own * SUPER +
                           ((t + n + first) & (SUPER - 1)) + part,
                       x + part * X_BLOCK + 1);
#endif
            if (panel >= a.n_panel)
                continue;
            for (s32 i = 0; i < n; i++, rows += X_BLOCK) {
                u32 level[2 * LANE_ROWS * LANE_DWORDS];
                s32 s[2 * LANE_ROWS], m[2 * LANE_ROWS];
                float d[2 * LANE_ROWS];

                OF(many_levels)(raw, q, level);
                UNROLL
                for (s32 h = 0; h < LANE_ROWS; h++) {
                    u32 own_sub[2];

                    OF(row_sub)(sub, h, own_sub);
                    OF(factors)(own_sub, s + 2 * h, m + 2 * h);
                    if (!WHOLE)
                        OF(scales)(own_sub, own_sub, d + 2 * h);
                }
                (void)s;
                (void)m;
                (void)d;
                tile += TILE_BYTES;
                if (closes && i + 1 == n)
                    tile += SUP_BYTES;
                if (t + i + 1 < len)
                    OF(fetch_tile)(tile, second, r, q, raw, sub);
                UNROLL
                for (s32 e = 0; e < MANY_TOKENS / STEP; e++) {
                    LOCAL const u32 *at = rows + e * STEP * MANY_STRIDE;
                    s32 lo[STEP_SUMS], hi[STEP_SUMS], o = STEP_SUMS * e;

                    if (e % STEPS == 0 && e * STEP >= f.n)
                        break;
                    OF(many_dot)(level, at, id, q, lo, hi);
#if WHOLE
                    OF(many_add)(lo, hi, s, m, at, q, isum + o, msum + o);
#else
                    OF(many_add)(lo, hi, d, m, at, q, acc + o);
#endif
                }
            }
#if WHOLE
            if (closes) {
                /* the chunk's end, in its super-block, and its first tile */
                s32 end = ((t + n + first - 1) & (SUPER - 1)) + 1;
                GLOBAL const u8 *chunk =
                    tile - SUP_BYTES - (end - begin) * TILE_BYTES;
                float d[2 * LANE_ROWS];
                u32 sup[SUPS];
#if MIN_MMA
                u32 mins[4];

                OF(fetch_mins)(chunk, begin, end, r, q, mins);
#endif
                OF(fetch_sups)(chunk - SUP_BYTES, second, r, sup);
                begin = 0;
                UNROLL
                for (s32 h = 0; h < LANE_ROWS; h++) {
                    u32 own_sup[2];

                    OF(row_sup)(sup, h, own_sup);
                    OF(scales)(own_sup, own_sup, d + 2 * h);
                }
                rows -= X_BLOCK;
                UNROLL
                for (s32 e = 0; e < MANY_TOKENS / STEP; e++) {
                    s32 o = STEP_SUMS * e;

                    if (e % STEPS == 0 && e * STEP >= f.n)
                        break;
#if MIN_MMA
                    OF(many_close_mins)
                    (mins, sums_now + (e * STEP + LANE_X(id)) * SUPER + 2 * q,
                     msum + o);
#endif
                    OF(many_close)
                    (d, rows + e * STEP * MANY_STRIDE, q, isum + o, msum + o,
                     acc + o);
                }
            }
#endif
        }
        n_add = a.run[k].n_add;
        if (n_add < 0 && k + 1 < a.n_run)
            continue;
        n_add = n_add < 0 ? 0 : n_add;
        for (s32 i = 1; i <= n_add; i++) {
            before = ENTRY(const float, top - i);
            UNROLL
            for (s32 e = 0; e < MANY_TOKENS / STEP; e++) {
                UNROLL
                for (s32 c = 0; c < STEP_SUMS; c++) {
                    s64 at = OUT_AT(e, c);

                    if (at >= 0)
                        acc[STEP_SUMS * e + c] =
                            add_(before[at], acc[STEP_SUMS * e + c]);
                }
            }
        }
        top -= n_add;
        after = ENTRY(float, top);
        UNROLL
        for (s32 e = 0; e < MANY_TOKENS / STEP; e++) {
            UNROLL
            for (s32 c = 0; c < STEP_SUMS; c++) {
                s64 at = OUT_AT(e, c);

                if (at >= 0)
                    after[at] = acc[STEP_SUMS * e + c];
                acc[STEP_SUMS * e + c] = 0;
            }
        }
        top++;
    }
}
#undef MANY_STRIDE
#undef MANY_BUFFER
#undef MIN_MMA
#undef RAWS
#undef SUBS
#undef SUPS
#if HAVE_MMA_S8_16832
#undef LANE_DWORD
#undef CODE_DWORD
#undef CODES
#undef SUB_FLOAT
#endif
