"""The numbers behind Figure 1 of the paper: measures of novelty on a 5 × 128 matrix that noise or outliers spoil.

Measures of Z, rows z_1 … z_5 (Table 1 of the paper unless marked ours):

    nuclear     ‖Z‖_*/(‖Z‖_F √128)                      NNM
    variance    mean over dimensions of the population variance over rows            Disagreement
    log_l2      Σ_j log ‖z_1 − z_j‖²                    APT, as the table prints it; no lower end (log 0)
    log1p_l2    Σ_j log(1 + ‖z_1 − z_j‖²)               APT with the usual constant, 0 for equal rows
    centered    ‖Z − mean row‖_*/√128                   ours

The paper says neither what Z is before it is spoiled nor where the outlier goes. So there are two kinds of rows:

    independent   every row N(0, 1)
    shared        z_i = μ + 0.1 ε_i, μ and ε_i N(0, 1): five predictions of one state that nearly agree

and four ways to spoil them, each of a size from 0 to 1 (r is N(0, 1), one draw per matrix used at every size):

    noise           size · r on every entry, as in the paper's left panel
    outlier_row     size · r on every entry of one row: one model or neighbor is wrong. Our reading of the right panel
    outlier_entry   size · r on one entry
    shift           size · r, one number for the whole matrix: the most literal reading of "add a random value to Z"
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from intrigue.nuclear import nuclear_norm, nuclear_score
from intrigue.scores.stats import probability_of_improvement
from intrigue.seeding import derive_seed

Array: TypeAlias = npt.NDArray[np.float64]

ROWS, DIMENSIONS = 5, 128  # caption of Figure 1
SIZES = tuple(step / 20 for step in range(21))  # 0 to 1, caption of Figure 1; 20 steps are ours and hold 0.25
SHARED_SPREAD = 0.1  # ours: five predictions that agree to a tenth of their size
NOVEL_SPREAD = 0.2  # ours: a state twice as novel, for the ranking test

CASES = ("independent", "shared")
FEATURES = ("raw", "layernorm")  # rows as they are, or of mean 0 and variance 1 each, as our reward feeds them
SPOILERS = ("noise", "outlier_row", "outlier_entry", "shift")


def _variance(z: Tensor) -> Tensor:
    return (z - z.mean(dim=-2, keepdim=True)).square().mean(dim=(-2, -1))


def _squared_distances(z: Tensor) -> Tensor:
    return (z[..., 1:, :] - z[..., :1, :]).square().sum(dim=-1)  # (..., 4)


def _log_l2(z: Tensor) -> Tensor:
    return _squared_distances(z).log().sum(dim=-1)


def _log1p_l2(z: Tensor) -> Tensor:
    return _squared_distances(z).log1p().sum(dim=-1)


def _centered(z: Tensor) -> Tensor:
    return nuclear_norm(z, center=True) / math.sqrt(z.shape[-1])


MEASURES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "nuclear": nuclear_score,
    "variance": _variance,
    "log_l2": _log_l2,
    "log1p_l2": _log1p_l2,
    "centered": _centered,
}


@dataclass(frozen=True)
class Fig1Numbers:
    """Every measure of every spoiled matrix. Keys of `values` are (case, spoiler, measure)."""

    seed: int
    draws: int
    sizes: tuple[float, ...]
    values: Mapping[tuple[str, str, str], Array]  # (sizes, draws)
    ranking: Mapping[tuple[str, str], Array]  # (features, measure) -> (sizes,) chance of the right order under noise

    def fold(self, case: str, spoiler: str, measure: str) -> Array:
        """Value over the same matrix's value at size 0, (sizes, draws): 1 means untouched."""
        value = self.values[case, spoiler, measure]
        return np.asarray(value / value[:1])

    def range_share(self, case: str, spoiler: str, measure: str) -> Array:
        """Where the value stands between equal rows (0) and independent unit rows (1), (sizes, draws).

        NaN for a measure without a lower end.
        """
        value, low = self.values[case, spoiler, measure], equal_rows_value(measure)
        if math.isinf(low):
            return np.full_like(value, np.nan)
        high = float(self.values["independent", "noise", measure][0].mean())
        return np.asarray((value - low) / (high - low))


def equal_rows_value(measure: str) -> float:
    """The measure of five equal rows: its lower end; minus infinity for `log_l2`."""
    return float(MEASURES[measure](torch.ones(ROWS, DIMENSIONS, dtype=torch.float64)))


def compute(seed: int = 0, draws: int = 500) -> Fig1Numbers:
    """All numbers of the figure from `draws` random matrices per kind of rows; seconds on one core."""
    values: dict[tuple[str, str, str], Array] = {}
    with _one_thread():
        for case in CASES:
            rng = np.random.default_rng(derive_seed(seed, "fig1", case))
            clean = _clean_rows(case, draws, rng)
            for spoiler in SPOILERS:
                curves = _curves(clean, _spoiling(spoiler, draws, rng))
                values.update({(case, spoiler, measure): curve for measure, curve in curves.items()})
        ranking = _ranking(draws, np.random.default_rng(derive_seed(seed, "fig1", "ranking")))
    return Fig1Numbers(seed, draws, SIZES, values, ranking)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """A scope with one torch thread: on matrices this small, threads that wait for each other cost twenty-fold."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _clean_rows(case: str, draws: int, rng: np.random.Generator, spread: float = SHARED_SPREAD) -> Array:
    rows = rng.standard_normal((draws, ROWS, DIMENSIONS))
    if case == "independent":
        return rows
    return rng.standard_normal((draws, 1, DIMENSIONS)) + spread * rows


def _spoiling(spoiler: str, draws: int, rng: np.random.Generator) -> Array:
    """What is added at size 1, (draws, 5, 128)."""
    if spoiler == "noise":
        return rng.standard_normal((draws, ROWS, DIMENSIONS))
    if spoiler == "shift":
        return np.broadcast_to(rng.standard_normal((draws, 1, 1)), (draws, ROWS, DIMENSIONS))
    added = np.zeros((draws, ROWS, DIMENSIONS))
    which, row = np.arange(draws), rng.integers(ROWS, size=draws)
    if spoiler == "outlier_row":
        added[which, row] = rng.standard_normal((draws, DIMENSIONS))
    else:
        added[which, row, rng.integers(DIMENSIONS, size=draws)] = rng.standard_normal(draws)
    return added


def _curves(clean: Array, added: Array, features: str = "raw") -> dict[str, Array]:
    """Each measure at every size, (sizes, draws)."""
    spoiled = [torch.from_numpy(clean + size * added) for size in SIZES]
    if features == "layernorm":
        spoiled = [torch.nn.functional.layer_norm(z, (DIMENSIONS,)) for z in spoiled]
    return {name: np.stack([measure(z).numpy() for z in spoiled]) for name, measure in MEASURES.items()}


def _ranking(draws: int, rng: np.random.Generator) -> dict[tuple[str, str], Array]:
    known, novel = (_clean_rows("shared", draws, rng, spread) for spread in (SHARED_SPREAD, NOVEL_SPREAD))
    on_known, on_novel = (_spoiling("noise", draws, rng) for _ in range(2))
    ranking = {}
    for features in FEATURES:
        known_curves, novel_curves = _curves(known, on_known, features), _curves(novel, on_novel, features)
        ranking.update({(features, name): _outscores(novel_curves[name], known_curves[name]) for name in MEASURES})
    return ranking


def _outscores(novel: Array, known: Array) -> Array:
    """The share of pairs, every novel matrix against every known one, that the novel one wins; (sizes,)."""
    return np.array(
        [probability_of_improvement(ours, theirs) for ours, theirs in zip(novel, known, strict=True)], dtype=np.float64
    )
