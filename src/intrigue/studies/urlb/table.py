"""Table 4 from our runs: "paper | rerun | ours | interval | verdict".

    aggregates   mean and IQM of score/expert over tasks and seeds, all together and by domain; in a domain that the
                 methods do not share, the mean of those that have all its tasks
    claims       NNM above each other method on the mean; best in 11 of 12 tasks; above scratch, which pre-training is
                 for
    tasks        every method's score; NNM against Disagreement, APT and scratch, in the order the paper prints

`common.verdicts` says how each is judged; the nominal length is 2M frames without a reward and 100k with one. Where we
have fewer tasks, "here" is the published column on the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intrigue.scores import AGGREGATES, bootstrap_interval, difference_interval, joint_interval
from intrigue.scores.stats import mean, std
from intrigue.scores.urlb_published import DOMAINS, TASKS_12, Column, domain_of, shares, tasks_of
from intrigue.studies.base import Conclusion, TableRow, Verdict
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.results import Results
from intrigue.studies.common.verdicts import (
    count_wins,
    format_interval,
    judge_order,
    judge_value,
    list_names,
    make_order_row,
    mean_difference,
)
from intrigue.studies.urlb.methods import (
    FINETUNE_FRAMES,
    METHODS,
    OURS,
    PRETRAIN_FRAMES,
    RIVALS,
    RUN_BY_PAPER,
    SCRATCH,
    label_of,
    method_of,
)
from intrigue.studies.urlb.results import is_nominal

COLUMNS = {
    "quantity": "quantity",
    "paper": "paper",
    "rerun": "rerun",
    "ours": "ours",
    "interval": "interval",
    "seeds": "seeds",
    "verdict": "verdict",
}
CLAIMED_BEST = 11  # of 12 tasks: the paper's text
KINDS = ("mean", "IQM")
NOTHING = (0.0, 0.0)  # the interval of a difference from it is that of the mean itself
VARIANTS = ("NNM ensemble", "NNM states", "NNM centered")


@dataclass(frozen=True)
class FinetuningTable:
    """Our results beside what is published."""

    results: Results

    @property
    def held(self) -> dict[str, ArmName]:
        """Every method in the data by its label, those of the table first, in its order."""
        known = {label: method.name for label, method in METHODS.items() if method.name in self.results.scores}
        rest = sorted(name for name in self.results.scores if name not in known.values())
        return {**known, **{label_of(name): name for name in rest}}

    @property
    def tasks(self) -> list[str]:
        """The tasks that all methods the paper ran itself have here; without any of those, all there are."""
        core = [METHODS[label].name for label in RUN_BY_PAPER if label in self.held]
        every = [task for task in TASKS_12 if any(self.results.raw(name, task) for name in self.held.values())]
        return self.results.tasks(*core) if core else every

    @property
    def whole(self) -> bool:
        """Whether no task of the paper's table is missing."""
        return len(self.tasks) == len(TASKS_12)

    def conclude(self) -> Conclusion:
        """All rows, and what is missing."""
        rows = [row for label in self.held for row in self._aggregates(label)]
        rows += self._claims()
        rows += [row for task in TASKS_12 for row in self._task(task)]
        return Conclusion(self._headline(), rows, self._words(), columns=COLUMNS)

    def _headline(self) -> str:
        found = {}
        for label, name in self.held.items():
            tasks = self._tasks_of(name)
            if tasks == self.tasks and tasks:
                found[label] = AGGREGATES["mean"](self.results.normalised(name, tasks))
        if not found:
            return "No two methods were run on the same tasks: nothing to compare yet"
        text = ", ".join(f"{label} {value:.3f}" for label, value in found.items())
        return f"Mean share of the expert's score on {len(self.tasks)} of {len(TASKS_12)} tasks: {text}"

    def _tasks_of(self, name: ArmName) -> list[str]:
        return [task for task in self.tasks if self.results.raw(name, task)]

    @property
    def scopes(self) -> list[tuple[str, list[str]]]:
        """What means are taken over: all tasks and each domain, or the one domain there is."""
        domains = [domain for domain in DOMAINS if any(domain_of(task) == domain for task in self.tasks)]
        parts = [(f", {domain}", tasks_of(domain)) for domain in domains]
        return parts if len(parts) == 1 else [("", list(TASKS_12)), *parts]

    @property
    def apart(self) -> list[str]:
        """Domains in which the methods have no task in common, though one has all of them."""
        shared = {domain_of(task) for task in self.tasks}
        others = [domain for domain in DOMAINS if domain not in shared]
        return [domain for domain in others if any(self._has(domain, label) for label in self.held)]

    def _has(self, domain: str, label: str) -> bool:
        return all(self.results.raw(self.held[label], task) for task in tasks_of(domain))

    def _aggregates(self, label: str) -> list[TableRow]:
        rows = []
        for place, (where, wanted) in enumerate(self.scopes):
            tasks = [task for task in self._tasks_of(self.held[label]) if task in wanted]
            for kind in (KINDS if place == 0 else KINDS[:1]) if tasks else ():
                rows.append(self._aggregate(label, kind, tasks, where, wanted))
        for domain in self.apart:
            if self._has(domain, label):
                rows.append(self._aggregate(label, KINDS[0], tasks_of(domain), f", {domain}", tasks_of(domain)))
        return rows

    def _aggregate(self, label: str, kind: str, tasks: list[str], where: str, wanted: list[str]) -> TableRow:
        name, statistic = self.held[label], AGGREGATES[kind]
        scores = self.results.normalised(name, tasks)
        interval = bootstrap_interval(scores, statistic=statistic)
        method = method_of(name)
        verdict: Verdict | None = None
        if label == OURS and kind == "mean":
            target = float(shares(METHODS[OURS].paper_column, wanted).mean())
            complete = len(tasks) == len(wanted)
            verdict = judge_value(interval, target, is_nominal(self.results, tasks)) if complete else "SHORT"
        shared = [task for task in self.tasks if task in wanted]
        fewer = "" if tasks in (shared, wanted) else f", {len(tasks)} of them"
        return TableRow(
            f"{kind}, {label}{where}{fewer}",
            _published(method.paper_column if method else {}, kind, tasks, wanted),
            f"{statistic(scores):.3f}",
            len(scores),
            verdict,
            interval=format_interval(interval, 3),
            rerun=_published(method.rerun_column if method else {}, kind, tasks, wanted),
        )

    def _claims(self) -> list[TableRow]:
        """NNM against each other method on the mean: the first scope, and every other that is complete."""
        if OURS not in self.held:
            return []
        rows = []
        for place, (where, wanted) in enumerate(self.scopes):
            for rival in (label for label in (SCRATCH, *RIVALS, *VARIANTS) if label in self.held):
                tasks = [task for task in self._tasks_of(self.held[rival]) if task in wanted]
                if tasks and (tasks == wanted or place == 0):
                    rows.append(self._claim(rival, tasks, wanted, where))
        return [*rows, *self._best()]

    def _claim(self, rival: str, tasks: Sequence[str], wanted: Sequence[str], where: str) -> TableRow:
        ours, theirs = (self.results.normalised(self.held[label], tasks) for label in (OURS, rival))
        interval = difference_interval(ours, theirs)
        means = [AGGREGATES["mean"](part) for part in (ours, theirs)]
        if rival in VARIANTS:  # of which nothing was claimed
            gap = f"{means[0] - means[1]:+.3f}"
            seeds, text = min(len(ours), len(theirs)), format_interval(interval, 3)
            return TableRow(f"mean{where}: NNM minus {rival}", "-", gap, seeds, interval=text)
        paper = "-"
        if rival in RIVALS:
            pair = [shares(METHODS[label].paper_column, wanted).mean() for label in (OURS, rival)]
            paper = f"{pair[0]:.3f} to {pair[1]:.3f}"
        cells, complete = (paper, f"{means[0]:.3f} to {means[1]:.3f}"), len(tasks) == len(wanted)
        return make_order_row(f"mean{where}: NNM above {rival}", cells, (ours, theirs), interval, 3, complete=complete)

    def _best(self) -> list[TableRow]:
        """In how many tasks NNM is ahead of every other method of the paper's table."""
        rivals = [label for label in RIVALS if label in self.held]
        tasks = [task for task in self.tasks if all(self.results.raw(self.held[label], task) for label in rivals)]
        if not rivals or not tasks:
            return []

        parts = [self.results.normalised(self.held[label], tasks) for label in (OURS, *rivals)]
        interval = joint_interval(parts, count_wins)
        whole = len(tasks) == len(TASKS_12) and len(rivals) == len(RIVALS)
        verdict = judge_order(interval, above=CLAIMED_BEST - 0.5) if whole else "SHORT"
        beside = "" if len(rivals) == len(RIVALS) else f" of {', '.join((OURS, *rivals))}"
        text = f"{count_wins(*parts):.0f} of {len(tasks)}"
        return [
            TableRow(f"tasks in which NNM is best{beside}", f"{CLAIMED_BEST} of {len(TASKS_12)}", text,
                min(len(part) for part in parts), verdict, interval=format_interval(interval, 0))
        ]  # fmt: skip

    def _task(self, task: str) -> list[TableRow]:
        rows = []
        for label, name in self.held.items():
            raw = self.results.raw(name, task)
            if not raw:
                continue
            method = method_of(name)
            paper = method.paper_column.get(task) if method else None
            rerun = method.rerun_column.get(task) if method else None
            interval = mean_difference(raw, NOTHING)
            judged = label == OURS and paper is not None
            verdict = judge_value(interval, paper.score, is_nominal(self.results, [task])) if judged and paper else None
            rows.append(
                TableRow(f"{task}: {label}", str(paper or "-"), format_returns(raw), len(raw), verdict,
                    interval=format_interval(interval, 0), rerun=str(rerun or "-"))
            )  # fmt: skip
        return [*rows, *self._orders(task)]

    def _orders(self, task: str) -> list[TableRow]:
        ours = self.results.raw(METHODS[OURS].name, task)
        rows = []
        for rival in (SCRATCH, "Disagreement", "APT"):
            theirs = self.results.raw(METHODS[rival].name, task)
            if not ours or not theirs:
                continue
            interval = mean_difference(ours, theirs)
            printed = [METHODS[label].paper_column.get(task) for label in (OURS, rival)]
            above, paper = True, "-"
            if printed[0] and printed[1]:
                above, paper = printed[0].score > printed[1].score, f"{printed[0].score:g} to {printed[1].score:g}"
            quantity = f"{task}: NNM {'above' if above else 'below'} {rival}"
            cells = (paper, f"{format_returns(ours)} to {format_returns(theirs)}")
            rows.append(make_order_row(quantity, cells, (ours, theirs), interval, 0, keep=above))
        return rows

    def _except_domains(self) -> str:
        apart = " and ".join(self.apart)
        return f", but those of {apart}, which not all methods were run on" if apart else ""

    def _words(self) -> list[str]:
        words = [describe_protocol(self.results), *describe_missing(self.results, TASKS_12, [*METHODS])]
        if self.tasks and not self.whole:
            words.append(
                f"Means are over {list_names(self.tasks, 12)}{self._except_domains()}. 'Here' is a published column on "
                f"the same. What is claimed of all {len(TASKS_12)} tasks cannot be judged on them."
            )
        words.append(
            "Paper: its Table 4; it prints no means, these are of its columns. Rerun: the README of MOSS "
            "(arXiv:2210.06702), which lacks jaco_reach_top_right. Their ± are as printed, ours are standard "
            "deviations over seeds; intervals are 95 % bootstrap over seeds."
        )
        words.append(
            f"NNM stands for {METHODS[OURS].preset}, the paper's ratio over nearest neighbours. Whether the paper "
            "took those or an ensemble on control it does not say, so its column stands beside both. NNM centered and "
            "NNM states are ours."
        )
        return words


def format_returns(values: Sequence[float]) -> str:
    """A mean return with the sample standard deviation over seeds where there are two; whole numbers, as published."""
    digits = 0 if mean(values) >= 10 else 1
    spread = std(values)
    return f"{mean(values):.{digits}f}" + ("" if spread is None else f" ± {spread:.{digits}f}")


def describe_protocol(results: Results) -> str:
    """What was read, and how it compares with the nominal lengths."""
    lengths = ", ".join(f"{domain} {frames:,}" for domain, frames in results.snapshots.items()) or "none"
    return (
        f"Score: mean return of the evaluation (ten greedy episodes) after {results.step:,} frames of the task "
        f"(nominal {FINETUNE_FRAMES:,}), as a share of URLB's expert where means are taken. Frames without a reward "
        f"before that: {lengths} (nominal {PRETRAIN_FRAMES:,}). Seeds a task: {results.seeds_text}."
    )


def describe_missing(results: Results, tasks: Sequence[str], methods: Sequence[str]) -> list[str]:
    """What of the plan is not in the data."""
    names: Mapping[str, ArmName] = {label: METHODS[label].name for label in methods}
    absent = [task for task in tasks if not any(results.raw(name, task) for name in names.values())]
    gone = [label for label, name in names.items() if not any(results.raw(name, task) for task in tasks)]
    words = []
    if absent:
        others = any(results.raw(name, task) for name in results.scores for task in absent)
        counting = " in runs that count" if others else ""
        words.append(f"Missing: {len(absent)} of {len(tasks)} tasks{counting} ({list_names(absent)}).")
    if gone:
        words.append(f"Missing: {list_names(gone, 14)}.")
    for label, name in names.items():
        gaps = [task for task in tasks if task not in absent and not results.raw(name, task)]
        if gaps and label not in gone:
            words.append(f"Missing: {label} on {list_names(gaps)}.")
    for name in sorted(set(results.scores) - set(names.values())):
        near = [label for label, known in names.items() if known.preset == name.preset]
        if near and name.changes:
            why = "its settings differ" if method_of(name) is None else "URLB steps one environment"
            words.append(f"{label_of(name)} does not count as {near[0]}: {why}.")
    return words


def _published(column: Column, kind: str, tasks: Sequence[str], wanted: Sequence[str]) -> str:
    """An aggregate of a published column on all tasks it should have and, where ours are fewer, on the same."""
    held = [task for task in wanted if task in column]
    if not held:
        return "-"
    text = f"{AGGREGATES[kind](shares(column, held)):.3f}"
    text += "" if len(held) == len(wanted) else f" ({len(held)} tasks)"
    here = [task for task in tasks if task in column]
    return text if here == held or not here else f"{text}; here {AGGREGATES[kind](shares(column, here)):.3f}"
