#!/usr/bin/env python3
"""gpu_hip.py: compiles the kernels' text for AMD's devices by clang 19, as hiprtc
does with it at run time, and looks at what comes out.

Each kernel is there, floats keep subnormals, nothing multiplies and adds as one
operation in a kernel whose text does not ask for it, and kernels for matrix units
use those that the device has. Prints registers, occupancy and private memory, and
holds them against gpu_floors.txt. Then by Debian's hiprtc, which is older; and
what we say of HIP's functions is what the vendor says.
"""
import ctypes
import os
import re
import sys
import tempfile

import gpu_code
import gpu_text
import gpu_tools

PRELUDE = 'prelude_hip.h'
DEVICES = ('gfx900', 'gfx906', 'gfx90a', 'gfx942', 'gfx1030', 'gfx1100',
           'gfx1151', 'gfx1200', 'gfx1201')
OPTIONS = ['-x', 'hip', '-std=c++17', '--cuda-device-only', '-nogpuinc',
           '-nogpulib', '-ffp-contract=off', '-O3', '-Wall', '-Wextra',
           '-Werror', '-Wno-unused-function', '-S', '-emit-llvm', '-o', '-']
HEADER = '/usr/include/hip/hip_runtime_api.h'
HIPRTC_DEVICES = ('gfx90a', 'gfx1030')
MATRIX = {'gfx90a': 'v_mfma_i32_16x16x16', 'gfx942': 'v_mfma_i32_16x16x32',
          'gfx1100': 'v_wmma_i32_16x16x16', 'gfx1151': 'v_wmma_i32_16x16x16',
          'gfx1200': 'v_wmma_i32_16x16x16', 'gfx1201': 'v_wmma_i32_16x16x16'}
KERNELS = os.path.join(gpu_text.ROOT, 'src/device/gpu/gpu_kernels.def')
FUSED = re.compile(r'\bv_(?:pk_)?(?:fma|mad|mac)(?:c|mk|ak|_mix\w*)?_f(?:32|64)')
# A sum of products is written so, or stands in what these become; integers are
# divided by way of floats.
MAY_FUSE = re.compile(r'\bllvm\.fma\.|\bfdiv\b|\bllvm\.sqrt\.|'
                      r'\b[su](?:div|rem)\b[^\n]* i64')


def compile_text(device, out):
    """(LLVM's form of the text, assembly, what the compiler said)."""
    clang = gpu_tools.debian('clang-19', 'clang-19', 'lld-19')
    path = os.path.join(out, 'text.hip')
    with open(path, 'w', encoding='utf-8') as f:
        f.write(gpu_text.program(PRELUDE))
    command = [clang, *OPTIONS, f'--offload-arch={device}',
               f'-I{gpu_text.TEXT}', path]
    llvm = gpu_tools.run(*command)
    if llvm.returncode != 0 or llvm.stderr:
        return '', '', llvm.stderr.strip()
    command.remove('-emit-llvm')
    code = gpu_tools.run(*command)
    return llvm.stdout, code.stdout, code.stderr.strip()


def kernels_of_llvm(text):
    found = re.findall(r'^define [^\n]*amdgpu_kernel void @(\w+)\((.*?)^\}',
                       text, re.M | re.S)
    return dict(found)


def kernel_of_code(code, name):
    m = re.search(rf'^{name}:(.*?)^\s*\.end_amdhsa_kernel', code, re.M | re.S)
    return m[1] if m else ''


# The compiler's remarks behind a kernel. Occupancy is in waves of a SIMD.
REMARKS = re.compile(r'^; Kernel info:.*?^; NumVgprs: (\d+)$.*?'
                     r'^; ScratchSize: (\d+)$.*?^; Occupancy: (\d+)$',
                     re.M | re.S)
MOST_WAVES = {'gfx900': 10, 'gfx906': 10, 'gfx90a': 8, 'gfx942': 8}


def uses(device, code, kernels):
    """By kernel: registers, occupancy in percent, bytes of private memory."""
    found = {}
    for name in kernels:
        at = code.find(f'\n{name}:')
        m = REMARKS.search(code, at) if at >= 0 else None
        if m:
            registers, private, waves = map(int, m.groups())
            found[name] = (registers,
                           100 * waves // MOST_WAVES.get(device, 16), private)
    return found


def kernels_for_matrix_units():
    with open(KERNELS, encoding='utf-8') as f:
        return re.findall(r'^GPU_KERNEL_MATRIX\((\w+)', f.read(), re.M)


def check_device(device, folder, table):
    llvm, code, said = compile_text(device, folder)
    if said:
        return [said]
    bad = []
    kernels = kernels_of_llvm(llvm)
    n_plain = 0
    for name, body in kernels.items():
        own = kernel_of_code(code, name)
        if not re.search(r'\.amdhsa_float_denorm_mode_32 3', own):
            bad.append(f'{name}: subnormals are not kept')
        if MAY_FUSE.search(body):
            continue
        n_plain += 1
        m = FUSED.search(own)
        if m:
            bad.append(f'{name}: {m[0]}, where the text fuses nothing')
    for name in kernels_for_matrix_units():
        unit = MATRIX.get(device, '')
        if unit not in kernel_of_code(code, name):
            bad.append(f'{name}: no {unit}')
    if not kernels:
        bad.append('no kernels')
    table[device] = uses(device, code, kernels)
    rows = gpu_code.floors('amd')
    for name in kernels:
        bad += gpu_code.under(name, table[device].get(name), rows)
    print(f'{device}: {len(kernels)} kernels, {n_plain} that fuse nothing, '
          f'{len(bad)} complaints', flush=True)
    return bad


def check_api():
    """What we say of HIP's functions is what the vendor says."""
    gpu_tools.debian_file(HEADER, 'libamdhip64-dev')
    p = gpu_tools.run(os.environ.get('CC', 'gcc'), '-std=gnu17',
                      '-fsyntax-only', '-Iinclude', '-Isrc',
                      'scripts/gpu_abi_hip.c', cwd=gpu_text.ROOT)
    return p.stderr.strip().split('\n') if p.returncode != 0 else []


def whole_text():
    """In one piece, as the library has it."""
    out = []
    taken = set()

    def take(name, once):
        if once and name in taken:
            return
        taken.add(name)
        with open(os.path.join(gpu_text.TEXT, name), encoding='utf-8') as f:
            for line in f:
                m = gpu_text.INCLUDE.match(line)
                if m:
                    take(m[1], False)
                else:
                    out.append(line)

    take(PRELUDE, True)
    take('all.h', True)
    return ''.join(out)


def check_hiprtc(device, text):
    library = ctypes.CDLL('libamdhip64.so.5')
    program = ctypes.c_void_p()
    n = ctypes.c_size_t()
    option = (ctypes.c_char_p * 5)(b'-std=c++17', b'-O3', b'-ffp-contract=off',
                                   b'-w', f'--offload-arch={device}'.encode())
    library.hiprtcCreateProgram(ctypes.byref(program), text.encode(),
                                b'plait.hip', 0, None, None)
    code = library.hiprtcCompileProgram(program, 5, option)
    if code != 0:
        library.hiprtcGetProgramLogSize(program, ctypes.byref(n))
        log = ctypes.create_string_buffer(n.value + 1)
        library.hiprtcGetProgramLog(program, log)
        return [f'hiprtc: {log.value.decode(errors="replace")[:2000]}']
    library.hiprtcGetCodeSize(program, ctypes.byref(n))
    print(f'{device}: hiprtc made {n.value} bytes', flush=True)
    return []


def main():
    bad = check_api()
    table = {}
    text = whole_text()
    for device in HIPRTC_DEVICES:
        bad += [f'{device}: {b}' for b in check_hiprtc(device, text)]
    with tempfile.TemporaryDirectory() as folder:
        for device in DEVICES:
            bad += [f'{device}: {b}' for b in check_device(device, folder, table)]
    print('registers/occupancy in %, +bytes of private memory')
    gpu_code.print_table(table)
    for b in bad:
        print(b)
    print(f'check-hip: {len(bad)} complaints')
    sys.exit(1 if bad else 0)


main()
