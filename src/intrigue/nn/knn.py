"""k nearest neighbours in chunks, exact or with faiss, their distances, and a ring buffer of past rows.

Exact: the squared-norm expansion selects the neighbours, so no (B, M, D) tensor is ever built; their distances are then
computed from differences. A chunk holds at most `CHUNK_ELEMENTS` numbers (of each seed, under vmap).

faiss, approximate, for memories too large for exhaustive search (arXiv:1702.08734): the candidates are clustered into
√M lists, and a query is compared with the rows of its `PROBES` nearest lists only. The index is rebuilt for every
search, so there is no state to save; faiss seeds the clustering itself, so equal rows give equal neighbours. faiss runs
on the CPU; rows on another device are copied there.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from intrigue.errors import ConfigError
from intrigue.ops.tf32x3 import pairwise_scores
from intrigue.ops.topk import bottom_k

# Measured on points of a bent six-dimensional surface (65,536 rows of 128 numbers, one core): 8 lists hold 99 % of the
# 12 nearest; 16,384 queries take 3 s where the exact search takes 12 s, 1,024 queries gain next to nothing.
PROBES = 8
# More rows or rounds of clustering cost time and find no more neighbours.
TRAINING_ROWS_PER_LIST = 16
TRAINING_ROUNDS = 3


def require_faiss() -> Any:
    """The faiss module, or an error that names the extra."""
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise ConfigError(
            "backend='faiss' needs faiss, which is not installed. Add it with `pip install 'intrigue[faiss]'`, or use "
            "backend='exact'."
        ) from error


def approximate_rows(query: Tensor, candidates: Tensor, k: int, allowed: Tensor | None) -> Tensor:
    """Indices (B, k) of approximately the nearest allowed rows, unordered; -1 where fewer than k were found."""
    usable = candidates.isfinite().all(-1)
    rows = (usable if allowed is None else usable & allowed).nonzero().squeeze(-1)
    found = torch.full((query.shape[0], k), -1, dtype=torch.long, device=query.device)
    if rows.shape[0] and query.shape[0]:
        index = _build_index(_to_numpy(candidates[rows]))
        place = torch.from_numpy(index.search(_to_numpy(query.nan_to_num()), k)[1]).to(query.device)
        found = torch.where(place < 0, place, rows[place.clamp_min(0)])
    # A query with NaN gets row 0, so that its distance is NaN and not missing.
    return found.where(query.isfinite().all(-1, keepdim=True), 0)


def _build_index(rows: Any) -> Any:
    faiss = require_faiss()
    lists = math.isqrt(rows.shape[0])
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(rows.shape[1]), rows.shape[1], lists)
    index.cp.niter = TRAINING_ROUNDS
    index.cp.max_points_per_centroid = TRAINING_ROWS_PER_LIST
    index.cp.min_points_per_centroid = 1  # silences a warning about small samples, which suffice here
    index.train(rows)
    index.add(rows)
    index.nprobe = PROBES
    return index


def _to_numpy(rows: Tensor) -> Any:
    return rows.detach().to("cpu", torch.float32).contiguous().numpy()


# 2^24 float32 distances = 64 MiB at a time.
CHUNK_ELEMENTS = 1 << 24
# Rows selected beyond k before exact distances decide: rounding of the expansion may swap the k-th and the next.
SLACK = 4

Own = Literal["no", "count", "skip"]
Backend = Literal["exact", "faiss"]


class Nearest(NamedTuple):
    """The k nearest of each query, nearest first; `found` is False where there were fewer than k candidates."""

    distance: Tensor  # (B, k)  0 where not found
    found: Tensor  # (B, k)  bool
    row: Tensor  # (B, k)  which candidate; meaningless where not found


def nearest_rows(
    query: Tensor, memory: Tensor, k: int, *, skip_self: bool = False, allowed: Tensor | None = None
) -> Tensor:
    """Indices (B, k) of the k rows of `memory` (M, D) nearest to each row of `query` (B, D), nearest first.

    `skip_self`: row i of the query is row i of the memory and does not count as its own neighbour. `allowed` (M,): rows
    that are False are never neighbours; with `skip_self`, missing neighbours are replaced by the row itself.
    """
    picked = []
    for rows, index in _nearest_chunks(
        query, memory, k, "skip" if skip_self else "no", allowed, max(1, memory.shape[0])
    ):
        if skip_self and allowed is not None:
            index = index.where(allowed[index], _own_rows(rows, index))
        picked.append(index)
    return torch.cat(picked) if picked else torch.empty(0, k, dtype=torch.long, device=query.device)


def knn_distances(
    query: Tensor,
    candidates: Tensor,
    k: int,
    *,
    own: Own = "no",
    allowed: Tensor | None = None,
    backend: Backend = "exact",
) -> Nearest:
    """Euclidean distances from each row of `query` (B, D) to its k nearest rows of `candidates` (M, D).

    `own`: row i of the query is row i of the candidates, and counts as its own neighbour at distance 0 or is skipped.
    `allowed` (M,): candidates that are False are never neighbours.
    `backend`: "faiss" finds nearly all of the nearest, for large memories; distances to what it finds are exact.
    """
    parts = []
    for rows, index in _candidate_chunks(query, candidates, k + SLACK, own, allowed, backend):
        found = index >= 0
        index = index.clamp_min(0)
        if allowed is not None:
            found = found & allowed[index]
        if own == "skip":
            found = found & (index != _own_rows(rows, index))
        true = torch.linalg.vector_norm(candidates[index] - query[rows].unsqueeze(1), dim=-1)  # (b, take)
        true, order = true.masked_fill(~found, torch.inf).sort(dim=-1)
        found, index = (_fit_columns(each.gather(-1, order), k) for each in (found, index))
        parts.append(Nearest(_fit_columns(true, k).where(found, 0), found, index))
    if not parts:
        none = torch.empty(0, k, dtype=torch.long, device=query.device)
        return Nearest(query.new_zeros(0, k), none.bool(), none)
    return Nearest(*(torch.cat(each) for each in zip(*parts, strict=True)))


def _candidate_chunks(
    query: Tensor, candidates: Tensor, take: int, own: Own, allowed: Tensor | None, backend: Backend
) -> Iterator[tuple[slice, Tensor]]:
    """Chunks of the query and rows (b, take or fewer) among which their nearest are; -1 is no row."""
    take = min(take, candidates.shape[0])
    if backend == "exact":
        # Distances do not depend on a common offset; without it the expansion rounds less.
        center = candidates.mean(0) if take else candidates.new_zeros(())
        width = max(1, candidates.shape[0], take * candidates.shape[1])
        yield from _nearest_chunks(query - center, candidates - center, take, own, allowed, width)
        return
    near = approximate_rows(query, candidates, take, allowed)
    size = max(1, CHUNK_ELEMENTS // max(1, take * candidates.shape[1]))
    for start in range(0, query.shape[0], size):
        index = near[start : start + size]
        rows = slice(start, start + index.shape[0])
        if own == "count":
            own_rows = _own_rows(rows, index)
            index = torch.cat([own_rows, index.masked_fill(index == own_rows, -1)], dim=-1)
        yield rows, index


def _nearest_chunks(
    query: Tensor, memory: Tensor, k: int, own: Own, allowed: Tensor | None, row_elements: int
) -> Iterator[tuple[slice, Tensor]]:
    """Chunks of the query and the indices (b, k) of their nearest rows by the expansion, nearest first."""
    norms = memory.square().sum(-1)  # (M,)
    if allowed is not None:
        norms = norms.masked_fill(~allowed, torch.inf)
    size = max(1, CHUNK_ELEMENTS // row_elements)
    for start in range(0, query.shape[0], size):
        part = query[start : start + size]
        # ‖q‖² is the same for every candidate of a row, so it cannot change their order.
        distance = pairwise_scores(part, memory, norms)  # (b, M)
        if own != "no":
            # Rounding could rank another row before the row itself; -inf keeps the row first.
            distance[:, start:].diagonal().fill_(torch.inf if own == "skip" else -torch.inf)
        yield slice(start, start + part.shape[0]), bottom_k(distance, k)


def _own_rows(rows: slice, like: Tensor) -> Tensor:
    return torch.arange(rows.start, rows.stop, device=like.device).unsqueeze(-1)


def _fit_columns(rows: Tensor, k: int) -> Tensor:
    """Exactly k columns: cut, or padded with zeros (False)."""
    return nn.functional.pad(rows[:, :k], (0, max(0, k - rows.shape[1])))


class RingMemory(nn.Module):
    """The last `capacity` rows added."""

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
