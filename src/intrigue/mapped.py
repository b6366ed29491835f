"""What rules of torch's vmap for our operators have in common."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def axis_first(those: Sequence[Tensor], in_dims: Sequence[int | None], size: int) -> list[Tensor]:
    """Each with the mapped axis in front; where it has none, the same `size` times, without a copy."""
    return [
        each.expand(size, *each.shape) if dim is None else each.movedim(dim, 0)
        for each, dim in zip(those, in_dims, strict=True)
    ]
