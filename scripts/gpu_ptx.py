#!/usr/bin/env python3
"""gpu_ptx.py make | check | embed OUT FILE: the kernels' text as PTX.

make   compiles src/device/gpu/text by NVRTC 11.8, whose PTX every driver since
       its time takes, into src/device/gpu/ptx: for devices with dp4a, and for
       those with matrix instructions of 8-bit integers.
check  compiles it again and compares; assembles the PTX for the devices there
       are, and looks at the instructions; prints registers and occupancy, and
       holds them against gpu_floors.txt; compares cuda_api.h with the vendor's
       header.
embed  writes a C file that holds FILE, that of PTX; the build calls this.
"""
import ctypes
import functools
import lzma
import os
import re
import sys
import tempfile

import gpu_code
import gpu_text
import gpu_tools
import packed

PTX = os.path.join(gpu_text.ROOT, 'src/device/gpu/ptx/kernels.ptx.xz')
SHOWN = os.path.relpath(PTX, gpu_text.ROOT)
PRELUDE = 'prelude_cuda.h'
LEVELS = (80, 61)  # in this order: the library unpacks 80 without 61
NVRTC = ('nvidia-cuda-nvrtc-cu11', '11.8.89', 'libnvrtc.so.11.2')
OPTIONS = ['-std=c++17', '-fmad=false', '-prec-div=true', '-prec-sqrt=true',
           '-ftz=false']
# Devices by the assembler that knows them, for each level; the disassembler
# knows those of the second alone.
PTXAS = {
    '12': ('nvidia-cuda-nvcc-cu12', '12.9.86', 'bin/ptxas'),
    '13': ('nvidia-cuda-nvcc', '13.5.37', 'bin/ptxas'),
}
NVDISASM = ('nvidia-cuda-nvdisasm', '13.5.37', 'bin/nvdisasm')
DEVICES = {
    61: {'12': (61, 70), '13': (75,)},
    80: {'13': (80, 86, 89, 90, 100, 103, 110, 120, 121)},
}
HEADER = ('nvidia-cuda-runtime-cu12', '12.9.79', 'include/cuda.h')
MOST_BYTES = 1 << 20  # of packed PTX, in the repository and in the library


def options(level):
    return OPTIONS + [f'-arch=compute_{level}']


@functools.cache
def unpack(path=PTX):
    """PTX by level, in the order of the file; each begins with its mark."""
    with lzma.open(path, 'rt', encoding='ascii', newline='') as f:
        parts = re.split(r'^(?=// text )', f.read(), flags=re.M)[1:]
    return {int(re.search(r'^\.target sm_(\d+)$', p, re.M)[1]): p for p in parts}


# ---- compiling -------------------------------------------------------------

class Nvrtc:
    def __init__(self):
        self.lib = ctypes.CDLL(gpu_tools.wheel(*NVRTC))

    def call(self, name, *args):
        return getattr(self.lib, 'nvrtc' + name)(*args)

    def text_of(self, what, program):
        size = ctypes.c_size_t()
        self.call(f'Get{what}Size', program, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value)
        self.call(f'Get{what}', program, room)
        return room.value.decode()  # without the NUL at its end

    def compile(self, level, wanted=None):
        """The text's PTX; with `wanted`, only of the kernels of these names."""
        def strings(words):
            return (ctypes.c_char_p * len(words))(*(w.encode() for w in words))

        found = gpu_text.files(PRELUDE)
        if wanted is not None:
            found[PRELUDE] = picking(found[PRELUDE], wanted)
        flags = options(level)
        program = ctypes.c_void_p()
        self.call('CreateProgram', ctypes.byref(program),
                  gpu_text.program(PRELUDE).encode(), b'text.cu', len(found),
                  strings(list(found.values())), strings(list(found)))
        status = self.call('CompileProgram', program, len(flags) + 1,
                           strings(flags + ['--diag-suppress=177,550']))
        said = self.text_of('ProgramLog', program).strip()
        if said or status != 0:
            sys.exit(f'NVRTC, compute_{level}: status {status}\n{said}')
        ptx = self.text_of('PTX', program)
        self.call('DestroyProgram', ctypes.byref(program))
        return ptx


# Kernels whose name has no WANT_name become functions that nothing calls.
PICKING = '''
#define PICK_THIRD(a, b, c, ...) c
#define PICK_IF(...) PICK_THIRD(__VA_ARGS__, 0, 0, 0)
#define PICK_JOIN_(a, b) a##b
#define PICK_JOIN(a, b) PICK_JOIN_(a, b)
#define PICK(form, name) PICK_JOIN(form, PICK_IF(WANT_##name))
#define LEFT_OUT(name, args, bounds) DEV void name(const args a)
#define AWAITS_0 LEFT_OUT
#define AHEAD_0 LEFT_OUT
#define KERNEL_AWAITS(name, args, bounds) PICK(AWAITS_, name)(name, args, bounds)
#define KERNEL_AHEAD(name, args, lanes) PICK(AHEAD_, name)(name, args, lanes)
'''


def picking(prelude, wanted):
    """The prelude, so that only the kernels named in `wanted` are compiled."""
    for form in ('AWAITS', 'AHEAD'):
        made = f'#define KERNEL_{form}('
        if prelude.count(made) != 1:
            sys.exit(f'{PRELUDE} has not one KERNEL_{form}')
        prelude = prelude.replace(made, f'#define {form}_1(')
    return prelude + PICKING + ''.join(f'#define WANT_{name} 0, 0, 1\n'
                                       for name in wanted)


def mark(level):
    return f'// text {gpu_text.digest(PRELUDE, options(level))}\n'


def make():
    nvrtc = Nvrtc()
    made = {level: mark(level) + nvrtc.compile(level) for level in LEVELS}
    if os.path.exists(PTX) and unpack() == made:
        print(f'{SHOWN}: as it was')
        return
    small = packed.squeeze(''.join(made.values()).encode())
    os.makedirs(os.path.dirname(PTX), exist_ok=True)
    with open(PTX, 'wb') as f:
        f.write(small)
    for level, ptx in made.items():
        print(f'compute_{level}: {len(entries(ptx))} kernels, {len(ptx)} bytes')
    print(f'{SHOWN}: {len(small)} bytes')


# ---- what the PTX says; no tool is needed ----------------------------------

ENTRY = re.compile(r'^\.visible \.entry (\w+)\(.*?^\{\n(.*?)^\}\n', re.M | re.S)
HEAD = re.compile(r'^\.version .*?^\.address_size 64\n', re.M | re.S)


def entries(ptx):
    """The kernels by name: what stands between their braces."""
    return dict(ENTRY.findall(ptx))


def programs(ptx):
    """The kernels by name, each a program of its own as cuda_source.c cuts it."""
    head = HEAD.search(ptx)[0]
    return {m[1]: head + m[0] for m in ENTRY.finditer(ptx)}


def outside(ptx):
    """What stands beside kernels, the head and comments."""
    return re.sub(r'//[^\n]*', '', ENTRY.sub('', HEAD.sub('', ptx, 1))).strip()


# Operations on floats that an assembler may fuse, flush or approximate: those
# that do not say how they round.
LOOSE = re.compile(r'\b(?:(?:add|sub|mul|fma|div|sqrt|rcp)\.(?!rn\.)'
                   r'(?:\w+\.)*(?:f16|f32|f64|f16x2)|mad\.(?:\w+\.)*f\d+|'
                   r'\w+\.(?:approx|full|ftz)\.[.\w]*)\b')


# Reads and writes that do not say of which memory: the text has made a pointer
# of an address that it reckoned.
GENERIC = re.compile(r'\b(?:ld|st)(?:\.volatile)?(?:\.v[24])?\.[ufsb]\d+\b')


# What stands before a kernel's AWAIT(), where the launches that it comes after
# may be under way: it touches no memory but to ask for weights.
AWAIT = 'griddepcontrol.wait;'
EARLY = re.compile(r'\b(?:ld\.(?!param)|st\.|atom\.|red\.|bar\.|call\b)')


def uncover(ptx, level=90):
    """What the library makes of the PTX for devices of that level."""
    if level < 90:
        return ptx
    return ptx.replace('/*90 ', '').replace(' 90*/', '').replace(
        '.target sm_80', '.target sm_90')


def awaits(body):
    """What is wrong with a kernel's AWAIT(); None: nothing."""
    before, *after = body.split(AWAIT)
    if len(after) != 1:
        return f'{len(after)} of {AWAIT}: one AWAIT() is wanted'
    m = EARLY.search(before)
    return m and f'{m[0]} before AWAIT()'


def complaints_of(level, ptx):
    if not ptx.startswith(mark(level)):
        yield 'is not of the text that stands in text/: make ptx'
    beside = outside(ptx)
    if beside:
        yield f'{beside[:80]}: outside the kernels, where the library leaves it'
    for name, body in entries(ptx).items():
        said = awaits(body) if level >= 80 else None
        if said:
            yield f'{name}: {said}'
        m = LOOSE.search(body)
        if m:
            yield f'{name}: {m[0]}: an operation on floats must be a call of ' \
                  'the prelude'
        m = GENERIC.search(body)
        if m:
            yield f'{name}: {m[0]}: of no memory; add to the pointer, not to ' \
                  'what AT() is given'


def complaints():
    """What is wrong with the committed PTX: (path, what)."""
    if not os.path.exists(PTX):
        yield SHOWN, 'is not there: make ptx'
        return
    if tuple(unpack()) != LEVELS:
        yield SHOWN, f'has levels {tuple(unpack())}, not {LEVELS}: make ptx'
        return
    for level, ptx in unpack().items():
        for what in complaints_of(level, ptx):
            yield SHOWN, f'compute_{level}: {what}'
    size = os.path.getsize(PTX)
    if size > MOST_BYTES:
        yield SHOWN, f'{size} bytes of PTX, {MOST_BYTES} allowed'


# ---- what assemblers make of it --------------------------------------------

def kernels_of_sass(sass):
    """By name, the instructions and labels of each kernel, its subroutines among
    them."""
    out = {}
    name = None
    for line in sass.split('\n'):
        m = re.match(r'\s*\.section\s+\.text\.(\w+)', line)
        if m:
            name = m[1]
            out[name] = []
        elif name and re.match(r'\s*(?:/\*[0-9a-f]{4,}\*/|\.L_[\w.]+:)', line):
            out[name].append(line)
    return out


FUSED = re.compile(r'\b[FD]FMA2?\b')
# A sum of products is written so, or stands in what these become.
MAY_FUSE = re.compile(r'\b(?:fma\.rn|div\.rn\.f|sqrt\.rn\.f|rcp\.rn\.f)')


def assemble(text, device, version, folder):
    """Writes the device's code: (its path, by kernel what it uses, what is wrong
    with it)."""
    ptx = os.path.join(folder, 'text.ptx')
    cubin = os.path.join(folder, f'{device}.cubin')
    with open(ptx, 'w', encoding='utf-8') as f:
        f.write(text)
    p = gpu_tools.run(gpu_tools.wheel(*PTXAS[version]), f'-arch=sm_{device}',
                      '-v', ptx, '-o', cubin)
    used, said = gpu_code.uses(p.stderr + p.stdout)
    bad = ['\n'.join(said)] if said or p.returncode != 0 else []
    return cubin, used, bad


def check_code(level, device, cubin):
    """What is wrong with a device's instructions."""
    p = gpu_tools.run(gpu_tools.wheel(*NVDISASM), '-c', cubin)
    if p.returncode != 0:
        return [p.stderr.strip()]
    bad = []
    found = kernels_of_sass(p.stdout)
    n_matrix = n_plain = 0
    for name, body in entries(unpack()[level]).items():
        code = '\n'.join(found.get(name, []))
        matrix = re.search(r'\bmma\.sync\.[.\w]*s8', body) is not None
        if not code:
            bad.append(f'{name} has no code')
        if matrix and not re.search(r'\bIMMA\b', code):
            bad.append(f'{name}: no matrix instruction of integers')
        n_matrix += matrix
        n_wait = len(re.findall(r'\bACQBULK\b', code))
        if n_wait != (device >= 90):
            bad.append(f'{name}: waits {n_wait} times for those before')
        if not MAY_FUSE.search(body):
            n_plain += 1
            m = FUSED.search(code)
            if m:
                bad.append(f'{name}: {m[0]}, where the text fuses nothing')
    text = gpu_text.files(PRELUDE)[PRELUDE]
    if 'mma.sync' in text and (n_matrix > 0) != (level >= 80):
        bad.append(f'{n_matrix} kernels have matrix instructions')
    print(f'sm_{device}: {len(found)} kernels, {n_matrix} with matrix '
          f'instructions, {n_plain} that fuse nothing, {len(bad)} '
          'complaints', flush=True)
    return bad


def check_programs(level, folder):
    """The library has each kernel as a program of its own."""
    version, devices = list(DEVICES[level].items())[-1]
    bad = []
    for name, text in programs(unpack()[level]).items():
        bad += [f'compute_{level}, {name} by itself: {said}' for said in
                assemble(text, devices[0], version, folder)[2]]
    return bad


def check_device(level, device, version, folder, table):
    text = uncover(unpack()[level], device)
    cubin, used, bad = assemble(text, device, version, folder)
    if bad:
        return bad
    rows = gpu_code.rows_of(device, used)
    table[f'sm_{device}'] = rows
    wanted = gpu_code.floors(level)
    for name, row in rows.items():
        bad += gpu_code.under(name, row, wanted)
    if version == '13':
        return bad + check_code(level, device, cubin)
    print(f'sm_{device}: assembled', flush=True)
    return bad


def check_api():
    """What we say of the driver's functions is what the vendor says."""
    header = gpu_tools.wheel(*HEADER)
    p = gpu_tools.run(os.environ.get('CC', 'gcc'), '-std=gnu17',
                      '-fsyntax-only', '-I', os.path.dirname(header),
                      '-Iinclude', '-Isrc', 'scripts/gpu_abi_cuda.c',
                      cwd=gpu_text.ROOT)
    return p.stderr.strip().split('\n') if p.returncode != 0 else []


def check():
    bad = [f'{path}: {what}' for path, what in complaints()]
    bad += check_api()
    nvrtc = Nvrtc()
    table = {}
    for level, ptx in unpack().items() if os.path.exists(PTX) else ():
        if ptx != mark(level) + nvrtc.compile(level):
            bad.append(f'compute_{level}: NVRTC makes other PTX of the text')
        with tempfile.TemporaryDirectory() as folder:
            bad += check_programs(level, folder)
            for version, devices in DEVICES[level].items():
                for device in devices:
                    bad += [f'sm_{device}: {b}' for b in
                            check_device(level, device, version, folder,
                                         table)]
    print('registers/occupancy in %, +bytes spilled')
    gpu_code.print_table(table)
    for b in bad:
        print(b)
    print(f'check-ptx: {len(bad)} complaints')
    sys.exit(1 if bad else 0)


# ---- for the build ---------------------------------------------------------

def embed(out, path):
    with open(path, 'rb') as f:
        small = f.read()
    n = 0
    rows = ''
    for level, ptx in unpack(path).items():
        rows += f'    {{{level}, {n}, {len(ptx)}}},\n'
        n += len(ptx)
    with open(out, 'w', encoding='ascii') as f:
        f.write('/* Made by scripts/gpu_ptx.py. */\n'
                '#include "device/gpu/gpu_ptx.h"\n\n'
                f'const struct xz gpu_ptx = {packed.struct_xz(n, small, "")};\n\n'
                'const struct gpu_ptx_level gpu_ptx_level[] = {\n'
                f'{rows}    {{0, 0, 0}},\n}};\n')


def main():
    args = sys.argv[1:]
    if args == ['make']:
        make()
    elif args == ['check']:
        check()
    elif len(args) == 3 and args[0] == 'embed':
        embed(args[1], args[2])
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()
