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
    """Makes any number of environments alike; the id and options are looked up once, when the first is made."""

    def __init__(self, env_id: str, options: Mapping[str, Any], render: bool = False) -> None:
        self._env_id = env_id
        self._options = options
        self._render = render
        self._make: Callable[[], Any] | None = None

    def __call__(self) -> Env:
        environment = self.check()()
        assert isinstance(environment, Env)
        return environment

    def check(self) -> Callable[[], Any]:
        """Refuse a wrong id or option without building anything; else what builds."""
        if self._make is None:
            self._make = self._prepared()
        return self._make

    def _prepared(self) -> Callable[[], Any]:
        family, name = split_id(self._env_id)
        check_options(family, self._options)
        entry = ENVS.get(family)
        found = entry.cls.check_name(name)
        if found:
            raise ConfigError([Problem("env", f"{self._env_id}: {each}") for each in found])
        cfg = make_config(entry, self._options)
        build: Any = entry.cls
        # Families that can draw at any time (the built-ins) do not take the flag.
        drawing = {"render": True} if self._render and "render" in inspect.signature(build).parameters else {}
        return functools.partial(build, cfg, name, **drawing)


def make_config(entry: Entry[Env], options: Mapping[str, Any]) -> Any:
    """The family's configuration with these options; lists become tuples, as they were before they crossed JSON."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    return entry.config(**{**entry.defaults, **given})


def check_options(family: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown family and options it does not have, without importing it."""
    declaration = ENVS.declaration(family)
    known = [each.name for each in dataclasses.fields(declaration.config)]
    wrong = [Problem(f"env.{name}", unknown_name(name, known)) for name in options if name not in known]
    if wrong:
        raise ConfigError(wrong)
