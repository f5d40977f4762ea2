"""Names and types of keyword arguments, for editors and type checkers.

Each name is a field of the struct in pl.h that the class is called after, and
says there what it does; None and absence are the default. A test compares them
with the header.
"""
from __future__ import annotations

from typing import Sequence, TypedDict


class Options(TypedDict, total=False):
    """Fields of pl_options: how a model is placed on devices."""

    devices: str
    device_spec: str
    n_ranks: int
    tensor_split: Sequence[float]
    n_threads: int
    split_mode: str
    hybrid_size: int
    main_device: int
    device_layers: str
    host_experts: str
    host_cache: bool
    overrides: Sequence[str]
    offload: str
    no_fit: bool
    fit_ctx: int
    fit_margin: int
    no_pin: bool
    inexact: bool
    cpu: str
    n_ctx: int
    n_ubatch: int
    n_out: int
    n_seq: int
    n_checkpoint: int
    cache_k: str
    cache_v: str
    keep: Sequence[str]
    sim_seed: int
    prefix_cache: bool
    numerics: str
    host_reserve: int
    rank_split: Sequence[float]


class Sampling(TypedDict, total=False):
    """Fields of pl_sampling: how the next token is chosen."""

    penalty_last_n: int
    repeat_penalty: float
    frequency_penalty: float
    presence_penalty: float
    top_k: int
    typical_p: float
    top_p: float
    min_p: float
    temperature: float
    top_n_sigma: float
    xtc_probability: float
    xtc_threshold: float
    dynatemp_range: float
    dynatemp_exponent: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_last_n: int
    dry_breaker: Sequence[str]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    adaptive_target: float
    adaptive_decay: float
    only: Sequence[int]
    banned: Sequence[int]
    stop: Sequence[int]
