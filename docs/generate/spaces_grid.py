"""Which spaces each reward serves, asked of the rewards themselves; a refusal comes with its reason.

    rewards × variants × {pixels, vector, dict} × {discrete, multi-discrete, continuous}

The documentation's grid and the cards are made from this, and a test builds every pair to see that it is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from generate.cards import variants_of
from intrigue.rewards.registry import REWARDS
from intrigue.spaces import make_spaces

OBSERVATIONS: Mapping[str, gym.Space[Any]] = {
    "pixels": gym.spaces.Box(0, 255, (84, 84, 4), np.uint8),
    "vector": gym.spaces.Box(-np.inf, np.inf, (6,), np.float32),
    "dict": gym.spaces.Dict({"place": gym.spaces.Box(-1, 1, (3,), np.float32), "key": gym.spaces.Discrete(4)}),
}
ACTIONS: Mapping[str, gym.Space[Any]] = {
    "discrete": gym.spaces.Discrete(3),
    "multi-discrete": gym.spaces.MultiDiscrete([3, 2]),
    "continuous": gym.spaces.Box(-1, 1, (2,), np.float32),
}


@dataclass(frozen=True)
class Served:
    """One reward in one variant: for each pair of spaces, why it is refused, or None."""

    name: str
    variant: str
    reasons: Mapping[tuple[str, str], str | None]


def served(name: str) -> list[Served]:
    """What a reward serves, one row per variant; imports its file."""
    entry, rows = REWARDS.get(name), []
    for variant in variants_of(REWARDS.declaration(name)) or ("",):
        cfg = entry.config(**{**entry.defaults, **({"variant": variant} if variant else {})})
        reasons = {
            (obs, action): entry.cls.refusal(cfg, make_spaces(obs_space, action_space))
            for obs, obs_space in OBSERVATIONS.items()
            for action, action_space in ACTIONS.items()
        }
        rows.append(Served(name, variant, reasons))
    return rows


def spaces_section(name: str) -> str:
    """What one reward serves and asks for, for its card: all spaces, or all but a list of refusals."""
    everything = f"{_listed(OBSERVATIONS)} observations, with {_listed(ACTIONS)} actions"
    refused: list[str] = []
    for row in served(name):
        variant = f"variant `{row.variant}`, " if row.variant else ""
        for obs in OBSERVATIONS:
            # One line for all actions refused for one reason.
            for reason in dict.fromkeys(row.reasons[obs, action] for action in ACTIONS):
                those = [action for action in ACTIONS if row.reasons[obs, action] == reason]
                actions = "" if len(those) == len(ACTIONS) else f" with {', '.join(those)} actions"
                refused += [f"- {variant}{obs}{actions}: {reason}"] if reason else []
    lines = [f"{everything.capitalize()}, but not:", "", *refused] if refused else [f"{everything.capitalize()}."]
    return "\n".join([*lines, *(f"\n{text}" for text in _asks(name))])


def _asks(name: str) -> list[str]:
    """What a reward needs beside its spaces."""
    entry = REWARDS.get(name)
    asked = ["It follows episodes in time order, so agents that replay are refused."] if entry.cls.needs_order else []
    if skills := entry.cls.skills(entry.config(**entry.defaults)):
        asked.append(f"It asks the policy to follow skills ({skills.kind}, {skills.width} numbers by default).")
    return asked


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}"


def grid_page(pages: Mapping[str, str]) -> str:
    """The Markdown page of all rewards × variants × spaces; `pages` is the card of each name."""
    rewards = [served(name) for name in REWARDS.names()]
    found = (reason for rows in rewards for row in rows for reason in row.reasons.values() if reason)
    reasons = list(dict.fromkeys(found))
    lines = [
        "# Which reward serves which spaces",
        "",
        "Each reward was asked when this page was built, in each variant, all other settings at their defaults. "
        "`dict` stands for every observation that is flattened to a vector: `Dict`, `Tuple`, `Discrete` and so on. "
        "`multi-discrete` stands for `MultiBinary` too.",
        "",
        '<table class="grid">',
        f"<thead><tr><th rowspan=2>reward</th><th rowspan=2>variant</th>{_top_heads()}</tr>",
        f"<tr>{_sub_heads()}</tr></thead>",
        "<tbody>",
        *(line for rows in rewards for line in _rows(rows, reasons, pages)),
        "</tbody>",
        "</table>",
        "",
    ]
    if not reasons:
        return "\n".join([*lines, "No reward refuses any of these pairs.", ""])
    lines += ["A number is the reason why a pair is refused, in the words a run would end with:", ""]
    return "\n".join([*lines, *(f"{number}. {reason}" for number, reason in enumerate(reasons, start=1)), ""])


def _top_heads() -> str:
    return "".join(f"<th colspan={len(ACTIONS)}>{obs}</th>" for obs in OBSERVATIONS)


def _sub_heads() -> str:
    return "".join(f"<th>{action}</th>" for _ in OBSERVATIONS for action in ACTIONS)


def _rows(rows: Sequence[Served], reasons: Sequence[str], pages: Mapping[str, str]) -> list[str]:
    """The lines of one reward, its name standing beside all its variants."""
    name = rows[0].name
    begun = f'<td rowspan={len(rows)}><a href="../{pages[name]}/"><code>{name}</code></a></td>'
    lines = []
    for row in rows:
        marks = [
            "<td>✓</td>" if reason is None else f'<td class="refused">✗ {reasons.index(reason) + 1}</td>'
            for reason in row.reasons.values()
        ]
        lines.append(f"<tr>{begun}<td>{row.variant or '–'}</td>{''.join(marks)}</tr>")
        begun = ""
    return lines
