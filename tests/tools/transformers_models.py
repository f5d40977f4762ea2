#!/usr/bin/env python3
"""transformers_models.py DIR [SEED [NAME...]]: small models of random weights,
and the logits that the package `transformers` computes of them in float64 (but
for what it rounds to float32 on the way), for
tests/engine/test_engine_transformers.c.

Writes into DIR, for each model NAME of the table at the end (or those named)
  NAME.gguf         the model, all weights F32, without a tokenizer
  NAME.tokens.txt   a line a sequence: the number of ids, the ids
  NAME.logits.bin   float32 [ids of all sequences, n_vocab]
and models.txt, a NAME a line.

A family is a class of transformers, the names that its tensors have in a GGUF
file, what is done to some of them on the way, and keys. Needs the packages
gguf, numpy, torch and transformers (5 or later); the exit status is 77 where
one is missing.
"""
import os
import re
import sys
import zlib

try:
    import gguf
    import numpy as np
    import torch
    import transformers
except ImportError as e:
    print(e)
    sys.exit(77)
if int(transformers.__version__.split('.')[0]) < 5:
    print(f'transformers {transformers.__version__} is too old')
    sys.exit(77)

N_VOCAB = 96
SEQUENCES = (1, 11, 45)  # windows are shorter than the last

# ---- what families share ----------------------------------------------------

# Names in layers, without "model.layers.N." and "blk.N.".
NAMES = {
    'model.embed_tokens': 'token_embd',
    'model.norm': 'output_norm',
    'lm_head': 'output',
    'input_layernorm': 'attn_norm',
    'post_attention_layernorm': 'ffn_norm',
    'self_attn.q_proj': 'attn_q',
    'self_attn.k_proj': 'attn_k',
    'self_attn.v_proj': 'attn_v',
    'self_attn.o_proj': 'attn_output',
    'self_attn.q_norm': 'attn_q_norm',
    'self_attn.k_norm': 'attn_k_norm',
    'mlp.gate_proj': 'ffn_gate',
    'mlp.up_proj': 'ffn_up',
    'mlp.down_proj': 'ffn_down',
    'mlp.gate': 'ffn_gate_inp',
}
SECOND_NORM = {'post_attention_layernorm': 'post_attention_norm'}
FOUR_NORMS = {
    'post_attention_layernorm': 'post_attention_norm',
    'pre_feedforward_layernorm': 'ffn_norm',
    'post_feedforward_layernorm': 'post_ffw_norm',
}


def shared(theirs):
    return {f'mlp.{theirs}.{x}_proj': f'ffn_{x}_shexp'
            for x in ('gate', 'up', 'down')}


def is_norm(name):
    return name.endswith('norm.weight') and 'linear_attn' not in name


class Family:
    """names: of modules, beside NAMES.
    changes: {name: (config, tensor) -> {name: tensor}}, for tensors that are
        not only renamed.
    keys: config -> {key: value}, beside common_keys; or all_keys.
    offset: true if norms contain values to be added to one.
    extra: (config, model) -> {name: tensor}, tensors missing in checkpoints."""

    def __init__(self, arch, theirs, names={}, changes={}, keys=lambda c: {},
                 all_keys=None, offset=False, extra=lambda c, m: {}):
        self.arch, self.offset, self.extra = arch, offset, extra
        self.model = getattr(transformers, theirs + 'ForCausalLM', None)
        self.names, self.changes = {**NAMES, **names}, changes
        self.keys = all_keys or (
            lambda c: {**common_keys(c, c.rope_parameters), **keys(c)})

    def convert(self, c, m):
        out = self.extra(c, m)
        for name, x in m.state_dict().items():
            x = x.numpy().astype(np.float32)
            layer = re.match(r'model\.layers\.(\d+)\.', name)
            rest = name[layer.end():] if layer else name
            if name == 'lm_head.weight' and c.tie_word_embeddings:
                continue
            if is_norm(rest) and self.offset:
                x = x + 1
            if rest in self.changes:
                parts = self.changes[rest](c, x)
            else:
                stem, end = rest.rsplit('.', 1)
                parts = {f'{self.names[stem]}.{end}': x}
            for base, y in parts.items():
                out[(f'blk.{layer[1]}.' if layer else '') + base] = y
        return out


def common_keys(c, rope):
    """`c` may be that of one layer; `rope` has the parameters of RoPE without a
    window."""
    d = getattr(c, 'head_dim', None) or c.hidden_size // c.num_attention_heads
    k = {
        'context_length': c.max_position_embeddings,
        'embedding_length': c.hidden_size,
        'block_count': c.num_hidden_layers,
        'feed_forward_length': getattr(c, 'intermediate_size', 0),
        'attention.head_count': c.num_attention_heads,
        'attention.head_count_kv': c.num_key_value_heads,
        'attention.key_length': d,
        'attention.value_length': d,
        'attention.layer_norm_rms_epsilon': c.rms_norm_eps,
        'rope.dimension_count': int(d * rope.get('partial_rotary_factor', 1)),
        'rope.freq_base': float(rope['rope_theta']),
        'vocab_size': c.vocab_size,
    }
    if rope['rope_type'] in ('linear', 'yarn'):
        k['rope.scaling.type'] = rope['rope_type']
        k['rope.scaling.factor'] = float(rope['factor'])
    if rope['rope_type'] == 'yarn':
        k['rope.scaling.original_context_length'] = \
            rope['original_max_position_embeddings']
    return k


def expert_keys(c, width):
    n = getattr(c, 'num_local_experts', None) or c.num_experts
    return {'expert_count': n, 'expert_used_count': c.num_experts_per_tok,
            'expert_feed_forward_length': width}


def softcap_keys(c):
    cap = c.final_logit_softcapping
    return {'final_logit_softcapping': cap} if cap else {}


def renamed(name):
    return lambda c, x: {name: x}


def halves(c, x):
    """Splits [n_expert, gate's rows and then up's, in]."""
    n = x.shape[1] // 2
    return {'ffn_gate_exps.weight': x[:, :n], 'ffn_up_exps.weight': x[:, n:]}


EXPERTS = {
    'mlp.experts.gate_up_proj': halves,
    'mlp.experts.down_proj': renamed('ffn_down_exps.weight'),
}
FAMILIES = {}

# ---- llama, qwen2, qwen3 ----------------------------------------------------


def neighbours(name, heads):
    """RoPE rotates values (i, i + d/2) of a head there, (2i, 2i + 1) here."""
    def change(c, x):
        n = getattr(c, heads)
        y = x.reshape(n, 2, x.shape[0] // n // 2, *x.shape[1:])
        return {name: y.swapaxes(1, 2).reshape(x.shape)}
    return change


LLAMA = {
    f'self_attn.{x}_proj.{end}': neighbours(f'attn_{x}.{end}', heads)
    for x, heads in (('q', 'num_attention_heads'), ('k', 'num_key_value_heads'))
    for end in ('weight', 'bias')
}


def frequencies(c, m):
    """Llama 3.1's scaling: the divisors of angles."""
    if c.rope_parameters['rope_type'] != 'llama3':
        return {}
    scaled = m.model.rotary_emb.inv_freq.numpy()
    n = scaled.size
    return {'rope_freqs.weight':
            c.rope_parameters['rope_theta'] ** (-np.arange(n) / n) / scaled}


FAMILIES['llama'] = Family('llama', 'Llama', changes=LLAMA, extra=frequencies)
FAMILIES['mixtral'] = Family('llama', 'Mixtral', changes={**LLAMA, **EXPERTS},
                             keys=lambda c: expert_keys(c, c.intermediate_size))
FAMILIES['qwen2'] = Family('qwen2', 'Qwen2')
FAMILIES['qwen3'] = Family('qwen3', 'Qwen3')
FAMILIES['qwen3moe'] = Family(
    'qwen3moe', 'Qwen3Moe', changes=EXPERTS,
    keys=lambda c: expert_keys(c, c.moe_intermediate_size))

# ---- glm4moe ----------------------------------------------------------------

SOFTMAX, SIGMOID = 1, 2
ROUTED = {
    **EXPERTS,
    'mlp.gate.e_score_correction_bias': renamed('exp_probs_b.bias'),
}


def routed_keys(c, gating=SIGMOID):
    return {
        **expert_keys(c, c.moe_intermediate_size),
        'expert_shared_count': c.n_shared_experts,
        'leading_dense_block_count': c.first_k_dense_replace,
        'expert_gating_func': gating,
        'expert_group_count': c.n_group,
        'expert_group_used_count': c.topk_group,
        'expert_weights_scale': c.routed_scaling_factor,
        'expert_weights_norm': c.norm_topk_prob,
    }


FAMILIES['glm4moe'] = Family(
    'glm4moe', 'Glm4Moe', {**SECOND_NORM, **shared('shared_experts')}, ROUTED,
    routed_keys)

# ---- gpt-oss ----------------------------------------------------------------


def interleaved(end):
    """Splits columns gate, up, gate, up of a matrix stored transposed."""
    def change(c, x):
        if end == 'weight':
            x = x.swapaxes(1, 2)
        return {f'ffn_gate_exps.{end}': x[:, ::2],
                f'ffn_up_exps.{end}': x[:, 1::2]}
    return change


FAMILIES['gptoss'] = Family(
    'gpt-oss', 'GptOss', {**SECOND_NORM, 'mlp.router': 'ffn_gate_inp'},
    {
        'mlp.experts.gate_up_proj': interleaved('weight'),
        'mlp.experts.gate_up_proj_bias': interleaved('bias'),
        'mlp.experts.down_proj':
            lambda c, x: {'ffn_down_exps.weight': x.swapaxes(1, 2)},
        'mlp.experts.down_proj_bias': renamed('ffn_down_exps.bias'),
        'self_attn.sinks': renamed('attn_sinks.weight'),
    },
    lambda c: {**expert_keys(c, c.intermediate_size),
               'attention.sliding_window': c.sliding_window})

# ---- gemma3, gemma4 ---------------------------------------------------------


def gemma3_keys(c):
    return {**common_keys(c, c.rope_parameters['full_attention']),
            'attention.sliding_window': c.sliding_window, **softcap_keys(c)}


FAMILIES['gemma3'] = Family('gemma3', 'Gemma3', FOUR_NORMS,
                            all_keys=gemma3_keys, offset=True)


def gemma4_keys(c):
    """The last layer has no window."""
    rope = c.rope_parameters
    layers = [c.per_layer_config[i] for i in range(c.num_hidden_layers)]
    windows = [x == 'sliding_attention' for x in c.layer_types]
    d_window = layers[windows.index(True)].head_dim
    width = c.intermediate_size
    wide = 2 * width if c.use_double_wide_mlp else width
    moe = {'expert_count': c.num_experts,
           'expert_used_count': c.top_k_experts,
           'expert_feed_forward_length': c.moe_intermediate_size}
    return {
        **common_keys(layers[-1], rope['full_attention']),
        'attention.head_count_kv': [x.num_key_value_heads for x in layers],
        'feed_forward_length':
            [width] * (c.num_hidden_layers - c.num_kv_shared_layers) +
            [wide] * c.num_kv_shared_layers,
        'attention.key_length_swa': d_window,
        'attention.value_length_swa': d_window,
        'rope.dimension_count': layers[-1].head_dim,
        'rope.dimension_count_swa': d_window,
        'rope.freq_base_swa': float(rope['sliding_attention']['rope_theta']),
        'attention.sliding_window': c.sliding_window,
        'attention.sliding_window_pattern': windows,
        'attention.shared_kv_layers': c.num_kv_shared_layers,
        'embedding_length_per_layer_input': c.hidden_size_per_layer_input,
        **softcap_keys(c),
        **(moe if c.enable_moe_block else {}),
    }


def rotated_pairs(c, m):
    """Some pairs of layers without a window are not rotated."""
    angle = m.model.rotary_emb.full_attention_inv_freq.numpy()
    return {'rope_freqs.weight': np.where(angle > 0, 1, 1e30)}


FAMILIES['gemma4'] = Family(
    'gemma4', 'Gemma4',
    {
        **FOUR_NORMS,
        'post_feedforward_layernorm_1': 'post_ffw_norm_1',
        'pre_feedforward_layernorm_2': 'pre_ffw_norm_2',
        'post_feedforward_layernorm_2': 'post_ffw_norm_2',
        'router.proj': 'ffn_gate_inp',
        'per_layer_input_gate': 'inp_gate',
        'per_layer_projection': 'proj',
        'post_per_layer_input_norm': 'post_norm',
        'model.embed_tokens_per_layer': 'per_layer_token_embd',
        'model.per_layer_model_projection': 'per_layer_model_proj',
        'model.per_layer_projection_norm': 'per_layer_proj_norm',
    },
    {
        'router.scale': renamed('ffn_gate_inp.scale'),
        'router.per_expert_scale': renamed('ffn_down_exps.scale'),
        'experts.gate_up_proj': renamed('ffn_gate_up_exps.weight'),
        'experts.down_proj': renamed('ffn_down_exps.weight'),
        'layer_scalar': renamed('layer_output_scale.weight'),
    },
    all_keys=gemma4_keys, extra=rotated_pairs)

# ---- the gated delta net: qwen3next, qwen35, qwen35moe ----------------------


def delta_keys(c):
    return {
        'ssm.conv_kernel': c.linear_conv_kernel_dim,
        'ssm.state_size': c.linear_key_head_dim,
        'ssm.group_count': c.linear_num_key_heads,
        'ssm.time_step_rank': c.linear_num_value_heads,
        'ssm.inner_size': c.linear_num_value_heads * c.linear_value_head_dim,
        'full_attention_interval': c.layer_types.index('full_attention') + 1,
    }


def delta_expert_keys(c):
    return {
        **delta_keys(c), **expert_keys(c, c.moe_intermediate_size),
        'expert_shared_feed_forward_length': c.shared_expert_intermediate_size,
    }


def qkvz(c, x):
    """Reorders rows. There: for each key head the query, the key, its values
    and their gates; here all queries, all keys, all values, and gates apart."""
    n, d = c.linear_num_key_heads, c.linear_key_head_dim
    of_values = c.linear_num_value_heads // n * c.linear_value_head_dim
    parts = np.split(x.reshape(n, -1, x.shape[1]),
                     np.cumsum([d, d, of_values]), axis=1)
    q, k, v, z = (part.reshape(-1, x.shape[1]) for part in parts)
    return {'attn_qkv.weight': np.concatenate([q, k, v]),
            'attn_gate.weight': z}


def in_turn(c, x, d):
    """Reorders rows of value heads, d each. There a key head's value heads are
    together; here the first of each key head come first, then the second."""
    n = c.linear_num_key_heads
    y = x.reshape(n, c.linear_num_value_heads // n, d, *x.shape[1:])
    return y.swapaxes(0, 1).reshape(x.shape)


def qkv(name):
    def change(c, x):
        n = 2 * c.linear_num_key_heads * c.linear_key_head_dim
        v = in_turn(c, x[n:], c.linear_value_head_dim)
        return {name: np.concatenate([x[:n], v]).squeeze()}
    return change


def scalars(name):
    return lambda c, x: {name: in_turn(c, x, 1)}


DELTA_NAMES = {
    **SECOND_NORM,
    **shared('shared_expert'),
    'linear_attn.norm': 'ssm_norm',
    'linear_attn.out_proj': 'ssm_out',
    'linear_attn.in_proj_ba': 'ssm_ba',
}
DELTA_EXPERTS = {
    **EXPERTS,
    'mlp.shared_expert_gate.weight':
        lambda c, x: {'ffn_gate_inp_shexp.weight': x[0]},
}
QWEN3NEXT = {
    'linear_attn.in_proj_qkvz.weight': qkvz,
    'linear_attn.conv1d.weight':
        lambda c, x: {'ssm_conv1d.weight': x.squeeze()},
    'linear_attn.dt_bias': renamed('ssm_dt.bias'),
    'linear_attn.A_log': lambda c, x: {'ssm_a': -np.exp(x)},
}
QWEN35 = {
    'linear_attn.in_proj_qkv.weight': qkv('attn_qkv.weight'),
    'linear_attn.conv1d.weight': qkv('ssm_conv1d.weight'),
    'linear_attn.in_proj_z.weight': lambda c, x: {
        'attn_gate.weight': in_turn(c, x, c.linear_value_head_dim)},
    'linear_attn.out_proj.weight': lambda c, x: {
        'ssm_out.weight': in_turn(c, x.T, c.linear_value_head_dim).T},
    'linear_attn.in_proj_a.weight': scalars('ssm_alpha.weight'),
    'linear_attn.in_proj_b.weight': scalars('ssm_beta.weight'),
    'linear_attn.dt_bias': scalars('ssm_dt.bias'),
    'linear_attn.A_log': lambda c, x: {'ssm_a': -np.exp(in_turn(c, x, 1))},
}
FAMILIES['qwen3next'] = Family(
    'qwen3next', 'Qwen3Next', DELTA_NAMES, {**QWEN3NEXT, **DELTA_EXPERTS},
    delta_expert_keys, offset=True)
FAMILIES['qwen35'] = Family('qwen35', 'Qwen3_5', DELTA_NAMES, QWEN35,
                            delta_keys, offset=True)
FAMILIES['qwen35moe'] = Family(
    'qwen35moe', 'Qwen3_5Moe', DELTA_NAMES, {**QWEN35, **DELTA_EXPERTS},
    delta_expert_keys, offset=True)

# ---- multi-head latent attention: deepseek2 ---------------------------------


def latent(c, x):
    """Splits each head into the matrices that make its keys and its values from
    the latent vector; that of keys is stored transposed."""
    x = x.reshape(c.num_attention_heads, -1, c.kv_lora_rank)
    n = c.qk_nope_head_dim
    return {'attn_k_b.weight': x[:, :n].swapaxes(1, 2),
            'attn_v_b.weight': x[:, n:]}


def latent_keys(c, gating=SIGMOID):
    d, d_rope = c.kv_lora_rank, c.qk_rope_head_dim
    k = {
        'attention.head_count_kv': 1,
        'attention.key_length': d + d_rope,
        'attention.value_length': d,
        'attention.key_length_mla': c.qk_nope_head_dim + d_rope,
        'attention.value_length_mla': c.v_head_dim,
        'attention.kv_lora_rank': d,
        'attention.q_lora_rank': c.q_lora_rank or 0,
        'rope.dimension_count': d_rope,
        **routed_keys(c, gating),
    }
    if 'mscale_all_dim' in c.rope_parameters:
        k['rope.scaling.yarn_log_multiplier'] = \
            0.1 * c.rope_parameters['mscale_all_dim']
    return k


LATENT_NAMES = {
    **shared('shared_experts'),
    'self_attn.q_a_proj': 'attn_q_a',
    'self_attn.q_a_layernorm': 'attn_q_a_norm',
    'self_attn.q_b_proj': 'attn_q_b',
    'self_attn.kv_a_proj_with_mqa': 'attn_kv_a_mqa',
    'self_attn.kv_a_layernorm': 'attn_kv_a_norm',
}
LATENT = {**ROUTED, 'self_attn.kv_b_proj.weight': latent}
FAMILIES['deepseek_v2'] = Family('deepseek2', 'DeepseekV2', LATENT_NAMES,
                                 LATENT, lambda c: latent_keys(c, SOFTMAX))
FAMILIES['deepseek_v3'] = Family('deepseek2', 'DeepseekV3', LATENT_NAMES,
                                 LATENT, latent_keys)

# ---- one model --------------------------------------------------------------


def random_tensor(rng, name, shape, offset):
    """Returns weights for which logits have a standard deviation of about 2 and
    every part of a layer matters."""
    x = rng.standard_normal(shape)
    if name.endswith('gate_up_proj_bias'):
        return 4 * x  # gpt-oss clamps at 7
    if name.endswith(('bias', 'sinks')):
        return 0.3 * x
    if len(shape) == 1:
        return 0.3 * x + (0 if offset and is_norm(name) else 1)
    if 'embed_tokens' in name:
        return 0.3 * x
    return x * (2 if name.startswith('lm_head') else 1.3) / shape[-1] ** 0.5


def make_model(family, c, rng):
    m = family.model._from_config(c, attn_implementation='eager',
                                  experts_implementation='eager')
    with torch.no_grad():
        for name, x in m.state_dict().items():
            y = random_tensor(rng, name, tuple(x.shape), family.offset)
            x.copy_(torch.from_numpy(np.asarray(y, np.float32)))
    return m.double().eval()


def write_model(path, family, c, m):
    w = gguf.GGUFWriter(path, family.arch)
    put = {bool: w.add_bool, int: w.add_uint32, float: w.add_float32,
           str: w.add_string, list: w.add_array}
    for key, value in family.keys(c).items():
        put[type(value)](f'{family.arch}.{key}', value)
    for name, x in family.convert(c, m).items():
        w.add_tensor(name, np.ascontiguousarray(x, dtype=np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_logits(base, m, rng):
    with open(base + '.tokens.txt', 'w') as f, \
            open(base + '.logits.bin', 'wb') as out, torch.no_grad():
        for n in SEQUENCES:
            ids = rng.integers(0, N_VOCAB, n)
            print(n, *ids, file=f)
            logits = m(torch.from_numpy(ids)[None], use_cache=False).logits
            out.write(logits[0].numpy().astype('<f4').tobytes())


# ---- the models -------------------------------------------------------------

COMMON = dict(vocab_size=N_VOCAB, hidden_size=48, intermediate_size=80,
              num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
              head_dim=16, max_position_embeddings=256, pad_token_id=None,
              bos_token_id=None, eos_token_id=None)
MOE = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24)
GLM = dict(n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=24,
           attention_bias=True, num_mtp_layers=0)


def rope(kind, theta=10000.0, **parameters):
    return dict(rope_parameters={'rope_type': kind, 'rope_theta': theta,
                                 **parameters})


GEMMA4_SIZES = dict(layer_types=['sliding_attention', 'full_attention',
                                 'sliding_attention', 'sliding_attention',
                                 'full_attention'],
                    num_hidden_layers=5, sliding_window=8, head_dim=8,
                    global_head_dim=32, num_attention_heads=4,
                    final_logit_softcapping=5.0, hidden_size_per_layer_input=0,
                    vocab_size_per_layer_input=N_VOCAB)
DELTA_SIZES = dict(num_hidden_layers=5, full_attention_interval=2,
                   linear_key_head_dim=16, linear_value_head_dim=16,
                   linear_num_key_heads=2, linear_num_value_heads=6)
LATENT_SIZES = dict(GLM, attention_bias=False, q_lora_rank=20, kv_lora_rank=24,
                    qk_rope_head_dim=8, head_dim=8, qk_nope_head_dim=16,
                    v_head_dim=12, num_key_value_heads=6, n_group=1,
                    topk_group=1, first_k_dense_replace=1)

MODELS = [
    ('llama', 'llama', dict()),
    ('llama-linear', 'llama', rope('linear', factor=4.0)),
    ('llama-yarn', 'llama',
     rope('yarn', factor=4.0, original_max_position_embeddings=64)),
    ('llama3', 'llama',
     dict(tie_word_embeddings=True,
          **rope('llama3', 500000.0, factor=8.0, low_freq_factor=1.0,
                 high_freq_factor=4.0, original_max_position_embeddings=32))),
    ('llama-bias', 'llama', dict(attention_bias=True, mlp_bias=True)),
    ('mixtral', 'mixtral',
     dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=None)),
    ('qwen2', 'qwen2', dict(tie_word_embeddings=True)),
    ('qwen3', 'qwen3', dict()),
    ('qwen3moe', 'qwen3moe', dict(MOE, norm_topk_prob=True)),
    ('glm4moe', 'glm4moe',
     dict(GLM, use_qk_norm=True, routed_scaling_factor=2.5)),
    ('glm4moe-air', 'glm4moe',
     dict(GLM, first_k_dense_replace=2, n_shared_experts=2)),
    ('glm4moe-plain', 'glm4moe', dict(GLM, attention_bias=False)),
    ('gemma3', 'gemma3',
     dict(num_hidden_layers=7, sliding_window=8, query_pre_attn_scalar=16)),
    ('gemma3-linear', 'gemma3',
     dict(num_hidden_layers=7, sliding_window=8, query_pre_attn_scalar=16,
          final_logit_softcapping=5.0,
          rope_parameters={
              'full_attention': {'rope_type': 'linear', 'factor': 8.0,
                                 'rope_theta': 1000000.0},
              'sliding_attention': {'rope_type': 'default',
                                    'rope_theta': 10000.0}})),
    ('gemma3-27b', 'gemma3',
     dict(num_hidden_layers=62, intermediate_size=16, sliding_window=8,
          query_pre_attn_scalar=8)),
    ('gptoss', 'gptoss',
     # Published files say truncate=False, which GGUF has no key for.
     dict(num_hidden_layers=4, num_local_experts=6, num_experts_per_tok=2,
          sliding_window=8, rms_norm_eps=1e-5,
          **rope('yarn', 150000.0, factor=8.0, truncate=True,
                 original_max_position_embeddings=32))),
    ('gemma4', 'gemma4', GEMMA4_SIZES),
    ('gemma4-moe', 'gemma4',
     dict(GEMMA4_SIZES, enable_moe_block=True, num_experts=6, top_k_experts=2,
          moe_intermediate_size=24, attention_k_eq_v=True,
          num_global_key_value_heads=1)),
    ('gemma4-shared', 'gemma4',
     dict(GEMMA4_SIZES, hidden_size_per_layer_input=8, num_kv_shared_layers=3,
          use_double_wide_mlp=True)),
    ('qwen35', 'qwen35', DELTA_SIZES),
    ('qwen35moe', 'qwen35moe',
     dict(DELTA_SIZES, **MOE, shared_expert_intermediate_size=40)),
    ('qwen3next', 'qwen3next',
     dict(DELTA_SIZES, **MOE, shared_expert_intermediate_size=40)),
    ('deepseek-v2', 'deepseek_v2',
     dict(LATENT_SIZES, q_lora_rank=None, norm_topk_prob=False,
          routed_scaling_factor=1.5)),
    ('deepseek-v2-groups', 'deepseek_v2',
     dict(LATENT_SIZES, q_lora_rank=None, norm_topk_prob=False, n_group=3,
          topk_group=2, topk_method='group_limited_greedy')),
    ('deepseek-v3', 'deepseek_v3', LATENT_SIZES),
    ('deepseek-groups', 'deepseek_v3',
     dict(LATENT_SIZES, n_group=3, topk_group=2)),
    ('deepseek-yarn', 'deepseek_v3',
     dict(LATENT_SIZES,
          **rope('yarn', factor=8.0, mscale=1.0, mscale_all_dim=1.0,
                 original_max_position_embeddings=32))),
]


def main():
    folder = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    only = sys.argv[3:]
    os.makedirs(folder, exist_ok=True)
    torch.set_num_threads(1)
    with open(os.path.join(folder, 'models.txt'), 'w') as names:
        for name, kind, options in MODELS:
            family = FAMILIES[kind]
            if only and name not in only:
                continue
            if family.model is None:
                print(f'{name}: this version of transformers lacks it')
                continue
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            c = family.model.config_class(**{**COMMON, **options})
            m = make_model(family, c, rng)
            base = os.path.join(folder, name)
            write_model(base + '.gguf', family, c, m)
            write_logits(base, m, rng)
            print(name, file=names)


if __name__ == '__main__':
    main()
