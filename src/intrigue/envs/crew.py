"""W worker processes that step one pool's environments, in step with each other.

Workers are started together and build their environments at the same time; every order goes to all of them, and the
pool waits for all answers under one time limit. The first that dies, fails or is late ends them all: the error says
which environment it was, and nothing stays behind.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from intrigue.envs import channel
from intrigue.envs.check import fault, moment
from intrigue.envs.config import PoolConfig, shares
from intrigue.envs.facts import Facts, facts_from_state
from intrigue.envs.memory import STAGES, Block, map_block, map_header, open_memory
from intrigue.envs.remote import Remote, import_path
from intrigue.errors import ConfigError, EnvironmentFault
from intrigue.state import State

LOOK_SECONDS = 1.0  # A worker whose children keep its socket open shows its death only to a look at the process.
CLOSE_SECONDS = 2.0  # What environments get to close politely before they are killed.


@final
class Crew:
    """The workers of one pool; does for all environments what `EnvGroup` does for some."""

    def __init__(
        self, env_id: str, options: Mapping[str, Any], cfg: PoolConfig, seed: int, plugins: Sequence[Path]
    ) -> None:
        self._env_id = env_id
        self._cfg = cfg
        self._steps = 0
        self._remotes: list[Remote] = []
        self._memory_fd = memory_fd = open_memory(cfg.workers)
        lifeline_fd, lifeline_end = os.pipe()
        descriptors = [memory_fd, lifeline_fd, lifeline_end]
        # Runs once: on close, on a fault, when the pool is forgotten, or when the interpreter ends.
        self._end = weakref.finalize(self, _end, self._remotes, descriptors, os.getpid())
        self._poller = select.poll()
        self._now = map_header(memory_fd, cfg.workers)
        try:
            for slot, share in enumerate(shares(cfg.num_envs, cfg.workers)):
                self._remotes.append(Remote(slot, cfg.workers, share, memory_fd, lifeline_fd))
            for remote in self._remotes:
                self._poller.register(remote.control, select.POLLIN)
                self._poller.register(remote.output_fd, select.POLLIN)
            self._speakers = {remote.control.fileno(): remote for remote in self._remotes}
            self._printers = {remote.output_fd: remote for remote in self._remotes}
            self.facts = self._begin(options, seed, plugins)
        except BaseException:
            self._end()
            raise

    def map_memory(self) -> Block:
        """The block all workers write into. Not kept here, so that it goes when its users do."""
        block = map_block(self._memory_fd, self._cfg.workers, self.facts.spaces, self._cfg.num_envs)
        self._order(channel.pack(channel.MAP))
        return block

    def reset(self, purpose: Sequence[str | int], steps: int) -> None:
        """As `EnvGroup.reset`."""
        self._steps = steps
        self._order(channel.pack(channel.RESET, {"purpose": list(purpose), "steps": steps}))

    def step(self) -> None:
        """As `EnvGroup.step`."""
        self._steps += 1
        self._order(channel.STEP)

    def snapshot(self) -> list[State]:
        """As `EnvGroup.snapshot`."""
        answers = self._order(channel.pack(channel.SNAPSHOT, {}))
        return [state for answer in answers for state in answer["states"]]

    def restore(self, states: Sequence[State], steps: int) -> None:
        """As `EnvGroup.restore`."""
        self._steps = steps
        parts = [states[remote.share.start : remote.share.stop] for remote in self._remotes]
        self._exchange([channel.pack(channel.RESTORE, {"states": part, "steps": steps}) for part in parts])

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
        }
        spans = [[remote.share.start, remote.share.stop] for remote in self._remotes]
        messages = [channel.pack(channel.BEGIN, {**shared, "share": span}) for span in spans]
        facts = [facts_from_state(answer) for answer in self._exchange(messages, self._cfg.start_timeout_seconds)]
        for remote, each in zip(self._remotes, facts, strict=True):
            if each != facts[0]:
                cause = f"expected the same spaces as index 0, {facts[0]}, got {each}. Build every environment alike."
                raise fault(self._env_id, remote.share.start, "while it was built", cause)
        return facts[0]

    def _order(self, message: bytes) -> list[State]:
        return self._exchange([message] * len(self._remotes))

    def _exchange(self, messages: Sequence[bytes], limit_seconds: float | None = None) -> list[State]:
        """Every worker's answer to its message. Any failure, and any interruption from outside, ends the crew."""
        limit = self._cfg.step_timeout_seconds if limit_seconds is None else limit_seconds
        try:
            for remote, message in zip(self._remotes, messages, strict=True):
                try:
                    remote.send(message, limit)
                except TimeoutError:
                    raise self._late(remote, limit) from None
                except OSError:
                    raise self._dead(remote) from None
            return self._collect(limit)
        except BaseException:
            self._end()
            raise

    def _collect(self, limit: float) -> list[State]:
        deadline = time.monotonic() + limit
        speakers, printers = self._speakers, self._printers
        answers: dict[int, State] = {}
        while len(answers) < len(self._remotes):
            seconds = min(LOOK_SECONDS, deadline - time.monotonic())
            events = self._poller.poll(max(0.0, seconds) * 1000)
            for descriptor, _ in events:
                if descriptor in printers:
                    if not printers[descriptor].read_output():
                        self._poller.unregister(descriptor)
                elif (message := self._hear(speakers[descriptor])) is not None:
                    answers[speakers[descriptor].slot] = message[1]
            if not events:
                silent = [remote for remote in self._remotes if remote.slot not in answers]
                self._look(silent, time.monotonic() >= deadline, limit)
        return [answers[remote.slot] for remote in self._remotes]

    def _hear(self, remote: Remote) -> tuple[bytes, State] | None:
        try:
            message = remote.hear()
        except EOFError:
            raise self._dead(remote) from None
        if message is not None and message[0] == channel.ERROR:
            if message[1]["kind"] == "config":
                raise ConfigError(message[1]["message"])
            raise EnvironmentFault(message[1]["message"] + remote.printed())
        return message

    def _look(self, silent: Sequence[Remote], late: bool, limit: float) -> None:
        for remote in silent:
            if remote.has_exited():
                raise self._dead(remote)
        if late:
            raise self._late(silent[0], limit)

    def _dead(self, remote: Remote) -> EnvironmentFault:
        return self._blame(remote, remote.death() + ".")

    def _late(self, remote: Remote, limit: float) -> EnvironmentFault:
        field = "start_timeout_seconds" if self._stage(remote) == "build" else "step_timeout_seconds"
        cause = f"no answer within {limit:g} seconds. Find what it waits for, or raise {field}."
        return self._blame(remote, cause)

    def _blame(self, remote: Remote, cause: str) -> EnvironmentFault:
        stage = self._stage(remote)
        index: int | str = self._now[2 * remote.slot]
        if stage == "idle":
            share = remote.share
            index = str(share.start) if len(share) == 1 else f"{share.start} to {share.stop - 1}"
        return fault(self._env_id, index, moment(stage, self._steps), cause + remote.printed())

    def _stage(self, remote: Remote) -> str:
        return STAGES[self._now[2 * remote.slot + 1]]


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
