#!/usr/bin/env python3
"""python_cases.py CASE: runs one case of tests/test_python.c and exits with 0.
The package comes by PYTHONPATH, the library by PLAIT_LIBRARY, the command by
PATH; models/ is in the working directory."""
import array
import ctypes
import gc
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import traceback

import plait
from plait import _fields, _header, _library

MODEL = 'models/fable-moe-Q8_0.gguf'
START = 'Once upon a time'
GREEDY = {'temperature': 0, 'max_tokens': 24}


def command(line, text=''):
    return subprocess.run(shlex.split(line), input=text, check=True, text=True,
                          stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout


def text_of(engine, prompt=START, **options):
    return ''.join(engine.generate(prompt, **options))


def raises(kind, function, *words, status=None):
    """Calls the function, which must raise `kind` with these words."""
    try:
        function()
    except kind as e:
        assert status is None or e.status is status, e.status
        for word in words:
            assert word in str(e), f'{e}: should have {word}'
        return
    raise AssertionError(f'nothing was raised: {words}')


# ---- declarations -----------------------------------------------------------

def c_table(header):
    """Returns a C program that prints the header's sizes, offsets and numbers,
    one a line."""
    lines = []
    for name, struct in header.struct.items():
        lines.append((f'sizeof({name})', ctypes.sizeof(struct)))
        for field, kind in struct._fields_:
            lines.append((f'offsetof({name}, {field})',
                          getattr(struct, field).offset))
            lines.append((f'sizeof((({name} *)0)->{field})',
                          ctypes.sizeof(kind)))
    for name in header.enum:
        lines.append((f'sizeof({name})', ctypes.sizeof(ctypes.c_int)))
    lines += header.constant.items()
    lines += [(f'sizeof({name})', ctypes.sizeof(kind))
              for name, kind in _header.SCALARS.items()]
    body = ''.join(f'    printf("%lld\\n", (long long)({what}));\n'
                   for what, _ in lines)
    return lines, ('#include <pl_receipt.h>\n#include <stdio.h>\n\n'
                   f'int main(void)\n{{\n{body}}}\n')


def declarations():
    folder = os.environ['PLAIT_INCLUDE']
    text = ''
    for name in 'pl.h', 'pl_receipt.h':
        with open(os.path.join(folder, name), encoding='utf-8') as f:
            text += f.read()
    lines, program = c_table(_library.header)
    with open('table.c', 'w', encoding='utf-8') as f:
        f.write(program)
    subprocess.run(['cc', '-std=c17', f'-I{folder}', 'table.c', '-o', 'table'],
                   check=True)
    made = command('./table').split()
    assert len(made) == len(lines) > 300
    for (what, here), there in zip(lines, made):
        assert here == int(there), f'{what}: {here}, the compiler has {there}'
    assert len(_library.header.function) == text.count('\nPL_API ')
    # the floats and pointers of prototypes, and their number
    for name, f in _library.header.function.items():
        m = re.search(rf'\b{name}\((.*?)\);', text, re.S)
        words = [] if m[1] == 'void' else m[1].split(',')
        assert len(words) == len(f.types), name
        for word, kind in zip(words, f.types):
            pointer = '*' in word
            size = ctypes.sizeof(kind)
            assert pointer == (kind not in _header.SCALARS.values()) and (
                size == 8 or not pointer), f'{name}: {word}'


def keywords():
    """The fields that editors see are the header's."""
    own = {'pl_options': {'size', 'log', 'log_user', 'progress',
                          'progress_user', 'trace', 'trace_user', 'cancel',
                          'cache_set', 'mtp', 'machines', 'hidden',
                          'hidden_user', 'mtp_texts'},
           'pl_sampling': {'size', 'bias', 'bias_id', 'tokenizer', 'step',
                           'seed'}}
    assert [f'PL_{s.name}' for s in plait.Status] == _library.header.enum[
        'pl_status']
    for name, shown in (('pl_options', _fields.Options),
                        ('pl_sampling', _fields.Sampling)):
        fields = dict(_library.header.struct[name]._fields_)
        counts = {f for f in fields if f.startswith('n_') and f[2:] in fields}
        hints = set(shown.__annotations__)
        assert hints == set(fields) - own[name] - counts, (
            hints ^ (set(fields) - own[name] - counts))
        for field in hints:
            kind = fields[field]
            hint = str(shown.__annotations__[field])
            word = ('bool' if kind is ctypes.c_bool else
                    'float' if kind in (ctypes.c_float, ctypes.c_double) else
                    'str' if kind is ctypes.c_char_p or field in
                    _library.header.struct[name].field_enum else
                    'int' if kind in _library._ranges else 'Sequence')
            assert word in hint, f'{name}.{field}: {hint}, not {word}'


# ---- text -------------------------------------------------------------------

def same_text_as_the_command():
    for options in ({'temperature': 0.5, 'seed': 7}, {'temperature': 0},
                    {'temperature': 1.2, 'seed': 2**40 + 1, 'top_k': 3,
                     'repeat_penalty': 1.2, 'min_p': 0.01}):
        words = ' '.join(f"--{k.replace('_', '-')} {v}" for k, v in
                         options.items())
        words = words.replace('--temperature', '--temp')
        with plait.Model(MODEL) as m, plait.Engine(m, devices='cpu*2') as e:
            g = e.generate(START, max_tokens=40, **options)
            text = START + ''.join(g)
            assert len(g.tokens) == 40 and g.finish == 'length'
        assert text == command(f"plait run -m {MODEL} -dev 'cpu*2' -n 40 "
                               f"-p '{START}' {words}"), words
    with plait.Model(MODEL) as m, plait.Engine(m) as e:
        chat = plait.Chat(e, 'Be brief.', temperature=0)
        said = ['', '']
        for i, asked in enumerate(('Tell me a tale.', 'More.')):
            said[i] = ''.join(chat.send(asked, 20))
        assert len(chat.messages) == 5
        lines = command(f"plait run -m {MODEL} -i -n 20 --temp 0 "
                        "--system 'Be brief.'", 'Tell me a tale.\nMore.\n')
        assert lines == ''.join(s if s.endswith('\n') else s + '\n'
                                for s in said), (lines, said)
        # messages that do not fit into the context are left out, oldest first
        for i in range(9):
            ''.join(chat.send('A king had a daughter. ' * 9, 12))
        assert len(chat.messages) == 23 and e.length(0) <= e.n_ctx
        raises(plait.Error, lambda: ''.join(chat.send('king ' * 9999)), '512',
               status=plait.Status.FULL)
        assert len(chat.messages) == 23
        # an answer that is not read to its end still counts as a message
        answer = chat.send('Go on.')
        first = next(answer)
        answer.close()
        assert chat.messages[-1]['content'].startswith(first)
    plan = plait.Plan(plait.Model(MODEL), devices='cpu*2', n_seq=1, n_out=1,
                      split_mode='layer')
    line = f"plait plan -m {MODEL} -dev 'cpu*2' -sm layer"
    assert str(plan) == command(line)
    both = plan.to_dict(), json.loads(command(line + ' --json'))
    for p in both:
        for device in p['devices']:
            device.pop('available')  # memory that others use meanwhile
    assert both[0] == both[1]
    assert plan.svg().startswith('<svg') and '-sm layer' in plan.options
    assert plan.summary.startswith('2 devices')
    assert plait.inspect(MODEL)['metadata'] and plait.devices()['memory']


def generation():
    with plait.Model(MODEL) as m, plait.Engine(m, n_ctx=64) as e:
        whole = text_of(e, **GREEDY)
        assert text_of(e, **GREEDY) == whole  # the sequence was emptied
        ids = m.tokenizer.encode(START)
        assert text_of(e, ids, **GREEDY) == whole
        assert m.tokenizer.decode(ids) == START
        for stop in whole[7:12], [whole[20:23], whole[15:19]], [whole]:
            stops = [stop] if isinstance(stop, str) else stop
            at = min(map(whole.index, stops))
            g = e.generate(START, stop=stop, **GREEDY)
            assert ''.join(g) == whole[:at] and g.finish == 'stop'
        pieces = list(e.generate(START, stop=whole + '.', **GREEDY))
        assert pieces == [whole]  # held back, then given
        g = e.generate(START, temperature=0)
        list(g)
        assert g.finish == 'full' and e.length() == 64
        e.clear()
        first = text_of(e, temperature=0, max_tokens=5)
        # the last token was not computed: it is the next prompt
        g = e.generate(ids, temperature=0, max_tokens=5)
        list(g)
        assert first + text_of(e, g.tokens[-1:], append=True, temperature=0,
                               max_tokens=19) == whole
        words = m.tokenizer
        king = words.encode(' king')[0]
        e.clear()
        assert text_of(e, max_tokens=3, logit_bias={king: 1e9}) == ' king' * 3
        g = plait.Grammar(words, 'root ::= " yes" | " no"')
        assert text_of(e, grammar=g, seed=1) in (' yes', ' no')
        g = plait.Grammar(words, schema={'enum': [17]})
        assert json.loads(text_of(e, grammar=g, seed=1)) == 17
        assert text_of(e, steps=['top_k', 'temperature'], top_k=1, seed=3,
                       max_tokens=24) == whole
        assert text_of(e, max_tokens=0) == ''
        bos = '<|endoftext|>'
        assert words.bos == 4093 and not words.adds_bos and words.ends(4095)
        assert words.decode([4093], special=True) == bos
        assert words.decode([4093]) == '' and len(words.encode(bos)) > 1
        assert words.encode(bos, parse_special=True) == [4093]
        assert words.encode('') == [] and words.encode(b'a\0b\xff')
    with plait.Tokenizer(MODEL) as words:
        assert words.n_vocab == 4096
    t = plait.Template('{{ messages[0].content }}{{ x }}')
    assert t.render([{'role': 'user', 'content': 'ü'}], x=3) == 'ü3'


def document():
    """Runs the code of doc/python.md that is not quoted from a file."""
    with open(os.environ['PLAIT_DOCUMENT'], encoding='utf-8') as f:
        code = re.findall(r'\n\n```python\n(.*?)```', f.read(), re.S)
    assert len(code) == 1
    with plait.Model(MODEL) as model, \
            plait.Engine(model, n_seq=4, n_ctx=512) as engine:
        names = {'plait': plait, 'model': model, 'engine': engine,
                 'ids': [439, 1160]}
        if 'numpy' not in sys.modules:
            stand_in = type(sys)('numpy')
            stand_in.asarray = memoryview
            names['numpy'] = stand_in
        exec(code[0], names)  # pylint: disable=exec-used
        assert names['table'].shape == (2, model.n_vocab)
        assert len(names['logits']) == 1
        assert len(names['vector']) == model.d_model
        assert engine.length(0) == engine.length(3) == 2


# ---- receipts ---------------------------------------------------------------

def receipts():
    """Receipts are the command's, byte for byte, and hold elsewhere."""
    with plait.Model(MODEL) as m, \
            plait.Engine(m, devices='cpu*2', tensor_split=[3, 1]) as e:
        g = e.generate(START, max_tokens=12, seed=7, receipt=True)
        assert ''.join(g) and g.receipt
        command(f"plait run -m {MODEL} -dev 'cpu*2' -ts 3,1 -n 12 -s 7 "
                f"-p '{START}' --receipt own.json")
        with open('own.json', encoding='utf-8') as f:
            assert f.read() == g.receipt + '\n'
        v = plait.verify(m, g.receipt, devices='sim*3')
        assert v and v.verdict == 'holds' and v.n_checked == 12, v
        assert v.at is None and 'bit by bit' in v.text
        v = plait.verify(m, g.receipt.replace('"seed":"7"', '"seed":"8"'))
        assert not v and v.verdict == 'differs' and v.at == 3, v
        words = m.tokenizer
        for options, end in (({'stop': ' who', 'max_tokens': 12}, 'stop'),
                             ({'logit_bias': {4095: 1e9}}, 'eog'),
                             ({'max_tokens': 0}, 'length'),
                             ({'grammar': plait.Grammar(
                                 words, 'root ::= " yes" | " no"')}, 'eog')):
            g = e.generate(START, seed=7, receipt=True, **options)
            list(g)
            assert json.loads(g.receipt)['end']['reason'] == end, g.receipt
            assert plait.verify(m, g.receipt), options
        g = e.generate(START, seed=7, receipt=True)  # closed early
        next(g)
        g.close()
        assert json.loads(g.receipt)['end']['reason'] == 'cancelled'
        assert plait.verify(m, g.receipt)
        g = e.generate(START, seed=7, max_tokens=9, receipt='brief')
        list(g)
        v = plait.verify(m, g.receipt)
        assert v.verdict == 'cannot' and 'give the prompt' in v.text
        assert plait.verify(m, g.receipt, prompt=START, sample=3).n_checked == 3
        assert not plait.verify(m, g.receipt, prompt='Once upon no time')
        chat = plait.Chat(e, seed=3, receipt=True)
        both = []
        for asked in 'Hello', 'And then?':
            list(chat.send(asked, max_tokens=8))
            both.append(chat.receipt)
            assert plait.verify(m, chat.receipt, devices='sim*2')
        command(f"plait run -m {MODEL} -dev 'cpu*2' -ts 3,1 -i -n 8 -s 3 "
                "--receipt chat.jsonl", 'Hello\nAnd then?\n')
        with open('chat.jsonl', encoding='utf-8') as f:
            assert f.read().splitlines() == both
        raises(ValueError, lambda: e.generate(START, receipt='all'), 'brief')
        raises(ValueError, lambda: e.generate(START, append=True, receipt=True),
               'append=')
        sampler = plait.Sampler(m, seed=1)
        sampler.accept(9)
        raises(plait.Error, lambda: list(e.generate(
            START, sampler=sampler, receipt=True)), 'accepted other tokens')
        raises(plait.Error, lambda: plait.verify(m, '{}'), 'not a receipt',
               status=plait.Status.BAD_FILE)


# ---- numbers ----------------------------------------------------------------

def logits_and_sequences():
    with plait.Model(MODEL) as m, \
            plait.Engine(m, devices='cpu*2', n_seq=3) as e:
        ids = m.tokenizer.encode(START + ', there was')
        all_of = e.decode(ids, wanted='all')
        view = memoryview(all_of)
        assert view.shape == (len(ids), m.n_vocab) and view.itemsize == 4
        assert view.format in ('f', '<f') and not view.readonly
        e.clear()
        last = e.decode(ids)
        assert bytes(last[0]) == bytes(all_of[-1])
        e.clear()
        assert e.decode(ids, wanted='none') is None and e.length() == len(ids)
        # two sequences in a batch have the bits that each has alone
        tokens = [t for pair in zip(ids, ids[::-1]) for t in pair]
        e.clear()
        last_two = [i >= len(tokens) - 2 for i in range(len(tokens))]
        rows = e.decode(tokens, seq=[0, 1] * len(ids), wanted=last_two)
        assert bytes(rows[0]) == bytes(last[0])
        e.clear(1)
        assert bytes(e.decode(ids[::-1], seq=1)[0]) == bytes(rows[1])
        e.copy(2, 0)
        assert e.length(2) == len(ids) and e.trim(2, 3) == 3
        assert bytes(e.decode(ids[3:], seq=2)[0]) == bytes(last[0])
        s = plait.Sampler(m, temperature=0)
        best = max(range(m.n_vocab), key=last[0].__getitem__)
        assert s.sample(last[0]) == best == s.sample(array.array('f', last[0]))
        raises(plait.Error, lambda: s.sample((ctypes.c_float * m.n_vocab)(
            float('nan'))), status=plait.Status.BAD_FILE)
        try:
            import numpy  # pylint: disable=import-outside-toplevel
        except ImportError:
            numpy = None
        if numpy:
            seen = numpy.asarray(all_of)
            assert seen.shape == view.shape and seen.dtype == numpy.float32
            assert s.sample(seen[-1]) == int(seen[-1].argmax())
            assert e.decode(numpy.array(ids), seq=numpy.int64(2)) is not None
    with plait.Model(MODEL) as m, plait.Engine(m, prefix_cache=True) as e:
        ids = m.tokenizer.encode(START) * 40
        e.decode(ids)
        e.clear()
        assert e.share(0, ids) == 128 and e.counters()['cache']['n_used'] == 2
        assert e.counters()['steps'] > 0
        assert e.counters()['devices'][0]['name'] == 'cpu0'


def embeddings():
    rows = {}
    with plait.Model(MODEL) as m:
        assert m.pooling is None  # so it is that of the last token
        for devices in 'cpu', 'cpu*2':
            with plait.Engine(m, devices=devices, n_ranks=2,
                              embeddings=True) as e:
                rows[devices] = e.embed(START, pooling='none')
                e.decode([1, 2, 3], seq=1)
                last = e.embed(START, normalize=False)
                assert last == rows[devices][-1] and e.length(1) == 3
                assert e.embed(START, pooling='cls',
                               normalize=False) == rows[devices][0]
                mean = e.embed(START, pooling='mean', normalize=False)
                for i, x in enumerate(mean):
                    y = sum(r[i] for r in rows[devices]) / len(
                        rows[devices])
                    assert abs(x - y) <= 1e-6 * abs(y)
                unit = e.embed(START)
                length = sum(x * x for x in unit)
                assert abs(length - 1) < 1e-6 and len(unit) == m.d_model
                assert max(abs(a / unit[0] - b / last[0])
                           for a, b in zip(unit, last)) < 1e-3
        assert rows['cpu'] == rows['cpu*2']
        with plait.Engine(m) as e:
            raises(plait.Error, lambda: e.embed(START), 'result_norm')
            raises(ValueError, lambda: e.embed(START, pooling='max'), 'max')
            raises(ValueError, lambda: e.embed([]), 'token')


def overrides():
    with plait.Model(MODEL, ['tokenizer.ggml.add_bos_token=bool:true',
                             'tokenizer.chat_template=str:{{ "a" }}']) as m:
        assert m.tokenizer.adds_bos and m.template().render([]) == 'a'


def states():
    with plait.Model(MODEL) as m, plait.Engine(m) as e, \
            plait.Engine(m, devices='cpu*2', n_ranks=1) as other:
        ids = m.tokenizer.encode(START + ', there was a king')
        e.decode(ids[:-1])
        data = e.save()
        want = bytes(e.decode(ids[-1:])[0])
        e.load(data)
        assert e.length() == len(ids) - 1
        assert bytes(e.decode(ids[-1:])[0]) == want
        other.load(data, seq=5)
        assert other.length(5) == len(ids) - 1
        assert bytes(other.decode(ids[-1:], seq=5)[0]) == want
        note = array.array('i', ids).tobytes() + b'\0'
        other.save_file('state', seq=5, note=note)
        assert e.load_file('state', seq=0) == note and e.length() == len(ids)
        other.save_file('state', seq=5)
        assert e.load_file('state', seq=1) == b'' and e.length(1) == len(ids)
        assert 'state' in json.dumps(plait.inspect('state'))
        part = e.save(0, 0, 3)
        e.load(part, seq=2)
        assert e.length(2) == 3
        bad = bytearray(data)
        bad[len(bad) // 2] ^= 1
        for wrong in bytes(bad), data[:-1], b'':
            raises(plait.Error, lambda w=wrong: e.load(w, seq=2),
                   status=plait.Status.BAD_FILE)
        assert e.length(2) == 3
        with plait.Engine(m, cache_k='q8_0') as small:
            raises(plait.Error, lambda: small.load(data))
            small.load(data, convert=True)
            assert small.length() == len(ids) - 1


# ---- wrong calls ------------------------------------------------------------

def failures():
    bad = plait.Status.BAD_ARGUMENT
    raises(plait.Error, lambda: plait.Model('none.gguf'), 'none.gguf',
           status=plait.Status.NOT_FOUND)
    raises(TypeError, lambda: plait.Model(7), 'path')
    raises(ValueError, lambda: plait.Model('a\0b'), 'NUL')
    raises(TypeError, lambda: plait.Model(MODEL, 'a=int:1'), 'not a list')
    raises(plait.Error, lambda: plait.Model(MODEL, ['a=int:1']), 'key a ',
           status=bad)
    with open('empty.gguf', 'wb') as f:
        f.write(b'GGUF')
    raises(plait.Error, lambda: plait.Model('empty.gguf'),
           status=plait.Status.BAD_FILE)
    m = plait.Model(MODEL)
    for given, kind, word in (
            ({'device': 'cpu'}, TypeError, 'devices is near'),
            ({'size': 3}, TypeError, 'size'),
            ({'n_ctx': 'many'}, TypeError, 'n_ctx'),
            ({'n_ctx': 1.5}, TypeError, 'n_ctx'),
            ({'n_threads': 2**32}, OverflowError, 'n_threads'),
            ({'host_reserve': -1}, OverflowError, 'host_reserve'),
            ({'devices': 3}, TypeError, 'devices'),
            ({'devices': 'cpu\0'}, ValueError, 'NUL'),
            ({'split_mode': 'rows'}, ValueError, 'hybrid'),
            ({'split_mode': 77}, plait.Error, 'split_mode'),
            ({'cache_k': 'q1'}, ValueError, 'q8_0'),
            ({'overrides': 'a=host'}, TypeError, 'not a list'),
            ({'tensor_split': ['a']}, TypeError, ''),
            ({'overrides': [3]}, TypeError, 'overrides'),
            ({'devices': 'cpu*9999'}, plait.Error, '9999'),
            ({'keep': ['nothing']}, plait.Error, 'nothing'),
            ({'n_ctx': -1}, plait.Error, 'n_ctx')):
        raises(kind, lambda g=given: plait.Plan(m, **g), word)
        raises(kind, lambda g=given: plait.Engine(m, **g), word)
    raises(plait.Error, lambda: plait.Template('{% if %}', MODEL))
    raises(plait.Error, lambda: plait.Grammar(m.tokenizer, 'root ::= ('),
           status=bad)
    raises(TypeError, lambda: plait.Grammar(m.tokenizer))
    e = plait.Engine(m, tensor_split=[1], n_seq=2, n_ctx=64)
    ids = [1, 2, 3]
    for call, kind, word in (
            (lambda: e.decode(ids, seq=2), plait.Error, '2'),
            (lambda: e.decode(ids, seq=-1), plait.Error, '-1'),
            (lambda: e.decode(ids, seq=2**32), OverflowError, str(2**32)),
            (lambda: e.decode([4096]), plait.Error, '4096'),
            (lambda: e.decode([2**31]), OverflowError, 'token'),
            (lambda: e.decode([1.5]), TypeError, 'token'),
            (lambda: e.decode('abc'), TypeError, 'token'),
            (lambda: e.decode(ids, seq=[0]), ValueError, 'seq'),
            (lambda: e.decode(ids, wanted=[True]), ValueError, 'wanted'),
            (lambda: e.decode(ids, wanted='some'), ValueError, 'some'),
            (lambda: e.decode([1] * 65), plait.Error, ''),
            (lambda: e.trim(0, 9), plait.Error, '9'),
            (lambda: e.length(2**40), OverflowError, 'seq'),
            (lambda: e.copy(0, 7), plait.Error, '7'),
            (lambda: e.generate(3), TypeError, ''),
            (lambda: e.generate(START, max_tokens='a'), TypeError,
             'max_tokens'),
            (lambda: e.generate(START, top_q=1), TypeError, 'top_'),
            (lambda: e.generate(START, sampler=plait.Sampler(m), seed=1),
             TypeError, 'seed'),
            (lambda: e.generate(START, stop=['']), ValueError, 'stop'),
            (lambda: e.generate(START, temperature='a'), TypeError,
             'temperature'),
            (lambda: e.generate(START, steps=['top']), ValueError, 'top_k'),
            (lambda: e.generate(START, steps=['top_k'] * 99), ValueError, '99'),
            (lambda: e.generate(START, top_p=7), plait.Error, 'top_p'),
            (lambda: e.generate(START, seed=-1), OverflowError, 'seed'),
            (lambda: ''.join(e.generate('')), ValueError, 'token'),
            (lambda: plait.Sampler(m).sample([1.0]), TypeError, ''),
            (lambda: plait.Sampler(m).sample(array.array('f', [1])),
             ValueError, '4096')):
        raises(kind, call, word)
    assert e.length(0) == 0
    p, g = e.plan, e.generate(START)
    next(g)
    raises(plait.Error, lambda: e.save_file('no/such/folder/state'), 'no/such')
    for o in e, m:
        o.close()
        o.close()
        assert o.closed
    assert p.closed
    for call in (lambda: e.decode(ids), lambda: str(p), lambda: next(g),
                 lambda: m.n_vocab, lambda: plait.Engine(m)):
        raises(ValueError, call, 'is closed')

    def fail(*_):
        raise KeyError('mine')
    m = plait.Model(MODEL)
    raises(KeyError, lambda: plait.Engine(m, progress=fail), 'mine')
    cancel = plait.Cancel()
    cancel.set()
    raises(plait.Error, lambda: plait.Engine(m, cancel=cancel),
           status=plait.Status.CANCELLED)
    with plait.Engine(m) as e:
        raises(plait.Error, lambda: e.decode([1], cancel=cancel),
               status=plait.Status.CANCELLED)
        seen = []
        with open('trace', 'wb') as f, plait.Engine(
                m, progress=lambda *a: seen.append(a), trace=f) as t:
            t.decode([1, 2])
        assert seen and all(0 <= d <= n for _, d, n in seen)
        with open('trace', encoding='utf-8') as f:
            assert json.load(f)


# ---- owners and threads -----------------------------------------------------

def owners():
    """Records the order in which the library frees objects."""
    order = []

    def record(name):
        free = getattr(_library.lib, name + '_free')

        def call(pointer):
            order.append(name)
            free(pointer)
        setattr(_library.lib, name + '_free', call)
    for name in 'model', 'plan', 'engine', 'sampler', 'grammar', 'detokenizer':
        record(name)

    def check(*names):
        gc.collect()
        assert order == list(names), order
        order.clear()
    # closed in the wrong order, the engine still works and frees the model
    m = plait.Model(MODEL)
    e = plait.Engine(m)
    p = plait.Plan(m)
    m.close()
    check()
    assert e.decode([1, 2]) is not None and 'cpu0' in str(p)
    e.close()
    check('engine')
    del p
    check('plan', 'model')
    # a sampler keeps the tokenizer's model and the grammar
    m = plait.Model(MODEL)
    words = m.tokenizer
    g = plait.Grammar(words, 'root ::= "a"')
    s = plait.Sampler(m, grammar=g)
    d = plait.Detokenizer(words)
    g.close()
    m.close()
    words.close()
    check()
    assert d.add(70) is not None
    d.close()
    check('detokenizer')
    del m, words, g, s
    check('sampler', 'grammar', 'model')
    # everything in one reference cycle
    class Ring:
        pass
    for turn in range(6):
        ring = Ring()
        ring.me = ring
        ring.model = plait.Model(MODEL)
        ring.engine = plait.Engine(ring.model, progress=lambda *_, r=ring: None)
        ring.text = ring.engine.generate(START, max_tokens=9)
        next(ring.text)
        if turn % 2:
            ring.engine, ring.model = ring.engine, ring.model
        del ring
        gc.collect()
        assert sorted(order) == ['detokenizer', 'engine', 'model', 'sampler']
        assert order.index('engine') < order.index('model')
        assert order.index('sampler') < order.index('model')
        order.clear()
    # an engine in a call of a thread is freed when the call has returned
    m = plait.Model(MODEL)
    e = plait.Engine(m)
    inside, go = threading.Event(), threading.Event()

    def hold():
        with e._use():
            inside.set()
            go.wait()
    t = threading.Thread(target=hold)
    t.start()
    inside.wait()
    e.close()
    m.close()
    check()
    go.set()
    t.join()
    check('engine', 'model')


def threads():
    m = plait.Model(MODEL)
    a = plait.Engine(m, n_seq=4)
    b = plait.Engine(m, devices='cpu*2', n_ranks=1)
    starts = [START, 'The king', 'A fox and a hen', 'In a wood']
    alone = [text_of(a, s, seed=5, max_tokens=24) for s in starts]
    got = [None] * 4
    failed = []

    def write(engine, i, seq):
        try:
            got[i] = text_of(engine, starts[i], seed=5, max_tokens=24, seq=seq)
            words = m.tokenizer
            for _ in range(50):
                assert words.decode(words.encode(alone[i])) == alone[i]
        except BaseException as e:  # pylint: disable=broad-except
            failed.append(e)
    for place in ([(a, i) for i in range(4)],
                  [(a, 0), (b, 1), (a, 2), (b, 3)]):
        ts = [threading.Thread(target=write, args=(e, i, i))
              for i, (e, _) in enumerate(place)]
        for t in ts:
            t.start()
        for t in ts:
            t.join()
        assert not failed, failed
        assert got == alone
        got = [None] * 4
    # by turns in one thread
    pair = [e.generate(START, seed=5, max_tokens=24) for e in (a, b)]
    texts = ['', '']
    for pieces in zip(*pair):
        for i, piece in enumerate(pieces):
            texts[i] += piece
    assert texts == [alone[0]] * 2
    # the copy has no engine, and no thread that could release a lock
    a._handle.lock.acquire()
    other = threading.Thread(target=a.length)  # waits for the lock
    other.start()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            raises(plait.Error, lambda: a.decode([1]),
                   status=plait.Status.BAD_ARGUMENT)
            own = plait.Engine(m)
            code = 0 if text_of(own, seed=5, max_tokens=24) == alone[0] else 2
        finally:
            os._exit(code)
    a._handle.lock.release()
    other.join()
    assert os.waitpid(child, 0)[1] == 0
    assert text_of(a, seed=5, max_tokens=24) == alone[0]


if __name__ == '__main__':
    try:
        globals()[sys.argv[1]]()
    except BaseException:  # pylint: disable=broad-except
        sys.exit(traceback.format_exc(limit=-2))
