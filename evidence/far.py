"""Runs a batch where it was sent: starts jobs as there is room, and refreshes one archive of what is worth fetching.

    python -m evidence.far WORK

WORK holds manifest.json and gets runs/, logs/, rows/, status.json, status.txt, evidence.tar.gz and, in the end,
`finished`. Jobs are placed anew as they end (`evidence.packing`), so that slower or faster runs than planned change
when others start and never what they have. After the last second what still runs is ended and comes back cut.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evidence.fetch import refresh
from evidence.packing import Job, Placed, Room, earliest

EVERY = 60  # seconds between archives
COMMAND = (sys.executable, "-m", "intrigue")
LATE = 10.0  # seconds that a run which should have ended is given at least


@dataclass
class Running:
    """A started process and the cores it has."""

    job: Job
    process: subprocess.Popen[bytes]
    cores: list[int]
    since: float

    def end(self, moment: float) -> float:
        """As planned; one that is late is given as long again as it is late."""
        planned = self.since + self.job.seconds
        return planned if moment < planned else moment + max(LATE, moment - planned)


@dataclass
class Far:
    """The state of a batch: jobs that wait, that run, and how the others ended."""

    work: Path
    room: Room
    waiting: list[Job]
    ids: list[int]
    began: float = field(default_factory=time.monotonic)
    running: dict[str, Running] = field(default_factory=dict)
    ended: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def now(self) -> float:
        """Seconds since the first run could start."""
        return time.monotonic() - self.began

    def turn(self) -> None:
        """Look what ended, and start what there is room for."""
        for name, each in list(self.running.items()):
            code = each.process.poll()
            if code is not None:
                del self.running[name]
                self.ended[name] = {"code": code, "seconds": round(self.now - each.since, 1)}
        moment = self.now
        placed = [Placed(each.job, each.since, each.end(moment)) for each in self.running.values()]
        for job in list(self.waiting):
            if self.ended.get(job.after, {"code": 0})["code"] != 0:
                self.waiting.remove(job)
                self.ended[job.name] = {"code": None, "why": f"{job.after} failed"}
                continue
            start = self._place(job, placed, moment)
            if start is not None and start <= moment:
                self.waiting.remove(job)
                self._start(job)

    def _place(self, job: Job, placed: list[Placed], moment: float) -> float | None:
        """Keep room for a job beside these, and give its start; None: it would end too late."""
        before = moment
        if job.after and job.after not in self.ended:
            ends = [each.end for each in placed if each.job.name == job.after]
            if not ends:
                return None
            before = ends[0]
        start = earliest(job, placed, self.room, before)
        # A fine-tuning is begun however late it is: its pre-training is paid for.
        needed = job.seconds + max((each.seconds for each in self.waiting if each.after == job.name), default=0.0)
        if start is None or (not job.after and start + needed > self.room.seconds):
            return None
        placed.append(Placed(job, start, start + job.seconds))
        return start

    def _start(self, job: Job) -> None:
        runs, logs = self.work / "runs", self.work / "logs"
        shutil.rmtree(runs / job.name, ignore_errors=True)  # of a batch that was killed and is taken up
        used = {core for each in self.running.values() for core in each.cores}
        free = [core for core in self.ids if core not in used]
        cores = free[: job.cores]
        with (logs / f"{job.name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*COMMAND, *job.argv],
                cwd=runs, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": str(job.cores)},
            )  # fmt: skip
        (logs / f"{job.name}.pid").write_text(str(process.pid), encoding="utf-8")
        if len(cores) == job.cores:
            # Its own and all idle cores: a run starts by compiling, which uses as many as there are.
            os.sched_setaffinity(process.pid, free)
        self.running[job.name] = Running(job, process, cores, self.now)

    def stop(self) -> None:
        """End what still runs, workers included."""
        for name, each in self.running.items():
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait()
            self.ended[name] = {"code": None, "why": "out of time", "seconds": round(self.now - each.since, 1)}
        self.running.clear()

    def status(self) -> dict[str, Any]:
        """For people and for the archive."""
        return {
            "seconds": round(self.now),
            "waiting": [job.name for job in self.waiting],
            "running": {name: round(self.now - each.since) for name, each in self.running.items()},
            "ended": self.ended,
        }


def main(work: Path) -> None:
    """Until everything ended, or the time is over."""
    manifest = json.loads((work / "manifest.json").read_text(encoding="utf-8"))
    keys = ("name", "argv", "cores", "gpu", "seconds", "after", "runs")
    jobs = [Job(**{key: each[key] for key in keys}) for each in manifest["jobs"]]
    for name in ("runs", "logs", "rows"):
        (work / name).mkdir(exist_ok=True)
    far = Far(work, Room(**manifest["room"]), jobs, sorted(os.sched_getaffinity(0)))
    _take_up(far)
    fetched = -EVERY / 2  # the first half a minute after the start: it shows whether runs run
    while (far.running or far.waiting) and far.now < far.room.seconds:
        far.turn()
        if not far.running:  # nothing of what waits fits any more
            break
        if far.now - fetched >= EVERY:
            fetched = far.now
            refresh(work, far.status())
        time.sleep(0.2)
    far.stop()
    refresh(work, far.status())
    (work / "finished").touch()


def _take_up(far: Far) -> None:
    """After a kill: complete jobs count, time goes on from the first start."""
    started = far.work / "started"
    if started.exists():
        far.began -= max(0.0, time.time() - started.stat().st_mtime)
    else:
        started.touch()
    for job in list(far.waiting):
        _end_left_over(far.work / "logs" / f"{job.name}.pid", job.name)
        places = [far.work / "runs" / each["folder"] for each in job.runs] or [far.work / "runs" / job.name]
        if all((place / "DONE").is_file() or any(place.glob("seed-*/DONE")) for place in places):
            far.waiting.remove(job)
            far.ended[job.name] = {"code": 0, "seconds": 0.0}


def _end_left_over(noted: Path, name: str) -> None:
    """End a run that outlived the killed batch, so that it does not run twice."""
    try:
        pid = int(noted.read_text(encoding="utf-8"))
        if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
            os.killpg(pid, signal.SIGKILL)
    except (OSError, ValueError):
        return


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with (place / "lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)  # `start` twice is one batch
        except BlockingIOError:
            sys.exit("already running")
        main(place)
