#!/usr/bin/env python3
"""embed_text.py OUT.c DEPFILE NAME=FILE...: texts of kernels, packed, in C.

Each FILE becomes a `struct gpu_text`, with what it includes by "..." put in its
place, without comments and empty lines. The same files give the same text. A
file that includes itself, or names one that is not there, is an error. DEPFILE
lists what was read, for the build.
"""
import hashlib
import os
import re
import sys

import packed

TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*',
                   re.S)
INCLUDE = re.compile(r'\s*#\s*include\s+"([^"]+)"')


def bare(text):
    """Comments become a space; strings stay."""
    return TOKEN.sub(lambda m: ' ' if m[0].startswith('/') else m[0], text)


def expand(path, read, above=()):
    """The lines of a file and of what it includes."""
    path = os.path.normpath(path)
    if path in above:
        sys.exit(f'{path}: includes itself')
    try:
        with open(path, encoding='ascii') as f:
            text = f.read()
    except (OSError, UnicodeDecodeError) as e:
        sys.exit(f'{path}, included by {above[-1] if above else "nobody"}: {e}')
    read.add(path)
    lines = []
    for line in bare(text).split('\n'):
        m = INCLUDE.match(line)
        if m:
            at = os.path.join(os.path.dirname(path), m[1])
            lines += expand(at, read, above + (path,))
        elif line.strip():
            lines.append(re.sub(r'[ \t]+', ' ', line).rstrip()
                         if '"' not in line else line.rstrip())
    return lines


def definition(name, text):
    known = hashlib.sha256(text).hexdigest()[:16]
    held = packed.struct_xz(len(text), packed.squeeze(text), '    ')
    return (f'\nconst struct gpu_text {name} = {{\n'
            f'    UINT64_C(0x{known}), {held}}};\n')


def main():
    if len(sys.argv) < 4 or not all('=' in a for a in sys.argv[3:]):
        sys.exit(__doc__)
    read = set()
    with open(sys.argv[1], 'w', encoding='ascii') as out:
        out.write('/* Made by scripts/embed_text.py. */\n'
                  '#include "device/gpu/gpu_text.h"\n')
        for name, _, path in (a.partition('=') for a in sys.argv[3:]):
            lines = ''.join(line + '\n' for line in expand(path, read))
            out.write(definition(name, lines.encode()))
    with open(sys.argv[2], 'w', encoding='utf-8') as dep:
        dep.write(f'{sys.argv[1]}: {" ".join(sorted(read))}\n')


main()
