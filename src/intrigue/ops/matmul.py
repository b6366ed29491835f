"""Linear layers of agents and ensembles, with their products in the dtype and by the method that is fastest.

Hidden layers (`hidden_linear`, `ensemble_hidden_linear`) multiply in the dtype set for learning (`precision`):

    y = x Wᵀ + b         x (B, K), W (H, K); factors and product in bfloat16, bias added in float32
    ∂x = ∂y W            ∂W = ∂yᵀ x

The product is a custom operator, `intrigue::hidden_matmul`, for the sake of its gradient: under vmap over seeds torch
computes ∂W as the transpose of xᵀ ∂y and then copies it into the layout of W: 70 µs for eight seeds of 1024 × 1024
(H200). K is padded with zeros to a multiple of BF16_ALIGNMENT: fast GPU kernels need rows of whole 16 bytes, others
took three times as long for K = 1030. Ensembles that share their rows use torch's own product.

Layers of an ensemble of M members (`ensemble_linear`):

    y_k = x_k W_k + b_k       rows (M, B, in), or (B, in) shared by all members; W (M, in, out); b (M, 1, out)

In eager mode that is one product that includes the bias. Compiled, the bias is added separately (a product would copy
it to every row first, a compiler fuses the addition), and the product is the first that applies:

    out ≤ FEW_OUTPUTS                      sums, fused with what comes before
    learning, on a GPU                     `in` padded with zeros to a multiple of TF32_ALIGNMENT, for the fast TF32
                                           kernels
    no gradients, on a GPU                 3xTF32 (`tf32x3`) for sizes where it saves time: scores
    otherwise                              one batched product

For five members, 1024 rows and 518 inputs, a product or one of its gradients took 78 to 90 µs, padded 29 to 44 (H200).
An update that scores and trains such an ensemble took 1.05 ms, and 0.95 with scores by 3xTF32.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from intrigue.ops.custom_op import batch_leading, register_operator
from intrigue.ops.precision import tf32_allowed, uses_bfloat16
from intrigue.ops.tf32x3 import is_worth_splitting, pairwise_scores

BF16_ALIGNMENT = 8  # bfloat16 numbers in 16 bytes
TF32_ALIGNMENT = 4  # float32 numbers in 16 bytes
# Layers of so few outputs a compiler sums better, fused with what comes before: a product of 1024 rows of 1024 with 1
# takes a GPU's library 18 µs, of which reading takes 1 (H200). With 6 outputs the sum takes 12 µs, but its gradient of
# the weights 26, where the library's takes 6.
FEW_OUTPUTS = 2


class EnsembleLinear(nn.Module):
    """K linear layers as one batched product: (K, B, in) or (B, in) -> (K, B, out). Glorot weights per member."""

    def __init__(self, members: int, width_in: int, width_out: int) -> None:
        super().__init__()
        bound = math.sqrt(6 / (width_in + width_out))
        self.weight = nn.Parameter(torch.empty(members, width_in, width_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(members, 1, width_out))

    def forward(self, rows: Tensor) -> Tensor:
        """Every member's output for its rows."""
        return ensemble_linear(rows, self.weight, self.bias)


def hidden_linear(layer: nn.Module, rows: Tensor) -> Tensor:
    """The output of a linear layer with bias for rows (..., K), in the layer's dtype. Rows may be bfloat16 already."""
    assert isinstance(layer, nn.Linear)
    if rows.dim() < 2 or not uses_bfloat16():
        plain: Tensor = layer(_match_dtype(rows, layer))
        return plain
    return hidden_matmul(layer, rows).to(layer.bias.dtype) + layer.bias


def hidden_matmul(layer: nn.Linear, rows: Tensor) -> Tensor:
    """The same without the bias, in the dtype of the product, for rows of at least two axes."""
    if not uses_bfloat16():
        plain: Tensor = functional.linear(_match_dtype(rows, layer), layer.weight)
        return plain
    padding = -layer.in_features % BF16_ALIGNMENT
    factors = (functional.pad(each, (0, padding)).bfloat16() for each in (rows.flatten(0, -2), layer.weight))
    product: Tensor = HIDDEN_MATMUL(*factors).unflatten(0, rows.shape[:-1])
    return product


def ensemble_hidden_linear(layer: EnsembleLinear, rows: Tensor) -> Tensor:
    """(B, in), shared by M members, -> (M, B, out) in the layer's dtype."""
    if not uses_bfloat16():
        plain: Tensor = layer(_match_dtype(rows, layer))
        return plain
    return ensemble_hidden_matmul(layer, rows).to(layer.bias.dtype) + layer.bias


def ensemble_hidden_matmul(layer: EnsembleLinear, rows: Tensor) -> Tensor:
    """The same without the bias, in the dtype of the product."""
    low = uses_bfloat16()
    # Rounded before it is expanded: one copy for all members.
    shared = rows.bfloat16() if low else _match_dtype(rows, layer)
    return torch.bmm(shared.expand(len(layer.weight), -1, -1), layer.weight.bfloat16() if low else layer.weight)


def _match_dtype(rows: Tensor, layer: nn.Linear | EnsembleLinear) -> Tensor:
    """Bfloat16 rows in the layer's dtype. Others stay as they are, so that torch refuses a wrong dtype."""
    return rows.to(layer.weight.dtype) if rows.dtype == torch.bfloat16 else rows


def _matmul(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.mT


def _fake(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[-2]))


def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, weight = ctx.saved_tensors
    needs_x, needs_weight = ctx.needs_input_grad
    return dy @ weight if needs_x else None, dy.mT @ x if needs_weight else None


HIDDEN_MATMUL = register_operator(
    "hidden_matmul(Tensor x, Tensor weight) -> Tensor",
    _matmul,
    _fake,
    vmap=batch_leading,
    save=_save,
    backward=_backward,
)


def ensemble_linear(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Every member's output for its rows, (M, B, out)."""
    if not torch.compiler.is_compiling():
        return torch.baddbmm(bias, _expand_to_members(rows, weight), weight)
    if weight.shape[-1] <= FEW_OUTPUTS:
        return (_expand_to_members(rows, weight).unsqueeze(-1) * weight.unsqueeze(1)).sum(-2) + bias
    if rows.is_cuda and tf32_allowed():
        rows, weight = pad_inputs(rows, weight)
    elif rows.is_cuda and not torch.is_grad_enabled() and is_worth_splitting(rows, _weight_rows(rows, weight)):
        return ensemble_linear_tf32x3(rows, weight, bias)
    return torch.bmm(_expand_to_members(rows, weight), weight) + bias


def pad_inputs(rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of the same product whose inputs are a multiple of TF32_ALIGNMENT."""
    padding = -weight.shape[-2] % TF32_ALIGNMENT
    return functional.pad(rows, (0, padding)), functional.pad(weight, (0, 0, 0, padding))


def ensemble_linear_tf32x3(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same by 3xTF32: `pairwise_scores` is b − 2 x·w, here of −x/2. There are no gradients."""
    assert not (torch.is_grad_enabled() and any(each.requires_grad for each in (rows, weight, bias)))
    weight_rows, offset = _weight_rows(rows, weight), bias.squeeze(-2)  # (M, out)
    if rows.dim() == 3:
        return pairwise_scores(-rows / 2, weight_rows, offset)
    scores: Tensor = pairwise_scores(-rows / 2, weight_rows, offset.flatten()).unflatten(-1, offset.shape)
    return scores.movedim(-2, 0)  # from (B, M, out)


def _weight_rows(rows: Tensor, weight: Tensor) -> Tensor:
    """The weights (M, out, in); as (M · out, in) where members share rows, which are then split once."""
    return weight.mT if rows.dim() == 3 else weight.mT.flatten(0, 1)


def _expand_to_members(rows: Tensor, weight: Tensor) -> Tensor:
    return rows.expand(len(weight), *rows.shape) if rows.dim() == 2 else rows
