"""Linear layers of K members at once, in the way that suits where and for what they are computed.

    y_k = x_k W_k + b_k       rows (K, B, in), or (B, in) that all members share; W (K, in, out); b (K, 1, out)

Plain, it is one product with the bias in it. Compiled, the bias is added apart: within a product it is first copied to
every row of the result, where a compiler adds it on the way out. Then it is the first of these that fits, or else one
product:

    up to FEW outputs                  sums, fused with what comes before
    learning, on a GPU                 `in` filled up with zeros to a multiple of FOUR: the fast kernels for
                                       TensorFloat-32 take rows of 16 bytes at a time
    on a GPU, nobody asks for          float32 in three parts by matrix units (`expansion`), where that pays: scores
    gradients

Of five members, 1024 rows and 518 inputs, a product or one of its gradients took 78 to 90 µs, and 29 to 44 filled up
(H200). An update in which such an ensemble is scored and learns took 1.05 ms, and 0.95 when scored in parts.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from intrigue.ops.precision import tf32_allowed
from intrigue.ops.tf32x3 import expanded, worth_splitting

# Outputs of a layer that a compiler had better sum by itself, together with what comes before: a product of 1024 rows
# of 1024 with 1 takes a GPU's library 18 µs, of which reading takes 1 (H200). With 6 the sum takes 12, but its gradient
# of the weights 26, where the library's takes 6.
FEW = 2
FOUR = 4  # numbers of float32 in 16 bytes


def member_products(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Every member's output for its rows."""
    if not torch.compiler.is_compiling():
        return torch.baddbmm(bias, _shared(rows, weight), weight)
    if weight.shape[-1] <= FEW:
        return (_shared(rows, weight).unsqueeze(-1) * weight.unsqueeze(1)).sum(-2) + bias
    if rows.is_cuda and tf32_allowed():
        rows, weight = filled_up(rows, weight)
    elif rows.is_cuda and not torch.is_grad_enabled() and worth_splitting(rows, _asked(rows, weight)):
        return by_parts(rows, weight, bias)
    return torch.bmm(_shared(rows, weight), weight) + bias


def filled_up(rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """The same product of factors whose rows are a multiple of FOUR."""
    spare = -weight.shape[-2] % FOUR
    return functional.pad(rows, (0, spare)), functional.pad(weight, (0, 0, 0, spare))


def by_parts(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The products of float32 factors that are split: `expanded` is b − 2 x·w, here of −x/2. It has no gradients."""
    assert not (torch.is_grad_enabled() and any(each.requires_grad for each in (rows, weight, bias)))
    asked, offset = _asked(rows, weight), bias.squeeze(-2)  # (K, out)
    if rows.dim() == 3:
        return expanded(-rows / 2, asked, offset)
    found: Tensor = expanded(-rows / 2, asked, offset.flatten()).unflatten(-1, offset.shape)  # (B, K, out)
    return found.movedim(-2, 0)


def _asked(rows: Tensor, weight: Tensor) -> Tensor:
    """The weights (K, out, in); those of all members one below the other, where they share rows to be split once."""
    return weight.mT if rows.dim() == 3 else weight.mT.flatten(0, 1)


def _shared(rows: Tensor, weight: Tensor) -> Tensor:
    return rows.expand(len(weight), *rows.shape) if rows.dim() == 2 else rows
