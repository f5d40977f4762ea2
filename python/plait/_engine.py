"""Engines: weights and a cache on devices, and the text that they generate."""
from __future__ import annotations

import array
import ctypes
import math
from typing import (TYPE_CHECKING, Any, Callable, Iterable, Iterator, Sequence,
                    Union)

from ._library import (Cancel, Error, Object, Status, encode, flag_of,
                       header, ids_array, integer, lib, number, take_bytes)
from ._model import Detokenizer, EnginePlan, Model, Plan, Settings
from ._receipt import Recording, receipt_flags
from ._sampling import Sampler

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._fields import Options

Prompt = Union[str, Iterable[int]]  # a text, or token ids


class Engine(Object):
    """A model on devices, with a cache of n_ctx tokens for n_seq sequences.

    embeddings  keep what embed() needs
    progress    progress(what, done, total) while weights are loaded
    trace       a binary file that is given a trace of every step, for Chrome
    cancel      another thread may end the loading with it
    options     the fields of pl_options, as for Plan

    Threads may share an engine: a call waits until another one has returned. A
    forked copy has no engine: its calls raise Error.
    """

    def __init__(self, model: Model, *, embeddings: bool = False,
                 progress: Callable[[str, int, int], object] | None = None,
                 trace=None, cancel: Cancel | None = None,
                 **options: Unpack[Options]):
        if embeddings:
            keep = list(options.get('keep') or ())
            options['keep'] = [*keep, 'result_norm']
        s = Settings(options, progress, trace, cancel)
        with model._use():
            self._begin(s.create(lib.engine_create, model), lib.engine_free,
                        model, held=s)
            self.model = model.lend()

    def close(self) -> None:
        super().close()
        self.model.close()

    @property
    def n_ctx(self) -> int:
        """Token slots of the cache, which all sequences share."""
        with self._use() as e:
            return lib.engine_n_ctx(e)

    @property
    def plan(self) -> Plan:
        """The plan that the engine was made by; closed with the engine."""
        return EnginePlan(self)

    def counters(self) -> dict[str, Any]:
        """Work and bytes since the beginning: the fields of pl_counters, those
        of the cache in pages of 64 tokens, and of each device in seconds."""
        c = header.struct['pl_counters']()
        p = header.struct['pl_cache_counters']()
        row = header.struct['pl_device_counters']
        with self._alone() as e:
            lib.engine_counters(e, ctypes.byref(c), ctypes.sizeof(c))
            lib.engine_cache(e, ctypes.byref(p), ctypes.sizeof(p))
            n = lib.engine_devices(e, None, 0, ctypes.sizeof(row))
            d = (row * n)()
            lib.engine_devices(e, d, n, ctypes.sizeof(row))
            return {**_fields_of(c), 'cache': _fields_of(p),
                    'devices': [_fields_of(x) for x in d]}

    # ---- tokens ----------------------------------------------------------

    def decode(self, tokens: Iterable[int], seq: int | Sequence[int] = 0,
               wanted: str | Iterable[bool] = 'last',
               cancel: Cancel | None = None):
        """Computes tokens, each at the end of its sequence.

        tokens  [n] ids
        seq     the sequence of all of them, or [n], one for each token
        wanted  whose logits to return: "last", "all", "none", or [n] of bool

        Returns a ctypes array of float32 [n_wanted, n_vocab], in the order of
        the tokens, that numpy.asarray and memoryview see without a copy; None
        if nothing is wanted.
        """
        return self._decode(tokens, seq, wanted, 'logits', self.model.n_vocab,
                            cancel)

    def _decode(self, tokens, seq, wanted, field, width, cancel=None):
        b = header.struct['pl_batch']()
        b.size = ctypes.sizeof(b)
        ids = ids_array(tokens)
        b.n = n = len(ids)
        b.token = ids
        seqs = ids_array([seq] * n if hasattr(seq, '__index__') else seq)
        marks = _marks(wanted, n)
        for name, given in ('seq', seqs), ('wanted', marks):
            if len(given) != n:
                raise ValueError(f'{name}: {len(given)}, but {n} tokens')
        b.seq = seqs
        b.wanted = (ctypes.c_uint8 * n)(*marks)
        rows = None
        if any(marks):
            rows = ((ctypes.c_float * width) * sum(marks))()
            setattr(b, field, ctypes.cast(rows, type(b.logits)))
        with self._alone() as e:
            lib.engine_decode(e, ctypes.byref(b), flag_of(cancel))
        return rows

    def length(self, seq: int = 0) -> int:
        """Tokens of a sequence."""
        with self._alone() as e:
            return lib.seq_length(e, seq)

    def trim(self, seq: int, n: int) -> int:
        """Keeps the first n tokens of a sequence, or as many below n as can be
        kept: recurrent models and windows do not go back to every length.
        Returns how many."""
        kept = ctypes.c_int64()
        with self._alone() as e:
            lib.seq_trim(e, seq, n, ctypes.byref(kept))
        return kept.value

    def clear(self, seq: int = 0) -> None:
        """Empties a sequence."""
        self.trim(seq, 0)

    def copy(self, to: int, seq: int) -> None:
        """Makes sequence `to` a copy of `seq`; they share full pages."""
        with self._alone() as e:
            lib.seq_copy(e, to, seq)

    def share(self, seq: int, tokens: Iterable[int]) -> int:
        """Begins an empty sequence with the longest cached prefix of the tokens
        (option prefix_cache). Returns its tokens; decode the rest."""
        ids, n = ids_array(tokens), ctypes.c_int64()
        with self._alone() as e:
            lib.seq_share(e, seq, ids, len(ids), ctypes.byref(n))
        return n.value

    # ---- text ------------------------------------------------------------

    def ids(self, prompt: Prompt) -> list[int]:
        """Returns a prompt's token ids; a text may name special tokens."""
        if isinstance(prompt, str):
            with self.model.tokenizer as t:
                return t.encode(prompt, parse_special=True)
        return list(ids_array(prompt))

    def generate(self, prompt: Prompt, *, max_tokens: int | None = None,
                 stop: str | Sequence[str] = (), seq: int = 0,
                 append: bool = False, special: bool = False,
                 sampler: Sampler | None = None, cancel: Cancel | None = None,
                 receipt: str | bool = False, **sampling) -> Generation:
        """Continues a prompt: returns an iterator over pieces of text.

        prompt      a text or token ids
        max_tokens  None: until the model ends or the context is full
        stop        texts that end it and are not part of it
        seq         the sequence to use, which is emptied first
        append      keep the tokens of the sequence, and add the prompt
        special     show special tokens, too
        sampler     one of your own; else `sampling` makes one, as Sampler's
                    arguments: temperature=0, seed=7, grammar=g
        receipt     True or a form, "full", "brief" or "hashes": the iterator
                    has a receipt, which verify() checks
        """
        if sampler and sampling:
            raise TypeError('generate: sampler= and '
                            f'{next(iter(sampling))}= exclude one another')
        if max_tokens is not None:
            integer(ctypes.c_int64, 'max_tokens', max_tokens)
        flags = receipt_flags(receipt)
        if flags is not None and append:
            raise ValueError('generate: append= and receipt= exclude one '
                             'another, because a receipt has the whole prompt')
        return Generation(self, self.ids(prompt),
                          sampler or Sampler(self.model, **sampling),
                          max_tokens, [stop] if isinstance(stop, str) else
                          list(stop), seq, append, special, cancel, flags)

    def embed(self, prompt: Prompt, *, pooling: str | None = None,
              normalize: bool = True, seq: int = 0):
        """Returns the embedding of a text or of token ids: an array of float32.

        pooling    "last", "mean" or "cls" of the tokens' last norms: [d_model];
                   "none": all of them as they are, a list of n such arrays;
                   by default what the model's file says, else "last"
        normalize  scale to Euclidean length 1
        seq        the sequence to use, which is emptied

        The engine has to be made with embeddings=True.
        """
        if pooling is None:
            pooling = self.model.pooling or 'last'
        if pooling not in ('last', 'mean', 'cls', 'none'):
            raise ValueError(f'pooling: {pooling!r} is not one of last, mean, '
                             'cls, none')
        ids = self.ids(prompt)
        if not ids:
            raise ValueError('embed: no token')
        self.clear(seq)
        try:
            rows = self._decode(ids, seq, 'last' if pooling == 'last' else
                                'all', 'norm_out', self.model.d_model)
        finally:
            self.clear(seq)
        if pooling == 'none':
            return [array.array('f', r) for r in rows]
        total = list(rows[0])
        for row in rows[1:] if pooling == 'mean' else ():
            total = [a + b for a, b in zip(total, row)]
        if pooling == 'mean':
            total = [a / len(rows) for a in total]
        length = math.sqrt(math.fsum(a * a for a in total))
        if normalize and length > 0:
            total = [a / length for a in total]
        return array.array('f', total)

    # ---- state -----------------------------------------------------------

    def save(self, seq: int = -1, first: int = 0, n: int = -1) -> bytes:
        """Returns the state of a sequence: its part of the cache, which any
        engine of the model can load, whatever its devices.

        seq       -1: all sequences
        first, n  positions first to first + n - 1 alone; n < 0: up to the end
        """
        data, size = ctypes.c_void_p(), ctypes.c_size_t()
        with self._alone() as e:
            lib.state_save_memory(e, seq, first, n, ctypes.byref(data),
                                  ctypes.byref(size))
        return take_bytes(data, size.value)

    def load(self, data: bytes, seq: int = -1, convert: bool = False) -> None:
        """Restores a state. seq -1: into the sequences it was saved from.
        convert: accept a state of another cache format."""
        data = bytes(data)
        with self._alone() as e:
            lib.state_restore_memory(e, seq, data, len(data), _flags(convert))

    def save_file(self, path, seq: int = -1, note: bytes = b'',
                  first: int = 0, n: int = -1) -> None:
        """Saves a state to a file, which appears whole or not at all. note:
        your own bytes to store with it, such as the tokens."""
        with self._alone() as e:
            lib.state_save_file(e, seq, first, n, bytes(note), len(note),
                                encode(path, 'path'))

    def load_file(self, path, seq: int = -1, convert: bool = False) -> bytes:
        """Restores a file that save_file, or the command, has written, and
        returns its note."""
        note, size = ctypes.c_void_p(), ctypes.c_size_t()
        with self._alone() as e:
            lib.state_restore_file(e, seq, encode(path, 'path'),
                                   _flags(convert), ctypes.byref(note),
                                   ctypes.byref(size))
        return take_bytes(note, size.value)


def _flags(convert: bool) -> int:
    return number['PL_STATE_CONVERT'] if convert else 0


def _marks(wanted, n: int) -> list[bool]:
    if isinstance(wanted, str):
        if wanted not in ('last', 'all', 'none'):
            raise ValueError(f'wanted: {wanted!r} is not one of last, all, '
                             'none')
        return [wanted == 'all' or (wanted == 'last' and i == n - 1)
                for i in range(n)]
    return [bool(w) for w in wanted]


def _fields_of(struct) -> dict[str, Any]:
    values = {}
    for name, _ in struct._fields_:
        value = getattr(struct, name)
        if isinstance(value, ctypes.Array):
            value = list(value)
        values[name] = value.decode() if isinstance(value, bytes) else value
    return values


class Generation:
    """An iterator over the pieces of a text that is being generated.

    tokens  ids so far
    finish  why it ended: "stop" (the model, or a stop text), "length", "full"
            (the context has no room); None: it has not
    receipt once it has ended or is closed: its receipt, a JSON text, if it was
            asked for
    """

    def __init__(self, engine, prompt, sampler, max_tokens, stop, seq, append,
                 special, cancel, receipt=None):
        if not all(isinstance(s, str) and s for s in stop):
            raise ValueError(f'stop: {stop!r} has an empty text')
        self.tokens: list[int] = []
        self.finish: str | None = None
        self.receipt: str | None = None
        self._recording: Recording | None = None
        self._end = 'cancelled'  # the reason in the receipt
        self._pieces = self._run(engine, prompt, sampler, max_tokens, stop, seq,
                                 append, special, cancel, receipt)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        return next(self._pieces)

    def close(self) -> None:
        """Ends it; the sequence keeps what it has."""
        self._pieces.close()

    def _run(self, engine, prompt, sampler, max_tokens, stop, seq, append,
             special, cancel, receipt):
        for token in prompt:
            sampler.accept(token)
        if not append:
            engine.clear(seq)
        if receipt is not None:
            self._recording = Recording(engine, prompt, sampler, receipt)
        try:
            yield from self._write(engine, prompt, sampler, max_tokens, stop,
                                   seq, special, cancel)
        except (Error, ValueError):
            self._end = ''  # it has no receipt
            raise
        finally:
            if self._recording and self._end:
                self.receipt = self._recording.end(self._end, max_tokens, stop)
            elif self._recording:
                self._recording.close()

    def _write(self, engine, prompt, sampler, max_tokens, stop, seq, special,
               cancel):
        held = ''  # may be the beginning of a stop text
        with engine.model.tokenizer as t, Detokenizer(t, special) as words:
            for token in self._choose(engine, t, prompt, sampler, max_tokens,
                                      seq, cancel):
                held += words.add(token)
                found = [i for i in map(held.find, stop) if i >= 0]
                if found:
                    self.finish = self._end = 'stop'
                    held = held[:min(found)]
                    break
                at = len(held) - _overlap(held, stop)
                if at > 0:
                    yield held[:at]
                    held = held[at:]
            else:
                held += words.flush()
        if held:
            yield held

    def _choose(self, engine, tokenizer, prompt, sampler, max_tokens, seq,
                cancel):
        """Yields the chosen ids; sets `finish` where it ends by itself."""
        fed = prompt
        while max_tokens is None or len(self.tokens) < max_tokens:
            try:
                logits = engine.decode(fed, seq, cancel=cancel)
            except Error as e:
                if e.status != Status.FULL or not self.tokens:
                    raise
                self.finish, self._end = 'full', 'context'
                return
            if logits is None:
                raise ValueError('generate: the prompt has no token')
            token = sampler.sample(logits[0])
            if tokenizer.ends(token):
                self.finish, self._end = 'stop', 'eog'
                return
            self.tokens.append(token)
            fed = [token]
            yield token
        self.finish = self._end = 'length'


def _overlap(text: str, stop: Sequence[str]) -> int:
    """Returns how long an end of the text may begin a stop text."""
    most = max((len(s) - 1 for s in stop), default=0)
    return next((n for n in range(min(most, len(text)), 0, -1)
                 if any(s.startswith(text[-n:]) for s in stop)), 0)
