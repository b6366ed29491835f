"""What docs/studies.md says of URLB is what the studies make of our results, and of the paper's columns."""

from __future__ import annotations

import numpy as np
import pytest

from intrigue.scores.normalized import EXPERTS
from intrigue.scores.urlb_published import PAPER_12, shares, tasks_of
from intrigue.studies.common.run_records import EVALUATIONS, gather_records
from intrigue.studies.urlb.recheck import recheck_table4
from places import ROOT
from study_rows import rows_of
from urlb_rows import judge

PAGE = (ROOT / "docs" / "studies.md").read_text()
RESULTS = ROOT / "results" / "urlb-h200.csv"


def test_the_documentation_quotes_our_runs():
    found = rows_of(judge("table4", gather_records([RESULTS], EVALUATIONS)))
    for task in tasks_of("walker"):
        cells = [found[f"{task}: {label}"].ours for label in ("scratch", "NNM")]
        order = found[f"{task}: NNM above scratch"]
        cells += [order.interval, order.verdict, str(PAPER_12["NNM"][task]), f"{EXPERTS[task]:g}"]
        assert f"| `{task}` | {' | '.join(cells)} |" in PAGE
    order = found["mean, walker: NNM above scratch"]
    cells = [*reversed(order.ours.split(" to ")), order.interval, order.verdict, found["mean, NNM, walker"].paper]
    assert f"| mean share of the expert's | {' | '.join(cells)} | |" in PAGE


def test_the_documentation_quotes_our_runs_of_one_seed():
    runs = gather_records([RESULTS], EVALUATIONS)
    presets = ("disagreement-urlb", "apt-urlb", "nnm-ensemble-urlb", "nnmc-urlb", "nnm-urlb")
    first = {
        (run.name.preset, run.task): run.returns[-1] for run in runs if run.seed == 0 and run.snapshot == 2_000_000
    }
    published = [PAPER_12[label] for label in ("Disagreement", "APT")]
    for task in tasks_of("walker"):
        cells = [f"{first[preset, task]:.0f}" for preset in presets] + [str(column[task]) for column in published]
        assert f"| `{task}` | {' | '.join(cells)} |" in PAGE
    means = [np.mean([first[preset, task] / EXPERTS[task] for task in tasks_of("walker")]) for preset in presets]
    means += [shares(column, tasks_of("walker")).mean() for column in published]
    assert f"| mean share of the expert's | {' | '.join(f'{mean:.3f}' for mean in means)} |" in PAGE


@pytest.mark.parametrize(("domain", "label"), [("quadruped", "NNM"), ("jaco", "NNM, 8 environments")])
def test_the_documentation_quotes_our_runs_of_shorter_pretrainings(domain, label):
    found = rows_of(judge("table4", gather_records([RESULTS], EVALUATIONS)))
    for task in tasks_of(domain):
        assert f"| `{task}` | {found[f'{task}: {label}'].ours} | {PAPER_12['NNM'][task]} | {EXPERTS[task]:g} |" in PAGE
    mean = found[f"mean, {label}, {domain}"]
    assert f"| mean share of the expert's | {mean.ours} | {mean.paper} | |" in PAGE


def test_the_documentation_quotes_what_is_computed():
    page = " ".join(PAGE.split())
    found = recheck_table4()
    for sentence in found.words:
        assert " ".join(sentence.split()) in page, sentence
