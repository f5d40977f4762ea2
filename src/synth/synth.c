/* Synthetic models: their types, keys and tensors. A model's tensors are those
 * that the graph of its family needs. */
#include "synth/synth.h"

#include "base/ascii.h"
#include "base/err.h"
#include "graph/graph.h"
#include "model/model.h"
#include "quant/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Types in which not all matrices have the same format. */
static const struct synth_type mixed[] = {
    {"q4_k_m", PL_Q4_K, PL_Q6_K, PL_Q6_K},
    {"q5_k_m", PL_Q5_K, PL_Q6_K, PL_Q6_K},
};
enum { N_MIXED = sizeof mixed / sizeof mixed[0] };

/* Appends `name` to the comma-separated list in `buf`, whose size is `size`
 * bytes. */
static void list(char *buf, size_t size, const char *name)
{
    size_t n = strlen(buf);

    snprintf(buf + n, size - n, "%s%s", n ? ", " : "", name);
}

/* Appends the name of shape `s` to the list, or if the shape `last` before it
 * has the same family, its size alone: "glm4-9b/32b". */
static void list_shape(char *buf, size_t size, const struct synth_shape *s,
                       const struct synth_shape *last)
{
    const char *own = strrchr(s->name, '-');
    const size_t n = strlen(buf), len = own ? (size_t)(own - s->name) + 1 : 0;

    if (!last || len == 0 || strncmp(s->name, last->name, len) != 0)
        list(buf, size, s->name);
    else
        snprintf(buf + n, size - n, "/%s", own + 1);
}

const struct synth_shape *synth_shape(const char *name, pl_err *err)
{
    char all[950] = "", given[ERR_SHOWN];
    const struct synth_shape *s, *last = NULL;

    for (int i = 0; (s = synth_shape_at(i)); i++) {
        if (name && strcmp(name, s->name) == 0)
            return s;
        if (strcmp(s->name, "tiny") != 0)
            list_shape(all, sizeof all, s, last);
        last = s;
    }
    if (!name)
        name = "";
    err_set(err, PL_BAD_ARGUMENT,
            "unknown shape \"%s\"; known (a/b: a, and b in place of its size) "
            "are %s",
            err_shown(given, name, strlen(name)), all);
    return NULL;
}

pl_status synth_type(struct synth_type *t, const char *name, pl_err *err)
{
    char all[300] = "", given[ERR_SHOWN], low[16];
    pl_format f = format_from_name(name ? name : "");

    for (int i = 0; name && i < N_MIXED; i++)
        if (ascii_same(name, mixed[i].name)) {
            *t = mixed[i];
            return PL_OK;
        }
    if (f < PL_FORMAT_COUNT && format_info(f)->pack) {
        bool keeps = format_info(f)->block == 1 || f == PL_Q8_0;

        *t = (struct synth_type){format_info(f)->name, f, f,
                                 keeps ? f : PL_Q6_K};
        return PL_OK;
    }
    for (int i = 0; i < N_MIXED; i++)
        list(all, sizeof all, mixed[i].name);
    for (int i = 0; i < PL_FORMAT_COUNT; i++) {
        size_t n = 0;

        for (const char *s = format_info((pl_format)i)->name; *s; s++)
            low[n++] = (char)ascii_lower(*s);
        low[n] = 0;
        if (format_info((pl_format)i)->pack)
            list(all, sizeof all, low);
    }
    if (!name)
        name = "";
    return err_set(err, PL_BAD_ARGUMENT, "unknown type \"%s\"; known are %s",
                   err_shown(given, name, strlen(name)), all);
}

/* The norms of queries and keys, which some of the families given by sizes
 * have. */
#define QK_NORMS "attn_q_norm.weight attn_k_norm.weight"

/* ---- adding the tensors of a model --------------------------------------- */

struct writer {
    struct gguf_writer *w; /* receives the tensors; NULL if only their total
                              size is computed */
    bool hole;
    int64_t n_expert;
    struct filled *filled; /* [n] one generator of random values per tensor,
                              needed until the file is saved */
    int n;
    const struct synth_watch *watch;
    uint64_t done, total; /* bytes of weights written so far, and in all */
};

struct filled {
    struct synth_fill fill;
    struct writer *w;
};

static bool fill(void *user, int64_t row, void *dst, size_t bytes)
{
    struct filled *f = user;
    struct writer *w = f->w;
    uint64_t before = w->done;

    (void)row;
    synth_fill_row(&f->fill, dst, bytes);
    w->done += bytes;
    if (before >> 20 != w->done >> 20 && w->watch && w->watch->progress)
        w->watch->progress(w->watch->user, "writing random weights", w->done,
                           w->total);
    return !(w->watch && w->watch->cancel && *w->watch->cancel);
}

/* Returns f, or if rows of this width are not whole blocks of it, a format of
 * at least as many bits with blocks of 32, as llama.cpp chooses it, or F32. */
static pl_format format_of_rows(pl_format f, int64_t width)
{
    if (width % format_info(f)->block == 0)
        return f;
    f = f == PL_Q2_K || f == PL_Q3_K ? PL_Q4_0
        : f == PL_Q4_K               ? PL_Q5_0
        : f == PL_Q5_K               ? PL_Q5_1
                                     : PL_Q8_0;
    return width % format_info(f)->block ? PL_F32 : f;
}

/* Adds a tensor with random values, of the format f if its rows allow. */
static void tensor(struct writer *w, const char *name, pl_format f, int n_dim,
                   const int64_t *dim)
{
    struct filled *x;
    int64_t n_row = 1, width = dim[n_dim - 1];

    f = format_of_rows(f, width);
    for (int i = 0; i < n_dim - 1; i++)
        n_row *= dim[i];
    w->total += (uint64_t)n_row * format_row_bytes(f, width);
    if (!w->w)
        return;
    if (w->hole) {
        gguf_put_tensor_hole(w->w, name, f, n_dim, dim);
        return;
    }
    x = &w->filled[w->n++];
    x->w = w;
    if (f == PL_I32)
        synth_fill_experts(&x->fill, w->n_expert, (uint64_t)w->n);
    else if ((n_dim == 1 || width == 1) && strstr(name, "ssm_a"))
        synth_fill_decay(&x->fill, (uint64_t)w->n);
    else if (n_dim == 1 || width == 1)
        synth_fill_norm(&x->fill, (uint64_t)w->n);
    else /* With this root mean square, a product's results are about as large
            as its inputs. */
        synth_fill_init(&x->fill, f, 1 / sqrt((double)width), (uint64_t)w->n);
    gguf_put_tensor_fill(w->w, name, f, n_dim, dim, fill, x);
}

/* Returns true if some matrices of layer i, of n layers, get the format with
 * more bits. As in llama.cpp, these are the first and the last eighth of the
 * layers, and every third layer between them. */
static bool more_bits(int64_t i, int64_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/* Returns true if matrices of this role have the format of the type. */
static bool is_of_type(const struct graph_node *n)
{
    static const pl_role others[] = {
        PL_ROLE_NONE,     PL_ROLE_NORM,  PL_ROLE_ROUTER,     PL_ROLE_CONV,
        PL_ROLE_SSM_CONV, PL_ROLE_SCALE, PL_ROLE_ROUTER_BIAS};

    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (n->role == others[i])
            return false;
    return n->n_dim > 1 && n->dim[n->n_dim - 1].n > 1;
}

/* Adds the weights of the graph `g`. */
static void tensors(struct writer *w, const pl_graph *g,
                    const struct synth_type *t)
{
    bool tied = true;
    int64_t n_layer = 0;

    for (int i = 0; i < g->n_node; i++) {
        tied &= g->node[i].role != PL_ROLE_OUTPUT;
        n_layer = g->node[i].layer >= n_layer ? g->node[i].layer + 1 : n_layer;
        if (g->node[i].role == PL_ROLE_FFN_DOWN_EXPS)
            w->n_expert = g->node[i].dim[0].n;
    }
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];
        int64_t dim[GRAPH_MAX_DIM];
        pl_format f = t->most;

        if (n->op != OP_weight)
            continue;
        for (int k = 0; k < n->n_dim; k++)
            dim[k] = n->dim[k].n;
        if (n->role == PL_ROLE_EXPERT_IDS)
            f = PL_I32;
        else if (!is_of_type(n))
            f = PL_F32;
        else if (n->role == PL_ROLE_OUTPUT ||
                 (tied && n->role == PL_ROLE_TOKEN_EMBD))
            f = t->output;
        else if ((n->role == PL_ROLE_ATTN_V || n->role == PL_ROLE_FFN_DOWN ||
                  n->role == PL_ROLE_FFN_DOWN_EXPS) &&
                 more_bits(n->layer, n_layer))
            f = t->some;
        tensor(w, n->name, f, n->n_dim, dim);
    }
}

/* ---- the keys ------------------------------------------------------------ */

static void put_array(struct gguf_writer *w, const char *arch,
                      const struct synth_array *a)
{
    enum { MOST = 128 };
    const size_t n = strnlen(a->layers, MOST);
    int32_t v[MOST];
    char key[96];

    for (size_t i = 0; i < n; i++)
        v[i] = a->layers[i] == a->letter  ? (int32_t)a->value
               : a->layers[i] == a->other ? (int32_t)a->other_value
                                          : 0;
    snprintf(key, sizeof key, "%s.%s", arch, a->key);
    gguf_put_array(w, key, GGUF_I32, v, n);
}

/* Writes the keys of a shape that is given by sizes to buf. */
static void keys_of_sizes(const struct synth_shape *s, char *buf, size_t size)
{
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {
        {"context_length", 32768},
        {"embedding_length", s->d_model},
        {"block_count", s->n_layer},
        {"feed_forward_length", s->d_ff},
        {"attention.head_count", s->n_head},
        {"attention.head_count_kv", s->n_head_kv},
        {"attention.key_length", s->d_head},
        {"attention.value_length", s->d_head},
        {"rope.dimension_count", s->d_head},
        {"expert_count", s->n_expert},
        {"expert_used_count", s->n_used},
        {"expert_feed_forward_length", s->n_expert ? s->d_ff : 0},
    };
    size_t n = (size_t)snprintf(buf, size,
                                ".attention.layer_norm_rms_epsilon=float:1e-6,"
                                ".rope.freq_base=float:1e6");

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].value > 0)
            n += (size_t)snprintf(buf + n, size - n, ",.%s=int:%" PRId64,
                                  rows[i].key, rows[i].value);
}

/* The keys of a shape as a file in memory without tensors, and the graph of the
 * weights that such a model needs. */
struct plan {
    char *bytes;
    struct gguf *keys;
    pl_graph *g;
};

static void plan_free(struct plan *p)
{
    pl_graph_free(p->g);
    gguf_close(p->keys);
    free(p->bytes);
}

static pl_status plan_make(struct plan *p, const struct synth_shape *s,
                           pl_err *err)
{
    const char *optional = s->optional ? s->optional : "";
    char sizes[1024], vocab[64];
    const char *texts[] = {s->keys ? s->keys : sizes, vocab};
    struct gguf_writer *w;
    size_t n;
    pl_status status;

    *p = (struct plan){0};
    PL_TRY(gguf_writer_create(&w, err));
    gguf_put_str(w, "general.architecture", s->arch);
    gguf_put_str(w, "general.name", s->name);
    for (int i = 0; i < s->n_array; i++)
        put_array(w, s->arch, &s->array[i]);
    status = gguf_writer_bytes(w, &p->bytes, &n, err);
    gguf_writer_free(w);
    if (status != PL_OK)
        return status;
    keys_of_sizes(s, sizes, sizeof sizes);
    snprintf(vocab, sizeof vocab, ".vocab_size=int:%" PRId64, s->n_vocab);
    if (!s->keys)
        optional = s->tied ? QK_NORMS : QK_NORMS " output.weight";
    status = gguf_open_memory(&p->keys, p->bytes, n, s->name, err);
    if (status == PL_OK)
        status = gguf_override(p->keys, texts, 2, err);
    if (status == PL_OK)
        status = model_weights(&p->g, p->keys, optional, err);
    if (status != PL_OK)
        plan_free(p);
    return status;
}

/* Copies the keys. Whole numbers have 32 bits, as converters write them. */
static void put_keys(struct gguf_writer *w, const struct gguf *keys)
{
    for (int64_t i = 0; i < gguf_n_kv(keys); i++) {
        const struct gguf_kv *kv = gguf_kv_at(keys, i);
        int64_t v;

        if (kv->type == GGUF_I64 && gguf_as_i64(kv, 0, &v))
            gguf_put_u32(w, kv->key, (uint32_t)v);
        else
            gguf_put_kv(w, kv);
    }
}

/* ---- writing the file ---------------------------------------------------- */

pl_status synth_bytes(const struct synth_shape *s, const struct synth_type *t,
                      uint64_t *bytes, pl_err *err)
{
    struct writer w = {.watch = NULL};
    struct plan p;

    *bytes = 0;
    PL_TRY(plan_make(&p, s, err));
    tensors(&w, p.g, t);
    plan_free(&p);
    *bytes = w.total;
    return PL_OK;
}

pl_status synth_save(const struct synth_shape *s, const struct synth_type *t,
                     const char *path, bool hole,
                     const struct synth_watch *watch, pl_err *err)
{
    struct writer w = {.hole = hole, .watch = watch};
    struct plan p;
    pl_status status;

    PL_TRY(plan_make(&p, s, err));
    w.filled = calloc((size_t)p.g->n_node, sizeof *w.filled);
    status = w.filled ? gguf_writer_create(&w.w, err)
                      : err_no_memory(err, "a synthetic model");
    if (status == PL_OK) {
        put_keys(w.w, p.keys);
        tensors(&w, p.g, t);
        if (hole)
            gguf_put_str(w.w, "tokenizer.ggml.model", "none");
        else
            status = synth_words(w.w, s->n_vocab, err);
    }
    if (status == PL_OK)
        status = gguf_writer_save(w.w, path, err);
    gguf_writer_free(w.w);
    free(w.filled);
    plan_free(&p);
    return status;
}

/* ---- public functions, declared in pl.h ---------------------------------- */

pl_status pl_synth_size(const char *shape, const char *type, uint64_t *bytes,
                        pl_err *err)
{
    const struct synth_shape *s;
    struct synth_type t;

    PL_CLEAR(bytes);
    PL_NEED(shape, err);
    PL_NEED(type, err);
    PL_NEED(bytes, err);
    s = synth_shape(shape, err);
    if (!s)
        return PL_BAD_ARGUMENT;
    PL_TRY(synth_type(&t, type, err));
    return synth_bytes(s, &t, bytes, err);
}

pl_status pl_synth_save(const char *shape, const char *type, const char *path,
                        pl_progress_fn *progress, void *user,
                        const volatile int *cancel, pl_err *err)
{
    const struct synth_watch watch = {progress, user, cancel};
    const struct synth_shape *s;
    struct synth_type t;

    PL_NEED(shape, err);
    PL_NEED(type, err);
    PL_NEED(path, err);
    s = synth_shape(shape, err);
    if (!s)
        return PL_BAD_ARGUMENT;
    PL_TRY(synth_type(&t, type, err));
    return synth_save(s, &t, path, false, &watch, err);
}
