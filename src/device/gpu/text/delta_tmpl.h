/* Template of a kernel of the gated delta net, for keys of up to 4 * HELD
 * values. NAME is the kernel's name. With CHANNELS, each row of the state has a
 * decay of its own. A work group has DELTA_COLUMNS columns of
 * the state M [d_k, d_v] of one head, and one run of tokens after the other.
 * Four lanes compute one column of M. A lane has every fourth element of the
 * column, in registers, because the sum over a column is four chains. Shared
 * memory has keys and queries of three tokens, so that one barrier per token
 * suffices: a slow lane may still read a token's data while a fast one already
 * stores those of the token after the next. The data of a token are loaded
 * while the token before it is computed. The macros are undefined at the
 * end. */

#ifndef CHANNELS
#define CHANNELS 0
#endif

/* Words of a token in shared memory: its key and its query. With CHANNELS its
 * key, its decays, and the products of the decays with key and query. */
#define DELTA_WORDS ((CHANNELS ? 16 : 8) * HELD)

KERNEL_OF(NAME, struct delta_net_args, 128)
{
    LOCAL_ARRAY(float, keys, 3 * DELTA_WORDS);
    LOCAL_ARRAY(float, chain, 2 * 2 * 128);
    float m[HELD], ahead[HELD / 16], decay[CHANNELS ? HELD / 16 : 1];
    s32 blocks = (s32)((a.d_v + DELTA_COLUMNS - 1) / DELTA_COLUMNS), turn = 0;
    s32 lane = LANE(), j = lane / DELTA_COLUMNS, col = lane % DELTA_COLUMNS;
    s32 n = ((s32)a.d_k - j + 3) / 4; /* number of elements of m[] in use */
    s64 head = GROUP() / blocks % a.n_head_v;
    s64 e = (s64)(GROUP() % blocks) * DELTA_COLUMNS + col;
    s64 key = AT(const s32, a.head_map)[head];
    GLOBAL const s32 *run = AT(const s32, a.run);
    GLOBAL const float *kn = AT(const float, a.kn) + key * a.d_k;
    GLOBAL const float *qn = AT(const float, a.qn) + key * a.d_k;
    float scale = div_(1.0f, sqrt_(int_float((s32)a.d_k)));
    s32 n_run = run[0];

    for (s32 r = (s32)(GROUP() / blocks / a.n_head_v); r < n_run;
         r += a.n_split) {
        GLOBAL const s32 *list = run + RUN_WORDS * (r + 1);
        s32 first = list[0], end = list[RUN_END];
        s64 from = list[RUN_READ], to = list[RUN_WRITTEN];
        GLOBAL const float *in =
            AT(const float, a.state) +
            ((from * a.n_head_v + head) * a.d_k + j) * a.d_v + e;
        GLOBAL float *state = AT(float, a.state) +
                              ((to * a.n_head_v + head) * a.d_k + j) * a.d_v +
                              e;
        float g_next = 0, beta_next = 0, kq_next = 0, v_next = 0;

        UNROLL
        for (s32 i = 0; i < HELD; i++)
            m[i] = from >= 0 && e < a.d_v && i < n ? in[4 * i * a.d_v] : 0.0f;
        /* The first iteration, with token first - 1, only loads the data of
         * token `first`. */
        for (s32 t = first - 1; t < end; t++) {
            LOCAL float *now = keys + (turn + 2) % 3 * DELTA_WORDS;
            LOCAL float *by = CHANNELS ? now + 8 * HELD : now;
            LOCAL float *next = keys + turn % 3 * DELTA_WORDS;
            LOCAL float *p = chain + turn % 2 * 256;
            s64 at = (s64)t * a.n_head_v + head;
            float g = g_next, beta = beta_next, kq = kq_next, v = v_next;
            float ck = 0, cq = 0, gamma, u, y;

            UNROLL
            for (s32 i = 0; i < HELD / 16; i++) {
                s32 d = lane + 128 * i;
                GLOBAL const float *x = d < 4 * HELD ? kn : qn;

                d %= 4 * HELD;
                ahead[i] = t + 1 < end && d < a.d_k
                               ? x[(t + 1) * a.n_head_k * a.d_k + d]
                               : 0.0f;
                if (CHANNELS)
                    decay[i] = t + 1 < end && d < a.d_k
                                   ? AT(const float,
                                        a.g)[(at + a.n_head_v) * a.d_k + d]
                                   : 0.0f;
            }
            if (t + 1 < end) {
                if (!CHANNELS)
                    g_next = AT(const float, a.g)[at + a.n_head_v];
                beta_next = AT(const float, a.beta)[at + a.n_head_v];
                kq_next = AT(const float, a.kq)[(t + 1) * a.n_head_k + key];
                if (e < a.d_v)
                    v_next =
                        AT(const float, a.v)[(at + a.n_head_v) * a.d_v + e];
            }
            UNROLL
            for (s32 i = 0; i < HELD; i++) {
                if (t >= first && i < n) {
                    ck = fma_(m[i], by[4 * i + j], ck);
                    cq = fma_(m[i], by[4 * HELD + 4 * i + j], cq);
                }
            }
            p[lane] = ck;
            p[128 + lane] = cq;
            UNROLL
            for (s32 i = 0; i < HELD / 16; i++) {
                s32 d = lane + 128 * i;

                if (CHANNELS) {
                    float decays = exp_(decay[i]);

                    next[8 * HELD + d] = mul_(decays, ahead[i]);
                    next[d] = d < 4 * HELD ? ahead[i] : decays;
                } else {
                    next[d] = ahead[i];
                }
            }
            BARRIER();
            turn++;
            if (t < first)
                continue;
            ck =
                add_(add_(p[col], p[col + 32]), add_(p[col + 64], p[col + 96]));
            cq = add_(add_(p[col + 128], p[col + 160]),
                      add_(p[col + 192], p[col + 224]));
            gamma = CHANNELS ? 1.0f : exp_(g);
            y = delta_out(ck, cq, kq, v, gamma, beta, scale, &u);
            if (j == 0 && e < a.d_v)
                AT(float, a.out)[at * a.d_v + e] = y;
            UNROLL
            for (s32 i = 0; i < HELD; i++)
                m[i] = fma_(
                    now[4 * i + j], u,
                    mul_(CHANNELS ? now[4 * HELD + 4 * i + j] : gamma, m[i]));
        }
        UNROLL
        for (s32 i = 0; i < HELD; i++) {
            if (e < a.d_v && i < n)
                state[4 * i * a.d_v] = m[i];
        }
    }
}

#undef HELD
#undef NAME
#undef CHANNELS
#undef DELTA_WORDS
