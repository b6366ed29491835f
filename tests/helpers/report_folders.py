"""Run folders written by hand, with every number chosen, for the tests of reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intrigue.config.run import RunConfig, resolve
from intrigue.presets import preset_layer
from intrigue.run import checkpoint
from intrigue.run.checkpoint import snapshot
from intrigue.run.folder import RunFolder, mark_done, write_config, write_provenance

# Two rooms a side of two cells: 4 * 4 + 3 = 19 places.
PLACES = 19
MAZE = {"env": "rooms", "env.rooms": 2, "env.room_size": 2, "pool.num_envs": 4, "pool.workers": 0, "device": "cpu"}


def config_of(seed: int = 0, steps: int = 400, **fields: Any) -> RunConfig:
    """A run in the tiny maze; a double underscore in a name stands for the dot."""
    layer = {name.replace("__", "."): value for name, value in fields.items()}
    return resolve(MAZE, {"reward.source": "knn"}, {"seed": seed, "steps": steps}, layer)


def visits_of(visited: int, each: int = 5) -> np.ndarray:
    """Visits in which the first places were entered, each as often."""
    visits = np.zeros(PLACES, dtype=np.int64)
    visits[:visited] = each
    return visits


def write_run(
    path: Path,
    config: RunConfig,
    *,
    visits: np.ndarray | None = None,
    episodes: Sequence[tuple[int, float]] = (),
    bonus: Sequence[float] = (0.5, 0.25),
    frames: int = 1,
    step: int | None = None,
    finished: bool = True,
    provenance: dict[str, Any] | None = None,
    seconds: float = 2.0,
) -> Path:
    """A run folder as the driver leaves it, with these results."""
    folder = RunFolder(path)
    path.mkdir(parents=True)
    step = config.run.steps if step is None else step
    write_config(folder, config.to_json())
    write_provenance(folder, {"versions": {"intrigue": "0.1.0"}, "plugins": {}} if provenance is None else provenance)
    steps = [step * (index + 1) // len(bonus) for index in range(len(bonus))]
    lines = ["step,frame,wall_seconds,charts/episodic_return,charts/coverage,intrinsic/raw_mean"]
    for at, value in zip(steps, bonus, strict=True):
        covered = "" if visits is None else repr(float((visits > 0).mean()) * at / step)
        lines.append(f"{at},{at * frames},{seconds * at / step!r},0.5,{covered},{value!r}")
    folder.metrics.write_text("\n".join([*lines, ""]))
    rows = [f"{at},{at * frames},0,{value!r},10,1" for at, value in episodes]
    folder.episodes.write_text("\n".join(["step,frame,env,episodic_return,length,terminated", *rows, ""]))
    state = {"collector": {"visits": np.zeros(0, dtype=np.int64) if visits is None else visits}}
    checkpoint.save(folder.checkpoints, step, state, config_digest=config.digest(), meta={}, keep=2)
    if finished:
        mark_done(folder, step, checkpoint.digest(folder.checkpoints))
    return path


def write_pretraining(path: Path, seed: int = 0, marks: Sequence[int] = (1000, 3000), **fields: Any) -> Path:
    """A pre-training of URLB with snapshots, other ones for every seed."""
    layer = {name.replace("__", "."): value for name, value in fields.items()}
    config = resolve(preset_layer("nnm-urlb"), {"steps": 3000, "seed": seed, "device": "cpu"}, layer)
    write_run(path, config)
    for mark in marks:
        state = {"about": {"seed": seed, **layer}, "agent": {"weight": np.full(3, mark)}, "reward": {}}
        snapshot.save(RunFolder(path), mark, state, config.digest(), mark)
    return path


def write_tuning(path: Path, pre: Path | None, mark: int = 3000, seed: int = 0, *, name: str = "") -> Path:
    """A fine-tuning of walker_run from a snapshot, or from scratch; `name` is what provenance.json calls `pre`."""
    tuning = {"curiosity.idle": True, "curiosity.int_coef": 0.0, "agent.n_step": 3, "run.eval_every": 100}
    config = resolve(
        preset_layer("nnm-urlb"), {"env": "dmc/walker_run", "steps": 400, "seed": seed, "device": "cpu"}, tuning
    )
    provenance: dict[str, Any] = {"versions": {"intrigue": "0.1.0"}, "plugins": {}}
    if pre is not None:
        digest = snapshot.load(RunFolder(pre), mark).digest
        provenance["finetuned_from"] = {"run": name or pre.name, "snapshot": mark, "digest": digest, "copied": {}}
    return write_run(path, config, provenance=provenance)


def other_seed(config: RunConfig, seed: int) -> RunConfig:
    """The same run from another seed."""
    return dataclasses.replace(config, run=dataclasses.replace(config.run, seed=seed))
