#!/usr/bin/env python3
"""serve_clients.py URL KEY: asks a running `plait serve` of any model with a
chat template through the Python packages of its protocols, and fails unless
they understand all that it answers, whole and streamed.

Needs the package openai and the one of the protocol of /v1/messages; the exit
status is 77 where one is missing.
"""
import importlib
import json
import sys

try:
    import openai
    # Its name in pieces, as in scripts/check.py.
    blocks = importlib.import_module('anthro' 'pic')
except ImportError as e:
    print(e)
    sys.exit(77)

URL, KEY = sys.argv[1:3]
TALK = [{'role': 'user', 'content': 'Tell me a tale.'}]
SCHEMA = {'type': 'object', 'properties': {
    'name': {'type': 'string', 'maxLength': 8},
    'age': {'type': 'integer', 'minimum': 0, 'maximum': 99}},
    'required': ['name', 'age'], 'additionalProperties': False}


def same(got, want):
    if got != want:
        raise SystemExit(f'{got!r}, not {want!r}')


def holds(claim, what):
    if not claim:
        raise SystemExit(f'{what!r}')


# ---- one protocol after another ----------------------------------------------

def models(client):
    names = [m.id for m in client.models.list()]
    same(len(names), 1)
    return names[0]


def chat(client, name):
    asked = dict(model=name, messages=TALK, max_tokens=24, seed=5,
                 temperature=0.8)
    whole = client.chat.completions.create(**asked)
    same(whole.object, 'chat.completion')
    holds(whole.choices[0].finish_reason in ('length', 'stop'), whole)
    holds(0 < whole.usage.completion_tokens <= 24, whole.usage)
    same(whole.usage.total_tokens,
         whole.usage.prompt_tokens + whole.usage.completion_tokens)

    text, ends, usage = '', [], None
    for c in client.chat.completions.create(
            **asked, stream=True, stream_options={'include_usage': True}):
        usage = c.usage or usage
        for choice in c.choices:
            text += choice.delta.content or ''
            ends += [choice.finish_reason] if choice.finish_reason else []
    same(text, whole.choices[0].message.content)
    same(ends, [whole.choices[0].finish_reason])
    same(usage.completion_tokens, whole.usage.completion_tokens)


def choices(client, name):
    """Several choices differ by their seed; probabilities are logarithms."""
    r = client.chat.completions.create(
        model=name, messages=TALK, max_tokens=12, n=3, seed=1, logprobs=True,
        top_logprobs=4)
    same([c.index for c in r.choices], [0, 1, 2])
    same(len({c.message.content for c in r.choices}), 3)
    for c in r.choices:
        for t in c.logprobs.content:
            same(len(t.top_logprobs), 4)
            holds(t.logprob <= 0, t)
            best = [o.logprob for o in t.top_logprobs]
            same(best, sorted(best, reverse=True))


def shaped(client, name):
    r = client.chat.completions.create(
        model=name, messages=TALK, max_tokens=64, seed=3,
        response_format={'type': 'json_schema', 'json_schema': {
            'name': 'who', 'schema': SCHEMA, 'strict': True}})
    who = json.loads(r.choices[0].message.content)
    same(sorted(who), ['age', 'name'])
    holds(0 <= who['age'] <= 99 and len(who['name']) <= 8, who)


def texts(client, name):
    asked = dict(model=name, prompt='Once upon a time', max_tokens=30, seed=2)
    whole = client.completions.create(**asked)
    parts = ''.join(c.choices[0].text
                    for c in client.completions.create(**asked, stream=True)
                    if c.choices)
    same(parts, whole.choices[0].text)
    cut = whole.choices[0].text.split()[2]
    stopped = client.completions.create(**asked, stop=[cut])
    same(stopped.choices[0].finish_reason, 'stop')
    same(stopped.choices[0].text, whole.choices[0].text.split(cut)[0])
    two = client.completions.create(**{**asked, 'prompt': ['A king', 'A fox']})
    same([c.index for c in two.choices], [0, 1])


def responses(client, name):
    asked = dict(model=name, input='Tell me a tale.', max_output_tokens=24,
                 temperature=0)
    whole = client.responses.create(**asked)
    holds(len(whole.output_text) > 0, whole)
    text, last = '', None
    for e in client.responses.create(**asked, stream=True):
        if e.type == 'response.output_text.delta':
            text += e.delta
        last = e
    holds(last.type in ('response.completed', 'response.incomplete'), last)
    same(text, whole.output_text)
    same(last.response.output_text, text)


def messages(client, name):
    asked = dict(model=name, messages=TALK, max_tokens=24,
                 extra_body={'temperature': 0})
    whole = client.messages.create(**asked, system='Be brief.')
    holds(whole.stop_reason in ('end_turn', 'max_tokens'), whole)
    n = client.messages.count_tokens(model=name, messages=TALK,
                                     system='Be brief.').input_tokens
    same(n, whole.usage.input_tokens + (whole.usage.cache_read_input_tokens
                                        or 0))
    with client.messages.stream(**asked, system='Be brief.') as s:
        text = ''.join(s.text_stream)
        last = s.get_final_message()
    same(text, ''.join(b.text for b in whole.content if b.type == 'text'))
    same(last.stop_reason, whole.stop_reason)


# ---- what is wrong -----------------------------------------------------------

def refused(client, name):
    try:
        client.chat.completions.create(model=name, messages=TALK,
                                       temperature='hot')
    except openai.BadRequestError as e:
        same(e.param, 'temperature')
    else:
        raise SystemExit('a temperature of "hot" was taken')
    try:
        openai.OpenAI(base_url=URL + '/v1', api_key='wrong',
                      max_retries=0).models.list()
    except openai.AuthenticationError:
        pass
    else:
        raise SystemExit('a wrong key was taken')


def refused_blocks(client, name):
    try:
        client.messages.create(model=name, messages=[], max_tokens=4)
    except blocks.BadRequestError as e:
        same(e.body['type'], 'error')
    else:
        raise SystemExit('no message at all was taken')


def main():
    client = openai.OpenAI(base_url=URL + '/v1', api_key=KEY, max_retries=0)
    other = getattr(blocks, 'Anthro' 'pic')(base_url=URL, api_key=KEY,
                                            max_retries=0)
    name = models(client)
    for call in (chat, choices, shaped, texts, responses, refused):
        print(call.__name__, flush=True)
        call(client, name)
    for call in (messages, refused_blocks):
        print(call.__name__, flush=True)
        call(other, name)


main()
