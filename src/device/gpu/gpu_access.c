/* Tensors and scratch as ranges of bytes of numbered memories. */
#include "device/gpu/gpu_access.h"

#include <stdlib.h>

#include "device/gpu/gpu_image.h"

struct looking {
    struct gpu_access_set *to;
    const struct gpu_image *m;
};

static void put(struct gpu_access_set *t, struct gpu_access u)
{
    if (t->n == t->n_max) {
        int n = t->n_max * 2 + 64;
        void *more = realloc(t->touch, (size_t)n * sizeof *t->touch);

        if (!more) {
            t->no_memory = true;
            return;
        }
        t->touch = more;
        t->n_max = n;
    }
    t->touch[t->n++] = u;
}

static void look(void *user, const struct insn_access *u)
{
    const struct looking *l = user;
    const struct prog_tensor *of =
        &device_of(l->m->set, u->dev)->prog->tensor[u->tensor];
    size_t from = of->offset + u->off;

    put(l->to, (struct gpu_access){
                   .memory = u->dev * (REGION_COUNT + 1) + (int)of->region,
                   .from = from,
                   .to = from + (u->bytes ? u->bytes : of->bytes),
                   .writes = u->access != ACCESS_READ});
}

void gpu_touches_add(struct gpu_access_set *t, const struct gpu_image *m,
                     const struct insn *st)
{
    const struct program *p = m->prog;
    size_t scratch = gpu_image_insn_scratch(m, st);
    struct looking l = {t, m};

    insn_accesses(st, p->dev, p->tensor, look, &l);
    if (scratch > 0)
        put(t, (struct gpu_access){.memory = p->dev * (REGION_COUNT + 1) +
                                             REGION_COUNT,
                                   .from = 0,
                                   .to = scratch,
                                   .writes = true});
}

void gpu_touches_free(struct gpu_access_set *t)
{
    free(t->touch);
    *t = (struct gpu_access_set){0};
}
