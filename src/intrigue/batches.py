"""What is refused in a batch before anything learns from it."""

from __future__ import annotations

import torch
from torch import Tensor

from intrigue.errors import NonFiniteError
from intrigue.spaces import Spaces
from intrigue.types import Transitions


def check_shapes(batch: Transitions, spaces: Spaces, skill_width: int) -> None:
    """Refuse a batch whose axes are not (T, N, ...) of these spaces, before anything learns from it."""
    lead = tuple(batch.reward.shape)
    wanted = {
        "reward": lead,
        "terminated": lead,
        "truncated": lead,
        "valid": lead,
        "obs": (*lead, *spaces.obs.shape),
        "next_obs": (*lead, *spaces.obs.shape),
        "action": (*lead, *spaces.action.shape),
        "skill": (*lead, skill_width),
    }
    wrong = [
        f"{name} is {tuple(getattr(batch, name).shape)}, expected {shape}"
        for name, shape in wanted.items()
        if tuple(getattr(batch, name).shape) != shape
    ]
    if len(lead) != 2 or wrong:
        raise ValueError(
            f"a batch must be (T, N, ...) with time first: {'; '.join(wrong) or f'reward is {lead}'}. "
            "Add the missing axis (T=1 for a single step, N=1 for a single environment)."
        )


def check_finite(name: str, values: Tensor) -> None:
    """Stop at the first NaN or infinity, naming where it stands."""
    wrong = ~torch.isfinite(values)
    if bool(wrong.any()):
        t, n = (int(i) for i in wrong.nonzero()[0][:2])
        raise NonFiniteError(
            f"{name} is not finite in {int(wrong.sum())} of {values.numel()} places, first at time {t}, "
            f"environment {n}. Nothing was learned from this batch. Look at the observations and at losses/intrinsic "
            "before it; a smaller --curiosity.learning-rate or --curiosity.obs-norm elementwise often helps."
        )
