#!/usr/bin/env python3
"""embed_file.py OUT.c HEADER NAME=FILE: a text file as a string of C.

FILE, in UTF-8, becomes `const char NAME[]`, which HEADER declares. The same
file gives the same bytes.
"""
import sys


def literal(line):
    """A line as ASCII, so that no compiler takes it for another encoding."""
    out = []
    for byte in line.encode():
        if byte in b'"\\':
            out.append('\\' + chr(byte))
        elif 32 <= byte < 127:
            out.append(chr(byte))
        else:
            out.append(f'\\{byte:03o}')
    return '    "' + ''.join(out) + '\\n"\n'


def main():
    if len(sys.argv) != 4 or '=' not in sys.argv[3]:
        sys.exit(__doc__)
    name, _, path = sys.argv[3].partition('=')
    with open(path, encoding='utf-8') as f:
        body = ''.join(map(literal, f.read().splitlines()))
    with open(sys.argv[1], 'w', encoding='ascii') as out:
        out.write('/* Made by scripts/embed_file.py. */\n'
                  f'#include "{sys.argv[2]}"\n\n'
                  f'const char {name}[] =\n{body[:-1]};\n')


main()
