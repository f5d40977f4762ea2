/* Tiles and vectors of AMX in plain C, and the kernels of the set `amx`
 * compiled with them. Fails the running case if a tile is used without a shape,
 * or with another shape than the product needs. */
#include "lib/tiles_plain.h"

#include <math.h>

#include "base/half.h"
#include "device/cpu/cpu_matmul.h"
#include "lib/support.h"

/* GCC warns of vectors of 64 bytes in a function's interface; these functions
 * are static. */
#pragma GCC diagnostic ignored "-Wpsabi"

enum { W = 16, WIDE_UNSIGNED = 0 };

typedef int32_t vi __attribute__((vector_size(4 * W), may_alias));
typedef uint32_t vu __attribute__((vector_size(4 * W), may_alias));
typedef float vf __attribute__((vector_size(4 * W), may_alias));

/* ---- vectors, as cpu_vector.h has them ----------------------------------- */

static inline vi v_set(int32_t x)
{
    return (vi){0} + x;
}

static inline vf v_setf(float x)
{
    vf v;

    for (int i = 0; i < W; i++)
        v[i] = x;
    return v;
}

static inline vf v_fma(vf a, vf b, vf c)
{
    for (int i = 0; i < W; i++)
        c[i] = fmaf(a[i], b[i], c[i]);
    return c;
}

static inline vf v_int_f(vi a)
{
    return __builtin_convertvector(a, vf);
}

static inline vf v_f16(const void *p)
{
    uint16_t half[W];
    vf v;

    memcpy(half, p, sizeof half);
    for (int i = 0; i < W; i++)
        v[i] = f16_to_f32(half[i]);
    return v;
}

static inline vf v_bf16(const void *p)
{
    uint16_t half[W];
    vf v;

    memcpy(half, p, sizeof half);
    for (int i = 0; i < W; i++)
        v[i] = bf16_to_f32(half[i]);
    return v;
}

static inline vi v_u8(const void *p)
{
    vi v;

    for (int i = 0; i < W; i++)
        v[i] = ((const uint8_t *)p)[i];
    return v;
}

static inline vi v_s8(const void *p)
{
    vi v;

    for (int i = 0; i < W; i++)
        v[i] = ((const int8_t *)p)[i];
    return v;
}

static inline vu v_table(const int8_t *p)
{
    vu v;

    for (int i = 0; i < 4; i++)
        memcpy((char *)&v + 16 * i, p, 16);
    return v;
}

static inline vu v_lookup(vu table, vu code)
{
    uint8_t from[4 * W], at[4 * W];

    memcpy(from, &table, sizeof from);
    memcpy(at, &code, sizeof at);
    for (int i = 0; i < 4 * W; i++)
        at[i] = from[at[i]];
    memcpy(&code, at, sizeof at);
    return code;
}

static inline vi v_pairs_add(vi acc, vi a, vi b)
{
    for (int i = 0; i < W; i++)
        acc[i] += (int16_t)a[i] * (int16_t)b[i] + (a[i] >> 16) * (b[i] >> 16);
    return acc;
}

/* ---- tiles, as cpu_tiles_amx.h has them ---------------------------------- */

/* The thread's eight tiles: number of rows, bytes per row, and contents. n_row
 * is 0 while the thread has no tiles. */
static _Thread_local struct {
    int n_row, row_bytes;
    uint8_t byte[16][64];
} tiles[8];

static void tiles_begin(int k)
{
    assert_int_equal(tiles[0].n_row, 0);
    for (int i = 0; i < 8; i++) {
        tiles[i].n_row = i < 6 ? 16 : k / 4;
        tiles[i].row_bytes = i == 4 || i == 5 ? k : 64;
    }
}

static void tiles_end(void)
{
    assert_int_not_equal(tiles[0].n_row, 0);
    memset(tiles, 0, sizeof tiles);
}

static void tile_zero(int tile)
{
    assert_int_not_equal(tiles[tile].n_row, 0);
    memset(tiles[tile].byte, 0, sizeof tiles[tile].byte);
}

static void tile_load(int tile, const uint8_t *from, int stride)
{
    tile_zero(tile);
    for (int i = 0; i < tiles[tile].n_row; i++)
        memcpy(tiles[tile].byte[i], from + i * stride,
               (size_t)tiles[tile].row_bytes);
}

static void tile_store(int tile, void *to, int stride)
{
    assert_int_not_equal(tiles[tile].n_row, 0);
    for (int i = 0; i < tiles[tile].n_row; i++)
        memcpy((char *)to + i * stride, tiles[tile].byte[i],
               (size_t)tiles[tile].row_bytes);
}

static void tile_dot(int sum, int a, int b)
{
    assert_int_equal(tiles[sum].n_row, tiles[a].n_row);
    assert_int_equal(tiles[a].row_bytes, 4 * tiles[b].n_row);
    assert_int_equal(tiles[sum].row_bytes, tiles[b].row_bytes);
    for (int m = 0; m < tiles[sum].n_row; m++)
        for (int n = 0; n < 16; n++) {
            int32_t all;

            memcpy(&all, &tiles[sum].byte[m][4 * n], sizeof all);
            for (int k = 0; k < tiles[a].row_bytes; k++)
                all += (int8_t)tiles[a].byte[m][k] *
                       (int8_t)tiles[b].byte[k / 4][4 * n + k % 4];
            memcpy(&tiles[sum].byte[m][4 * n], &all, sizeof all);
        }
}

/* ---- the kernels --------------------------------------------------------- */

#include "device/cpu/cpu_unpack_tmpl.h"

#include "device/cpu/cpu_gemm_amx_tmpl.h"

static struct cpu_matmul_isa isa = {&cpu_jobs_generic, gemm_table};

#include "device/cpu/cpu_matmul_ops_template.h"

void tiles_plain_init(struct cpu_kernels *k)
{
#if defined(__x86_64__) && !defined(PLAIT_PLAIN_KERNELS)
    if (kernel_set_runs(KERNEL_SET_AVX512_VNNI))
        isa.jobs = &cpu_jobs_amx;
#endif
    init_ops(k);
    k->kernel_set = KERNEL_SET_AMX;
}
