"""Where results are to be written: missing folders are made, and what cannot be written is refused before any work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import TINY
from intrigue.bench import env, rewards, score, train_on_policy
from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.run import play
from intrigue.run.driver import start
from intrigue.run.outputs import check_file, check_folder
from intrigue.studies import engine


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(start(resolve({**TINY, "steps": 40}), out=tmp_path_factory.mktemp("runs") / "maze", quiet=True).path)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a plain file and two folders that are named like films in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "afile").write_text("here before")
    for name in ("x.gif", "x.mp4"):
        (tmp_path / name).mkdir()
    return tmp_path


def never(*_: object, **__: object) -> None:
    pytest.fail("the work began")


@pytest.mark.parametrize("film", ["afile/w.gif", "afile/deep/w.mp4", "x.gif", "x.mp4"])
def test_a_film_that_cannot_be_written_is_refused_before_playing(run, place, film, monkeypatch, capsys) -> None:
    monkeypatch.setattr(play, "play", never)
    assert main(["eval", run, "--video", film]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and f"--video: {film} cannot be written: " in shown.err
    assert ("afile is not a folder" in shown.err) == film.startswith("afile")


@pytest.mark.parametrize("film", ["new/deep/w.gif", "new/w.mp4"])
def test_the_folders_of_a_film_are_made(run, place, film) -> None:
    assert main(["eval", run, "--episodes", "1", "--video", film]) == 0
    assert (place / film).stat().st_size > 500


@pytest.mark.parametrize(
    ("work", "name", "arguments", "options"),
    [
        (score, "rows", ["score", "--small"], ["--json", "--csv"]),
        (rewards, "costs", ["rewards", "rnd"], ["--json"]),
        (env, "bare_rate", ["env", "rooms"], ["--json"]),
        (train_on_policy, "measured", ["train", "--preset", "quickstart"], ["--json"]),
    ],
)
def test_a_bench_refuses_its_file_before_it_measures(place, monkeypatch, capsys, work, name, arguments, options):
    monkeypatch.setattr(work, name, never)
    for option in options:
        for file in ("afile/b.json", "x.gif"):
            assert main(["bench", *arguments, option, file]) == 2
            assert f"{option}: {file} cannot be written: " in capsys.readouterr().err


def test_a_bench_makes_the_folders_of_its_files(place) -> None:
    assert main(["bench", "score", "--small", "--rounds", "1", "--json", "a/b/s.json", "--csv", "c/s.csv"]) == 0
    rows = json.loads((place / "a" / "b" / "s.json").read_text())["rows"]
    assert len((place / "c" / "s.csv").read_text().splitlines()) == 1 + len(rows)


@pytest.mark.parametrize("more", [["--recheck-paper"], ["--from", "gone.csv"], []])
@pytest.mark.parametrize("out", ["afile", "afile/x"])
def test_a_study_refuses_its_folder_before_it_begins(place, monkeypatch, capsys, more, out) -> None:
    monkeypatch.setattr(engine, "run_study", never)
    assert main(["reproduce", "table4", *more, "--out", out]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and f"--out: {out} cannot be written: afile is not a folder" in shown.err


def test_a_place_that_may_not_be_written_is_named_and_asking_leaves_nothing(place, monkeypatch) -> None:
    assert check_file("--json", Path("a/b.json")) == check_folder("--out", Path("a/b")) == []
    assert check_file("--json", place / "afile") == check_file("--json", None) == []
    assert not (place / "a").exists() and (place / "afile").read_text() == "here before"
    # As root everything may be written, so what a read-only folder answers is played here.
    monkeypatch.setattr("intrigue.run.outputs.os.access", lambda *_: False)
    (told,) = check_file("--json", Path("x.gif/deep/b.json"))
    assert str(told).startswith("--json: x.gif/deep/b.json cannot be written: nothing may be written in x.gif. ")
    (told,) = check_file("--json", place / "afile")
    assert "it may not be changed" in str(told)


def test_a_disk_that_refuses_after_all_is_no_traceback(run, place, monkeypatch, capsys) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("intrigue.run.video._write_gif", full)
    assert main(["eval", run, "--episodes", "1", "--video", "new/w.gif"]) == 3
    assert "cannot write new/w.gif" in capsys.readouterr().err
    assert list((place / "new").iterdir()) == [], "nothing half written is left"
    (place / "s.json").write_text("measured before")
    monkeypatch.setattr("intrigue.run.disk.write_all", full)
    assert main(["bench", "score", "--small", "--rounds", "1", "--json", "s.json"]) == 3
    assert "cannot write s.json" in capsys.readouterr().err
    assert (place / "s.json").read_text() == "measured before"
    monkeypatch.setattr(Path, "mkdir", full)
    assert main(["reproduce", "table4", "--recheck-paper", "--out", "new/table"]) == 3
    assert "cannot write new/table" in capsys.readouterr().err
