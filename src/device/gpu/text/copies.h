/* Bytes that steps move, and sums along a tree of ranks: collectives on one's
 * own memory, pulls, pushes, pages of caches. */

KERNEL(copy_pieces, struct copy_pieces_args, 256)
{
    s32 p = 0, first, end;
    s64 n, per;

    while (p + 1 < a.n && a.piece[p + 1].first <= GROUP())
        p++;
    first = a.piece[p].first;
    end = p + 1 < a.n ? a.piece[p + 1].first : N_GROUP();
    per = a.piece[p].bytes / a.piece[p].unit;
    n = per * a.piece[p].n0 * a.piece[p].n1;
    for (s64 i = (s64)(GROUP() - first) * 256 + LANE(); i < n;
         i += (s64)(end - first) * 256) {
        s64 b = i % per, i1 = i / per % a.piece[p].n1;
        s64 i0 = i / per / a.piece[p].n1;
        u64 src = a.piece[p].src + (u64)(i0 * a.piece[p].src_s0) +
                  (u64)(i1 * a.piece[p].src_s1);
        u64 dst = a.piece[p].dst + (u64)(i0 * a.piece[p].dst_s0) +
                  (u64)(i1 * a.piece[p].dst_s1);

        if (a.piece[p].unit == 8)
            AT(u64, dst)[b] = AT(const u64, src)[b];
        else if (a.piece[p].unit == 4)
            AT(u32, dst)[b] = AT(const u32, src)[b];
        else
            AT(u8, dst)[b] = AT(const u8, src)[b];
    }
}

/* A lane a value; what it reads of each addend lies where the piece says. */
KERNEL(merge_tree, struct merge_tree_args, 256)
{
    float stack[TEXT_DEPTH];
    s64 per = a.piece.bytes / 4, n = per * a.piece.n0 * a.piece.n1;
    s64 i = (s64)GROUP() * 256 + LANE();

    if (i < n) {
        s64 b = i % per, i1 = i / per % a.piece.n1, i0 = i / per / a.piece.n1;
        s64 src = a.piece.src_at + i0 * a.piece.src_s0 + i1 * a.piece.src_s1;
        s64 dst = i0 * a.piece.dst_s0 + i1 * a.piece.dst_s1;
        s32 top = 0;

        for (s32 k = 0; k < a.n; k++) {
            GLOBAL const struct merge_tree_addend *d =
                AT(const struct merge_tree_addend, a.addend) + k;
            s64 at = src - d->skip_tok * a.n_tok - d->skip_out * a.n_out;

            stack[top++] = AT(const float, d->at + (u64)at)[b];
            for (s32 add = d->n_add; add > 0; add--) {
                top--;
                stack[top - 1] = add_(stack[top - 1], stack[top]);
            }
        }
        AT(float, a.piece.dst + (u64)dst)[b] = stack[0];
    }
}

/* A group a page of a sequence and a head. The last page of a sequence is that
 * of its last token; a group looks for it itself. */
KERNEL(pages, struct pages_args, 256)
{
    LOCAL_ARRAY(s32, last, 256);
    GLOBAL const s32 *seq = AT(const s32, a.seq);
    GLOBAL const s32 *pos = AT(const s32, a.pos);
    s32 head = GROUP() % a.n_head, k = GROUP() / a.n_head % a.n_entry;
    s32 row = GROUP() / a.n_head / a.n_entry, most = -1;
    s32 from = AT(const s32, a.map)[head];
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
    if (last[0] >= 0 && k <= last[0] / a.page_tokens && from >= 0 &&
        page >= 0 && page < a.n_page) {
        GLOBAL u32 *out =
            AT(u32, a.out + ((u64)page * (u64)a.n_head + (u64)head) *
                                (u64)a.tile_bytes);
        GLOBAL const u32 *x =
            AT(const u32, a.x + ((u64)page * (u64)a.n_head_x + (u64)from) *
                                    (u64)a.tile_bytes);

        for (s64 i = LANE(); i < a.tile_bytes / 4; i += 256)
            out[i] = x[i];
    }
}
