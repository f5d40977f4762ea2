/* Kernels of the instructions that move bytes between devices: copies (MERGE,
 * PULL, PUSH), sums along the rank tree (MERGE), and pages of caches
 * (PAGES). */

/* The place of one unit of bytes in a copy of two nested loops over spans: its
 * index `unit` in its span, and the loop counters i0 and i1. piece_place()
 * computes it for unit i of n, if a span has `per` units and the inner loop n1
 * spans. It divides in 32 bits if n fits, because GPUs divide 64-bit numbers
 * slowly. */
struct text_place {
    s64 unit, i0, i1;
};
DEV struct text_place piece_place(s64 i, s64 n, s64 per, s64 n1)
{
    struct text_place p;

    p.unit = i;
    p.i0 = p.i1 = 0;
    if (n == per)
        return p;
    if (n < 0x7fffffff) {
        u32 run = (u32)i / (u32)per;

        p.unit = (u32)i - run * (u32)per;
        p.i0 = run / (u32)n1;
        p.i1 = run - (u32)p.i0 * (u32)n1;
        return p;
    }
    p.unit = i % per;
    p.i1 = i / per % n1;
    p.i0 = i / per / n1;
    return p;
}

/* Executes up to TEXT_PIECES copies. A piece has its own work groups; lanes
 * have adjacent units. A lane loads four units before it stores them, so that
 * four loads are in flight. No shared memory. */
KERNEL(copy_pieces, struct copy_pieces_args, 256)
{
    u64 value[4];
    GLOBAL u8 *dst[4];
    GLOBAL const u8 *from;
    GLOBAL u8 *to;
    s32 p = 0, first, end, unit;
    s64 n, per, step;

    while (p + 1 < a.n && a.piece[p + 1].first <= GROUP())
        p++;
    first = a.piece[p].first;
    end = p + 1 < a.n ? a.piece[p + 1].first : N_GROUP();
    unit = a.piece[p].unit;
    per = a.piece[p].bytes / unit;
    n = per * a.piece[p].n0 * a.piece[p].n1;
    step = (s64)(end - first) * 256;
    from = AT(const u8, a.piece[p].src);
    to = AT(u8, a.piece[p].dst);
    for (s64 i = (s64)(GROUP() - first) * 256 + LANE(); i < n; i += 4 * step) {
        UNROLL
        for (s32 k = 0; k < 4; k++) {
            struct text_place at =
                piece_place(i + k * step, n, per, a.piece[p].n1);
            GLOBAL const u8 *src = from + at.i0 * a.piece[p].src_s0 +
                                   at.i1 * a.piece[p].src_s1 + at.unit * unit;

            dst[k] = to + at.i0 * a.piece[p].dst_s0 +
                     at.i1 * a.piece[p].dst_s1 + at.unit * unit;
            value[k] = 0;
            if (i + k * step >= n)
                continue;
            value[k] = unit == 8   ? *(GLOBAL const u64 *)src
                       : unit == 4 ? *(GLOBAL const u32 *)src
                       : unit == 2 ? *(GLOBAL const u16 *)src
                                   : *src;
        }
        UNROLL
        for (s32 k = 0; k < 4; k++) {
            if (i + k * step >= n)
                continue;
            if (unit == 8)
                *(GLOBAL u64 *)dst[k] = value[k];
            else if (unit == 4)
                *(GLOBAL u32 *)dst[k] = (u32)value[k];
            else if (unit == 2)
                *(GLOBAL u16 *)dst[k] = (u16)value[k];
            else
                *dst[k] = (u8)value[k];
        }
    }
}

/* Sums one value per lane, over all addends, along the rank tree. The copy
 * descriptor a.piece says where in each addend the value lies. A lane loads
 * eight addends at once. No shared memory. */
KERNEL(merge_tree, struct merge_tree_args, 256)
{
    float stack[TEXT_DEPTH], x[8];
    s64 per = a.piece.bytes / 4, n = per * a.piece.n0 * a.piece.n1;
    s64 i = (s64)GROUP() * 256 + LANE();

    if (i < n) {
        struct text_place p = piece_place(i, n, per, a.piece.n1);
        s64 src = a.piece.src_at + p.i0 * a.piece.src_s0 +
                  p.i1 * a.piece.src_s1 + 4 * p.unit;
        s64 dst = p.i0 * a.piece.dst_s0 + p.i1 * a.piece.dst_s1 + 4 * p.unit;
        s32 top = 0;
        float sum = 0;

        for (s64 first = 0; first < a.n; first += 8) {
            GLOBAL const struct merge_tree_addend *d =
                AT(const struct merge_tree_addend, a.addend) + first;
            s32 m = a.n - first < 8 ? (s32)(a.n - first) : 8;

            UNROLL
            for (s32 k = 0; k < 8; k++) {
                x[k] = 0;
                if (k < m) {
                    s64 skip =
                        d[k].skip_tok * a.n_tok + d[k].skip_out * a.n_out;

                    x[k] = *AT_HELD(const float, d[k].at + (u64)(src - skip));
                }
            }
            UNROLL
            for (s32 k = 0; k < 8; k++) {
                if (k >= m)
                    continue;
                sum = x[k];
                for (s64 add = d[k].n_add; add > 0; add--)
                    sum = add_(stack[--top], sum);
                stack[top++] = sum;
            }
        }
        *(GLOBAL float *)(AT(u8, a.piece.dst) + dst) = sum;
    }
}

/* Copies the cache tile `from` to `to`, in words of `type`. A lane loads four
 * words before it stores them. */
#define TILE_COPY(type)                                                        \
    for (s64 i = LANE(); i < a.tile_bytes / (s64)sizeof(type); i += 4 * 256) { \
        GLOBAL type *out = (GLOBAL type *)to;                                  \
        GLOBAL const type *x = (GLOBAL const type *)from;                      \
        s64 n = a.tile_bytes / (s64)sizeof(type);                              \
                                                                               \
        UNROLL                                                                 \
        for (s32 u = 0; u < 4; u++)                                            \
            word[u] = i + 256 * u < n ? x[i + 256 * u] : 0;                    \
        UNROLL                                                                 \
        for (s32 u = 0; u < 4; u++)                                            \
            if (i + 256 * u < n)                                               \
                out[i + 256 * u] = (type)word[u];                              \
    }

/* Copies cache pages between devices. A work group copies one page of a
 * sequence for one head, if the sequence uses that page. For that, the work
 * group searches for the sequence's last position itself. */
KERNEL(pages, struct pages_args, 256)
{
    LOCAL_ARRAY(s32, last, 256);
    u64 word[4];
    GLOBAL const s32 *seq = AT(const s32, a.seq);
    GLOBAL const s32 *pos = AT(const s32, a.pos);
    s32 head = GROUP() % a.n_head, k = GROUP() / a.n_head % a.n_entry;
    s32 row = GROUP() / a.n_head / a.n_entry, most = -1;
    s32 head_x = AT(const s32, a.map)[head];
    s32 page = AT(const s32, a.pages)[row * a.page_stride + k];

    for (s64 t = LANE(); t < a.n_tok; t += 256)
        if (seq[t] == row && pos[t] > most)
            most = pos[t];
    last[LANE()] = most;
    BARRIER();
    for (s32 n = 128; n > 0; n >>= 1) {
        if (LANE() < n && last[LANE() + n] > last[LANE()])
            last[LANE()] = last[LANE() + n];
        BARRIER();
    }
    if (last[0] >= 0 && k <= last[0] / a.page_tokens && head_x >= 0 &&
        page >= 0 && page < a.n_page) {
        GLOBAL u8 *to =
            AT(u8, a.out) + ((s64)page * a.n_head + head) * a.tile_bytes;
        GLOBAL const u8 *from =
            AT(const u8, a.x) +
            ((s64)page * a.n_head_x + head_x) * a.tile_bytes;

        if (a.tile_bytes % 8 == 0) {
            TILE_COPY(u64)
        } else {
            TILE_COPY(u32)
        }
    }
}
#undef TILE_COPY
