/* Template of the kernel matvec: few rows of activations times weights of a
 * packed, quantized format (weights_tmpl.h).
 *
 * A work group computes one panel for up to FEW_TOKENS rows of activations. It
 * proceeds along k in rounds of 16 units. Each unit has 16 lanes, one for each
 * row of the panel. A unit is a chunk of up to 8 tiles if the format's integers
 * are summed over chunks, otherwise a few tiles. A lane loads all that it needs
 * of its unit at once, so that many loads are in flight. Activations are
 * exchanged through shared memory, and so are the integer sums and scales of
 * each unit, its slots. 16 lanes for each row of activations then add the slots
 * to their accumulators in order, while the weights of the next round are
 * loaded. */
#if WHOLE
#define UNIT_TILES 8
/* tiles whose activations are in shared memory at once, if there are several
 * rows of activations */
#define HELD_TILES 2
/* sums that a unit stores in shared memory: one for each row of activations */
#define UNIT_SLOTS 4
#else
#define UNIT_TILES 4
/* tiles of a unit, if there are several rows of activations */
#define HELD_TILES (PAIRED ? 1 : 2)
#define UNIT_SLOTS (PAIRED ? 4 : 8)
#endif
#define DWORDS (LOW + HIGH) /* dwords of a weight row in a tile */
#define UNIT_BLOCKS                                                            \
    (HELD_TILES * FEW_TOKENS > UNIT_TILES ? HELD_TILES * FEW_TOKENS            \
                                          : UNIT_TILES)
#define BLOCK_LOADS ((UNIT_BLOCKS * X_BLOCK + 15) / 16)
/* dwords of a unit in shared memory; the 4 that are added put two units into
 * different banks */
#define UNIT_STRIDE (UNIT_BLOCKS * X_STRIDE + 4)

/* Data that a lane loads of its unit: one weight row of each tile, and every
 * 16th dword of the unit's blocks of activations. */
struct OF(unit) {
    /* sub: the two sub scales of the row in each tile, 16 bits each */
    u32 raw[UNIT_TILES * DWORDS], sub[UNIT_TILES];
    u32 sup[2];
    u32 x[BLOCK_LOADS];
    GLOBAL const u32 *from; /* the unit's first block of activations */
    s32 n;                  /* number of tiles that the unit really has */
};

/* Loads every 16th dword, from r on, of blocks of activations into u->x[]:
 * those of n rows, `step` dwords apart, and `tiles` tiles from `tile` on.
 * `tiles` is a power of two. Blocks that do not exist become zeros. */
DEV void OF(ask_blocks)(struct OF(unit) * u, s64 step, s32 r, s32 tiles,
                        s32 tile, s32 n)
{
    UNROLL
    for (s32 p = 0; p < BLOCK_LOADS; p++) {
        s32 at = r + 16 * p, block = at / X_BLOCK;
        s32 t = tile + (block & (tiles - 1)), row = block / tiles;

        u->x[p] = 0;
        if (row < n && t < u->n)
            u->x[p] = u->from[row * step + t * X_BLOCK + at % X_BLOCK];
    }
}
DEV void OF(hold_blocks)(const struct OF(unit) * u, LOCAL u32 *held, s32 r)
{
    UNROLL
    for (s32 p = 0; p < BLOCK_LOADS; p++) {
        s32 at = r + 16 * p;

        if (at < UNIT_BLOCKS * X_BLOCK)
            held[at / X_BLOCK * X_STRIDE + 2 + at % X_BLOCK] = u->x[p];
    }
}

/* Begins to load unit `at` of a run of k, where units of all experts are
 * counted together. If `at` is n_all or more, there is no such unit, and it
 * becomes zeros. A unit that is not a chunk has `tiles` tiles. */
DEV void OF(ask)(struct OF(unit) * u, const struct few_run *f, s32 at,
                 s32 n_all, s32 tiles, s32 r, s32 has_row)
{
    s32 item = f->n_unit < n_all ? at / f->n_unit : 0, matrix = f->matrix;
    s32 i = (at - item * f->n_unit) * tiles - (WHOLE ? f->first : 0);
    s32 begin = i < 0 ? 0 : i, end = i + tiles < f->len ? i + tiles : f->len;
    s32 off = SUP_BYTES;
    s32 x = f->x_row;
    GLOBAL const u8 *w = f->w;

    u->n = at < n_all ? end - begin : 0;
    if (at < n_all && f->down) {
        x += f->order[item];
        matrix = f->id[x];
    }
    u->from = f->x + x * f->x_step + (s64)begin * X_BLOCK;
    w += (u64)matrix * f->matrix_bytes +
         (WHOLE ? OF(sup_at)(begin, f->first) : (u64)begin * TILE_BYTES);
    UNROLL
    for (s32 d = 0; d < UNIT_TILES * DWORDS; d++)
        u->raw[d] = 0;
    UNROLL
    for (s32 d = 0; d < UNIT_TILES; d++)
        u->sub[d] = 0;
    u->sup[0] = u->sup[1] = 0;
    if (u->n > 0 && has_row) {
        OF(fetch_sup)(w, r, u->sup);
        UNROLL
        for (s32 t = 0; t < UNIT_TILES; t++) {
            GLOBAL const u8 *p = w + off;
            GLOBAL const u32 *low = (GLOBAL const u32 *)(p + SUB_BYTES) + r;
            u32 sub[2];

            if (!WHOLE && t >= tiles)
                continue;
            UNROLL
            for (s32 d = 0; d < DWORDS; d++)
                u->raw[t * DWORDS + d] = low[16 * d];
            OF(fetch_sub)(p, r, sub);
            u->sub[t] = sub[0] | sub[1] << 16;
            /* If the unit has no further tile, loads the last one again: any
             * weights will do, because the activations are zeros. */
            off += t + 1 < u->n ? TILE_BYTES : 0;
        }
    }
    if (f->n == 1)
        OF(ask_blocks)(u, 0, r, UNIT_TILES, 0, 1);
    else
        OF(ask_blocks)(u, f->x_next, r, HELD_TILES, 0, f->n);
}

/* Computes the levels of the weight row in tile t. level[q] has the levels of
 * values 4 q to 4 q + 3, level[q + 4] those of values 16 + 4 q to 19 + 4 q. */
DEV void OF(unit_levels)(const struct OF(unit) * u, s32 t, u32 *level)
{
    UNROLL
    for (s32 q = 0; q < 4; q++) {
        u32 raw[2];

        raw[0] = raw[1] = u->raw[t * DWORDS + (LOW == 2 ? q & 1 : q)];
#if LOW == 8
        raw[1] = u->raw[t * DWORDS + 4 + q];
#endif
#if HIGH > 0
        raw[RAW - 1] = u->raw[t * DWORDS + LOW + (HIGH == 2 ? q & 1 : 0)];
#endif
        OF(unpack)(raw, q, &level[q], &level[q + 4]);
    }
}

#if WHOLE
/* A lane's sums over a chunk, for each row of activations: products and minima
 * as integers, and the scale d of the row's blocks. */
struct OF(chunk) {
    s32 isum[FEW_TOKENS], msum[FEW_TOKENS];
    float d[FEW_TOKENS];
};

/* Adds the first `tiles` tiles in `u` to the sums of a chunk. n_row is the
 * number of rows of activations in `held`, of which n exist. `last` is the
 * index of the unit's last tile, whose d applies to the whole chunk. */
DEV void OF(add_tiles)(const struct OF(unit) * u, LOCAL const u32 *held,
                       s32 tiles, s32 last, s32 n_row, s32 n,
                       struct OF(chunk) * c)
{
    UNROLL
    for (s32 t = 0; t < tiles; t++) {
        u32 level[8], sub[2];
        s32 s[2], m[2];

        OF(unit_levels)(u, t, level);
        sub[0] = u->sub[t] & 0xffff;
        sub[1] = u->sub[t] >> 16;
        OF(factors)(sub, s, m);
        UNROLL
        for (s32 j = 0; j < n_row; j++) {
            if (j < n) {
                struct few_block b =
                    few_meet(level, held + (j * tiles + t) * X_STRIDE);

                c->isum[j] += s[0] * b.lo + s[1] * b.hi;
                c->msum[j] += m[0] * b.sum[0] + m[1] * b.sum[1];
                if (t == last)
                    c->d[j] = b.d;
            }
        }
    }
}

/* Stores the sums of a chunk and their float scales in shared memory, in the
 * slots from `to` on. */
DEV void OF(put_chunk)(const struct OF(unit) * u, const struct OF(chunk) * c,
                       s32 to, s32 n_row, LOCAL s32 *isum, LOCAL float *scale,
                       LOCAL s32 *msum, LOCAL float *mscale)
{
    float d[2];

    OF(scales)(u->sup, u->sub, d);
    UNROLL
    for (s32 j = 0; j < n_row; j++) {
        isum[to + j * ROWS] = c->isum[j];
        scale[to + j * ROWS] = mul_(d[0], c->d[j]);
#if PAIRED
        msum[to + j * ROWS] = c->msum[j];
        mscale[to + j * ROWS] = mul_(d[1], c->d[j]);
#endif
    }
    (void)msum;
    (void)mscale;
}

/* Moves the tiles that are not processed yet to the front of raw[] and sub[].
 * Used if there are several rows of activations. */
DEV void OF(next_tiles)(struct OF(unit) * u)
{
    UNROLL
    for (s32 i = 0; i < (UNIT_TILES - HELD_TILES) * DWORDS; i++)
        u->raw[i] = u->raw[i + HELD_TILES * DWORDS];
    UNROLL
    for (s32 t = 0; t < UNIT_TILES - HELD_TILES; t++)
        u->sub[t] = u->sub[t + HELD_TILES];
}

/* Computes a unit's sums for n rows of activations and stores them in the
 * unit's slots, which are numbered from `to`. Before that, stores the unit's
 * activations in shared memory at `held`. */
DEV void OF(fill)(struct OF(unit) * u, LOCAL u32 *held, s32 r, s64 x_next,
                  s32 n, s32 to, LOCAL s32 *isum, LOCAL float *scale,
                  LOCAL s32 *msum, LOCAL float *mscale)
{
    struct OF(chunk) c;

    UNROLL
    for (s32 j = 0; j < FEW_TOKENS; j++) {
        c.isum[j] = c.msum[j] = 0;
        c.d[j] = 0;
    }
    OF(hold_blocks)(u, held, r);
    BARRIER();
    if (n == 1) {
        OF(add_tiles)(u, held, UNIT_TILES, u->n - 1, 1, 1, &c);
        OF(put_chunk)(u, &c, to + r, 1, isum, scale, msum, mscale);
        return;
    }
    for (s32 t = 0; t < UNIT_TILES; t += HELD_TILES) {
        if (t + HELD_TILES < UNIT_TILES)
            OF(ask_blocks)(u, x_next, r, HELD_TILES, t + HELD_TILES, n);
        OF(add_tiles)(u, held, HELD_TILES, u->n - 1 - t, FEW_TOKENS, n, &c);
        OF(next_tiles)(u);
        if (t + HELD_TILES < UNIT_TILES) {
            BARRIER();
            OF(hold_blocks)(u, held, r);
            BARRIER();
        }
    }
    OF(put_chunk)
    (u, &c, to * FEW_TOKENS + r, FEW_TOKENS, isum, scale, msum, mscale);
}
#else
/* Stores the sums and float scales of each tile of a unit in the slots from
 * `to` on, for n_row rows of activations. The scale of a tile that does not
 * exist is -0, so that adding its product changes nothing. */
DEV void OF(fill_slots)(const struct OF(unit) * u, LOCAL const u32 *held,
                        s32 to, s32 tiles, s32 n_row, LOCAL s32 *isum,
                        LOCAL float *scale, LOCAL s32 *msum,
                        LOCAL float *mscale)
{
    UNROLL
    for (s32 t = 0; t < tiles; t++) {
        u32 level[8], sub[2];
        s32 s[2], m[2];
        float d[2];

        OF(unit_levels)(u, t, level);
        sub[0] = u->sub[t] & 0xffff;
        sub[1] = u->sub[t] >> 16;
        OF(factors)(sub, s, m);
        OF(scales)(u->sup, sub, d);
        UNROLL
        for (s32 j = 0; j < n_row; j++) {
            struct few_block b =
                few_meet(level, held + (j * tiles + t) * X_STRIDE);

            isum[to] = TWO_D ? b.lo : s[0] * b.lo + s[1] * b.hi;
            scale[to] = t < u->n ? mul_(d[0], b.d) : -0.0f;
#if PAIRED
            msum[to] = TWO_D ? b.hi : m[0] * b.sum[0] + m[1] * b.sum[1];
            mscale[to] = t < u->n ? mul_(d[1], b.d) : -0.0f;
#endif
            to += ROWS;
        }
    }
    (void)msum;
    (void)mscale;
}

/* Computes a unit's sums for n rows of activations and stores them in the
 * unit's slots, which are numbered from `to`. Before that, stores the unit's
 * activations in shared memory at `held`. */
DEV void OF(fill)(struct OF(unit) * u, LOCAL u32 *held, s32 r, s64 x_next,
                  s32 n, s32 to, LOCAL s32 *isum, LOCAL float *scale,
                  LOCAL s32 *msum, LOCAL float *mscale)
{
    OF(hold_blocks)(u, held, r);
    BARRIER();
    if (n == 1)
        OF(fill_slots)
    (u, held, to * UNIT_TILES + r, UNIT_TILES, 1, isum, scale, msum, mscale);
    else OF(fill_slots)(u, held, to * HELD_TILES * FEW_TOKENS + r, HELD_TILES,
                        FEW_TOKENS, isum, scale, msum, mscale);
    (void)x_next;
}
#endif

KERNEL_AHEAD_OF(OF(matvec), struct contract_args, 256)
{
    LOCAL_ARRAY(struct dwords, blocks, 16 * UNIT_STRIDE / 4);
    LOCAL_ARRAY(s32, isum, 16 * UNIT_SLOTS * ROWS);
    LOCAL_ARRAY(float, scale, 16 * UNIT_SLOTS * ROWS);
#if PAIRED
    LOCAL_ARRAY(s32, msum, 16 * UNIT_SLOTS * ROWS);
    LOCAL_ARRAY(float, mscale, 16 * UNIT_SLOTS * ROWS);
#else
    LOCAL s32 *msum = isum;
    LOCAL float *mscale = scale;
#endif
    LOCAL_ARRAY(s32, order, FEW_ITEMS);
    LOCAL u32 *held = (LOCAL u32 *)blocks + (LANE() >> 4) * UNIT_STRIDE;
    s32 id = LANE(), r = id & 15, unit = id >> 4, mine = id >> 4;
    s32 group = GROUP() - OWN_FIRST, n_panel = OWN(n_panel), rows = OWN(n);
    u64 own_out = OWN(out), matrix_bytes = OWN(matrix_bytes);
    s32 panel = group % n_panel, row = panel * ROWS + r;
    struct few f =
        few_find(group / n_panel, a.mode, a.n_tok, a.tok, a.n_head, a.share);
    s32 top = a.top, adds = mine < f.n && row < rows;
    s32 n_row = f.n == 1 ? 1 : FEW_TOKENS;
    s32 tiles = WHOLE || f.n == 1 ? UNIT_TILES : HELD_TILES;
    s64 at = (f.out + (s64)mine * a.n_head) * rows + row;
    struct OF(unit) u;
    float acc = 0;

    u.n = 0;
    if (a.mode == CONTRACT_HEADS && f.matrix < a.n_matrix)
        few_prefetch(OWN(w) + (u64)f.matrix * matrix_bytes, matrix_bytes, panel,
                     a.panel_bytes);
    AWAIT();
    if (a.mode == CONTRACT_EXPERTS)
        f.matrix = AT(const s32, a.id)[f.out];
    if (a.mode == CONTRACT_DOWN)
        f.n_item = few_order(AT(const s32, a.id) + (s64)f.out * a.n_used,
                             a.n_used, a.n_matrix, a.item, a.n_item, id, order);
    else if (f.matrix < 0 || f.matrix >= a.n_matrix)
        /* an invalid id: reads matrix 0, which is a valid address, and adds
         * nothing */
        f.n_item = f.matrix = 0;
    BARRIER();
    if (a.open && adds)
        acc = OWN_ENTRY(const float, top)[at];
    for (s32 k = 0; k < a.n_run; k++) {
        struct few_run g;
        s32 total, n_add;

        g.w = AT_HELD(const u8, OWN(w)) + (u64)panel * a.panel_bytes +
              a.run[k].off;
        g.x = AT(const u32, a.x) + (s64)a.run[k].x * X_BLOCK;
        g.id = AT(const s32, a.id);
        g.down = a.mode == CONTRACT_DOWN;
        g.x_row = g.down ? f.out * a.n_used : f.x;
        g.order = order;
        g.matrix_bytes = matrix_bytes;
        g.x_step = a.x_step;
        g.x_next = (s64)a.n_head * a.x_step;
        g.n = f.n;
        g.matrix = f.matrix;
        g.len = a.run[k].n;
        g.first = a.run[k].first;
        g.n_unit =
            WHOLE ? (g.len + g.first + 7) / 8 : (g.len + tiles - 1) / tiles;
        total = g.len > 0 ? g.n_unit * f.n_item : 0;
        for (s32 t = -16; t < total; t += 16) {
            s32 n = total - t < 16 ? total - t : 16;

            if (t >= 0)
                OF(fill)
            (&u, held, r, g.x_next, f.n, unit * ROWS, isum, scale, msum,
             mscale);
            OF(ask)(&u, &g, t + 16 + unit, total, tiles, r, row < rows);
            BARRIER();
            if (adds && t >= 0)
                acc = few_add(acc, isum, scale, PAIRED, msum, mscale,
                              WHOLE ? n : n * tiles, n_row * ROWS,
                              mine * ROWS + r);
        }
        n_add = a.run[k].n_add;
        if (n_add < 0 && k + 1 < a.n_run)
            continue;
        n_add = n_add < 0 ? 0 : n_add;
        if (adds) {
            for (s32 i = 1; i <= n_add; i++)
                acc = add_(OWN_ENTRY(const float, top - i)[at], acc);
            OWN_ENTRY(float, top - n_add)[at] = acc;
            if (k + 1 == a.n_run && OWN(bias.from))
                ADD_BIAS(f, at, row, rows, acc);
        }
        top += 1 - n_add;
        acc = 0;
    }
}
#undef UNIT_TILES
#undef HELD_TILES
#undef UNIT_SLOTS
#undef DWORDS
#undef UNIT_BLOCKS
#undef BLOCK_LOADS
#undef UNIT_STRIDE
