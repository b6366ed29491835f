"""Which float32 a GPU's matrix units compute with: exact, or TensorFloat-32 with ten bits of mantissa.

Bonuses are scored exactly: the spread that lower precision adds to an ensemble's predictions, about 1e-3, is the size
of what is measured. Learning may be fast: gradients carry more noise than that. A CPU knows no difference.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def exact_float32() -> Iterator[None]:
    """Products and convolutions of float32 in float32."""
    with _tf32(False):
        yield


@contextlib.contextmanager
def fast_float32() -> Iterator[None]:
    """Products and convolutions of float32 in TensorFloat-32, where the GPU has it; the same twice, to the bit."""
    with _tf32(True):
        before, torch.backends.cudnn.deterministic = torch.backends.cudnn.deterministic, True
        try:
            yield
        finally:
            torch.backends.cudnn.deterministic = before


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
