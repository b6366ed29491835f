"""Triton kernels: the float64 Gram matrix of each small matrix, from one pass over its entries.

A matrix is seen as D lines (its smaller side) of `long` entries:  G[i, j] = Σ_k x[i, k] · x[j, k],  i ≥ j, D ≤ 32.

    gram_small   D ≤ 8: one warp per matrix, one float64 accumulator per lane and entry of G
    gram_tile    D ≤ 32: blocks of columns through float64 matrix products (tensor cores where there are some)

Entries are read once in their own type and multiplied in float64. `center` (see CENTER_*) happens between the two; the
first line or entry is subtracted before any mean, so that nearly equal rows lose nothing. float64 input is brought near
1 by a power of two first, which costs another pass; squares of narrower types cannot leave float64's range.

Output: the lower triangle of G row by row, (B, D (D + 1) / 2), and the power of two taken out.
"""

from __future__ import annotations

import triton
import triton.language as tl

# What is subtracted. Lines are the rows of Z, or its columns where Z has fewer columns than rows.
CENTER_NONE = 0
CENTER_MEAN_LINE = 1  # rows are lines: the mean row
CENTER_FIRST_LINE = 2  # rows are lines: the first row
CENTER_MEAN_ENTRY = 3  # columns are lines: the mean row is each line's mean
CENTER_FIRST_ENTRY = 4  # columns are lines: the first row is each line's first entry

NO_CENTER = tl.constexpr(CENTER_NONE)
MEAN_LINE = tl.constexpr(CENTER_MEAN_LINE)
FIRST_LINE = tl.constexpr(CENTER_FIRST_LINE)
MEAN_ENTRY = tl.constexpr(CENTER_MEAN_ENTRY)
FIRST_ENTRY = tl.constexpr(CENTER_FIRST_ENTRY)
MANTISSA_BITS = tl.constexpr(52)
HALF_EXPONENT = tl.constexpr(1022)  # biased exponent of numbers in [1/2, 1)
LIFT = tl.constexpr(64)
LIFT_FACTOR = tl.constexpr(2.0**64)  # brings every subnormal float64 into the normal range


@triton.jit
def power_of_two(exponent):
    """2^exponent in float64, for exponents of normal numbers."""
    return ((exponent.to(tl.int64) + (HALF_EXPONENT + 1)) << MANTISSA_BITS).to(tl.float64, bitcast=True)


@triton.jit
def times_power_of_two(x, exponent):
    """x · 2^exponent in two halves, because the whole power may be no float64 number while the product is one."""
    half = exponent >> 1
    return x * power_of_two(half) * power_of_two(exponent - half)


@triton.jit
def exponent_of(peak):
    """The e with peak · 2^-e in [1/2, 1); 0 for zero and for what is not finite."""
    subnormal = peak < 2.2250738585072014e-308
    lifted = tl.where(subnormal, peak * LIFT_FACTOR, peak)
    field = (lifted.to(tl.int64, bitcast=True) >> MANTISSA_BITS).to(tl.int32)
    exponent = field - HALF_EXPONENT - tl.where(subnormal, LIFT, 0)
    return tl.where((peak > 0) & (peak < float("inf")), exponent, 0)


@triton.jit
def _small_lines(
    pointers,
    k,
    within,
    stride_long,
    offset,
    mean,
    exponent,
    D: tl.constexpr,
    center: tl.constexpr,
    double: tl.constexpr,
):
    """The D lines at columns k as a tuple of float64 tiles, scaled and centred; 0 outside."""
    lines = ()
    for i in tl.static_range(D):
        line = tl.load(pointers[i] + k * stride_long, mask=within, other=0.0).to(tl.float64)
        if double:
            line = times_power_of_two(line, -exponent)
        if center == MEAN_ENTRY or center == FIRST_ENTRY:
            line = tl.where(within, line - offset[i] - mean[i], 0.0)
        lines = lines + (line,)
    if center == MEAN_LINE or center == FIRST_LINE:
        first = lines[0]
        offsets = ()
        for i in tl.static_range(D):
            offsets = offsets + (lines[i] - first,)
        middle = first * 0.0
        if center == MEAN_LINE:
            for i in tl.static_range(1, D):
                middle += offsets[i]
            middle = middle / D
        lines = ()
        for i in tl.static_range(D):
            lines = lines + (offsets[i] - middle,)
    return lines


@triton.jit
def gram_small(
    z, table, index, gram, exponents, inner, long,
    stride_outer, stride_inner, stride_line, stride_long, stride_table,
    D: tl.constexpr, WIDTH: tl.constexpr, center: tl.constexpr, gather: tl.constexpr, double: tl.constexpr,
):  # fmt: skip
    """One program per matrix; WIDTH neighbouring columns per lane, 32 lanes."""
    b = tl.program_id(0).to(tl.int64)
    start = z + (b // inner) * stride_outer + (b % inner) * stride_inner
    column = tl.arange(0, 32)[:, None] * WIDTH + tl.arange(0, WIDTH)[None, :]
    pointers = ()
    for i in tl.static_range(D):
        if gather and i > 0:
            pointers = pointers + (table + tl.load(index + b * (D - 1) + (i - 1)) * stride_table,)
        else:
            pointers = pointers + (start + i * stride_line,)
    zeros = ()
    for _ in tl.static_range(D):
        zeros = zeros + (tl.full((), 0.0, tl.float64),)
    exponent = tl.full((), 0, tl.int32)
    if double:  # Bring the largest entry near 1.
        peak = tl.zeros((32, WIDTH), tl.float64)
        for block in range(0, long, 32 * WIDTH):
            k = block + column
            lines = _small_lines(pointers, k, k < long, stride_long, zeros, zeros, exponent, D, NO_CENTER, False)
            for i in tl.static_range(D):
                peak = tl.maximum(peak, tl.abs(lines[i]))
        exponent = exponent_of(tl.max(tl.max(peak, axis=1), axis=0))
    offset = zeros
    mean = zeros
    if center == MEAN_ENTRY or center == FIRST_ENTRY:
        offset = ()
        for i in tl.static_range(D):
            first = tl.load(pointers[i]).to(tl.float64)
            if double:
                first = times_power_of_two(first, -exponent)
            offset = offset + (first,)
    if center == MEAN_ENTRY:
        total = zeros
        for block in range(0, long, 32 * WIDTH):
            k = block + column
            lines = _small_lines(pointers, k, k < long, stride_long, offset, zeros, exponent, D, FIRST_ENTRY, double)
            larger = ()
            for i in tl.static_range(D):
                larger = larger + (total[i] + tl.sum(tl.sum(lines[i], axis=1), axis=0),)
            total = larger
        mean = ()
        for i in tl.static_range(D):
            mean = mean + (total[i] / long,)
    smaller = tl.full((), 0, tl.int32)
    if double and center != NO_CENTER:  # Deviations may be far smaller than what they deviate from.
        peak = tl.zeros((32, WIDTH), tl.float64)
        for block in range(0, long, 32 * WIDTH):
            k = block + column
            lines = _small_lines(pointers, k, k < long, stride_long, offset, mean, exponent, D, center, double)
            for i in tl.static_range(D):
                peak = tl.maximum(peak, tl.abs(lines[i]))
        smaller = exponent_of(tl.max(tl.max(peak, axis=1), axis=0))
    sums = ()
    for _ in tl.static_range(D * (D + 1) // 2):
        sums = sums + (tl.zeros((32,), tl.float64),)
    for block in range(0, long, 32 * WIDTH):
        k = block + column
        lines = _small_lines(pointers, k, k < long, stride_long, offset, mean, exponent, D, center, double)
        if double and center != NO_CENTER:
            shifted = ()
            for i in tl.static_range(D):
                shifted = shifted + (times_power_of_two(lines[i], -smaller),)
            lines = shifted
        larger = ()
        for i in tl.static_range(D):
            for j in tl.static_range(i + 1):
                larger = larger + (sums[i * (i + 1) // 2 + j] + tl.sum(lines[i] * lines[j], axis=1),)
        sums = larger
    size: tl.constexpr = D * (D + 1) // 2
    for entry in tl.static_range(size):
        tl.store(gram + b * size + entry, tl.sum(sums[entry], axis=0))
    if double:
        tl.store(exponents + b, exponent + smaller)


@triton.jit
def _tile_block(
    start, table, rows, i, k, long, stride_line, stride_long, stride_table, offset, mean, exponent,
    D: tl.constexpr, center: tl.constexpr, gather: tl.constexpr, double: tl.constexpr,
):  # fmt: skip
    """Columns k of all lines as one float64 tile (SIDE, K), scaled and centred; 0 outside."""
    within = (i < D)[:, None] & (k < long)[None, :]
    step = k.to(tl.int64) * stride_long
    if gather:
        own = tl.load(start + step[None, :] + 0 * i[:, None], mask=within & (i == 0)[:, None], other=0.0)
        others = tl.load(
            table + rows[:, None] * stride_table + step[None, :], mask=within & (i > 0)[:, None], other=0.0
        )
        x = (own + others).to(tl.float64)
    else:
        x = tl.load(start + i.to(tl.int64)[:, None] * stride_line + step[None, :], mask=within, other=0.0)
        x = x.to(tl.float64)
    if double:
        x = times_power_of_two(x, -exponent)
    if center == MEAN_LINE or center == FIRST_LINE:
        first = tl.load(start + step, mask=k < long, other=0.0).to(tl.float64)
        if double:
            first = times_power_of_two(first, -exponent)
        x = tl.where((i < D)[:, None], x - first[None, :], 0.0)
        if center == MEAN_LINE:
            x = tl.where((i < D)[:, None], x - (tl.sum(x, axis=0) / D)[None, :], 0.0)
    if center == MEAN_ENTRY or center == FIRST_ENTRY:
        x = tl.where(within, x - offset[:, None] - mean[:, None], 0.0)
    return x


@triton.jit
def gram_tile(
    z, table, index, gram, exponents, inner, long,
    stride_outer, stride_inner, stride_line, stride_long, stride_table,
    D: tl.constexpr, SIDE: tl.constexpr, K: tl.constexpr,
    center: tl.constexpr, gather: tl.constexpr, double: tl.constexpr,
):  # fmt: skip
    """One program per matrix; SIDE ≥ D lines and K columns at a time."""
    b = tl.program_id(0).to(tl.int64)
    start = z + (b // inner) * stride_outer + (b % inner) * stride_inner
    i = tl.arange(0, SIDE)
    lane = tl.arange(0, K)
    rows = i.to(tl.int64)
    if gather:
        rows = tl.load(index + b * (D - 1) + i - 1, mask=(i > 0) & (i < D), other=0)
    offset = tl.zeros((SIDE,), tl.float64)
    mean = tl.zeros((SIDE,), tl.float64)
    exponent = tl.full((), 0, tl.int32)
    if double:  # Bring the largest entry near 1.
        peak = tl.zeros((SIDE, K), tl.float64)
        for block in range(0, long, K):
            x = _tile_block(
                start, table, rows, i, block + lane, long, stride_line, stride_long, stride_table, offset, mean,
                exponent, D, NO_CENTER, gather, False,
            )  # fmt: skip
            peak = tl.maximum(peak, tl.abs(x))
        exponent = exponent_of(tl.max(tl.max(peak, axis=1), axis=0))
    if center == MEAN_ENTRY or center == FIRST_ENTRY:
        offset = tl.load(start + i.to(tl.int64) * stride_line, mask=i < D, other=0.0).to(tl.float64)
        if double:
            offset = times_power_of_two(offset, -exponent)
    if center == MEAN_ENTRY:
        total = tl.zeros((SIDE,), tl.float64)
        for block in range(0, long, K):
            x = _tile_block(
                start, table, rows, i, block + lane, long, stride_line, stride_long, stride_table, offset, mean,
                exponent, D, FIRST_ENTRY, gather, double,
            )  # fmt: skip
            total += tl.sum(x, axis=1)
        mean = total / long
    smaller = tl.full((), 0, tl.int32)
    if double and center != NO_CENTER:  # Deviations may be far smaller than what they deviate from.
        peak = tl.zeros((SIDE, K), tl.float64)
        for block in range(0, long, K):
            x = _tile_block(
                start, table, rows, i, block + lane, long, stride_line, stride_long, stride_table, offset, mean,
                exponent, D, center, gather, double,
            )  # fmt: skip
            peak = tl.maximum(peak, tl.abs(x))
        smaller = exponent_of(tl.max(tl.max(peak, axis=1), axis=0))
    sums = tl.zeros((SIDE, SIDE), tl.float64)
    for block in range(0, long, K):
        x = _tile_block(
            start, table, rows, i, block + lane, long, stride_line, stride_long, stride_table, offset, mean,
            exponent, D, center, gather, double,
        )  # fmt: skip
        if double and center != NO_CENTER:
            x = times_power_of_two(x, -smaller)
        sums = tl.dot(x, tl.trans(x), sums, out_dtype=tl.float64)
    size: tl.constexpr = D * (D + 1) // 2
    packed = (i * (i + 1) // 2)[:, None] + i[None, :]
    tl.store(gram + b * size + packed, sums, mask=(i[None, :] <= i[:, None]) & (i < D)[:, None])
    if double:
        tl.store(exponents + b, exponent + smaller)
