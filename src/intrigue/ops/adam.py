"""Launches the Adam kernels (`ops.adam_kernels`) without host-device synchronisation.

    precompute_scalars(scalars, steps, rate, ...)      needs the losses only: may run while gradients are computed
    adam_step(weights, gradients, ..., scalars)

Each launches one kernel per MAX_TENSORS tensors. torch's fused Adam gives 65536 entries to a block of threads: a
network with a million weights occupies only 16 of a GPU's multiprocessors, and the bandwidth of the others is unused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

BLOCK = 1024  # entries per program
WARPS = 4  # of 32 threads each, so that a thread reads two times 16 bytes of every tensor
# Pointers are arguments of the kernel, of which CUDA takes 4 KiB, and a program selects among them one by one.
MAX_TENSORS = 32


class AdamScalars(NamedTuple):
    """What `precompute_scalars` computes for `adam_step`, on the device."""

    corrections: Tensor
    """(N, 2) of N tensors: η / (1 − β₁ᵗ) and 1 / √(1 − β₂ᵗ)."""
    skip: Tensor
    """(): 1 if the step is not to be taken."""

    @classmethod
    def zeros(cls, tensors: int, device: torch.device) -> AdamScalars:
        """For this number of tensors, to be filled in."""
        return cls(torch.zeros(tensors, 2, device=device), torch.zeros((), device=device))


@torch.no_grad()
def precompute_scalars(
    scalars: AdamScalars,
    steps: Sequence[Tensor],
    rate: Tensor,
    *,
    betas: tuple[float, float],
    losses: Tensor,
    nonfinite_counts: Tensor,
) -> None:
    """Fill `scalars` for the next step, from the step count () of each tensor.

    The step is skipped if one of `losses` (S,) is not finite; `nonfinite_counts` (S,) counts each that is not.
    """
    from intrigue.ops import adam_kernels  # not at the top: Triton is published for Linux only

    _check_counts(steps)
    _check_losses(losses, nonfinite_counts, steps)
    logs = [math.log(beta) if beta else -math.inf for beta in betas]
    seeds = losses.numel()
    for start in range(0, len(steps), MAX_TENSORS):
        chunk = tuple(steps[start : start + MAX_TENSORS])
        adam_kernels.precompute_scalars[(len(chunk),)](
            chunk, scalars.corrections[start:], rate, losses, losses.stride(0), nonfinite_counts, scalars.skip,
            LOG_FIRST=logs[0], LOG_SECOND=logs[1], SEEDS=seeds, LANES=1 << (seeds - 1).bit_length(),
            COUNT=start == 0, num_warps=1,
        )  # fmt: skip


@torch.no_grad()
def adam_step(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    steps: Sequence[Tensor],
    scalars: AdamScalars,
    *,
    places: Sequence[int],
    betas: tuple[float, float],
    eps: float,
) -> None:
    """One step of Adam, in place, on weights, moments `firsts` and `seconds`, and step counts; nothing if skipped.

    `places`: the rows of `scalars.corrections` that belong to these tensors.
    """
    from intrigue.ops import adam_kernels

    lists = [weights, gradients, firsts, seconds]
    _check(lists, steps, places)
    for start in range(0, len(weights), MAX_TENSORS):
        part = slice(start, start + MAX_TENSORS)
        pointers = [tuple(each[part]) for each in (*lists, steps)]
        sizes = tuple(each.numel() for each in pointers[0])
        ends = tuple(itertools.accumulate(max(1, -(-size // BLOCK)) for size in sizes))  # empty tensors count steps too
        adam_kernels.adam_step[(ends[-1],)](
            *pointers, scalars.corrections, scalars.skip, eps, SHARE_FIRST=1 - betas[0], SHARE_SECOND=1 - betas[1],
            SIZES=sizes, BEGINS=(0, *ends[:-1]), PLACES=tuple(places[part]), BLOCK=BLOCK, num_warps=WARPS,
        )  # fmt: skip
    # Kernels write without autograd, which would otherwise miss that a saved tensor has changed.
    for each in (weights, firsts, seconds, steps):
        torch.autograd.graph.increment_version(list(each))


def _check(lists: Sequence[Sequence[Tensor]], steps: Sequence[Tensor], places: Sequence[int]) -> None:
    """Kernels assume these shapes, dtypes and layouts and would read other memory."""
    if len({len(each) for each in (*lists, steps, places)}) > 1:
        raise ValueError("the lists differ in length. Pass a tensor of each kind for every weight.")
    for weight, *others in zip(*lists, strict=True):
        for each in (weight, *others):
            if each.shape != weight.shape or each.dtype != torch.float32 or not each.is_contiguous():
                raise ValueError(
                    f"a tensor of shape {tuple(each.shape)}, {each.dtype}, strides {each.stride()} for a weight of "
                    f"shape {tuple(weight.shape)}. All must be of the weight's shape, float32 and contiguous."
                )
            if each.device != weight.device:
                raise ValueError(f"a tensor on {each.device} for a weight on {weight.device}. Move it there.")
    _check_counts(steps)


def _check_counts(steps: Sequence[Tensor]) -> None:
    if any(each.dtype != torch.float32 or each.numel() != 1 for each in steps):
        raise ValueError("a step count is not a float32 tensor (). Pass one for every weight.")


def _check_losses(losses: Tensor, counts: Tensor, steps: Sequence[Tensor]) -> None:
    if not steps:
        raise ValueError("no tensors to step, so no kernel would check the losses. Pass at least one step count.")
    if losses.ndim != 1 or not losses.numel() or not losses.is_floating_point():
        raise ValueError(f"losses of shape {tuple(losses.shape)}, {losses.dtype}. Pass one number for every seed.")
    if counts.shape != losses.shape or counts.dtype != torch.float32 or not counts.is_contiguous():
        raise ValueError(
            f"counts of shape {tuple(counts.shape)}, {counts.dtype}, strides {counts.stride()} for "
            f"{losses.numel()} losses. They must be of the losses' shape, float32 and contiguous."
        )
    if any(each.device != losses.device for each in (counts, *steps)):
        raise ValueError(f"counts are not on the device of the losses, on {losses.device}. Move them there.")
