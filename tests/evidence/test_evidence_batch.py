"""A whole batch of tiny runs on a CPU: handed out, killed on the way, taken up, collected, read by the studies."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tiny_queue import batch, queue, tiny_queue

from intrigue.studies.common.run_records import CURVES, EVALUATIONS, read_records


def test_a_batch_that_is_killed_and_taken_up_comes_back_whole(tmp_path):
    place, work, out = tiny_queue(tmp_path / "clone"), tmp_path / "work", tmp_path / "out"
    handed = queue(place, "next", "--minutes", "15", "--cores", "2")
    assert handed.returncode == 0, handed.stderr

    assert "dmc/walker starts" in batch(place, work, "start").stdout
    kill_once_it_runs(work)
    again = batch(place, work, "start")
    assert again.returncode == 0, again.stderr
    twice = batch(place, work, "start")  # the first goes on
    assert twice.returncode == 0, twice.stderr
    waited = batch(place, work, "wait", "600", str(out))
    assert waited.returncode == 0, waited.stderr
    assert "already running" in (work / "far.log").read_text()
    assert (work / "finished").exists(), waited.stdout

    collected = queue(place, "collect", str(out / "evidence.tar.gz"))
    assert "2 done, 0 cut, 0 lost" in collected.stdout, collected.stderr + waited.stdout
    (tuning,) = read_records(place / "results" / "control.csv", EVALUATIONS)
    assert (tuning.task, tuning.snapshot, tuning.last_step) == ("walker_run", 100, 60)
    (curve,) = read_records(place / "results" / "games.csv", CURVES)
    assert (curve.task, curve.last_step) == ("Breakout", 64)
    files = {path.name: path.read_bytes() for path in (place / "results").iterdir()}
    assert queue(place, "collect", str(out / "evidence.tar.gz")).returncode == 0
    assert {path.name: path.read_bytes() for path in (place / "results").iterdir()} == files

    items = json.loads(queue(place, "status", "--json").stdout)["items"]
    assert [(item["done"], item["wanted"]) for item in items] == [(1, 0), (1, 0)]
    nothing = queue(place, "next", "--minutes", "15", "--cores", "2")
    assert nothing.returncode == 2 and "nothing of what is missing fits" in nothing.stderr
    a_run_without_its_last_step_is_cut(work)


def kill_once_it_runs(work: Path) -> None:
    """End what runs the batch, not what it started: so do machines that run out of memory."""
    until = time.monotonic() + 300
    while not list((work / "logs").glob("*.pid")):
        assert time.monotonic() < until, (work / "far.log").read_text()
        time.sleep(0.1)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"evidence.far" in words and str(work).encode() in words:
            os.kill(int(folder.name), signal.SIGKILL)


def a_run_without_its_last_step_is_cut(work: Path) -> None:
    (place,) = work.glob("runs/Breakout*")
    (place / "DONE").unlink()
    env = {**os.environ, "PYTHONPATH": f"{work}/source/src:{work}/source"}
    subprocess.run([sys.executable, "-m", "evidence.package", "rows", str(work)], cwd=work, env=env, check=True)
    with (work / "rows" / "games.csv").open(newline="") as file:
        assert {row["outcome"] for row in csv.DictReader(file)} == {"cut"}
    with (work / "rows" / "control.csv").open(newline="") as file:
        assert {row["outcome"] for row in csv.DictReader(file)} == {"done"}
