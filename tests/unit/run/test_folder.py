"""The run folder: born whole or not at all, recognized for what it is, its names safe, its small files atomic."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.errors import CheckpointError, ConfigError, StorageError
from intrigue.run import atomic, checkpoint, create, disk
from intrigue.run.folder import (
    RunFolder,
    clear_done,
    is_done,
    mark_done,
    open_run,
    read_config,
    read_done,
    why_occupied,
    write_config,
)
from intrigue.run.lock import RunLock
from intrigue.run.names import NAME_LIMIT, default_run_name, original_text, safe_name
from intrigue.run.provenance import collect_provenance, read_commit
from places import ROOT


def first_checkpoint(staging: create.StagedRun) -> None:
    checkpoint.save(staging.folder.checkpoints, 0, {"x": 1}, config_digest="c", meta={}, keep=1)


def make_run(path: Path, config: dict[str, Any] | None = None) -> RunFolder:
    with create.create(path, config or {"steps": 5}, {"host": "h"}) as staging:
        first_checkpoint(staging)
        return staging.publish()


def test_a_run_is_born_whole_and_locked(tmp_path: Path) -> None:
    with create.create(tmp_path / "runs" / "a", {"steps": 5}, {"host": "h"}, "train") as staging:
        assert not (tmp_path / "runs" / "a").exists()
        first_checkpoint(staging)
        run = staging.publish()
        assert run == RunFolder(tmp_path / "runs" / "a")
        with pytest.raises(ConfigError, match="in use"):
            RunLock(run.path).acquire()
    RunLock(run.path).acquire().release()
    assert os.listdir(tmp_path / "runs") == ["a"]
    assert (read_config(run), json.loads(run.provenance.read_text())) == ({"steps": 5}, {"host": "h"})
    assert open_run(run.path) == run
    assert checkpoint.verify(run.checkpoints).ok


def test_leaving_without_publishing_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with create.create(tmp_path / "a", {}, {}) as staging:
            first_checkpoint(staging)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []


def test_a_run_without_a_checkpoint_is_not_published(tmp_path: Path) -> None:
    with create.create(tmp_path / "a", {}, {}) as staging, pytest.raises(CheckpointError, match="first"):
        staging.publish()
    assert os.listdir(tmp_path) == []


def test_what_is_there_is_named_and_untouched(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "thesis.txt").write_text("x")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    def refusal(name: str) -> str:
        with pytest.raises(ConfigError) as caught:
            create.create(tmp_path / name, {}, {})
        return str(caught.value)

    before = sorted(os.listdir(tmp_path))
    assert "an unfinished run" in refusal("run")
    assert f"intrigue resume {run.path}" in refusal("run")
    mark_done(run, 5, "d")
    assert "a finished run" in refusal("run")
    assert "not a run" in refusal("foreign")
    (tmp_path / "seeds" / "seed-0").mkdir(parents=True)
    assert f"several seeds; go on with `intrigue resume {tmp_path / 'seeds'}`" in refusal("seeds")
    (tmp_path / "seeds" / "seed-0").rmdir()
    (tmp_path / "seeds").rmdir()
    assert "is a file" in refusal("file")
    assert "symbolic link" in refusal("link")
    assert "Not a directory" in refusal("file/inside")
    assert sorted(os.listdir(tmp_path)) == before


def test_an_empty_folder_is_a_free_place(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert why_occupied(tmp_path / "a") is None
    make_run(tmp_path / "a")
    assert os.listdir(tmp_path) == ["a"]


def test_a_place_taken_meanwhile_is_an_error_that_destroys_nothing(tmp_path: Path) -> None:
    with create.create(tmp_path / "a", {}, {}) as staging:
        first_checkpoint(staging)
        make_run(tmp_path / "a", {"steps": 9})
        with pytest.raises(ConfigError, match="already holds an unfinished run"):
            staging.publish()
    assert read_config(RunFolder(tmp_path / "a")) == {"steps": 9}
    assert os.listdir(tmp_path) == ["a"]


def test_numbered_runs_started_together_get_their_own_numbers(tmp_path: Path) -> None:
    with (
        create.create_numbered(tmp_path, "s", {"n": 1}, {}) as one,
        create.create_numbered(tmp_path, "s", {"n": 2}, {}) as two,
    ):
        for staging in (one, two):
            first_checkpoint(staging)
        assert [two.publish().path.name, one.publish().path.name] == ["s__1", "s__2"]
    assert sorted(os.listdir(tmp_path)) == ["s__1", "s__2"]


def test_only_stale_hidden_folders_of_ours_are_removed(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from intrigue.run import create;"
        "create.create(Path(sys.argv[1]) / 'dead', {}, {}); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)]).returncode == -9
    assert len(os.listdir(tmp_path)) == 1
    foreign = tmp_path / f".x.{'0' * 32}.new"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("x")
    (tmp_path / f".empty.{'1' * 32}.new").mkdir()
    with create.create(tmp_path / "alive", {}, {}) as living:
        make_run(tmp_path / "a")
        assert living.folder.path.exists()
        assert sorted(os.listdir(tmp_path)) == sorted([foreign.name, living.folder.path.name, "a"])


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "x" * 255, "ü" * 120, "-rf", " ", "a\nb", "CON", "\u202etxt"])
def test_odd_names_work_or_are_refused_and_write_nowhere_else(tmp_path: Path, name: str) -> None:
    (tmp_path / "root").mkdir()
    if len(name.encode()) > 255 or "\0" in name:
        with pytest.raises(ConfigError, match="cannot be the path"):
            make_run(tmp_path / "root" / name)
        assert os.listdir(tmp_path / "root") == []
    else:
        assert make_run(tmp_path / "root" / name).path.name == name
        assert os.listdir(tmp_path / "root") == [name]
    assert os.listdir(tmp_path) == ["root"]


def test_what_is_not_a_run_is_refused_with_the_right_exit_code(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "hollow" / "checkpoints").mkdir(parents=True)
    for name, kind in (
        ("missing", ConfigError),
        ("file", ConfigError),
        ("empty", CheckpointError),
        ("hollow", CheckpointError),
    ):
        with pytest.raises(kind) as caught:
            open_run(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)
    assert (ConfigError.exit_code, CheckpointError.exit_code) == (2, 4)


def test_config_round_trip_and_damage(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for missing in (None, b"", b"[1]", b"{", b'{"a":1,"a":2}', b"\xff"):
        if missing is not None:
            run.config.write_bytes(missing)
        with pytest.raises(CheckpointError, match=r"config\.json"):
            read_config(run)
    write_config(run, {"lr": 1e-4, "name": "ü", "limit": float("inf")})
    assert read_config(run) == {"lr": 1e-4, "name": "ü", "limit": float("inf")}


def test_done_marker(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert not is_done(run)
    clear_done(run)
    mark_done(run, 12, "abc")
    assert (is_done(run), read_done(run)) == (True, (12, "abc"))
    clear_done(run)
    assert os.listdir(tmp_path) == []
    run.finished.write_text("{}")
    with pytest.raises(CheckpointError, match="DONE"):
        is_done(run)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_safe_names_are_safe_and_can_be_turned_back(text: str) -> None:
    name = safe_name(text)
    assert 0 < len(name) <= NAME_LIMIT
    assert name.isascii()
    assert name[0] not in ".-"
    assert not set(name) & set("/\\:*?\"<>|\0 '$&;%#")
    assert name.upper() not in {"CON", "NUL", "AUX", "PRN", "COM1", "LPT1"}
    if "~~" not in name:
        assert original_text(name) == text


def test_safe_names_by_hand() -> None:
    expected = {
        "atari/Breakout": "atari+Breakout",
        "rooms": "rooms",
        "..": "~2E.",
        "../x": "~2E.+x",
        "": "~",
        "-rf": "~2Drf",
        "CON": "~43ON",
        "a+b": "a~2Bb",
        "a\nb": "a~0Ab",
        "ü": "~C3~BC",
    }
    assert {text: safe_name(text) for text in expected} == expected
    long_names = {safe_name("x" * 500 + tail) for tail in ("a", "b")}
    assert len(long_names) == 2
    assert all(len(name) <= NAME_LIMIT for name in long_names)
    with pytest.raises(ValueError, match="shortened"):
        original_text(long_names.pop())
    assert default_run_name("gym/CartPole-v1", "nnm", "ppo", 3) == "gym+CartPole-v1__nnm__ppo__3"


def test_write_file_replaces_in_one_instant_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    atomic.write_file(path, b"old")
    for number in range(1, 4):  # open, write, fsync; then rename
        for error in ("ENOSPC", "EIO"):
            disk.reset_faults()
            monkeypatch.setenv(disk.FAULT_VARIABLE, f"file:any:{number}:{error}")
            with pytest.raises(StorageError, match=f"{error}, needed 3 bytes, free"):
                atomic.write_file(path, b"new")
            assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["f"])
    monkeypatch.delenv(disk.FAULT_VARIABLE)
    atomic.write_file(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(("error", "advice"), [("ENOSPC", "make room"), ("EACCES", "a place that can be written to")])
def test_a_refusal_says_what_would_help(tmp_path: Path, monkeypatch, error: str, advice: str) -> None:
    disk.reset_faults()
    monkeypatch.setenv(disk.FAULT_VARIABLE, f"file:any:1:{error}")
    with pytest.raises(StorageError, match=advice):
        atomic.write_file(tmp_path / "f", b"new")


def test_removal_never_follows_links(tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis").write_text("x")
    victim = tmp_path / "victim"
    (victim / "inner").mkdir(parents=True)
    (victim / "inner" / "link").symlink_to(tmp_path / "precious")
    (victim / "file").symlink_to(tmp_path / "precious" / "thesis")
    atomic.remove_folder(victim)
    assert os.listdir(tmp_path) == ["precious"]
    assert (tmp_path / "precious" / "thesis").read_text() == "x"


@pytest.mark.parametrize("plan", ["x", "a:b:c:kill", "file:open:1:EWRONG"])
def test_a_wrong_fault_plan_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: str) -> None:
    disk.reset_faults()
    monkeypatch.setenv(disk.FAULT_VARIABLE, plan)
    with pytest.raises(ConfigError, match=disk.FAULT_VARIABLE):
        atomic.write_file(tmp_path / "f", b"x")


def test_provenance_says_where_from_and_leaks_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "canary-value-1234")
    plugin = tmp_path / "mine.py"
    plugin.write_bytes(b"pass")
    origin = collect_provenance(device="cpu", seed=7, threads=2, plugins=[plugin])
    text = json.dumps(origin)
    assert "canary" not in text
    assert "SECRET" not in text
    assert origin["versions"]["torch"] == torch.__version__
    assert (origin["seed"], origin["threads"], origin["device"]) == (7, 2, {"type": "cpu"})
    assert origin["plugins"] == {str(plugin): hashlib.sha256(b"pass").hexdigest()}
    with pytest.raises(ConfigError, match="plug-in"):
        collect_provenance(device="cpu", seed=0, plugins=[tmp_path / "missing.py"])


def test_commit_is_that_of_the_checkout() -> None:
    found = read_commit()
    root = ROOT
    if (root / ".git").exists():
        answer = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True)
        assert found == answer.stdout.strip()
    else:
        assert found is None
