/* Writes changed copies of GGUF files; edit_model.h describes the function. */
#include "lib/edit_model.h"

#include "gguf/gguf_write.h"
#include "lib/support.h"

#include <stdio.h>
#include <string.h>

struct edit_name {
    char s[96];
};

static const char *full_name(const struct gguf *g, const struct edit *e,
                             struct edit_name *n)
{
    struct gguf_str arch = {"", 0};

    gguf_get_str(g, "general.architecture", &arch, NULL);
    snprintf(n->s, sizeof n->s, "%.*s%s", e->name[0] == '.' ? (int)arch.len : 0,
             arch.s, e->name);
    return n->s;
}

static void put(struct gguf_writer *w, const struct gguf *g,
                const struct edit *e)
{
    struct edit_name n;
    const char *name = full_name(g, e, &n);
    const int64_t dim = (int64_t)e->v;
    uint8_t flags[64];

    switch (e->kind) {
    case EDIT_DROP:
        return;
    case EDIT_INT:
        gguf_put_i64(w, name, (int64_t)e->v);
        return;
    case EDIT_FLOAT:
        gguf_put_f32(w, name, (float)e->v);
        return;
    case EDIT_BOOL:
        gguf_put_bool(w, name, e->v != 0);
        return;
    case EDIT_TEXT:
        gguf_put_str(w, name, e->text);
        return;
    case EDIT_FLAGS:
        for (size_t i = 0; e->text[i]; i++)
            flags[i] = e->text[i] == '1';
        gguf_put_array(w, name, GGUF_BOOL, flags, strlen(e->text));
        return;
    case EDIT_TENSOR:
        gguf_put_tensor_hole(w, name, PL_F32, 1, &dim);
        return;
    }
}

static bool is_replaced(const struct gguf *g, const char *key,
                        const struct edit *edits, int n)
{
    struct edit_name name;

    for (int i = 0; i < n; i++)
        if (!strcmp(full_name(g, &edits[i], &name), key))
            return true;
    return false;
}

const char *edit_model(const char *path, bool hollow, const struct edit *edits,
                       int n)
{
    const char *to = test_temp("edited.gguf");
    struct gguf_writer *w;
    struct gguf *g;
    pl_err err;

    TEST_OK(gguf_open(&g, path, &err), err);
    TEST_OK(gguf_writer_create(&w, &err), err);
    for (int64_t i = 0; i < gguf_n_kv(g); i++)
        if (!is_replaced(g, gguf_kv_at(g, i)->key, edits, n))
            gguf_put_kv(w, gguf_kv_at(g, i));
    for (int i = 0; i < n; i++)
        put(w, g, &edits[i]);
    for (int64_t i = 0; i < gguf_n_tensor(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        if (is_replaced(g, t->name, edits, n))
            continue;
        if (hollow && t->n_dim > 1)
            gguf_put_tensor_hole(w, t->name, t->format, t->n_dim, t->dim);
        else
            gguf_put_tensor(w, t->name, t->format, t->n_dim, t->dim, t->data);
    }
    TEST_OK(gguf_writer_save(w, to, &err), err);
    gguf_writer_free(w);
    gguf_close(g);
    return to;
}
