#!/usr/bin/env python3
"""serve_page.py PLAIT MODEL [--pictures DIR]: tests the web UI of `plait serve`
in a headless Chromium, and fails on any error; or takes the pictures
DIR/page.png and DIR/machine.png.

The exit status is 77 if no Chromium is installed.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

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


def pretend(b, text, reasoning=''):
    """Replaces the server's next answers by this text."""
    parts = [{'reasoning_content': reasoning}, {'content': text}]
    data = ''.join('data: ' + json.dumps({'choices': [{'delta': d}]}) + '\n\n'
                   for d in parts) + 'data: [DONE]\n\n'
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


def answers(b):
    options(b, temperature=0, max_tokens=60)
    send(b, 'Tell me a tale.')
    b.wait('!stopper && path().length === 2')
    note = b.get(f'{LAST}.querySelector(".tools").textContent')
    if '60 tokens' not in note or 'at the token limit' not in note:
        raise browser.Failed(note)
    same(b.get('$("say").textContent'), 'The answer is complete')


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
    note = b.get(f'{LAST}.querySelector(".tools").textContent')
    if 'stopped' not in note:
        raise browser.Failed(note)
    b.wait('fetch("machine").then(r => r.json()).then(m => '
           'm.requests.running === 0)', 'a server that has stopped too')


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
    same(b.get('log.textContent.includes("Changed.")'), True)
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
    b.wait('window.gone.root.next[0].next[0].note === "stopped"')
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


def is_not_held_up(b):
    """Texts that could take hours, or too much depth, are shown at once."""
    for text in ['x' + '`' * 7000, '>' * 7000, '- + ' * 3000,
                 '# a' + ' ' * 7000 + 'x']:
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
        for part in (streams, answers, stops, survives_reload,
                     keeps_versions, is_not_drawn_anew, stays_deleted,
                     writes_markup_as_text, is_not_held_up, takes_files,
                     is_narrow, has_names):
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
    except browser.Failed as e:
        print(e, *b.errors, sep='\n')
        return 1
    finally:
        b.close()
        for s in servers:
            s.close()
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
    if len(sys.argv) not in (3, 5):
        sys.exit(__doc__)
    if browser.command() is None:
        print('there is no chromium')
        sys.exit(77)
    sys.exit(draw(sys.argv[1], sys.argv[2], sys.argv[4]) if len(sys.argv) == 5
             else look(sys.argv[1], sys.argv[2]))
