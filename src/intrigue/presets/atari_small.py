"""Atari sized for a laptop: eight environments, two cores, no GPU; `atari_setting.laptop_sized` says what differs."""

from __future__ import annotations

from intrigue.presets import atari
from intrigue.presets.atari_setting import Layer, laptop_sized
from intrigue.presets.registry import register_preset

# Ours: models a quarter as wide and half as deep learn 1,024 steps in about the time the emulators take to play them.
SMALL_MODELS = {"reward.feature_dim": 128, "reward.hidden": 128, "reward.blocks": 2}


@register_preset("nnm-atari-small")
def nnm_atari_small() -> Layer:
    """nnm-atari for a laptop."""
    return {**laptop_sized(atari.nnm_atari()), **SMALL_MODELS}


@register_preset("disagreement-atari-small")
def disagreement_atari_small() -> Layer:
    """disagreement-atari for a laptop."""
    return {**laptop_sized(atari.disagreement_atari()), **SMALL_MODELS}


@register_preset("none-atari-small")
def none_atari_small() -> Layer:
    """none-atari for a laptop."""
    return laptop_sized(atari.none_atari())
