/* Writing synthetic models; see synthetic.h. */
#include "synthetic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "base/half.h"
#include "gguf/gguf_write.h"
#include "quant/format.h"

const struct synthetic_shape synthetic_0b6 = {
    "synthetic-0.6B", "qwen3", 28, 1024, 16, 8, 128, 3072, 0, 0, 151936};
const struct synthetic_shape synthetic_3b_a0b6 = {
    "synthetic-3B-A0.6B", "qwen3moe", 24, 1024, 16, 4, 128, 384, 96, 8, 65536};

const struct synthetic_shape synthetic_wide = {
    "synthetic-wide", "qwen3", 8, 2048, 32, 8, 64, 8192, 0, 0, 32768};

struct fill {
    pl_format f;
    uint64_t random;
};

static uint64_t draw(uint64_t *s)
{
    uint64_t z = *s += 0x9E3779B97F4A7C15;

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

/* F32: norms, near 1. F16 and BF16: of either sign, near 2^-9. */
static void fill_floats(struct fill *x, unsigned char *b, size_t bytes)
{
    unsigned mask = x->f == PL_F16 ? 0x83FF : 0x807F;
    unsigned exponent = x->f == PL_F16 ? 0x1800 : 0x3B00;

    for (size_t i = 0; x->f == PL_F32 && i < bytes / 4; i++) {
        float v = 1.0f + (float)(draw(&x->random) >> 40) * 0x1p-28f;

        memcpy(b + 4 * i, &v, 4);
    }
    for (size_t i = 0; x->f != PL_F32 && i < bytes / 2; i++) {
        uint16_t v = (uint16_t)((draw(&x->random) >> 40 & mask) | exponent);

        memcpy(b + 2 * i, &v, 2);
    }
}

/* Random codes; scales of about 1/32 of a code's step. */
static void fill_row(void *user, int64_t row, void *dst, size_t bytes)
{
    struct fill *x = user;
    const struct format_info *fi = format_info(x->f);
    unsigned char *b = dst;

    (void)row;
    if (fi->block == 1) {
        fill_floats(x, b, bytes);
        return;
    }
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t v = draw(&x->random);

        memcpy(b + i, &v, 8);
    }
    for (size_t i = 0; i < bytes; i += (size_t)fi->block_bytes) {
        uint16_t d = f32_to_f16(x->f == PL_Q8_0 ? 4e-4f : 2e-4f);
        uint16_t dmin = f32_to_f16(1.5e-3f);

        if (x->f == PL_Q6_K) {
            memcpy(b + i + 208, &d, 2);
        } else {
            memcpy(b + i, &d, 2);
            if (x->f == PL_Q4_K || x->f == PL_Q5_K)
                memcpy(b + i + 2, &dmin, 2);
        }
    }
}

struct writer {
    struct gguf_writer *w;
    struct fill *fill; /* one a tensor, alive until saved */
    int n;
};

static void tensor(struct writer *w, const char *name, pl_format f, int n_dim,
                   int64_t a, int64_t b, int64_t c)
{
    int64_t dim[3] = {a, b, c};
    struct fill *x = &w->fill[w->n++];

    *x = (struct fill){f, (uint64_t)w->n * 77};
    gguf_put_tensor_fill(w->w, name, f, n_dim, dim, fill_row, x);
}

static void layer(struct writer *w, const struct synthetic_shape *s,
                  pl_format f, int i)
{
    char name[64];
    int64_t q = (int64_t)s->n_head * s->d_head;
    int64_t kv = (int64_t)s->n_head_kv * s->d_head;

#define NAME(t) (snprintf(name, sizeof name, "blk.%d." t ".weight", i), name)
    tensor(w, NAME("attn_norm"), PL_F32, 1, s->d_model, 0, 0);
    tensor(w, NAME("attn_q"), f, 2, q, s->d_model, 0);
    tensor(w, NAME("attn_k"), f, 2, kv, s->d_model, 0);
    tensor(w, NAME("attn_v"), f, 2, kv, s->d_model, 0);
    tensor(w, NAME("attn_q_norm"), PL_F32, 1, s->d_head, 0, 0);
    tensor(w, NAME("attn_k_norm"), PL_F32, 1, s->d_head, 0, 0);
    tensor(w, NAME("attn_output"), f, 2, s->d_model, q, 0);
    tensor(w, NAME("ffn_norm"), PL_F32, 1, s->d_model, 0, 0);
    if (s->n_expert == 0) {
        tensor(w, NAME("ffn_gate"), f, 2, s->d_ff, s->d_model, 0);
        tensor(w, NAME("ffn_up"), f, 2, s->d_ff, s->d_model, 0);
        tensor(w, NAME("ffn_down"), f, 2, s->d_model, s->d_ff, 0);
        return;
    }
    tensor(w, NAME("ffn_gate_inp"), PL_F32, 2, s->n_expert, s->d_model, 0);
    tensor(w, NAME("ffn_gate_exps"), f, 3, s->n_expert, s->d_ff, s->d_model);
    tensor(w, NAME("ffn_up_exps"), f, 3, s->n_expert, s->d_ff, s->d_model);
    tensor(w, NAME("ffn_down_exps"), s->d_ff % 256 ? PL_Q8_0 : f, 3,
           s->n_expert, s->d_model, s->d_ff);
#undef NAME
}

static void keys(struct gguf_writer *w, const struct synthetic_shape *s)
{
    char key[96];

#define KEY(k) (snprintf(key, sizeof key, "%s." k, s->arch), key)
    gguf_put_str(w, "general.architecture", s->arch);
    gguf_put_str(w, "general.name", s->name);
    gguf_put_u32(w, KEY("context_length"), 4096);
    gguf_put_u32(w, KEY("embedding_length"), (uint32_t)s->d_model);
    gguf_put_u32(w, KEY("block_count"), (uint32_t)s->n_layer);
    gguf_put_u32(w, KEY("feed_forward_length"), (uint32_t)s->d_ff);
    gguf_put_u32(w, KEY("attention.head_count"), (uint32_t)s->n_head);
    gguf_put_u32(w, KEY("attention.head_count_kv"), (uint32_t)s->n_head_kv);
    gguf_put_u32(w, KEY("attention.key_length"), (uint32_t)s->d_head);
    gguf_put_u32(w, KEY("attention.value_length"), (uint32_t)s->d_head);
    gguf_put_f32(w, KEY("attention.layer_norm_rms_epsilon"), 1e-6f);
    gguf_put_f32(w, KEY("rope.freq_base"), 1e6f);
    gguf_put_u32(w, KEY("vocab_size"), (uint32_t)s->n_vocab);
    if (s->n_expert) {
        gguf_put_u32(w, KEY("expert_count"), (uint32_t)s->n_expert);
        gguf_put_u32(w, KEY("expert_used_count"), (uint32_t)s->n_used);
        gguf_put_u32(w, KEY("expert_feed_forward_length"), (uint32_t)s->d_ff);
    }
#undef KEY
}

pl_status synthetic_model(const struct synthetic_shape *s, pl_format f,
                          const char *dir, char *path, size_t size, pl_err *err)
{
    struct writer w = {0};
    struct stat st;
    char part[600];
    pl_status status;

    snprintf(path, size, "%s/%s-%s.gguf", dir, s->name, format_info(f)->name);
    if (stat(path, &st) == 0)
        return PL_OK;
    if (strcmp(dir, SYNTHETIC_DIR) == 0)
        mkdir(dir, 0777);
    w.fill = calloc((size_t)s->n_layer * 16 + 4, sizeof *w.fill);
    if (!w.fill)
        return err_no_memory(err, "a synthetic model");
    status = gguf_writer_create(&w.w, err);
    if (status == PL_OK) {
        keys(w.w, s);
        tensor(&w, "token_embd.weight", f, 2, s->n_vocab, s->d_model, 0);
        tensor(&w, "output_norm.weight", PL_F32, 1, s->d_model, 0, 0);
        for (int i = 0; i < s->n_layer; i++)
            layer(&w, s, f, i);
        snprintf(part, sizeof part, "%s.part", path);
        status = gguf_writer_save(w.w, part, err);
        if (status == PL_OK && rename(part, path) != 0)
            status = err_set(err, PL_IO, "%s: cannot be renamed", part);
    }
    gguf_writer_free(w.w);
    free(w.fill);
    return status;
}
