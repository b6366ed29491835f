"""metrics.csv and episodes.csv: whole rows, exact numbers, new columns, cut back at any byte, honest about damage."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intrigue.errors import CheckpointError, RunError, StorageError
from intrigue.run import disk
from intrigue.run.logging.csv_files import EpisodesCsv, MetricsCsv, read_episodes, read_metrics, truncate_after
from intrigue.types import Episode


def write_rows(path: Path, steps: list[int]) -> None:
    sink = MetricsCsv(path)
    for step in steps:
        sink.write(step, 4 * step, step / 10, {"loss": 1.0 / step, "charts/SPS": 100.0})
    sink.close()


def test_rows_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    write_rows(path, [2, 4])
    assert path.read_text() == ("step,frame,wall_seconds,loss,charts/SPS\n2,8,0.2,0.5,100.0\n4,16,0.4,0.25,100.0\n")
    table = read_metrics(path)
    assert table.columns["loss"] == [0.5, 0.25]
    assert (table.columns["frame"], table.notes) == ([8, 16], [])


def test_a_new_metric_widens_the_table_and_a_missing_one_is_an_empty_cell(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    sink = MetricsCsv(path)
    sink.write(1, 1, 0.0, {"a": 1.0})
    sink.write(2, 2, 0.0, {"b": math.nan})
    sink.write(3, 3, 0.0, {"a": math.inf, "c": 5.0})
    assert path.read_text() == "step,frame,wall_seconds,a,b,c\n1,1,0.0,1.0,,\n2,2,0.0,,nan,\n3,3,0.0,inf,,5.0\n"
    assert os.listdir(tmp_path) == ["metrics.csv"]
    MetricsCsv(path).write(4, 4, 0.0, {"b": 2.0})
    assert path.read_text().endswith("\n4,4,0.0,,2.0,\n")
    columns = read_metrics(path).columns
    assert [math.isnan(value) for value in columns["a"]] == [False, True, False, True]


@settings(deadline=None)
@given(st.floats())
def test_floats_come_back_exactly(tmp_path_factory: pytest.TempPathFactory, value: float) -> None:
    path = tmp_path_factory.mktemp("t") / "m.csv"
    MetricsCsv(path).write(1, 1, 0.0, {"x": value})
    assert repr(read_metrics(path).columns["x"][0]) == repr(value)


@pytest.mark.parametrize(
    "name", ["=cmd()", "+1", "-1", "@x", "a,b", 'a"b', "a\nb", "", " a", "ü", "a" * 200, "step", "frame"]
)
def test_names_a_spreadsheet_would_run_are_refused(tmp_path: Path, name: str) -> None:
    sink = MetricsCsv(tmp_path / "m.csv")
    with pytest.raises(RunError, match="metric"):
        sink.write(1, 1, 0.0, {name: 1.0})
    assert os.listdir(tmp_path) == []


def test_cut_back_keeps_rows_up_to_the_step(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    write_rows(path, [1, 2, 3, 4])
    whole = path.read_bytes()
    inode = path.stat().st_ino
    assert truncate_after(path, 4) == []
    assert (path.read_bytes(), path.stat().st_ino) == (whole, inode)
    assert "2 rows beyond step 2" in truncate_after(path, 2)[0]
    assert read_metrics(path).columns["step"] == [1, 2]
    truncate_after(path, 0)
    assert read_metrics(path).columns["step"] == []
    MetricsCsv(path).write(1, 4, 0.1, {"loss": 1.0})
    assert path.read_bytes().startswith(whole[: whole.index(b"\n")])
    assert truncate_after(tmp_path / "missing.csv", 3) == []


def test_cut_back_at_each_byte_of_the_last_three_records(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    write_rows(path, [1, 2, 3, 4, 5])
    whole = path.read_bytes()
    ends = [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    for length in range(ends[2], len(whole)):
        path.write_bytes(whole[:length])
        rows = sum(end <= length for end in ends) - 1
        torn = length not in ends
        before = read_metrics(path)
        assert (len(before.columns["step"]), len(before.notes)) == (rows, int(torn))
        if torn:
            with pytest.raises(CheckpointError, match="torn"):
                MetricsCsv(path)
        notes = truncate_after(path, 5)
        assert len(notes) == int(torn)
        assert path.read_bytes() == whole[: ends[rows]]
        resumed = MetricsCsv(path)
        for step in range(rows + 1, 6):
            resumed.write(step, 4 * step, step / 10, {"loss": 1.0 / step, "charts/SPS": 100.0})
        resumed.close()
        assert path.read_bytes() == whole


def test_a_torn_header_is_an_empty_table(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_bytes(b"step,fra")
    assert "line 1: torn" in read_metrics(path).notes[0]
    assert len(truncate_after(path, 5)) == 1
    assert path.read_bytes() == b""
    write_rows(path, [1])
    assert read_metrics(path).columns["step"] == [1]


@pytest.mark.parametrize(
    "line",
    [b"", b"3,1", b"x,1,1,1,1", b"3,1,1,1,1,1", b"3,1,a,1,1", b"3,1,\x00,1,1", b"\xff\xfe,1,1,1,1", b"-3,1,1,1,1",
     b"3.5,1,1,1,1", b"1,1,1,1,1", b"3,1,1_0,1,1", b"3, 1,1,1,1", b"9" * 5000 + b",1,1,1,1", b",1,1,1,1"],
    ids=repr,
)  # fmt: skip
def test_a_garbled_line_in_the_middle_is_damage_with_its_number(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "m.csv"
    write_rows(path, [1, 2, 4, 5])
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:3], line, *lines[3:]]))
    before = path.read_bytes()
    for attempt in (lambda: truncate_after(path, 5), lambda: read_metrics(path)):
        with pytest.raises(CheckpointError, match="line 4"):
            attempt()
    assert path.read_bytes() == before


def test_garbled_lines_beyond_the_cut_go_with_it(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    write_rows(path, [1, 2, 3])
    with open(path, "ab") as file:
        file.write(b"garbage\n")
    assert len(truncate_after(path, 2)) == 1
    assert read_metrics(path).columns["step"] == [1, 2]


@pytest.mark.parametrize("content", [b"\xff\n1\n", b"frame,step\n", b"step,step\n"])
def test_a_garbled_header_is_damage(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.csv"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="line 1"):
        read_metrics(path)


def test_episodes(tmp_path: Path) -> None:
    path = tmp_path / "episodes.csv"
    assert read_episodes(path).columns["length"] == []
    sink = EpisodesCsv(path)
    sink.write(Episode(step=10, env=3, episodic_return=1.5, length=7, terminated=True), frame=40)
    sink.sync()
    EpisodesCsv(path).write(Episode(step=12, env=0, episodic_return=-2, length=9, terminated=False), frame=48)
    assert path.read_text() == ("step,frame,env,episodic_return,length,terminated\n10,40,3,1.5,7,1\n12,48,0,-2.0,9,0\n")
    assert read_episodes(path).columns["terminated"] == [1, 0]
    truncate_after(path, 10)
    assert read_episodes(path).columns["step"] == [10]
    write_rows(tmp_path / "m.csv", [1])
    for attempt in (EpisodesCsv, read_episodes):
        with pytest.raises(CheckpointError, match="line 1: expected"):
            attempt(tmp_path / "m.csv")


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
def test_a_full_disk_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    path = tmp_path / "m.csv"
    sink = MetricsCsv(path)
    sink.write(1, 1, 0.0, {"a": 1.0})
    before = path.read_bytes()
    real = os.write

    def half(descriptor: int, content: bytes) -> int:
        if len(content) > 4:
            return real(descriptor, content[:4])
        raise OSError(getattr(__import__("errno"), error), "full")

    with monkeypatch.context() as patch:
        patch.setattr(disk.os, "write", half)
        with pytest.raises(StorageError, match=error):
            sink.write(2, 2, 0.0, {"a": 2.0})
    assert path.read_bytes() == before
    sink.write(2, 2, 0.0, {"a": 2.0})
    assert read_metrics(path).columns["a"] == [1.0, 2.0]


def test_sync_flushes_file_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(disk.os, "fsync", note)
    sink = MetricsCsv(tmp_path / "m.csv")
    sink.sync()
    sink.write(1, 1, 0.0, {"a": 1.0})
    sink.sync()
    sink.write(2, 2, 0.0, {"a": 1.0})
    sink.sync()
    assert flushed == [str(tmp_path / "m.csv"), str(tmp_path), str(tmp_path / "m.csv")]


def test_a_link_in_place_of_a_table_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("step\n")
    (tmp_path / "m.csv").symlink_to(tmp_path / "precious")
    with pytest.raises(CheckpointError):
        MetricsCsv(tmp_path / "m.csv")
    assert (tmp_path / "precious").read_text() == "step\n"
