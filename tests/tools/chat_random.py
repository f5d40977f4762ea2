#!/usr/bin/env python3
"""chat_random.py SEED N: random templates of the language that chat templates
use, each with the text that the package jinja2 renders under Hugging Face's
settings. One JSON object a line: template, text (null: it raises). With another
word instead of both numbers: the variables that all of them see.

    chat_random.py variables >random.jsonl
    chat_random.py 1 2000 >>random.jsonl
    xz -9e <random.jsonl >tests/chat/random.jsonl.xz
"""
import json
import random
import re
import sys
import warnings

from chat_reference import environment

VARIABLES = {
    'n': 7, 'z': 0, 'neg': -3, 'f': 2.5, 'big': 123456789012, 't': True,
    'no': None, 's': 'Hello World', 'u': 'grüße 東京 🎉', 'e': '',
    'q': 'it\'s "x"\n\tend ', 'w': '  two  words ', 'num': '42',
    'l': [3, 1, 2], 'ls': ['b', 'A', 'c', 'a'], 'nested': [[1, 2], [3, 4]],
    'd': {'a': 1, 'b': 'two', 'items': 3}, 'empty': [], 'ed': {},
    'm': [{'role': 'user', 'content': 'Hi', 'n': 2},
          {'role': 'assistant', 'content': None, 'n': 1,
           'tool_calls': [{'function': {'name': 'f', 'arguments': {'x': 1}}}]},
          {'role': 'tool', 'content': ['x', {'type': 'text', 'text': 'é'}],
           'n': 3}],
}


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.names = []
        self.macros = []
        self.loops = 0

    def pick(self, *of):
        return self.r.choice(of)

    def chance(self, p):
        return self.r.random() < p

    # ---- expressions: by what they most likely are, sometimes anything ----
    def expr(self, depth=3):
        return self.pick(self.number, self.text, self.text, self.bool,
                         self.list, self.any)(depth)

    def any(self, depth):
        if depth <= 0:
            return self.pick('n', 's', 'l', 'd', 'm', 'missing', 'no', 't',
                             'u', 'e', *self.names)
        return self.pick(
            lambda: f'd.{self.pick("a", "b", "c", "get", "x.y")}',
            lambda: f'd[{self.text(0)}]',
            lambda: f'm[{self.pick("0", "1", "-1", "5", "z", "n")}]'
                    + self.pick(".role", "['content']", ".n", ".nope"),
            lambda: f'{self.list(depth - 1)}[{self.number(0)}]',
            lambda: f'({self.expr(depth - 1)} if {self.bool(depth - 1)}'
                    f' else {self.expr(depth - 1)})',
            lambda: f'({self.expr(depth - 1)} if {self.bool(depth - 1)})',
            lambda: f'({self.expr(depth - 1)} or {self.expr(depth - 1)})',
            lambda: f'({self.expr(depth - 1)} and {self.expr(depth - 1)})',
            lambda: f'{self.list(depth - 1)}|{self.pick("first", "last")}',
            lambda: f'{self.expr(depth - 1)}|default({self.text(0)}'
                    f'{self.pick("", ", true", ", boolean=false")})',
            lambda: f'd.get({self.text(0)}, {self.expr(0)})',
            lambda: f'{self.list(depth - 1)}|{self.pick("min", "max", "sum")}',
            lambda: self.call(depth),
            lambda: f'({self.expr(depth - 1)}, {self.expr(depth - 1)})',
            lambda: f'{{{self.text(0)}: {self.expr(depth - 1)}}}',
        )()

    def call(self, depth):
        if not self.macros:
            return self.number(depth - 1)
        name = self.pick(*self.macros)
        return self.pick(f'{name}({self.expr(0)})',
                         f'{name}({self.expr(0)}, y={self.expr(0)})',
                         f'{name}(x={self.expr(0)})',
                         f'{name}({self.expr(0)}, 1, {self.expr(0)})',
                         f'{name}({self.expr(0)}, z={self.expr(0)})',
                         f'{name}(*{self.list(0)})',
                         f'{name}({self.expr(0)}, **d)')

    def number(self, depth):
        if depth <= 0:
            return self.pick('n', 'z', 'neg', 'f', '0', '1', '2', '10', '1.5',
                             '-4', 'd.a', '1e3', '7', 'm[0].n')
        return self.pick(
            lambda: f'({self.number(depth - 1)} '
                    f'{self.pick("+", "-", "*", "/", "//", "%")} '
                    f'{self.number(depth - 1)})',
            lambda: f'{self.number(0)} ** {self.pick("2", "0", "-1", "3")}',
            lambda: f'-{self.number(0)}',
            lambda: f'{self.any(depth - 1)}|length',
            lambda: f'{self.text(depth - 1)}|length',
            lambda: f'({self.number(depth - 1)})|abs',
            lambda: f'({self.number(depth - 1)})|round'
                    + self.pick("", "(1)", "(2, 'floor')", "(0, 'ceil')"),
            lambda: f'{self.expr(depth - 1)}|int'
                    f'{self.pick("", "(5)", "(default=-1)")}',
            lambda: f'{self.expr(depth - 1)}|float',
            lambda: f'{self.text(depth - 1)}.'
                    f'{self.pick("find", "count", "rfind")}({self.text(0)})',
            lambda: f'{self.text(0)}|wordcount',
        )()

    def literal(self):
        return self.pick("'a'", '"b"', "'Hello'", "'two'", "'x y'", "''",
                         "'\\n'", "'é'", "' pad '", "'role'", "'o'", "'l'",
                         '"it\'s"', "'%s'", "'A-b c'")

    def text(self, depth):
        if depth <= 0:
            return self.pick('s', 'u', 'q', 'w', 'e', 'num', self.literal(),
                             self.literal(), 'd.b', 'm[0].content')
        return self.pick(
            lambda: f'({self.text(depth - 1)} + {self.text(depth - 1)})',
            lambda: f'({self.expr(depth - 1)} ~ {self.expr(depth - 1)})',
            lambda: f'({self.text(depth - 1)}|' + self.pick(
                'upper', 'lower', 'title', 'capitalize', 'trim', 'string',
                'reverse', 'indent', 'indent(2, true)', 'safe', 'e',
                'safe', 'forceescape', 'urlencode', 'truncate(9)',
                'truncate(7, true)', "truncate(4, end='é', leeway=0)",
                "indent('> ', blank=true)", 'center(9)', "trim('H o')",
                f'replace({self.text(0)}, {self.text(0)})',
                f'replace({self.literal()}, "-", 1)') + ')',
            lambda: f'{self.text(depth - 1)}.' + self.pick(
                'upper()', 'lower()', 'title()', 'capitalize()', 'strip()',
                'lstrip()', 'rstrip()', "strip('Hd')", 'swapcase()',
                f'replace({self.text(0)}, {self.text(0)})', 'zfill(5)',
                'ljust(8)', "rjust(8, '.')", 'center(8)',
                "removeprefix('He')", "removesuffix('ld')",
                f'join({self.list(0)})'),
            lambda: f'{self.text(depth - 1)}[{self.slice()}]',
            lambda: f'{self.list(depth - 1)}|join({self.literal()})',
            lambda: f"{self.list(depth - 1)}|join(', ')",
            lambda: f'({self.expr(depth - 1)}|tojson' + self.pick(
                '', '(indent=2)', '(ensure_ascii=True)', '(sort_keys=true)',
                "(separators=(',', ':'))", '(indent=0)') + ')',
            lambda: f'({self.expr(depth - 1)}|string)',
            lambda: f'({self.number(depth - 1)}|filesizeformat'
                    + self.pick('', '(true)') + ')',
            lambda: f'({{{self.literal()}: {self.expr(0)}, "b": '
                    f'{self.expr(0)}}}|{self.pick("xmlattr", "urlencode")})',
            lambda: f"'{self.pick('%s', '%5s', '%-6s|', '%r')}' % "
                    f'({self.expr(depth - 1)},)',
            lambda: f"'{self.pick('%d', '%5.2f', '%05d', '%+d', '%x', '%e')}'"
                    f' % {self.number(0)}',
            lambda: f"'{{}}-{{}}'.format({self.text(0)}, {self.number(0)})",
            lambda: f"'{{:{self.pick('>6', '<6', '^7', '*^9')}}}'"
                    f'.format({self.text(0)})',
            lambda: f"'%s and %s'|format({self.expr(0)}, {self.expr(0)})",
            lambda: f"'{{0:{self.pick('d', '05d', ',', '.1f', 'x')}}}'"
                    f'.format({self.number(0)})',
        )()

    def slice(self):
        part = lambda: self.pick('', '', '1', '-1', '2', '-3', '0', 'n', 'z')
        return part() + ':' + part() + self.pick('', '', ':2', ':-1', ':')

    def list(self, depth):
        if depth <= 0:
            return self.pick('l', 'ls', 'nested', 'm', 'empty', '[1, 2.0]',
                             "['x', 'y']", '(1, 2, 3)', 'range(4)', 'd', 's')
        return self.pick(
            lambda: f'[{self.expr(depth - 1)}, {self.expr(depth - 1)}]',
            lambda: f'({self.list(depth - 1)}|list)',
            lambda: f'{self.list(depth - 1)}|sort'
                    + self.pick("", "(reverse=true)", "(attribute='n')"),
            lambda: f'{self.list(depth - 1)}|reverse|list',
            lambda: f'{self.list(depth - 1)}|unique|list',
            lambda: f"ls|map('{self.pick('upper', 'length', 'lower')}')|list",
            lambda: f"m|map(attribute='{self.pick('role', 'n', 'x')}'"
                    f'{self.pick("", ", default=0")})|list',
            lambda: f"m|{self.pick('selectattr', 'rejectattr')}("
                    + self.pick("'role', 'equalto', 'user'", "'tool_calls'",
                                "'n', 'gt', 1", "'content', 'none'",
                                "'tool_calls', 'defined'") + ')|list',
            lambda: f"{self.list(0)}|{self.pick('select', 'reject')}("
                    + self.pick('', "'string'", "'number'", "'odd'") + ')|list',
            lambda: f"{self.any(0)}|{self.pick('select', 'map')}("
                    + self.pick("'string'", "'upper'") + ')|list',
            lambda: f'{self.list(depth - 1)}[{self.slice()}]',
            lambda: f'({self.list(depth - 1)} + {self.list(depth - 1)})',
            lambda: f'{self.text(depth - 1)}.' + self.pick(
                'split()', f'split({self.literal()})', 'splitlines()',
                f'rsplit({self.literal()}, 1)', "split('o', 1)",
                "partition('o')"),
            lambda: self.pick('d.items()|list', 'd|dictsort', 'd|items|list',
                              'd.keys()|list', 'd.values()|list', 'd.items()'),
            lambda: f'{self.list(0)}|{self.pick("batch", "slice")}'
                    f'({self.pick("2", "3, 0")})|list',
            lambda: f'range({self.number(0)})|list',
            lambda: f'dict(a={self.expr(0)}, b=2)',
            lambda: "m|groupby('" + self.pick('role', 'n', 'content') + "'"
                    + self.pick('', ", default='z'") + ')',
            lambda: "ls|batch(2)|groupby(" + self.pick('0', '1')
                    + self.pick('', ", default='b'") +
                    self.pick('', ', case_sensitive=true') + ')',
        )()

    def bool(self, depth):
        if depth <= 0:
            return self.pick('t', 'true', 'false', 'n', 'e', 'empty',
                             'missing', 'not t', 's', 'no')
        return self.pick(
            lambda: f'{self.number(depth - 1)} '
                    f'{self.pick("<", ">", "<=", ">=", "==", "!=")} '
                    f'{self.number(depth - 1)}',
            lambda: f'{self.text(0)} {self.pick("==", "!=", "<")} '
                    f'{self.text(0)}',
            lambda: f'{self.expr(depth - 1)} {self.pick("==", "!=")} '
                    f'{self.expr(depth - 1)}',
            lambda: f'0 < {self.number(0)} <= {self.number(0)}',
            lambda: f'{self.text(0)} {self.pick("in", "not in")} '
                    f'{self.pick(self.text, self.list)(depth - 1)}',
            lambda: f'{self.expr(0)} in {self.list(0)}',
            lambda: f'{self.any(depth - 1)} is {self.pick("", "not ")}'
                    + self.pick('defined', 'undefined', 'none', 'string',
                                'number', 'integer', 'float', 'boolean',
                                'mapping', 'iterable', 'sequence', 'true',
                                'false', "eq 'two'", 'sameas true', 'upper',
                                'in [1, 2]', 'divisibleby 2', 'odd', 'even'),
            lambda: f'not {self.bool(depth - 1)}',
            lambda: f'({self.bool(depth - 1)} {self.pick("and", "or")} '
                    f'{self.bool(depth - 1)})',
            lambda: f'{self.text(0)}.{self.pick("startswith", "endswith")}'
                    f'({self.text(0)})',
            lambda: f'{self.text(0)}.{self.pick("isdigit", "isalpha")}()',
            lambda: f'{self.text(0)}.{self.pick("isupper", "islower")}()',
        )()

    # ---- statements -------------------------------------------------------
    def open(self):
        return '{%' + self.pick('', '', '', '-', '-', '+') + ' '

    def close(self):
        return ' ' + self.pick('', '', '', '-', '-') + '%}'

    def tag(self, words):
        return self.open() + words + self.close()

    def data(self):
        return self.pick('text', ' ', '\n', '\n\n', '  \n  ', 'a b\n', '\t',
                         '<|im_end|>\n', 'x', '{', '} }', '\n    ', 'é')

    def name(self):
        return self.pick('v', 'w2', 'v3', 'k', 'item', 'k2')

    def statements(self, depth):
        return ''.join(self.statement(depth)
                       for _ in range(self.r.randint(1, 3)))

    def statement(self, depth):
        simple = [self.data, self.data, self.show, self.show, self.show,
                  self.set]
        if depth <= 0:
            return self.pick(*simple)()
        return self.pick(*simple, lambda: self.branch(depth - 1),
                         lambda: self.loop(depth - 1),
                         lambda: self.loop(depth - 1),
                         lambda: self.capture(depth - 1),
                         lambda: self.macro(depth - 1),
                         lambda: self.space(depth - 1), self.comment,
                         lambda: self.block(depth - 1))()

    def show(self):
        return ('{{' + self.pick('', '', '-') + ' ' + self.expr() + ' ' +
                self.pick('', '', '-') + '}}')

    def comment(self):
        return ('{#' + self.pick('', '-', '+') + ' note\n ' +
                self.pick('', '-') + '#}')

    def set(self):
        name = self.name()
        if self.chance(.1):
            text = self.tag(f'set {name}, k = {self.expr(1)}, {self.expr(1)}')
        else:
            text = self.tag(f'set {name} = {self.expr(2)}')
        self.names.append(name)
        return text

    def branch(self, depth):
        text = self.tag(f'if {self.bool(2)}') + self.statements(depth)
        if self.chance(.3):
            text += self.tag(f'elif {self.bool(1)}') + self.statements(depth)
        if self.chance(.5):
            text += self.tag('else') + self.statements(depth)
        return text + self.tag('endif')

    def loop(self, depth):
        head = self.pick(
            lambda: f'for item in {self.list(1)}',
            lambda: f'for item in {self.list(1)}',
            lambda: 'for k, v in d.items()',
            lambda: 'for a, b in nested',
            lambda: f'for item in {self.list(1)} if {self.bool(1)}',
            lambda: 'for item in m if item.n != 2',
            lambda: "for a, b in m|groupby('role')",
            lambda: f'for item in {self.list(1)} recursive',
            lambda: 'for item in [nested, l, [[[7]]]] recursive',
            lambda: f'for item in nested if {self.bool(1)} recursive')()
        before = list(self.names)
        self.names += ['item'] if 'item' in head else ['k', 'v']
        self.names += ['loop.' + self.pick(
            'index', 'index0', 'first', 'last', 'length', 'revindex',
            'previtem', 'nextitem', 'depth', "cycle('x', 'y')")] * 2
        self.loops += 1
        body = self.statements(depth)
        if 'recursive' in head or self.chance(.03):
            body += (self.tag('if item is iterable and item is not string') +
                     '<{{ ' + self.pick('loop(item)', 'loop(item[1:])',
                                        'loop(item|list)|upper') +
                     ' }}>' + self.tag('endif'))
        if self.chance(.2):
            body += (self.tag(f'if {self.bool(1)}') +
                     self.tag(self.pick('break', 'continue')) +
                     self.tag('endif') + self.statements(0))
        self.loops -= 1
        self.names = before
        if self.chance(.2):
            body += self.tag('else') + self.statements(depth)
        return self.tag(head) + body + self.tag('endfor')

    def capture(self, depth):
        name = self.pick('text1', 'text2')
        text = (self.tag(f'set {name}{self.pick("", " | upper", " | trim")}') +
                self.statements(depth) + self.tag('endset'))
        self.names.append(name)
        return text

    def macro(self, depth):
        name = self.pick('mac', 'show')
        before = self.names
        more = self.pick('varargs', 'kwargs', 'kwargs.z', "caller('p')",
                         'caller()', 'caller is defined')
        self.names = before + ['x', 'y', more, more]
        body = self.statements(depth)
        if self.chance(.5):
            body += '{{ ' + more + ' }}'
        self.names = before
        text = (self.tag(f'macro {name}(x, y={self.expr(0)})') + body +
                self.tag('endmacro'))
        self.macros.append(name)
        return text + self.pick(lambda: '{{ ' + self.call(1) + ' }}',
                                lambda: self.call_block(depth))()

    def call_block(self, depth):
        before = self.names
        head = 'call ' + self.pick('', '', '(p) ', "(p, q='Q') ", '() ')
        if 'p' in head:
            self.names = before + ['p'] * 2
        body = self.statements(depth)
        self.names = before
        return (self.tag(head + self.call(1)) + body + self.tag('endcall'))

    def space(self, depth):
        text = self.tag('set ns = namespace(a=1, b=[])')
        self.names += ['ns.a', 'ns.b']
        return (text + self.tag(f'for i in {self.list(0)}') +
                self.tag('set ns.a = ns.a + 1') +
                self.tag('set ns.b = ns.b + [i]') + self.statements(depth) +
                self.tag('endfor') + '{{ ns.a }}{{ ns.b }}')

    def block(self, depth):
        return self.pick(
            lambda: self.tag(f'filter {self.pick("upper", "trim", "e")}') +
            self.statements(depth) + self.tag('endfilter'),
            lambda: self.tag(f'with v = {self.expr(1)}') +
            self.statements(depth) + self.tag('endwith'),
            lambda: self.tag('generation') + self.statements(depth) +
            self.tag('endgeneration'),
            lambda: '{% raw %}{{ x }} {% y %}\n{% endraw %}',
            lambda: self.call_block(depth),
            lambda: self.tag(f'print {self.expr(1)}, {self.expr(1)}'),
            lambda: self.tag(f'set cy = cycler({self.expr(0)}, 2)') +
            '{{ cy.next() }}{{ cy.current }}' + self.statements(depth) +
            '{{ cy.next() }}{{ cy.reset() }}')()

    def template(self):
        return ''.join(self.statement(3) for _ in range(self.r.randint(1, 6)))


def shown(template, text):
    """Returns true if the text depends on the address of an object, so that no
    two runs agree."""
    return (' at 0x' in text or 'generator object' in text or
            re.search(r'd\.get\b[^(]', template))


def main():
    env = environment()
    warnings.simplefilter('ignore')  # templates index numbers, too
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    done, failed, i = 0, 0, 0
    while done < count:
        i += 1
        template = Maker(seed * 1000003 + i).template()
        try:
            text = env.from_string(template).render(**VARIABLES)
        except Exception:
            text = None
        if text is None and failed > done // 5:
            continue  # most should succeed
        if text is not None and (shown(template, text) or len(text) > 20000):
            continue
        failed += text is None
        done += 1
        print(json.dumps({'template': template, 'text': text},
                         ensure_ascii=False))


if __name__ == '__main__':
    if len(sys.argv) == 2:
        print(json.dumps(VARIABLES, ensure_ascii=False))
    else:
        main()
