"""How a reward's own models learn: seeded minibatches of valid rows, one Adam, never a step on a bad number."""

from __future__ import annotations

import torch
from torch import Generator, nn

from intrigue.curiosity_config import CuriosityConfig
from intrigue.optim import descend, load_optimizer_state, optimizer_state
from intrigue.rewards.base import IntrinsicReward
from intrigue.state import State
from intrigue.types import Transitions

REFUSAL = (
    "the loss of the intrinsic reward is not finite; its optimiser was not stepped. "
    "Lower --curiosity.learning-rate or look at the observations."
)


class Learner:
    """Minimises `reward.loss` over the rows of each batch."""

    def __init__(self, reward: nn.Module, cfg: CuriosityConfig) -> None:
        self.cfg = cfg
        trained = [weight for weight in reward.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=cfg.learning_rate) if trained else None

    def fit(self, reward: IntrinsicReward, batch: Transitions, rng: Generator) -> float:
        """Mean loss over all minibatches; 0 for a reward without models."""
        if self.optimizer is None:
            return 0.0
        losses = []
        for _ in range(self.cfg.epochs):
            for part in self._parts(batch, rng):
                loss = reward.loss(part, rng)
                descend(self.optimizer, loss, REFUSAL)
                losses.append(loss.detach())
        return float(torch.stack(losses).mean()) if losses else 0.0

    def _parts(self, batch: Transitions, rng: Generator) -> list[Transitions]:
        """Shuffled valid rows, without time order."""
        rows = batch.valid.flatten().nonzero().squeeze(-1)
        order = torch.randperm(rows.shape[0], generator=rng, device=rng.device)
        order = order[: max(1, round(self.cfg.update_fraction * rows.shape[0]))]
        chunks = order.chunk(self.cfg.minibatches)
        return [batch.rows(rows[chunk]) for chunk in chunks if len(chunk)]

    def state_dict(self) -> State:
        """The optimiser's moments."""
        return optimizer_state(self.optimizer) if self.optimizer is not None else None

    def load_state_dict(self, state: State) -> None:
        """Put back what `state_dict` gave."""
        if self.optimizer is not None:
            load_optimizer_state(self.optimizer, state)
