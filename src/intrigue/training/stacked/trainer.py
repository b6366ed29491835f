"""Several seeds of one setting that step and learn together.

Each seed is an ordinary `ReplayParts`, whose weights, moments and replay become rows of stacked tensors: its state can
be saved, evaluated and loaded as that of a lone run, and what it computes is what a lone run computes, up to the order
of floating-point sums. All seeds are always at the same step.

A run can be trained stacked if every update has fixed shapes and never synchronises with the host
(`why_not_stackable`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import final

import torch

from intrigue.agents.ddpg import DDPG
from intrigue.curiosity.curiosity import Curiosity
from intrigue.envs.pool.pool import PoolStep
from intrigue.errors import RunError, name_seed_in_errors
from intrigue.ops.execution import uses_cuda_graph
from intrigue.ops.triton_support import triton_available
from intrigue.replay.host_staging import HostStaging
from intrigue.replay.plan import updates_due
from intrigue.spaces import Array
from intrigue.training.off_policy import ReplayParts
from intrigue.training.stacked.actor import StackedActor
from intrigue.training.stacked.modules import stack_modules
from intrigue.training.stacked.update import Update
from intrigue.types import Episode, Metrics, Progress

NOBODY = contextlib.nullcontext()


@final
class StackedTrainer:
    """Trains the parts of S runs for which `why_not_stackable` gives None."""

    def __init__(self, parts: Sequence[ReplayParts]) -> None:
        self.parts = list(parts)
        agent = parts[0].agent
        assert isinstance(agent, DDPG)
        self.plan = agent.plan
        self.num_envs = parts[0].collector.pool.num_envs
        self.log_every = agent.rollout_steps * self.num_envs
        device = agent.middle.device
        mode = agent.critic_step.mode
        captured = uses_cuda_graph(mode, device)
        self._agents = stack_modules([each.agent for each in parts])
        # Compiling takes half a minute, which pays for a graph that is replayed a million times.
        fusible = captured and triton_available()
        self._update = Update(parts, self._agents, captured=captured, compiled=fusible or mode == "compile")
        self._explorers = StackedActor(parts, self._agents, device, captured=captured, compiled=fusible)
        self._ready = torch.cuda.Event() if device.type == "cuda" else None
        self._stages = [HostStaging(each.collector.replay) for each in parts]
        self._episodes: list[list[Episode]] = [[] for _ in parts]
        self._pending_steps: list[PoolStep] = []
        """Each seed's last step, until it is copied into the replay."""
        self._pending_updates = 0
        """Updates that are due since the last step and have not been launched."""
        self._updated_at = 0
        self._replay_size_sums = [0.0] * len(parts)
        self._began, self._stepping = time.monotonic(), 0.0
        for row, each in enumerate(parts):
            self._explorers.obs[row] = each.collector.replay.current_obs().cpu().numpy()
        self._mark_ready()

    @property
    def step_count(self) -> int:
        """Agent steps of each seed."""
        return self.parts[0].collector.step_count

    def step(self) -> None:
        """One step of all environments. The updates that fall due with it begin with the next one, or in `synchronize`.

        With `overlap` the last pending update is launched after the actions are sent, so that it runs while the
        environments step; these actions do not depend on it.
        """
        held_back = self._explorers.overlap and self._pending_updates > 0
        self._learn(self._pending_updates - held_back)
        began = time.monotonic()
        actions = self._actions(follow=held_back)
        self._send(actions)
        if held_back:
            waited = time.monotonic()
            self._begin_update()
            began += time.monotonic() - waited
        self._receive(actions)
        self._stepping += time.monotonic() - began
        self._pending_updates = self._count_due_updates()

    def synchronize(self) -> list[Progress]:
        """Wait for the device; what happened since the last time. All parts' states can be saved afterwards."""
        self._record_pending()
        self._learn(self._pending_updates)
        self._pending_updates = 0
        count = self._update.count
        totals = self._update.take()
        self._explorers.synchronize()
        step = self.step_count
        for row, (part, stage) in enumerate(zip(self.parts, self._stages, strict=True)):
            stage.flush()
            if count:
                part.curiosity.steps_seen = self._updated_at + self.plan.batch
                part.tally.add_sums({**totals[row], "charts/replayed": self._replay_size_sums[row]}, count)
        self._replay_size_sums = [0.0] * len(self.parts)
        logs = step % self.log_every == 0
        shares = self._time_fractions() if logs else {}
        found = [
            Progress(step, episodes, {**part.tally.take(), **shares} if logs else {})
            for part, episodes in zip(self.parts, self._episodes, strict=True)
        ]
        self._episodes = [[] for _ in self.parts]
        return found

    def _actions(self, *, follow: bool) -> Array | list[Array]:
        if self.step_count >= self.plan.learning_starts:
            if follow:
                self._mark_ready()
            self._explorers.begin(self._ready, follow=follow)
            self._record_pending()  # while a GPU chooses actions
            return self._explorers.actions()
        self._record_pending()
        # The first steps are random, from the same stream.
        obs = torch.zeros(self.num_envs)
        return [
            part.warm_up_agent.act(obs, obs, explore=True, rng=part.streams["act"]).action.cpu().numpy()
            for part in self.parts
        ]

    def _send(self, actions: Array | list[Array]) -> None:
        for part, action in zip(self.parts, actions, strict=True):
            with self._name_seed_in_errors(part):
                part.collector.pool.send(0, action)

    def _receive(self, actions: Array | list[Array]) -> None:
        assert not self._pending_steps, "the step before was not recorded"
        for row, (part, stage, action) in enumerate(zip(self.parts, self._stages, actions, strict=True)):
            collector = part.collector
            with self._name_seed_in_errors(part):
                now = collector.pool.receive(0)
            collector.step_count += self.num_envs
            stage.push(action, now)
            self._explorers.obs[row] = now.obs
            self._pending_steps.append(now)

    def _record_pending(self) -> None:
        """Copy the last step into the replay: environments' arrays hold it until the next actions are sent."""
        rows = slice(0, self.num_envs)
        for row, now in enumerate(self._pending_steps):
            self._stages[row].copy_pending()
            collector = self.parts[row].collector
            self._episodes[row] += collector.episodes.note(collector.step_count, rows, now)
        self._pending_steps.clear()

    def _count_due_updates(self) -> int:
        """How many updates follow the step just taken."""
        due = updates_due(self.step_count, self.num_envs, self.plan)
        if not due:
            return 0
        for stage in self._stages:
            stage.evict()  # first: the rows that this step evicts may have been all that could be sampled
        drawable = [stage.num_sampleable for stage in self._stages]
        if not self._can_sample(drawable):
            return 0
        self._updated_at = self.step_count
        self._replay_size_sums = [
            sofar + due * now for sofar, now in zip(self._replay_size_sums, drawable, strict=True)
        ]
        return due

    def _learn(self, count: int) -> None:
        for _ in range(count):
            if self._explorers.overlap:
                self._explorers.follow()
                self._mark_ready()
            self._begin_update()

    def _begin_update(self) -> None:
        self._update()
        if not self._explorers.overlap:
            self._mark_ready()

    def _name_seed_in_errors(self, part: ReplayParts) -> contextlib.AbstractContextManager[None]:
        return name_seed_in_errors(part.streams.seed) if len(self.parts) > 1 else NOBODY

    def _mark_ready(self) -> None:
        if self._ready is not None:
            self._ready.record()

    def _can_sample(self, drawable: list[int]) -> bool:
        """Whether all seeds have transitions to sample; False if none has."""
        if any(drawable) and not all(drawable):
            late = [str(part.streams.seed) for part, count in zip(self.parts, drawable, strict=True) if not count]
            raise RunError(
                f"seed {', '.join(late)} has no finished episode to learn from at step {self.step_count}, where others "
                "have: seeds must learn in step. Raise --agent.learning-starts or --agent.capacity, or run the seeds "
                "one by one."
            )
        return all(drawable)

    def _time_fractions(self) -> Metrics:
        whole = max(time.monotonic() - self._began, 1e-9)
        shares = {"charts/SPS": self.log_every / whole, "time/collect_fraction": self._stepping / whole}
        self._began, self._stepping = time.monotonic(), 0.0
        return shares


def why_not_stackable(parts: ReplayParts, warmup_steps: int) -> str | None:
    """Why a run of these parts cannot be stacked, in words; None if it can."""
    agent, curiosity, collector = parts.agent, parts.curiosity, parts.collector
    if not isinstance(agent, DDPG):
        return f"the agent is no DDPG but a {type(agent).__name__}"
    replay = collector.replay
    if replay.store.ring.device != replay.device:
        return "the replay is not where the networks are"
    if replay.store.stack:
        return "observations are stacked frames"
    if len(collector.pool.groups) > 1:
        return "the environments step in groups"
    if collector.skills.spec is not None:
        return "the bonus asks for skills"
    if warmup_steps:
        return "random steps feed the moments first (--curiosity.warmup-steps)"
    return None if curiosity.cfg.idle else _why_bonus_not_stackable(curiosity)


def _why_bonus_not_stackable(curiosity: Curiosity) -> str | None:
    cfg = curiosity.cfg
    if not curiosity.reward.traits.vmappable:
        return "the bonus cannot be computed for several seeds at once"
    problems = {
        "it learns in several passes (--curiosity.epochs, minibatches, update-fraction)": cfg.epochs != 1
        or not cfg.is_full_batch,
        f"the bonus is scaled by {cfg.scale!r} (--curiosity.scale none or value)": cfg.scale not in ("none", "value"),
        "observations are normalised (--curiosity.obs-norm none)": cfg.obs_norm != "none",
        "the bonus's weight is scheduled (--curiosity.int-coef-steps 0)": cfg.int_coef_steps > 0,
        "the weight of a part of it is scheduled by steps (schedule(...))": curiosity.reward.follows_steps,
        "encodings are disturbed (--curiosity.feature-noise 0)": cfg.feature_noise > 0,
    }
    return next((reason for reason, given in problems.items() if given), None)


def train_stacked(parts: Sequence[ReplayParts], stops: Callable[[int], int]) -> Iterator[list[Progress]]:
    """Train for ever; at every stop one Progress for each seed, all at the same step.

    `stops(step)` is the next step to stop at; a later call may return an earlier step, never a later one.
    """
    trainer = StackedTrainer(parts)
    while True:
        before = trainer.step_count
        trainer.step()
        while trainer.step_count < stops(before):
            trainer.step()
        yield trainer.synchronize()
