"""Returns and advantages as pure functions; all arguments (T, N), time first.

Termination and truncation differ: a truncated step bootstraps from the value of its true successor, and only the sum
of later advantages is cut.
"""

from __future__ import annotations

import torch
from torch import Tensor


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    *,
    discount: float,
    gae_lambda: float,
) -> Tensor:
    """Generalised advantages (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

        δ_t = r_t + γ V(s'_t) [not terminated_t] − V(s_t)
        A_t = δ_t + γ λ A_{t+1} [episode goes on after t]

    `next_value` is the value of the true successor s'_t, also where the episode ends.
    """
    delta = reward + discount * next_value * ~terminated - value
    goes_on = ~(terminated | truncated)
    advantage = torch.empty_like(delta)
    carry = torch.zeros_like(delta[0])
    for t in range(delta.shape[0] - 1, -1, -1):
        carry = delta[t] + discount * gae_lambda * goes_on[t] * carry
        advantage[t] = carry
    return advantage


def discounted_sums(reward: Tensor, carry: Tensor, discount: float) -> Tensor:
    """Forward filter R_t = γ R_{t−1} + r_t per environment, starting from `carry` (N,); never reset. (T, N)

    The last row is the carry of the next batch.
    """
    sums = torch.empty_like(reward)
    for t in range(reward.shape[0]):
        carry = discount * carry + reward[t]
        sums[t] = carry
    return sums
