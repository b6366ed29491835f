"""`intrigue bench rewards`: what each reward costs, as a table and as JSON.

What each reward costs: scoring and learning per transition, its share of a training iteration, its memory.

The rollout is random data of fixed sizes, so that only the reward differs:

    pixels   4 × 84 × 84 bytes, 6 actions (Atari);      vector   24 numbers, 6 continuous actions (walker)
    128 steps of 8 environments on a CPU, of 128 on a GPU

score   preparing the batch (normalisation) and the bonus itself;   learn   all epochs of the reward's models, and its
memories;   share   score + learn over score + learn + acting and PPO's update; the environment's own time is left out,
so a real run's share is smaller.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from intrigue.agents.ppo import PPO, PPOConfig
from intrigue.bench.machine import machine, peak_bytes
from intrigue.bench.timing import medians
from intrigue.config.curiosity import CuriosityConfig
from intrigue.curiosity.curiosity import Curiosity
from intrigue.errors import ConfigError, Problem, unknown_name
from intrigue.ops.precision import exact_float32
from intrigue.rewards.registry import REWARDS
from intrigue.rng import seeded_construction
from intrigue.run.outputs import require_writable, write_text
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.training.build import pick_device
from intrigue.types import Components, Prepared, Stream, Transitions

SPACES = {
    "pixels": Spaces(ObsSpec("pixels", (4, 84, 84)), ActionSpec("discrete", sizes=(6,))),
    "vector": Spaces(ObsSpec("vector", (24,)), ActionSpec("continuous", low=(-1.0,) * 6, high=(1.0,) * 6)),
}
STEPS = 128
ENVS = {"cpu": 8, "cuda": 128}


@dataclass(frozen=True)
class Cost:
    """One row of the table."""

    reward: str
    space: str
    score_us: float
    learn_us: float
    share: float
    peak_mib: float | None


def costs(names: Sequence[str], spaces: Sequence[str], device: torch.device, rounds: int) -> Iterator[Cost]:
    """The costs of the named rewards on the named spaces, one after another."""
    for space in spaces:
        batch = random_rollout(SPACES[space], STEPS, ENVS[device.type], device)
        rest = agent_milliseconds(SPACES[space], batch, device, rounds)
        for name in names:
            yield cost(name, space, batch, rest, device, rounds)


def cost(name: str, space: str, batch: Transitions, rest: float, device: torch.device, rounds: int) -> Cost:
    """One reward on one rollout; `rest` is what the agent takes for it, in milliseconds."""
    curiosity = make_curiosity(name, SPACES[space], device)
    if curiosity.skills is not None:
        drawn = curiosity.skills.draw(batch.reward.numel(), curiosity.streams["skill"])
        batch = batch.replace(skill=drawn.unflatten(0, batch.reward.shape))

    def score() -> tuple[Prepared, Components]:
        with torch.no_grad(), exact_float32():
            prepared = curiosity.encode(batch)
            return prepared, curiosity.reward.score_parts(prepared)[1]

    prepared, parts = score()

    def learn() -> None:
        curiosity.trainer.fit(prepared)
        with torch.no_grad():
            curiosity.reward.observe(prepared, parts)

    def iterate() -> None:
        score()
        learn()

    taken = medians({"score": score, "learn": learn}, device, rounds)
    peak = peak_bytes(iterate, device)
    rows = batch.reward.numel()
    return Cost(
        name,
        space,
        score_us=1e3 * taken["score"] / rows,
        learn_us=1e3 * taken["learn"] / rows,
        share=sum(taken.values()) / (sum(taken.values()) + rest),
        peak_mib=None if peak is None else peak / 2**20,
    )


def make_curiosity(name: str, spaces: Spaces, device: torch.device) -> Curiosity:
    """The reward as a run would build it, with default settings."""
    declared = REWARDS.declaration(name)
    options = {key: declared.default(key) for key in declared.hints()}
    return Curiosity.from_config(name, options, CuriosityConfig(), spaces, device=device, seed=0)


def random_rollout(spaces: Spaces, time: int, envs: int, device: torch.device) -> Transitions:
    """A rollout of noise in which every environment ends one episode; successors continue where none ended."""
    rng = torch.Generator().manual_seed(0)
    lead = (time, envs)
    if spaces.obs.kind == "pixels":
        frames = torch.randint(0, 256, (time + 1, envs, *spaces.obs.shape), generator=rng, dtype=torch.uint8)
    else:
        frames = torch.randn(time + 1, envs, *spaces.obs.shape, generator=rng)
    if spaces.action.kind == "continuous":
        action = torch.rand(*lead, *spaces.action.shape, generator=rng) * 2 - 1
    else:
        action = torch.randint(spaces.action.sizes[0], lead, generator=rng)
    truncated = torch.zeros(lead, dtype=torch.bool)
    truncated[torch.arange(envs) * 7 % time, torch.arange(envs)] = True
    batch = Transitions(
        obs=frames[:-1],
        action=action,
        reward=torch.zeros(lead),
        terminated=torch.zeros(lead, dtype=torch.bool),
        truncated=truncated,
        next_obs=frames[1:].clone(),
        valid=torch.ones(lead, dtype=torch.bool),
        skill=torch.zeros(*lead, 0),
    )
    return Transitions(**{each.name: getattr(batch, each.name).to(device) for each in dataclasses.fields(batch)})


def agent_milliseconds(spaces: Spaces, batch: Transitions, device: torch.device, rounds: int) -> float:
    """Milliseconds PPO takes to act through the rollout and to learn from it."""
    with seeded_construction(0, "bench/agent"):
        agent = PPO(PPOConfig(), spaces, ("total",)).to(device)
    rng = torch.Generator(device).manual_seed(0)

    def iterate() -> None:
        acted = [agent.act(batch.obs[t], batch.skill[t], explore=True, rng=rng) for t in range(batch.obs.shape[0])]
        noted = {key: torch.stack([each.extras[key] for each in acted]) for key in acted[0].extras}
        last = {"last_obs": batch.next_obs[-1], "last_skill": batch.skill[-1]}
        agent.update(batch, [Stream("total", batch.reward, 1.0)], {**noted, **last}, rng=rng, step=0)

    return medians({"agent": iterate}, device, rounds)["agent"]


HEADER = f"{'space':<8}{'reward':<15}{'score µs':>10}{'learn µs':>10}{'share':>8}{'peak MiB':>10}\n"


def command(
    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="[REWARD ...]", help="rewards to measure; all of them if none is named"),
    ] = (),
    space: Annotated[Literal["all", "pixels", "vector"], tyro.conf.arg(help="observations")] = "all",
    device: Annotated[Literal["auto", "cpu", "cuda"], tyro.conf.arg(help="where")] = "auto",
    rounds: Annotated[int, tyro.conf.arg(metavar="N", help="timed calls of each")] = 5,
    json_file: Annotated[
        Path | None, tyro.conf.arg(name="json", metavar="FILE", help="write the table as JSON")
    ] = None,
) -> int:
    """What each reward costs, per transition of a rollout, with its default settings.

    score is normalising and scoring, learn all epochs of its models and its memories, share both over both and PPO's
    acting and learning (no environment), peak the memory needed above what was held before.

    Examples:
      intrigue bench rewards
      intrigue bench rewards rnd nnm --space vector --json costs.json
    """
    known = REWARDS.names()
    wrong = [
        Problem("reward", unknown_name(name, known, "See `intrigue list rewards`."))
        for name in names
        if name not in known
    ]
    if rounds < 1:
        wrong.append(Problem("rounds", f"{rounds}, at least 1 is needed."))
    if wrong:
        raise ConfigError(wrong)
    require_writable(json=json_file)
    chosen = pick_device(device)
    spaces = tuple(SPACES) if space == "all" else (space,)
    # A mixture without an expression has nothing to measure.
    measured = names or tuple(name for name in known if name != "mix")
    rows: list[Cost] = []
    sys.stderr.write(f"rollouts of {STEPS} x {ENVS[chosen.type]} transitions on {chosen.type}\n")
    sys.stdout.write(HEADER)
    for row in costs(measured, spaces, chosen, rounds):
        rows.append(row)
        sys.stdout.write(line(row))
        sys.stdout.flush()
    if json_file is not None:
        about = {"target": "rewards", **machine(chosen), "rollout": [STEPS, ENVS[chosen.type]]}
        write_text(json_file, json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    return 0


def line(row: Cost) -> str:
    """The row as text, under HEADER."""
    peak = "-" if row.peak_mib is None else f"{row.peak_mib:.0f}"
    return f"{row.space:<8}{row.reward:<15}{row.score_us:>10.1f}{row.learn_us:>10.1f}{row.share:>8.1%}{peak:>10}\n"
