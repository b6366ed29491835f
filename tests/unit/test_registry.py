"""Plug-ins are found in files and in sub-packages of their package, and imported once, under the package's name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from intrigue.registry import Registry

REGISTRY = """from intrigue.registry import Registry

SHAPES = Registry("shape", "shapes_made")
register_shape = SHAPES.register
"""
PLUGIN = """\"\"\"{summary}\"\"\"
{imports}
from shapes_made.registry import register_shape


@register_shape("{name}")
class Shape:
    \"\"\"A shape.\"\"\"
"""


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    package = tmp_path / "shapes_made"
    (package / "cube").mkdir(parents=True)
    (package / "helpers").mkdir()
    for name in ("__init__.py", "helpers/__init__.py"):
        (package / name).write_text("")
    (package / "cube" / "side.py").write_text("SIDE = 3\n")
    (package / "registry.py").write_text(REGISTRY)
    (package / "ball.py").write_text(PLUGIN.format(summary="Round.", imports="", name="ball"))
    sided = "from shapes_made.cube.side import SIDE"
    (package / "cube" / "__init__.py").write_text(PLUGIN.format(summary="Has six sides.", imports=sided, name="cube"))
    monkeypatch.syspath_prepend(str(tmp_path))
    import shapes_made.registry

    yield shapes_made.registry.SHAPES
    for module in [each for each in sys.modules if each.split(".")[0] == "shapes_made"]:
        del sys.modules[module]


def test_files_and_sub_packages_are_listed_without_being_imported(shapes: Registry) -> None:
    assert shapes.names() == ["ball", "cube"]
    assert shapes.declaration("cube").summary == "Has six sides."
    assert "shapes_made.cube" not in sys.modules


@pytest.mark.parametrize("name", ["ball", "cube"])
def test_a_plug_in_is_imported_once_under_its_package(shapes: Registry, name: str) -> None:
    before = set(sys.modules)
    cls = shapes.get(name).cls
    assert cls.__module__ == f"shapes_made.{name}"
    assert sys.modules[f"shapes_made.{name}"].Shape is cls
    assert not [each for each in set(sys.modules) - before if each.startswith("intrigue_plugin_")]
