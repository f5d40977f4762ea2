"""Receipts: records of outputs that anybody can check (doc/receipts.md)."""
from __future__ import annotations

import ctypes
import random
from typing import TYPE_CHECKING, NamedTuple, Sequence

from ._library import (Cancel, Object, choices, create, flag_of, header,
                       ids_array, integer, lib, number, take_bytes)
from ._model import Model, Settings
from ._sampling import Sampler

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._fields import Options

_FORMS = {'full': number['PL_RECEIPT_FULL'], 'brief': 0,
          'hashes': number['PL_RECEIPT_NO_TOKENS']}


def receipt_flags(form: str | bool) -> int | None:
    """Returns the flags of a form; True is "full". None: no receipt."""
    form = 'full' if form is True else form
    if form and form not in _FORMS:
        raise ValueError(f"receipt: {form!r} is not one of {', '.join(_FORMS)}")
    return _FORMS[form] if form else None


class Recording(Object):
    """A receipt that is being written: of what a sampler does after a prompt,
    which it has accepted and nothing else."""

    def __init__(self, engine, prompt: Sequence[int], sampler: Sampler,
                 flags: int):
        ids = ids_array(prompt)
        with engine._alone() as e:
            pointer = create(lib.receipt_begin, e, ids, len(ids))

        def give_back(pointer) -> None:
            with sampler._handle.lock:
                lib.sampler_record(sampler._handle.pointer, None)
            lib.receipt_free(pointer)

        self._begin(pointer, give_back, sampler)
        self._flags = flags
        with self._use() as r, sampler._alone() as s:
            lib.sampler_record(s, r)

    def end(self, reason: str, max_tokens: int | None,
            stop: Sequence[str] = ()) -> str:
        """Ends the output for a reason of the receipt; returns the receipt."""
        texts = (ctypes.c_char_p * len(stop))(*(s.encode() for s in stop))
        out = ctypes.c_void_p()
        with self._alone() as r:
            lib.receipt_set_end(r, number[f'PL_RECEIPT_{reason.upper()}'],
                                -1 if max_tokens is None else max_tokens,
                                texts, len(stop))
            lib.receipt_write(r, self._flags, ctypes.byref(out))
        self.close()
        return take_bytes(out).decode()


class Verdict(NamedTuple):
    """The result of verify(), true if the receipt holds.

    verdict    "holds", "differs" or "cannot"
    text       what was checked, what differs, or why it cannot be checked
    at         index of the first token of the output that differs, or None
    n_checked  tokens that were sampled again
    """

    verdict: str
    text: str
    at: int | None
    n_checked: int

    def __bool__(self) -> bool:
        return self.verdict == 'holds'


def verify(model: Model, receipt: str, *, prompt: str | Sequence[int] = (),
           grammar: str | None = None, sample: int = 0,
           cancel: Cancel | None = None,
           **options: Unpack[Options]) -> Verdict:
    """Computes prompt and output of a receipt again, and compares.

    receipt  the JSON text, not signed
    prompt   text or token ids, if the receipt has only their hash
    grammar  its text, if the receipt has only its hash
    sample   check only as many tokens, drawn at random; 0: all
    options  as Engine's: devices and placement. The receipt gives those that
             decide bits
    """
    data = receipt.encode()
    given = header.struct['pl_receipt_given']()
    result = header.struct['pl_receipt_result']()
    given.size = ctypes.sizeof(given)
    if isinstance(prompt, str):
        with model.tokenizer as t:
            prompt = t.encode(prompt, parse_special=True)
    ids = ids_array(prompt)
    if ids:
        given.prompt, given.n_prompt = ids, len(ids)
    if grammar is not None:
        given.grammar = grammar.encode()
        given.grammar_len = len(given.grammar)
    given.n_sample = integer(ctypes.c_int64, 'sample', sample)
    given.seed = random.SystemRandom().getrandbits(64)
    if cancel:
        given.cancel = flag_of(cancel)
    s = Settings(options, None, None, cancel)
    parsed, checker = Object(), Object()
    parsed._begin(create(lib.receipt_parse, data, len(data)), lib.receipt_free)
    with parsed, parsed._use() as r:
        is_set = s.struct.n_ctx != 0
        lib.receipt_options(r, ctypes.byref(s.struct))
        if not is_set:
            s.struct.n_ctx += len(ids)
        with model._use():
            checker._begin(s.create(lib.engine_create, model), lib.engine_free,
                           model, parsed, held=s)
        with checker, checker._use() as e:
            lib.receipt_verify(r, e, ctypes.byref(given),
                               ctypes.byref(result), ctypes.sizeof(result))
    names = {n: name for name, n in choices('pl_receipt_verdict').items()}
    return Verdict(names[result.verdict],
                   result.text.decode('utf-8', 'replace'),
                   None if result.at < 0 else result.at, result.n_checked)
