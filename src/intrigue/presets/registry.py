"""Where presets are filed by name. A preset is a function that returns a layer of `intrigue.config.run.resolve`."""

from __future__ import annotations

from typing import Any

from intrigue.registry import Registry

PRESETS: Registry[Any] = Registry("preset", "intrigue.presets")
register_preset = PRESETS.register
