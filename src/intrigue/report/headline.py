"""What the runs show, in one sentence.

maze          NNM (nnmc, knn) visited X % of the maze, reward none W %, random Y %, goal found at step Z
anything else each arm's mean return over its last episodes
"""

from __future__ import annotations

from collections.abc import Sequence

from intrigue.envs.registry import split_id
from intrigue.report.arms import MAZE_FAMILIES, ArmRuns
from intrigue.report.numbers import coverage, describe_success, estimate_arm, last_return
from intrigue.report.text import count, number, percent, plural

NUCLEAR = ("nnm", "nnmc")


def write_headline(groups: Sequence[ArmRuns]) -> str:
    """The sentence for the arms of one task; says so when nothing in it is finished or can be counted."""
    arms = [arm for arm in groups if arm.counted]
    if not arms:
        return "No run can be counted yet; see below for the state of each."
    in_maze = split_id(arms[0].config.env_id)[0] in MAZE_FAMILIES
    return (_write_maze_sentence(arms) if in_maze else _write_return_sentence(arms)) + _describe_basis(arms)


def name_in_sentence(arm: ArmRuns) -> str:
    """The arm's name in a sentence."""
    if arm.config.reward_name in NUCLEAR and not arm.is_random:
        return f"NNM ({arm.label.replace(' (', ', ', 1).removesuffix(')')})"
    if arm.is_random:
        return arm.label.replace("random policy", "random", 1)
    return arm.label.replace("none", "reward none", 1) if arm.is_plain else arm.label


def _write_maze_sentence(arms: Sequence[ArmRuns]) -> str:
    shares = [(name_in_sentence(arm), estimate_arm(arm, coverage).text(percent)) for arm in arms]
    (first, share), others = shares[0], shares[1:]
    words = [f"{first} visited {share} of the maze", *(f"{name} {value}" for name, value in others)]
    found = describe_success(arms[0], count)
    words.append(f"goal {found}" if found.startswith("not") else f"goal found at step {found}")
    words[-1] += " runs" if found.endswith(f" of {len(arms[0].counted)}") else ""
    return ", ".join(words)


def _write_return_sentence(arms: Sequence[ArmRuns]) -> str:
    words = [f"{name_in_sentence(arm)} {estimate_arm(arm, last_return).text(number)}" for arm in arms]
    return f"Return over the last episodes: {', '.join(words)}"


def _describe_basis(arms: Sequence[ArmRuns]) -> str:
    """How many runs the numbers rest on, and whether they are final."""
    sizes = sorted({len(arm.counted) for arm in arms if not arm.is_simulated} or {len(arms[0].counted)})
    seeds = plural(sizes[0], "seed") if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]} seeds"
    means = f" (mean over {seeds}, 95 % intervals)" if sizes[-1] > 1 else f" ({seeds}, so no intervals)"
    lengths = {run.step for arm in arms for run in arm.counted}
    uneven = f"; lengths from {min(lengths):,} to {max(lengths):,} steps" if len(lengths) > 1 else ""
    return means + uneven + ("; runs unfinished" if any(arm.so_far for arm in arms) else "")
