"""Presets: named configurations as functions, each value with its source."""

from __future__ import annotations

from typing import Any

from intrigue.presets.registry import PRESETS, register_preset

__all__ = ["PRESETS", "preset_layer", "register_preset"]


def preset_layer(name: str) -> dict[str, Any]:
    """The layer a preset stands for."""
    layer: dict[str, Any] = PRESETS.get(name).cls()
    return layer
