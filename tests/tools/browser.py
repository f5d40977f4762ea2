"""A headless Chromium, driven over a pipe: its DevTools protocol, messages of
JSON that end with a NUL, on descriptors 3 and 4. Needs no package of Python.
"""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

FLAGS = """--headless=new --remote-debugging-pipe --no-first-run
    --no-default-browser-check --disable-gpu --disable-dev-shm-usage
    --disable-extensions --disable-sync --disable-background-networking
    --disable-component-update --disable-breakpad --mute-audio
    --hide-scrollbars --force-color-profile=srgb
    --disable-features=Translate,MediaRouter,OptimizationHints""".split()


def command():
    """Returns the path of a Chromium, or None."""
    for name in ('chromium', 'chromium-browser', 'google-chrome'):
        if shutil.which(name):
            return name
    return None


class Failed(Exception):
    pass


class Browser:
    """One page. Its requests and errors are recorded."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix='plait-page-')
        self.asked, self.errors = [], []
        self.n, self.rest, self.answers = 0, b'', {}
        self.session = None
        to_child, self.out = os.pipe()
        self.into, from_child = os.pipe()
        # It can reach only this machine.
        flags = FLAGS + [f'--user-data-dir={self.folder}',
                         '--host-resolver-rules=MAP * ~NOTFOUND, '
                         'EXCLUDE 127.0.0.1']
        if os.geteuid() == 0:
            flags.append('--no-sandbox')
        self.child = subprocess.Popen(
            ['sh', '-c', f'exec "$0" "$@" 3<&{to_child} 4>&{from_child}',
             command(), *flags, 'about:blank'],
            pass_fds=(to_child, from_child), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        try:
            self.attach()
        except BaseException:
            self.close()
            raise

    def attach(self):
        pages = self.call('Target.getTargets')['targetInfos']
        page = next(t for t in pages if t['type'] == 'page')
        self.session = self.call('Target.attachToTarget',
                                 targetId=page['targetId'],
                                 flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Network', 'Log'):
            self.call(domain + '.enable')

    def close(self):
        self.child.kill()
        self.child.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- messages ----------------------------------------------------------

    def take(self, m):
        what, p = m.get('method'), m.get('params', {})
        if 'id' in m:
            self.answers[m['id']] = m
        elif what == 'Network.requestWillBeSent':
            self.asked.append(p['request']['url'])
        elif what == 'Runtime.exceptionThrown':
            d = p['exceptionDetails']
            self.errors.append(d.get('exception', {}).get('description')
                               or d['text'])

    def read(self):
        more = os.read(self.into, 1 << 20)
        if not more:
            raise Failed('the browser has ended')
        *whole, self.rest = (self.rest + more).split(b'\0')
        for m in whole:
            self.take(json.loads(m))

    def call(self, method, **params):
        self.n += 1
        m = {'id': self.n, 'method': method, 'params': params}
        if self.session:
            m['sessionId'] = self.session
        os.write(self.out, json.dumps(m).encode() + b'\0')
        while self.n not in self.answers:
            self.read()
        a = self.answers.pop(self.n)
        if 'error' in a:
            raise Failed(f'{method}: {a["error"]}')
        return a['result']

    # ---- actions of a user -------------------------------------------------

    def get(self, js):
        """Returns the value of an expression; waits for promises."""
        r = self.call('Runtime.evaluate', expression=js, returnByValue=True,
                      awaitPromise=True, userGesture=True)
        if 'exceptionDetails' in r:
            d = r['exceptionDetails']
            raise Failed(f'{js}: ' + d.get('exception', {}).get(
                'description', d['text']))
        return r['result'].get('value')

    def holds(self, js):
        try:
            return self.get(f'!!({js})')
        except Failed as e:
            if 'navigated' not in str(e):
                raise
            return False  # the page is between two documents

    def wait(self, js, what=None):
        """Waits until the expression is true, however slow the machine is."""
        since, nap = time.monotonic(), 0.03
        while not self.holds(js):
            time.sleep(nap)
            if nap < 1 and time.monotonic() - since > 60:
                print('waits for:', what or js, flush=True)
                nap = 2  # so that the runner sees no progress

    def open(self, url):
        self.call('Page.navigate', url=url)
        self.wait(f'location.href.startsWith({json.dumps(url)}) && '
                  'document.readyState === "complete"')

    def reload(self):
        self.get('window.old = true')
        self.call('Page.reload')
        self.wait('!window.old && document.readyState === "complete"')

    def key(self, key, code=0):
        text = {'Enter': '\r'}.get(key, '')
        p = dict(key=key, code=key, windowsVirtualKeyCode=code)
        self.call('Input.dispatchKeyEvent', type='keyDown', text=text, **p)
        self.call('Input.dispatchKeyEvent', type='keyUp', **p)

    def click(self, css):
        self.wait(f'document.querySelector({json.dumps(css)})', css)
        self.get(f'document.querySelector({json.dumps(css)}).click()')

    def write(self, css, text):
        self.get(f'document.querySelector({json.dumps(css)}).focus()')
        self.call('Input.insertText', text=text)

    def size(self, width, height, scale=1, phone=False):
        self.call('Emulation.setDeviceMetricsOverride', width=width,
                  height=height, deviceScaleFactor=scale, mobile=phone)
        self.call('Emulation.setTouchEmulationEnabled', enabled=phone)

    def dark(self, on):
        self.call('Emulation.setEmulatedMedia', features=[
            {'name': 'prefers-color-scheme',
             'value': 'dark' if on else 'light'}])

    def picture(self, path):
        data = self.call('Page.captureScreenshot', format='png')['data']
        with open(path, 'wb') as f:
            f.write(base64.b64decode(data))
