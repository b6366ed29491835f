"""Nuclear norms of batches of small matrices; `score.py` has the mathematics and `dispatch.py` the choice of method."""

from intrigue.nuclear.dispatch import METHODS, Method, choose_method, describe_auto
from intrigue.nuclear.inputs import Center, Gathered, MatrixError, MatrixTypeError
from intrigue.nuclear.score import OnNonfinite, nuclear_floor, nuclear_norm, nuclear_ratio, nuclear_score

__all__ = [
    "METHODS",
    "Center",
    "Gathered",
    "MatrixError",
    "MatrixTypeError",
    "Method",
    "OnNonfinite",
    "choose_method",
    "describe_auto",
    "nuclear_floor",
    "nuclear_norm",
    "nuclear_ratio",
    "nuclear_score",
]
