"""The launch of `cohort.adam_kernels`. No host synchronisation anywhere; two kernels for each MOST_TENSORS tensors.

torch's fused Adam hands 65536 entries to a block of threads: of a network with a million weights that is work for 16 of
a GPU's multiprocessors, and the bandwidth of the others lies idle.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from intrigue.triton_there import triton_works

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
    losses: Tensor,
    refused: Tensor,
    followers: Sequence[Tensor] | None = None,
    follow_rate: float = 0.0,
) -> None:
    """One step of Adam, in place, on the moments `firsts` and `seconds` and the counts `steps`, a number () each.

    Nothing of that changes where one of `losses`, (S,), is not finite; each that is not is counted in `refused`, (S,).
    `followers` move towards the weights by `follow_rate` after the step, and also where it was skipped.
    """
    several = [weights, gradients, firsts, seconds, *([] if followers is None else [followers])]
    _check(several, steps)
    _check_losses(losses, refused, weights, steps)
    for start in range(0, len(weights), MOST_TENSORS):
        those = slice(start, start + MOST_TENSORS)
        some, counts = [tuple(each[those]) for each in several], tuple(steps[those])
        _launch(some, counts, rate, betas, eps, losses, refused, follow_rate, count=start == 0)
    # Kernels write past autograd, which would otherwise not notice that a saved tensor has changed.
    for each in (weights, firsts, seconds, steps, [refused], *([] if followers is None else [followers])):
        torch.autograd.graph.increment_version(list(each))


def kernels_run_on(device: torch.device) -> bool:
    """Whether tensors there can be handed to `adam_step`."""
    return triton_works() and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


def _launch(
    several: Sequence[tuple[Tensor, ...]],
    steps: tuple[Tensor, ...],
    rate: Tensor,
    betas: tuple[float, float],
    eps: float,
    losses: Tensor,
    refused: Tensor,
    follow_rate: float,
    *,
    count: bool,
) -> None:
    """`count`: add to `refused`, which only one of several launches may do."""
    from intrigue.cohort import adam_kernels  # not at the top: Triton is published for Linux only

    weights, gradients, firsts, seconds, *rest = several
    sizes = tuple(each.numel() for each in weights)
    ends = tuple(itertools.accumulate(-(-size // BLOCK) for size in sizes))
    device, seeds = losses.device, losses.numel()
    corrections, skip = torch.empty(len(weights), 2, device=device), torch.empty((), device=device)
    logs = [math.log(beta) if beta else -math.inf for beta in betas]
    adam_kernels.advance[(len(steps),)](
        steps, corrections, rate, losses, losses.stride(0), refused, skip, LOG_FIRST=logs[0], LOG_SECOND=logs[1],
        SEEDS=seeds, LANES=1 << (seeds - 1).bit_length(), COUNT=count, num_warps=1,
    )  # fmt: skip
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


def _check_losses(losses: Tensor, refused: Tensor, weights: Sequence[Tensor], steps: Sequence[Tensor]) -> None:
    if not steps:
        raise ValueError("no tensor to step, so that no kernel would look at the losses.")
    if losses.ndim != 1 or not losses.numel() or not losses.is_floating_point():
        raise ValueError(f"losses of shape {tuple(losses.shape)}, {losses.dtype}. Pass one number for every seed.")
    if refused.shape != losses.shape or refused.dtype != torch.float32 or not refused.is_contiguous():
        raise ValueError(
            f"counts of shape {tuple(refused.shape)}, {refused.dtype}, strides {refused.stride()} for "
            f"{losses.numel()} losses. They must be of the losses' shape, float32 and contiguous."
        )
    if any(each.device != losses.device for each in (refused, *weights, *steps)):
        raise ValueError(f"weights or counts are not where the losses are, on {losses.device}. Move them there.")
