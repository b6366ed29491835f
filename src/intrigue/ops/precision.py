"""What matrix products compute in: exact float32, TF32 (10 bits of mantissa) or bfloat16 (7 bits).

Bonuses are scored in exact float32: the error of lower precision on an ensemble's spread, about 1e-3, is as large as
the signal. Learning may use TF32 on a GPU: gradients are noisier than that. CPUs have no TF32.

While learning, hidden layers may use bfloat16 (`run.products`): those of agents, and of the models that train an
encoding, which is nearly all that URLB's networks compute. Factors and results are rounded to it, and so is the
gradient that a critic's heads pass to the layer below; sums within a product are not. Weights, moments, an agent's
first and last layers, the last layer of an inverse model, losses, values, acting and scoring are float32.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import torch

MatmulDtype = Literal["float32", "bfloat16"]


@dataclasses.dataclass
class _Current:
    bfloat16: bool = False
    """Whether hidden layers use bfloat16 while learning."""
    learning: bool = False


_CURRENT = _Current()
# Two bfloat16 products in one instruction: 1024 x 1024 x 1024 takes 5.0 ms on two cores (Zen 4), 11 in float32. AMX and
# CPUs without either were not measured. torch reports both under private names.
CPU_INSTRUCTIONS = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


def resolve_matmul_dtype(wanted: MatmulDtype, device: torch.device) -> MatmulDtype:
    """`wanted`, or float32 where bfloat16 would not be faster: on a CPU without instructions for it."""
    return wanted if device.type == "cuda" or _has_bfloat16_instructions() else "float32"


def _has_bfloat16_instructions() -> bool:
    return any(getattr(torch.cpu, name, bool)() for name in CPU_INSTRUCTIONS)


def set_matmul_dtype(dtype: MatmulDtype) -> None:
    """What hidden layers use while learning, in this process, from now on."""
    _CURRENT.bfloat16 = dtype == "bfloat16"


def uses_bfloat16() -> bool:
    """Whether hidden layers use bfloat16 now."""
    return _CURRENT.bfloat16 and _CURRENT.learning


@contextlib.contextmanager
def exact_float32() -> Iterator[None]:
    """Float32 products and convolutions are computed in float32."""
    before, _CURRENT.learning = _CURRENT.learning, False
    try:
        with _set_tf32(False):
            yield
    finally:
        _CURRENT.learning = before


@contextlib.contextmanager
def fast_float32() -> Iterator[None]:
    """For learning: float32 products in TF32 where the GPU has it, hidden layers in the dtype set; deterministic."""
    with _set_tf32(True):
        before, torch.backends.cudnn.deterministic = torch.backends.cudnn.deterministic, True
        outer, _CURRENT.learning = _CURRENT.learning, True
        try:
            yield
        finally:
            torch.backends.cudnn.deterministic = before
            _CURRENT.learning = outer


@contextlib.contextmanager
def allow_tf32() -> Iterator[None]:
    """Float32 products in TF32 where the GPU has it: for factors that have no more bits."""
    with _set_tf32(True):
        yield


def tf32_allowed() -> bool:
    """Whether float32 products use TF32 now, where the GPU has it."""
    return _CURRENT.learning


@contextlib.contextmanager
def _set_tf32(allowed: bool) -> Iterator[None]:
    if not torch.cuda.is_available():
        yield
        return
    switches: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    if hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        # torch 2.9 and later: the older switches warn, and must not be mixed with these.
        switches = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
        name, value = "fp32_precision", "tf32" if allowed else "ieee"
    else:
        name, value = "allow_tf32", allowed  # type: ignore[assignment]
    before = [getattr(switch, name) for switch in switches]
    for switch in switches:
        setattr(switch, name, value)
    try:
        yield
    finally:
        for switch, old in zip(switches, before, strict=True):
            setattr(switch, name, old)
