"""Exact nearest neighbours in chunks, and a ring memory of past rows.

Distances come from the squared-norm expansion, so no (B, M, D) tensor is ever made; a chunk holds at most
`CHUNK_ELEMENTS` distances. The expansion rounds in float32: it picks the neighbours, callers measure the true offsets.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

# 2^24 float32 distances = 64 MiB at a time.
CHUNK_ELEMENTS = 1 << 24


def nearest_rows(query: Tensor, memory: Tensor, k: int, *, skip_self: bool = False) -> Tensor:
    """Indices (B, k) of the k rows of `memory` (M, D) nearest to each row of `query` (B, D), nearest first.

    `skip_self`: row i of the query is row i of the memory and does not count as its own neighbour.
    """
    norms = memory.square().sum(-1)  # (M,)
    rows = max(1, CHUNK_ELEMENTS // max(1, memory.shape[0]))
    picked = []
    for start in range(0, query.shape[0], rows):
        part = query[start : start + rows]
        # ‖q‖² is the same for every candidate of a row, so it cannot change their order.
        distance = torch.addmm(norms, part, memory.mT, alpha=-2)  # (b, M)
        if skip_self:
            own = torch.arange(part.shape[0], device=query.device)
            distance[own, own + start] = torch.inf
        picked.append(distance.topk(k, largest=False).indices)
    return torch.cat(picked) if picked else torch.empty(0, k, dtype=torch.long, device=query.device)


class RingMemory(nn.Module):
    """The last `capacity` rows it was shown."""

    rows: Tensor
    written: Tensor

    def __init__(self, capacity: int, width: int) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(capacity, width))
        self.register_buffer("written", torch.zeros((), dtype=torch.int64))

    def filled(self) -> Tensor:
        """The rows held now, (M, D), in no particular order."""
        return self.rows[: min(int(self.written), self.rows.shape[0])]

    @torch.no_grad()
    def add(self, rows: Tensor) -> None:
        """Write rows (B, D) over the oldest ones."""
        capacity = self.rows.shape[0]
        rows = rows[-capacity:]
        slots = (int(self.written) + torch.arange(rows.shape[0], device=rows.device)) % capacity
        self.rows[slots] = rows.to(self.rows.dtype)
        self.written += rows.shape[0]
