"""The replay buffer: stores transitions, draws batches, and resumes exactly from its state."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from intrigue.replay.plan import ReplayPlan
from intrigue.replay.recording import spaces_to_state
from intrigue.replay.ring import row_layout
from intrigue.replay.sampling import Episodes, Priorities, WindowStarts, draw_transitions, importance_weights
from intrigue.replay.step_store import StepStore, VectorStep
from intrigue.replay.windows import as_steps, as_tuples
from intrigue.seeding import derive_seed
from intrigue.spaces import Array, Spaces
from intrigue.state import State
from intrigue.types import Extras, Transitions

STREAM = "replay"


@dataclass(frozen=True, slots=True)
class Sample:
    """A batch for one update, its extras, and where its windows start."""

    batch: Transitions
    extras: Extras
    starts: WindowStarts


class ReplayBuffer:
    """Transitions of N environments on `storage_device`; batches are moved to `device`, the learner's."""

    def __init__(
        self,
        plan: ReplayPlan,
        spaces: Spaces,
        num_envs: int,
        *,
        stack: int,
        seed: int,
        device: torch.device,
        storage_device: torch.device,
    ) -> None:
        self.plan, self.spaces, self.device = plan, spaces, device
        self.store = StepStore(row_layout(spaces, stack), plan.capacity, num_envs, stack, storage_device, plan.steps)
        self.rng = Generator(device)
        self.rng.manual_seed(derive_seed(seed, STREAM))
        self.episodes = Episodes(self.store) if plan.order == "episodes" else None
        self.priorities = Priorities(self.store, plan.priority) if plan.priority else None

    def reset(self, frames: Array) -> None:
        """Start an episode in every environment, with these frames (N, *frame)."""
        self.store.reset(frames)

    def add(self, step: VectorStep) -> None:
        """Append one step of every environment."""
        self.extend(step.map_fields(lambda field: field[None]))

    def extend(self, steps: VectorStep) -> None:
        """Append T steps of every environment, each field (T, N, ...)."""
        first = self.store.steps
        self.store.extend(steps)
        if self.episodes is not None:
            self.episodes.record(first, steps.ended, steps.valid)
            self.episodes.publish(self.store.first_sampleable_step)
        self._update_priority_range()

    def truncate(self, frames: Array) -> None:
        """The environments were restarted in these frames; episodes under way are truncated."""
        self.store.truncate(frames)
        self._rebuild_episodes()
        self._update_priority_range()

    def load_prefilled(self, head: int, steps: int) -> None:
        """Take over rows 0 to `head`, which the caller has written (`StepStore.load_prefilled`)."""
        self.store.load_prefilled(head, steps)
        self._rebuild_episodes()
        self._update_priority_range()

    def current_obs(self) -> Tensor:
        """The observations to act on, (N, *obs), on the learner's device."""
        return self.store.current_obs().to(self.device)

    def last_next_obs(self) -> Tensor:
        """The true successor observations of the last step, (N, *obs), on the learner's device."""
        return self.store.last_next_obs().to(self.device)

    @property
    def end_sampleable_step(self) -> int:
        """One past the last step at which a complete window starts."""
        return max(self.store.first_sampleable_step, self.store.steps - self.plan.steps + 1)

    def __len__(self) -> int:
        """The number of transitions that can be starts."""
        if self.episodes is not None and not len(self.episodes):
            return 0
        return (self.end_sampleable_step - self.store.first_sampleable_step) * self.store.num_envs

    def sample(self, step: int) -> Sample:
        """A batch of windows; importance weights are annealed by the agent's `step`."""
        plan, ring, stack = self.plan, self.store.ring, self.store.stack
        starts = self._draw()
        rows = self.store.rows(starts.step, starts.env)
        if plan.window == "tuple":
            batch, extras = as_tuples(ring, rows, plan.steps, stack, plan.discount)
        else:
            batch, extras = as_steps(ring, rows, plan.steps, stack), {}
        if starts.probability is not None:
            done = min(1.0, step / plan.importance_steps)
            exponent = plan.importance + done * (1 - plan.importance)
            extras = {**extras, "weight": importance_weights(starts.probability, len(self), exponent)}
        return Sample(
            _to_device(batch, self.device), {name: each.to(self.device) for name, each in extras.items()}, starts
        )

    def sample_single_steps(self, count: int, rng: Generator) -> Transitions:
        """`count` single transitions (1, count, ...), starts like windows but with a generator of the caller's."""
        if self.episodes is not None:
            starts = self.episodes.draw(count, 1, rng)
        else:
            starts = draw_transitions(self.store, count, self.store.steps, rng)
        rows = self.store.rows(starts.step, starts.env)
        return _to_device(as_steps(self.store.ring, rows, 1, self.store.stack), self.device)

    def update_priorities(self, sample: Sample, error: Tensor | None) -> None:
        """Set priorities from the agent's errors (B,) on a sample."""
        if self.priorities is not None and error is not None:
            self.priorities.update(sample.starts, error)

    def _draw(self) -> WindowStarts:
        if self.episodes is not None:
            return self.episodes.draw(self.plan.batch, self.plan.steps, self.rng)
        if self.priorities is not None:
            return self.priorities.draw(self.plan.batch, self.rng)
        return draw_transitions(self.store, self.plan.batch, self.end_sampleable_step, self.rng)

    def _rebuild_episodes(self) -> None:
        if self.episodes is not None:
            self.episodes.rebuild(self.store)
            self.episodes.publish(self.store.first_sampleable_step)

    def _update_priority_range(self) -> None:
        if self.priorities is not None:
            self.priorities.set_range(self.store.first_sampleable_step, self.end_sampleable_step)

    def state_dict(self) -> State:
        """Rows, priorities, the generator's state, and the sizes that are needed to read the rows without the run."""
        sizes = {
            "capacity": self.plan.capacity,
            "num_envs": self.store.num_envs,
            "stack": self.store.stack,
            "spaces": spaces_to_state(self.spaces),
        }
        state = {"keep": self.store.state_dict(), "rng": self.rng.get_state(), "sizes": sizes}
        if self.priorities is not None:
            state["priorities"] = self.priorities.state_dict()
        return state

    def load_state_dict(self, state: State) -> None:
        """Restore the state; draws continue where they stopped."""
        self.store.load_state_dict(state["keep"])
        self.rng.set_state(state["rng"].cpu())
        self._rebuild_episodes()
        if self.priorities is not None:
            self.priorities.load_state_dict(state["priorities"])


def _to_device(batch: Transitions, device: torch.device) -> Transitions:
    return Transitions(**{each.name: getattr(batch, each.name).to(device) for each in dataclasses.fields(Transitions)})
