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


# Of curiosity, where nothing else was asked for and the agent learns from replay. A batch drawn from all times has no
# order whose returns could be followed; each is learned from once, as a whole, as in URLB.
REPLAY_DEFAULTS = {"scale": "value", "epochs": 1, "minibatches": 1}
SCALES_IN_ORDER = ("return", "total")


def learns_from_replay(agent: str) -> bool:
    """Whether this agent learns from replay; imports it only if its source gives a reason to."""
    return "feed" in AGENTS.declaration(agent).members and AGENTS.get(agent).cls.feed == "replay"


def replay_problems(agent: str, curiosity: Mapping[str, Any]) -> list[Problem]:
    """What of these settings of curiosity cannot be had with an agent that learns from replay."""
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
    """Whether a run of these has no reward at all: a domain without a task, and no bonus either."""
    family, name = split_id(env_id)
    without_bonus = reward == "none" or (curiosity.int_coef == 0 and curiosity.int_coef_steps == 0)
    return without_bonus and not ENVS.get(family).cls.has_reward(name)


def needs_import_to_check(reward: str, reward_options: Mapping[str, Any], agent: str) -> bool:
    """Whether this pair's sources give a reason to ask the classes."""
    asks = {member for name in reward_names_in(reward, reward_options) for member in REWARDS.declaration(name).members}
    offers = AGENTS.declaration(agent).members
    return ("skills" in asks and "takes_skills" not in offers) or ("needs_order" in asks and "feed" in offers)


def pair_problems(
    reward: str, reward_options: Mapping[str, Any], agent: str, built: IntrinsicReward | None = None
) -> list[Problem]:
    """Why this reward cannot teach this agent; imports both. What is `built` already answers for itself."""
    bonus, learner = REWARDS.get(reward), AGENTS.get(agent)
    skills = bonus.cls.skills(bonus.config(**{**bonus.defaults, **reward_options}))
    problems = []
    if skills is not None and not learner.cls.takes_skills:
        text = f"{reward!r} asks the policy for skills, which {agent!r} does not take. Use {_those_with_skills()}."
        problems.append(Problem("agent", text))
    ordered = [name for name in reward_names_in(reward, reward_options) if REWARDS.get(name).cls.needs_order]
    ordered = ordered or ([reward] if built and built.needs_order else [])
    if ordered and learner.cls.feed == "replay":
        text = f"{ordered[0]!r} follows episodes in order, which the replay of agent {agent!r} does not keep."
        problems.append(Problem("reward", f"{text} Use --agent ppo, or a reward without an episodic memory."))
    return problems


def _those_with_skills() -> str:
    # The random agent is asked for skills too, but nobody wants to be sent to it.
    known = [name for name, each in AGENTS.declarations().items() if "takes_skills" in each.members]
    return " or ".join(f"--agent {name}" for name in sorted(known) if name != "random")
