#!/usr/bin/env python3
"""Perplexity of a GGUF file of this model on a text, in float32.

Scored as llama-perplexity does: the text is cut into windows of n_ctx tokens,
each starts from an empty cache, and only the second half of a window counts
(so that every scored token has at least n_ctx / 2 before it). What is left at
the end is not scored.
"""
import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F

import gguf_model


@torch.no_grad()
def mean_loss(model, ids, n_ctx):
    """(nats a token over the second halves, number of windows)."""
    losses = []
    for start in range(0, len(ids) - n_ctx + 1, n_ctx):
        window = torch.tensor(ids[start:start + n_ctx])
        logits, _ = model.logits(window[None])
        first = n_ctx // 2  # the first position whose prediction is scored
        losses.append(F.cross_entropy(logits[0, first:-1], window[first + 1:]))
    if not losses:
        raise SystemExit(f"the text has {len(ids)} tokens, fewer than one "
                         f"window of {n_ctx}: give a longer one or --n-ctx")
    return float(torch.stack(losses).mean()), len(losses)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="GGUF file")
    parser.add_argument("text", type=Path)
    parser.add_argument("--n-ctx", type=int, help="default: the model's")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    model, tok = gguf_model.read(args.model)
    text = args.text.read_text(encoding="utf-8")
    ids = tok.encode(text)
    n_ctx = args.n_ctx or model.config.n_ctx
    loss, n_window = mean_loss(model, ids, n_ctx)
    bits = loss / math.log(2) * len(ids) / len(text)
    print(f"{len(ids)} tokens, {n_window} windows of {n_ctx}: "
          f"perplexity {math.exp(loss):.4f}, {bits:.3f} bits a character")


if __name__ == "__main__":
    main()
