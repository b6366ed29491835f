"""Triton kernels: Adam over several float32 tensors in one launch.

    look       whether all losses are finite, and what all entries of a tensor share, which hangs on t alone
    descend    one block of one tensor per program, and t ← t + 1 of every tensor

With g the gradient, t the steps including this one, and β₁, β₂, ε, η as in Kingma & Ba 2015, algorithm 1:

    m ← m + (1 − β₁) (g − m)
    v ← v + (1 − β₂) (g² − v)
    w ← w − η / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)

Moments move towards what is new instead of being weighted with β: float32's 0.999 leaves 1 − β₂ off by 1.3e-5, and so v
(as measured of torch 2.11's fused kernel); float32's 0.001 is off by 5e-8.

Where one of the losses is not finite neither weights, moments nor t change, whatever the gradients are.

Tensors are named by tuples of pointers, from which a program chooses its own: nothing is copied to the device first, so
that a CUDA graph can hold the launch.
"""
# Triton's language has Python's syntax and its own types; its compile-time constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def chosen(those, place):
    """those[place], of a place that is known only when the program runs."""
    found = those[0]
    for i in tl.static_range(1, len(those)):
        found = tl.where(place == i, those[i], found)
    return found


@triton.jit
def between(old, new, SHARE: tl.constexpr):
    """The share of the way from the old to the new, from the nearer end, as torch's lerp does it."""
    if SHARE < 0.5:
        return old + SHARE * (new - old)
    else:  # noqa: RET505  Triton leaves out a branch that is not taken, not what stands behind it
        return new - (1.0 - SHARE) * (new - old)


@triton.jit
def look(
    steps, corrections, rate, losses, stride, refused, skip,
    LOG_FIRST: tl.constexpr, LOG_SECOND: tl.constexpr, SEEDS: tl.constexpr, LANES: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """One program per tensor: η / (1 − β₁ᵗ) and 1 / √(1 − β₂ᵗ), (2,) of `corrections`. LOG_*: the logarithms of β.

    `losses`: SEEDS numbers, `stride` apart. Whether one is not finite goes to `skip`, as 1 or 0, and if COUNT each that
    is not is counted in `refused`. LANES: the next power of two.
    """
    place = tl.program_id(0)
    lane = tl.arange(0, LANES)
    # All that is read, first, so that a program waits for memory once.
    loss = tl.load(losses + lane * stride, mask=lane < SEEDS, other=0.0)
    before = tl.load(chosen(steps, place))
    eta = tl.load(rate).to(tl.float64)
    if COUNT:
        counted = tl.load(refused + lane, mask=(lane < SEEDS) & (place == 0), other=0.0)
    bad = (loss - loss != 0.0).to(tl.int32)  # a number less itself is 0 unless it is infinite or none
    # By every program for itself: they run in any order, so that none can wait for what another one finds.
    halt = tl.max(bad, axis=0) > 0
    if COUNT:
        tl.store(refused + lane, counted + bad.to(tl.float32), mask=(lane < SEEDS) & (place == 0))
    tl.store(skip, halt.to(tl.float32), mask=place == 0)
    t = (before + 1.0).to(tl.float64)
    # In float64: 1 − 0.999 of float32 numbers is off by 1.3e-5.
    first = 1.0 - tl.exp(t * tl.full((), LOG_FIRST, tl.float64))
    second = 1.0 - tl.exp(t * tl.full((), LOG_SECOND, tl.float64))
    tl.store(corrections + 2 * place, (eta / first).to(tl.float32))
    tl.store(corrections + 2 * place + 1, (1.0 / tl.sqrt(second)).to(tl.float32))


@triton.jit
def _block(
    weight, gradient, first, second, inside, size, root, live, eps,
    SHARE_FIRST: tl.constexpr, SHARE_SECOND: tl.constexpr,
):  # fmt: skip
    """The entries at these pointers; `inside` says which of them exist, None: all."""
    # Everything is read before `live` is looked at, so that programs wait for memory once. Gradients and moments are
    # not read again before the next update: they may leave the cache first.
    w = tl.load(weight, mask=inside)
    g = tl.load(gradient, mask=inside, eviction_policy="evict_first")
    m = tl.load(first, mask=inside, eviction_policy="evict_first")
    v = tl.load(second, mask=inside, eviction_policy="evict_first")
    m = between(m, g, SHARE_FIRST)
    v = between(v, g * g, SHARE_SECOND)
    moved = w - tl.div_rn(size * m, tl.sqrt_rn(v) * root + eps)
    if live:
        tl.store(weight, moved, mask=inside)
        tl.store(first, m, mask=inside, eviction_policy="evict_first")
        tl.store(second, v, mask=inside, eviction_policy="evict_first")


@triton.jit
def descend(
    weights, gradients, firsts, seconds, steps, corrections, skip, eps,
    SHARE_FIRST: tl.constexpr, SHARE_SECOND: tl.constexpr,
    SIZES: tl.constexpr, BEGINS: tl.constexpr, PLACES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """SHARE_*: 1 − β. SIZES: entries of each tensor; BEGINS: the first program of each, of BLOCK entries.

    PLACES: which of `corrections` are theirs.
    """
    program = tl.program_id(0)
    place = tl.full((), 0, tl.int32)
    for i in tl.static_range(1, len(SIZES)):
        place += (program >= BEGINS[i]).to(tl.int32)
    begin = (program - chosen(BEGINS, place)).to(tl.int64) * BLOCK
    left = chosen(SIZES, place) - begin
    lane = tl.arange(0, BLOCK)
    weight = chosen(weights, place) + begin + lane
    gradient = chosen(gradients, place) + begin + lane
    first = chosen(firsts, place) + begin + lane
    second = chosen(seconds, place) + begin + lane
    shared = corrections + 2 * chosen(PLACES, place)
    size, root = tl.load(shared), tl.load(shared + 1)
    live = tl.load(skip) == 0.0
    # Without a mask 16 bytes are read at a time; with one only where its edge were known to be a multiple of that.
    if left >= BLOCK:
        _block(weight, gradient, first, second, None, size, root, live, eps, SHARE_FIRST, SHARE_SECOND)
    else:
        _block(weight, gradient, first, second, lane < left, size, root, live, eps, SHARE_FIRST, SHARE_SECOND)
    # By one program of each tensor, the only one that reads its count; last, so that no memory is waited for twice.
    step = chosen(steps, place)
    counts = live & (begin == 0)
    tl.store(step, tl.load(step, mask=counts, other=0.0) + 1.0, mask=counts)
