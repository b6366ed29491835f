"""What the paper's table and figure of DeepMind Control share: which runs they need, and how they are read.

Every method is pre-trained once per domain and seed, and fine-tuned on each task from that run's newest snapshot;
scratch learns each task from the first step. Tables are made from the runs' evaluations (`results.csv`). The seeds of a
method are pre-trained in one process, and so are they fine-tuned on a task.

    smoke   laptop sizes on the walker, some hundred steps of learning: shows that everything runs, no more
    hour    full-sized presets, a quarter of the pre-training, one seed: about what one large GPU does in an hour
    full    the paper's plan, 2M frames without a reward and 100k with one; ten seeds, as URLB
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, final

from intrigue.presets import preset_layer
from intrigue.presets.urlb_setting import SNAPSHOTS, shrink_for_laptop
from intrigue.scores.urlb_published import domain_of
from intrigue.studies.base import Arm, Budget
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.results import SMALL, Results
from intrigue.studies.common.run_records import EVALUATIONS, LearningCurve, RecordFormat, export_evaluations
from intrigue.studies.common.study import RecordStudy
from intrigue.studies.urlb.methods import METHODS, SCRATCH
from intrigue.studies.urlb.results import compare_finetunings, write_finetuning_scores

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
class UrlbLevel:
    """What one budget runs; its frames are steps."""

    tasks: Sequence[str]
    methods: Sequence[str]
    pretrain: int
    finetune: int
    seeds: int
    jobs: int = 0

    def budget(self, name: str) -> Budget:
        """The engine's view of it."""
        return Budget(steps=self.pretrain, seeds=self.seeds, level=name, jobs=self.jobs, together=True)


class UrlbStudy(RecordStudy, abc.ABC):
    """Methods on tasks, read at one common frame."""

    records: ClassVar[RecordFormat] = EVALUATIONS
    levels: ClassVar[Mapping[str, UrlbLevel]]

    @final
    def arms(self) -> Sequence[Arm]:
        """Every method on every task of every level; smoke takes laptop sizes."""
        return [
            arm
            for level, plan in self.levels.items()
            for method in plan.methods
            for arm in arms_of(method, level, plan)
        ]

    @final
    def name_arm(self, label: str, budget: Budget) -> ArmName:
        """The preset's name, with the mark of laptop sizes at the smoke level."""
        preset = label.partition(": ")[2]
        return ArmName(preset + SMALL if budget.level == "smoke" else preset)

    @final
    def export(self, runs: Mapping[Path, ArmName], budget: Budget, out: Path) -> Path:
        """The evaluations."""
        return export_evaluations(runs, out / EVALUATIONS.study_file, runs.__getitem__)

    @final
    def compare(self, runs: Sequence[LearningCurve]) -> Results:
        """Scores at the last evaluation of the shortest run, at most after URLB's frames."""
        return compare_finetunings(runs)

    @final
    def write_scores(self, results: Results, path: Path) -> Path:
        """One row per run: its score and its share of the expert's."""
        return write_finetuning_scores(results, path)


def arms_of(method: str, level: str, plan: UrlbLevel) -> list[Arm]:
    """A method on every task: from scratch, or fine-tuned from the method's run of the task's domain."""
    preset = METHODS[method].preset
    layer = layer_of(preset, small=level == "smoke")
    on = {task: {**layer, "env": f"dmc/{task}", "run.snapshots": ()} for task in plan.tasks}
    if method == SCRATCH:
        return [Arm(f"{task}: {preset}", on[task], level, steps=plan.finetune) for task in plan.tasks]
    kept = (*(mark for mark in SNAPSHOTS if mark < plan.pretrain), plan.pretrain)
    trained = {
        domain: Arm(f"{domain}: {preset}", {**layer, "env": f"dmc/{domain}", "run.snapshots": kept}, level)
        for domain in dict.fromkeys(map(domain_of, plan.tasks))
    }
    return [
        Arm(f"{task}: {preset}", on[task], level, steps=plan.finetune, before=trained[domain_of(task)])
        for task in plan.tasks
    ]


def layer_of(preset: str, small: bool) -> dict[str, Any]:
    """The settings of a preset, or those of its laptop size."""
    layer = preset_layer(preset)
    if not small:
        return layer
    models = {key: value for key, value in SMALL_MODELS.items() if key in layer}
    return {**shrink_for_laptop(layer), **models, **SMOKE_CHANGES}
