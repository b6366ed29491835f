"""What matrix units compute with: exact float32, TensorFloat-32 with ten bits of mantissa, bfloat16 with seven.

Bonuses are scored exactly: the spread that lower precision adds to an ensemble's predictions, about 1e-3, is the size
of what is measured. Learning may be fast: gradients carry more noise than that. A CPU knows no TensorFloat-32.

Wide products are those of an agent's hidden layers, and of the models that train an encoding: nearly all of what URLB's
networks compute. While learning they may take bfloat16 (`run.products`): factors and results are rounded to it, and
what a critic's heads tell the layer below them; sums within a product are not. Weights, moments, an agent's first and
last layers, the last one of a model that guesses actions, losses, values, acting and scoring are float32.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import torch

Products = Literal["float32", "bfloat16"]


@dataclasses.dataclass
class _Switches:
    bfloat16: bool = False
    """Whether wide products may take it."""
    learning: bool = False


_NOW = _Switches()
# Two products of bfloat16 in one instruction: 1024 x 1024 x 1024 takes 5.0 ms on two cores (Zen 4), in float32 11.
# Of AMX and of CPUs without either we have no times. torch tells of both under private names.
CPU_INSTRUCTIONS = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")


def pick_products(wanted: Products, device: torch.device) -> Products:
    """What was wanted, or float32 where bfloat16 would not be faster: on a CPU that has no instructions for it."""
    return wanted if device.type == "cuda" or _cpu_multiplies_bfloat16() else "float32"


def _cpu_multiplies_bfloat16() -> bool:
    return any(getattr(torch.cpu, name, bool)() for name in CPU_INSTRUCTIONS)


def use_products(wanted: Products) -> None:
    """What wide products of this process take while learning, from now on."""
    _NOW.bfloat16 = wanted == "bfloat16"


def takes_bfloat16() -> bool:
    """Whether wide products are in bfloat16 now."""
    return _NOW.bfloat16 and _NOW.learning


@contextlib.contextmanager
def exact_float32() -> Iterator[None]:
    """Products and convolutions of float32 in float32."""
    outside, _NOW.learning = _NOW.learning, False
    try:
        with _tf32(False):
            yield
    finally:
        _NOW.learning = outside


@contextlib.contextmanager
def fast_float32() -> Iterator[None]:
    """For learning: float32 in TensorFloat-32, where the GPU has it, and wide products in what was chosen for them.

    The same twice, to the bit.
    """
    with _tf32(True):
        before, torch.backends.cudnn.deterministic = torch.backends.cudnn.deterministic, True
        outside, _NOW.learning = _NOW.learning, True
        try:
            yield
        finally:
            torch.backends.cudnn.deterministic = before
            _NOW.learning = outside


@contextlib.contextmanager
def tensor_float32() -> Iterator[None]:
    """Products of float32 in TensorFloat-32, where the GPU has it: of numbers that have no more bits."""
    with _tf32(True):
        yield


def tf32_allowed() -> bool:
    """Whether products of float32 are in TensorFloat-32 now, where the GPU has it."""
    return _NOW.learning


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
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
