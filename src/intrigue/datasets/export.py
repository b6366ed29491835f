"""Exports the episodes in a run's replay buffer, read from its checkpoint; no environment is started.

Only whole episodes are exported: not those under way when the checkpoint was taken, nor those whose first steps were
overwritten. The number of transitions left out is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from intrigue.datasets import exorl, minari
from intrigue.datasets.sealed_folder import new_folder, refuse_taken, seal
from intrigue.errors import CheckpointError, ConfigError, Problem
from intrigue.replay.recording import Recording, Recordings, spaces_from_state, spaces_to_state
from intrigue.replay.ring import row_layout
from intrigue.replay.sampling import Episodes
from intrigue.replay.step_store import StepStore
from intrigue.run import checkpoint, disk
from intrigue.run.checkpoint.manifest import MANIFEST, SIZE_LIMIT, parse
from intrigue.run.folder import open_run, read_config
from intrigue.spaces import Spaces

NAMES = {"env": "id", "agent": "name", "reward": "name"}  # where config.json has them


@dataclass(frozen=True, slots=True)
class RunData:
    """The contents of a run's replay buffer."""

    recordings: Recordings
    spaces: Spaces
    stack: int
    left_out: int
    """Stored transitions of episodes that are not whole."""
    origin: dict[str, Any]
    """The run they come from, for export.json."""


def read_run(path: Path, *, on_skip: Callable[[str], None]) -> RunData:
    """The whole episodes in the newest whole checkpoint of the run at `path`.

    Raises:
        ConfigError: the agent has no replay, or no episode in it is whole.
        CheckpointError: there is no whole checkpoint, or it was written before replays said their sizes.
    """
    run = open_run(path)
    config = read_config(run)
    saved = checkpoint.load(run.checkpoints, on_skip=on_skip)
    kept = saved.state["collector"].get("replay")
    names = {part: config[part][name] for part, name in NAMES.items()}
    if kept is None:
        text = f"{path}: its agent {names['agent']!r} has no replay, so there is nothing to export. Agents that learn "
        raise ConfigError([Problem("DIR", text + "from replay have one, such as dqn and ddpg.")])
    if "sizes" not in kept:
        raise CheckpointError(
            f"{saved.path} was written by an earlier version, which did not note the sizes of its replay. "
            "`intrigue resume` with more --steps goes on with the run and saves it as it is needed."
        )
    store, spaces = _load_store(kept)
    episodes, left_out = _whole_episodes(store)
    if not episodes:
        text = f"{path} holds no whole episode at step {saved.step}: {left_out} transitions of unfinished ones. "
        raise ConfigError([Problem("DIR", text + "Train until one has ended.")])
    lengths = [last - first + 1 for first, last, _ in episodes]
    digest = parse(disk.read_whole(saved.path / MANIFEST, SIZE_LIMIT)).content_digest()
    sizes = {"environments": store.num_envs, "step": saved.step}
    origin = {**names, "run": path.resolve().name, **sizes, "digest": digest}
    recordings = Recordings(lengths, _Stored(store, episodes))
    return RunData(recordings, spaces, store.stack, left_out, origin)


def export_run(path: Path, to: Path, form: Literal["exorl", "minari"], *, on_skip: Callable[[str], None]) -> RunData:
    """Write the whole episodes of the run at `path` to the new folder `to`, and return them.

    Raises:
        ConfigError: there is nothing to export, or `to` is taken or, for Minari, cannot be a dataset's name.
        CheckpointError: the run is damaged.
        StorageError: the disk refused; `to` does not exist then.
    """
    refuse_taken(to)
    if form == "minari":
        minari.refuse_name(to)
    data = read_run(path, on_skip=on_skip)
    with new_folder(to) as place:
        if form == "minari":
            algorithm = f"{data.origin['agent']} with {data.origin['reward']}"
            names = minari.write(place, data.recordings, data.spaces, to.name, algorithm)
        else:
            names = exorl.write(place, data.recordings)
        about = {"format": form, "origin": data.origin, "spaces": spaces_to_state(data.spaces), "stack": data.stack}
        seal(place, names, {**about, "episodes": len(data.recordings), "transitions": data.recordings.transitions})
    return data


@dataclass(frozen=True, slots=True)
class _Stored:
    """Assembles episodes from rows, one at a time."""

    store: StepStore
    episodes: list[tuple[int, int, int]]

    def __iter__(self) -> Iterator[Recording]:
        return (_recording(self.store, *each) for each in self.episodes)


def _load_store(kept: Any) -> tuple[StepStore, Spaces]:
    """The rows of the run's replay buffer, in host memory."""
    sizes = kept["sizes"]
    spaces, stack = spaces_from_state(sizes["spaces"]), int(sizes["stack"])
    layout, capacity, num_envs = row_layout(spaces, stack), sizes["capacity"], sizes["num_envs"]
    store = StepStore(layout, capacity, num_envs, stack, device=torch.device("cpu"), window=1)
    store.load_state_dict(kept["keep"])
    return store, spaces


def _whole_episodes(store: StepStore) -> tuple[list[tuple[int, int, int]], int]:
    """(first step, last step, environment) of each, in the order they ended; and the number of other transitions."""
    index = Episodes(store)
    index.rebuild(store)
    whole = []
    for first, last, env in index.finished():
        begin = store.rows(torch.tensor(first), torch.tensor(env))
        if int(store.ring.get("back", begin)) == 0:
            whole.append((first, last, env))
    valid = int(store.episode_ends(store.first, store.steps)[1].sum()) if store.steps > store.first else 0
    return whole, valid - sum(last - first + 1 for first, last, _ in whole)


def _recording(store: StepStore, first: int, last: int, env: int) -> Recording:
    ring = store.ring
    rows = store.rows(torch.arange(first, last + 1), torch.tensor(env))
    states = torch.cat([rows, ring.after(rows[-1:])])
    return Recording(
        observations=ring.observations(states, store.stack).numpy(),
        actions=ring.get("action", rows).numpy(),
        rewards=ring.get("reward", rows).numpy(),
        skills=ring.get("skill", rows).numpy(),
        terminated=bool(ring.get("terminated", rows[-1])),
        truncated=bool(ring.get("truncated", rows[-1])),
    )
