"""Play episodes with the agent of a run folder."""

from __future__ import annotations

from intrigue.agents.registry import AGENTS
from intrigue.config.run import flatten_json, resolve
from intrigue.envs.make import make_env
from intrigue.rewards.registry import REWARDS
from intrigue.rng import Streams
from intrigue.run import checkpoint
from intrigue.run.folder import RunFolder, read_config
from intrigue.seeding import derive_seed
from intrigue.skills import SkillSampler
from intrigue.spaces import make_spaces
from intrigue.training.build import with_skills
from intrigue.training.evaluate import Played, play_episodes


def play(folder: RunFolder, episodes: int, *, seed: int, greedy: bool, film: bool) -> Played:
    """Play the agent of a run's selected checkpoint."""
    cfg = resolve(flatten_json(read_config(folder)))
    saved = checkpoint.load(folder.checkpoints, on_skip=lambda text: None)
    entry = AGENTS.get(cfg.agent_name)
    env = make_env(cfg.env_id, cfg.env_options, render=film)
    try:
        spaces = make_spaces(env.info.obs_space, env.info.action_space)
        names = ("extrinsic", "intrinsic") if cfg.curiosity.streams == "two" else ("total",)
        reward = REWARDS.get(cfg.reward_name)
        skills = reward.cls.skills(reward.config(**{**reward.defaults, **cfg.reward_options}))
        agent_cfg = entry.config(**{**entry.defaults, **cfg.agent_options})
        agent = entry.cls(agent_cfg, with_skills(spaces, skills), names)
        agent.load_train_state(saved.state["agent"])
        agent.settle()
        streams = Streams(derive_seed(seed, "eval"))
        sampler = SkillSampler(skills, 1, streams["skill"])
        held = saved.state["collector"]["skills"]["held"]
        if held is not None:  # the one skill that a fine-tuned policy follows
            sampler.hold(held)
        sampler.start()
        seeds = [derive_seed(seed, "eval", episode) for episode in range(episodes)]
        return play_episodes(agent, env, sampler, seeds, streams["eval"], greedy=greedy, film=film)
    finally:
        env.close()
