"""Triton kernels: Adam over several float32 tensors in one launch.

    precompute_scalars    whether all losses are finite, and the factors that depend on t alone, for each tensor
    adam_step             one block of one tensor per program, and t ← t + 1 for every tensor

With g the gradient, t the steps including this one, and β₁, β₂, ε, η as in Kingma & Ba 2015, algorithm 1:

    m ← m + (1 − β₁) (g − m)
    v ← v + (1 − β₂) (g² − v)
    w ← w − η / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)

Moments are written as m + (1 − β)(new − m), not β m + (1 − β) new: float32's 0.999 makes 1 − β₂, and so v, wrong by
1.3e-5 (as in torch 2.11's fused kernel); float32's 0.001 is off by 5e-8.

If one of the losses is not finite, neither weights, moments nor t change, whatever the gradients are.

Tensors are passed as tuples of pointers, from which a program selects its own: nothing is copied to the device first,
so that the launch can be captured in a CUDA graph.
"""
# Triton's language has Python's syntax and its own types; its compile-time constants are written in capitals.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def select(items, index):
    """items[index], for an index known only at run time."""
    item = items[0]
    for i in tl.static_range(1, len(items)):
        item = tl.where(index == i, items[i], item)
    return item


@triton.jit
def lerp(old, new, SHARE: tl.constexpr):
    """old + SHARE (new − old), from the nearer end, as torch's lerp."""
    if SHARE < 0.5:
        return old + SHARE * (new - old)
    else:  # noqa: RET505  Triton leaves out a branch that is not taken, not what stands behind it
        return new - (1.0 - SHARE) * (new - old)


@triton.jit
def precompute_scalars(
    steps, corrections, rate, losses, stride, counts, skip,
    LOG_FIRST: tl.constexpr, LOG_SECOND: tl.constexpr, SEEDS: tl.constexpr, LANES: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """One program per tensor: η / (1 − β₁ᵗ) and 1 / √(1 − β₂ᵗ), (2,) of `corrections`. LOG_*: the logarithms of β.

    `losses`: SEEDS numbers, `stride` apart. `skip` becomes 1 if one is not finite, else 0; if COUNT, 1 is added to
    `counts` for each that is not. LANES: SEEDS rounded up to a power of two.
    """
    place = tl.program_id(0)
    lane = tl.arange(0, LANES)
    # All loads come first, so that a program waits for memory once.
    loss = tl.load(losses + lane * stride, mask=lane < SEEDS, other=0.0)
    before = tl.load(select(steps, place))
    eta = tl.load(rate).to(tl.float64)
    if COUNT:
        counted = tl.load(counts + lane, mask=(lane < SEEDS) & (place == 0), other=0.0)
    bad = (loss - loss != 0.0).to(tl.int32)  # x − x is NaN exactly when x is NaN or ±inf
    # Every program checks for itself: they run in any order, so none can wait for another's result.
    halt = tl.max(bad, axis=0) > 0
    if COUNT:
        tl.store(counts + lane, counted + bad.to(tl.float32), mask=(lane < SEEDS) & (place == 0))
    tl.store(skip, halt.to(tl.float32), mask=place == 0)
    t = (before + 1.0).to(tl.float64)
    # In float64: 1 − 0.999 in float32 is off by 1.3e-5.
    first = 1.0 - tl.exp(t * tl.full((), LOG_FIRST, tl.float64))
    second = 1.0 - tl.exp(t * tl.full((), LOG_SECOND, tl.float64))
    tl.store(corrections + 2 * place, (eta / first).to(tl.float32))
    tl.store(corrections + 2 * place + 1, (1.0 / tl.sqrt(second)).to(tl.float32))


@triton.jit
def _block(
    weight, gradient, first, second, inside, size, root, live, eps,
    SHARE_FIRST: tl.constexpr, SHARE_SECOND: tl.constexpr,
):  # fmt: skip
    """The entries at these pointers; `inside` masks padding, None: there is none."""
    # All loads come before the test of `live`, so that programs wait for memory once. Gradients and moments are not
    # read again before the next update: they are evicted from the cache first.
    w = tl.load(weight, mask=inside)
    g = tl.load(gradient, mask=inside, eviction_policy="evict_first")
    m = tl.load(first, mask=inside, eviction_policy="evict_first")
    v = tl.load(second, mask=inside, eviction_policy="evict_first")
    m = lerp(m, g, SHARE_FIRST)
    v = lerp(v, g * g, SHARE_SECOND)
    moved = w - tl.div_rn(size * m, tl.sqrt_rn(v) * root + eps)
    if live:
        tl.store(weight, moved, mask=inside)
        tl.store(first, m, mask=inside, eviction_policy="evict_first")
        tl.store(second, v, mask=inside, eviction_policy="evict_first")


@triton.jit
def adam_step(
    weights, gradients, firsts, seconds, steps, corrections, skip, eps,
    SHARE_FIRST: tl.constexpr, SHARE_SECOND: tl.constexpr,
    SIZES: tl.constexpr, BEGINS: tl.constexpr, PLACES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """SHARE_*: 1 − β. SIZES: entries of each tensor; BEGINS: the first program of each, of BLOCK entries.

    PLACES: the rows of `corrections` of these tensors.
    """
    program = tl.program_id(0)
    place = tl.full((), 0, tl.int32)
    for i in tl.static_range(1, len(SIZES)):
        place += (program >= BEGINS[i]).to(tl.int32)
    begin = (program - select(BEGINS, place)).to(tl.int64) * BLOCK
    left = select(SIZES, place) - begin
    lane = tl.arange(0, BLOCK)
    weight = select(weights, place) + begin + lane
    gradient = select(gradients, place) + begin + lane
    first = select(firsts, place) + begin + lane
    second = select(seconds, place) + begin + lane
    shared = corrections + 2 * select(PLACES, place)
    size, root = tl.load(shared), tl.load(shared + 1)
    live = tl.load(skip) == 0.0
    # Without a mask loads are 16 bytes wide; with one they would need an edge known to be a multiple of that.
    if left >= BLOCK:
        _block(weight, gradient, first, second, None, size, root, live, eps, SHARE_FIRST, SHARE_SECOND)
    else:
        _block(weight, gradient, first, second, lane < left, size, root, live, eps, SHARE_FIRST, SHARE_SECOND)
    # By one program per tensor, the only one that reads its count; last, so that memory is waited for once.
    step = select(steps, place)
    counts = live & (begin == 0)
    tl.store(step, tl.load(step, mask=counts, other=0.0) + 1.0, mask=counts)
