#!/usr/bin/env python3
"""transformers_models.py DIR [SEED [NAME...]]: small models of random weights, and
the logits that the package `transformers` computes of them in float32, for
tests/engine/test_engine_transformers.c.

Writes into DIR, for each model NAME of the table at the end (or those named)
  NAME.gguf         the model, all weights F32, without a tokenizer
  NAME.tokens.txt   a line a sequence: the number of ids, the ids
  NAME.logits.bin   float32 [ids of all sequences, n_vocab]
and models.txt, a NAME a line.

A family is a class of transformers, the names that its tensors have in a GGUF
file, what is done to some of them on the way, and keys. Needs the packages
gguf, numpy, torch and transformers; the exit status is 77 where one is missing.
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

N_VOCAB = 96
SEQUENCES = (1, 11, 45)  # windows are shorter than the last

# ---- names: those of a layer without "model.layers.N." and "blk.N." ---------

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


# ---- changes: (config, tensor) -> {name: tensor} ----------------------------

def renamed(name):
    return lambda c, x: {name: x}


def neighbours(name, heads):
    """RoPE rotates values (i, i + d/2) of a head there, (2i, 2i + 1) here."""
    def change(c, x):
        n = getattr(c, heads)
        y = x.reshape(n, 2, x.shape[0] // n // 2, *x.shape[1:])
        return {name: y.swapaxes(1, 2).reshape(x.shape)}
    return change


def halves(c, x):
    """[n_expert, gate's rows and then up's, in]"""
    n = x.shape[1] // 2
    return {'ffn_gate_exps.weight': x[:, :n], 'ffn_up_exps.weight': x[:, n:]}


EXPERTS = {
    'mlp.experts.gate_up_proj': halves,
    'mlp.experts.down_proj': renamed('ffn_down_exps.weight'),
    'mlp.gate.e_score_correction_bias': renamed('exp_probs_b.bias'),
}
NEIGHBOURS = {
    'self_attn.q_proj.weight': neighbours('attn_q.weight',
                                          'num_attention_heads'),
    'self_attn.k_proj.weight': neighbours('attn_k.weight',
                                          'num_key_value_heads'),
}


def interleaved(end):
    """Columns gate, up, gate, up of a matrix that is stored the other way."""
    def change(c, x):
        if end == 'weight':
            x = x.swapaxes(1, 2)
        return {f'ffn_gate_exps.{end}': x[:, ::2],
                f'ffn_up_exps.{end}': x[:, 1::2]}
    return change


GPT_OSS_EXPERTS = {
    'mlp.experts.gate_up_proj': interleaved('weight'),
    'mlp.experts.gate_up_proj_bias': interleaved('bias'),
    'mlp.experts.down_proj':
        lambda c, x: {'ffn_down_exps.weight': x.swapaxes(1, 2)},
    'mlp.experts.down_proj_bias': renamed('ffn_down_exps.bias'),
    'self_attn.sinks': renamed('attn_sinks.weight'),
}

# ---- keys ------------------------------------------------------------------


def keys(c, rope):
    """`rope` holds the parameters of RoPE where no window is."""
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


def experts(c, width):
    n = getattr(c, 'num_local_experts', None) or c.num_experts
    return {'expert_count': n, 'expert_used_count': c.num_experts_per_tok,
            'expert_feed_forward_length': width}


def routed(c):
    return {
        **experts(c, c.moe_intermediate_size),
        'expert_shared_count': c.n_shared_experts,
        'leading_dense_block_count': c.first_k_dense_replace,
        'expert_gating_func': 2,
        'expert_weights_scale': c.routed_scaling_factor,
        'expert_weights_norm': c.norm_topk_prob,
    }


def frequencies(c, m):
    """Llama 3.1's scaling: what angles are divided by."""
    if c.rope_parameters['rope_type'] != 'llama3':
        return {}
    d = m.model.rotary_emb.inv_freq.numel()
    plain = c.rope_parameters['rope_theta'] ** (-np.arange(d) / d)
    return {'rope_freqs.weight': plain / m.model.rotary_emb.inv_freq.numpy()}


def gemma3_keys(c):
    k = keys(c, c.rope_parameters['full_attention'])
    k['attention.sliding_window'] = c.sliding_window
    if c.final_logit_softcapping:
        k['final_logit_softcapping'] = c.final_logit_softcapping
    return k


# ---- families --------------------------------------------------------------

class Family:
    """offset: norms hold what is added to one. extra: tensors that files have
    and checkpoints have not."""

    def __init__(self, arch, theirs, names={}, changes={}, keys=lambda c: {},
                 all_keys=None, offset=False, extra=lambda c, m: {}):
        self.arch, self.offset, self.extra = arch, offset, extra
        self.model = getattr(transformers, theirs + 'ForCausalLM', None)
        self.names, self.changes = {**NAMES, **names}, changes
        self.keys = all_keys or (
            lambda c: {**globals()['keys'](c, c.rope_parameters), **keys(c)})

    def convert(self, c, m):
        out = self.extra(c, m)
        for name, x in m.state_dict().items():
            x = x.numpy().astype(np.float32)
            layer = re.match(r'model\.layers\.(\d+)\.', name)
            rest = name[layer.end():] if layer else name
            if name == 'lm_head.weight' and c.tie_word_embeddings:
                continue
            if self.offset and rest.endswith('norm.weight'):
                x = x + 1
            if rest in self.changes:
                parts = self.changes[rest](c, x)
            else:
                stem, end = rest.rsplit('.', 1)
                parts = {f'{self.names[stem]}.{end}': x}
            for base, y in parts.items():
                out[(f'blk.{layer[1]}.' if layer else '') + base] = y
        return out


FAMILIES = {
    'llama': Family('llama', 'Llama', changes=NEIGHBOURS, extra=frequencies),
    'mixtral': Family('llama', 'Mixtral', changes={**NEIGHBOURS, **EXPERTS},
                      keys=lambda c: experts(c, c.intermediate_size)),
    'qwen2': Family('qwen2', 'Qwen2'),
    'qwen3': Family('qwen3', 'Qwen3'),
    'qwen3moe': Family('qwen3moe', 'Qwen3Moe', changes=EXPERTS,
                       keys=lambda c: experts(c, c.moe_intermediate_size)),
    'glm4moe': Family('glm4moe', 'Glm4Moe',
                      {**SECOND_NORM, **shared('shared_experts')}, EXPERTS,
                      routed),
    'gemma3': Family('gemma3', 'Gemma3', FOUR_NORMS, all_keys=gemma3_keys,
                     offset=True),
    'gptoss': Family('gpt-oss', 'GptOss',
                     {**SECOND_NORM, 'mlp.router': 'ffn_gate_inp'},
                     GPT_OSS_EXPERTS,
                     lambda c: {**experts(c, c.intermediate_size),
                                'attention.sliding_window': c.sliding_window}),
}

# ---- one model --------------------------------------------------------------


def random_tensor(rng, name, shape, offset):
    """Weights such that logits have a standard deviation of 2 or so and no part
    of a layer is drowned by others."""
    x = rng.standard_normal(shape)
    if name.endswith(('bias', 'sinks')):
        return 0.3 * x
    if len(shape) == 1:
        return 0.3 * x + (0 if offset else 1)
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
    return m.float().eval()


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


MODELS = [
    ('llama', 'llama', dict()),
    ('llama-linear', 'llama', rope('linear', factor=4.0)),
    ('llama-yarn', 'llama',
     rope('yarn', factor=4.0, original_max_position_embeddings=64)),
    ('llama3', 'llama',
     dict(tie_word_embeddings=True,
          **rope('llama3', 500000.0, factor=8.0, low_freq_factor=1.0,
                 high_freq_factor=4.0, original_max_position_embeddings=32))),
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
    ('gptoss', 'gptoss',
     dict(num_hidden_layers=4, num_local_experts=6, num_experts_per_tok=2,
          sliding_window=8, rms_norm_eps=1e-5,
          **rope('yarn', 150000.0, factor=8.0, truncate=True,
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


main()
