#!/usr/bin/env python3
"""compare_serve.py MODEL.gguf ...: plait serve and llama-server, in turn.

Each round starts one server, waits until it answers, runs `plait bench --serve`
for a warm-up and then for the load, and ends it; then it does the same with the
other. The one that begins changes from round to round, so that other work of
the machine affects both alike. Both have the same number of threads, which the
system may move between cores, as many slots as simultaneous requests, and
compute at most 512 tokens of prompts in a step; llama-server has flash
attention. Prompts are random tokens, so that no cache has them. It prints the
medians of generated tokens a second and of the time to the first token, and the
medians of the rounds' ratios.
"""
import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH = 512


def options():
    p = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    p.add_argument('models', nargs='+', metavar='MODEL.gguf')
    p.add_argument('-p', type=int, default=72, help='tokens of a prompt (72)')
    p.add_argument('-n', type=int, default=64, help='tokens of an answer (64)')
    p.add_argument('-c', '--concurrency', type=int, default=8,
                   help='requests at once (8)')
    p.add_argument('--requests', type=int,
                   help='requests of a round (as many as at once)')
    p.add_argument('-t', type=int, default=len(os.sched_getaffinity(0)),
                   help='threads of each side (all processors)')
    p.add_argument('-r', type=int, default=3, help='rounds (3)')
    p.add_argument('--plait', default=os.path.join(ROOT, 'build/plait'))
    p.add_argument('--llama-server', metavar='PATH',
                   default=shutil.which('llama-server'))
    p.add_argument('--plait-args', default='', help='more options, as one word')
    p.add_argument('--llama-args', default='', help='likewise')
    return p.parse_args()


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def is_ready(url):
    try:
        with urllib.request.urlopen(url + '/health', timeout=2) as r:
            return r.status == 200
    except (urllib.error.URLError, OSError):
        return False


def load(o, url, n):
    """Returns the row that `plait bench --serve` prints for n requests."""
    command = [o.plait, 'bench', '--serve', url, '-o', 'json', '-p', str(o.p),
               '-n', str(o.n), '--concurrency', str(o.concurrency),
               '--requests', str(n), '-s', str(time.time_ns() % 10**9)]
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode != 0:
        sys.exit(f'{" ".join(command)}: {p.stderr.strip()}')
    row = json.loads(p.stdout)[0]
    if row['n_failed']:
        sys.exit(f'{url}: {row["failures"]}')
    return row


def run(o, command, what):
    """Starts a server, and measures it once."""
    port = free_port()
    url = f'http://127.0.0.1:{port}'
    with subprocess.Popen(command + ['--port', str(port)],
                          stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as p:
        try:
            until = time.monotonic() + 120
            while not is_ready(url):
                if p.poll() is not None or time.monotonic() > until:
                    sys.exit(f'{what} does not begin: {" ".join(command)}')
                time.sleep(0.05)
            load(o, url, 2)
            return load(o, url, o.requests or o.concurrency)
        finally:
            p.terminate()
            p.wait()


def commands(o, model):
    room = o.concurrency * (o.p + o.n + 64)
    shared = ['-m', model, '-c', str(room), '-np', str(o.concurrency), '-t',
              str(o.t), '-b', str(BATCH), '-ub', str(BATCH)]
    return ([o.plait, 'serve', *shared, '--no-pin', *o.plait_args.split()],
            [o.llama_server, *shared, '-tb', str(o.t), '-fa', 'on',
             *o.llama_args.split()])


def say(model, what, x, y):
    ratio = [i / j for i, j in zip(x, y)]
    print(f'| {os.path.basename(model)} | {what} | {statistics.median(x):.1f} '
          f'| {statistics.median(y):.1f} | {statistics.median(ratio):.2f} '
          f'| {min(ratio):.2f} to {max(ratio):.2f} |', flush=True)


def main():
    o = options()
    if not o.llama_server:
        sys.exit('there is no llama-server: give --llama-server PATH')
    print(f'{o.concurrency} at once, {o.p} + {o.n} tokens, {o.t} threads\n\n'
          '| model | figure | plait | llama-server | ratio | spread |\n'
          '| --- | --- | ---: | ---: | ---: | ---: |')
    for model in o.models:
        rounds = []
        for r in range(o.r):
            both = [None, None]
            for i in ((0, 1) if r % 2 == 0 else (1, 0)):
                both[i] = run(o, commands(o, model)[i],
                              ('plait', 'llama-server')[i])
            rounds.append(both)
        for what, key in (('written t/s', 'out_ts'),
                          ('first token, ms', 'first_p50_ms')):
            say(model, what, [x[key] for x, _ in rounds],
                [y[key] for _, y in rounds])


main()
