/* Decompresses the PTX for a device, and extracts the PTX of one kernel.
 * Devices of capability 9.0 and later use the PTX for 8.0. Code that only 9.0
 * supports is in comments whose text begins and ends with "90"; uncover() makes
 * it code. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "device/gpu/driver_stream.h"
#include "device/gpu/gpu_ptx.h"
#include "device/gpu/gpu_text.h"

static const char what[] = "the source of the CUDA kernels";

/* Returns the PTX of the highest level that a device of capability `level` can
 * run, or NULL. */
static const struct gpu_ptx_level *level_of(int level)
{
    for (const struct gpu_ptx_level *l = gpu_ptx_level; l->level; l++)
        if (l->level <= level)
            return l;
    return NULL;
}

bool cuda_has_text(int level)
{
    return level_of(level) != NULL;
}

/* Turns PTX for capability 8.0 into PTX for 9.0, in place: removes the comment
 * marks around code for 9.0, and raises the target. */
static void uncover(char *text)
{
    static const struct {
        const char *from, *to;
    } edit[] = {{"/*90 ", "     "},
                {" 90*/", "     "},
                {".target sm_80", ".target sm_90"}};

    for (size_t i = 0; i < sizeof edit / sizeof *edit; i++)
        for (char *p = text; (p = strstr(p, edit[i].from)) != NULL;)
            memcpy(p, edit[i].to, strlen(edit[i].from));
}

pl_status cuda_text_init(struct cuda_text *t, int level, pl_err *err)
{
    const struct gpu_ptx_level *l = level_of(level);
    char *ptx = malloc(l->from + l->n + 1);
    pl_status s;

    *t = (struct cuda_text){0};
    if (!ptx)
        return err_no_memory(err, what);
    s = xz_unpack(&gpu_ptx, ptx, l->from + l->n);
    if (s != PL_OK) {
        free(ptx);
        return s == PL_NO_MEMORY ? err_no_memory(err, what)
                                 : gpu_text_damaged(err);
    }
    memmove(ptx, ptx + l->from, l->n);
    ptx[l->n] = '\0';
    if (level >= CUDA_OVERLAPS)
        uncover(ptx);
    t->ptx = ptx;
    return PL_OK;
}

void cuda_text_fini(struct cuda_text *t)
{
    free(t->ptx);
    *t = (struct cuda_text){0};
}

struct part {
    /* first character of the part; NULL if the text lacks the part */
    const char *at;
    size_t n;
};

/* Returns the part of `text` from the start of the string `from` to the end of
 * the next string `to`. If one is missing, the part's address is NULL. */
static struct part part_of(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    const char *end = at ? strstr(at, to) : NULL;

    if (!end)
        return (struct part){0};
    return (struct part){at, (size_t)(end - at) + strlen(to)};
}

pl_status cuda_text_program(const struct cuda_text *t, enum gpu_kernel k,
                            char **out, pl_err *err)
{
    const char *name = gpu_kernel_name(k);
    struct part head = part_of(t->ptx, ".version ", ".address_size 64\n"), body;
    char entry[128];

    *out = NULL;
    snprintf(entry, sizeof entry, "\n.visible .entry %s(\n", name);
    body = part_of(t->ptx, entry, "\n}\n");
    if (!head.at || !body.at)
        return err_set(err, PL_UNSUPPORTED, "no PTX of kernel %s; run make ptx",
                       name);
    *out = calloc(1, head.n + body.n + 1);
    if (!*out)
        return err_no_memory(err, what);
    memcpy(*out, head.at, head.n);
    memcpy(*out + head.n, body.at, body.n);
    return PL_OK;
}
