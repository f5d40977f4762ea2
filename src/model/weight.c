/* Looks up weights by name in the file, compares their shapes with the metadata
 * keys and enters them into the graph as leaves. Reads the values of a few of
 * them. */
#include "model/blocks.h"

#include "base/err.h"
#include "graph/graph.h"
#include "graph/shape.h"
#include "model/params.h"
#include "quant/format.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A full name of a tensor, such as "blk.3.ffn_down.weight". */
struct name {
    char s[96];
};

/* Appends `s` to a name of *len characters, as far as it has space. printf
 * would take a tenth of the time of a plan. */
static void append(struct name *n, size_t *len, const char *s)
{
    while (*s && *len < sizeof n->s - 1)
        n->s[(*len)++] = *s++;
    n->s[*len] = '\0';
}

static const char *full_name(const struct build *b, const char *base,
                             const char *suffix, struct name *n)
{
    size_t len = 0;

    append(n, &len, b->prefix);
    append(n, &len, base);
    append(n, &len, suffix ? "." : "");
    append(n, &len, suffix ? suffix : "");
    return n->s;
}

/* Returns true if `name` is one of the optional tensors of a file to be made,
 * and sets *rows to the rows that the list gives for it, 0 if none. */
static bool is_made(const struct model *m, const char *name, int64_t *rows)
{
    const char *list = m->made ? m->made : "", *base = name;
    int cut = 0;

    *rows = 0;
    (void)sscanf(name, "blk.%*[0-9].%n", &cut);
    base += cut;
    for (size_t n; *list; list += n + (list[n] == ' ')) {
        size_t len = strcspn(list, " =");

        n = strcspn(list, " ");
        if (len != strlen(base) || strncmp(list, base, len) != 0)
            continue;
        *rows = list[len] == '=' ? strtoll(list + len + 1, NULL, 10) : 0;
        return true;
    }
    return false;
}

bool model_has_tensor(const struct model *m, const char *name)
{
    int64_t rows;

    return m->made ? is_made(m, name, &rows)
                   : gguf_find_tensor(m->file, name) != NULL;
}

/* Writes a shape as "[64, 88]" to buf and returns buf. */
static const char *shape_text(int n_dim, const int64_t *dim, char buf[96])
{
    int used = 0;

    for (int i = 0; i < n_dim; i++)
        used += snprintf(buf + used, 96 - (size_t)used, "%s%" PRId64,
                         i ? ", " : "[", dim[i]);
    snprintf(buf + used, 96 - (size_t)used, "]");
    return buf;
}

static pl_status missing(struct build *b, const char *name, int n_dim,
                         const int64_t *dim)
{
    char shape[96];

    return err_set(&b->g->err, PL_BAD_FILE,
                   "%s: %s is missing; %s needs it with shape %s, so the file "
                   "is incomplete or of another architecture",
                   gguf_path(b->m->file), name, b->m->family->arch,
                   shape_text(n_dim, dim, shape));
}

/* Checks that the shape of tensor `t` is dim[n_dim]. Ignores outermost
 * dimensions of size 1, because some files omit them and others add them. */
static pl_status compare(struct build *b, const struct gguf_tensor *t,
                         int n_dim, const int64_t *dim,
                         const struct model_dim *want)
{
    static const char *const what[] = {"values per row", "rows", "matrices",
                                       "outer matrices"};
    const char *path = gguf_path(b->m->file);
    char have[96], wanted[96];

    for (int i = 0; i < t->n_dim || i < n_dim; i++) {
        int64_t n = i < t->n_dim ? t->dim[t->n_dim - 1 - i] : 1;
        int64_t expected = i < n_dim ? dim[n_dim - 1 - i] : 1;

        if (n == expected)
            continue;
        if (i >= n_dim)
            return err_set(&b->g->err, PL_BAD_FILE,
                           "%s: %s: shape %s in the file, %s expected; the "
                           "file contradicts its own keys",
                           path, t->name, shape_text(t->n_dim, t->dim, have),
                           shape_text(n_dim, dim, wanted));
        return err_set(&b->g->err, PL_BAD_FILE,
                       "%s: %s: %" PRId64 " %s in the file, %" PRId64
                       " by %s (shape %s in the file, %s expected); the file "
                       "contradicts its own keys",
                       path, t->name, n, n_dim == 1 ? "values" : what[i],
                       expected, want[n_dim - 1 - i].key,
                       shape_text(t->n_dim, t->dim, have),
                       shape_text(n_dim, dim, wanted));
    }
    return PL_OK;
}

/* Checks that kernels can read the format of `t`: F32, F16 or BF16 for a
 * vector, I32 for a table of experts, and any float or block format for a
 * matrix. */
static pl_status check_format(struct build *b, const struct gguf_tensor *t,
                              int n_dim, pl_role role)
{
    const char *path = gguf_path(b->m->file);
    char id[24], known[200] = "";
    pl_format f = t->format;

    if (n_dim == 1) {
        if (f == PL_F32 || f == PL_F16 || f == PL_BF16)
            return PL_OK;
        return err_set(&b->g->err, PL_UNSUPPORTED,
                       "%s: %s is %s; vectors may be F32, F16 or BF16", path,
                       t->name, gguf_format_name(t->id, id));
    }
    if (role == PL_ROLE_EXPERT_IDS && f != PL_I32)
        return err_set(&b->g->err, PL_UNSUPPORTED,
                       "%s: %s is %s; a table of experts must be I32", path,
                       t->name, gguf_format_name(t->id, id));
    if (f != PL_FORMAT_COUNT && (f != PL_I32 || role == PL_ROLE_EXPERT_IDS))
        return PL_OK;
    for (int i = 0; i < PL_FORMAT_COUNT; i++)
        if (i != PL_I32)
            snprintf(known + strlen(known), sizeof known - strlen(known),
                     "%s%s", i ? ", " : "", format_info((pl_format)i)->name);
    return err_set(&b->g->err, PL_UNSUPPORTED,
                   "%s: %s is %s; matrices may be %s", path, t->name,
                   gguf_format_name(t->id, id), known);
}

/* Writes the name of one expert's matrix to *n and returns it, such as
 * "blk.3.ffn_up.5.weight" for expert 5 of "blk.3.ffn_up_exps.weight". Some
 * files have a tensor per expert. Returns "" if `stacked` is not the name of a
 * weight with all experts. */
static const char *expert_name(const char *stacked, int64_t expert,
                               struct name *n)
{
    static const char mark[] = "_exps.";
    const char *at = strstr(stacked, mark);

    n->s[0] = '\0';
    if (at)
        snprintf(n->s, sizeof n->s, "%.*s.%" PRId64 ".%s", (int)(at - stacked),
                 stacked, expert, at + strlen(mark));
    return n->s;
}

/* Returns the matrix of an expert that is a tensor of its own, else NULL. */
static const struct gguf_tensor *
expert_tensor(const struct model *m, const char *stacked, int64_t expert)
{
    struct name n;

    expert_name(stacked, expert, &n);
    return n.s[0] ? gguf_find_tensor(m->file, n.s) : NULL;
}

int64_t model_weight_parts(const struct model *m, const char *name)
{
    if (gguf_find_tensor(m->file, name))
        return 1;
    return expert_tensor(m, name, 0) ? m->n_expert : 0;
}

const struct gguf_tensor *model_weight_part(const struct model *m,
                                            const char *name, int64_t part)
{
    const struct gguf_tensor *t = gguf_find_tensor(m->file, name);

    return t ? t : expert_tensor(m, name, part);
}

/* Checks that the file has the matrices of all experts as single tensors, each
 * with the shape dim[1 .. n_dim-1] and all with the same format. */
static pl_status compare_experts(struct build *b, const char *name, int n_dim,
                                 const int64_t *dim,
                                 const struct model_dim *want)
{
    const struct gguf_tensor *first = model_weight_part(b->m, name, 0);
    struct name n;

    for (int64_t i = 0; i < b->m->n_expert; i++) {
        const struct gguf_tensor *t = model_weight_part(b->m, name, i);
        char have[24], other[24];

        if (!t)
            return missing(b, expert_name(name, i, &n), n_dim - 1, dim + 1);
        PL_TRY(compare(b, t, n_dim - 1, dim + 1, want + 1));
        if (t->id != first->id)
            return err_set(&b->g->err, PL_UNSUPPORTED,
                           "%s: %s is %s, but %s is %s; the experts of a layer "
                           "must have one format; convert the model again",
                           gguf_path(b->m->file), t->name,
                           gguf_format_name(t->id, have), first->name,
                           gguf_format_name(first->id, other));
    }
    return PL_OK;
}

pl_tensor model_weight(struct build *b, const char *base, const char *suffix,
                       pl_role role, bool optional, int n_dim,
                       const struct model_dim *want)
{
    struct name n;
    const char *name = full_name(b, base, suffix, &n);
    const struct gguf_tensor *t;
    int64_t dim[GRAPH_MAX_DIM];
    pl_tensor leaf;
    bool stacked;

    if (b->g->err.status != PL_OK)
        return -1;
    leaf = pl_tensor_find(b->g, name);
    if (leaf >= 0)
        return leaf;
    for (int i = 0; i < n_dim; i++)
        dim[i] = want[i].n;
    if (b->m->made) {
        if (optional && !model_has_tensor(b->m, name))
            return -1;
        return pl_weight(b->g, name,
                         role == PL_ROLE_EXPERT_IDS ? PL_I32 : PL_F32, n_dim,
                         dim, role);
    }
    t = gguf_find_tensor(b->m->file, name);
    stacked = t != NULL;
    if (!stacked)
        t = expert_tensor(b->m, name, 0);
    if (!t) {
        if (!optional)
            missing(b, name, n_dim, dim);
        return -1;
    }
    if ((stacked ? compare(b, t, n_dim, dim, want)
                 : compare_experts(b, name, n_dim, dim, want)) != PL_OK ||
        check_format(b, t, n_dim, role) != PL_OK)
        return -1;
    return pl_weight(b->g, name, t->format, n_dim, dim, role);
}

bool model_has(const struct build *b, const char *base, const char *suffix)
{
    struct name n;

    return model_has_tensor(b->m, full_name(b, base, suffix, &n));
}

int64_t model_rows(const struct build *b, const char *base)
{
    struct name n;
    const char *name = full_name(b, base, "weight", &n);
    const struct gguf_tensor *t = gguf_find_tensor(b->m->file, name);
    int64_t rows;

    if (is_made(b->m, name, &rows))
        return rows;
    return t && t->n_dim >= 2 ? t->dim[t->n_dim - 2] : 0;
}

pl_tensor model_rope_freqs(struct build *b)
{
    const struct model_dim half = {b->m->rope.n_rot / 2,
                                   "rope.dimension_count / 2"};

    return model_weight(b, "rope_freqs", "weight", PL_ROLE_ROPE_FREQS, true, 1,
                        &half);
}

pl_tensor model_scale(struct build *b, const char *base, bool experts,
                      bool *each)
{
    struct name n;
    const struct gguf_tensor *t =
        gguf_find_tensor(b->m->file, full_name(b, base, "scale", &n));
    struct model_dim dim = {1, "the rule of one scale a matrix"};

    *each = false;
    if (!t)
        return -1;
    if (experts && t->dim[t->n_dim - 1] != 1) {
        dim = (struct model_dim){b->m->n_expert, "expert_count"};
        *each = true;
    }
    return model_weight(b, base, "scale", PL_ROLE_SCALE, false, 1, &dim);
}

/* ---- checking values of weights ------------------------------------------ */

/* Ranges of valid values of the weights with certain roles, all of which are
 * vectors. A wrong value in a matrix makes the logits infinite or NaN, which is
 * detected there. A wrong value in one of these vectors may leave the logits
 * finite but meaningless, or make all of them NaN without a hint at the
 * cause. */
static const struct range {
    pl_role role;
    double lo, hi;
} ranges[] = {
    /* Divisors of RoPE's angles. A divisor of 1e30 in effect turns the rotation
     * of a pair off. */
    {PL_ROLE_ROPE_FREQS, 1e-6, 2e30},
    {PL_ROLE_SCALE, -FLT_MAX, FLT_MAX},
    /* Every number except NaN is valid. */
    {PL_ROLE_ROUTER_BIAS, -INFINITY, INFINITY},
};

static const struct range *range_of(pl_role role)
{
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (ranges[i].role == role)
            return &ranges[i];
    return NULL;
}

static pl_status check_values(const struct model *m,
                              const struct gguf_tensor *t,
                              const struct range *r, pl_err *err)
{
    int64_t n = (int64_t)(t->bytes / format_row_bytes(t->format, 1));
    float *v = calloc((size_t)n, sizeof *v);
    char *bytes = malloc(t->bytes);
    pl_status s;

    if (v && bytes)
        s = gguf_read(m->file, t, 0, bytes, t->bytes, err);
    else
        s = err_no_memory(err, "values of a model");
    if (s == PL_OK)
        format_info(t->format)->decode(v, bytes, n);
    for (int64_t i = 0; s == PL_OK && i < n; i++)
        if (!((double)v[i] >= r->lo && (double)v[i] <= r->hi))
            s = err_set(err, PL_BAD_FILE,
                        "%s: %s: value %" PRId64 " is %g, not in %g .. %g; the "
                        "file is damaged",
                        gguf_path(m->file), t->name, i, (double)v[i], r->lo,
                        r->hi);
    free(v);
    free(bytes);
    return s;
}

pl_status model_check_values(const struct model *m, const pl_graph *g,
                             pl_err *err)
{
    const struct range experts = {PL_ROLE_EXPERT_IDS, 0,
                                  (double)(m->n_expert - 1)};

    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *n = &g->node[i];
        const struct range *r = n->op == OP_weight ? range_of(n->role) : NULL;

        if (n->op == OP_weight && n->role == PL_ROLE_EXPERT_IDS)
            r = &experts;
        if (r)
            PL_TRY(check_values(m, gguf_find_tensor(m->file, n->name), r, err));
    }
    return PL_OK;
}
