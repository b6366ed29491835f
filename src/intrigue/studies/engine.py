"""Runs a study: every arm and seed as a run of its own, several at a time; what is finished is never repeated.

A run's folder is named by its arm, its configuration's digest and its seed, so a changed study never meets old runs.
Each run is a process of its own (`intrigue train`, `finetune` or `resume`), so a stopped study goes on where it was.
A fine-tuning waits for its pre-training, which is one run however many begin with it.

Where a budget says `together`, all seeds of an arm are one process and one folder (`intrigue.run.driver`): they
learn at once if their settings allow it, else one after another.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from intrigue.errors import RunError
from intrigue.run import disk
from intrigue.run.atomic import write_file
from intrigue.run.folder import RunFolder, is_done
from intrigue.run.names import safe_name, seed_folder_name
from intrigue.run.signals import StopRequest
from intrigue.studies.base import Arm, Budget, Conclusion, Study

POLL_SECONDS = 0.2
SAVE_SECONDS = 30  # ours: what a run that is stopped has to save itself; killed, it goes on from its last checkpoint


@dataclass(frozen=True, eq=False)
class Job:
    """One process of a study, for a run or for the runs of several seeds; equal only to itself."""

    arm: Arm
    seeds: Sequence[int]
    folder: Path
    before: Job | None = None  # what it begins with

    @property
    def seed(self) -> int:
        """The first of its seeds, mostly the only one."""
        return self.seeds[0]

    @property
    def runs(self) -> list[Path]:
        """The run folders, by seed."""
        return [self.folder] if len(self.seeds) == 1 else [self.folder / seed_folder_name(seed) for seed in self.seeds]

    @property
    def unfinished(self) -> int:
        """How many of its runs have not reached their last step."""
        return sum(not (run.exists() and is_done(RunFolder(run))) for run in self.runs)

    def __str__(self) -> str:
        which = f"seed {self.seed}" if len(self.seeds) == 1 else f"seeds {self.seed} to {self.seeds[-1]}"
        return f"{self.arm.label}, {which}"


def run_study(study: Study, budget: Budget, out: Path, jobs: int, say: Callable[[str], None]) -> Conclusion:
    """Bring every run of the study to its end, then let it conclude; its table lands in `out`."""
    plan = make_plan(study, budget, out)
    run_all(plan, budget, jobs, say)
    arms: dict[str, list[Path]] = {}
    shared = {job.before for job in plan}
    for job in (each for each in plan if each not in shared):
        arms.setdefault(job.arm.label, []).extend(job.runs)
    out.mkdir(parents=True, exist_ok=True)
    conclusion = study.conclude(arms, budget, out)
    write_table(conclusion, out)
    return conclusion


def make_plan(study: Study, budget: Budget, out: Path) -> list[Job]:
    """Every run the study needs; seeds of one arm together, or spread so that early stops leave balanced arms.

    A pre-training stands once in it, before the first run that begins with it.
    """
    chosen = [arm for arm in study.arms() if arm.level in ("", budget.level)]
    plan: dict[Path, Job] = {}
    stems = {id(arm): _folder_stem(arm, budget) for each in chosen for arm in (each.before, each) if arm is not None}

    def job_of(arm: Arm, seeds: Sequence[int], before: Job | None = None) -> Job:
        which = str(seeds[0]) if len(seeds) == 1 else f"seeds-{seeds[0]}-{seeds[-1]}"
        folder = out / "runs" / f"{stems[id(arm)]}__{which}"
        return plan.setdefault(folder, Job(arm, seeds, folder, before))

    every = range(budget.seeds)
    for seeds in [every] if budget.together else [[seed] for seed in every]:
        for arm in chosen:
            job_of(arm, seeds, None if arm.before is None else job_of(arm.before, seeds))
    return list(plan.values())


def _folder_stem(arm: Arm, budget: Budget) -> str:
    """The name of an arm's folders but for the seed."""
    return f"{safe_name(arm.label)}__{arm.digest(budget)[:10]}"


def run_all(plan: Sequence[Job], budget: Budget, jobs: int, say: Callable[[str], None]) -> None:
    """Train or resume every run that is not finished; failed ones do not stop the others and are reported last."""
    waiting = [job for job in plan if job.unfinished]
    runs, left = sum(len(job.runs) for job in plan), sum(job.unfinished for job in waiting)
    if left < runs:
        say(f"{runs - left} of {runs} runs are finished already")
    running: dict[Job, subprocess.Popen[bytes]] = {}
    failed: dict[Job, str] = {}
    began, total = time.monotonic(), len(waiting)
    with StopRequest() as stop:
        try:
            while waiting or running:
                unfinished = {*waiting, *running}
                ready = [job for job in waiting if job.before not in unfinished]
                for job in ready[: jobs - len(running)]:
                    waiting.remove(job)
                    running[job] = _launch(job, budget)
                time.sleep(POLL_SECONDS)
                stop.raise_if_set("finished runs are kept; the same command goes on from here")
                for job, process in [(j, p) for j, p in running.items() if p.poll() is not None]:
                    del running[job]
                    ended = total - len(waiting) - len(running)
                    seconds = (time.monotonic() - began) / ended * (total - ended)
                    say(f"[{ended}/{total}] {job}; about {seconds:.0f} s left")
                    if process.returncode != 0:
                        orphans = [each for each in waiting if each.before is job]
                        waiting = [each for each in waiting if each.before is not job]
                        failed |= {job: _read_error(process, job), **dict.fromkeys(orphans, "its pre-training failed")}
        finally:
            for process in running.values():
                process.terminate()
            for job, process in running.items():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=SAVE_SECONDS * len(job.seeds))
                process.kill()
    if failed:
        reasons = "\n".join(f"{job}: {reason}" for job, reason in failed.items())
        raise RunError(
            f"{sum(job.unfinished for job in failed)} of {runs} runs failed; the others are kept.\n{reasons}"
        )


def write_table(conclusion: Conclusion, out: Path) -> None:
    """The study's rows as CSV, its words beside them.

    Raises:
        StorageError: the disk refused.
    """
    lines = [list(conclusion.columns.values()), *(conclusion.cells(row) for row in conclusion.rows)]
    table = io.StringIO()
    csv.writer(table, lineterminator="\n").writerows(lines)
    with disk.storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    write_file(out / "table.csv", table.getvalue().encode())
    text = "\n\n".join([conclusion.headline, *conclusion.words]) + "\n"
    write_file(out / "words.txt", text.encode())


def _launch(job: Job, budget: Budget) -> subprocess.Popen[bytes]:
    """Start the process; its errors go to a log beside the folder."""
    job.folder.parent.mkdir(parents=True, exist_ok=True)
    if job.folder.exists():
        arguments = ["resume", str(job.folder), "--quiet"]
    elif job.before is not None:
        config = job.arm.config(budget, job.seed)
        seed = {"seed": job.seed} if len(job.seeds) == 1 else {}  # several keep their own
        options = {"task": config.env_id, "steps": config.run.steps, **seed, "device": config.run.device}
        given = [part for name, value in options.items() for part in (f"--{name}", str(value))]
        arguments = ["finetune", str(job.before.folder), *given, "--out", str(job.folder), "--quiet"]
    else:
        settings = job.folder.with_name(job.folder.name + ".config.json")
        write_file(settings, json.dumps(job.arm.config(budget, job.seed).to_json()).encode())
        several = ["--seeds", f"{job.seed}:{job.seeds[-1] + 1}"] if len(job.seeds) > 1 else []
        arguments = ["train", "--config", str(settings), *several, "--out", str(job.folder), "--quiet"]
    log = job.folder.with_name(job.folder.name + ".log").open("wb")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "intrigue", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )


def _read_error(process: subprocess.Popen[bytes], job: Job) -> str:
    log = job.folder.with_name(job.folder.name + ".log").read_text(encoding="utf-8", errors="replace").strip()
    return f"exit code {process.returncode}. {log[-2000:]}"
