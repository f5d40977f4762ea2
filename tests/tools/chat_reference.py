#!/usr/bin/env python3
"""chat_reference.py: renders chat templates on the conversations of
tests/chat/, by the package jinja2 with Hugging Face's settings.

    chat_reference.py DIR       for each DIR/*.jinja, a line a conversation:
                                template, case, FNV-1a hash of the text in 16
                                digits, or "raises"; to standard output
    chat_reference.py DIR NAME CASE    that text

    chat_reference.py ../shared/templates >tests/chat/published.txt
"""
import datetime
import glob
import json
import os
import sys

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import SandboxedEnvironment

HERE = os.path.dirname(os.path.abspath(__file__))
NOW = datetime.datetime(2025, 3, 9, 14, 5, 6)  # the tests' clock, UTC
SPECIAL = {'bos_token': '<s>', 'eos_token': '</s>', 'unk_token': '<unk>'}


class Generation(Extension):
    """{% generation %} as transformers has it: a block without an effect."""
    tags = {'generation'}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(['name:endgeneration'],
                                       drop_needle=True)
        return nodes.CallBlock(self.call_method('_same'), [], [],
                               body).set_lineno(line)

    def _same(self, caller):
        return caller()


def raise_exception(message):
    raise TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None,
           sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                      separators=separators, sort_keys=sort_keys)


def environment():
    env = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, 'jinja2.ext.loopcontrols'])
    env.filters['tojson'] = tojson
    env.globals['raise_exception'] = raise_exception
    env.globals['strftime_now'] = NOW.strftime
    return env


def fnv(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = (h ^ b) * 0x100000001b3 & (1 << 64) - 1
    return f'{h:016x}'


def render(template, case):
    variables = dict(SPECIAL, messages=case['messages'],
                     tools=case.get('tools'), documents=None,
                     add_generation_prompt=not case.get(
                         'no_generation_prompt'))
    variables.update(case.get('extra', {}))
    return template.render(**variables)


def main():
    env = environment()
    with open(os.path.join(HERE, '../chat/conversations.jsonl')) as f:
        cases = [json.loads(line) for line in f]
    for path in sorted(glob.glob(os.path.join(sys.argv[1], '*.jinja'))):
        name = os.path.basename(path)
        with open(path, newline='') as f:
            template = env.from_string(f.read())
        for i, case in enumerate(cases):
            if len(sys.argv) > 2:
                if [name, case['name']] == sys.argv[2:]:
                    sys.stdout.write(render(template, case))
                continue
            try:
                text = fnv(render(template, case).encode())
            except Exception:
                text = 'raises'
            print(name, i, text)


if __name__ == '__main__':
    main()
