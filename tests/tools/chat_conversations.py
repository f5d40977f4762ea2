#!/usr/bin/env python3
"""chat_conversations.py: writes the conversations that chat templates are
tried on, one JSON object a line, to standard output.

    tests/tools/chat_conversations.py >tests/chat/conversations.jsonl
"""
import json

TOOLS = [
    {'type': 'function', 'function': {
        'name': 'get_weather',
        'description': 'The weather of a place, "now" or later.',
        'parameters': {
            'type': 'object',
            'properties': {
                'place': {'type': 'string', 'description': 'A town'},
                'days': {'type': 'integer', 'default': 1,
                         'description': 'How many'},
                'unit': {'type': 'string', 'enum': ['C', 'F']},
                'detail': {'type': 'object', 'properties': {
                    'wind': {'type': 'boolean', 'description': 'Too?'},
                    'hours': {'type': 'array',
                              'items': {'type': 'number'}}}},
                'any': {'type': ['string', 'null']},
            },
            'required': ['place']}}},
    {'type': 'function', 'function': {
        'name': 'add', 'description': 'Adds <two> numbers & more',
        'parameters': {'type': 'object', 'properties': {
            'a': {'type': 'number'}, 'b': {'type': 'number'}},
            'required': ['a', 'b']},
        'return': {'type': 'number', 'description': 'their sum'}}},
]
NO_PARAMETERS = [{'type': 'function', 'function': {
    'name': 'now', 'description': 'The time',
    'parameters': {'type': 'object', 'properties': {}}}}]


def turn(role, content, **more):
    return {'role': role, 'content': content, **more}


def call(name, arguments, ident='call00001', wrapped=True):
    inner = {'name': name, 'arguments': arguments}
    if not wrapped:
        return inner
    return {'id': ident, 'type': 'function', 'function': inner}


ASK = turn('user', 'What is the weather in Überlingen?')
ARGS = {'place': 'Überlingen', 'days': 2, 'detail': {'wind': True,
        'hours': [6, 12.5]}, 'any': None}
ANSWER = turn('tool', '{"temperature": 21.5}', name='get_weather',
              tool_call_id='call00001')


def with_call(arguments, **more):
    return [turn('system', 'Be brief.'), ASK,
            turn('assistant', more.pop('content', ''), tool_calls=[
                call('get_weather', arguments)], **more),
            ANSWER]


def cases():
    hello = turn('user', 'Hello')
    hi = turn('assistant', 'Hi there!')
    yield 'one user turn', dict(messages=[hello])
    yield 'system and user', dict(messages=[turn('system', 'Be brief.'),
                                            hello])
    yield 'developer', dict(messages=[turn('developer', 'Be brief.'), hello])
    yield 'turns', dict(messages=[hello, hi, turn('user', ' How are you?\n')])
    yield 'turns without prompt', dict(
        messages=[hello, hi], no_generation_prompt=True)
    yield 'ends with the assistant', dict(messages=[hello, hi])
    yield 'unicode', dict(messages=[turn(
        'user', 'Grüße — 東京 🎉 \t"quoted" \'single\' <b>&amp;</b> \\n')])
    yield 'empty list', dict(messages=[])
    yield 'empty content', dict(messages=[turn('user', ''),
                                          turn('assistant', ''), hello])
    yield 'no content', dict(messages=[{'role': 'user'}])
    yield 'null content', dict(messages=[hello, turn('assistant', None)])
    yield 'no role', dict(messages=[{'content': 'x'}])
    yield 'unknown role', dict(messages=[turn('narrator', 'Once'), hello])
    yield 'two users', dict(messages=[hello, turn('user', 'Anybody?')])
    yield 'assistant first', dict(messages=[hi, hello])
    yield 'system later', dict(messages=[hello, hi, turn('system', 'Now'),
                                         turn('user', 'and?')])
    yield 'two systems', dict(messages=[turn('system', 'A'),
                                        turn('system', 'B'), hello])
    yield 'content number', dict(messages=[turn('user', 12)])
    yield 'parts', dict(messages=[turn('user', [
        {'type': 'text', 'text': 'Look: '}, {'type': 'text', 'text': 'here'},
    ])])
    yield 'parts of system', dict(messages=[
        turn('system', [{'type': 'text', 'text': 'Be brief.'}]), hello])
    yield 'image', dict(messages=[turn('user', [
        {'type': 'text', 'text': 'What is this?'}, {'type': 'image'}])])
    yield 'image url', dict(messages=[turn('user', [
        {'type': 'image_url', 'image_url': {'url': 'http://x/y.png'}},
        {'type': 'text', 'text': 'What is this?'}])])
    yield 'unknown part', dict(messages=[turn('user', [
        {'type': 'smell', 'smell': 'rose'}])])
    yield 'strings as parts', dict(messages=[turn('user', ['a', 'b'])])
    yield 'reasoning', dict(messages=[
        hello, turn('assistant', 'Hi!', reasoning_content='A greeting.\n'),
        turn('user', 'Again')])
    yield 'reasoning last', dict(messages=[
        hello, turn('assistant', 'Hi!', reasoning_content='\nA greeting.')],
        no_generation_prompt=True)
    yield 'thinking field', dict(messages=[
        hello, turn('assistant', 'Hi!', thinking='A greeting.'),
        turn('user', 'Again')])
    yield 'think tags', dict(messages=[
        hello, turn('assistant', '<think>\nHm.\n</think>\n\nHi!'),
        turn('user', 'Again')])
    yield 'think tags last', dict(messages=[
        hello, turn('assistant', '<think>\nHm.\n</think>\n\nHi!')],
        no_generation_prompt=True)
    for on in True, False:
        yield f'thinking {on}', dict(
            messages=[turn('system', 'Be brief.'), hello],
            extra={'enable_thinking': on, 'thinking': on})
        yield f'thinking {on} with tools', dict(
            messages=[hello], tools=TOOLS,
            extra={'enable_thinking': on, 'thinking': on})
    yield 'nothink word', dict(messages=[turn('user', 'Hello /nothink'),
                                         hi, turn('user', 'Now /think')])
    yield 'reasoning effort', dict(messages=[hello], extra={
        'reasoning_effort': 'high', 'model_identity': 'You are Plait.'})
    yield 'tools', dict(messages=[hello], tools=TOOLS)
    yield 'tools and system', dict(
        messages=[turn('system', 'Be brief.'), hello], tools=TOOLS)
    yield 'tool without parameters', dict(messages=[hello],
                                          tools=NO_PARAMETERS)
    yield 'tools without prompt', dict(messages=[hello, hi], tools=TOOLS,
                                       no_generation_prompt=True)
    yield 'empty tools', dict(messages=[hello], tools=[])
    yield 'call', dict(messages=with_call(ARGS), tools=TOOLS)
    yield 'call without tools', dict(messages=with_call(ARGS))
    yield 'call, text', dict(messages=with_call(json.dumps(ARGS)),
                             tools=TOOLS)
    yield 'call, no arguments', dict(messages=with_call({}), tools=TOOLS)
    yield 'call with content', dict(
        messages=with_call(ARGS, content='Let me see.'), tools=TOOLS)
    yield 'call, null content', dict(messages=with_call(ARGS, content=None),
                                     tools=TOOLS)
    yield 'call with reasoning', dict(
        messages=with_call(ARGS, reasoning_content='I must ask.',
                           thinking='I must ask.'), tools=TOOLS)
    yield 'call answered', dict(
        messages=with_call(ARGS) + [turn('assistant', 'It is 21.5 °C.'),
                                    turn('user', 'Thanks')], tools=TOOLS)
    yield 'call answered, last', dict(
        messages=with_call(ARGS, reasoning_content='I must ask.') +
        [turn('assistant', 'It is warm.', reasoning_content='21.5 is warm')],
        tools=TOOLS, no_generation_prompt=True)
    two = turn('assistant', '', tool_calls=[
        call('add', {'a': 1, 'b': 2.0}, 'call00002'),
        call('add', {'a': -1, 'b': 1e20}, 'call00003')])
    results = [turn('tool', '3', name='add', tool_call_id='call00002'),
               turn('tool', '1e20', name='add', tool_call_id='call00003')]
    yield 'two calls', dict(messages=[turn('user', 'Add'), two] + results,
                            tools=TOOLS)
    yield 'two calls, answered', dict(
        messages=[turn('user', 'Add'), two] + results +
        [turn('assistant', 'Done.'), turn('user', 'More')], tools=TOOLS)
    yield 'bare call', dict(messages=[
        turn('user', 'Add'),
        turn('assistant', '', tool_calls=[
            call('add', {'a': 1, 'b': 2}, wrapped=False)]),
        turn('tool', '3')], tools=TOOLS)
    yield 'result first', dict(messages=[hello, turn('tool', '3')])
    yield 'result as object', dict(messages=with_call(ARGS)[:-1] + [
        turn('tool', {'temperature': 21.5, 'ok': True}, name='get_weather',
             tool_call_id='call00001')], tools=TOOLS)
    yield 'result as parts', dict(messages=with_call(ARGS)[:-1] + [
        turn('tool', [{'type': 'text', 'text': '21.5'}], name='get_weather',
             tool_call_id='call00001')], tools=TOOLS)
    yield 'no calls', dict(messages=[hello, turn('assistant', 'Hi!',
                                                 tool_calls=[]), hello])
    yield 'short id', dict(messages=[ASK, turn('assistant', '', tool_calls=[
        call('get_weather', ARGS, 'x')]), turn(
            'tool', '1', tool_call_id='x')], tools=TOOLS)
    yield 'documents', dict(messages=[hello], extra={'documents': [
        {'title': 'One', 'text': 'First.'}, {'title': 'Two', 'text': 'è'}]})
    yield 'builtin tools', dict(messages=[hello], extra={
        'builtin_tools': ['browser', 'python'], 'date_string': '1 Jan 2025',
        'custom_tools': TOOLS, 'tools_in_user_message': False})
    yield 'xml tools', dict(messages=[hello], extra={
        'xml_tools': ['def f(): pass'], 'python_tools': ['g'],
        'custom_instructions': 'Rhyme.'})
    long = [turn('system', 'Be brief.')]
    for i in range(5):
        long += [turn('user', f'Question {i}: what is {i} + 1?\n\n' * 3),
                 turn('assistant', 'I compute.', tool_calls=[
                     call('add', {'a': i, 'b': 1}, f'call0000{i}')]),
                 turn('tool', f'{i + 1}', name='add',
                      tool_call_id=f'call0000{i}'),
                 turn('assistant', f'It is {i + 1}.')]
    yield 'twenty turns', dict(messages=long, tools=TOOLS)


for name, case in cases():
    print(json.dumps({'name': name, **case}, ensure_ascii=False))
