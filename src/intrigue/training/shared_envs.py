"""Environments that evaluations play in, shared by all runs of this process that ask for the same ones.

Seeds that learn together are evaluated one after another, so one set serves all of them: ten environments of DeepMind
Control take a second or more to make and a hundred megabytes. An episode begins with a seed, so who played before
leaves no trace in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, final

from intrigue.envs.base import Env
from intrigue.envs.make import EnvMaker


@final
class SharedEnvs:
    """Environments alike, made when they are first asked for, and closed when the last holder has let go."""

    _held: ClassVar[dict[tuple[str, str], SharedEnvs]] = {}

    def __init__(self, key: tuple[str, str], make: EnvMaker) -> None:
        self._key, self._make = key, make
        self._holders = 0
        self._envs: list[Env] = []

    @classmethod
    def hold(cls, env_id: str, options: Mapping[str, Any]) -> SharedEnvs:
        """The environments of this id and these options, to be let go once for each time they are held."""
        key = (env_id, repr(sorted(options.items())))
        shared = cls._held.setdefault(key, cls(key, EnvMaker(env_id, options)))
        shared._holders += 1
        return shared

    def take(self, count: int) -> list[Env]:
        """As many of them, for one evaluation; made where they are too few."""
        while len(self._envs) < count:
            self._envs.append(self._make())
        return self._envs[:count]

    def let_go(self) -> None:
        """One holder fewer."""
        self._holders -= 1
        if self._holders == 0:
            del self._held[self._key]
            while self._envs:
                self._envs.pop().close()
