"""Models, their tokenizers and chat templates, and plans."""
from __future__ import annotations

import contextlib
import ctypes
import json
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence

from . import _fields
from ._library import (LOG, Cancel, Error, Object, Status, choices, create,
                       encode, fill, free, header, ids_array, lib, number,
                       take_bytes, written)

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._fields import Options

_LEVEL = {number['PL_LOG_DEBUG']: 10,
          number['PL_LOG_INFO']: 20,
          number['PL_LOG_WARN']: 30}


class Model(Object):
    """A GGUF file: metadata and vocabulary, no weights. Thread-safe; any number
    of plans and engines may share it.

    overrides  other values of the file's keys, each "KEY=TYPE:VALUE" with a
               type of int, float, bool or str, such as
               "tokenizer.ggml.add_bos_token=bool:false"
    """

    def __init__(self, path, overrides: Sequence[str] = ()):
        if isinstance(overrides, (str, bytes)):
            raise TypeError(f'overrides: {overrides!r} is not a list')
        texts = [encode(text, 'overrides') for text in overrides]
        self.path = path
        self._begin(create(lib.model_open_override, encode(path, 'path'),
                           (ctypes.c_char_p * len(texts))(*texts), len(texts)),
                    lib.model_free)

    def lend(self) -> Model:
        """Returns the same model, which stays open when this one is closed."""
        other = Model.__new__(Model)
        other.path = self.path
        with self._use() as m:
            other._begin(m, None, self)
        return other

    @property
    def arch(self) -> str:
        """The family, such as "qwen3moe"."""
        with self._use() as m:
            return lib.model_arch(m).decode()

    @property
    def n_vocab(self) -> int:
        """Logits of a token."""
        with self._use() as m:
            return lib.model_n_vocab(m)

    @property
    def n_ctx_train(self) -> int:
        """Tokens of the longest context in training; 0: not known."""
        with self._use() as m:
            return lib.model_n_ctx_train(m)

    @property
    def d_model(self) -> int:
        """Values of a hidden state, and of an embedding."""
        with self._use() as m:
            return lib.model_d_model(m)

    @property
    def pooling(self) -> str | None:
        """The file's pooling of embeddings: "none", "mean", "cls", "last" or, of
        a reranker, "rank"; None: it does not say."""
        with self._use() as m:
            kind = lib.model_pooling(m)
        name = list(choices('pl_pooling'))[kind]
        return None if name == 'unset' else name

    @property
    def tokenizer(self) -> Tokenizer:
        """The file's; Error with NOT_FOUND if it has none."""
        return Tokenizer(self)

    def template(self) -> Template:
        """The file's chat template; Error with NOT_FOUND if it has none."""
        template = Template.__new__(Template)
        with self._use() as m:
            template._begin(create(lib.model_template, m, None, 0),
                            lib.template_free)
        return template


class Tokenizer(Object):
    """Text to token ids and back, of a Model or of a GGUF file. Thread-safe."""

    def __init__(self, source):
        if not isinstance(source, Model):
            pointer = create(lib.tokenizer_open, encode(source, 'path'))
            return self._begin(pointer, lib.tokenizer_free)
        with source._use() as m:
            pointer = lib.model_tokenizer(m)
            if not pointer:
                raise Error(Status.NOT_FOUND,
                            f'{source.path}: no vocabulary; give token ids')
            return self._begin(pointer, None, source)

    @property
    def n_vocab(self) -> int:
        with self._use() as t:
            return lib.tokenizer_n_vocab(t)

    @property
    def bos(self) -> int | None:
        """The id that begins a text, if there is one."""
        with self._use() as t:
            i = lib.tokenizer_bos(t)
            return None if i < 0 else i

    @property
    def adds_bos(self) -> bool:
        with self._use() as t:
            return lib.tokenizer_adds_bos(t)

    def encode(self, text: str | bytes, add_special: bool = True,
               parse_special: bool = False) -> list[int]:
        """Returns the ids of a text.

        add_special    BOS and EOS where the tokenizer asks for them
        parse_special  "<|im_end|>" in the text is that token; leave it out for
                       text that you do not trust
        """
        data = text.encode() if isinstance(text, str) else bytes(text)
        flags = (add_special * number['PL_ADD_SPECIAL'] |
                 parse_special * number['PL_PARSE_SPECIAL'])
        ids, n = ctypes.POINTER(ctypes.c_int32)(), ctypes.c_int64()
        with self._use() as t:
            lib.tokenize(t, data, len(data), flags, ctypes.byref(ids),
                         ctypes.byref(n))
        try:
            return ids[:n.value] if n.value else []
        finally:
            free(ids)

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """Returns the text of ids; special tokens only if asked for."""
        with Detokenizer(self, special) as d:
            return ''.join([d.add(i) for i in ids_array(ids)] + [d.flush()])

    def ends(self, token: int) -> bool:
        """Returns true if the token ends a generation (EOS, end of turn)."""
        with self._use() as t:
            return lib.token_is_eog(t, token)


class Detokenizer(Object):
    """Ids to text as they come, in whole characters. One call at a time."""

    def __init__(self, tokenizer: Tokenizer, special: bool = False):
        with tokenizer._use() as t:
            self._begin(create(lib.detokenizer_create, t, special),
                        lib.detokenizer_free, tokenizer)

    def add(self, token: int) -> str:
        """The text that became complete with this token; may be empty."""
        with self._alone() as d:
            return lib.detokenize(d, token).decode()

    def flush(self) -> str:
        """The text that is held back, made valid."""
        with self._alone() as d:
            return lib.detokenize_flush(d).decode()


class Template(Object):
    """A chat template: messages to the prompt that a model was trained on.
    Thread-safe.

    path  any GGUF with a vocabulary, whose special tokens the template sees
    text  a template in Jinja; by default the one in the file
    """

    def __init__(self, text: str | None = None, path=None):
        data = text.encode() if text is not None else None
        self._begin(create(lib.template_create, data, len(data or b''),
                           None if path is None else encode(path, 'path')),
                    lib.template_free)

    def render(self, messages: Sequence[Mapping[str, Any]],
               tools: Sequence[Mapping[str, Any]] | None = None,
               generation_prompt: bool = True, **extra) -> str:
        """Returns the prompt of messages, each with "role" and "content".

        generation_prompt  end where the model's answer begins
        extra              more variables, such as enable_thinking=False
        """
        c = header.struct['pl_conversation'](no_generation_prompt=not
                                             generation_prompt)
        c.size = ctypes.sizeof(c)
        c.messages = json.dumps(messages).encode()
        c.tools = json.dumps(tools).encode() if tools else None
        c.extra = json.dumps(extra).encode() if extra else None
        text, n = ctypes.c_void_p(), ctypes.c_size_t()
        with self._use() as t:
            lib.template_render(t, ctypes.byref(c), ctypes.byref(text),
                                ctypes.byref(n))
        return take_bytes(text, n.value).decode()


# ---- options and plans ------------------------------------------------------

class Settings:
    """A pl_options, with the callbacks that the object made from it calls."""

    def __init__(self, given: Mapping[str, Any],
                 progress: Callable[[str, int, int], object] | None,
                 trace, cancel: Cancel | None):
        o = self.struct = header.struct['pl_options']()
        o.size = ctypes.sizeof(o)
        values = dict(given)
        if values.get('cache_k') or values.get('cache_v'):
            o.cache_set = True
            for name in ('cache_k', 'cache_v'):
                values[name] = values.get(name) or 'f16'
        self.held = fill(o, values, _fields.Options.__annotations__)
        self.failure: BaseException | None = None
        self._cancel = cancel or Cancel()
        o.cancel = ctypes.pointer(self._cancel._flag)
        self._set('log', 'pl_log_fn', lambda user, level, text: LOG.log(
            _LEVEL.get(level, 30), '%s', ctypes.string_at(text).decode(
                'utf-8', 'replace')))
        if progress:
            self._set('progress', 'pl_progress_fn', self._guard(
                lambda user, text, done, total: progress(
                    ctypes.string_at(text).decode(), done, total)))
        if trace:
            self._set('trace', 'pl_write_fn', self._guard(
                lambda user, text, n: trace.write(ctypes.string_at(text, n))))

    def _set(self, field, kind, function):
        self.held.append(header.callback[kind](function))
        setattr(self.struct, field, self.held[-1])

    def _guard(self, function):
        """Ends the call if the callback raises; create() raises it then."""
        def guarded(*args):
            try:
                function(*args)
            except BaseException as e:  # pylint: disable=broad-except
                self.failure = self.failure or e
                self._cancel.set()
        return guarded

    def create(self, function, model: Model):
        try:
            with model._use() as m:
                pointer = create(function, m, ctypes.byref(self.struct))
        except Error:
            if self.failure:
                raise self.failure from None
            raise
        return pointer


class Plan(Object):
    """The placement of a model on devices. No weight is read.

    options  the fields of pl_options in pl.h by their names; lists of numbers
             or texts have no count, and an enumerator is its name's end:
             Plan(model, devices="cpu*2", split_mode="tensor")

    str() is the plan as text.
    """

    def __init__(self, model: Model, *, cancel: Cancel | None = None,
                 **options: Unpack[Options]):
        s = Settings(options, None, None, cancel)
        with model._use():
            self._begin(s.create(lib.plan_create, model), lib.plan_free, model,
                        held=s)

    def __str__(self) -> str:
        with self._use() as p:
            return written(lib.plan_print, p, False)

    def to_dict(self) -> dict[str, Any]:
        """The plan as `plait plan --json` prints it."""
        with self._use() as p:
            return json.loads(written(lib.plan_print, p, True))

    def svg(self) -> str:
        """The plan as a picture."""
        with self._use() as p:
            return written(lib.plan_svg, p)

    @property
    def options(self) -> str:
        """The options of the command that give this plan again."""
        with self._use() as p:
            return lib.plan_options(p).decode()

    @property
    def summary(self) -> str:
        """One line: devices, ranks, bytes, collectives of a token."""
        text = ctypes.create_string_buffer(1024)
        with self._use() as p:
            lib.plan_summary(p, ctypes.addressof(text), len(text))
        return text.value.decode()


class EnginePlan(Plan):
    """The plan of an engine, closed with it."""

    def __init__(self, engine):  # pylint: disable=super-init-not-called
        self._engine = engine
        self._finalizer = engine._finalizer

    @contextlib.contextmanager
    def _use(self):
        with self._engine._use() as e:
            yield lib.engine_plan(e)

    def close(self) -> None:
        """Frees nothing, because the engine owns the plan."""


# ---- files and the machine --------------------------------------------------

def inspect(path) -> dict[str, Any]:
    """Metadata and tensors of a GGUF file, or a saved state's contents."""
    return json.loads(written(lib.inspect, encode(path, 'path'), True))


def devices() -> dict[str, Any]:
    """Cores, memory in bytes, instruction sets and GPUs of this machine."""
    return json.loads(written(lib.devices_print, True))
