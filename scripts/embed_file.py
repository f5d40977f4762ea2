#!/usr/bin/env python3
"""embed_file.py OUT.c HEADER NAME=FILE: a page as strings of C.

FILE, HTML in UTF-8, becomes `const char NAME[]`. A `<script src="X">` becomes
the text of X, a file beside it. `const char NAME_scripts[]` are the sources of
all scripts for a Content-Security-Policy: their sums. HEADER declares both.
The same files give the same bytes.
"""
import base64
import hashlib
import os
import re
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


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def main():
    if len(sys.argv) != 4 or '=' not in sys.argv[3]:
        sys.exit(__doc__)
    name, _, path = sys.argv[3].partition('=')
    page = re.sub(r'<script src="([^"]*)">', lambda m: '<script>\n' + read(
        os.path.join(os.path.dirname(path), m[1])), read(path))
    scripts = re.findall(r'<script>(.*?)</script>', page, re.S)
    sums = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()
            for s in scripts]
    body = ''.join(map(literal, page.rstrip('\n').split('\n')))
    with open(sys.argv[1], 'w', encoding='ascii') as out:
        out.write('/* Made by scripts/embed_file.py. */\n'
                  f'#include "{sys.argv[2]}"\n\n'
                  f'const char {name}_scripts[] =\n    "'
                  + ' "\n    "'.join(f"'sha256-{s}'" for s in sums)
                  + f'";\n\nconst char {name}[] =\n{body[:-1]};\n')


main()
