"""Chats: messages through a chat template, and replies taken apart."""
from __future__ import annotations

import ctypes
import json
from typing import Any, Iterator, Sequence

from ._library import (Error, Object, Status, create, header, lib, number,
                       take_bytes)
from ._engine import Engine
from ._model import Detokenizer, Template
from ._receipt import Recording, receipt_flags
from ._sampling import Sampler

_KIND = {number['PL_REPLY_CONTENT']: 'content',
         number['PL_REPLY_REASONING']: 'reasoning'}


class _Reply(Object):
    """Takes apart what a model writes: content, reasoning, calls of tools."""

    def __init__(self, template: Template, prompt: str, tools):
        self.parts: list[tuple[str, str]] = []  # kind, text; not yet taken
        data = prompt.encode()
        listen = header.callback['pl_reply_fn'](self._take)
        with template._use() as t:
            self._begin(create(lib.reply_create, t, data, len(data),
                               json.dumps(tools).encode() if tools else None,
                               listen, None),
                        lib.reply_free, template, held=listen)

    def _take(self, user, part) -> None:
        p = part.contents
        kind = _KIND.get(p.kind)
        if kind:  # the text is not terminated, so it is read by its length
            at = ctypes.addressof(p) + type(p).text.offset
            text = ctypes.c_void_p.from_address(at).value or 0
            self.parts.append((kind, ctypes.string_at(text, p.len).decode()))

    def add(self, text: str) -> None:
        data = text.encode()
        with self._alone() as r:
            lib.reply_add(r, data, len(data))

    def take(self) -> list[tuple[str, str]]:
        """The parts since the last call."""
        parts, self.parts = self.parts, []
        return parts

    def ended(self) -> bool:
        with self._alone() as r:
            return lib.reply_ended(r)

    def message(self, uncut: bool) -> dict[str, Any]:
        """The whole message; to be called once. uncut: the model ended it."""
        out = ctypes.c_void_p()
        with self._alone() as r:
            if uncut:
                lib.reply_uncut(r)
            lib.reply_finish(r)
            lib.reply_message(r, ctypes.byref(out))
        return json.loads(take_bytes(out))


class Chat:
    """A conversation with a model, in one sequence of an engine.

    system    the first message, if given
    template  by default the one in the model's file
    tools     what the model may call; its calls are in the last message
    extra     more variables of the template: {"enable_thinking": False}
    receipt   True or a form, as for Engine.generate: `receipt` is then that
              of the last answer, whose seed is the chat's plus the number of
              answers before
    sampling  as Sampler's

    `messages` is the conversation, a list that you may change: the next turn
    computes what differs from the last one. Where the context has no room the
    oldest turns are left out of the prompt.
    """

    def __init__(self, engine: Engine, system: str | None = None, *,
                 template: Template | None = None, seq: int = 0,
                 tools: Sequence[dict] | None = None,
                 extra: dict[str, Any] | None = None,
                 receipt: str | bool = False, **sampling):
        self.engine, self.seq, self.tools = engine, seq, tools
        self.extra = dict(extra or {})
        self.template = template or engine.model.template()
        self.messages: list[dict[str, Any]] = []
        if system is not None:
            self.messages.append({'role': 'system', 'content': system})
        self.receipt: str | None = None
        self._receipt_flags = receipt_flags(receipt)
        self._sampling, self._n_answers, self._end = sampling, 0, ''
        self._sampler = Sampler(engine.model, **sampling)
        self._seed = self._sampler.seed
        self._held: list[int] = []  # the sequence's tokens

    def send(self, text: str, max_tokens: int | None = None) -> Iterator[str]:
        """Sends a message; yields the answer as it is generated, without
        reasoning. Both are added to `messages`."""
        asked = {'role': 'user', 'content': text}
        self.messages.append(asked)
        try:
            for kind, piece in self.reply(max_tokens):
                if kind == 'content':
                    yield piece
        finally:
            if self.messages[-1] is asked:  # as if it had not been said
                self.messages.pop()

    def reply(self, max_tokens: int | None = None) -> Iterator[tuple[str, str]]:
        """Has the model answer `messages`. Yields ("content" or "reasoning",
        text), and adds the message when that ends or is closed."""
        room = self.engine.n_ctx // 8
        if max_tokens is not None:
            room = min(room, max_tokens)
        prompt, ids = self._prompt(room)
        answered = False
        fed = self._feed(ids)
        self.receipt, self._end = None, 'cancelled'
        recording = None
        if self._receipt_flags is not None:
            recording = Recording(self.engine, ids, self._sampler,
                                  self._receipt_flags)
        with _Reply(self.template, prompt, self.tools) as reply:
            try:
                for piece in self._pieces(fed, max_tokens):
                    answered = True
                    reply.add(piece)
                    yield from reply.take()
                    if reply.ended():
                        self._end = 'message'
                        break
            except (Error, ValueError):
                self._end = 'other'
                raise
            finally:
                if recording:
                    self.receipt = recording.end(self._end, max_tokens)
                if answered:
                    self.messages.append(reply.message(self._end == 'eog'))
            yield from reply.take()

    def _prompt(self, room: int) -> tuple[str, list[int]]:
        messages = list(self.messages)
        lead = sum(m['role'] in ('system', 'developer') for m in messages[:1])
        while True:
            text = self.template.render(messages, self.tools, **self.extra)
            with self.engine.model.tokenizer as t:
                ids = t.encode(text, add_special=False, parse_special=True)
                if t.adds_bos and t.bos is not None and ids[:1] != [t.bos]:
                    ids.insert(0, t.bos)
            if not ids:
                raise ValueError('the chat template renders the messages as an empty prompt')
            later = [i for i, m in enumerate(messages)
                     if i > lead and m['role'] == 'user']
            if len(ids) + room <= self.engine.n_ctx or not later:
                return text, ids
            del messages[lead:later[0]]

    def _feed(self, ids: list[int]) -> list[int]:
        """Prepares the sequence and the sampler for a prompt; returns the tokens
        that are yet to be computed."""
        held, engine, seq = self._held, self.engine, self.seq
        if engine.length(seq) != len(held):  # somebody else has used it
            held.clear()
        same = 0
        while same < min(len(held), len(ids) - 1) and held[same] == ids[same]:
            same += 1
        same = engine.trim(seq, same)
        del held[same:]
        if self._receipt_flags is not None:
            # An answer must depend on its prompt and seed alone.
            self._sampling['seed'] = self._seed + self._n_answers
            self._sampler = Sampler(engine.model, **self._sampling)
            self._n_answers += 1
        for token in ids[same if self._receipt_flags is None else 0:]:
            self._sampler.accept(token)
        return ids[same:]

    def _pieces(self, fed: list[int], max_tokens: int | None) -> Iterator[str]:
        """Yields text, special tokens included, which mark a reply's parts."""
        held, engine, seq = self._held, self.engine, self.seq
        with engine.model.tokenizer as t, Detokenizer(t, special=True) as words:
            n = 0
            while max_tokens is None or n < max_tokens:
                try:
                    logits = engine.decode(fed, seq)
                except Error as e:
                    held[engine.length(seq):] = ()
                    if e.status != Status.FULL or n == 0:
                        raise
                    self._end = 'context'
                    break
                held += fed
                token = self._sampler.sample(logits[0])
                if t.ends(token):
                    self._end = 'eog'
                    break
                n += 1
                fed = [token]
                yield words.add(token)
            else:
                self._end = 'length'
            yield words.flush()
