#!/usr/bin/env python3
"""server_clients.py DIR asks|answers: the Python packages that speak the
server's protocols, for tests/server/test_server_clients.c.

asks     writes into DIR the requests that the packages make: NAME.body
answers  has each package send DIR/NAME.body to a server of its own, which
         responds with the bytes of DIR/NAME.answer, and prints the parsed
         result; fails unless that is the output of the test's model

The names are those of CALLS. Needs the package openai and the one of the
protocol of /v1/messages; the exit status is 77 if one is missing.
"""
import http.server
import importlib
import json
import os
import sys
import threading

try:
    import openai
    # Its name in pieces, as in scripts/check.py.
    blocks = importlib.import_module('anthro' 'pic')
except ImportError as e:
    print(e)
    sys.exit(77)

# The output of the test's model.
REASONING, CONTENT = 'why ü', 'say 東 "\\" 🎉\n'
CALLS_MADE = [('f', {'x': 'ü'}), ('g', {})]

PARAMETERS = {'type': 'object', 'properties': {'x': {'type': 'string'}}}
FUNCTION = {'name': 'f', 'description': 'd', 'parameters': PARAMETERS}
ASKED = [{'role': 'system', 'content': 'be'}, {'role': 'user', 'content': 'q'}]


def same(got, want):
    if got != want:
        raise SystemExit(f'{got!r}, not {want!r}')


def valid(answer):
    """The packages accept any values; their types are stricter."""
    type(answer).model_validate(answer.to_dict())
    return answer


def valid_each(stream):
    for event in stream:
        yield valid(event)


# ---- chat completions --------------------------------------------------------

def chat(client, **more):
    return client.chat.completions.create(
        model='tale', messages=ASKED, temperature=0.5, max_tokens=9, seed=1,
        tools=[{'type': 'function', 'function': FUNCTION}], **more)


def check_message(m):
    same(m.content, CONTENT)
    same(m.reasoning_content, REASONING)
    same([(c.function.name, json.loads(c.function.arguments))
          for c in m.tool_calls], CALLS_MADE)


def check_chat(answer):
    check_message(valid(answer).choices[0].message)
    same(answer.choices[0].finish_reason, 'tool_calls')
    same(answer.usage.total_tokens, 18)
    same(answer.usage.prompt_tokens_details.cached_tokens, 4)


def check_chat_stream(chunks):
    content, reasoning, calls, usage, why = '', '', {}, None, None
    for chunk in valid_each(chunks):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            why = choice.finish_reason or why
            content += choice.delta.content or ''
            reasoning += getattr(choice.delta, 'reasoning_content', '')
            for call in choice.delta.tool_calls or []:
                name, pieces = calls.get(call.index, ('', ''))
                calls[call.index] = (name + (call.function.name or ''),
                                     pieces + call.function.arguments)
    same((content, reasoning), (CONTENT, REASONING))
    same([(calls[i][0], json.loads(calls[i][1])) for i in sorted(calls)],
         CALLS_MADE)
    same((why, usage.completion_tokens), ('tool_calls', 8))


def chat_helper(client):
    with client.chat.completions.stream(
            model='tale', messages=ASKED,
            tools=[{'type': 'function', 'function': FUNCTION}]) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion()


def check_helper(answer):
    same(answer.choices[0].message.content, CONTENT)
    same(answer.choices[0].finish_reason, 'tool_calls')


# ---- completions -------------------------------------------------------------

def text(client, **more):
    return client.completions.create(model='tale', prompt='Once', stop=['x'],
                                     logprobs=1, max_tokens=9, **more)


def check_text(answer):
    same(valid(answer).choices[0].text, CONTENT)
    same(answer.choices[0].finish_reason, 'stop')
    same(answer.usage.prompt_tokens, 10)


def check_text_stream(chunks):
    # the type requires finish_reason, which no server's chunks have
    same(''.join(c.choices[0].text for c in chunks if c.choices), CONTENT)


# ---- responses ---------------------------------------------------------------

def response(client, **more):
    return client.responses.create(
        model='tale', instructions='be', max_output_tokens=9,
        input=[{'role': 'user', 'content': 'q'}],
        tools=[{'type': 'function', 'strict': False, **FUNCTION}], **more)


def check_response(answer):
    same(valid(answer).status, 'completed')
    same(answer.output_text, CONTENT)
    same([(i.name, json.loads(i.arguments)) for i in answer.output
          if i.type == 'function_call'], CALLS_MADE)
    same(answer.output[0].content[0].text, REASONING)
    same(answer.usage.total_tokens, 18)


def check_response_stream(events):
    said = ''
    for event in valid_each(events):
        if event.type == 'response.output_text.delta':
            said += event.delta
    same(said, CONTENT)
    same(event.type, 'response.completed')
    check_response(event.response)


def response_helper(client):
    with client.responses.stream(model='tale', input='q') as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


# ---- messages ----------------------------------------------------------------

def message(client, **more):
    return client.messages.create(
        model='tale', max_tokens=9, system='be',
        messages=[{'role': 'user', 'content': 'q'}],
        tools=[{'name': 'f', 'description': 'd', 'input_schema': PARAMETERS}],
        stop_sequences=['x'], **more)


def check_blocks(answer):
    same([b.type for b in valid(answer).content],
         ['thinking', 'text', 'tool_use', 'tool_use'])
    same(answer.content[0].thinking, REASONING)
    same(answer.content[1].text, CONTENT)
    same([(b.name, b.input) for b in answer.content[2:]], CALLS_MADE)
    same(answer.stop_reason, 'tool_use')
    same((answer.usage.input_tokens, answer.usage.cache_read_input_tokens,
          answer.usage.output_tokens), (6, 4, 8))


def check_message_stream(events):
    kinds = [e.type for e in valid_each(events)]
    same((kinds[0], kinds[-1]), ('message_start', 'message_stop'))


def message_helper(client):
    with client.messages.stream(
            model='tale', max_tokens=9,
            messages=[{'role': 'user', 'content': 'q'}]) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


# ---- errors ------------------------------------------------------------------

def fails(call):
    def run(client):
        try:
            call(client)
        except (openai.BadRequestError, blocks.BadRequestError) as e:
            return e
        raise SystemExit('no error came')
    return run


def check_error(e):
    same(e.status_code, 400)
    assert 'temperature' in str(e), e


STREAM = {'stream': True}
USAGE = {'stream': True, 'stream_options': {'include_usage': True}}
# name, package, its call, the expected result
CALLS = [
    ('chat', openai.OpenAI, chat, check_chat),
    ('chat-stream', openai.OpenAI, lambda c: chat(c, **USAGE),
     check_chat_stream),
    ('chat-helper', openai.OpenAI, chat_helper, check_helper),
    ('chat-error', openai.OpenAI, fails(chat), check_error),
    ('text', openai.OpenAI, text, check_text),
    ('text-stream', openai.OpenAI, lambda c: text(c, **STREAM),
     check_text_stream),
    ('response', openai.OpenAI, response, check_response),
    ('response-stream', openai.OpenAI, lambda c: response(c, **STREAM),
     check_response_stream),
    ('response-helper', openai.OpenAI, response_helper, check_response),
    ('message', getattr(blocks, 'Anthro' 'pic'), message, check_blocks),
    ('message-stream', getattr(blocks, 'Anthro' 'pic'),
     lambda c: message(c, **STREAM), check_message_stream),
    ('message-helper', getattr(blocks, 'Anthro' 'pic'), message_helper,
     check_blocks),
    ('message-error', getattr(blocks, 'Anthro' 'pic'), fails(message),
     check_error),
]


class Server(http.server.BaseHTTPRequestHandler):
    """Answers each POST with the bytes of Server.answer, and keeps its body."""
    answer, status, body = b'', 200, b''

    def do_POST(self):
        Server.body = self.rfile.read(int(self.headers['Content-Length']))
        streamed = Server.answer.startswith((b'data: ', b'event: '))
        self.send_response(Server.status)
        self.send_header('Content-Type', 'text/event-stream' if streamed
                         else 'application/json')
        self.send_header('Content-Length', str(len(Server.answer)))
        self.end_headers()
        self.wfile.write(Server.answer)

    def log_message(self, *_):
        pass


def call(port, package, what):
    """Clients of the openai package add /chat/completions, the others
    /v1/messages."""
    return what(package(base_url=f'http://127.0.0.1:{port}', api_key='none',
                        max_retries=0, timeout=None))


def main():
    folder, mode = sys.argv[1:]
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.makedirs(folder, exist_ok=True)
    for name, package, what, check in CALLS:
        path = os.path.join(folder, name)
        if mode == 'asks':
            Server.answer, Server.status = b'{}', 418
            try:
                call(server.server_port, package, what)
            except (openai.APIStatusError, blocks.APIStatusError):
                pass
            with open(path + '.body', 'wb') as f:
                f.write(Server.body)
            continue
        with open(path + '.answer', 'rb') as f:
            Server.answer = f.read()
        Server.status = 400 if name.endswith('-error') else 200
        got = call(server.server_port, package, what)
        check(got)
        print(name, 'is understood')
    server.shutdown()


if __name__ == '__main__':
    main()
