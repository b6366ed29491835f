"""The methods of URLB's table by the names people know, the presets that stand for them, and the published columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from intrigue.scores.urlb_published import PAPER_12, RERUN, Column
from intrigue.studies.curve_names import Name

PRETRAIN_FRAMES, FINETUNE_FRAMES = 2_000_000, 100_000  # URLB, and the paper's text


@dataclass(frozen=True)
class Method:
    """A method, and under which heading others printed its scores; empty where they did not."""

    preset: str
    paper: str = ""
    rerun: str = ""

    @property
    def name(self) -> Name:
        """How its runs are called in files of results."""
        return Name(self.preset)

    @property
    def paper_column(self) -> Column:
        """The paper's scores; none where it has no such column."""
        return PAPER_12[self.paper] if self.paper else {}

    @property
    def rerun_column(self) -> Column:
        """The independent rerun's."""
        return RERUN[self.rerun] if self.rerun else {}


SCRATCH, OURS = "scratch", "NNM"
# In the order of tables. Which way the paper built NNM on control is open, so its column stands beside both readings.
METHODS: Mapping[str, Method] = {
    SCRATCH: Method("scratch-urlb"),
    "ICM": Method("icm-urlb", "ICM", "ICM"),
    "RND": Method("rnd-urlb", "RND", "RND"),
    "APS": Method("aps-urlb", "APS", "APS"),
    "Disagreement": Method("disagreement-urlb", "Disagreement", "Disagreement"),
    "APT": Method("apt-urlb", "APT", "APT"),
    OURS: Method("nnm-urlb", "NNM"),
    "NNM ensemble": Method("nnm-ensemble-urlb", "NNM"),
    "NNM states": Method("nnm-state-urlb"),
    "NNM centered": Method("nnmc-urlb"),
    "Proto": Method("proto-urlb", rerun="Proto"),
    "SMM": Method("smm-urlb", rerun="SMM"),
    "DIAYN": Method("diayn-urlb", rerun="DIAYN"),
    "CIC": Method("cic-urlb", rerun="CIC"),
}
RIVALS = ("ICM", "RND", "APS", "Disagreement", "APT")  # of NNM, in the paper's table
RUN_BY_PAPER = ("Disagreement", "APT", OURS)
LABELS: Mapping[Name, str] = {method.name: label for label, method in METHODS.items()}


def label_of(name: Name) -> str:
    """What a run's method is called in tables: by its preset where settings were changed."""
    return LABELS.get(name, str(name))
