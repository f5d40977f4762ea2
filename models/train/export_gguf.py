#!/usr/bin/env python3
"""Writes a GGUF file from a checkpoint of train.py or the mean of several."""
import argparse
from pathlib import Path

import torch

import gguf_model
from model import Config
from tokenizer import Tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json")
    parser.add_argument("out", type=Path, help="GGUF file to write")
    parser.add_argument("checkpoints", type=Path, nargs="+")
    parser.add_argument("--format", choices=gguf_model.FORMATS,
                        default="Q8_0")
    args = parser.parse_args()

    stored = [torch.load(path, weights_only=True)
              for path in args.checkpoints]
    config = stored[0]["config"]
    if any(s["config"] != config for s in stored):
        raise SystemExit("the checkpoints are of differently shaped models: "
                         "give those of one run")
    mean = {name: sum(s["weights"][name] for s in stored) / len(stored)
            for name in stored[0]["weights"]}
    gguf_model.write(args.out, Config(**config), mean,
                     Tokenizer.load(args.tokenizer), args.format)
    print(f"{args.out}: {args.out.stat().st_size} bytes, mean of "
          f"{len(stored)}")


if __name__ == "__main__":
    main()
