#!/usr/bin/env python3
"""serve_clients.py URL KEY: sends requests to a running `plait serve` of any
model with a chat template through the Python packages of its protocols, and
fails unless they can parse every response, whole and streamed.

Needs the package openai and the one of the protocol of /v1/messages; the exit
status is 77 if one is missing.
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


def embeddings(client, name):
    """As base64, which the package requests by default, and as numbers."""
    asked = ['A king', 'A fox', 'A king']
    r = client.embeddings.create(model=name, input=asked)
    same([d.index for d in r.data], [0, 1, 2])
    holds(r.usage.prompt_tokens >= 6, r.usage)
    one, two, three = (d.embedding for d in r.data)
    same(one, three)
    holds(one != two, one)
    holds(abs(sum(x * x for x in one) - 1) < 1e-4, one)
    plain = client.embeddings.create(model=name, input='A king',
                                     encoding_format='float')
    holds(max(abs(a - b) for a, b in zip(plain.data[0].embedding, one)) < 1e-6,
          plain)


# ---- calls of tools ------------------------------------------------------------

WEATHER = {'type': 'object', 'properties': {
    'days': {'type': 'integer', 'minimum': 1, 'maximum': 9},
    'unit': {'enum': ['C', 'F']}},
    'required': ['days', 'unit'], 'additionalProperties': False}


def right_call(name, arguments):
    same(name, 'weather')
    same(sorted(arguments), ['days', 'unit'])
    holds(1 <= arguments['days'] <= 9 and arguments['unit'] in 'CF', arguments)


def calls(client, name):
    """A required call is made, streamed or not, for either way to ask."""
    tool = {'type': 'function', 'function': {
        'name': 'weather', 'parameters': WEATHER}}
    for choice in ('required', {'type': 'function',
                                'function': {'name': 'weather'}}):
        asked = dict(model=name, messages=TALK, max_tokens=200, seed=4,
                     tools=[tool], tool_choice=choice,
                     parallel_tool_calls=False)
        whole = client.chat.completions.create(**asked).choices[0]
        same(whole.finish_reason, 'tool_calls')
        same(len(whole.message.tool_calls), 1)
        call = whole.message.tool_calls[0].function
        right_call(call.name, json.loads(call.arguments))

        names, text, n = [], '', 0
        for c in client.chat.completions.create(**asked, stream=True):
            for d in c.choices[0].delta.tool_calls or []:
                names += [d.function.name] if d.function.name else []
                text += d.function.arguments or ''
                n += 1
        same(names, ['weather'])
        same(text, call.arguments)
        holds(n > 3, 'arguments in pieces')


def calls_of_responses(client, name):
    asked = dict(model=name, input='Tell me a tale.', max_output_tokens=200,
                 temperature=0, tool_choice='required',
                 parallel_tool_calls=False,
                 tools=[{'type': 'function', 'name': 'weather',
                         'parameters': WEATHER, 'strict': True}])
    whole = client.responses.create(**asked)
    same([o.type for o in whole.output], ['function_call'])
    right_call(whole.output[0].name, json.loads(whole.output[0].arguments))
    text = ''
    for e in client.responses.create(**asked, stream=True):
        if e.type == 'response.function_call_arguments.delta':
            text += e.delta
        if e.type == 'response.function_call_arguments.done':
            same(e.arguments, text)
    same(text, whole.output[0].arguments)


def calls_of_messages(client, name):
    asked = dict(model=name, messages=TALK, max_tokens=200,
                 extra_body={'temperature': 0},
                 tools=[{'name': 'weather', 'input_schema': WEATHER}],
                 tool_choice={'type': 'any',
                              'disable_parallel_tool_use': True})
    whole = client.messages.create(**asked)
    same(whole.stop_reason, 'tool_use')
    same([b.type for b in whole.content], ['tool_use'])
    right_call(whole.content[0].name, whole.content[0].input)
    with client.messages.stream(**asked) as s:
        n = sum(e.type == 'input_json' for e in s)
        last = s.get_final_message()
    same(last.content[0].input, whole.content[0].input)
    holds(n > 3, 'arguments in pieces')


# ---- the other protocol --------------------------------------------------------

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
    for call in (chat, choices, shaped, texts, responses, embeddings, calls,
                 calls_of_responses, refused):
        print(call.__name__, flush=True)
        call(client, name)
    for call in (messages, calls_of_messages, refused_blocks):
        print(call.__name__, flush=True)
        call(other, name)


main()
