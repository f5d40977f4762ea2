#!/usr/bin/env python3
"""Writes tests/refs/quant/NAME.blocks.bin and NAME.f32.bin for the formats named
(IQ1, IQ2, IQ3, TQ and NVFP4 without names): random blocks, and the values that
the Python package `gguf` decodes them to.

    tests/tools/format_vectors.py [NAME ...]
"""
import os
import sys

import gguf
import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "refs", "quant")
NAMES = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S",
         "TQ1_0", "TQ2_0", "NVFP4"]
N_VALUE = 2048
INFINITE = 0x7c00


def has_finite(name, blocks):
    """Returns blocks with a finite d: a NaN has more than one bit pattern."""
    words = blocks.view(numpy.uint16)
    if name == "NVFP4":
        return numpy.ones(len(blocks), bool)
    if name == "IQ1_M":
        d = sum((words[:, 24 + i].astype(int) >> 12) << 4 * i
                for i in range(4))
    else:
        d = words[:, {"TQ1_0": 26, "TQ2_0": 32}.get(name, 0)].astype(int)
    return d & INFINITE != INFINITE


for name in sys.argv[1:] or NAMES:
    kind = gguf.GGMLQuantizationType[name]
    values, size = gguf.GGML_QUANT_SIZES[kind]
    rng = numpy.random.default_rng(int(kind))
    blocks = rng.integers(0, 256, (N_VALUE, size), dtype=numpy.uint8)
    blocks = blocks[has_finite(name, blocks)][:N_VALUE // values]
    decoded = gguf.quants.dequantize(blocks, kind).astype("<f4")
    stem = os.path.join(OUT, name.lower())
    blocks.tofile(stem + ".blocks.bin")
    decoded.tofile(stem + ".f32.bin")
