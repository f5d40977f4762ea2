#!/usr/bin/env python3
"""run.py: plants the defects of this folder, each alone, and checks that the
case that its patch names fails.

    run.py [-j N] [--log FILE] [PART ...]   all, or those whose name has a PART
    run.py --changed [BUILD]                those of files that were changed
    run.py --dry                            checks the patches and README.md
    run.py --table                          writes the table of README.md anew

A patch opens with fields, which README.md explains. Its line numbers may be
off, so that it survives changes around it.

Without --changed, N copies of the tree are built, and a table closes the run.
--log appends a line to FILE for each defect done and skips those that FILE has,
so that a run can be continued. PLAIT_PART=I/N takes every N-th defect, from
the I-th on.

--changed plants in the checkout and its BUILD folder ("build"), which is fast.
It takes the defects of the gate whose file was changed since the commit
PLAIT_BASE, ten at most: first one of each file, the file changed last first. By
default PLAIT_BASE is the last merge before HEAD, but 30 commits back at most.
After 100 seconds it starts no other defect. It assumes that the tests pass
without a defect, which the gate has checked before. The file is kept in
BUILD/planted meanwhile and is restored however the run ends: after SIGKILL, at
the next start.
"""
import argparse
import concurrent.futures
import contextlib
import fcntl
import glob
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
README = HERE / 'README.md'
MOST_CHANGED = 10
LAST_START_S = 100  # --changed starts no other defect after so many seconds
MOST_S = 120        # of work; each case of the short tier ends earlier
QUIET_S = 20        # of silence, after which a case has failed
TRIES = 3           # a missing barrier of threads shows rarely
FUZZ = 3            # lines of context around a hunk that may differ
running = set()     # processes, each the leader of its group
stopping = False    # after a signal


class Defect(NamedTuple):
    name: str
    fields: dict
    file: str
    hunks: list  # [(line, [text with its mark])]


class Outcome(NamedTuple):
    name: str
    tier: str
    what: str  # red, green, stale or skipped
    seconds: float
    why: str


def die(text):
    sys.exit(f'run.py: {text}')


# ---- patches ---------------------------------------------------------------

def read_defect(path):
    head, _, body = path.read_text().partition('\n--- a/')
    file, *parts = re.split(r'^@@ -(\d+).*\n', body, flags=re.M)
    hunks = [(int(at), [line or ' ' for line in text.splitlines()])
             for at, text in zip(parts[::2], parts[1::2])]
    return Defect(path.stem, dict(re.findall(r'^(\w+): (.+)$', head, re.M)),
                  file.split('\n')[0], hunks)


def place(lines, near, old, before, after):
    """Finds `old` in lines, as near to line `near` as possible. Returns its
    line and how many of its first and last lines were skipped: at most `before`
    and `after`."""
    for fuzz in range(FUZZ + 1):
        a, b = min(fuzz, before), min(fuzz, after)
        part = old[a:len(old) - b]
        spots = [i for i in range(len(lines) - len(part) + 1)
                 if part and lines[i:i + len(part)] == part]
        if spots:
            return min(spots, key=lambda i: abs(i - a - near)), a, b
    return None


def plant(text, hunks):
    """Returns the text with the defect, or None if it does not apply."""
    lines, shift = text.split('\n'), 0
    for line, marked in hunks:
        kept = [m[0] == ' ' for m in marked]
        old = [m[1:] for m in marked if m[0] in ' -']
        new = [m[1:] for m in marked if m[0] in ' +']
        found = place(lines, line - 1 + shift, old, kept.index(False),
                      kept[::-1].index(False))
        if found is None:
            return None
        at, a, b = found
        lines[at:at + len(old) - a - b] = new[a:len(new) - b]
        shift = at - a - (line - 1) + len(new) - len(old)
    return '\n'.join(lines)


def read_cases():
    """Returns the group of each case and of each group, by name, and the names
    of the cases that only the long tier runs."""
    group, only_long = {}, set()
    for path in (ROOT / 'tests').rglob('*.c'):
        group[path.stem] = path.stem
        for macro, names, rest in re.findall(
                r'^([A-Z]\w*)\((\w+(?:,\s+\w+)?)(.*)', path.read_text(), re.M):
            for name in re.split(r',\s+', names):
                group[name] = path.stem
                if macro == 'TEST_LONG' or 'TEST_LONG_TIER' in rest:
                    only_long.add(name)
    return group, only_long


def flaw(defect, group, only_long):
    """Returns the reason that the defect cannot be planted, or None."""
    path = ROOT / defect.file
    if not path.is_file() or not plant(path.read_text(), defect.hunks):
        return f'does not apply to {defect.file}'
    if defect.fields.get('tier') not in ('gate', 'long'):
        return 'its tier is neither gate nor long'
    if defect.fields.get('red') not in group:
        return f'names no case: {defect.fields.get("red")}'
    if defect.fields['tier'] == 'gate' and defect.fields['red'] in only_long:
        return 'its tier is gate, but only the long tier runs its case'
    return None if 'defect' in defect.fields else 'does not say what is wrong'


def readme(defects):
    """Returns README.md with the rows of its last table made anew."""
    head = '| file | defect | case that turns red | tier |\n'
    return (README.read_text().partition(head)[0] + head +
            '| --- | --- | --- | --- |\n' + ''.join(
                f'| `{d.file}` | `{d.name}`: {d.fields["defect"]} | '
                f'`{d.fields["red"]}` | {d.fields["tier"]} |\n'
                for d in defects))


def check(defects, group, only_long):
    """Ends the run if a patch or the table is stale."""
    flaws = [(d, flaw(d, group, only_long)) for d in defects]
    flaws = [f'{d.name}.patch: {why}' for d, why in flaws if why]
    if not flaws and README.read_text() != readme(defects):
        flaws = ['README.md: stale; run tests/defects/run.py --table']
    if flaws:
        die('\n'.join([f'{len(flaws)} stale'] + flaws))


# ---- processes -------------------------------------------------------------

def kill_all():
    for p in list(running):
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def on_signal(*_):
    """Sets a flag, so that a signal at any time leaves no file planted."""
    global stopping
    stopping = True
    kill_all()


def call(*command, **env):
    """Returns status and output; ends soon after a signal."""
    env = {k: v for k, v in {**os.environ, **env}.items() if v is not None}
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         start_new_session=True, text=True, errors='replace')
    running.add(p)
    if stopping:
        kill_all()
    output = p.communicate()[0]
    running.discard(p)
    return p.returncode, output


def git(*args):
    status, output = call('git', '-C', str(ROOT), *args)
    if status != 0:
        die(f'git {" ".join(args)}: {output.strip()}')
    return output.split()


def compile_tree(build):
    # A compiler cache may treat all copies of the tree alike.
    return call('ninja', '-C', str(build), 'plait-test', 'plait',
                CCACHE_NOHASHDIR='1')


class Run(NamedTuple):
    red: list     # the cases that failed
    groups: set   # of those
    skipped: str  # reason of all others, "" if one passed
    seconds: float


def run_case(build, case, tier, *options):
    refs = ROOT.parent / 'shared' / 'refs'
    start = time.monotonic()
    status, output = call(
        str(build / 'plait-test'), *options, case,
        PLAIT_TIER='long' if tier == 'long' else None, PLAIT_PART=None,
        PLAIT_REFS=os.environ.get('PLAIT_REFS') or
        (str(refs) if refs.is_dir() else None))
    red, groups = [], set()
    if status != 0 and '\nfailed:\n' in output:
        named = re.findall(r'^  (\w+): (\w+)',
                           output.rpartition('\nfailed:\n')[2], re.M)
        red = [name for _, name in named] or ['(no case)']
        groups = {group for group, _ in named}
    skipped = re.search(r'^Skipped .*?: (.*)\n(?s:.*)^0 passed', output, re.M)
    return Run(red, groups, skipped[1] if skipped else '',
               time.monotonic() - start)


# ---- one defect ------------------------------------------------------------

class Tree:
    """A tree in which defects are planted, and its build folder."""

    def __init__(self, root, build):
        self.root, self.build = root, build
        self.saved, self.aside = build / 'planted', build / 'planted.old'

    def lock(self):
        if not (self.build / 'build.ninja').is_file():
            die(f'{self.build} is not a build folder')
        self.locked = open(self.build / 'planted.lock', 'w', encoding='utf-8')
        fcntl.flock(self.locked, fcntl.LOCK_EX)

    def put(self, file, data):
        """Replaces a file atomically; ninja sees its new time."""
        new = self.saved / 'new'
        new.write_bytes(data)
        shutil.copymode(self.root / file, new)
        os.replace(new, self.root / file)

    def plant(self, file, text):
        shutil.rmtree(self.aside, ignore_errors=True)
        self.aside.mkdir()
        (self.aside / 'file').write_text(file)
        (self.aside / 'planted').write_text(text)
        shutil.copy(self.root / file, self.aside / 'original')
        self.aside.rename(self.saved)  # atomic, even if the run is killed
        self.put(file, text.encode())

    def restore(self):
        """Removes a defect, also one that a killed run left."""
        if not self.saved.is_dir():
            return
        file = (self.saved / 'file').read_text()
        original = (self.saved / 'original').read_bytes()
        now = (self.root / file).read_bytes()
        if now == (self.saved / 'planted').read_bytes():
            self.put(file, original)
        elif now != original:
            die(f'{file} was edited while a defect lay in it; compare it with '
                f'{self.saved}/original, then remove {self.saved}')
        shutil.rmtree(self.aside, ignore_errors=True)
        self.saved.rename(self.aside)

    def try_defect(self, defect, group, most_s, explains):
        """Returns an outcome and its reason. If it explains and the case stays
        green, the reason names the cases of its group that turn red."""
        text = plant((self.root / defect.file).read_text(), defect.hunks)
        red, tier = defect.fields['red'], defect.fields['tier']
        try:
            self.plant(defect.file, text)
            status, output = compile_tree(self.build)
            if status != 0:
                error = re.search(r'error: .*', output)
                return 'stale', error[0] if error else 'does not compile'
            for _ in range(TRIES):
                ran = run_case(self.build, red, tier, '--once', '-t',
                               str(most_s), '-q', str(QUIET_S))
                if ran.groups and red not in (*ran.red, *ran.groups):
                    return 'stale', 'red are ' + ' '.join(ran.red)
                if ran.red:
                    return 'red', ' '.join(ran.red)
                if ran.skipped:
                    return 'skipped', ran.skipped
            why = defect.fields['defect']
            if explains and group[red] != red and not stopping:
                ran = run_case(self.build, group[red], tier, '--once')
                why += f'; red in its group: {" ".join(ran.red) or "no case"}'
            return 'green', why
        finally:
            self.restore()


def missing(defect):
    """Returns the flag that this processor lacks, or None."""
    needs = defect.fields.get('needs')
    flags = Path('/proc/cpuinfo').read_text().split() if needs else []
    return needs if needs not in flags else None


def tell(outcome):
    print(f'{outcome.what:7} {outcome.seconds:6.1f} s  {outcome.name}: '
          f'{outcome.why}', flush=True)


def close(outcomes):
    """Prints the closing table; returns the exit status."""
    kinds = ('red', 'green', 'stale', 'skipped')
    print('tier', *(f'{kind:>9}' for kind in (*kinds, 'seconds')))
    for tier in ('gate', 'long'):
        of = [o for o in outcomes if o.tier == tier]
        print(tier, *(f'{sum(o.what == kind for o in of):9}' for kind in kinds),
              f'{sum(o.seconds for o in of):9.0f}')
    print(f'{len(outcomes)} defects, ' + ', '.join(
        f'{sum(o.what == kind for o in outcomes)} {kind}' for kind in kinds))
    return int(stopping or any(o.what in ('green', 'stale') for o in outcomes))


def plant_one(tree, defect, group, most_s=MOST_S, explains=False):
    """Plants a defect, unless its case fails without it (most_s is None)."""
    start = time.monotonic()
    if missing(defect):
        what, why = 'skipped', f'this processor has no {missing(defect)}'
    elif most_s is None:
        what, why = 'stale', f'{defect.fields["red"]} fails without the defect'
    else:
        what, why = tree.try_defect(defect, group, most_s, explains)
    return Outcome(defect.name, defect.fields['tier'], what,
                   time.monotonic() - start, why)


# ---- all, in copies of the tree --------------------------------------------

def make_copy(folder):
    folder = Path(folder)
    skip = shutil.ignore_patterns('build*', '.git')
    shutil.copytree(ROOT, folder, symlinks=True, dirs_exist_ok=True,
                    ignore=lambda d, names:
                    skip(d, names) if Path(d) == ROOT else [])
    tree = Tree(folder, folder / 'build')
    status, output = call('meson', 'setup', str(tree.build), str(folder))
    if status == 0:
        status, output = compile_tree(tree.build)
    if status != 0:
        die(f'the tree does not build\n{output}')
    return tree


def read_log(path, by_name):
    if not path or not os.path.exists(path):
        return []
    rows = [line.split('\t') for line in Path(path).read_text().splitlines()]
    return [Outcome(name, tier, what, float(s), why)
            for name, tier, what, s, why in rows if name in by_name]


def run_all(defects, group, jobs, log):
    done = read_log(log, {d.name for d in defects})
    todo = [d for d in defects if d.name not in {o.name for o in done}]
    trees = queue.Queue()
    most_s = {}

    def in_a_tree(work, defect):
        if stopping:
            return None
        tree = trees.get()
        try:
            return work(tree, defect)
        finally:
            trees.put(tree)

    def first(tree, defect):
        case = defect.fields['red']
        ran = run_case(tree.build, case, defect.fields['tier'])
        most_s[case] = None if ran.red else MOST_S + 4 * int(ran.seconds)

    def second(tree, defect):
        outcome = plant_one(tree, defect, group, most_s[defect.fields['red']],
                            explains=True)
        if stopping:
            return
        tell(outcome)
        done.append(outcome)
        if log:
            with open(log, 'a', encoding='utf-8') as f:
                f.write('\t'.join(map(str, outcome)) + '\n')

    with contextlib.ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory())
                   for _ in range(jobs if todo else 0)]
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(jobs))
        for tree in pool.map(make_copy, folders):
            trees.put(tree)
        cases_of = {d.fields['red']: d for d in todo}.values()
        list(pool.map(lambda d: in_a_tree(first, d), cases_of))
        list(pool.map(lambda d: in_a_tree(second, d), todo))
    return close(done)


# ---- those of changed files, in the checkout -------------------------------

def base_commit():
    if os.environ.get('PLAIT_BASE'):
        return os.environ['PLAIT_BASE']
    commits = git('rev-list', '--first-parent', '-n', '31', 'HEAD')
    merges = git('rev-list', '--first-parent', '--merges', '-n', '31', 'HEAD')
    return next((c for c in commits[1:] if c in merges), commits[-1])


def choose(defects):
    """Returns the first defects of each changed file, then the second ones."""
    files = dict.fromkeys(git('log', '--format=', '--name-only',
                              f'{base_commit()}..HEAD'))
    of = [[d for d in defects if d.file == f and d.fields['tier'] == 'gate']
          for f in files]
    rounds = [ds[i] for i in range(len(defects)) for ds in of if i < len(ds)]
    left = sum(d.file in files and d.fields['tier'] == 'long' for d in defects)
    print(f'{len(rounds)} defects in changed files, {MOST_CHANGED} at most are '
          f'planted; {left} more are for the long tier')
    return rounds[:MOST_CHANGED]


def run_changed(defects, group, tree):
    start = time.monotonic()
    chosen = choose(defects)
    if not chosen:
        return 0
    changed = git('diff', '--name-only', 'HEAD', '--',
                  *(d.file for d in chosen))
    if changed:
        die(f'{" ".join(changed)}: not as in HEAD; commit or stash it first')
    status, output = compile_tree(tree.build)
    if status != 0:
        die(f'the tree does not build\n{output}')
    outcomes = []
    for d in chosen:
        if time.monotonic() - start < LAST_START_S and not stopping:
            outcome = plant_one(tree, d, group)
            if not stopping:
                tell(outcome)
                outcomes.append(outcome)
    if stopping:
        die('stopped; the file that was planted is as it was')
    compile_tree(tree.build)  # without any defect
    if len(outcomes) < len(chosen):
        print(f'{len(chosen) - len(outcomes)} were left for lack of time')
    return close(outcomes)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('-j', type=int, default=1, metavar='N')
    parser.add_argument('--log', metavar='FILE')
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument('--changed', nargs='?', const='build', metavar='BUILD')
    mode.add_argument('--dry', action='store_true')
    mode.add_argument('--table', action='store_true')
    parser.add_argument('part', nargs='*')
    args = parser.parse_args()
    defects = sorted((read_defect(Path(p)) for p in
                      glob.glob(str(HERE / '*.patch'))),
                     key=lambda d: (d.file, d.name))
    if args.table:
        README.write_text(readme(defects))
        return 0
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, on_signal)
    if args.changed:
        tree = Tree(ROOT, Path(args.changed).resolve())
        tree.lock()
        tree.restore()
    group, only_long = read_cases()
    check(defects, group, only_long)
    if args.dry:
        print(f'{len(defects)} defects apply')
        return 0
    if args.changed:
        return run_changed(defects, group, tree)
    if args.part:
        defects = [d for d in defects if any(p in d.name for p in args.part)]
    i, n = map(int, os.environ.get('PLAIT_PART', '0/1').split('/'))
    if not defects[i::n]:
        die('no defect has such a name')
    return run_all(defects[i::n], group, max(args.j, 1), args.log)


if __name__ == '__main__':
    sys.exit(main())
