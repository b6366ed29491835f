"""What a pool must know of its environments before it can give them memory; travels from a worker as a state tree."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from intrigue.envs.base import EnvInfo
from intrigue.spaces import ActionSpec, ObsSpec, Spaces, make_spaces
from intrigue.state import State


@dataclass(frozen=True, slots=True)
class Facts:
    """Encoded spaces and the rest of `EnvInfo`."""

    spaces: Spaces
    frames_per_step: int
    places: int
    can_snapshot: bool
    bait_action: int | None
    stack: int

    @property
    def moved(self) -> ObsSpec:
        """The part of an observation that travels: all of it, or the newest of its stacked frames."""
        obs = self.spaces.obs
        return ObsSpec(obs.kind, obs.shape[1:]) if self.stack else obs


def facts_of(described: EnvInfo) -> Facts:
    """The facts an environment states."""
    spaces = make_spaces(described.obs_space, described.action_space)
    if described.stack and spaces.obs.shape[0] != described.stack:
        raise ValueError(f"a stack of {described.stack} frames cannot have shape {spaces.obs.shape}")
    return Facts(
        spaces,
        described.frames_per_step,
        described.places,
        described.can_snapshot,
        described.bait_action,
        described.stack,
    )


def facts_to_state(facts: Facts) -> State:
    """The facts as a tree of plain values."""
    return asdict(facts)


def facts_from_state(state: State) -> Facts:
    """The facts that `facts_to_state` wrote."""
    obs, action = state["spaces"]["obs"], state["spaces"]["action"]
    spaces = Spaces(
        ObsSpec(obs["kind"], tuple(obs["shape"])),
        ActionSpec(action["kind"], tuple(action["sizes"]), tuple(action["low"]), tuple(action["high"])),
    )
    names = ("frames_per_step", "places", "can_snapshot", "bait_action", "stack")
    return Facts(spaces, **{name: state[name] for name in names})
