#!/usr/bin/env python3
"""server_clients.py URL CLIENT: programs that speak the server's protocols, for
tests/server/test_server_clients.c, whose server has a fixed output. Each chats,
streams, calls tools twice and sends the results back; it fails unless it gets
that output. The exit status is 77 if a package of the client is missing.
"""
import importlib
import json
import os
import sys

# The output of the test's model, for a request without tools and with them.
REASONING, CONTENT = 'why ü', 'say 東 "\\" 🎉\n'
CALLS_MADE = [('f', {'x': 'ü'}), ('g', {})]
LAST_CALL = [('f', {'x': 'again'})]

PARAMETERS = {'type': 'object', 'properties': {'x': {'type': 'string'}}}
FUNCTION = {'name': 'f', 'description': 'd', 'parameters': PARAMETERS}
OTHER = {'name': 'g', 'description': 'd',
         'parameters': {'type': 'object', 'properties': {}}}
TOOLS = [{'type': 'function', 'function': FUNCTION},
         {'type': 'function', 'function': OTHER}]
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
        model='tale', temperature=0.5, max_tokens=9, seed=1,
        **{'messages': ASKED, 'tools': TOOLS, **more})


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
            tools=TOOLS) as stream:
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
        **{'input': [{'role': 'user', 'content': 'q'}],
           'tools': [{'type': 'function', 'strict': False, **FUNCTION}],
           **more})


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
    with client.responses.stream(
            model='tale', input='q',
            tools=[{'type': 'function', 'strict': False,
                    **FUNCTION}]) as stream:
        for _ in stream:
            pass
        return stream.get_final_response()


# ---- messages ----------------------------------------------------------------

def message(client, **more):
    return client.messages.create(
        model='tale', max_tokens=9, system='be',
        tools=[{'name': t['name'], 'description': 'd',
                'input_schema': t['parameters']} for t in (FUNCTION, OTHER)],
        stop_sequences=['x'],
        **{'messages': [{'role': 'user', 'content': 'q'}], **more})


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
            tools=[{'name': 'f', 'input_schema': PARAMETERS}],
            messages=[{'role': 'user', 'content': 'q'}]) as stream:
        for _ in stream:
            pass
        return stream.get_final_message()


# ---- tools -------------------------------------------------------------------

def f(x: str = '') -> str:
    """Returns the result of the tool f."""
    return f'f of {x}'


def g() -> str:
    """Returns the result of the tool g."""
    return 'g'


def result(name, arguments):
    return {'f': f, 'g': g}[name](**arguments)


def loop(ask, calls_of, add, text_of):
    """Has a client go on until no call is left: twice. `ask` sends the
    conversation; `calls_of` returns [(id, name, arguments)] of a response; `add`
    adds the response and the results [(id, name, text)]."""
    for want in (CALLS_MADE, LAST_CALL):
        answer = ask()
        calls = calls_of(answer)
        same([(name, arguments) for _, name, arguments in calls], want)
        add(answer, [(i, name, result(name, arguments))
                     for i, name, arguments in calls])
    answer = ask()
    same(calls_of(answer), [])
    same(text_of(answer), CONTENT)


def chat_loop(client):
    messages = list(ASKED)

    def add(answer, results):
        messages.append(answer.choices[0].message)
        messages.extend({'role': 'tool', 'tool_call_id': i, 'content': text}
                        for i, _, text in results)

    loop(lambda: chat(client, messages=messages),
         lambda a: [(c.id, c.function.name, json.loads(c.function.arguments))
                    for c in a.choices[0].message.tool_calls or []],
         add, lambda a: a.choices[0].message.content)


def response_loop(client):
    asked = [{'role': 'user', 'content': 'q'}]

    def add(answer, results):
        asked.extend(answer.output)
        asked.extend({'type': 'function_call_output', 'call_id': i,
                      'output': text} for i, _, text in results)

    loop(lambda: response(client, input=asked, tools=[
            {'type': 'function', 'strict': False, **t}
            for t in (FUNCTION, OTHER)]),
         lambda a: [(i.call_id, i.name, json.loads(i.arguments))
                    for i in a.output if i.type == 'function_call'],
         add, lambda a: a.output_text)


def message_loop(client):
    messages = [{'role': 'user', 'content': 'q'}]

    def add(answer, results):
        messages.append({'role': 'assistant', 'content': answer.content})
        messages.append({'role': 'user', 'content': [
            {'type': 'tool_result', 'tool_use_id': i, 'content': text}
            for i, _, text in results]})

    loop(lambda: message(client, messages=messages),
         lambda a: [(b.id, b.name, b.input) for b in a.content
                    if b.type == 'tool_use'],
         add, lambda a: a.content[-1].text)


# ---- Ollama ------------------------------------------------------------------

def ollama(url):
    package = importlib.import_module('ollama')
    client = package.Client(host=url)
    messages = list(ASKED)
    asked = {'model': 'tale', 'tools': [f, g],
             'options': {'temperature': 0.5, 'num_predict': 9, 'seed': 1}}

    def add(answer, results):
        messages.append(answer.message)
        messages.extend({'role': 'tool', 'tool_name': name, 'content': text}
                        for _, name, text in results)

    same(client.list().models[0].model, 'tale:latest')
    same(client.show('tale').capabilities[0], 'completion')
    loop(lambda: client.chat(messages=messages, **asked),
         lambda a: [('', c.function.name, dict(c.function.arguments))
                    for c in a.message.tool_calls or []],
         add, lambda a: a.message.content)

    whole = client.chat(messages=ASKED, think=True, **asked)
    same((whole.message.content, whole.message.thinking), (CONTENT, REASONING))
    same((whole.done, whole.done_reason), (True, 'stop'))
    same((whole.prompt_eval_count, whole.eval_count), (10, 8))
    content, thinking, calls = '', '', []
    for part in client.chat(messages=ASKED, stream=True, **asked):
        content += part.message.content or ''
        thinking += part.message.thinking or ''
        calls += part.message.tool_calls or []
    same((content, thinking), (CONTENT, REASONING))
    same([(c.function.name, dict(c.function.arguments)) for c in calls],
         CALLS_MADE)
    same(part.done, True)

    same(client.generate('tale', 'q').response, CONTENT)
    same(client.generate('tale', 'q', raw=True, logprobs=True).response,
         CONTENT)
    same(''.join(p.response for p in client.generate('tale', 'q', stream=True,
                                                     format='json')), CONTENT)
    try:
        client.chat('tale', ASKED, options={'temperature': 'hot'})
    except package.ResponseError as e:
        same(e.status_code, 400)
        assert 'temperature' in e.error, e
    else:
        raise SystemExit('no error came')


# ---- other makers ------------------------------------------------------------

def litellm_of(package, name, **more):
    asked = dict(model=name, tools=TOOLS, max_tokens=9, **more)
    messages = list(ASKED)

    def add(answer, results):
        messages.append(answer.choices[0].message.model_dump())
        messages.extend({'role': 'tool', 'tool_call_id': i, 'name': tool,
                         'content': text} for i, tool, text in results)

    loop(lambda: package.completion(messages=messages, **asked),
         lambda a: [(c.id, c.function.name, json.loads(c.function.arguments))
                    for c in a.choices[0].message.tool_calls or []],
         add, lambda a: a.choices[0].message.content)
    del asked['tools']
    said = ''.join(c.choices[0].delta.content or '' for c in
                   package.completion(messages=ASKED, stream=True, **asked))
    same(said, CONTENT)


def litellm(url):
    os.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'  # not from the network
    package = importlib.import_module('litellm')
    litellm_of(package, 'openai/tale', api_base=url + '/v1', api_key='none')
    litellm_of(package, 'ollama_chat/tale', api_base=url)
    litellm_of(package, 'anthro' 'pic/tale', api_base=url, api_key='none')


def langchain_of(model):
    core = importlib.import_module('langchain_core.messages')
    bound = model.bind_tools(TOOLS)
    messages = [core.SystemMessage('be'), core.HumanMessage('q')]

    def add(answer, results):
        messages.append(answer)
        messages.extend(core.ToolMessage(text, tool_call_id=i, name=name)
                        for i, name, text in results)

    def text(m):
        return m.content if isinstance(m.content, str) else ''.join(
            b['text'] for b in m.content if b['type'] == 'text')

    loop(lambda: bound.invoke(messages),
         lambda a: [(c['id'], c['name'], c['args']) for c in a.tool_calls],
         add, text)
    same(''.join(text(c) for c in model.stream('q')), CONTENT)


def langchain(url):
    openai = importlib.import_module('langchain_openai')
    langchain_of(openai.ChatOpenAI(
        model='tale', base_url=url + '/v1', api_key='none', max_retries=0))
    langchain_of(importlib.import_module('langchain_ollama').ChatOllama(
        model='tale', base_url=url, num_predict=9))


def llm(url):
    package = importlib.import_module('llm.default_plugins.openai_models')
    model = package.Chat('tale', model_name='tale', api_base=url + '/v1',
                         supports_tools=True)
    same(model.prompt('q', system='be', key='none', stream=False).text(),
         CONTENT)
    same(''.join(model.prompt('q', key='none', stream=True)), CONTENT)
    for stream in (False, True):
        chain = list(model.chain('q', tools=[f, g], key='none',
                                 stream=stream).responses())
        same(len(chain), 3)
        same([[(c.name, c.arguments) for c in r.tool_calls()] for r in chain],
             [CALLS_MADE, LAST_CALL, []])
        same(chain[-1].text(), CONTENT)


def lm_eval(url):
    """Scores texts by the probabilities of the prompt's tokens. The test's
    server has a token for each character, which it finds likeliest."""
    package = importlib.import_module('lm_eval.models.openai_completions')
    instance = importlib.import_module('lm_eval.api.instance').Instance

    class Model(package.LocalCompletionsAPI):
        def tok_encode(self, string, **_):
            if isinstance(string, str):
                return [ord(c) for c in string]
            return [self.tok_encode(s) for s in string]

    model = Model(base_url=url + '/v1/completions', model='tale',
                  tokenizer_backend=None, eos_string='<|end|>', max_retries=1)
    model.tokenizer, model.tokenized_requests = model, True

    def ask(kind, *arguments):
        return [instance(request_type=kind, doc={}, arguments=a, idx=i)
                for i, a in enumerate(arguments)]

    pairs = [('Once upon', ' a time'), ('A', ' fox')]
    got = model.loglikelihood(ask('loglikelihood', *pairs), disable_tqdm=True)
    same([p for p, _ in got],
         [sum(-(ord(c) % 8) / 8 for c in text) for _, text in pairs])
    same([greedy for _, greedy in got], [True, True])
    same(model.generate_until(
        ask('generate_until', ('Once', {'until': ['x'], 'max_gen_toks': 9})),
        disable_tqdm=True), [CONTENT])


# ---- the packages of the protocols -------------------------------------------

STREAM = {'stream': True}
USAGE = {'stream': True, 'stream_options': {'include_usage': True}}


def fails(call, error):
    try:
        call()
    except error as e:
        same(e.status_code, 400)
        assert 'temperature' in str(e), e
    else:
        raise SystemExit('no error came')


def openai(url):
    package = importlib.import_module('openai')
    client = package.OpenAI(base_url=url + '/v1', api_key='none',
                            max_retries=0)
    check_chat(chat(client))
    check_chat_stream(chat(client, **USAGE))
    check_helper(chat_helper(client))
    chat_loop(client)
    fails(lambda: chat(client, extra_body={'temperature': 'hot'}),
          package.BadRequestError)
    check_text(text(client))
    check_text_stream(text(client, **STREAM))
    check_response(response(client))
    check_response_stream(response(client, **STREAM))
    check_response(response_helper(client))
    response_loop(client)


def messages(url):
    # Its name in pieces, as in scripts/check.py.
    package = importlib.import_module('anthro' 'pic')
    client = getattr(package, 'Anthro' 'pic')(base_url=url, api_key='none',
                                              max_retries=0)
    check_blocks(message(client))
    check_message_stream(message(client, **STREAM))
    check_blocks(message_helper(client))
    message_loop(client)
    fails(lambda: message(client, extra_body={'temperature': 'hot'}),
          package.BadRequestError)


def main():
    url, name = sys.argv[1:]
    try:
        {'openai': openai, 'messages': messages, 'ollama': ollama,
         'litellm': litellm, 'langchain': langchain, 'llm': llm,
         'lm-eval': lm_eval}[name](url)
    except ImportError as e:
        print(e)
        sys.exit(77)


if __name__ == '__main__':
    main()
