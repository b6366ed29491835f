"""Chooses how a nuclear norm is computed; a faster kernel is added here and nowhere else.

triton   three fused kernels, close to the time of reading the input once; CUDA, smaller side at most 32
native   the same algorithm in C, compiled on first use where there is a compiler; CPU, smaller side at most 32
gram     eigenvalues of the float64 Gram matrix of the smaller side by torch; every device
svd      float64 singular values; exact to float64, several times slower on a CPU, thousands of times on a GPU
"""

from __future__ import annotations

import functools
import warnings
from typing import Literal, cast, get_args

import torch

from intrigue.nuclear.inputs import MatrixError, check_option
from intrigue.nuclear.native import native_library
from intrigue.ops.triton_support import INTERPRETED, triton_available, why_no_triton

Method = Literal["triton", "native", "gram", "svd"]
METHODS: tuple[Method, ...] = get_args(Method)

# The kernels keep one row of a Gram matrix per lane of a warp, of which there are 32; the C code takes the same sizes.
FUSED_LIMIT = 32
# Rank-one matrices are the worst for the Gram matrix: its rounding (2^-52) is rooted once per vanished singular value.
# Measured on the ratio, relative: 5e-8 at a smaller side of 5 to 64, 2e-7 at 128, 5e-7 at 256, 8e-7 at 512. We promise
# 1e-6 and keep a factor of five for other libraries' eigenvalue solvers.
GRAM_LIMIT = 128


def choose_method(device: torch.device, dtype: torch.dtype, n: int, m: int) -> Method:
    """The method that "auto" means for n × m matrices of this dtype on this device, relative error ≤ 1e-6."""
    del dtype  # Every method takes every dtype.
    side = min(n, m)
    if side > GRAM_LIMIT:
        return "svd"
    if side <= FUSED_LIMIT and device.type == "cuda" and _triton_available_or_warn():
        return "triton"
    if side <= FUSED_LIMIT and device.type == "cpu" and native_library().function is not None:
        return "native"
    return "gram"


def resolve_method(name: str, device: torch.device, dtype: torch.dtype, n: int, m: int) -> Method:
    """The method behind a user's choice, "auto" included; raises MatrixError for one unknown or impossible here."""
    check_option("method", name, ("auto", *METHODS))
    if name == "auto":
        return choose_method(device, dtype, n, m)
    method = cast(Method, name)
    if method in ("triton", "native") and min(n, m) > FUSED_LIMIT:
        raise MatrixError(
            f'method: "{method}" takes matrices whose smaller side is at most {FUSED_LIMIT}, these are {n} × {m}. '
            'Pass method="auto", which takes any size.'
        )
    home = {"triton": "cuda", "native": "cpu"}.get(method, device.type)
    if device.type != home and not (method == "triton" and INTERPRETED):
        raise MatrixError(
            f'method: "{method}" runs on {home}, the matrices are on {device.type}. Move them, or pass method="auto".'
        )
    return method


def describe_auto(device: torch.device) -> str:
    """A sentence on what "auto" means on this device, for float32 matrices of three sizes."""
    sizes = ((5, 512), (64, 512), (256, 512))
    choices = ", ".join(f"{n}x{m} {choose_method(device, torch.float32, n, m)}" for n, m in sizes)
    missing = native_library().reason if device.type == "cpu" and native_library().function is None else ""
    return f"{choices} ({missing}; with one, 5x512 takes a third of the time)" if missing else choices


@functools.cache
def _triton_available_or_warn() -> bool:
    """Whether Triton kernels can be launched; warns once if not."""
    if triton_available():
        return True
    warnings.warn(
        "nuclear norms on CUDA take torch's Gram method, about ten times slower, and cannot be captured in a CUDA "
        f"graph: {why_no_triton()}",
        RuntimeWarning,
        stacklevel=2,
    )
    return False
