"""What draws of one replay need, as a module, so that the replays of several seeds can be stacked as networks are.

Its buffers are the replay's own tensors: what goes into the replay is there to be drawn.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from intrigue.replay.draws import EpisodeTable, draw_windows
from intrigue.replay.memory import Replay
from intrigue.replay.rows import Rows
from intrigue.replay.windows import as_tuples
from intrigue.rng import Rng, uniform
from intrigue.types import Extras, Transitions


@final
class Shelf(nn.Module):
    """Draws windows, as tuples, from the finished episodes of a replay."""

    packed: Tensor
    grid: Tensor
    ends: Tensor
    bounds: Tensor

    def __init__(self, replay: Replay) -> None:
        super().__init__()
        assert replay.episodes is not None
        self._plan, keep = replay.plan, replay.keep
        self._layout, self._span = keep.ring.layout, keep.span
        for name, tensor in {"packed": keep.ring.packed, "grid": keep.grid, **replay.episodes.table._asdict()}.items():
            self.register_buffer(name, tensor, persistent=False)

    def chances(self, rng: Rng) -> Tensor:
        """What decides one draw."""
        return uniform((2, self._plan.batch), rng, torch.float64)

    @torch.no_grad()
    def draw(self, chance: Tensor) -> tuple[Transitions, Extras]:
        """A batch (1, B, ...) for one update, and the discount of what follows each tuple."""
        plan = self._plan
        rows = Rows(self.packed, self._layout)
        drawn = draw_windows(EpisodeTable(self.ends, self.bounds), chance, plan.steps)
        start = self.grid[drawn.step % self._span, drawn.env]
        return as_tuples(rows, start, plan.steps, 0, plan.discount)
