"""Triton kernels: a bias, ReLU and a layer of few outputs in one launch, and their gradient in another.

    z = p + b,   h = max(z, 0)                a row of H numbers
    y = W h + c                               A of them, W (A, H)

Given ∂y, summed over the rows of a program each:

    ∂p = Wᵀ ∂y where z > 0, else 0,   ∂b = Σ ∂p,   ∂W = Σ ∂y hᵀ

Computed in float32, or in 3xTF32, which is as accurate; p is read, and ∂p written, in the dtype of p, float32 or
bfloat16. There are no atomic additions: programs write their partial sums side by side, so that results are
deterministic. NaN stays NaN.

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

# Rows per program of the forward pass: 1024 rows occupy 128 of a GPU's multiprocessors.
ROWS = 8
# Rows and columns per program of the backward pass. With 64 rows over 200 bytes a lane spill, with 32 none (ptxas,
# sm_90).
TALL, COLUMNS = 32, 128
LINES = 16  # rows of a product, the fewest that Triton supports: one for each output, and one for the bias


@triton.jit
def _forward(
    p, bias, weight, last, y, count, stride_p, stride_b, stride_w, stride_c,
    A: tl.constexpr, H: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """y of ROWS rows of one seed. Programs: (blocks of rows, seeds)."""
    seed = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.arange(0, H)
    inside = row < count
    z = tl.load(p + seed * stride_p + row.to(tl.int64)[:, None] * H + unit[None, :], mask=inside[:, None], other=0.0)
    z = z.to(tl.float32) + tl.load(bias + seed * stride_b + unit)[None, :]
    h = tl.where(z <= 0.0, 0.0, z)  # not a maximum, which would turn NaN into 0
    for out in tl.static_range(A):
        w = tl.load(weight + seed * stride_w + out * H + unit)
        c = tl.load(last + seed * stride_c + out)
        tl.store(y + (seed * count + row) * A + out, tl.sum(h * w[None, :], 1) + c, mask=inside)


@triton.jit
def _backward(
    dy, p, bias, weight, dp, sums, count, stride_p, stride_b, stride_w,
    A: tl.constexpr, H: tl.constexpr, TALL: tl.constexpr, COLUMNS: tl.constexpr, LINES: tl.constexpr,
    SUMS: tl.constexpr,
):  # fmt: skip
    """∂p of TALL rows and COLUMNS units of one seed and, if SUMS, the rows' part of ∂W and ∂b.

    Programs: (blocks of rows, blocks of units, seeds).
    """
    seed = tl.program_id(2).to(tl.int64)
    block = tl.program_id(0)
    row = block * TALL + tl.arange(0, TALL)
    unit = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = row < count
    place = row.to(tl.int64)[:, None] * H + unit[None, :]
    z = tl.load(p + seed * stride_p + place, mask=inside[:, None], other=0.0).to(tl.float32)
    z += tl.load(bias + seed * stride_b + unit)[None, :]
    h = tl.where(z <= 0.0, 0.0, z)
    dh = tl.zeros((TALL, COLUMNS), tl.float32)
    for out in tl.static_range(A):
        # 0 for padding rows, and so is all that follows from them.
        d = tl.load(dy + (seed * count + row) * A + out, mask=inside, other=0.0)
        dh += d[:, None] * tl.load(weight + seed * stride_w + out * H + unit)[None, :]
    moved = tl.where(z <= 0.0, 0.0, dh)
    if SUMS:
        # Sums over rows as products: of ∂yᵀ with h, and of a row of ones, at A, with ∂p.
        line = tl.arange(0, LINES)
        inside_y = (line < A)[:, None] & inside[None, :]
        dy_across = tl.load(dy + (seed * count + row)[None, :] * A + line[:, None], mask=inside_y, other=0.0)
        ones = tl.where((line == A)[:, None] & inside[None, :], 1.0, 0.0)
        part = tl.dot(dy_across, h, input_precision="tf32x3")
        part = tl.dot(ones, moved, part, input_precision="tf32x3")
        # (A + 1, seeds, programs of a seed, H): with one seed, or one output, sums have the layout of the weights.
        lines = line.to(tl.int64) * tl.num_programs(2) * tl.num_programs(0)
        mine = sums + (lines + seed * tl.num_programs(0) + block)[:, None] * H + unit[None, :]
        tl.store(mine, part, mask=(line <= A)[:, None])
    if dp.dtype.element_ty == tl.bfloat16:
        moved = round_to_bfloat16(moved)
    tl.store(dp + seed * count * H + place, moved, mask=inside[:, None])


def count_blocks(count: int) -> int:
    """The number of partial sums that the gradients of `count` rows are written as."""
    return triton.cdiv(count, TALL)


def forward(p: Tensor, bias: Tensor, weight: Tensor, last: Tensor) -> Tensor:
    """y (S, B, A) of p (S, B, H), bias (S, H), weight (S, A, H) and last (S, A); or all without S."""
    if p.dim() == 2:
        return forward(*(each.unsqueeze(0) for each in (p, bias, weight, last))).squeeze(0)
    seeds, count, width = p.shape
    outputs = weight.shape[1]
    y = bias.new_empty(seeds, count, outputs)
    if y.numel():
        tensors = [contiguous_per_seed(each) for each in (p, bias, weight, last)]
        strides = [each.stride(0) for each in tensors]
        _forward[triton.cdiv(count, ROWS), seeds](
            *tensors, y, count, *strides, A=outputs, H=width, ROWS=ROWS, num_warps=8 if width >= 512 else 4
        )
    return y


def backward(dy: Tensor, p: Tensor, bias: Tensor, weight: Tensor, wants_sums: bool) -> tuple[Tensor, Tensor]:
    """∂p (S, B, H), and each program's sums: ∂W and behind it ∂b (A + 1, S, programs, H); none unless wanted."""
    if p.dim() == 2:
        dp, sums = backward(*(each.unsqueeze(0) for each in (dy, p, bias, weight)), wants_sums)
        return dp.squeeze(0), sums.squeeze(1)
    seeds, count, width = p.shape
    outputs, blocks, columns = weight.shape[1], count_blocks(count), min(COLUMNS, width)
    dp = torch.empty(p.shape, dtype=p.dtype, device=p.device)
    sums = bias.new_empty(outputs + 1, seeds, blocks if wants_sums else 0, width)
    if dp.numel():
        tensors = [contiguous_per_seed(each) for each in (p, bias, weight)]
        strides = [each.stride(0) for each in tensors]
        _backward[blocks, width // columns, seeds](
            dy.contiguous(), *tensors, dp, sums, count, *strides,
            A=outputs, H=width, TALL=TALL, COLUMNS=columns, LINES=LINES, SUMS=wants_sums,
            num_warps=8 if columns == COLUMNS else 4,
        )  # fmt: skip
    return dp, sums
