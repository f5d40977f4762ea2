"""Bytes packed by deflate, as what a struct of C is filled with."""
import zlib


def squeeze(text):
    """Packed as base/inflate.h unpacks."""
    z = zlib.compressobj(9, wbits=-15)
    return z.compress(text) + z.flush()


def literal(packed, indent):
    """The bytes as a string of C, over lines; no other bytes may follow it."""
    lines = (packed[i:i + 19] for i in range(0, len(packed), 19))
    return ''.join(f'{indent}"' + ''.join(f'\\{c:03o}' for c in line) + '"\n'
                   for line in lines)
