/* Writes the synthetic models of the benchmarks, each only once; synthetic.h
 * describes the function. */
#include "synthetic.h"

#include "gguf/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

pl_status synthetic_model(const struct synth_shape *s, const char *type,
                          const char *dir, char *path, size_t size, pl_err *err)
{
    struct synth_type t;
    struct stat st;
    pl_status status = synth_type(&t, type, err);

    snprintf(path, size, "%s/%s-%s.gguf", dir, s->name, type);
    if (status != PL_OK || stat(path, &st) == 0)
        return status;
    if (strcmp(dir, SYNTHETIC_DIR) == 0)
        mkdir(dir, 0777);
    return synth_save(s, &t, path, false, NULL, err);
}

/* Copies a row of a tensor; a gguf_fill_fn. */
struct copied {
    const struct gguf *g;
    const struct gguf_tensor *t;
};

static bool copy_row(void *user, int64_t row, void *dst, size_t bytes)
{
    const struct copied *c = user;

    return gguf_read(c->g, c->t, (uint64_t)row * bytes, dst, bytes, NULL) ==
           PL_OK;
}

static bool zeros(void *user, int64_t row, void *dst, size_t bytes)
{
    (void)user;
    (void)row;
    memset(dst, 0, bytes);
    return true;
}

static bool ones(void *user, int64_t row, void *dst, size_t bytes)
{
    float *v = dst;

    (void)user;
    (void)row;
    for (size_t i = 0; i < bytes / sizeof *v; i++)
        v[i] = 1;
    return true;
}

/* Writes the model `g` to a file, with its last layer as such a block. */
static pl_status write_with_block(const struct gguf *g,
                                  const struct synth_shape *s,
                                  struct copied *copied, const char *path,
                                  pl_err *err)
{
    static const char *const norms[] = {"enorm", "hnorm", "shared_head_norm"};
    const int64_t proj[2] = {s->d_model, 2 * s->d_model};
    struct gguf_writer *w;
    char key[64];
    pl_status status;

    status = gguf_writer_create(&w, err);
    if (status != PL_OK)
        return status;
    for (int64_t i = 0; i < gguf_n_kv(g); i++)
        gguf_put_kv(w, gguf_kv_at(g, i));
    snprintf(key, sizeof key, "%s.nextn_predict_layers", s->arch);
    gguf_put_u32(w, key, 1);
    for (int64_t i = 0; i < gguf_n_tensor(g); i++) {
        copied[i] = (struct copied){g, gguf_tensor_at(g, i)};
        gguf_put_tensor_like(w, copied[i].t, copy_row, &copied[i]);
    }
    snprintf(key, sizeof key, "blk.%d.nextn.eh_proj.weight", (int)s->n_layer);
    gguf_put_tensor_fill(w, key, PL_Q8_0, 2, proj, zeros, NULL);
    for (int k = 0; k < 3; k++) {
        snprintf(key, sizeof key, "blk.%d.nextn.%s.weight", (int)s->n_layer,
                 norms[k]);
        gguf_put_tensor_fill(w, key, PL_F32, 1, &s->d_model, ones, NULL);
    }
    status = gguf_writer_save(w, path, err);
    gguf_writer_free(w);
    return status;
}

pl_status synthetic_with_block(const struct synth_shape *s, const char *type,
                               const char *dir, char *path, size_t size,
                               pl_err *err)
{
    struct synth_shape longer = *s;
    char name[64], base[4096];
    struct copied *copied;
    struct stat st;
    struct gguf *g;
    pl_status status;

    snprintf(path, size, "%s/%s-block-%s.gguf", dir, s->name, type);
    if (stat(path, &st) == 0)
        return PL_OK;
    snprintf(name, sizeof name, "%s-longer", s->name);
    longer.name = name;
    longer.n_layer++;
    status = synthetic_model(&longer, type, dir, base, sizeof base, err);
    if (status != PL_OK)
        return status;
    status = gguf_open(&g, base, err);
    if (status == PL_OK) {
        copied = calloc((size_t)gguf_n_tensor(g), sizeof *copied);
        status =
            copied ? write_with_block(g, s, copied, path, err) : PL_NO_MEMORY;
        free(copied);
        gguf_close(g);
    }
    remove(base);
    return status;
}
