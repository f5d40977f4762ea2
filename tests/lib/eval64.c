/* Evaluates ops in double precision, one loop per op; eval64.h describes the
 * functions. Formulas are from pl_graph.h, and for rotary positions and routers
 * from the papers that the kernels name. */
#include "lib/eval64.h"

#include "lib/support.h"

#include "quant/format.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void shape(struct eval_value *v, int n_dim, const int64_t *dim)
{
    v->n_dim = n_dim;
    v->n = 1;
    for (int d = 0; d < n_dim; d++) {
        v->dim[d] = dim[d];
        v->n *= dim[d];
    }
    v->x = test_need((size_t)v->n, sizeof *v->x);
}

void eval_value_free(struct eval_value *v)
{
    free(v->x);
    v->x = NULL;
}

static int64_t last(const struct eval_value *v)
{
    return v->dim[v->n_dim - 1];
}

static int64_t rows_of(const struct eval_value *v)
{
    return last(v) ? v->n / last(v) : 0;
}

/* Rounds a row of n values to format `f` and decodes it again. */
static void round_row(pl_format f, double *x, int64_t n)
{
    const struct format_info *info = format_info(f);
    float *v = test_need((size_t)n, sizeof *v);
    void *b = test_need(format_row_bytes(f, n), 1);

    for (int64_t i = 0; i < n; i++)
        v[i] = (float)x[i];
    if (f != PL_F32) {
        info->encode(b, v, n);
        info->decode(v, b, n);
        for (int64_t i = 0; i < n; i++)
            x[i] = isnan(x[i]) ? x[i] : (double)v[i];
    }
    free(b);
    free(v);
}

/* ---- lookups and contractions -------------------------------------------- */

static void gather_rows(const struct eval_value *in, struct eval_value *out)
{
    int64_t d = in[0].dim[1];
    int64_t dim[GRAPH_MAX_DIM];

    memcpy(dim, in[1].dim, sizeof dim);
    dim[in[1].n_dim] = d;
    shape(out, in[1].n_dim + 1, dim);
    for (int64_t i = 0; i < in[1].n; i++)
        for (int64_t k = 0; k < d; k++) {
            double id = in[1].x[i];

            out->x[i * d + k] = isnan(id) ? NAN
                                : id >= 0 && id < (double)in[0].dim[0]
                                    ? in[0].x[(int64_t)id * d + k]
                                    : 0;
        }
}

static double dot(const double *a, const double *b, int64_t n)
{
    double s = 0;

    for (int64_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

static void matmul(const struct eval_value *in, struct eval_value *out)
{
    int64_t k = last(&in[0]), n = in[1].dim[0];
    int64_t dim[GRAPH_MAX_DIM];

    memcpy(dim, in[0].dim, sizeof dim);
    dim[in[0].n_dim - 1] = n;
    shape(out, in[0].n_dim, dim);
    for (int64_t r = 0; r < rows_of(&in[0]); r++)
        for (int64_t j = 0; j < n; j++)
            out->x[r * n + j] = dot(in[0].x + r * k, in[1].x + j * k, k);
}

static void head_matmul(const struct eval_value *in, struct eval_value *out)
{
    int64_t h = in[1].dim[0], n = in[1].dim[1], k = in[1].dim[2];
    int64_t dim[3] = {in[0].dim[0], h, n};

    shape(out, 3, dim);
    for (int64_t r = 0; r < dim[0] * h; r++)
        for (int64_t j = 0; j < n; j++)
            out->x[r * n + j] =
                dot(in[0].x + r * k, in[1].x + (r % h * n + j) * k, k);
}

/* Returns the product of row j of the matrix of expert `id` with x [k]; 0 if
 * there is no such expert. */
static double expert(const struct eval_value *w, double id, int64_t j,
                     const double *x)
{
    int64_t n = w->dim[1], k = w->dim[2];

    if (isnan(id))
        return NAN;
    if (id < 0 || id >= (double)w->dim[0])
        return 0;
    return dot(x, w->x + ((int64_t)id * n + j) * k, k);
}

static void expert_matmul(const struct eval_value *in, struct eval_value *out)
{
    int64_t u = in[2].dim[1], n = in[1].dim[1], k = in[1].dim[2];
    int64_t dim[3] = {in[2].dim[0], u, n};

    shape(out, 3, dim);
    for (int64_t t = 0; t < dim[0]; t++)
        for (int64_t s = 0; s < u; s++)
            for (int64_t j = 0; j < n; j++)
                out->x[(t * u + s) * n + j] = expert(
                    &in[1], in[2].x[t * u + s], j,
                    in[0].x +
                        (t * in[0].dim[1] + (in[0].dim[1] > 1 ? s : 0)) * k);
}

static void expert_down(const struct eval_value *in, struct eval_value *out)
{
    int64_t u = in[2].dim[1], n = in[1].dim[1], k = in[1].dim[2];
    int64_t dim[2] = {in[2].dim[0], n};

    shape(out, 2, dim);
    for (int64_t t = 0; t < dim[0]; t++)
        for (int64_t s = 0; s < u; s++)
            for (int64_t j = 0; j < n; j++)
                out->x[t * n + j] += expert(&in[1], in[2].x[t * u + s], j,
                                            in[0].x + (t * u + s) * k);
}

/* ---- norms, positions, attention ----------------------------------------- */

static void rms_norm(const struct graph_attr *a, const struct eval_value *in,
                     struct eval_value *out)
{
    int64_t d = last(&in[0]);

    shape(out, in[0].n_dim, in[0].dim);
    for (int64_t r = 0; r < rows_of(&in[0]); r++) {
        const double *x = in[0].x + r * d;
        double s = 1 / sqrt(dot(x, x, d) / (double)d + (double)a->eps);

        for (int64_t i = 0; i < d; i++)
            out->x[r * d + i] = x[i] * s * (in[1].x ? in[1].x[i] : 1);
    }
}

static void layer_norm(const struct graph_attr *a, const struct eval_value *in,
                       struct eval_value *out)
{
    int64_t d = last(&in[0]);

    shape(out, in[0].n_dim, in[0].dim);
    for (int64_t r = 0; r < rows_of(&in[0]); r++) {
        const double *x = in[0].x + r * d;
        double *y = out->x + r * d;
        double mean = 0, s;

        for (int64_t i = 0; i < d; i++)
            mean += x[i] / (double)d;
        for (int64_t i = 0; i < d; i++)
            y[i] = x[i] - mean;
        s = 1 / sqrt(dot(y, y, d) / (double)d + (double)a->eps);
        for (int64_t i = 0; i < d; i++)
            y[i] *= s * (in[1].x ? in[1].x[i] : 1);
    }
}

static void rope(const struct graph_attr *a, const struct eval_value *in,
                 struct eval_value *out)
{
    int64_t h = in[0].dim[1], d = in[0].dim[2];
    int half = a->n_rot / 2;
    double scale = a->freq_scale != 0 ? (double)a->freq_scale : 1;
    double size = a->mscale != 0 ? (double)a->mscale : 1;

    shape(out, 3, in[0].dim);
    for (int64_t i = 0; i < in[0].n; i++)
        out->x[i] = in[0].x[i];
    for (int64_t i = 0; i < in[0].dim[0] * h; i++)
        for (int p = 0; p < half; p++) {
            const double *x = in[0].x + i * d;
            double *y = out->x + i * d;
            int u = a->neox ? p : 2 * p, v = a->neox ? p + half : 2 * p + 1;
            double angle = (in[1].x[i / h] - (double)a->start) *
                           (a->back ? -1 : 1) *
                           pow((double)a->base, -2.0 * p / a->n_rot) /
                           (in[2].x ? in[2].x[p] : 1);
            double mscale = size, m = 0, c, s;

            if (a->yarn) {
                m = (p - (double)a->yarn_low) /
                    fmax(0.001, (double)a->yarn_high - (double)a->yarn_low);
                m = 1 - fmin(fmax(m, 0), 1);
            }
            angle = angle * scale * (1 - m) + angle * m;
            if (a->window > 0)
                mscale *=
                    1 + (double)a->scale *
                            log(floor(in[1].x[i / h] / (double)a->window) + 1);
            c = cos(angle) * mscale;
            s = sin(angle) * mscale;
            y[u] = x[u] * c - x[v] * s;
            y[v] = x[u] * s + x[v] * c;
        }
}

static int64_t slot(const struct eval_rows *r, int64_t t)
{
    return r->seq[t] * r->max_pos + r->pos[t];
}

static void cache_write(const struct graph_node *n, const struct eval_value *in,
                        const struct eval_rows *rows, struct eval_value *out)
{
    int64_t row = in[1].dim[1] * in[1].dim[2];

    shape(out, 3, in[0].dim);
    for (int64_t i = 0; i < out->n; i++)
        out->x[i] = in[0].x[i];
    for (int64_t t = 0; t < in[1].dim[0]; t++) {
        double *y = out->x + slot(rows, t) * row;

        for (int64_t i = 0; i < row; i++)
            y[i] = in[1].x[t * row + i];
        for (int64_t h = 0; h < in[1].dim[1]; h++)
            round_row(n->format, y + h * in[1].dim[2], in[1].dim[2]);
    }
}

/* Attention up to each token's own position or, if `ends` is not NULL, up to
 * ends[t]. */
static void attention_to(const struct graph_attr *a,
                         const struct eval_value *in, const double *ends,
                         const struct eval_rows *rows, struct eval_value *out)
{
    const double *sinks = ends ? NULL : in[3].x;
    int64_t h = in[0].dim[1], d = in[0].dim[2], g = in[1].dim[1];
    int64_t e = in[2].dim[2], dim[3] = {in[0].dim[0], h, e};
    double *p = test_need((size_t)rows->max_pos + 1, sizeof *p);

    shape(out, 3, dim);
    for (int64_t t = 0; t < dim[0]; t++)
        for (int64_t i = 0; i < h; i++) {
            int64_t pos = rows->pos[t], lo = 0, kv = i / (h / g);
            int64_t hi = ends && ends[t] > pos ? (int64_t)ends[t] : pos;
            int64_t base = rows->seq[t] * rows->max_pos;
            double top = sinks ? sinks[i] : -INFINITY, sum = 0;

            if (a->window > 0 && pos - a->window + 1 > 0)
                lo = pos - a->window + 1;
            if (a->window > 0 && pos + a->window - 1 < hi)
                hi = pos + a->window - 1;
            for (int64_t u = lo; u <= hi; u++) {
                p[u] = (double)a->scale *
                       dot(in[0].x + (t * h + i) * d,
                           in[1].x + ((base + u) * g + kv) * d, d);
                if (a->softcap != 0)
                    p[u] = (double)a->softcap * tanh(p[u] / (double)a->softcap);
                top = p[u] > top ? p[u] : top;
            }
            sum = sinks ? exp(sinks[i] - top) : 0;
            for (int64_t u = lo; u <= hi; u++) {
                p[u] = exp(p[u] - top);
                sum += p[u];
            }
            for (int64_t u = lo; u <= hi; u++)
                for (int64_t k = 0; k < e; k++)
                    out->x[(t * h + i) * e + k] +=
                        p[u] / sum * in[2].x[((base + u) * g + kv) * e + k];
        }
    free(p);
}

static void attention(const struct graph_attr *a, const struct eval_value *in,
                      const struct eval_rows *rows, struct eval_value *out)
{
    attention_to(a, in, NULL, rows, out);
}

/* Attention in which a key is also the value: its first d_value values are the
 * value vector. With chosen positions in[2], each token's keys are copied to a
 * sequence of its own. */
static void latent_attention(const struct graph_attr *a,
                             const struct eval_value *in,
                             const struct eval_rows *rows,
                             struct eval_value *out)
{
    int64_t n_tok = in[0].dim[0], d = in[1].dim[2], e = a->d_value;
    int64_t g = in[1].dim[1], k = in[2].x ? in[2].dim[1] : INT64_MAX;
    int64_t most = rows->max_pos, row = g * d;
    double *key = test_need((size_t)(n_tok * most * row) + 1, sizeof *key);
    double *v = test_need((size_t)(n_tok * most * g * e) + 1, sizeof *v);
    int32_t *pos = test_need((size_t)n_tok + 1, sizeof *pos);
    int32_t *seq = test_need((size_t)n_tok + 1, sizeof *seq);
    struct eval_rows own = *rows;
    struct eval_value both[GRAPH_MAX_IN] = {in[0], in[1], in[1]};

    for (int64_t t = 0; t < n_tok; t++) {
        bool all = rows->pos[t] < k;

        seq[t] = (int32_t)t;
        pos[t] = all ? rows->pos[t] : (int32_t)k - 1;
        for (int64_t j = 0; j <= pos[t]; j++) {
            double u = all ? (double)j : in[2].x[t * k + j];
            int64_t at = t * most + j;
            bool there = !isnan(u);

            u = fmin(fmax(u, 0), rows->pos[t]);
            for (int64_t i = 0; i < row; i++)
                key[at * row + i] =
                    there
                        ? in[1].x[(rows->seq[t] * most + (int64_t)u) * row + i]
                        : NAN;
            for (int64_t i = 0; i < g * e; i++)
                v[at * g * e + i] = key[at * row + i / e * d + i % e];
        }
    }
    own.pos = pos;
    own.seq = seq;
    both[1].x = key;
    both[2].x = v;
    both[1].dim[0] = both[2].dim[0] = n_tok * most;
    both[2].dim[2] = e;
    attention(a, both, &own, out);
    free(seq);
    free(pos);
    free(v);
    free(key);
}

/* Lists the positions of the chosen blocks, up to `pos`, in at[]. The list
 * `chosen` has k blocks, of which the last may be the token's own. Returns the
 * number of positions; -1 if a chosen block is NaN. */
static int64_t positions_of(const double *chosen, int64_t k, int64_t block,
                            int64_t pos, int64_t *at)
{
    int64_t n = 0, own = pos / block;

    for (int64_t i = 0; own < k && i <= pos; i++)
        at[n++] = i;
    for (int64_t j = 0; own >= k && j < k; j++) {
        int64_t b = isnan(chosen[j]) ? -1 : (int64_t)fmax(chosen[j], 0);

        if (b < 0)
            return -1;
        b = b < own ? b : own;
        for (int64_t i = 0; i < block; i++) {
            if (b * block + i > pos && j == k - 1)
                break;
            at[n++] = b * block + i < pos ? b * block + i : pos;
        }
    }
    return n;
}

static void attention_blocks(const struct graph_attr *a,
                             const struct eval_value *in,
                             const struct eval_rows *rows,
                             struct eval_value *out)
{
    int64_t h = in[0].dim[1], d = in[0].dim[2], g = in[1].dim[1];
    int64_t e = in[2].dim[2], dim[3] = {in[0].dim[0], h, e};
    int64_t k = in[3].dim[2];
    size_t most = (size_t)(rows->max_pos + 1 + k * a->block);
    double *p = test_need(most, sizeof *p);
    int64_t *at = test_need(most, sizeof *at);

    shape(out, 3, dim);
    for (int64_t r = 0; r < dim[0] * h; r++) {
        int64_t t = r / h, kv = r % h / (h / g);
        int64_t base = rows->seq[t] * rows->max_pos;
        int64_t n = positions_of(in[3].x + (t * g + kv) * k, k, a->block,
                                 rows->pos[t], at);
        double top = -INFINITY, sum = 0;

        for (int64_t j = 0; j < n; j++) {
            at[j] = (base + at[j]) * g + kv;
            p[j] =
                (double)a->scale * dot(in[0].x + r * d, in[1].x + at[j] * d, d);
            top = p[j] > top ? p[j] : top;
        }
        for (int64_t j = 0; j < n; j++)
            sum += p[j] = exp(p[j] - top);
        for (int64_t i = 0; i < e; i++) {
            out->x[r * e + i] = n < 0 ? NAN : 0;
            for (int64_t j = 0; j < n; j++)
                out->x[r * e + i] += p[j] / sum * in[2].x[at[j] * e + i];
        }
    }
    free(at);
    free(p);
}

/* Attention to the last tokens and to blocks: gathers the keys of each token
 * into a sequence of its own. */
static void compressed_attention(const struct graph_attr *a,
                                 const struct eval_value *in,
                                 const struct eval_rows *rows,
                                 struct eval_value *out)
{
    int64_t n_tok = in[0].dim[0], row = in[1].dim[1] * in[1].dim[2];
    int64_t k = in[4].x ? in[4].dim[1] : INT64_MAX, most = 2 * rows->max_pos;
    double *key = test_need((size_t)(n_tok * most * row) + 1, sizeof *key);
    int32_t *pos = test_need((size_t)n_tok + 1, sizeof *pos);
    int32_t *seq = test_need((size_t)n_tok + 1, sizeof *seq);
    const struct graph_attr all = {.scale = a->scale};
    struct eval_rows own = *rows;
    struct eval_value both[GRAPH_MAX_IN] = {in[0], in[1], in[1], in[3]};

    for (int64_t t = 0; t < n_tok; t++) {
        int64_t end = rows->pos[t] + 1, n = 0, n_block = end / a->ratio;
        int64_t n_seen = n_block < k ? n_block : k;

        for (int64_t i = -(end < a->window ? end : a->window); i < n_seen;
             i++) {
            const struct eval_value *from = i < 0 ? &in[1] : &in[2];
            double u = n_block > k && i >= 0 ? in[4].x[t * k + i] : (double)i;
            bool there = !isnan(u);

            if (i < 0)
                u += (double)end;
            else
                u = (fmin(fmax(u, 0), (double)n_block - 1) + 1) * a->ratio - 1;
            for (int64_t j = 0; j < row; j++)
                key[(t * most + n) * row + j] =
                    there ? from->x[(rows->seq[t] * rows->max_pos +
                                     (int64_t)(there ? u : 0)) *
                                        row +
                                    j]
                          : NAN;
            n++;
        }
        seq[t] = (int32_t)t;
        pos[t] = (int32_t)n - 1;
    }
    own.pos = pos;
    own.seq = seq;
    own.max_pos = most;
    both[1].x = both[2].x = key;
    both[1].dim[0] = both[2].dim[0] = n_tok * most;
    attention(&all, both, &own, out);
    free(seq);
    free(pos);
    free(key);
}

static void block_mean(const struct graph_attr *a, const struct eval_value *in,
                       const struct eval_rows *rows, struct eval_value *out)
{
    int64_t d = a->d_value, ratio = in[2].dim[0], c = in[2].dim[1];
    int64_t dim[2] = {in[1].dim[0], d};

    shape(out, 2, dim);
    for (int64_t t = 0; t < dim[0]; t++) {
        int64_t end = rows->pos[t] + 1;
        int64_t first = end - (c > d && end > ratio ? 2 : 1) * ratio;

        for (int64_t i = 0; i < d; i++) {
            double top = -INFINITY, sum = 0, acc = 0;

            for (int pass = 0; pass < 2 && end % ratio == 0; pass++)
                for (int64_t u = first; u < end; u++) {
                    const double *x =
                        in[0].x + (rows->seq[t] * rows->max_pos + u) * 2 * c;
                    int64_t at = u < end - ratio ? i : c - d + i;
                    double z = x[c + at] + in[2].x[u % ratio * c + at];

                    if (pass == 0 && (z > top || isnan(z)))
                        top = z;
                    if (pass == 1) {
                        sum += exp(z - top);
                        acc += exp(z - top) * x[at];
                    }
                }
            out->x[t * d + i] = end % ratio == 0 ? acc / sum : 0;
        }
    }
}

/* ---- residual streams ---------------------------------------------------- */

static void divide(double *c, int64_t n, int64_t step, double eps)
{
    double sum = eps;

    for (int64_t k = 0; k < n; k++)
        sum += c[k * step];
    for (int64_t k = 0; k < n; k++)
        c[k * step] /= sum;
}

static void sinkhorn(const struct graph_attr *a, const struct eval_value *in,
                     struct eval_value *out)
{
    int64_t d = last(&in[0]), n = 1;

    while (n * (n + 2) < d)
        n++;
    shape(out, in[0].n_dim, in[0].dim);
    for (int64_t r = 0; r < rows_of(&in[0]); r++) {
        double *y = out->x + r * d, *c = y + 2 * n;

        for (int64_t i = 0; i < d; i++)
            y[i] = in[0].x[r * d + i] * in[1].x[i < 2 * n ? i / n : 2] +
                   in[2].x[i];
        for (int64_t i = 0; i < 2 * n; i++)
            y[i] = 1 / (1 + exp(-y[i]));
        for (int64_t i = 0; i < n; i++) {
            y[i] += (double)a->eps;
            y[n + i] *= 2;
        }
        for (int64_t i = 0; i < n * n; i++)
            c[i] = exp(c[i]);
        for (int64_t i = 0; i < n; i++) {
            divide(c + i * n, n, 1, 0);
            for (int64_t k = 0; k < n; k++)
                c[i * n + k] += (double)a->eps;
        }
        for (int i = 0; i < a->n_iter; i++) {
            for (int64_t k = 0; i > 0 && k < n; k++)
                divide(c + k * n, n, 1, (double)a->eps);
            for (int64_t k = 0; k < n; k++)
                divide(c + k, n, n, (double)a->eps);
        }
    }
}

static void mix_streams(const struct eval_value *in, struct eval_value *out)
{
    int64_t n = in[0].dim[1], e = in[0].dim[2];

    shape(out, 3, in[0].dim);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t t = i / (n * e), to = i / e % n;
        const double *w = in[2].x + t * n * (n + 1);

        out->x[i] = w[to] * in[1].x[t * e + i % e];
        for (int64_t from = 0; from < n; from++)
            out->x[i] +=
                w[n + from * n + to] * in[0].x[(t * n + from) * e + i % e];
    }
}

/* ---- states -------------------------------------------------------------- */

/* Returns the state of the sequence that token t belongs to; sets it to zeros
 * if the token is the sequence's first. */
static double *state_row(const struct eval_value *state,
                         const struct eval_rows *rows, int64_t t)
{
    int64_t n = state->dim[1] * state->dim[2];
    double *x = state->x + rows->seq[t] * n;

    for (int64_t i = 0; rows->pos[t] == 0 && i < n; i++)
        x[i] = 0;
    return x;
}

static void short_conv(const struct graph_attr *a, const struct eval_value *in,
                       const struct eval_rows *rows, struct eval_value *out,
                       const struct eval_value *state)
{
    int64_t c = in[1].dim[0], n = in[1].dim[1];

    shape(out, 2, in[0].dim);
    for (int64_t t = 0; t < in[0].dim[0]; t++) {
        double *before = state_row(state, rows, t);

        for (int64_t i = 0; i < c; i++) {
            const double *w = in[1].x + i * n;
            double *h = before + i * (n - 1), x = in[0].x[t * c + i];
            double y = dot(w, h, n - 1) + w[n - 1] * x;

            out->x[t * c + i] = a->silu ? y / (1 + exp(-y)) : y;
            memmove(h, h + 1, (size_t)(n - 2) * sizeof *h);
            h[n - 2] = x;
        }
    }
}

/* Returns 1 / max(the Euclidean length of x [n], eps), or 1 / sqrt(its square
 * + eps) if the decay has a value per channel. */
static double per_length(const double *x, int64_t n, double eps, bool channels)
{
    double length = sqrt(dot(x, x, n));

    if (channels)
        return 1 / sqrt(dot(x, x, n) + eps);
    return 1 / (length < eps ? eps : length);
}

/* Computes the delta net of one token and one head: k and q [d], v and the
 * result y [e], decay [d] with `channels`, else [1]. Updates the state m [d,
 * e]. */
static void delta_token(double *m, const double *q, const double *k,
                        const double *v, const double *decay, bool channels,
                        double beta, double eps, int64_t d, int64_t e,
                        double *y)
{
    double of_k = per_length(k, d, eps, channels);
    double of_q = per_length(q, d, eps, channels);

    for (int64_t j = 0; j < e; j++) {
        double held = 0, u;

        for (int64_t i = 0; i < d; i++) {
            m[i * e + j] *= exp(decay[channels ? i : 0]);
            held += m[i * e + j] * k[i] * of_k;
        }
        u = beta * (v[j] - held);
        y[j] = 0;
        for (int64_t i = 0; i < d; i++) {
            m[i * e + j] += k[i] * of_k * u;
            y[j] += m[i * e + j] * q[i] * of_q / sqrt((double)d);
        }
    }
}

static void delta_net(const struct graph_node *n, const struct eval_value *in,
                      const struct eval_rows *rows, struct eval_value *out,
                      const struct eval_value *state)
{
    int64_t g = in[0].dim[1], d = in[0].dim[2];
    int64_t h = in[2].dim[1], e = in[2].dim[2];
    bool channels = n->op == OP_delta_net_channels;

    shape(out, 3, in[2].dim);
    for (int64_t t = 0; t < in[2].dim[0]; t++) {
        double *m = state_row(state, rows, t);

        for (int64_t i = 0; i < h; i++) {
            int64_t at = t * h + i;
            int64_t key =
                t * g + (n->op == OP_delta_net_tiled ? i % g : i / (h / g));

            delta_token(m + i * d * e, in[0].x + key * d, in[1].x + key * d,
                        in[2].x + at * e, in[3].x + (channels ? at * d : at),
                        channels, in[4].x[at], (double)n->attr.eps, d, e,
                        out->x + at * e);
        }
    }
}

static void ssm_scan(const struct eval_value *in, const struct eval_rows *rows,
                     struct eval_value *out, const struct eval_value *state)
{
    int64_t g = in[0].dim[1], d = in[0].dim[2];
    int64_t h = in[2].dim[1], e = in[2].dim[2];

    shape(out, 3, in[2].dim);
    for (int64_t t = 0; t < in[2].dim[0]; t++) {
        double *m = state_row(state, rows, t);

        for (int64_t i = t * h; i < (t + 1) * h; i++) {
            int64_t group = t * g + i % h / (h / g);

            for (int64_t j = 0; j < e; j++)
                out->x[i * e + j] = 0;
            for (int64_t k = 0; k < d * e; k++, m++) {
                *m = *m * exp(in[3].x[i]) +
                     in[1].x[group * d + k / e] * in[2].x[i * e + k % e];
                out->x[i * e + k % e] += *m * in[0].x[group * d + k / e];
            }
        }
    }
}

/* ---- choosing experts ---------------------------------------------------- */

static void softmax_row(double *y, const double *x, int64_t n)
{
    double top = -INFINITY, sum = 0;

    for (int64_t i = 0; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (int64_t i = 0; i < n; i++) {
        y[i] = exp(x[i] - top);
        sum += y[i];
    }
    for (int64_t i = 0; i < n; i++)
        y[i] /= sum;
}

static void softmax(const struct eval_value *in, struct eval_value *out)
{
    int64_t d = last(&in[0]);

    shape(out, in[0].n_dim, in[0].dim);
    for (int64_t r = 0; r < rows_of(&in[0]); r++)
        softmax_row(out->x + r * d, in[0].x + r * d, d);
}

static void scores(double *y, const double *x, int64_t n, int gating)
{
    if (gating == PL_GATING_SOFTMAX) {
        softmax_row(y, x, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        y[i] = gating == PL_GATING_SIGMOID ? 1 / (1 + exp(-x[i]))
               : gating == PL_GATING_SQRT_SOFTPLUS
                   ? sqrt(fmax(x[i], 0) + log1p(exp(-fabs(x[i]))))
                   : x[i];
}

/* Finds the k largest of x [n] and writes their indices to id, the largest
 * first. Lowers *gap as eval64_op does. */
static void best(const double *x, int64_t n, int64_t k, int64_t *id,
                 double *gap)
{
    char *taken = test_need((size_t)n, 1);
    double before = INFINITY;

    for (int64_t j = 0; j < k + 1 && j < n; j++) {
        int64_t b = -1;

        for (int64_t i = 0; i < n; i++)
            if (!taken[i] && (b < 0 || x[i] > x[b]))
                b = i;
        if (gap && before - x[b] < *gap && x[b] > -INFINITY)
            *gap = before - x[b];
        before = x[b];
        taken[b] = 1;
        if (j < k)
            id[j] = b;
    }
    free(taken);
}

/* Sets the scores of experts outside the best groups to minus infinity. */
static void keep_groups(const struct graph_attr *a, double *s, int64_t n,
                        double *gap)
{
    int64_t size = n / a->n_group;
    double *group = test_need((size_t)a->n_group, sizeof *group);
    int64_t *id = test_need((size_t)n, sizeof *id);
    char *kept = test_need((size_t)a->n_group, 1);

    for (int g = 0; g < a->n_group; g++) {
        best(s + g * size, size, 2, id, NULL);
        group[g] = s[g * size + id[0]];
        if (a->gating != PL_GATING_SOFTMAX)
            group[g] += s[g * size + id[1]];
    }
    /* only the set of groups matters, not their order */
    best(group, a->n_group, a->n_group_used, id, NULL);
    for (int k = 0; k < a->n_group_used; k++)
        kept[id[k]] = 1;
    for (int g = 0; g < a->n_group; g++) {
        double least = group[id[a->n_group_used - 1]];

        if (gap && !kept[g] && least - group[g] < *gap)
            *gap = least - group[g];
        for (int64_t i = g * size; !kept[g] && i < (g + 1) * size; i++)
            s[i] = -INFINITY;
    }
    free(kept);
    free(id);
    free(group);
}

static void router_topk(const struct graph_attr *a, const struct eval_value *in,
                        struct eval_value *out, double *gap)
{
    int64_t e = last(&in[0]), dim[GRAPH_MAX_DIM];
    double *s = test_need((size_t)e, sizeof *s);
    int64_t *id = test_need((size_t)e, sizeof *id);

    memcpy(dim, in[0].dim, sizeof dim);
    dim[in[0].n_dim - 1] = a->n_used;
    shape(out, in[0].n_dim, dim);
    for (int64_t r = 0; r < rows_of(&in[0]); r++) {
        bool there = true;

        scores(s, in[0].x + r * e, e, a->gating);
        for (int64_t i = 0; i < e; i++) {
            s[i] += in[1].x ? in[1].x[i] : 0;
            there &= !isnan(s[i]);
        }
        if (there && a->n_group > 1)
            keep_groups(a, s, e, gap);
        if (there)
            best(s, e, a->n_used, id, gap);
        for (int k = 0; k < a->n_used; k++)
            out->x[r * a->n_used + k] = there ? (double)id[k] : NAN;
    }
    free(id);
    free(s);
}

static int by_position(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

static void index_topk(const struct graph_attr *a, const struct eval_value *in,
                       const struct eval_rows *rows, struct eval_value *out,
                       double *gap)
{
    int64_t n_head = in[0].dim[1], d = in[0].dim[2], k = a->n_used;
    int64_t dim[2] = {in[0].dim[0], k};
    double *s = test_need((size_t)rows->max_pos + 1, sizeof *s);
    int64_t *id = test_need((size_t)k, sizeof *id);

    shape(out, 2, dim);
    for (int64_t t = 0; t < dim[0]; t++) {
        int64_t ratio = a->ratio ? a->ratio : 1;
        int64_t n = (rows->pos[t] + 1) / ratio;
        bool there = true;

        for (int64_t u = 0; u < n; u++) {
            const double *key =
                in[2].x +
                (rows->seq[t] * rows->max_pos + (u + 1) * ratio - 1) * d;

            s[u] = 0;
            for (int64_t h = 0; h < n_head; h++) {
                double x = dot(in[0].x + (t * n_head + h) * d, key, d);

                s[u] += in[1].x[t * n_head + h] * (x < 0 ? 0 : x);
            }
            there &= !isnan(s[u]);
        }
        for (int64_t j = 0; j < k; j++)
            id[j] = j < n ? j : -1;
        if (n > k && there) {
            /* only the set of positions matters, not their order */
            int64_t *next = test_need((size_t)k + 1, sizeof *next);

            best(s, n, k + 1, next, NULL);
            memcpy(id, next, (size_t)k * sizeof *id);
            if (gap)
                *gap = fmin(*gap, s[next[k - 1]] - s[next[k]]);
            free(next);
            qsort(id, (size_t)k, sizeof *id, by_position);
        }
        for (int64_t j = 0; j < k; j++)
            out->x[t * k + j] = there || n <= k ? (double)id[j] : NAN;
    }
    free(id);
    free(s);
}

/* Chooses blocks for each head. Blocks that are always chosen leave no gap. */
static void index_blocks(const struct graph_attr *a,
                         const struct eval_value *in,
                         const struct eval_rows *rows, struct eval_value *out,
                         double *gap)
{
    int64_t n_head = in[0].dim[1], d = in[0].dim[2], k = a->n_used;
    int64_t dim[3] = {in[0].dim[0], n_head, k}, *id;
    double *s = test_need((size_t)(rows->max_pos / a->block) + 1, sizeof *s);

    shape(out, 3, dim);
    id = test_need((size_t)k + 1, sizeof *id);
    for (int64_t r = 0; r < dim[0] * n_head; r++) {
        int64_t t = r / n_head, own = rows->pos[t] / a->block;
        bool there = true;

        for (int64_t b = 0; b <= own; b++)
            s[b] = b > own - a->local ? INFINITY : -INFINITY;
        for (int64_t u = 0; u <= rows->pos[t]; u++) {
            double x = dot(in[0].x + r * d,
                           in[1].x + (rows->seq[t] * rows->max_pos + u) * d, d);

            s[u / a->block] = fmax(s[u / a->block], x);
            there &= !isnan(x);
        }
        for (int64_t j = 0; j < k; j++)
            id[j] = j <= own ? j : -1;
        if (own >= k && there) {
            best(s, own + 1, k + 1, id, NULL);
            if (gap && k > a->local)
                *gap = fmin(*gap, s[id[k - 1]] - s[id[k]]);
            qsort(id, (size_t)k, sizeof *id, by_position);
        }
        for (int64_t j = 0; j < k; j++)
            out->x[r * k + j] = there || own < k ? (double)id[j] : NAN;
    }
    free(id);
    free(s);
}

static void router_weights(const struct graph_attr *a,
                           const struct eval_value *in, struct eval_value *out)
{
    int64_t e = last(&in[0]), u = last(&in[1]);
    double *s = test_need((size_t)e, sizeof *s);

    shape(out, in[1].n_dim, in[1].dim);
    for (int64_t r = 0; r < rows_of(&in[1]); r++) {
        double *w = out->x + r * u, sum = 0;

        scores(s, in[0].x + r * e, e, a->gating);
        for (int64_t k = 0; k < u; k++) {
            double id = in[1].x[r * u + k];

            w[k] = isnan(id) ? NAN : s[(int64_t)id];
        }
        if (a->gating == PL_GATING_SOFTMAX_SELECTED)
            softmax_row(w, w, u);
        for (int64_t k = 0; k < u; k++)
            sum += w[k];
        for (int64_t k = 0; k < u; k++) {
            if (a->normalise)
                w[k] /= sum < 0x1p-14 ? 0x1p-14 : sum;
            w[k] *= a->scale != 0 ? (double)a->scale : 1;
        }
    }
    free(s);
}

/* ---- value by value ------------------------------------------------------ */

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double gelu(double x)
{
    return 0.5 * x *
           (1 + tanh(sqrt(2 / 3.14159265358979323846) *
                     (x + 0.044715 * x * x * x)));
}

/* Comparisons are written so that NaN passes through. */
static double clamp(double x, double lo, double hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

static double value1(const struct graph_node *n, double x)
{
    const struct graph_attr *a = &n->attr;

    switch (n->op) {
    case OP_scale:
        return x * (double)a->scale;
    case OP_clamp:
        return clamp(x, (double)a->lo, (double)a->hi);
    case OP_sqr:
        return x * x;
    case OP_sqrt:
        return sqrt(x);
    case OP_exp:
        return exp(x);
    case OP_tanh:
        return tanh(x);
    case OP_sigmoid:
        return 1 / (1 + exp(-x));
    case OP_softplus:
        return x > 20 ? x : log1p(exp(x));
    case OP_silu:
        return silu(x);
    case OP_gelu:
        return gelu(x);
    case OP_gelu_erf:
        return 0.5 * x * erfc(-x / sqrt(2));
    case OP_relu:
        return x < 0 ? 0 : x;
    case OP_cast:
        round_row((pl_format)a->format, &x, 1);
        return x;
    case OP_contiguous:
        return x;
    default:
        fail_msg("%s is not known here", op_info(n->op)->name);
        return NAN;
    }
}

static double value2(const struct graph_node *n, double x, double y)
{
    const struct graph_attr *a = &n->attr;

    switch (n->op) {
    case OP_add:
        return x + y;
    case OP_sub:
        return x - y;
    case OP_mul:
        return x * y;
    case OP_div:
        return x / y;
    case OP_swiglu:
        return silu(x) * y;
    case OP_geglu:
        return gelu(x) * y;
    case OP_swiglu_oai:
        x = x > (double)a->hi ? (double)a->hi : x;
        return (clamp(y, (double)a->lo, (double)a->hi) + 1) * x /
               (1 + exp(-(double)a->alpha * x));
    default:
        fail_msg("%s is not known here", op_info(n->op)->name);
        return NAN;
    }
}

static void broadcast(const struct graph_node *n, const struct eval_value *in,
                      struct eval_value *out)
{
    int nd = in[0].n_dim > in[1].n_dim ? in[0].n_dim : in[1].n_dim;
    int64_t dim[GRAPH_MAX_DIM];

    for (int i = 1; i <= nd; i++) {
        int64_t a = i <= in[0].n_dim ? in[0].dim[in[0].n_dim - i] : 1;
        int64_t b = i <= in[1].n_dim ? in[1].dim[in[1].n_dim - i] : 1;

        dim[nd - i] = a == 1 ? b : a;
    }
    shape(out, nd, dim);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t at[2] = {0, 0};

        for (int k = 0; k < 2; k++) {
            int64_t rest = i, stride = 1;

            for (int d = 1; d <= nd; d++) {
                int64_t x = rest % dim[nd - d];

                rest /= dim[nd - d];
                if (d > in[k].n_dim)
                    continue;
                if (in[k].dim[in[k].n_dim - d] > 1)
                    at[k] += x * stride;
                stride *= in[k].dim[in[k].n_dim - d];
            }
        }
        out->x[i] = value2(n, in[0].x[at[0]], in[1].x[at[1]]);
    }
}

static void sum(const struct eval_value *in, struct eval_value *out)
{
    int64_t d = last(&in[0]), u = in[0].dim[in[0].n_dim - 2];
    int64_t dim[GRAPH_MAX_DIM];

    memcpy(dim, in[0].dim, sizeof dim);
    dim[in[0].n_dim - 2] = d;
    shape(out, in[0].n_dim - 1, dim);
    for (int64_t i = 0; i < in[0].n; i++)
        out->x[i / (u * d) * d + i % d] += in[0].x[i];
}

/* ---- moves --------------------------------------------------------------- */

static void reshape(const struct graph_node *n, const struct eval_value *in,
                    struct eval_value *out)
{
    int64_t dim[GRAPH_MAX_DIM], rest = in[0].n;
    int symbolic = -1;

    for (int d = 0; d < n->n_dim; d++) {
        dim[d] = n->dim[d].n;
        rest /= dim[d];
        if (n->dim[d].symbol != PL_CONST)
            symbolic = d;
    }
    if (symbolic >= 0)
        dim[symbolic] *= rest;
    shape(out, n->n_dim, dim);
    assert_int_equal(out->n, in[0].n);
    memcpy(out->x, in[0].x, (size_t)out->n * sizeof *out->x);
}

static void permute(const struct graph_attr *a, const struct eval_value *in,
                    struct eval_value *out)
{
    int p[GRAPH_MAX_DIM] = {a->perm0, a->perm1, a->perm2, a->perm3};
    int64_t dim[GRAPH_MAX_DIM], stride[GRAPH_MAX_DIM], below = 1;

    for (int d = in[0].n_dim - 1; d >= 0; d--) {
        stride[d] = below;
        below *= in[0].dim[d];
    }
    for (int d = 0; d < in[0].n_dim; d++)
        dim[d] = in[0].dim[p[d]];
    shape(out, in[0].n_dim, dim);
    for (int64_t i = 0; i < out->n; i++) {
        int64_t rest = i, at = 0;

        for (int d = out->n_dim - 1; d >= 0; d--) {
            at += rest % dim[d] * stride[p[d]];
            rest /= dim[d];
        }
        out->x[i] = in[0].x[at];
    }
}

/* Copies `len` indices along dimension `axis`, from index `from` of src to
 * index `to` of dst. */
static void along(int axis, const struct eval_value *src, int64_t from,
                  struct eval_value *dst, int64_t to, int64_t len)
{
    int64_t inner = 1, outer = 1;

    for (int d = 0; d < src->n_dim; d++) {
        outer *= d < axis ? src->dim[d] : 1;
        inner *= d > axis ? src->dim[d] : 1;
    }
    for (int64_t o = 0; o < outer; o++)
        memcpy(dst->x + (o * dst->dim[axis] + to) * inner,
               src->x + (o * src->dim[axis] + from) * inner,
               (size_t)(len * inner) * sizeof(double));
}

static void slice(const struct graph_node *n, const struct eval_value *in,
                  struct eval_value *out)
{
    int64_t dim[GRAPH_MAX_DIM];

    memcpy(dim, in[0].dim, sizeof dim);
    dim[n->attr.axis] = n->dim[n->attr.axis].n;
    shape(out, in[0].n_dim, dim);
    along(n->attr.axis, &in[0], n->attr.start, out, 0, dim[n->attr.axis]);
}

static void concat(const struct graph_node *n, const struct eval_value *in,
                   struct eval_value *out)
{
    int64_t dim[GRAPH_MAX_DIM], at = 0;
    int axis = n->attr.axis;

    memcpy(dim, in[0].dim, sizeof dim);
    for (int i = 1; i < n->n_in; i++)
        dim[axis] += in[i].dim[axis];
    shape(out, in[0].n_dim, dim);
    for (int i = 0; i < n->n_in; i++) {
        along(axis, &in[i], 0, out, at, in[i].dim[axis]);
        at += in[i].dim[axis];
    }
}

/* ---- ops and graphs ------------------------------------------------------ */

/* Returns the operand that is the op's state, or NULL if the op has none. */
static const struct eval_value *state_of(const struct graph_node *n,
                                         const struct eval_value *in)
{
    const struct op_info *o = op_info(n->op);

    return o->is_new && o->updates >= 0 ? &in[o->updates] : NULL;
}

/* Evaluates an op as eval64_op() does, and also updates its state. */
static void apply(const struct graph_node *n, const struct eval_value *in,
                  const struct eval_rows *rows, struct eval_value *out,
                  double *gap)
{
    const struct graph_attr *a = &n->attr;

    switch (n->op) {
    case OP_gather_rows:
        gather_rows(in, out);
        break;
    case OP_matmul:
        matmul(in, out);
        break;
    case OP_head_matmul:
        head_matmul(in, out);
        break;
    case OP_expert_matmul:
        expert_matmul(in, out);
        break;
    case OP_expert_down:
        expert_down(in, out);
        break;
    case OP_rms_norm:
        rms_norm(a, in, out);
        break;
    case OP_layer_norm:
        layer_norm(a, in, out);
        break;
    case OP_rope:
        rope(a, in, out);
        break;
    case OP_cache_write:
        cache_write(n, in, rows, out);
        break;
    case OP_attention:
        attention(a, in, rows, out);
        break;
    case OP_bidirectional_attention:
        attention_to(a, in, in[3].x, rows, out);
        break;
    case OP_latent_attention:
        latent_attention(a, in, rows, out);
        break;
    case OP_attention_blocks:
        attention_blocks(a, in, rows, out);
        break;
    case OP_compressed_attention:
        compressed_attention(a, in, rows, out);
        break;
    case OP_block_mean:
        block_mean(a, in, rows, out);
        break;
    case OP_sinkhorn:
        sinkhorn(a, in, out);
        break;
    case OP_mix_streams:
        mix_streams(in, out);
        break;
    case OP_short_conv:
        short_conv(a, in, rows, out, state_of(n, in));
        break;
    case OP_delta_net:
    case OP_delta_net_tiled:
    case OP_delta_net_channels:
        delta_net(n, in, rows, out, state_of(n, in));
        break;
    case OP_ssm_scan:
        ssm_scan(in, rows, out, state_of(n, in));
        break;
    case OP_softmax:
        softmax(in, out);
        break;
    case OP_router_topk:
        router_topk(a, in, out, gap);
        break;
    case OP_index_topk:
        index_topk(a, in, rows, out, gap);
        break;
    case OP_index_blocks:
        index_blocks(a, in, rows, out, gap);
        break;
    case OP_router_weights:
        router_weights(a, in, out);
        break;
    case OP_sum:
        sum(in, out);
        break;
    case OP_reshape:
        reshape(n, in, out);
        break;
    case OP_permute:
        permute(a, in, out);
        break;
    case OP_slice:
        slice(n, in, out);
        break;
    case OP_concat:
        concat(n, in, out);
        break;
    default:
        if (n->n_in == 2) {
            broadcast(n, in, out);
            break;
        }
        shape(out, in[0].n_dim, in[0].dim);
        for (int64_t i = 0; i < out->n; i++)
            out->x[i] = value1(n, in[0].x[i]);
    }
}

void eval64_op(const struct graph_node *n, const struct eval_value *in,
               const struct eval_rows *rows, struct eval_value *out,
               double *gap)
{
    const struct eval_value *state = state_of(n, in);
    struct eval_value own[GRAPH_MAX_IN] = {{0}};

    memcpy(own, in, (size_t)n->n_in * sizeof *own);
    if (state) {
        struct eval_value *copy = &own[op_info(n->op)->updates];

        shape(copy, state->n_dim, state->dim);
        memcpy(copy->x, state->x, (size_t)state->n * sizeof *state->x);
    }
    apply(n, own, rows, out, gap);
    if (state)
        eval_value_free(&own[op_info(n->op)->updates]);
}

static void sizes(const struct eval64 *e, int node,
                  const struct eval_rows *rows, int64_t *dim)
{
    const struct graph_node *n = &e->g->node[node];
    struct graph_sizes s = {.n_tok = rows ? rows->n_tok : 0,
                            .n_out = rows ? rows->n_out : 0,
                            .n_seq = e->n_seq};

    /* caches with a window have slots for all positions here */
    for (int k = 0; k < PL_MAX_POOL; k++)
        s.n_slot[k] = e->n_seq * (e->g->pool[k].state ? 1 : e->max_pos);

    for (int d = 0; d < n->n_dim; d++)
        dim[d] = dim_value(n->dim[d], &s);
}

struct eval64 *eval64_create(const pl_graph *g, int64_t n_seq, int64_t max_pos)
{
    struct eval64 *e = test_need(1, sizeof *e);

    *e = (struct eval64){
        .g = g, .n_seq = n_seq, .max_pos = max_pos, .gap = INFINITY};
    e->value = test_need((size_t)g->n_node, sizeof *e->value);
    for (int i = 0; i < g->n_node; i++)
        if (g->node[i].op == OP_memory) {
            int64_t dim[GRAPH_MAX_DIM];

            sizes(e, i, NULL, dim);
            shape(&e->value[i], 3, dim);
        }
    return e;
}

void eval64_free(struct eval64 *e)
{
    for (int i = 0; e && i < e->g->n_node; i++)
        eval_value_free(&e->value[i]);
    if (e)
        free(e->value);
    free(e);
}

void eval64_weight(struct eval64 *e, int node, const void *bytes)
{
    const struct graph_node *n = &e->g->node[node];
    int64_t dim[GRAPH_MAX_DIM];
    float *v;

    sizes(e, node, NULL, dim);
    eval_value_free(&e->value[node]);
    shape(&e->value[node], n->n_dim, dim);
    v = test_need((size_t)e->value[node].n, sizeof *v);
    format_info(n->format)->decode(v, bytes, e->value[node].n);
    for (int64_t i = 0; i < e->value[node].n; i++)
        e->value[node].x[i] = (double)v[i];
    free(v);
}

struct eval_value *eval64_input(struct eval64 *e, int node,
                                const struct eval_rows *rows)
{
    int64_t dim[GRAPH_MAX_DIM];

    sizes(e, node, rows, dim);
    eval_value_free(&e->value[node]);
    shape(&e->value[node], e->g->node[node].n_dim, dim);
    return &e->value[node];
}

/* Adds a random error to each value, as rounding would: relative to the value
 * and to the mean size of all values. */
static void disturb(struct eval64 *e, struct eval_value *v)
{
    double mean = 0;

    for (int64_t i = 0; i < v->n; i++)
        mean += fabs(v->x[i]) / (double)v->n;
    for (int64_t i = 0; i < v->n; i++)
        v->x[i] +=
            e->noise * (double)test_unit(&e->seed) * (fabs(v->x[i]) + mean);
}

void eval64_step(struct eval64 *e, const struct eval_rows *rows)
{
    struct eval_rows r = *rows;

    r.max_pos = e->max_pos;
    for (int i = 0; i < e->g->n_node; i++) {
        const struct graph_node *n = &e->g->node[i];
        struct eval_value in[GRAPH_MAX_IN] = {{0}};

        if (!op_info(n->op)->dims)
            continue;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0)
                in[k] = e->value[n->in[k]];
        eval_value_free(&e->value[i]);
        if (e->noise != 0 && n->op == OP_cast) {
            shape(&e->value[i], in[0].n_dim, in[0].dim);
            memcpy(e->value[i].x, in[0].x, (size_t)in[0].n * sizeof(double));
        } else {
            apply(n, in, &r, &e->value[i], &e->gap);
        }
        if (e->noise != 0 && n->format != PL_I32 && n->op != OP_cache_write)
            disturb(e, &e->value[i]);
        /* the values written also go to the cache that later steps read */
        if (n->op == OP_cache_write)
            memcpy(e->value[n->in[0]].x, e->value[i].x,
                   (size_t)e->value[i].n * sizeof(double));
    }
}
