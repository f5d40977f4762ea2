/* Kernels of routers, which choose the experts of a token. A work group has one
 * row, that is, one token. Rules and orders of operations are those of
 * device/cpu/cpu_rows_template.h. */

DEV float router_score(float x, s32 gating, float top, float sum)
{
    if (gating == GATING_SOFTMAX)
        return div_(exp_(sub_(x, top)), sum);
    if (gating == GATING_SQRT_SOFTPLUS)
        return sqrt_(softplus_(x));
    return gating == GATING_SIGMOID ? sigmoid_(x) : x;
}

/* Returns the score of a group of experts: the sum of its two greatest scores,
 * or with softmax gating its greatest one. */
DEV float router_group(GLOBAL const float *score, s64 size, s32 gating)
{
    float first = float_from_bits(0xff800000u), second = first;

    for (s64 i = 0; i < size; i++) {
        if (score[i] > first) {
            second = first;
            first = score[i];
        } else if (score[i] > second) {
            second = score[i];
        }
    }
    return size > 1 && gating != GATING_SOFTMAX ? add_(first, second) : first;
}

/* Returns how many of the scores x[n] are chosen before x[i]: greater ones, and
 * equal ones with a lower index. */
DEV s32 router_before(GLOBAL const float *x, s32 n, s32 i)
{
    s32 before = 0;

    for (s32 k = 0; k < n; k++)
        before += x[k] > x[i] || (x[k] == x[i] && k < i);
    return before;
}

/* Computes the weights w[n_used] of a row's chosen experts id[n_used] from the
 * logits x. With softmax gating, `top` is the greatest logit and `sum` the sum
 * of the exponentials. part[lanes] is scratch in shared memory. */
DEV void router_weigh(GLOBAL const float *x, GLOBAL const s32 *id,
                      GLOBAL float *w, s64 n_used, s32 gating, float top,
                      float sum, s32 normalise, float scale, s32 lane,
                      s32 lanes, LOCAL float *part)
{
    for (s64 k = lane; k < n_used; k += lanes)
        w[k] = router_score(x[id[k]], gating, top, sum);
    BARRIER();
    if (gating == GATING_SELECTED) {
        top = row_top(w, n_used, lane, lanes, part);
        sum = row_sum(w, n_used, top, w, lane, lanes, part);
        for (s64 k = lane; k < n_used; k += lanes)
            w[k] = div_(w[k], sum);
        BARRIER();
    }
    sum = 0;
    for (s64 k = 0; normalise && k < n_used; k++)
        sum = add_(sum, w[k]);
    sum = sum > 0x1p-14f ? sum : 0x1p-14f;
    BARRIER();
    for (s64 k = lane; k < n_used; k += lanes) {
        float v = normalise ? div_(w[k], sum) : w[k];

        w[k] = mul_(v, scale);
    }
}

enum { ROUTER_TILE = 1024 };

/* Chooses n_used of the e experts of a row x[e] and stores them in out[n_used].
 * A score's place in the result is the number of scores that are chosen before
 * it, so each lane places its experts without the other lanes. Equal scores
 * are placed by ascending expert. If `weighs`, also computes the weights
 * w[n_used] of the chosen experts. The other arguments are those of struct
 * router_topk_args. score[2 e], part[256] and tile[ROUTER_TILE] are scratch. */
DEV void choose_experts(GLOBAL const float *x, GLOBAL const void *bias,
                        s32 has_bias, s32 format, s64 e, s64 n_used, s32 gating,
                        s32 n_group, s32 n_group_used, s32 weighs,
                        s32 normalise, float weight, GLOBAL s32 *out,
                        GLOBAL float *w, GLOBAL float *score, LOCAL float *part,
                        LOCAL float *tile)
{
    s32 lane = LANE(), n_valid = 0;
    GLOBAL float *group = score + e;
    float top = 0, sum = 0;

    if (gating == GATING_SOFTMAX) {
        top = row_top(x, e, lane, 256, part);
        sum = row_sum(x, e, top, 0, lane, 256, part);
    }
    for (s64 i = lane; i < e; i += 256) {
        float s = router_score(x[i], gating, top, sum);

        if (has_bias)
            s = add_(s, value_at(bias, format, i));
        score[i] = s;
    }
    BARRIER();
    if (n_group > 0) {
        s64 size = e / n_group;

        for (s32 g = lane; g < n_group; g += 256)
            group[g] = router_group(score + g * size, size, gating);
        BARRIER();
        for (s32 g = lane; g < n_group; g += 256) {
            s32 kept = group[g] != group[g] ||
                       router_before(group, n_group, g) < n_group_used;

            for (s64 i = g * size; !kept && i < (g + 1) * size; i++)
                score[i] = float_from_bits(0xff800000u);
        }
        BARRIER();
    }
    for (s64 first = 0; first < e; first += 256) {
        s64 i = first + lane;
        float s = i < e ? score[i] : float_from_bits(0x7fc00000u);
        s64 before = 0;

        for (s64 at = 0; at < e; at += ROUTER_TILE) {
            s32 n = e - at < ROUTER_TILE ? (s32)(e - at) : ROUTER_TILE;

            if (first == 0 || e > ROUTER_TILE) {
                BARRIER();
                for (s32 k = lane; k < n; k += 256)
                    tile[k] = score[at + k];
                BARRIER();
            }
            for (s32 k = 0; k < n; k++) {
                before += tile[k] > s || (tile[k] == s && at + k < i);
                n_valid += first == 0 && tile[k] == tile[k];
            }
        }
        if (s == s && before < n_used)
            out[before] = (s32)i;
    }
    for (s64 k = n_valid + lane; k < n_used; k += 256)
        out[k] = 0;
    BARRIER(); /* all lanes see the row's chosen experts */
    /* If weights are not wanted, n_used is 0. The function is called all the
     * same, because OpenCL on CPUs fails if a kernel may end before a
     * barrier. */
    router_weigh(x, out, w, weighs ? n_used : 0, gating, top, sum, normalise,
                 weight, lane, 256, part);
}

/* Chooses the experts of the rows x [n_row, e], one work group a row. Lanes:
 * every 256th expert. Shared memory: ROUTER_TILE scores, and partial results.
 * Order of sums: that of softmax; weights by ascending place. */
KERNEL(router_topk, struct router_topk_args, 256)
{
    LOCAL_ARRAY(float, part, 256);
    LOCAL_ARRAY(float, tile, ROUTER_TILE);
    GLOBAL float *score = AT(float, a.scratch) + (s64)GROUP() * 2 * a.e;

    choose_experts(
        AT(const float, a.x) + (s64)GROUP() * a.e, AT(const void, a.bias),
        a.bias != 0, a.format, a.e, a.n_used, a.gating, a.n_group,
        a.n_group_used, a.weights != 0, a.normalise, a.weight,
        AT(s32, a.out) + (s64)GROUP() * a.n_used,
        a.weights ? AT(float, a.weights) + (s64)GROUP() * a.n_used : score,
        score, part, tile);
}

/* Computes the weights of a row's chosen experts, id [n_row, n_used], one work
 * group a row. Lanes: every 64th expert. Shared memory: partial results. Order
 * of sums: that of softmax; weights by ascending place. */
KERNEL(router_weights, struct router_weights_args, 64)
{
    LOCAL_ARRAY(float, part, 64);
    GLOBAL const float *x = AT(const float, a.x) + (s64)GROUP() * a.e;
    GLOBAL const s32 *id = AT(const s32, a.id) + (s64)GROUP() * a.n_used;
    GLOBAL float *w = AT(float, a.out) + (s64)GROUP() * a.n_used;
    float top = 0, sum = 0;

    if (a.gating == GATING_SOFTMAX) {
        top = row_top(x, a.e, LANE(), 64, part);
        sum = row_sum(x, a.e, top, 0, LANE(), 64, part);
    }
    router_weigh(x, id, w, a.n_used, a.gating, top, sum, a.normalise, a.scale,
                 LANE(), 64, part);
}
