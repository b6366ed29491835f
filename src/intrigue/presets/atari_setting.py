"""What all Atari presets share: the paper's "Disagreement settings", and the two ways they are varied.

    DIS   the code of Pathak et al. 2019 (arXiv:1906.04161), pathak22/exploration-by-disagreement
    RND   the code of Burda et al. 2018 (arXiv:1810.12894), openai/random-network-distillation

Chen et al. 2022 (arXiv:2205.10484) say that their Atari runs follow DIS and state few numbers of their own. Where they
state none, the value is DIS's; where DIS has none either, the comment says "ours".

Differs from DIS: the 10,000 random steps before training are taken in all environments together and end with the
rollout they end in, so 128 x 128 takes one whole rollout of them, 16,384; they count as steps. One Adam for the policy
and one for the bonus, where DIS has a single one for the sum of all losses: the parameters are disjoint, and Adam works
on each by itself. A game's first frame does not follow another game's last as if by an action.
"""

from __future__ import annotations

from typing import Any

Layer = dict[str, Any]


def disagreement_setting() -> Layer:
    """Everything but the bonus."""
    return {
        "env": "atari/Breakout",  # ours, when no game is named
        "env.protocol": "disagreement",  # DIS run.py, wrappers.py; every value is in envs/atari_protocols.py
        "agent": "ppo",
        **_size(),
        **_policy(),
        **_curiosity(),
    }


def add_game_score(layer: Layer) -> Layer:
    """Bonus and game score together: r = bonus / σ_bonus + 2 clip(score, ±1), one stream, one value head.

    The paper's equation sums the two with α = 1 and β = 2. The bonus alone is scaled: under one scale for the sum, α
    would mean something else for every bonus, whose raw sizes differ by orders of magnitude.
    """
    return {
        **layer,
        "curiosity.int_coef": 1.0,  # the paper's α; RND run_atari.py int_coeff
        "curiosity.ext_coef": 2.0,  # the paper's β; RND run_atari.py ext_coeff
        "curiosity.scale": "return",  # ours; DIS scales the sum ("total")
    }


def shrink_for_laptop(layer: Layer) -> Layer:
    """The same algorithm on two cores without a GPU: fewer environments, and networks a quarter as wide or less.

    Rollouts of 1,024 steps instead of 16,384 and minibatches of 256 instead of 2,048 change what is learned; scores are
    not comparable with those of the full size.
    """
    return {
        **layer,
        "device": "cpu",
        "threads": 2,  # results depend on the number of threads, so it is part of the preset
        "steps": 1_000_000,  # ours: an hour or so on two cores
        "checkpoint_every": 32 * 1024,  # ours: 32 rollouts, about two minutes; at a rollout's end nothing is half full
        "pool.num_envs": 8,  # as CleanRL's and Stable-Baselines3's Atari runs
        "pool.workers": 2,
        "pool.groups": 1,  # with the learner on the same cores there is nothing to overlap
        "agent.minibatches": 4,  # CleanRL: 4 of 8 environments, 256 samples each
        "agent.features": 256,  # ours: half of DIS
        "curiosity.minibatches": 4,
    }


def _size() -> Layer:
    return {
        "steps": 100_000_000,  # DIS run.py num_timesteps=1e8, in agent steps
        # Ours: 64 rollouts, a minute or two. A multiple of a rollout, because in the middle of one a checkpoint holds
        # its frames too.
        "checkpoint_every": 64 * 128 * 128,
        "pool.num_envs": 128,  # DIS run.py envs_per_process
        "pool.workers": -1,  # one per core; results do not depend on it
        "pool.groups": 2,  # ours: one half of the environments steps while the policy looks at the other
    }


def _policy() -> Layer:
    return {
        "agent.rollout_steps": 128,  # DIS run.py nsteps_per_seg, one segment
        "agent.epochs": 3,  # DIS run.py nepochs
        "agent.minibatches": 8,  # DIS run.py nminibatches: 16 whole environments, 2,048 samples
        "agent.learning_rate": 1e-4,  # DIS run.py lr, constant
        "agent.anneal_steps": 0,  # DIS cppo_agent.py: constant
        "agent.adam_eps": 1e-8,  # DIS: TensorFlow's default
        "agent.discount": 0.99,  # DIS run.py gamma
        "agent.gae_lambda": 0.95,  # DIS run.py lambda
        "agent.ignore_done": True,  # DIS run.py use_news=0: the horizon is infinite
        "agent.clip": 0.1,  # DIS cppo_agent.py cliprange
        "agent.entropy_coef": 0.001,  # DIS run.py ent_coeff
        "agent.value_coef": 1.0,  # DIS cppo_agent.py: 0.5 MSE; our loss is value_coef times half the square
        "agent.max_grad_norm": 0.0,  # DIS cppo_agent.py: no clipping
        "agent.normalize_advantage": True,  # DIS run.py norm_adv=1, over the whole rollout
        "agent.advantage_eps": 1e-7,  # DIS cppo_agent.py
        "agent.normalize_obs": True,  # DIS cnn_policy.py: (x - mean) / std before the convolutions
        "agent.obs_moments": "warm-up",  # DIS utils.py random_agent_ob_mean_std: fixed before training
        "agent.obs_norm": "scalar",  # DIS utils.py: a mean per pixel and channel, one std for all
        "agent.trunk": "dis",  # DIS utils.py small_convnet, cnn_policy.py: leaky ReLU 0.2, normc, two layers more
        "agent.features": 512,  # DIS run.py feat_dim, cnn_policy.py hidsize
    }


def _curiosity() -> Layer:
    return {
        "curiosity.int_coef": 1.0,  # DIS run.py int_coeff
        "curiosity.ext_coef": 0.0,  # DIS run.py ext_coeff: the score trains nothing
        "curiosity.ext_clip": 1.0,  # DIS rollouts.py: the score is clipped to ±1 where it counts
        "curiosity.streams": "one",  # DIS: a single value head
        "curiosity.scale": "total",  # DIS cppo_agent.py norm_rew=1: the whole reward by its running return's std
        "curiosity.scale_discount": 0.99,  # DIS cppo_agent.py RewardForwardFilter(gamma)
        "curiosity.obs_norm": "scalar",  # DIS auxiliary_tasks.py: features see what the policy sees
        "curiosity.obs_clip": 0.0,  # DIS: not clipped
        "curiosity.obs_moments": "warm-up",  # DIS utils.py
        "curiosity.warmup_steps": 10_000,  # DIS utils.py nsteps=10000
        "curiosity.learning_rate": 1e-4,  # DIS: one Adam for all losses
        "curiosity.epochs": 3,  # DIS: the losses of the models are in the policy's minibatches
        "curiosity.minibatches": 8,  # DIS
        "curiosity.minibatch_of": "environments",  # DIS cppo_agent.py: by environment
        "curiosity.update_fraction": 1.0,  # DIS: every sample; what each member skips is the reward's own `keep`
    }
