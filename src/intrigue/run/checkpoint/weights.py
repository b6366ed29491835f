"""What a snapshot holds of the parts of a run: the weights of agent and reward, and what they were made for."""

from __future__ import annotations

from intrigue.config.run import RunConfig
from intrigue.spaces import Spaces
from intrigue.state import State
from intrigue.training.build import with_skills
from intrigue.training.loops import AnyParts


def snapshot_state(cfg: RunConfig, parts: AnyParts) -> State:
    """The state that `intrigue.run.checkpoint.snapshot` keeps."""
    tree = cfg.to_json()
    spaces = with_skills(parts.collector.pool.spaces, parts.curiosity.skills)
    return {
        "about": {
            "step": parts.collector.step_count,
            "env": tree["env"],
            "agent": tree["agent"],
            "reward": tree["reward"],
            "spaces": describe(spaces),
        },
        "agent": {name: value.detach().clone() for name, value in parts.agent.state_dict().items()},
        "reward": {name: value.detach().clone() for name, value in parts.curiosity.reward.state_dict().items()},
    }


def describe(spaces: Spaces) -> dict[str, object]:
    """Sizes of what a policy reads and gives, as JSON."""
    return {
        "obs": {"kind": spaces.obs.kind, "shape": list(spaces.obs.shape)},
        "action": {"kind": spaces.action.kind, "width": spaces.action.width},
        "skill": spaces.skill,
    }
