"""What every bonus promises, on the maze itself: less for a state seen often, more for one never seen.

Eight walkers stay in the first room of `rooms` for 25 rollouts of one long episode while the reward watches and learns.
Then one of them is moved into the farthest room, in the middle of its episode. Margins are stated for each reward; a
bonus that promises something else says so, and why, in the two tables.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from intrigue.config.curiosity import CuriosityConfig
from intrigue.curiosity.curiosity import Curiosity
from intrigue.envs.maze import VectorView, build_maze
from intrigue.rewards import REWARDS
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Transitions

TIME, ENVS, ROLLOUTS = 32, 8, 25
ROOMS, ROOM_SIZE = 3, 4
MAZE = build_maze(ROOMS, ROOM_SIZE, 1)
VIEW = VectorView(MAZE)
SPACES = Spaces(ObsSpec("vector", VIEW.space.shape), ActionSpec("discrete", sizes=(4,)))
SMALL = {"feature_dim": 32, "hidden": 32, "blocks": 1}

# Bonus of the unseen room over that of the familiar one: at least this, where the usual factor of 2 is too much.
NOVEL = 2.0
SMALLER_NOVEL = {
    "nnm": (1.3, "a ratio with a constant floor: its whole range is a factor of √5"),
    "smm": (1.05, "log-densities: differences count, not factors"),
}
# Bonus of the familiar room at the end over that in the second rollout: at most this.
FAMILIAR = 0.75
# Bonuses that promise no fall over time, only that the rare pays more than the common.
RELATIVE = {
    "aps": "compares states within the batch, in units of the usual distance",
    "apt": "compares states within the batch",
    "cic": "compares states within the batch, in units of the usual distance",
    "re3": "compares states within the batch; zero where every state came up more than k times",
    "rnd_alpha": "an error in units of the usual error",
    "smm": "log-densities of states under skills",
}
OTHER = {
    "none": "pays nothing",
    "random": "pays chance",
    "mix": "what its parts promise",
    "diayn": "pays for telling skills apart, wherever",
}


def room_cells(row: int, column: int) -> list[int]:
    """The places of one room."""
    pitch = ROOM_SIZE + 1
    inside = range(1, ROOM_SIZE + 1)
    return [MAZE.place_at((row * pitch + r, column * pitch + c)) for r in inside for c in inside]


def walk(cells: list[int], start: int, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Places (TIME + 1) and actions (TIME) of a random walk that does not leave the cells."""
    places, actions = [start], []
    for _ in range(TIME):
        action = int(rng.integers(4))
        ahead = MAZE.moves[places[-1]][action]
        places.append(ahead if ahead in cells else places[-1])
        actions.append(action)
    return places, actions


def rollout(rooms: list[list[int]], starts: list[int], seed: int) -> tuple[Transitions, list[int]]:
    """One rollout of every walker in its own cells, and where each ended."""
    walks = [
        walk(cells, start, np.random.default_rng([seed, i]))
        for i, (cells, start) in enumerate(zip(rooms, starts, strict=True))
    ]
    places = np.array([places for places, _ in walks]).T  # (TIME + 1, ENVS)
    seen = torch.from_numpy(np.array([[VIEW(place) for place in row] for row in places]))
    lead = (TIME, ENVS)
    never = torch.zeros(lead, dtype=torch.bool)
    batch = Transitions(
        obs=seen[:-1],
        action=torch.tensor([actions for _, actions in walks]).T,
        reward=torch.zeros(lead),
        terminated=never,
        truncated=never,
        next_obs=seen[1:],
        valid=~never,
        skill=torch.zeros(*lead, 0),
    )
    return batch, [int(place) for place in places[-1]]


def watched(name: str) -> tuple[float, float, float]:
    """Mean bonus of the familiar room at the start and at the end, and of the unseen room at the end."""
    torch.manual_seed(0)
    declared = REWARDS.declaration(name)
    options = {key: SMALL.get(key, declared.default(key)) for key in declared.hints()}
    cfg = CuriosityConfig(obs_norm="none", learning_rate=1e-3, minibatches=4)
    curiosity = Curiosity.from_config(name, options, cfg, SPACES, device="cpu", seed=0)
    home, far = room_cells(0, 0), room_cells(ROOMS - 1, ROOMS - 1)
    starts, means = [home[0]] * ENVS, []
    for seed in range(ROLLOUTS):
        batch, starts = rollout([home] * ENVS, starts, seed)
        means.append(float(curiosity.step_batch(skilled(curiosity, batch, seed)).intrinsic.mean()))
    batch, _ = rollout([far, *[home] * (ENVS - 1)], [far[0], *starts[1:]], ROLLOUTS)
    last = curiosity.step_batch(skilled(curiosity, batch, ROLLOUTS)).intrinsic
    # The second rollout, not the first: a bonus may need one to fill its memory.
    return means[1], float(last[:, 1:].mean()), float(last[:, 0].mean())


def skilled(curiosity: Curiosity, batch: Transitions, seed: int) -> Transitions:
    """The batch with one skill per walker and rollout, where the reward wants any."""
    if curiosity.skills is None:
        return batch
    drawn = curiosity.skills.draw(ENVS, torch.Generator().manual_seed(seed))
    return batch.replace(skill=drawn.expand(TIME, ENVS, -1))


@pytest.mark.parametrize("name", [name for name in REWARDS.names() if name not in OTHER])
def test_the_unseen_pays_more_and_the_familiar_less_and_less(name: str) -> None:
    first, familiar, novel = watched(name)
    margin, _ = SMALLER_NOVEL.get(name, (NOVEL, ""))
    assert novel > margin * familiar, f"unseen {novel:.4g}, familiar {familiar:.4g}"
    if name not in RELATIVE:
        assert familiar < FAMILIAR * first, f"familiar {familiar:.4g}, at first {first:.4g}"
