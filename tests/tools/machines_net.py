#!/usr/bin/env python3
"""Machines of `plait serve --hosts` as network namespaces of one computer.

  machines_net.py [--mpi openmpi|mpich] [--processes] PLAIT MODEL SCENE ...

Each machine is a network, host name and process namespace with a cable to a
switch; machine 0 also has the front. A shell script stands in for ssh. Scenes:

  load:M, idle:M, step:M   kills machine M with -9 while the model is loaded,
                           between steps, in a step
  stop:M                   stops machine M in a step with SIGSTOP
  cut:M                    cuts the cable of machine M, mends it 8 s later
  random:N                 N deaths of random machines: killed, stopped or cut
                           off, at random moments of a load, between steps or
                           in a step; PLAIT_SEED chooses them
  demo                     one death and the return, told plainly

After each, clients must have got an error, then status 503 with Retry-After,
then the text of before; and at the end no process may be left on any machine.
--processes makes two machines as processes. Else it needs root. Exits with 77 if namespaces cannot be made. Times are printed, none
is judged; limits only end what hangs."""
import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

LIMIT = 150  # seconds after which something hangs
T0 = time.time()


def say(*words):
    print(f'{time.time() - T0:7.2f} s ', *words, flush=True)


def fail(*words):
    say('FAILED:', *words)
    raise SystemExit(1)


def run(*words):
    return subprocess.run(words, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)


class Net:
    """n machines on a switch; 10.99.0.1 is machine 0."""

    SSH = '''#!/bin/sh
while :; do case $1 in -o|-p) shift 2;; -*) shift;; *) break;; esac; done
k=$((${1##*.} - 1)); shift
if [ -e DIR/cut.$k ]; then echo "ssh: no route to host" >&2; sleep 1; exit 255; fi
j=DIR/in.$k/$$.job
echo "$*" >$j.new; mv $j.new $j
while [ ! -e $j.rc ]; do [ -e DIR/cut.$k ] && exit 255; sleep 0.05; done
cat $j.out >&2; exit $(cat $j.rc)
'''
    DAEMON = '''hostname NAME
while :; do for j in DIR/in.K/*.job; do
[ -e $j ] || continue; mv $j $j.run
(sh $j.run >$j.out 2>&1 </dev/null; echo $? >$j.new; mv $j.new $j.rc) &
done; sleep 0.05; done'''

    def __init__(self, n):
        self.n = n
        self.dir = tempfile.mkdtemp(prefix='plait-net-')
        self.tag = 'pl' + self.dir[-6:].replace('_', 'x').lower()
        self.daemon = []
        self.ssh = f'{self.dir}/ssh'
        with open(self.ssh, 'w') as f:
            f.write(self.SSH.replace('DIR', self.dir))
        os.chmod(self.ssh, 0o755)

    def hosts(self):
        return ','.join(f'10.99.0.{k + 1}' for k in range(self.n))

    def inside(self):
        """The words that run a command on machine 0."""
        return ['ip', 'netns', 'exec', self.name(0), 'unshare', '--uts', 'sh',
                '-c', f'hostname {self.name(0)}; exec "$@"', 'sh']

    def name(self, k):
        return f'{self.tag}-{k}'

    def up(self):
        """Returns an error, or None."""
        sw = self.tag + '-s'
        steps = [f'ip netns add {sw}',
                 f'ip -n {sw} link add br0 type bridge',
                 f'ip -n {sw} link set br0 up']
        for k in range(self.n):
            h = self.name(k)
            steps += [f'ip netns add {h}',
                      f'ip link add e0 netns {h} type veth peer name p{k} '
                      f'netns {sw}',
                      f'ip -n {sw} link set p{k} master br0 up',
                      f'ip -n {h} addr add 10.99.0.{k + 1}/24 dev e0',
                      f'ip -n {h} link set e0 up', f'ip -n {h} link set lo up']
        for s in steps:
            r = run(*s.split())
            if r.returncode != 0:
                return f'{s}: {r.stdout.strip()}'
        for k in range(1, self.n):
            os.mkdir(f'{self.dir}/in.{k}')
            text = self.DAEMON.replace('DIR', self.dir)
            text = text.replace('K/', f'{k}/').replace('NAME', self.name(k))
            self.daemon.append(subprocess.Popen(
                ['ip', 'netns', 'exec', self.name(k), 'unshare', '--uts',
                 '--pid', '--fork', '--kill-child', '--mount-proc', 'sh', '-c',
                 text], start_new_session=True, stdin=subprocess.DEVNULL))
        return None

    def pids(self, k):
        out = run('ip', 'netns', 'pids', self.name(k)).stdout
        return [int(p) for p in out.split() if p.isdigit()]

    def named(self, k):
        """The processes of a machine that are parts of a job, with names."""
        found = []
        for p in self.pids(k):
            try:
                with open(f'/proc/{p}/comm') as f:
                    name = f.read().strip()
                with open(f'/proc/{p}/stat') as f:
                    state = f.read().rpartition(')')[2].split()[0]
            except OSError:
                continue
            if state != 'Z' and name.startswith(('plait', 'orte', 'mpi',
                                                 'hydra')):
                found.append((p, name))
        return found

    def plait(self, k):
        """The process of plait on machine k; None if it does not run."""
        for p, name in self.named(k):
            try:
                with open(f'/proc/{p}/environ', 'rb') as f:
                    env = f.read().split(b'\0')
            except OSError:
                continue
            if name == 'plait' and (b'OMPI_COMM_WORLD_RANK=%d' % k in env or
                                    b'PMI_RANK=%d' % k in env):
                return p
        return None

    def cut(self, k, cut):
        run('ip', '-n', self.tag + '-s', 'link', 'set', f'p{k}',
            'down' if cut else 'up')
        if cut:
            open(f'{self.dir}/cut.{k}', 'w').close()
        else:
            os.unlink(f'{self.dir}/cut.{k}')

    def down(self):
        for d in self.daemon:
            os.killpg(d.pid, signal.SIGKILL)
            d.wait()
        for k in range(self.n):
            for p in self.pids(k):
                try:
                    os.kill(p, signal.SIGKILL)
                except OSError:
                    pass
            run('ip', 'netns', 'del', self.name(k))
        run('ip', 'netns', 'del', self.tag + '-s')
        shutil.rmtree(self.dir, ignore_errors=True)


class Processes(Net):
    """Machines that are only processes, where namespaces cannot be made."""

    def up(self):
        return None

    def down(self):
        for p, _ in self.named(0):
            os.kill(p, signal.SIGKILL)
        shutil.rmtree(self.dir, ignore_errors=True)

    def hosts(self):
        return ','.join(['localhost'] * self.n)

    def inside(self):
        return []

    def pids(self, k):
        """All processes of the job count as those of machine 0."""
        found = []
        for p in os.listdir('/proc'):
            try:
                with open(f'/proc/{p}/environ', 'rb') as f:
                    if f'PLAIT_SSH={self.ssh}'.encode() in \
                            f.read().split(b'\0'):
                        found.append(int(p))
            except (OSError, ValueError):
                continue
        return found


class Client(http.client.HTTPConnection):
    """The server's Unix socket, which all namespaces see."""

    def __init__(self, path):
        super().__init__('localhost', timeout=LIMIT)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Front:
    """plait serve --hosts on machine 0 of a network."""

    def __init__(self, net, plait, model, mpi, more=()):
        self.net = net
        self.path = f'{net.dir}/s.sock'
        self.log = open(f'{net.dir}/log', 'wb')
        words = [plait, 'serve', '--hosts', net.hosts(), '-m', model, '--host',
                 self.path, '-sm', 'tensor', '-c', '4096', '-t', '1', '--no-pin',
                 '--log-dir', net.dir, *more]
        env = {**os.environ, 'PLAIT_SSH': net.ssh, 'PLAIT_MPI': mpi,
               'OMPI_ALLOW_RUN_AS_ROOT': '1',
               'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1',
               # several machines spin on few cores here
               'OMPI_MCA_mpi_yield_when_idle': '1',
               # UCX sees one computer, but these share no memory
               'UCX_TLS': 'tcp,self'}
        self.process = subprocess.Popen(
            [*net.inside(), *words], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env=env)

    def ask(self, n=12, begun=None):
        """Returns status, Retry-After and body of a completion. `begun`, an
        event, is set when the first token has come, or nothing more comes."""
        c = Client(self.path)
        body = b''
        try:
            c.request('POST', '/v1/completions', json.dumps(
                {'prompt': 'Once', 'max_tokens': n, 'temperature': 0,
                 'stream': begun is not None, 'ignore_eos': True}),
                {'Content-Type': 'application/json'})
            r = c.getresponse()
            while part := r.read1(1 << 16):
                body += part
                if begun:
                    begun.set()
            return r.status, r.getheader('Retry-After'), body.decode()
        except (OSError, http.client.HTTPException) as e:
            return 0, None, body.decode() + repr(e)
        finally:
            if begun:
                begun.set()
            c.close()

    def text(self):
        """Waits until the server answers, and returns its text."""
        end, last = time.time() + LIMIT, None
        while time.time() < end:
            status, _, body = self.ask()
            if status == 200 and '"choices"' in body:
                return json.loads(body)['choices'][0]['text']
            last = status, body
            if self.process.poll() is not None:
                self.give_up(f'the front ended with {self.process.poll()}')
            time.sleep(0.1)
        self.give_up(f'no answer in {LIMIT} s, but {last}')

    def give_up(self, *why):
        with open(f'{self.net.dir}/log', errors='replace') as f:
            print(f.read()[-6000:])
        fail(*why)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.give_up('the front does not end')
        if code not in (0, 143):
            self.give_up(f'the front ended with {code}')
        end = time.time() + LIMIT
        while True:
            left = [(k, p) for k in range(self.net.n)
                    for p in self.net.named(k)]
            if not left:
                return
            if time.time() > end:
                self.give_up('left running:', left)
            time.sleep(0.2)


class Watcher(threading.Thread):
    """Asks again and again, and notes when the status changes."""

    def __init__(self, front, t):
        super().__init__(daemon=True)
        self.front, self.t, self.seen, self.end = front, t, [], False
        self.retry = None

    def run(self):
        last = None
        while not self.end:
            c = Client(self.front.path)
            c.timeout = 20
            try:
                c.request('GET', '/health')
                r = c.getresponse()
                status = r.status
                r.read()
                if status == 503:
                    self.retry = r.getheader('Retry-After')
            except (OSError, http.client.HTTPException):
                status = 0
            c.close()
            if status != last:
                self.seen.append((round(time.time() - self.t, 2), status))
            last = status
            time.sleep(0.05)


def victim(net, k, but=None):
    end = time.time() + LIMIT
    while time.time() < end:
        p = net.plait(k)
        if p and p != but:
            return p
        time.sleep(0.005)
    fail(f'machine {k} does not start')


def send(net, k, sig):
    """Signals the process of machine k, and returns its number."""
    while True:
        p = victim(net, k)
        try:
            os.kill(p, sig)
            return p
        except ProcessLookupError:
            pass  # it has just ended; its successor is next


def hit(net, way, k):
    """Makes machine k a lost one: by kill, stop or cut."""
    if way == 'cut':
        victim(net, k)
        net.cut(k, True)
        time.sleep(8)
        net.cut(k, False)
    else:
        send(net, k, signal.SIGSTOP if way == 'stop' else signal.SIGKILL)


def lose(front, moment, way, k, want, delay=0.2):
    """Loses machine k, and waits until the text of before comes again."""
    net, got = front.net, []
    if moment == 'step':
        begun = threading.Event()
        ask = threading.Thread(
            target=lambda: got.append(front.ask(4000, begun)))
        ask.start()
        begun.wait(LIMIT)
    if moment == 'load':
        victim(net, k, but=send(net, k, signal.SIGKILL))
    time.sleep(delay)
    watch = Watcher(front, time.time())
    watch.start()
    hit(net, way, k)
    if moment == 'step':
        ask.join()
        tail = got[0][2][-400:]
        # the connection of a client ends with machine 0; a text may be whole
        if k != 0 and '"error"' not in tail and '"length"' not in tail:
            front.give_up('a stream ended without an error:', tail)
    end = time.time() + LIMIT
    while time.time() < end and not any(s == 503 for _, s in watch.seen):
        time.sleep(0.05)
    text = front.text()
    watch.end = True
    watch.join()
    say(f'{moment}, {way} of machine {k}, {delay:.2f} s later: seconds and '
        'status of clients:', watch.seen)
    if text != want:
        front.give_up('another text:', text, 'before:', want)
    if not any(s == 503 for _, s in watch.seen):
        front.give_up('no status 503')
    if not watch.retry or int(watch.retry) < 1:
        front.give_up('no Retry-After')


def at_load(net, plait, model, mpi, k):
    """Kills machine k as soon as it runs, before anything is loaded."""
    front = Front(net, plait, model, mpi, ('--join-timeout', '10'))
    send(net, k, signal.SIGKILL)
    t = time.time()
    text = front.text()
    say(f'load of machine {k}: answers {time.time() - t:.2f} s later')
    front.stop()
    return text


def at_random(net, plait, model, mpi, n, seed):
    """Two deaths a front, so that waiting between starts stays short."""
    chance = random.Random(seed)
    done = 0
    say(f'{n} deaths, seed {seed}')
    while done < n:
        front = Front(net, plait, model, mpi,
                      ('--machine-timeout', '2', '--join-timeout', '10'))
        want = front.text()
        for _ in range(min(2, n - done)):
            k = chance.randrange(net.n)
            moment = chance.choice(['step', 'step', 'idle', 'load'])
            way = chance.choice(['kill', 'kill', 'stop', 'cut'])
            if way == 'cut' and (k == 0 or isinstance(net, Processes)):
                way = 'stop'
            lose(front, moment, way, k, want,
                 chance.uniform(0, 0.5 if moment == 'load' else 1.5))
            done += 1
        front.stop()


def demo(net, plait, model, mpi):
    kind = 'processes' if isinstance(net, Processes) else \
        'network namespaces with a cable to a switch each'
    say(f'{net.n} machines, which are {kind}')
    say(f'plait serve --hosts {net.hosts()} ...')
    front = Front(net, plait, model, mpi)
    want = front.text()
    say('they serve one model. It tells: Once' + front_tale(front))
    say('machine 1 is killed (kill -9) while it computes for a client')
    lose(front, 'step', 'kill', 1, want)
    say('the client got an error, others status 503, and mpirun was started '
        'again.')
    say('they serve again. It tells: Once' + front_tale(front))
    front.stop()
    say('the server was ended by SIGTERM; no process is left on any machine')


def front_tale(front):
    return json.loads(front.ask(60)[2])['choices'][0]['text']


def main():
    words, mpi, kind = sys.argv[1:], 'openmpi', Net
    if words[:1] == ['--mpi']:
        mpi, words = words[1], words[2:]
    if words[:1] == ['--processes']:
        kind, words = Processes, words[1:]
    plait, model, scenes = os.path.realpath(words[0]), words[1], words[2:]
    model = os.path.realpath(model)
    seed = int(os.environ.get('PLAIT_SEED', '0') or 0) or \
        int(time.time())
    sizes = (3,) if scenes == ['demo'] else (2, 3) if kind is Net else (2,)
    for n in sizes:
        net = kind(n)
        why = net.up()
        if why and scenes == ['demo']:
            net.down()
            net, why = Processes(n), None
        try:
            if why:
                say('no namespaces:', why)
                raise SystemExit(77)
            play(net, plait, model, mpi, scenes, seed)
        finally:
            net.down()


def play(net, plait, model, mpi, scenes, seed):
    front = None
    for scene in scenes:
        kind, _, number = scene.partition(':')
        number = int(number or 0)
        if kind not in ('random', 'demo') and number >= net.n:
            continue
        if kind == 'demo':
            demo(net, plait, model, mpi)
        elif kind == 'random':
            at_random(net, plait, model, mpi, (number + net.n - 2) // 2, seed)
        elif kind == 'load':
            at_load(net, plait, model, mpi, number)
        else:
            front = Front(net, plait, model, mpi)
            moment = 'step' if kind in ('stop', 'cut') else kind
            way = kind if kind in ('stop', 'cut') else 'kill'
            lose(front, moment, way, number, front.text())
            front.stop()
    say(f'{net.n} machines, {mpi}: all well')


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
main()
