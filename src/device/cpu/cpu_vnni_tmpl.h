/* The functions v_fold and v_dot that cpu_unpack_tmpl.h requires, for
 * instruction sets with VNNI. */
#include "base/unroll.h"

static inline vi v_fold(vi acc, vi a, vi b)
{
    return v_pairs_add(acc, a, b & 0xffff);
}

static inline __attribute__((always_inline)) vi
v_dot(vi acc, const vu *code, const int8_t *q, int n, int max)
{
    /* The parameter `max`, the largest code, is not needed, because the
     * instruction takes codes of all 8 bits. */
    (void)max;
    UNROLL
    for (int i = 0; i < n; i++) {
        int32_t x;

        __builtin_memcpy(&x, q + 4 * i, sizeof(x));
        acc = v_dot4(acc, (vi)code[i], v_set(x));
    }
    return acc;
}
