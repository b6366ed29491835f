"""Made-up fine-tunings of URLB, and what a study says of them."""

from __future__ import annotations

import numpy as np

from intrigue.scores.normalized import EXPERTS
from intrigue.scores.urlb_published import TASKS_12
from intrigue.studies.common.arm_names import Name
from intrigue.studies.registry import STUDIES
from intrigue.studies.urlb.methods import METHODS
from intrigue.studies.urlb.results import tuned_results
from intrigue.studies.urlb.runs import Tuning


def tuning(task, method, share, seed=0, snapshot=2_000_000, frames=100_000, changes="", preset=None):
    """A run whose two evaluations give half of its last score and that score, a share of the expert's."""
    name = Name(preset or METHODS[method].preset, changes)
    last = share * EXPERTS[task]
    marks = np.array([frames / 2, frames])
    return Tuning(task, name, seed, 0 if method == "scratch" else snapshot, marks, np.array([last / 2, last]))


def world(values, tasks=TASKS_12, seeds=2, **changes):
    """Runs of several methods that differ a little by seed."""
    return [
        tuning(task, method, share + 0.01 * seed, seed, **changes)
        for method, share in values.items()
        for task in tasks
        for seed in range(seeds)
    ]


def judge(study, runs):
    return STUDIES.get(study).cls().judge(tuned_results(runs))
