"""Triton kernels: a bias, ReLU and a layer of few outputs in one launch, and their gradient in another.

    z = p + b,   h = max(z, 0)                a row of H numbers
    y = W h + c                               A of them, W (A, H)

Given ∂y, summed over the rows of a program each:

    ∂p = Wᵀ ∂y where z > 0, else 0,   ∂b = Σ ∂p,   ∂W = Σ ∂y hᵀ

All of it in float32, or in three parts of TensorFloat-32 that are as good; p is read, and ∂p written, in the type that
p has, float32 or bfloat16. Nothing is added across programs: what they sum up is written side by side, so that two runs
agree to the bit. What is not a number stays so.

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

# Rows of a program that sums over all of a row: 1024 rows are work for 128 of a GPU's multiprocessors.
ROWS = 8
# Of one that sums over rows: a block of so many rows and columns. Of 64 rows, over 200 bytes a lane spill, of 32 none
# (ptxas, sm_90).
TALL, COLUMNS = 32, 128
LINES = 16  # of a product, the fewest that Triton multiplies: one for each output, and one for the bias


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
    h = tl.where(z <= 0.0, 0.0, z)  # not a maximum, which would make 0 of what is not a number
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
        # Of rows that do not exist it is 0, and so is all that follows from them.
        d = tl.load(dy + (seed * count + row) * A + out, mask=inside, other=0.0)
        dh += d[:, None] * tl.load(weight + seed * stride_w + out * H + unit)[None, :]
    moved = tl.where(z <= 0.0, 0.0, dh)
    if SUMS:
        # Sums over rows as products: of ∂yᵀ with h, and of a row of ones, at A, with ∂p.
        line = tl.arange(0, LINES)
        there = (line < A)[:, None] & inside[None, :]
        dy_across = tl.load(dy + (seed * count + row)[None, :] * A + line[:, None], mask=there, other=0.0)
        ones = tl.where((line == A)[:, None] & inside[None, :], 1.0, 0.0)
        part = tl.dot(dy_across, h, input_precision="tf32x3")
        part = tl.dot(ones, moved, part, input_precision="tf32x3")
        # (A + 1, seeds, programs of a seed, H): of one seed, or of one output, what is summed up lies as weights do.
        lines = line.to(tl.int64) * tl.num_programs(2) * tl.num_programs(0)
        mine = sums + (lines + seed * tl.num_programs(0) + block)[:, None] * H + unit[None, :]
        tl.store(mine, part, mask=(line <= A)[:, None])
    if dp.dtype.element_ty == tl.bfloat16:
        moved = rounded(moved)
    tl.store(dp + seed * count * H + place, moved, mask=inside[:, None])


def blocks_of(count: int) -> int:
    """Into how many parts the gradients of `count` rows are summed up."""
    return triton.cdiv(count, TALL)


def forward(p: Tensor, bias: Tensor, weight: Tensor, last: Tensor) -> Tensor:
    """y (S, B, A) of p (S, B, H), bias (S, H), weight (S, A, H) and last (S, A); or all without S."""
    if p.dim() == 2:
        return forward(*(each.unsqueeze(0) for each in (p, bias, weight, last))).squeeze(0)
    seeds, count, width = p.shape
    outputs = weight.shape[1]
    y = bias.new_empty(seeds, count, outputs)
    if y.numel():
        given = [in_order(each) for each in (p, bias, weight, last)]
        strides = [each.stride(0) for each in given]
        _forward[triton.cdiv(count, ROWS), seeds](
            *given, y, count, *strides, A=outputs, H=width, ROWS=ROWS, num_warps=8 if width >= 512 else 4
        )
    return y


def backward(dy: Tensor, p: Tensor, bias: Tensor, weight: Tensor, wants_sums: bool) -> tuple[Tensor, Tensor]:
    """∂p (S, B, H), and each program's sums: ∂W and behind it ∂b (A + 1, S, programs, H); none if nobody wants them."""
    if p.dim() == 2:
        dp, sums = backward(*(each.unsqueeze(0) for each in (dy, p, bias, weight)), wants_sums)
        return dp.squeeze(0), sums.squeeze(1)
    seeds, count, width = p.shape
    outputs, blocks, columns = weight.shape[1], blocks_of(count), min(COLUMNS, width)
    dp = torch.empty(p.shape, dtype=p.dtype, device=p.device)
    sums = bias.new_empty(outputs + 1, seeds, blocks if wants_sums else 0, width)
    if dp.numel():
        given = [in_order(each) for each in (p, bias, weight)]
        strides = [each.stride(0) for each in given]
        _backward[blocks, width // columns, seeds](
            dy.contiguous(), *given, dp, sums, count, *strides,
            A=outputs, H=width, TALL=TALL, COLUMNS=columns, LINES=LINES, SUMS=wants_sums,
            num_warps=8 if columns == COLUMNS else 4,
        )  # fmt: skip
    return dp, sums
