"""States with chunks, of which each step drops the oldest and adds one; and a save of one in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from pathlib import Path
from typing import Any

import torch

from intrigue.run import checkpoint, disk
from intrigue.state import Chunk

KEPT = 3


def chunk(number: int) -> Chunk:
    rng = torch.Generator().manual_seed(number)
    return Chunk("rows", 10 * number, {"frame": torch.randint(0, 256, (40, 30), generator=rng, dtype=torch.uint8)})


def state_at(step: int) -> Any:
    newest = step // 100
    chunks = [chunk(number) for number in range(max(0, newest - KEPT), newest)]
    return {"weights": torch.full((20,), float(step)), "kept": {"chunks": chunks}}


def save(folder: Path, step: int, keep: int = 2) -> Path:
    return checkpoint.save(folder, step, state_at(step), config_digest="c", meta={}, keep=keep)


def names(folder: Path) -> list[str]:
    """The chunks on disk, by their first row; whatever else lies there by its name."""
    place = folder / "chunks"
    return sorted(name.split("-")[1].lstrip("0") or "0" if name[0] != "." else name for name in os.listdir(place))


def save_and_die(folder: Path, step: int, keep: int, fault: str) -> int | None:
    """The exit code of a process that saves under a planned fault; negative where a signal ended it."""

    def run() -> None:
        os.environ[disk.FAULT_VARIABLE] = fault
        disk.reset_faults()
        save(folder, step, keep)
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads; there are none
        process.start()
    process.join()
    return process.exitcode
