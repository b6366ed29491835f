"""Human-normalised scores.

HNS = (score − random)/(human − random)        superhuman: score > human, strictly
"""

from __future__ import annotations

from collections.abc import Mapping

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
