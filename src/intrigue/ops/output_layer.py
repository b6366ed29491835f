"""A hidden layer, ReLU and a layer of few outputs: on a GPU everything after the hidden product is one kernel.

    y = max(p + b, 0) Wᵀ + c        p = x Vᵀ, the product of the hidden layer (`matmul`); W (A, H)

As separate layers these are eight kernels or more: in an update of `nnm-urlb` an actor's last layer alone took 22 to 32
µs under load, and its gradient some 50. The kernels (`output_layer_kernels`) read p once each way: 7 to 9 and 14 to 20
µs on another machine, and some 10 more for summing what their programs leave on a third (all H200,
`results/urlb-h200.json`).

The custom operators:

    output_layer(p, bias, weight, last) -> y
    output_layer_backward(dy, p, bias, weight, sums) -> ∂p, partial sums of ∂weight and, after it, ∂bias
                                                        (A + 1, S, blocks, H); no blocks unless `sums`

of p (B, H) in float32 or bfloat16, bias (H,), weight (A, H) and last (A,) in float32, or all of them with a leading
axis S of seeds or members. Results are deterministic. Gradients work under vmap; there are no torch.func.grad and no
second derivative.

On other devices, and for other dtypes and sizes, the functions compute the layers as given.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from intrigue.ops.custom_op import merge_seed_axes, refuse_second_derivative, register_operator
from intrigue.ops.matmul import (
    EnsembleLinear,
    ensemble_hidden_linear,
    ensemble_hidden_matmul,
    hidden_linear,
    hidden_matmul,
)
from intrigue.ops.triton_support import can_run_kernels

MAX_OUTPUTS = 15  # each output is a sum over a row, and one of 16 lines of the gradient's products
WIDTHS = (32, 64, 128, 256, 512, 1024)  # powers of two, as Triton's blocks; wider rows do not fit registers


def hidden_then_output(hidden: nn.Module, output: nn.Module, rows: Tensor) -> Tensor:
    """The second linear layer's output for ReLU of the first's, both with biases: (..., K) -> (..., A).

    The rows may be bfloat16 already; the result has the dtype of the weights.
    """
    assert isinstance(hidden, nn.Linear) and isinstance(output, nn.Linear)
    if rows.dim() < 2 or not is_supported(rows.device, hidden.bias.dtype, hidden.out_features, output.out_features):
        plain: Tensor = output(hidden_linear(hidden, rows).relu())
        return plain
    product = hidden_matmul(hidden, rows).flatten(0, -2)
    y: Tensor = OUTPUT_LAYER(product, hidden.bias, output.weight, output.bias)
    return y if rows.dim() == 2 else y.unflatten(0, rows.shape[:-1])


def ensemble_hidden_then_output(hidden: EnsembleLinear, output: EnsembleLinear, rows: Tensor) -> Tensor:
    """The same for M members that share their rows: (B, in) -> (M, B, A)."""
    width, outputs = output.weight.shape[1:]
    # One output only: these layers keep their weights transposed, so gradients of more would have the wrong layout.
    if outputs != 1 or not is_supported(rows.device, hidden.bias.dtype, width, outputs):
        plain: Tensor = output(ensemble_hidden_linear(hidden, rows).relu())
        return plain
    product = ensemble_hidden_matmul(hidden, rows)
    y: Tensor = OUTPUT_LAYER(product, hidden.bias.squeeze(-2), output.weight.mT, output.bias.squeeze(-2))
    return y


def is_supported(device: torch.device, dtype: torch.dtype, width: int, outputs: int) -> bool:
    """Whether the operator takes layers of these widths. Contains nothing that breaks a torch.compile graph."""
    fits = width in WIDTHS and 1 <= outputs <= MAX_OUTPUTS
    return fits and dtype == torch.float32 and can_run_kernels(device)


def _uses_kernel(p: Tensor, weight: Tensor) -> bool:
    outputs, width = weight.shape[-2:]
    return is_supported(p.device, weight.dtype, width, outputs)


def _forward(p: Tensor, bias: Tensor, weight: Tensor, last: Tensor) -> Tensor:
    if not _uses_kernel(p, weight):
        return (p.to(bias.dtype) + bias.unsqueeze(-2)).relu() @ weight.mT + last.unsqueeze(-2)
    from intrigue.ops import output_layer_kernels  # Triton is optional, and slow to import.

    with torch.cuda.device_of(p):  # Triton launches on torch's current device.
        return output_layer_kernels.forward(p, bias, weight, last)


def _fake_forward(p: Tensor, bias: Tensor, weight: Tensor, *_: Any) -> Tensor:
    return bias.new_empty((*p.shape[:-1], weight.shape[-2]))


def _backward(dy: Tensor, p: Tensor, bias: Tensor, weight: Tensor, sums: bool) -> tuple[Tensor, Tensor]:
    if _uses_kernel(p, weight):
        from intrigue.ops import output_layer_kernels

        with torch.cuda.device_of(p):
            return output_layer_kernels.backward(dy, p, bias, weight, sums)
    # The equations of `output_layer_kernels`, all rows at once.
    z = p.to(bias.dtype) + bias.unsqueeze(-2)
    dp = (dy @ weight).masked_fill(z <= 0, 0.0)
    parts = torch.cat([(dy.mT @ z.relu()).movedim(-2, 0), dp.sum(-2).unsqueeze(0)]).unsqueeze(-2)
    return dp.to(p.dtype), parts if sums else parts[..., :0, :].contiguous()


def _fake_backward(dy: Tensor, p: Tensor, bias: Tensor, weight: Tensor, sums: bool) -> tuple[Tensor, Tensor]:
    del dy
    outputs, width = weight.shape[-2:]
    blocks = 1 if sums else 0
    if sums and _uses_kernel(p, weight):
        from intrigue.ops import output_layer_kernels

        blocks = output_layer_kernels.count_blocks(p.shape[-2])
    return p.new_empty(p.shape), bias.new_empty((outputs + 1, *p.shape[:-2], blocks, width))


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    del output
    ctx.save_for_backward(*inputs[:3])


def _gradients(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    _, needs_bias, needs_weight, needs_last = ctx.needs_input_grad
    dp, parts = OUTPUT_LAYER_BACKWARD(dy, *ctx.saved_tensors, needs_bias or needs_weight)
    total = parts.sum(-2)  # (A + 1, ..., H)
    dbias = total[-1] if needs_bias else None
    dweight = total[:-1].movedim(0, -2) if needs_weight else None
    return dp, dbias, dweight, dy.sum(-2) if needs_last else None


OUTPUT_LAYER = register_operator(
    "output_layer(Tensor p, Tensor bias, Tensor weight, Tensor last) -> Tensor",
    _forward, _fake_forward, vmap=merge_seed_axes(0), save=_save, backward=_gradients,
)  # fmt: skip
OUTPUT_LAYER_BACKWARD = register_operator(
    "output_layer_backward(Tensor dy, Tensor p, Tensor bias, Tensor weight, bool sums) -> (Tensor, Tensor)",
    _backward, _fake_backward, vmap=merge_seed_axes((0, 1)),
    backward=refuse_second_derivative(
        "an output layer has no second derivative. Compute it on a CPU, where it is plain layers."
    ),
)  # fmt: skip
