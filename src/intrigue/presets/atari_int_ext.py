"""Atari with each bonus beside the game's score, α = 1 and β = 2: `atari_setting.beside_the_score` says how."""

from __future__ import annotations

from intrigue.presets import atari
from intrigue.presets.atari_setting import Layer, beside_the_score
from intrigue.presets.registry import register_preset


@register_preset("nnm-atari-int-ext")
def nnm_atari_int_ext() -> Layer:
    """nnm-atari beside the game's score."""
    return beside_the_score(atari.nnm_atari())


@register_preset("nnm-literal-atari-int-ext")
def nnm_literal_atari_int_ext() -> Layer:
    """nnm-literal-atari beside the game's score."""
    return beside_the_score(atari.nnm_literal_atari())


@register_preset("nnm-floor-atari-int-ext")
def nnm_floor_atari_int_ext() -> Layer:
    """nnm-floor-atari beside the game's score."""
    return beside_the_score(atari.nnm_floor_atari())


@register_preset("nnm-centered-atari-int-ext")
def nnm_centered_atari_int_ext() -> Layer:
    """nnm-centered-atari beside the game's score."""
    return beside_the_score(atari.nnm_centered_atari())


@register_preset("nnm-knn-atari-int-ext")
def nnm_knn_atari_int_ext() -> Layer:
    """nnm-knn-atari beside the game's score."""
    return beside_the_score(atari.nnm_knn_atari())


@register_preset("disagreement-atari-int-ext")
def disagreement_atari_int_ext() -> Layer:
    """disagreement-atari beside the game's score."""
    return beside_the_score(atari.disagreement_atari())


@register_preset("icm-atari-int-ext")
def icm_atari_int_ext() -> Layer:
    """icm-atari beside the game's score."""
    return beside_the_score(atari.icm_atari())


@register_preset("rnd-atari-int-ext")
def rnd_atari_int_ext() -> Layer:
    """rnd-atari beside the game's score."""
    return beside_the_score(atari.rnd_atari())
