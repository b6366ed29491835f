"""What rewards are made of under torch's vmap: nuclear norms and neighbour searches, against one call for each seed."""

from __future__ import annotations

import pytest
import torch
from torch.func import vmap

from intrigue.nn import knn
from intrigue.nn.knn import knn_distances, nearest_rows
from intrigue.nuclear import Gathered, nuclear_floor, nuclear_norm, nuclear_score

SEEDS, ROWS, WIDTH = 3, 23, 6


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("method", ["auto", "gram", "svd"])
@pytest.mark.parametrize("axis", [0, 2, 3])
def test_nuclear_norms_of_a_map(axis, method):
    """The mapped axis lies anywhere, also between rows and columns."""
    z = numbers(SEEDS, 2, 4, 3, 5)
    value = lambda one: nuclear_norm(one, "mean", method=method, on_nonfinite="propagate")  # noqa: E731
    found = vmap(value, in_dims=axis)(z.movedim(0, axis))
    assert torch.equal(found, torch.stack([value(one) for one in z]))


@pytest.mark.parametrize("function", [nuclear_score, nuclear_floor])
@pytest.mark.parametrize("shared", ["nothing", "query", "table", "index"])
def test_gathered_norms_of_a_map(shared, function):
    """Every seed looks into its own table, or all into one."""
    parts = {
        "query": numbers(SEEDS, ROWS, WIDTH),
        "table": numbers(SEEDS, 11, WIDTH, seed=1),
        "index": torch.randint(11, (SEEDS, ROWS, 4), generator=torch.Generator().manual_seed(2)),
    }
    dims = [None if name == shared else 0 for name in parts]
    given = [part[0] if name == shared else part for name, part in parts.items()]
    value = lambda *rows: function(Gathered(*rows), on_nonfinite="propagate")  # noqa: E731
    found = vmap(value, in_dims=tuple(dims))(*given)
    for seed in range(SEEDS):
        own = [part if name == shared else part[seed] for name, part in zip(parts, given, strict=True)]
        assert torch.equal(found[seed], value(*own))


@pytest.mark.parametrize("chunk", [1 << 24, 5 * ROWS])
@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("own", ["no", "count", "skip"])
def test_neighbours_of_a_map(own, some, chunk, monkeypatch):
    """Whole and in chunks, all rows allowed or other ones in each seed."""
    monkeypatch.setattr(knn, "CHUNK_ELEMENTS", chunk)
    rows = numbers(SEEDS, ROWS, WIDTH).double()
    allowed = numbers(SEEDS, ROWS, seed=3) > -0.5
    if some:
        allowed[1] = torch.arange(ROWS) < 2  # fewer than are asked for

    def search(query: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mine = mask if some else None
        near = knn_distances(query, query, 4, own=own, allowed=mine)
        row = near.row.where(near.found, 0)
        return near.distance, near.found, row, nearest_rows(query, query, 4, skip_self=own == "skip", allowed=mine)

    found = vmap(search)(rows, allowed)
    for seed in range(SEEDS):
        distance, *rest = search(rows[seed], allowed[seed])
        torch.testing.assert_close(found[0][seed], distance, rtol=1e-12, atol=1e-12)
        places = rest if not some or own == "skip" else rest[:2]  # who stands behind the allowed ones is open
        for one, other in zip(found[1:], places, strict=False):
            assert torch.equal(one[seed], other)
