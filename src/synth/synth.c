/* The tables of synthetic models' shapes and types, and the writing of their
 * files. */
#include "synth/synth.h"

#include "base/ascii.h"
#include "base/err.h"
#include "quant/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Granite 4.0 H Small, Nemotron Nano 2 and Kimi Linear, by their
 * configurations. */
static const struct synth_scan granite_h = {
    "MMMMM*MMMMMMMMM*MMMMMMMMM*MMMMMMMMM*MMMM", false, 128, 64, 1, 128, NULL};
static const struct synth_scan nemotron_h = {
    "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
    true,
    128,
    80,
    8,
    128,
    NULL};
static const struct synth_kda kimi_kda = {.d_head = 128,
                                          .kv_rank = 512,
                                          .d_key = 192,
                                          .n_rot = 64,
                                          .d_value = 128,
                                          .n_dense = 1,
                                          .d_dense = 9216,
                                          .routed = 2.446f};
static const struct synth_scan kimi_linear = {
    .parts = "KKK*KKK*KKK*KKK*KKK*KKK*KK*", .kda = &kimi_kda};

/* Columns: name, architecture; layers, width, heads, KV heads, head width;
 * feed-forward width, experts, experts used; vocabulary, tied; key heads, value
 * heads and head width of delta nets; width of the shared expert. The shapes
 * 8b, 30b, 0.8b and 35b of Qwen, and those of SmolLM3 and Granite, are
 * those in the models' published config.json; "tiny" is for tests. */
static const struct synth_shape shapes[] = {
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 0, 0, 102400, true, 0,
     0, 0, 0, NULL},
    {"qwen3moe-2.75b", "qwen3moe", 24, 1024, 16, 4, 128, 512, 64, 8, 102400,
     false, 0, 0, 0, 0, NULL},
    {"llama-1.2b", "llama", 16, 2048, 32, 8, 64, 8192, 0, 0, 102400, true, 0, 0,
     0, 0, NULL},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 0, 0, 151936, false, 0,
     0, 0, 0, NULL},
    {"qwen3moe-30b", "qwen3moe", 48, 2048, 32, 4, 128, 768, 128, 8, 151936,
     false, 0, 0, 0, 0, NULL},
    {"qwen35-0.8b", "qwen35", 24, 1024, 8, 2, 256, 3584, 0, 0, 248320, true, 16,
     16, 128, 0, NULL},
    {"qwen35moe-35b", "qwen35moe", 40, 2048, 16, 2, 256, 512, 256, 8, 248320,
     false, 16, 32, 128, 512, NULL},
    {"smollm3-3b", "smollm3", 36, 2048, 16, 4, 128, 11008, 0, 0, 128256, true,
     0, 0, 0, 0, NULL},
    {"granite-8b", "granite", 40, 4096, 32, 8, 128, 12800, 0, 0, 49159, true, 0,
     0, 0, 0, NULL},
    {"granitemoe-3b", "granitemoe", 32, 1536, 24, 8, 64, 512, 40, 8, 49155,
     true, 0, 0, 0, 0, NULL},
    {"granitehybrid-32b", "granitehybrid", 40, 4096, 32, 8, 128, 768, 72, 10,
     100352, true, 0, 0, 0, 1536, &granite_h},
    {"nemotron_h-9b", "nemotron_h", 56, 4480, 40, 8, 128, 15680, 0, 0, 131072,
     false, 0, 0, 0, 0, &nemotron_h},
    {"kimi-linear-48b", "kimi-linear", 27, 2304, 32, 1, 576, 1024, 256, 8,
     163840, false, 0, 0, 0, 1024, &kimi_linear},
    {"tiny", "qwen3moe", 2, 256, 4, 2, 64, 256, 4, 2, 512, false, 0, 0, 0, 0,
     NULL},
};
enum { N_SHAPE = sizeof shapes / sizeof shapes[0], N_SHOWN = N_SHAPE - 1 };

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

const struct synth_shape *synth_shape(const char *name, pl_err *err)
{
    char all[300] = "", given[ERR_SHOWN];

    for (int i = 0; name && i < N_SHAPE; i++)
        if (strcmp(name, shapes[i].name) == 0)
            return &shapes[i];
    for (int i = 0; i < N_SHOWN; i++)
        list(all, sizeof all, shapes[i].name);
    if (!name)
        name = "";
    err_set(err, PL_BAD_ARGUMENT, "unknown shape \"%s\"; known are %s",
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

/* ---- adding the tensors of a model --------------------------------------- */

struct writer {
    const struct synth_shape *shape;
    struct gguf_writer *w; /* receives the tensors; NULL if only their total
                              size is computed */
    bool hole;
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

/* Adds a tensor with random values. Its format is f, or Q8_0 if a row of the
 * tensor is not whole blocks of f. */
static void tensor(struct writer *w, const char *name, pl_format f, int n_dim,
                   const int64_t *dim)
{
    struct filled *x;
    int64_t n_row = 1, width = dim[n_dim - 1];

    if (width % format_info(f)->block)
        f = PL_Q8_0;
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
    if ((n_dim == 1 || width == 1) && strstr(name, "ssm_a"))
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

static void layer(struct writer *w, const struct synth_type *t, int64_t il)
{
    const struct synth_shape *s = w->shape;
    const int64_t d = s->d_model, q = s->n_head * s->d_head;
    const int64_t kv = s->n_head_kv * s->d_head, ff = s->d_ff, e = s->n_expert;
    const pl_format most = t->most;
    const pl_format some = more_bits(il, s->n_layer) ? t->some : most;
    const bool normed = !strncmp(s->arch, "qwen", 4);
    const bool hybrid = s->n_key > 0, delta = hybrid && (il + 1) % 4 != 0;
    const struct synth_scan *c = s->scan;
    const char part = c ? c->parts[il] : '*';
    const struct synth_kda none = {0}, *k = c && c->kda ? c->kda : &none;
    const bool kda = part == 'K', latent = k->kv_rank > 0 && part == '*';
    const bool scan = part == 'M', attends = !delta && !latent && part == '*';
    const bool ff_part = !c || !c->single || part == '-';
    const bool gate = ff_part && !(c && c->single);
    const bool moe = ff_part && e > 0 && il >= k->n_dense;
    const bool dense = ff_part && !moe, shared = moe && s->d_shared > 0;
    const int64_t d_dense = k->n_dense > 0 ? k->d_dense : ff;
    const int64_t n_kda = s->n_head * k->d_head, r = k->d_head;
    const int64_t n_h = c ? c->n_head : 0, inner = c ? n_h * c->d_head : 0;
    const int64_t mixed_rows = c ? inner + 2 * c->n_group * c->d_state : 0;
    const int64_t n_v = s->n_value * s->d_delta;
    const int64_t conv = 2 * s->n_key * s->d_delta + n_v, fs = s->d_shared;
    const struct {
        const char *name;
        bool there;
        pl_format format;
        int n_dim;
        int64_t dim[3];
    } rows[] = {
        {"attn_norm.weight", true, PL_F32, 1, {d}},
        {"attn_q.weight", attends, most, 2, {hybrid ? 2 * q : q, d}},
        {"attn_k.weight", attends, most, 2, {kv, d}},
        {"attn_v.weight", attends, some, 2, {kv, d}},
        {"attn_q_norm.weight", attends && normed, PL_F32, 1, {s->d_head}},
        {"attn_k_norm.weight", attends && normed, PL_F32, 1, {s->d_head}},
        {"attn_output.weight", attends, most, 2, {d, q}},
        {"attn_qkv.weight", delta, most, 2, {conv, d}},
        {"attn_gate.weight", delta, most, 2, {n_v, d}},
        {"ssm_conv1d.weight", delta, PL_F32, 2, {conv, 4}},
        {"ssm_alpha.weight", delta, most, 2, {s->n_value, d}},
        {"ssm_beta.weight", delta, most, 2, {s->n_value, d}},
        {"ssm_dt.bias", delta, PL_F32, 1, {s->n_value}},
        {"ssm_a", delta, PL_F32, 1, {s->n_value}},
        {"ssm_norm.weight", delta, PL_F32, 1, {s->d_delta}},
        {"ssm_out.weight", delta, most, 2, {d, n_v}},
        {"ssm_in.weight", scan, most, 2, {inner + mixed_rows + n_h, d}},
        {"ssm_conv1d.weight", scan, PL_F32, 2, {mixed_rows, 4}},
        {"ssm_conv1d.bias", scan, PL_F32, 1, {mixed_rows}},
        {"ssm_dt.bias", scan, PL_F32, 1, {n_h}},
        {"ssm_a", scan, PL_F32, 2, {n_h, 1}},
        {"ssm_d", scan, PL_F32, 2, {n_h, 1}},
        {"ssm_norm.weight",
         scan,
         PL_F32,
         2,
         {scan ? c->n_group : 0, scan ? inner / c->n_group : 0}},
        {"ssm_out.weight", scan, most, 2, {d, inner}},
        {"attn_q.weight", kda, most, 2, {n_kda, d}},
        {"attn_k.weight", kda, most, 2, {n_kda, d}},
        {"attn_v.weight", kda, some, 2, {n_kda, d}},
        {"ssm_conv1d_q.weight", kda, PL_F32, 3, {n_kda, 1, 4}},
        {"ssm_conv1d_k.weight", kda, PL_F32, 3, {n_kda, 1, 4}},
        {"ssm_conv1d_v.weight", kda, PL_F32, 3, {n_kda, 1, 4}},
        {"ssm_f_a.weight", kda, most, 2, {r, d}},
        {"ssm_f_b.weight", kda, most, 2, {n_kda, r}},
        {"ssm_dt.bias", kda, PL_F32, 1, {n_kda}},
        {"ssm_a", kda, PL_F32, 2, {s->n_head, 1}},
        {"ssm_beta.weight", kda, most, 2, {s->n_head, d}},
        {"ssm_g_a.weight", kda, most, 2, {r, d}},
        {"ssm_g_b.weight", kda, most, 2, {n_kda, r}},
        {"ssm_norm.weight", kda, PL_F32, 1, {r}},
        {"attn_output.weight", kda, most, 2, {d, n_kda}},
        {"attn_q.weight", latent, most, 2, {s->n_head * k->d_key, d}},
        {"attn_kv_a_mqa.weight", latent, most, 2, {k->kv_rank + k->n_rot, d}},
        {"attn_kv_a_norm.weight", latent, PL_F32, 1, {k->kv_rank}},
        {"attn_k_b.weight",
         latent,
         most,
         3,
         {s->n_head, k->kv_rank, k->d_key - k->n_rot}},
        {"attn_v_b.weight",
         latent,
         most,
         3,
         {s->n_head, k->d_value, k->kv_rank}},
        {"attn_output.weight", latent, most, 2, {d, s->n_head * k->d_value}},
        {hybrid ? "post_attention_norm.weight" : "ffn_norm.weight",
         !(c && c->single),
         PL_F32,
         1,
         {d}},
        {"ffn_gate.weight", dense && gate, most, 2, {d_dense, d}},
        {"ffn_up.weight", dense, most, 2, {d_dense, d}},
        {"ffn_down.weight", dense, some, 2, {d, d_dense}},
        {"ffn_gate_inp.weight", moe, PL_F32, 2, {e, d}},
        {"exp_probs_b.bias", moe && r > 0, PL_F32, 1, {e}},
        {"ffn_gate_exps.weight", moe, most, 3, {e, ff, d}},
        {"ffn_up_exps.weight", moe, most, 3, {e, ff, d}},
        {"ffn_down_exps.weight", moe, some, 3, {e, d, ff}},
        {"ffn_gate_inp_shexp.weight", shared && !c, PL_F32, 1, {d}},
        {"ffn_gate_shexp.weight", shared, most, 2, {fs, d}},
        {"ffn_up_shexp.weight", shared, most, 2, {fs, d}},
        {"ffn_down_shexp.weight", shared, some, 2, {d, fs}},
    };
    char name[64];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(name, sizeof name, "blk.%" PRId64 ".%s", il, rows[i].name);
        if (rows[i].there)
            tensor(w, name, rows[i].format, rows[i].n_dim, rows[i].dim);
    }
}

static void tensors(struct writer *w, const struct synth_type *t)
{
    const struct synth_shape *s = w->shape;
    const int64_t table[2] = {s->n_vocab, s->d_model};

    tensor(w, "token_embd.weight", s->tied ? t->output : t->most, 2, table);
    for (int64_t il = 0; il < s->n_layer; il++)
        layer(w, t, il);
    tensor(w, "output_norm.weight", PL_F32, 1, &s->d_model);
    if (!s->tied)
        tensor(w, "output.weight", t->output, 2, table);
}

/* ---- writing the file ---------------------------------------------------- */

/* Writes the key `name` with one number per layer: `value` in layers whose part
 * has the letter `part`, 0 in others. */
static void layer_key(struct gguf_writer *w, const struct synth_shape *s,
                      const char *name, char part, int64_t value)
{
    int32_t v[64] = {0};
    char key[64];

    for (int64_t i = 0; i < s->n_layer && i < 64; i++)
        v[i] = s->scan->parts[i] == part ? (int32_t)value : 0;
    snprintf(key, sizeof key, "%s.%s", s->arch, name);
    gguf_put_array(w, key, GGUF_I32, v, (uint64_t)s->n_layer);
}

/* Writes the keys that only models with Kimi delta attention have. */
static void kda_keys(struct gguf_writer *w, const struct synth_shape *s)
{
    const struct synth_kda *k = s->scan->kda;
    const struct {
        const char *key;
        uint32_t value;
    } rows[] = {
        {"attention.key_length_mla", (uint32_t)k->d_key},
        {"attention.value_length_mla", (uint32_t)k->d_value},
        {"attention.kv_lora_rank", (uint32_t)k->kv_rank},
        {"kda.head_dim", (uint32_t)k->d_head},
        {"leading_dense_block_count", (uint32_t)k->n_dense},
        {"expert_shared_count", 1},
        {"expert_gating_func", 2},
    };
    char key[64];

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", s->arch, rows[i].key);
        gguf_put_u32(w, key, rows[i].value);
    }
    snprintf(key, sizeof key, "%s.expert_weights_scale", s->arch);
    gguf_put_f32(w, key, k->routed);
}

static void keys(struct gguf_writer *w, const struct synth_shape *s)
{
    const struct synth_scan *c = s->scan;
    const struct synth_kda *k = c ? c->kda : NULL;
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {
        {"context_length", 32768},
        {"embedding_length", s->d_model},
        {"block_count", s->n_layer},
        {"feed_forward_length", c && c->single ? 0
                                : k            ? k->d_dense
                                               : s->d_ff},
        {"attention.head_count", s->n_head},
        {"attention.head_count_kv", c ? 0 : s->n_head_kv},
        {"attention.key_length", s->d_head},
        {"attention.value_length", s->d_head},
        {"rope.dimension_count", k          ? k->n_rot
                                 : s->n_key ? s->d_head / 4
                                            : s->d_head},
        {"vocab_size", s->n_vocab},
        {"expert_count", s->n_expert},
        {"expert_used_count", s->n_used},
        {"expert_feed_forward_length", s->n_expert ? s->d_ff : 0},
        {"expert_shared_feed_forward_length", k ? 0 : s->d_shared},
        {"ssm.conv_kernel", s->n_key || c ? 4 : 0},
        {"ssm.state_size", c ? c->d_state : s->d_delta},
        {"ssm.group_count", c ? c->n_group : s->n_key},
        {"ssm.time_step_rank", c ? c->n_head : s->n_value},
        {"ssm.inner_size", c ? c->n_head * c->d_head : s->n_value * s->d_delta},
    };
    char key[64];

    gguf_put_str(w, "general.architecture", s->arch);
    gguf_put_str(w, "general.name", s->name);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", s->arch, rows[i].key);
        if (rows[i].value > 0)
            gguf_put_u32(w, key, (uint32_t)rows[i].value);
    }
    if (c)
        layer_key(w, s, "attention.head_count_kv", '*', s->n_head_kv);
    if (k)
        kda_keys(w, s);
    if (c && c->single)
        layer_key(w, s, "feed_forward_length", '-', s->d_ff);
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", s->arch);
    gguf_put_f32(w, key, 1e-6f);
    snprintf(key, sizeof key, "%s.rope.freq_base", s->arch);
    gguf_put_f32(w, key, 1e6f);
}

uint64_t synth_bytes(const struct synth_shape *s, const struct synth_type *t)
{
    struct writer w = {.shape = s};

    tensors(&w, t);
    return w.total;
}

pl_status synth_save(const struct synth_shape *s, const struct synth_type *t,
                     const char *path, bool hole,
                     const struct synth_watch *watch, pl_err *err)
{
    enum { A_LAYER = 28, OUTSIDE = 3 };
    struct writer w = {.shape = s, .hole = hole, .watch = watch};
    pl_status status;

    w.filled = calloc((size_t)s->n_layer * A_LAYER + OUTSIDE, sizeof *w.filled);
    if (!w.filled)
        return err_no_memory(err, "a synthetic model");
    status = gguf_writer_create(&w.w, err);
    if (status == PL_OK) {
        keys(w.w, s);
        tensors(&w, t);
        if (hole)
            gguf_put_str(w.w, "tokenizer.ggml.model", "none");
        else
            status = synth_words(w.w, s->n_vocab, err);
    }
    if (status == PL_OK)
        status = gguf_writer_save(w.w, path, err);
    gguf_writer_free(w.w);
    free(w.filled);
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
    *bytes = synth_bytes(s, &t);
    return PL_OK;
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
