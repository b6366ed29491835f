"""Whether Triton's kernels can be started here."""

from __future__ import annotations

import functools
import importlib.util
import os

import torch

from intrigue.ops.native_build import CannotCompile, find_compiler

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels as Python, on a CPU


@functools.cache
def triton_lacks() -> str:
    """What keeps Triton from running, and the remedy; empty where nothing does."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed. Install it with: pip install triton"
    if INTERPRETED:
        return ""
    try:
        find_compiler()  # with which Triton builds what starts a kernel
    except CannotCompile:
        return "Triton needs a C compiler. Install gcc or clang, or name one in CC"
    return ""


def triton_works() -> bool:
    """Whether kernels can be started."""
    return not triton_lacks()


TRITON_WORKS = triton_works()
NVIDIA = torch.version.hip is None  # AMD's GPUs are called "cuda" too, and have no TensorFloat-32 in three parts


def kernels_run_on(device: torch.device) -> bool:
    """Whether they can be started on tensors there. Nothing in it that torch.compile could not look into."""
    return TRITON_WORKS and ((device.type == "cuda" and NVIDIA) or INTERPRETED)
