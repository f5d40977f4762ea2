#!/usr/bin/env python3
"""mtp_reference.py MODEL.gguf: logits of a glm4moe model's block for
multi-token prediction, computed in float64 straight from its equations; to
standard output, float32, a row a token. Hidden values and tokens are those of
`mtp_hidden` and `mtp_token` of tests/engine/test_engine_mtp.c.

    mtp_reference.py tests/refs/glm4moe-f32.gguf >tests/refs/glm4moe-f32.mtp.bin
"""
import sys

import gguf
import numpy as np

N_TOK = 24

reader = gguf.GGUFReader(sys.argv[1])
tensor = {t.name: t.data.astype(np.float64) for t in reader.tensors}


def key(name):
    return reader.fields['glm4moe.' + name].contents()


LAYER = key('block_count') - key('nextn_predict_layers')
EPS = key('attention.layer_norm_rms_epsilon')


def w(name):
    return tensor[f'blk.{LAYER}.{name}']


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def silu(x):
    return x / (1 + np.exp(-x))


def rope(x):
    """x [n_tok, n_head, d]: the first n_rot values, in halves."""
    n_rot = key('rope.dimension_count')
    half = n_rot // 2
    angle = (np.arange(len(x))[:, None] *
             key('rope.freq_base') ** (-np.arange(half) * 2 / n_rot))[:, None]
    a, b = x[..., :half], x[..., half:n_rot]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                           a * np.sin(angle) + b * np.cos(angle),
                           x[..., n_rot:]], -1)


def attention(h):
    n, d = key('attention.head_count'), key('attention.key_length')
    q, k, v = ((h @ w(f'attn_{c}.weight').T + w(f'attn_{c}.bias'))
               .reshape(len(h), -1, d) for c in 'qkv')
    q, k = rope(q), rope(k)
    shared = n // k.shape[1]
    out = np.zeros((len(h), n, d))
    for head in range(n):
        score = q[:, head] @ k[:, head // shared].T / np.sqrt(d)
        score[np.triu_indices(len(h), 1)] = -np.inf
        p = np.exp(score - score.max(-1, keepdims=True))
        out[:, head] = p / p.sum(-1, keepdims=True) @ v[:, head // shared]
    return out.reshape(len(h), -1) @ w('attn_output.weight').T


def mlp(h, gate, up, down):
    return (silu(h @ gate.T) * (h @ up.T)) @ down.T


def experts(h):
    p = 1 / (1 + np.exp(-(h @ w('ffn_gate_inp.weight').T)))
    out = mlp(h, *(w(f'ffn_{c}_shexp.weight') for c in ('gate', 'up', 'down')))
    for i, row in enumerate(p):
        best = np.argsort(-(row + w('exp_probs_b.bias')),
                          kind='stable')[:key('expert_used_count')]
        share = row[best] / row[best].sum() * key('expert_weights_scale')
        for e, s in zip(best, share):
            out[i] += s * mlp(h[i], *(w(f'ffn_{c}_exps.weight')[e]
                                      for c in ('gate', 'up', 'down')))
    return out


def main():
    width = key('embedding_length')
    i, j = np.arange(N_TOK)[:, None], np.arange(width)[None]
    hidden = ((i * 131 + j * 71 + i * j * 17) % 251 - 125) / 64
    token = np.arange(N_TOK) * 89 % len(tensor['token_embd.weight'])
    x = np.concatenate([norm(tensor['token_embd.weight'][token],
                             w('nextn.enorm.weight')),
                        norm(hidden, w('nextn.hnorm.weight'))], -1)
    x = x @ w('nextn.eh_proj.weight').T
    x = x + attention(norm(x, w('attn_norm.weight')))
    x = x + experts(norm(x, w('post_attention_norm.weight')))
    x = norm(x, w('nextn.shared_head_norm.weight'))
    logits = x @ tensor['output.weight'].T
    sys.stdout.buffer.write(logits.astype('<f4').tobytes())


if __name__ == '__main__':
    main()
