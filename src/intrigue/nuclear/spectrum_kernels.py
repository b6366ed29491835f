"""Triton kernels: from Gram matrices to the sum of their eigenvalues' square roots, without eigenvectors.

    G / tr G  ->  tridiagonal, by Householder reflections  ->  eigenvalues, by QL steps  ->  the value asked for

    spectrum_small      the smallest: all of it, one matrix per lane, everything in registers
    tridiagonal         the reflections alone, a row of the matrix per lane; writes the diagonals d and squares e²
    spectrum_of_bands   the rest, one matrix per lane, in registers
    spectrum_of_long_bands   the same in memory, where registers and compilation time would run out

The QL step is the square-root-free one of Pal, Walker and Kahan (Parlett, The Symmetric Eigenvalue Problem, 1980, sec.
8.15), in the form LAPACK's `sterf` documents; the scaling to trace 1 makes absolute thresholds meaningful. Loops over
entries are unrolled where tuples of registers stand for arrays; loops over QL steps never are, so that compilation
stays short.
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
def _advance(at, squares, FROM: tl.constexpr, TO: tl.constexpr):
    """Per lane, the first off-diagonal from its own on that is not negligible yet."""
    for j in tl.static_range(FROM, TO):
        at = tl.where((at == j) & (squares[j] <= NEGLIGIBLE_SQUARE), j + 1, at)
    return at


@triton.jit
def _shift(upper, lower, square):
    """The eigenvalue of the leading 2 × 2 block nearer to its first entry (Wilkinson's shift)."""
    root = tl.sqrt(tl.where(square > NEGLIGIBLE_SQUARE, square, 1.0))
    slope = (lower - upper) / (2.0 * root)
    hypotenuse = tl.sqrt(slope * slope + 1.0)
    return upper - root / (slope + tl.where(slope < 0, -hypotenuse, hypotenuse))


@triton.jit
def _rotate(p, cosine, gamma, sigma, d, e):
    """One rotation of a QL sweep at diagonal d and off-diagonal e²: (r, p, cosine, sine, gamma, diagonal below)."""
    r = p + e
    nothing = r < VANISHED  # nothing to rotate
    upright = p < VANISHED  # a quarter turn
    safe = tl.where(upright, 1.0, p)
    # One division serves both quotients; r · p stays above 1e-300 and so is exact enough.
    inverse = 1.0 / (tl.where(nothing, 1.0, r) * safe)
    quarter = tl.where(upright, 0.0, p * (safe * inverse))
    new_cosine = tl.where(nothing, 1.0, quarter)
    sine = tl.where(nothing, 0.0, tl.where(upright, 1.0, e * (safe * inverse)))
    new_gamma = new_cosine * (d - sigma) - sine * gamma
    growth = tl.where(upright, 1.0, r * (r * inverse))  # 1 / cosine
    new_p = tl.where(upright & (r >= VANISHED), cosine * e, new_gamma * new_gamma * growth)
    return r, new_p, new_cosine, sine, new_gamma, gamma + (d - new_gamma)


@triton.jit
def _ql_step(d, e, at, D: tl.constexpr, FROM: tl.constexpr, TO: tl.constexpr):
    """One QL sweep of each lane's rows `at` to D − 1; lanes with `at` outside FROM ≤ at < TO are left alone."""
    upper, lower, square = d[FROM], d[FROM + 1], e[FROM]
    for j in tl.static_range(FROM + 1, TO):
        upper = tl.where(at == j, d[j], upper)
        lower = tl.where(at == j, d[j + 1], lower)
        square = tl.where(at == j, e[j], square)
    sigma = _shift(upper, lower, square)
    gamma = d[D - 1] - sigma
    p = gamma * gamma
    cosine = p * 0.0 + 1.0
    sine = p * 0.0
    diagonal = ()
    off = ()
    pending_d = d[D - 1]
    pending_e = e[D - 2]
    for i in tl.static_range(D - 2, FROM - 1, -1):
        live = (at <= i) & (at < TO)
        last = (at == i) & (at < TO)
        before = sine
        r, p, cosine, sine, gamma, below = _rotate(p, cosine, gamma, sigma, d[i], e[i])
        if i < D - 2:
            off = (tl.where(live, before * r, pending_e),) + off
        diagonal = (tl.where(live, below, pending_d),) + diagonal
        pending_d = tl.where(last, sigma + gamma, d[i])
        pending_e = tl.where(last, sine * p, e[i])
    diagonal = (pending_d,) + diagonal
    off = (pending_e,) + off
    for j in tl.static_range(FROM):
        diagonal = (d[FROM - 1 - j],) + diagonal
        off = (e[FROM - 1 - j],) + off
    return diagonal, off


@triton.jit
def _free(d, e, at, D: tl.constexpr, FROM: tl.constexpr, TO: tl.constexpr):
    """QL steps until the off-diagonals FROM to TO − 1 are negligible in every lane."""
    at = _advance(tl.maximum(at, FROM), e, FROM, TO)
    tries = 0
    while (tl.min(at, axis=0) < TO) & (tries < MOST_STEPS * (TO - FROM)):
        d, e = _ql_step(d, e, at, D, FROM, TO)
        at = _advance(at, e, FROM, TO)
        tries += 1
    return d, e, at


@triton.jit
def _eigenvalues(d, e, D: tl.constexpr, PHASE: tl.constexpr):
    """The eigenvalues as a tuple; every `PHASE` off-diagonals freed, the rows above them are let go."""
    at = (d[0] * 0.0).to(tl.int32)
    for start in tl.static_range(0, D - 1, PHASE):
        d, e, at = _free(d, e, at, D, start, start + PHASE if start + PHASE < D - 1 else D - 1)
    return d


@triton.jit
def _sum_of_roots(d, D: tl.constexpr):
    total = tl.sqrt(tl.maximum(d[0], 0.0))
    for i in tl.static_range(1, D):
        total += tl.sqrt(tl.maximum(d[i], 0.0))
    return total


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
def spectrum_small(
    gram, exponents, out, count, longest,
    D: tl.constexpr, LANES: tl.constexpr, PHASE: tl.constexpr, form: tl.constexpr, double: tl.constexpr,
):  # fmt: skip
    """From packed lower triangles (B, D (D + 1) / 2) to values, one matrix per lane."""
    b = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    here = b < count
    size: tl.constexpr = D * (D + 1) // 2
    a = ()
    for entry in tl.static_range(size):
        a = a + (tl.load(gram + b * size + entry, mask=here, other=0.0),)
    trace = a[0]
    for i in tl.static_range(1, D):
        trace += a[i * (i + 1) // 2 + i]
    usable = (trace > 0) & (trace < float("inf"))
    scale = 1.0 / tl.where(usable, trace, 1.0)
    unit = ()
    for entry in tl.static_range(size):
        unit = unit + (tl.where(usable, a[entry] * scale, 0.0),)
    a = unit
    e = ()
    for k in tl.static_range(D - 1):
        square = a[0] * 0.0
        for i in tl.static_range(k + 1, D):
            square += a[i * (i + 1) // 2 + k] * a[i * (i + 1) // 2 + k]
        square = tl.where(square > VANISHED, square, 0.0)
        e = e + (square,)
        if k < D - 2:
            head = a[(k + 1) * (k + 2) // 2 + k]
            length = tl.sqrt(square)
            beta = tl.where(square > 0, 1.0 / tl.where(square > 0, square + tl.abs(head) * length, 1.0), 0.0)
            v = (head + tl.where(head < 0, -length, length),)  # the reflection is I − β v vᵀ
            for i in tl.static_range(k + 2, D):
                v = v + (a[i * (i + 1) // 2 + k],)
            p = ()
            dot = square * 0.0
            for i in tl.static_range(k + 1, D):
                product = square * 0.0
                for j in tl.static_range(k + 1, D):
                    product += (a[i * (i + 1) // 2 + j] if j <= i else a[j * (j + 1) // 2 + i]) * v[j - k - 1]
                p = p + (beta * product,)
                dot += v[i - k - 1] * (beta * product)
            w = ()
            for i in tl.static_range(D - k - 1):
                w = w + (p[i] - 0.5 * beta * dot * v[i],)
            turned = ()
            for i in tl.static_range(D):
                for j in tl.static_range(i + 1):
                    if j > k:
                        changed = v[i - k - 1] * w[j - k - 1] + w[i - k - 1] * v[j - k - 1]
                        turned = turned + (a[i * (i + 1) // 2 + j] - changed,)
                    else:
                        turned = turned + (a[i * (i + 1) // 2 + j],)
            a = turned
    d = ()
    for i in tl.static_range(D):
        d = d + (a[i * (i + 1) // 2 + i],)
    if D > 1:
        d = _eigenvalues(d, e, D, PHASE)
    _store_value(_sum_of_roots(d, D), trace, exponents, out, b, here, longest, D, form, double)


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
def spectrum_of_bands(
    diagonal, squares, traces, exponents, out, count, longest,
    D: tl.constexpr, LANES: tl.constexpr, PHASE: tl.constexpr, form: tl.constexpr, double: tl.constexpr,
):  # fmt: skip
    """From the tridiagonal matrices, (D, B) twice, to values, one matrix per lane; D ≥ 2."""
    b = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    here = b < count
    step = tl.full((), 0, tl.int64) + count
    d = ()
    e = ()
    for i in tl.static_range(D):
        d = d + (tl.load(diagonal + i * step + b, mask=here, other=0.0),)
    for i in tl.static_range(D - 1):
        e = e + (tl.load(squares + i * step + b, mask=here, other=0.0),)
    trace = tl.load(traces + b, mask=here, other=0.0)
    d = _eigenvalues(d, e, D, PHASE)
    _store_value(_sum_of_roots(d, D), trace, exponents, out, b, here, longest, D, form, double)


@triton.jit
def spectrum_of_long_bands(
    diagonal, squares, traces, exponents, out, count, longest,
    D: tl.constexpr, LANES: tl.constexpr, form: tl.constexpr, double: tl.constexpr,
):  # fmt: skip
    """As `spectrum_of_bands`, with `diagonal` and `squares` worked on in place. Needs exactly one warp.

    What the next two rotations need is loaded ahead; they only write behind themselves.
    """
    b = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    here = b < count
    step = tl.full((), 0, tl.int64) + count
    total = tl.zeros((LANES,), tl.float64)
    for row in range(D - 1):
        at = row * step + b
        square = tl.load(squares + at, mask=here, other=0.0)
        live = square > NEGLIGIBLE_SQUARE
        tries = 0
        while (tl.max(live.to(tl.int32), axis=0) > 0) & (tries < MOST_STEPS):
            end = (D - 1) * step + b
            gamma = tl.load(diagonal + end, mask=here, other=0.0)
            d = tl.load(diagonal + end - step, mask=here, other=0.0)
            e = tl.load(squares + end - step, mask=here, other=0.0)
            next_d = tl.load(diagonal + end - 2 * step, mask=here, other=0.0)
            next_e = tl.load(squares + end - 2 * step, mask=here, other=0.0)
            upper = tl.load(diagonal + at, mask=here, other=0.0)
            lower = tl.load(diagonal + at + step, mask=here, other=0.0)
            sigma = _shift(upper, lower, square)
            gamma -= sigma
            p = gamma * gamma
            cosine = tl.full((LANES,), 1.0, tl.float64)
            sine = tl.zeros((LANES,), tl.float64)
            for j in range(D - 1 - row):
                i = D - 2 - j
                spot = i * step + b
                ahead_d = tl.load(diagonal + spot - 2 * step, mask=here & (i > 1), other=0.0)
                ahead_e = tl.load(squares + spot - 2 * step, mask=here & (i > 1), other=0.0)
                before = sine
                r, p, cosine, sine, gamma, below = _rotate(p, cosine, gamma, sigma, d, e)
                tl.store(squares + spot + step, before * r, mask=live & (j > 0))
                tl.store(diagonal + spot + step, below, mask=live)
                d, e = next_d, next_e
                next_d, next_e = ahead_d, ahead_e
            square = tl.where(live, sine * p, square)
            tl.store(squares + at, square, mask=live)
            tl.store(diagonal + at, sigma + gamma, mask=live)
            live = live & (square > NEGLIGIBLE_SQUARE)
            tries += 1
        total += tl.sqrt(tl.maximum(tl.load(diagonal + at, mask=here, other=0.0), 0.0))
    total += tl.sqrt(tl.maximum(tl.load(diagonal + (D - 1) * step + b, mask=here, other=0.0), 0.0))
    trace = tl.load(traces + b, mask=here, other=0.0)
    _store_value(total, trace, exponents, out, b, here, longest, D, form, double)
