#!/usr/bin/env python3
"""Trains the model on a CPU for a given time and writes checkpoints.

The schedule follows the clock (and the epochs, where they are limited):
warm-up, then the learning rate falls along a cosine to 2 %, while windows grow
from n_ctx / 4 tokens over n_ctx / 2 (at 20 %) to n_ctx (at 65 %). Two runs are
therefore not equal bit by bit. Checkpoints of the last third are kept: their
mean is a little better than the last one.
"""
import argparse
import dataclasses
import math
import random
import time
from pathlib import Path

import torch
import torch.nn.functional as F

import dialogues
import tales
from check_perplexity import mean_loss
from model import Config, Model, random_weights
from tokenizer import END_OF_TEXT, TURN_END, Tokenizer

N_WARMUP = 200          # steps
BALANCE_WEIGHT = 0.01   # of the experts' load balancing in the loss
WEIGHT_DECAY = 0.1      # on everything but norms
DIALOGUE_SHARE = 0.1    # of the windows
N_DIALOGUES = 4         # of each titled tale


class Batches:
    """Draws windows of the tales, tiled from a random phase in random order
    so that each epoch sees everything once, and windows of dialogues."""

    def __init__(self, all_tales, tok, rng):
        self._rng = rng
        self._end = tok.id[END_OF_TEXT]
        all_tales = rng.sample(all_tales, len(all_tales))
        ids = [self._end]
        for tale in all_tales:
            ids += tok.encode(tales.full_text(tale)) + [self._end]
        self._ids = torch.tensor(ids)
        made = (dialogues.dialogue(tale, lambda s: len(tok.encode(s)), rng)
                for tale in all_tales for _ in range(N_DIALOGUES))
        self._dialogues = [tok.encode(text) for text in made if text]
        self._starts, self._size = [], 0

    def __len__(self):
        return len(self._ids)

    def draw(self, n_seq, n_tok):
        """(inputs, targets), both [n_seq, n_tok]; a target is the next id."""
        windows = []
        for _ in range(n_seq):
            talk = self._dialogues and self._rng.random() < DIALOGUE_SHARE
            windows.append(self._talk(n_tok + 1) if talk
                           else self._tale(n_tok + 1))
        ids = torch.stack(windows)
        return ids[:, :-1], ids[:, 1:]

    def _tale(self, size):
        if not self._starts or self._size != size:
            phase = self._rng.randrange(min(size, len(self._ids) - size + 1))
            self._starts = list(
                range(phase, len(self._ids) - size + 1, size - 1))
            self._rng.shuffle(self._starts)
            self._size = size
        start = self._starts.pop()
        return self._ids[start:start + size]

    def _talk(self, size):
        ids = []
        while len(ids) < size:
            ids += self._rng.choice(self._dialogues)
            ids += [self._end] * self._rng.randrange(2)
        return torch.tensor(ids[:size])


def make_optimizer(weights):
    norms = [w for w in weights.values() if w.ndim == 1]
    others = [w for w in weights.values() if w.ndim > 1]
    return torch.optim.AdamW(
        [{"params": others, "weight_decay": WEIGHT_DECAY},
         {"params": norms, "weight_decay": 0.0}],
        betas=(0.9, 0.95), fused=True)


def learning_rate(peak, step, progress):
    """progress: share of the training that is done, 0 .. 1."""
    cosine = 0.5 * (1 + math.cos(math.pi * progress))
    return peak * min(1, (step + 1) / N_WARMUP) * (0.02 + 0.98 * cosine)


def window_size(n_ctx, progress):
    return n_ctx // (4 if progress < 0.2 else 2 if progress < 0.65 else 1)


@torch.no_grad()
def sample(model, tok, prompt, n_tok=40, temperature=0.8, top_k=40):
    generator = torch.Generator().manual_seed(1)
    ids = tok.encode(prompt)
    for _ in range(n_tok):
        window = torch.tensor([ids[-model.config.n_ctx:]])
        best, token = model.logits(window)[0][0, -1].topk(top_k)
        chance = (best / temperature).softmax(-1)
        pick = torch.multinomial(chance, 1, generator=generator)
        ids.append(int(token[pick]))
        if tok.tokens[ids[-1]] in (END_OF_TEXT, TURN_END):
            break
    return tok.decode(ids)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="train.jsonl, heldout.txt, "
                        "tokenizer.json are in this directory")
    parser.add_argument("out", type=Path, help="directory for checkpoints")
    parser.add_argument("--minutes", type=float, default=52)
    parser.add_argument("--max-epochs", type=float, default=math.inf,
                        help="end sooner, after so many passes over the text")
    parser.add_argument("--lr", type=float, default=2.5e-3, help="peak")
    parser.add_argument("--batch", type=int, default=6144, help="tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--bf16", action="store_true", help="matrix products "
                        "in bfloat16: try whether this CPU is faster at them")
    parser.add_argument("--report-every", type=int, default=25, help="steps")
    parser.add_argument("--save-every", type=int, default=500, help="steps")
    for field in dataclasses.fields(Config):
        if field.name != "n_vocab":  # the tokenizer says it
            parser.add_argument("--" + field.name.replace("_", "-"),
                                type=field.type, default=field.default)
    return parser.parse_args()


def main():
    args = parse_args()
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    tok = Tokenizer.load(args.data / "tokenizer.json")
    config = Config(n_vocab=len(tok.tokens), **{
        field.name: getattr(args, field.name)
        for field in dataclasses.fields(Config) if field.name != "n_vocab"})
    batches = Batches(tales.read(args.data / "train.jsonl"), tok,
                      random.Random(7))
    heldout = tok.encode((args.data / "heldout.txt").read_text("utf-8"))
    if min(len(batches), len(heldout)) <= config.n_ctx:
        raise SystemExit(f"{args.data}: {len(batches)} tokens to train on and "
                         f"{len(heldout)} held out, both must be over n_ctx = "
                         f"{config.n_ctx}: give more text or a lower --n-ctx")
    weights = random_weights(config)
    for weight in weights.values():
        weight.requires_grad_()
    model = Model(config, weights)
    optimizer = make_optimizer(weights)
    n_weights = sum(w.numel() for w in weights.values())
    print(f"{n_weights} weights, {len(batches)} tokens", flush=True)

    def save(name):
        torch.save({"config": dataclasses.asdict(config),
                    "weights": {n: w.detach() for n, w in weights.items()}},
                   args.out / name)

    def report(text):
        minutes = (time.monotonic() - began) / 60
        print(f"{minutes:5.1f} min, step {step}: {text}", flush=True)

    def progress_now():
        return max((time.monotonic() - began) / 60 / args.minutes,
                   seen / len(batches) / args.max_epochs)

    began, step, seen, mean = time.monotonic(), 0, 0, None
    while (progress := progress_now()) < 1:
        lr = learning_rate(args.lr, step, progress)
        for group in optimizer.param_groups:
            group["lr"] = lr
        n_tok = window_size(config.n_ctx, progress)
        inputs, targets = batches.draw(max(1, args.batch // n_tok), n_tok)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            logits, balance = model.logits(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        (loss + BALANCE_WEIGHT * balance).backward()
        torch.nn.utils.clip_grad_norm_(weights.values(), 1.0)
        optimizer.step()

        step += 1
        seen += inputs.numel()
        loss = loss.item()
        mean = loss if mean is None else 0.98 * mean + 0.02 * loss
        if step % args.report_every == 0:
            speed = seen / (time.monotonic() - began)
            report(f"windows of {n_tok}, loss {mean:.3f}, balance "
                   f"{balance.item():.3f}, lr {lr:.1e}, {speed:.0f} tokens/s")
        if step % args.save_every == 0:
            report(sample(model, tok, "Once upon a time"))
            if progress > 0.65:
                save(f"step{step}.pt")
    save("last.pt")
    held, _ = mean_loss(model, heldout, config.n_ctx)
    report(f"held-out perplexity {math.exp(held):.2f}")
    report(sample(model, tok, "Once upon a time"))


if __name__ == "__main__":
    main()
