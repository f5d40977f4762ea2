#!/usr/bin/env python3
"""packages.py [DIR]: builds and tries the packages where nothing else is
installed. Wants root, debootstrap, a mirror of Debian and an hour of a slow
machine; part of the long tier. DIR (build-packages) keeps the base system.

  1. The steps of Containerfile, each in a chroot. No builder of containers runs:
     this file reads the few instructions that ours has. The first stage makes
     the packages with what debian/control names and no more; the second installs
     plait in a clean system.
  2. The image's command, as its user, in a control group with limits, and a
     request to it.
  3. lintian on the packages, systemd-analyze on the unit.
  4. The packages for developers in another clean system: an example by
     pkg-config and by CMake.
"""
import ctypes
import fcntl
import fnmatch
import glob
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import traceback
import urllib.request

MODEL = 'models/fable-moe-Q8_0.gguf'
PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
MEMORY = 256 << 20
TOO_LITTLE = 12 << 20  # for the model, whose weights have 10
MOST_EXPOSED = 20  # of systemd-analyze's 100

# The root's file systems are mounted where no other process sees them.
MOUNTS = '''set -e
mount -t proc proc "$0/proc"
mount --rbind /sys "$0/sys"
mount --rbind /dev "$0/dev"
exec chroot "$0" /bin/sh -c 'cd "$0" && exec "$@"' "$@"'''


def run(*argv, **more):
    print('+', shlex.join(argv), flush=True)
    return subprocess.run(argv, check=True, **more)


class Stage:
    """A root file system, and what the instructions said of its processes."""

    def __init__(self, base, root):
        self.root, self.env = root, {'PATH': PATH}
        self.workdir, self.user = '/', 'root'
        self.entrypoint, self.cmd = [], []
        shutil.rmtree(root, ignore_errors=True)
        run('cp', '-a', '--reflink=auto', base, root)

    def command(self, argv):
        """Returns the words that run argv in the root."""
        if self.user != 'root':
            argv = ['setpriv', f'--reuid={self.user}', f'--regid={self.user}',
                    '--init-groups', '--no-new-privs', '--bounding-set=-all',
                    '--inh-caps=-all', *argv]
        return ['unshare', '--mount', '--pid', '--fork', '--kill-child',
                'sh', '-c', MOUNTS, self.root, self.workdir, 'env', '-i',
                *(f'{k}={v}' for k, v in self.env.items()), *argv]

    def run(self, text):
        print('+ in a chroot:', text, flush=True)
        subprocess.run(self.command(['/bin/sh', '-c', text]), check=True,
                       stdin=subprocess.DEVNULL)

    def path(self, name):
        return self.root + os.path.normpath(os.path.join('/', self.workdir,
                                                         name))


def instructions(path):
    """Yields the instructions of a Containerfile as pairs of name and text."""
    with open(path, encoding='utf-8') as f:
        text = re.sub(r'^\s*#.*\n', '', f.read(), flags=re.M)
    for line in text.replace('\\\n', ' ').splitlines():
        if line.strip():
            name, rest = line.split(None, 1)
            yield name.upper(), rest.strip()


def copy_tree(to):
    """Copies what is not ignored by .containerignore."""
    with open('.containerignore', encoding='utf-8') as f:
        ignored = f.read().split()
    os.makedirs(to, exist_ok=True)
    for name in sorted(os.listdir('.')):
        if not any(fnmatch.fnmatch(name, i) for i in ignored):
            run('cp', '-a', name, to)


def build_image(base, folder):
    """Carries out the Containerfile and returns its stages, the last last."""
    stages = {}
    for name, text in instructions('Containerfile'):
        if name == 'FROM':
            words = text.split()
            if words[0] != 'debian:bookworm-slim':
                sys.exit(f'Containerfile: FROM {words[0]}: no such base here')
            key = words[2] if len(words) == 3 else 'image'
            s = stages[key] = Stage(base, f'{folder}/{key}')
        elif name == 'RUN':
            s.run(text)
        elif name == 'COPY':
            *sources, to = text.split()
            if sources[0].startswith('--from='):
                of = stages[sources.pop(0).partition('=')[2]]
                for file in (f for x in sources for f in glob.glob(of.path(x))):
                    shutil.copy(file, s.path(to))
            else:
                assert sources == ['.'], text
                copy_tree(s.path(to))
        elif name == 'ENV':
            s.env.update(w.split('=', 1) for w in shlex.split(text))
        elif name == 'WORKDIR':
            s.workdir = text
            os.makedirs(s.root + text, exist_ok=True)
        elif name == 'USER':
            s.user = text
        elif name in ('ENTRYPOINT', 'CMD'):
            setattr(s, name.lower(), json.loads(text))
        elif name != 'EXPOSE':
            sys.exit(f'Containerfile: {name}: not known to packages.py')
    return stages


# ---- limits ------------------------------------------------------------------

def own_group(controller):
    """The directory of this process's control group; '' is that of version 2."""
    with open('/proc/self/cgroup', encoding='utf-8') as f:
        for line in f:
            _, names, path = line.rstrip('\n').split(':', 2)
            if controller in names.split(','):
                return f'/sys/fs/cgroup/{names}{path}'.replace('//', '/')
    return None


def make_groups(memory):
    """Returns control groups of so many bytes and one thread, or none."""
    one = {'memory': {'memory.limit_in_bytes': memory},
           'cpu': {'cpu.cfs_quota_us': 100000}}
    if not own_group('memory'):
        one = {'': {'memory.max': memory, 'cpu.max': '100000 100000'}}
    groups = []
    try:
        for controller, files in one.items():
            group = f'{own_group(controller)}/plait-packages-{os.getpid()}'
            os.mkdir(group)
            groups.append(group)
            for name, value in files.items():
                with open(f'{group}/{name}', 'w', encoding='utf-8') as f:
                    f.write(str(value))
    except OSError as e:
        print(f'no control group with limits can be made here ({e}); the '
              "image's command runs without")
        end_groups(groups)
        return []
    return groups


def end_groups(groups):
    for group in groups:
        for _ in range(100):
            try:
                os.rmdir(group)
                break
            except OSError:
                time.sleep(0.1)


def enter(groups):
    for group in groups:
        with open(f'{group}/cgroup.procs', 'w', encoding='utf-8') as f:
            f.write('0')


# ---- the parts ---------------------------------------------------------------

def with_own_network():
    """Moves this process to a network that has the loopback device alone, so
    that every port is free."""
    clone_newnet, siocsifflags, up = 0x40000000, 0x8914, 1
    if ctypes.CDLL(None, use_errno=True).unshare(clone_newnet) != 0:
        sys.exit(f'unshare: {os.strerror(ctypes.get_errno())}')
    with socket.socket() as s:
        fcntl.ioctl(s, siocsifflags, struct.pack('16sh22x', b'lo', up))


def get(path, body=None):
    request = urllib.request.Request(f'http://127.0.0.1:8080{path}',
                                     json.dumps(body).encode() if body else None)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def try_server(p):
    """One request to a server, which then ends as `podman stop` ends it."""
    while True:
        try:
            get('/health')
            break
        except OSError:
            assert p.poll() is None, 'the server ended'
            time.sleep(0.1)
    with open(f'/proc/{p.pid}/task/{p.pid}/children', encoding='utf-8') as f:
        pid = int(f.read())
    with open(f'/proc/{pid}/status', encoding='utf-8') as f:
        status = dict(line.split(':\t', 1) for line in f.read().splitlines())
    assert int(status['Uid'].split()[0]) != 0, status['Uid']
    assert int(status['CapEff'], 16) == 0, status['CapEff']
    print('the server has user', status['Uid'].split()[0], 'and no rights')
    text = get('/v1/completions', {'prompt': 'Once upon a time',
                                   'max_tokens': 16})['choices'][0]['text']
    assert text.strip()
    print('the server writes:', text)
    os.kill(pid, signal.SIGTERM)
    assert p.wait() == 0, p.returncode


def try_limits(image):
    """plait sees the limits, and refuses a model that they do not allow before
    the kernel ends it."""
    groups = make_groups(MEMORY)
    if not groups:
        return
    devices = image.command([*image.entrypoint, 'devices', '--json'])
    try:
        seen = json.loads(subprocess.check_output(
            devices, preexec_fn=lambda: enter(groups)))
    finally:
        end_groups(groups)
    assert seen['quota'] == 1 and seen['memory'] == MEMORY, seen
    print(f'of limits of 1 thread and {MEMORY >> 20} MiB plait sees both')
    groups = make_groups(TOO_LITTLE)
    serve = image.command([*image.entrypoint, 'serve', '-m',
                           '/models/' + os.path.basename(MODEL)])
    try:
        p = subprocess.run(serve, capture_output=True, text=True, check=False,
                           preexec_fn=lambda: enter(groups))
    finally:
        end_groups(groups)
    assert p.returncode == 1, p
    assert f'available of {TOO_LITTLE >> 20}.00 MiB' in p.stderr, p
    print('with too little:', p.stderr.strip().splitlines()[-1])


def try_image(image):
    """Starts what the image starts, within limits."""
    os.makedirs(f'{image.root}/models', exist_ok=True)
    shutil.copy(MODEL, f'{image.root}/models')
    with_own_network()
    try_limits(image)
    groups = make_groups(MEMORY)
    try:
        p = subprocess.Popen(image.command([*image.entrypoint, *image.cmd]),
                             preexec_fn=lambda: enter(groups))
        try:
            try_server(p)
        finally:
            p.kill()
            p.wait()
    finally:
        end_groups(groups)


def apart(work, *args):
    """Runs work in a process of its own, for what it changes of the process."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(*args)
            code = 0
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        sys.exit(f'{work.__name__} failed')


def try_forms(built, image, folder):
    """Has lintian read the packages, and systemd the unit."""
    changes, = glob.glob(f'{built}/*.changes')
    run('lintian', '--allow-root', '--fail-on', 'error', changes)
    unit = f'{folder}/plait.service'
    with open(f'{image.root}/lib/systemd/system/plait.service',
              encoding='utf-8') as f:
        text = f.read()
    with open(unit, 'w', encoding='utf-8') as f:
        f.write(text.replace('=/usr/bin/plait', f'={image.root}/usr/bin/plait'))
    said = subprocess.run(['systemd-analyze', 'verify', '--man=no', unit],
                          capture_output=True, text=True, check=True).stderr
    assert 'plait.service' not in said, said
    run('systemd-analyze', 'security', '--offline=true', '--no-pager',
        f'--threshold={MOST_EXPOSED}', unit, stdout=subprocess.DEVNULL)
    assert os.path.exists(f'{image.root}/etc/default/plait')


def try_developers(base, built, folder):
    """Builds an example with what libplait-dev installs."""
    s = Stage(base, f'{folder}/developers')
    s.workdir = '/src'
    copy_tree(f'{s.root}/src')
    for package in glob.glob(f'{built}/*plait*.deb'):
        shutil.copy(package, f'{s.root}/tmp')
    tale = f"{MODEL} 'cpu*2' 'Once upon a time'"
    s.run('apt-get update -q && apt-get install -qy --no-install-recommends '
          'gcc libc6-dev pkg-config /tmp/libplait*.deb')
    s.run('cc examples/tale.c -o /tmp/tale $(pkg-config --cflags --libs plait) '
          f'&& /tmp/tale {tale}')
    s.run('apt-get install -qy --no-install-recommends cmake make libhwloc-dev '
          'libjansson-dev liblzma-dev libpcre2-dev nettle-dev')
    s.run('cmake -S examples -B /tmp/build && cmake --build /tmp/build && '
          f'/tmp/build/tale {tale} && /tmp/build/tale-static {tale}')
    s.run('apt-get remove -qy --purge libplait0 libplait-dev && '
          '! ls /usr/lib/*/libplait*')


def main():
    folder = os.path.abspath(sys.argv[1] if len(sys.argv) > 1
                             else 'build-packages')
    base = f'{folder}/base'
    if os.getuid() != 0:
        sys.exit('packages.py: chroot wants root')
    if not os.path.exists(base):
        shutil.rmtree(f'{base}.part', ignore_errors=True)
        os.makedirs(folder, exist_ok=True)
        run('debootstrap', '--variant=minbase', 'bookworm', f'{base}.part',
            *filter(None, [os.environ.get('DEBIAN_MIRROR')]),
            stdout=subprocess.DEVNULL)
        os.rename(f'{base}.part', base)
    stages = build_image(base, folder)
    built = stages['build'].root + '/src/build-deb'
    apart(try_image, stages['image'])
    try_forms(built, stages['image'], folder)
    try_developers(base, built, folder)
    for name in [*stages, 'developers']:
        shutil.rmtree(f'{folder}/{name}')


if __name__ == '__main__':
    main()
