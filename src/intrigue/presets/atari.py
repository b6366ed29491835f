"""Atari as in the paper, each bonus alone: one setting (`atari_setting`), one bonus per preset.

`-int-ext` adds the game's score to each bonus, α = 1 and β = 2: `atari_setting.add_game_score` says how. `-small`
is sized for a laptop, eight environments, two cores, no GPU: `atari_setting.shrink_for_laptop` says what differs.
"""

from __future__ import annotations

from intrigue.presets.atari_setting import Layer, add_game_score, disagreement_setting, shrink_for_laptop
from intrigue.presets.registry import register_preset


@register_preset("nnm-atari")
def nnm_atari() -> Layer:
    """Atari: the paper's ratio over five models' predictions, encodings of equal length."""
    return {
        **disagreement_setting(),
        "reward": "nnm",
        "reward.source": "ensemble",  # the paper names both; on Atari it follows Disagreement
        "reward.form": "ratio",  # the paper's eq. of the bonus, λ = 1/√max(m, n)
        # Ours: without a fixed length the ratio pays for short encodings and nothing is learned (docs/atari.md).
        "reward.features": "layernorm",
        "reward.encoder": "random",  # DIS run.py feat_learning=none: random, frozen
        "reward.n": 5,  # open in the paper; DIS run.py num_dynamics=5, and its toy figure has five states
        "reward.feature_dim": 512,  # DIS run.py feat_dim
        "reward.hidden": 512,  # DIS dynamics.py hidsize
        "reward.blocks": 4,  # DIS dynamics.py: four residual blocks
        "reward.keep": 0.8,  # DIS dynamics.py: dropout 0.2 on each sample's loss, per member
    }


@register_preset("nnm-literal-atari")
def nnm_literal_atari() -> Layer:
    """Atari: the paper's ratio read literally, on raw encodings."""
    return {**nnm_atari(), "reward.features": "raw"}  # the paper mentions no normalisation of encodings


@register_preset("nnm-floor-atari")
def nnm_floor_atari() -> Layer:
    """Atari: the ratio without its constant floor, between 0 and 1."""
    return {**nnm_atari(), "reward.form": "floor"}  # ours


@register_preset("nnm-centered-atari")
def nnm_centered_atari() -> Layer:
    """Atari: the nuclear norm of deviations from the mean prediction; ours, not the paper's formula."""
    # Raw encodings: this form is not blind to scale, so it needs no fixed length.
    return {**nnm_atari(), "reward": "nnmc", "reward.form": "centered", "reward.features": "raw"}  # ours


@register_preset("nnm-knn-atari")
def nnm_knn_atari() -> Layer:
    """Atari: the paper's ratio over a state and its four nearest in a memory of states."""
    return {
        **nnm_atari(),
        "reward.source": "knn",  # the paper's second way
        "reward.neighbours_of": "next_obs",  # ours: novelty of the state reached, as the ensemble's
        "reward.memory": 32_768,  # open in the paper; ours: two rollouts' worth of states ...
        "reward.memory_stride": 4,  # ... taken from eight, 131,072 steps
    }


@register_preset("disagreement-atari")
def disagreement_atari() -> Layer:
    """Atari: exploration by disagreement, the variance among five models' predictions."""
    return {
        **disagreement_setting(),
        "reward": "disagreement",
        "reward.variant": "official",  # DIS rollouts.py: variance over members, mean over features
        "reward.encoder": "random",  # DIS run.py feat_learning=none
        "reward.members": 5,  # DIS run.py num_dynamics
        "reward.feature_dim": 512,  # DIS run.py feat_dim
        "reward.hidden": 512,  # DIS dynamics.py hidsize
        "reward.blocks": 4,  # DIS dynamics.py
        "reward.keep": 0.8,  # DIS dynamics.py: dropout 0.2 on each sample's loss, per member
    }


@register_preset("icm-atari")
def icm_atari() -> Layer:
    """Atari: the intrinsic curiosity module, one model's error on inverse-dynamics features."""
    return {
        **disagreement_setting(),
        "reward": "icm",
        "reward.variant": "official",  # openai/large-scale-curiosity dynamics.py: mean squared error of one model
        "reward.encoder": "idf",  # open in the paper; inverse-dynamics features are what ICM means
        "reward.feature_dim": 512,  # large-scale-curiosity run.py feat_dim
        "reward.hidden": 512,  # large-scale-curiosity dynamics.py hidsize
        "reward.blocks": 4,  # large-scale-curiosity dynamics.py
    }


@register_preset("rnd-atari")
def rnd_atari() -> Layer:
    """Atari: random network distillation inside the same PPO, so that only the bonus differs."""
    return {
        **disagreement_setting(),
        "reward": "rnd",
        "reward.variant": "official",  # RND cnn_policy_param_matched.py: mean of squares over features
        "reward.feature_dim": 512,  # RND rep_size
        "reward.hidden": 512,  # RND: the predictor's two further layers
        "reward.last_channels": 1,  # RND: the newest frame alone
        # RND normalises what its networks see in its own way; the policy's input stays as it is.
        "curiosity.obs_norm": "elementwise",  # RND ppo_agent.py: std per pixel
        "curiosity.obs_clip": 5.0,  # RND: ±5
        "curiosity.obs_moments": "running",  # RND ppo_agent.py: updated with every rollout
    }


@register_preset("random-atari")
def random_atari() -> Layer:
    """Atari: a random bonus, the control for "any noise would do"."""
    return {**disagreement_setting(), "reward": "random"}


@register_preset("none-atari")
def none_atari() -> Layer:
    """Atari: no bonus; PPO learns from the clipped game score alone."""
    return {
        **disagreement_setting(),
        "reward": "none",
        "curiosity.ext_coef": 1.0,  # DIS run.py ext_coeff, 1 where the score alone is learned from
    }


@register_preset("nnm-atari-int-ext")
def nnm_atari_int_ext() -> Layer:
    """nnm-atari with the game\'s score added."""
    return add_game_score(nnm_atari())


@register_preset("nnm-literal-atari-int-ext")
def nnm_literal_atari_int_ext() -> Layer:
    """nnm-literal-atari with the game\'s score added."""
    return add_game_score(nnm_literal_atari())


@register_preset("nnm-floor-atari-int-ext")
def nnm_floor_atari_int_ext() -> Layer:
    """nnm-floor-atari with the game\'s score added."""
    return add_game_score(nnm_floor_atari())


@register_preset("nnm-centered-atari-int-ext")
def nnm_centered_atari_int_ext() -> Layer:
    """nnm-centered-atari with the game\'s score added."""
    return add_game_score(nnm_centered_atari())


@register_preset("nnm-knn-atari-int-ext")
def nnm_knn_atari_int_ext() -> Layer:
    """nnm-knn-atari with the game\'s score added."""
    return add_game_score(nnm_knn_atari())


@register_preset("disagreement-atari-int-ext")
def disagreement_atari_int_ext() -> Layer:
    """disagreement-atari with the game\'s score added."""
    return add_game_score(disagreement_atari())


@register_preset("icm-atari-int-ext")
def icm_atari_int_ext() -> Layer:
    """icm-atari with the game\'s score added."""
    return add_game_score(icm_atari())


@register_preset("rnd-atari-int-ext")
def rnd_atari_int_ext() -> Layer:
    """rnd-atari with the game\'s score added."""
    return add_game_score(rnd_atari())


# Ours: models a quarter as wide and half as deep learn 1,024 steps in about the time the emulators take to play them.
SMALL_MODELS = {"reward.feature_dim": 128, "reward.hidden": 128, "reward.blocks": 2}


@register_preset("nnm-atari-small")
def nnm_atari_small() -> Layer:
    """nnm-atari for a laptop."""
    return {**shrink_for_laptop(nnm_atari()), **SMALL_MODELS}


@register_preset("disagreement-atari-small")
def disagreement_atari_small() -> Layer:
    """disagreement-atari for a laptop."""
    return {**shrink_for_laptop(disagreement_atari()), **SMALL_MODELS}


@register_preset("none-atari-small")
def none_atari_small() -> Layer:
    """none-atari for a laptop."""
    return shrink_for_laptop(none_atari())
