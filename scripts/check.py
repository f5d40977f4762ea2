#!/usr/bin/env python3
"""check.py tree | symbols | staged [BUILD]: the laws of the tree that no compiler
knows. Each complaint is one line, FILE:LINE: what is wrong; exit status 1 if
there is any.

tree     reads the files that git tracks and needs no build: layers, headers that
         compile alone, kernels of AArch64, PTX of the kernels' text, words that
         library code may not use, what depends on the locale, what documents
         name and quote, doc/commands.md, environment variables, prose of new
         lines, formatting, names, line lengths, sizes of files. Then `symbols`,
         if the libraries in BUILD are newer than src/.
symbols  reads the libraries in BUILD: exported symbols, mutable globals.
staged   reads what the next commit adds, as Git's index has it: formatting, line
         lengths, words, names, sizes. For the hook pre-commit.
"""
import concurrent.futures
import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

import gpu_ptx
import manual
import prose

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CODE_DIRS = ('include', 'src', 'cli', 'server', 'hub', 'tests', 'bench',
             'fuzz', 'examples')
PUBLIC = ('include/pl.h', 'include/pl_draft.h', 'include/pl_graph.h',
          'include/pl_machines.h', 'include/pl_quantize.h',
          'include/pl_receipt.h')
AVX2 = ['-mavx2', '-mfma', '-mf16c']
AVX512 = AVX2 + ['-mavx512f', '-mavx512bw', '-mavx512vl', '-mavx512dq',
                 '-mavx512vnni']
AMX = AVX512 + ['-mamx-tile', '-mamx-int8']
ARM64 = {'neon': 'armv8-a', 'dotprod': 'armv8.2-a+dotprod',
         'i8mm': 'armv8.2-a+dotprod+i8mm'}  # -march of a kernel set's files
ARM64_HEADERS = '/usr/aarch64-linux-gnu/include'  # libc6-dev-arm64-cross
CC = shlex.split(os.environ.get('CC', 'gcc'))
LIBRARIES = {'libplait.so': ['-D'], 'libplait.a': ['-g']}  # options of nm
CLANG_FORMAT = 14  # others lay out some lines otherwise
MOST_BYTES = 12 << 20  # the bundled model has 10
MOST_BYTES_ALL = 40 << 20  # a copy of the tree must stay quick to send
complaints = []
pool = concurrent.futures.ThreadPoolExecutor(os.cpu_count())
pending = []


def complain(path, line, text):
    complaints.append((path, int(line), text))


def later(work, *args):
    """Calls work(*args) on a thread of the pool, to wait for a compiler there."""
    pending.append(pool.submit(work, *args))


def run(*command, stdin=None):
    return subprocess.run(command, input=stdin, capture_output=True, text=True,
                          errors='replace')


def in_git():
    """Returns true in a clone, false in an unpacked tarball."""
    if not os.path.exists('.git'):
        return False
    if not shutil.which('git'):
        sys.exit('check: git: not installed; scripts/deps.sh check installs it')
    p = run('git', 'rev-parse')
    if p.returncode != 0:
        sys.exit(f'check: {p.stderr.strip()}')
    return True


def tracked():
    """Returns the paths under git; in an unpacked tarball, of all files."""
    if in_git():
        names = run('git', 'ls-files', '-z').stdout.split('\0')
    else:
        names = [os.path.relpath(os.path.join(d, f), '.')
                 for d, _, files in os.walk('.') for f in files
                 if not re.match(r'\./(build|\.git/)|.*__pycache__', d)]
    return sorted(f for f in names if os.path.isfile(f))


def code_of(files):
    return [f for f in files if f.startswith(tuple(d + '/' for d in CODE_DIRS))
            and f.endswith(('.c', '.h', '.def'))]


@functools.cache
def text_of(path):
    with open(path, encoding='utf-8', errors='replace') as f:
        return f.read()


def lines_of(path):
    return text_of(path).split('\n')


@functools.cache
def bare(path):
    """The lines of a C file with comments, strings and characters blanked."""
    return prose.C.sub(lambda m: re.sub(r'[^\n]', ' ', m[0]),
                       text_of(path)).split('\n')


def is_fragment(path):
    """Included with macros set, so not a header of its own."""
    return re.search(r'(_tmpl|_template|list)\.h$|/gpu/text/', path) is not None


# ---- layers ----------------------------------------------------------------

def read_layers():
    allowed = {}
    for n, line in enumerate(lines_of('src/layers.txt'), 1):
        line = line.split('#')[0].strip()
        if not line:
            continue
        layer, _, names = line.partition(':')
        for name in names.split():
            if name not in allowed:
                complain('src/layers.txt', n, f'{layer} names {name}, which '
                         'must stand on a line above: layers have an order')
        allowed[layer] = set(names.split()) | {layer}
    return allowed


def check_layers(code):
    allowed = read_layers()
    for path in code:
        part = path.split('/')
        layer = part[1] if part[0] == 'src' and len(part) > 2 else None
        if part[0] == 'src' and layer not in allowed:
            complain(path, 1, f'src/layers.txt has no line "{layer}:"')
            continue
        if part[0] in ('tests', 'bench', 'fuzz'):
            continue
        for n, line in enumerate(lines_of(path), 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not m or 'include/' + m[1] in PUBLIC:
                continue
            here = os.path.join(os.path.dirname(path), m[1])
            if os.path.isfile(here):
                continue
            if part[0] == 'cli' and m[1].startswith(
                    ('server/', 'hub/', 'bench/')):
                continue  # the command has all three within
            if layer is None:
                complain(path, n, f'"{m[1]}": {part[0]}/ sees only the '
                         'public headers')
            elif m[1].split('/')[0] not in allowed[layer]:
                complain(path, n, f'"{m[1]}": src/layers.txt does not allow '
                         f'{layer} to include it')


def check_kinds(code):
    """A kind of device is known in its folder and in the table of kinds."""
    kinds = sorted({f.split('/')[2] for f in code
                    if re.match(r'src/device/\w+/', f)})
    mention = re.compile('|'.join(kinds), re.I)
    for path in code:
        part = path.split('/')
        if part[0] != 'src' or path in ('src/device/device_backends.c',
                                        'src/device/device_ops.h'):
            continue
        inside = part[2] if part[1] == 'device' and part[2] in kinds else None
        named = lines_of(path)
        for n, line in enumerate(bare(path), 1):
            for kind in kinds if mention.search(named[n - 1]) else ():
                if kind == inside:
                    continue
                # a kind may borrow the kernels of this machine's processors
                if inside and kind == 'cpu':
                    continue
                if (re.search(rf'\b{kind}_(ops|device|bank|image|run)\b', line)
                        or f'"device/{kind}/' in named[n - 1]
                        or f'DEVICE_{kind.upper()}' in line):
                    complain(path, n, f'knows the kind {kind}: only its folder '
                             'and device_backends.c may')


# ---- headers, symbols, globals ---------------------------------------------

def compile_header(path):
    flags = (AMX if 'amx' in path else AVX512 if 'avx512' in path
             else AVX2 if 'avx2' in path else [])
    if flags and platform.machine() not in ('x86_64', 'AMD64'):
        print(f'check: {path} is not compiled, its instructions are those of '
              'x86-64')
        return
    p = run(*CC, '-std=gnu17', '-D_GNU_SOURCE', '-Wall', '-Wextra', '-Werror',
            '-fsyntax-only', '-Iinclude', '-Isrc', '-I.', '-Itests', *flags,
            '-x', 'c', '-', stdin=f'#include "{path}"\n')
    if not p.stderr and path.startswith('include/'):
        p = run('clang', '-std=c++11', '-Wall', '-Wextra', '-Werror',
                '-fsyntax-only', '-Iinclude', '-x', 'c++', '-',
                stdin=f'#include "{path}"\n')
    m = re.search(r'^([^:\n]+):(\d+):\d+: (?:fatal )?error: (.*)', p.stderr,
                  re.M)
    if m:
        complain(m[1], m[2], f'{m[3]} ({path} must compile alone)')
    elif p.stderr or p.returncode != 0:
        complain(path, 1, (p.stderr or 'does not compile').split('\n')[0])


def check_headers(code):
    for path in code:
        if path.endswith('.h') and not is_fragment(path):
            later(compile_header, path)


def compile_arm64(path, march):
    p = run('clang', '--target=aarch64-linux-gnu', f'-march={march}',
            '-std=gnu17', '-D_GNU_SOURCE', '-Wall', '-Wextra', '-Wshadow',
            '-Wvla', '-Werror', '-fsyntax-only', '-Iinclude', '-Isrc',
            '-isystem', ARM64_HEADERS, path)
    if p.returncode != 0:
        complain(path, 1, f'does not compile for AArch64: {p.stderr}')


def check_arm64(code):
    """The kernels of AArch64 compile, where its C library's headers are."""
    if not os.path.isdir(ARM64_HEADERS):
        print(f'check: no {ARM64_HEADERS}, the kernels of AArch64 are not '
              'compiled')
        return
    for path in code:
        m = re.search(r'/cpu/cpu_\w+_(neon|dotprod|i8mm)\.c$', path)
        if m:
            later(compile_arm64, path, ARM64[m[1]])


def check_ptx():
    """The committed PTX is of the kernels' text, and says how it rounds."""
    for path, what in gpu_ptx.complaints():
        complain(path, 1, what)


def check_defects():
    """Every planted defect applies and names a case, and their table is new."""
    p = run(sys.executable, 'tests/defects/run.py', '--dry')
    if p.returncode != 0:
        for line in (p.stdout + p.stderr).strip().split('\n'):
            complain('tests/defects/README.md', 1, line)


def check_versions():
    """The Debian packages and the examples name the version of meson.build, and
    a package the library's soname."""
    text = text_of('meson.build')
    version = re.search(r"version: '(.*)'", text)[1]
    soversion = re.search(r"soversion = '(.*)'", text)[1]
    for path, want in (
            ('debian/changelog', f'plait ({version}) '),
            ('debian/control', f'\nPackage: libplait{soversion}\n'),
            ('examples/CMakeLists.txt',
             f'find_package(plait {version.rpartition(".")[0]} ')):
        if want not in text_of(path):
            complain(path, 1, f'not found: "{want.strip()}", as meson.build '
                     'has it')


def check_symbols(build):
    public = set()
    for header in PUBLIC:
        public |= set(re.findall(r'\bpl_\w+', '\n'.join(bare(header))))
    for name, flags in LIBRARIES.items():
        path = os.path.join(build, name)
        p = run('nm', '--defined-only', *flags, path)
        if p.returncode != 0:
            complain(path, 1, p.stderr.strip())
        for line in p.stdout.split('\n'):
            symbol = line.split()[-1] if len(line.split()) == 3 else None
            if symbol and symbol not in public:
                complain(path, 1, f'exports {symbol}, which pl.h does not '
                         'declare')


def check_globals(build):
    """No mutable data in the library: nothing in .data or .bss, but for what of
    the process's memory CUDA was told of, which it keeps for the process."""
    path = os.path.join(build, 'libplait.a')
    p = run('objdump', '-t', path)
    if p.returncode != 0:
        complain(path, 1, p.stderr.strip())
    for line in p.stdout.split('\n'):
        m = re.match(r'[0-9a-f]{16} .{7} (\S+)\s+([0-9a-f]+)\s+(.*)', line)
        if not m or not int(m[2], 16) or '.rel.ro' in m[1]:
            continue
        if m[3].split()[-1] in ('opencl_tried', 'stream_ranges'):
            continue
        if re.match(r'\.t?(data|bss)|\*COM\*', m[1]):
            complain(path, 1, f'{m[3].split()[-1]} is a mutable global '
                     f'({m[1]}); hand it down or make it const')


# ---- words -----------------------------------------------------------------

# Put together from pieces, so that this file does not hold what it looks for.
FOREIGN = re.compile('|'.join([
    'clau' 'de', 'anthro' 'pic', 'chat' 'gpt', 'cod' 'ex\\b', 'copi' 'lot',
    '(?<![-\\w])(?:sub)?-?age' 'nts?\\b', 'co-auth' 'ored-by', 'brie' 'f\\.md',
    '/wo' 'rk/', '/ro' 'ot/', '/ho' 'me/\\w', '/tm' 'p/\\w+_jobs',
]), re.I)
UNFINISHED = re.compile('\\b(TO' 'DO|FIX' 'ME|XX' 'X|HA' 'CK)\\b')
PRINTS = re.compile(r'\b(?:(?:abort|_?exit|quick_exit|v?printf|puts|putchar|'
                    r'perror) ?\(|stdout\b|stderr\b)')
# What the host program's locale has a say in; base/numeral.h and base/ascii.h
# have the same without it.
LOCALE = re.compile(r'\b(?:strto(?:d|f|ld)|atof|vsnprintf|setlocale|setenv|'
                    r'is(?:alnum|alpha|lower|print|space|upper)|'
                    r'to(?:lower|upper)|strn?casecmp|strcoll) ?\(')
FRACTION = re.compile(r'%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[aefgAEFG]')


# These lose members and characters, without an error, if memory runs out.
LOSES = re.compile(r'(?<!\w)json_(?:copy|dumps)\(')
WHOLE = ('src/base/whole_json.c', 'server/json_text.c')


def check_json(path):
    for n, line in enumerate(bare(path), 1):
        m = LOSES.search(line)
        if m and path not in WHOLE:
            complain(path, n, f'{m[0]}: may lose a part; use base/whole_json.h, '
                     'or json_text.h of the server')


def check_locale(path):
    for n, line in enumerate(bare(path), 1):
        m = LOCALE.search(line)
        if m:
            complain(path, n, f'{m[0]}: depends on the locale; see '
                     'base/numeral.h and base/ascii.h')
    text = text_of(path)
    for m in re.finditer(r'\bsnprintf\((?:"(?:\\.|[^"\\])*"|[^;"])*;', text):
        strings = re.findall(r'"((?:\\.|[^"\\])*)"', m[0])
        if FRACTION.search(''.join(strings)):
            complain(path, text.count('\n', 0, m.start()) + 1,
                     'snprintf of a fraction: use numeral_print, whose point '
                     'no locale makes a comma')


def check_words(files, code):
    for path in files:
        if re.match(r'tests/refs/|fuzz/corpus/|models/.*\.txt$', path):
            continue
        with open(path, 'rb') as f:
            if b'\0' in f.read(8192):
                continue
        text = text_of(path)
        if not (FOREIGN.search(text) or UNFINISHED.search(text)):
            continue
        for n, line in enumerate(lines_of(path), 1):
            m = FOREIGN.search(line)
            if m:
                complain(path, n, f'"{m[0]}" does not belong to the project')
            m = UNFINISHED.search(line)
            if m:
                complain(path, n, f'{m[0]}: finish it or file it')
    for path in code:
        if re.match(r'(?:src|cli|server|hub)/', path):
            check_json(path)
        if not path.startswith('src/'):
            continue
        for n, line in enumerate(bare(path), 1):
            m = PRINTS.search(line.replace('format(printf', ''))
            if m:
                complain(path, n, f'{m[0]}: the library neither ends the '
                         'process nor prints')
        if path != 'src/base/numeral.c':
            check_locale(path)


# ---- documents -------------------------------------------------------------

# Most words of a page, as wc counts them; more is a warning.
MOST_WORDS = {
    'README.md': 1000, 'CONTRIBUTING.md': 500, 'SECURITY.md': 500,
    'doc/adding.md': 2500, 'doc/architecture.md': 3800,
    'doc/benchmarks.md': 4000, 'doc/install.md': 700, 'doc/kernels.md': 4000,
    'doc/limits.md': 650, 'doc/families.md': 350,
    'doc/numerics.md': 1900, 'doc/ollama.md': 600, 'doc/receipts.md': 1400,
    'doc/server.md': 3200,
    'doc/testing.md': 1300, 'doc/user-guide.md': 2600,
}
OPTIONS = re.compile(r'(?<![\w-])--?[a-z][\w-]*[a-z0-9]')


def anchors_of(path):
    """Returns the anchors of a page's headings, as GitHub makes them."""
    seen, fenced = [], False
    for line in lines_of(path):
        fenced ^= line.startswith('```')
        m = re.match(r'#+ +(.*)', line)
        if m and not fenced:
            text = re.sub(r'\[([^]]*)\]\([^)]*\)|`', r'\1', m[1]).strip()
            slug = re.sub(r'[^\w\- ]', '', text.lower()).replace(' ', '-')
            n = sum(re.fullmatch(re.escape(slug) + r'(-\d+)?', s) is not None
                    for s in seen)
            seen.append(f'{slug}-{n}' if n else slug)
    return seen


def check_links(doc, n, line, there):
    for link in re.findall(r'\]\(([^)\s]+)\)', line):
        path, _, anchor = link.partition('#')
        if re.match(r'\w+:', path):
            continue
        path = os.path.normpath(os.path.join(os.path.dirname(doc), path)
                                if path else doc)
        if not there(path):
            complain(doc, n, f'links to {path}, which is not there')
        elif anchor and path.endswith('.md') and anchor not in anchors_of(path):
            complain(doc, n, f'links to {link}; {path} has no such heading')
COMMANDS = 'doc/commands.md'
LLAMA_OPTIONS = 'doc/llama-options.md'
# Read, but no settings of plait: the system's, hwloc's, and one for tests.
NOT_OF_USERS = {'HOME', 'TERM', 'HWLOC_XMLFILE', 'HWLOC_COMPONENTS',
                'HWLOC_CPUID_PATH', 'PL_DEBUG'}


def check_documents(files):
    """The documents' links lead to files and headings, and what they name in
    code marks exists: paths, benches, options of commands, identifiers with an
    underscore in the tree's text."""
    docs = [f for f in files if re.match(r'\w+\.md$|doc/.*\.md$', f)]
    folders = {f[:m.start()] for f in files for m in re.finditer('/', f)}
    first = {f.split('/')[0] for f in folders}
    words, options = set(), set()
    for path in files:
        if path in docs or re.match(r'tests/refs/|.*\.gguf$', path):
            continue
        words.update(re.findall(r'\w+', '\n'.join(lines_of(path))))
        if re.match(r'(cli|scripts|bench|debian)/|Makefile|Containerfile|'
                    r'tests/main.c|tests/defects/run.py', path):
            options.update(OPTIONS.findall(text_of(path)))

    def there(path):
        return path in files or path.rstrip('/') in folders

    for doc in docs:
        fence = None
        for n, line in enumerate(lines_of(doc), 1):
            if line.startswith('```'):
                fence = line[3:] if fence is None else None
            code = [line] if fence in (None, 'sh') else []
            if fence is None and not line.startswith('    '):
                check_links(doc, n, line, there)
                code = re.findall(r'`([^`]+)`', line)
            for word in ' '.join(code).split():
                bench = re.fullmatch(r'build/bench-(\w+)', word)
                if bench and f'bench/bench_{bench[1]}.c' not in files:
                    complain(doc, n, f'names {word}, which nothing builds')
                if (re.fullmatch(r'[\w.-]+(/[\w.-]+)+/?', word) and
                        word.split('/')[0] in first and not there(word)):
                    complain(doc, n, f'names {word}, which is not there')
                if (re.fullmatch(r'[A-Za-z]\w*_\w*[A-Za-z0-9]', word) and
                        word not in words):
                    complain(doc, n, f'names {word}, which is nowhere in the '
                             'tree')
                if (word.startswith('--') and OPTIONS.fullmatch(word) and
                        word not in options):
                    complain(doc, n, f'names {word}, which no command has')
    check_lengths(docs)


def check_lengths(docs):
    """Prints the words of each page, and warns where there are too many."""
    count = {doc: len(text_of(doc).split()) for doc in docs}
    print('check: words:', ', '.join(f'{re.sub("^doc/", "", doc)} {count[doc]}'
                                     for doc in docs))
    for doc, most in MOST_WORDS.items():
        if count.get(doc, 0) > most:
            print(f'check: {doc}: {count[doc]} words, {most} are enough')


def check_quotes(files):
    """Code below a line <!-- PATH --> of a document is in that file, line by
    line."""
    for doc in files:
        if not doc.endswith('.md'):
            continue
        lines = lines_of(doc)
        for n, line in enumerate(lines, 1):
            m = re.fullmatch(r'<!-- (examples/\S+) -->', line)
            if not m:
                continue
            if m[1] not in files or not lines[n].startswith('```'):
                complain(doc, n, f'{m[1]}: no such file, or no code below')
                continue
            end = lines.index('```', n + 1)
            quote = '\n'.join(lines[n + 1:end])
            if f'\n{quote}\n' not in f'\n{text_of(m[1])}':
                complain(doc, n, f'the code below is not in {m[1]}; copy it '
                         'anew')


def check_commands():
    """doc/commands.md and doc/llama-options.md are of the tables of options,
    whose environment variables are those that the code reads."""
    try:
        t = manual.read_table()
    except subprocess.CalledProcessError as e:
        complain('cli/option_table.c', 1, f'does not compile: {e.stderr}')
        return
    for page, text in ((COMMANDS, manual.print_md(t)),
                       (LLAMA_OPTIONS, manual.print_llama(t))):
        if not os.path.isfile(page) or text_of(page) != text:
            complain(page, 1, 'differs from the tables of options; `make '
                     'commands` writes it')
    known = {name for name, _, _ in t['environment']}
    found = set()
    for path in tracked():
        if re.match(r'(src|cli|server|hub)/.*\.[ch]$', path):
            for m in re.finditer(r'"(PLAIT_[A-Z_]+)"|getenv\("([A-Z]\w+)"\)',
                                 text_of(path)):
                name = m[1] or m[2]
                found.add(name)
                if name not in known and name not in NOT_OF_USERS:
                    complain(path, text_of(path).count('\n', 0, m.start()) + 1,
                             f'{name}: environment_table of '
                             'cli/option_table.c lacks it')
    for name in sorted(known - found):
        complain('cli/option_table.c', 1, f'{name}: nothing reads it')


# ---- files that are written -------------------------------------------------

WRITERS = 'doc/files.md'  # its table has all places that write
# Files that may open for writing, rename or link, beside their table's row:
# what they call, and why pl_file_open does not do.
OPENS = {
    'src/base/replace.c': ({'open', 'linkat', 'rename'}, 'it is pl_file_open'),
    'server/tier_disk.c': ({'openat', 'linkat', 'renameat'},
                           'names are keys, relative to a folder that may '
                           'move; no fsync, since a page may be lost'),
    'hub/hub_files.c': ({'open'}, 'a lock, which has no contents'),
    'hub/hub_cache.c': ({'link', 'rename'}, 'a file of the cache gets another '
                        'name, where there is none'),
    'cli/serve_receipts.c': ({'open', 'ftruncate'}, 'it appends lines to a file '
                             'that is complete at no time'),
    'cli/cli_error.c': ({'open'}, 'it appends messages to a log, which is '
                        'complete at no time'),
    'cli/term.c': ({'open'}, '/dev/null, in place of a closed descriptor'),
}
CHANGES = re.compile(r'(?<![\w>.])(open|openat|open64|fopen|freopen|creat|'
                     r'mk(?:o?stemps?)|tmpfile|json_dump_file|rename|'
                     r'renameat2?|link|linkat|f?truncate|copy_file_range|'
                     r'sendfile) ?\(')
READS = re.compile(r'"r[be]*"|O_RDONLY')
WRITES = re.compile(r'O_(?:WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)')
SHORTENS = {'hub/hub_download.c'}  # what it has opened by pl_file_open


def call_at(text, at):
    """Returns the arguments of the call whose parenthesis opens at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {'(': 1, ')': -1}.get(text[i], 0)
        if depth == 0:
            return text[at:i]
    return text[at:]


def check_writers(code):
    """Files are written by pl_file_open alone, and WRITERS tells of each."""
    table = {}
    for n, line in enumerate(lines_of(WRITERS), 1):
        cells = [c.strip() for c in line.split('|')]
        if len(cells) == 6 and re.match(r'`(src|cli|server|hub)/', cells[1]):
            for path in re.findall(r'`([^`]+)`', cells[1]):
                table[path] = n
            if not re.search(r'`\w+`', cells[4]):
                complain(WRITERS, n, 'names no test of that guard')
    for path in code:
        if path.split('/')[0] not in ('src', 'cli', 'server', 'hub'):
            continue
        text = prose.C.sub(lambda m: re.sub(r'[^\n]', ' ', m[0])
                           if m[1] else m[0], text_of(path))
        allowed = OPENS.get(path, (set(), ''))[0]
        unused = set(allowed)
        for m in CHANGES.finditer('\n'.join(bare(path))):
            call = call_at(text, m.end() - 1)
            if (READS.search(call) and not WRITES.search(call) or
                    re.search(rf'^static .*\b{m[1]}\(', text, re.M)):
                continue  # it reads, or is a function of this file
            unused.discard(m[1])
            if m[1] not in allowed and not (m[1] == 'ftruncate' and
                                            path in SHORTENS):
                complain(path, text.count('\n', 0, m.start()) + 1,
                         f'{m[1]}: files are written by pl_file_open, which '
                         'replaces none that must stay')
        for name in sorted(unused):
            complain(path, 1, f'calls no {name} any more: see OPENS in '
                     'scripts/check.py')
        if ('pl_file_open(' in text or allowed) and path not in table:
            complain(path, 1, f'writes files: {WRITERS} has no row of it')
        elif 'pl_file_open(' not in text and not allowed and path in table:
            complain(WRITERS, table[path], f'{path} writes no file any more')


# ---- form ------------------------------------------------------------------

@functools.cache
def note_clang_format():
    version = run('clang-format', '--version').stdout.strip()
    if f' version {CLANG_FORMAT}.' not in version:
        print(f'check: the tree is laid out by clang-format {CLANG_FORMAT}; '
              f'others differ in places, and here is {version}')


def check_format(paths):
    p = run('clang-format', '--dry-run', '-Werror', *paths)
    seen = set()
    for m in re.finditer(r'^([^:\n]+):(\d+):\d+: error', p.stderr, re.M):
        if m[1] not in seen:
            complain(m[1], m[2], 'run clang-format -i on it')
        seen.add(m[1])
    if p.returncode != 0 and not seen:
        complain('.clang-format', 1, p.stderr.strip().split('\n')[0])
    if seen:
        note_clang_format()


def check_form(code):
    pretty = [f for f in code if f.endswith(('.c', '.h'))]
    for i in range(0, len(pretty), 32):
        later(check_format, pretty[i:i + 32])
    for path in code:
        lines = lines_of(path)
        if not lines[0].startswith('/*'):
            complain(path, 1, 'opens without a comment that says what it is')
        for n, line in enumerate(lines, 1):
            if len(line) > 80:
                complain(path, n, f'{len(line)} columns, 80 allowed')


def check_names(files):
    first = {}
    for path in files:
        name = os.path.basename(path)
        if not name.endswith(('.c', '.h', '.def', '.py', '.sh')):
            continue
        if name in first:
            complain(path, 1, f'{first[name]} has this name too')
        first.setdefault(name, path)


def check_sizes(files):
    for path in files:
        size = os.path.getsize(path)
        if size > MOST_BYTES:
            complain(path, 1, f'{size} bytes, {MOST_BYTES} allowed: models and '
                     'measurements are made by a command, not kept')


def check_sum(files):
    """Returns the bytes of all files."""
    size = {path: os.path.getsize(path) for path in files}
    total = sum(size.values())
    if total > MOST_BYTES_ALL:
        large = ', '.join(sorted(size, key=size.get)[:-6:-1])
        complain('.', 1, f'{total} bytes in all files, {MOST_BYTES_ALL} '
                 f'allowed; the largest are {large}')
    return total


# ---- the three modes -------------------------------------------------------

def need(*commands):
    for command in commands:
        if not shutil.which(command):
            sys.exit(f'check: {command}: not installed; scripts/deps.sh check '
                     'installs it')


def check_staged():
    need('git', 'clang-format')
    names = run('git', 'diff', '--cached', '--name-only', '--diff-filter=d',
                '-z').stdout.split('\0')[:-1]
    everywhere = run('git', 'ls-files', '-z').stdout.split('\0')
    with tempfile.TemporaryDirectory() as folder:
        run('git', 'checkout-index', '-z', '--stdin', f'--prefix={folder}/',
            stdin='\0'.join(names + ['.clang-format']))
        os.chdir(folder)
        files = [f for f in names if os.path.isfile(f)]
        check_form(code_of(files))
        check_words(files, code_of(files))
        check_names(everywhere)
        check_sizes(files)
        finish()
        os.chdir(ROOT)
    return f'{len(files)} staged files'


def check_built(build):
    need('nm', 'objdump')
    check_symbols(build)
    check_globals(build)


def why_not_built(build, files):
    """Returns why the libraries are not those of the tree, None if they are."""
    made = [os.path.join(build, name) for name in LIBRARIES]
    if not all(map(os.path.exists, made)):
        return f'no libraries in {os.path.relpath(build)}'
    since = min(map(os.path.getmtime, made))
    for path in files:
        if (re.match(r'(src|include)/|meson\.build$|scripts/plait\.map$', path)
                and os.path.getmtime(path) > since):
            return f'{path} is newer than {os.path.relpath(made[0])}'
    return None


def check_prose(files):
    since = prose.base() if in_git() else None
    if since is None:
        print('check: no history of Git, so new lines of old rooms are not '
              'checked for prose')
    files = [f for f in files if f != 'tests/defects/README.md']
    for path, n, what in prose.complaints(since, files):
        complain(path, n, what)


def check_tree(build):
    need(CC[0], 'clang', 'clang-format')
    files = tracked()
    code = code_of(files)
    check_prose(files)
    check_headers(code)
    check_form(code)
    check_arm64(code)
    check_layers(code)
    check_kinds(code)
    later(check_commands)
    check_ptx()
    check_defects()
    check_versions()
    check_words(files, code)
    check_documents(files)
    check_quotes(files)
    check_writers(code)
    check_names(files)
    check_sizes(files)
    total = check_sum(files)
    why = why_not_built(build, files)
    if why:
        print(f'check: {why}, so symbols and globals are not checked; make '
              'check-symbols does')
    else:
        check_built(build)
    finish()
    return (f'{len(files)} files, {total / (1 << 20):.1f} of '
            f'{MOST_BYTES_ALL >> 20} MiB')


def finish():
    """Waits for the pool, and prints what was found."""
    for job in pending:
        job.result()
    for path, n, what in sorted(complaints):
        print(f'{path}:{n}: {what}')


def main():
    mode, *rest = sys.argv[1:] or ['']
    build = os.path.abspath(rest[0] if rest else 'build')
    os.chdir(ROOT)
    if mode == 'tree':
        what = check_tree(build)
    elif mode == 'symbols':
        check_built(build)
        finish()
        what = os.path.relpath(build)
    elif mode == 'staged':
        what = check_staged()
    else:
        sys.exit(__doc__)
    print(f'check: {what}, {len(complaints)} complaints')
    sys.exit(1 if complaints else 0)


if __name__ == '__main__':
    main()
