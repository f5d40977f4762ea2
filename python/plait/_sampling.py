"""The choice of the next token, and grammars that restrict it."""
from __future__ import annotations

import ctypes
import json
import random
import warnings
from typing import TYPE_CHECKING, Mapping, Sequence

from . import _fields
from ._library import (Error, Object, Status, create, fill, header,
                       integer, lib, number)
from ._model import Model, Tokenizer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._fields import Sampling


class Grammar(Object):
    """The texts that may be written: GBNF, or the documents of a JSON Schema.

    Grammar(tokenizer, gbnf='root ::= "yes" | "no"')
    Grammar(tokenizer, schema={"type": "object"})
    """

    def __init__(self, tokenizer: Tokenizer, gbnf: str | None = None,
                 schema: Mapping | bool | None = None):
        if (gbnf is None) == (schema is None):
            raise TypeError('Grammar: give one of gbnf and schema')
        form = 'PL_GRAMMAR_GBNF' if schema is None else 'PL_GRAMMAR_JSON_SCHEMA'
        text = (gbnf if gbnf is not None else json.dumps(schema)).encode()
        with tokenizer._use() as t:
            self._begin(create(lib.grammar_create, t, number[form],
                               text, len(text), None), lib.grammar_free)


class Sampler(Object):
    """Chooses tokens from logits, and remembers them for penalties. Others wait
    while a thread is in a call.

    options     the fields of pl_sampling in pl.h. Others are as the model's
                file recommends, else pl.h's defaults hold. A temperature of 0
                takes the likeliest token always
    seed        by default drawn at random; `seed` has it
    steps       the steps to take, in this order: ["top_k", "temperature"]
    logit_bias  numbers to add to logits, by token id
    grammar     the text that the chosen tokens make is one of its texts
    """

    def __init__(self, model: Model, *, seed: int | None = None,
                 steps: Sequence[str] | None = None,
                 logit_bias: Mapping[int, float] | None = None,
                 grammar: Grammar | None = None, **options: Unpack[Sampling]):
        s = header.struct['pl_sampling']()
        lib.sampling_init_size(ctypes.byref(s), ctypes.sizeof(s))
        try:
            with model._use() as m:
                lib.model_sampling(m, ctypes.byref(s))
        except Error as e:
            if e.status != Status.BAD_FILE:
                raise
            warnings.warn(e.message, stacklevel=2)
        self.seed = random.getrandbits(32) if seed is None else seed
        s.seed = integer(ctypes.c_uint64, 'seed', self.seed)
        held = fill(s, dict(options), _fields.Sampling.__annotations__)
        if steps is not None:
            s.n_step = self._fill_steps(s.step, steps)
        if logit_bias:
            s.n_bias = len(logit_bias)
            held += [(ctypes.c_int32 * s.n_bias)(*logit_bias),
                     (ctypes.c_float * s.n_bias)(*logit_bias.values())]
            s.bias_id = ctypes.cast(held[-2], type(s.bias_id))
            s.bias = ctypes.cast(held[-1], type(s.bias))
        lenders: list[Object] = [grammar] if grammar else []
        try:
            words = model.tokenizer
            lenders.append(words)
            s.tokenizer = words._handle.pointer  # lent as long as the sampler
        except Error as e:
            if e.status != Status.NOT_FOUND:
                raise
        self.n_vocab = model.n_vocab
        self._begin(create(lib.sampler_create, ctypes.byref(s), self.n_vocab),
                    lib.sampler_free, *lenders)
        if grammar:
            with self._alone() as p, grammar._use() as g:
                lib.sampler_set_grammar(p, g)

    @staticmethod
    def _fill_steps(array, steps) -> int:
        if isinstance(steps, str):
            raise TypeError(f'steps: {steps!r} is not a list')
        for i, name in enumerate(steps):
            step = number.get(f'PL_STEP_{name.upper()}')
            if step is None:
                known = [n[8:].lower() for n in number
                         if n.startswith('PL_STEP_')]
                raise ValueError(f"steps: {name!r} is not one of "
                                 f"{', '.join(known)}")
            if i == len(array):
                raise ValueError(f'steps: {len(steps)} are more than there are')
            array[i] = step
        return len(steps)

    def sample(self, logits) -> int:
        """Returns the chosen id. logits: float32 [n_vocab], such as a row of
        what Engine.decode returns. Error if no token can be chosen."""
        if not isinstance(logits, ctypes.Array):
            view = memoryview(logits).cast('B')
            logits = (ctypes.c_float *
                      (view.nbytes // 4)).from_buffer_copy(view)
        if logits._type_ is not ctypes.c_float or len(logits) != self.n_vocab:
            raise ValueError(f'logits: not {self.n_vocab} numbers of float32')
        with self._alone() as s:
            token = lib.sample(s, logits)
            if token < 0:
                lib.sampler_status(s)
            return token

    def accept(self, token: int) -> None:
        """Remembers a token that was not sampled, such as the prompt's."""
        with self._alone() as s:
            lib.sampler_accept(s, token)
