"""The model: GGUF architecture `qwen3moe` in plain PyTorch.

Weights are a dict from GGUF tensor name to float32 tensor, so training,
export and import need no renaming. Shapes are written outermost first (GGUF
writes them the other way round); a weight [n_out, n_in] maps n_in to n_out.

A layer: RMSNorm; grouped-query attention with RMSNorm on each q and k head
and RoPE of halves; RMSNorm; router and the n_expert_used best SwiGLU experts,
their softmax weights scaled to sum 1. The output head is the embedding.

Sources: GQA arXiv:2305.13245, RoPE arXiv:2104.09864, SwiGLU arXiv:2002.05202,
load balancing arXiv:2101.03961.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass
class Config:
    """Defaults: fable-moe."""
    n_vocab: int = 4096
    n_ctx: int = 512
    n_layer: int = 5
    d_model: int = 256
    n_head: int = 8
    n_head_kv: int = 4
    d_head: int = 32
    n_expert: int = 8
    n_expert_used: int = 2
    d_ff: int = 256  # of one expert
    rms_eps: float = 1e-6
    rope_base: float = 10000.0


def tensor_shapes(c):
    """{GGUF name: shape}, in the order in which they are stored."""
    shapes = {"token_embd.weight": (c.n_vocab, c.d_model),
              "output_norm.weight": (c.d_model,)}
    d_q, d_kv = c.n_head * c.d_head, c.n_head_kv * c.d_head
    layer = {"attn_norm": (c.d_model,),
             "attn_q": (d_q, c.d_model),
             "attn_k": (d_kv, c.d_model),
             "attn_v": (d_kv, c.d_model),
             "attn_q_norm": (c.d_head,),
             "attn_k_norm": (c.d_head,),
             "attn_output": (c.d_model, d_q),
             "ffn_norm": (c.d_model,),
             "ffn_gate_inp": (c.n_expert, c.d_model),
             "ffn_gate_exps": (c.n_expert, c.d_ff, c.d_model),
             "ffn_up_exps": (c.n_expert, c.d_ff, c.d_model),
             "ffn_down_exps": (c.n_expert, c.d_model, c.d_ff)}
    for i in range(c.n_layer):
        shapes |= {f"blk.{i}.{name}.weight": s for name, s in layer.items()}
    return shapes


def random_weights(c, seed=1):
    """Norms 1, the rest normal with deviation 0.02, less in the projections
    that add to the residual stream (GPT-2's rule)."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in tensor_shapes(c).items():
        if name.endswith("_norm.weight"):
            weights[name] = torch.ones(shape)
            continue
        residual = "attn_output" in name or "ffn_down" in name
        std = 0.02 / math.sqrt(2 * c.n_layer) if residual else 0.02
        weights[name] = torch.randn(shape, generator=generator) * std
    return weights


def rms_norm(x, weight, eps):
    """x [..., d], weight [d] -> float32 [..., d]."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


class Model:
    """Runs under torch.autocast too: projections and experts then compute in
    bfloat16; norms, router, softmax and residual stream stay in float32."""

    def __init__(self, config, weights):
        self.config = config
        self.weights = weights
        c = config
        freq = c.rope_base ** (-torch.arange(0, c.d_head, 2) / c.d_head)
        angle = torch.arange(c.n_ctx)[:, None] * freq  # [n_ctx, d_head / 2]
        self._cos, self._sin = angle.cos(), angle.sin()

    def logits(self, ids):
        """ids [n_seq, n_tok], n_tok <= n_ctx -> logits [n_seq, n_tok, n_vocab]
        float32, and the load-balancing loss: 1 if experts are used evenly."""
        n_seq, n_tok = ids.shape
        x = F.embedding(ids, self.weights["token_embd.weight"])
        balance = 0.0
        for i in range(self.config.n_layer):
            x = x + self._attention(x, f"blk.{i}.")
            out, uneven = self._experts(
                x.view(n_seq * n_tok, -1), f"blk.{i}.")
            x = x + out.view_as(x)
            balance = balance + uneven / self.config.n_layer
        x = self._norm(x, "output_norm")
        return F.linear(x, self.weights["token_embd.weight"]).float(), balance

    def _norm(self, x, name):
        return rms_norm(x, self.weights[name + ".weight"],
                        self.config.rms_eps)

    def _linear(self, x, name):
        return F.linear(x, self.weights[name + ".weight"])

    def _rope(self, x):
        """x [n_seq, n_head, n_tok, d_head]; value i turns with i + d_head/2
        by angle position * freq[i]."""
        n_tok = x.shape[2]
        cos, sin = self._cos[:n_tok], self._sin[:n_tok]
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def _attention(self, x, layer):
        """x [n_seq, n_tok, d_model] -> the same shape, causal."""
        c = self.config
        n_seq, n_tok, _ = x.shape
        h = self._norm(x, layer + "attn_norm")

        def heads(name):  # -> [n_seq, heads, n_tok, d_head]
            y = self._linear(h, layer + name)
            return y.view(n_seq, n_tok, -1, c.d_head).transpose(1, 2)

        q, k, v = heads("attn_q"), heads("attn_k"), heads("attn_v")
        q = self._rope(self._norm(q, layer + "attn_q_norm")).to(v.dtype)
        k = self._rope(self._norm(k, layer + "attn_k_norm")).to(v.dtype)
        group = c.n_head // c.n_head_kv  # q heads that share a k, v head
        out = F.scaled_dot_product_attention(
            q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
            is_causal=True)
        out = out.transpose(1, 2).reshape(n_seq, n_tok, -1)
        return self._linear(out, layer + "attn_output")

    def _experts(self, x, layer):
        """x [n, d_model] -> [n, d_model] and the layer's balancing loss:
        n_expert * sum over experts of share of tokens * mean probability."""
        c = self.config
        h = self._norm(x, layer + "ffn_norm")
        with torch.autocast("cpu", enabled=False):
            score = self._linear(h, layer + "ffn_gate_inp").softmax(-1)
        best, expert = score.topk(c.n_expert_used)  # [n, n_expert_used]
        share = best / best.sum(-1, keepdim=True)

        # Sorted by expert, each expert's rows lie together: one matmul each.
        expert = expert.flatten()
        count = torch.bincount(expert, minlength=c.n_expert)
        order = expert.argsort()
        rows = h.index_select(0, order // c.n_expert_used)
        gate, up, down = (self.weights[f"{layer}ffn_{name}_exps.weight"]
                          for name in ("gate", "up", "down"))
        out = torch.cat([
            F.linear(F.silu(F.linear(r, g)) * F.linear(r, u), d)
            for r, g, u, d in zip(rows.split(count.tolist()),
                                  gate.unbind(), up.unbind(), down.unbind())])
        place = torch.empty_like(order)
        place[order] = torch.arange(len(order))
        out = out.index_select(0, place).view(*share.shape, -1)
        out = (out.float() * share[:, :, None]).sum(1)

        load = count / len(order)
        return out, c.n_expert * (load * score.mean(0)).sum()
