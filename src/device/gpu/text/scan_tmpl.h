/* Template of a kernel of the scan of a state space model, for states of up to
 * 4 * HELD rows. NAME is the kernel's name. A work group has SCAN_COLUMNS
 * columns of the state M [d_state, d_head] of one head, and one run of tokens
 * after the other. Four lanes compute one column of M. A lane has every fourth
 * element of the column, in registers, because the sum over a column is four
 * chains. Shared memory has b and c of three tokens, so that one barrier per
 * token suffices: a slow lane may still read a token's data while a fast one
 * already stores those of the token after the next. The data of a token are
 * loaded while the token before it is computed. Both macros are undefined at
 * the end. */

KERNEL_OF(NAME, struct ssm_scan_args, 128)
{
    LOCAL_ARRAY(float, keys, 3 * 2 * 4 * HELD);
    LOCAL_ARRAY(float, chain, 2 * 128);
    float m[HELD], ahead[HELD / 16];
    s32 blocks = (s32)((a.d_head + SCAN_COLUMNS - 1) / SCAN_COLUMNS), turn = 0;
    s32 lane = LANE(), j = lane / SCAN_COLUMNS, col = lane % SCAN_COLUMNS;
    s32 n = ((s32)a.d_state - j + 3) / 4; /* number of elements of m[] in use */
    s64 head = GROUP() / blocks % a.n_head;
    s64 e = (s64)(GROUP() % blocks) * SCAN_COLUMNS + col;
    s64 group = AT(const s32, a.head_map)[head];
    GLOBAL const s32 *seq = AT(const s32, a.seq);
    GLOBAL float *out = AT(float, a.out) + e;
    GLOBAL const float *b = AT(const float, a.b) + group * a.d_state;
    GLOBAL const float *c = AT(const float, a.c) + group * a.d_state;
    s32 mine = (s32)(GROUP() / blocks / a.n_head), r = 0;

    for (s32 first = 0, end; first < a.n_tok; first = end, r++) {
        GLOBAL const s32 *words =
            AT(const s32, a.pages) + seq[first] * a.page_stride;
        s64 from = state_read(words, AT(const s32, a.pos)[first]);
        s64 to = words[STATE_WRITTEN_WORD];
        GLOBAL const float *in =
            AT(const float, a.state) +
            ((from * a.n_head + head) * a.d_state + j) * a.d_head + e;
        GLOBAL float *state =
            AT(float, a.state) +
            ((to * a.n_head + head) * a.d_state + j) * a.d_head + e;
        float g_next = 0, x_next = 0;

        end = run_end(seq, first, a.n_tok);
        if (r % a.n_split != mine)
            continue;
        UNROLL
        for (s32 i = 0; i < HELD; i++)
            m[i] = from >= 0 && e < a.d_head && i < n ? in[4 * i * a.d_head]
                                                      : 0.0f;
        /* The first iteration, with token first - 1, only loads the data of
         * token `first`. */
        for (s32 t = first - 1; t < end; t++) {
            LOCAL float *now = keys + (turn + 2) % 3 * 8 * HELD;
            LOCAL float *next = keys + turn % 3 * 8 * HELD;
            LOCAL float *p = chain + turn % 2 * 128;
            s64 at = (s64)t * a.n_head + head;
            float g = g_next, x = x_next, gamma, y = 0;

            UNROLL
            for (s32 i = 0; i < HELD / 16; i++) {
                s32 d = lane + 128 * i;
                GLOBAL const float *v = d < 4 * HELD ? b : c;

                d %= 4 * HELD;
                ahead[i] = t + 1 < end && d < a.d_state
                               ? v[(t + 1) * a.n_group * a.d_state + d]
                               : 0.0f;
            }
            if (t + 1 < end) {
                g_next = AT(const float, a.g)[at + a.n_head];
                if (e < a.d_head)
                    x_next =
                        AT(const float, a.x)[(at + a.n_head) * a.d_head + e];
            }
            gamma = exp_(g);
            UNROLL
            for (s32 i = 0; i < HELD; i++) {
                if (t >= first && i < n) {
                    m[i] = fma_(now[4 * i + j], x, mul_(gamma, m[i]));
                    y = fma_(m[i], now[4 * HELD + 4 * i + j], y);
                }
            }
            p[lane] = y;
            UNROLL
            for (s32 i = 0; i < HELD / 16; i++)
                next[lane + 128 * i] = ahead[i];
            BARRIER();
            turn++;
            if (t >= first && j == 0 && e < a.d_head)
                out[at * a.d_head] = add_(add_(p[col], p[col + 32]),
                                          add_(p[col + 64], p[col + 96]));
        }
        UNROLL
        for (s32 i = 0; i < HELD; i++) {
            if (e < a.d_head && i < n)
                state[4 * i * a.d_head] = m[i];
        }
    }
}

#undef HELD
#undef NAME
