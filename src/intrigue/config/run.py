"""A whole run as one frozen value: resolved from layers, validated as a whole, written as JSON. Loads no torch.

    sections   env (id + the family's fields) · pool · agent (name + its fields) · reward (name + its fields) ·
               curiosity · run
    layers     defaults  <  preset  <  config file  <  command line

Every problem of every layer is reported at once, before anything is created.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from intrigue.agents.registry import AGENTS
from intrigue.config import curiosity as curiosity_config
from intrigue.config.compatibility import (
    REPLAY_DEFAULTS,
    learns_from_replay,
    needs_import_to_check,
    pair_problems,
    replay_problems,
)
from intrigue.config.curiosity import CuriosityConfig
from intrigue.config.reward_expression import HINT, MIX, parse_reward
from intrigue.config.schema import check_fields, fields_of, quote
from intrigue.envs.pool import config as pool_config
from intrigue.envs.pool.config import PoolConfig
from intrigue.envs.registry import ENVS, split_id
from intrigue.errors import ConfigError, Problem, unknown_name
from intrigue.fields import NonNegativeInt, PositiveInt
from intrigue.registry import Declaration, Registry
from intrigue.rewards.registry import REWARDS

SCHEMA = 1
NAMED: dict[str, tuple[Registry[Any], str]] = {
    "env": (ENVS, "id"),
    "agent": (AGENTS, "name"),
    "reward": (REWARDS, "name"),
}
# Settings that change how a run is kept, not what it computes.
BOOKKEEPING = ("steps", "checkpoint_every", "keep", "snapshots", "eval_every", "eval_episodes", "sinks")


@dataclass(frozen=True)
class RunSettings:
    """How long, from which seed, where, and how often it is saved."""

    steps: PositiveInt = 200_000  # agent steps, summed over environments
    seed: NonNegativeInt = 0  # everything random comes from it
    device: Literal["auto", "cpu", "cuda"] = "auto"  # auto is the GPU where there is one
    threads: NonNegativeInt = 0  # torch's threads on the CPU; 0 leaves its own choice
    execution: Literal["auto", "plain", "compile", "graph"] = "auto"  # how updates run; auto: graph on a GPU
    products: Literal["float32", "bfloat16"] = "float32"  # of wide layers while learning; float32 on a GPU: TF32
    checkpoint_every: PositiveInt = 50_000  # agent steps between checkpoints; one is also written at every stop
    keep: PositiveInt = 2  # checkpoints kept
    snapshots: tuple[PositiveInt, ...] = ()  # agent steps after which the weights are kept for good, to fine-tune from
    eval_every: NonNegativeInt = 0  # agent steps between evaluations into eval.csv; 0 is none
    eval_episodes: PositiveInt = 10  # greedy episodes of an evaluation, as URLB
    sinks: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()  # where metrics are copied beside metrics.csv


PLAIN: dict[str, type[Any]] = {"pool": PoolConfig, "curiosity": CuriosityConfig, "run": RunSettings}
DEFAULT_NAMES = {"env": "rooms", "agent": "ppo", "reward": "nnmc"}
SHORTCUTS = {name: f"run.{name}" for name in ("steps", "seed", "device", "threads", "checkpoint_every")}


@dataclass(frozen=True)
class RunConfig:
    """Every resolved setting of a run."""

    env_id: str = "rooms"
    agent_name: str = "ppo"
    reward_name: str = "nnmc"
    env_options: Mapping[str, Any] = field(default_factory=dict)
    agent_options: Mapping[str, Any] = field(default_factory=dict)
    reward_options: Mapping[str, Any] = field(default_factory=dict)
    pool: PoolConfig = field(default_factory=PoolConfig)
    curiosity: CuriosityConfig = field(default_factory=CuriosityConfig)
    run: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        """Accept settings of an agent or reward in place of its name: `RunConfig(reward_name=NNM(n=5))`."""
        for section in ("agent", "reward"):
            chosen = getattr(self, f"{section}_name")
            if not isinstance(chosen, str):
                name, options = _read_choice(section, chosen)
                object.__setattr__(self, f"{section}_name", name)
                object.__setattr__(self, f"{section}_options", {**options, **getattr(self, f"{section}_options")})

    def to_json(self) -> dict[str, Any]:
        """The nested form that config.json holds and `resolve` reads back."""
        return {
            "schema": SCHEMA,
            "env": {"id": self.env_id, **self.env_options},
            "pool": dataclasses.asdict(self.pool),
            "agent": {"name": self.agent_name, **self.agent_options},
            "reward": {"name": self.reward_name, **self.reward_options},
            "curiosity": dataclasses.asdict(self.curiosity),
            "run": dataclasses.asdict(self.run),
        }

    def digest(self, *, without: Iterable[str] = BOOKKEEPING) -> str:
        """A hash of what the run computes; `without` names fields of `run` that do not count."""
        tree = self.to_json()
        tree["run"] = {name: value for name, value in tree["run"].items() if name not in set(without)}
        return hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()

    def with_run(self, **changes: Any) -> RunConfig:
        """The same run with some of its `run` settings exchanged."""
        return dataclasses.replace(self, run=dataclasses.replace(self.run, **changes))


def resolve(*layers: Mapping[str, Any]) -> RunConfig:
    """The run that these layers describe, later ones winning. Raises ConfigError with every problem found.

    A layer is flat: `{"env": "rooms", "reward": "nnm", "reward.form": "floor", "steps": 1000}`. A reward may be an
    expression, `0.5*nnm + rnd`; an agent or reward may be given by its settings, `intrigue.rewards.NNM(n=5)`.
    """
    problems: list[Problem] = []
    values: dict[str, dict[str, Any]] = {section: {} for section in (*NAMED, *PLAIN)}
    names = dict(DEFAULT_NAMES)
    for layer in layers:
        for section in NAMED:
            chosen = layer.get(section)
            if chosen is None:
                continue
            try:
                chosen, options = _read_choice(section, chosen)
            except ConfigError as error:
                problems += error.problems
                continue
            if chosen != names[section]:
                if not _same_fields(section, names[section], chosen):
                    values[section] = {}
                names[section] = chosen
            values[section].update(options)
        problems += _sort_into(values, layer)
    problems += _check_sections(names, values)
    if problems:
        raise ConfigError(problems)
    return RunConfig(
        env_id=names["env"],
        agent_name=names["agent"],
        reward_name=names["reward"],
        env_options=values["env"],
        agent_options=values["agent"],
        reward_options=values["reward"],
        pool=PoolConfig(**values["pool"]),
        curiosity=CuriosityConfig(**values["curiosity"]),
        run=RunSettings(**values["run"]),
    )


def flatten_json(tree: Any) -> dict[str, Any]:
    """A config file's nested form as a layer. Raises ConfigError for anything but sections of fields."""
    if not isinstance(tree, Mapping):
        raise ConfigError(f"a configuration is a JSON object of sections, not {quote(tree)}.")
    layer: dict[str, Any] = {}
    problems: list[Problem] = []
    if tree.get("schema", SCHEMA) != SCHEMA:
        problems.append(Problem("schema", f"{quote(tree['schema'])}, but this intrigue reads schema {SCHEMA}."))
    for section, fields in tree.items():
        if section == "schema":
            continue
        if not isinstance(fields, Mapping):
            layer[section] = fields
            continue
        for name, value in fields.items():
            selects = section in NAMED and name == NAMED[section][1]
            layer[section if selects else f"{section}.{name}"] = value
    if problems:
        raise ConfigError(problems)
    return layer


def declaration_of(section: str, name: str) -> Declaration:
    """The declaration of the chosen plug-in of a section; of an environment, that of its family."""
    return NAMED[section][0].declaration(split_id(name)[0] if section == "env" else name)


def _read_choice(section: str, chosen: object) -> tuple[str, dict[str, Any]]:
    """The name and options of a section's plug-in, given its name, a reward expression or an instance of its settings.

    Raises:
        ConfigError: it is none of these.
    """
    if isinstance(chosen, str):
        return parse_reward(chosen) if section == "reward" else (chosen, {})
    found = NAMED[section][0].read_settings(chosen)
    if found is None:
        raise ConfigError([Problem(section, f"{quote(chosen)} is not a name. See `intrigue list {section}s`.")])
    return found


def _same_fields(section: str, old: str, new: str) -> bool:
    known = NAMED[section][0].declarations()
    old, new = (split_id(name)[0] if section == "env" else name for name in (old, new))
    return old in known and new in known and known[old].origin == known[new].origin


def _sort_into(values: dict[str, dict[str, Any]], layer: Mapping[str, Any]) -> list[Problem]:
    problems = []
    for key, value in layer.items():
        path = SHORTCUTS.get(key, key)
        section, dot, name = path.partition(".")
        if not dot:
            if section not in NAMED:
                hint = "Fields are written section.field."
                problems.append(Problem(key, unknown_name(key, [*NAMED, *SHORTCUTS, *PLAIN], hint)))
        elif section not in values:
            problems.append(Problem(key, unknown_name(section, values)))
        else:
            values[section][name] = value
    return problems


def _check_sections(names: Mapping[str, str], values: dict[str, dict[str, Any]]) -> list[Problem]:
    """Convert every value in place and fill in defaults; returns every problem."""
    problems: list[Problem] = []
    configs: dict[str, Any] = {}
    for section, name in names.items():
        try:
            declared = declaration_of(section, name)
        except ConfigError as error:
            problems += error.problems
            continue
        defaults = {key: declared.default(key) for key in declared.hints()}
        hint = HINT if (section, name) == ("reward", MIX) else ""
        good, wrong = check_fields(declared.hints(), values[section], section, hint)
        problems += wrong
        values[section] = {**defaults, **good}
        configs[section] = declared.config(**values[section])
    from_replay = "agent" in configs and learns_from_replay(names["agent"])
    for section, config in PLAIN.items():
        good, wrong = check_fields(fields_of(config), values[section], section)
        problems += wrong
        replay_defaults = REPLAY_DEFAULTS if section == "curiosity" and from_replay else {}
        values[section] = {**dataclasses.asdict(config()), **replay_defaults, **good}
    if "env" in configs:
        family, name = split_id(names["env"])
        problems += [Problem("env", message) for message in ENVS.get(family).cls.check_name(name)]
    problems += curiosity_config.problems(values["curiosity"], None if from_replay else values["pool"]["num_envs"])
    if from_replay:
        problems += replay_problems(names["agent"], values["curiosity"])
    pool_problems = pool_config.problems(PoolConfig(**values["pool"]))
    problems += [Problem(f"pool.{each.path}", each.message) for each in pool_problems]
    for section, config in configs.items():
        if hasattr(config, "problems"):
            problems += [Problem(section, text) for text in config.problems(values["pool"]["num_envs"])]
    readable = {"reward", "agent"} <= set(configs) and not any(each.path.startswith("reward") for each in problems)
    if readable and needs_import_to_check(names["reward"], values["reward"], names["agent"]):
        problems += pair_problems(names["reward"], values["reward"], names["agent"])
    return problems
