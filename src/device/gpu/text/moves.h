/* Kernels that change the order of elements: permute and transpose. No sums. In
 * permute, a lane writes one element of the result at a time, without shared
 * memory. */

KERNEL(permute, struct permute_args, 256)
{
    for (s64 i = (s64)GROUP() * 256 + LANE(); i < a.n;
         i += (s64)N_GROUP() * 256) {
        s64 from = strided(i, a.n, a.dim, a.stride);

        if (a.size == 4)
            AT(u32, a.out)[i] = AT(const u32, a.x)[from];
        else
            AT(u16, a.out)[i] = AT(const u16, a.x)[from];
    }
}

enum { SQUARE = 32 };

/* Copies a square of 32 * 32 elements through shared memory. Lanes read
 * neighbours of x and write neighbours of the result. */
KERNEL(transpose, struct transpose_args, 256)
{
    LOCAL_ARRAY(u32, square, SQUARE * (SQUARE + 1));
    s32 wide = (s32)((a.n[0] + SQUARE - 1) / SQUARE);
    s32 high = (s32)((a.n[1] + SQUARE - 1) / SQUARE);
    s64 p = (s64)(GROUP() % wide) * SQUARE;
    s64 q = (s64)(GROUP() / wide % high) * SQUARE;
    s64 rest = GROUP() / wide / high;
    s64 u = rest % a.n[2], v = rest / a.n[2];
    s64 from = u * a.stride[2] + v * a.stride[3];
    s64 to = u * a.out_stride[2] + v * a.out_stride[3];
    s32 x = LANE() % SQUARE, y = LANE() / SQUARE;

    for (s32 i = y; i < SQUARE; i += 8) {
        s64 at = from + (p + i) * a.stride[0] + q + x;

        if (p + i >= a.n[0] || q + x >= a.n[1])
            continue;
        square[i * (SQUARE + 1) + x] =
            a.size == 4 ? AT(const u32, a.x)[at] : AT(const u16, a.x)[at];
    }
    BARRIER();
    for (s32 i = y; i < SQUARE; i += 8) {
        s64 at = to + (q + i) * a.out_stride[1] + p + x;
        u32 value = square[x * (SQUARE + 1) + i];

        if (p + x >= a.n[0] || q + i >= a.n[1])
            continue;
        if (a.size == 4)
            AT(u32, a.out)[at] = value;
        else
            AT(u16, a.out)[at] = (u16)value;
    }
}
