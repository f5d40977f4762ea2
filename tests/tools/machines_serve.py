#!/usr/bin/env python3
"""A server of several machines, as its clients see it.

  machines_serve.py COMMAND...     mpirun ... plait serve ... -c 256 -np 1
  machines_serve.py --save NAME COMMAND...
                                   saves the state of a text's slot instead

Asks for two texts whose prompts do not fit into the cache together, then for
the first again: its prefix must come back from host memory, and its text must
be the same. Metrics and the machine view must show the devices of all machines.
Prints the completion of "Once", and ends the server by SIGTERM."""
import json
import re
import signal
import subprocess
import sys
import urllib.request


def fail(*words):
    print(*words)
    raise SystemExit(1)


class Server:
    def __init__(self, words):
        self.process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            sys.stderr.write(line)
            found = re.search(r'http://[0-9.:]+', line)
            if found:
                self.url = found.group()
                return
        fail('the server ended with', self.process.wait())

    def get(self, path, body=None):
        r = urllib.request.Request(
            self.url + path, json.dumps(body).encode() if body else None,
            {'Content-Type': 'application/json'})
        with urllib.request.urlopen(r, timeout=120) as answer:
            return answer.read().decode()

    def text(self, prompt, n):
        body = {'prompt': prompt, 'max_tokens': n, 'temperature': 0}
        return json.loads(self.get('/v1/completions', body))[
            'choices'][0]['text']

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        text = self.process.stderr.read()
        sys.stderr.write(text)
        self.process.wait()  # mpirun's exit code is that of the signal
        if not re.search(r' stopped$', text, re.MULTILINE):
            fail('the server did not end as it should')


def metric(text, name, labels=''):
    found = re.search(rf'^plait_{name}{{[^}}]*{labels}[^}}]*}} (.*)$', text,
                      re.MULTILINE)
    return float(found.group(1)) if found else fail('no', name, labels)


def save(name, words):
    server = Server(words)
    server.text('Once upon a time', 40)
    server.get('/slots/0?action=save', {'filename': name})
    server.end()


def main():
    if sys.argv[1] == '--save':
        return save(sys.argv[2], sys.argv[3:])
    server = Server(sys.argv[1:])
    prompts = [' '.join(f'{a} {i}' for i in range(60)) for a in 'ab']
    first = [server.text(p, 4) for p in prompts]
    if server.text(prompts[0], 4) != first[0]:
        fail('another text with a prefix from host memory')
    metrics = server.get('/metrics')
    if metric(metrics, 'cache_tier_hits_total', 'tier="ram"') <= 0:
        fail('no prefix was kept in host memory')
    view = json.loads(server.get('/machine'))['devices']
    machines = sorted({d['machine'] for d in view})
    for d in view:
        where = f'device="{d["name"]}",machine="{d["machine"]}"'
        if metric(metrics, 'device_busy_seconds_total', where) <= 0:
            fail(d['name'], 'computes nothing')
        if metric(metrics, 'device_sent_bytes_total', where) <= 0:
            fail(d['name'], 'sends nothing')
    print('machines', *machines, server.text('Once', 3))
    return server.end()


main()
