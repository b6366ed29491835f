"""Where the repository and the plug-ins of tests lie."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "tests" / "plugins"
HELPERS = ROOT / "tests" / "helpers"
