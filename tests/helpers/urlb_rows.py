"""Made-up fine-tunings of URLB, and what a study says of them."""

from __future__ import annotations

import numpy as np

from intrigue.scores.normalized import EXPERTS
from intrigue.scores.urlb_published import TASKS_12
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.run_records import LearningCurve
from intrigue.studies.registry import STUDIES
from intrigue.studies.urlb.methods import METHODS
from intrigue.studies.urlb.results import compare_finetunings


def tuning(task, method, share, seed=0, snapshot=2_000_000, frames=100_000, changes="", preset=None):
    """A run whose two evaluations give half of its last score and that score, a share of the expert's."""
    name = ArmName(preset or METHODS[method].preset, changes)
    last = share * EXPERTS[task]
    marks = np.array([frames / 2, frames])
    returns = np.array([last / 2, last])
    return LearningCurve(task, name, seed, marks, returns, 0 if method == "scratch" else snapshot)


def world(values, tasks=TASKS_12, seeds=2, **changes):
    """Runs of several methods that differ a little by seed."""
    return [
        tuning(task, method, share + 0.01 * seed, seed, **changes)
        for method, share in values.items()
        for task in tasks
        for seed in range(seeds)
    ]


def judge(study, runs):
    return STUDIES.get(study).cls().judge(compare_finetunings(runs))
