"""Registers a custom operator with torch in one call: schema, implementation, fake, gradient and vmap rule.

    ADD = register_operator("add(Tensor x, Tensor y) -> Tensor", add, fake_add, vmap=batch_leading)

The operator is `intrigue::add`, opaque to torch.compile and to graph capture. There is one implementation for all
devices, which looks at its tensors itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torch import Tensor, library, ops

VmapRule: TypeAlias = Callable[..., tuple[Any, Any]]
"""(operator, batch size, axes, *arguments) -> the result, and the batch axis of each of its tensors."""

_LIBRARY = library.Library("intrigue", "FRAGMENT")


def register_operator(
    schema: str,
    implementation: Callable[..., Any],
    fake: Callable[..., Any],
    *,
    vmap: VmapRule,
    backward: Callable[..., Any] | None = None,
    save: Callable[..., None] | None = None,
) -> Any:
    """The operator of this schema. `backward(ctx, *gradients)` reads from `ctx` what `save(ctx, inputs, output)` put.

    Without `backward` results carry no gradient. torch.func.grad is not supported.
    """
    _LIBRARY.define(schema)
    name = schema.partition("(")[0]
    _LIBRARY.impl(name, implementation, "CompositeExplicitAutograd")
    library.register_fake(f"intrigue::{name}", fake, lib=_LIBRARY)
    if backward is not None:
        library.register_autograd(f"intrigue::{name}", backward, setup_context=save, lib=_LIBRARY)
    operator = getattr(ops.intrigue, name).default

    def apply_vmap(info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        return vmap(operator, info.batch_size, in_dims, *arguments)

    library.register_vmap(f"intrigue::{name}", apply_vmap, lib=_LIBRARY)
    return operator


def refuse_second_derivative(message: str) -> Callable[..., Any]:
    """The `backward` of an operator that computes a gradient itself."""

    def refuse(ctx: Any, *gradients: Tensor | None) -> None:
        del ctx, gradients
        raise RuntimeError(message)

    return refuse


def move_batch_first(arguments: Sequence[Any], axes: Sequence[int | None], size: int) -> list[Any]:
    """Each tensor with the batch axis in front, expanded without a copy where it has none; other arguments as is."""
    moved = list(arguments)
    for place, (each, axis) in enumerate(zip(arguments, axes, strict=True)):
        if isinstance(each, Tensor):
            moved[place] = each.expand(size, *each.shape) if axis is None else each.movedim(axis, 0)
    return moved


def batch_leading(operator: Any, size: int, axes: Sequence[int | None], *arguments: Any) -> tuple[Any, int]:
    """The vmap rule of operators that take any leading axes: the batch axis is one more."""
    return operator(*move_batch_first(arguments, axes, size)), 0


def merge_seed_axes(out_axes: int | tuple[int, ...]) -> VmapRule:
    """The vmap rule of operators over rows (B, H), or (S, B, H) with a seed axis: the batch axis is the seed axis.

    Where there is a seed axis already both are merged: (M, S, B, H) is computed as (M · S, B, H). `out_axes`: the seed
    axis of the result, or of each result.
    """

    def rule(operator: Any, size: int, axes: Sequence[int | None], *arguments: Any) -> tuple[Any, Any]:
        moved = move_batch_first(arguments, axes, size)
        if moved[0].dim() < 4:
            return operator(*moved), out_axes
        results = operator(*(each.flatten(0, 1) if isinstance(each, Tensor) else each for each in moved))
        if isinstance(out_axes, int):
            return results.unflatten(out_axes, (size, -1)), out_axes
        pairs = zip(results, out_axes, strict=True)
        return tuple(each.unflatten(axis, (size, -1)) for each, axis in pairs), out_axes

    return rule
