"""The paper's tables of normalised scores from our runs: "paper | recomputed | ours | interval | verdict".

    aggregates   mean, median, IQM and superhuman games of Disagreement, ICM and NNM, on the games all of them have
    claims       NNM above each other, and at least twice each other, on the mean; strictly best in most games
    games        NNM against each other, in the order the paper prints
    the rest     every other preset in the data, measured

`common.verdicts` says how each is judged. "Recomputed" is the paper's own column with the right constants, on the
paper's games and, where we have fewer, on the same ones as ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intrigue.scores import (
    AGGREGATES,
    PAPER_26,
    Scores,
    bootstrap_interval,
    difference_interval,
    joint_interval,
    mean,
    superhuman,
)
from intrigue.studies.atari.paper import Claim, figures, find_strictly_best, raw_scores
from intrigue.studies.atari.study import METHODS, NOMINAL_STEPS, describe_data
from intrigue.studies.base import SCORE_COLUMNS, Conclusion, TableRow
from intrigue.studies.common.arm_names import ArmName
from intrigue.studies.common.results import Results
from intrigue.studies.common.verdicts import (
    count_wins,
    format_interval,
    format_scores,
    judge_order,
    judge_value,
    list_names,
    make_order_row,
    mean_difference,
    measure_methods,
)

OURS, RIVALS = "NNM", ("Disagreement", "ICM")
FIELDS = {"mean": "mean", "median": "median", "IQM": "iqm"}


@dataclass(frozen=True)
class ScoreTable:
    """What a table of the paper says, and our results beside it."""

    results: Results
    wanted: Sequence[str]
    claimed: Mapping[str, Claim]

    @property
    def methods(self) -> dict[str, ArmName]:
        """Those of the paper's three that were run."""
        return {label: name for label, name in METHODS.items() if name in self.results.scores}

    @property
    def games(self) -> list[str]:
        """The games of the table that all of them have."""
        return [game for game in self.results.tasks(*self.methods.values()) if game in self.wanted]

    @property
    def whole(self) -> bool:
        """Whether no game of the paper's table is missing."""
        return set(self.games) == set(self.wanted)

    @property
    def checkable(self) -> bool:
        """Whether the paper prints the scores of all the table's games."""
        return set(self.wanted) <= set(PAPER_26)

    def conclude(self) -> Conclusion:
        """All rows, and what is missing."""
        rows: list[TableRow] = []
        if self.games:
            rows += [row for label in self.methods for row in self._aggregates(label)]
            rows += self._claims()
        rows += self._games()
        rows += self._others()
        words = describe_data(self.results, self.wanted, list(METHODS.values()))
        if self.games and not self.whole:
            words.append(
                f"Aggregates are over what {', '.join(self.methods)} all have: {list_names(self.games, 26)}. 'Here' is "
                f"the paper's own column on the same. Claims about all {len(self.wanted)} games stay SHORT."
            )
        words.append(f"NNM stands for the preset {METHODS[OURS]}: the paper's ratio on layer-normalised features.")
        return Conclusion(self._headline(), rows, words, columns=SCORE_COLUMNS)

    def _human(self, label: str) -> Scores:
        return self.results.normalised(METHODS[label], self.games)

    def _headline(self) -> str:
        if not self.games or OURS not in self.methods:
            return f"No game of the table was run with {OURS} and the others: nothing to compare yet"
        means = {label: AGGREGATES["mean"](self._human(label)) for label in self.methods}
        means_text = ", ".join(f"{label} {value:.2f}" for label, value in means.items())
        return f"Mean human-normalised score on {len(self.games)} of {len(self.wanted)} games: {means_text}"

    def _aggregates(self, label: str) -> list[TableRow]:
        scores = self._human(label)
        nominal = self.results.step >= NOMINAL_STEPS
        rows = []
        for kind, statistic in AGGREGATES.items():
            interval = bootstrap_interval(scores, statistic=statistic)
            paper = f"{self.claimed[label].mean:.2f}" if kind == "mean" else "-"
            # Where the paper's scores are not published its printed mean is all there is to reach.
            target = getattr(figures(label, self.wanted), FIELDS[kind]) if self.checkable else self.claimed[label].mean
            verdict = None
            if kind == "mean":
                verdict = judge_value(interval, target, nominal) if self.whole else "SHORT"
            rows.append(
                TableRow(f"{kind} HNS, {label}", paper, f"{statistic(scores):.3f}", len(scores), verdict,
                    recomputed=self._recomputed(label, FIELDS[kind]), interval=format_interval(interval, 3))
            )  # fmt: skip
        means = {game: mean(self.results.raw(METHODS[label], game)) for game in self.games}
        above = f"{superhuman(means)} of {len(self.games)}"
        rows.append(
            TableRow(f"superhuman games, {label}", str(self.claimed[label].superhuman), above, len(scores),
                recomputed=self._recomputed(label, "superhuman"))
        )  # fmt: skip
        return rows

    def _recomputed(self, label: str, name: str) -> str:
        if not self.checkable:
            return "-"

        def format_figure(games: Sequence[str]) -> str:
            value = getattr(figures(label, games), name)
            return str(value) if isinstance(value, int) else f"{value:.3f}"

        return format_figure(self.wanted) + ("" if self.whole else f"; here {format_figure(self.games)}")

    def _claims(self) -> list[TableRow]:
        if OURS not in self.methods:
            return []
        ours = self._human(OURS)
        rows = []
        for rival in (name for name in RIVALS if name in self.methods):
            theirs = self._human(rival)
            for times, words in ((1.0, "above"), (2.0, "at least twice")):
                interval = difference_interval(ours, theirs, times=times)
                cells, right = (self._pair(rival), self._ratio(ours, theirs)), self._paper_ratio(rival)
                quantity = f"mean HNS: NNM {words} {rival}"
                rows.append(make_order_row(quantity, cells, [ours], interval, 3, complete=self.whole, recomputed=right))
            for kind in ("median", "IQM"):
                statistic = AGGREGATES[kind]
                interval = difference_interval(ours, theirs, statistic=statistic)
                gap = f"{statistic(ours) - statistic(theirs):+.3f}"
                rows.append(
                    TableRow(f"{kind} HNS: NNM minus {rival}", "-", gap, len(ours),
                        recomputed=self._paper_gap(rival, FIELDS[kind]), interval=format_interval(interval, 3))
                )  # fmt: skip
        return [*rows, *self._wins(ours)]

    def _wins(self, ours: Scores) -> list[TableRow]:
        rivals = [name for name in RIVALS if name in self.methods]
        if len(rivals) < len(RIVALS):
            return []

        parts = [ours, *(self._human(name) for name in rivals)]
        interval = joint_interval(parts, count_wins)
        verdict = judge_order(interval, above=len(self.games) / 2) if self.whole else "SHORT"
        bold = sum(row.bold == "nnm" for row in PAPER_26.values())
        paper = f"{bold} of {len(PAPER_26)}" if self.checkable else "-"
        right = f"{len(find_strictly_best(self.wanted))} of {len(self.wanted)}" if self.checkable else "-"
        return [
            TableRow("games in which NNM is best: most", paper, f"{count_wins(*parts):.0f} of {len(self.games)}",
                len(ours), verdict, recomputed=right, interval=format_interval(interval, 0))
        ]  # fmt: skip

    def _pair(self, rival: str) -> str:
        mine, theirs = self.claimed[OURS].mean, self.claimed[rival].mean
        return f"{mine:.2f} to {theirs:.2f}, {mine / theirs:.2f}×"

    def _ratio(self, ours: Scores, theirs: Scores) -> str:
        mine, other = AGGREGATES["mean"](ours), AGGREGATES["mean"](theirs)
        # A quotient of scores below random play says nothing.
        times = f", {mine / other:.2f}×" if mine > 0 and other > 0 else ""
        return f"{mine:.3f} to {other:.3f}{times}"

    def _paper_ratio(self, rival: str) -> str:
        if not self.checkable:
            return "-"
        return f"{figures(OURS, self.wanted).mean / figures(rival, self.wanted).mean:.2f}×"

    def _paper_gap(self, rival: str, name: str) -> str:
        if not self.checkable:
            return "-"
        return f"{getattr(figures(OURS, self.wanted), name) - getattr(figures(rival, self.wanted), name):+.3f}"

    def _games(self) -> list[TableRow]:
        rows = []
        for game in self.wanted:
            ours = self.results.raw(METHODS[OURS], game)
            for rival in RIVALS:
                theirs = self.results.raw(METHODS[rival], game)
                if ours and theirs:
                    rows.append(self._game(game, rival, ours, theirs))
        return rows

    def _game(self, game: str, rival: str, ours: Sequence[float], theirs: Sequence[float]) -> TableRow:
        interval = mean_difference(ours, theirs)
        scores = f"{format_scores(ours)} to {format_scores(theirs)}"
        if game not in PAPER_26:
            seeds = min(len(ours), len(theirs))
            return TableRow(f"{game}: NNM to {rival}", "-", scores, seeds, interval=format_interval(interval))
        mine, other = raw_scores(OURS, [game])[game], raw_scores(rival, [game])[game]
        human = [figures(label, [game]).mean for label in (OURS, rival)]
        quantity = f"{game}: NNM {'above' if mine > other else 'below'} {rival}"
        cells, right = (f"{mine:g} to {other:g}", scores), f"HNS {human[0]:.2f} to {human[1]:.2f}"
        return make_order_row(quantity, cells, (ours, theirs), interval, keep=mine > other, recomputed=right)

    def _others(self) -> list[TableRow]:
        """Measurements of every preset in the data that the paper's table does not have."""
        rows = []
        for name in sorted(set(self.results.scores) - set(METHODS.values())):
            games = [game for game in self.games or self.wanted if game in self.results.scores[name]]
            if not games:
                continue
            scores = self.results.normalised(name, games)
            where = "" if games == self.games else f", {len(games)} games"
            for kind, statistic in AGGREGATES.items():
                interval = format_interval(bootstrap_interval(scores, statistic=statistic), 3)
                rows.append(
                    TableRow(
                        f"{kind} HNS, {name}{where}", "-", f"{statistic(scores):.3f}", len(scores), interval=interval
                    )
                )
            rows += [row for game in games for row in measure_methods(self.results, game, [name])]
        return rows
