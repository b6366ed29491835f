"""Triton kernels: from Gram matrices to the sum of their eigenvalues' square roots, without eigenvectors.

    tridiagonal   G / tr G to tridiagonal form by Householder reflections: diagonal d and squared off-diagonal e²
    spectrum      each σ_j = √λ_j by bisection, one per lane, then the value asked for

Bisection rests on Sturm's count: the number of eigenvalues below x is the number of changes of sign in

    p_0 = 1,   p_1 = d_1 − x,   p_i = (d_i − x) p_{i−1} − e²_{i−1} p_{i−2}

(Parlett, The Symmetric Eigenvalue Problem, 1980, sec. 3.3). It has no division, no branch and no dependence between
eigenvalues; each step waits for one multiplication. Bisecting σ instead of λ = σ² spends every step on digits that
count: 36 give √λ to 2e-11 of the Frobenius norm, where λ would take 72.
"""

from __future__ import annotations

import triton
import triton.language as tl

from intrigue.nuclear.gram_kernels import times_power_of_two

FORM_RATIO = 0  # ‖Z‖_*/‖Z‖_F
FORM_SCORE = 1  # ratio / √max(n, m)
FORM_NORM = 2  # ‖Z‖_*
FORM_FLOOR = 3  # (ratio − 1) / (√min(n, m) − 1)

SCORE = tl.constexpr(FORM_SCORE)
NORM = tl.constexpr(FORM_NORM)
FLOOR = tl.constexpr(FORM_FLOOR)
# Squares of lengths below this are treated as 0; the lengths, 1e-75, are far below every rounding error.
VANISHED = tl.constexpr(1e-150)
# Off-diagonals are raised to 1e-17, which moves an eigenvalue of a matrix of trace 1 by less than its rounding. Then
# two neighbouring p are never both 0, and the larger of them shrinks by 1e-34 at most per step.
LEAST_SQUARE = tl.constexpr(1e-34)
# Every 6 steps a pair of p below 1e-100 is multiplied by 1e200, so that it stays between 1e-304 and 1e101.
TOO_SMALL = tl.constexpr(1e-100)
RESCALE = tl.constexpr(1e200)
HIGHEST = tl.constexpr(1.000001)  # no singular value exceeds the Frobenius norm; rounding may add a little


@triton.jit
def tridiagonal(
    gram, diagonal, squares, traces, count,
    D: tl.constexpr, SIDE: tl.constexpr, MATRICES: tl.constexpr,
):  # fmt: skip
    """`MATRICES` matrices per program; writes (D, B) diagonals, (D, B) squared off-diagonals and (B,) traces.

    The last axis of the tile lies in a lane's registers, so every sum over it is free of exchange between lanes. G is
    symmetric: summing over the other axis would be as right, and twenty times the exchange.
    """
    b = tl.program_id(0).to(tl.int64) * MATRICES + tl.arange(0, MATRICES)
    here = b < count
    step = tl.full((), 0, tl.int64) + count
    r = tl.arange(0, SIDE)[None, None, :]
    c = tl.arange(0, SIDE)[None, :, None]
    lane = tl.arange(0, SIDE)[None, :]
    high, low = tl.maximum(r, c), tl.minimum(r, c)
    size: tl.constexpr = D * (D + 1) // 2
    a = tl.load(
        gram + b[:, None, None] * size + high * (high + 1) // 2 + low,
        mask=here[:, None, None] & (high < D),
        other=0.0,
    )
    trace = tl.sum(tl.sum(tl.where(r == c, a, 0.0), axis=2), axis=1)
    tl.store(traces + b, trace, mask=here)
    usable = (trace > 0) & (trace < float("inf"))
    a = tl.where(usable[:, None, None], a * (1.0 / tl.where(usable, trace, 1.0))[:, None, None], 0.0)
    for k in range(D):
        row = tl.sum(tl.where(r == k, a, 0.0), axis=2)  # (MATRICES, SIDE), one entry per lane
        tl.store(diagonal + k * step + b, tl.sum(tl.where(lane == k, row, 0.0), axis=1), mask=here)
        x = tl.where(lane > k, row, 0.0)
        square = tl.sum(x * x, axis=1)
        square = tl.where(square > VANISHED, square, 0.0)
        tl.store(squares + k * step + b, square, mask=here)
        length = tl.sqrt(square)
        head = tl.sum(tl.where(lane == k + 1, x, 0.0), axis=1)
        turned = tl.where(head < 0, -length, length)
        v = tl.where(lane == k + 1, x + turned[:, None], x)  # the reflection is I − β v vᵀ
        beta = tl.where(square > 0, 1.0 / tl.where(square > 0, square + tl.abs(head) * length, 1.0), 0.0)
        v_rows = v[:, None, :]
        p = beta[:, None] * tl.sum(a * v_rows, axis=2)
        w = p - (0.5 * beta * tl.sum(v * p, axis=1))[:, None] * v
        a = a - v_rows * w[:, :, None] - w[:, None, :] * v[:, :, None]


@triton.jit
def _store_value(
    total, trace, exponents, out, b, here, longest,
    D: tl.constexpr, form: tl.constexpr, double: tl.constexpr,
):  # fmt: skip
    highest = tl.sqrt(trace * 0.0 + D)
    # Rounding may leave the ratio slightly outside its bounds [1, √D].
    ratio = tl.where(trace > 0, tl.minimum(tl.maximum(total, 1.0), highest), 0.0)
    if form == NORM:
        value = ratio * tl.sqrt(tl.maximum(trace, 0.0))
        if double:
            value = times_power_of_two(value, tl.load(exponents + b, mask=here, other=0))
    elif form == FLOOR:
        value = tl.maximum(ratio - 1.0, 0.0) / (highest - 1.0) if D > 1 else ratio * 0.0
    elif form == SCORE:
        value = ratio / tl.sqrt(trace * 0.0 + longest)
    else:
        value = ratio
    value = tl.where((trace >= 0) & (trace < float("inf")), value, float("nan"))
    tl.store(out + b, value.to(out.dtype.element_ty), mask=here)


@triton.jit
def spectrum(
    diagonal, squares, traces, exponents, out, count, longest,
    D: tl.constexpr, SIDE: tl.constexpr, MATRICES: tl.constexpr, STEPS: tl.constexpr,
    form: tl.constexpr, double: tl.constexpr,
):  # fmt: skip
    """From tridiagonal matrices, (D, B) twice, to values; `MATRICES` per program, one eigenvalue per lane."""
    b = tl.program_id(0).to(tl.int64) * MATRICES + tl.arange(0, MATRICES)
    here = b < count
    step = tl.full((), 0, tl.int64) + count
    lane = tl.arange(0, SIDE)[None, :]
    d = ()
    e = ()
    for i in tl.static_range(D):
        d = d + (tl.load(diagonal + i * step + b, mask=here, other=0.0)[:, None],)
    for i in tl.static_range(D - 1):
        e = e + (tl.maximum(tl.load(squares + i * step + b, mask=here, other=0.0), LEAST_SQUARE)[:, None],)
    low = tl.zeros((MATRICES, SIDE), tl.float64)
    high = low + HIGHEST
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        x = middle * middle
        older = x * 0.0 + 1.0
        p = d[0] - x
        below = (p < 0).to(tl.int32)
        for i in tl.static_range(1, D):
            newer = (d[i] - x) * p - e[i - 1] * older
            below += ((newer < 0) != (p < 0)).to(tl.int32)
            older = p
            p = newer
            if i % 6 == 0:
                factor = tl.where(tl.maximum(tl.abs(p), tl.abs(older)) < TOO_SMALL, RESCALE, 1.0)
                older *= factor
                p *= factor
        # Negative eigenvalues, which rounding makes of vanished ones, end at 0.
        high = tl.where(below > lane, middle, high)
        low = tl.where(below > lane, low, middle)
    total = tl.sum(tl.where(lane < D, 0.5 * (low + high), 0.0), axis=1)
    trace = tl.load(traces + b, mask=here, other=0.0)
    _store_value(total, trace, exponents, out, b, here, longest, D, form, double)
