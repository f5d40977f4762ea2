"""Finds and loads libplait.so, and calls it by the rules of pl.h.

A failed call raises Error. An object is freed when it is closed or collected,
but never before the objects that borrow from it, whatever the order in which
Python lets go of them.
"""
from __future__ import annotations

import contextlib
import ctypes
import difflib
import enum
import functools
import logging
import operator
import os
import threading
import weakref
from typing import Any, Callable, Iterator

from ._header import SCALARS, Header

HERE = os.path.dirname(os.path.abspath(__file__))
LOG = logging.getLogger('plait')
free = ctypes.CDLL(None).free  # of malloc'ed memory that a call has given
free.argtypes, free.restype = [ctypes.c_void_p], None


def _read_header() -> Header:
    for folder in (HERE, os.path.join(HERE, '../../include')):
        if os.path.exists(os.path.join(folder, 'pl.h')):
            texts = []
            for name in 'pl.h', 'pl_receipt.h':
                with open(os.path.join(folder, name), encoding='utf-8') as f:
                    texts.append(f.read())
            return Header(''.join(texts))
    raise ImportError(f'plait: no pl.h in {HERE}; install the package again')


header = _read_header()
number = header.constant
pl_err = header.struct['pl_err']
WRITE = header.callback['pl_write_fn']


class Status(enum.IntEnum):
    """The result of a call: pl_status without PL_."""

    OK = number['PL_OK']
    NO_MEMORY = number['PL_NO_MEMORY']
    NO_DEVICE_MEMORY = number['PL_NO_DEVICE_MEMORY']
    BAD_FILE = number['PL_BAD_FILE']
    BAD_ARGUMENT = number['PL_BAD_ARGUMENT']
    UNSUPPORTED = number['PL_UNSUPPORTED']
    NOT_FOUND = number['PL_NOT_FOUND']
    IO = number['PL_IO']
    FULL = number['PL_FULL']
    DEVICE = number['PL_DEVICE']
    CANCELLED = number['PL_CANCELLED']


class Error(Exception):
    """A call of the library that failed.

    status   a Status
    message  the thing, the value and the remedy
    """

    def __init__(self, status: int, message: str):
        super().__init__(status, message)
        self.status, self.message = Status(status), message

    def __str__(self) -> str:
        return self.message


# ---- the library -------------------------------------------------------------

def _load() -> ctypes.CDLL:
    soname = f"libplait.so.{number['PL_VERSION_MAJOR']}"
    given = os.environ.get('PLAIT_LIBRARY')
    inside = os.path.join(HERE, 'libplait.so')
    path = given or (inside if os.path.exists(inside) else soname)
    try:
        return ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(
            f'plait: {e}; set PLAIT_LIBRARY to the path of libplait.so, or '
            'install plait, which brings it') from None


def _range(kind):
    bits = 8 * ctypes.sizeof(kind)
    signed = kind(-1).value < 0
    return (-1 << (bits - 1) if signed else 0,
            (1 << (bits - signed)) - 1)


_ranges = {kind: _range(kind) for name, kind in SCALARS.items()
           if name not in ('bool', 'char', 'float', 'double')}


def integer(kind, name: str, value) -> int:
    """Returns the number; raises where ctypes would cut it to fit."""
    low, high = _ranges[kind]
    try:
        value = operator.index(value)
    except TypeError:
        raise TypeError(f'{name}: {type(value).__name__} is not an integer'
                        ) from None
    if not low <= value <= high:
        raise OverflowError(f'{name}: {value} is not in {low} to {high}')
    return value


class _Functions:
    """The functions of pl.h without pl_, as attributes.

    One that returns a pl_status is called without its last argument, the
    pl_err, and raises Error; the others return what they return.
    """

    def __init__(self, dll):
        for name, f in header.function.items():
            raw = getattr(dll, name, None)
            if raw is None:
                raise ImportError(
                    f'plait: {dll._name} lacks {name}: it is older than this '
                    'package; install both from one version')
            raw.argtypes, raw.restype = f.types, f.result
            setattr(self, name[3:], self._checked(name, raw, f))

    @staticmethod
    def _checked(name, raw, f):
        fails = f.names[-1:] == ['err']
        integers = [(i, f.names[i], kind) for i, kind in enumerate(f.types)
                    if kind in _ranges]

        def call(*args):
            args = list(args)
            for i, parameter, kind in integers:
                args[i] = integer(kind, parameter, args[i])
            if not fails:
                return raw(*args)
            err = pl_err()
            status = raw(*args, ctypes.byref(err))
            if status != Status.OK:
                raise Error(status, err.message.decode('utf-8', 'replace'))
            return None

        call.__name__ = name
        return call


lib: Any = _Functions(_load())
version: str = lib.version().decode()


# ---- objects ----------------------------------------------------------------

class Handle:
    """A pointer of the library, freed once it is released and nothing uses it.

    Each step is one operation on a set or list, so that no thread, and no
    collection of garbage in between, finds it half done.
    """

    every: weakref.WeakSet[Handle] = weakref.WeakSet()

    def __init__(self, pointer, give_back, lenders):
        self.pointer, self._give_back = pointer, give_back
        self._lenders = lenders
        self._users: set = set()
        self._left = [pointer]
        self._released = False
        self.lock = threading.RLock()
        try:
            for lender in lenders:
                lender.use(self)
        except ValueError:
            self.release()
            raise
        Handle.every.add(self)

    def use(self, user) -> None:
        self._users.add(user)
        if self._released:
            self.unuse(user)
            raise ValueError('it is closed')

    def unuse(self, user) -> None:
        self._users.discard(user)
        if self._released:
            self._try()

    def release(self) -> None:
        self._released = True
        self._try()

    def _try(self) -> None:
        if self._users:
            return
        try:
            pointer = self._left.pop()
        except IndexError:
            return
        if self._give_back:
            self._give_back(pointer)
        for lender in self._lenders:
            lender.unuse(self)


def _renew_locks() -> None:
    """Gives a forked copy new locks: a thread that held one is not in it."""
    for handle in Handle.every:
        handle.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


class Object:
    """Something of the library's, closed by close(), `with` or collection."""

    _handle: Handle

    def _begin(self, pointer, give_back: Callable | None, *lenders: 'Object',
               held=None) -> None:
        """give_back(pointer) frees it. `held` must live until then, and does:
        a finalizer runs before the attributes go."""
        self._handle = Handle(pointer, give_back,
                              tuple(o._handle for o in lenders))
        self._held_for_calls = held
        self._finalizer = weakref.finalize(self, self._handle.release)

    def close(self) -> None:
        """Frees it, once the calls of other threads and all that borrows from
        it have ended. Closing twice does nothing."""
        self._finalizer()

    @property
    def closed(self) -> bool:
        return not self._finalizer.alive

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    @contextlib.contextmanager
    def _use(self) -> Iterator[int]:
        """Yields the pointer, which is not freed before the block ends."""
        user = object()
        try:
            self._handle.use(user)
        except ValueError:
            raise ValueError(f'{type(self).__name__} is closed') from None
        try:
            yield self._handle.pointer
        finally:
            self._handle.unuse(user)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[int]:
        """The same for objects that take one call at a time: others wait."""
        with self._use() as pointer, self._handle.lock:
            yield pointer


def create(function, *args):
    """Calls function(&pointer, *args) and returns the pointer."""
    out = ctypes.c_void_p()
    function(ctypes.byref(out), *args)
    return out.value


class Cancel:
    """Ends a call from another thread: it raises Error with CANCELLED."""

    def __init__(self) -> None:
        self._flag = ctypes.c_int(0)

    def set(self) -> None:
        self._flag.value = 1

    def is_set(self) -> bool:
        return self._flag.value != 0


def flag_of(cancel: Cancel | None):
    return ctypes.byref(cancel._flag) if cancel else None


# ---- values -----------------------------------------------------------------

def encode(text: str | bytes | os.PathLike, name: str) -> bytes:
    """Returns the bytes of a C string, which must not have a NUL inside."""
    if not isinstance(text, (str, bytes, os.PathLike)):
        raise TypeError(f'{name}: {type(text).__name__} is not a string')
    data = os.fsencode(text)
    if b'\0' in data:
        raise ValueError(f'{name}: {text!r} has a NUL byte')
    return data


def take_bytes(pointer: ctypes.c_void_p, n: int | None = None) -> bytes:
    """Copies n malloc'ed bytes, by default up to NUL, and frees them."""
    try:
        if n == 0 or pointer.value is None:
            return b''
        return ctypes.string_at(pointer.value, -1 if n is None else n)
    finally:
        free(pointer)


def written(function, *args) -> str:
    """Returns what a function that takes a pl_write_fn writes."""
    parts: list[bytes] = []
    collect = WRITE(lambda user, text, n:
                    parts.append(ctypes.string_at(text, n)))
    function(*args, collect, None)
    return b''.join(parts).decode('utf-8', 'replace')


def ids_array(ids) -> ctypes.Array:
    """Returns token ids as an int32 array; any other value raises."""
    ids = [integer(ctypes.c_int32, 'token', i) for i in ids]
    return (ctypes.c_int32 * len(ids))(*ids)


@functools.lru_cache(None)
def choices(name: str) -> dict[str, int]:
    """Returns the enumerators of an enum by their ends in small letters."""
    names = header.enum[name]
    shared = os.path.commonprefix(names).rpartition('_')[0] + '_'
    return {n[len(shared):].lower(): number[n] for n in names}


def fill(struct, given: dict[str, Any], names) -> list:
    """Sets the fields of a struct from keyword arguments, which must be in
    `names`. Returns the arrays that must live as long as the struct."""
    kinds = dict(struct._fields_)
    held: list = []
    for name, value in given.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            raise TypeError(f"{name}: unknown option"
                            + (f"; {near[0]} is near" if near else ''))
        kind = kinds[name]
        if value is None:
            continue
        if name in struct.field_enum:
            value = _choice(name, struct.field_enum[name], value)
        elif kind is ctypes.c_char_p:
            value = encode(value, name)
        elif kind in _ranges:
            value = integer(kind, name, value)
        elif kind not in (ctypes.c_bool, ctypes.c_float, ctypes.c_double):
            if isinstance(value, (str, bytes)):
                raise TypeError(f'{name}: {value!r} is not a list')
            if kind._type_ is ctypes.c_char_p:
                value = [encode(v, name) for v in value]
            value = (kind._type_ * len(value))(*value)
            setattr(struct, 'n_' + name, len(value))
            held.append(value)
            value = ctypes.cast(value, kind)
        try:
            setattr(struct, name, value)
        except TypeError as e:
            raise TypeError(f'{name}: {e}') from None
    return held


def _choice(name, kind, value):
    by_name = choices(kind)
    if isinstance(value, str) and value.lower() not in by_name:
        raise ValueError(f"{name}: {value!r} is not one of "
                         f"{', '.join(by_name)}")
    return by_name[value.lower()] if isinstance(value, str) else int(value)
