"""Nearest rows against a brute-force search, and the ring memory."""

from __future__ import annotations

import sys
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.errors import ConfigError
from intrigue.nn import knn
from intrigue.nn.knn import RingMemory, knn_distances, nearest_rows
from intrigue.nn.particle_entropy import ParticleEntropy


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 20), st.integers(1, 20), st.integers(1, 5), st.integers(0, 2**16))
def test_same_distances_as_brute_force(queries, rows, width, seed):
    rng = torch.Generator().manual_seed(seed)
    query, memory = torch.randn(queries, width, generator=rng), torch.randn(rows, width, generator=rng)
    k = min(3, rows)
    found = torch.linalg.vector_norm(memory[nearest_rows(query, memory, k)] - query.unsqueeze(1), dim=-1)
    brute = torch.linalg.vector_norm(query.unsqueeze(1) - memory, dim=-1).sort(dim=1).values[:, :k]
    torch.testing.assert_close(found, brute, rtol=1e-4, atol=1e-4)


def test_chunks_change_nothing(monkeypatch):
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(37, 4, generator=rng)
    whole = nearest_rows(rows, rows, 3, skip_self=True)
    monkeypatch.setattr(knn, "CHUNK_ELEMENTS", 50)
    assert torch.equal(nearest_rows(rows, rows, 3, skip_self=True), whole)
    assert not (whole == torch.arange(37).unsqueeze(-1)).any()


def test_ring_memory_keeps_the_newest():
    memory = RingMemory(5, 1)
    assert memory.filled().shape == (0, 1)
    for start in (0, 3, 6, 20):
        memory.add(torch.arange(start, start + 3, dtype=torch.float32).unsqueeze(-1))
    assert sorted(memory.filled().squeeze(-1).tolist()) == [7.0, 8.0, 20.0, 21.0, 22.0]
    memory.add(torch.arange(100, 112, dtype=torch.float32).unsqueeze(-1))
    assert sorted(memory.filled().squeeze(-1).tolist()) == [107.0, 108.0, 109.0, 110.0, 111.0]


@settings(max_examples=60, deadline=None)
@given(
    queries=st.integers(0, 12),
    rows=st.integers(0, 12),
    k=st.integers(1, 6),
    own=st.sampled_from(["no", "count", "skip"]),
    chunk=st.sampled_from([1, 30, 1 << 24]),
    offset=st.sampled_from([0.0, 300.0]),
    seed=st.integers(0, 2**16),
)
def test_distances_are_those_of_brute_force(queries, rows, k, own, chunk, offset, seed):
    """In float32, far from the origin too; fewer than k candidates leave the rest not found."""
    rng = np.random.default_rng(seed)
    memory = (rng.normal(size=(rows, 3)) + offset).astype(np.float32)
    query = memory[:queries] if own != "no" else (rng.normal(size=(queries, 3)) + offset).astype(np.float32)
    allowed = rng.random(rows) < 0.8
    with patch.object(knn, "CHUNK_ELEMENTS", chunk):
        near = knn_distances(*map(torch.from_numpy, (query, memory)), k, own=own, allowed=torch.from_numpy(allowed))
    assert near.distance.shape == near.found.shape == near.row.shape == (len(query), k)
    for row, state in enumerate(query.astype(np.float64)):
        kept = [i for i in range(rows) if allowed[i] and not (own == "skip" and i == row)]
        wanted = sorted(float(np.linalg.norm(memory[i].astype(np.float64) - state)) for i in kept)[:k]
        found = near.found[row].numpy()
        assert found.tolist() == [True] * len(wanted) + [False] * (k - len(wanted))
        np.testing.assert_allclose(near.distance[row].numpy(), wanted + [0.0] * (k - len(wanted)), atol=1e-4)
        assert set(near.row[row].numpy()[found].tolist()) <= set(kept)


def test_a_row_finds_itself_among_near_duplicates():
    """The expansion alone would lose the row itself in the rounding of long vectors."""
    rows = 100 + 1e-4 * torch.randn(300, 64, generator=torch.Generator().manual_seed(0))
    near = knn_distances(rows, rows, 1, own="count")
    assert torch.equal(near.row.squeeze(-1), torch.arange(300))
    assert torch.equal(near.distance, torch.zeros(300, 1))


def cloud(rows, seed):
    """Points on a bent six-dimensional surface, as encodings of states are."""
    rng = torch.Generator().manual_seed(seed)
    return torch.tanh(torch.randn(rows, 6, generator=rng) @ torch.randn(6, 32, generator=torch.Generator()))


@pytest.mark.parametrize("own", ["no", "count", "skip"])
def test_faiss_finds_nearly_all_neighbours_and_measures_them_truly(own):
    pytest.importorskip("faiss")
    memory = cloud(6000, 0)
    query = memory[:500] if own != "no" else cloud(500, 1)
    allowed = torch.arange(6000) % 7 != 3
    exact = knn_distances(query, memory, 8, own=own, allowed=allowed)
    near = knn_distances(query, memory, 8, own=own, allowed=allowed, backend="faiss")
    again = knn_distances(query, memory, 8, own=own, allowed=allowed, backend="faiss")
    assert all(torch.equal(one, two) for one, two in zip(near, again, strict=True))
    assert near.found.all() and allowed[near.row].all()
    hits = (near.row.unsqueeze(-1) == exact.row.unsqueeze(1)).any(-1)
    assert hits.float().mean() > 0.95
    true = torch.linalg.vector_norm(memory[near.row] - query.unsqueeze(1), dim=-1)
    torch.testing.assert_close(near.distance, true)
    assert (near.distance >= exact.distance - 1e-5).all()
    if own != "no":
        mine = near.row == torch.arange(500).unsqueeze(-1)
        assert torch.equal(mine.any(-1), allowed[:500] & (own == "count"))


def test_faiss_with_few_rows_is_exact_and_broken_queries_stay_visible():
    pytest.importorskip("faiss")
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    exact, near = (knn_distances(rows, rows, 9, own="skip", backend=backend) for backend in ("exact", "faiss"))
    torch.testing.assert_close(near.distance, exact.distance)
    assert torch.equal(near.found, exact.found)
    assert not knn_distances(rows, rows[:0], 2, backend="faiss").found.any()
    broken = rows.clone()
    broken[2, 0] = torch.nan
    found = knn_distances(broken, rows, 2, backend="faiss")
    assert found.distance[2].isnan().any() and not found.distance[[0, 1, 3, 4]].isnan().any()


def test_without_faiss_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ConfigError, match=r"intrigue\[faiss\]"):
        ParticleEntropy(3, backend="faiss")
    ParticleEntropy(3)
