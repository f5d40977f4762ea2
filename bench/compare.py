#!/usr/bin/env python3
"""compare.py MODEL.gguf ...: plait and llama.cpp on the same files, in turn.

Each round runs both sides once, the one that begins changing from round to
round, so that other work of the machine affects both alike. It prints the
medians of tokens a second and the median of the rounds' ratios. Figures exclude
loading and warming up.

llama.cpp means its llama-bench, or the Python package llama-cpp-python if that
is installed and llama-bench is not. It runs with flash attention. Both sides
have the same number of threads, which the system may move between cores, and
compute at most 512 tokens of a prompt at once. With --plait-b the other side is
a second plait, and both pin their threads as they usually do.
"""
import argparse
import ctypes
import json
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH = 512


def numbers(text):
    return [int(word) for word in text.split(',')]


def options():
    p = argparse.ArgumentParser(description=__doc__.split('\n\n')[0])
    p.add_argument('models', nargs='+', metavar='MODEL.gguf')
    p.add_argument('-p', default='512', help='tokens of a prompt, a list')
    p.add_argument('-n', default='128', help='tokens generated, a list')
    p.add_argument('-d', default='0', help='tokens in the cache before, a list')
    p.add_argument('-t', type=int, default=len(os.sched_getaffinity(0)),
                   help='threads of each side (all processors)')
    p.add_argument('-r', type=int, default=5, help='rounds')
    p.add_argument('--plait', default=os.path.join(ROOT, 'build/plait'))
    p.add_argument('--plait-b', metavar='PATH',
                   help='another plait, to be compared instead of llama.cpp')
    p.add_argument('--llama-bench', metavar='PATH',
                   default=shutil.which('llama-bench'))
    p.add_argument('--plait-args', default='', help='more options, as one word')
    p.add_argument('--llama-args', default='', help='likewise')
    return p.parse_args()


def run(command):
    """Returns the rows that a bench prints as JSON, by (prompt, generated,
    depth)."""
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode != 0:
        sys.exit(f'{" ".join(command)}: {p.stderr.strip()}')
    return {(r['n_prompt'], r['n_gen'], r.get('n_depth', 0)): r['avg_ts']
            for r in json.loads(p.stdout)}


def plait_side(o, model, path):
    pin = [] if o.plait_b else ['--no-pin']
    command = [path, 'bench', '-m', model, '--no-limits', '-p', o.p, '-n', o.n,
               '-d', o.d, '-r', '1', '-o', 'json', '-t', str(o.t),
               '-ub', str(BATCH), *pin, *o.plait_args.split()]
    return lambda: run(command)


def llama_bench_side(o, model):
    depth = ['-d', o.d] if o.d != '0' else []  # old versions have no depth
    command = [o.llama_bench, '-m', model, '-p', o.p, '-n', o.n, *depth,
               '-r', '1', '-o', 'json', '-t', str(o.t), '-b', str(BATCH),
               '-ub', str(BATCH), '-fa', '1', *o.llama_args.split()]
    return lambda: run(command)


class PackageSide:
    """Runs what llama-bench runs, with the functions that llama-cpp-python
    wraps, because its class Llama would need a tokenizer in the file."""

    def __init__(self, o, model):
        try:
            import llama_cpp as lib
        except ImportError:
            sys.exit('there is neither llama-bench nor llama-cpp-python: give '
                     '--llama-bench PATH, or pip install llama-cpp-python')
        self.lib, self.o = lib, o
        self.quiet = lib.llama_log_callback(lambda level, text, user: None)
        lib.llama_log_set(self.quiet, None)
        room = max(numbers(o.d)) + max(numbers(o.p) + numbers(o.n))
        c = lib.llama_context_default_params()
        c.n_ctx = room
        c.n_batch = c.n_ubatch = BATCH
        c.n_threads = c.n_threads_batch = o.t
        c.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self.model = lib.llama_model_load_from_file(
            model.encode(), lib.llama_model_default_params())
        self.context = self.model and lib.llama_init_from_model(self.model, c)
        if not self.context:
            sys.exit(f'{model}: llama.cpp cannot load it')
        self.memory = lib.llama_get_memory(self.context)
        n = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(self.model))
        self.ids = (ctypes.c_int32 * room)(*(i * 7919 % n for i in range(room)))
        self.feed(min(room, BATCH), BATCH)  # warm-up

    def feed(self, n, most):
        """Adds n tokens, at most `most` at once."""
        for i in range(0, n, most):
            some = ctypes.cast(ctypes.byref(self.ids, 4 * i),
                               ctypes.POINTER(ctypes.c_int32))
            batch = self.lib.llama_batch_get_one(some, min(most, n - i))
            if self.lib.llama_decode(self.context, batch) != 0:
                sys.exit('llama.cpp cannot compute a batch')
            self.lib.llama_synchronize(self.context)

    def __call__(self):
        """Measures everything once."""
        result = {}
        for depth in numbers(self.o.d):
            self.lib.llama_memory_clear(self.memory, True)
            self.feed(depth, BATCH)
            tests = [(n, 0, BATCH) for n in numbers(self.o.p) if n]
            tests += [(0, n, 1) for n in numbers(self.o.n) if n]
            for prompt, gen, most in tests:
                start = time.perf_counter()
                self.feed(prompt + gen, most)
                seconds = time.perf_counter() - start
                result[prompt, gen, depth] = (prompt + gen) / seconds
                self.lib.llama_memory_seq_rm(self.memory, 0, depth, -1)
        return result

    def close(self):
        self.lib.llama_free(self.context)
        self.lib.llama_model_free(self.model)


def name(test):
    n_prompt, n_gen, depth = test
    what = f'prompt {n_prompt}' if n_prompt else f'generation {n_gen}'
    return what + (f' @ {depth}' if depth else '')


def compare(o, model, other):
    """Runs the rounds of one model and prints its rows."""
    package = None
    if o.plait_b:
        b = plait_side(o, model, o.plait_b)
    elif o.llama_bench:
        b = llama_bench_side(o, model)
    else:
        b = package = PackageSide(o, model)
    side = plait_side(o, model, o.plait), b
    rounds = []
    for r in range(o.r):
        both = [None, None]
        for i in ((0, 1) if r % 2 == 0 else (1, 0)):
            both[i] = side[i]()
        rounds.append(both)
    if package:
        package.close()
    for test in rounds[0][0]:
        if any(test not in y for _, y in rounds):
            sys.exit(f'{other} did not measure {name(test)}')
        x = [x[test] for x, _ in rounds]
        y = [y[test] for _, y in rounds]
        ratio = [i / j for i, j in zip(x, y)]
        print(f'| {os.path.basename(model)} | {name(test)} '
              f'| {statistics.median(x):.1f} | {statistics.median(y):.1f} '
              f'| {statistics.median(ratio):.2f} '
              f'| {min(ratio):.2f} to {max(ratio):.2f} |', flush=True)


def main():
    o = options()
    other = 'plait b' if o.plait_b else 'llama.cpp'
    print(f'| model | test | plait t/s | {other} t/s | ratio | spread |')
    print('| --- | --- | ---: | ---: | ---: | ---: |')
    for model in o.models:
        compare(o, model, other)


main()
