#!/usr/bin/env python3
"""encoder_models.py DIR: descriptions of small encoders of random weights, for
tests/engine/test_engine_encoders.c, in the form of tests/lib/made_model.c, with
numbers of their embeddings.

The numbers come from the equations below, in float64. Where the packages torch
and transformers (5 or later) are, their models compute the same embeddings, and
the greatest difference is printed; they round angles to float32 on the way.
GELU has the form of the originals: exact, but gemma-embedding's, which has its
tanh form. Needs numpy.
"""
import json
import math
import os
import sys

import numpy as np

LENGTHS = (1, 17, 90)
N_VOCAB = 128


# ---- weights: as tests/lib/made_model.c draws them --------------------------

def draws(state, n):
    out = np.empty(n)
    m = (1 << 64) - 1
    for i in range(n):
        state = (state + 0x9e3779b97f4a7c15) & m
        z = state
        z = ((z ^ (z >> 30)) * 0xbf58476d1ce4e5b9) & m
        z = ((z ^ (z >> 27)) * 0x94d049bb133111eb) & m
        z ^= z >> 31
        out[i] = (z >> 11) * 2.0**-53
    return out


def weights(tensors):
    """name -> float64 array, from the rows of a description."""
    rows = [(r[0], r) for r in tensors if '%' not in r[0]]
    most = max([max(r[4]) for r in tensors if len(r) > 4], default=-1)
    for layer in range(most + 1):
        rows += [(r[0].replace('%', str(layer)), r) for r in tensors
                 if len(r) > 4 and layer in r[4]]
    w = {}
    for i, (name, (_, _, dim, (lo, hi), *_)) in enumerate(rows):
        v = lo + (hi - lo) * draws(i + 1, int(np.prod(dim)))
        w[name] = v.astype(np.float32).astype(float).reshape(dim)
    return w


# ---- the equations ----------------------------------------------------------

def gelu(x):
    return 0.5 * x * np.vectorize(math.erfc)(-x / np.sqrt(2))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


class Net:
    def __init__(self, d):
        self.k = {k: v for _, k, v in d['keys']}
        self.arch = self.k['general.architecture']
        self.w = weights(d['tensors'])

    def key(self, name, default=None):
        return self.k.get(self.arch + '.' + name, default)

    def mat(self, x, name):
        y = x @ self.w[name + '.weight'].T
        b = self.w.get(name + '.bias')
        return y if b is None else y + b

    def norm(self, x, name):
        if self.arch in ('gemma-embedding', 'qwen3'):
            eps = float(np.float32(self.key('attention.layer_norm_rms_epsilon')))
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
        else:
            eps = float(np.float32(self.key('attention.layer_norm_epsilon')))
            x = x - x.mean(-1, keepdims=True)
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
        b = self.w.get(name + '.bias')
        y = x * self.w[name + '.weight']
        return y if b is None else y + b

    def rope(self, x, base):
        n, h, d = x.shape
        a = np.arange(n)[:, None] * base ** (-2.0 * np.arange(d // 2) / d)
        c, s = np.cos(a)[:, None], np.sin(a)[:, None]
        u, v = x[..., :d // 2], x[..., d // 2:]
        return np.concatenate([u * c - v * s, u * s + v * c], -1)

    def attention(self, x, i, base=None, half=None):
        """half: distance up to which tokens are visible."""
        p = f'blk.{i}.'
        h, kv = self.key('attention.head_count'), self.key(
            'attention.head_count_kv', self.key('attention.head_count'))
        d = self.key('attention.key_length', x.shape[1] // h)
        if p + 'attn_qkv.weight' in self.w:
            y = self.mat(x, p + 'attn_qkv')
            q, k, v = np.split(y, [h * d, (h + kv) * d], -1)
        else:
            q, k, v = (self.mat(x, p + 'attn_' + c) for c in 'qkv')
        q, k, v = (t.reshape(len(x), -1, d) for t in (q, k, v))
        if p + 'attn_q_norm.weight' in self.w:
            q, k = self.norm(q, p + 'attn_q_norm'), self.norm(k, p + 'attn_k_norm')
        if base:
            q, k = self.rope(q, base), self.rope(k, base)
        k, v = (np.repeat(t, h // kv, 1) for t in (k, v))
        s = np.einsum('thd,uhd->htu', q, k) / np.sqrt(d)
        if self.arch == 'qwen3':
            s = np.where(np.tri(len(x), dtype=bool), s, -np.inf)
        if half is not None:
            t = np.arange(len(x))
            s = np.where(abs(t[:, None] - t) <= half, s, -np.inf)
        y = np.einsum('htu,uhd->thd', softmax(s), v).reshape(len(x), -1)
        return self.mat(y, p + 'attn_output')

    def experts(self, x, i):
        p, y = f'blk.{i}.', np.zeros_like(x)
        w = softmax(self.mat(x, p + 'ffn_gate_inp'))
        up, down = self.w[p + 'ffn_up_exps.weight'], \
            self.w[p + 'ffn_down_exps.weight']
        for t in range(len(x)):
            for e in np.argsort(-w[t])[:self.key('expert_used_count')]:
                y[t] += w[t, e] * (down[e] @ gelu(up[e] @ x[t]))
        return y

    def bert(self, ids):
        w = self.w
        x = w['token_embd.weight'][ids]
        if 'token_types.weight' in w:
            x = x + w['token_types.weight'][0]
        if self.arch == 'bert':
            x = x + w['position_embd.weight'][:len(ids)]
        x = self.norm(x, 'token_embd_norm')
        base = None if self.arch == 'bert' else self.key('rope.freq_base')
        for i in range(self.key('block_count')):
            p = f'blk.{i}.'
            x = self.norm(x + self.attention(x, i, base), p + 'attn_output_norm')
            if p + 'ffn_gate_inp.weight' in w:
                h = self.experts(x, i)
            elif p + 'ffn_gate.weight' in w:
                h = self.mat(silu(self.mat(x, p + 'ffn_gate')) *
                             self.mat(x, p + 'ffn_up'), p + 'ffn_down')
            else:
                h = self.mat(gelu(self.mat(x, p + 'ffn_up')), p + 'ffn_down')
            x = self.norm(x + h, p + 'layer_output_norm')
        return x

    def modern(self, ids):
        x = self.norm(self.w['token_embd.weight'][ids], 'token_embd_norm')
        for i in range(self.key('block_count')):
            p = f'blk.{i}.'
            full = i % 3 == 0
            h = x if i == 0 else self.norm(x, p + 'attn_norm')
            x = x + self.attention(
                h, i, self.key('rope.freq_base' if full else 'rope.freq_base_swa'),
                None if full else self.key('attention.sliding_window') // 2)
            h = self.mat(self.norm(x, p + 'ffn_norm'), p + 'ffn_up')
            g, u = np.split(h, 2, -1)
            x = x + self.mat(gelu(g) * u, p + 'ffn_down')
        return self.norm(x, 'output_norm')

    def gemma(self, ids):
        x = self.w['token_embd.weight'][ids]
        x = x * float(np.float32(np.sqrt(x.shape[1])))
        period = self.key('attention.sliding_window_pattern')
        for i in range(self.key('block_count')):
            p = f'blk.{i}.'
            full = i % period == period - 1
            h = self.attention(
                self.norm(x, p + 'attn_norm'), i,
                self.key('rope.freq_base') if full else 10000.0,
                None if full else self.key('attention.sliding_window') // 2)
            x = x + self.norm(h, p + 'post_attention_norm')
            h = self.norm(x, p + 'ffn_norm')
            h = self.mat(gelu_tanh(self.mat(h, p + 'ffn_gate')) *
                         self.mat(h, p + 'ffn_up'), p + 'ffn_down')
            x = x + self.norm(h, p + 'post_ffw_norm')
        x = self.norm(x, 'output_norm')
        for name in ('dense_2', 'dense_3'):
            if name + '.weight' in self.w:
                x = self.mat(x, name)
        return x

    def qwen3(self, ids):
        x = self.w['token_embd.weight'][ids]
        for i in range(self.key('block_count')):
            p = f'blk.{i}.'
            x = x + self.attention(self.norm(x, p + 'attn_norm'), i,
                                   self.key('rope.freq_base'))
            h = self.norm(x, p + 'ffn_norm')
            x = x + self.mat(silu(self.mat(h, p + 'ffn_gate')) *
                             self.mat(h, p + 'ffn_up'), p + 'ffn_down')
        return self.norm(x, 'output_norm')

    def rows(self, ids):
        f = {'modern-bert': self.modern, 'gemma-embedding': self.gemma,
             'qwen3': self.qwen3}
        return f.get(self.arch, self.bert)(ids)

    def scores(self, x):
        if 'cls.weight' in self.w:
            x = self.mat(x, 'cls')
            x = self.norm(gelu(x), 'cls.norm') if 'cls.norm.weight' in self.w \
                else np.tanh(x)
        x = self.mat(x, 'cls.output')
        return softmax(x) if self.arch == 'qwen3' else x


# ---- the models -------------------------------------------------------------

def description(arch, layers, tensors, keys, pooling, d=48, heads=6, ff=80):
    a = [i for i in range(layers)]

    def size(name, dim):
        if name.endswith('norm.weight'):
            return [0.6, 1.6]
        if name.endswith('.bias'):
            return [-0.4, 0.4]
        return [-s, s] if (s := 2.4 / np.sqrt(dim[-1])) else None

    rows = []
    for name, dim, *which in tensors:
        lo, hi = size(name, dim)
        rows.append([name, 'F32', dim, [round(lo, 4), round(hi, 4)]] +
                    ([which[0] if which else a] if '%' in name else []))
    base = {'context_length': 128, 'embedding_length': d, 'block_count': layers,
            'feed_forward_length': ff, 'attention.head_count': heads,
            'attention.causal': False, 'pooling_type': pooling, **keys}
    if arch == 'qwen3':  # not an encoder
        del base['attention.causal']
    kv = [['string', 'general.architecture', arch],
          ['string', 'general.name', 'Tiny Random']]
    for k, v in base.items():
        t = 'bool' if isinstance(v, bool) else 'u32' if isinstance(v, int) \
            else 'f32'
        kv.append([t, f'{arch}.{k}', v])
    seqs = []
    for n in LENGTHS:
        ids = [int(v) for v in draws(1000 + n, n) * N_VOCAB]
        seqs.append({'n_prompt': n, 'tokens': ids})
    return {'vocabulary': 'wordpiece', 'keys': kv, 'tensors': rows,
            'sequences': seqs}


def both(name, out, inn):
    return [(name + '.weight', [out, inn]), (name + '.bias', [out])]


def norm(name, d=48):
    return [(name + '.weight', [d]), (name + '.bias', [d])]


def bert_tensors(d=48, ff=80, positions=True, qkv=False, qkv_bias=True,
                 types=2, gate=False, bias=True, experts=(), layers=2):
    t = [('token_embd.weight', [N_VOCAB, d])]
    if types:
        t += [('token_types.weight', [types, d])]
    if positions:
        t += [('position_embd.weight', [128, d])]
    t += norm('token_embd_norm')
    b = both if bias else lambda n, o, i: [(n + '.weight', [o, i])]
    c = both if qkv_bias else lambda n, o, i: [(n + '.weight', [o, i])]
    if qkv:
        t += c('blk.%.attn_qkv', 3 * d, d)
    else:
        for x in 'qkv':
            t += c('blk.%.attn_' + x, d, d)
    t += b('blk.%.attn_output', d, d) + norm('blk.%.attn_output_norm')
    dense = [i for i in range(layers) if i not in experts]
    for n, dim in b('blk.%.ffn_up', ff, d) + b('blk.%.ffn_down', d, ff):
        t += [(n, dim, dense)]
    if gate:
        t += [('blk.%.ffn_gate.weight', [ff, d], dense)]
    if experts:
        e = list(experts)
        t += [('blk.%.ffn_gate_inp.weight', [4, d], e),
              ('blk.%.ffn_up_exps.weight', [4, ff, d], e),
              ('blk.%.ffn_down_exps.weight', [4, d, ff], e)]
    return t + norm('blk.%.layer_output_norm')


EPS = {'attention.layer_norm_epsilon': 1e-5}
ROPE = {**EPS, 'rope.freq_base': 1000.0}
NONE, MEAN, CLS, LAST, RANK = range(5)


def modern_tensors(d=48, ff=80, layers=4):
    t = [('token_embd.weight', [N_VOCAB, d]), ('token_embd_norm.weight', [d]),
         ('output_norm.weight', [d]),
         ('blk.%.attn_norm.weight', [d], list(range(1, layers)))]
    t += [('blk.%.' + n + '.weight', dim) for n, dim in (
        ('attn_qkv', [3 * d, d]), ('attn_output', [d, d]), ('ffn_norm', [d]),
        ('ffn_up', [2 * ff, d]), ('ffn_down', [d, ff]))]
    return t


def gemma_tensors(d=48, ff=80, head=8, h=6, kv=2):
    t = [('token_embd.weight', [N_VOCAB, d]), ('output_norm.weight', [d]),
         ('dense_2.weight', [64, d]), ('dense_3.weight', [d, 64])]
    t += [('blk.%.' + n + '.weight', dim) for n, dim in (
        ('attn_norm', [d]), ('attn_q', [h * head, d]), ('attn_k', [kv * head, d]),
        ('attn_v', [kv * head, d]), ('attn_q_norm', [head]),
        ('attn_k_norm', [head]), ('attn_output', [d, h * head]),
        ('post_attention_norm', [d]), ('ffn_norm', [d]), ('ffn_gate', [ff, d]),
        ('ffn_up', [ff, d]), ('ffn_down', [d, ff]), ('post_ffw_norm', [d]))]
    return t


MODERN = {**EPS, 'rope.freq_base': 160000.0, 'rope.freq_base_swa': 10000.0,
          'attention.sliding_window': 16}
MODELS = {
    'bert': lambda: description('bert', 2, bert_tensors(), EPS, MEAN),
    'bert-rank': lambda: description(
        'bert', 2, bert_tensors() + both('cls', 48, 48) +
        both('cls.output', 1, 48), EPS, RANK),
    'nomic-bert': lambda: description('nomic-bert', 2, bert_tensors(
        positions=False, qkv=True, qkv_bias=False, gate=True, bias=False),
        ROPE, MEAN),
    'nomic-bert-moe': lambda: description('nomic-bert-moe', 3, bert_tensors(
        positions=False, qkv=True, types=1, experts=(1,), layers=3),
        {**ROPE, 'moe_every_n_layers': 2, 'expert_count': 4,
         'expert_used_count': 2}, MEAN),
    'jina-bert-v3': lambda: description('jina-bert-v3', 2, bert_tensors(
        positions=False, qkv=True, types=1), {**EPS, 'rope.freq_base': 20000.0},
        MEAN),
    'modern-bert': lambda: description('modern-bert', 4, modern_tensors(),
                                       MODERN, CLS),
    'modern-bert-rank': lambda: description(
        'modern-bert', 4, modern_tensors() + [
            ('cls.weight', [48, 48]), ('cls.norm.weight', [48])] +
        both('cls.output', 3, 48), MODERN, RANK),
    'qwen3-rank': lambda: description('qwen3', 2, [
        t for t in gemma_tensors() if 'dense' not in t[0] and 'post' not in t[0]
    ] + [('cls.output.weight', [2, 48])],
        {'attention.layer_norm_rms_epsilon': 1e-6, 'attention.key_length': 8,
         'attention.value_length': 8, 'attention.head_count_kv': 2,
         'rope.freq_base': 1000000.0}, RANK),
    'gemma-embedding': lambda: description(
        'gemma-embedding', 3, gemma_tensors(),
        {'attention.layer_norm_rms_epsilon': 1e-6, 'attention.key_length': 8,
         'attention.value_length': 8, 'attention.head_count_kv': 2,
         'rope.freq_base': 1000000.0, 'attention.sliding_window': 16,
         'attention.sliding_window_pattern': 3}, MEAN),
}


def numbers(x):
    x = x.reshape(-1)
    n = len(x)
    return [float(x.sum()), float((x * x).sum())] + \
        [float(x[(n - 1) * (k - 1) // 6]) for k in range(2, 8)]


# ---- the same by transformers -----------------------------------------------

def by_transformers(net):
    """A function ids -> rows, or None."""
    try:
        import torch
        import transformers as tf
    except ImportError:
        return None
    torch.set_default_dtype(torch.float64)
    w, arch = net.w, net.arch
    n = net.key('block_count')
    own = dict(hidden_size=48, num_hidden_layers=n, num_attention_heads=6,
               intermediate_size=80, vocab_size=N_VOCAB,
               max_position_embeddings=128)
    if arch == 'bert':
        m = tf.BertModel(tf.BertConfig(**own, layer_norm_eps=1e-5),
                         add_pooling_layer=False)
        names = {'embeddings.word_embeddings': 'token_embd',
                 'embeddings.position_embeddings': 'position_embd',
                 'embeddings.token_type_embeddings': 'token_types',
                 'embeddings.LayerNorm': 'token_embd_norm'}
        for i in range(n):
            for a, b in (('attention.self.query', 'attn_q'),
                         ('attention.self.key', 'attn_k'),
                         ('attention.self.value', 'attn_v'),
                         ('attention.output.dense', 'attn_output'),
                         ('attention.output.LayerNorm', 'attn_output_norm'),
                         ('intermediate.dense', 'ffn_up'),
                         ('output.dense', 'ffn_down'),
                         ('output.LayerNorm', 'layer_output_norm')):
                names[f'encoder.layer.{i}.{a}'] = f'blk.{i}.{b}'
    elif arch == 'modern-bert':
        m = tf.ModernBertModel(tf.ModernBertConfig(
            **own, norm_eps=1e-5,
            global_attn_every_n_layers=3, local_attention=16,
            global_rope_theta=160000.0, local_rope_theta=10000.0,
            pad_token_id=0))
        names = {'embeddings.tok_embeddings': 'token_embd',
                 'embeddings.norm': 'token_embd_norm',
                 'final_norm': 'output_norm'}
        for i in range(n):
            for a, b in (('attn_norm', 'attn_norm'), ('attn.Wqkv', 'attn_qkv'),
                         ('attn.Wo', 'attn_output'), ('mlp_norm', 'ffn_norm'),
                         ('mlp.Wi', 'ffn_up'), ('mlp.Wo', 'ffn_down')):
                names[f'layers.{i}.{a}'] = f'blk.{i}.{b}'
    else:
        return None
    state = m.state_dict()
    for k in state:
        stem, _, end = k.rpartition('.')
        if stem in names:
            state[k] = torch.tensor(w[f'{names[stem]}.{end}'])
        elif 'position_ids' not in k:
            print('  not set:', k)
    m.load_state_dict(state)
    m = m.double().eval()

    def rows(ids):
        with torch.no_grad():
            return m(input_ids=torch.tensor([ids]),
                     attention_mask=torch.ones(1, len(ids), dtype=torch.long)
                     ).last_hidden_state[0].numpy()
    return rows


def main(to):
    letters = [chr(c) for c in range(ord('a'), ord('z') + 1)]
    tokens = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]'] + \
        ['\u2581' + c for c in letters] + letters + \
        ['\u2581' + c for c in '0123456789.,!?-']
    tokens += ['\u2581' + s for s in ('the', 'cat', 'dog', 'sat', 'on', 'mat')]
    while len(tokens) < N_VOCAB:
        tokens.append(f'\u2581word{len(tokens)}')
    words = [['string', 'tokenizer.ggml.model', 'bert'],
             ['string', 'tokenizer.ggml.pre', 'default'],
             ['string', 'tokenizer.ggml.tokens', tokens],
             ['i32', 'tokenizer.ggml.token_type',
              [3 if t[0] == '[' else 1 for t in tokens]]]
    words += [['u32', f'tokenizer.ggml.{n}_token_id', i] for n, i in (
        ('cls', 2), ('seperator', 3), ('unknown', 1), ('padding', 0))]
    with open(os.path.join(to, 'vocabulary-wordpiece.json'), 'w') as f:
        json.dump({'keys': words}, f, ensure_ascii=True)
        f.write('\n')
    for name, make in MODELS.items():
        d = make()
        net = Net(d)
        theirs = by_transformers(net)
        d['rows'], d['scores'], off = [], [], 0
        for s in d['sequences']:
            x = net.rows(s['tokens'])
            if theirs:
                off = max(off, abs(theirs(s['tokens']) - x).max())
            d['rows'].append(numbers(x))
            if 'cls.output.weight' in net.w:
                d['scores'].append(numbers(net.scores(x)))
        print(name, f'transformers off by {off:.2g}' if theirs else '')
        with open(os.path.join(to, name + '.json'), 'w') as f:
            json.dump(d, f)
            f.write('\n')


if __name__ == '__main__':
    main(sys.argv[1])
