"""One environment from its id and options."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, final

from intrigue.envs.base import Env
from intrigue.envs.registry import ENVS, split_id
from intrigue.errors import ConfigError, Problem, unknown_name
from intrigue.registry import Entry


def make_env(env_id: str, options: Mapping[str, Any], render: bool = False) -> Env:
    """The environment of this id; `options` are fields of its family's configuration, the rest keep their defaults."""
    return EnvMaker(env_id, options, render)()


@final
class EnvMaker:
    """Makes any number of equal environments; the id and options are resolved once, when the first is made."""

    def __init__(self, env_id: str, options: Mapping[str, Any], render: bool = False) -> None:
        self._env_id = env_id
        self._options = options
        self._render = render
        self._make: Callable[[], Any] | None = None

    def __call__(self) -> Env:
        env = self.check()()
        assert isinstance(env, Env)
        return env

    def check(self) -> Callable[[], Any]:
        """The constructor; a wrong id or option is refused without building anything."""
        if self._make is None:
            self._make = self._prepare()
        return self._make

    def _prepare(self) -> Callable[[], Any]:
        family, name = split_id(self._env_id)
        check_options(family, self._options)
        entry = ENVS.get(family)
        if problems := entry.cls.check_name(name):
            raise ConfigError([Problem("env", f"{self._env_id}: {each}") for each in problems])
        cfg = make_config(entry, self._options)
        build: Any = entry.cls
        # Families that can render at any time (the built-ins) do not take the flag.
        render = {"render": True} if self._render and "render" in inspect.signature(build).parameters else {}
        return functools.partial(build, cfg, name, **render)


def make_config(entry: Entry[Env], options: Mapping[str, Any]) -> Any:
    """The family's configuration with these options; lists, which JSON made of tuples, become tuples again."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    return entry.config(**{**entry.defaults, **values})


def check_options(family: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown family and options it does not have, without importing it."""
    declaration = ENVS.declaration(family)
    known = [each.name for each in dataclasses.fields(declaration.config)]
    wrong = [Problem(f"env.{name}", unknown_name(name, known)) for name in options if name not in known]
    if wrong:
        raise ConfigError(wrong)
