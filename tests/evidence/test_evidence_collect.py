"""Collecting: once, whole, and never two results of one run."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest
from evidence.collect import collect
from evidence.plan import QueueError
from evidence.records import OUT, Batch, read_ledger, read_results, write_ledger

from intrigue.studies.common.run_records import CURVES, read_records

HEADER = ",".join([*CURVES.columns, "identity", "commit", "batch", "outcome"])


def line(game: str, step: int, score: float, batch: str, outcome: str) -> str:
    return f"{game},nnm-atari,,nnm,0,{step},{4 * step},{score},9,1.0,5,1-{game},abc,{batch},{outcome}"


def archive(place: Path, batch: str, *lines: str, games: tuple[str, ...] = ("Pong", "Krull")) -> Path:
    """What a batch of these games left, one run each."""
    runs = [{"identity": f"1-{game}"} for game in games]
    manifest = {"id": batch, "date": "2026-01-01T00:00Z", "commit": "abc", "minutes": "28", "jobs": [{"runs": runs}]}
    texts = {"manifest.json": json.dumps(manifest), "rows/games.csv": "\n".join([HEADER, *lines]) + "\n"}
    path = place / f"{batch}-{len(list(place.glob('*.gz')))}.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in texts.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def results(tmp_path):
    (tmp_path / "results").mkdir()
    handed = Batch("1", "2026-01-01T00:00Z", "abc", "28", "1-Krull 1-Pong", OUT)
    write_ledger(tmp_path / "results", [handed])
    return tmp_path / "results"


def texts(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


WHOLE = (line("Pong", 1, -20, "1", "done"), line("Pong", 2, -19, "1", "done"))
CUT = (line("Krull", 1, 100, "1", "cut"),)


def test_twice_is_once(tmp_path, results):
    back = archive(tmp_path, "1", *WHOLE, *CUT)
    assert collect(back, results).outcome == "1 done, 1 cut, 0 lost"
    once = texts(results)
    assert collect(back, results).outcome == "1 done, 1 cut, 0 lost"
    assert texts(results) == once
    assert sorted(once) == ["evidence-ledger.csv", "games-cut.csv", "games.csv"]
    (curve,) = read_records(results / "games.csv", CURVES)
    assert (curve.task, curve.at(2)) == ("Pong", -19)


def test_two_results_of_one_run_are_refused_and_both_are_named(tmp_path, results):
    collect(archive(tmp_path, "1", *WHOLE), results)
    before = texts(results)
    with pytest.raises(QueueError) as refused:
        collect(archive(tmp_path, "2", line("Pong", 1, -20, "2", "done"), line("Pong", 2, 5, "2", "done")), results)
    assert all(each in str(refused.value) for each in ("games.csv, batch 1", "2-1.tar.gz", "batch 2", "Pong"))
    assert texts(results) == before
    # The same rows from another batch are no second result.
    collect(archive(tmp_path, "2", line("Pong", 1, -20, "2", "done"), line("Pong", 2, -19, "2", "done")), results)
    assert texts(results)["games.csv"] == before["games.csv"]


def test_a_complete_run_takes_the_place_of_a_cut_one_and_a_longer_cut_one_of_a_shorter(tmp_path, results):
    collect(archive(tmp_path, "1", *CUT), results)
    longer = (line("Krull", 1, 100, "2", "cut"), line("Krull", 2, 110, "2", "cut"))
    collect(archive(tmp_path, "2", *longer), results)
    collect(archive(tmp_path, "1", *CUT), results)
    assert read_results(results)["games-cut"]["1-Krull"].length == 2
    collect(archive(tmp_path, "3", line("Krull", 3, 120, "3", "done")), results)
    collect(archive(tmp_path, "2", *longer), results)
    assert not (results / "games-cut.csv").exists()
    assert read_results(results)["games"]["1-Krull"].cell("batch") == "3"
    assert [batch.outcome for batch in read_ledger(results)] == [
        "0 done, 1 cut, 1 lost",
        "1 done, 0 cut, 1 lost",
        "1 done, 0 cut, 1 lost",
    ]


def test_a_run_that_was_not_asked_for_is_refused(tmp_path, results):
    with pytest.raises(QueueError, match="was not asked for"):
        collect(archive(tmp_path, "1", *WHOLE, games=("Krull",)), results)


def test_two_identities_of_one_name_are_refused(tmp_path, results):
    collect(archive(tmp_path, "1", *WHOLE), results)
    other = line("Pong", 2, -3, "2", "done").replace("1-Pong", "1-Krull")
    with pytest.raises(QueueError, match=r"is 1-Pong in games\.csv and 1-Krull in"):
        collect(archive(tmp_path, "2", other), results)


@pytest.mark.parametrize("size", [0, 10, 200])
def test_an_archive_that_was_cut_is_refused(tmp_path, results, size):
    back = archive(tmp_path, "1", *WHOLE)
    back.write_bytes(back.read_bytes()[:size])
    before = texts(results)
    with pytest.raises(QueueError, match="is no archive of a batch"):
        collect(back, results)
    assert texts(results) == before


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", range(3))
def test_a_kill_at_any_file_leaves_a_state_from_which_the_same_command_completes(
    tmp_path, results, monkeypatch, step, before
):
    collect(archive(tmp_path, "1", *CUT), results)
    back = archive(tmp_path, "2", *WHOLE, line("Krull", 3, 120, "2", "done"))
    later = tmp_path / "later"
    later.mkdir()
    for name, text in texts(results).items():
        (later / name).write_text(text)
    collect(back, later)

    steps, whole = [], {"replace": Path.replace, "unlink": Path.unlink}

    def killing(name):
        def called(self, *args, **kwargs):
            steps.append(name)
            if len(steps) - 1 == step and before:
                raise Killed
            found = whole[name](self, *args, **kwargs)
            if len(steps) - 1 == step:
                raise Killed
            return found

        return called

    with monkeypatch.context() as patch:
        for name in whole:
            patch.setattr(Path, name, killing(name))
        with pytest.raises(Killed):
            collect(back, results)
    there = read_results(results)  # every file is whole, and nothing that was known is gone
    assert any("1-Krull" in there.get(name, {}) for name in ("games", "games-cut"))
    collect(back, results)
    assert {name: text for name, text in texts(results).items() if not name.startswith(".")} == texts(later)


def test_a_kill_while_a_file_is_written_leaves_the_old_one(tmp_path, results, monkeypatch):
    collect(archive(tmp_path, "1", *WHOLE[:1]), results)
    before = texts(results)

    def killed(descriptor):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", killed)
        with pytest.raises(Killed):
            collect(archive(tmp_path, "2", line("Krull", 3, 120, "2", "done")), results)
    assert {name: text for name, text in texts(results).items() if name in before} == before
