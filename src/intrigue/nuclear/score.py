"""The nuclear-norm score of n encoded states (Chen et al. 2022, arXiv:2205.10484, Sec. 3) and its relatives.

    score(Z) = ‖Z‖_* / (‖Z‖_F · √max(n, m)),     Z ∈ R^(n × m), one state per row

    ‖Z‖_*  nuclear norm, Σ σ_i over the d = min(n, m) singular values;  ‖Z‖_F  Frobenius norm, √(Σ σ_i²)

Bounds. 1/√max(n, m) ≤ score ≤ √(min(n, m)/max(n, m)): lowest when all rows are multiples of one (equal states),
highest when they are orthogonal and equally long. The paper's upper bound 1 is reached only by square matrices.
score(0) = 0 by definition.

Invariances. Scale of Z, order of rows, order of columns, any rotation of either side, transposition. Blindness to
scale is the trap: the score says nothing about how long the encodings are, so their norm has to be fixed elsewhere.

Size of the signal. For z_i = μ + s·ε_i with ‖μ‖ = c√m, ε_i standard normal and m large,

    ratio = ‖Z‖_*/‖Z‖_F ≈ (√(n c² + s²) + (n−1) s) / √(n (c² + s²)),

first order in s/c (1 + 1.79 s/c for n = 5). Subtracting the mean row first destroys this ratio: it is then ≈ √(n−1) for
every s. `nuclear_norm(center=True)`, undivided, is the form for deviations.

Numerics. A float32 Gram matrix is wrong for nearly equal states: its rounding enters under a square root, an error
floor of 6e-4 on the ratio, as large as the signal at s/c = 3e-4. Everything here runs in float64 inside (Gram matrix of
the smaller side, or SVD) and agrees with the float64 SVD to 1e-6 of the value for float32 input, s/c = 1e-6 included.

Non-finite input raises, which reads one number back from the device. Where nothing can be read back, inside
torch.compile and while a CUDA graph is captured, such matrices yield NaN as with on_nonfinite="propagate".

Differs from the paper: score(0) is defined; the paper divides zero by zero.
"""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

from intrigue.nuclear.dispatch import METHODS
from intrigue.nuclear.inputs import (
    CENTERS,
    Center,
    Form,
    Gathered,
    check_gathered,
    check_matrices,
    check_option,
    require_finite,
)
from intrigue.nuclear.operator import NUCLEAR, NUCLEAR_GATHERED

OnNonfinite = Literal["raise", "propagate"]


@torch.no_grad()
def nuclear_score(z: Tensor | Gathered, *, method: str = "auto", on_nonfinite: OnNonfinite = "raise") -> Tensor:
    """‖Z‖_*/(‖Z‖_F √max(n, m)) of each matrix: (..., n, m) to (...,); 0 for a zero matrix.

    float32 out, or float64 for float64 in; never carries a gradient. Raises NonFiniteError for NaN or infinity in `z`;
    with on_nonfinite="propagate" those matrices, and only those, score NaN.
    """
    return _values("nuclear_score", z, "score", "none", method, on_nonfinite)


@torch.no_grad()
def nuclear_norm(
    z: Tensor | Gathered,
    center: bool | Center = False,
    *,
    method: str = "auto",
    on_nonfinite: OnNonfinite = "raise",
) -> Tensor:
    """‖Z‖_*, the sum of singular values, of each matrix: (..., n, m) to (...,).

    `center` subtracts the mean row first (True, "mean") or the first row ("first"). Types and non-finite entries as in
    `nuclear_score`. Infinite only where the norm itself is beyond the output's type.
    """
    chosen = ("mean" if center else "none") if isinstance(center, bool) else center
    return _values("nuclear_norm", z, "norm", chosen, method, on_nonfinite)


@torch.no_grad()
def nuclear_ratio(z: Tensor | Gathered, *, method: str = "auto", on_nonfinite: OnNonfinite = "raise") -> Tensor:
    """‖Z‖_*/‖Z‖_F of each matrix, in [1, √min(n, m)], 0 for a zero matrix; otherwise as `nuclear_score`."""
    return _values("nuclear_ratio", z, "ratio", "none", method, on_nonfinite)


@torch.no_grad()
def nuclear_floor(z: Tensor | Gathered, *, method: str = "auto", on_nonfinite: OnNonfinite = "raise") -> Tensor:
    """(ratio − 1)/(√d − 1) in [0, 1], d = min(n, m): 0 for equal rows, 1 for orthogonal ones; 0 where d = 1 or Z = 0.

    Subtracted in float64, absolute error ≤ 1e-7; a ratio rounded to float32 first would add another 1e-7.
    """
    return _values("nuclear_floor", z, "floor", "none", method, on_nonfinite)


def _values(name: str, z: Tensor | Gathered, form: Form, center: str, method: str, on_nonfinite: str) -> Tensor:
    check_option("on_nonfinite", on_nonfinite, get_args(OnNonfinite))
    check_option("center", center, CENTERS)
    check_option("method", method, ("auto", *METHODS))
    values: Tensor
    if isinstance(z, Gathered):
        check_gathered(z.query, z.table, z.index)
        values = NUCLEAR_GATHERED(z.query, z.table, z.index, form, center, method)
    else:
        check_matrices(z)
        values = NUCLEAR(z, form, center, method)
    if on_nonfinite == "raise" and _may_read_back(values.device):
        require_finite(torch.isnan(values), name)
    return values


def _may_read_back(device: torch.device) -> bool:
    if torch.compiler.is_compiling():
        return False
    return device.type != "cuda" or not torch.cuda.is_current_stream_capturing()
