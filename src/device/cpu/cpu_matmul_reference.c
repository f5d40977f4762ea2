/* The kernel set `reference`: weights are decoded as their format defines,
 * activations are floats, and sums are double. Its results are closer to exact
 * arithmetic than those of other sets, so their bits differ. Like those of
 * other sets, they depend on the number of ranks but not on the devices. */
#include "base/half.h"
#include "device/cpu/cpu_matmul.h"

/* number of values of a weight row that are decoded to floats at a time */
enum { PIECE = 256 };

/* Returns the dot product of w[n] and x[n], computed in double as four sums by
 * index mod 4, so that additions do not wait for each other. */
static double dot(const float *w, const float *x, int64_t n)
{
    double sum[4] = {0};
    int64_t i = 0;

    for (; i + 4 <= n; i += 4) {
        for (int j = 0; j < 4; j++)
            sum[j] += (double)w[i + j] * (double)x[i + j];
    }
    for (; i < n; i++)
        sum[0] += (double)w[i] * (double)x[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Multiplies values first .. first + n - 1 of weight row r by each of the
 * call's rows of activations, and adds the product with row j to sum[j]. The
 * values are decoded PIECE at a time. */
static void row_add(const struct cpu_panel_args *s, int r, int64_t first,
                    int64_t n, double *sum)
{
    float w[PIECE];

    for (int64_t k = first; k < first + n; k += PIECE) {
        int64_t len = first + n - k < PIECE ? first + n - k : PIECE;

        if (s->pack != NULL) {
            pack_decode(s->pack, s->panel, r, k, len, w);
        } else {
            const struct format_info *f = format_info(s->format);

            f->decode(w, s->panel + (r * s->k + k) * f->block_bytes, len);
        }
        for (int j = 0; j < s->n_tok; j++)
            sum[j] += dot(w, (const float *)s->x[j] + k, len);
    }
}

static void sums_add(const struct cpu_panel_args *s, int r, const double *sum)
{
    for (int j = 0; j < s->n_tok; j++) {
        float *acc = cpu_panel_acc(s, j) + r;

        *acc = (float)((double)*acc + sum[j]);
    }
}

static void panel_packed(const struct cpu_panel_args *s)
{
    for (int r = 0; r < s->n_row; r++) {
        double sum[CPU_PANEL_TOK] = {0};

        for (int i = 0; i < s->pack->n_chunk; i++) {
            const struct pack_chunk *c = &s->pack->chunk[i];

            if (c->rank == s->rank)
                row_add(s, r, c->k_loc, c->n, sum);
        }
        sums_add(s, r, sum);
    }
}

static void panel_plain(const struct cpu_panel_args *s)
{
    for (int r = 0; r < s->n_row; r++) {
        double sum[CPU_PANEL_TOK] = {0};

        if (s->n_span == 0)
            row_add(s, r, 0, s->k, sum);
        for (int i = 0; i < s->n_span; i++) {
            if (s->span[i].rank == s->rank)
                row_add(s, r, s->span[i].local, s->span[i].n, sum);
        }
        sums_add(s, r, sum);
    }
}

/* ---- table of panel functions -------------------------------------------- */

static const struct cpu_jobs jobs = {
    .packed = {[0 ... PL_FORMAT_COUNT - 1] = panel_packed},
    .plain = panel_plain,
    .add = cpu_add_generic,
};
static const struct cpu_matmul_isa isa = {&jobs, NULL};

#include "device/cpu/cpu_matmul_ops_template.h"

void cpu_matmul_init_reference(struct cpu_kernels *k)
{
    init_ops(k);
    k->float_activations = true;
}
