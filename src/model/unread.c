/* Classifies the parts of a file that no code has read: keys of the file's
 * family that no code has looked up, and tensors that the graph lacks. Such a
 * key is one of
 *
 *   harmless     it changes no result, whatever its value
 *   decisive     known, and not supported: the file is rejected, unless the
 *                value is the one with which plait computes anyway
 *   unknown      named in a warning
 *
 * A caller may override a decisive key, so it is counted as looked up here. An
 * override of a harmless or unknown key would change nothing, and
 * gguf_check_overrides rejects it, because no code has looked the key up.
 *
 * An unread tensor rejects the file, as in llama.cpp, unless it is harmless. A
 * family that begins to read a key or a tensor needs no change here. */
#include "base/err.h"
#include "base/numeral.h"
#include "graph/graph.h"
#include "model/params.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Maximum number of keys and tensors that the warning names. */
enum { MAX_NAMED = 8 };
struct unknown {
    char text[MAX_NAMED * (ERR_SHOWN + 10)];
    int n;
};

static void add_unknown(struct unknown *u, const char *kind, const char *name)
{
    char shown[ERR_SHOWN];
    size_t used = strlen(u->text);

    if (u->n++ < MAX_NAMED)
        snprintf(u->text + used, sizeof u->text - used, "%s%s %s",
                 used ? ", " : "", kind, err_shown(shown, name, strlen(name)));
}

/* Keys that no code has read --------------------------------------------- */

/* Keys that change no result, whatever their value. A name that ends in a dot
 * stands for all keys that begin with it. */
static const char *const harmless[] = {
    /* Sizes that plait takes from the shapes of the tensors, which are
     * checked. */
    "vocab_size", "feed_forward_length", "expert_count", "expert_used_count",
    "expert_feed_forward_length", "expert_shared_feed_forward_length",
    "expert_shared_count", "leading_dense_block_count", "moe_latent_size",
    /* This key only means something in a file with several expert groups. */
    "expert_group_used_count",
    /* The sections of a head rotate by different positions only for images. */
    "rope.dimension_sections",
    /* rope.scale_linear is the older name of rope.scaling.factor. The original
     * context length is a parameter of YaRN. Code that needs either has looked
     * it up before. */
    "rope.scale_linear", "rope.scaling.original_context_length",
    /* Notes about how the file was made, without an effect on results. */
    "rope.scaling.finetuned", "tensor_data_layout",
    /* Epsilons and groups of other norms. Code that needs the first one has
     * looked it up before. */
    "attention.layer_norm_epsilon", "attention.group_norm_epsilon",
    "attention.group_norm_groups",
    /* These keys only modify another key, which is in the table `decisive`. */
    "attention.temperature_length", "attention.sliding_window_pattern",
    /* Names of the classes that a reranker outputs. */
    "classifier.output_labels",
    /* Parameters for images and sound, which requests here cannot contain. */
    "vision.", "audio.", "mm.", "projector.", "n_deepstack_layers",
    "deepstack_mapping"};

static bool is_harmless(const char *name)
{
    for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++) {
        size_t n = strlen(harmless[i]);

        if (harmless[i][n - 1] == '.' ? !strncmp(name, harmless[i], n)
                                      : !strcmp(name, harmless[i]))
            return true;
    }
    return false;
}

static bool begins(const char *name, const char *with)
{
    return !strncmp(name, with, strlen(with));
}

/* Returns true if the key describes a part that this model does not have:
 * experts, YaRN, or layers with a window. */
static bool is_of_absent_part(const struct model *m, const char *name)
{
    const bool yarn = m->rope.yarn && m->rope.freq_scale != 1;

    return (m->n_expert == 0 && begins(name, "expert_")) ||
           (!yarn && begins(name, "rope.scaling.yarn_")) ||
           (!m->window && strstr(name, "_swa"));
}

/* Returns true if every number in the value of the key is a or b. */
static bool has_only(const struct gguf_kv *kv, double a, double b)
{
    for (uint64_t i = 0; i < kv->count; i++) {
        double v;
        bool is;

        if (gguf_as_bool(kv, i, &is))
            v = is;
        else if (!gguf_as_f64(kv, i, &v))
            return false;
        if (!(fabs(v - a) <= 1e-4 * fabs(a) || fabs(v - b) <= 1e-4 * fabs(b)))
            return false;
    }
    return true;
}

/* Returns the value of the key expert_gating_func that describes this model's
 * router. */
static double gating_number(const struct model *m)
{
    return m->gating == PL_GATING_SOFTMAX         ? 1
           : m->gating == PL_GATING_SIGMOID       ? 2
           : m->gating == PL_GATING_SQRT_SOFTPLUS ? 4
                                                  : 3;
}

static pl_status reject_key(const struct model *m, const struct gguf_kv *kv,
                            double a, double b, pl_err *err)
{
    const bool is_bool = kv->elem == GGUF_BOOL;
    char value[ERR_SHOWN], only[64];

    if (is_bool)
        snprintf(only, sizeof only, "%s", a != 0 ? "true" : "false");
    else if (fabs(a - b) > 0)
        numeral_print(only, sizeof only, "%g or %g", a, b);
    else
        numeral_print(only, sizeof only, "%g", a);
    return err_set(err, PL_UNSUPPORTED,
                   "%s: key %s is %s, which changes the results; for %s only "
                   "%s is supported",
                   gguf_path(m->file), kv->key, gguf_value_text(kv, value),
                   m->family->arch, only);
}

/* Classifies a key that no code has looked up. `name` is the key without the
 * family's prefix. */
static pl_status judge_key(const struct model *m, const struct gguf_kv *kv,
                           const char *name, struct unknown *u, pl_err *err)
{
    const double norm = m->normalise,
                 any_norm = m->gating == PL_GATING_SOFTMAX_SELECTED ? 1 : norm;
    /* For each key, the values a and b (perhaps equal) that describe what plait
     * computes anyway. With any other value the file is rejected. */
    const struct {
        const char *name;
        double a, b;
    } decisive[] = {
        {"attention.causal", 1, 1},
        {"attention.temperature_scale", 0, 0},
        {"attention.max_alibi_bias", 0, 0},
        {"attention.clamp_kqv", 0, 0},
        {"attention.scale", 0, (double)m->query_scale},
        {"attention.output_scale", 0, 1},
        {"attention.value_scale", 0, 1},
        {"attention.shared_kv_layers", 0, 0},
        {"attention.recurrent_layers", 0, 0},
        {"attention.key_length_swa", (double)m->d_key[0], (double)m->d_key[0]},
        {"attention.value_length_swa", (double)m->d_value[0],
         (double)m->d_value[0]},
        {"attn_logit_softcapping", 0, 0},
        {"router_logit_softcapping", 0, 0},
        {"final_logit_softcapping", 0, 0},
        {"logit_scale", 0, 1},
        {"residual_scale", 0, 1},
        {"embedding_scale", 0, 1},
        {"embedding_length_out", 0, (double)m->d_model},
        {"use_parallel_residual", 0, 0},
        {"swiglu_clamp_exp", 0, 0},
        {"swiglu_clamp_shexp", 0, 0},
        {"interleave_moe_layer_step", 0, 1},
        {"moe_every_n_layers", 0, 1},
        {"hash_layer_count", 0, 0},
        {"hyper_connection.count", 0, 1},
        {"expert_group_scale", 0, 1},
        {"expert_gating_func", 0, gating_number(m)},
        {"expert_weights_norm", norm, any_norm},
        {"expert_weights_scale", 0, 1},
        {"rope.dimension_count_swa", m->rope_window.n_rot,
         m->rope_window.n_rot},
        {"rope.scaling.alpha", 0, 1},
        {"rope.scaling.yarn_ext_factor", 1, -1},
        /* Some converters write the factor that YaRN derives from the
         * scaling. */
        {"rope.scaling.yarn_attn_factor", 1,
         1 - 0.1 * log((double)m->rope.freq_scale)},
        {"rope.scaling.yarn_log_multiplier", 0, 0},
        /* Names that Ollama gives to the keys freq_base and freq_base_swa. */
        {"rope.global.freq_base", (double)m->rope.base, (double)m->rope.base},
        {"rope.local.freq_base", (double)m->rope_window.base,
         (double)m->rope_window.base},
    };
    double v;

    if (is_harmless(name) || is_of_absent_part(m, name))
        return PL_OK;
    for (size_t i = 0; i < sizeof decisive / sizeof *decisive; i++) {
        if (strcmp(name, decisive[i].name) != 0)
            continue;
        (void)gguf_find(m->file, kv->key); /* Counts the key as looked up, so
                                              that a caller may override it. */
        return has_only(kv, decisive[i].a, decisive[i].b)
                   ? PL_OK
                   : reject_key(m, kv, decisive[i].a, decisive[i].b, err);
    }
    /* A window as wide as the context, or wider, excludes no position. */
    if (!strcmp(name, "attention.sliding_window") && gguf_as_f64(kv, 0, &v) &&
        (v <= 0 || v >= (double)m->n_ctx_train))
        return PL_OK;
    if (!kv->overridden)
        add_unknown(u, "key", kv->key);
    return PL_OK;
}

static pl_status judge_keys(const struct model *m, struct unknown *u,
                            pl_err *err)
{
    const size_t n = strlen(m->family->arch);

    for (int64_t i = 0; i < gguf_n_kv(m->file); i++) {
        const struct gguf_kv *kv = gguf_kv_at(m->file, i);

        if (!gguf_was_asked(m->file, i) && begins(kv->key, m->family->arch) &&
            kv->key[n] == '.')
            PL_TRY(judge_key(m, kv, kv->key + n + 1, u, err));
    }
    return PL_OK;
}

/* Tensors that the graph does not read ----------------------------------- */

/* Sets read[i] for each tensor i that is a weight of the graph. */
static void mark_read(const struct model *m, const pl_graph *g, bool *read)
{
    for (int i = 0; i < g->n_node; i++) {
        const struct graph_node *w = &g->node[i];

        if (w->op != OP_weight)
            continue;
        for (int64_t p = 0; p < model_weight_parts(m, w->name); p++)
            read[model_weight_part(m, w->name, p) -
                 gguf_tensor_at(m->file, 0)] = true;
    }
}

/* Returns true if the model computes the same results without the tensor. */
static bool is_spare(const struct model *m, const char *name)
{
    static const char scale[] = ".input_scale";
    const size_t len = strlen(name);
    char *end = NULL;
    const int64_t layer =
        begins(name, "blk.") ? strtoll(name + 4, &end, 10) : -1;
    const bool in_layer = end && *end == '.';
    const bool reads_other =
        in_layer && layer < m->n_layer && layer >= m->n_layer - m->n_shared_kv;
    const struct {
        const char *name;
        bool is;
    } spare[] = {
        /* A table of RoPE's angles, which are computed here instead. */
        {"attn_rot_embd.", in_layer},
        /* Layers that read an earlier layer's cache compute no keys and values
         * of their own. */
        {"attn_k.", reads_other},
        {"attn_v.", reads_other},
        {"attn_k_norm.", reads_other},
        /* A file may contain the matrices of latent attention in two forms,
         * attn_kv_b or attn_k_b and attn_v_b. The model uses one of them. */
        {"attn_kv_b.", in_layer && m->latent},
        {"attn_k_b.", in_layer && m->kv_rank > 0 && !m->latent},
        {"attn_v_b.", in_layer && m->kv_rank > 0 && !m->latent},
        /* Weights for images and sound, which requests here cannot contain. */
        {"v.", !in_layer},
        {"a.", !in_layer},
        {"mm.", !in_layer},
    };

    /* Tensors of multi-token-prediction blocks are read only by engines that
     * run such a block. */
    if (in_layer && layer >= m->n_layer && layer < m->n_layer + m->n_next)
        return true;
    /* A scale for activations with 4 bits. Here activations have 8 bits and
     * scales of their own. */
    if (len >= sizeof scale && !strcmp(name + len - sizeof scale + 1, scale))
        return true;
    for (size_t i = 0; i < sizeof spare / sizeof *spare; i++)
        if (spare[i].is && begins(in_layer ? end + 1 : name, spare[i].name))
            return true;
    return false;
}

static pl_status judge_tensors(struct model *m, const bool *read,
                               struct unknown *u, pl_err *err)
{
    const char *first = NULL;
    char shown[ERR_SHOWN];
    int64_t n = 0;

    for (int64_t i = 0; i < gguf_n_tensor(m->file); i++) {
        const char *name = gguf_tensor_at(m->file, i)->name;

        /* phi3 and phimoe read one of two such tensors, as the context
         * requires. */
        if (read[i] || (m->n_ctx_short > 0 && begins(name, "rope_factors_")))
            continue;
        m->n_unused++;
        if (is_spare(m, name))
            continue;
        if (begins(name, "cls.")) { /* These tensors classify texts and are read
                                       only by rerankers. */
            add_unknown(u, "tensor", name);
            continue;
        }
        first = first ? first : name;
        n++;
    }
    if (n == 0)
        return PL_OK;
    return err_set(err, PL_UNSUPPORTED,
                   "%s: %s is a tensor that plait does not know in %s models "
                   "(one of %" PRId64 "), so results would be wrong; convert "
                   "the model again, or use a newer plait",
                   gguf_path(m->file), err_shown(shown, first, strlen(first)),
                   m->family->arch, n);
}

pl_status model_judge_unread(struct model *m, const pl_graph *g, pl_err *err)
{
    struct unknown u = {.n = 0};
    bool *read = calloc((size_t)gguf_n_tensor(m->file) + 1, sizeof *read);
    char more[32] = "";
    pl_status s;

    if (!read)
        return err_no_memory(err, "the tensors of a model");
    mark_read(m, g, read);
    s = judge_keys(m, &u, err);
    if (s == PL_OK)
        s = judge_tensors(m, read, &u, err);
    free(read);
    if (s != PL_OK || u.n == 0)
        return s;
    if (u.n > MAX_NAMED)
        snprintf(more, sizeof more, " and %d more", u.n - MAX_NAMED);
    m->unread = arena_printf(
        &m->arena,
        "not read, because plait does not know what it means: %s%s; if it "
        "changes what the model computes, results are wrong",
        u.text, more);
    return m->unread ? PL_OK : err_no_memory(err, "a warning");
}
