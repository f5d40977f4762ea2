#!/usr/bin/env python3
"""Prints src/quant/grid.c: the tables of IQ1, IQ2 and IQ3 as the Python package
`gguf` has them (pip install gguf)."""
import gguf.quants

HEAD = """\
/* The tables of grid.h, printed by scripts/grids.py. Source: the gguf Python
 * package. */
#include "quant/grid.h"
"""
TABLES = {"iq1": "IQ1_S", "iq2_xxs": "IQ2_XXS", "iq2_xs": "IQ2_XS",
          "iq2_s": "IQ2_S", "iq3_xxs": "IQ3_XXS", "iq3_s": "IQ3_S"}
A_LINE = 9

print(HEAD, end="")
for name, quant in TABLES.items():
    packed = bytes.fromhex(getattr(gguf.quants, quant).grid_hex.decode())
    entries = [int.from_bytes(packed[i:i + 2], "little")
               for i in range(0, len(packed), 2)]
    assert entries == sorted(set(entries))
    print(f"\nconst uint16_t quant_grid_{name}[{len(entries)}] = {{")
    for i in range(0, len(entries), A_LINE):
        print("    " + ", ".join(f"0x{e:04x}" for e in entries[i:i + A_LINE])
              + ",")
    print("};")
