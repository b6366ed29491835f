"""What the paper says about Atari: the numbers under its tables, and its columns for any selection of games.

Table 2 (26 games) prints every score; Table 3 (57 games) only these figures: its scores were to be in a supplement that
is not published with the preprint, so nothing under it can be recomputed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intrigue.scores import ATARI_57, PAPER_26, Reference, compute_aggregates, normalised, superhuman

KEYS = {"Disagreement": "disagreement", "ICM": "icm", "NNM": "nnm"}
GAMES_26, GAMES_57 = tuple(PAPER_26), tuple(ATARI_57)


@dataclass(frozen=True)
class Claim:
    """A column's figures as printed under a table."""

    mean: float
    superhuman: int


CLAIMED_26 = {"Disagreement": Claim(0.51, 5), "ICM": Claim(0.50, 4), "NNM": Claim(1.09, 5)}
CLAIMED_57 = {"Disagreement": Claim(0.52, 8), "ICM": Claim(0.54, 8), "NNM": Claim(0.86, 9)}


@dataclass(frozen=True)
class Figures:
    """What follows from a column: aggregates of its normalised scores, and games above human."""

    mean: float
    median: float
    iqm: float
    superhuman: int


def raw_scores(method: str, games: Sequence[str] = GAMES_26) -> dict[str, float]:
    """The printed scores of a method."""
    return {game: PAPER_26[game].scores[KEYS[method]] for game in games}


def human_scores(
    method: str, games: Sequence[str] = GAMES_26, constants: Mapping[str, Reference] = ATARI_57
) -> dict[str, float]:
    """The printed scores, normalised under a set of constants."""
    return {game: normalised(game, score, constants) for game, score in raw_scores(method, games).items()}


def figures(method: str, games: Sequence[str] = GAMES_26, constants: Mapping[str, Reference] = ATARI_57) -> Figures:
    """The figures of a method on these games."""
    found = compute_aggregates(list(human_scores(method, games, constants).values()))
    above = superhuman(raw_scores(method, games), constants)
    return Figures(found["mean"], found["median"], found["IQM"], above)


def find_strictly_best(games: Sequence[str] = GAMES_26) -> list[str]:
    """The games in which the paper prints a higher score for NNM than for both others."""
    best = []
    for game in games:
        scores = PAPER_26[game].scores
        if scores["nnm"] > max(scores["disagreement"], scores["icm"]):
            best.append(game)
    return best
