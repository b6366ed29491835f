"""The Python functions behind `intrigue train` and `intrigue list`: train a run, list plug-ins, cite papers.

Listing loads no torch: names, summaries and citations are read from the plug-ins' sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from intrigue.agents.registry import AGENTS
from intrigue.config.reward_expression import parse_reward, reward_names_in
from intrigue.config.run import RunConfig, flatten_json, resolve
from intrigue.envs.registry import ENVS
from intrigue.errors import ConfigError, Problem
from intrigue.presets import preset_layer
from intrigue.presets.registry import PRESETS
from intrigue.registry import Declaration, Registry
from intrigue.rewards.registry import REWARDS
from intrigue.studies.registry import STUDIES

if TYPE_CHECKING:
    from intrigue.run.folder import Run


def train(
    config: RunConfig | Mapping[str, Any] | str,
    *,
    out: Path | str | None = None,
    quiet: bool = True,
    replay_from: Path | str | None = None,
) -> Run:
    """Train a new run: a `RunConfig`, a mapping as on the command line or as in config.json, or a preset's name.

    run = intrigue.train({"env": "rooms", "reward": "nnmc", "steps": 20_000})

    `replay_from` is a folder of episodes, written by `intrigue export`, that the agent's replay is filled with first.
    """
    from intrigue.run.driver import start

    match config:
        case RunConfig():
            resolved = config
        case str():
            resolved = resolve(preset_layer(config))
        case _:
            layer = flatten_json(config)
            preset = layer.pop("preset", None)
            resolved = resolve(*([preset_layer(preset)] if preset else []), layer)
    prepare = None
    if replay_from is not None:
        from intrigue.datasets.load import prefill_from

        prepare = prefill_from(Path(replay_from))
    return start(resolved, out=None if out is None else Path(out), quiet=quiet, prepare=prepare)


REGISTRIES: dict[str, Registry[Any]] = {
    "rewards": REWARDS,
    "agents": AGENTS,
    "envs": ENVS,
    "presets": PRESETS,
    "studies": STUDIES,
}


def describe_kind(kind: str) -> dict[str, str]:
    """Names and summaries of one kind, sorted."""
    declared = REGISTRIES[kind].declarations()
    entries = {}
    for name in sorted(declared):
        defaults = declared[name].defaults
        variant = ", ".join(f"{key}={value!r}" for key, value in defaults.items())
        entries[name] = declared[name].summary + (f" With {variant}." if variant else "")
    return entries


def read_citation(declared: Declaration) -> str:
    """The BibTeX in a plug-in's constant CITATION; empty where it has none."""
    return str(declared.namespace.get("CITATION", ""))


def find_citations(reward: str) -> dict[str, str]:
    """BibTeX by name: of a reward, or of every reward in an expression. Raises ConfigError where there is none."""
    name, options = parse_reward(reward)
    # `mix` alone is the way of composing, not an example of it.
    names = reward_names_in(name, options) if options else [name]
    texts = {each: text for each in names if (text := read_citation(REWARDS.declaration(each)))}
    if not texts:
        text = f"{reward!r} comes from no paper, so there is nothing to cite. Name another reward, or an expression."
        raise ConfigError([Problem("--cite", text)])
    return texts


def list_rewards() -> list[str]:
    """Names of all rewards."""
    return REWARDS.names()


def list_agents() -> list[str]:
    """Names of all agents."""
    return AGENTS.names()


def list_envs() -> list[str]:
    """Names of all environment families."""
    return ENVS.names()


def list_presets() -> list[str]:
    """Names of all presets."""
    return PRESETS.names()


def list_studies() -> list[str]:
    """Names of all studies."""
    return STUDIES.names()
