"""Reads the output of NVIDIA's assembler and disassembler: the registers, the
shared memory and the spilled bytes of each kernel, its occupancy on a device,
and the instructions of its loops."""
import collections
import fnmatch
import os
import re

import gpu_text

KERNELS = os.path.join(gpu_text.ROOT, 'src/device/gpu/gpu_kernels.def')
FLOORS = os.path.join(gpu_text.ROOT, 'src/device/gpu/gpu_floors.txt')
# The order of columns in FLOORS: NVIDIA's GPUs by level of the PTX, AMD's.
FAMILIES = {80: 0, 61: 1, 'amd': 2}

# By compute capability: most warps and most work groups of a compute unit, its
# shared memory in KiB, and the bytes that the driver takes of each group's.
# Source: CUDA C++ Programming Guide, "Technical Specifications per Compute
# Capability".
UNITS = {
    61: (64, 32, 96, 0), 70: (64, 32, 96, 0), 75: (32, 16, 64, 0),
    80: (64, 32, 164, 1024), 86: (48, 16, 100, 1024), 89: (48, 24, 100, 1024),
    90: (64, 32, 228, 1024), 100: (64, 32, 228, 1024),
    103: (64, 32, 228, 1024), 110: (48, 24, 228, 1024),
    120: (48, 24, 100, 1024), 121: (48, 24, 100, 1024),
}
PARTS = 4                  # of a compute unit; a warp stays in one
PART_REGISTERS = 16384
REGISTERS_AT_ONCE = 256    # in which a warp's registers are allocated
SHARED_AT_ONCE = 256       # bytes in which shared memory is


def up(n, unit):
    return -(-n // unit) * unit


def lanes():
    """The lanes of a work group, by kernel."""
    with open(KERNELS, encoding='utf-8') as f:
        found = re.findall(r'^GPU_KERNEL(?:_MATRIX)?\((\w+),\s*[\w ]+,\s*(\d+)\)',
                           f.read(), re.M)
    return {name: int(n) for name, n in found}


# ---- registers and memory --------------------------------------------------

Use = collections.namedtuple('Use', 'registers spilled shared')
INFO = re.compile(r'ptxas info\s*:|\s+\d+ bytes stack frame')


def uses(report):
    """By kernel the Use that `ptxas -v` reports, and its other lines."""
    found = {}
    other = []
    entry = None
    spilled = 0
    for line in report.split('\n'):
        m = re.search(r"Compiling entry function '(\w+)'", line)
        if m:
            entry = m[1]
        m = re.search(r'(\d+) bytes spill stores', line)
        if m:
            spilled = int(m[1])
        m = re.search(r'Used (\d+) registers', line)
        if m and entry:
            shared = re.search(r'(\d+) bytes smem', line)
            found[entry] = Use(int(m[1]), spilled,
                               int(shared[1]) if shared else 0)
        if line.strip() and not INFO.match(line):
            other.append(line)
    return found, other


def occupancy(device, use, n_lane):
    """Warps that a compute unit holds, in percent of the most."""
    most, groups, shared, taken = UNITS[device]
    warps = n_lane // 32
    a_warp = up(use.registers * 32, REGISTERS_AT_ONCE)
    groups = min(groups, most // warps,
                 PART_REGISTERS // a_warp * PARTS // warps)
    room = up(use.shared + taken, SHARED_AT_ONCE)
    if room:
        groups = min(groups, shared * 1024 // room)
    return 100 * groups * warps // most


# ---- floors ----------------------------------------------------------------

def floors(family):
    """Rows of gpu_floors.txt for a family of GPUs, a key of FAMILIES: (pattern
    of kernels, least occupancy in percent, most bytes spilled)."""
    rows = []
    with open(FLOORS, encoding='utf-8') as f:
        for line in f:
            words = line.partition('#')[0].split()
            if words:
                own = words[1 + 2 * FAMILIES[family]:][:2]
                rows.append((words[0], *map(int, own)))
    return rows


def under(name, row, wanted):
    """Complaints about a kernel's (registers, occupancy, bytes spilled), held
    against rows of floors(), of which the first that has the kernel counts."""
    found = [w for w in wanted if fnmatch.fnmatchcase(name, w[0])]
    if row is None or not found:
        return [f'{name}: no figures, or no floor']
    _, least, spilled = found[0]
    bad = []
    if row[1] < least:
        bad.append(f'{name}: occupancy {row[1]} %, {least} wanted')
    if row[2] > spilled:
        bad.append(f'{name}: {row[2]} bytes spilled, {spilled} allowed')
    return bad


def rows_of(device, found):
    """By kernel, (registers, occupancy, bytes spilled) of uses()."""
    n_lane = lanes()
    return {name: (use.registers, occupancy(device, use, n_lane[name]),
                   use.spilled) for name, use in found.items()}


def print_table(table):
    """Prints a row a kernel and a column a device, of rows by device and
    kernel."""
    print(' ' * 20 + ''.join(f'{d:>11}' for d in table))
    for name in sorted(set().union(*table.values())):
        cells = ''
        for rows in table.values():
            cell = '-'
            if name in rows:
                registers, held, spilled = rows[name]
                cell = f'{registers}/{held}' + (f'+{spilled}' if spilled else '')
            cells += f'{cell:>11}'
        print(f'{name:20}{cells}')


# ---- instructions ----------------------------------------------------------

Instruction = collections.namedtuple('Instruction',
                                     'address guard op text')
CODE = re.compile(r'\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?'
                  r'([A-Z][\w.]*)([^;]*);')
LABEL = re.compile(r'\s*(\.L_[\w.]+):')
TARGET = re.compile(r'`\((\.L_[\w.]+)\)')
ENDS = ('EXIT', 'RET', 'BRX', 'JMX', 'KILL')

WIDTH = re.compile(r'\.(U8|S8|U16|S16|64|128)\b')
CLASSES = (
    ('mma', r'IMMA|HMMA|BMMA|DMMA|\w*GMMA|UTC\w*MMA'),
    ('dot', r'IDP\w*'),
    ('ffma', r'FFMA2?'),
    ('float', r'FMUL2?|FADD2?|FMNMX\d?|FSEL|FSETP|FCHK|MUFU|D\w+'),
    ('convert', r'I2F\w*|F2I\w*|F2F\w*|I2I\w*|FRND|HADD2\w*|HMUL2\w*'),
    ('copy', r'LDGSTS|LDGDEPBAR|DEPBAR|ARRIVES'),
    ('ldsm', r'LDSM'),
    ('ldg', r'LDG|LD'),
    ('lds', r'LDS'),
    ('stg', r'STG|ST'),
    ('sts', r'STS'),
    ('spill', r'LDL|STL'),
    ('const', r'LDC|LDCU|ULDC'),
    ('shuffle', r'SHFL|VOTE\w*|REDUX|MATCH'),
    ('flow', r'BRA|BSSY|BSYNC|BREAK|BAR|EXIT|NOP|WARPSYNC|CALL|RET|YIELD|'
             r'NANOSLEEP|ACQBULK|PREEXIT|ERRBAR|MEMBAR|CCTL'),
    ('move', r'MOV|CS2R|S2R|R2UR|UMOV|S2UR|R2P|P2R|PLOP3|UPLOP3'),
    ('int', r'.*'),
)
CLASSES = tuple((name, re.compile(f'(?:{ops})$')) for name, ops in CLASSES)


def class_of(i):
    base = i.op.split('.')[0]
    if i.op.startswith('IMAD.MOV') or i.op.startswith('IMAD.U32'):
        return 'move'
    name = next(name for name, ops in CLASSES if ops.match(base))
    if name in ('ldg', 'lds'):
        m = WIDTH.search(i.op)
        name += m[1].lstrip('US') if m else '32'
    return name


class Code:
    """A kernel's instructions as blocks. A block runs from its first
    instruction to its last one; `next` are the blocks that may follow."""

    def __init__(self, lines):
        starts = {}
        self.code = []
        for line in lines:
            m = LABEL.match(line)
            if m:
                starts[m[1]] = len(self.code)
                continue
            m = CODE.match(line)
            if m:
                self.code.append(Instruction(int(m[1], 16), m[2], m[3],
                                             m[4].strip()))
        self.cut(starts)
        self.dominate()
        self.find_loops()

    def cut(self, starts):
        code = self.code
        heads = {0} | {at for at in starts.values() if at < len(code)}
        heads |= {i + 1 for i, c in enumerate(code[:-1])
                  if c.op.split('.')[0] in ENDS + ('BRA', 'JMP')}
        first = sorted(heads)
        number = {at: n for n, at in enumerate(first)}
        self.blocks = [range(a, b) for a, b in
                       zip(first, first[1:] + [len(code)])]
        self.next = []
        for n, block in enumerate(self.blocks):
            last = code[block[-1]]
            base = last.op.split('.')[0]
            out = []
            ends = base in ENDS
            if base in ('BRA', 'JMP'):
                to = starts.get((TARGET.search(last.text) or [0, ''])[1])
                if to in number:
                    out.append(number[to])
                # a second condition stands before the target
                ends = last.text.startswith('`(') and '.U' not in last.op
            if not (ends and last.guard is None) and n + 1 < len(first):
                out.append(n + 1)
            self.next.append(out)

    def dominate(self):
        """Sets the blocks that every way to a block passes, itself included;
        None for blocks without a way."""
        n = len(self.blocks)
        before = [[] for _ in range(n)]
        for a, out in enumerate(self.next):
            for b in out:
                before[b].append(a)
        self.before = before
        over = [None] * n
        over[0] = {0}
        changed = True
        while changed:
            changed = False
            for b in range(1, n):
                known = [over[a] for a in before[b] if over[a] is not None]
                if known:
                    new = set.intersection(*known) | {b}
                    if new != over[b]:
                        over[b] = new
                        changed = True
        self.over = over

    def find_loops(self):
        """Sets the loops: by head, their blocks."""
        self.loops = {}
        for a, out in enumerate(self.next):
            for head in out:
                if self.over[a] is None or head not in self.over[a]:
                    continue
                inside = self.loops.setdefault(head, {head})
                todo = [a]
                while todo:
                    b = todo.pop()
                    if b not in inside:
                        inside.add(b)
                        todo += self.before[b]

    def count(self, blocks):
        return collections.Counter(class_of(self.code[i]) for b in blocks
                                   for i in self.blocks[b])

    def main_loop(self):
        """The loops around the most products, the innermost first. Products are
        matrix instructions, else dots, else fused multiply-adds. The innermost
        loop has no loop with products inside."""
        for what in ('mma', 'dot', 'ffma'):
            scores = {head: self.count(inside)[what]
                      for head, inside in self.loops.items()}
            inner = [head for head, n in scores.items() if n and not any(
                scores[h] and l < self.loops[head]
                for h, l in self.loops.items())]
            if inner:
                best = self.loops[max(inner, key=scores.get)]
                return sorted((l for l in self.loops.values() if l >= best),
                              key=len)
        return []

    def paths(self, loop):
        """(Shortest, longest) way through a loop from its head back to it, each
        the blocks of it. Loops inside are passed without being counted."""
        head = next(h for h, l in self.loops.items() if l == loop)
        inner = [(h, l) for h, l in self.loops.items() if l < loop]
        skipped = set().union(*(l for _, l in inner))
        known = {}

        def cost(way):
            return sum(len(self.blocks[b]) for b in way)

        def after(b):
            """Blocks that follow; past the inner loop that has b."""
            around = [l for _, l in inner if b in l]
            if not around:
                return self.next[b]
            whole = max(around, key=len)
            return [n for i in whole for n in self.next[i] if n not in whole]

        def walk(b, active):
            if b in known:
                return known[b]
            own = () if b in skipped else (b,)
            ways = []
            for n in after(b):
                if n == head:
                    ways.append(((), ()))
                elif n in loop and n not in active:
                    ways.append(walk(n, active | {n}))
            ways = [w for w in ways if w is not None]
            if not ways:
                return None
            known[b] = (own + min((w[0] for w in ways), key=cost),
                        own + max((w[1] for w in ways), key=cost))
            return known[b]

        return walk(head, frozenset({head})) or ((), ())

    def guarded(self, blocks):
        """Instructions other than branches that have a guard."""
        return sum(self.code[i].guard is not None and
                   class_of(self.code[i]) != 'flow'
                   for b in blocks for i in self.blocks[b])


def per_product(code):
    """(Instructions per matrix instruction, or per dot, in the innermost loop;
    the name of the product), or None."""
    loops = code.main_loop()
    if not loops:
        return None
    way = code.paths(loops[0])[1]
    counts = code.count(way)
    for what in ('mma', 'dot'):
        if counts[what]:
            return sum(counts.values()) / counts[what], what
    return None
