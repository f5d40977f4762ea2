/* Template of the kernel matvec: few rows of activations times weights of a
 * packed, quantized format (weights_tmpl.h).
 *
 * A work group computes a slice of adjacent panels for up to FEW_TOKENS rows of
 * activations, one panel after another. It proceeds along k in rounds of 16
 * units. Where k is short it computes two panels at a time, with 8 units each.
 * A unit is a chunk of up to 8 tiles if the format's integers are summed over
 * chunks, otherwise 4 tiles. It has 16 lanes. Lane 4 p + g of a unit computes
 * rows 4 g to 4 g + 3 of the panel, for tiles p and p + 4 of the unit. The
 * dwords of four rows are adjacent, so each load is one of 16 bytes. As soon as
 * a lane has used the registers of a tile, it loads the tile of the next round
 * into them, which may belong to the next panel. So loads are in flight all the
 * time.
 *
 * The integer sums and float scales of each unit are stored in shared memory,
 * in its slots. 16 lanes for each row of activations then add the slots to
 * their accumulators in order, while the other lanes begin the next round. */
#if WHOLE
#define UNIT_TILES 8
/* rows of activations whose slots are in shared memory at once */
#define HELD_TOKENS 4
#define UNIT_SLOTS  1 /* slots of a unit, for one row of activations */
/* rows of activations that are computed at once, if there are several; more
 * need too many registers */
#define ROUND_TOKENS ((HALVES && !HAS_MIN) || PAIRS ? 1 : 2)
#else
#define UNIT_TILES   4
#define HELD_TOKENS  (PAIRED ? 1 : 2)
#define UNIT_SLOTS   4
#define ROUND_TOKENS HELD_TOKENS
#endif
/* Levels and values are in the order of look_pairs(), which is possible if the
 * halves of a tile have the same factors. */
#if HAVE_PRMT && defined(LEVEL0) && LOW == 4 && HIGH == 0 && !HALVES
#define PAIRS 1
#else
#define PAIRS 0
#endif
#define UNIT_BYTES (SUP_BYTES + UNIT_TILES * TILE_BYTES)
#define LANE_TILES (UNIT_TILES / 4)
#define DWORDS     (LOW + HIGH) /* dwords of a weight row in a tile */
/* dwords with the sub scales of four rows in a tile */
#define SUBS (SUB_BYTES > 0 ? SUB_BYTES / 16 : 1)
/* A slot has for each row: scale, sum, and if PAIRED those of a second product.
 * SLOT_STRIDE is the number of dwords from one slot to the next. The 4 that are
 * added put the slots of two tiles into different banks. */
#define SLOT         (PAIRED ? 4 : 2)
#define SLOT_STRIDE  (ROWS * SLOT + (WHOLE ? 0 : 4))
#define TOKEN_STRIDE (16 * UNIT_SLOTS * SLOT_STRIDE)
/* dwords of a unit's partial sums in shared memory: those of 4 lanes, and 16
 * more that put two units into different banks */
#define PART_STRIDE ((HAS_MIN ? 128 : 64) + 16)

/* Data that a lane loads of its unit: of each of its tiles the dwords and sub
 * scales of four rows, and the super scales of one row. */
struct OF(unit) {
    u32 raw[LANE_TILES * DWORDS * 4], sub[LANE_TILES * SUBS], sup[2];
};

/* The position of a lane in a round. */
struct OF(place) {
    GLOBAL const u8 *tile; /* its first tile */
    GLOBAL const u8 *sup;  /* the unit's super scales */
    GLOBAL const u32 *x;   /* the activations of its first tile */
    s32 has_unit;          /* there is a unit */
    s32 has;               /* bit t: it has a t-th tile */
    s32 at;                /* index of its first tile in the run */
    s32 last; /* dwords from x to the activations of the unit's last tile */
};

/* Sets has and last of lane 4 p + g, whose `at` is set. len is the number of
 * tiles of the run. */
DEV void OF(bound)(struct OF(place) * to, s32 len, s32 p)
{
    s32 first = to->at - p, end = first + UNIT_TILES;

    to->has = 0;
    UNROLL
    for (s32 t = 0; t < LANE_TILES; t++)
        to->has |= ((u32)(to->at + 4 * t) < (u32)len) << t;
    to->last = ((end < len ? end : len) - 1 - to->at) * X_BLOCK;
}

/* Finds lane 4 p + g of unit `at` of a run of k, where units of all experts are
 * counted together. If `at` is n_all or more, or if `exists` is 0, there is no
 * such unit. */
DEV void OF(find)(struct OF(place) * to, const struct few_run *f, s32 panel,
                  s32 exists, s32 at, s32 n_all, s32 p)
{
    s32 matrix = f->matrix, x = f->x_row, chunk = at;
    s32 first = WHOLE ? f->first : 0;
    GLOBAL const u8 *w = f->w;

    to->has_unit = exists && at < n_all;
    to->has = to->at = to->last = 0;
    to->tile = to->sup = w;
    to->x = f->x;
    if (!to->has_unit)
        return;
    if (f->down) {
        s32 item = divide(at, f->n_unit, f->n_unit_inverse);

        chunk = at - item * f->n_unit;
        x += f->order[item];
        matrix = f->id[x];
    }
    to->at = chunk * UNIT_TILES - first + p;
    OF(bound)(to, f->len, p);
    w += (u64)matrix * f->matrix_bytes + (u64)panel * f->panel_bytes;
    to->sup = w + (chunk > 0 ? chunk * UNIT_BYTES - first * TILE_BYTES : 0);
    to->tile = w + (s64)((WHOLE ? chunk + 1 : 0) * SUP_BYTES) +
               (s64)to->at * TILE_BYTES;
    to->x = f->x + x * f->x_step + (s64)to->at * X_BLOCK;
}

/* Moves on to the next round of the same run of k, `units` units further. Unit
 * `at` is the lane's. */
DEV void OF(advance)(struct OF(place) * to, s32 len, s32 units, s32 at,
                     s32 n_all, s32 p)
{
    to->has_unit = to->has_unit && at < n_all;
    to->at += units * UNIT_TILES;
    to->tile += units * UNIT_BYTES;
    to->sup = to->tile - (SUP_BYTES + p * TILE_BYTES);
    to->x += units * (UNIT_TILES * X_BLOCK);
    OF(bound)(to, len, p);
    to->has = to->has_unit ? to->has : 0;
}

/* Begins to load the lane's t-th tile, if there is one. */
DEV void OF(load)(struct OF(unit) * u, const struct OF(place) * from, s32 t,
                  s32 g)
{
    GLOBAL const u8 *tile = from->tile + t * 4 * TILE_BYTES;
    GLOBAL const u32 *plane = (GLOBAL const u32 *)(tile + SUB_BYTES) + 4 * g;
    GLOBAL const u32 *sub = (GLOBAL const u32 *)tile + g;
    u32 *to = u->sub + t * SUBS;

    if (!(from->has >> t & 1))
        return;
    UNROLL
    for (s32 d = 0; d < DWORDS; d++)
        dwords_fetch(u->raw + (t * DWORDS + d) * 4, plane + 16 * d);
#if SUB == SUB_F16 || SUB == SUB_F16_MIN
    dwords2_fetch(to, sub + g);
#if SUB == SUB_F16_MIN
    dwords2_fetch(to + 2, sub + g + 8);
#endif
#elif SUB != SUB_NONE
    to[0] = sub[0];
#if SUB_BYTES == 32
    to[1] = sub[4];
#endif
#endif
    (void)sub;
    (void)to;
}

/* Returns in sub[] the two sub scales, 16 bits each, of row i of the lane's
 * four rows. */
DEV void OF(sub_of)(const u32 *of, s32 i, u32 *sub)
{
    sub[0] = sub[1] = 0;
#if SUB == SUB_F16 || SUB == SUB_F16_MIN
    sub[0] = of[i / 2] >> i % 2 * 16 & 0xffff;
#elif SUB != SUB_NONE
    sub[0] = of[0] >> i * 8 & 0xff;
#endif
#if SUB == SUB_F16_MIN
    sub[1] = of[2 + i / 2] >> i % 2 * 16 & 0xffff;
#elif SUB_BYTES == 32 && SUB != SUB_F16
    sub[1] = of[1] >> i * 8 & 0xff;
#endif
    (void)of;
    (void)i;
}

/* Computes the levels of four rows of a tile, plus OFFSET. level[8 i + q] has
 * the levels of values 4 q to 4 q + 3 of row i, level[8 i + q + 4] those of
 * values 16 + 4 q to 19 + 4 q. */
DEV void OF(tile_levels)(const u32 *of, u32 *level)
{
    UNROLL
    for (s32 q = 0; q < 4; q++) {
        UNROLL
        for (s32 i = 0; i < 4; i++) {
            u32 raw[2];

            raw[0] = raw[1] = of[(LOW == 2 ? q & 1 : q) * 4 + i];
#if PAIRS
            look_pairs(raw[0], LEVEL0, LEVEL1, LEVEL2, LEVEL3,
                       &level[8 * i + q], &level[8 * i + q + 4]);
            continue;
#endif
#if LOW == 8
            raw[1] = of[(4 + q) * 4 + i];
#endif
#if HIGH > 0
            raw[RAW - 1] = of[(LOW + (HIGH == 2 ? q & 1 : 0)) * 4 + i];
#endif
            OF(near)(raw, q, &level[8 * i + q], &level[8 * i + q + 4]);
        }
    }
}

/* Loads a block of activations whose values match tile_levels(). */
DEV void OF(tile_block)(u32 *block, GLOBAL const u32 *x)
{
    block_get(block, x);
#if PAIRS
    pair_values(block + 2);
#endif
}

/* Computes the products of row i of a tile's levels and a block of activations:
 * the sum of the two halves in *lo if their factors are equal, else one sum
 * each. */
DEV void OF(row_dot)(const u32 *level, s32 i, const u32 *block, s32 *lo,
                     s32 *hi)
{
    s32 sum = (s16)(block[1] & 0xffff), sum_hi = (s16)(block[1] >> 16);

    *lo = -OFFSET * (HALVES ? sum : sum + sum_hi);
    *hi = HALVES ? -OFFSET * sum_hi : 0;
    few_dot(level + 8 * i, block + 2, HALVES, lo, hi);
}

/* Loads row r of slots i to i + 7, or fewer: n slots. */
DEV void OF(slots_get)(u32 *v, LOCAL const u32 *slot, s32 n)
{
    UNROLL
    for (s32 k = 0; k < n; k++) {
#if PAIRED
        dwords_get(v + SLOT * k, slot + k * SLOT_STRIDE);
#else
        dwords2_get(v + SLOT * k, slot + k * SLOT_STRIDE);
#endif
    }
}
DEV float OF(slots_add)(float acc, const u32 *v, s32 n)
{
    UNROLL
    for (s32 k = 0; k < SLOT / 2 * n; k++)
        acc =
            fma_(float_from_bits(v[2 * k]), float_from_bits(v[2 * k + 1]), acc);
    return acc;
}
/* Returns acc plus the products of row r of n slots, in order. Eight slots are
 * loaded before the first is used. */
DEV float OF(add_slots)(float acc, LOCAL const u32 *slot, s32 n, s32 r)
{
    u32 v[8 * SLOT];

    slot += SLOT * r;
    for (; n >= 8; n -= 8, slot += 8 * SLOT_STRIDE) {
        OF(slots_get)(v, slot, 8);
        acc = OF(slots_add)(acc, v, 8);
    }
    for (; n > 0; n--, slot += SLOT_STRIDE) {
        OF(slots_get)(v, slot, 1);
        acc = OF(slots_add)(acc, v, 1);
    }
    return acc;
}

/* The work of a lane in all rounds. */
struct OF(lane) {
    s32 id, p, g;   /* number in the work group; lane 4 p + g of its unit */
    s32 mine;       /* row of activations to whose accumulators it adds */
    s32 first_unit; /* first unit of its panel in the work group */
    LOCAL u32 *slots, *parts;
    s32 flip; /* the round uses the second half of the slots */
};

#if WHOLE
/* Adds the products of the lane's t-th tile to the sums of four rows, for each
 * of n rows of activations at x: isum[] and, of the minima, msum[]. */
DEV void OF(add_tile)(const struct OF(unit) * u, s32 t, GLOBAL const u32 *x,
                      s64 x_next, s32 n_row, s32 n, s32 *isum, s32 *msum)
{
    u32 level[32];

    OF(tile_levels)(u->raw + t * DWORDS * 4, level);
    UNROLL
    for (s32 j = 0; j < n_row; j++) {
        if (j < n) {
            u32 block[X_BLOCK];
            s32 sum, sum_hi;

            OF(tile_block)(block, x + j * x_next);
            sum = (s16)(block[1] & 0xffff);
            sum_hi = (s16)(block[1] >> 16);
            UNROLL
            for (s32 i = 0; i < 4; i++) {
                u32 sub[2];
                s32 s[2], m[2], lo, hi;

                OF(sub_of)(u->sub + t * SUBS, i, sub);
                OF(factors)(sub, s, m);
                OF(row_dot)(level, i, block, &lo, &hi);
                isum[4 * j + i] += s[0] * lo + (HALVES ? s[1] * hi : 0);
                msum[4 * j + i] +=
                    HALVES ? m[0] * sum + m[1] * sum_hi : m[0] * (sum + sum_hi);
            }
        }
    }
}

/* Adds up the sums of a unit's four lanes with the same rows, and stores the
 * slot of row of activations j. */
DEV void OF(put_slot)(const struct OF(lane) * l, const u32 *sup,
                      const s32 *isum, const s32 *msum, u32 x_scale, s32 j)
{
    s32 r = l->id & 15, unit = l->id >> 4;
    LOCAL u32 *part = l->parts + unit * PART_STRIDE;
    LOCAL u32 *slot = l->slots + j * TOKEN_STRIDE + unit * SLOT_STRIDE;
    u32 of[8], made[4];
    float d[2], dx = float_from_bits(x_scale);

    dwords_put(part + 16 * l->p + 4 * l->g, (u32)isum[0], (u32)isum[1],
               (u32)isum[2], (u32)isum[3]);
#if HAS_MIN
    dwords_put(part + 64 + 16 * l->p + 4 * l->g, (u32)msum[0], (u32)msum[1],
               (u32)msum[2], (u32)msum[3]);
#endif
    BARRIER_32();
    UNROLL
    for (s32 i = 0; i < (HAS_MIN ? 8 : 4); i++)
        of[i] = part[16 * i + r];
    OF(scales)(sup, sup, d);
    made[0] = float_bits(mul_(d[0], dx));
    made[1] = float_bits(int_float((s32)(of[0] + of[1] + of[2] + of[3])));
#if PAIRED
    made[2] = float_bits(mul_(d[1], dx));
    made[3] = float_bits(int_float((s32)(of[4] + of[5] + of[6] + of[7])));
    dwords_put(slot + SLOT * r, made[0], made[1], made[2], made[3]);
#else
    dwords2_put(slot + SLOT * r, made[0], made[1]);
#endif
    (void)msum;
}

/* Computes a lane's part of a round, whose weights are in *u, and loads that of
 * the next one. n is the number of rows of activations; n_row of them, 1 or 2,
 * are computed at a time. If `adds`, returns acc plus the products of the
 * n_unit units of the lane's panel. */
DEV float OF(round)(struct OF(unit) * u, const struct OF(place) * here,
                    const struct OF(place) * next, s64 x_next,
                    const struct OF(lane) * l, s32 n_row, s32 n, s32 n_unit,
                    s32 adds, float acc)
{
    s32 r = l->id & 15, held = l->flip && 2 * n <= HELD_TOKENS ? n : 0;
    u32 sup[2];

    sup[0] = u->sup[0];
    sup[1] = u->sup[1];
    for (s32 from = 0; from < n; from += n_row) {
        s32 isum[8], msum[8], last = from + n_row >= n;
        GLOBAL const u32 *x = here->x + from * x_next;
        u32 x_scale[2];

        UNROLL
        for (s32 j = 0; j < n_row; j++) {
            x_scale[j] = 0;
            if (from + j < n && here->has_unit)
                x_scale[j] = x[j * x_next + here->last];
        }
        UNROLL
        for (s32 i = 0; i < 4 * n_row; i++)
            isum[i] = msum[i] = 0;
        UNROLL
        for (s32 t = 0; t < LANE_TILES; t++) {
            if (here->has >> t & 1)
                OF(add_tile)
            (u, t, x + t * 4 * X_BLOCK, x_next, n_row, n - from, isum, msum);
            if (last)
                OF(load)(u, next, t, l->g);
        }
        if (last && next->has_unit)
            OF(fetch_sup)(next->sup, r, u->sup);
        UNROLL
        for (s32 j = 0; j < n_row; j++) {
            if (from + j < n) {
                if (from + j > 0)
                    BARRIER_32();
                OF(put_slot)
                (l, sup, isum + 4 * j, msum + 4 * j, x_scale[j],
                 held + from + j);
            }
        }
    }
    BARRIER();
    if (adds)
        acc = OF(add_slots)(acc,
                            l->slots + (held + l->mine) * TOKEN_STRIDE +
                                l->first_unit * UNIT_SLOTS * SLOT_STRIDE,
                            n_unit, r);
    if (2 * n > HELD_TOKENS)
        BARRIER();
    return acc;
}
#else
/* Computes the slot of a tile for the lane's four rows: made[SLOT * i] and the
 * following ones for row i. level[] are the tile's levels, of[] its sub scales,
 * x the activations. */
DEV void OF(make_slot)(const u32 *level, const u32 *of, GLOBAL const u32 *x,
                       u32 *made)
{
    u32 block[X_BLOCK];
    float dx;

    OF(tile_block)(block, x);
    dx = float_from_bits(block[0]);
    UNROLL
    for (s32 i = 0; i < 4; i++) {
        u32 sub[2];
        s32 lo, hi;
        float d[2];

        OF(sub_of)(of, i, sub);
        OF(scales)(sub, sub, d);
        OF(row_dot)(level, i, block, &lo, &hi);
        made[SLOT * i] = float_bits(mul_(d[0], dx));
        made[SLOT * i + 1] = float_bits(int_float(lo));
#if PAIRED
        if (!TWO_D)
            hi = (s16)(block[1] & 0xffff) + (s16)(block[1] >> 16);
        made[SLOT * i + 2] = float_bits(mul_(d[1], dx));
        made[SLOT * i + 3] = float_bits(int_float(hi));
#endif
    }
}
/* The same for a tile that does not exist: its scale is -0, so that adding its
 * product changes nothing. */
DEV void OF(empty_slot)(u32 *made)
{
    UNROLL
    for (s32 i = 0; i < 4 * SLOT; i += 2) {
        made[i] = float_bits(-0.0f);
        made[i + 1] = 0;
    }
}
DEV void OF(put_slot)(LOCAL u32 *slot, const u32 *made)
{
    UNROLL
    for (s32 i = 0; i < 4 * SLOT; i += 4)
        dwords_put(slot + i, made[i], made[i + 1], made[i + 2], made[i + 3]);
}

/* Computes a lane's part of a round, whose weights are in *u, and loads that of
 * the next one. n is the number of rows of activations; n_row of them, 1 or
 * HELD_TOKENS, are computed at a time. If `adds`, returns acc plus the products
 * of the n_unit units of the lane's panel. */
DEV float OF(round)(struct OF(unit) * u, const struct OF(place) * here,
                    const struct OF(place) * next, s64 x_next,
                    const struct OF(lane) * l, s32 n_row, s32 n, s32 n_unit,
                    s32 adds, float acc)
{
    LOCAL u32 *slot = l->slots +
                      ((l->id >> 4) * UNIT_SLOTS + l->p) * SLOT_STRIDE +
                      4 * SLOT * l->g;
    LOCAL const u32 *first =
        l->slots + l->first_unit * UNIT_SLOTS * SLOT_STRIDE;
    s32 held = l->flip && 2 * n <= HELD_TOKENS ? n : 0;

    for (s32 from = 0; from < n; from += n_row) {
        u32 level[32], made[2 * 4 * SLOT];

        UNROLL
        for (s32 j = 0; j < n_row; j++)
            OF(empty_slot)(made + j * 4 * SLOT);
        if (here->has) {
            OF(tile_levels)(u->raw, level);
            UNROLL
            for (s32 j = 0; j < n_row; j++)
                if (from + j < n)
                    OF(make_slot)
            (level, u->sub, here->x + (from + j) * x_next, made + j * 4 * SLOT);
        }
        if (from + n_row >= n)
            OF(load)(u, next, 0, l->g);
        UNROLL
        for (s32 j = 0; j < n_row; j++)
            if (from + j < n)
                OF(put_slot)
        (slot + (held + j) * TOKEN_STRIDE, made + j * 4 * SLOT);
        BARRIER();
        if (adds && l->mine >= from && l->mine < from + n_row)
            acc = OF(add_slots)(acc,
                                first + (held + l->mine - from) * TOKEN_STRIDE,
                                n_unit * UNIT_SLOTS, l->id & 15);
        if (2 * n > HELD_TOKENS)
            BARRIER();
    }
    return acc;
}
#endif

/* The kernel of this file. Shared memory: the slots of a round, [rows of
 * activations][TOKEN_STRIDE] dwords, the lanes' partial integer sums, and the
 * order of a token's experts. Order of sums: a tile's or chunk's integers are
 * exact; then one chain of fma by ascending k, two links where formats have
 * minima. */
KERNEL_AHEAD_OF(OF(matvec), struct contract_args, 256)
{
    LOCAL_ARRAY(struct dwords, slots, HELD_TOKENS * TOKEN_STRIDE / 4);
#if WHOLE
    LOCAL_ARRAY(struct dwords, parts, 16 * PART_STRIDE / 4);
#else
    LOCAL struct dwords *parts = slots;
#endif
    LOCAL_ARRAY(s32, order, FEW_ITEMS);
    s32 r = LANE() & 15, sides = OWN(sides), units = sides == 2 ? 8 : 16;
    s32 n_slice = OWN(n_slice), rows = OWN(n), n_panel = OWN(n_panel);
    s32 group = GROUP() - OWN_FIRST;
    s32 block = divide(group, n_slice, OWN(n_slice_inverse));
    s32 panel = (group - block * n_slice) * OWN(each), end = panel + OWN(each);
    u64 own_out = OWN(out), matrix_bytes = OWN(matrix_bytes);
    struct few f = few_find(block, a.mode, a.n_tok, a.tok, a.n_head, a.n_block,
                            a.n_block_inverse, a.share, a.share_inverse);
    s32 k = 0, t = 0, top = a.top, total, side, more = 1;
    s32 once; /* each panel is one round */
    u64 step = (u64)sides * a.panel_bytes;
    s64 at; /* index in a stack entry of the row of results */
    struct few_run run;
    struct OF(lane) l;
    struct OF(place) next;
    struct OF(unit) u;
    GLOBAL const u8 *w = AT_HELD(const u8, OWN(w));
    GLOBAL const u32 *x = AT(const u32, a.x);
    float acc = 0;

    l.id = LANE();
    l.p = l.id >> 2 & 3;
    l.g = l.id & 3;
    l.first_unit = l.id >> 4 & ~(units - 1);
    l.mine = (l.id >> 4) - l.first_unit;
    l.slots = (LOCAL u32 *)slots;
    l.parts = (LOCAL u32 *)parts;
    l.flip = 0;
    side = l.first_unit > 0;
    end = end < n_panel ? end : n_panel;
    if (a.mode == CONTRACT_HEADS && f.matrix < a.n_matrix)
        few_prefetch(OWN(w) + (u64)f.matrix * matrix_bytes, matrix_bytes,
                     (u64)panel * a.panel_bytes,
                     (u64)(end - panel) * a.panel_bytes);
    AWAIT();
    if (a.mode == CONTRACT_EXPERTS)
        f.matrix = AT(const s32, a.id)[f.out];
    if (a.mode == CONTRACT_DOWN)
        f.n_item =
            few_order(AT(const s32, a.id) + (s64)f.out * a.n_used, a.n_used,
                      a.n_matrix, a.item, a.n_item, l.id, order);
    else if (f.matrix < 0 || f.matrix >= a.n_matrix)
        /* an invalid id: reads matrix 0, which is a valid address, and adds
         * nothing */
        f.n_item = f.matrix = 0;
    BARRIER();
    run.id = AT(const s32, a.id);
    run.down = a.mode == CONTRACT_DOWN;
    run.x_row = run.down ? f.out * a.n_used : f.x;
    run.order = order;
    run.matrix_bytes = matrix_bytes;
    run.panel_bytes = a.panel_bytes;
    run.x_step = a.x_step;
    run.x_next = (s64)a.n_head * a.x_step;
    run.n = f.n;
    run.matrix = f.matrix;
    total = few_begin(&run, a.run[0], w, x, f.n_item);
    panel += side;
    OF(find)(&next, &run, panel, panel < end, l.mine, total, l.p);
    UNROLL
    for (s32 i = 0; i < LANE_TILES; i++)
        OF(load)(&u, &next, i, l.g);
    if (next.has_unit)
        OF(fetch_sup)(next.sup, r, u.sup);
    once = a.n_run == 1 && total <= units;
    at = (f.out + (s64)l.mine * a.n_head) * rows;
    while (more) {
        struct OF(place) here = next;
        s32 n = total - t < units ? total - t : units;
        s32 begins = k + t == 0, closes = t + units >= total;
        s32 last = k + 1 == a.n_run, n_add = a.run[k].n_add;
        s32 row = panel * ROWS + r;
        s32 adds = l.mine < f.n && row < rows && panel < end;

        if (begins && a.open && adds)
            acc = OWN_ENTRY(const float, top)[at + row];
        t += units;
        if (closes) {
            t = 0;
            k = last ? 0 : k + 1;
            panel += last ? sides : 0;
            more = panel - side < end;
        }
        if (once) {
            next.tile += step;
            next.sup += step;
            if (panel >= end)
                next.has = next.has_unit = 0;
        } else if (closes || run.down) {
            total = few_begin(&run, a.run[k], w, x, f.n_item);
            OF(find)(&next, &run, panel, panel < end, t + l.mine, total, l.p);
        } else {
            OF(advance)(&next, run.len, units, t + l.mine, total, l.p);
        }
        if (ROUND_TOKENS == 1 || f.n > 1)
            acc = OF(round)(&u, &here, &next, run.x_next, &l, ROUND_TOKENS, f.n,
                            n, adds, acc);
        else
            acc = OF(round)(&u, &here, &next, 0, &l, 1, 1, n, adds, acc);
        l.flip = !l.flip;
        if (!closes || (n_add < 0 && !last))
            continue;
        n_add = n_add < 0 ? 0 : n_add;
        if (adds) {
            for (s32 i = 1; i <= n_add; i++)
                acc = add_(OWN_ENTRY(const float, top - i)[at + row], acc);
            OWN_ENTRY(float, top - n_add)[at + row] = acc;
            if (last && OWN(bias.from))
                ADD_BIAS(f, at + row, row, rows, acc);
            if (last)
                ADD_TAIL(at + row, acc);
        }
        top = last ? a.top : top + 1 - n_add;
        acc = 0;
    }
    panel = (group - block * n_slice) * OWN(each);
    GO_ON(f, block, panel, end, n_panel, l.slots);
}
#undef UNIT_TILES
#undef HELD_TOKENS
#undef UNIT_SLOTS
#undef ROUND_TOKENS
#undef PAIRS
#undef UNIT_BYTES
#undef LANE_TILES
#undef DWORDS
#undef SUBS
#undef SLOT
#undef SLOT_STRIDE
#undef TOKEN_STRIDE
#undef PART_STRIDE
