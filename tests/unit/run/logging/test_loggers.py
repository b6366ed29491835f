"""MetricLoggers of a run's metrics: as the tables have them, hidden where a run went back, and never in its way."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from conftest import TINY
from finetune_runs import pretrained
from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.errors import CheckpointError, ConfigError, RunError
from intrigue.run import checkpoint
from intrigue.run.driver import resume, start
from intrigue.run.finetune import finetune
from intrigue.run.folder import RunFolder
from intrigue.run.logging import loggers, trackers
from intrigue.run.logging.csv_files import read_metrics

WATCHED = {**TINY, "run.sinks": "tensorboard", "steps": 256, "checkpoint_every": 128}
KEYS = ("step", "frame", "wall_seconds")


def curves_of(folder: RunFolder) -> dict[str, dict[int, float]]:
    """What TensorBoard shows of a run: {metric: {step: value}}."""
    found = EventAccumulator(str(folder.tensorboard), size_guidance={"scalars": 0})
    found.Reload()
    return {
        name: {event.step: event.value for event in found.Scalars(name)}
        for name in found.Tags()["scalars"]
        if not name.startswith("eval/")
    }


def table_of(folder: RunFolder) -> dict[str, dict[int, float]]:
    """metrics.csv in the same form, in TensorBoard's float32."""
    columns = read_metrics(folder.metrics).columns
    return {
        name: dict(zip(map(int, columns["step"]), values, strict=True))
        for name, values in columns.items()
        if name not in KEYS
    }


def assert_same(shown: dict[str, dict[int, float]], table: dict[str, dict[int, float]]) -> None:
    assert shown.keys() == table.keys()
    for name, curve in table.items():
        assert shown[name].keys() == curve.keys(), name
        for step, value in curve.items():
            assert shown[name][step] == pytest.approx(value, rel=1e-6, nan_ok=True), (name, step)


@pytest.fixture(autouse=True)
def _no_other_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if wandb and trackio were not installed, whether they are or not."""
    real = loggers.importlib.util.find_spec
    hidden = ("wandb", "trackio")
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: None if name in hidden else real(name))


def test_tensorboard_shows_what_the_table_has(tmp_path: Path) -> None:
    folder = RunFolder(start(resolve(WATCHED), out=tmp_path / "run", quiet=True).path)
    table = table_of(folder)
    assert list(table["intrinsic/raw_mean"]) == [64, 128, 192, 256]
    assert all(math.isfinite(value) for value in table["intrinsic/raw_mean"].values())
    assert_same(curves_of(folder), table)


def test_what_a_resumed_run_went_back_from_is_hidden(tmp_path: Path) -> None:
    """The last checkpoint is gone: steps 192 and 256 are trained again, and each is shown once."""
    folder = RunFolder(start(resolve(WATCHED), out=tmp_path / "run", quiet=True).path)
    newest = checkpoint.verify(folder.checkpoints).step
    assert newest == 256
    for path in (folder.checkpoints / f"{newest:012d}").iterdir():
        path.unlink()
    folder.finished.unlink()
    resume(folder.path, steps=320, quiet=True)
    table = table_of(folder)
    assert list(table["intrinsic/raw_mean"]) == [64, 128, 192, 256, 320]
    assert_same(curves_of(folder), table)


def test_a_run_is_the_same_with_and_without(tmp_path: Path) -> None:
    plain = start(resolve({**WATCHED, "run.sinks": ()}), out=tmp_path / "plain", quiet=True)
    watched = start(resolve(WATCHED), out=tmp_path / "watched", quiet=True)
    digests = [checkpoint.digest(RunFolder(run.path).checkpoints) for run in (plain, watched)]
    assert digests[0] == digests[1]
    assert not RunFolder(plain.path).tensorboard.exists()


def test_a_fine_tuning_takes_the_sinks_that_are_here(tmp_path: Path) -> None:
    before = pretrained(tmp_path / "pre", **{"run.sinks": "tensorboard"})
    config = RunFolder(before.path).config
    elsewhere = json.loads(config.read_text())
    elsewhere["run"]["sinks"] = ["wandb", "tensorboard"]  # as of a machine that had both
    config.write_text(json.dumps(elsewhere))
    tuned = RunFolder(finetune(before.path, "walker_run", steps=40, eval_every=20, quiet=True)[0].run.path)
    found = EventAccumulator(str(tuned.tensorboard))
    found.Reload()
    assert [event.step for event in found.Scalars("eval/return_mean")] == [20, 40]


def test_what_is_not_installed_is_said_before_anything_is_created(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "chain", "--run.sinks", "trackio,tensorboard,wandb", "--out", "run"]) == 2
    said = capsys.readouterr().err
    assert "pip install 'intrigue[wandb]'" in said
    assert "pip install 'intrigue[trackio]'" in said
    assert "intrigue[tensorboard]" not in said
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_sink_is_refused() -> None:
    with pytest.raises(ConfigError, match="tensorboard"):
        resolve({**TINY, "run.sinks": "tensorbored"})


def test_a_resume_where_a_package_is_missing_goes_on(tmp_path: Path, capsys, monkeypatch) -> None:
    run = start(resolve(WATCHED), out=tmp_path / "run", quiet=True)

    def missing(*_):
        raise ImportError("No module named 'tensorboard'")

    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", missing)
    resume(run.path, steps=320, quiet=True)
    assert "tensorboard gets no more metrics (No module named 'tensorboard')" in capsys.readouterr().err
    assert list(table_of(RunFolder(run.path))["intrinsic/raw_mean"])[-1] == 320


def test_a_copy_that_fails_on_the_way_is_put_away(tmp_path: Path, capsys, monkeypatch) -> None:
    calm = start(resolve({**WATCHED, "run.sinks": ()}), out=tmp_path / "calm", quiet=True)
    written = []

    def full(self, step, frame, wall_seconds, metrics):
        written.append(step)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trackers.TensorBoardLogger, "write", full)
    run = start(resolve(WATCHED), out=tmp_path / "run")
    assert written == [64], "asked once, and no more"
    assert capsys.readouterr().err.count("tensorboard gets no more metrics") == 1
    digests = [checkpoint.digest(RunFolder(each.path).checkpoints) for each in (calm, run)]
    assert digests[0] == digests[1]


def test_a_copy_that_cannot_be_ended_is_said_after_the_run(tmp_path: Path, capsys, monkeypatch) -> None:
    """The run is done by then: what is sent far away may take its time, or fail."""
    seen = []

    def stuck(self, *, complete):
        seen.append((complete, (tmp_path / "run" / "DONE").exists()))
        raise TimeoutError("nobody answers")

    monkeypatch.setattr(trackers.TensorBoardLogger, "close", stuck)
    start(resolve(WATCHED), out=tmp_path / "run", quiet=True)
    assert seen == [(True, True)]
    assert "tensorboard gets no more metrics (nobody answers)" in capsys.readouterr().err


def test_a_copy_of_a_run_that_fails_is_told_so(tmp_path: Path, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(trackers.TensorBoardLogger, "close", lambda self, *, complete: seen.append(complete))
    monkeypatch.setattr("intrigue.run.session.save_state", lambda *_, **__: (_ for _ in ()).throw(RunError("no")))
    with pytest.raises(RunError):
        start(resolve(WATCHED), out=tmp_path / "run", quiet=True)
    assert seen == [False]


def test_a_run_is_known_by_one_name_wherever_it_lies(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "walker" / "seed-3")
    run.path.mkdir(parents=True)
    first = trackers.read_identity(run)
    assert first.name == "walker-seed-3"
    moved = RunFolder(run.path.rename(tmp_path / "alone"))
    assert trackers.read_identity(moved) == first
    other = RunFolder(tmp_path / "other")
    other.path.mkdir()
    assert trackers.read_identity(other).id != first.id
    moved.sinks.write_text("")
    with pytest.raises(CheckpointError, match=r"sinks\.json is damaged; remove it"):
        trackers.read_identity(moved)


def test_a_folder_is_no_package(tmp_path: Path, monkeypatch) -> None:
    """wandb leaves a folder of its name wherever it runs."""
    (tmp_path / "left_behind").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert loggers.find_installed(["left_behind", "tensorboard"]) == ("tensorboard",)
