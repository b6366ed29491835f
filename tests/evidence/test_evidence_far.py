"""What runs a batch, with commands that only wait."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from evidence.packing import Job, Room

from evidence import far

WAITS = "import sys, time, pathlib; open('order', 'a').write(sys.argv[1] + ' '); time.sleep(float(sys.argv[2])); "
WAITS += "open('order', 'a').write('end-' + sys.argv[1] + ' '); "
COMMAND = (sys.executable, "-c", WAITS + "sys.exit(int(sys.argv[3]))")


def job(name: str, seconds: float, code: int = 0, after: str = "", cores: int = 1, planned: float = 1.0) -> Job:
    return Job(name, (name, str(seconds), str(code)), cores, 0.0, planned, after)


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run jobs to the end of a lease of so many seconds; the last status, and the order they were started in."""

    def called(jobs: list[Job], seconds: float, cores: int = 2) -> tuple[dict, list[str]]:
        room = {"cores": cores, "gpu": 0.0, "seconds": seconds}
        told = [{**vars(each), "start": 0, "end": 0} for each in jobs]
        (tmp_path / "manifest.json").write_text(json.dumps({"jobs": told, "room": room}))
        said = []
        monkeypatch.setattr(far, "COMMAND", COMMAND)
        monkeypatch.setattr(far, "refresh", lambda work, status: said.append(status))
        far.main(tmp_path)
        assert (tmp_path / "finished").exists()
        return said[-1], (tmp_path / "runs" / "order").read_text().split()

    return called


def test_what_follows_waits_and_what_follows_a_failure_is_not_begun(run):
    jobs = [job("pre", 0.3), job("task", 0, after="pre"), job("bad", 0, code=7), job("never", 0, after="bad")]
    status, order = run(jobs, 20)
    assert order.index("end-pre") < order.index("task") and "never" not in order
    assert {name: end["code"] for name, end in status["ended"].items()} == {
        "pre": 0,
        "task": 0,
        "bad": 7,
        "never": None,
    }


def test_no_more_run_at_once_than_there_are_cores(run, monkeypatch):
    seen = []
    monkeypatch.setattr(far.Far, "_start", watching(far.Far._start, seen))
    run([job(str(number), 0.2, cores=1 + number % 2) for number in range(5)], 20)
    assert max(seen) == 2


def test_room_is_not_kept_for_what_its_pre_training_comes_too_late_for(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(far.Far, "_start", lambda self, each: started.append(each.name))
    task, other = (
        job(name, 0, after=after, cores=2 - (not after), planned=100) for name, after in (("t", "p"), ("o", ""))
    )
    for late, expected in ((50.0, []), (700.0, ["o"])):
        there = far.Far(tmp_path, Room(2, 0.0, 1000), [task, other], [0, 1], began=time.monotonic() - 100 - late)
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        there.running["p"] = far.Running(job("p", 0, planned=100), sleeper, [0], 0.0)
        there.turn()
        sleeper.kill()
        sleeper.wait()
        assert started == expected


def watching(start, seen):
    def called(self, each):
        start(self, each)
        seen.append(sum(running.job.cores for running in self.running.values()))

    return called


def test_what_outlasts_the_lease_is_ended_and_what_cannot_end_is_not_begun(run):
    began = time.monotonic()
    status, order = run([job("long", 60), job("later", 0, planned=50.0)], 1.5)
    assert time.monotonic() - began < 10
    assert order == ["long"] and status["waiting"] == ["later"]
    assert status["ended"]["long"]["why"] == "out of time"


def test_a_batch_that_is_taken_up_keeps_what_is_complete_and_ends_what_was_left_over(run, tmp_path):
    for name in ("runs", "logs"):
        (tmp_path / name).mkdir()
    (tmp_path / "runs" / "whole").mkdir()
    (tmp_path / "runs" / "whole" / "DONE").touch()
    left = subprocess.Popen([*COMMAND, "half", "60", "0"], cwd=tmp_path, start_new_session=True)
    while not (tmp_path / "order").exists():
        time.sleep(0.01)
    (tmp_path / "logs" / "half.pid").write_text(str(left.pid))
    (tmp_path / "logs" / "whole.pid").write_text(str(Path("/proc/self").resolve().name))  # no run of ours: spared
    status, order = run([job("whole", 0), job("half", 0), job("task", 0, after="whole")], 20)
    assert left.wait(timeout=10) != 0
    assert sorted(order) == ["end-half", "end-task", "half", "task"]
    assert status["ended"]["whole"] == {"code": 0, "seconds": 0.0}
