"""W worker processes that step one pool's environments, in step with each other.

Workers are started together and build their environments at the same time; every order goes to all of them, and the
pool waits for all answers under one time limit. Steps of different groups may be under way at once: a worker that is
done with its part of one goes on with the next. The first that dies, fails or is late ends them all: the error says
which environment it was, and nothing stays behind.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from intrigue.envs.pool import messages as channel
from intrigue.envs.pool.checks import fault, moment
from intrigue.envs.pool.config import PoolConfig, cores, parts, worker_count
from intrigue.envs.pool.local import same_facts
from intrigue.envs.pool.shared_memory import STAGES, Block, Facts, facts_from_state, map_block, map_header, open_memory
from intrigue.envs.pool.worker_process import Remote, import_path
from intrigue.envs.registry import ENVS, split_id
from intrigue.errors import ConfigError, EnvironmentFault
from intrigue.state import State

LOOK_SECONDS = 1.0  # A worker whose children keep its socket open shows its death only to a look at the process.
CLOSE_SECONDS = 2.0  # What environments get to close politely before they are killed.


@final
class Crew:
    """The workers of one pool; does for all environments what `EnvGroups` does for some."""

    def __init__(
        self,
        env_id: str,
        options: Mapping[str, Any],
        cfg: PoolConfig,
        seed: int,
        plugins: Sequence[Path],
        attentive: bool = False,
    ) -> None:
        self._env_id = env_id
        self._cfg = cfg
        self._attentive = attentive
        self._workers = workers = worker_count(cfg)
        self._steps = [0] * cfg.groups
        self._stepping: list[set[int]] = [set() for _ in range(cfg.groups)]  # Who still steps each group.
        self._asked: set[int] = set()  # Who still owes an answer to anything else.
        self._answers: dict[int, State] = {}
        self._remotes: list[Remote] = []
        self._memory_fd = memory_fd = open_memory(workers)
        lifeline_fd, lifeline_end = os.pipe()
        descriptors = [memory_fd, lifeline_fd, lifeline_end]
        # Runs once: on close, on a fault, when the pool is forgotten, or when the interpreter ends.
        self._end = weakref.finalize(self, _end, self._remotes, descriptors, os.getpid())
        self._now = map_header(memory_fd, workers)
        variables = ENVS.get(split_id(env_id)[0]).cls.worker_variables
        try:
            for slot, shares in enumerate(parts(cfg.num_envs, workers, cfg.groups)):
                self._remotes.append(Remote(slot, workers, shares, memory_fd, lifeline_fd, variables))
            self.facts = self._begin(options, seed, plugins)
        except BaseException:
            self._end()
            raise

    def map_memory(self) -> Block:
        """The block all workers write into. Not kept here, so that it goes when its users do."""
        block = map_block(self._memory_fd, self._workers, self.facts, self._cfg.num_envs)
        self._order(channel.pack(channel.MAP))
        return block

    def reset(self, purpose: Sequence[str | int], steps: int) -> None:
        """As `EnvGroups.reset`."""
        self._steps = [steps] * len(self._steps)
        self._order(channel.pack(channel.RESET, {"purpose": list(purpose), "steps": steps}))

    def send(self, group: int) -> None:
        """Have every worker step its part of this group."""
        self._steps[group] += 1
        self._stepping[group].update(range(self._workers))
        # Spelled out here and below: a context manager costs several microseconds at every step.
        try:
            self._send([channel.STEPS[group]] * self._workers, self._cfg.step_timeout_seconds)
        except BaseException:
            self._end()
            raise

    def receive(self, group: int) -> None:
        """Wait until the step of this group is done."""
        try:
            self._wait(self._stepping[group], self._cfg.step_timeout_seconds, self._attentive)
        except BaseException:
            self._end()
            raise

    def snapshot(self) -> list[State]:
        """As `EnvGroups.snapshot`."""
        answers = self._order(channel.pack(channel.SNAPSHOT, {}))
        states: list[State] = [None] * self._cfg.num_envs
        for remote, answer in zip(self._remotes, answers, strict=True):
            for index, state in zip(itertools.chain(*remote.shares), answer["states"], strict=True):
                states[index] = state
        return states

    def restore(self, states: Sequence[State], steps: int) -> None:
        """As `EnvGroups.restore`."""
        self._steps = [steps] * len(self._steps)
        trees = [[states[index] for index in itertools.chain(*remote.shares)] for remote in self._remotes]
        self._exchange([channel.pack(channel.RESTORE, {"states": tree, "steps": steps}) for tree in trees])

    def close(self) -> None:
        """Ask the environments to close, then end every worker. Does nothing the second time."""
        if self._end.alive:
            with contextlib.suppress(EnvironmentFault):
                self._exchange([channel.CLOSE] * len(self._remotes), CLOSE_SECONDS)
            self._end()

    def _begin(self, options: Mapping[str, Any], seed: int, plugins: Sequence[Path]) -> Facts:
        shared = {
            "path": import_path(),
            "plugins": [str(path) for path in plugins],
            "env_id": self._env_id,
            "options": dict(options),
            "seed": seed,
            "num_envs": self._cfg.num_envs,
            "attentive": self._attentive,
        }
        spans = [[[share.start, share.stop] for share in remote.shares] for remote in self._remotes]
        places = self._places()
        messages = [
            channel.pack(channel.BEGIN, {**shared, "shares": span, "core": core})
            for span, core in zip(spans, places, strict=True)
        ]
        facts = [facts_from_state(answer) for answer in self._exchange(messages, self._cfg.start_timeout_seconds)]
        for remote, each in zip(self._remotes, facts, strict=True):
            same_facts(self._env_id, facts[0], each, remote.shares[0].start)
        return facts[0]

    def _places(self) -> list[int | None]:
        """The core of each worker; none where there are fewer, since two on one core would wait for each other."""
        available = cores()
        if not self._cfg.pin or self._workers > len(available):
            return [None] * self._workers
        return [*available[: self._workers]]

    def _order(self, message: bytes) -> list[State]:
        return self._exchange([message] * len(self._remotes))

    def _exchange(self, messages: Sequence[bytes], limit_seconds: float | None = None) -> list[State]:
        """Every worker's answer to its message. Any failure, and any interruption from outside, ends the crew."""
        limit = self._cfg.step_timeout_seconds if limit_seconds is None else limit_seconds
        self._asked.update(range(self._workers))
        try:
            self._send(messages, limit)
            self._wait(self._asked, limit)
        except BaseException:
            self._end()
            raise
        return [self._answers[remote.slot] for remote in self._remotes]

    def _send(self, messages: Sequence[bytes], limit: float) -> None:
        for remote, message in zip(self._remotes, messages, strict=True):
            try:
                remote.send(message, limit)
            except TimeoutError:
                raise self._late(remote, limit) from None
            except OSError:
                raise self._dead(remote) from None

    def _wait(self, owing: set[int], limit: float, attentive: bool = False) -> None:
        """Until nobody owes this answer; whatever else is said meanwhile is noted too."""
        deadline = time.monotonic() + limit
        # One worker after another, so that this process is woken by few of them: most have answered when it comes to
        # them, and their cores are needed for stepping.
        for remote in self._remotes:
            if remote.slot not in owing:
                continue
            if attentive:
                until = min(deadline, time.monotonic() + channel.ATTENTION_SECONDS)
                while remote.slot in owing and remote.look_out(until):
                    self._hear(remote)
            else:
                self._hear(remote)
            while remote.slot in owing:
                if not remote.wait(min(LOOK_SECONDS, deadline - time.monotonic())):
                    self._look(owing, deadline, limit)
                self._hear(remote)

    def _hear(self, remote: Remote) -> None:
        try:
            messages = remote.hear()
        except EOFError:
            raise self._dead(remote) from None
        for kind, tree in messages:
            if kind in channel.GROUP_OF:
                self._stepping[channel.GROUP_OF[kind]].discard(remote.slot)
            elif kind != channel.ERROR:
                self._asked.discard(remote.slot)
                self._answers[remote.slot] = tree
            elif tree["kind"] == "config":
                raise ConfigError(tree["message"])
            else:
                raise EnvironmentFault(tree["message"] + remote.printed())

    def _look(self, owing: set[int], deadline: float, limit: float) -> None:
        """After a while of silence: see who of all that owe an answer has given it, failed, died or is late."""
        late = time.monotonic() >= deadline
        for remote in self._remotes:
            self._hear(remote)
        silent = [remote for remote in self._remotes if remote.slot in owing]
        for remote in silent:
            remote.wait(0)
            if remote.has_exited():
                raise self._dead(remote)
        if late and silent:
            raise self._late(silent[0], limit)

    def _dead(self, remote: Remote) -> EnvironmentFault:
        return self._blame(remote, remote.death() + ".")

    def _late(self, remote: Remote, limit: float) -> EnvironmentFault:
        field = "start_timeout_seconds" if self._stage(remote) == "build" else "step_timeout_seconds"
        cause = f"no answer within {limit:g} seconds. Find what it waits for, or raise {field}."
        return self._blame(remote, cause)

    def _blame(self, remote: Remote, cause: str) -> EnvironmentFault:
        stage = self._stage(remote)
        if stage == "idle":
            index, steps = ", ".join(_span(share) for share in remote.shares), max(self._steps)
        else:
            busy = self._now[2 * remote.slot]
            holding = [group for group, share in enumerate(remote.shares) if busy in share]
            index, steps = str(busy), self._steps[holding[0]] if holding else 0
        return fault(self._env_id, index, moment(stage, steps), cause + remote.printed())

    def _stage(self, remote: Remote) -> str:
        return STAGES[self._now[2 * remote.slot + 1]]


def _span(share: range) -> str:
    return str(share.start) if len(share) == 1 else f"{share.start} to {share.stop - 1}"


def _end(remotes: Sequence[Remote], descriptors: Sequence[int], owner: int) -> None:
    # A forked child inherits this finalizer, but not the right to end its parent's workers.
    if os.getpid() != owner:
        return
    for remote in remotes:
        remote.kill()
    for remote in remotes:
        remote.release()
    for descriptor in descriptors:
        os.close(descriptor)
