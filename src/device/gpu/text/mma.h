/* What a lane of matmul has (matmul_tmpl.h), by the matrix units that there
 * are.
 *
 * Rows of activations are taken by steps of STEP, and meet rows of panels. Of a
 * tile each has eight dwords: dword t, t = 0 .. 3, is values 4 t .. 4 t + 3,
 * and dword 4 + t the same of the second half. A lane brings LANE_DWORDS of
 * each half, from dword LANE_FIRST(q) on, of
 *   LANE_ROWS rows of weights: row `r` of a panel, which is LANE_PANEL(id) of
 *   its group's; the second is NEXT_ROW rows and NEXT_PANEL panels on;
 *   with matrix units, row `r` of a step's activations.
 * It has STEP_SUMS of a step's sums: of sum c, LANE_ROW(c) says which of its
 * rows of weights and LANE_TOKEN(q, c) which row of the step's activations.
 *
 * The values of a half are added in no order, since integers are: any dwords
 * will do, if both operands have the same ones. */
#if HAVE_MMA_S8_16832
/* Weights are the first operand, 16 rows of a panel. */
#define STEP             8
#define LANE_ROWS        2
#define LANE_DWORDS      1
#define LANE_R(id)       ((id) >> 2 & 7)
#define LANE_Q(id)       ((id)&3)
#define LANE_PANEL(id)   ((id) >> 5)
#define LANE_FIRST(q)    (q)
#define LANE_ROW(c)      ((c) >> 1)
#define LANE_TOKEN(q, c) (2 * (q) + ((c)&1))
#define NEXT_ROW         8
#define NEXT_PANEL       0
#elif HAVE_MFMA_I8
/* Activations are the first operand: the result has a panel's row a lane. A
 * wave of 64 lanes has two panels. */
#define STEP             16
#define LANE_ROWS        2
#define LANE_DWORDS      1
#define LANE_R(id)       ((id)&15)
#define LANE_Q(id)       ((id) >> 4 & 3)
#define LANE_PANEL(id)   ((id) >> 6 << 1)
#define LANE_FIRST(q)    (q)
#define LANE_ROW(c)      ((c) >> 2)
#define LANE_TOKEN(q, c) (4 * (q) + ((c)&3))
#define NEXT_ROW         0
#define NEXT_PANEL       1
#elif HAVE_WMMA_I8
/* The same, of 32 lanes and one panel. */
#define STEP           16
#define LANE_ROWS      1
#define LANE_R(id)     ((id)&15)
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
/* A lane forms its sums itself, and reads the activations of all of them. */
#define STEP             8
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

/* Matrix units: mma_tile() adds the products of a tile to sums[STEP_SUMS],
 * mma_halves() those of its halves to lo[] and hi[]. The operands' dwords are
 * those of the first half, then of the second: x[2][LANE_DWORDS] of
 * activations, w[2][LANE_ROWS][LANE_DWORDS] of weights. */
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
/* Of weights alone the other half is taken away: they stay for many steps. */
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
