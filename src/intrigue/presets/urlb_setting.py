"""What all URLB presets share: the benchmark's DDPG, one environment, a bonus alone, snapshots on the way.

    URLB   the code of Laskin et al. 2021 (arXiv:2110.15191), rll-research/url_benchmark: its present state (HEAD)
    CIC    the code of Laskin et al. 2022 (arXiv:2202.00161), rll-research/cic

Chen et al. 2022 (arXiv:2205.10484) follow URLB on DeepMind Control and state few numbers of their own.

Two things differ between URLB's files. Its yaml files have n-step 3 everywhere; the script its authors pre-trained with
has 1, which we take: models of one step then learn from single steps. `--agent.n-step 3` is the yaml's form. And HEAD
computes some bonuses otherwise than the release its published numbers come from; each reward's page says where.
"""

from __future__ import annotations

from typing import Any

from intrigue.scores.normalized import EVAL_EPISODES, EVAL_EVERY

Layer = dict[str, Any]

SNAPSHOTS = (100_000, 500_000, 1_000_000, 2_000_000)  # URLB pretrain.yaml snapshots, in frames


def pretraining() -> Layer:
    """Everything but the bonus."""
    return {
        "env": "dmc/walker",  # ours, when no domain is named; URLB's other two are dmc/quadruped and dmc/jaco
        "env.action_repeat": 1,  # URLB: states
        "steps": 2_000_000,  # URLB pretrain.yaml num_train_frames 2,000,010
        "checkpoint_every": 100_000,  # ours
        "run.snapshots": SNAPSHOTS,
        "run.products": "bfloat16",  # ours: an update takes a fifth to two fifths less with it (docs/dmc.md)
        "pool.num_envs": 1,  # URLB
        "pool.workers": 1,  # ours: it steps while this process keeps a GPU busy (docs/dmc.md)
        "agent": "ddpg",
        **_ddpg(),
        **_bonus_alone(),
    }


def scratch() -> Layer:
    """The control: the setting of fine-tuning, from the first step on, without anything learned before."""
    return {
        **pretraining(),
        "env": "dmc/walker_run",  # ours, when no task is named
        "steps": 100_000,  # where fine-tuned scores are read: CIC num_train_frames 100,010
        "run.snapshots": (),
        **evaluated(),
        "agent.n_step": 3,  # URLB finetune.yaml nstep
        "reward": "none",
        "curiosity.ext_coef": 1.0,
    }


def evaluated() -> Layer:
    """Ten greedy episodes as often as URLB plays them."""
    return {
        "run.eval_every": EVAL_EVERY,
        "run.eval_episodes": EVAL_EPISODES,
    }


def shrink_for_laptop(layer: Layer) -> Layer:
    """The same algorithm on two cores without a GPU: networks and batches a quarter as large, a fortieth of the steps.

    Scores are not comparable with those of the full size.
    """
    return {
        **layer,
        "device": "cpu",
        "threads": 2,  # results depend on the number of threads, so it is part of the preset
        "run.products": "float32",  # ours: layers as narrow are not multiplied faster in bfloat16
        "pool.workers": 0,  # ours: both cores learn
        "steps": 50_000,  # ours: a quarter of an hour on two cores
        "checkpoint_every": 10_000,  # ours
        "run.snapshots": (10_000, 25_000, 50_000),  # ours
        "agent.capacity": 50_000,  # ours: all of it
        "agent.batch": 256,
        "agent.hidden": 256,
    }


def _ddpg() -> Layer:
    return {
        "agent.capacity": 1_000_000,  # URLB replay_buffer_size
        "agent.batch": 1024,  # URLB batch_size
        "agent.n_step": 1,  # URLB's script for pre-training; its yaml 3
        "agent.learning_starts": 4_000,  # URLB num_seed_frames
        "agent.train_every": 2,  # URLB update_every_steps
        "agent.learning_rate": 1e-4,  # URLB lr
        "agent.discount": 0.99,  # URLB discount
        "agent.target_rate": 0.01,  # URLB critic_target_tau
        "agent.noise": 0.2,  # URLB stddev_schedule
        "agent.noise_clip": 0.3,  # URLB stddev_clip
        "agent.hidden": 1024,  # URLB hidden_dim
        "agent.overlap": True,  # ours: acting is one update behind, so that a GPU learns while environments step
    }


def _bonus_alone() -> Layer:
    return {
        "curiosity.int_coef": 1.0,  # URLB: scales of 1
        "curiosity.ext_coef": 0.0,  # URLB reward_free
        "curiosity.ext_clip": 0.0,  # URLB
        "curiosity.streams": "one",
        "curiosity.scale": "none",  # URLB; what a bonus divides by is its own
        "curiosity.obs_norm": "none",  # URLB: states as they are
        "curiosity.obs_clip": 0.0,
        "curiosity.learning_rate": 1e-4,  # URLB lr
        "curiosity.epochs": 1,  # URLB: one step of everything on each batch
        "curiosity.minibatches": 1,
    }
