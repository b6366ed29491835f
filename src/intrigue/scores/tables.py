"""Scores of random play and of a person on 57 Atari games, and the paper's own columns, as data.

    atari57.csv   random and human: dqn_zoo `atari_data.py`, the values of Wang et al. 2016 (arXiv:1511.06581) and
                  Hessel et al. 2018 (arXiv:1710.02298), which the paper names as its source. Demon Attack and Crazy
                  Climber agree with rliable's table as well. Video Pinball's random score is 0 in some other sources.
    paper26.csv   the 26 games of the paper's Table 2 exactly as printed (arXiv:2205.10484), wrong constants included:
                  random, human, Disagreement, ICM, NNM, and which of the three is set in bold.

Both were taken under 108,000-frame episodes without sticky actions; the paper's agents play 18,000-frame episodes with
them, so normalised scores are a common unit, not a fair match with a person. Games go by the names of
`intrigue.envs.atari.games`.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from intrigue.errors import ConfigError, Problem, unknown_name

PAPER_COLUMNS = {"disagreement": "Disagreement", "icm": "ICM", "nnm": "NNM"}


@dataclass(frozen=True, slots=True)
class Reference:
    """The two ends of a game's scale: 0 is random play, 1 is a person."""

    random: float
    human: float


@dataclass(frozen=True, slots=True)
class PaperRow:
    """One game of the paper's Table 2 as printed; `scores` by the keys of PAPER_COLUMNS."""

    printed: Reference
    scores: Mapping[str, float]
    bold: str


def _rows(name: str) -> list[dict[str, str]]:
    with Path(__file__).with_name(name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _reference(row: Mapping[str, str]) -> Reference:
    return Reference(float(row["random"]), float(row["human"]))


ATARI_57: Mapping[str, Reference] = {row["game"]: _reference(row) for row in _rows("atari57.csv")}
PAPER_26: Mapping[str, PaperRow] = {
    row["game"]: PaperRow(_reference(row), {key: float(row[key]) for key in PAPER_COLUMNS}, row["bold"])
    for row in _rows("paper26.csv")
}
PRINTED: Mapping[str, Reference] = {game: row.printed for game, row in PAPER_26.items()}


def reference_of(game: str, constants: Mapping[str, Reference] = ATARI_57) -> Reference:
    """The scale of a game.

    Raises:
        ConfigError: there is none; the message suggests the nearest name.
    """
    if game not in constants:
        hint = "Scores of other games cannot be normalised."
        raise ConfigError([Problem("game", unknown_name(game, constants, hint))])
    return constants[game]
