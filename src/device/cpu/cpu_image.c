/* Builds the arguments of a kernel from an instruction of a program. Programs
 * refer to tensors by index and to sizes by symbol. An image has a table of the
 * program's tensors with their addresses and numeric sizes. The sizes are
 * computed again only if a step's sizes differ from those of the step
 * before. */
#include "device/cpu/cpu_image.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static void resolve(struct cpu_tensor *t, const struct prog_tensor *p,
                    const struct graph_sizes *z)
{
    t->format = p->format;
    t->n_dim = p->n_dim;
    t->pack = p->pack;
    for (int i = 0; i < p->n_dim; i++)
        t->dim[i] = dim_value(p->dim[i], z);
}

pl_status cpu_image_init(struct cpu_image *m, struct device_set *set,
                         const struct device *d, const struct cpu_kernels *k,
                         pl_err *err)
{
    const struct program *p = d->prog;

    m->prog = p;
    m->kernels = k;
    m->set = set;
    m->resize = (uint32_t)-1;
    memset(m->sizes, 0, sizeof m->sizes);
    m->tensor = calloc((size_t)p->n_tensor + 1, sizeof *m->tensor);
    if (!m->tensor)
        return err_no_memory(err, "a device's tables");
    for (int i = 0; i < p->n_tensor; i++)
        m->tensor[i].data = m->base[p->tensor[i].region] + p->tensor[i].offset;
    return PL_OK;
}

void cpu_image_fini(struct cpu_image *m)
{
    free(m->tensor);
    m->tensor = NULL;
}

bool cpu_image_sizes(struct cpu_image *m, const struct device_run *run)
{
    for (int i = 0; i < run->n_micro; i++) {
        const struct graph_sizes *z = &run->sizes[i];

        if (z->n_tok != m->sizes[i].n_tok || z->n_out != m->sizes[i].n_out ||
            z->n_seq != m->sizes[i].n_seq ||
            memcmp(z->n_slot, m->sizes[i].n_slot, sizeof z->n_slot) != 0)
            m->resize |= (uint32_t)1 << i;
        m->sizes[i] = *z;
    }
    return m->resize != 0;
}

void cpu_image_resolve(struct cpu_image *m)
{
    const struct prog_tensor *t = m->prog->tensor;

    for (int i = 0; i < m->prog->n_tensor; i++)
        if (m->resize >> t[i].micro & 1)
            resolve(&m->tensor[i], &t[i], &m->sizes[t[i].micro]);
    m->resize = 0;
}

static int64_t count(const struct cpu_tensor *t, int n_dim)
{
    int64_t n = 1;

    for (int i = 0; i < n_dim; i++)
        n *= t->dim[i];
    return n;
}

/* Sets the fields of *c, the arguments of a kernel, that follow from the
 * instruction alone and not from tensors or threads. */
static void fill(struct cpu_call *c, const struct insn_kernel *k)
{
    static const struct graph_attr none;

    c->n_in = 0;
    c->q8 = NULL;
    c->table = NULL;
    c->attr = k->attr ? k->attr : &none;
    c->head_map = k->head_map;
    c->tree = k->tree;
    c->span = k->span;
    c->n_span = k->n_span;
    c->out_stride = k->out_stride;
    c->custom = k->custom;
}

/* Returns the field of the call that argument i of the instruction is to fill:
 * the result for i = 0, else the next operand. Returns NULL for the token table
 * and for the 8-bit form of the first operand, because these are not operands
 * of the call. If the kernel updates its result, the caller also adds the
 * result as the first operand. */
static struct cpu_tensor *place(struct cpu_call *c, const struct insn_kernel *k,
                                const struct prog_tensor *t, int i)
{
    if (i == 0)
        return &c->out;
    if (kernel_arg_is_token_table(k->kernel, i) ||
        (k->arg[i].tensor >= 0 && t[k->arg[i].tensor].q8))
        return NULL;
    return &c->in[c->n_in++];
}

void cpu_image_kernel(const struct cpu_image *m, const struct insn *st,
                      void *scratch, int ith, int nth,
                      struct cpu_steal_counter *taken)
{
    static const struct cpu_tensor absent;
    const struct insn_kernel *k = &st->kernel;
    /* The cache or state that the kernel accesses. The token table has a page
     * table for each pool, and this tensor's pool selects one of them. */
    const struct prog_tensor *memory = NULL;
    struct token_table table;
    struct cpu_call c;

    fill(&c, k);
    for (int i = 0; i < k->n_arg; i++) {
        struct cpu_tensor *to = place(&c, k, m->prog->tensor, i);

        if (kernel_arg_is_memory(k->kernel, i))
            memory = &m->prog->tensor[k->arg[i].tensor];
        if (to) {
            *to = k->arg[i].tensor >= 0 ? m->tensor[k->arg[i].tensor] : absent;
        } else if (kernel_arg_is_token_table(k->kernel, i)) {
            table = cpu_image_token_table(m, st, k->arg[i].tensor, memory);
            c.table = &table;
        } else {
            c.q8 = m->tensor[k->arg[i].tensor].data;
        }
        if (i == 0 && k->arg[0].access == ACCESS_UPDATE)
            c.in[c.n_in++] = c.out;
    }
    for (int i = c.n_in; i < GRAPH_MAX_IN; i++)
        c.in[i] = (struct cpu_tensor){0};
    c.scratch = scratch;
    c.ith = ith;
    c.nth = nth;
    c.taken = taken;
    c.scratch_stride = m->scratch_stride;
    cpu_entry_of(m->kernels, k->kernel, c.attr)->run(&c);
}

void cpu_image_insn(const struct cpu_image *m, const struct insn *st,
                    void *scratch, int ith, int nth,
                    struct cpu_steal_counter *taken)
{
    switch (st->kind) {
    case INSN_KERNEL:
        cpu_image_kernel(m, st, scratch, ith, nth, taken);
        break;
    case INSN_MERGE:
        cpu_image_merge(m, st, scratch, ith, nth);
        break;
    case INSN_PULL:
        for (int i = 0; i < st->pull.n_piece; i++)
            cpu_image_transfer(m, st, i, ith, nth);
        break;
    case INSN_PUSH:
        for (int i = 0; i < st->push.n_to; i++)
            cpu_image_transfer(m, st, i, ith, nth);
        break;
    case INSN_PAGES:
        cpu_image_pages(m, st, ith, nth);
        break;
    case INSN_POST:
    case INSN_WAIT:
        break;
    }
}

void cpu_image_count(const struct cpu_image *m, struct device *d,
                     const struct insn *st)
{
    int64_t rows = 0;
    double bytes = 0;

    if (st->kind == INSN_KERNEL && st->kernel.n_cost > 0) {
        const struct cpu_tensor *out = &m->tensor[st->kernel.arg[0].tensor];

        rows = count(out, kernel_cost_dims(st->kernel.kernel, out->n_dim));
    }
    if (insn_is_group_copy(st))
        bytes = cpu_image_copy_bytes(m, st);
    device_count(d, st, &m->sizes[st->micro], rows, bytes);
}

/* ---- scratch sizes ----------------------------------------------------- */

/* Returns the scratch size in bytes that each thread needs for the instruction.
 * This is the largest size for any number of threads from `least` to `most`
 * that execute it together. */
static size_t kernel_scratch(const struct cpu_kernels *table,
                             const struct program *p, const struct insn *st,
                             int least, int most)
{
    const struct insn_kernel *k = &st->kernel;
    const struct cpu_entry *entry;
    struct cpu_call c = {.nth = least};
    size_t bytes = 0;

    if (st->kind != INSN_KERNEL)
        return 0;
    fill(&c, k);
    entry = cpu_entry_of(table, k->kernel, c.attr);
    if (!entry->scratch)
        return 0;
    for (int i = 0; i < k->n_arg; i++) {
        struct cpu_tensor *to = place(&c, k, p->tensor, i);

        if (to && k->arg[i].tensor >= 0)
            resolve(to, &p->tensor[k->arg[i].tensor], &p->max);
        if (i == 0 && k->arg[0].access == ACCESS_UPDATE)
            c.in[c.n_in++] = c.out;
    }
    for (; c.nth <= most; c.nth++) {
        size_t n = entry->scratch(&c);

        bytes = n > bytes ? n : bytes;
    }
    return bytes;
}

static size_t scratch(const struct cpu_kernels *k, const struct program *p,
                      int least, int most)
{
    size_t bytes = 0;

    for (int i = 0; i < p->n_variant; i++)
        for (int j = 0; j < p->variant[i].n_insn; j++) {
            const struct insn *st = &p->variant[i].insn[j];
            size_t n = st->kind == INSN_MERGE
                           ? cpu_merge_scratch(st)
                           : kernel_scratch(k, p, st, least, most);

            bytes = n > bytes ? n : bytes;
        }
    return (bytes + 127) / 128 * 128;
}

enum packing cpu_image_packing(const struct device_desc *d, pl_format f,
                               enum weight_use use)
{
    (void)d;
    return use == USE_CONTRACTION ||
                   (use == USE_LOOKUP && format_info(f)->block > 1)
               ? PACKING_PACKED
               : PACKING_ROWS;
}

enum activations cpu_image_activations(const struct device_desc *d,
                                       const struct device_options *opt,
                                       pl_format f)
{
    const struct cpu_kernels k = {
        .float_activations = opt->kernels
                                 ? opt->kernels->float_activations
                                 : kernel_set_is_float(opt->kernel_set)};

    (void)d;
    return cpu_wants_q8(&k, KERNEL_matmul, f) ? ACTIVATIONS_Q8
                                              : ACTIVATIONS_F32;
}

/* Returns true if the weight of a matrix product k is packed, and its
 * activations are quantized to 8 bits exactly if the kernel set reads them
 * so. */
static bool reads_forms(const struct device_desc *d,
                        const struct device_options *opt,
                        const struct insn_kernel *k,
                        const struct prog_tensor *t)
{
    const struct prog_tensor *w = &t[k->arg[2].tensor];
    bool q8 = false;

    for (int i = 0; i < k->n_arg; i++)
        q8 |= kernel_arg_is_q8(k->kernel, i) && k->arg[i].tensor >= 0;
    return w->pack &&
           q8 == (cpu_image_activations(d, opt, w->format) == ACTIVATIONS_Q8);
}

bool cpu_image_has_kernel(const struct device_desc *d,
                          const struct device_options *opt,
                          const struct insn_kernel *k,
                          const struct prog_tensor *t)
{
    struct cpu_kernels table;

    cpu_kernels_choose(&table, opt);
    if (insn_kernel_is_bf16(k) && !kernel_set_has_bf16(table.kernel_set))
        return false;
    return cpu_entry_of(&table, k->kernel, k->attr)->run != NULL &&
           (!kernel_is_contraction(k->kernel) || reads_forms(d, opt, k, t));
}

size_t cpu_image_scratch(const struct cpu_kernels *k, const struct program *p,
                         int nth)
{
    return scratch(k, p, nth, nth);
}

size_t cpu_image_parts_scratch(const struct device_options *opt,
                               const struct program *p)
{
    struct cpu_kernels table;

    cpu_kernels_choose(&table, opt);
    return scratch(&table, p, 1, CPU_PARTS);
}
