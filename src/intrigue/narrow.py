"""Linear layers of few outputs, compiled: their gradient of the rows is summed where it is needed.

    ∂x = Σⱼ ∂yⱼ Wⱼ       over the outputs j

As a product of 1024 rows of 6 with 1024 that takes a GPU's library 15 µs, of which writing takes 1 (H200); a compiler
sums it on the way into what comes next. The other two products stay the library's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from intrigue.products import define_product

MOST = 16  # outputs; so many numbers are read for every one that is summed. URLB's actions have 6, 9 and 12


def narrow_linear(layer: nn.Module, rows: Tensor) -> Tensor:
    """What the layer, which must have a bias, gives for rows (..., K)."""
    assert isinstance(layer, nn.Linear)
    if rows.dim() != 2 or layer.out_features > MOST or not torch.compiler.is_compiling():
        plain: Tensor = layer(rows)
        return plain
    return PRODUCT(rows, layer.weight) + layer.bias


def _of_rows(dy: Tensor, weight: Tensor) -> Tensor:
    # One by one: of more than a few a compiler would make a reduction with a kernel to itself.
    total = dy[..., :1] * weight[..., :1, :]
    for place in range(1, weight.shape[-2]):
        total = total + dy[..., place : place + 1] * weight[..., place : place + 1, :]
    return total


PRODUCT = define_product("narrow_product", _of_rows)
