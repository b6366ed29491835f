"""Approximate nearest rows with faiss, for memories too large to compare with one by one (arXiv:1702.08734).

The candidates are clustered into √M lists, and a query is compared with the rows of its `PROBES` nearest lists only.
The index is built anew for every search, so that there is nothing to save or to resume; clustering is seeded by faiss
itself, and the same rows give the same neighbours. faiss searches on the CPU; rows on another device travel there.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import torch
from torch import Tensor

from intrigue.errors import ConfigError

# Measured on points of a bent six-dimensional surface (65,536 rows of 128 numbers, one core): 8 lists hold 99 % of the
# 12 nearest; 16,384 queries take 3 s where the exact search takes 12 s, 1,024 queries gain next to nothing.
PROBES = 8
# More rows or rounds of clustering cost time and find no more neighbours: lists sort rows only roughly.
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
    """Indices (B, k) of nearly the nearest allowed rows, in no certain order; -1 where fewer than k came up."""
    usable = candidates.isfinite().all(-1)
    rows = (usable if allowed is None else usable & allowed).nonzero().squeeze(-1)
    found = torch.full((query.shape[0], k), -1, dtype=torch.long, device=query.device)
    if rows.shape[0] and query.shape[0]:
        index = _index(_host(candidates[rows]))
        place = torch.from_numpy(index.search(_host(query.nan_to_num()), k)[1]).to(query.device)
        found = torch.where(place < 0, place, rows[place.clamp_min(0)])
    # A broken query is given some row, so that its distance is not a number instead of missing.
    return found.where(query.isfinite().all(-1, keepdim=True), 0)


def _index(rows: Any) -> Any:
    faiss = require_faiss()
    lists = math.isqrt(rows.shape[0])
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(rows.shape[1]), rows.shape[1], lists)
    index.cp.niter = TRAINING_ROUNDS
    index.cp.max_points_per_centroid = TRAINING_ROWS_PER_LIST
    index.cp.min_points_per_centroid = 1  # silences a warning about small samples, which roughness allows
    index.train(rows)
    index.add(rows)
    index.nprobe = PROBES
    return index


def _host(rows: Tensor) -> Any:
    return rows.detach().to("cpu", torch.float32).contiguous().numpy()
