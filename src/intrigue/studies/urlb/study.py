"""What the paper's table and figure of DeepMind Control share: which runs they need, and how they are read.

Every method is pre-trained once per domain and seed, and fine-tuned on each task from that run's newest snapshot;
scratch learns each task from the first step. Tables are made from the runs' evaluations (`results.csv`), so they can be
made just as well from results of elsewhere: `intrigue reproduce STUDY --from FILE.csv`. The seeds of a method are
pre-trained in one process, and so are they fine-tuned on a task.

    smoke   laptop sizes on the walker, some hundred steps of learning: shows that everything runs, no more
    hour    full-sized presets, a quarter of the pre-training, one seed: about what one large GPU does in an hour
    full    the paper's plan, 2M frames without a reward and 100k with one; ten seeds, as URLB
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

from intrigue.presets import preset_layer
from intrigue.presets.urlb_setting import SNAPSHOTS, laptop_sized
from intrigue.run.folder import RunFolder
from intrigue.scores.urlb_published import domain_of
from intrigue.studies.atari.results import SMALL
from intrigue.studies.base import Arm, Budget, Conclusion, FromFiles, Study
from intrigue.studies.common.arm_names import Name
from intrigue.studies.urlb.methods import METHODS, SCRATCH
from intrigue.studies.urlb.results import TunedResults, tuned_results, write_scores
from intrigue.studies.urlb.runs import RESULTS, Tuning, export, gathered, read

# Ours: models a quarter as large, as `nnm-urlb-small`.
SMALL_MODELS = {"reward.feature_dim": 128, "reward.hidden": 256}
# Ours: one thread, since two runs go at a time; short episodes, of which one evaluation plays ten.
SMOKE_CHANGES = {
    "threads": 1,
    "agent.learning_starts": 1_000,
    "agent.batch": 128,
    "env.max_episode_steps": 250,
}


@dataclass(frozen=True)
class Rung:
    """What one rung of the budgets runs, by frames, which are steps here."""

    tasks: Sequence[str]
    methods: Sequence[str]
    pretrain: int
    finetune: int
    seeds: int
    jobs: int = 0

    def budget(self, name: str) -> Budget:
        """The engine's view of it."""
        return Budget(steps=self.pretrain, seeds=self.seeds, rung=name, jobs=self.jobs, together=True)


class UrlbStudy(Study, FromFiles, abc.ABC):
    """Methods on tasks, read at one common frame."""

    rungs: ClassVar[Mapping[str, Rung]]

    @final
    def arms(self) -> Sequence[Arm]:
        """Every method on every task of every rung; smoke takes laptop sizes."""
        return [
            arm for rung, plan in self.rungs.items() for method in plan.methods for arm in arms_of(method, rung, plan)
        ]

    @final
    def conclude(self, runs: Mapping[str, Sequence[Path]], budget: Budget, out: Path) -> Conclusion:
        """Export the runs' evaluations, then read them as anybody else's."""
        names = {path: _name(label, budget) for label, paths in runs.items() for path in paths}
        held = [path for path in names if RunFolder(path).config.exists()]
        table = export(held, out / RESULTS, named=lambda path: names[path])
        told = self.conclude_from(read(table), out)
        return replace(told, files=[*told.files, table])

    @final
    def conclude_files(self, sources: Sequence[Path], out: Path) -> Conclusion:
        """The table of results in files."""
        runs = gathered(sources)
        out.mkdir(parents=True, exist_ok=True)
        return self.conclude_from(runs, out)

    @final
    def conclude_from(self, runs: Sequence[Tuning], out: Path) -> Conclusion:
        """The table, a CSV file of scores and a picture."""
        results = tuned_results(runs)
        scores = write_scores(results, out / "scores.csv")
        told = self.judge(results)
        pictures = self.draw(results, out)
        rows, words = list(told.rows), [*told.words, *results.notes]
        if results.small:
            # The paper claims nothing about laptops.
            rows = [replace(row, verdict=row.verdict and "SHORT") for row in rows]
            words.insert(0, "Laptop sizes: these scores cannot be compared with the paper's, so nothing is judged.")
        return replace(told, rows=rows, words=words, files=[*pictures, scores])

    @abc.abstractmethod
    def judge(self, results: TunedResults) -> Conclusion:
        """The table and its verdicts."""

    @abc.abstractmethod
    def draw(self, results: TunedResults, out: Path) -> list[Path]:
        """The pictures, written into `out`."""


def arms_of(method: str, rung: str, plan: Rung) -> list[Arm]:
    """A method on every task: from scratch, or fine-tuned from the method's run of the task's domain."""
    preset = METHODS[method].preset
    layer = layer_of(preset, small=rung == "smoke")
    on = {task: {**layer, "env": f"dmc/{task}", "run.snapshots": ()} for task in plan.tasks}
    if method == SCRATCH:
        return [Arm(f"{task}: {preset}", on[task], rung, steps=plan.finetune) for task in plan.tasks]
    kept = (*(mark for mark in SNAPSHOTS if mark < plan.pretrain), plan.pretrain)
    trained = {
        domain: Arm(f"{domain}: {preset}", {**layer, "env": f"dmc/{domain}", "run.snapshots": kept}, rung)
        for domain in dict.fromkeys(map(domain_of, plan.tasks))
    }
    return [
        Arm(f"{task}: {preset}", on[task], rung, steps=plan.finetune, before=trained[domain_of(task)])
        for task in plan.tasks
    ]


def layer_of(preset: str, small: bool) -> dict[str, Any]:
    """The settings of a preset, or those of its laptop size."""
    layer = preset_layer(preset)
    if not small:
        return layer
    models = {key: value for key, value in SMALL_MODELS.items() if key in layer}
    return {**laptop_sized(layer), **models, **SMOKE_CHANGES}


def budgets_of(rungs: Mapping[str, Rung]) -> dict[str, Budget]:
    """The ladder of these rungs."""
    return {name: rung.budget(name) for name, rung in rungs.items()}


def _name(label: str, budget: Budget) -> Name:
    preset = label.partition(": ")[2]
    return Name(preset + SMALL if budget.rung == "smoke" else preset)
