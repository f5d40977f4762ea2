#!/usr/bin/env python3
"""letter_table.py: prints src/tokenizer/letter_table.h, two tables of Unicode.

Lower case: runs {first, last, step, delta}; each step-th character from first to
last has its lower case `delta` further on. Bases: what canonical decomposition
(NFD) leaves of a character once the marks without width of their own (Mn) are
gone, where that is another text; Hangul, which follows a formula, is not listed.
    scripts/letter_table.py | clang-format >src/tokenizer/letter_table.h
"""
import sys
import unicodedata

CHARS = [c for c in range(sys.maxunicode + 1) if not 0xd800 <= c <= 0xdfff]


def lower_runs():
    runs = []
    for c in CHARS:
        low = ord(chr(c).lower()[0])  # U+0130 alone has two; its dot is a mark
        if low == c:
            continue
        delta = low - c
        last = runs[-1] if runs else None
        if last and last[3] == delta and last[1] - last[0] == 0 \
                and c - last[1] in (1, 2):
            last[1:3] = [c, c - last[1]]
        elif last and last[3] == delta and c - last[1] == last[2]:
            last[1] = c
        else:
            runs.append([c, c, 1, delta])
    return runs


def bases():
    for c in CHARS:
        if 0xac00 <= c < 0xac00 + 11172:
            continue
        to = [d for d in unicodedata.normalize('NFD', chr(c))
              if unicodedata.category(d) != 'Mn']
        if to and to != [chr(c)]:
            yield c, [ord(d) for d in to]


def main():
    print(f'''/* Lower case and bases of characters, of Unicode
 * {unicodedata.unidata_version}. Written by scripts/letter_table.py. */
#ifndef TOKENIZER_LETTER_TABLE_H
#define TOKENIZER_LETTER_TABLE_H

#include <stdint.h>

/* A row for characters in upper case: every step-th character of first .. last
 * has the lower case character + delta. Ascending. */
static const struct lower_run {{
    uint32_t first, last;
    int32_t step, delta;
}} lower_runs[] = {{''')
    for first, last, step, delta in lower_runs():
        print(f'{{0x{first:x}, 0x{last:x}, {step}, {delta}}},')
    pairs, longer = [], []
    for c, to in bases():
        (pairs if len(to) == 1 else longer).append((c, to))
    print('''};

/* A character, and the one character that remains if its marks, such as
 * accents, are removed. Ascending by the first. */
static const uint32_t base_pairs[][2] = {''')
    for c, to in pairs:
        print(f'{{0x{c:x}, 0x{to[0]:x}}},')
    assert max(len(to) for _, to in longer) == 3
    print('''};

/* A character, and the up to three characters that remain if its marks are
 * removed; 0 for none. Ascending by the first. */
static const uint32_t base_rows[][4] = {''')
    for c, to in longer:
        print('{' + ', '.join(f'0x{d:x}' for d in [c] + to + [0] * (3 - len(to)))
              + '},')
    print('};\n\n#endif')


main()
