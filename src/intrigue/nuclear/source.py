"""Where matrices lie in memory: a stack of any strides, or rows gathered by index and never copied together."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
class Source:
    """Addresses of the entries of B matrices, as the kernels take them; strides count entries."""

    first: Tensor  # the stack (outer, inner, n, m), or the tensor (B, m) of each matrix's first row
    table: Tensor  # gathered rows: the tensor (M, m) of all other rows; otherwise the stack again, unused
    index: Tensor  # gathered rows: (B, n − 1); otherwise the stack again, unused
    gather: bool
    count: int  # B
    inner: int  # matrices per step of the outer batch axis
    rows: int  # n
    columns: int  # m
    strides: tuple[int, int, int, int, int]  # outer, inner, row, column, row of the table

    def widened(self) -> Source:
        """The same in float32, copied."""
        if self.gather:
            return gathered_source(Gathered(self.first.float(), self.table.float(), self.index))
        return stack_source(self.first.float())


def stack_source(z: Tensor) -> Source:
    """The source of a stack (..., n, m); copies only where four or more batch axes cannot be seen as two."""
    n, m = z.shape[-2:]
    stack = z.reshape((1,) * (4 - z.dim()) + z.shape) if z.dim() <= 4 else z.reshape(-1, *z.shape[-3:])
    outer, inner, row, column = stack.stride()
    count, width = stack.shape[0] * stack.shape[1], max(stack.shape[1], 1)
    return Source(stack, stack, stack, False, count, width, n, m, (outer, inner, row, column, 0))


def gathered_source(rows: Gathered) -> Source:
    """The source of gathered rows."""
    query, table, index = rows.query, rows.table, rows.index
    if query.stride(1) != table.stride(1):
        query, table = query.contiguous(), table.contiguous()
    (row, column), count = query.stride(), query.shape[0]
    strides = (0, row, 0, column, table.stride(0))
    return Source(
        query, table, index.contiguous(), True, count, max(count, 1), index.shape[1] + 1, query.shape[1], strides
    )
