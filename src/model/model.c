/* The table of families, opening a file as a model, and building its graph.
 *
 * Opening checks a model by building its graph once, which looks up all its
 * tensors. So no second list of tensors must be kept consistent. */
#include "model/model.h"

#include "base/err.h"
#include "graph/graph.h"
#include "model/blocks.h"
#include "model/params.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns: arch, neox, moe, shared, key of an expert's width, function that
 * reads further keys, function that builds the graph. */
static const struct model_family families[] = {
    {"llama", false, MOE_IF_GIVEN, false, "feed_forward_length", NULL,
     model_llama},
    {"qwen2", true, MOE_NEVER, false, NULL, NULL, model_qwen2},
    {"qwen3", true, MOE_NEVER, false, NULL, NULL, model_qwen3},
    {"qwen3moe", true, MOE_ALWAYS, false, "expert_feed_forward_length", NULL,
     model_qwen3},
    {"glm4moe", true, MOE_ALWAYS, true, "expert_feed_forward_length", NULL,
     model_glm4moe},
    {"gemma3", true, MOE_NEVER, false, NULL, model_gemma3_read, model_gemma3},
    {"gemma4", true, MOE_IF_GIVEN, false, "expert_feed_forward_length",
     model_gemma4_read, model_gemma4},
    {"gpt-oss", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_gptoss_read, model_gptoss},
    {"qwen35", true, MOE_NEVER, false, NULL, model_qwen35_read, model_qwen35},
    {"qwen35moe", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_qwen35_read, model_qwen35},
    {"qwen3next", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_qwen3next_read, model_qwen35},
    {"deepseek2", false, MOE_ALWAYS, true, "expert_feed_forward_length",
     model_deepseek2_read, model_deepseek2},
    {"deepseek32", false, MOE_ALWAYS, true, "expert_feed_forward_length",
     model_deepseek32_read, model_deepseek2},
    {"glm-dsa", false, MOE_ALWAYS, true, "expert_feed_forward_length",
     model_glm_dsa_read, model_deepseek2},
    {"deepseek4", false, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_deepseek4_read, model_deepseek4},
    {"granite", false, MOE_NEVER, false, NULL, model_granite_read,
     model_granite},
    {"granitemoe", false, MOE_ALWAYS, false, "feed_forward_length",
     model_granite_read, model_granite},
    {"qwen3vl", true, MOE_NEVER, false, NULL, NULL, model_qwen3},
    {"qwen3vlmoe", true, MOE_ALWAYS, false, "expert_feed_forward_length", NULL,
     model_qwen3},
    {"smollm3", false, MOE_NEVER, false, NULL, model_smollm3_read,
     model_smollm3},
    {"phi3", true, MOE_NEVER, false, NULL, model_phi3_read, model_phi3},
    {"phimoe", true, MOE_ALWAYS, false, "feed_forward_length",
     model_phimoe_read, model_phi3},
    {"glm4", false, MOE_NEVER, false, NULL, model_glm4_read, model_glm4},
    {"seed_oss", true, MOE_NEVER, false, NULL, NULL, model_seed_oss},
    {"hunyuan-dense", true, MOE_NEVER, false, NULL, model_hunyuan_dense_read,
     model_hunyuan},
    {"hunyuan-moe", true, MOE_ALWAYS, false, "feed_forward_length",
     model_hunyuan_moe_read, model_hunyuan},
    {"hy_v3", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_hy_v3_read, model_bailingmoe2},
    {"ernie4_5", false, MOE_NEVER, false, NULL, NULL, model_ernie4_5},
    {"ernie4_5-moe", false, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_ernie4_5_read, model_ernie4_5},
    {"bailingmoe2", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_bailingmoe2_read, model_bailingmoe2},
    {"dots1", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_bailingmoe2_read, model_bailingmoe2},
    {"qwen2moe", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_qwen2moe_read, model_qwen2},
    {"mistral3", false, MOE_IF_GIVEN, false, "feed_forward_length",
     model_mistral3_read, model_mistral3},
    {"mistral4", false, MOE_ALWAYS, true, "expert_feed_forward_length",
     model_mistral4_read, model_deepseek2},
    {"olmo2", true, MOE_NEVER, false, NULL, model_olmo2_read, model_olmo2},
    {"olmoe", true, MOE_ALWAYS, false, "feed_forward_length", model_olmoe_read,
     model_olmoe},
    {"minimax-m2", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_minimax_m2_read, model_olmoe},
    {"minimax-m3", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_minimax_m3_read, model_minimax_m3},
    {"exaone4", true, MOE_NEVER, false, NULL, model_exaone4_read,
     model_exaone4},
    {"exaone-moe", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_exaone_moe_read, model_bailingmoe2},
    {"afmoe", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_afmoe_read, model_afmoe},
    {"laguna", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_laguna_read, model_laguna},
    {"step35", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_step35_read, model_step35},
    {"mimo2", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_mimo2_read, model_mimo2},
    {"muse-glimmer", false, MOE_NEVER, false, NULL, model_muse_glimmer_read,
     model_muse_glimmer},
    {"arcee", false, MOE_NEVER, false, NULL, NULL, model_arcee},
    {"apertus", true, MOE_NEVER, false, NULL, model_apertus_read,
     model_apertus},
    {"command-r", false, MOE_NEVER, false, NULL, model_command_r_read,
     model_cohere},
    {"cohere2", false, MOE_NEVER, false, NULL, model_cohere2_read,
     model_cohere},
    {"cohere2moe", false, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_cohere2moe_read, model_cohere},
    {"lfm2", true, MOE_NEVER, false, NULL, model_lfm2_read, model_lfm2},
    {"lfm2moe", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_lfm2_read, model_lfm2},
    {"nemotron", true, MOE_NEVER, false, NULL, model_nemotron_read,
     model_nemotron},
    {"stablelm", true, MOE_NEVER, false, NULL, model_stablelm_read,
     model_stablelm},
    {"starcoder2", true, MOE_NEVER, false, NULL, model_starcoder2_read,
     model_starcoder2},
    {"gemma2", true, MOE_NEVER, false, NULL, model_gemma2_read, model_gemma2},
    {"bert", true, MOE_NEVER, false, NULL, model_bert_read, model_bert},
    {"nomic-bert", true, MOE_NEVER, false, NULL, model_bert_read, model_bert},
    {"nomic-bert-moe", true, MOE_ALWAYS, false, "feed_forward_length",
     model_bert_read, model_bert},
    {"jina-bert-v3", true, MOE_NEVER, false, NULL, model_bert_read, model_bert},
    {"modern-bert", true, MOE_NEVER, false, NULL, model_modern_bert_read,
     model_modern_bert},
    {"gemma-embedding", true, MOE_NEVER, false, NULL,
     model_gemma_embedding_read, model_gemma3},
    {"mamba2", true, MOE_NEVER, false, NULL, model_nemotron_h_read,
     model_nemotron_h},
    {"nemotron_h", true, MOE_NEVER, false, NULL, model_nemotron_h_read,
     model_nemotron_h},
    {"nemotron_h_moe", true, MOE_ALWAYS, false, "expert_feed_forward_length",
     model_nemotron_h_read, model_nemotron_h},
    {"granitehybrid", false, MOE_IF_GIVEN, false, "feed_forward_length",
     model_granitehybrid_read, model_granite},
    {"kimi-linear", false, MOE_ALWAYS, true, "expert_feed_forward_length",
     model_kimi_linear_read, model_kimi_linear},
    {"bailingmoe3", false, MOE_ALWAYS, true, "expert_feed_forward_length",
     model_bailingmoe3_read, model_kimi_linear},
    {"falcon-h1", true, MOE_NEVER, false, NULL, model_falcon_h1_read,
     model_falcon_h1},
};

enum { N_FAMILY = sizeof families / sizeof families[0] };

const char *model_family_name(int i)
{
    return i >= 0 && i < N_FAMILY ? families[i].arch : NULL;
}

/* Families whose multi-token-prediction blocks take the output of the last
 * norm. Those of others take its input. Source: the graphs of llama.cpp and
 * vLLM. */
static const char *const normed[] = {"qwen35",    "qwen35moe",  "qwen3next",
                                     "deepseek2", "deepseek32", "glm4moe",
                                     "glm-dsa",   "hy_v3"};

static pl_status find_family(struct model *m, pl_err *err)
{
    const char *path = gguf_path(m->file);
    struct gguf_str arch;
    char known[1200] = "", name[41];
    size_t n = 0;

    PL_TRY(gguf_get_str(m->file, "general.architecture", &arch, err));
    for (int i = 0; i < N_FAMILY; i++) {
        const char *s = families[i].arch;

        if (arch.s && arch.len == strlen(s) && !memcmp(arch.s, s, arch.len)) {
            m->family = &families[i];
            for (size_t k = 0; k < sizeof normed / sizeof *normed; k++)
                m->next_normed |= strcmp(s, normed[k]) == 0;
            return PL_OK;
        }
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                 i ? ", " : "", s);
    }
    if (!arch.s)
        return err_set(err, PL_BAD_FILE,
                       "%s: key general.architecture is missing, so the file "
                       "is not a model; supported are %s",
                       path, known);
    for (; n < arch.len && n < sizeof name - 1; n++)
        name[n] = arch.s[n] >= ' ' && arch.s[n] <= '~' ? arch.s[n] : '?';
    name[n] = '\0';
    return err_set(err, PL_UNSUPPORTED,
                   "%s: architecture '%s' is not supported; supported are %s",
                   path, name, known);
}

/* Reads the keys of `file` into *out, and builds the graph *g. The caller frees
 * both, also after a failure. */
static pl_status read_and_build(struct model **out, pl_graph **g,
                                const struct gguf *file, const char *made,
                                pl_err *err)
{
    const struct model_graph_options opt = {.cache_k = PL_F32,
                                            .cache_v = PL_F32};
    struct model *m = calloc(1, sizeof *m);

    *out = m;
    *g = NULL;
    if (!m)
        return err_no_memory(err, "a model");
    m->file = file;
    m->made = made;
    PL_TRY(find_family(m, err));
    PL_TRY(model_params_read(m, err));
    PL_TRY(pl_graph_create(g, err));
    return model_graph(m, *g, &opt, err);
}

pl_status model_weights(pl_graph **out, const struct gguf *file,
                        const char *optional, pl_err *err)
{
    struct model *m;
    pl_status s = read_and_build(&m, out, file, optional, err);

    model_close(m);
    if (s != PL_OK) {
        pl_graph_free(*out);
        *out = NULL;
    }
    return s;
}

pl_status model_open(struct model **out, const struct gguf *file, pl_err *err)
{
    struct model *m;
    pl_graph *g;
    pl_status s = read_and_build(&m, &g, file, NULL, err);

    *out = NULL;
    if (s == PL_OK)
        s = model_check_values(m, g, err);
    if (s == PL_OK)
        s = model_judge_unread(m, g, err);
    if (s != PL_OK)
        goto done;
    *out = m;
    m = NULL; /* Not freed below, because the caller owns the model now. */
done:
    pl_graph_free(g);
    model_close(m);
    return s;
}

void model_close(struct model *m)
{
    if (!m)
        return;
    arena_fini(&m->arena);
    free(m);
}

/* Returns the context in tokens that pl_options.n_ctx requests. */
static int64_t requested_context(const struct model *m, int64_t n_ctx)
{
    enum { DEFAULT = 4096 };

    if (n_ctx > 0 && n_ctx != PL_CTX_MODEL)
        return n_ctx;
    return n_ctx == 0 && m->n_ctx_train > DEFAULT ? DEFAULT : m->n_ctx_train;
}

pl_status model_graph(const struct model *m, pl_graph *g,
                      const struct model_graph_options *opt, pl_err *err)
{
    const pl_dim n_tok = {1, PL_N_TOK}, n_out = {1, PL_N_OUT};
    struct build b = {.m = m,
                      .g = g,
                      .layer = -1,
                      .first = opt->mtp > 0 ? m->n_layer + opt->mtp - 1 : 0,
                      .block = opt->mtp > 0,
                      .hidden_rows = opt->hidden_rows,
                      .n_ctx = requested_context(m, opt->n_ctx),
                      .ends = -1,
                      .chosen = -1,
                      .expert_ids = -1,
                      .cache_k = opt->cache_k,
                      .cache_v = opt->cache_v};

    if (opt->mtp < 0 || opt->mtp > m->n_next)
        return err_set(err, PL_BAD_ARGUMENT,
                       "%s: multi-token prediction block %" PRId64
                       " requested; the file has %" PRId64,
                       gguf_path(m->file), opt->mtp, m->n_next);
    if (opt->hidden_rows && (m->n_next == 0 || b.block))
        return err_set(err, PL_BAD_ARGUMENT,
                       b.block ? "%s: a multi-token prediction block has no "
                                 "hidden rows; leave out options.hidden and "
                                 "options.mtp_texts"
                               : "%s: hidden rows requested, but the file has "
                                 "no multi-token prediction blocks; leave out "
                                 "options.hidden and options.mtp_texts",
                       gguf_path(m->file));
    pl_set_numerics(g, opt->numerics);
    b.ids = pl_input(g, "ids", PL_I32, 1, &n_tok);
    b.pos = pl_input(g, "pos", PL_I32, 1, &n_tok);
    b.out_ids = pl_input(g, "out_ids", PL_I32, 1, &n_out);
    if (m->encoder)
        b.ends = pl_input(g, "ends", PL_I32, 1, &n_tok);
    m->family->graph(&b);
    PL_TRY(pl_graph_check(g, err));
    return b.block ? model_check_values(m, g, err) : PL_OK;
}
