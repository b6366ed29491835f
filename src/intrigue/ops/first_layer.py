"""The first layer of URLB's networks: few inputs, many outputs, LayerNorm and tanh, in one kernel on a GPU.

    trunk = Trunk(K, H)
    trunk(x)    y = tanh(LayerNorm(x Wᵀ + b) · gain + shift)    (..., K) -> (..., H)
    trunk(x, low=True)      y rounded to bfloat16, and its gradient taken so: what wide layers multiply (`wide`)

A product of so few inputs leaves cuBLAS little to do between reading and writing; LayerNorm and tanh read and write as
much again. The kernels (`first_layer_kernels`) keep a row in registers from its inputs to its outputs, and back.

The custom operators are opaque to torch.compile and graph capture:

    trunk(x, weight, bias, gain, shift, eps, exact, low) -> y
    trunk_backward(dy, x, weight, bias, gain, shift, eps, exact, sums) -> ∂(x Wᵀ + b), parts of ∂gain, ∂shift and ∂bias

of x (B, K), weight (H, K) and the others (H,), or all of them with an axis S of seeds in front, which is where torch's
vmap puts the mapped axis. `exact`: products in float32, else in TensorFloat-32. Two runs agree to the bit. Gradients
are torch.autograd's, also of what was mapped; torch.func.grad has none, and there is no second derivative.

Elsewhere than on CUDA, of other types and of other sizes, `Trunk` is the three layers that it is made of, to the bit.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
from torch import Tensor, library, nn

from intrigue.ops.precision import tf32_allowed
from intrigue.ops.triton_support import kernels_run_on, seeds_first

MOST_INPUTS = 128  # more are cuBLAS's: all weights go through every program
OUTPUTS = (32, 64, 128, 256, 512, 1024)  # powers of two, as Triton's blocks are; a row of more does not fit registers

_LIBRARY = library.Library("intrigue", "FRAGMENT")
_LIBRARY.define(
    "trunk(Tensor x, Tensor weight, Tensor bias, Tensor gain, Tensor shift, float eps, bool exact, bool low) -> Tensor"
)
_LIBRARY.define(
    "trunk_backward(Tensor dy, Tensor x, Tensor weight, Tensor bias, Tensor gain, Tensor shift, float eps, bool exact, "
    "bool sums) -> (Tensor, Tensor)"
)


class Trunk(nn.Sequential):
    """Linear, LayerNorm and tanh, under the names that a sequence of them has."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__(nn.Linear(width_in, width_out), nn.LayerNorm(width_out), nn.Tanh())

    def forward(self, x: Tensor, *, low: bool = False) -> Tensor:
        """(..., K) -> (..., H)."""
        dense, norm = cast(nn.Linear, self[0]), cast(nn.LayerNorm, self[1])
        if x.dim() < 2 or not suits(x.device, x.dtype, dense.in_features, dense.out_features):
            plain: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return plain.bfloat16() if low else plain
        weights = (dense.weight, dense.bias, norm.weight, norm.bias)
        y: Tensor = TRUNK(x.flatten(0, -2), *weights, norm.eps, not tf32_allowed(), low)
        return y if x.dim() == 2 else y.unflatten(0, x.shape[:-1])


def suits(device: torch.device, dtype: torch.dtype, width_in: int, width_out: int) -> bool:
    """Whether a trunk of these widths is the operator's. Nothing in it that torch.compile could not look into."""
    fits = 1 <= width_in <= MOST_INPUTS and width_out in OUTPUTS
    return fits and dtype == torch.float32 and kernels_run_on(device)


def takes_kernel(device: torch.device, dtype: torch.dtype, width_in: int, width_out: int) -> bool:
    """Whether it is computed by the Triton kernels: the operator's own choice, by what the device has."""
    if not suits(device, dtype, width_in, width_out):
        return False
    if device.type != "cuda":  # interpreted
        return True
    from intrigue.ops import first_layer_kernels  # Triton is optional, and slow to import.

    needed: int = first_layer_kernels.shared_bytes(width_out)
    return _shared_memory(device) >= needed


@functools.cache
def _shared_memory(device: torch.device) -> int:
    """Bytes that one program may have."""
    # What every device has, where torch does not say.
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 48 * 1024))


def _taken(x: Tensor, weight: Tensor) -> bool:
    return takes_kernel(x.device, x.dtype, weight.shape[-1], weight.shape[-2])


def _trunk(
    x: Tensor, weight: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, eps: float, exact: bool, low: bool
) -> Tensor:
    if not _taken(x, weight):
        return _squashed(_normalised(x, weight, bias, eps)[0], gain, shift).to(_type(x, low))
    from intrigue.ops import first_layer_kernels

    with torch.cuda.device_of(x):  # Triton launches where torch is at the moment.
        return first_layer_kernels.forward(x, weight, bias, gain, shift, eps, exact, _type(x, low))


def _trunk_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    gain: Tensor,
    shift: Tensor,
    eps: float,
    exact: bool,
    sums: bool,
) -> tuple[Tensor, Tensor]:
    if not _taken(x, weight):
        return _plain_backward(dy.to(x.dtype), x, weight, bias, gain, shift, eps, sums)
    from intrigue.ops import first_layer_kernels

    with torch.cuda.device_of(x):
        return first_layer_kernels.backward(dy, x, weight, bias, gain, shift, eps, exact, sums)


def _plain_backward(
    dy: Tensor, x: Tensor, weight: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, eps: float, sums: bool
) -> tuple[Tensor, Tensor]:
    """The equations of `first_layer_kernels`, all rows at once."""
    n, scale = _normalised(x, weight, bias, eps)
    dz = dy * (1 - _squashed(n, gain, shift).square())
    dn = dz * _row(gain)
    dp = (dn - dn.mean(-1, keepdim=True) - n * (dn * n).mean(-1, keepdim=True)) * scale
    parts = torch.stack([(dz * n).sum(-2), dz.sum(-2), dp.sum(-2)], -2).unsqueeze(-3)
    return dp, parts if sums else parts[..., :0, :, :].contiguous()


def _squashed(n: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return (n * _row(gain) + _row(shift)).tanh()


def _type(x: Tensor, low: bool) -> torch.dtype:
    return torch.bfloat16 if low else x.dtype


def _normalised(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    p = x @ weight.mT + _row(bias)
    p = p - p.mean(-1, keepdim=True)
    scale = (p.square().mean(-1, keepdim=True) + eps).rsqrt()
    return p * scale, scale


def _row(each: Tensor) -> Tensor:
    """(..., H) beside rows (..., B, H)."""
    return each.unsqueeze(-2)


def _fake_trunk(
    x: Tensor, weight: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, eps: float, exact: bool, low: bool
) -> Tensor:
    del bias, gain, shift, eps, exact
    return x.new_empty((*x.shape[:-1], weight.shape[-2]), dtype=_type(x, low))


def _fake_trunk_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    gain: Tensor,
    shift: Tensor,
    eps: float,
    exact: bool,
    sums: bool,
) -> tuple[Tensor, Tensor]:
    del bias, gain, shift, eps
    blocks = 1 if sums else 0
    if sums and _taken(x, weight):
        from intrigue.ops import first_layer_kernels

        blocks = -(-x.shape[-2] // first_layer_kernels.rows_of(exact))
    return x.new_empty(dy.shape), x.new_empty((*x.shape[:-2], blocks, 3, weight.shape[-2]))


# One function for every device: `x` says which.
_LIBRARY.impl("trunk", _trunk, "CompositeExplicitAutograd")
_LIBRARY.impl("trunk_backward", _trunk_backward, "CompositeExplicitAutograd")
library.register_fake("intrigue::trunk", _fake_trunk, lib=_LIBRARY)
library.register_fake("intrigue::trunk_backward", _fake_trunk_backward, lib=_LIBRARY)

TRUNK = torch.ops.intrigue.trunk.default
TRUNK_BACKWARD = torch.ops.intrigue.trunk_backward.default


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    *tensors, ctx.eps, ctx.exact, _ = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias, gain, shift = ctx.saved_tensors
    of_x, of_weight, *of_rest = ctx.needs_input_grad[:5]
    dp, parts = TRUNK_BACKWARD(dy, x, weight, bias, gain, shift, ctx.eps, ctx.exact, any(of_rest))
    dx = dp @ weight if of_x else None
    dweight = dp.mT @ x if of_weight else None
    dgain, dshift, dbias = parts.sum(-3).unbind(-2)
    rest = (each if wanted else None for each, wanted in zip((dbias, dgain, dshift), of_rest, strict=True))
    return dx, dweight, *rest, None, None, None


def _refuse(ctx: Any, *gradients: Tensor | None) -> None:
    del ctx, gradients
    raise RuntimeError("a trunk has no second derivative. Compute it on a CPU, where a trunk is three plain layers.")


library.register_autograd("intrigue::trunk", _gradients, setup_context=_keep, lib=_LIBRARY)
library.register_autograd("intrigue::trunk_backward", _refuse, lib=_LIBRARY)


def _vmap_trunk(
    info: Any,
    in_dims: tuple[int | None, ...],
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    gain: Tensor,
    shift: Tensor,
    eps: float,
    exact: bool,
    low: bool,
) -> tuple[Tensor, int]:
    """The mapped axis is that of the seeds; where all have the same weights, more rows."""
    size: int = info.batch_size
    if x.dim() == 3 and in_dims[0] is not None and weight.dim() == 2 and set(in_dims[1:5]) == {None}:
        y: Tensor = TRUNK(x.movedim(in_dims[0], 0).flatten(0, 1), weight, bias, gain, shift, eps, exact, low)
        return y.unflatten(0, (size, -1)), 0
    given, several = seeds_first((x, weight, bias, gain, shift), in_dims, size)
    y = TRUNK(*given, eps, exact, low)
    return y.unflatten(0, (size, -1)) if several else y, 0


def _vmap_trunk_backward(
    info: Any,
    in_dims: tuple[int | None, ...],
    dy: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    gain: Tensor,
    shift: Tensor,
    eps: float,
    exact: bool,
    sums: bool,
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    given, several = seeds_first((dy, x, weight, bias, gain, shift), in_dims, info.batch_size)
    found: tuple[Tensor, Tensor] = TRUNK_BACKWARD(*given, eps, exact, sums)
    if several:
        found = found[0].unflatten(0, (info.batch_size, -1)), found[1].unflatten(0, (info.batch_size, -1))
    return found, (0, 0)


library.register_vmap("intrigue::trunk", _vmap_trunk, lib=_LIBRARY)
library.register_vmap("intrigue::trunk_backward", _vmap_trunk_backward, lib=_LIBRARY)
