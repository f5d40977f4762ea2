/* The table of synthetic models' shapes. Sizes are those that the models'
 * publishers state; blocks for multi-token prediction are left out. */
#include "synth/synth.h"

#include <stddef.h>

/* Letters of layers: a Mamba-2 block, Kimi delta attention or a short
 * convolution, attention (*), and feed-forward parts alone (- and E). */
static const char layers_of_granitehybrid[] =
    "MMMMM*MMMMMMMMM*MMMMMMMMM*MMMMMMMMM*MMMM";
static const char layers_of_nemotron_h[] =
    "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-";
static const char layers_of_nemotron_h_moe[] =
    "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME";
static const char layers_of_kimi_linear[] = "KKK*KKK*KKK*KKK*KKK*KKK*KK*";
static const char layers_of_lfm2[] = "CC*CC*CC*C*C*C*C";
static const char layers_of_lfm2moe[] = "CC*CCC*CCC*CCC*CCC*CC*CC";
static const char layers_of_deepseek4[] =
    "00cCcCcCcCcCcCcCcCcCcCcCcCcCcCcCcCcCcCcCcCc";

static const struct synth_array arrays_of_granitehybrid[] = {
    {"attention.head_count_kv", layers_of_granitehybrid, '*', 8, 0, 0},
};
static const struct synth_array arrays_of_granite_tiny[] = {
    {"attention.head_count_kv", layers_of_granitehybrid, '*', 4, 0, 0},
};
static const struct synth_array arrays_of_nemotron_h[] = {
    {"attention.head_count_kv", layers_of_nemotron_h, '*', 8, 0, 0},
    {"feed_forward_length", layers_of_nemotron_h, '-', 15680, 0, 0},
};
static const struct synth_array arrays_of_nemotron_h_moe[] = {
    {"attention.head_count_kv", layers_of_nemotron_h_moe, '*', 2, 0, 0},
    {"feed_forward_length", layers_of_nemotron_h_moe, 'E', 1856, 0, 0},
};
static const struct synth_array arrays_of_kimi_linear[] = {
    {"attention.head_count_kv", layers_of_kimi_linear, '*', 1, 0, 0},
};
static const struct synth_array arrays_of_lfm2[] = {
    {"attention.head_count_kv", layers_of_lfm2, '*', 8, 0, 0},
};
static const struct synth_array arrays_of_lfm2moe[] = {
    {"attention.head_count_kv", layers_of_lfm2moe, '*', 8, 0, 0},
};
static const struct synth_array arrays_of_deepseek4[] = {
    {"attention.compress_ratios", layers_of_deepseek4, 'c', 4, 'C', 128},
};

/* Keys in the notation of gguf_override. SIZES comes first. */
#define INT(key, v)   ",." key "=int:" #v
#define FLOAT(key, v) ",." key "=float:" #v
#define SIZES(layers, width, heads, context)                                   \
    ".block_count=int:" #layers INT("embedding_length", width)                 \
        INT("attention.head_count", heads) INT("context_length", context)
#define KV(n) INT("attention.head_count_kv", n)
#define WIDTHS(k, v)                                                           \
    INT("attention.key_length", k) INT("attention.value_length", v)
#define WIDTH(n)        WIDTHS(n, n)
#define FF(n)           INT("feed_forward_length", n)
#define BASE(base)      FLOAT("rope.freq_base", base)
#define ROPE(n, base)   INT("rope.dimension_count", n) BASE(base)
#define RMS(eps)        FLOAT("attention.layer_norm_rms_epsilon", eps)
#define LAYER_NORM(eps) FLOAT("attention.layer_norm_epsilon", eps)
#define WINDOW(n)       INT("attention.sliding_window", n)
#define EXPERTS(n, used, width)                                                \
    INT("expert_count", n)                                                     \
    INT("expert_used_count", used) INT("expert_feed_forward_length", width)
#define SHARED(n)    INT("expert_shared_count", n)
#define SHARED_FF(n) INT("expert_shared_feed_forward_length", n)
#define DENSE(n)     INT("leading_dense_block_count", n)
#define SCALED(x)                                                              \
    FLOAT("expert_weights_scale", x) ",.expert_weights_norm=bool:true"
#define GATING(n) INT("expert_gating_func", n)
#define GROUPS(n, used)                                                        \
    INT("expert_group_count", n) INT("expert_group_used_count", used)
#define SSM(heads, inner, groups, state)                                       \
    INT("ssm.time_step_rank", heads)                                           \
    INT("ssm.inner_size", inner)                                               \
    INT("ssm.group_count", groups)                                             \
    INT("ssm.state_size", state) INT("ssm.conv_kernel", 4)
#define LATENT(k, v, kv_rank, q_rank)                                          \
    INT("attention.key_length_mla", k)                                         \
    INT("attention.value_length_mla", v)                                       \
    INT("attention.kv_lora_rank", kv_rank)                                     \
    INT("attention.q_lora_rank", q_rank)
#define YARN(factor, context)                                                  \
    ",.rope.scaling.type=str:yarn" FLOAT("rope.scaling.factor", factor)        \
        INT("rope.scaling.original_context_length", context)
#define INDEXER(heads, width, top)                                             \
    INT("attention.indexer.head_count", heads)                                 \
    INT("attention.indexer.key_length", width)                                 \
    INT("attention.indexer.top_k", top)
#define ENCODER INT("pooling_type", 1) ",.attention.causal=bool:false"

/* Shapes by sizes have the columns name, architecture, vocabulary, tied;
 * layers, width, heads, KV heads, head width; feed-forward width, experts,
 * experts used. Those by keys have name, architecture, vocabulary, optional
 * tensors, perhaps arrays, keys. "tiny" is for tests. */
/* clang-format off */
#define GIVEN(row, family, vocab, more, ...) \
    {.name = row, .arch = family, .n_vocab = vocab, .optional = more, \
     .keys = __VA_ARGS__}
#define MIXED(row, family, vocab, more, arrays, ...) \
    {.name = row, .arch = family, .n_vocab = vocab, .optional = more, \
     .array = arrays, .n_array = sizeof arrays / sizeof *arrays, \
     .keys = __VA_ARGS__}
#define SIZED(row, family, vocab, ties, ...) \
    {row, family, vocab, NULL, NULL, NULL, 0, ties, __VA_ARGS__}
static const struct synth_shape shapes[] = {
    SIZED("qwen3-0.6b", "qwen3", 102400, true,
          28, 1024, 16, 8, 128, 3072, 0, 0),
    SIZED("qwen3moe-2.75b", "qwen3moe", 102400, false,
          24, 1024, 16, 4, 128, 512, 64, 8),
    SIZED("llama-1.2b", "llama", 102400, true,
          16, 2048, 32, 8, 64, 8192, 0, 0),
    SIZED("llama-8b", "llama", 128256, false,
          32, 4096, 32, 8, 128, 14336, 0, 0),
    SIZED("llama-70b", "llama", 128256, false,
          80, 8192, 64, 8, 128, 28672, 0, 0),
    SIZED("qwen3-8b", "qwen3", 151936, false,
          36, 4096, 32, 8, 128, 12288, 0, 0),
    SIZED("qwen3moe-30b", "qwen3moe", 151936, false,
          48, 2048, 32, 4, 128, 768, 128, 8),
    SIZED("smollm3-3b", "smollm3", 128256, true,
          36, 2048, 16, 4, 128, 11008, 0, 0),
    SIZED("granite-8b", "granite", 49159, true,
          40, 4096, 32, 8, 128, 12800, 0, 0),
    SIZED("granitemoe-3b", "granitemoe", 49155, true,
          32, 1536, 24, 8, 64, 512, 40, 8),
    GIVEN("qwen35-0.8b", "qwen35", 248320, NULL,
          SIZES(24, 1024, 8, 32768) KV(2) WIDTH(256) FF(3584) ROPE(64, 1e6)
          RMS(1e-6) SSM(16, 2048, 16, 128)),
    GIVEN("qwen35moe-35b", "qwen35moe", 248320, "output.weight",
          SIZES(40, 2048, 16, 32768) KV(2) WIDTH(256) ROPE(64, 1e6) RMS(1e-6)
          EXPERTS(256, 8, 512) SHARED_FF(512) SSM(32, 4096, 16, 128)),
    MIXED("granitehybrid-32b", "granitehybrid", 100352,
          "ssm_conv1d.bias", arrays_of_granitehybrid,
          SIZES(40, 4096, 32, 32768) WIDTH(128) FF(768) ROPE(128, 1e6)
          RMS(1e-6) EXPERTS(72, 10, 768) SHARED_FF(1536)
          SSM(128, 8192, 1, 128)),
    MIXED("granitehybrid-7b", "granitehybrid", 100352,
          "ssm_conv1d.bias", arrays_of_granite_tiny,
          SIZES(40, 1536, 12, 131072) WIDTH(128) FF(512) ROPE(128, 1e4)
          RMS(1e-5) EXPERTS(64, 6, 512) SHARED_FF(1024) SSM(48, 3072, 1, 128)),
    MIXED("nemotron_h-9b", "nemotron_h", 131072,
          "output.weight ssm_conv1d.bias", arrays_of_nemotron_h,
          SIZES(56, 4480, 40, 32768) WIDTH(128) ROPE(128, 1e6) RMS(1e-6)
          SSM(128, 10240, 8, 128)),
    MIXED("nemotron_h_moe-30b", "nemotron_h_moe", 131072,
          "output.weight ssm_conv1d.bias exp_probs_b.bias",
          arrays_of_nemotron_h_moe,
          SIZES(52, 2688, 32, 262144) WIDTH(128) ROPE(128, 10000) RMS(1e-5)
          EXPERTS(128, 6, 1856) SHARED(1) SHARED_FF(3712) SCALED(2.5)
          SSM(64, 4096, 8, 128)),
    MIXED("kimi-linear-48b", "kimi-linear", 163840,
          "output.weight exp_probs_b.bias "
          "ssm_f_a.weight=128 ssm_g_a.weight=128", arrays_of_kimi_linear,
          SIZES(27, 2304, 32, 32768) WIDTHS(576, 512) FF(9216) ROPE(64, 1e6)
          RMS(1e-6) INT("attention.key_length_mla", 192)
          INT("attention.value_length_mla", 128)
          INT("attention.kv_lora_rank", 512) INT("kda.head_dim", 128)
          INT("ssm.conv_kernel", 4) EXPERTS(256, 8, 1024) SHARED(1) DENSE(1)
          FLOAT("expert_weights_scale", 2.446) GATING(2)),
    GIVEN("mamba2-2.7b", "mamba2", 50288, "ssm_conv1d.bias",
          SIZES(64, 2560, 0, 1048576) FF(0) RMS(1e-5) SSM(80, 5120, 1, 128)),
    GIVEN("falcon-h1-7b", "falcon-h1", 130048, "output.weight ssm_conv1d.bias",
          SIZES(44, 3072, 12, 262144) KV(2) WIDTH(128) FF(12288)
          ROPE(128, 1e11) RMS(1e-6) SSM(24, 3072, 1, 256)),
    MIXED("lfm2-1.2b", "lfm2", 65536, NULL, arrays_of_lfm2,
          SIZES(16, 2048, 32, 128000) WIDTH(64) FF(8192) ROPE(64, 1e6)
          RMS(1e-5) INT("shortconv.l_cache", 3)),
    MIXED("lfm2moe-8b", "lfm2moe", 65536,
          "exp_probs_b.bias", arrays_of_lfm2moe,
          SIZES(24, 2048, 32, 128000) WIDTH(64) FF(7168) ROPE(64, 1e6)
          RMS(1e-5) EXPERTS(32, 4, 1792) DENSE(2) GATING(2)
          INT("shortconv.l_cache", 3)),
    GIVEN("deepseek2-1t", "deepseek2", 163840,
          "output.weight exp_probs_b.bias",
          SIZES(61, 7168, 64, 131072) KV(1) WIDTHS(576, 512) FF(18432)
          ROPE(64, 50000) RMS(1e-6) LATENT(192, 128, 512, 1536)
          EXPERTS(384, 8, 2048) SHARED(1) DENSE(1) SCALED(2.827) GATING(2)),
    GIVEN("deepseek2-16b", "deepseek2", 102400, "output.weight",
          SIZES(27, 2048, 16, 163840) KV(1) WIDTHS(576, 512) FF(10944)
          ROPE(64, 1e4) RMS(1e-6) INT("attention.key_length_mla", 192)
          INT("attention.value_length_mla", 128)
          INT("attention.kv_lora_rank", 512) EXPERTS(64, 6, 1408) SHARED(2)
          DENSE(1)),
    GIVEN("deepseek2-671b", "deepseek2", 129280,
          "output.weight exp_probs_b.bias",
          SIZES(61, 7168, 128, 163840) KV(1) WIDTHS(576, 512) FF(18432)
          ROPE(64, 1e4) RMS(1e-6) LATENT(192, 128, 512, 1536)
          EXPERTS(256, 8, 2048) SHARED(1) DENSE(3) SCALED(2.5) GATING(2)
          GROUPS(8, 4)),
    GIVEN("deepseek32-671b", "deepseek32", 129280,
          "output.weight exp_probs_b.bias",
          SIZES(61, 7168, 128, 163840) KV(1) WIDTHS(576, 512) FF(18432)
          ROPE(64, 10000) RMS(1e-6) LATENT(192, 128, 512, 1536)
          EXPERTS(256, 8, 2048) SHARED(1) DENSE(3) SCALED(2.5) GATING(2)
          GROUPS(8, 4) YARN(40, 4096)
          FLOAT("rope.scaling.yarn_log_multiplier", 0.1)
          INDEXER(64, 128, 2048)),
    GIVEN("glm-dsa-744b", "glm-dsa", 154880, "output.weight exp_probs_b.bias",
          SIZES(78, 6144, 64, 202752) KV(1) WIDTHS(576, 512) FF(12288)
          ROPE(64, 1e6) RMS(1e-6) LATENT(256, 256, 512, 2048)
          EXPERTS(256, 8, 2048) SHARED(1) DENSE(3) SCALED(2.5) GATING(2)
          INDEXER(32, 128, 2048)),
    MIXED("deepseek4-284b", "deepseek4", 129280,
          "output.weight exp_probs_b.bias", arrays_of_deepseek4,
          SIZES(43, 4096, 64, 1048576) KV(1) WIDTH(512) ROPE(64, 10000)
          RMS(1e-6) INT("attention.q_lora_rank", 1024) WINDOW(128)
          INT("attention.output_group_count", 8)
          INT("attention.output_lora_rank", 1024)
          FLOAT("attention.compress_rope_freq_base", 160000)
          INT("hash_layer_count", 3) INT("hyper_connection.count", 4)
          INT("hyper_connection.sinkhorn_iterations", 20)
          FLOAT("hyper_connection.epsilon", 1e-06) YARN(16, 65536)
          INDEXER(64, 128, 512) EXPERTS(256, 6, 2048) SHARED(1) SCALED(1.5)
          GATING(4)),
    GIVEN("minimax-m2-230b", "minimax-m2", 200064,
          "output.weight exp_probs_b.bias",
          SIZES(62, 3072, 48, 196608) KV(8) WIDTH(128) FF(1536) ROPE(64, 5e+06)
          RMS(1e-6) EXPERTS(256, 8, 1536) GATING(2)),
    GIVEN("minimax-m3-428b", "minimax-m3", 200064,
          "output.weight exp_probs_b.bias",
          SIZES(60, 6144, 64, 1048576) KV(4) WIDTH(128) FF(12288)
          ROPE(64, 5e+06) RMS(1e-6) EXPERTS(128, 4, 3072) SHARED(1) DENSE(3)
          SCALED(2) GATING(2) INDEXER(4, 128, 16)
          INT("attention.indexer.block_size", 128)
          INT("attention.indexer.local_blocks", 1)),
    GIVEN("mistral3-24b", "mistral3", 131072, "output.weight",
          SIZES(40, 5120, 32, 131072) KV(8) WIDTH(128) FF(32768) ROPE(128, 1e9)
          RMS(1e-5)),
    GIVEN("mistral3-8b", "mistral3", 131072, "output.weight",
          SIZES(34, 4096, 32, 262144) KV(8) WIDTH(128) FF(14336) ROPE(128, 1e6)
          RMS(1e-5)),
    GIVEN("phi3-3.8b", "phi3", 200064, NULL,
          SIZES(32, 3072, 24, 131072) KV(8) WIDTH(128) FF(8192) ROPE(96, 10000)
          RMS(1e-5)),
    GIVEN("phi3-14b", "phi3", 100352, "output.weight",
          SIZES(40, 5120, 40, 16384) KV(10) WIDTH(128) FF(17920)
          ROPE(128, 250000) RMS(1e-5)),
    GIVEN("glm4-9b", "glm4", 151552, "output.weight",
          SIZES(40, 4096, 32, 32768) KV(2) WIDTH(128) FF(13696) ROPE(64, 10000)
          RMS(1e-5)),
    GIVEN("glm4-32b", "glm4", 151552, "output.weight",
          SIZES(61, 6144, 48, 32768) KV(2) WIDTH(128) FF(23040) ROPE(64, 1e4)
          RMS(1e-5)),
    GIVEN("gemma2-9b", "gemma2", 256000, NULL,
          SIZES(42, 3584, 16, 8192) KV(8) WIDTH(256) FF(14336) ROPE(256, 1e4)
          RMS(1e-6) WINDOW(4096) FLOAT("attn_logit_softcapping", 50)
          FLOAT("final_logit_softcapping", 30)),
    GIVEN("gemma2-27b", "gemma2", 256000, NULL,
          SIZES(46, 4608, 32, 8192) KV(16) WIDTH(128) FF(36864) ROPE(128, 1e4)
          RMS(1e-6) WINDOW(4096) FLOAT("attn_logit_softcapping", 50)
          FLOAT("final_logit_softcapping", 30)),
    GIVEN("olmo2-7b", "olmo2", 100352, "output.weight",
          SIZES(32, 4096, 32, 4096) KV(32) WIDTH(128) FF(11008)
          ROPE(128, 500000) RMS(1e-6)),
    GIVEN("olmo2-32b", "olmo2", 100352, "output.weight",
          SIZES(64, 5120, 40, 4096) KV(8) WIDTH(128) FF(27648)
          ROPE(128, 500000) RMS(1e-6)),
    GIVEN("exaone4-32b", "exaone4", 102400, "output.weight",
          SIZES(64, 5120, 40, 131072) KV(8) WIDTH(128) FF(27392) ROPE(128, 1e6)
          RMS(1e-5) WINDOW(4096)),
    GIVEN("seed_oss-36b", "seed_oss", 155136,
          "output.weight attn_q.bias attn_k.bias attn_v.bias",
          SIZES(64, 5120, 80, 524288) KV(8) WIDTH(128) FF(27648) ROPE(128, 1e7)
          RMS(1e-6)),
    GIVEN("cohere2-8b", "cohere2", 256000, NULL,
          SIZES(32, 4096, 32, 8192) KV(8) WIDTH(128) FF(14336) ROPE(128, 50000)
          LAYER_NORM(1e-5) WINDOW(4096) FLOAT("logit_scale", 0.25)),
    GIVEN("cohere2-111b", "cohere2", 256000, NULL,
          SIZES(64, 12288, 96, 131072) KV(8) WIDTH(128) FF(36864)
          ROPE(128, 50000) LAYER_NORM(1e-5) WINDOW(4096)
          FLOAT("logit_scale", 0.25)),
    GIVEN("ernie4_5-moe-21b", "ernie4_5-moe", 103424, "exp_probs_b.bias",
          SIZES(28, 2560, 20, 131072) KV(4) WIDTH(128) FF(12288)
          ROPE(128, 500000) RMS(1e-5) EXPERTS(64, 6, 1536) SHARED(2)
          SHARED_FF(3072) DENSE(1) INT("interleave_moe_layer_step", 1)),
    GIVEN("bailingmoe2-16b", "bailingmoe2", 157184,
          "output.weight exp_probs_b.bias attn_qkv.weight",
          SIZES(20, 2048, 16, 32768) KV(4) WIDTH(128) FF(5120) ROPE(64, 600000)
          RMS(1e-6) EXPERTS(256, 8, 512) SHARED(1) DENSE(1) SCALED(2.5)
          GATING(2) GROUPS(8, 4)),
    GIVEN("bailingmoe2-103b", "bailingmoe2", 157184,
          "output.weight exp_probs_b.bias attn_qkv.weight",
          SIZES(32, 4096, 32, 32768) KV(4) WIDTH(128) FF(9216) ROPE(64, 600000)
          RMS(1e-6) EXPERTS(256, 8, 1024) SHARED(1) DENSE(1) SCALED(2.5)
          GATING(2) GROUPS(8, 4)),
    GIVEN("afmoe-26b", "afmoe", 200192, "output.weight exp_probs_b.bias",
          SIZES(32, 2048, 32, 131072) KV(4) WIDTH(128) FF(6144)
          ROPE(128, 10000) RMS(1e-5) EXPERTS(128, 8, 1024) SHARED(1) DENSE(2)
          SCALED(2.826) GATING(2) WINDOW(2048)),
    GIVEN("bert-33m", "bert", 30522,
          "attn_q.bias attn_k.bias attn_v.bias "
          "attn_output.bias ffn_up.bias ffn_down.bias token_types.weight=2",
          SIZES(12, 384, 12, 512) FF(1536) LAYER_NORM(1e-12) ENCODER),
    GIVEN("bert-335m", "bert", 30522,
          "attn_q.bias attn_k.bias attn_v.bias "
          "attn_output.bias ffn_up.bias ffn_down.bias token_types.weight=2",
          SIZES(24, 1024, 16, 512) FF(4096) LAYER_NORM(1e-12) ENCODER),
    GIVEN("nomic-bert-137m", "nomic-bert", 30528,
          "token_types.weight=2 attn_qkv.weight",
          SIZES(12, 768, 12, 2048) FF(3072) LAYER_NORM(1e-12) ENCODER
          BASE(1000)),
    GIVEN("modern-bert-149m", "modern-bert", 50368, "attn_qkv.weight",
          SIZES(22, 768, 12, 8192) FF(1152) LAYER_NORM(1e-5) ENCODER
          WINDOW(128) BASE(160000)),
    GIVEN("gemma-embedding-300m", "gemma-embedding", 262144, NULL,
          SIZES(24, 768, 3, 2048) KV(1) WIDTH(256) FF(1152) ROPE(256, 1e6)
          RMS(1e-6) WINDOW(512) ENCODER),
    GIVEN("qwen2-7b", "qwen2", 152064, "output.weight",
          SIZES(28, 3584, 28, 32768) KV(4) WIDTH(128) FF(18944) ROPE(128, 1e6)
          RMS(1e-6)),
    GIVEN("qwen2moe-14b", "qwen2moe", 151936, "output.weight",
          SIZES(24, 2048, 16, 8192) KV(16) WIDTH(128) FF(5632) ROPE(128, 1e6)
          RMS(1e-6) EXPERTS(60, 4, 1408) SHARED_FF(5632)),
    GIVEN("qwen3next-80b", "qwen3next", 151936, "output.weight",
          SIZES(48, 2048, 16, 262144) KV(2) WIDTH(256) ROPE(64, 1e7) RMS(1e-6)
          EXPERTS(512, 10, 512) SHARED_FF(512) SSM(32, 4096, 16, 128)),
    GIVEN("gpt-oss-20b", "gpt-oss", 201088,
          "output.weight attn_output.bias ffn_gate_inp.bias "
          "ffn_gate_exps.bias ffn_up_exps.bias ffn_down_exps.bias",
          SIZES(24, 2880, 64, 131072) KV(8) WIDTH(64) FF(2880) ROPE(64, 150000)
          RMS(1e-5) EXPERTS(32, 4, 2880) WINDOW(128) YARN(32, 4096)),
    GIVEN("gpt-oss-120b", "gpt-oss", 201088,
          "output.weight attn_output.bias ffn_gate_inp.bias "
          "ffn_gate_exps.bias ffn_up_exps.bias ffn_down_exps.bias",
          SIZES(36, 2880, 64, 131072) KV(8) WIDTH(64) FF(2880) ROPE(64, 150000)
          RMS(1e-5) EXPERTS(128, 4, 2880) WINDOW(128) YARN(32, 4096)),
    GIVEN("gemma3-4b", "gemma3", 262144, NULL,
          SIZES(34, 2560, 8, 131072) KV(4) WIDTH(256) FF(10240) ROPE(256, 1e6)
          RMS(1e-6) WINDOW(1024)),
    GIVEN("gemma3-27b", "gemma3", 262144, NULL,
          SIZES(62, 5376, 32, 131072) KV(16) WIDTH(128) FF(21504)
          ROPE(128, 1e6) RMS(1e-6) WINDOW(1024)),
    GIVEN("glm4moe-106b", "glm4moe", 151552,
          "output.weight exp_probs_b.bias attn_q.bias attn_k.bias attn_v.bias",
          SIZES(46, 4096, 96, 131072) KV(8) WIDTH(128) FF(10944) ROPE(64, 1e6)
          RMS(1e-5) EXPERTS(128, 8, 1408) SHARED(1) DENSE(1) SCALED(1)
          GATING(2)),
    GIVEN("phimoe-42b", "phimoe", 32064,
          "output.weight output.bias attn_q.bias attn_k.bias "
          "attn_v.bias attn_output.bias",
          SIZES(32, 4096, 32, 131072) KV(8) WIDTH(128) FF(6400) ROPE(128, 1e4)
          RMS(1e-5) EXPERTS(16, 2, 6400)),
    GIVEN("olmoe-7b", "olmoe", 50304, "output.weight",
          SIZES(16, 2048, 16, 4096) KV(16) WIDTH(128) FF(1024) ROPE(128, 1e4)
          RMS(1e-5) EXPERTS(64, 8, 1024)),
    GIVEN("hunyuan-moe-80b", "hunyuan-moe", 128167, NULL,
          SIZES(32, 4096, 32, 32768) KV(8) WIDTH(128) FF(3072) ROPE(128, 1e4)
          RMS(1e-5) EXPERTS(64, 8, 3072) SHARED(1) SHARED_FF(3072)),
    GIVEN("dots1-142b", "dots1", 152064, "output.weight exp_probs_b.bias",
          SIZES(62, 4096, 32, 32768) KV(32) WIDTH(128) FF(10944) ROPE(128, 1e7)
          RMS(1e-5) EXPERTS(128, 6, 1408) SHARED(2) DENSE(1) SCALED(2.5)
          GATING(2)),
    GIVEN("exaone-moe-236b", "exaone-moe", 153600,
          "output.weight exp_probs_b.bias",
          SIZES(48, 6144, 64, 262144) KV(8) WIDTH(128) FF(18432) ROPE(128, 1e6)
          RMS(1e-5) EXPERTS(128, 8, 2048) SHARED(1) DENSE(1) SCALED(2.5)
          GATING(2) WINDOW(128)),
    GIVEN("arcee-4.5b", "arcee", 128004, "output.weight",
          SIZES(36, 2560, 20, 65536) KV(4) WIDTH(128) FF(18432) ROPE(128, 1e4)
          RMS(1e-5)),
    GIVEN("command-r-35b", "command-r", 256000, NULL,
          SIZES(40, 8192, 64, 131072) KV(64) WIDTH(128) FF(22528)
          ROPE(128, 8e6) LAYER_NORM(1e-5) FLOAT("logit_scale", 0.0625)),
    GIVEN("nemotron-4b", "nemotron", 256000, "output.weight",
          SIZES(32, 3072, 24, 4096) KV(8) WIDTH(128) FF(9216) ROPE(64, 1e4)
          LAYER_NORM(1e-5)),
    GIVEN("stablelm-1.6b", "stablelm", 100352,
          "output.weight ffn_norm.weight attn_q.bias attn_k.bias "
          "attn_v.bias",
          SIZES(24, 2048, 32, 4096) KV(32) WIDTH(64) FF(5632) ROPE(16, 1e4)
          LAYER_NORM(1e-5)),
    GIVEN("starcoder2-7b", "starcoder2", 49152,
          "attn_q.bias attn_k.bias attn_v.bias attn_output.bias ffn_up.bias "
          "ffn_down.bias",
          SIZES(32, 4608, 36, 16384) KV(4) WIDTH(128) FF(18432) ROPE(128, 1e6)
          LAYER_NORM(1e-5)),
    GIVEN("jina-bert-v3-559m", "jina-bert-v3", 250002,
          "attn_qkv.weight attn_qkv.bias attn_output.bias ffn_up.bias "
          "ffn_down.bias token_types.weight=1",
          SIZES(24, 1024, 16, 8192) FF(4096) LAYER_NORM(1e-5) ENCODER
          BASE(20000)),
    SIZED("tiny", "qwen3moe", 512, false,
          2, 256, 4, 2, 64, 256, 4, 2),
};
#undef GIVEN
#undef MIXED
#undef SIZED
/* clang-format on */

const struct synth_shape *synth_shape_at(int i)
{
    return i >= 0 && (size_t)i < sizeof shapes / sizeof shapes[0] ? &shapes[i]
                                                                  : NULL;
}
