#!/usr/bin/env python3
"""serve_page.py PLAIT MODEL [--served | --pictures DIR]: tests the web UI of
`plait serve` in a headless Chromium, and fails on any error; or, without one,
only what the server sends; or takes the pictures DIR/page.png and
DIR/machine.png.

The exit status is 77 if no Chromium is installed.
"""
import base64
import hashlib
import html.parser
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

import browser

LAST = '[...document.querySelectorAll(".message.assistant")].at(-1)'
TEXT = f'({LAST}?.querySelector(".text").textContent || "")'
CODE = 'x = "' + 'long ' * 60 + '"'
HOSTILE = '\n'.join([
    '<img src=x onerror="window.hit = 1"><script>window.hit = 2</script>',
    '<b>not bold</b> **bold** [bad](javascript:window.hit=3)',
    '[good](https://example.org/)', '', '```html', '<i>' + CODE, '```', '',
    '| a | b |', '|---|---|', '| <u>1</u> | ' + 'wide' * 40 + ' |', '',
    '- one', '- two', '', '1. first'])


class Server:
    def __init__(self, plait, model, *more):
        self.child = subprocess.Popen(
            [plait, 'serve', '-m', model, '--port', '0', '-t', '1', *more],
            stderr=subprocess.PIPE, text=True)
        for line in self.child.stderr:
            at = re.search(r'listens at (http://[0-9.:]+)', line)
            if at:
                self.url = at.group(1) + '/'
                return
        raise browser.Failed('the server did not begin')

    def close(self):
        self.child.terminate()
        self.child.wait()
        self.child.stderr.close()


def same(got, want):
    if got != want:
        raise browser.Failed(f'{got!r}, not {want!r}')


def send(b, text):
    b.wait('!stopper')
    b.write('#input', text)
    b.key('Enter', 13)


def options(b, **values):
    b.get(f'settings.options = {json.dumps(values)}; keepSettings()')


def pretend(b, text, reasoning='', end='data: [DONE]\n\n'):
    """Replaces the server's next answers by this text."""
    parts = [{'reasoning_content': reasoning}, {'content': text}]
    data = ''.join('data: ' + json.dumps({'choices': [{'delta': d}]}) + '\n\n'
                   for d in parts) + end
    b.get('window.really ??= fetch; window.fetch = (u, o) => '
          'String(u).endsWith("completions") ? Promise.resolve(new Response('
          f'{json.dumps(data)})) : really(u, o)')


# ---- chat --------------------------------------------------------------------

def streams(b):
    """Each part of an answer is shown before the next one arrives."""
    b.get('window.really ??= fetch; window.fetch = (u, o) => '
          'String(u).endsWith("completions") ? Promise.resolve(new Response('
          'new ReadableStream({start(c) { window.stream = c; }}))) : '
          'really(u, o); window.tell = s => stream.enqueue(new TextEncoder()'
          '.encode("data: " + s + "\\n\\n")); 0')
    send(b, 'One by one.')
    b.wait('window.stream')
    seen = ''
    for part in 'One', ' two', ' three':
        seen += part
        delta = json.dumps({'choices': [{'delta': {'content': part}}]})
        b.get(f'tell({json.dumps(delta)})')
        b.wait(f'{TEXT} === {json.dumps(seen)}')
        same(b.get('!!stopper'), True)
    b.get('tell("[DONE]"); stream.close(); window.fetch = really; 0')
    b.wait('!stopper && path().length === 2')
    same(b.get(TEXT), seen)
    b.click('#new')


def mark(b):
    """Returns the mark on an answer that was cut, with its button."""
    return b.get(f'{LAST}.querySelector(".cut")?.innerText.replace(/\\s+/g, '
                 '" ").trim() ?? null')


def answers(b):
    options(b, temperature=0, max_tokens=60)
    send(b, 'Tell me a tale.')
    b.wait('!stopper && path().length === 2')
    note = b.get(f'{LAST}.querySelector(".tools").textContent')
    if '60 tokens' not in note:
        raise browser.Failed(note)
    same(mark(b), 'Stopped at the token limit Continue')
    same(b.get('$("say").textContent'), 'Stopped at the token limit')


def tells_the_context(b):
    """The tokens of the conversation, and of the context."""
    used = b.get('path()[1].used')
    same(60 < used < 512, True)
    same(b.get('$("use").innerText.trim()'),
         f'Context: {used} of 512 tokens')


def goes_on(b):
    """Continue adds to the text that was cut."""
    part = b.get('path()[1].content')
    b.get('window.really ??= fetch; window.fetch = (u, o) => {'
          ' if (o?.body) window.sent = JSON.parse(o.body);'
          ' return really(u, o); }; 0')
    b.click('.cut button')
    b.wait('!stopper')
    same(b.get('[path().length, sent.messages.at(-1).role, '
               'sent.messages.at(-1).content]'), [2, 'assistant', part])
    both = b.get('path()[1].content')
    same(both.startswith(part) and len(both) > len(part), True)
    same(b.get('path()[1].made > 60'), True)
    b.get('window.fetch = really; 0')


def stops(b):
    """The end of the answer is held back, so a fast model cannot be done before
    the key is pressed."""
    options(b, temperature=0.8, ignore_eos=True)
    b.get('window.really ??= fetch; window.fetch = (u, o) => '
          'String(u).endsWith("completions") ? really(u, o).then(r => '
          'new Response(new ReadableStream({async start(c) {'
          ' o.signal.addEventListener("abort", () => c.error(o.signal.reason));'
          ' for await (const part of r.body) {'
          '  const [text, end] = new TextDecoder().decode(part)'
          '   .split("data: [DONE]");'
          '  c.enqueue(new TextEncoder().encode(text));'
          '  if (end !== undefined) return; } }}))) : really(u, o); 0')
    send(b, 'And then?')
    b.wait(f'{TEXT}.length > 0')
    b.key('Escape', 27)
    b.wait('!stopper')
    b.get('window.fetch = really; 0')
    same(mark(b), 'Stopped Continue')
    b.wait('fetch("machine").then(r => r.json()).then(m => '
           'm.requests.running === 0)', 'a server that has stopped too')


HOLD = ('window.really ??= fetch; window.fetch = (u, o) => '
        'String(u).endsWith("completions") ? really(u, o).then(r => '
        'new Response(new ReadableStream({async start(c) {'
        ' for await (const part of r.body) {'
        '  const text = new TextDecoder().decode(part);'
        '  const at = text.indexOf("finish_reason\\":\\"");'
        '  c.enqueue(new TextEncoder().encode(at < 0 ? text : '
        '   text.slice(0, text.lastIndexOf("data: ", at))));'
        '  if (at >= 0) return; } }}))) '
        ': really(u, o); 0')


def goes_on_after_a_reload(b):
    """The part that came is kept, and the window continues it."""
    b.click('#new')
    options(b, temperature=0, max_tokens=24, ignore_eos=True)
    b.get(HOLD)
    send(b, 'Once more.')
    b.wait(f'{TEXT}.length > 20 && path()[1].live')
    part = b.get('path()[1].content')
    b.reload()
    b.wait('models.length === 1 && !stopper && path().length === 2 && '
           '!path()[1].live')
    both = b.get('path()[1].content')
    same(both.startswith(part) and len(both) > len(part), True)
    same(mark(b), 'Stopped at the token limit Continue')
    same(b.get('sessionStorage.getItem("plait.live")'), None)


def marks_what_was_lost(b):
    """A stream that breaks off, in a conversation that another window left."""
    pretend(b, 'Half a', end='')
    b.click('#new')
    send(b, 'Break off.')
    b.wait('!stopper && path().length === 2')
    lost = 'The connection was lost; the answer is incomplete Continue'
    same(mark(b), lost)
    b.get('delete path()[1].cut; path()[1].live = Date.now() - 60000; show()')
    same(mark(b), lost)
    b.get('path()[1].live = Date.now(); show()')
    same(mark(b), None)
    same(b.get(f'{LAST}.querySelector(".state").textContent'),
         'Being written in another window \u2026')
    b.get('path()[1].live = 0; remove(talk); window.fetch = really; '
          '$("toast").replaceChildren()')


def goes_on_reasoning(b):
    """Reasoning that was cut is continued, or begun again if the template
    cannot."""
    b.click('#new')
    b.get('window.really ??= fetch; window.sent = []; window.says = r => '
          'new Response("data: " + JSON.stringify({choices: [{delta: r}]}) + '
          '"\\n\\n" + (r.content ? "data: [DONE]\\n\\n" : "")); '
          'window.fetch = (u, o) => { if (!String(u).endsWith("completions")) '
          'return really(u, o); sent.push(JSON.parse(o.body)); return '
          'Promise.resolve(replies.shift()); }; window.replies = ['
          'says({reasoning_content: "So "}), says({reasoning_content: '
          '"on "}), Response.json({error: {message: "no"}}, {status: 400}), '
          'says({reasoning_content: "Anew", content: "Yes"})]; 0')
    send(b, 'Why?')
    b.wait('!stopper && path().length === 2')
    b.click('.cut button')
    b.wait('!stopper && path()[1].reasoning === "So on "')
    same(b.get('[sent[1].messages[1], sent[1].continue_final_message]'),
         [{'role': 'assistant', 'content': '', 'reasoning_content': 'So '},
          True])
    b.click('.cut button')
    b.wait('!stopper && path()[1].content === "Yes"')
    same(b.get('[path()[1].reasoning, path()[1].error ?? null, '
               'sent[3].messages.length]'), ['Anew', None, 1])
    same(b.get(f'{LAST}.querySelector(".reasoning > div").textContent'), 'Anew')
    b.get('remove(talk); window.fetch = really; $("toast").replaceChildren()')


def survives_reload(b):
    before = b.get('log.innerText')
    b.reload()
    same(b.get('log.innerText'), before)
    same(b.get('settings.options.temperature'), 0.8)


def keeps_versions(b):
    options(b, max_tokens=8)
    first = b.get(TEXT)
    b.click('.message:last-child [title=Regenerate]')
    b.wait('!stopper')
    same(b.get(f'{LAST}.innerText.includes("2 of 2")'), True)
    b.click('.message:last-child [title="Previous version"]')
    same(b.get(TEXT), first)
    n = b.get('path().length')
    b.click('.message.user [title=Edit]')
    b.write('.editing textarea', ' Another one.')
    b.key('Enter', 13)
    b.wait('!stopper && path().length === 2')
    b.click('.message.user [title="Previous version"]')
    same(b.get('path().length'), n)


def is_not_drawn_anew(b):
    """While a message is edited here, another window may save its own."""
    tell = ('localStorage.setItem(KEY + t.id, JSON.stringify(t)); '
            'dispatchEvent(new StorageEvent("storage", {key: KEY + t.id}));')
    b.get('window.first = log.firstChild; 0')
    b.click('.message.user [title=Edit]')
    b.get('{const t = newTalk(); t.id = "other"; t.name = "Elsewhere"; '
          't.root.next = [{role: "user", content: "Hi.", next: [], at: 0}]; '
          + tell + '}')
    same(b.get('!!document.querySelector(".editing textarea")'), True)
    b.key('Escape', 27)
    same(b.get('log.firstChild === first && '
               '$("talks").textContent.includes("Elsewhere")'), True)
    b.get('{const t = readTalk(talk); path(t)[0].content = "Changed."; '
          + tell + '}')
    same(b.get('log.textContent.includes("Changed.") && '
               'log.firstChild === first'), True)
    b.get('remove(talks.find(t => t.id === "other")); '
          '$("toast").replaceChildren()')


def stays_deleted(b):
    """Deletes a conversation while its answer arrives."""
    b.get('window.really ??= fetch; window.fetch = (u, o) => '
          'String(u).endsWith("completions") ? Promise.resolve(new Response('
          'new ReadableStream({start(c) { c.enqueue(new TextEncoder().encode('
          '`data: {"choices": [{"delta": {"content": "so"}}]}\\n\\n`)); '
          'o.signal.onabort = () => c.error(new DOMException("", '
          '"AbortError")); }}))) : really(u, o); 0')
    b.click('#new')
    send(b, 'Write a lot.')
    b.wait('path().length === 2 && path()[1].content === "so"')
    b.get('window.gone = talk; remove(talk); 0')
    b.wait('window.gone.root.next[0].next[0].cut === "stop"')
    same(b.get('talks.includes(window.gone) || '
               'localStorage.getItem(KEY + window.gone.id)'), None)
    b.get('window.fetch = window.really; $("toast").replaceChildren()')


def writes_markup_as_text(b):
    b.click('#new')
    pretend(b, HOSTILE, 'why <img src=x onerror="window.hit = 4">')
    send(b, '<img src=x onerror="window.hit = 5">')
    b.wait('!stopper && path().length === 2')
    same(b.get('log.querySelectorAll("img, script, b, i, u").length'), 0)
    same(b.get('[...log.querySelectorAll("a")].map(a => a.href)'),
         ['https://example.org/'])
    same(b.get('log.querySelector("pre code").textContent'), '<i>' + CODE)
    same(b.get('log.querySelector(".user .text").textContent'),
         '<img src=x onerror="window.hit = 5">')
    same(b.get('["strong", "table", "ul", "ol", "details"].map(t => '
               'log.querySelectorAll(t).length)'), [1, 1, 1, 1, 1])
    b.get('navigator.clipboard.writeText = async s => { window.copied = s; }')
    b.click('.block button')
    same(b.get('window.copied'), '<i>' + CODE)
    same(b.get('window.hit'), None)


# Formulas, each with a text that its drawing has and an element.
FORMULAS = [
    (r'\frac{a}{b} + \sqrt[3]{x}', 'ab', 'mfrac, mroot'),
    (r'\sum_{i=1}^{n} x_i^2', '\u2211', 'munderover, msubsup'),
    (r'\int_0^\infty e^{-x}\,dx', '\u222b', 'msubsup mo'),
    (r'\mathbb{R}^n \to \mathcal{H}', '\u211d', 'msup'),
    (r'\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}', '1001', 'mtr + mtr'),
    (r'f = \begin{cases} 1 & \text{if } x > 0 \\ 0 & \text{else} \end{cases}',
     'else', 'mtable'),
    (r'\begin{aligned} a &= b \\ &= c \end{aligned}', '=c', 'mtd + mtd'),
    (r'\left\{ x \;\middle|\; x > 0 \right\}', '}', 'mo[stretchy=true]'),
    (r'\underbrace{a + b}_{n} \overline{AB} \hat{x} \vec{v}', '\u23df',
     'munder munder'),
    (r'\operatorname*{arg\,max}_{x} \log_2 x', 'arg\u00a0max', 'munder'),
    (r'\boxed{42} \quad 5\% \tag{1}', '(1)', 'mrow[style]'),
    (r'A \xrightarrow[t]{\Delta} B', '\u0394', 'munderover'),
    (r'{n \choose k} = \binom{n}{k}', 'nk', 'mfrac[linethickness="0"]'),
    (r"f''(x) \not= \lim_{h \to 0} g \ne \nope", '\\nope', 'munder'),
    (r'\ce{2H2 + O2 -> 2H2O}', 'H2', 'msub'),
    (r'\color{red}{x} \textbf{bold} \mathbf{v} \cancel{y}', 'bold', 'mstyle')]
# Each is the text of a formula, in a paragraph or as one; or None.
DOLLARS = [
    ('a $x$ b', 'x'), (r'a \(x\) b', 'x'), (r'\[x\]', 'x'), ('$$x$$', 'x'),
    ('$$\nx\n- y\n$$', 'x\u2212y'), ('- $x$\n- y', 'x'),
    ('\\begin{align}\nx &= y\n\\end{align}', 'x=y'), ('| $x$ |\n|-|', 'x'),
    ('I paid $5 and $10.', None), ('Or $5 (or 10$).', None), ('`$x$`', None),
    (r'\$x$', None), ('US$5 or AU$6', None), ('$HOME/$USER', None),
    ('```\n$x$\n```', None), ('$ x $', None), (r'${$', None)]


def draws_formulas(b):
    for tex, text, css in FORMULAS:
        got = b.get(f'{{const e = mathOf({json.dumps(tex)}, true); e && '
                    f'[e.textContent.includes({json.dumps(text)}), '
                    f'!!e.querySelector({json.dumps(css)})]}}')
        same([tex, got], [tex, [True, True]])
    for source, text in DOLLARS:
        got = b.get('{const e = make("div"); '
                    f'showMarkdown(e, {json.dumps(source)}, nothing()); '
                    '[...e.querySelectorAll("math")].map(m => m.textContent)}')
        same([source, got], [source, [] if text is None else [text]])
    same(b.get(r'mathOf("\\href{javascript:x}{y} \\includegraphics{z}")'
               '.querySelectorAll("a, img, [href], [src]").length'), 0)
    # the browser draws a fraction, so it knows the elements
    same(b.get(r'{const e = mathOf("\\frac{a}{b}", true); document.body.append('
               'e); const h = e.getBoundingClientRect().height; e.remove(); '
               'h > 25}'), True)


CODES = [
    ('python', 'def f(x):  # why\n"""a\nb"""\nreturn 0x1f, "s"',
     'k:def f:f c:# why s:""" s:b""" k:return n:0x1f s:"s"'),
    ('c', '#include <a.h>\nint f(void) { /* a\nb */ return 1; } // c',
     'k:#include k:int f:f k:void c:/* c:b k:return n:1 c:// c'),
    ('rust', "fn f<'a>(c: char) -> bool { c == 'x' }",
     "k:fn k:char k:bool s:'x'"),
    ('json', '{"a": [1, true, "b"]}', 'a:"a" n:1 k:true s:"b"'),
    ('html', '<a href="b">c</a> <!-- d\ne -->',
     't:<a a:href s:"b" t:</a c:<!-- c:e'),
    ('sh', 'for i in *; do echo "$i"; done # all',
     'k:for k:in k:do s:"$i" k:done c:# all'),
    ('diff', '--- a\n+b\n-c\n d', 'c:--- a:+b s:-c'),
    ('sql', 'SELECT a FROM b -- c', 'k:SELECT k:FROM c:-- c'),
    ('nothing-known', 'for x in y', '')]


def colours_code(b):
    for name, code, parts in CODES:
        text = f'```{name}\n{code}\n```'
        b.get('window.e = make("div"); '
              f'showMarkdown(e, {json.dumps(text)}, nothing()); 0')
        same(b.get('e.querySelector("code").textContent'), code)
        got = b.get('[...e.querySelectorAll("code [class]")].map(x => '
                    'x.className + ":" + x.textContent)')
        for part in re.findall(r'\w:\S+(?: (?!\w:)\S+)*', parts):
            if not any(part in g for g in got):
                raise browser.Failed(f'{name}: {part} is not in {got}')
        same(bool(got), bool(parts))
    colour = b.get('{const e = make("div"); log.append(e); showMarkdown(e, '
                   '"```c\\nint x; // y\\n```", nothing()); const all = '
                   '[...e.querySelectorAll("code [class]")].map(x => '
                   'getComputedStyle(x).color); e.remove(); all}')
    same(len(set(colour)), 2)


GROWING = [
    HOSTILE, '# T\n\none\ntwo\n\n- a\n  - b\n\n  c\n- d\n\n1.5 apples\n\n1. x\n'
    '2. y\n\n   ```c\n   int x; /* a\n   b */\n   ```\n\n3. z\n---\n* * *\n'
    '- [x] u',
    'Let $x^2$ be $$y$$ and\n\n$$\na\n- b\n$$\n\n\\[\nc\n\\]\n- \\(d\\)\n'
    '> $e$\nx | y\n-|-\n1|2\n\n~~~py\n"""\nx\n"""\n~~~\n$$ open\n\nend']


def grows_as_it_is_whole(b):
    """A text that arrives a character at a time is drawn, at each moment, as if
    it had come at once."""
    for text in GROWING:
        same(b.get('{const text = %s, e = make("div"), s = nothing(); let bad '
                   '= ""; for (let n = 1; n <= text.length; n++) { const w = '
                   'make("div"); showMarkdown(e, text.slice(0, n), s); '
                   'showMarkdown(w, text.slice(0, n), nothing()); if (!bad && '
                   'w.innerHTML !== e.innerHTML) bad = text.slice(0, n); } bad}'
                   % json.dumps(text)), '')


def grows_cheaply(b):
    """One more token costs a few elements, however long answer and conversation
    are, in a paragraph, a block of code and a list."""
    b.click('#new')
    long = 'A paragraph with **bold** words, so many.\n\n' * 400
    b.get('{const long = %s; let at = talk.root; for (let i = 0; i < 100; i++) '
          '{ at = follow(at, {role: "user", content: "Why?"}); at = follow(at, '
          '{role: "assistant", content: long.slice(0, 400)}); } show(); '
          'window.node = writing = at; node.content = long; update(node); 0}'
          % json.dumps(long))
    for begin, more in (('', ' x'), ('\n\n```c\n' + 'int x;\n' * 900, ' x'),
                        ('\n```\n\n' + '- an item\n' * 900, ' x')):
        b.get('node.content += %s; update(node); 0' % json.dumps(begin))
        n = b.get('{const real = document.createElement.bind(document); let n '
                  '= 0; document.createElement = t => (n++, real(t)); '
                  'for (let i = 0; i < 50; i++) { node.content += %s; '
                  'update(node); } delete document.createElement; n / 50}'
                  % json.dumps(more))
        if n > 20:
            raise browser.Failed(f'{n} elements a token after {begin[:20]!r}')
    same(b.get('log.childNodes.length'), 200)
    b.get('writing = null; talks = talks.filter(t => t !== talk); '
          'localStorage.removeItem(KEY + talk.id); go(talks[0])')


def give(b, css, *files):
    """Chooses files, made here, for an input."""
    root = b.call('DOM.getDocument')['root']['nodeId']
    at = b.call('DOM.querySelector', nodeId=root, selector=css)['nodeId']
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, data in files:
            paths.append(os.path.join(folder, name))
            with open(paths[-1], 'wb') as f:
                f.write(data)
        b.call('DOM.setFileInputFiles', files=paths, nodeId=at)
        b.wait('$("pick").value === "" && ($("files").childNodes.length || '
               '$("toast").textContent)')


def attaches(b):
    """Files chosen, dropped and pasted are sent as text; others are refused."""
    b.click('#new')
    b.get('$("toast").replaceChildren()')
    give(b, '#pick', ('a.py', b'print("```")\n'), ('p.png', b'\x89PNG\0\1'),
         ('old.txt', b'gr\xfc\xdfe'), ('none.txt', b''),
         ('wide.txt', 'wide'.encode('utf-16')), ('p.pdf', b'%PDF-1.4 text'))
    chips = '[...$("files").children].map(e => e.innerText.replace(/\\s+/g, ' \
        '" ").trim())'
    b.wait('attached.every(f => f.tokens)', 'tokens')
    got = b.get(chips)
    same([re.sub(r'\d+ tokens', 'N tokens', c) for c in got],
         ['a.py 13 B, N tokens', 'old.txt 7 B, N tokens',
          'wide.txt 4 B, N tokens'])
    toast = b.get('$("toast").innerText')
    for part in ('p.png: a binary file (6 B); only text can be attached',
                 'none.txt: the file is empty', 'p.pdf: a binary file'):
        if part not in toast:
            raise browser.Failed(toast)
    same('+' in b.get('$("use").innerText'), True)
    b.get('attach([new File([new Uint8Array(2 << 20)], "big.bin")]); 0')
    b.wait('$("toast").innerText.includes("big.bin: 2.1 MB, and at most '
           '1.05 MB can be attached")')
    b.click('#files [title="Remove wide.txt"]')
    for kind, way in (('drop', 'DragEvent("drop", {dataTransfer'),
                      ('paste', 'ClipboardEvent("paste", {clipboardData')):
        b.get('{const d = new DataTransfer(); d.items.add(new File(['
              f'"by {kind}"], "{kind}.md")); $("input").dispatchEvent(new '
              f'{way}: d, bubbles: true, cancelable: true}})); 0}}')
        b.wait(f'attached.some(f => f.name === "{kind}.md")')
    pretend(b, 'Read.')
    b.get('{const f = fetch; window.fetch = (u, o) => { if (o?.body) '
          'window.sent = JSON.parse(o.body); return f(u, o); }} 0')
    send(b, 'What is this?')
    b.wait('!stopper && path().length === 2')
    same(b.get('sent.messages'), [{'role': 'user', 'content':
         'File: a.py\n\n````py\nprint("```")\n````\n\n'
         'File: old.txt\n\n```txt\ngr\u00fc\u00dfe\n```\n\n'
         'File: drop.md\n\n```md\nby drop\n```\n\n'
         'File: paste.md\n\n```md\nby paste\n```\n\nWhat is this?'}])
    same(b.get('$("files").childNodes.length'), 0)
    b.click('.message.user .file summary')
    b.wait('log.querySelector(".file pre")?.textContent.includes("print")')
    b.click('.message.user [title=Edit]')
    b.click('.editing [title="Remove old.txt"]')
    b.key('Enter', 13)
    b.wait('!stopper && path().length === 2 && path()[0].files.length === 3')
    b.reload()
    same(b.get('path()[0].files.map(f => f.name)'),
         ['a.py', 'drop.md', 'paste.md'])
    same(b.get('log.querySelectorAll(".file").length'), 3)
    b.get('window.really = fetch; 0')


def searches(b):
    """Words are found in titles, messages, files and hidden branches."""
    b.get('go(newTalk()); follow(follow(talk.root, {role: "user", content: '
          '"About Zebras"}), {role: "assistant", content: "They are striped."}'
          '); follow(path()[0], {role: "assistant", content: "Other."}); '
          'keepTalk(); go(talks.find(t => t !== talk)); 0')
    n = b.get('talks.length')
    for words, hit in (('zebra striped', 'striped'), ('STRIPED', 'striped'),
                       ('zebras', None), ('paste.md', 'paste.md')):
        b.get('$("find").value = ""')
        b.write('#find', words)
        same(b.get('[$("talks").querySelectorAll(".open").length, '
                   '$("talks").querySelector("mark")?.textContent ?? null]'),
             [1, hit])
    b.get('$("find").value = ""')
    b.write('#find', 'striped')
    b.key('Enter', 13)
    same(b.get('path()[1].content'), 'They are striped.')
    same(b.get('views.get(path()[1]).e.classList.contains("found")'), True)
    b.get('$("find").value = ""')
    b.write('#find', 'striped nowhere')
    same(b.get('$("talks").innerText'), 'Nothing found')
    b.key('Escape', 27)
    same(b.get('$("talks").querySelectorAll(".open").length'), n)
    b.key('ArrowDown', 40)
    b.key('ArrowDown', 40)
    same(b.get('[...$("talks").querySelectorAll(".open")].indexOf('
               'document.activeElement)'), 1)
    b.get('document.activeElement.blur(); document.dispatchEvent(new '
          'KeyboardEvent("keydown", {key: "k", ctrlKey: true}))')
    same(b.get('document.activeElement.id'), 'find')
    b.get('remove(talks.find(t => titleOf(t) === "About Zebras")); '
          '$("toast").replaceChildren()')


def is_not_held_up(b):
    """Texts that could take hours, or too much depth, are shown at once."""
    for text in ['x' + '`' * 7000, '>' * 7000, '- + ' * 3000,
                 '# a' + ' ' * 7000 + 'x', '$' + '{' * 7000 + '$',
                 '$' + 'x^' * 3900 + '$', '$' + '\\hat' * 1900 + '$']:
        b.get('for (let i = 0; i < 60; i++) '
              f'cut([{json.dumps(text)}]).map(x => render(x)); 0')
    same(b.get('render(["## C# ##"]).outerHTML'), '<h2>C#</h2>')


def takes_files(b):
    """An export can be imported again; other files are rejected."""
    n = b.get('talks.length')
    data = b.get('JSON.stringify({plait: 1, talks})')
    bad = {'talks': [{'id': 'x', 'root': {'next': [{'role': 'system',
           'content': {}, 'next': 7}]}}, None, 3]}
    b.get('document.querySelector("#file").removeAttribute("hidden")')
    root = b.call('DOM.getDocument')['root']['nodeId']
    at = b.call('DOM.querySelector', nodeId=root, selector='#file')['nodeId']
    for text, more in (data, n), (json.dumps(bad), n), ('{', n):
        with tempfile.NamedTemporaryFile('w', suffix='.json') as f:
            f.write(text)
            f.flush()
            b.get('$("toast").replaceChildren()')
            b.call('DOM.setFileInputFiles', files=[f.name], nodeId=at)
            b.wait('$("toast").textContent')
        same(b.get('talks.length'), n + more)
    b.get('go(talks[0])')
    b.click('#talks .now [title=Delete]')
    same(b.get('talks.length'), 2 * n - 1)
    b.click('#toast button')
    same(b.get('talks.length'), 2 * n)


def is_narrow(b):
    """Neither view, nor the drawer, is wider than a small phone."""
    b.size(320, 600, phone=True)
    b.get('go(talks.find(t => titleOf(t).includes("hit = 5")))')
    wide = 'Math.max(document.documentElement.scrollWidth, ' \
        'log.scrollWidth, $("machine").scrollWidth)'
    same(b.get(f'{wide} <= 320'), True)
    b.click('#menu')
    b.wait('$("new").getBoundingClientRect().left >= 0')
    same(b.get('$("side").contains(document.activeElement)'), True)
    b.key('Escape', 27)
    b.click('#to-machine')
    b.wait('document.querySelector(".device canvas")')
    same(b.get(f'{wide} <= 320'), True)
    b.click('#to-settings')
    same(b.get('$("settings").getBoundingClientRect().right <= 320'), True)
    b.click('[data-close]')
    b.size(1200, 800)


def shows_the_machine(b, url):
    """Bars move during a request."""
    b.click('#to-machine')
    b.wait('samples.length > 1')
    b.get('window.serve = true; (async () => { while (window.serve) await '
          f'really("{url}v1/completions", {{method: "POST", body: '
          'JSON.stringify({prompt: "Once", max_tokens: 400, ignore_eos: true}'
          ')}).then(r => r.text()); })(); 0')
    widths = '[...document.querySelectorAll("#devices .bar")].map(b => ' \
        'b.firstChild.style.width).join()'
    b.wait('[...document.querySelectorAll("#devices .bar .busy")].every(i => '
           'parseFloat(i.style.width) > 1)', 'bars')
    before = b.get(widths)
    b.wait(f'{widths} !== "{before}"', 'bars that move')
    b.wait('document.querySelector("#tiles b").textContent !== "0"')
    b.wait('document.querySelector(".slot:not(.free)")?.innerText', 'a slot')
    b.get('window.serve = false')
    b.wait('document.querySelector("#picture img").naturalWidth > 100')
    same(b.get('$("devices").children.length'), 2)
    same(b.get('parseFloat(document.querySelector("#cache .bar > .copy")'
               '.style.width) >= 0'), True)
    # devices stand below the machine that they are part of
    same(b.get('$("devices").querySelectorAll("h3").length'), 0)
    same(b.get('{ const s = samples.at(-1); build({...s, devices: s.devices'
               '.map((d, i) => ({...d, name: i + "/" + d.name, machine: i}))});'
               '[...$("devices").children].map(e => e.tagName + e.textContent'
               '.replace(/cpu.*/, "")).join(); }'),
         'H3Machine 0,DIV0/,H3Machine 1,DIV1/')
    for text in b.get('[...$("machine").querySelectorAll("b, small, .quiet, '
                      'span")].map(e => e.textContent.trim())'):
        if re.fullmatch('[-\u2013\u2014\u2026]|.*(NaN|undefined|null).*', text):
            raise browser.Failed(f'the machine shows {text!r}')


def has_names(b):
    """Every control has a name for screen readers."""
    nameless = '[...document.querySelectorAll("button, input, textarea, ' \
        'select")].filter(e => !(e.textContent.trim() && ' \
        'e.tagName === "BUTTON") && !e.ariaLabel && ' \
        '!(e.labels && e.labels.length) && e.type !== "file")' \
        '.map(e => e.outerHTML.slice(0, 80))'
    same(b.get(nameless), [])


def tells_of_errors(b, server):
    b.get('window.fetch = window.really; go(newTalk())')
    options(b, temperature=-1)
    send(b, 'hot')
    b.wait('!stopper && path().length === 2')
    same(b.get(f'{LAST}.querySelector(".wrong").textContent'
               '.includes("temperature")'), True)
    options(b)
    server.close()
    send(b, 'Is anybody there?')
    b.wait('!stopper && path().length === 4')
    same(b.get(f'{LAST}.querySelector(".wrong").textContent'),
         'Cannot reach the server; check that it is running.')


def n_looked(b):
    return sum(u.endswith('/machine') for u in b.asked)


def asks_for_a_key(b, url):
    b.open(url)
    b.wait('$("ask-key").open')
    b.get('turn(true); $("ask-key").close()')
    b.wait('$("machine-wrong").textContent === '
           '"The server rejected the API key; enter another one."')
    n = n_looked(b)
    while n_looked(b) < n + 2:
        b.get('new Promise(go => setTimeout(go, 100))')
    same(b.get('$("ask-key").open'), False)  # not asked again
    b.get('turn(false); begin(); 0')
    for key, text in ('wrong', 'rejected this key'), ('k1', ''):
        b.wait('$("ask-key").open')
        b.get('$("key").value = ""')
        b.write('#key', key)
        b.key('Enter', 13)
        b.wait('$("ask-key").open && $("key-why").textContent.includes('
               f'{json.dumps(text)})' if text else
               'models.length === 1 && !$("ask-key").open', key)
    options(b, max_tokens=4)
    send(b, 'Hello?')
    b.wait(f'!stopper && {TEXT}.length > 0')


def look(plait, model):
    b = browser.Browser()
    servers = []
    try:
        servers.append(Server(plait, model, '-dev', 'cpu*2', '-c', '512'))
        url = servers[0].url
        b.size(1200, 800)
        b.open(url)
        b.wait('models.length === 1')
        for part in (streams, answers, tells_the_context, goes_on, stops,
                     survives_reload, keeps_versions, is_not_drawn_anew,
                     stays_deleted, goes_on_after_a_reload, goes_on_reasoning,
                     marks_what_was_lost,
                     writes_markup_as_text, draws_formulas, colours_code,
                     grows_as_it_is_whole, grows_cheaply, is_not_held_up,
                     attaches, searches, takes_files, is_narrow, has_names):
            print(part.__name__, flush=True)
            part(b)
        shows_the_machine(b, url)
        print('errors', flush=True)
        tells_of_errors(b, servers[0])
        print('key', flush=True)
        servers.append(Server(plait, model, '--api-key', 'k1'))
        asks_for_a_key(b, servers[1].url)
        asked = [u for u in b.asked if not u.startswith(
            tuple(s.url for s in servers) + ('data:', 'blob:'))]
        same(asked, [])
        same(b.errors, [])
    except browser.Failed:
        traceback.print_exc(file=sys.stdout)
        print(*b.errors, sep='\n')
        return 1
    finally:
        b.close()
        for s in servers:
            s.close()
    return 0


# ---- without a browser -------------------------------------------------------

class Page(html.parser.HTMLParser):
    """The scripts of a page, and what it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.fetched, self.handlers = [], [], []
        self.inside = False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.inside = tag == 'script'
        self.fetched += [v for k, v in attrs if k in ('src', 'href', 'srcset')
                         and not v.startswith(('#', 'data:'))]
        self.handlers += [k for k, _ in attrs if k.startswith('on')]

    def handle_endtag(self, tag):
        self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.scripts.append(data)


def served(plait, model):
    """The page is one file, and its policy allows its own scripts alone."""
    server = Server(plait, model)
    try:
        with urllib.request.urlopen(server.url) as r:
            policy, text = r.headers['Content-Security-Policy'], r.read()
        page = Page(text.decode())
        same((page.fetched, page.handlers), ([], []))
        same(len(page.scripts), 3)
        sums = ["'sha256-%s'" % base64.b64encode(hashlib.sha256(
            s.encode()).digest()).decode() for s in page.scripts]
        rules = dict(rule.strip().split(' ', 1) for rule in policy.split(';'))
        same(rules.pop('script-src'), ' '.join(sums))
        same(rules, {'default-src': "'none'", 'style-src': "'unsafe-inline'",
                     'img-src': 'blob: data:', 'connect-src': "'self'",
                     'base-uri': "'none'", 'form-action': "'none'",
                     'frame-ancestors': "'none'"})
        same(re.findall(r'\b(?:innerHTML|outerHTML|insertAdjacentHTML|eval|'
                        r'DOMParser|document\.write|Function|setHTML\w*|'
                        r'import)\s*[(=]', ''.join(page.scripts)), [])
    except browser.Failed as e:
        print(e)
        return 1
    finally:
        server.close()
    return 0


# ---- pictures ----------------------------------------------------------------

def draw(plait, model, folder):
    b = browser.Browser()
    server = Server(plait, model, '-dev', 'cpu*2', '-np', '4', '-c', '2048')
    try:
        b.size(1280, 700)
        b.open(server.url)
        b.wait('models.length === 1')
        options(b, temperature=0.5, seed=7, max_tokens=160)
        send(b, 'Tell me a tale of a fox.')
        b.wait('!stopper && path().length === 2')
        b.picture(os.path.join(folder, 'page.png'))
        b.dark(True)
        b.get('window.serve = true; for (let i = 0; i < 3; i++) (async () => {'
              ' while (window.serve) await fetch("v1/completions", {method: '
              '"POST", body: JSON.stringify({prompt: "Once upon a time " + i, '
              'max_tokens: 300, ignore_eos: true})}).then(r => r.text()); '
              '})(); 0')
        b.size(1280, 860)
        b.click('#to-machine')
        b.get('setInterval(look, 150); 0')
        b.wait('samples.length === MANY')
        time.sleep(1)
        b.picture(os.path.join(folder, 'machine.png'))
        b.get('window.serve = false')
    finally:
        b.close()
        server.close()
    return 0


if __name__ == '__main__':
    if len(sys.argv) == 4 and sys.argv[3] == '--served':
        sys.exit(served(sys.argv[1], sys.argv[2]))
    if len(sys.argv) not in (3, 5):
        sys.exit(__doc__)
    if browser.command() is None:
        print('there is no chromium')
        sys.exit(77)
    sys.exit(draw(sys.argv[1], sys.argv[2], sys.argv[4]) if len(sys.argv) == 5
             else look(sys.argv[1], sys.argv[2]))
