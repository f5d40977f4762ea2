/* Describes how the kernel matmul (matmul_tmpl.h) divides a work group's
 * products among lanes, for each kind of matrix unit.
 *
 * Rows of activations are processed STEP at a time. Before every STEPS steps a
 * lane asks if there are rows left. A row of a tile, of weights or of
 * activations, is eight dwords: for t = 0 to 3, dword t has values 4 t to 4 t +
 * 3, and dword 4 + t has values 16 + 4 t to 19 + 4 t. A lane supplies
 * LANE_DWORDS dwords of each half of a tile, from dword LANE_FIRST(q) on, of
 * LANE_ROWS weight rows. The first one is row `r` of panel LANE_PANEL(id), a
 * second one is NEXT_ROW rows and NEXT_PANEL panels further. With matrix units,
 * the lane also supplies these dwords of row LANE_X(id) of the STEP rows of
 * activations. It gets STEP_SUMS sums: sum c is that of its weight row
 * LANE_ROW(c) and of row LANE_TOKEN(q, c) of the activations.
 *
 * Integer products may be added in any order. So a lane may supply other dwords
 * of a half than the unit's manual says, as long as weights and activations
 * agree. */
#if HAVE_MMA_S8_16832
/* NVIDIA's matrix units. The first operand is 16 weight rows of a panel, in
 * such an order that a lane has two adjacent rows, so that it loads both at
 * once. Unless the halves of a tile are multiplied apart, it has dwords 2 q and
 * 2 q + 1 of the tile, which it loads at once, too (matmul_tmpl.h). */
#define STEP             8
#define STEPS            2
#define LANE_ROWS        2
#define LANE_DWORDS      1
#define LANE_R(id)       (2 * ((id) >> 2 & 7))
#define LANE_X(id)       ((id) >> 2 & 7)
#define LANE_Q(id)       ((id)&3)
#define LANE_PANEL(id)   ((id) >> 5)
#define LANE_FIRST(q)    (q)
#define LANE_ROW(c)      ((c) >> 1)
#define LANE_TOKEN(q, c) (2 * (q) + ((c)&1))
#define NEXT_ROW         1
#define NEXT_PANEL       0
#elif HAVE_MFMA_I8
/* AMD's matrix units of CDNA (MFMA). The first operand is the activations, so
 * that each lane gets sums of one row of a panel. A wave of 64 lanes has two
 * panels. */
#define STEP             16
#define STEPS            1
#define LANE_ROWS        2
#define LANE_DWORDS      1
#define LANE_R(id)       ((id)&15)
#define LANE_X(id)       LANE_R(id)
#define LANE_Q(id)       ((id) >> 4 & 3)
#define LANE_PANEL(id)   ((id) >> 6 << 1)
#define LANE_FIRST(q)    (q)
#define LANE_ROW(c)      ((c) >> 2)
#define LANE_TOKEN(q, c) (4 * (q) + ((c)&3))
#define NEXT_ROW         0
#define NEXT_PANEL       1
#elif HAVE_WMMA_I8
/* AMD's matrix units of RDNA (WMMA). The first operand is the activations, as
 * for CDNA. A wave of 32 lanes has one panel. */
#define STEP           16
#define STEPS          1
#define LANE_ROWS      1
#define LANE_R(id)     ((id)&15)
#define LANE_X(id)     LANE_R(id)
#define LANE_Q(id)     ((id) >> 4 & 1)
#define LANE_PANEL(id) ((id) >> 5)
#define LANE_ROW(c)    0
#if HAVE_WMMA_I8 == 11
#define LANE_DWORDS      4
#define LANE_FIRST(q)    0
#define LANE_TOKEN(q, c) (2 * (c) + (q))
#else
#define LANE_DWORDS      2
#define LANE_FIRST(q)    (2 * (q))
#define LANE_TOKEN(q, c) (8 * (q) + (c))
#endif
#define NEXT_ROW   0
#define NEXT_PANEL 0
#else
/* No matrix units. A lane computes its sums itself, so it reads whole rows of
 * activations. */
#define STEP             8
#define STEPS            1
#define LANE_ROWS        2
#define LANE_DWORDS      4
#define LANE_R(id)       ((id) >> 2 & 7)
#define LANE_Q(id)       ((id)&3)
#define LANE_PANEL(id)   ((id) >> 5)
#define LANE_FIRST(q)    0
#define LANE_ROW(c)      ((c) >> 1)
#define LANE_TOKEN(q, c) (2 * (q) + ((c)&1))
#define NEXT_ROW         8
#define NEXT_PANEL       0
#endif
#define STEP_SUMS (STEP / 2)

/* Calls of the matrix units. mma_tile() adds the products of a tile to
 * sums[STEP_SUMS]. mma_halves() adds those of the tile's first half to lo[] and
 * those of its second half to hi[]. The lane's operands are
 * w[2][LANE_ROWS][LANE_DWORDS], weights, and x[2][LANE_DWORDS], activations;
 * the first index is the half. */
#if HAVE_MMA_S8_16832
#define HAVE_MMA 1
DEV void mma_tile(s32 *sums, const u32 *w, const u32 *x)
{
    mma_s8(sums, w, x);
}
DEV void mma_halves(s32 *lo, s32 *hi, const u32 *w, const u32 *x)
{
    mma_s8_k16(lo, w, x[0]);
    mma_s8_k16(hi, w + 2, x[1]);
}
#elif HAVE_MFMA_I8 == 32
#define HAVE_MMA 1
DEV void mma_tile(s32 *sums, const u32 *w, const u32 *x)
{
    UNROLL
    for (s32 h = 0; h < 2; h++)
        mfma_i8(sums + 4 * h, x[0], x[1], w[h], w[2 + h]);
}
/* Multiplies one half by setting the other half of the weights to zero. That of
 * the activations can stay, and the weights are the same for many steps. */
DEV void mma_halves(s32 *lo, s32 *hi, const u32 *w, const u32 *x)
{
    UNROLL
    for (s32 h = 0; h < 2; h++) {
        mfma_i8(lo + 4 * h, x[0], x[1], w[h], 0);
        mfma_i8(hi + 4 * h, x[0], x[1], 0, w[2 + h]);
    }
}
#elif HAVE_MFMA_I8
#define HAVE_MMA 1
DEV void mma_halves(s32 *lo, s32 *hi, const u32 *w, const u32 *x)
{
    UNROLL
    for (s32 h = 0; h < 2; h++) {
        mfma_i8_k16(lo + 4 * h, x[0], w[h]);
        mfma_i8_k16(hi + 4 * h, x[1], w[2 + h]);
    }
}
DEV void mma_tile(s32 *sums, const u32 *w, const u32 *x)
{
    mma_halves(sums, sums, w, x);
}
#elif HAVE_WMMA_I8
#define HAVE_MMA 1
DEV void mma_halves(s32 *lo, s32 *hi, const u32 *w, const u32 *x)
{
    wmma_i8(lo, x, w);
    wmma_i8(hi, x + LANE_DWORDS, w + LANE_DWORDS);
}
DEV void mma_tile(s32 *sums, const u32 *w, const u32 *x)
{
    mma_halves(sums, sums, w, x);
}
#endif
