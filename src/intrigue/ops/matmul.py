"""Wide linear layers: their products in what was chosen for them (`precision`), and gradients where they belong.

    y = x Wᵀ + b         x (B, K), W (H, K); factors and the product in bfloat16, the bias added in float32
    ∂x = ∂y W            ∂W = ∂yᵀ x

`wide_members` is the same of some layers over rows that all of them share; there torch's own product is taken.

The product is an operator of its own for the sake of its gradient. Of several seeds together torch computes ∂W as the
transpose of xᵀ ∂y, and then copies all of it into the layout of W: 70 µs for eight seeds of 1024 × 1024 (H200).
K is filled up with zeros to a multiple of EIGHT: a GPU's fast kernels take rows of 16 bytes at a time, others took
three times as long for K = 1030.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, library, nn
from torch.nn import functional

from intrigue.nn.networks import EnsembleLinear
from intrigue.ops.mapped import axis_first
from intrigue.ops.precision import takes_bfloat16

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
