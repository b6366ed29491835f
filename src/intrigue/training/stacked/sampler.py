"""Draws from the replays of several seeds at once.

    starts     which rows of its own replay each seed's windows begin in: by the seed's own numbers, mapped over seeds
    fetching   all seeds' rows at once, from one table in which their replays lie side by side

Rows are bytes that are looked at as numbers, which torch cannot map over seeds (2.11); so only the first is mapped.
Fused, rows are words (`replay.ring`), and all of a draw but its random numbers is a few kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from intrigue.replay.buffer import ReplayBuffer
from intrigue.replay.ring import Layout, RowReader, WordRowReader, fits_words
from intrigue.replay.sampling import EpisodeTable, draw_windows
from intrigue.replay.windows import as_tuples
from intrigue.training.stacked.modules import fuse_for_seeds, stack_modules
from intrigue.types import Extras, Transitions


@final
class StackedSampler:
    """Draws windows, as tuples, from the finished episodes of S replays, whose memory becomes rows of one stack."""

    def __init__(self, replays: Sequence[ReplayBuffer], *, compiled: bool) -> None:
        plan, store = replays[0].plan, replays[0].store
        self._plan, self._count = plan, len(replays)
        self._stacked = stack_modules([_Shelf(each) for each in replays])
        for each in replays:
            each.store.rebind_storage()
        packed, layout = self._stacked.fixed["packed"], store.ring.layout
        fused = compiled and fits_words(layout)
        self._rows: RowReader = (_SideBySideWords if fused else _SideBySide)(packed, layout, plan.batch)
        self._fetched = fuse_for_seeds(self._plain_fetched) if fused else self._plain_fetched

    @torch.no_grad()
    def draw(self, chance: Tensor) -> tuple[Transitions, Extras]:
        """A batch (S, 1, B, ...) for one update, and the discount of what follows each tuple.

        `chance` (S, 2, B), in [0, 1), decides which.
        """
        return self._fetched(chance)

    def _plain_fetched(self, chance: Tensor) -> tuple[Transitions, Extras]:
        starts: Tensor = self._stacked.call("starts", chance)
        batch, extras = as_tuples(self._rows, starts.flatten(), self._plan.steps, 0, self._plan.discount)
        fields = {each.name: self._apart(getattr(batch, each.name)) for each in dataclasses.fields(batch)}
        return Transitions(**fields), {name: self._apart(each) for name, each in extras.items()}

    def _apart(self, rows: Tensor) -> Tensor:
        """(1, S·B, ...) -> (S, 1, B, ...)."""
        apart: Tensor = rows.unflatten(1, (self._count, -1))
        return apart.movedim(1, 0)


@final
class _Shelf(nn.Module):
    """What draws of one replay need, as a module, so that several can be stacked as networks are.

    Its buffers are the replay's own tensors: what goes into the replay is there to be drawn.
    """

    packed: Tensor
    grid: Tensor
    ends: Tensor
    bounds: Tensor

    def __init__(self, replay: ReplayBuffer) -> None:
        super().__init__()
        assert replay.episodes is not None
        self._plan, store = replay.plan, replay.store
        self._span = store.span
        for name, tensor in {
            "packed": store.ring.packed,
            "grid": store.grid,
            **replay.episodes.table._asdict(),
        }.items():
            self.register_buffer(name, tensor, persistent=False)

    def starts(self, chance: Tensor) -> Tensor:
        """The rows (B,) in which windows begin."""
        drawn = draw_windows(EpisodeTable(self.ends, self.bounds), chance, self._plan.steps)
        return self.grid[drawn.step % self._span, drawn.env]


class _SideBySide(RowReader):
    """Rows of S rings of one size, one ring after the other: of row numbers (S·B,), the first B are of the first."""

    def __init__(self, packed: Tensor, layout: Layout, batch: int) -> None:
        super().__init__(packed.flatten(0, 1), layout)
        count, self.size = packed.shape[:2]
        begins = torch.arange(count, device=packed.device) * self.size
        self._begins = begins.repeat_interleave(batch) if count > 1 else None

    def places(self, rows: Tensor) -> Tensor:
        """Where rows lie."""
        within = super().places(rows)
        return within if self._begins is None else within + self._begins


@final
class _SideBySideWords(_SideBySide, WordRowReader):
    """The same, as words."""
