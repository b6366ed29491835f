"""Triton kernels: a layer of few inputs, its LayerNorm and its tanh in one launch, and their gradient in another.

    p = W x + b                               a row of H numbers from K
    n = (p − mean p) / √(var p + ε)           var: of all H, divided by H
    y = tanh(g n + s)

Given ∂y, with every mean over the H of a row (Ba et al. 2016, arXiv:1607.06450, differentiated):

    ∂z = ∂y (1 − y²)
    ∂p = (g ∂z − mean(g ∂z) − n · mean(g ∂z n)) / √(var p + ε)
    ∂g = Σ ∂z n,   ∂s = Σ ∂z,   ∂b = Σ ∂p     over the rows, here of one program each

One program holds some rows whole in registers, so that means need no second pass over memory. p and y are computed
again for the gradient: with K of some dozens that takes less time than reading them. Nothing is added across programs:
what they sum up is written side by side, so that two runs agree to the bit. y is written, and ∂y read, in the type that
they have, float32 or bfloat16.

Rows and weights of seed s begin s · (their stride) behind the first; a stride of 0 shows all seeds the same.
"""
# Triton's language has Python's syntax and its own types; its compile-time constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from intrigue.ops.rounding_kernels import rounded
from intrigue.ops.triton_support import in_order

CHUNK = 16  # inputs of one product, the fewest that Triton multiplies
# Rows of a program: 1024 rows are work for 64 or 128 of a GPU's multiprocessors, and all weights are read by each.
# Matrix units take 16 at once; without them 16 spill up to 904 bytes a lane, and 8 at most 96 (ptxas, sm_90).
ROWS, ROWS_EXACT = 16, 8


TWO_LOG2_E = tl.constexpr(2.8853900817779268)  # 2 / ln 2: exp(2z) as a power of two


@triton.jit
def _tanh(z):
    """Off by less than 1e-6, absolutely. Of large z the power is infinite or 0, and the quotient 0 or 2."""
    return 1.0 - 2.0 / (1.0 + tl.exp2(z * TWO_LOG2_E))


@triton.jit
def _loaded(x, weight, row, unit, count, BEGIN: tl.constexpr, K: tl.constexpr, CHUNK: tl.constexpr):
    """Inputs BEGIN to BEGIN + CHUNK of the rows (R, CHUNK) and of the weights (CHUNK, H), 0 where there are none."""
    k = BEGIN + tl.arange(0, CHUNK)
    there = (row[:, None] < count) & (k < K)[None, :]
    some_x = tl.load(x + row.to(tl.int64)[:, None] * K + k[None, :], mask=there, other=0.0)
    some_w = tl.load(weight + unit[None, :] * K + k[:, None], mask=(k < K)[:, None], other=0.0)
    return some_x, some_w


@triton.jit
def _normalised(
    x, weight, bias, row, unit, count, eps,
    K: tl.constexpr, CHUNK: tl.constexpr, H: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """n of these rows (R, H), and 1 / √(var + ε) of each (R, 1); rows from `count` on are those of x = 0."""
    p = tl.zeros((row.shape[0], H), tl.float32)
    # Some inputs at a time: the weights of all of them would not fit into shared memory. The next ones are asked for
    # before the product, and arrive during it.
    next_x, next_w = _loaded(x, weight, row, unit, count, 0, K, CHUNK)
    for begin in tl.static_range(0, K, CHUNK):
        some_x, some_w = next_x, next_w
        if begin + CHUNK < K:
            next_x, next_w = _loaded(x, weight, row, unit, count, begin + CHUNK, K, CHUNK)
        p = tl.dot(some_x, some_w, p, input_precision=PRECISION)
    p += tl.load(bias + unit)[None, :]
    # Twice through the registers: a mean of squares less the square of the mean would cancel.
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
    n, _ = _normalised(
        x + seed * stride_x, weight + seed * stride_w, bias + seed * stride_b, row, unit, count, eps,
        K, CHUNK, H, PRECISION,
    )  # fmt: skip
    g = tl.load(gain + seed * stride_g + unit)
    s = tl.load(shift + seed * stride_s + unit)
    place = (seed * count + row)[:, None] * H + unit[None, :]
    out = _tanh(n * g[None, :] + s[None, :])
    if y.dtype.element_ty == tl.bfloat16:
        out = rounded(out)
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
    n, scale = _normalised(
        x + seed * stride_x, weight + seed * stride_w, bias + seed * stride_b, row, unit, count, eps,
        K, CHUNK, H, PRECISION,
    )  # fmt: skip
    gains = gain + seed * stride_g + unit
    y = _tanh(n * tl.load(gains)[None, :] + tl.load(shift + seed * stride_s + unit)[None, :])
    # Of rows that do not exist dz is 0, and so is all that follows from them.
    dz = tl.load(dy + place, mask=inside, other=0.0).to(tl.float32) * (1.0 - y * y)
    # (programs of a seed, 3, H) of each seed
    mine = sums + ((seed * tl.num_programs(0) + block) * 3) * H + unit
    if SUMS:
        tl.store(mine, tl.sum(dz * n, 0))
        tl.store(mine + H, tl.sum(dz, 0))
    dn = dz * tl.load(gains)[None, :]  # once more: kept from above it would spill
    along = tl.sum(dn * n, 1, keep_dims=True) / H
    moved = (dn - tl.sum(dn, 1, keep_dims=True) / H - n * along) * scale
    tl.store(dp + place, moved, mask=inside)
    if SUMS:
        tl.store(mine + 2 * H, tl.sum(moved, 0))


def rows_of(exact: bool) -> int:
    """Rows of one program."""
    return ROWS_EXACT if exact else ROWS


def shared_bytes(width_out: int) -> int:
    """An upper bound of the shared memory of a program: two chunks of weights and rows, and what reductions need."""
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
        given = [in_order(each) for each in (x, weight, bias, gain, shift)]
        strides = [each.stride(0) for each in given]
        programs = (triton.cdiv(count, rows_of(exact)), seeds)
        _forward[programs](*given, y, count, eps, *strides, **_constants(weight, exact))
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
    """∂p (S, B, H), and each program's sums of ∂g, ∂s and ∂b (S, programs, 3, H); no programs if nobody wants them."""
    if x.dim() == 2:
        alone = (each.unsqueeze(0) for each in (dy, x, weight, bias, gain, shift))
        dp, sums = backward(*alone, eps, exact, wants_sums)
        return dp.squeeze(0), sums.squeeze(0)
    seeds, count, _ = x.shape
    blocks = triton.cdiv(count, rows_of(exact))
    dp = x.new_empty(dy.shape)
    sums = x.new_empty(seeds, blocks if wants_sums else 0, 3, weight.shape[1])
    if dp.numel():
        given = [in_order(each) for each in (x, weight, bias, gain, shift)]
        strides = [each.stride(0) for each in given]
        _backward[blocks, seeds](
            dy.contiguous(), *given, dp, sums, count, eps, *strides,
            SUMS=wants_sums, **_constants(weight, exact),
        )  # fmt: skip
    return dp, sums


def _constants(weight: Tensor, exact: bool) -> dict[str, int | str]:
    _, width_out, width_in = weight.shape
    return {
        "K": width_in,
        "H": width_out,
        "CHUNK": CHUNK,
        "ROWS": rows_of(exact),
        "PRECISION": "ieee" if exact else "tf32",
        "num_warps": 8 if width_out >= 512 else 4,
    }
