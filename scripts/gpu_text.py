"""The kernels' text as compilers of GPUs are given it: which files a prelude
and all.h take in, and a digest of what they say.

A digest is of the text without comments and without what only lays it out, so
that a comment can be mended without a compiler at hand.
"""
import hashlib
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEXT = os.path.join(ROOT, 'src/device/gpu/text')
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def files(prelude):
    """Names in text/ and what they hold, in the order of first inclusion."""
    found = {}

    def take(name):
        if name in found:
            return
        path = os.path.join(TEXT, name)
        with open(path, encoding='utf-8') as f:
            found[name] = f.read()
        for inner in INCLUDE.findall(found[name]):
            take(inner)

    take(prelude)
    take('all.h')
    return found


def program(prelude):
    """What the compiler is handed; it includes the files."""
    return f'#include "{prelude}"\n#include "all.h"\n'


def plain(text):
    """A file without comments and layout; a directive keeps its line."""
    text = re.sub(r'/\*.*?\*/|//[^\n]*', ' ', text, flags=re.S)
    text = text.replace('\\\n', ' ')
    lines = (' '.join(line.split()) for line in text.split('\n'))
    out = ''
    for line in lines:
        if line.startswith('#'):
            out += f'\n{line}\n'
        elif line:
            out += line if not out or out[-1] == '\n' else f' {line}'
    return out


def digest(prelude, options):
    h = hashlib.sha256('\n'.join(options).encode())
    for name, text in sorted(files(prelude).items()):
        h.update(f'\n== {name}\n{plain(text)}'.encode())
    return h.hexdigest()
