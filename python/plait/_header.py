"""Reads pl.h and pl_receipt.h and makes their types for ctypes.

An installed package has the headers beside this file, a checkout in include/.
Layouts, numbers and prototypes all come from there: Python repeats none. A
header is C as plait writes it, and a declaration that this file cannot read is
an error, never left out. tests/test_python.c compares sizes, offsets and
numbers with those of the C compiler.
"""
from __future__ import annotations

import ctypes
import re
from typing import Any

SCALARS = {
    'bool': ctypes.c_bool, 'char': ctypes.c_char, 'int': ctypes.c_int,
    'unsigned': ctypes.c_uint, 'float': ctypes.c_float,
    'double': ctypes.c_double, 'size_t': ctypes.c_size_t,
    'uint8_t': ctypes.c_uint8, 'int32_t': ctypes.c_int32,
    'int64_t': ctypes.c_int64, 'uint32_t': ctypes.c_uint32,
    'uint64_t': ctypes.c_uint64,
}


class Function:
    """A prototype: the result's type, the parameters' names and types."""

    def __init__(self, result, names, types):
        self.result, self.names, self.types = result, names, types


class Header:
    """The declarations of headers, whose texts are joined.

    constant   number of each enumerator and PL_VERSION_*
    enum       names of each enum's enumerators, in order
    struct     class of each struct; its field_enum tells which fields are enums
    callback   function type of each typedef of one
    function   Function of each PL_API function
    opaque     names of the types that only pointers are made of
    """

    def __init__(self, text: str):
        self.constant: dict[str, int] = {}
        self.enum: dict[str, list[str]] = {}
        self.struct: dict[str, Any] = {}
        self.callback: dict[str, Any] = {}
        self.function: dict[str, Function] = {}
        self.opaque: set[str] = set()
        self._maps: dict[str, list[str]] = {}
        self._prefixes: dict[str, str] = {}
        for declaration in self._declarations(text):
            self._read(declaration)

    def _declarations(self, text):
        text = re.sub(r'/\*.*?\*/', ' ', text, flags=re.S).replace('\\\n', ' ')
        text = re.sub(r'#ifdef __cplusplus\n.*?#endif', '', text, flags=re.S)
        for name, body in re.findall(r'^#define (\w+)_MAP\(X\)(.*)', text,
                                     re.M):
            self._maps[name] = re.findall(r'\bX\((\w+)', body)
        self._prefixes.update(re.findall(
            r'^#define (\w+)\(\w+, \w+\) (\w+)##', text, re.M))
        for name, n in re.findall(r'^#define (\w+) (\d+)$', text, re.M):
            self.constant[name] = int(n)
        text = re.sub(r'^#.*', '', text, flags=re.M)
        text = re.sub(r'static inline [^{]*\{.*?\n\}', '', text, flags=re.S)
        text = re.sub(r'\b(PL_API|const (?!char)|volatile|restrict)\b', ' ',
                      text)
        text = ' '.join(text.split())
        at = depth = 0
        for m in re.finditer('[{};]', text):
            depth += {'{': 1, '}': -1, ';': 0}[m[0]]
            if m[0] == ';' and depth == 0:
                yield text[at:m.start()].strip()
                at = m.end()
        if text[at:].strip():
            raise SyntaxError(f'pl.h: unfinished: {text[at:at + 60]}')

    def _read(self, text):
        m = re.fullmatch(r'(?:typedef )?enum (?:\w+ )?\{(.*)\} ?(\w*)', text)
        if m:
            return self._read_enum(m[2], m[1])
        m = re.fullmatch(r'typedef struct (\w+) (\w+)', text)
        if m:
            return self.opaque.add(m[2])
        m = re.fullmatch(r'typedef struct \w+ \{(.*)\} (\w+)', text)
        if m:
            return self._read_struct(m[2], m[1])
        m = re.fullmatch(r'(typedef )?(.*?)(\w+) ?\((.*)\)', text)
        if not m:
            raise SyntaxError(f'pl.h: not understood: {text}')
        names, types = [], []
        for parameter in m[4].split(',') if m[4] != 'void' else ():
            name, kind, _ = self._typed(parameter, bool(m[1]))
            names.append(name)
            types.append(kind)
        _, result, _ = self._typed(m[2] + 'result', False)
        if m[1]:
            self.callback[m[3]] = ctypes.CFUNCTYPE(result, *types)
        else:
            self.function[m[3]] = Function(result, names, types)

    def _read_enum(self, name, body):
        for whole, key, macro in re.findall(r'((\w+)_MAP\((\w+)\))', body):
            prefix = self._prefixes[macro]
            body = body.replace(
                whole, ''.join(f'{prefix}{n}, ' for n in self._maps[key]))
        names, value = [], -1
        for item in filter(None, map(str.strip, body.split(','))):
            key, _, given = item.partition(' = ')
            value = self._number(given) if given else value + 1
            self.constant[key] = value
            names.append(key)
        if name:
            self.enum[name] = names

    def _read_struct(self, name, body):
        fields, enums = [], {}
        for line in filter(None, map(str.strip, body.split(';'))):
            first, *more = line.split(',')
            for i, declarator in enumerate([first, *more]):
                if i > 0:  # the words of the first, without its name
                    words = re.match(r'(const )?\w+', first)[0]
                    declarator = words + declarator
                field, kind, enum = self._typed(declarator, False)
                fields.append((field, kind))
                if enum:
                    enums[field] = enum
        self.struct[name] = type(name, (ctypes.Structure,), {
            '_fields_': fields, 'field_enum': enums})

    def _number(self, text):
        return sum(int(w) if w.isdigit() else self.constant[w]
                   for w in text.split(' + '))

    def _typed(self, text, in_callback):
        """Returns the name, type and enum of "const char *text" or "int a[4]".

        Texts that a callback is given need not end with NUL, so they are
        addresses there.
        """
        m = re.fullmatch(
            r'(const )?(\w+) ((?:\* ?|const )*)(\w+)(?:\[(.*)\])?',
            text.strip())
        if not m:
            raise SyntaxError(f'pl.h: not a type and a name: {text}')
        const, base, stars, name, size = m.groups()
        stars = stars.count('*')
        if base in self.callback:
            kind, stars = self.callback[base], stars - 1
        elif stars and base == 'char':
            text = const and not in_callback
            kind, stars = (ctypes.c_char_p if text else ctypes.c_void_p,
                           stars - 1)
        elif stars and (base == 'void' or base in self.opaque):
            kind, stars = ctypes.c_void_p, stars - 1
        elif base == 'void':
            kind = None
        elif base in self.enum:
            kind = ctypes.c_int
        elif base in self.struct:
            kind = self.struct[base]
        elif base in SCALARS:
            kind = SCALARS[base]
        else:
            raise SyntaxError(f'pl.h: unknown type: {text}')
        for _ in range(stars):
            kind = ctypes.POINTER(kind)
        if size:
            kind *= self._number(size)
        return name, kind, base if base in self.enum else None
