/* Lists the tensors that an instruction accesses. Live ranges, barriers, memory
 * guards and checks use this list. */
#include "program/program.h"

const char *region_name(enum region r)
{
    static const char *const name[REGION_COUNT] = {
        [REGION_WEIGHTS] = "weights",
        [REGION_CACHE] = "cache",
        [REGION_WORK] = "buffers",
        [REGION_INBOX] = "inbox",
    };

    return (unsigned)r < REGION_COUNT ? name[r] : "?";
}

static void kernel_uses(const struct insn_kernel *k, int dev,
                        const struct prog_tensor *t, insn_access_fn *fn,
                        void *user)
{
    for (int i = 0; i < k->n_arg; i++) {
        struct insn_access u = {dev, k->arg[i].tensor, 0, 0, k->arg[i].access};

        if (u.tensor < 0)
            continue;
        if (t && i == 0 && k->tree.n_out > 1)
            u.bytes =
                (size_t)(k->tree.n_out - 1) * k->out_stride + t[u.tensor].bytes;
        fn(user, &u);
    }
}

/* Reports the source tensors of n copies to `fn`. Consecutive copies from the
 * same tensor are reported once. */
static void piece_uses(const struct copy_desc *p, int n, insn_access_fn *fn,
                       void *user)
{
    for (int i = 0; i < n; i++)
        if (i == 0 || p[i].src_dev != p[i - 1].src_dev ||
            p[i].src != p[i - 1].src)
            fn(user, &(struct insn_access){p[i].src_dev, p[i].src, 0, 0,
                                           ACCESS_READ});
}

static void merge_uses(const struct insn_merge *m, int dev, insn_access_fn *fn,
                       void *user)
{
    for (int i = 0; i < m->n_item; i++) {
        const struct merge_item *it = &m->item[i];

        fn(user, &(struct insn_access){dev, it->out, 0, 0, ACCESS_WRITE});
        if (!it->reduce)
            piece_uses(it->piece, it->n_piece, fn, user);
        for (int k = 0; it->reduce && k < it->n_addend; k++)
            fn(user,
               &(struct insn_access){it->addend[k].dev, it->addend[k].tensor,
                                     it->addend[k].off, 0, ACCESS_READ});
    }
}

void insn_accesses(const struct insn *s, int dev, const struct prog_tensor *t,
                   insn_access_fn *fn, void *user)
{
    switch (s->kind) {
    case INSN_KERNEL:
        kernel_uses(&s->kernel, dev, t, fn, user);
        return;
    case INSN_MERGE:
        merge_uses(&s->merge, dev, fn, user);
        return;
    case INSN_PULL:
        fn(user, &(struct insn_access){dev, s->pull.out, 0, s->pull.out_bytes,
                                       ACCESS_WRITE});
        piece_uses(s->pull.piece, s->pull.n_piece, fn, user);
        return;
    case INSN_PUSH:
        for (int k = 0; k < s->push.n_to; k++)
            fn(user, &(struct insn_access){s->push.to[k].dev, s->push.to[k].out,
                                           0, 0, ACCESS_UPDATE});
        piece_uses(s->push.piece, s->push.n_piece, fn, user);
        return;
    case INSN_PAGES:
        fn(user, &(struct insn_access){s->pages.out_dev, s->pages.out, 0, 0,
                                       ACCESS_UPDATE});
        fn(user, &(struct insn_access){s->pages.src_dev, s->pages.src, 0, 0,
                                       ACCESS_READ});
        fn(user,
           &(struct insn_access){dev, s->pages.token_table, 0, 0, ACCESS_READ});
        return;
    case INSN_POST:
    case INSN_WAIT:
        return;
    }
}
