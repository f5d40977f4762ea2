/* Keys and tensors of a qwen3moe file, without data. Shapes are outermost
 * first; nothing is checked here, opening the file does that. */
#include "lib/hollow_model.h"

#include "gguf/gguf_write.h"

#include <inttypes.h>
#include <stdio.h>

const struct hollow_model hollow_400b = {
    .n_layer = 94,
    .d_model = 4096,
    .n_head = 64,
    .n_head_kv = 4,
    .d_head = 128,
    .n_expert = 128,
    .n_used = 8,
    .d_ff = 2560,
    .n_vocab = 151936,
    .format = PL_Q4_K,
};

static void keys(struct gguf_writer *w, const struct hollow_model *m)
{
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {
        {"context_length", 32768},
        {"embedding_length", m->d_model},
        {"block_count", m->n_layer},
        {"attention.head_count", m->n_head},
        {"attention.head_count_kv", m->n_head_kv},
        {"attention.key_length", m->d_head},
        {"attention.value_length", m->d_head},
        {"expert_count", m->n_expert},
        {"expert_used_count", m->n_used},
        {"expert_feed_forward_length", m->d_ff},
        {"vocab_size", m->n_vocab},
    };
    char key[64];

    gguf_put_str(w, "general.architecture", "qwen3moe");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(key, sizeof key, "qwen3moe.%s", rows[i].key);
        gguf_put_u32(w, key, (uint32_t)rows[i].value);
    }
    gguf_put_f32(w, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_put_f32(w, "qwen3moe.rope.freq_base", 1e6f);
}

static void layer(struct gguf_writer *w, const struct hollow_model *m,
                  int64_t il)
{
    int64_t d = m->d_model, q = m->n_head * m->d_head;
    int64_t kv = m->n_head_kv * m->d_head;
    const struct {
        const char *name;
        int n_dim;
        int64_t dim[3];
        pl_format format;
    } rows[] = {
        {"attn_norm", 1, {d}, PL_F32},
        {"attn_q", 2, {q, d}, m->format},
        {"attn_k", 2, {kv, d}, m->format},
        {"attn_v", 2, {kv, d}, m->format},
        {"attn_q_norm", 1, {m->d_head}, PL_F32},
        {"attn_k_norm", 1, {m->d_head}, PL_F32},
        {"attn_output", 2, {d, q}, m->format},
        {"ffn_norm", 1, {d}, PL_F32},
        {"ffn_gate_inp", 2, {m->n_expert, d}, PL_F32},
        {"ffn_gate_exps", 3, {m->n_expert, m->d_ff, d}, m->format},
        {"ffn_up_exps", 3, {m->n_expert, m->d_ff, d}, m->format},
        {"ffn_down_exps", 3, {m->n_expert, d, m->d_ff}, m->format},
    };
    char name[64];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(name, sizeof name, "blk.%" PRId64 ".%s.weight", il,
                 rows[i].name);
        gguf_put_tensor_hole(w, name, rows[i].format, rows[i].n_dim,
                             rows[i].dim);
    }
}

pl_status hollow_model_write(const char *path, const struct hollow_model *m,
                             pl_err *err)
{
    const int64_t table[2] = {m->n_vocab, m->d_model};
    struct gguf_writer *w;
    pl_status s = gguf_writer_create(&w, err);

    if (s != PL_OK)
        return s;
    keys(w, m);
    gguf_put_tensor_hole(w, "token_embd.weight", m->format, 2, table);
    for (int64_t il = 0; il < m->n_layer; il++)
        layer(w, m, il);
    gguf_put_tensor_hole(w, "output_norm.weight", PL_F32, 1, &m->d_model);
    gguf_put_tensor_hole(w, "output.weight", m->format, 2, table);
    s = gguf_writer_save(w, path, err);
    gguf_writer_free(w);
    return s;
}
