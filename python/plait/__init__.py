"""plait: large language models split over several devices, from Python.

    import plait

    with plait.Model("model.gguf") as model, \\
            plait.Engine(model, devices="cpu") as engine:
        for piece in engine.generate("Once upon a time", max_tokens=100):
            print(piece, end="", flush=True)

The package calls libplait.so through ctypes and needs nothing else.
doc/python.md has examples, pl.h the meaning of every option. Messages of the
library go to the logger "plait".
"""
from ._library import Cancel, Error, Status, version
from ._chat import Chat
from ._engine import Engine, Generation
from ._model import (Detokenizer, Model, Plan, Template, Tokenizer, devices,
                    inspect)
from ._receipt import Verdict, verify
from ._sampling import Grammar, Sampler

__version__ = version
__all__ = ['Cancel', 'Chat', 'Detokenizer', 'Engine', 'Error', 'Generation',
           'Grammar', 'Model', 'Plan', 'Sampler', 'Status', 'Template',
           'Tokenizer', 'Verdict', 'devices', 'inspect', 'verify', 'version']
