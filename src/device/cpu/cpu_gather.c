/* The kernel gather_rows: copies rows of a table, selected by index, for
 * embedding look-up and the scales of experts. All kernel sets use this code,
 * because it only decodes values, exactly as the format defines them. */
#include <string.h>

#include "device/cpu/cpu_matmul.h"
#include "device/cpu/cpu_ops.h"

/* Location of a table row: its index among the rows on this device, and
 * `entry`, the number of the result that receives it. A call writes one result
 * for each subtree of the rank tree that it sums. `entry` is -1 if this device
 * does not have the row. */
struct place {
    int64_t row;
    int entry;
};

/* A call writes one result for each subtree of ranks that it sums. Returns the
 * index of the result that contains the addend of `rank`, or -1 if there is
 * none. Simulates the stack on which addends are summed: `at` is the stack
 * entry that contains the rank's addend. It changes when two entries are
 * added. */
static int entry_of(const struct rank_tree *tree, int32_t rank)
{
    int n = 0, at = -1;

    for (int i = 0; i < tree->n; i++) {
        if (tree->item[i].rank == rank)
            at = n;
        n += 1 - tree->item[i].n_add;
        if (at >= n)
            at = n - 1;
    }
    return at;
}

static struct place place_of(const struct cpu_call *c, int64_t id)
{
    if (c->n_span == 0) {
        if (id < 0 || id >= c->in[0].dim[0])
            return (struct place){0, -1};
        return (struct place){id, c->tree.n > 0 ? 0 : -1};
    }
    for (int i = 0; i < c->n_span; i++) {
        const struct rank_span *s = &c->span[i];

        if (id >= s->logical && id < s->logical + s->n)
            return (struct place){s->local + id - s->logical,
                                  entry_of(&c->tree, s->rank)};
    }
    return (struct place){0, -1};
}

static void row_read(const struct cpu_tensor *t, int64_t row, int64_t width,
                     float *dst)
{
    const uint8_t *data = t->data;

    if (width == 0)
        return;
    if (t->pack != NULL)
        pack_decode(t->pack,
                    data + (size_t)(row / PACK_ROWS) * t->pack->panel_bytes,
                    (int)(row % PACK_ROWS), 0, width, dst);
    else
        format_info(t->format)->decode(
            dst, data + (size_t)row * format_row_bytes(t->format, width),
            width);
}

/* Computes out[i, :] = table[id[i], :] + 0. Adding 0 turns -0 into 0, as the
 * sum over ranks would. A call has one result for each subtree of ranks that it
 * sums. The row is written to the result whose ranks include the row's; the
 * other results become zeros. All results become zeros if the id is out of
 * range, or if the row is on another device. */
void cpu_gather_rows(const struct cpu_call *c)
{
    const int32_t *id = c->in[1].data;
    int64_t width = c->in[0].dim[1];
    struct cpu_part part = cpu_part(cpu_count(&c->in[1]), 1, c->ith, c->nth);

    for (int64_t i = part.lo; i < part.hi; i++) {
        struct place p = place_of(c, id[i]);

        for (int e = 0; e < c->tree.n_out; e++) {
            float *out =
                (float *)((uint8_t *)c->out.data + (size_t)e * c->out_stride) +
                i * width;

            if (e != p.entry) {
                memset(out, 0, (size_t)width * sizeof(float));
                continue;
            }
            if (c->out.format == PL_I32) {
                memcpy(out, (const int32_t *)c->in[0].data + p.row * width,
                       (size_t)width * sizeof(int32_t));
                continue;
            }
            row_read(&c->in[0], p.row, width, out);
            for (int64_t k = 0; k < width; k++)
                out[k] += 0.0f;
        }
    }
}
