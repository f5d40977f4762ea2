/* Kernels of recurrent layers: the short convolution, the gated delta net and
 * the scan of a state space model. Orders of operations are those of
 * device/cpu/cpu_short_conv_template.h, device/cpu/cpu_delta_net_template.h and
 * device/cpu/cpu_ssm_scan_template.h. A *run* is the tokens of one sequence in
 * a micro-batch; they are adjacent. */

/* Returns the state slot that a run reads if its first token is at position
 * `pos`, or -1 for a state of zeros. `words` is the sequence's row of the page
 * table, which names its state slots. */
DEV s64 state_read(GLOBAL const s32 *words, s32 pos)
{
    if (pos <= 0)
        return -1;
    return words[pos == words[STATE_AT_WORD] ? STATE_READ_WORD
                                             : STATE_WRITTEN_WORD];
}

/* Returns how many tokens of the same run precede token t, at most `most`. */
DEV s32 run_before(GLOBAL const s32 *seq, s32 t, s32 most)
{
    s32 n = 0;

    while (n < most && n < t && seq[t - n - 1] == seq[t])
        n++;
    return n;
}

/* Short convolution over time of x [n_tok, n_channel], with n_tap taps for each
 * channel. A lane computes one channel of one token; inputs before its run come
 * from the state. No shared memory. Order of sums: one chain of fma, oldest tap
 * first. */
KERNEL(short_conv, struct short_conv_args, 256)
{
    s32 blocks = (s32)((a.n_channel + 255) / 256);
    s32 t = GROUP() / blocks, held = a.n_tap - 1;
    s64 c = (s64)(GROUP() % blocks) * 256 + LANE();
    s32 before = run_before(AT(const s32, a.seq), t, held);

    if (c < a.n_channel) {
        GLOBAL const s32 *words =
            AT(const s32, a.pages) + AT(const s32, a.seq)[t] * a.page_stride;
        GLOBAL const float *w = AT(const float, a.w) + c * a.n_tap;
        GLOBAL const float *x =
            AT(const float, a.x) + (s64)(t - before) * a.n_channel + c;
        s64 from = before < held
                       ? state_read(words, AT(const s32, a.pos)[t - before])
                       : -1;
        GLOBAL const float *old =
            AT(const float, a.state) + (from * a.n_channel + c) * held + before;
        float y = 0;

        for (s32 j = 0; j < held - before; j++)
            y = fma_(w[j], from >= 0 ? old[j] : 0.0f, y);
        for (s32 j = 0; j <= before; j++)
            y = fma_(w[held - before + j], x[j * a.n_channel], y);
        AT(float, a.out)[t * a.n_channel + c] = a.silu ? silu_(y) : y;
    }
}

/* Writes the state after each run, the last n_tap - 1 inputs of a channel. A
 * lane writes one channel if token t is the last of its run. It writes the
 * oldest input first. The state may be updated in place, so a lane must read
 * each old input before it overwrites it. */
KERNEL(short_conv_state, struct short_conv_args, 256)
{
    s32 blocks = (s32)((a.n_channel + 255) / 256);
    s32 t = GROUP() / blocks, held = a.n_tap - 1;
    s64 c = (s64)(GROUP() % blocks) * 256 + LANE();
    GLOBAL const s32 *seq = AT(const s32, a.seq);

    if (c < a.n_channel && (t + 1 == a.n_tok || seq[t + 1] != seq[t])) {
        GLOBAL const s32 *words =
            AT(const s32, a.pages) + seq[t] * a.page_stride;
        s32 n = run_before(seq, t, held) + 1;
        GLOBAL const float *x =
            AT(const float, a.x) + (s64)(t + 1 - held) * a.n_channel + c;
        s64 from =
            n < held ? state_read(words, AT(const s32, a.pos)[t + 1 - n]) : -1;
        GLOBAL const float *old =
            AT(const float, a.state) + (from * a.n_channel + c) * held;
        GLOBAL float *out =
            AT(float, a.state) +
            (words[STATE_WRITTEN_WORD] * a.n_channel + c) * held;

        for (s32 i = 0; i < held; i++) {
            if (n - held + i >= 0)
                out[i] = x[i * a.n_channel];
            else
                out[i] = from >= 0 ? old[i + n] : 0.0f;
        }
    }
}

/* ---- the gated delta net ------------------------------------------------- */

/* Words of an entry of the list of runs. Word 0 of the first entry is the
 * number of runs. Each further entry describes a run: its first token (word 0),
 * the end of its tokens, the state slot that it reads (-1: none), and the state
 * slot that it writes. */
enum { RUN_END = 1, RUN_READ, RUN_WRITTEN, RUN_WORDS };

/* Prepares the delta net. A work group has one token and one key head of d_k
 * values: half of its lanes normalize the key, the other half the query. The
 * last work group writes the list of runs instead. Shared memory: partial sums.
 * Order of sums: norms as in rms_norm; the product of key and query, four
 * chains by index mod 4. */
KERNEL(delta_norm, struct delta_net_args, 128)
{
    LOCAL_ARRAY(float, part, 128);
    LOCAL_ARRAY(s32, begins, 128);
    s32 lane = LANE(), side = lane / 64, id = lane % 64;
    s64 at = GROUP() * a.d_k;

    if (GROUP() == N_GROUP() - 1) {
        GLOBAL const s32 *seq = AT(const s32, a.seq);
        GLOBAL s32 *run = AT(s32, a.run);
        s32 n = 0;

        for (s32 first = 0; first < a.n_tok; first += 128) {
            s32 t = first + lane, k = n;

            begins[lane] = t < a.n_tok && (t == 0 || seq[t] != seq[t - 1]);
            BARRIER();
            for (s32 i = 0; i < 128; i++) {
                k += i < lane ? begins[i] : 0;
                n += begins[i];
            }
            if (begins[lane]) {
                GLOBAL const s32 *words =
                    AT(const s32, a.pages) + seq[t] * a.page_stride;

                run[RUN_WORDS * k + RUN_END] = t;
                run[RUN_WORDS * (k + 1)] = t;
                run[RUN_WORDS * (k + 1) + RUN_READ] =
                    (s32)state_read(words, AT(const s32, a.pos)[t]);
                run[RUN_WORDS * (k + 1) + RUN_WRITTEN] =
                    words[STATE_WRITTEN_WORD];
            }
            BARRIER();
        }
        if (lane == 0) {
            run[0] = n;
            run[RUN_WORDS * n + RUN_END] = a.n_tok;
        }
    } else {
        GLOBAL const float *x =
            (side ? AT(const float, a.q) : AT(const float, a.k)) + at;
        GLOBAL float *out = (side ? AT(float, a.qn) : AT(float, a.kn)) + at;
        GLOBAL const float *kn = AT(const float, a.kn) + at;
        GLOBAL const float *qn = AT(const float, a.qn) + at;
        float s = 0, norm;

        for (s64 d = id; d < a.d_k; d += 64)
            s = fma_(x[d], x[d], s);
        part[lane] = s;
        BARRIER();
        if (id < 16)
            part[lane] = add_(add_(part[lane], part[lane + 16]),
                              add_(part[lane + 32], part[lane + 48]));
        BARRIER();
        norm = sum16(part + 64 * side);
        norm = sqrt_(a.channels ? add_(norm, a.eps) : norm);
        s = div_(1.0f, a.channels || norm > a.eps ? norm : a.eps);
        for (s64 d = id; d < a.d_k; d += 64)
            out[d] = mul_(x[d], s);
        BARRIER();
        s = 0;
        for (s64 d = lane; lane < 4 && d < a.d_k; d += 4)
            s = fma_(kn[d], qn[d], s);
        if (lane < 4)
            part[lane] = s;
        BARRIER();
        if (lane == 0)
            AT(float, a.kq)
        [GROUP()] = add_(add_(part[0], part[1]), add_(part[2], part[3]));
    }
}

/* Returns a token's result for one column of a value head, and sets *u to the
 * correction of that column of the state. pk and pq are the products of the
 * column before the token with key and query, kq that of key and query, gamma
 * is the decay. */
DEV float delta_out(float pk, float pq, float kq, float v, float gamma,
                    float beta, float scale, float *u)
{
    *u = mul_(beta, sub_(v, mul_(gamma, pk)));
    return mul_(fma_(kq, *u, mul_(gamma, pq)), scale);
}

/* columns of the state of a work group; each has four lanes */
enum { DELTA_COLUMNS = 32 };

/* Begins a kernel whose name is the value of a macro. */
#ifndef KERNEL_OF
#define KERNEL_OF(name, args, lanes) KERNEL(name, args, lanes)
#endif

#define HELD 16
#define NAME delta_net_64
#include "delta_tmpl.h"

#define HELD 32
#define NAME delta_net_128
#include "delta_tmpl.h"

#define HELD 64
#define NAME delta_net_256
#include "delta_tmpl.h"

#define HELD     32
#define NAME     delta_net_channels_128
#define CHANNELS 1
#include "delta_tmpl.h"

/* The gated delta net for keys of any size d_k and both forms of decay. The
 * state [d_k, d_v] of a head stays in device memory.
 *
 * Lanes: four have a column of the state, each every fourth element. Shared
 * memory: the lanes' chains. Order of sums: four chains of fma by index mod 4,
 * added in pairs. */
KERNEL(delta_net_wide, struct delta_net_args, 128)
{
    LOCAL_ARRAY(float, chain, 2 * 2 * 128);
    s32 blocks = (s32)((a.d_v + DELTA_COLUMNS - 1) / DELTA_COLUMNS), turn = 0;
    s32 lane = LANE(), j = lane / DELTA_COLUMNS, col = lane % DELTA_COLUMNS;
    s64 head = GROUP() / blocks % a.n_head_v;
    s64 e = (s64)(GROUP() % blocks) * DELTA_COLUMNS + col;
    s64 key = AT(const s32, a.head_map)[head];
    GLOBAL const s32 *run = AT(const s32, a.run);
    float scale = div_(1.0f, sqrt_(int_float((s32)a.d_k)));

    for (s32 r = (s32)(GROUP() / blocks / a.n_head_v); r < run[0];
         r += a.n_split) {
        GLOBAL const s32 *list = run + RUN_WORDS * (r + 1);
        s32 first = list[0], end = list[RUN_END];
        s64 from = list[RUN_READ], to = list[RUN_WRITTEN];
        GLOBAL const float *in = AT(const float, a.state) +
                                 (from * a.n_head_v + head) * a.d_k * a.d_v + e;
        GLOBAL float *m =
            AT(float, a.state) + (to * a.n_head_v + head) * a.d_k * a.d_v + e;

        for (s64 d = j; e < a.d_v && from != to && d < a.d_k; d += 4)
            m[d * a.d_v] = from >= 0 ? in[d * a.d_v] : 0.0f;
        for (s32 t = first; t < end; t++, turn++) {
            GLOBAL const float *kn =
                AT(const float, a.kn) + (t * a.n_head_k + key) * a.d_k;
            GLOBAL const float *qn =
                AT(const float, a.qn) + (t * a.n_head_k + key) * a.d_k;
            s64 at = t * a.n_head_v + head;
            GLOBAL const float *g =
                AT(const float, a.g) + (a.channels ? at * a.d_k : at);
            float gamma = a.channels ? 1.0f : exp_(g[0]), by, u, y;
            float ck = 0, cq = 0, v = 0;
            LOCAL float *p = chain + turn % 2 * 256;

            for (s64 d = j; e < a.d_v && d < a.d_k; d += 4) {
                by = a.channels ? exp_(g[d]) : 1.0f;
                ck = fma_(m[d * a.d_v], mul_(by, kn[d]), ck);
                cq = fma_(m[d * a.d_v], mul_(by, qn[d]), cq);
            }
            p[lane] = ck;
            p[128 + lane] = cq;
            if (e < a.d_v)
                v = AT(const float, a.v)[at * a.d_v + e];
            BARRIER();
            ck =
                add_(add_(p[col], p[col + 32]), add_(p[col + 64], p[col + 96]));
            cq = add_(add_(p[col + 128], p[col + 160]),
                      add_(p[col + 192], p[col + 224]));
            y = delta_out(ck, cq, AT(const float, a.kq)[t * a.n_head_k + key],
                          v, gamma, AT(const float, a.beta)[at], scale, &u);
            if (j == 0 && e < a.d_v)
                AT(float, a.out)[at * a.d_v + e] = y;
            for (s64 d = j; e < a.d_v && d < a.d_k; d += 4) {
                by = a.channels ? exp_(g[d]) : gamma;
                m[d * a.d_v] = fma_(kn[d], u, mul_(by, m[d * a.d_v]));
            }
        }
    }
}

/* ---- the scan of a state space model ------------------------------------- */

/* columns of the state of a work group; each has four lanes */
enum { SCAN_COLUMNS = 32 };

/* Returns the end of the run that begins at token t. */
DEV s32 run_end(GLOBAL const s32 *seq, s32 t, s32 n_tok)
{
    s32 end = t + 1;

    while (end < n_tok && seq[end] == seq[t])
        end++;
    return end;
}

#define HELD 16
#define NAME ssm_scan_64
#include "scan_tmpl.h"

#define HELD 32
#define NAME ssm_scan_128
#include "scan_tmpl.h"

#define HELD 64
#define NAME ssm_scan_256
#include "scan_tmpl.h"

/* The scan for states with any number of rows d_state. The state [d_state,
 * d_head] of a head stays in device memory.
 *
 * Lanes: four have a column of the state, each every fourth element. Shared
 * memory: the lanes' chains. Order of sums: four chains of fma by index mod 4,
 * added in pairs. */
KERNEL(ssm_scan_wide, struct ssm_scan_args, 128)
{
    LOCAL_ARRAY(float, chain, 2 * 128);
    s32 blocks = (s32)((a.d_head + SCAN_COLUMNS - 1) / SCAN_COLUMNS), turn = 0;
    s32 lane = LANE(), j = lane / SCAN_COLUMNS, col = lane % SCAN_COLUMNS;
    s64 head = GROUP() / blocks % a.n_head;
    s64 e = (s64)(GROUP() % blocks) * SCAN_COLUMNS + col;
    s64 group = AT(const s32, a.head_map)[head];
    GLOBAL float *out = AT(float, a.out) + e;
    GLOBAL const s32 *seq = AT(const s32, a.seq);
    s32 mine = (s32)(GROUP() / blocks / a.n_head), r = 0;

    for (s32 first = 0, end; first < a.n_tok; first = end, r++) {
        GLOBAL const s32 *words =
            AT(const s32, a.pages) + seq[first] * a.page_stride;
        s64 from = state_read(words, AT(const s32, a.pos)[first]);
        s64 to = words[STATE_WRITTEN_WORD];
        GLOBAL const float *in =
            AT(const float, a.state) +
            (from * a.n_head + head) * a.d_state * a.d_head + e;
        GLOBAL float *m = AT(float, a.state) +
                          (to * a.n_head + head) * a.d_state * a.d_head + e;

        end = run_end(seq, first, a.n_tok);
        if (r % a.n_split != mine)
            continue;
        for (s64 d = j; e < a.d_head && from != to && d < a.d_state; d += 4)
            m[d * a.d_head] = from >= 0 ? in[d * a.d_head] : 0.0f;
        for (s32 t = first; t < end; t++, turn++) {
            GLOBAL const float *b =
                AT(const float, a.b) + (t * a.n_group + group) * a.d_state;
            GLOBAL const float *c =
                AT(const float, a.c) + (t * a.n_group + group) * a.d_state;
            s64 at = t * a.n_head + head;
            float gamma = exp_(AT(const float, a.g)[at]), x = 0, y = 0;
            LOCAL float *p = chain + turn % 2 * 128;

            if (e < a.d_head)
                x = AT(const float, a.x)[at * a.d_head + e];
            for (s64 d = j; e < a.d_head && d < a.d_state; d += 4) {
                m[d * a.d_head] = fma_(b[d], x, mul_(gamma, m[d * a.d_head]));
                y = fma_(m[d * a.d_head], c[d], y);
            }
            p[lane] = y;
            BARRIER();
            if (j == 0 && e < a.d_head)
                out[at * a.d_head] = add_(add_(p[col], p[col + 32]),
                                          add_(p[col + 64], p[col + 96]));
        }
    }
}
