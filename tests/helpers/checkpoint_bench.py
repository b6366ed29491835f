"""Small checkpoints to damage, and the saves that are killed at every call; also imported by the killed programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from intrigue.errors import CheckpointError
from intrigue.run import checkpoint, create

MEMBERS = ("manifest.json", "state.json", "tensors.safetensors")


def state_at(step: int) -> Any:
    generator = torch.Generator().manual_seed(step)
    return {
        "weights": torch.randn(40, 30, generator=generator),
        "memory": np.full((8, 5), step, dtype=np.int32),
        "counters": {"step": step, "best": float("nan")},
    }


def save(folder: Path, step: int, keep: int = 3, **meta: Any) -> Path:
    return checkpoint.save(folder, step, state_at(step), config_digest="c", meta=meta, keep=keep)


def two_checkpoints(folder: Path) -> Path:
    """A folder with the checkpoints of steps 100 and 200."""
    save(folder, 100)
    save(folder, 200)
    return folder


class Bench:
    """Two checkpoints, of which the newest is damaged by a test and put right again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest = folder / f"{200:012d}"
        self.intact = {name: (self.newest / name).read_bytes() for name in MEMBERS}

    def assert_refused(self, hint: str) -> None:
        verdict = checkpoint.verify(self.folder)
        assert not verdict.ok, hint
        assert verdict.step == 200
        assert verdict.problems, hint
        with pytest.raises(CheckpointError):
            checkpoint.digest(self.folder)
        messages: list[str] = []
        loaded = checkpoint.load(self.folder, on_skip=messages.append)
        assert loaded.step == 100, hint
        assert len(messages) == 1, hint
        assert str(self.newest) in messages[0]
        assert torch.equal(loaded.state["weights"], state_at(100)["weights"])

    def with_content(self, name: str, content: bytes, hint: str) -> None:
        (self.newest / name).write_bytes(content)
        self.assert_refused(hint)
        (self.newest / name).write_bytes(self.intact[name])


def create_run(place: Path) -> None:
    with create.create(place / "run", {"steps": 1}, {"host": "h"}) as staging:
        save(staging.folder.checkpoints, 0)
        staging.publish()


def _other_content(place: Path) -> None:
    other = {**state_at(200), "counters": {"step": 200, "best": 1.0}}
    checkpoint.save(place, 200, other, config_digest="c", meta={}, keep=1)


SCENARIOS: dict[str, Callable[[Path], object]] = {
    "checkpoint-keep3": lambda place: save(place, 300),
    "checkpoint-keep1": lambda place: save(place, 300, keep=1),
    "checkpoint-again": lambda place: save(place, 200),
    "checkpoint-other": _other_content,
    "checkpoint-repair": lambda place: save(place, 200),
    "any-birth": create_run,
}


KILLS = [(scenario, "kill") for scenario in SCENARIOS] + [("checkpoint-keep1", "torn")]
