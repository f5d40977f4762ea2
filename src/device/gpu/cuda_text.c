/* The kernels' text for a device: what is packed in the library, unpacked. What
 * devices of capability 9.0 know beyond those of 8.0 stands there in comments
 * that begin with "90" and end with it, so that one text is of both. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/inflate.h"
#include "device/gpu/driver_stream.h"
#include "device/gpu/gpu_ptx.h"

bool cuda_has_text(int level)
{
    return level >= gpu_ptx[0].level;
}

/* Of each comment of that kind its code; none gets longer. */
static void uncover(char *text, size_t n)
{
    static const struct {
        const char *from, *to;
    } edit[] = {{"/*90 ", "     "},
                {" 90*/", "     "},
                {".target sm_80", ".target sm_90"}};

    for (char *at = text; at < text + n; at += strlen(at) + 1)
        for (size_t i = 0; i < sizeof edit / sizeof *edit; i++)
            for (char *p = at; (p = strstr(p, edit[i].from)) != NULL;)
                memcpy(p, edit[i].to, strlen(edit[i].from));
}

/* Programs by kernel, from names and programs in turn. */
static void sort(struct cuda_text *t, const char *text, size_t n)
{
    for (const char *at = text; at < text + n;) {
        const char *name = at, *program = name + strlen(name) + 1;

        for (int k = 0; k < GPU_KERNEL_COUNT; k++)
            if (strcmp(gpu_kernel_name((enum gpu_kernel)k), name) == 0)
                t->program[k] = program;
        at = program + strlen(program) + 1;
    }
}

static pl_status take(struct cuda_text *t, int level, pl_err *err)
{
    for (int i = 0; gpu_ptx[i].packed && gpu_ptx[i].level <= level; i++) {
        const struct gpu_ptx *p = &gpu_ptx[i];

        t->held[i] = malloc(p->n + 1);
        if (!t->held[i])
            return err_no_memory(err, "the text of CUDA's kernels");
        t->held[i][p->n] = '\0';
        if (!inflate_all(p->packed, p->n_packed, t->held[i], p->n))
            return err_set(err, PL_DEVICE,
                           "the library's text of CUDA's kernels is damaged: "
                           "install it again");
        if (level >= CUDA_OVERLAPS && p->level >= 80)
            uncover(t->held[i], p->n);
        sort(t, t->held[i], p->n);
    }
    for (int k = 0; k < GPU_KERNEL_COUNT; k++)
        if (!t->program[k])
            return err_set(err, PL_UNSUPPORTED,
                           "there is no PTX of kernel %s: make ptx",
                           gpu_kernel_name((enum gpu_kernel)k));
    return PL_OK;
}

pl_status cuda_text_init(struct cuda_text *t, int level, pl_err *err)
{
    pl_status s;

    *t = (struct cuda_text){0};
    s = take(t, level, err);
    if (s != PL_OK)
        cuda_text_fini(t);
    return s;
}

void cuda_text_fini(struct cuda_text *t)
{
    for (size_t i = 0; i < sizeof t->held / sizeof *t->held; i++)
        free(t->held[i]);
    *t = (struct cuda_text){0};
}
