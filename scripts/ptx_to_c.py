#!/usr/bin/env python3
"""ptx_to_c.py OUT PTX LEVEL TABLE: the kernels' PTX as C for the emulator.

OUT is a C file, PTX that of src/device/gpu/ptx, LEVEL the part of it, TABLE the
table of kernels that OUT defines (emu/emu_run.h). So the emulator runs what NVIDIA's compiler has
made of the text, where else it runs what a C compiler makes of it. A kernel is
a function, a register a variable of its own and an instruction a call of
emu/ptx_ops.h by its name; one that is not there does not compile. What the
driver takes from comments for newer devices is taken here too.
"""
import os
import re
import sys

import gpu_ptx

# A register's type by the letters of its name.
TYPES = {'p': 'bool', 'rs': 'u16', 'r': 'u32', 'rd': 'u64', 'f': 'f32',
         'fd': 'f64', 'SP': 'u64', 'SPL': 'u64'}
# What a register holds before anything is written to it.
POISON = {'bool': 'true', 'u16': '0xA5A5', 'u32': '0xA5A5A5A5',
          'u64': '0xA5A5A5A5A5A5A5A5', 'f32': 'NAN', 'f64': 'NAN'}
SPECIAL = {'%tid.x': '(u32)emu_now.lane', '%ctaid.x': '(u32)emu_now.group',
           '%nctaid.x': '(u32)emu_now.n_group'}
# How the bits of a register are moved to one of another type.
MOVES = {('f32', 'u32'): 'float_from_bits', ('u32', 'f32'): 'float_bits',
         ('f64', 'u64'): 'double_from_bits', ('u64', 'f64'): 'double_bits'}
IGNORED = re.compile(r'\s*(\.(reg|shared|local|pragma|maxntid|minnctapersm)\b|'
                     r'//|griddepcontrol\.|$)')


class Kernel:
    def __init__(self, name, head, body):
        self.name = name
        self.body = body
        self.used = {}   # registers: name, type
        self.names = {}  # what stands for an address
        self.first = []  # C of the function's top
        self.bytes = int(re.search(r'_param_0\[(\d+)\]', head)[1])
        self.lanes = int(re.search(r'\.maxntid (\d+), 1, 1', head)[1])
        self.names[f'{name}_param_0'] = '(u64)(uintptr_t)args'
        memory = re.findall(r'^\s*\.(shared|local) \.align (\d+) \.\w(\d+) '
                            r'\t?([\w$]+)(?:\[(\d+)\])?;', body, re.M)
        for i, (space, align, bits, symbol, n) in enumerate(memory):
            size = int(bits) // 8 * int(n or 1)
            if space == 'shared':
                self.first.append(f'u64 at{i} = (u64)(uintptr_t)'
                                  f'emu_local({size});')
            else:
                self.first += [f'_Alignas({align}) u8 room{i}[{size}];',
                               f'u64 at{i} = (u64)(uintptr_t)room{i};',
                               f'memset(room{i}, 0xA5, {size});']
            self.names[symbol] = f'at{i}'

    def fail(self, what):
        sys.exit(f'{self.name}: {what}: ptx_to_c.py does not know it')

    def type_of(self, name):
        m = re.fullmatch(r'%([a-zA-Z]+)\d*', name)
        if not m or m[1] not in TYPES:
            self.fail(name)
        self.used['_' + name[1:]] = TYPES[m[1]]
        return TYPES[m[1]]

    def value(self, word):
        """An operand as C."""
        if word in SPECIAL:
            return SPECIAL[word]
        if word.startswith('%'):
            self.type_of(word)
            return '_' + word[1:]
        if word.startswith('0f'):
            return f'float_from_bits(0x{word[2:]}u)'
        if word.startswith('0d'):
            return f'double_from_bits(0x{word[2:]}u)'
        if re.fullmatch(r'-?\d+', word):
            if -1 << 31 < int(word) < 1 << 31:
                return word
            if int(word) == -1 << 31:
                return 'INT32_MIN'
            return f'(u64){int(word) % (1 << 64)}U'
        if word in self.names:
            return self.names[word]
        self.fail(word)

    def address(self, word):
        m = re.fullmatch(r'\[([^+\]]+)(?:\+(-?\d+))?\]', word)
        if not m:
            self.fail(word)
        return f'{self.value(m[1])} + (u64){m[2] or 0}'

    def access(self, op, operands):
        """ld.SPACE[.vN].TYPE or st."""
        what, space, *vector, kind = op.split('.')
        if what == 'st':
            operands.reverse()
        register, where = operands
        at = self.address(where)
        name = '_'.join(['ptx', what, space] + vector + [kind])
        if not vector:
            self.type_of(register) if register.startswith('%') else None
            v = self.value(register)
            if what == 'st':
                return f'{name}({at}, {v});'
            return f'{v} = ({self.type_of(register)}){name}({at});'
        words = register.strip('{}').split(', ')
        if what == 'st':
            return (f'{{ {kind} v[] = {{{", ".join(map(self.value, words))}}}; '
                    f'{name}({at}, v); }}')
        takes = ' '.join(f'{self.value(w)} = v[{i}];'
                         for i, w in enumerate(words))
        return f'{{ {kind} v[{len(words)}]; {name}({at}, v); {takes} }}'

    def matrix(self, op, operands):
        m = re.fullmatch(r'mma\.sync\.aligned\.m16n8k(16|32)\.row\.col'
                         r'\.s32\.([su])8\.([su])8\.s32', op)
        if not m:
            self.fail(op)
        d, a, b, c = ([self.value(w) for w in re.split(', ?', o.strip('{}'))]
                      for o in operands)
        takes = ' '.join(f'{to} = d[{i}];' for i, to in enumerate(d))
        return (f'{{ u32 d[4], a[] = {{{", ".join(a)}}}, '
                f'b[] = {{{", ".join(b)}}}, c[] = {{{", ".join(c)}}}; '
                f'ptx_mma(d, a, b, c, {int(m[1]) // 16}, '
                f'{int(m[2] == "s")}, {int(m[3] == "s")}); {takes} }}')

    def copy(self, op, operands):
        if op == 'cp.async.wait_all':
            return 'ptx_cp_async_wait_all();'
        if not re.fullmatch(r'cp\.async\.c[ag]\.shared\.global', op):
            self.fail(op)
        to, source, n = operands
        return f'ptx_cp_async({self.address(to)}, {self.address(source)}, {n});'

    def move(self, operands):
        to, what = operands
        if what.startswith('{'):
            return self.join(to, what.strip('{}').split(', '))
        kind = self.type_of(to)
        if what.startswith('%') and what not in SPECIAL and \
                self.type_of(what) != kind:
            how = MOVES.get((kind, self.type_of(what))) or \
                self.fail(f'mov {to}, {what}')
            return f'{self.value(to)} = {how}({self.value(what)});'
        return f'{self.value(to)} = ({kind}){self.value(what)};'

    def join(self, to, parts):
        """A register of two halves, the low one first."""
        if len(parts) != 2:
            self.fail(', '.join(parts))
        kind = self.type_of(to)
        bits = 16 if kind == 'u32' else 32
        lo, hi = (self.value(p) for p in parts)
        return f'{self.value(to)} = ({kind}){hi} << {bits} | {lo};'

    def instruction(self, text):
        op, _, rest = text.partition(' ')
        operands = re.findall(r'\{[^}]*\}|\[[^\]]*\]|[^,\s]+', rest)
        kind = op.split('.')[0]
        if kind == 'bra':
            return f'goto {self.label(operands[0])};'
        if kind == 'ret':
            return 'return;'
        if op == 'bar.sync' and operands == ['0']:
            return 'emu_barrier();'
        if op == 'bar.warp.sync' and operands in (['-1'], ['4294967295']):
            return 'emu_wave(32);'
        if kind in ('ld', 'st'):
            return self.access(op, operands)
        if kind == 'mma':
            return self.matrix(op, operands)
        if kind == 'cp':
            return self.copy(op, operands)
        if kind == 'mov':
            return self.move(operands)
        if kind == 'cvta':
            return self.move(operands)
        if kind == 'membar':  # lanes run on one thread
            return ';'
        if kind == 'atom':
            to, where, n = operands
            return (f'{self.value(to)} = ptx_{op.replace(".", "_")}'
                    f'({self.address(where)}, {self.value(n)});')
        if kind == 'prefetch':
            return f'ptx_{op.replace(".", "_")}({self.address(operands[0])});'
        to, *args = operands
        args = [self.value(a) for a in args]
        if kind == 'selp':
            kind = self.type_of(to)
            return (f'{self.value(to)} = {args[2]} ? ({kind}){args[0]} : '
                    f'({kind}){args[1]};')
        return (f'{self.value(to)} = ptx_{op.replace(".", "_")}'
                f'({", ".join(args)});')

    @staticmethod
    def label(word):
        return word.lstrip('$').strip('_')

    def function(self):
        lines = []
        for line in self.body.split('\n'):
            m = re.fullmatch(r'(\$\w+):\s*', line)
            if m:
                lines.append(f'{self.label(m[1])}:;')
                continue
            if IGNORED.match(line):
                continue
            for text in line.strip().rstrip(';').split(';'):
                m = re.fullmatch(r'(?:@(!?)%(p\d+) )?(.*)',
                                 re.sub(r'\s+', ' ', text.strip()))
                if IGNORED.match(m[3]):
                    continue
                code = self.instruction(m[3])
                if m[2]:
                    self.type_of(f'%{m[2]}')
                    code = f'if ({m[1]}_{m[2]}) {code}'
                lines.append(code)
        registers = ''.join(f'    {kind} {name} = {POISON[kind]};\n'
                            for name, kind in sorted(self.used.items()))
        top = ''.join(f'    {line}\n' for line in self.first)
        code = ''.join(f'    {line}\n' for line in lines)
        return (f'static void ptx_kernel_{self.name}(const void *args)\n{{\n'
                f'{top}{registers}\n    (void)args;\n{code}}}\n\n')


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    out, path, level, table = sys.argv[1:]
    ptx = gpu_ptx.uncover(gpu_ptx.unpack(path)[int(level)])
    found = re.findall(r'^\.visible \.entry (\w+)\((.*?)^\{\n(.*?)^\}', ptx,
                       re.M | re.S)
    kernels = [Kernel(*f) for f in found]
    with open(out, 'w', encoding='ascii') as f:
        f.write(f'/* {os.path.basename(path)}, compute_{level}, by '
                'scripts/ptx_to_c.py. */\n'
                '#pragma GCC optimize 1\n'  # more takes GCC many minutes
                '#include "emu/ptx_ops.h"\n\n'
                '#pragma GCC diagnostic ignored "-Wunused-but-set-variable"\n'
                '#pragma GCC diagnostic ignored "-Wunused-label"\n\n')
        for k in kernels:
            f.write(k.function())
            f.write(f'enum {{ {k.name}_bytes = {k.bytes}, '
                    f'{k.name}_lanes = {k.lanes} }};\n\n')
        f.write('#define GPU_KERNEL(name, args, lanes) \\\n'
                '    _Static_assert(sizeof(args) == name##_bytes && '
                'lanes == name##_lanes, #name);\n'
                '#include "device/gpu/gpu_kernels.def"\n'
                '#undef GPU_KERNEL\n\n'
                f'emu_kernel *const {table}[GPU_KERNEL_COUNT] = {{\n'
                '#define GPU_KERNEL(name, args, lanes) '
                '[GPU_##name] = ptx_kernel_##name,\n'
                '#include "device/gpu/gpu_kernels.def"\n'
                '#undef GPU_KERNEL\n};\n')


if __name__ == '__main__':
    main()
