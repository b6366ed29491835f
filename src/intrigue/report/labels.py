"""Readable, distinct names of arms: the reward and where it comes from, then whatever else tells two arms apart.

nnmc (knn) · none · random policy · nnm (knn, form=floor) · nnmc (knn, 50,000 steps) · nnm (knn, 8 environments) ·
nnm (knn, from snapshot 3000 of walker)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from intrigue.config.reward_expression import MIX
from intrigue.config.run import BOOKKEEPING, RunConfig

NAMED_FIELDS = 3  # differing settings spelled out in a label; ours: more do not fit next to a curve

STEPS_ONE = ("ddpg",)  # agents whose published scores are of one environment

# settings, version of this package, simulated for the report, what it began with
Described = tuple[RunConfig, str, bool, str]


def label_arms(arms: Sequence[Described]) -> list[str]:
    """One label per arm, all different."""
    plain = [_base(config) for config, *_ in arms]
    agents = {config.agent_name for config, *_ in arms if config.agent_name != "random"}
    details: list[list[str]] = [
        [*_source(config), *([begun] if begun else []), *_environments(config)] for config, _, _, begun in arms
    ]
    if len(agents) > 1:
        for extra, (config, *_) in zip(details, arms, strict=True):
            extra += [config.agent_name] if config.agent_name != "random" else []
    for name, times in Counter(zip(plain, map(tuple, details), strict=True)).items():
        if times > 1:
            alike = [index for index in range(len(arms)) if (plain[index], tuple(details[index])) == name]
            for index, words in zip(alike, _differences([arms[index] for index in alike]), strict=True):
                details[index] = [*details[index], *words]
    joined = [f"{base} ({', '.join(words)})" if words else base for base, words in zip(plain, details, strict=True)]
    return _numbered(joined)


def flat_settings(config: RunConfig, *, without: Sequence[str] = ()) -> dict[str, Any]:
    """Every setting as `section.field`, less the named fields of `run`."""
    flat: dict[str, Any] = {}
    for section, fields in config.to_json().items():
        if isinstance(fields, Mapping):
            flat.update({f"{section}.{name}": value for name, value in fields.items()})
    return {name: value for name, value in flat.items() if name not in {f"run.{each}" for each in without}}


def differing_settings(configs: Sequence[RunConfig]) -> list[str]:
    """The names of the settings in which these differ, seed and bookkeeping apart but steps included.

    Fields that only one agent or reward has are no difference of their own: its name is.
    """
    skipped = [name for name in (*BOOKKEEPING, "seed") if name != "steps"]
    flat = [flat_settings(config, without=skipped) for config in configs]
    names = dict.fromkeys(name for each in flat for name in each)
    return [name for name in names if len({repr(each[name]) for each in flat if name in each}) > 1]


def _base(config: RunConfig) -> str:
    # A composed reward is best described by its expression.
    reward = str(config.reward_options["expression"]) if config.reward_name == MIX else config.reward_name
    if config.agent_name != "random":
        return reward
    scored = "" if reward == "none" else f", {reward} scored"
    return f"random policy{scored}"


def _source(config: RunConfig) -> tuple[str, ...]:
    source = config.reward_options.get("source")
    return (source,) if isinstance(source, str) and config.agent_name != "random" else ()


def _environments(config: RunConfig) -> tuple[str, ...]:
    """Several environments where the published agent steps one (URLB's DDPG), so that scores are not taken for its."""
    count = config.pool.num_envs
    return (f"{count} environments",) if config.agent_name in STEPS_ONE and count > 1 else ()


def _differences(alike: Sequence[Described]) -> list[list[str]]:
    """What tells arms of one name apart, one list of words for each."""
    names = differing_settings([config for config, *_ in alike])
    # What the bonus is comes first: that is what people compare.
    names.sort(key=lambda name: (name != "run.steps", not name.startswith("reward."), name))
    versions = {version for _, version, simulated, _ in alike if not simulated}
    words = []
    for config, version, simulated, _ in alike:
        flat = flat_settings(config)
        own = [_word(name, flat.get(name, "unset")) for name in names[:NAMED_FIELDS]]
        own += [f"{len(names) - NAMED_FIELDS} more"] if len(names) > NAMED_FIELDS else []
        if simulated:
            words.append(["simulated"])
        else:
            words.append([*own, *([f"version {version}"] if len(versions) > 1 else [])])
    return words


def _word(name: str, value: Any) -> str:
    if name == "run.steps" and isinstance(value, int):
        return f"{value:,} steps"
    return f"{name.partition('.')[2]}={value}"


def _numbered(labels: list[str]) -> list[str]:
    """The labels with a number after those that are still alike."""
    seen: Counter[str] = Counter()
    totals = Counter(labels)
    result = []
    for label in labels:
        seen[label] += 1
        result.append(f"{label} #{seen[label]}" if totals[label] > 1 else label)
    return result
