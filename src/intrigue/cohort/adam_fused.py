"""The launch of `cohort.adam_kernels`. No host synchronisation anywhere; two kernels for each MOST_TENSORS tensors.

torch's fused Adam hands 65536 entries to a block of threads: of a network with a million weights that is work for 16 of
a GPU's multiprocessors, and the bandwidth of the others lies idle.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import math
import os
from collections.abc import Sequence

import torch
from torch import Tensor

BLOCK = 1024  # entries of a program
WARPS = 4  # of 32 threads each, so that a thread reads two times 16 bytes of every tensor
# Pointers are arguments of the kernel, of which CUDA takes 4 KiB, and a program chooses among them one by one.
MOST_TENSORS = 32


@torch.no_grad()
def adam_step(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    steps: Sequence[Tensor],
    rate: Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    skip: Tensor,
    followers: Sequence[Tensor] | None = None,
    follow_rate: float = 0.0,
) -> None:
    """One step of Adam, in place, on the moments `firsts` and `seconds` and the counts `steps`, a number () each.

    Nothing of that changes where `skip`, a number () on the device, is not 0. `followers` move towards the weights
    by `follow_rate` after the step, and also where it was skipped.
    """
    several = [weights, gradients, firsts, seconds, *([] if followers is None else [followers])]
    _check(several, steps)
    for start in range(0, len(weights), MOST_TENSORS):
        those = slice(start, start + MOST_TENSORS)
        _launch([tuple(each[those]) for each in several], tuple(steps[those]), rate, betas, eps, skip, follow_rate)
    # Kernels write past autograd, which would otherwise not notice that a saved tensor has changed.
    for each in (weights, firsts, seconds, steps, *([] if followers is None else [followers])):
        torch.autograd.graph.increment_version(list(each))


def kernels_run_on(device: torch.device) -> bool:
    """Whether tensors there can be handed to `adam_step`."""
    return _triton_is_there() and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


@functools.cache
def _triton_is_there() -> bool:
    return importlib.util.find_spec("triton") is not None


def _launch(
    several: Sequence[tuple[Tensor, ...]],
    steps: tuple[Tensor, ...],
    rate: Tensor,
    betas: tuple[float, float],
    eps: float,
    skip: Tensor,
    follow_rate: float,
) -> None:
    from intrigue.cohort import adam_kernels  # not at the top: Triton is published for Linux only

    weights, gradients, firsts, seconds, *rest = several
    sizes = tuple(each.numel() for each in weights)
    ends = tuple(itertools.accumulate(-(-size // BLOCK) for size in sizes))
    corrections = torch.empty(len(weights), 2, device=weights[0].device)
    logs = [math.log(beta) if beta else -math.inf for beta in betas]
    adam_kernels.advance[(len(steps),)](
        steps, corrections, rate, skip, LOG_FIRST=logs[0], LOG_SECOND=logs[1], num_warps=1
    )
    adam_kernels.descend[(ends[-1],)](
        weights, gradients, firsts, seconds, rest[0] if rest else (), corrections, skip, eps,
        SHARE_FIRST=1 - betas[0], SHARE_SECOND=1 - betas[1], FOLLOW=bool(rest), SHARE=follow_rate,
        SIZES=sizes, BEGINS=(0, *ends[:-1]), BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip


def _check(several: Sequence[Sequence[Tensor]], steps: Sequence[Tensor]) -> None:
    """Kernels read memory as it lies: of another shape, type or layout they would read something else."""
    if len({len(each) for each in (*several, steps)}) > 1:
        raise ValueError("the lists differ in length. Pass a tensor of each kind for every weight.")
    for weight, *others in zip(*several, strict=True):
        for each in (weight, *others):
            if each.shape != weight.shape or each.dtype != torch.float32 or not each.is_contiguous():
                raise ValueError(
                    f"a tensor of shape {tuple(each.shape)}, {each.dtype}, strides {each.stride()} beside a weight of "
                    f"shape {tuple(weight.shape)}. All must be of the weight's shape, float32 and contiguous."
                )
            if each.device != weight.device:
                raise ValueError(f"a tensor on {each.device} beside a weight on {weight.device}. Move it there.")
    if any(each.dtype != torch.float32 or each.numel() != 1 for each in steps):
        raise ValueError("a count of steps is no float32 number ().")
