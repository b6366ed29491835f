"""docs/assets/layers.svg is the picture of the imports as they are."""

from __future__ import annotations

import subprocess
import sys

from places import ROOT


def test_the_picture_is_that_of_the_imports() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "draw-layers", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, f"draw it anew with tools/draw-layers; {done.stderr}"
