"""How a reward's own models learn: seeded minibatches of valid rows, one Adam, never a step on a bad number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Generator, Tensor

from intrigue.config.curiosity import CuriosityConfig
from intrigue.ops.execution import Mode, uses_cuda_graph
from intrigue.ops.optimizer_step import LossStep, load_optimizer_state, optimizer_state
from intrigue.rewards.base import IntrinsicReward
from intrigue.state import State
from intrigue.types import Transitions

REFUSAL = (
    "the loss of the intrinsic reward is not finite; its optimiser was not stepped. "
    "Lower --curiosity.learning-rate or look at the observations."
)
ADAM_EPS = 1e-8  # torch's and TensorFlow's default, which Disagreement, RND and URLB leave alone


class RewardTrainer:
    """Minimises `reward.loss` over the rows of each batch.

    `rng` orders the rows and is what the loss draws from; `others` are further generators it may draw from.
    """

    def __init__(
        self,
        reward: IntrinsicReward,
        cfg: CuriosityConfig,
        rng: Generator,
        others: Sequence[Generator] = (),
        mode: Mode = "plain",
    ) -> None:
        self.cfg, self.reward, self.rng = cfg, reward, rng
        trained = [weight for weight in reward.parameters() if weight.requires_grad]
        # Only losses that never wait for the device can be captured; the others run as they are written.
        if trained and uses_cuda_graph(mode, trained[0].device) and not reward.traits.cuda_graph_safe:
            mode = "plain"
        self.step = (
            LossStep(
                self._loss_of,
                trained,
                learning_rate=cfg.learning_rate,
                eps=ADAM_EPS,
                error_text=REFUSAL,
                mode=mode,
                generators=(rng, *others),
            )
            if trained
            else None
        )
        self._kind: type[Transitions] = Transitions

    def fit(self, batch: Transitions) -> float:
        """Mean loss over all minibatches; 0 for a reward without models."""
        if self.step is None:
            return 0.0
        losses = []
        for _ in range(self.cfg.epochs):
            for part in self._parts(batch):
                self._kind = type(part)
                losses.append(self.step(*part.tensors()))
        self.step.check()
        return float(torch.stack(losses).mean()) if losses else 0.0

    def _loss_of(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        loss = self.reward.loss(self._kind(*tensors), self.rng)
        return loss, loss

    def _parts(self, batch: Transitions) -> Iterator[Transitions]:
        """Shuffled valid rows without time order, or the rows of shuffled environments."""
        cfg, rng = self.cfg, self.rng
        if cfg.minibatch_of == "environments":
            order = torch.randperm(batch.valid.shape[1], generator=rng, device=rng.device)
            order = order[: max(1, round(cfg.update_fraction * len(order)))]
            every = bool(batch.valid.all())
            index = torch.arange(batch.valid.numel(), device=rng.device).view(batch.valid.shape)
            for envs in order.tensor_split(cfg.minibatches):
                rows = index[:, envs].flatten()
                rows = rows if every else rows[batch.valid.flatten()[rows]]
                if len(rows):
                    yield batch.rows(rows)
            return
        rows = batch.valid.flatten().nonzero().squeeze(-1)
        if cfg.is_full_batch:
            if len(rows):
                yield batch.rows(rows)
            return
        order = torch.randperm(rows.shape[0], generator=rng, device=rng.device)
        order = order[: max(1, round(cfg.update_fraction * rows.shape[0]))]
        for chunk in order.tensor_split(cfg.minibatches):
            if len(chunk):
                yield batch.rows(rows[chunk])

    def state_dict(self) -> State:
        """The optimiser's moments."""
        return optimizer_state(self.step.optimizer) if self.step is not None else None

    def load_state_dict(self, state: State) -> None:
        """Put back what `state_dict` gave."""
        if self.step is not None:
            load_optimizer_state(self.step.optimizer, state)
            self.step.invalidate_graph()
