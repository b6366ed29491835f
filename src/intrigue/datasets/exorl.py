"""Episodes in ExORL's layout: one compressed `.npz` each, `episode_<index>_<length>.npz` (Yarats et al. 2022).

Facts of the layout, from ExORL's replay_buffer.py and URLB's, which writes such files:

    observation (T+1, *obs)   row 0 is the first state; row t is the state that action t led to
    action      (T+1, *act)   row 0 is a dummy of zeros
    reward      (T+1, 1)      row 0 is 0
    discount    (T+1, 1)      1, and 0 in the last row if the episode ended in a terminal state
    physics     (T+1, P)      the simulator's state; not recorded here, ignored when read

A transition is (observation[t-1], action[t], reward[t], discount[t], observation[t]). A truncated episode ends
with discount 1. Two keys are ours: `skill` (T+1, K), the skill that action t followed (URLB has such keys too, one row
later than its own sampler reads them), and `truncated` (T+1, 1), only where both ends coincide.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intrigue.datasets.sealed_folder import Sealed, write_member
from intrigue.errors import CheckpointError
from intrigue.replay.recording import Recording, Recordings, validate_recording
from intrigue.spaces import Array

NAME = re.compile(r"episode_(\d{1,12})_(\d{1,12})\.npz", re.ASCII)
NEEDED = ("observation", "action", "reward", "discount")


def write(folder: Path, recordings: Recordings) -> list[str]:
    """The names of the files written, one for each episode."""
    names = []
    for index, recording in enumerate(recordings):
        names.append(f"episode_{index:06d}_{len(recording)}.npz")
        content = io.BytesIO()
        np.savez_compressed(content, **_keys(recording))  # type: ignore[arg-type]
        write_member(folder / names[-1], content.getvalue())
    return names


def list_episodes(folder: Path) -> list[str]:
    """The names of a folder's episodes, in order."""
    matches = [(match, path.name) for path in folder.glob("*.npz") if (match := NAME.fullmatch(path.name))]
    return [name for match, name in sorted(matches, key=lambda each: int(each[0][1]))]


def read(sealed: Sealed) -> Recordings:
    """The episodes of a folder."""
    names = list_episodes(sealed.folder)
    lengths = [int(match[2]) for name in names if (match := NAME.fullmatch(name))]
    return Recordings(lengths, _Files(sealed, dict(zip(names, lengths, strict=True))))


@dataclass(frozen=True, slots=True)
class _Files:
    sealed: Sealed
    lengths: Mapping[str, int]

    def __iter__(self) -> Iterator[Recording]:
        for name, length in self.lengths.items():
            recording = validate_recording(_recording(_arrays(self.sealed, name), name), name)
            if len(recording) != length:
                raise CheckpointError(f"{name} holds {len(recording)} transitions, its name says {length}")
            yield recording


def _keys(recording: Recording) -> dict[str, Array]:
    length = len(recording)
    discount = np.ones((length + 1, 1), np.float32)
    discount[-1] = 0.0 if recording.terminated else 1.0
    keys = {
        # ExORL takes an episode's length from the first key.
        "observation": recording.observations,
        "action": _with_dummy(recording.actions),
        "reward": _with_dummy(recording.rewards[:, None]),
        "discount": discount,
    }
    if recording.skills.shape[1]:
        keys["skill"] = np.concatenate([recording.skills[:1], recording.skills])
    if recording.terminated and recording.truncated:
        keys["truncated"] = np.arange(length + 1)[:, None] == length
    return keys


def _with_dummy(rows: Array) -> Array:
    return np.concatenate([np.zeros_like(rows[:1]), rows])


def _arrays(sealed: Sealed, name: str) -> dict[str, Array]:
    content = sealed.content(name)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {key: file[key] for key in file.files if key in (*NEEDED, "skill", "truncated")}
    except (
        zipfile.BadZipFile,
        zlib.error,
        ValueError,
        EOFError,
        OSError,
        KeyError,
        TypeError,
        AttributeError,
    ) as error:
        raise CheckpointError(f"{name} is damaged: {str(error) or type(error).__name__}") from error


def _recording(arrays: dict[str, Array], name: str) -> Recording:
    missing = [key for key in NEEDED if key not in arrays]
    if missing:
        raise CheckpointError(f"{name} has no {', '.join(missing)}; an episode has {', '.join(NEEDED)}")
    rows = {key: len(array) if array.ndim else 0 for key, array in arrays.items()}
    if len(set(rows.values())) > 1 or not rows["action"]:
        raise CheckpointError(f"{name} does not hold an episode: its keys have different numbers of rows, {rows}")
    if any(arrays[key].size != rows[key] for key in ("reward", "discount")):
        raise CheckpointError(f"{name} does not hold an episode: reward and discount must be one number in each row")
    reward, discount = arrays["reward"].reshape(-1), arrays["discount"].reshape(-1)
    if not (discount[1:-1] == 1).all() or discount[-1] not in (0, 1):
        raise CheckpointError(f"{name}: discounts must be 1, and 0 or 1 in the last row")
    terminated = bool(discount[-1] == 0)
    skills = arrays.get("skill", np.zeros((rows["action"], 0), np.float32))
    return Recording(
        observations=arrays["observation"],
        actions=arrays["action"][1:],
        rewards=reward[1:],
        skills=skills[1:],
        terminated=terminated,
        truncated=bool(arrays["truncated"][-1].any()) if "truncated" in arrays else not terminated,
    )
