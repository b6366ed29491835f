"""Triton kernels: from Gram matrices to the sum of their eigenvalues' square roots, without eigenvectors.

    tridiagonal   G / tr G to tridiagonal form by Householder reflections: diagonal d and squared off-diagonal e²
    eigenvalues   all eigenvalues of it by rational QL steps with implicit shifts, one matrix per lane, then the value

The QL step is the square-root-free one of Pal, Walker and Kahan (Parlett, The Symmetric Eigenvalue Problem, 1980, sec.
8.15), in the form LAPACK's `sterf` documents; the scaling to trace 1 makes absolute thresholds meaningful.
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
# Off-diagonal entries of size 1e-17 move an eigenvalue of a matrix of trace 1 by at most 1e-17, half its rounding.
NEGLIGIBLE_SQUARE = tl.constexpr(1e-34)
# Squares below this are treated as 0; what they stand for, 1e-75, is far below every rounding error.
VANISHED = tl.constexpr(1e-150)
MOST_STEPS = tl.constexpr(30)  # per eigenvalue, as LAPACK; 2 to 3 are usual


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
    a = tl.where(usable[:, None, None], a / tl.where(usable, trace, 1.0)[:, None, None], 0.0)
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
def eigenvalues(
    diagonal, squares, traces, exponents, out, count, longest,
    D: tl.constexpr, LANES: tl.constexpr, form: tl.constexpr, double: tl.constexpr,
):  # fmt: skip
    """One matrix per lane; `diagonal` and `squares` (D, B) are worked on in place. Needs exactly one warp."""
    b = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    here = b < count
    step = tl.full((), 0, tl.int64) + count
    total = tl.zeros((LANES,), tl.float64)
    for l in range(D - 1):  # noqa: E741  # l is the row being freed, as in the literature
        at_l = l * step + b
        square = tl.load(squares + at_l, mask=here, other=0.0)
        live = square > NEGLIGIBLE_SQUARE
        tries = 0
        while (tl.max(live.to(tl.int32), axis=0) > 0) & (tries < MOST_STEPS):
            # The shift: the eigenvalue of the leading 2 × 2 block nearer to its first entry (Wilkinson).
            root = tl.sqrt(tl.where(live, square, 1.0))
            upper = tl.load(diagonal + at_l, mask=here, other=0.0)
            slope = (tl.load(diagonal + at_l + step, mask=here, other=0.0) - upper) / (2.0 * root)
            hypotenuse = tl.sqrt(slope * slope + 1.0)
            sigma = upper - root / (slope + tl.where(slope < 0, -hypotenuse, hypotenuse))
            cosine = tl.full((LANES,), 1.0, tl.float64)
            sine = tl.zeros((LANES,), tl.float64)
            gamma = tl.load(diagonal + (D - 1) * step + b, mask=here, other=0.0) - sigma
            p = gamma * gamma
            for j in range(D - 1 - l):
                at_i = (D - 2 - j) * step + b
                e = tl.load(squares + at_i, mask=here, other=0.0)
                alpha = tl.load(diagonal + at_i, mask=here, other=0.0)
                r = p + e
                tl.store(squares + at_i + step, sine * r, mask=live & (j > 0))
                nothing = r < VANISHED  # nothing to rotate
                upright = p < VANISHED  # a quarter turn
                inverse = 1.0 / tl.where(nothing, 1.0, r)
                before = cosine
                cosine = tl.where(nothing, 1.0, tl.where(upright, 0.0, p * inverse))
                sine = tl.where(nothing, 0.0, tl.where(upright, 1.0, e * inverse))
                growth = r / tl.where(upright, 1.0, p)  # 1/cosine, off the chain of dependent operations
                old = gamma
                gamma = cosine * (alpha - sigma) - sine * old
                tl.store(diagonal + at_i + step, old + (alpha - gamma), mask=live)
                p = tl.where(upright & (r >= VANISHED), before * e, gamma * gamma * tl.where(upright, 1.0, growth))
            square = tl.where(live, sine * p, square)
            tl.store(squares + at_l, square, mask=live)
            tl.store(diagonal + at_l, sigma + gamma, mask=live)
            live = live & (square > NEGLIGIBLE_SQUARE)
            tries += 1
        total += tl.sqrt(tl.maximum(tl.load(diagonal + at_l, mask=here, other=0.0), 0.0))
    total += tl.sqrt(tl.maximum(tl.load(diagonal + (D - 1) * step + b, mask=here, other=0.0), 0.0))
    trace = tl.load(traces + b, mask=here, other=0.0)
    highest = tl.sqrt(tl.full((LANES,), D, tl.float64))
    # Rounding may leave the ratio slightly outside its bounds [1, √D].
    ratio = tl.where(trace > 0, tl.minimum(tl.maximum(total, 1.0), highest), 0.0)
    if form == NORM:
        value = ratio * tl.sqrt(tl.maximum(trace, 0.0))
        if double:
            value = times_power_of_two(value, tl.load(exponents + b, mask=here, other=0))
    elif form == FLOOR:
        value = tl.maximum(ratio - 1.0, 0.0) / (highest - 1.0) if D > 1 else ratio * 0.0
    elif form == SCORE:
        value = ratio / tl.sqrt((longest + tl.zeros((LANES,), tl.int32)).to(tl.float64))
    else:
        value = ratio
    value = tl.where((trace >= 0) & (trace < float("inf")), value, float("nan"))
    tl.store(out + b, value.to(out.dtype.element_ty), mask=here)
