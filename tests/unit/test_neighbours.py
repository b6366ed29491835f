"""Nearest rows against a brute-force search, and the ring memory."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue import neighbours
from intrigue.neighbours import RingMemory, nearest_rows


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
    monkeypatch.setattr(neighbours, "CHUNK_ELEMENTS", 50)
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
