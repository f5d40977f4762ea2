/* Kernels of attention over the paged cache. All sums have the order of
 * device/cpu/cpu_attention_template.h: positions in blocks of 64, the softmax
 * online inside a span of 256 positions, spans along a tree.
 *
 * A work group processes one span of one KV head for several rows; a row is one
 * query head of one token. To compute scores a lane takes one position of K, to
 * sum values it takes one column of V, so that all rows share the cache
 * elements which the lane loads. The softmax state of each row, l [16], m and
 * acc [e], goes to memory, where attend_merge merges the states, or the last
 * work group of a tile's (merge_rows()). The spans that exist depend on
 * positions, which only the device knows. So a work group that has no span
 * returns.
 *
 *   attend_4, _8, _16     few tokens (attend_tmpl.h)
 *   attend_latent_*       latents, which are keys and values at once
 *   attend_codes_*        caches of 4 or 5 bits (attend_direct_tmpl.h)
 *   attend_tile_*         many tokens (attend_tile_tmpl.h)
 *   attend_merge          states of a row to its result */

/* A lane of the direct kernels loads up to ATTEND_FAR values, or at the end
 * ATTEND_AHEAD, before it uses the first. The fewer rows a kernel computes, the
 * more it waits for memory, and the more registers it has for loads. */
enum {
    ATTEND_BLOCKS = TEXT_SPAN / TEXT_PAGE,
    ATTEND_AHEAD = 8,
    ATTEND_FAR = 32,
    CODE_AHEAD = 8,  /* positions of V, in formats of codes */
    STAGE_WIDE = 128 /* columns of V in a stage */
};

DEV float lowest_(void)
{
    return float_from_bits(0xff800000u); /* -infinity in the format F32 */
}

/* Returns the first position that a token at position `pos` attends to.
 * `window` is the number of positions that it attends to, or 0 if all. */
DEV s32 first_seen(s32 pos, s32 window)
{
    return window > 0 && pos >= window ? pos - window + 1 : 0;
}

/* Returns the last position that a token at position `pos` attends to, whose
 * operand `ends` is `end`. */
DEV s32 last_seen(s32 pos, s32 end, s32 window)
{
    if (window > 0 && end - pos >= window)
        end = pos + window - 1;
    return end < pos ? pos : end;
}

DEV s32 within(s32 x, s32 lo, s32 hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* ---- tokens and heads of a work group ------------------------------------ */

/* Returns true if token t is the first of a tile. Tiles begin at each multiple
 * of `tokens`, counted from token `first`, and at each new sequence. */
DEV s32 tile_begins(GLOBAL const s32 *seq, s32 first, s32 tokens, s32 t)
{
    return (t - first) % tokens == 0 || seq[t] != seq[t - 1];
}

DEV s32 tile_end(GLOBAL const s32 *seq, s32 first, s32 tokens, s32 end, s32 t)
{
    s32 most = t - (t - first) % tokens + tokens, i = t + 1;

    while (i < most && i < end && seq[i] == seq[t])
        i++;
    return i;
}

/* Finds the query heads that read KV head kv. Stores those from the lo-th on,
 * at most n, in head[] and their number in *count. All 256 lanes call this
 * function, with `id` as their number, and then wait at a barrier. */
DEV void find_heads(GLOBAL const s32 *head_map, s32 n_head, s32 kv, s32 lo,
                    s32 n, s32 id, LOCAL s32 *head, LOCAL s32 *count)
{
    for (s32 h = id; h < n_head; h += 256) {
        s32 at = -lo;

        for (s32 i = 0; i < h; i++)
            at += head_map[i] == kv;
        if (head_map[h] == kv && at >= 0 && at < n)
            head[at] = h;
        at += head_map[h] == kv;
        if (h == n_head - 1)
            *count = within(at, 0, n);
    }
}

/* Stores the query heads of KV head kv, from the lo-th on and at most n, in
 * head[] and returns their number. If per_kv > 0, each KV head has per_kv
 * adjacent query heads; otherwise head_map names the KV head of each. All lanes
 * of the work group call this function. They may read head[] only after a
 * further barrier. */
DEV s32 tile_heads(GLOBAL const s32 *head_map, s32 n_head, s32 per_kv, s32 kv,
                   s32 lo, s32 n, s32 id, LOCAL s32 *head, LOCAL s32 *count)
{
    if (per_kv > 0) {
        if (id < n)
            head[id] = kv * per_kv + lo + id;
        return per_kv - lo < n ? per_kv - lo : n;
    }
    find_heads(head_map, n_head, kv, lo, n, id, head, count);
    BARRIER();
    return count[0];
}

/* Sets *least and *most to the first and last position that any of the tokens
 * t0 .. t1 - 1 attends to. */
DEV void tile_sees(GLOBAL const s32 *pos, GLOBAL const s32 *ends, s32 t0,
                   s32 t1, s32 window, s32 *least, s32 *most)
{
    s32 lo = pos[t0], hi = last_seen(pos[t0], ends[t0], window);

    for (s32 t = t0 + 1; t < t1; t++) {
        s32 last = last_seen(pos[t], ends[t], window);

        lo = pos[t] < lo ? pos[t] : lo;
        hi = last > hi ? last : hi;
    }
    *least = first_seen(lo, window);
    *most = hi;
}

/* ---- the softmax of a span ----------------------------------------------- */

/* Shared memory of a work group for one span, and the positions of the span
 * that its rows attend to. */
struct span {
    LOCAL float *p;    /* scores, later probabilities, [256][rows] */
    LOCAL float *part; /* [256] */
    /* by block and row, [4][rows]: greatest score, greatest score up to and
     * including the block, and the factor of the row's earlier sums */
    LOCAL float *top, *m, *f;
    /* by row: positions of the span that it attends to, see_lo .. see_hi - 1 */
    LOCAL s32 *see_lo, *see_hi;
    LOCAL s64 *row_q;     /* by row: index of its query; -1: unused row */
    LOCAL s64 *row_state; /* by row: index of its softmax state */
    /* positions that any row attends to, and those that all rows do */
    s32 any_lo, any_hi, all_lo, all_hi;
};

/* Declares the arrays of struct span except p, and those of tile_heads(). */
#define SPAN_ARRAYS(rows)                                                      \
    LOCAL_ARRAY(float, part, 256);                                             \
    LOCAL_ARRAY(float, top, ATTEND_BLOCKS *(rows));                            \
    LOCAL_ARRAY(float, m, ATTEND_BLOCKS *(rows));                              \
    LOCAL_ARRAY(float, f, ATTEND_BLOCKS *(rows));                              \
    LOCAL_ARRAY(s32, see_lo, rows);                                            \
    LOCAL_ARRAY(s32, see_hi, rows);                                            \
    LOCAL_ARRAY(s64, row_q, rows);                                             \
    LOCAL_ARRAY(s64, row_state, rows);                                         \
    LOCAL_ARRAY(s32, head, rows);                                              \
    LOCAL_ARRAY(s32, head_count, 1)
/* Sets the pointers of a struct span to these arrays. */
#define SPAN_INIT(x, probabilities)                                            \
    ((x).p = (probabilities), (x).part = part, (x).top = top, (x).m = m,       \
     (x).f = f, (x).see_lo = see_lo, (x).see_hi = see_hi, (x).row_q = row_q,   \
     (x).row_state = row_state)

/* Sets the positions of the span from u0 on that tokens which see positions
 * `least` to `most` attend to. */
DEV void span_sees(struct span *x, s32 u0, s32 least, s32 most)
{
    x->any_lo = within(least - u0, 0, TEXT_SPAN);
    x->any_hi = within(most + 1 - u0, 0, TEXT_SPAN);
    x->all_lo = 0;
    x->all_hi = TEXT_SPAN;
}

/* Returns true if a row attends to a position of block b. */
DEV s32 span_has(const struct span *x, s32 b)
{
    return b * TEXT_PAGE < x->any_hi && (b + 1) * TEXT_PAGE > x->any_lo;
}

/* Sets up row `id`: query head h of token t, which exists if t < t1. `first` is
 * the first token of the launch, n_state the states of a row. */
DEV void span_row(struct span *x, s32 id, GLOBAL const s32 *pos,
                  GLOBAL const s32 *ends, s32 t, s32 t1, s32 h, s32 window,
                  s32 u0, s32 first, s32 n_head, s32 n_state, s32 e)
{
    x->row_q[id] = -1;
    x->see_lo[id] = x->see_hi[id] = 0;
    if (t < t1) {
        s32 lo = first_seen(pos[t], window);

        x->row_q[id] = (s64)t * n_head + h;
        x->row_state[id] = (((s64)(t - first) * n_head + h) * n_state +
                            u0 / TEXT_SPAN - lo / TEXT_SPAN) *
                           (TEXT_SOFT + e);
        x->see_lo[id] = within(lo - u0, 0, TEXT_SPAN);
        x->see_hi[id] =
            within(last_seen(pos[t], ends[t], window) + 1 - u0, 0, TEXT_SPAN);
    }
}

/* Makes probabilities of the scores s[rows] of position `id`, which it may
 * change: p, m and f. Sets all_lo and all_hi. All lanes call this function. */
DEV void span_softmax(struct span *x, s32 rows, float *s, float scale,
                      float softcap, s32 id)
{
    for (s32 r = 0; r < rows; r++) {
        s[r] = mul_(s[r], scale);
        if (softcap != 0)
            s[r] = mul_(tanh_(div_(s[r], softcap)), softcap);
        if (id < x->see_lo[r] || id >= x->see_hi[r])
            s[r] = lowest_();
        x->p[id * rows + r] = s[r];
        if (x->row_q[r] >= 0) {
            x->all_lo = x->see_lo[r] > x->all_lo ? x->see_lo[r] : x->all_lo;
            x->all_hi = x->see_hi[r] < x->all_hi ? x->see_hi[r] : x->all_hi;
        }
    }
    /* there is no position that all rows attend to */
    if (x->all_lo >= x->all_hi)
        x->all_lo = x->all_hi = x->any_hi;
    BARRIER();
    x->part[id] = lowest_();
    for (s32 k = 0; k < rows; k++)
        x->part[id] =
            max_(x->p[(id / rows * rows + k) * rows + id % rows], x->part[id]);
    BARRIER();
    if (id < ATTEND_BLOCKS * rows) {
        x->top[id] = lowest_();
        for (s32 k = 0; k < TEXT_PAGE / rows; k++)
            x->top[id] =
                max_(x->part[(id / rows * (TEXT_PAGE / rows) + k) * rows +
                             id % rows],
                     x->top[id]);
    }
    BARRIER();
    if (id < rows) {
        float now = lowest_();

        for (s32 b = 0; b < ATTEND_BLOCKS; b++) {
            float next = x->top[b * rows + id], was = now;

            now = next > was ? next : was;
            x->m[b * rows + id] = now;
            x->f[b * rows + id] = next > was ? exp_(sub_(was, now)) : 1.0f;
        }
    }
    BARRIER();
    /* reads the scores again, so that they need no registers until here */
    for (s32 r = 0; r < rows; r++)
        x->p[id * rows + r] =
            exp_(sub_(x->p[id * rows + r], x->m[id / TEXT_PAGE * rows + r]));
    BARRIER();
}

/* Writes l and m of the rows' softmax states. */
DEV void span_put(const struct span *x, s32 rows, GLOBAL float *state, s32 id)
{
    for (s32 k = id; k < 16 * rows; k += 256) {
        s32 r = k % rows, i = k / rows;
        float l = 0;

        if (x->see_lo[r] >= x->see_hi[r])
            continue;
        for (s32 b = 0; b < ATTEND_BLOCKS; b++) {
            if (x->see_lo[r] >= (b + 1) * TEXT_PAGE ||
                x->see_hi[r] <= b * TEXT_PAGE)
                continue;
            l = mul_(l, x->f[b * rows + r]);
            for (s32 j = b * TEXT_PAGE + i; j < (b + 1) * TEXT_PAGE; j += 16)
                l = add_(l, x->p[j * rows + r]);
        }
        state[x->row_state[r] + i] = l;
        if (i == 0)
            state[x->row_state[r] + 16] = x->m[(ATTEND_BLOCKS - 1) * rows + r];
    }
}

/* ---- products ------------------------------------------------------------ */

/* Computes s[r] = fma(w[r], x, s[r]) for r < n. n is a multiple of 2. */
DEV void add_rows(float *s, s32 n, LOCAL const float *w, float x)
{
    for (s32 r = 0; r + 4 <= n; r += 4) {
        float y[4];

        quad_get(y, w + r);
        for (s32 k = 0; k < 4; k++)
            s[r + k] = fma_(y[k], x, s[r + k]);
    }
    if (n % 4) {
        float y[2];

        pair_get(y, w + n / 4 * 4);
        for (s32 k = 0; k < 2; k++)
            s[n / 4 * 4 + k] = fma_(y[k], x, s[n / 4 * 4 + k]);
    }
}

#include "attend_stage.h"

#include "attend_direct.h"

/* ---- merging of softmax states ------------------------------------------- */

/* Returns an element of the state that results from merging two softmax states.
 * f_lower and f_upper are exp(m of that state - the greater m). The upper
 * state's product is added by fma. */
DEV float soft_join(float lower, float f_lower, float upper, float f_upper)
{
    return fma_(upper, f_upper, mul_(lower, f_lower));
}

/* Return how many bits of i are set: all set bits, or only those below the
 * lowest zero bit. After i spans, bits_set(i) partial states wait on a stack,
 * and the next span merges with low_bits_set(i) of them. */
DEV s32 bits_set(s32 i)
{
    s32 n = 0;

    for (; i > 0; i >>= 1)
        n += i & 1;
    return n;
}

DEV s32 low_bits_set(s32 i)
{
    s32 n = 0;

    for (; i & 1; i >>= 1)
        n++;
    return n;
}

#if HAVE_COUNT
/* Returns an element of the state that results from merging the n states of a
 * row, n <= PART_STATES, by their tree: x[i * size] is that of state i. The
 * factors of the pair whose upper state begins at i have index i. */
DEV float merge_states(GLOBAL const float *x, s64 size, s32 n,
                       LOCAL const float *f_lower, LOCAL const float *f_upper)
{
    float v[PART_STATES];

    UNROLL
    for (s32 i = 0; i < PART_STATES; i++)
        v[i] = i < n ? x[i * size] : 0;
    UNROLL
    for (s32 hop = 1; hop < PART_STATES; hop *= 2) {
        UNROLL
        for (s32 i = 0; i + hop < PART_STATES; i += 2 * hop)
            if (i + hop < n)
                v[i] = soft_join(v[i], f_lower[i + hop], v[i + hop],
                                 f_upper[i + hop]);
    }
    return v[0];
}

/* Shared memory of merge_rows() for so many rows, in dwords. */
#define MERGE_WORDS(rows) ((rows) * (4 * PART_STATES + 2) + 2 * 256 + 32)

/* Merges the softmax states of a tile's rows: of tokens t0 to t1 - 1, heads
 * h0 to h0 + n_head - 1 of n_all each, at most `most` rows. Does what
 * attend_merge does, with the same tree; the other arguments are those of its
 * struct. If `by_part`, a row's n_head * e columns are quantized in parts of
 * MERGE_PART.
 *
 * Lanes: one state of a row for the factors, then one column of the result.
 * All states of a column are loaded at once. Shared memory: words[MERGE_WORDS(
 * most)]. */
DEV void merge_rows(GLOBAL const float *part, GLOBAL const s32 *pos,
                    GLOBAL const s32 *ends, s32 window, s32 t0, s32 t1,
                    s32 first, s32 n_all, s32 h0, s32 n_head, s32 n_state,
                    s32 e, GLOBAL const void *sink, s32 has_sink,
                    s32 sink_format, GLOBAL float *out, GLOBAL u32 *q8,
                    s32 quantizes, s32 by_part, s32 most, LOCAL u32 *words)
{
    LOCAL float *m = (LOCAL float *)words, *f_lower = m + most * PART_STATES;
    LOCAL float *f_upper = f_lower + most * PART_STATES;
    LOCAL float *l = f_upper + most * PART_STATES, *sum = l + most * 16;
    LOCAL s32 *n = (LOCAL s32 *)(sum + most), *sums = n + most;
    LOCAL u32 *top = (LOCAL u32 *)(sums + 256), *top8 = top + 256;
    s32 id = LANE(), r = id / PART_STATES, k = id % PART_STATES;
    s32 n_row = (t1 - t0) * n_head, n_column = n_row * e;
    s32 lanes = by_part ? 64 : 8, units = n_column / (4 * lanes);
    s32 each = n_head * e / (4 * lanes); /* units of a token */
    s64 size = TEXT_SOFT + e, row_size = n_state * size;
    GLOBAL const float *state = part;

    BARRIER();
    if (r < n_row) {
        s32 t = t0 + r / n_head;

        state += ((s64)(t - first) * n_all + h0 + r % n_head) * row_size;
        if (k == 0)
            n[r] = last_seen(pos[t], ends[t], window) / TEXT_SPAN -
                   first_seen(pos[t], window) / TEXT_SPAN + 1;
    }
    BARRIER();
    if (r < n_row && k < n[r])
        m[id] = state[k * size + 16];
    BARRIER();
    UNROLL_NONE
    for (s32 hop = 1; hop < PART_STATES; hop *= 2) {
        if (r < n_row && k % (2 * hop) == 0 && k + hop < n[r]) {
            float larger = m[id] > m[id + hop] ? m[id] : m[id + hop];

            f_lower[id + hop] = exp_(sub_(m[id], larger));
            f_upper[id + hop] = exp_(sub_(m[id + hop], larger));
            m[id] = larger;
        }
        BARRIER();
    }
    if (r < n_row)
        l[id] = merge_states(state + k, size, n[r], f_lower + r * PART_STATES,
                             f_upper + r * PART_STATES);
    BARRIER();
    if (id < n_row) {
        float s = sum16(l + 16 * id);

        if (has_sink)
            s = add_(s, exp_(sub_(value_at(sink, sink_format, h0 + id % n_head),
                                  m[id * PART_STATES])));
        sum[id] = s;
    }
    BARRIER();
    UNROLL_NONE
    for (s32 i = id; i < n_column; i += 256) {
        s32 row = i / e, c = i - row * e, t = t0 + row / n_head;
        s64 h = h0 + row % n_head;

        out[((s64)t * n_all + h) * e + c] =
            div_(merge_states(part + ((s64)(t - first) * n_all + h) * row_size +
                                  TEXT_SOFT + c,
                              size, n[row], f_lower + row * PART_STATES,
                              f_upper + row * PART_STATES),
                 sum[row]);
    }
    BARRIER(); /* all lanes see the merged rows */
    UNROLL_NONE
    for (s32 first_unit = 0; quantizes && first_unit < units;
         first_unit += 256 / lanes) {
        s32 unit = first_unit + id / lanes;
        struct q8_part p;
        float y[4];

        p.lane = id % lanes;
        p.n = unit < units ? 4 * lanes : 0;
        p.at = ((s64)(t0 + unit / each) * n_all + h0) * e +
               unit % each * (4 * lanes);
        UNROLL
        for (s32 i = 0; i < 4; i++)
            y[i] = unit < units ? out[p.at + 4 * p.lane + i] : 0;
        quantize_put(y, &p, by_part, id, top, top8, sums, q8);
    }
}

/* Ends a work group of an attention kernel for few tokens, that of tile t0 and
 * of the n_head heads from head0 on of KV head kv. The last one of these merges
 * the states of the tile's rows. `words` is shared memory that nothing else
 * needs. */
#define MERGE_LAST(t0, kv, head0, n_head, most, words)                         \
    if (a.tail.count && is_last(AT(u32, a.tail.count) +                        \
                                    GROUP() % (a.n_tile * a.n_part * a.n_kv),  \
                                1, (u32)a.n_span, words))                      \
    merge_rows(AT(const float, a.part), AT(const s32, a.pos),                  \
               AT(const s32, a.ends), a.window, t0,                            \
               tile_end(AT(const s32, a.seq), a.first, a.tokens, a.end, t0),   \
               a.first, a.n_head, (kv)*a.per_kv + (head0), n_head, a.n_state,  \
               a.e, AT(const void, a.tail.sink), a.tail.sink != 0,             \
               a.tail.sink_format, AT(float, a.tail.out), AT(u32, a.tail.q8),  \
               a.tail.q8 != 0, a.tail.by_part, most, words)
#else
#define MERGE_LAST(t0, kv, head0, n_head, most, words) (void)(words)
#endif

/* ---- the kernels --------------------------------------------------------- */

#define ATTEND_KERNEL_DENSE(name, args, lanes) KERNEL_DENSE(name, args, lanes)
#define ATTEND_KERNEL_THREE(name, args, lanes) KERNEL_THREE(name, args, lanes)

#define ATTEND_NAME                            attend_4
#define ROWS                                   4
#include "attend_tmpl.h"

#define ATTEND_NAME attend_8
#define ROWS        8
#include "attend_tmpl.h"

#define ATTEND_NAME attend_16
#define ROWS        16
#include "attend_tmpl.h"

#define ATTEND_NAME attend_latent_4
#define ROWS        4
#define COLUMN_ROWS 4
#define LATENT      1
#define CODES       0
#include "attend_direct_tmpl.h"

#define ATTEND_NAME attend_latent_16
#define ROWS        16
#define COLUMN_ROWS 8
#define LATENT      1
#define CODES       0
#include "attend_direct_tmpl.h"

#define ATTEND_NAME attend_codes_4
#define ROWS        4
#define COLUMN_ROWS 4
#define LATENT      0
#define CODES       1
#include "attend_direct_tmpl.h"

#define ATTEND_NAME attend_codes_16
#define ROWS        16
#define COLUMN_ROWS 8
#define LATENT      0
#define CODES       1
#include "attend_direct_tmpl.h"

#define ATTEND_NAME attend_codes_latent
#define ROWS        16
#define COLUMN_ROWS 8
#define LATENT      1
#define CODES       1
#include "attend_direct_tmpl.h"

#include "attend_tile.h"

/* ---- attend_merge -------------------------------------------------------- */

/* part [n_row, n_state, TEXT_SOFT + e] to out [n_row, e], or to states of the
 * next level. Merges up to MERGE_STATES adjacent states of a row, which are a
 * subtree of the row's tree of spans. If there is no next level, these are all
 * states of the row, and the final result acc / (l + exp(sink - m)) is written.
 * A work group processes one row. If the result is quantized in parts, it
 * processes the rows of a token whose columns are in its part.
 *
 * Lanes have a column and every so many states. Shared memory has space for
 * `most` states of each row. Order of sums: a tree over adjacent states,
 * soft_join() for each pair. */
KERNEL(attend_merge, struct attend_merge_args, 256)
{
    LOCAL_ARRAY(float, x, MERGE_STATES *MERGE_COLUMNS);
    LOCAL_ARRAY(float, l, MERGE_STATES * 16);
    LOCAL_ARRAY(float, m, MERGE_STATES);
    LOCAL_ARRAY(float, f_lower, MERGE_STATES);
    LOCAL_ARRAY(float, f_upper, MERGE_STATES);
    LOCAL_ARRAY(u32, top, 256);
    LOCAL_ARRAY(u32, top8, 32);
    LOCAL_ARRAY(s32, sums, 256);
    s32 id = LANE(), g = GROUP(), by_part = a.n_part > 0;
    s32 columns = by_part ? MERGE_PART : MERGE_COLUMNS;
    s32 most = by_part ? PART_STATES : MERGE_STATES;
    s32 c0 = by_part ? 0 : g % a.n_column * MERGE_COLUMNS;
    s32 block = by_part ? 0 : g / a.n_column % a.n_block;
    s32 row = by_part ? g / a.n_part * a.n_head : g / a.n_column / a.n_block;
    s32 wide = within(a.e - c0, 0, MERGE_COLUMNS), n_row = 1;
    s32 t = a.first + row / a.n_head, pos = AT(const s32, a.pos)[t];
    s32 last = last_seen(pos, AT(const s32, a.ends)[t], a.window);
    s32 span = last / TEXT_SPAN - first_seen(pos, a.window) / TEXT_SPAN;
    s32 n = within(span / a.spans + 1 - block * MERGE_STATES, 0, MERGE_STATES);
    /* the lane's column, first state and distance between its states */
    s32 c = id % columns, i0 = id / columns, step = 256 / columns;
    /* row and state whose m the lane computes */
    s32 r = id / most, k = id % most;
    s32 own; /* row to which column c belongs */
    s64 size = TEXT_SOFT + a.e, row_size = a.n_state * size, row_at;
    GLOBAL const float *from, *column;

    if (n == 0)
        return;
    if (by_part) {
        s64 at = 0;

        quantize_part(AT(const struct text_span, a.span), g % a.n_part, &at,
                      &wide);
        row += (s32)at / a.e;
        c0 = (s32)at % a.e;
        n_row = (c0 + wide - 1) / a.e + 1;
    }
    own = (c0 + c) / a.e;
    from = AT(const float, a.part) + row * row_size +
           (s64)block * MERGE_STATES * size;
    column = from + own * row_size + TEXT_SOFT + c0 + c - own * a.e;
    for (s32 i = i0; i < n && c < wide; i += step)
        x[i * columns + c] = column[i * size];
    for (s32 h = 0; h < n_row; h++)
        for (s32 i = id; i < n * 16; i += 256)
            l[h * most * 16 + i] = from[h * row_size + i / 16 * size + i % 16];
    if (r < n_row && k < n)
        m[id] = from[r * row_size + k * size + 16];
    BARRIER();
    for (s32 hop = 1; hop < n; hop *= 2) {
        s32 pairs = (n - hop + 2 * hop - 1) / (2 * hop);

        if (r < n_row && k < pairs) {
            s32 i = r * most + k * 2 * hop;
            float larger = m[i] > m[i + hop] ? m[i] : m[i + hop];

            f_lower[id] = exp_(sub_(m[i], larger));
            f_upper[id] = exp_(sub_(m[i + hop], larger));
            m[i] = larger;
        }
        BARRIER();
        for (s32 i = i0; i < pairs && c < wide; i += step) {
            s32 at = i * 2 * hop * columns + c, f = own * most + i;

            x[at] =
                soft_join(x[at], f_lower[f], x[at + hop * columns], f_upper[f]);
        }
        for (s32 h = 0; h < n_row; h++)
            for (s32 i = id; i < pairs * 16; i += 256) {
                s32 f = h * most + i / 16;
                s32 at = (h * most + i / 16 * 2 * hop) * 16 + i % 16;

                l[at] =
                    soft_join(l[at], f_lower[f], l[at + hop * 16], f_upper[f]);
            }
        BARRIER();
    }
    if (a.next) {
        GLOBAL float *next =
            AT(float, a.next) + ((s64)row * a.n_block + block) * size;

        if (c0 == 0 && id < 16)
            next[id] = l[id];
        if (c0 == 0 && id == 16)
            next[16] = m[0];
        if (id < wide)
            next[TEXT_SOFT + c0 + id] = x[id];
        return;
    }
    row_at = ((s64)a.first * a.n_head + row) * a.e + c0;
    if (id < wide) {
        float sum = sum16(l + own * most * 16);

        if (a.sink)
            sum = add_(sum,
                       exp_(sub_(value_at(AT(const void, a.sink), a.sink_format,
                                          (row + own) % a.n_head),
                                 m[own * most])));
        x[id] = div_(x[id], sum);
        AT(float, a.out)[row_at + id] = x[id];
    }
    if (a.q8) {
        struct q8_part p;
        float y[4];

        p.at = row_at;
        p.lane = id;
        p.n = wide;
        BARRIER();
        UNROLL
        for (s32 i = 0; i < 4; i++)
            y[i] = 4 * id < wide ? x[4 * id + i] : 0;
        quantize_put(y, &p, by_part, id, top, top8, sums, AT(u32, a.q8));
    }
}
