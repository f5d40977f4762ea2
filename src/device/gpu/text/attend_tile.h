/* Functions of the attention kernels for prompts (attend_tile_tmpl.h). The rows
 * of a work group share keys, queries and values in shared memory: each lane
 * loads a part of these, then multiplies and adds. */

enum { TILE_STEP = 16 };

/* Unrolls a loop only four times in CUDA, because the compiler would unroll it
 * completely and use too many registers. */
#ifdef __CUDACC__
#define UNROLL_FEW _Pragma("unroll 4")
#else
#define UNROLL_FEW
#endif

/* Loads four of the key values i0 .. i0 + 15 of the block's 64 positions,
 * [16][64], into x[]. `id` is the lane's number. */
DEV void tile_take_keys(float *x, GLOBAL const u8 *tile, s32 format, s32 d,
                        s32 id, s32 i0)
{
    for (s32 k = 0; k < 4; k++) {
        s32 i = i0 + (id + 256 * k) / TEXT_PAGE, j = id % TEXT_PAGE;

        x[k] = i < d ? tile_value(tile, format, 0, d, j, i,
                                  tile_scale(tile, format, 0, d, j, i))
                     : 0.0f;
    }
}

/* Loads four of the values i0 .. i0 + 15 of the 64 rows' queries, [64][16],
 * into x[]. `id` is the lane's number. */
DEV void tile_take_queries(float *x, GLOBAL const float *query,
                           LOCAL const s64 *row_q, s32 d, s32 id, s32 i0)
{
    for (s32 k = 0; k < 4; k++) {
        s32 i = i0 + id % TILE_STEP;
        s64 row = row_q[(id + 256 * k) / TILE_STEP];

        x[k] = row >= 0 && i < d ? query[row * d + i] : 0.0f;
    }
}

/* Loads `columns` of the values at positions j0 .. j0 + 15 of a block, [16][16
 * * columns], into x[]. `id` is the lane's number. */
DEV void tile_take_values(float *x, s32 columns, GLOBAL const u8 *tile,
                          s32 format, s32 e, s32 id, s32 j0)
{
    for (s32 k = 0; k < columns; k++) {
        s32 at = id + 256 * k, c = at % (16 * columns);
        s32 j = j0 + at / (16 * columns);

        x[k] = c < e ? tile_value(tile, format, 1, e, j, c,
                                  tile_scale(tile, format, 1, e, j, c))
                     : 0.0f;
    }
}

/* Adds products of queries and keys to the lane's scores of 4 rows r and 4
 * positions j: s[r][j] = fma(q[i][r], key[i][j], s[r][j]) for i < n. */
DEV void tile_add_keys(float *s, LOCAL const float *q, s32 pitch,
                       LOCAL const float *key, s32 n)
{
    UNROLL_FEW
    for (s32 i = 0; i < n; i++) {
        float x[4], y[4];

        quad_get(x, q + i * pitch);
        quad_get(y, key + i * TEXT_PAGE);
        for (s32 r = 0; r < 4; r++)
            for (s32 j = 0; j < 4; j++)
                s[4 * r + j] = fma_(x[r], y[j], s[4 * r + j]);
    }
}

/* Adds values weighted by probabilities to the lane's sums of 4 rows r:
 * acc[r][c] = fma(p[j][r], value[j][c], acc[r][c]) for 16 positions j. The lane
 * has four adjacent columns c in every 64. */
DEV void tile_add_values(float *acc, s32 columns, LOCAL const float *p,
                         s32 pitch, LOCAL const float *value)
{
    UNROLL_FEW
    for (s32 j = 0; j < TILE_STEP; j++)
        for (s32 c = 0; c < columns; c += 4) {
            float x[4], y[4];

            quad_get(x, p + j * pitch);
            quad_get(y, value + j * 16 * columns + c * 16);
            for (s32 r = 0; r < 4; r++)
                for (s32 k = 0; k < 4; k++)
                    acc[r * columns + c + k] =
                        fma_(x[r], y[k], acc[r * columns + c + k]);
        }
}

/* Like tile_add_values, but row r skips positions of the span before see_lo[r]
 * and from see_hi[r] on. The 16 positions begin at j0. */
DEV void tile_add_some(float *acc, s32 columns, LOCAL const float *p, s32 pitch,
                       LOCAL const float *value, s32 j0,
                       LOCAL const s32 *see_lo, LOCAL const s32 *see_hi)
{
    UNROLL_FEW
    for (s32 j = 0; j < TILE_STEP; j++)
        for (s32 r = 0; r < 4; r++) {
            if (j0 + j < see_lo[r] || j0 + j >= see_hi[r])
                continue;
            for (s32 c = 0; c < columns; c++)
                acc[r * columns + c] =
                    fma_(p[j * pitch + r],
                         value[j * 16 * columns + c / 4 * 64 + c % 4],
                         acc[r * columns + c]);
        }
}

#define ATTEND_NAME attend_tile_64
#define COLUMNS     4
#include "attend_tile_tmpl.h"

#define ATTEND_NAME attend_tile_128
#define COLUMNS     8
#include "attend_tile_tmpl.h"
