#!/usr/bin/env python3
"""gpu_sass.py [--devices 90,80] [--trips N] [--dump] [KERNEL ...]: what NVIDIA's
compilers make of the kernels' text, as a table.

Compiles the text as it stands, only the kernels named (patterns such as
'matmul_*'; none: all), and prints of each kernel and device: registers, bytes
spilled, bytes of shared memory, occupancy; and of its loops from the innermost
outwards, the instructions of the longest way around by class, of the shortest
way in all. The main loop is the one with the most matrix instructions, else
dots, else fused multiply-adds. Loops within a loop are left out of its counts.

--trips N also prints instructions per matrix instruction over two loops: N turns
of the innermost one and the mean of the shortest and the longest way around the
next. --dump prints the instructions of the innermost loop, blocks numbered.
"""
import argparse
import fnmatch
import sys
import tempfile

import gpu_code
import gpu_ptx
import gpu_tools

PRODUCTS = ('mma', 'dot', 'ffma')


def level_of(device):
    return 80 if device >= 80 else 61


def compiled(wanted, devices, folder):
    """(Device, uses by kernel, disassembly by kernel), for each device."""
    nvrtc = gpu_ptx.Nvrtc()
    made = {}
    for device in devices:
        level = level_of(device)
        if level not in made:
            made[level] = nvrtc.compile(level, wanted)
        version = '13' if device >= 75 else '12'
        text = gpu_ptx.uncover(made[level], device)
        cubin, used, bad = gpu_ptx.assemble(text, device, version, folder)
        if bad:
            sys.exit('\n'.join(bad))
        sass = {}
        if version == '13':
            p = gpu_tools.run(gpu_tools.wheel(*gpu_ptx.NVDISASM), '-c', cubin)
            if p.returncode != 0:
                sys.exit(p.stderr.strip())
            sass = gpu_ptx.kernels_of_sass(p.stdout)
        yield device, used, sass


def spell(counts):
    order = [name for name, _ in gpu_code.CLASSES]
    names = sorted(counts, key=lambda c: next(
        (i for i, o in enumerate(order) if c.startswith(o)), 99))
    return ' '.join(f'{c} {counts[c]}' for c in names)


def products(counts):
    return next((counts[p] for p in PRODUCTS if counts[p]), 0)


def show_loops(code, trips):
    inner = None
    for depth, loop in enumerate(code.main_loop()):
        short, long = code.paths(loop)
        counts, n_short = code.count(long), code.count(short).total()
        n, n_product = counts.total(), products(counts)
        each = f', {n / n_product:.1f} a product' if n_product else ''
        print(f'    loop {depth}: {n} instructions{each}, {n_short} the shortest '
              f'way, {code.guarded(long)} guarded: {spell(counts)}')
        if depth == 0:
            inner = n, n_product
        elif depth == 1 and trips and inner[1]:
            n_all = inner[0] * trips + (n + n_short) / 2
            print(f'    loops 0 and 1, {trips} turns: '
                  f'{n_all / (inner[1] * trips):.1f} a product')


def dump(code):
    loops = code.main_loop()
    for b in sorted(loops[0]) if loops else ():
        print(f'    block {b}, then {code.next[b]}')
        for i in code.blocks[b]:
            c = code.code[i]
            print(f'      {c.address:05x} {gpu_code.class_of(c):7} '
                  f'{c.guard or "":5} {c.op} {c.text}')


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument('--devices', default='90')
    p.add_argument('--trips', type=int, default=0)
    p.add_argument('--dump', action='store_true')
    p.add_argument('kernels', nargs='*')
    args = p.parse_args()
    n_lane = gpu_code.lanes()
    wanted = [n for n in n_lane if not args.kernels or any(
        fnmatch.fnmatchcase(n, k) for k in args.kernels)]
    devices = [int(d) for d in args.devices.split(',')]
    if not wanted:
        sys.exit('no such kernel')
    with tempfile.TemporaryDirectory() as folder:
        for device, used, sass in compiled(
                wanted if args.kernels else None, devices, folder):
            for name in wanted:
                use = used[name]
                held = gpu_code.occupancy(device, use, n_lane[name])
                code = gpu_code.Code(sass.get(name, []))
                print(f'sm_{device} {name}: {use.registers} registers, '
                      f'{use.spilled} bytes spilled, {use.shared} shared, '
                      f'{held} % occupancy, {len(code.code)} instructions')
                if code.code:
                    show_loops(code, args.trips)
                    if args.dump:
                        dump(code)


if __name__ == '__main__':
    main()
