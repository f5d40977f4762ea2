"""Compilers and assemblers of GPUs: on PATH, or the wheels of a vendor, which
are unpacked into build-gpu-tools/ when they are first asked for."""
import glob
import os
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOOLS = os.path.join(ROOT, 'build-gpu-tools')


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True,
                          errors='replace', **more)


def wheel(package, version, pattern):
    """The file of PyPI's package whose path matches the pattern."""
    folder = os.path.join(TOOLS, f'{package}-{version}')
    if not os.path.isdir(folder):
        part = folder + '.part'
        shutil.rmtree(part, ignore_errors=True)
        print(f'fetching {package} {version}', flush=True)
        p = run(sys.executable, '-m', 'pip', 'install', '--quiet', '--no-deps',
                '--target', part, f'{package}=={version}')
        if p.returncode != 0:
            sys.exit(f'{package} {version} is needed, and pip cannot fetch it: '
                     f'{p.stderr.strip()}')
        os.rename(part, folder)
    found = sorted(glob.glob(os.path.join(folder, '**', pattern),
                             recursive=True))
    if not found:
        sys.exit(f'{package} {version} has no {pattern}')
    return found[0]


def debian(command, *packages):
    """A command of a Debian package, which is installed if need be."""
    return install(command, lambda: shutil.which(command), packages)


def debian_file(path, *packages):
    """The same of a file."""
    return install(path, lambda: os.path.exists(path), packages)


def install(what, is_there, packages):
    if is_there():
        return what
    need = ' '.join(packages)
    if os.geteuid() != 0 or not shutil.which('apt-get'):
        sys.exit(f'{what} is not there; install it: apt-get install {need}')
    print(f'installing {need}', flush=True)
    env = dict(os.environ, DEBIAN_FRONTEND='noninteractive')
    p = run('apt-get', 'install', '-y', '-qq', '--no-install-recommends',
            *packages, env=env)
    if not is_there():
        sys.exit(f'apt-get cannot install {need}: {p.stderr.strip()}')
    return what
