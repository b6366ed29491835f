"""Wide linear layers: their products in what was chosen for them (`precision`), and gradients where they belong.

    y = x Wᵀ + b         x (B, K), W (H, K); factors and the product in bfloat16, the bias added in float32
    ∂x = ∂y W            ∂W = ∂yᵀ x

`wide_members` is the same of some layers over rows that all of them share; there torch's own product is taken.

The product is an operator of its own for the sake of its gradient. Of several seeds together torch computes ∂W as the
transpose of xᵀ ∂y, and then copies all of it into the layout of W: 70 µs for eight seeds of 1024 × 1024 (H200).
K is filled up with zeros to a multiple of EIGHT: a GPU's fast kernels take rows of 16 bytes at a time, others took
three times as long for K = 1030.

Linear layers of K members at once, in the way that suits where and for what they are computed.

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

import math
from typing import Any

import torch
from torch import Tensor, library, nn
from torch.nn import functional

from intrigue.ops.precision import takes_bfloat16, tf32_allowed
from intrigue.ops.tf32x3 import expanded, worth_splitting
from intrigue.ops.triton_support import axis_first

EIGHT = 8  # numbers of bfloat16 in 16 bytes

_LIBRARY = library.Library("intrigue", "FRAGMENT")
_LIBRARY.define("wide_product(Tensor x, Tensor weight) -> Tensor")


def wide_linear(layer: nn.Module, rows: Tensor) -> Tensor:
    """What the layer, which must have a bias, gives for rows (..., K) of its type or already rounded; in its type."""
    assert isinstance(layer, nn.Linear)
    if rows.dim() < 2 or not takes_bfloat16():
        plain: Tensor = layer(_as_they_were(rows, layer))
        return plain
    return product_alone(layer, rows).to(layer.bias.dtype) + layer.bias


def product_alone(layer: nn.Linear, rows: Tensor) -> Tensor:
    """The same before the bias is added, in the type it was multiplied in; of two axes at least."""
    if not takes_bfloat16():
        plain: Tensor = functional.linear(_as_they_were(rows, layer), layer.weight)
        return plain
    spare = -layer.in_features % EIGHT
    factors = (functional.pad(each, (0, spare)).bfloat16() for each in (rows.flatten(0, -2), layer.weight))
    product: Tensor = PRODUCT(*factors).unflatten(0, rows.shape[:-1])
    return product


class EnsembleLinear(nn.Module):
    """K linear layers as one batched product: (K, B, in) or (B, in) -> (K, B, out). Glorot weights per member."""

    def __init__(self, members: int, width_in: int, width_out: int) -> None:
        super().__init__()
        bound = math.sqrt(6 / (width_in + width_out))
        self.weight = nn.Parameter(torch.empty(members, width_in, width_out).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(members, 1, width_out))

    def forward(self, rows: Tensor) -> Tensor:
        """Every member's output for its rows."""
        return member_products(rows, self.weight, self.bias)


def wide_members(layer: EnsembleLinear, rows: Tensor) -> Tensor:
    """(B, in), shared by M members, -> (M, B, out) in the layer's type."""
    if not takes_bfloat16():
        plain: Tensor = layer(_as_they_were(rows, layer))
        return plain
    return member_product(layer, rows).to(layer.bias.dtype) + layer.bias


def member_product(layer: EnsembleLinear, rows: Tensor) -> Tensor:
    """The same before the bias is added, in the type it was multiplied in."""
    low = takes_bfloat16()
    # Rounded before they are shared: one copy for all.
    shared = rows.bfloat16() if low else _as_they_were(rows, layer)
    return torch.bmm(shared.expand(len(layer.weight), -1, -1), layer.weight.bfloat16() if low else layer.weight)


def _as_they_were(rows: Tensor, layer: nn.Linear | EnsembleLinear) -> Tensor:
    """Rounded rows in the layer's type. Of any other type they are left alone, and a wrong one is refused."""
    return rows.to(layer.weight.dtype) if rows.dtype == torch.bfloat16 else rows


def _product(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.mT


def _fake_product(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[-2]))


_LIBRARY.impl("wide_product", _product, "CompositeExplicitAutograd")
library.register_fake("intrigue::wide_product", _fake_product, lib=_LIBRARY)

PRODUCT = torch.ops.intrigue.wide_product.default


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, weight = ctx.saved_tensors
    of_x, of_weight = ctx.needs_input_grad
    return dy @ weight if of_x else None, dy.mT @ x if of_weight else None


library.register_autograd("intrigue::wide_product", _gradients, setup_context=_keep, lib=_LIBRARY)


def _vmap_product(info: Any, in_dims: tuple[int | None, int | None], x: Tensor, weight: Tensor) -> tuple[Tensor, int]:
    return PRODUCT(*axis_first((x, weight), in_dims, info.batch_size)), 0


library.register_vmap("intrigue::wide_product", _vmap_product, lib=_LIBRARY)


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
