"""The rules of prose: comments of C and Python, and Markdown outside code. They
hold for every line of the rooms that are in plain words, and for new lines of
the others (OLD). A line is new if the diff since base() adds it and does not
remove it elsewhere; so a line that moves stays old."""
import os
import re
import subprocess
import sys

FLOOR = '864ead0d6796dd05ff1d0e9d8f30da9ac24ea980'  # lines up to here are old
# Rooms whose old lines are still to be put into plain words.
OLD = ('models/', 'scripts/', 'src/device/gpu/gpu_access',
       'src/device/gpu/gpu_deps', 'src/device/gpu/gpu_pdl',
       'src/device/gpu/text/', 'src/fit/', 'src/lower/')
STRINGS = r'"(?:\\.|[^"\\\n])*"|' r"'(?:\\.|[^'\\\n])*'"
# Comments and docstrings are in group 1; strings are there to be passed over.
C = re.compile(rf'(/\*.*?\*/|//[^\n]*)|{STRINGS}', re.S)
PYTHON = re.compile(r'((?:(?<=\n)|(?<!.))[ \t]*""".*?"""|'
                    r'#[^\n]*(?:\n[ \t]*#[^\n]*)*)|' rf'""".*?"""|{STRINGS}',
                    re.S)
RULES = [(re.compile(pattern), remedy) for pattern, remedy in (
    (r'^(What|Who|Whose|Whoever|Whatever|Whether|Which|How|How many)\b',
     'begin with the subject or with a verb'),
    (r'^(Does|Do|Is|Are|Has|Have|Can|Could|May|Must|Was|Were|Did|Should|Will)'
     r'\b[^.?]*\?', 'state it, do not ask'),
    (r'^Does\b', 'name the action'),
    (r'\b(is|are|was|were|be) none of\b', 'write "is not one of"'),
    (r'(?<![Tt]here )\b(is|are|was|were) no '
     r'(?!longer|more\b|less|fewer|other\b|such\b|error\b)[a-z]+',
     'negate the verb: "is not a ..."'),
    (r'[.;:] (Who|Whoever|Whose) (?!is\b|are\b)[a-z]',
     'name the thread, client or caller'),
    (r'(^|[.;] )Of (?!course\b)[a-z]', 'put the noun before its "of"'))]


def git(*words):
    return subprocess.run(('git', '-c', 'core.quotepath=off') + words,
                          capture_output=True, text=True, errors='replace')


def base():
    """Returns the later of FLOOR and PLAIT_BASE, by default the last merge or 30
    commits back; None without history."""
    log = git('rev-list', '--first-parent', '--parents', '-n31', 'HEAD')
    back = [line.split() for line in log.stdout.splitlines()[1:]]
    if not back:
        return None
    last = next((c for c in back if len(c) > 2), back[-1])[0]
    name = os.environ.get('PLAIT_BASE') or last
    found = git('rev-parse', '-q', '--verify', name + '^{commit}').stdout
    if not found:
        sys.exit(f'PLAIT_BASE: not a commit ({name}); fetch it or unset it')
    old = git('merge-base', '--is-ancestor', found.strip(), FLOOR)
    return FLOOR if old.returncode == 0 else found.strip()


def bare(line):
    """Returns a line without the marks of a comment around it."""
    return re.sub(r'^\s*(/\*+|\*(?!/)|//|#+|""")?\s*|\s*(\*/|""")?\s*$',
                  '', line)


def new_lines(since):
    """Returns the new lines, each a path and a number."""
    diff = git('diff', '-U0', '-M', '--no-color', '--no-ext-diff',
               '--src-prefix=a/', '--dst-prefix=b/', since, '--', '*.[ch]',
               '*.def', '*.py', '*.md', ':!tests/defects/README.md').stdout
    added, removed = {}, set()
    path, at, left = None, 0, 0  # left: lines of the hunk not yet read
    for line in diff.split('\n'):
        hunk = re.match(r'@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@', line)
        if left > 0 and line[:1] in ('-', '+'):
            left -= 1
            if line[0] == '-':
                removed.add(bare(line[1:]))
            else:
                added[path, at] = bare(line[1:])
                at += 1
        elif hunk:
            at, left = int(hunk[2]), int(hunk[1] or 1) + int(hunk[3] or 1)
        elif line.startswith('+++ b/'):
            path = line[6:].rstrip('\t')
    return {place for place, line in added.items() if line not in removed}


def comments(text, token):
    """Yields each comment as a list of (line, text)."""
    for m in token.finditer(text):
        if m[1]:
            n = text.count('\n', 0, m.start()) + 1
            yield list(enumerate(map(bare, m[1].split('\n')), n))


def paragraphs(text):
    """Yields the same of Markdown: paragraphs and items, but not headings."""
    unit, fenced = [], False
    for n, line in enumerate(text.split('\n'), 1):
        fence = line.lstrip().startswith(('```', '~~~'))
        item = re.match(r'\s*([-*+>]|\d+\.)\s+', line)
        ends = (fence or fenced or not line.strip() or line[0] == '#' or
                not (unit or item or line[:4].strip()))
        fenced ^= fence
        if item or ends:
            yield unit
            unit = []
        if not ends:
            unit.append((n, line[item.end() if item else 0:].strip()))
    yield unit


def complaints(since, files=()):
    """Yields (path, line, text) where a line breaks a rule: any line of `files`
    outside OLD, and lines new since a commit elsewhere. None: no line is
    new."""
    new = new_lines(since) if since else set()
    files = {path for path in files if not path.startswith(OLD) and
             re.search(r'\.(c|h|def|py|md)$', path)}
    for path in sorted(files | {path for path, _ in new}):
        with open(path, encoding='utf-8', errors='replace') as f:
            text = f.read()
        for unit in (paragraphs(text) if path.endswith('.md') else
                     comments(text, PYTHON if path.endswith('.py') else C)):
            at = [(path, n) for n, s in unit for _ in s + ' ']
            flat = ' '.join(s for _, s in unit)
            flat = re.sub(r'`[^`]*`', lambda m: 'x' * len(m[0]), flat)
            for rule, remedy in RULES:
                for m in rule.finditer(flat):
                    if path in files or not new.isdisjoint(
                            at[m.start():m.end()]):
                        yield *at[m.start()], f'"{m[0]}": {remedy}'
