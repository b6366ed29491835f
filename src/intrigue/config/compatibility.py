"""Which rewards, agents and settings of curiosity go together.

Names and settings are known before torch is loaded, what a class requires only after. `needs_import_to_check` reads the
sources alone and may be a false alarm; `pair_problems` imports the classes and asks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from intrigue.agents.registry import AGENTS
from intrigue.config.curiosity import CuriosityConfig
from intrigue.config.reward_expression import reward_names_in
from intrigue.envs.registry import ENVS, split_id
from intrigue.errors import Problem
from intrigue.rewards.registry import REWARDS

if TYPE_CHECKING:
    from intrigue.rewards.base import IntrinsicReward


# Defaults of curiosity for agents that learn from replay. A batch sampled from all times has no order whose returns
# could be followed; each is learned from once, as a whole, as in URLB.
REPLAY_DEFAULTS = {"scale": "value", "epochs": 1, "minibatches": 1}
SCALES_IN_ORDER = ("return", "total")


def learns_from_replay(agent: str) -> bool:
    """Whether this agent learns from replay; imports it only if its source gives a reason to."""
    return "feed" in AGENTS.declaration(agent).members and AGENTS.get(agent).cls.feed == "replay"


def replay_problems(agent: str, curiosity: Mapping[str, Any]) -> list[Problem]:
    """The settings of curiosity that an agent which learns from replay cannot have."""
    problems = []
    if curiosity["scale"] in SCALES_IN_ORDER:
        text = (
            f"{curiosity['scale']!r} follows the returns of each environment through time, which the replay of agent "
            f"{agent!r} does not keep. Use --curiosity.scale value, its default with {agent!r}, or none."
        )
        problems.append(Problem("curiosity.scale", text))
    if curiosity["streams"] == "two" and not AGENTS.get(agent).cls.two_streams:
        text = f"{agent!r} has one value for each action, not one for each stream. Use 'one', or --agent ppo."
        problems.append(Problem("curiosity.streams", f"'two', but {text}"))
    return problems


def has_no_reward_signal(env_id: str, reward: str, curiosity: CuriosityConfig) -> bool:
    """Whether a run with these settings has no reward at all: a domain without a task, and no bonus."""
    family, name = split_id(env_id)
    without_bonus = reward == "none" or (curiosity.int_coef == 0 and curiosity.int_coef_steps == 0)
    return without_bonus and not ENVS.get(family).cls.has_reward(name)


def needs_import_to_check(reward: str, reward_options: Mapping[str, Any], agent: str) -> bool:
    """Whether the sources of this pair leave open whether they go together."""
    required = {
        member for name in reward_names_in(reward, reward_options) for member in REWARDS.declaration(name).members
    }
    offered = AGENTS.declaration(agent).members
    return ("skills" in required and "takes_skills" not in offered) or ("needs_order" in required and "feed" in offered)


def pair_problems(
    reward: str, reward_options: Mapping[str, Any], agent: str, built: IntrinsicReward | None = None
) -> list[Problem]:
    """Why this reward cannot train this agent; imports both. `built` is the reward's instance, where there is one."""
    bonus, learner = REWARDS.get(reward), AGENTS.get(agent)
    skills = bonus.cls.skills(bonus.config(**{**bonus.defaults, **reward_options}))
    problems = []
    if skills is not None and not learner.cls.takes_skills:
        text = f"{reward!r} asks the policy for skills, which {agent!r} does not take. Use {_skill_agent_options()}."
        problems.append(Problem("agent", text))
    ordered = [name for name in reward_names_in(reward, reward_options) if REWARDS.get(name).cls.needs_order]
    ordered = ordered or ([reward] if built and built.needs_order else [])
    if ordered and learner.cls.feed == "replay":
        text = f"{ordered[0]!r} follows episodes in order, which the replay of agent {agent!r} does not keep."
        problems.append(Problem("reward", f"{text} Use --agent ppo, or a reward without an episodic memory."))
    return problems


def _skill_agent_options() -> str:
    # The random agent takes skills too, but is no useful suggestion.
    known = [name for name, each in AGENTS.declarations().items() if "takes_skills" in each.members]
    return " or ".join(f"--agent {name}" for name in sorted(known) if name != "random")
