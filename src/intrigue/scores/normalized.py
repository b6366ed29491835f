"""Normalised scores of Atari games and of URLB's twelve tasks.

    Atari   HNS = (score − random)/(human − random)        superhuman: score > human, strictly
    URLB    normalised = score / expert                    no random baseline is taken off

`urlb_experts.csv` holds what DDPG reaches in 2M frames of each task, by the benchmark's maintainer (issue 1 of
rll-research/url_benchmark).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from intrigue.scores.tables import ATARI_57, Reference, reference_of


def normalised(game: str, score: float, constants: Mapping[str, Reference] = ATARI_57) -> float:
    """The human-normalised score."""
    scale = reference_of(game, constants)
    return (score - scale.random) / (scale.human - scale.random)


def above_human(game: str, score: float, constants: Mapping[str, Reference] = ATARI_57) -> bool:
    """Whether the score is above a person's. Not HNS > 1: with random above human, as printed once, they differ."""
    return score > reference_of(game, constants).human


def superhuman(scores: Mapping[str, float], constants: Mapping[str, Reference] = ATARI_57) -> int:
    """In how many of these games the score is above a person's."""
    return sum(above_human(game, score, constants) for game, score in scores.items())


EVAL_EVERY = 10_000  # frames from one evaluation to the next: URLB eval_every_frames
EVAL_EPISODES = 10  # URLB num_eval_episodes


def _read() -> dict[str, float]:
    with Path(__file__).with_name("urlb_experts.csv").open(newline="", encoding="utf-8") as file:
        return {row["task"]: float(row["expert"]) for row in csv.DictReader(file)}


EXPERTS: Mapping[str, float] = _read()


def share_of_expert(task: str, score: float) -> float:
    """The normalised score in a task of URLB."""
    return score / EXPERTS[task]


def expert_of(env_id: str) -> float | None:
    """The expert's score in `dmc/<task>`; None where URLB has none."""
    family, _, task = env_id.partition("/")
    return EXPERTS.get(task) if family == "dmc" else None
