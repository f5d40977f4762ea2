#!/usr/bin/env python3
"""manual.py [--table PROGRAM] md|llama|man|bash|zsh|fish [FILE ...]: writes
the reference of all commands (doc/commands.md), of llama.cpp's options
(doc/llama-options.md), man pages, or a shell's completions
from the tables of cli/option_table.c. PROGRAM is plait-table, which prints them;
without it, it is compiled. A man page's FILE is plait.1 or plait-COMMAND.1."""
import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = ['cli/table_dump.c', 'cli/option_table.c', 'cli/option_set.c',
           'cli/number.c', 'cli/cli_error.c', 'cli/printable.c', 'cli/llama_table.c',
           'cli/word_list.c', 'server/draft_types.c', 'server/sampler_names.c',
           'src/draft/draft_names.c', 'src/sampling/sampling_names.c']
FLAGS = ['-std=gnu17', '-D_GNU_SOURCE', '-I.', '-Iinclude']
TOP = ['help', '--help', '--help-all', '--version']  # beside the commands


def read_table(program=None):
    """Returns the tables; raises CalledProcessError if they do not compile."""
    with tempfile.TemporaryDirectory() as folder:
        if program is None:
            program = os.path.join(folder, 'plait-table')
            subprocess.run([*shlex.split(os.environ.get('CC') or 'cc'), *FLAGS,
                            '-o', program, *SOURCES, '-ljansson'], cwd=ROOT,
                           check=True, capture_output=True, text=True)
        t = json.loads(subprocess.run([program], check=True, text=True,
                                      capture_output=True).stdout)
    heading, rows = None, []
    for row in t['options']:
        if not row['names']:
            heading = row['help']
            continue
        row['heading'] = heading
        row['help'] += f" Default: {row['value']}." if row['value'] else ''
        row['same'] = same_of(t, row['names'])
        row['files'] = row['arg'] == 'FILE'
        rows.append(row)
    t['options'] = rows
    return t


def same_of(t, names):
    """Returns the options of llama.cpp that do the same as one of `names`."""
    same = []
    for row in t['llama']:
        m = re.match(r'use (`plait \w+`)$', row['text'] or '')
        if (m and m[1] in names) or (row['effect'] == 'means' and
                                     row['value'] is None and
                                     row['text'] in names):
            same += row['names'].split()
    return same


def options_of(t, command):
    return [row for row in t['options'] if command in row['commands']]


def by_heading(rows):
    """Returns {heading: rows} in the order of the table."""
    groups = {}
    for row in rows:
        groups.setdefault(row['heading'], []).append(row)
    return groups


def summary(row):
    """Returns the first sentence, without its period."""
    return re.split(r'\. |\.$', row['help'])[0]


# ---- doc/commands.md ---------------------------------------------------------

def md(text):
    return re.sub(r'([\\|*_<\[])', r'\\\1', text)


def md_table(head, rows):
    lines = [head, ['---'] * len(head), *rows]
    return [''.join(f'| {cell} ' for cell in line) + '|' for line in lines] + ['']


def md_title(heading, command=None):
    """Returns a heading, and what it has in parentheses as a paragraph."""
    title, _, note = heading.partition(' (')
    title = f'### plait {command}: {title}' if command else f'### {title}'
    note = note.removesuffix(')')
    return [title, ''] + ([f'{note[0].upper()}{md(note[1:])}.', ''] if note
                          else [])


def md_options(rows, command=None):
    """Returns the tables of a command's own rows, or of shared ones."""
    lines = []
    for heading, group in by_heading(rows).items():
        table = []
        every = max((row['commands'] for row in group), key=len)
        for row in group:
            names = ', '.join(f'`{name}`' for name in row['names'])
            text = row['help'].removesuffix(f" Default: {row['value']}.")
            if row['same']:
                text += f" llama.cpp: {', '.join(row['same'])}."
            line = [names, md(row['arg'] or ''), md(row['value'] or ''),
                    md(text)]
            if not command:
                line.append(', '.join(row['commands']))
            table.append(line)
        lines += md_title(heading, command)
        if not command and all(r['commands'] == every for r in group):
            lines += [f"Commands: {', '.join(every)}.", '']
            table = [line[:-1] for line in table]
        elif not command:
            lines += [f"Commands: {', '.join(every)}, unless the last column "
                      'names them.', '']
            table = [line[:-1] + ['' if line[-1] == ', '.join(every)
                                  else line[-1]] for line in table]
        lines += md_table(['option', 'value', 'default', 'meaning', 'commands']
                          [:len(table[0])], table)
    return lines


def print_md(t):
    shared = [row for row in t['options'] if len(row['commands']) > 1]
    lines = ['# Commands', '',
             'This page is for users who look up an option. `make commands` '
             'generates it from', '`cli/option_table.c`. `plait COMMAND --help` '
             'prints the options that are used most,', '`--help-all` prints all '
             'of them.', '',
             'The value of an option is the next word, or follows `=`: '
             '`--port 80`, `--port=80`.', 'A file that a command writes appears '
             'whole or not at all. A command never writes', 'a file that it '
             'reads.', '']
    lines += md_table(['command', 'purpose'],
                      [[f"[`plait {c['name']}`](#plait-{c['name']})",
                        md(c['text'])] for c in t['commands']])
    for c in t['commands']:
        rows = options_of(t, c['name'])
        same = same_of(t, [f"`plait {c['name']}`"])
        lines += [f"## plait {c['name']}", '', f"{md(c['text'])}.", '',
                  f"    {c['example']}", '']
        if same:
            lines += [f"llama.cpp: {', '.join(same)}.", '']
        titles = [heading.partition(' (')[0]
                  for heading in by_heading(r for r in rows if r in shared)]
        links = [f"[{title}](#{title.lower().replace(' ', '-')})"
                 for title in titles]
        lines += [f"It shares options with other commands: {', '.join(links)}.",
                  '']
        lines += md_options((r for r in rows if r not in shared), c['name'])
        if c['name'] == 'run':
            lines += ['### plait run: Commands of a chat', '']
            lines += md_table(['command', 'effect'],
                              [[f'`{name} {arg}`'.replace(' `', '`'), md(text)]
                               for name, arg, text in t['chat']])
            lines += [t['chat_note'], '']
    lines += ['## Options of several commands', '']
    lines += md_options(shared)
    lines += ['## Options of llama.cpp', '', 'plait keeps the names and the '
              'meaning of llama.cpp\'s options.', '[llama-options.md]'
              '(llama-options.md) says of each what it does here.', '']
    lines += ['## Environment variables', '']
    lines += md_table(['variable', 'meaning'],
                      [[f'`{name}={value}`', md(text)]
                       for name, value, text in t['environment']])
    lines += ['## Exit codes', '']
    lines += md_table(['code', 'cause'], [[str(n), md(text)]
                                          for n, text in t['exit']])
    return '\n'.join(lines).rstrip('\n') + '\n'


# ---- options of llama.cpp ------------------------------------------------------

TOOLS = {'serve': 'llama-server', 'run': 'llama-cli', 'bench': 'llama-bench'}
# The tests that hold a row to what it says, by its effect.
LAWS = {'works': 'llama_options_that_work_change_the_options',
        'means': 'llama_options_that_mean_another_equal_it',
        'unsets': 'llama_options_that_unset_a_flag_take_it_back',
        'passed over': 'llama_options_passed_over_change_nothing',
        'refused': 'llama_options_refused_say_what_to_do'}


def llama_effect(row):
    text = row['text'] or ''
    if row['effect'] == 'works':
        return f'works: {text}' if text else 'works'
    if row['effect'] == 'means':
        return f"means `{' '.join(filter(None, (text, row['value'])))}`"
    if row['effect'] == 'unsets':
        return f'takes back `{text}`'
    return f"{row['effect']}: {text}"


def print_llama(t):
    count = len({n for row in t['llama'] for n in row['names'].split()})
    lines = ["# Options of llama.cpp's tools", '',
             'This page is for users who bring a start line of llama-server, '
             'llama-cli or', 'llama-bench to `plait serve`, `plait run` or '
             '`plait bench`. `make commands`', 'generates it from '
             f'`cli/llama_table.c`, which knows {count} spellings.', '',
             'An option *works*, or *means* another one here, or is *passed '
             'over*, because it', 'changes no result, or is *refused*, because '
             'it would change a result or asks for', 'something else. One '
             'note lists all options passed over. A variable stands for its',
             'option, which takes precedence; `!` before a variable is its '
             'inverse. An empty', 'variable stands for nothing, unless the '
             'option needs a number or a word.', '`LLAMA_ARG_NO_*` counts '
             'whatever its value is.', '']
    lines += md_table(['effect', 'test that holds each row to it'],
                      [[effect, f'`{law}`'] for effect, law in LAWS.items()])
    for command, tool in TOOLS.items():
        lines += [f'## {tool}: plait {command}', '']
        lines += md_table(
            ['option', 'variable', 'here'],
            [[', '.join(f'`{n}`' for n in row['names'].split()),
              ', '.join(f'`{v}`' for v in (row['variables'] or '').split()),
              md(llama_effect(row))]
             for row in t['llama'] if command in row['commands']])
    return '\n'.join(lines).rstrip('\n') + '\n'


# ---- man pages -----------------------------------------------------------------

def roff(text):
    text = text.replace('\\', '\\e').replace('-', '\\-')
    return re.sub(r"^(?=[.'])", r'\\&', text).replace('`', '')


def roff_rows(rows):
    """Returns paragraphs of (term, text)."""
    return [line for term, text in rows
            for line in ('.TP', f'.B {roff(term)}', roff(text))]


def print_man(t, version, page):
    command = next((c for c in t['commands']
                    if page == f"plait-{c['name']}.1"), None)
    if not command and page != 'plait.1':
        raise SystemExit(f'manual.py: {page}: there is no such command')
    name = page.removesuffix('.1')
    text = (command['text'] if command else
            'Run large language models split over several devices')
    lines = [f'.TH {roff(name.upper())} 1 "" "plait {version}" "plait"',
             '.SH NAME', f'{roff(name)} \\- {roff(text[0].lower() + text[1:])}',
             '.SH SYNOPSIS']
    if command:
        lines += [f".B plait {command['name']}", command['args'] +
                  '[OPTION ...]', '.SH OPTIONS']
        for heading, rows in by_heading(options_of(t, command['name'])).items():
            lines.append(f'.SS {roff(heading)}')
            lines += roff_rows(
                (', '.join(r['names']) + (f" {r['arg']}" if r['arg'] else ''),
                 r['help']) for r in rows)
        if command['name'] == 'run':
            lines.append('.SH CHAT COMMANDS')
            lines += roff_rows((f'{n} {arg}'.strip(), text)
                               for n, arg, text in t['chat'])
            lines += ['.PP', roff(t['chat_note'])]
    else:
        lines += ['.B plait', 'COMMAND [OPTION ...]', '.SH COMMANDS']
        lines += roff_rows((f"plait {c['name']}", f"{c['text']}.")
                           for c in t['commands'])
        lines.append('.SH ENVIRONMENT')
        lines += roff_rows((f'{n}={value}', text)
                           for n, value, text in t['environment'])
        lines.append('.SH EXIT STATUS')
        lines += roff_rows((str(n), text) for n, text in t['exit'])
    others = [f"plait-{c['name']}" for c in t['commands']] if not command else [
        'plait']
    lines += ['.SH EXAMPLE', '.nf',
              roff((command or t['commands'][0])['example']), '.fi',
              '.SH SEE ALSO',
              '\n'.join(f'.BR {roff(name)} (1)' for name in others)]
    return '\n'.join(lines) + '\n'


# ---- completions ---------------------------------------------------------------

def names_where(rows, test):
    return ' '.join(name for r in rows if test(r) for name in r['names'])


def print_bash(t):
    lines = ['# Completion of plait for bash, generated from its option table.',
             '_plait() {',
             "    local cur=${COMP_WORDS[COMP_CWORD]} "
             "prev=${COMP_WORDS[COMP_CWORD - 1]}",
             "    local options= files= dirs= values= words=",
             "    if [[ $cur == = ]]; then cur=",
             "    elif [[ $prev == = ]]; then "
             "prev=${COMP_WORDS[COMP_CWORD - 2]}; fi",
             '    COMPREPLY=()',
             '    if ((COMP_CWORD == 1)); then',
             "        mapfile -t COMPREPLY < <(compgen -W '" +
             ' '.join([c['name'] for c in t['commands']] + TOP) +
             "' -- \"$cur\")", '        return', '    fi',
             '    case ${COMP_WORDS[1]} in']
    for c in t['commands']:
        rows = options_of(t, c['name'])
        lines += [f"    {c['name']})"]
        for variable, test in (
                ('options', lambda r: True), ('files', lambda r: r['files']),
                ('dirs', lambda r: r['arg'] == 'DIR'),
                ('values', lambda r: r['arg'])):
            lines.append(f"        {variable}=' {names_where(rows, test)} '")
        lines.append('        case $prev in')
        for r in rows:
            if r['words']:
                lines.append(f"        {'|'.join(r['names'])}) "
                             f"words='{' '.join(r['words'])}' ;;")
        lines += ['        esac']
        if c['args']:  # a file without an option before it
            lines.append('        [[ $cur == -* ]] || '
                         'files="$files$prev "')
        lines += ['        ;;']
    lines += ['    esac',
              '    if [[ $files == *" $prev "* ]]; then',
              '        compopt -o filenames 2>/dev/null',
              '        mapfile -t COMPREPLY < <(compgen -f -- "$cur")',
              '    elif [[ $dirs == *" $prev "* ]]; then',
              '        compopt -o filenames 2>/dev/null',
              '        mapfile -t COMPREPLY < <(compgen -d -- "$cur")',
              '    elif [[ -n $words || $values != *" $prev "* ]]; then',
              '        mapfile -t COMPREPLY < '
              '<(compgen -W "${words:-$options}" -- "$cur")',
              '    fi', '}', 'complete -F _plait plait']
    return '\n'.join(lines) + '\n'


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def print_zsh(t):
    def plain(text):
        return re.sub(r'([\\\[\]:])', r'\\\1', text)

    lines = ['#compdef plait',
             '# Completion of plait for zsh, generated from its option table.',
             'local -a commands', 'commands=(']
    lines += ['    ' + quoted(f"{c['name']}:{plain(c['text'])}")
              for c in t['commands']]
    lines += [')', 'if (( CURRENT == 2 )); then',
              "    _describe command commands", '    return', 'fi', 'shift words',
              '(( CURRENT-- ))', 'case $words[1] in']
    for c in t['commands']:
        lines += [f"{c['name']})", '    _arguments \\']
        for r in options_of(t, c['name']):
            value = ''
            if r['arg']:
                value = f":{plain(r['arg'])}:" + (
                    '_files' if r['files'] else
                    '_files -/' if r['arg'] == 'DIR' else
                    f"({' '.join(map(plain, r['words']))})" if r['words'] else
                    ' ')
            for name in r['names']:
                lines.append('        ' + quoted(
                    f'*{name}[{plain(summary(r))}]{value}') + ' \\')
        lines += ["        '*:file:_files'" if c['args'] else "        '*: : '",
                  '    ;;']
    return '\n'.join(lines + ['esac']) + '\n'


def print_fish(t):
    def single(text):
        return "'" + re.sub(r"([\\'])", r'\\\1', text) + "'"

    lines = ['# Completion of plait for fish, generated from its option table.',
             'complete -c plait -f']
    lines += [f"complete -c plait -n __fish_use_subcommand -a {c['name']} "
              f"-d {single(c['text'])}" for c in t['commands']]
    lines += [f"complete -c plait -n '__fish_seen_subcommand_from {c['name']}' "
              '-F' for c in t['commands'] if c['args']]
    for r in t['options']:
        names = ' '.join(
            ('-l ' if n.startswith('--') else '-s ' if len(n) == 2 else '-o ') +
            n.lstrip('-') for n in r['names'])
        value = ''
        if r['arg']:
            value = ' -x'
            if r['files']:
                value = ' -r -F'
            elif r['arg'] == 'DIR':
                value += " -a '(__fish_complete_directories)'"
            elif r['words']:
                value += f" -a {single(' '.join(r['words']))}"
        lines.append(
            f"complete -c plait -n '__fish_seen_subcommand_from "
            f"{' '.join(r['commands'])}' {names}{value} "
            f"-d {single(summary(r))}")
    return '\n'.join(lines) + '\n'


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--table')
    parser.add_argument('--version', default='')
    parser.add_argument('form', choices=['md', 'llama', 'man', 'bash', 'zsh', 'fish'])
    parser.add_argument('file', nargs='*')
    a = parser.parse_args()
    try:
        t = read_table(a.table and os.path.abspath(a.table))
    except subprocess.CalledProcessError as e:
        sys.exit(f'manual.py: {e.stderr}')
    if a.form == 'man':
        pages = {'plait.1'} | {f"plait-{c['name']}.1" for c in t['commands']}
        missing = pages - {os.path.basename(f) for f in a.file}
        if missing:
            sys.exit(f"manual.py: man: give {' '.join(sorted(missing))} too")
    for path in a.file or ['/dev/stdout']:
        text = (print_man(t, a.version, os.path.basename(path))
                if a.form == 'man' else globals()[f'print_{a.form}'](t))
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)


if __name__ == '__main__':
    main()
