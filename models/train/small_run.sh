#!/bin/sh
# Trains a small model of the same architecture in about two minutes, from a
# text of this repository, and writes OUT/small.gguf.
#
#   small_run.sh [OUT]     default: build-small beside models/
#
# PYTHON: an interpreter with the packages of requirements.txt (python3).
# THREADS: 2.
#
# It sees 140 kB of text ten times. That is far too little for tales; the point
# is that every script runs and that the perplexity comes out near 24 (an
# untrained model has 512, the number of its tokens).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/../../build-small}
py=${PYTHON:-python3}

"$py" "$here/prepare_text.py" text "$here/../heldout.txt" "$out"
"$py" "$here/train_tokenizer.py" "$out" --n-vocab 512
"$py" "$here/train.py" "$out" "$out" --minutes 1.5 --max-epochs 10 \
    --threads "${THREADS:-2}" --n-layer 2 --d-model 128 --n-head 4 \
    --n-head-kv 2 --d-ff 128 --n-ctx 128 --batch 1024 --report-every 100
"$py" "$here/export_gguf.py" "$out/tokenizer.json" "$out/small.gguf" \
    "$out/last.pt"
"$py" "$here/check_perplexity.py" "$out/small.gguf" "$out/heldout.txt"
