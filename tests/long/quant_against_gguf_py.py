#!/usr/bin/env python3
"""Compares our decoders with those of the `gguf` Python package, bit by bit.

    quant_against_gguf_py.py [DRIVER] [BLOCKS] [SEED]

Random blocks of every quantized format, scales of every kind included, are
decoded by both sides. DRIVER is the program of quant_decode_main.c (default:
build/tests/quant-decode). A missing package is installed into a virtual
environment beside the driver; exit status 77 says that this was impossible and
nothing was compared.
"""
import os
import subprocess
import sys
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
DRIVER = os.path.join(HERE, "..", "..", "build", "tests", "quant-decode")
SKIPPED = 77
# type, bytes a row: one block, or 1024 halves
FORMATS = {
    "F16": 2048, "BF16": 2048,
    "Q8_0": 34, "Q4_0": 18, "Q4_1": 20, "Q5_0": 22, "Q5_1": 24,
    "Q2_K": 84, "Q3_K": 110, "Q4_K": 144, "Q5_K": 176, "Q6_K": 210,
    "IQ4_NL": 18, "IQ4_XS": 136, "MXFP4": 17,
    "IQ1_S": 50, "IQ1_M": 56, "IQ2_XXS": 66, "IQ2_XS": 74, "IQ2_S": 82,
    "IQ3_XXS": 98, "IQ3_S": 110, "TQ1_0": 54, "TQ2_0": 66, "NVFP4": 36,
}


def install_package(where):
    """Installs the package and runs this program again with it."""
    python = os.path.join(where, "bin", "python")
    try:
        if not os.path.exists(python):
            venv.create(where, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "gguf"],
                       check=True)
        subprocess.run([python, "-c", "import gguf"], check=True)
    except (OSError, subprocess.CalledProcessError) as e:
        print(f"skipped: the Python package gguf cannot be installed ({e})")
        sys.exit(SKIPPED)
    os.execv(python, [python, os.path.abspath(__file__)] + sys.argv[1:])


def compare(driver, name, size, n_blocks, rng):
    blocks = rng.integers(0, 256, (n_blocks, size), dtype=numpy.uint8)
    if name == "MXFP4":  # scale 255: NaN by definition, a number to gguf
        blocks[:, 0] = rng.integers(0, 255, n_blocks, dtype=numpy.uint8)
    kind = gguf.GGMLQuantizationType[name]
    with numpy.errstate(all="ignore"):
        want = gguf.quants.dequantize(blocks, kind)
    want = want.astype(numpy.float32).ravel()
    out = subprocess.run([driver, name], input=blocks.tobytes(), check=True,
                         stdout=subprocess.PIPE).stdout
    got = numpy.frombuffer(out, dtype="<f4")
    if got.shape != want.shape:
        print(f"{name}: {got.size} values, should be {want.size}")
        return False
    same = (got.view(numpy.uint32) == want.view(numpy.uint32)) | (
        numpy.isnan(got) & numpy.isnan(want))
    bad = numpy.flatnonzero(~same)
    print(f"{name}: {got.size} values, {bad.size} differ, "
          f"{int(numpy.isnan(got).sum())} NaN")
    if bad.size:
        i = int(bad[0])
        print(f"  value {i}: {float(got[i]).hex()}, "
              f"gguf says {float(want[i]).hex()}")
    return bad.size == 0


def main(driver, n_blocks, seed):
    rng = numpy.random.default_rng(seed)
    ok = [compare(driver, name, size, n_blocks, rng)
          for name, size in FORMATS.items()]
    print(f"seed {seed}: {sum(ok)} of {len(ok)} formats equal")
    return 0 if all(ok) else 1


if __name__ == "__main__":
    args = sys.argv[1:]
    driver = args[0] if args else DRIVER
    try:
        import gguf
        import numpy
    except ImportError:
        install_package(os.path.join(os.path.dirname(driver), "venv-gguf"))
    sys.exit(main(driver, int(args[1]) if len(args) > 1 else 20000,
                  int(args[2]) if len(args) > 2 else 20240229))
