"""Inputs of the nuclear functions: what is accepted, the errors for everything else, and the layout kernels read.

Accepted: a tensor of shape (..., n, m) with n, m ≥ 1 and any strides, dtype float16, bfloat16, float32 or float64; or
`Gathered` rows, which are read through their index and never copied together. Any leading batch shape is fine, an empty
one included: no matrices in, no scores out. `Form` and `Center` name what is computed from a matrix.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from intrigue.errors import IntrigueError, NonFiniteError, unknown_name

ACCEPTED_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class MatrixError(IntrigueError, ValueError):
    """The tensor is not a batch of matrices, or an option has an unknown value."""


class MatrixTypeError(MatrixError, TypeError):
    """Not a tensor, or a tensor of a dtype that holds no real numbers."""


def check_matrices(z: Tensor) -> None:
    """Accept batches of real matrices.

    Raises MatrixTypeError unless `z` is a real floating tensor, MatrixError for fewer than two axes or an empty matrix.
    """
    if not isinstance(z, Tensor):
        raise MatrixTypeError(
            f"matrices must be a torch.Tensor, got {type(z).__name__}. Accepted: a tensor of shape (..., n, m). "
            "Convert arrays with torch.as_tensor first."
        )
    if z.dtype not in ACCEPTED_DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in ACCEPTED_DTYPES)
        dtype = str(z.dtype).removeprefix("torch.")
        raise MatrixTypeError(f"matrices have dtype {dtype}. Accepted: {names}. Convert with z.float() first.")
    if z.dim() < 2:
        raise MatrixError(
            f"matrices have shape {tuple(z.shape)}. Accepted: (..., n, m), n states of m dimensions as rows. "
            "Add the missing axis, for one state z[None]."
        )
    if 0 in z.shape[-2:]:
        raise MatrixError(
            f"matrices of shape {tuple(z.shape)} have no entries. Accepted: (..., n, m) with n ≥ 1 and m ≥ 1. "
            "Pass at least one state of at least one dimension; only batch axes may be empty."
        )


def check_gathered(query: Tensor, table: Tensor, index: Tensor) -> None:
    """Accept rows to gather: (B, m) and (M, m) of one real dtype, (B, k) int64.

    Raises MatrixTypeError or MatrixError otherwise. Whether the indices lie within the table is not checked.
    """
    if not all(isinstance(part, Tensor) for part in (query, table, index)):
        raise MatrixTypeError("gathered rows need three tensors. Accepted: query (B, m), table (M, m), index (B, k).")
    if query.dtype != table.dtype or query.dtype not in ACCEPTED_DTYPES or index.dtype != torch.int64:
        raise MatrixTypeError(
            f"gathered rows have dtypes {query.dtype}, {table.dtype}, {index.dtype}. Accepted: two tensors of one "
            "floating type and an int64 index. Convert with .float() and .long() first."
        )
    shapes = tuple(query.shape), tuple(table.shape), tuple(index.shape)
    if not all(len(shape) == 2 for shape in shapes) or shapes[0][1] != shapes[1][1] or shapes[0][0] != shapes[2][0]:
        raise MatrixError(
            f"gathered rows have shapes {shapes[0]}, {shapes[1]}, {shapes[2]}. Accepted: query (B, m), table (M, m), "
            "index (B, k). Flatten batch axes first."
        )
    if shapes[0][1] == 0:
        raise MatrixError("gathered rows have no entries. Accepted: m ≥ 1. Pass rows of at least one dimension.")


def check_option(option: str, value: str, known: Collection[str]) -> None:
    """Raise MatrixError, with the nearest known value, unless `value` is a known value of `option`."""
    if value not in known:
        raise MatrixError(f"{option}: {unknown_name(str(value), known)}")


def require_finite(broken: Tensor, name: str) -> None:
    """Raise NonFiniteError if any entry of `broken` (True per non-finite matrix, in batch shape) is set.

    Reads one number back from the device.
    """
    count = int(broken.sum())
    if count == 0:
        return
    first = tuple(broken.nonzero()[0].tolist())
    where = f"the first at index {first}" if first else "the only one given"
    raise NonFiniteError(
        f"{name}: {count} of {broken.numel()} matrices contain NaN or infinity, {where}. Accepted: finite entries. "
        'Find where they arise, or pass on_nonfinite="propagate" to get NaN for those matrices alone.'
    )


# ratio ‖Z‖_*/‖Z‖_F · score ratio/√max(n, m) · norm ‖Z‖_* · floor (ratio − 1)/(√min(n, m) − 1)
Form = Literal["ratio", "score", "norm", "floor"]
# none: the rows themselves · mean: deviations from the mean row · first: offsets from the first row
Center = Literal["none", "mean", "first"]

FORMS: tuple[Form, ...] = get_args(Form)
CENTERS: tuple[Center, ...] = get_args(Center)


@dataclass(frozen=True)
class Gathered:
    """B matrices of k + 1 rows: row b of `query`, then the rows of `table` that `index[b]` names."""

    query: Tensor  # (B, m)
    table: Tensor  # (M, m)
    index: Tensor  # (B, k) int64

    def matrices(self) -> Tensor:
        """The matrices themselves, (B, k + 1, m), copied together."""
        return torch.cat([self.query.unsqueeze(1), self.table[self.index]], dim=1)


@dataclass(frozen=True)
class MatrixLayout:
    """Where the entries of B matrices are in memory, as kernels take it; strides count entries."""

    first: Tensor  # the stack (outer, inner, n, m), or the tensor (B, m) of each matrix's first row
    table: Tensor  # gathered rows: the tensor (M, m) of all other rows; otherwise the stack again, unused
    index: Tensor  # gathered rows: (B, n − 1); otherwise the stack again, unused
    gather: bool
    count: int  # B
    inner: int  # matrices per step of the outer batch axis
    rows: int  # n
    columns: int  # m
    strides: tuple[int, int, int, int, int]  # outer, inner, row, column, row of the table

    def to_float32(self) -> MatrixLayout:
        """A copy in float32."""
        if self.gather:
            return gathered_layout(Gathered(self.first.float(), self.table.float(), self.index))
        return stack_layout(self.first.float())


def stack_layout(z: Tensor) -> MatrixLayout:
    """The layout of a stack (..., n, m); copies only if three or more batch axes cannot be viewed as two."""
    n, m = z.shape[-2:]
    stack = z.reshape((1,) * (4 - z.dim()) + z.shape) if z.dim() <= 4 else z.reshape(-1, *z.shape[-3:])
    outer, inner, row, column = stack.stride()
    count, width = stack.shape[0] * stack.shape[1], max(stack.shape[1], 1)
    return MatrixLayout(stack, stack, stack, False, count, width, n, m, (outer, inner, row, column, 0))


def gathered_layout(rows: Gathered) -> MatrixLayout:
    """The layout of gathered rows; copies if strides differ between the tensors."""
    query, table, index = rows.query, rows.table, rows.index
    if query.stride(1) != table.stride(1):
        query, table = query.contiguous(), table.contiguous()
    (row, column), count = query.stride(), query.shape[0]
    strides = (0, row, 0, column, table.stride(0))
    return MatrixLayout(
        query, table, index.contiguous(), True, count, max(count, 1), index.shape[1] + 1, query.shape[1], strides
    )
