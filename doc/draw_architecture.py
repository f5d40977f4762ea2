#!/usr/bin/env python3
"""draw_architecture.py: writes doc/architecture.svg.

One layer of the bundled model on 4 ranks and 2 cpu devices, as the plan has it:
the graph on the left, the numeric plan in the middle, the programs on the
right; below them what decides bits and what does not.
"""
import os

W, H = 1240, 980
RANK = ['#2b6cb0', '#63a4e0', '#c05621', '#f0a35e']  # by rank; devices by hue
INK, GREY, LINE, PALE = '#1a202c', '#596475', '#a0aec0', '#f4f6f9'
BARRIER = '#6b46c1'
TOP, STEP = 196, 50
out = []


def put(s):
    out.append(s)


def text(x, y, s, size=13, anchor='start', fill=INK, weight='normal',
         mono=False, style=''):
    family = ' font-family="DejaVu Sans Mono, monospace"' if mono else ''
    size = round(1.13 * size, 1)
    s = s.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')
    put(f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" '
        f'fill="{fill}" font-weight="{weight}"{family}{style}>{s}</text>')


def box(x, y, w, h, fill='white', stroke=LINE, r=5, width=1.2, dash=''):
    dash = f' stroke-dasharray="{dash}"' if dash else ''
    put(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="{r}" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="{width}"{dash}/>')


def line(points, stroke=GREY, width=1.4, arrow=True, dash=''):
    d = 'M' + ' L'.join(f'{x} {y}' for x, y in points)
    end = ' marker-end="url(#a)"' if arrow else ''
    dash = f' stroke-dasharray="{dash}"' if dash else ''
    put(f'<path d="{d}" fill="none" stroke="{stroke}" '
        f'stroke-width="{width}"{end}{dash}/>')


def layout(x, y, kind, w=96):
    """Draws how four ranks hold a value; y is the middle of the row."""
    if kind == 'split':
        for r in range(4):
            put(f'<rect x="{x + r * w / 4}" y="{y - 8}" width="{w / 4}" '
                f'height="16" fill="{RANK[r]}"/>')
        return
    for r in range(4):
        yr = y - 11 + 6 * r
        if kind == 'mirrored':
            put(f'<rect x="{x}" y="{yr}" width="{w}" height="4" '
                f'fill="{RANK[r]}"/>')
        else:
            put(f'<rect x="{x + 0.5}" y="{yr}" width="{w - 1}" height="3.6" '
                f'fill="white" stroke="{RANK[r]}" stroke-width="1"/>')
    if kind == 'partial':
        text(x + w + 11, y + 6, '\u03a3', 16, 'middle', GREY)


# row, op as in ops.def, what it works on, layout of its result
ROWS = [
    (0, 'rms_norm', 'attn_norm', 'mirrored'),
    (1, 'matmul', 'q, k, v; rope', 'split'),
    (2, 'attention', 'over the cache', 'split'),
    (3, 'matmul', 'attn_output', 'partial'),
    (5, 'add', 'the residual', 'mirrored'),
    (6, 'router_topk', 'ffn_norm before', 'mirrored'),
    (7, 'expert_matmul', 'gate, up; swiglu', 'split'),
    (8, 'expert_down', 'over expert and k', 'partial'),
    (10, 'add', 'the residual', 'mirrored'),
]
REDUCE = [4, 9]


def y_of(row):
    return TOP + STEP * row


def heading(x, w, title, sub, files):
    text(x + w / 2, 92, title, 19, 'middle', weight='bold')
    text(x + w / 2, 113, sub, 12.5, 'middle', GREY)
    text(x + w / 2, 131, files, 11.5, 'middle', GREY, mono=True)


def graph_column(x, w):
    heading(x, w, 'Graph', 'what is computed; knows no device',
            'graph/  model/')
    rows = [r[0] for r in ROWS]
    for row, op, what, _ in ROWS:
        y = y_of(row)
        box(x, y - 18, w, 36)
        text(x + 10, y + 4.5, op, 12.5, mono=True)
        text(x + w - 10, y + 4.5, what, 11.5, 'end', GREY)
    for a, b in zip(rows, rows[1:]):
        line([(x + w / 2, y_of(a) + 18), (x + w / 2, y_of(b) - 19)])
    for a, b in ((-1, 5), (5, 10)):  # the residual goes round
        y = y_of(a) + 18 if a >= 0 else y_of(0) - 32
        start = [(x + w / 2, y)] if a < 0 else [(x, y_of(a) + 9)]
        line(start + [(x - 18, start[-1][1]), (x - 18, y_of(b) - 6),
                      (x - 1, y_of(b) - 6)], LINE, 1.3)
    line([(x + w / 2, y_of(0) - 40), (x + w / 2, y_of(0) - 19)])


def plan_column(x, w):
    heading(x, w, 'Numeric plan', 'the graph again, with layouts and '
            'conversions', 'plan/roles.c  layout/propagate.c')
    done = sorted([r[0] for r in ROWS] + REDUCE)
    for row, op, what, kind in ROWS:
        y = y_of(row)
        box(x, y - 18, w, 36)
        text(x + 10, y + 4.5, op, 12.5, mono=True)
        text(x + 150, y + 4.5, kind.upper(), 10.5, fill=GREY)
        layout(x + w - 126, y, kind)
    for row in REDUCE:
        y = y_of(row)
        box(x, y - 18, w, 36, '#f1ecfb', BARRIER, width=1.8)
        text(x + 10, y + 4.5, 'AllReduce', 13, fill=BARRIER, weight='bold')
        text(x + 98, y + 4.5, 'PARTIAL to MIRRORED', 10, fill=BARRIER)
        layout(x + w - 126, y, 'mirrored')
        line([(x - 14, y - 25), (x + w + 14, y - 25)], BARRIER, 1.4, False, '7 4')
    for a, b in zip(done, done[1:]):
        line([(x + w / 2 - 60, y_of(a) + 18), (x + w / 2 - 60, y_of(b) - 19)])
    text(x + w + 17, y_of(4) - 21, 'cut', 11, fill=BARRIER)
    text(x + w + 17, y_of(9) - 21, 'cut', 11, fill=BARRIER)


STEPS = [
    (0, 'rms_norm', ''),
    (1, 'Q8, matmul \u00d7 3, rope', ''),
    (2, 'cache_write, attention', ''),
    (3, 'Q8, matmul', 'r0 + r1|r2 + r3'),
    (5, 'add', ''),
    (6, 'rms_norm, router', ''),
    (7, 'Q8, expert_matmul \u00d7 2', ''),
    (8, 'Q8, expert_down', 'r0 + r1|r2 + r3'),
    (10, 'add', ''),
]


def program_column(x, w):
    heading(x, w, 'Programs', 'a flat list of instructions a device, one '
            'order', 'lower/lower.c  program/program.h')
    half = (w - 20) / 2
    for d in range(2):
        xd = x + d * (half + 20)
        box(xd, y_of(0) - 44, half, STEP * 10 + 72, PALE, LINE)
        text(xd + half / 2, y_of(0) - 26, f'device {d}: ranks {2 * d}, '
             f'{2 * d + 1}', 12, 'middle', RANK[2 * d], 'bold')
        for row, what, tree in STEPS:
            y = y_of(row)
            box(xd + 8, y - 15, half - 16, 30, 'white')
            text(xd + 15, y + 4.5, what, 10.4, mono=True)
            if tree:
                text(xd + half - 15, y + 4.5, tree.split('|')[d], 10.8, 'end',
                     RANK[2 * d], 'bold')
    for row in REDUCE:
        y = y_of(row)
        box(x - 6, y - 18, w + 12, 36, '#f1ecfb', BARRIER, width=1.8)
        text(x + 8, y + 4.5, 'MERGE', 12.5, fill=BARRIER, weight='bold',
             mono=True)
        text(x + 66, y + 4.5, 'barrier, then read peers', 11.5, fill=BARRIER)
        text(x + w - 4, y + 4.5, '(r0 + r1) + (r2 + r3)', 11.5, 'end', INK,
             'bold')


def devices(x, w, y):
    half = (w - 20) / 2
    for d in range(2):
        xd = x + d * (half + 20)
        line([(xd + half / 2, y - 30), (xd + half / 2, y - 2)])
        box(xd, y, half, 66, 'white', RANK[2 * d], width=1.8)
        text(xd + 10, y + 20, f'cpu{d}', 13, weight='bold', fill=RANK[2 * d])
        text(xd + half - 10, y + 20, 'threads run kernels', 11, 'end', GREY)
        third = (half - 28) / 3
        for i, name in enumerate(('weights', 'cache', 'work')):
            box(xd + 10 + i * (third + 4), y + 32, third, 24,
                '#e9f1fa' if d == 0 else '#fcefe2', RANK[2 * d + 1], 3)
            text(xd + 10 + i * (third + 4) + third / 2, y + 48.5, name, 11.5,
                 'middle')


def legend(x, y):
    rows = [('mirrored', 'MIRRORED: every rank has all values'),
            ('split', 'SPLIT: one dimension in parts'),
            ('partial', 'PARTIAL: every rank has an addend')]
    for i, (kind, s) in enumerate(rows):
        layout(x, y + 32 * i, kind, 72)
        text(x + 96, y + 32 * i + 4.5, s, 12)


def main():
    put(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {W} {H}" '
        f'width="{W}" height="{H}" '
        'font-family="DejaVu Sans, Verdana, sans-serif">')
    put('<title>From a graph to devices: one layer on 4 ranks and 2 devices'
        '</title>')
    put('<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{GREY}"/></marker></defs>')
    put(f'<rect width="{W}" height="{H}" fill="white"/>')
    text(W / 2, 36, 'One layer of a mixture-of-experts model: 4 ranks on 2 '
         'devices', 21, 'middle', weight='bold')
    ga, gw, pa, pw, ca, cw = 48, 252, 366, 366, 796, 412
    graph_column(ga, gw)
    plan_column(pa, pw)
    program_column(ca, cw)
    y = y_of(1)
    line([(ga + gw + 12, y), (pa - 12, y)], INK, 1.8)
    text((ga + gw + pa) / 2, y - 10, 'roles,', 11.5, 'middle', GREY)
    text((ga + gw + pa) / 2, y + 19, 'ranks', 11.5, 'middle', GREY)
    line([(pa + pw + 12, y), (ca - 12, y)], INK, 1.8)
    text((pa + pw + ca) / 2, y - 10, 'ranks to', 11.5, 'middle', GREY)
    text((pa + pw + ca) / 2, y + 19, 'devices', 11.5, 'middle', GREY)
    y = y_of(10) + 58
    devices(ca, cw, y)
    legend(ga, y + 2)
    text(pa + 50, y + 8, 'The cut: of all places where addends may be',
         12)
    text(pa + 50, y + 26, 'summed, the cheapest in bytes; found on the', 12)
    text(pa + 50, y + 44, 'data flow (layout/cut.c). One collective each.', 12)
    y += 100
    left = pa + pw - ga + 10
    box(ga - 10, y, left, 82, '#eaf3ea', '#38855a', width=1.6)
    text(ga + 8, y + 24, 'Decides bits', 14, weight='bold', fill='#276749')
    text(ga + 8, y + 45, 'graph, formats, ranks and their shares, layouts, '
         'where sums are taken. All made', 12)
    text(ga + 8, y + 64, 'from the model and the options alone, and hashed. '
         'In addition, the order written at each kernel.', 12)
    box(ca - 6, y, cw + 12, 82, PALE, GREY, width=1.6)
    text(ca + 12, y + 24, 'Changes no bit', 14, weight='bold', fill=INK)
    text(ca + 12, y + 45, 'which device carries which ranks, backends,'
         ' threads,', 12)
    text(ca + 12, y + 64, 'micro-batches, other sequences, pages, queues',
         12)
    put('</svg>')
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, 'architecture.svg'), 'w',
              encoding='utf-8') as f:
        f.write('\n'.join(out) + '\n')


main()
