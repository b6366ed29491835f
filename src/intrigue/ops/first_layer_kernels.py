"""Triton kernels: a layer of few inputs, its LayerNorm and its tanh in one launch, and their gradient in another.

    p = W x + b                               a row of H numbers from K
    n = (p − mean p) / √(var p + ε)           var: of all H, divided by H
    y = tanh(g n + s)

Given ∂y, with every mean over the H of a row (Ba et al. 2016, arXiv:1607.06450, differentiated):

    ∂z = ∂y (1 − y²)
    ∂p = (g ∂z − mean(g ∂z) − n · mean(g ∂z n)) / √(var p + ε)
    ∂g = Σ ∂z n,   ∂s = Σ ∂z,   ∂b = Σ ∂p     over the rows of one program

One program holds a few whole rows in registers, so that means need no second pass over memory. The backward pass
recomputes p and y: with K of some dozens that is faster than reading them. There are no atomic additions: programs
write their partial sums side by side, so that results are deterministic. y is written, and ∂y read, in their own dtype,
float32 or bfloat16.

Rows and weights of seed s begin at s · (their stride); with a stride of 0 all seeds share them.
"""
# Triton's language has Python's syntax and its own types; its compile-time constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from intrigue.ops.rounding_kernel import round_to_bfloat16
from intrigue.ops.triton_support import contiguous_per_seed

CHUNK = 16  # inputs of one product, the fewest that Triton supports
# Rows per program: 1024 rows occupy 64 or 128 of a GPU's multiprocessors, each of which reads all weights. Tensor cores
# take 16 at once; without them 16 spill up to 904 bytes a lane, and 8 at most 96 (ptxas, sm_90).
ROWS, ROWS_EXACT = 16, 8
TWO_LOG2_E = tl.constexpr(2.8853900817779268)  # 2 / ln 2: exp(2z) as a power of two


@triton.jit
def _tanh(z):
    """Absolute error below 1e-6. For large |z| the power is infinite or 0, and the quotient 0 or 2."""
    return 1.0 - 2.0 / (1.0 + tl.exp2(z * TWO_LOG2_E))


@triton.jit
def _load_chunk(x, weight, row, unit, count, BEGIN: tl.constexpr, K: tl.constexpr, CHUNK: tl.constexpr):
    """Inputs BEGIN to BEGIN + CHUNK of the rows (R, CHUNK) and of the weights (CHUNK, H), padded with 0."""
    k = BEGIN + tl.arange(0, CHUNK)
    inside = (row[:, None] < count) & (k < K)[None, :]
    some_x = tl.load(x + row.to(tl.int64)[:, None] * K + k[None, :], mask=inside, other=0.0)
    some_w = tl.load(weight + unit[None, :] * K + k[:, None], mask=(k < K)[:, None], other=0.0)
    return some_x, some_w


@triton.jit
def _normalise(
    x, weight, bias, row, unit, count, eps,
    K: tl.constexpr, CHUNK: tl.constexpr, H: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """n of these rows (R, H), and 1 / √(var + ε) of each (R, 1); padding rows are those of x = 0."""
    p = tl.zeros((row.shape[0], H), tl.float32)
    # One chunk of inputs at a time: all weights would not fit into shared memory. The next chunk is prefetched before
    # the product.
    next_x, next_w = _load_chunk(x, weight, row, unit, count, 0, K, CHUNK)
    for begin in tl.static_range(0, K, CHUNK):
        some_x, some_w = next_x, next_w
        if begin + CHUNK < K:
            next_x, next_w = _load_chunk(x, weight, row, unit, count, begin + CHUNK, K, CHUNK)
        p = tl.dot(some_x, some_w, p, input_precision=PRECISION)
    p += tl.load(bias + unit)[None, :]
    # Two passes over the registers: a mean of squares minus the square of the mean would cancel.
    p -= tl.sum(p, 1, keep_dims=True) / H
    scale = tl.rsqrt(tl.sum(p * p, 1, keep_dims=True) / H + eps)
    return p * scale, scale


@triton.jit
def _forward(
    x, weight, bias, gain, shift, y, count, eps, stride_x, stride_w, stride_b, stride_g, stride_s,
    K: tl.constexpr, CHUNK: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y of ROWS rows of one seed. Programs: (blocks of rows, seeds)."""
    seed = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.arange(0, H)
    n, _ = _normalise(
        x + seed * stride_x, weight + seed * stride_w, bias + seed * stride_b, row, unit, count, eps,
        K, CHUNK, H, PRECISION,
    )  # fmt: skip
    g = tl.load(gain + seed * stride_g + unit)
    s = tl.load(shift + seed * stride_s + unit)
    place = (seed * count + row)[:, None] * H + unit[None, :]
    out = _tanh(n * g[None, :] + s[None, :])
    if y.dtype.element_ty == tl.bfloat16:
        out = round_to_bfloat16(out)
    tl.store(y + place, out, mask=row[:, None] < count)


@triton.jit
def _backward(
    dy, x, weight, bias, gain, shift, dp, sums, count, eps, stride_x, stride_w, stride_b, stride_g, stride_s,
    K: tl.constexpr, CHUNK: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr, PRECISION: tl.constexpr,
    SUMS: tl.constexpr,
):  # fmt: skip
    """∂p of ROWS rows of one seed and, if SUMS, their part of ∂g, ∂s and ∂b. Programs: (blocks of rows, seeds)."""
    seed = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0)
    row = block * ROWS + tl.arange(0, ROWS)
    unit = tl.arange(0, H)
    inside = row[:, None] < count
    place = (seed * count + row)[:, None] * H + unit[None, :]
    n, scale = _normalise(
        x + seed * stride_x, weight + seed * stride_w, bias + seed * stride_b, row, unit, count, eps,
        K, CHUNK, H, PRECISION,
    )  # fmt: skip
    gains = gain + seed * stride_g + unit
    y = _tanh(n * tl.load(gains)[None, :] + tl.load(shift + seed * stride_s + unit)[None, :])
    # In padding rows dz is 0, and so is all that follows from them.
    dz = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32) * (1.0 - y * y)
    # (programs of a seed, 3, H) of each seed
    mine = sums + ((seed * tl.num_programs(0) + block) * 3) * H + unit
    if SUMS:
        tl.store(mine, tl.sum(dz * n, 0))
        tl.store(mine + H, tl.sum(dz, 0))
    dn = dz * tl.load(gains)[None, :]  # loaded again: kept from above it would spill
    along = tl.sum(dn * n, 1, keep_dims=True) / H
    moved = (dn - tl.sum(dn, 1, keep_dims=True) / H - n * along) * scale
    tl.store(dp + place, moved, mask=inside)
    if SUMS:
        tl.store(mine + 2 * H, tl.sum(moved, 0))


def rows_per_program(exact: bool) -> int:
    """Rows that one program computes."""
    return ROWS_EXACT if exact else ROWS


def shared_bytes(width_out: int) -> int:
    """An upper bound of the shared memory of a program: two chunks of weights and rows, and space for reductions."""
    return 4 * (2 * CHUNK * (width_out + ROWS) + 1024)


def forward(
    x: Tensor, weight: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, eps: float, exact: bool, dtype: torch.dtype
) -> Tensor:
    """y (S, B, H) of x (S, B, K), weight (S, H, K) and the others (S, H); or all without S."""
    if x.dim() == 2:
        alone = (each.unsqueeze(0) for each in (x, weight, bias, gain, shift))
        return forward(*alone, eps, exact, dtype).squeeze(0)
    seeds, count, _ = x.shape
    y = x.new_empty(seeds, count, weight.shape[1], dtype=dtype)
    if y.numel():
        tensors = [contiguous_per_seed(each) for each in (x, weight, bias, gain, shift)]
        strides = [each.stride(0) for each in tensors]
        programs = (triton.cdiv(count, rows_per_program(exact)), seeds)
        _forward[programs](*tensors, y, count, eps, *strides, **_constants(weight, exact))
    return y


def backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    gain: Tensor,
    shift: Tensor,
    eps: float,
    exact: bool,
    wants_sums: bool,
) -> tuple[Tensor, Tensor]:
    """∂p (S, B, H), and each program's sums of ∂g, ∂s and ∂b (S, programs, 3, H); no programs unless wanted."""
    if x.dim() == 2:
        alone = (each.unsqueeze(0) for each in (dy, x, weight, bias, gain, shift))
        dp, sums = backward(*alone, eps, exact, wants_sums)
        return dp.squeeze(0), sums.squeeze(0)
    seeds, count, _ = x.shape
    blocks = triton.cdiv(count, rows_per_program(exact))
    dp = x.new_empty(dy.shape)
    sums = x.new_empty(seeds, blocks if wants_sums else 0, 3, weight.shape[1])
    if dp.numel():
        tensors = [contiguous_per_seed(each) for each in (x, weight, bias, gain, shift)]
        strides = [each.stride(0) for each in tensors]
        _backward[blocks, seeds](
            dy.contiguous(), *tensors, dp, sums, count, eps, *strides,
            SUMS=wants_sums, **_constants(weight, exact),
        )  # fmt: skip
    return dp, sums


def _constants(weight: Tensor, exact: bool) -> dict[str, int | str]:
    _, width_out, width_in = weight.shape
    return {
        "K": width_in,
        "H": width_out,
        "CHUNK": CHUNK,
        "ROWS": rows_per_program(exact),
        "PRECISION": "ieee" if exact else "tf32",
        "num_warps": 8 if width_out >= 512 else 4,
    }
