#!/usr/bin/env python3
"""documents.py run [FLAG...] BUILD [PAGE...]
documents.py refresh BUILD NAME...
documents.py list [PAGE...]

Runs the commands of the documents with what is built in BUILD.

run      runs every block of commands, those marked `long` alone with --long.
         Prints one line for each that fails; exit status 1 if there is any.
         --times prints processor seconds, --any-output compares none.
refresh  writes the output in the blocks between <!-- NAME --> and
         <!-- /NAME --> anew.
list     prints the blocks that are not run, and why.

A block of commands is indented by four columns or fenced as ```sh, and its first
line begins with a word. Lines that begin with "$ " are commands and all others
their output; a block without such lines has commands alone. The output must be
as printed, word by word; `[...]` stands for any lines. Blocks with tools of
AWAY, which change the machine or the checkout, are not run. A comment before a
block changes that:

    <!-- test: long -->          it takes more than two seconds
    <!-- test: varies -->        the output differs from run to run
    <!-- test: program -->       a block of C, which is compiled, and run where
                                 BUILD has a libplait.so; not by --only-compile
    <!-- test: no, REASON -->    it is not run

Each page has a folder of its own that looks like the checkout. There MODEL.gguf,
SMALL.gguf, A.gguf and B.gguf are the bundled model, GPUs of -dev are emulated ones, `plait
serve` ends with the page or when the next one starts, and port 8080 stands for
that server's. `make` says what it would do and no more, and `plait-test` says
whether it has such options, groups and cases."""
import filecmp
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
AWAY = re.compile(r'^(?:\$ )?(?:\w+=\S* )*(sudo|su|apt\S*|dpkg\S*|dnf|pip3?|'
                  r'podman|docker|buildah|systemctl|git|meson|ninja|cmake|cc|'
                  r'debootstrap|chroot|\.ci/\S+|(?:scripts|tests|bench)/\S+)\b',
                  re.M)
PLACE = '127.0.0.1:8080'


class Block:
    def __init__(self, page, line, language, mark, name):
        self.page, self.line, self.language = page, line, language
        self.mark, self.name = mark, name  # name: of the comment around it
        self.lines = []

    def flag(self, word):
        return word in self.mark.split(', ')

    def kind(self):
        """Returns 'commands', 'program', 'text', or why it is not run."""
        text = '\n'.join(self.lines)
        if self.flag('no'):
            return self.mark[4:]
        if self.language == 'c':
            return 'program' if self.flag('program') else 'text'
        if self.language != 'sh' or not re.match(
                r'(\$ )?(\w+=\S* )*[a-z~./][\w~./-]*( |$)', self.lines[0]):
            return 'text'
        if re.search(r'^curl ', text, re.M) and not shutil.which('curl'):
            return 'curl is not installed here'
        away = AWAY.search(text)
        return f'{away[1]} is a tool of AWAY' if away else 'commands'

    def shell(self):
        """Returns the commands and the expected output or None."""
        if not any(s.startswith('$ ') for s in self.lines):
            return '\n'.join(self.lines), None
        commands, output, more = [], [], False
        for s in self.lines:
            if more or s.startswith('$ '):
                commands.append(s if more else s[2:])
                more = s.endswith('\\')
            else:
                output.append(s)
        return '\n'.join(commands), output or None


def blocks(page):
    """Yields the blocks of code of a page."""
    with open(os.path.join(ROOT, page), encoding='utf-8') as f:
        lines = f.read().split('\n')
    block, fence, mark, name = None, None, '', ''
    for n, s in enumerate(lines, 1):
        if fence:
            if s.strip() == fence:
                yield block
                block, fence, mark = None, None, ''
            else:
                block.lines.append(s)
            continue
        opens = re.match(r'(```+)\s*(\w*)$', s)
        comment = re.match(r'<!-- (/?)(\w+)(?:: (.*))? -->$', s)
        if opens:
            fence = opens[1]
            block = Block(page, n + 1, opens[2] or 'text', mark, name)
        elif s.startswith('    ') and (block or not lines[n - 2].strip()):
            block = block or Block(page, n, 'sh', mark, name)
            block.lines.append(s[4:])
        elif block and not s and lines[n:] and lines[n].startswith('    '):
            block.lines.append('')
        else:
            if block:
                yield block
                block, mark = None, ''
            if comment and comment[2] == 'test':
                mark = comment[3]
            elif comment:
                name = '' if comment[1] else comment[2]
            elif s:
                mark = ''


def all_pages():
    """Returns the pages but the generated one, whose examples are those of
    --help, which tests/test_cli.c runs."""
    pages = ['README.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md']
    return [p for p in pages + sorted(
        os.path.relpath(p, ROOT) for p in glob.glob(f'{ROOT}/doc/*.md'))
        if os.path.exists(os.path.join(ROOT, p)) and p != 'doc/commands.md']


# ---- the commands, as documents call them ----------------------------------

def as_command(name, words):
    """Runs in place of the program of that name; returns the exit status."""
    own = os.path.dirname(os.path.abspath(sys.argv[0]))
    path = ':'.join(p for p in os.environ['PATH'].split(':') if p != own)
    os.environ['PATH'] = path
    if name == 'plait-test':
        return known_tests(words)
    if name == 'make':
        words = ['make', '-n', '-C', ROOT] + words
    elif name == 'curl':
        words = ['curl', '-sS', '--fail-with-body'] + at_server(words)
    else:
        words = emulated(words)
        if words[1:2] == ['serve']:
            return start_server(words)
        words = at_server(words)
        if words[1:2] == ['run'] and not set(words) & {
                '-p', '-f', '-i', '--state-load'} and not piped():
            words.append('-i')  # as at a terminal
    os.execvp(words[0], words)


def known_tests(words):
    """Looks up options, groups and cases of plait-test."""
    text = ''
    for path in glob.glob(f'{ROOT}/tests/**/*.[ch]', recursive=True):
        with open(path, encoding='utf-8', errors='replace') as f:
            text += os.path.basename(path) + '\n' + f.read()
    for w in words:
        names = re.findall(r'^(test_\w*)\.c$|\bTEST\w*\((\w*)', text, re.M)
        if not (re.search(rf'  {w}\b', text) if w.startswith('-') else w.isdigit() or
                any(w in a + b for a, b in names)):
            sys.exit(f'plait-test: {w}: no such option, group or case')
    return 0


def emulated(words):
    """Returns a command of plait with GPUs replaced by emulated ones, which only
    plait-emu has."""
    own = [re.sub(r'\b(gpu|cuda|hip|opencl)\b(:\d+)?', 'emu', w)
           if before in ('-dev', '--device') else w
           for before, w in zip([''] + words, words)]
    return [os.environ['DOCUMENTS_PLAIT'] + '-emu' * (own != words)] + own


def piped():
    return not os.path.samestat(os.fstat(0), os.stat(os.devnull))


def stop_server():
    try:
        with open('server.pid', encoding='ascii') as f:
            pid = int(f.read())
        os.remove('server.pid')
        os.kill(pid, signal.SIGTERM)
        while os.path.exists(f'/proc/{pid}/stat'):
            with open(f'/proc/{pid}/stat', encoding='ascii') as f:
                if f.read().rsplit(')', 1)[1].split()[0] == 'Z':
                    break
            time.sleep(0.01)
    except (OSError, ValueError):
        pass


def start_server(words):
    """Starts a server and waits until it listens."""
    os.chdir(os.environ['DOCUMENTS_DIR'])
    stop_server()
    with open('server.log', 'w', encoding='utf-8') as log:
        p = subprocess.Popen(words + ['--port', '0'], stdin=subprocess.DEVNULL,
                             stdout=log, stderr=log)
    with open('server.pid', 'w', encoding='ascii') as f:
        f.write(str(p.pid))
    while True:
        code = p.poll()
        with open('server.log', encoding='utf-8', errors='replace') as log:
            said = log.read()
        if re.search(r'https?://\S+:\d+', said):
            return 0
        if code is not None:
            sys.stderr.write(said)
            return code or 1
        time.sleep(0.01)


def at_server(words):
    """Returns words with the address of the running server."""
    if not any(PLACE in w for w in words):
        return words
    folder = os.environ['DOCUMENTS_DIR']
    if not os.path.exists(f'{folder}/server.pid') and subprocess.call(
            ['plait', 'serve', '-m', 'MODEL.gguf'], cwd=folder,
            env={**os.environ, 'PATH': f'{folder}/bin:' + os.environ['PATH']}):
        sys.exit(1)
    with open(f'{folder}/server.log', encoding='utf-8') as log:
        port = re.findall(r'https?://\S+:(\d+)', log.read())[-1]
    return [w.replace(PLACE, f'127.0.0.1:{port}') for w in words]


# ---- pages -----------------------------------------------------------------

def make_folder(build, folder):
    """Makes a folder look like the checkout; returns the environment there."""
    for name in os.listdir(ROOT):
        if name == 'doc':
            shutil.copytree(os.path.join(ROOT, name), f'{folder}/doc')
        elif not name.startswith(('build', '.git')):
            os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
    for name in ('build', 'bin', 'home', 'home/models', 'tmp'):
        os.mkdir(os.path.join(folder, name))
    for name in os.listdir(build):
        if name not in ('plait', 'plait-test'):
            os.symlink(os.path.join(build, name),
                       os.path.join(folder, 'build', name))
    for name in ('build/plait', 'build/plait-test', 'bin/plait', 'bin/make',
                 'bin/curl'):
        os.symlink(os.path.abspath(__file__), os.path.join(folder, name))
    model = os.path.join(ROOT, 'models/fable-moe-Q8_0.gguf')
    for name in ('MODEL.gguf', 'SMALL.gguf', 'A.gguf', 'B.gguf',
                 'home/models/tales.gguf'):
        os.symlink(model, os.path.join(folder, name))
    environment = {k: v for k, v in os.environ.items()
                   if not re.match('PLAIT_|XDG_|HF_', k)}
    environment.update(
        PATH=f'{folder}/bin:{build}:' + os.environ['PATH'], LC_ALL='C.UTF-8',
        HOME=f'{folder}/home', TMPDIR=f'{folder}/tmp',
        PLAIT_MEMORY='64GiB', DOCUMENTS_DIR=folder,
        DOCUMENTS_PLAIT=os.path.join(build, 'plait'))
    return environment


def program_of(block):
    """Returns a block of C as a whole program."""
    text = '\n'.join(block.lines)
    if 'int main(' not in text:
        text = f'int main(void)\n{{\n{text}\nreturn 0;\n}}'
    return ''.join(f'#include <{h}>\n' for h in (
        'pl.h', 'pl_draft.h', 'pl_graph.h', 'pl_machines.h', 'pl_receipt.h', 'stdio.h', 'stdlib.h', 'string.h')) + text + '\n'


def run_block(block, environment, build, compile_only=False):
    """Runs a block; returns the exit status, its output and its errors."""
    folder = environment['DOCUMENTS_DIR']
    if block.kind() == 'program':
        with open(f'{folder}/program.c', 'w', encoding='utf-8') as f:
            f.write(program_of(block))
        line = (f'{os.environ.get("CC", "cc")} -std=c17 -Wall -Wextra '
                f'-I{shlex.quote(ROOT)}/include program.c ')
        if compile_only or not os.path.exists(f'{build}/libplait.so'):
            line += '-fsyntax-only'
        else:
            line += (f'-o program -L{shlex.quote(build)} -lplait '
                     f'-Wl,-rpath,{shlex.quote(build)} && ./program')
    else:
        line = block.shell()[0]
    with open(f'{folder}/err', 'w+', encoding='utf-8') as err:
        p = subprocess.run(['bash', '-eu', '-o', 'pipefail', '-c', line],
                           cwd=folder, env=environment, stderr=err,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           errors='replace')
        err.seek(0)
        return p.returncode, p.stdout, err.read()


def difference(shown, printed):
    """Returns the first words that are shown and not printed, or None."""
    words, at = printed.split(), 0
    gap = False
    for part in re.split(r'^\s*(\[\.\.\.\])\s*$', '\n'.join(shown), flags=re.M):
        want = part.split()
        if want == ['[...]']:
            gap = True
        elif want:
            places = range(at, len(words)) if gap else [at]
            at = next((i for i in places if words[i:i + len(want)] == want),
                      None)
            if at is None:
                return ' '.join(want[:12])
            at += len(want)
            gap = False
    return None if gap or at == len(words) else 'the end'


def stale_picture(folder):
    """Returns a complaint if a command has changed a file of doc/, or None."""
    for name in filecmp.dircmp(f'{ROOT}/doc', f'{folder}/doc').diff_files:
        shutil.copy(f'{ROOT}/doc/{name}', f'{folder}/doc/{name}')
        return f'doc/{name} is not what the command writes'
    return None


def run_pages(build, pages, flags):
    """Runs the blocks of pages; returns how many fail."""
    failed = 0
    for page in pages:
        todo = [b for b in blocks(page) if b.flag('long') == ('long' in flags)
                and b.kind() in ('commands', 'program')]
        if not todo:
            continue
        folder = tempfile.mkdtemp()
        environment = make_folder(build, folder)
        for block in todo:
            before = os.times()
            code, out, err = run_block(block, environment, build,
                                       'only-compile' in flags)
            spent = sum(os.times()[2:4]) - sum(before[2:4])
            if 'times' in flags:
                print(f'{spent:6.2f} s  {page}:{block.line}', flush=True)
            shown = block.shell()[1] if block.kind() == 'commands' else None
            why = None
            if code != 0:
                why = f'exit status {code}; it said: {(err or out)[-600:]}'
            elif shown and not (block.flag('varies') or
                              'any-output' in flags):
                words = difference(shown, out)
                if words:
                    why = f'it does not print as shown: {words}'
            if why is None and 'any-output' not in flags:
                why = stale_picture(folder)
            if why:
                failed += 1
                print(f'{page}:{block.line}: {why.strip()}', flush=True)
        os.chdir(folder)
        stop_server()
        os.chdir(ROOT)
        shutil.rmtree(folder)
    return failed


# ---- refreshing ------------------------------------------------------------

def anew(shown, printed):
    """Returns the output to show: the lines of it that were shown before, known
    by their indentation and first word."""
    def key(s):
        return re.match(r'\s*\S*', s)[0]

    wrapped = []
    for s in printed.rstrip('\n').split('\n'):
        wrapped += textwrap.wrap(s, 80) if len(s) > 110 and '|' not in s else [s]
    if '[...]' not in [s.strip() for s in shown]:
        return wrapped
    result, at = [], 0
    for s in shown:
        if s.strip() == '[...]':
            result.append('[...]')
            continue
        found = [i for i in range(at, len(wrapped)) if key(wrapped[i]) == key(s)]
        if found:
            at = found[0] + 1
            result.append(wrapped[at - 1].rstrip())
    return result


def refresh(build, names):
    for page in all_pages():
        todo = [b for b in blocks(page) if b.name in names]
        if not todo:
            continue
        path = os.path.join(ROOT, page)
        with open(path, encoding='utf-8') as f:
            lines = f.read().split('\n')
        for block in reversed(todo):
            shown = block.shell()[1]
            if shown is None:
                continue
            folder = tempfile.mkdtemp()
            code, out, err = run_block(block, make_folder(build, folder), build)
            shutil.rmtree(folder)
            if code != 0:
                sys.exit(f'{page}:{block.line}: {err}')
            indent = '    ' if lines[block.line - 1].startswith('    ') else ''
            first = block.line - 1 + block.lines.index(shown[0])
            lines[first:block.line - 1 + len(block.lines)] = [
                (indent + s).rstrip() for s in anew(shown, out)]
        with open(path, 'w', encoding='utf-8') as f:
            f.write('\n'.join(lines))


def main():
    name = os.path.basename(sys.argv[0])
    if name in ('plait', 'plait-test', 'make', 'curl'):
        sys.exit(as_command(name, sys.argv[1:]))
    flags = [w[2:] for w in sys.argv[1:] if w.startswith('--')]
    words = [w for w in sys.argv[1:] if not w.startswith('--')]
    if words[:1] == ['run'] and len(words) > 1:
        sys.exit(1 if run_pages(os.path.abspath(words[1]),
                                words[2:] or all_pages(), flags) else 0)
    if words[:1] == ['refresh'] and len(words) > 2:
        refresh(os.path.abspath(words[1]), words[2:])
    elif words[:1] == ['list']:
        for page in words[1:] or all_pages():
            for b in blocks(page):
                if b.kind() not in ('commands', 'program', 'text'):
                    print(f'{page}:{b.line}: {b.kind()}')
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()
