#!/usr/bin/env python3
"""gpu_ptx.py make | check | embed OUT FILE...: the kernels' text as PTX.

make   compiles src/device/gpu/text by NVRTC 11.8, whose PTX every driver since
       its time takes, into src/device/gpu/ptx: for devices with dp4a, and for
       those with matrix instructions of 8-bit integers.
check  compiles it again and compares; assembles the PTX for the devices there
       are, and looks at the instructions; compares cuda_api.h with the vendor's
       header.
embed  writes a C file that holds the PTX of the files; the build calls this.
"""
import ctypes
import gzip
import os
import re
import sys
import tempfile

import gpu_text
import gpu_tools
import packed

PTX = os.path.join(gpu_text.ROOT, 'src/device/gpu/ptx')
PRELUDE = 'prelude_cuda.h'
LEVELS = (61, 80)
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
MOST_BYTES = 4 << 20  # of packed PTX in the repository


def options(level):
    return OPTIONS + [f'-arch=compute_{level}']


def path_of(level):
    return os.path.join(PTX, f'compute_{level}.ptx.gz')


def unpack(path):
    with open(path, 'rb') as f:
        return gzip.decompress(f.read()).decode()


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

    def compile(self, level):
        def strings(words):
            return (ctypes.c_char_p * len(words))(*(w.encode() for w in words))

        found = gpu_text.files(PRELUDE)
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


def mark(level):
    return f'// text {gpu_text.digest(PRELUDE, options(level))}\n'


def make():
    nvrtc = Nvrtc()
    os.makedirs(PTX, exist_ok=True)
    for level in LEVELS:
        ptx = mark(level) + nvrtc.compile(level)
        path = path_of(level)
        if os.path.exists(path) and unpack(path) == ptx:
            print(f'{os.path.basename(path)}: as it was')
            continue
        packed = gzip.compress(ptx.encode(), 9, mtime=0)
        with open(path, 'wb') as f:
            f.write(packed)
        print(f'{os.path.basename(path)}: {len(entries(ptx))} kernels, '
              f'{len(ptx)} bytes, {len(packed)} compressed')


# ---- what the PTX says; no tool is needed ----------------------------------

def entries(ptx):
    """The kernels by name: what stands between their braces."""
    found = re.findall(r'^\.visible \.entry (\w+)\(.*?^\{\n(.*?)^\}', ptx,
                       re.M | re.S)
    return dict(found)


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


def complaints():
    """What is wrong with the committed PTX: (path, what)."""
    size = 0
    for level in LEVELS:
        path = path_of(level)
        shown = os.path.relpath(path, gpu_text.ROOT)
        if not os.path.exists(path):
            yield shown, 'is not there: make ptx'
            continue
        ptx = unpack(path)
        size += os.path.getsize(path)
        if not ptx.startswith(mark(level)):
            yield shown, 'is not of the text that stands in text/: make ptx'
        for name, body in entries(ptx).items():
            said = awaits(body) if level >= 80 else None
            if said:
                yield shown, f'{name}: {said}'
            m = LOOSE.search(body)
            if m:
                yield shown, f'{name}: {m[0]}: an operation on floats must ' \
                             'be a call of the prelude'
            m = GENERIC.search(body)
            if m:
                yield shown, f'{name}: {m[0]}: of no memory; add to the ' \
                             'pointer, not to what AT() is given'
    if size > MOST_BYTES:
        yield os.path.relpath(PTX, gpu_text.ROOT), \
            f'{size} bytes of PTX, {MOST_BYTES} allowed'


# ---- what assemblers make of it --------------------------------------------

def kernels_of_sass(sass):
    """By name, the instructions of each kernel, its subroutines among them."""
    out = {}
    name = None
    for line in sass.split('\n'):
        m = re.match(r'\s*\.section\s+\.text\.(\w+)', line)
        if m:
            name = m[1]
            out[name] = []
        elif name and re.match(r'\s*/\*[0-9a-f]{4,}\*/', line):
            out[name].append(line)
    return out


FUSED = re.compile(r'\b[FD]FMA2?\b')
# A sum of products is written so, or stands in what these become.
MAY_FUSE = re.compile(r'\b(?:fma\.rn|div\.rn\.f|sqrt\.rn\.f|rcp\.rn\.f)')


def assemble(text, device, version, folder):
    """Writes the device's code: its path, and what is wrong with it."""
    ptx = os.path.join(folder, 'text.ptx')
    cubin = os.path.join(folder, f'{device}.cubin')
    with open(ptx, 'w', encoding='utf-8') as f:
        f.write(text)
    p = gpu_tools.run(gpu_tools.wheel(*PTXAS[version]), f'-arch=sm_{device}',
                      ptx, '-o', cubin)
    said = p.stderr.strip()
    return cubin, [said] if said or p.returncode != 0 else []


def check_code(level, device, cubin):
    """What is wrong with a device's instructions."""
    p = gpu_tools.run(gpu_tools.wheel(*NVDISASM), '-c', cubin)
    if p.returncode != 0:
        return [p.stderr.strip()]
    bad = []
    found = kernels_of_sass(p.stdout)
    n_matrix = n_plain = 0
    for name, body in entries(unpack(path_of(level))).items():
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
    for name, text in programs(unpack(path_of(level))).items():
        text = text.replace('LEVEL', str(level), 1)
        bad += [f'compute_{level}, {name} by itself: {said}' for said in
                assemble(text, devices[0], version, folder)[1]]
    return bad


def check_device(level, device, version, folder):
    text = uncover(unpack(path_of(level)), device)
    cubin, bad = assemble(text, device, version, folder)
    if bad:
        return bad
    if version == '13':
        return check_code(level, device, cubin)
    print(f'sm_{device}: assembled', flush=True)
    return []


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
    for level in LEVELS:
        if not os.path.exists(path_of(level)):
            continue
        if unpack(path_of(level)) != mark(level) + nvrtc.compile(level):
            bad.append(f'compute_{level}: NVRTC makes other PTX of the text')
        with tempfile.TemporaryDirectory() as folder:
            bad += check_programs(level, folder)
            for version, devices in DEVICES[level].items():
                for device in devices:
                    bad += [f'sm_{device}: {b}' for b in
                            check_device(level, device, version, folder)]
    for b in bad:
        print(b)
    print(f'check-ptx: {len(bad)} complaints')
    sys.exit(1 if bad else 0)


# ---- for the build ---------------------------------------------------------

def programs(ptx):
    """By kernel: a program of its own, which lacks .target."""
    head = '.version 7.8\n.target sm_LEVEL\n.address_size 64\n'
    if '\n.version 7.8\n' not in ptx or '\n.address_size 64\n' not in ptx:
        sys.exit('NVRTC writes another head than embed() does')
    body = ptx[ptx.index('.address_size 64\n') + len('.address_size 64\n'):]
    entry = re.compile(r'^\.visible \.entry (\w+)\(.*?^\}\n', re.M | re.S)
    rest = re.sub(r'//[^\n]*', '', entry.sub('', body))
    shared = {}  # tables and the like, by name
    for item in rest.split(';'):
        m = re.match(r'\s*(\.(?:global|const|shared)\b[^=\[]*?(\w+)\s*'
                     r'(?:[\[=].*)?)$', item, re.S)
        if m:
            shared[m[2]] = m[1] + ';\n'
        elif item.strip():
            sys.exit(f'{item.strip()[:200]}: embed() has no place for this')
    out = {}
    for m in entry.finditer(body):
        words = set(re.findall(r'[\w$]+', m[0]))
        uses = ''.join(text for name, text in shared.items() if name in words)
        out[m[1]] = head + uses + re.sub(r'\n\n+', '\n', m[0])
    return out


def pack(paths):
    """(level, bytes) of each file, without what the one before has."""
    before = {}
    for path in paths:
        level = re.search(r'compute_(\d+)', path)[1]
        now = programs(unpack(path))
        text = ''.join(f'{name}\0{program}\0'.replace('LEVEL', level, 1)
                       for name, program in now.items()
                       if before.get(name) != program)
        before.update(now)
        yield int(level), text.encode()


def embed(out, paths):
    with open(out, 'w', encoding='ascii') as f:
        f.write('/* Made by scripts/gpu_ptx.py. */\n'
                '#include "device/gpu/gpu_ptx.h"\n\n'
                'const struct gpu_ptx gpu_ptx[] = {\n')
        for level, text in pack(paths):
            small = packed.squeeze(text)
            f.write(f'    {{{level}, {len(text)}, {len(small)},\n'
                    f'{packed.literal(small, "     ")}    }},\n')
        f.write('    {0, 0, 0, 0},\n};\n')


def main():
    args = sys.argv[1:]
    if args == ['make']:
        make()
    elif args == ['check']:
        check()
    elif len(args) > 2 and args[0] == 'embed':
        embed(args[1], args[2:])
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()
