#!/usr/bin/env python3
"""Learns the vocabulary from DATA/train.jsonl, writes DATA/tokenizer.json."""
import argparse
from pathlib import Path

import tales
from tokenizer import learn


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="directory of prepare_text.py")
    parser.add_argument("--n-vocab", type=int, default=4096,
                        help="tokens, of which 259 are bytes and specials")
    args = parser.parse_args()

    texts = [tales.full_text(t) for t in tales.read(args.data / "train.jsonl")]
    tokenizer = learn(texts, args.n_vocab)
    tokenizer.save(args.data / "tokenizer.json")

    sample = "".join(texts[::37])
    ids = tokenizer.encode(sample)
    if tokenizer.decode(ids) != sample:
        raise SystemExit("decoding does not give back what was encoded")
    print(f"{len(tokenizer.tokens)} tokens, {len(tokenizer.merges)} merges, "
          f"{len(sample) / len(ids):.2f} characters a token")


if __name__ == "__main__":
    main()
