/* Writes small model files with keys and tensors of qwen3moe, whose values are
 * drawn from a fixed seed. */
#include "lib/scene_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gguf/gguf_write.h"
#include "lib/support.h"

enum {
    D = 64,
    HEAD = 16,
    N_EXPERT = 6,
    N_USED = 2,
    N_VOCAB = 96,
    N_CTX = 8192
};

static uint64_t random_state;

/* Draws a row of random weights, so small that a sum over 64 values stays near
 * one. */
static bool fill(void *user, int64_t row, void *dst, size_t bytes)
{
    (void)user;
    (void)row;
    for (size_t i = 0; i < bytes; i += 4) {
        float v = 0.25f * test_unit(&random_state);

        memcpy((char *)dst + i, &v, 4);
    }
    return true;
}

static bool fill_norm(void *user, int64_t row, void *dst, size_t bytes)
{
    (void)user;
    (void)row;
    for (size_t i = 0; i < bytes; i += 4) {
        float v = 1 + 0.25f * test_unit(&random_state);

        memcpy((char *)dst + i, &v, 4);
    }
    return true;
}

static void tensor(struct gguf_writer *w, const char *name, int n_dim,
                   const int64_t *dim)
{
    gguf_put_tensor_fill(w, name, PL_F32, n_dim, dim,
                         n_dim == 1 ? fill_norm : fill, NULL);
}

static void layer(struct gguf_writer *w, const struct scene_model *m,
                  int64_t il)
{
    int64_t q = m->n_head * HEAD, kv = m->n_head_kv * HEAD;
    const struct {
        const char *name;
        int n_dim;
        int64_t dim[3];
        /* the tensor exists 0: always, 1: in fused models, 2: in models that
         * are not fused */
        int when;
    } rows[] = {
        {"attn_norm", 1, {D}, 0},
        {"attn_qkv", 2, {q + 2 * kv, D}, 1},
        {"attn_q", 2, {q, D}, 2},
        {"attn_k", 2, {kv, D}, 2},
        {"attn_v", 2, {kv, D}, 2},
        {"attn_q_norm", 1, {HEAD}, 0},
        {"attn_k_norm", 1, {HEAD}, 0},
        {"attn_output", 2, {D, q}, 0},
        {"ffn_norm", 1, {D}, 0},
        {"ffn_gate_inp", 2, {N_EXPERT, D}, 0},
        {"ffn_gate_up_exps", 3, {N_EXPERT, 2 * m->d_ff, D}, 1},
        {"ffn_gate_exps", 3, {N_EXPERT, m->d_ff, D}, 2},
        {"ffn_up_exps", 3, {N_EXPERT, m->d_ff, D}, 2},
        {"ffn_down_exps", 3, {N_EXPERT, D, m->d_ff}, 0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char name[64];

        if (rows[i].when == (m->fused ? 2 : 1))
            continue;
        snprintf(name, sizeof name, "blk.%" PRId64 ".%s.weight", il,
                 rows[i].name);
        tensor(w, name, rows[i].n_dim, rows[i].dim);
    }
}

static void keys(struct gguf_writer *w, const struct scene_model *m)
{
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {
        {"context_length", N_CTX},
        {"embedding_length", D},
        {"block_count", m->n_layer},
        {"attention.head_count", m->n_head},
        {"attention.head_count_kv", m->n_head_kv},
        {"attention.key_length", HEAD},
        {"attention.value_length", HEAD},
        {"expert_count", N_EXPERT},
        {"expert_used_count", N_USED},
        {"expert_feed_forward_length", m->d_ff},
        {"vocab_size", N_VOCAB},
    };

    gguf_put_str(w, "general.architecture", "qwen3moe");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char key[64];

        snprintf(key, sizeof key, "qwen3moe.%s", rows[i].key);
        gguf_put_u32(w, key, (uint32_t)rows[i].value);
    }
    gguf_put_f32(w, "qwen3moe.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_put_f32(w, "qwen3moe.rope.freq_base", 1e6f);
}

const char *scene_model_write(const struct scene_model *m)
{
    static int n;
    const int64_t table[2] = {N_VOCAB, D};
    struct gguf_writer *w;
    const char *path;
    char name[32];
    pl_err err;

    snprintf(name, sizeof name, "scene%d.gguf", n++);
    path = test_temp(name);
    random_state = test_seed();
    TEST_OK(gguf_writer_create(&w, &err), err);
    keys(w, m);
    tensor(w, "token_embd.weight", 2, table);
    for (int64_t il = 0; il < m->n_layer; il++)
        layer(w, m, il);
    tensor(w, "output_norm.weight", 1, &table[1]);
    tensor(w, "output.weight", 2, table);
    TEST_OK(gguf_writer_save(w, path, &err), err);
    gguf_writer_free(w);
    return path;
}
