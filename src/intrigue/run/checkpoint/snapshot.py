"""Snapshots: the weights of a run after so many steps, kept for good, to fine-tune from.

    snapshots/<steps, 12 digits>/        as a checkpoint: tensors.safetensors, state.json, manifest.json

A snapshot holds the weights of agent and reward and the settings and sizes they were made for; no optimiser, no replay,
no environment. It is written as a checkpoint is, and never rewritten, removed or skipped: a damaged one is an error
that names it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intrigue.config.run import RunConfig
from intrigue.errors import CheckpointError, ConfigError, Problem
from intrigue.run import checkpoint, disk
from intrigue.run.checkpoint.manifest import MANIFEST, SIZE_LIMIT, NewerFormat, parse
from intrigue.run.checkpoint.verify import examine, list_checkpoints, step_and_generation
from intrigue.run.folder import RunFolder
from intrigue.spaces import Spaces
from intrigue.state import State
from intrigue.training.build import with_skills
from intrigue.training.loops import AnyParts

KEEP_ALL = 10**9
FIELDS = {"about", "agent", "reward"}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole snapshot."""

    path: Path
    mark: int
    """The steps it was set for; the run may have been up to one step of each environment further."""
    about: dict[str, Any]
    agent: dict[str, Any]
    reward: dict[str, Any]
    digest: str


def steps_passed(marks: Iterable[int], before: int, step: int) -> list[int]:
    """The marks in (before, step], ascending."""
    return sorted(mark for mark in set(marks) if before < mark <= step)


def save(folder: RunFolder, mark: int, state: State, config_digest: str, step: int) -> None:
    """Write this state under `mark`, unless a whole snapshot is there (a resumed run may pass a mark twice)."""
    for path in list_checkpoints(folder.snapshots):
        if step_and_generation(path)[0] == mark and not examine(path, keep=False)[1]:
            return
    checkpoint.save(folder.snapshots, mark, state, config_digest=config_digest, meta={"step": step}, keep=KEEP_ALL)


def list_marks(folder: RunFolder) -> list[int]:
    """The marks of all snapshots, whole or not."""
    return sorted({step_and_generation(path)[0] for path in list_checkpoints(folder.snapshots)})


def find_problems(folder: RunFolder) -> list[str]:
    """Every problem of the snapshots of a run, with the snapshot's name."""
    problems = []
    for path in list_checkpoints(folder.snapshots):
        try:
            found = examine(path, keep=False)[1]
        except NewerFormat as error:
            found = [str(error)]
        problems += [f"{folder.snapshots.name}/{path.name}: {each}" for each in found]
    return problems


def load(folder: RunFolder, mark: int | None) -> Snapshot:
    """The snapshot of `mark` steps, or the newest.

    Raises:
        ConfigError: there is none; the message lists those there are.
        CheckpointError: it is damaged.
    """
    marks = list_marks(folder)
    if not marks:
        raise ConfigError(
            f"{folder.path} holds no snapshot to fine-tune from. A run keeps them at the steps that --run.snapshots "
            "names, as the URLB presets do; `intrigue resume` goes on to the next. Nothing was started from scratch."
        )
    mark = marks[-1] if mark is None else mark
    if mark not in marks:
        there = ", ".join(map(str, marks))
        text = f"{folder.path} has no snapshot of {mark} steps. There are: {there}. Nothing was started from scratch."
        raise ConfigError([Problem("--snapshot", text)])
    path = [each for each in list_checkpoints(folder.snapshots) if step_and_generation(each)[0] == mark][-1]
    read, problems = examine(path, keep=True)
    if read is None:
        raise CheckpointError(f"snapshot {path} is damaged: {'; '.join(problems)}. Nothing was started from scratch.")
    state = read.state
    whole = isinstance(state, dict) and set(state) == FIELDS and all(isinstance(state[each], dict) for each in FIELDS)
    if not whole:
        raise CheckpointError(f"snapshot {path} is a whole checkpoint but holds no snapshot; expected {sorted(FIELDS)}")
    digest = parse(disk.read_whole(path / MANIFEST, SIZE_LIMIT)).content_digest()
    return Snapshot(path, mark, state["about"], state["agent"], state["reward"], digest)


def collect_weights(cfg: RunConfig, parts: AnyParts) -> State:
    """The state of a snapshot: weights of agent and reward, and the settings and sizes they were made for."""
    tree = cfg.to_json()
    spaces = with_skills(parts.collector.pool.spaces, parts.curiosity.skills)
    return {
        "about": {
            "step": parts.collector.step_count,
            "env": tree["env"],
            "agent": tree["agent"],
            "reward": tree["reward"],
            "spaces": describe_spaces(spaces),
        },
        "agent": {name: value.detach().clone() for name, value in parts.agent.state_dict().items()},
        "reward": {name: value.detach().clone() for name, value in parts.curiosity.reward.state_dict().items()},
    }


def describe_spaces(spaces: Spaces) -> dict[str, object]:
    """Sizes of observations, actions and skills, as JSON."""
    return {
        "obs": {"kind": spaces.obs.kind, "shape": list(spaces.obs.shape)},
        "action": {"kind": spaces.action.kind, "width": spaces.action.width},
        "skill": spaces.skill,
    }
