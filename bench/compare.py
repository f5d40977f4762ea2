#!/usr/bin/env python3
"""compare.py MODEL.gguf: plait and llama.cpp on one file, turn by turn.

Each round runs `plait bench` once and llama.cpp once, the one that begins
changing from round to round, so that what else the machine does falls on both
alike. Printed are the medians of tokens a second and the median of the rounds'
ratios, plait to llama.cpp. llama.cpp is its llama-bench, or the Python package
llama-cpp-python where that is installed and no llama-bench is.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def numbers(text):
    return [int(word) for word in text.split(',')]


def options():
    p = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    p.add_argument('model')
    p.add_argument('-p', default='512', help='tokens of a prompt, a list')
    p.add_argument('-n', default='128', help='tokens generated, a list')
    p.add_argument('-d', default='0', help='tokens in the cache before, a list')
    p.add_argument('-t', type=int, help='threads of both (all cores)')
    p.add_argument('-r', type=int, default=5, help='rounds')
    p.add_argument('--plait', default=os.path.join(ROOT, 'build/plait'))
    p.add_argument('--llama-bench', metavar='PATH',
                   default=shutil.which('llama-bench'))
    p.add_argument('--plait-args', default='', help='more options, as one word')
    p.add_argument('--llama-args', default='', help='likewise')
    return p.parse_args()


def run(command):
    """The rows that a bench prints as JSON, by (prompt, generated, depth)."""
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode != 0:
        sys.exit(f'{" ".join(command)}: {p.stderr.strip()}')
    return {(r['n_prompt'], r['n_gen'], r.get('n_depth', 0)): r['avg_ts']
            for r in json.loads(p.stdout)}


def benches(o):
    """One function a side; each measures everything once."""
    threads = ['-t', str(o.t)] if o.t else []
    tests = ['-p', o.p, '-n', o.n, '-r', '1', '-o', 'json']
    plait = [o.plait, 'bench', '-m', o.model, '--no-limits', '-d', o.d, *tests,
             *threads, *o.plait_args.split()]
    depth = ['-d', o.d] if o.d != '0' else []  # old ones have no depth
    llama = [o.llama_bench, '-m', o.model, *tests, *depth,
             '-t', str(o.t or len(os.sched_getaffinity(0))),
             *o.llama_args.split()]
    if o.llama_bench:
        return lambda: run(plait), lambda: run(llama)
    try:
        import llama_cpp
    except ImportError:
        sys.exit('there is neither llama-bench nor llama-cpp-python: give '
                 '--llama-bench PATH, or pip install llama-cpp-python')
    return lambda: run(plait), python_side(llama_cpp, o)


def python_side(llama_cpp, o):
    """llama-cpp-python does what llama-bench does."""
    depths, prompts, gens = numbers(o.d), numbers(o.p), numbers(o.n)
    room = max(depths) + max(prompts + gens) + 1
    llm = llama_cpp.Llama(o.model, n_ctx=room, n_batch=512, verbose=False,
                          n_threads=o.t or len(os.sched_getaffinity(0)),
                          n_threads_batch=o.t)
    ids = [i * 7919 % llm.n_vocab() for i in range(room)]

    def measure(n_prompt, n_gen, depth):
        llm.reset()
        if depth:
            llm.eval(ids[:depth])
        start = time.perf_counter()
        if n_prompt:
            llm.eval(ids[:n_prompt])
        for i in range(n_gen):
            llm.eval(ids[i:i + 1])
        return (n_prompt + n_gen) / (time.perf_counter() - start)

    tests = [(p, 0, d) for d in depths for p in prompts if p]
    tests += [(0, n, d) for d in depths for n in gens if n]
    measure(*tests[0])  # warms up
    return lambda: {test: measure(*test) for test in tests}


def name(test):
    n_prompt, n_gen, depth = test
    what = f'prompt {n_prompt}' if n_prompt else f'generation {n_gen}'
    return what + (f' @ {depth}' if depth else '')


def main():
    o = options()
    side = benches(o)
    rounds = []
    for r in range(o.r):
        both = [None, None]
        for i in ((0, 1) if r % 2 == 0 else (1, 0)):
            both[i] = side[i]()
        rounds.append(both)
    print('| test | plait t/s | llama.cpp t/s | ratio | spread |')
    print('| --- | ---: | ---: | ---: | ---: |')
    for test in rounds[0][0]:
        if any(test not in b for _, b in rounds):
            sys.exit(f'llama.cpp did not measure {name(test)}')
        a = [x[test] for x, _ in rounds]
        b = [y[test] for _, y in rounds]
        ratio = [x / y for x, y in zip(a, b)]
        print(f'| {name(test)} | {statistics.median(a):.1f} '
              f'| {statistics.median(b):.1f} | {statistics.median(ratio):.2f} '
              f'| {min(ratio):.2f} to {max(ratio):.2f} |')


main()
