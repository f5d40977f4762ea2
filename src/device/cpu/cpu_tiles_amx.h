/* The tile registers of AMX, 0 to 7, for products of signed bytes.
 *
 * tile_dot(sum, a, b) with sum in 0 .. 3, a in 4 .. 5 and b in 6 .. 7 adds a *
 * b to the int32 matrix `sum` [16][16]. `a` is 16 rows of k bytes. `b` is 16
 * columns of k bytes; each of its k / 4 rows holds 4 consecutive bytes of every
 * column. Tile numbers must be literals. */
#ifndef DEVICE_CPU_CPU_TILES_AMX_H
#define DEVICE_CPU_CPU_TILES_AMX_H

#include <immintrin.h>
#include <stdint.h>

/* The memory operand of ldtilecfg, the instruction that sets the shapes of the
 * tile registers. Source: Intel's manual, volume 1, 18.3. */
struct tile_shapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t n_row[16];
};

/* Sets the shapes of this thread's tile registers for products over k bytes, 32
 * or 64, until tiles_end(). In between, the system saves 8 KiB more at each
 * context switch of the thread. */
static inline void tiles_begin(int k)
{
    static const struct tile_shapes shapes[] = {
        {.palette = 1,
         .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
         .n_row = {16, 16, 16, 16, 16, 16, 8, 8}},
        {.palette = 1,
         .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
         .n_row = {16, 16, 16, 16, 16, 16, 16, 16}},
    };

    _Static_assert(sizeof shapes[0] == 64, "what ldtilecfg reads");
    _tile_loadconfig(&shapes[k / 64]);
}

static inline void tiles_end(void)
{
    _tile_release();
}

/* GCC 12 does not know that a tile load reads memory. The compiler barrier
 * keeps earlier writes before the load and later accesses after it. */
#define tile_load(tile, from, stride)                                          \
    do {                                                                       \
        __asm__ volatile("" ::: "memory");                                     \
        _tile_loadd(tile, from, stride);                                       \
    } while (0)
#define tile_zero(tile)              _tile_zero(tile)
#define tile_dot(sum, a, b)          _tile_dpbssd(sum, a, b)
#define tile_store(tile, to, stride) _tile_stored(tile, to, stride)

#endif
