"""Episodes as a Minari dataset (extra `minari`), which `minari.load_dataset` and `minari.MinariDataset` read.

    FOLDER/data/main_data.hdf5, metadata.json

The folder's name is the dataset's id, so it must end in a version: `walker-v0`. Images are stored uncompressed, not as
JPEG. Skills are in the infos as `skill` (T+1, K), the last row repeated, since infos have one row for every state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from intrigue.datasets.sealed_folder import Sealed
from intrigue.errors import CheckpointError, ConfigError, Problem
from intrigue.replay.recording import Recording, Recordings, validate_recording
from intrigue.run import disk
from intrigue.spaces import ActionSpec, ObsSpec, Spaces

DATA = "data"
FILES = (f"{DATA}/main_data.hdf5", f"{DATA}/metadata.json")
NAME = re.compile(r"[-\w]+-v\d+", re.ASCII)


def refuse_name(target: Path) -> None:
    """Raise ConfigError unless the folder's name can be a dataset's id and Minari is installed."""
    if not NAME.fullmatch(target.name):
        text = f"{target.name!r} cannot be a dataset's id: Minari wants letters, digits, - and _, then a version. "
        raise ConfigError([Problem("--to", text + "Use for example walker-v0.")])
    _minari()


def write(folder: Path, recordings: Recordings, spaces: Spaces, dataset_id: str, algorithm: str) -> list[str]:
    """The names of the files written."""
    minari = _minari()
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    place = folder / DATA
    storage = MinariStorage.new(
        place, _obs_space(spaces.obs), _action_space(spaces.action), data_format="hdf5", jpeg_encoding=False
    )
    storage.update_metadata(
        {"dataset_id": dataset_id, "minari_version": minari.__version__, "algorithm_name": algorithm}
    )
    storage.update_episodes(_buffer(EpisodeBuffer, each) for each in recordings)
    for name in FILES:
        with open(folder / name, "rb") as file:
            disk.flush_to_disk(file.fileno())
    disk.flush_folder(place)
    return list(FILES)


def read(sealed: Sealed) -> Recordings:
    """The episodes of a dataset."""
    for name in FILES:
        sealed.check(name)
    _minari()
    from minari.dataset.minari_storage import MinariStorage

    try:
        storage = MinariStorage.read(sealed.folder / DATA)
        about = list(storage.get_episode_metadata(range(storage.total_episodes)))
        lengths = [int(each["total_steps"]) for each in about]
    except (OSError, ValueError, KeyError, AssertionError, TypeError) as error:
        raise CheckpointError(f"{sealed.folder}: Minari cannot read {FILES[0]}: {error}") from error
    return Recordings(lengths, _Dataset(sealed.folder, storage))


@dataclass(frozen=True, slots=True)
class _Dataset:
    folder: Path
    storage: Any

    def __iter__(self) -> Iterator[Recording]:
        for index in range(self.storage.total_episodes):
            name = f"{self.folder}: episode_{index}"
            try:
                [episode] = self.storage.get_episodes([index])
                recording = _recording(episode)
            except (OSError, ValueError, KeyError, AssertionError, TypeError, IndexError) as error:
                raise CheckpointError(f"{name} cannot be read: {error}") from error
            yield validate_recording(recording, name)


def _buffer(kind: Any, recording: Recording) -> Any:
    last = np.arange(len(recording)) == len(recording) - 1
    skills = recording.skills
    return kind(
        observations=recording.observations,
        actions=recording.actions,
        rewards=recording.rewards,
        terminations=last & recording.terminated,
        truncations=last & recording.truncated,
        infos={"skill": np.concatenate([skills, skills[-1:]])} if skills.shape[1] else None,
    )


def _recording(episode: Any) -> Recording:
    actions = np.asarray(episode["actions"])
    infos = episode.get("infos") or {}
    if isinstance(episode["observations"], dict | tuple):
        raise ValueError("observations in several parts; flatten them to one array")
    terminated, truncated = episode["terminations"], episode["truncations"]
    if (np.asarray(terminated)[:-1] | np.asarray(truncated)[:-1]).any() or not (terminated[-1] or truncated[-1]):
        raise ValueError("its only end must be its last step")
    return Recording(
        observations=np.asarray(episode["observations"]),
        actions=actions,
        rewards=np.asarray(episode["rewards"]),
        skills=np.asarray(infos["skill"])[:-1] if "skill" in infos else np.zeros((len(actions), 0), np.float32),
        terminated=bool(terminated[-1]),
        truncated=bool(truncated[-1]),
    )


def _obs_space(spec: ObsSpec) -> gym.Space[Any]:
    if spec.kind == "pixels":
        return gym.spaces.Box(0, 255, spec.shape, np.uint8)
    return gym.spaces.Box(-np.inf, np.inf, spec.shape, np.float32)


def _action_space(spec: ActionSpec) -> gym.Space[Any]:
    if spec.kind == "discrete":
        return gym.spaces.Discrete(spec.sizes[0])
    if spec.kind == "multi-discrete":
        return gym.spaces.MultiDiscrete(list(spec.sizes))
    low, high = (np.array(side, np.float32) for side in (spec.low, spec.high))
    return gym.spaces.Box(low, high, dtype=np.float32)


def _minari() -> Any:
    try:
        import h5py  # noqa: F401
        import minari
    except ImportError as error:
        text = "Minari datasets need the extra `minari`: pip install 'intrigue[minari]'"
        raise ConfigError([Problem("--format", text)]) from error
    return minari
