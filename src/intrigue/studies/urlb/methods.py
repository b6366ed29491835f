"""The methods of URLB's table by the names people know, the presets that stand for them, and the published columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from intrigue.scores.urlb_published import PAPER_12, RERUN, Column
from intrigue.studies.common.arm_names import ArmName

PRETRAIN_FRAMES, FINETUNE_FRAMES = 2_000_000, 100_000  # URLB, and the paper's text


@dataclass(frozen=True)
class Method:
    """A method, and under which heading others printed its scores; empty where they did not."""

    preset: str
    paper: str = ""
    rerun: str = ""

    @property
    def name(self) -> ArmName:
        """How its runs are called in files of results."""
        return ArmName(self.preset)

    @property
    def paper_column(self) -> Column:
        """The paper's scores; none where it has no such column."""
        return PAPER_12[self.paper] if self.paper else {}

    @property
    def rerun_column(self) -> Column:
        """The independent rerun's."""
        return RERUN[self.rerun] if self.rerun else {}


SCRATCH, OURS = "scratch", "NNM"
# In the order of tables. Which way the paper built NNM on control is open, so its column is shown with both readings.
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
LABELS: Mapping[ArmName, str] = {method.name: label for label, method in METHODS.items()}


ENVIRONMENTS = "pool.num_envs="  # how a name's changes say that an agent stepped several; URLB's steps one


def environments_of(name: ArmName) -> int:
    """How many environments each agent stepped."""
    counts = [int(each.removeprefix(ENVIRONMENTS)) for each in name.changes.split() if each.startswith(ENVIRONMENTS)]
    return counts[0] if counts else 1


def single_env_variant(name: ArmName) -> ArmName:
    """The same settings with URLB's one environment."""
    return ArmName(name.preset, " ".join(each for each in name.changes.split() if not each.startswith(ENVIRONMENTS)))


def method_of(name: ArmName) -> Method | None:
    """The method whose settings these are, however many environments were stepped; None if others were changed."""
    label = LABELS.get(single_env_variant(name))
    return None if label is None else METHODS[label]


def multi_env_variants(labels: Sequence[str], held: Iterable[ArmName]) -> dict[str, ArmName]:
    """These methods by their labels, then those of `held` that are one of them with several environments."""
    plain = {label: METHODS[label].name for label in labels}
    several = sorted(name for name in held if single_env_variant(name) in plain.values() and environments_of(name) > 1)
    return {**plain, **{label_of(name): name for name in several}}


def label_of(name: ArmName) -> str:
    """What a run's method is called in tables: by its preset where settings were changed.

    Several environments are said in words, "NNM, 8 environments": URLB steps one.
    """
    plain, count = single_env_variant(name), environments_of(name)
    label = LABELS.get(plain, str(plain))
    return label if count == 1 else f"{label}, {count} environments"
