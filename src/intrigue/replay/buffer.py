"""The replay an agent is given: keeps what happens, draws batches from it, goes on exactly after a resume."""

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
    """A batch for one update, what goes with it, and where it was drawn."""

    batch: Transitions
    extras: Extras
    drawn: WindowStarts


class ReplayBuffer:
    """Transitions of N environments on one device; batches go to the learner's."""

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
        """New episodes everywhere, in these states (N, *frame)."""
        self.store.reset(frames)

    def add(self, taken: VectorStep) -> None:
        """One step of every environment."""
        self.extend(taken.each(lambda field: field[None]))

    def extend(self, taken: VectorStep) -> None:
        """T steps of every environment, each field (T, N, ...)."""
        step = self.store.steps
        self.store.extend(taken)
        if self.episodes is not None:
            self.episodes.record(step, (taken.terminated | taken.truncated) & taken.valid, taken.valid)
            self.episodes.publish(self.store.first_sampleable_step)
        self._update_priority_range()

    def truncate(self, frames: Array) -> None:
        """The environments had to begin anew, in these states."""
        self.store.truncate(frames)
        if self.episodes is not None:
            self.episodes.rebuild(self.store)
            self.episodes.publish(self.store.first_sampleable_step)
        self._update_priority_range()

    def load_prefilled(self, head: int, steps: int) -> None:
        """Rows 0 to `head` were written from outside, as `StepStore.load_prefilled` says."""
        self.store.load_prefilled(head, steps)
        if self.episodes is not None:
            self.episodes.rebuild(self.store)
            self.episodes.publish(self.store.first_sampleable_step)
        self._update_priority_range()

    def current_obs(self) -> Tensor:
        """The observations to act on, (N, *obs), on the learner's device."""
        return self.store.current_obs().to(self.device)

    def last_next_obs(self) -> Tensor:
        """The observations the last step reached truly, (N, *obs), on the learner's device."""
        return self.store.last_next_obs().to(self.device)

    @property
    def end_sampleable_step(self) -> int:
        """The first step whose window is not complete yet."""
        return max(self.store.first_sampleable_step, self.store.steps - self.plan.steps + 1)

    def __len__(self) -> int:
        """Transitions that can be drawn."""
        if self.episodes is not None and not len(self.episodes):
            return 0
        return (self.end_sampleable_step - self.store.first_sampleable_step) * self.store.num_envs

    def sample(self, step: int) -> Sample:
        """A batch of windows; `step` tells how far the run is."""
        plan, ring, stack = self.plan, self.store.ring, self.store.stack
        drawn = self._draw()
        start = self.store.rows(drawn.step, drawn.env)
        if plan.window == "tuple":
            batch, extras = as_tuples(ring, start, plan.steps, stack, plan.discount)
        else:
            batch, extras = as_steps(ring, start, plan.steps, stack), {}
        if drawn.chance is not None:
            done = min(1.0, step / plan.importance_steps)
            exponent = plan.importance + done * (1 - plan.importance)
            extras = {**extras, "weight": importance_weights(drawn.chance, len(self), exponent)}
        return Sample(_moved(batch, self.device), {name: each.to(self.device) for name, each in extras.items()}, drawn)

    def sample_single_steps(self, count: int, rng: Generator) -> Transitions:
        """`count` single transitions (1, count, ...) drawn as windows are, apart from what updates draw."""
        if self.episodes is not None:
            drawn = self.episodes.draw(count, 1, rng)
        else:
            drawn = draw_transitions(self.store, count, self.store.steps, rng)
        start = self.store.rows(drawn.step, drawn.env)
        return _moved(as_steps(self.store.ring, start, 1, self.store.stack), self.device)

    def update_priorities(self, sample: Sample, error: Tensor | None) -> None:
        """The errors (B,) the agent found in a sample, for priorities."""
        if self.priorities is not None and error is not None:
            self.priorities.update(sample.drawn, error)

    def _draw(self) -> WindowStarts:
        if self.episodes is not None:
            return self.episodes.draw(self.plan.batch, self.plan.steps, self.rng)
        if self.priorities is not None:
            return self.priorities.draw(self.plan.batch, self.rng)
        return draw_transitions(self.store, self.plan.batch, self.end_sampleable_step, self.rng)

    def _update_priority_range(self) -> None:
        if self.priorities is not None:
            self.priorities.set_range(self.store.first_sampleable_step, self.end_sampleable_step)

    def state_dict(self) -> State:
        """Rows, priorities, where the random stream stands, and the sizes that make the rows readable by themselves."""
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
        """Go on from what `state_dict` gave."""
        self.store.load_state_dict(state["keep"])
        self.rng.set_state(state["rng"].cpu())
        if self.episodes is not None:
            self.episodes.rebuild(self.store)
            self.episodes.publish(self.store.first_sampleable_step)
        if self.priorities is not None:
            self.priorities.load_state_dict(state["priorities"])


def _moved(batch: Transitions, device: torch.device) -> Transitions:
    return Transitions(**{each.name: getattr(batch, each.name).to(device) for each in dataclasses.fields(Transitions)})
