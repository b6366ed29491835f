"""Wide linear layers: their products in what was chosen for them (`precision`).

    y = x Wᵀ + b         x (B, K), W (H, K); factors and the product in bfloat16, the bias added in float32

K is filled up with zeros to a multiple of EIGHT: a GPU's fast kernels take rows of 16 bytes at a time, others took
three times as long for K = 1030.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from intrigue.precision import takes_bfloat16
from intrigue.products import define_product

EIGHT = 8  # numbers of bfloat16 in 16 bytes


def wide_linear(layer: nn.Module, rows: Tensor) -> Tensor:
    """What the layer, which must have a bias, gives for rows (..., K), in their type."""
    assert isinstance(layer, nn.Linear)
    if rows.dim() < 2 or not takes_bfloat16(rows.device):
        plain: Tensor = layer(rows)
        return plain
    spare = -layer.in_features % EIGHT
    factors = (functional.pad(each, (0, spare)).bfloat16() for each in (rows.flatten(0, -2), layer.weight))
    product: Tensor = PRODUCT(*factors).to(rows.dtype).unflatten(0, rows.shape[:-1])
    return product + layer.bias


def _of_rows(dy: Tensor, weight: Tensor) -> Tensor:
    return dy @ weight


PRODUCT = define_product("wide_product", _of_rows)
