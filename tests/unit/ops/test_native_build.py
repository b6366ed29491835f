"""Where compiled libraries are kept, and what happens where they cannot be."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from intrigue.ops.native_build import CannotCompile, load_library

HALF = "double half(double x) { return x / 2; }\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that cannot hold a cache, since a file is in its way, and a folder for temporary files."""
    (tmp_path / "cache").write_text("")
    (tmp_path / "half.c").write_text(HALF)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


def test_without_a_cache_folder_all_processes_share_one_temporary_library(place: Path) -> None:
    for _ in range(2):
        assert load_library(place / "half.c", ()).half is not None
    [folder] = (place / "temporary").iterdir()
    [kept] = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert kept.name.startswith("half-") and kept.suffix == ".so"


@pytest.mark.parametrize("kind", ["open to all", "a link"])
def test_a_folder_that_others_could_write_is_not_trusted(place: Path, kind: str) -> None:
    taken = place / "temporary" / f"intrigue-{os.getuid()}"
    theirs = place / "theirs"
    theirs.mkdir(mode=0o700)
    if kind == "a link":
        taken.symlink_to(theirs)
    else:
        taken.mkdir()
        taken.chmod(0o777)
    assert load_library(place / "half.c", ()).half is not None
    assert not list(taken.iterdir())


def test_another_source_gets_a_library_of_its_own(place: Path) -> None:
    load_library(place / "half.c", ())
    (place / "half.c").write_text(HALF + "int other(void) { return 1; }\n")
    assert load_library(place / "half.c", ()).other() == 1


def test_a_source_that_does_not_compile_is_said(place: Path) -> None:
    (place / "half.c").write_text("double half(")
    with pytest.raises(CannotCompile, match="could not build it"):
        load_library(place / "half.c", ())
    [folder] = (place / "temporary").iterdir()
    assert not list(folder.iterdir())
