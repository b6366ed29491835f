"""One update of S seeds: draw, score, learn the bonus, mix, critic, actor, target. Nothing is read back on the way.

    draw     windows of each seed's replay, by its own stream of random numbers
    bonus    Curiosity's five steps (intrigue.curiosity.curiosity), in their order
    agent    DDPG's (intrigue.agents.ddpg), in theirs; only the critic waits for the bonus, and for its score alone

The computations are those of a lone run, called for all seeds at once; on a GPU the whole of it is one CUDA graph.
Metrics are summed on the device, and read at the next synchronisation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import final

import torch
from torch import Tensor

from intrigue.agents import ddpg
from intrigue.agents.ddpg import DDPG, FlatBatch
from intrigue.curiosity.curiosity import Curiosity, Mixed
from intrigue.curiosity.trainer import REFUSAL
from intrigue.ops.execution import CudaGraph, SideStream
from intrigue.ops.philox import DeviceRng
from intrigue.ops.precision import exact_float32, fast_float32
from intrigue.rng import Rng
from intrigue.training.off_policy import ReplayParts
from intrigue.training.stacked.modules import Stacked, fuse_for_seeds, stack_modules
from intrigue.training.stacked.optimizer import StackedLoss
from intrigue.training.stacked.random import Draw, DrawRecorder, PreDrawn, draw
from intrigue.training.stacked.sampler import StackedSampler
from intrigue.types import Components, Extras, Prepared, Transitions

NOTED = (
    "intrinsic/raw_mean",
    "intrinsic/raw_std",
    "intrinsic/raw_max",
    "intrinsic/scaled_mean",
    "intrinsic/scale",
    "losses/intrinsic",
)
PART = "intrinsic/part/"
# Of work that could run at the same time a GPU takes first what has the lower number: what the critic waits for.
RANK = -1
RANKS = {"looks": RANK - 1, "inputs": RANK - 1, "score": RANK - 1, "values": RANK, "actions": 0, "bonus": 0}


@final
class Update:
    """Updates of all seeds at once."""

    def __init__(self, parts: Sequence[ReplayParts], agents: Stacked, *, captured: bool, compiled: bool) -> None:
        first = parts[0]
        agent, curiosity = first.agent, first.curiosity
        assert isinstance(agent, DDPG)
        self._seeds = [each.streams.seed for each in parts]
        self._idle = curiosity.cfg.idle
        self._coefficient = curiosity.coefficient()
        self._agents = agents
        self._rate = agent.cfg.target_rate
        self._curiosities = stack_modules([each.curiosity for each in parts])
        device = agent.middle.device
        # On a CPU there is little to gain from fusing the draw, and much to wait for.
        fuse = compiled and device.type == "cuda"
        self._shelves = StackedSampler([each.collector.replay for each in parts], compiled=fuse)
        size, width = agent.plan.batch, len(agent.middle)
        self._chance = DeviceRng([each.collector.replay.rng for each in parts], (2, size), "uniform")
        self._noise = DeviceRng([each.streams["update"] for each in parts], (2, size, width), "normal")
        self._bonus_streams = [each.curiosity.streams["reward"] for each in parts]
        self._slow, self._fast = (_named(agents, name) for name in ("target.", "critic."))
        solos = [each.agent for each in parts if isinstance(each.agent, DDPG)]
        criticism, action = (
            [getattr(each, name).optimizer for each in solos] for name in ("critic_step", "actor_step")
        )
        self._branches = {name: torch.cuda.Stream(device, rank) if captured else None for name, rank in RANKS.items()}
        descent = partial(StackedLoss, agents, refusal=ddpg.REFUSAL, compiled=compiled, aside=self._branches["looks"])
        self._critic = descent(DDPG.critic_loss_from_q, criticism, ahead="q_values")
        self._actor = descent(DDPG.actor_loss_from_actions, action, ahead="actor_actions")
        some = torch.zeros(len(parts), 2, size, dtype=torch.float64, device=device)
        names, self._bonus_draws = self._looked_at(some)
        learners = [each.curiosity.trainer.step for each in parts]
        self._bonus = None
        if not self._idle and learners[0] is not None:
            optimizers = [each.optimizer for each in learners if each is not None]
            self._bonus = StackedLoss(self._curiosities, _bonus_loss, optimizers, REFUSAL, compiled=compiled)
        self._names = (*NOTED, *(f"{PART}{name}" for name in names), *ddpg.NOTED)
        # In float64 sums of float32 are exact, so that means do not depend on when they are read.
        self._sums = torch.zeros(len(parts), len(self._names), dtype=torch.float64, device=device)
        self._judge = fuse_for_seeds(self._plain_judge) if fuse else self._plain_judge
        self._prepare = fuse_for_seeds(self._plain_prepare) if fuse else self._plain_prepare
        self._rows = fuse_for_seeds(self._plain_rows) if fuse else self._plain_rows
        self._next_action = fuse_for_seeds(self._plain_next_action) if fuse else self._plain_next_action
        self._next_value = fuse_for_seeds(self._plain_next_value) if fuse else self._plain_next_value
        self._note = fuse_for_seeds(self._plain_note) if fuse else self._plain_note
        self._sum = fuse_for_seeds(self._plain_sum) if fuse else self._plain_sum
        generators = [*self._chance.graph_generators, *self._noise.graph_generators, *self._bonus_streams]
        self._captured = CudaGraph(self._branched, generators, self._changes, priority=RANK) if captured else None
        self.count = 0
        """Updates since the last synchronisation."""

    def __call__(self) -> None:
        """One update; returns before a GPU is done with it."""
        for each in self._dice:
            each.load()
        if self._captured is not None:
            self._captured()
        else:
            self._once()
        self.count += 1

    def take(self) -> list[dict[str, float]]:
        """Sums of each seed's metrics since the last call. Waits for the device."""
        for each in self._descents():
            each.check(self._seeds)
        for dice in self._dice:
            dice.store()
        table = self._sums.tolist()
        self._sums.zero_()
        count, self.count = self.count, 0
        weight = {"intrinsic/coefficient": self._coefficient * count}
        return [{**dict(zip(self._names, row, strict=True)), **weight} for row in table]

    def _branched(self) -> None:
        with _branches_expected():
            self._once()

    def _once(self) -> None:
        """Branches that wait for nothing of each other run beside each other:

        draw ─┬─ what the bonus looks at ─ score ────────────┬─► critic steps ─┬─► actor steps
              └─ next actions ─┬─ their values ──────────────┤                 ├─ target follows
                               ├─ values ────────────────────┘                 │
                               ├─ actions that the actor proposes ─────────────┘
                               └─ gradients of the bonus's models, which step once there is a score

        Most begin later than they could: what the critic waits for longest shall have the GPU to itself.
        """
        with SideStream(self._branches["actions"]) as drawing:
            noise = self._noise.draw()
        with torch.no_grad(), exact_float32():
            batch, extras = self._shelves.draw(self._chance.draw())
        with SideStream(self._branches["inputs"]) as preparing, torch.no_grad(), exact_float32():
            prepared = self._prepare(batch)
        with SideStream(self._branches["score"]) as scoring, torch.no_grad(), exact_float32():
            preparing.wait()
            raw, parts, mixed = self._judge(batch, prepared)
        drawing.wait()
        with torch.no_grad(), fast_float32():
            next_action = self._next_action(batch, extras, noise[:, 0])
            rows = self._rows(batch, extras)
        with SideStream(self._branches["values"]) as valuing:
            values = self._critic.begin(rows.obs, rows.skill, rows.action)
        with SideStream(self._branches["actions"]) as proposing:
            proposed = self._actor.begin(rows.obs, rows.skill, noise[:, 1])
        with SideStream(self._branches["bonus"]):
            preparing.wait()
            loss = self._learn_bonus(prepared, parts, mixed.scale, scoring)
            noted = self._note(raw, mixed, loss, parts)
        with torch.no_grad(), fast_float32():
            value = self._next_value(rows, next_action)
        scoring.wait()
        valuing.wait()
        first = self._critic(values, mixed.reward.flatten(1), rows.discount, value, rows.valid)
        with SideStream(self._branches["values"]) as following, torch.no_grad():
            torch._foreach_lerp_(self._slow, self._fast, self._rate)
        proposing.wait()
        second = self._actor.slope(proposed, rows.obs, rows.skill, rows.valid)
        with SideStream(self._branches["bonus"]) as learning, torch.no_grad():
            self._sum(noted, first, second)
        self._actor.step()
        following.wait()
        learning.wait()

    def _plain_prepare(self, batch: Transitions) -> Prepared | None:
        """What is drawn as the bonus sees it."""
        return None if self._idle else self._curiosities.call("encode", batch)

    def _plain_rows(self, batch: Transitions, extras: Extras) -> FlatBatch:
        """And as DDPG learns from it, with the task's rewards."""
        rows: FlatBatch = self._agents.call("flatten_batch", batch, batch.reward, extras)
        return rows

    def _plain_judge(self, batch: Transitions, prepared: Prepared | None) -> tuple[Tensor, Components, Mixed]:
        """What a draw is worth. Rewards are mixed before the bonus learns: neither looks at the other."""
        raw, parts = torch.zeros_like(batch.reward), {}
        if prepared is not None:
            raw, parts = self._curiosities.call("compute_bonus", prepared)
        mixed: Mixed = self._curiosities.call("mix", batch, raw, self._coefficient)
        return raw, parts, mixed

    def _plain_next_action(self, batch: Transitions, extras: Extras, noise: Tensor) -> Tensor:
        # Not the rows that `_once` makes next: their kernels would come first. Compiled, only what is read is computed.
        rows = self._plain_rows(batch, extras)
        action: Tensor = self._agents.call("next_action", rows.next_obs, rows.skill, noise)
        return action

    def _plain_next_value(self, rows: FlatBatch, action: Tensor) -> Tensor:
        value: Tensor = self._agents.call("target_value", rows.next_obs, rows.skill, action)
        return value

    def _learn_bonus(self, prepared: Prepared | None, parts: Components, like: Tensor, scoring: SideStream) -> Tensor:
        """The loss (S,) of the bonus's models, which move down it; zeros `like` these where there are none.

        They are read by the score, and so must not move before it is there.
        """
        if self._bonus is None:
            loss = torch.zeros_like(like)
        else:
            loss = self._bonus.slope(prepared, draw(self._bonus_draws, self._bonus_streams))
        scoring.wait()
        if self._bonus is not None:
            self._bonus.step()
        if not self._idle:
            self._curiosities.call(_observe, prepared, parts)
        return loss

    @torch.no_grad()
    def _plain_note(self, raw: Tensor, mixed: Mixed, loss: Tensor, parts: Components) -> Tensor:
        """Numbers (S, ...) in the order of `_names`, without DDPG's."""
        flat = raw.flatten(1)
        spread, mean = torch.var_mean(flat, -1, correction=0)
        made_of = (part.flatten(1).mean(-1) for part in parts.values())
        values = (mean, spread.sqrt(), flat.amax(-1), mean / mixed.scale, mixed.scale, loss, *made_of)
        return torch.stack(values, -1)

    @torch.no_grad()
    def _plain_sum(self, *noted: Tensor) -> None:
        self._sums.add_(torch.cat(noted, -1))

    @torch.no_grad()
    def _looked_at(self, chance: Tensor) -> tuple[list[str], list[Draw]]:
        """Names of this bonus's components and the draws of its loss, found on one batch; changes no state."""
        asked = DrawRecorder(chance.device)
        if self._idle:
            return [], asked.draws
        with exact_float32():
            batch, _ = self._shelves.draw(chance)
            prepared, _, parts = self._curiosities.call("prepare_and_score", batch)
        self._curiosities.call(_bonus_loss, prepared, asked)
        return list(parts), asked.draws

    @property
    def _dice(self) -> tuple[DeviceRng, DeviceRng]:
        return self._chance, self._noise

    def _descents(self) -> list[StackedLoss]:
        return [each for each in (self._bonus, self._critic, self._actor) if each is not None]

    def _changes(self) -> Iterator[Tensor]:
        yield self._sums
        for dice in self._dice:
            yield from dice.mutated_tensors()
        yield from self._slow
        yield from self._curiosities.fixed.values()
        for each in self._descents():
            yield from each.changes()


@contextlib.contextmanager
def _branches_expected() -> Iterator[None]:
    """Gradients may arrive in another stream than their weights were read in first: torch waits, and would warn."""
    # The name is torch's, from 2.10 on.
    warn = getattr(torch.autograd.graph, "set_warn_on_accumulate_grad_stream_mismatch", lambda on: None)
    warn(False)
    try:
        yield
    finally:
        warn(True)


def _named(stacked: Stacked, prefix: str) -> list[Tensor]:
    return [tensor for name, tensor in stacked.tensors().items() if name.startswith(prefix)]


def _bonus_loss(curiosity: Curiosity, batch: Prepared, rng: Rng) -> tuple[Tensor, Tensor]:
    loss = curiosity.reward.loss(batch, rng)
    if isinstance(rng, PreDrawn):
        rng.finish()
    return loss, loss


@torch.no_grad()
def _observe(curiosity: Curiosity, batch: Prepared, parts: Components) -> Tensor:
    with exact_float32():
        curiosity.reward.observe(batch, parts)
    return batch.reward  # a computation for all seeds must give something
