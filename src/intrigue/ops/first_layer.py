"""The first layer of URLB's networks, few inputs and many outputs: linear, LayerNorm and tanh in one kernel on a GPU.

    layer = FirstLayer(K, H)
    layer(x)    y = tanh(LayerNorm(x Wᵀ + b) · gain + shift)    (..., K) -> (..., H)
    layer(x, bfloat16=True)      y rounded to bfloat16, and its gradient read in it: what hidden layers multiply

With so few inputs cuBLAS spends its time reading and writing, and LayerNorm and tanh read and write as much again. The
kernels (`first_layer_kernels`) keep a row in registers from its inputs to its outputs, and back.

The custom operators:

    first_layer(x, weight, bias, gain, shift, eps, exact, low) -> y
    first_layer_backward(dy, x, weight, bias, gain, shift, eps, exact, sums)
                                                  -> ∂(x Wᵀ + b), partial sums of ∂gain, ∂shift and ∂bias

of x (B, K), weight (H, K) and the others (H,), or all of them with a leading axis S of seeds, where vmap puts its batch
axis. `exact`: products in float32, else in TF32; `low`: y in bfloat16. Results are deterministic. Gradients work under
vmap; there are no torch.func.grad and no second derivative.

On other devices, and for other dtypes and sizes, `FirstLayer` computes its three layers, with the same bits.
"""

from __future__ import annotations

import functools
from typing import Any, cast

import torch
from torch import Tensor, nn

from intrigue.ops.custom_op import merge_seed_axes, refuse_second_derivative, register_operator
from intrigue.ops.precision import tf32_allowed
from intrigue.ops.triton_support import can_run_kernels

MAX_INPUTS = 128  # above, cuBLAS is better: every program reads all weights
OUTPUTS = (32, 64, 128, 256, 512, 1024)  # powers of two, as Triton's blocks; wider rows do not fit registers


class FirstLayer(nn.Sequential):
    """Linear, LayerNorm and tanh, with the parameter names of a sequence of them."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__(nn.Linear(width_in, width_out), nn.LayerNorm(width_out), nn.Tanh())

    def forward(self, x: Tensor, *, bfloat16: bool = False) -> Tensor:
        """(..., K) -> (..., H)."""
        dense, norm = cast(nn.Linear, self[0]), cast(nn.LayerNorm, self[1])
        if x.dim() < 2 or not is_supported(x.device, x.dtype, dense.in_features, dense.out_features):
            plain: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
            return plain.bfloat16() if bfloat16 else plain
        weights = (dense.weight, dense.bias, norm.weight, norm.bias)
        y: Tensor = FIRST_LAYER(x.flatten(0, -2), *weights, norm.eps, not tf32_allowed(), bfloat16)
        return y if x.dim() == 2 else y.unflatten(0, x.shape[:-1])


def is_supported(device: torch.device, dtype: torch.dtype, width_in: int, width_out: int) -> bool:
    """Whether the operator takes a layer of these widths. Contains nothing that breaks a torch.compile graph."""
    fits = 1 <= width_in <= MAX_INPUTS and width_out in OUTPUTS
    return fits and dtype == torch.float32 and can_run_kernels(device)


def uses_kernel(device: torch.device, dtype: torch.dtype, width_in: int, width_out: int) -> bool:
    """Whether the operator launches the Triton kernels: also a question of the device's shared memory."""
    if not is_supported(device, dtype, width_in, width_out):
        return False
    if device.type != "cuda":  # interpreted
        return True
    from intrigue.ops import first_layer_kernels  # Triton is optional, and slow to import.

    needed: int = first_layer_kernels.shared_bytes(width_out)
    return _shared_memory(device) >= needed


@functools.cache
def _shared_memory(device: torch.device) -> int:
    """Bytes available to one program; what every device has, where torch does not say."""
    return int(getattr(torch.cuda.get_device_properties(device), "shared_memory_per_block_optin", 48 * 1024))


def _uses_kernel(x: Tensor, weight: Tensor) -> bool:
    return uses_kernel(x.device, x.dtype, weight.shape[-1], weight.shape[-2])


def _out_dtype(x: Tensor, low: bool) -> torch.dtype:
    return torch.bfloat16 if low else x.dtype


def _forward(
    x: Tensor, weight: Tensor, bias: Tensor, gain: Tensor, shift: Tensor, eps: float, exact: bool, low: bool
) -> Tensor:
    dtype = _out_dtype(x, low)
    if not _uses_kernel(x, weight):
        return _scale_and_squash(_normalise(x, weight, bias, eps)[0], gain, shift).to(dtype)
    from intrigue.ops import first_layer_kernels

    with torch.cuda.device_of(x):  # Triton launches on torch's current device.
        return first_layer_kernels.forward(x, weight, bias, gain, shift, eps, exact, dtype)


def _fake_forward(x: Tensor, weight: Tensor, *others: Any) -> Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[-2]), dtype=_out_dtype(x, others[-1]))


def _backward(dy: Tensor, x: Tensor, weight: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    if _uses_kernel(x, weight):
        from intrigue.ops import first_layer_kernels

        with torch.cuda.device_of(x):
            return first_layer_kernels.backward(dy, x, weight, *others)
    # The equations of `first_layer_kernels`, all rows at once.
    bias, gain, shift, eps, _, sums = others
    n, scale = _normalise(x, weight, bias, eps)
    dz = dy.to(x.dtype) * (1 - _scale_and_squash(n, gain, shift).square())
    dn = dz * gain.unsqueeze(-2)
    dp = (dn - dn.mean(-1, keepdim=True) - n * (dn * n).mean(-1, keepdim=True)) * scale
    parts = torch.stack([(dz * n).sum(-2), dz.sum(-2), dp.sum(-2)], -2).unsqueeze(-3)
    return dp, parts if sums else parts[..., :0, :, :].contiguous()


def _fake_backward(dy: Tensor, x: Tensor, weight: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    exact, sums = others[-2:]
    blocks = 1 if sums else 0
    if sums and _uses_kernel(x, weight):
        from intrigue.ops import first_layer_kernels

        blocks = -(-x.shape[-2] // first_layer_kernels.rows_per_program(exact))
    return x.new_empty(dy.shape), x.new_empty((*x.shape[:-2], blocks, 3, weight.shape[-2]))


def _normalise(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    p = x @ weight.mT + bias.unsqueeze(-2)
    p = p - p.mean(-1, keepdim=True)
    scale = (p.square().mean(-1, keepdim=True) + eps).rsqrt()
    return p * scale, scale


def _scale_and_squash(n: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return (n * gain.unsqueeze(-2) + shift.unsqueeze(-2)).tanh()


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    *tensors, ctx.eps, ctx.exact, _ = inputs
    ctx.save_for_backward(*tensors)


def _gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, weight, bias, gain, shift = ctx.saved_tensors
    needs_x, needs_weight, *needs_rest = ctx.needs_input_grad[:5]
    dp, parts = FIRST_LAYER_BACKWARD(dy, x, weight, bias, gain, shift, ctx.eps, ctx.exact, any(needs_rest))
    dx = dp @ weight if needs_x else None
    dweight = dp.mT @ x if needs_weight else None
    dgain, dshift, dbias = parts.sum(-3).unbind(-2)
    rest = (each if needed else None for each, needed in zip((dbias, dgain, dshift), needs_rest, strict=True))
    return dx, dweight, *rest, None, None, None


def _vmap_forward(operator: Any, size: int, axes: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
    """The batch axis is that of seeds; where all share their weights, it is more rows."""
    x, weight, *rest = arguments
    if x.dim() == 3 and axes[0] is not None and weight.dim() == 2 and set(axes[1:5]) == {None}:
        y: Tensor = operator(x.movedim(axes[0], 0).flatten(0, 1), weight, *rest)
        return y.unflatten(0, (size, -1)), 0
    stacked: tuple[Tensor, int] = merge_seed_axes(0)(operator, size, axes, *arguments)
    return stacked


FIRST_LAYER = register_operator(
    "first_layer(Tensor x, Tensor weight, Tensor bias, Tensor gain, Tensor shift, float eps, bool exact, bool low) "
    "-> Tensor",
    _forward, _fake_forward, vmap=_vmap_forward, save=_save, backward=_gradients,
)  # fmt: skip
FIRST_LAYER_BACKWARD = register_operator(
    "first_layer_backward(Tensor dy, Tensor x, Tensor weight, Tensor bias, Tensor gain, Tensor shift, float eps, "
    "bool exact, bool sums) -> (Tensor, Tensor)",
    _backward, _fake_backward, vmap=merge_seed_axes((0, 0)),
    backward=refuse_second_derivative(
        "a first layer has no second derivative. Compute it on a CPU, where it is three plain layers."
    ),
)  # fmt: skip
