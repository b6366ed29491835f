"""A wide layer, ReLU and a layer of few outputs: on a GPU all behind the wide product in one kernel.

    y = max(p + b, 0) Wᵀ + c        p = x Vᵀ, the wide product (`wide`); W (A, H)

As layers of their own they are eight kernels and more: in an update of `nnm-urlb` an actor's last layer alone took 22
to 32 µs, beside other work, and its gradient some 50. The kernels (`output_layer_kernels`) read p once each way. In an
update on another machine they took 7 to 9 and 14 to 20 µs; sums of what their programs leave took some 10 more on a
third (H200s all, `results/urlb-h200.json`).

The custom operators are opaque to torch.compile and graph capture:

    narrow(p, bias, weight, last) -> y
    narrow_backward(dy, p, bias, weight, sums) -> ∂p, parts of ∂weight and, behind it, ∂bias (A + 1, S, parts, H)

of p (B, H) in float32 or bfloat16, bias (H,), weight (A, H) and last (A,) in float32, or all of them with an axis S of
seeds or members in front. Two runs agree to the bit. Gradients are torch.autograd's, also of what was mapped;
torch.func.grad has none, and there is no second derivative.

Elsewhere than on CUDA, of other types and of other sizes, both functions are the layers that they are given.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, library, nn

from intrigue.ops.matmul import EnsembleLinear, member_product, product_alone, wide_linear, wide_members
from intrigue.ops.triton_support import kernels_run_on, seeds_first

MOST_OUTPUTS = 15  # more are the library's: each is a sum over a row, and a line of 16 in the gradient's products
WIDTHS = (32, 64, 128, 256, 512, 1024)  # powers of two, as Triton's blocks are; of more, rows do not fit registers

_LIBRARY = library.Library("intrigue", "FRAGMENT")
_LIBRARY.define("narrow(Tensor p, Tensor bias, Tensor weight, Tensor last) -> Tensor")
_LIBRARY.define("narrow_backward(Tensor dy, Tensor p, Tensor bias, Tensor weight, bool sums) -> (Tensor, Tensor)")


def wide_then_narrow(wide: nn.Module, narrow: nn.Module, rows: Tensor) -> Tensor:
    """What the second of two linear layers, which must have biases, gives for ReLU of the first: (..., K) -> (..., A).

    The rows may be rounded already; what comes out has the type of the weights.
    """
    assert isinstance(wide, nn.Linear) and isinstance(narrow, nn.Linear)
    if rows.dim() < 2 or not suits(rows.device, wide.bias.dtype, wide.out_features, narrow.out_features):
        plain: Tensor = narrow(wide_linear(wide, rows).relu())
        return plain
    y: Tensor = NARROW(product_alone(wide, rows).flatten(0, -2), wide.bias, narrow.weight, narrow.bias)
    return y if rows.dim() == 2 else y.unflatten(0, rows.shape[:-1])


def members_wide_then_narrow(wide: EnsembleLinear, narrow: EnsembleLinear, rows: Tensor) -> Tensor:
    """The same of K members over rows that all of them share: (B, in) -> (K, B, A)."""
    width, outputs = narrow.weight.shape[1:]
    # A single output: these layers keep their weights transposed, and so would the gradients of more be.
    if outputs != 1 or not suits(rows.device, wide.bias.dtype, width, outputs):
        plain: Tensor = narrow(wide_members(wide, rows).relu())
        return plain
    y: Tensor = NARROW(member_product(wide, rows), wide.bias.squeeze(-2), narrow.weight.mT, narrow.bias.squeeze(-2))
    return y


def suits(device: torch.device, dtype: torch.dtype, width: int, outputs: int) -> bool:
    """Whether layers of these widths are the operator's. Nothing in it that torch.compile could not look into."""
    fits = width in WIDTHS and 1 <= outputs <= MOST_OUTPUTS
    return fits and dtype == torch.float32 and kernels_run_on(device)


def _taken(p: Tensor, weight: Tensor) -> bool:
    outputs, width = weight.shape[-2:]
    return suits(p.device, weight.dtype, width, outputs)


def _narrow(p: Tensor, bias: Tensor, weight: Tensor, last: Tensor) -> Tensor:
    if not _taken(p, weight):
        return (p.to(bias.dtype) + bias.unsqueeze(-2)).relu() @ weight.mT + last.unsqueeze(-2)
    from intrigue.ops import output_layer_kernels  # Triton is optional, and slow to import.

    with torch.cuda.device_of(p):  # Triton launches where torch is at the moment.
        return output_layer_kernels.forward(p, bias, weight, last)


def _narrow_backward(dy: Tensor, p: Tensor, bias: Tensor, weight: Tensor, sums: bool) -> tuple[Tensor, Tensor]:
    if not _taken(p, weight):
        return _plain_backward(dy, p, bias, weight, sums)
    from intrigue.ops import output_layer_kernels

    with torch.cuda.device_of(p):
        return output_layer_kernels.backward(dy, p, bias, weight, sums)


def _plain_backward(dy: Tensor, p: Tensor, bias: Tensor, weight: Tensor, sums: bool) -> tuple[Tensor, Tensor]:
    """The equations of `output_layer_kernels`, all rows at once."""
    z = p.to(bias.dtype) + bias.unsqueeze(-2)
    dp = (dy @ weight).masked_fill(z <= 0, 0.0)
    parts = torch.cat([(dy.mT @ z.relu()).movedim(-2, 0), dp.sum(-2).unsqueeze(0)]).unsqueeze(-2)
    return dp.to(p.dtype), parts if sums else parts[..., :0, :].contiguous()


def _fake_narrow(p: Tensor, bias: Tensor, weight: Tensor, last: Tensor) -> Tensor:
    del last
    return bias.new_empty((*p.shape[:-1], weight.shape[-2]))


def _fake_narrow_backward(dy: Tensor, p: Tensor, bias: Tensor, weight: Tensor, sums: bool) -> tuple[Tensor, Tensor]:
    del dy
    outputs, width = weight.shape[-2:]
    blocks = 1 if sums else 0
    if sums and _taken(p, weight):
        from intrigue.ops import output_layer_kernels

        blocks = output_layer_kernels.blocks_of(p.shape[-2])
    return p.new_empty(p.shape), bias.new_empty((outputs + 1, *p.shape[:-2], blocks, width))


# One function for every device: `p` says which.
_LIBRARY.impl("narrow", _narrow, "CompositeExplicitAutograd")
_LIBRARY.impl("narrow_backward", _narrow_backward, "CompositeExplicitAutograd")
library.register_fake("intrigue::narrow", _fake_narrow, lib=_LIBRARY)
library.register_fake("intrigue::narrow_backward", _fake_narrow_backward, lib=_LIBRARY)

NARROW = torch.ops.intrigue.narrow.default
NARROW_BACKWARD = torch.ops.intrigue.narrow_backward.default


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[:3])


def _gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    _, of_bias, of_weight, of_last = ctx.needs_input_grad
    dp, parts = NARROW_BACKWARD(dy, *ctx.saved_tensors, of_bias or of_weight)
    whole = parts.sum(-2)  # (A + 1, ..., H)
    dbias = whole[-1] if of_bias else None
    dweight = whole[:-1].movedim(0, -2) if of_weight else None
    return dp, dbias, dweight, dy.sum(-2) if of_last else None


def _refuse(ctx: Any, *gradients: Tensor | None) -> None:
    del ctx, gradients
    raise RuntimeError("a narrow layer has no second derivative. Compute it on a CPU, where it is plain layers.")


library.register_autograd("intrigue::narrow", _gradients, setup_context=_keep, lib=_LIBRARY)
library.register_autograd("intrigue::narrow_backward", _refuse, lib=_LIBRARY)


def _vmap_narrow(info: Any, in_dims: tuple[int | None, ...], *given: Tensor) -> tuple[Tensor, int]:
    """The mapped axis is that of the seeds."""
    first, several = seeds_first(given, in_dims, info.batch_size)
    y: Tensor = NARROW(*first)
    return y.unflatten(0, (info.batch_size, -1)) if several else y, 0


def _vmap_narrow_backward(
    info: Any, in_dims: tuple[int | None, ...], dy: Tensor, p: Tensor, bias: Tensor, weight: Tensor, sums: bool
) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    first, several = seeds_first((dy, p, bias, weight), in_dims, info.batch_size)
    found: tuple[Tensor, Tensor] = NARROW_BACKWARD(*first, sums)
    if several:
        found = found[0].unflatten(0, (info.batch_size, -1)), found[1].unflatten(1, (info.batch_size, -1))
    return found, (0, 1)


library.register_vmap("intrigue::narrow", _vmap_narrow, lib=_LIBRARY)
library.register_vmap("intrigue::narrow_backward", _vmap_narrow_backward, lib=_LIBRARY)
