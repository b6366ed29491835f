"""Whether Triton kernels can be launched here, and the memory layout they are given."""

from __future__ import annotations

import functools
import importlib.util
import os

import torch
from torch import Tensor

from intrigue.ops.native_build import CannotCompile, find_compiler

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels run as Python, on a CPU


@functools.cache
def why_no_triton() -> str:
    """What keeps Triton from running, and the remedy; empty if it runs."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed. Install it with: pip install triton"
    if INTERPRETED:
        return ""
    try:
        find_compiler()  # Triton compiles its launchers with it
    except CannotCompile:
        return "Triton needs a C compiler. Install gcc or clang, or name one in CC"
    return ""


def triton_available() -> bool:
    """Whether Triton kernels can be launched."""
    return not why_no_triton()


TRITON_AVAILABLE = triton_available()
NVIDIA = torch.version.hip is None  # AMD's GPUs are "cuda" devices too, but have no 3xTF32 products


def can_run_kernels(device: torch.device) -> bool:
    """Whether kernels can be launched on tensors of this device. Contains nothing that breaks a torch.compile graph."""
    return TRITON_AVAILABLE and ((device.type == "cuda" and NVIDIA) or INTERPRETED)


def contiguous_per_seed(x: Tensor) -> Tensor:
    """`x` (S, ...) with each seed's part contiguous, as kernels read it; parts shared by stride 0 stay shared."""
    if x[0].is_contiguous():
        return x
    return x[:1].contiguous().expand_as(x) if x.stride(0) == 0 else x.contiguous()
