"""The paper's Tables 2 and 3 computed again from what the paper prints. Trains nothing.

Table 2 under two sets of constants: those printed in it, and those of the source it names (`intrigue.scores.tables`).
Every sentence takes its numbers from the data, so none can drift from them.
"""

from __future__ import annotations

from dataclasses import asdict
from operator import attrgetter
from typing import Any

import numpy as np

from intrigue.scores import ATARI_57, PAPER_26, PRINTED, above_human, bootstrap_interval
from intrigue.studies.atari.paper import (
    CLAIMED_26,
    CLAIMED_57,
    GAMES_26,
    GAMES_57,
    KEYS,
    figures,
    find_strictly_best,
    human_scores,
    raw_scores,
)
from intrigue.studies.base import Conclusion, TableRow, Verdict

COLUMNS = {
    "quantity": "quantity",
    "paper": "paper",
    "printed": "as printed",
    "recomputed": "corrected",
    "verdict": "verdict",
}
# The games whose scores make up most of NNM's mean, largest first.
CARRIERS = ("Jamesbond", "Breakout", "Krull", "Gopher")
LOW = {"median": "median", "IQM": "iqm"}
LEFT_OUT = (CARRIERS[:1], CARRIERS[:2], CARRIERS)


def recheck_table2() -> Conclusion:
    """Mean, median, IQM and superhuman games of the three columns, and what is wrong in the table."""
    rows = [row for method in KEYS for row in _rows(method)]
    best = find_strictly_best()
    bold = sum(row.bold == "nnm" for row in PAPER_26.values())
    rows.append(
        TableRow("games in which NNM is strictly best", f"{bold} (bold)", "-", 0, _same(bold == len(best)),
            printed=str(len(best)), recomputed=str(len(best)))
    )  # fmt: skip
    wrong = sum(row.verdict == "FAIL" for row in rows)
    judged = sum(row.verdict is not None for row in rows)
    right = {method: figures(method) for method in KEYS}
    lowest = [word for word, name in LOW.items() if right["NNM"] == min(right.values(), key=attrgetter(name))]
    headline = (
        f"With the right constants {wrong} of {judged} figures under the paper's Table 2 change. NNM's mean is "
        f"{right['NNM'].mean:.2f}, not {CLAIMED_26['NNM'].mean:.2f}; by {' and '.join(lowest)} it is the lowest of the "
        "three."
    )
    return Conclusion(headline, rows, corrections(), columns=COLUMNS, figures=_numbers())


def recheck_table3() -> Conclusion:
    """What the means of Tables 2 and 3 together say about the 31 games whose scores are not published."""
    rest = len(GAMES_57) - len(GAMES_26)
    rows, means = [], {}
    for method, claim in CLAIMED_57.items():
        printed = CLAIMED_26[method]
        means[method] = (len(GAMES_57) * claim.mean - len(GAMES_26) * printed.mean) / rest
        rows += [
            TableRow(f"mean HNS, {method}, 57 games", f"{claim.mean:.2f}", "-", 0, printed="not checkable"),
            TableRow(f"mean HNS, {method}, the other {rest} games", "-", "-", 0, printed=f"{means[method]:.2f}"),
            TableRow(f"superhuman, {method}, the other {rest} games", "-", "-", 0,
                printed=str(claim.superhuman - printed.superhuman)),
        ]  # fmt: skip
    nnm, others = CLAIMED_57["NNM"].mean, {name: CLAIMED_57[name].mean for name in KEYS if name != "NNM"}
    gains = " and ".join(f"{nnm / mean - 1:.0%} over {name}" for name, mean in others.items())
    lead = CLAIMED_26["NNM"].mean / CLAIMED_26["ICM"].mean
    words = [
        "The scores behind Table 3 were to be in a supplement that the preprint lacks, so its means and counts cannot "
        "be computed again, nor can it be seen which constants they were computed with.",
        f'"About 50 % relative improvement" is, from the printed means, {gains}.',
        f"Means of both tables together leave the other {rest} games: "
        + ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
        + f". NNM leads ICM by {means['NNM'] / means['ICM']:.2f} times there and by {lead:.2f} times on the 26.",
        "The ICM column is said to come from Burda et al. 2018, whose Atari games are fewer than 57 and are played "
        "without sticky actions: a 57-game ICM mean cannot come from there alone, and it is of another protocol.",
    ]
    headline = "Table 3 cannot be checked: the scores behind it are not published."
    return Conclusion(headline, rows, words, columns={**COLUMNS, "printed": "follows from print"})


def corrections() -> list[str]:
    """What is wrong in Table 2, one sentence each."""
    right = {method: figures(method) for method in KEYS}
    printed = {method: figures(method, constants=PRINTED) for method in KEYS}
    nnm, dis, icm = right["NNM"], right["Disagreement"], right["ICM"]
    crowned = [game for game, row in PAPER_26.items() if row.bold == "nnm" and game not in find_strictly_best()]
    return [
        *_constants(),
        f"ICM's mean is printed as {CLAIMED_26['ICM'].mean:.2f}. It is {printed['ICM'].mean:.3f} with the printed "
        f"constants and {icm.mean:.3f} with the right ones: it follows from neither.",
        *_superhuman_words(),
        f"{', '.join(crowned)}: NNM is set in bold with "
        + ", ".join(f"{PAPER_26[game].scores['nnm']} beside ICM's {PAPER_26[game].scores['icm']}" for game in crowned)
        + f"; NNM is strictly best in {len(find_strictly_best())} games.",
        f"\"Doubles\": with the right constants NNM's mean is {nnm.mean / dis.mean:.2f} times Disagreement's and "
        f"{nnm.mean / icm.mean:.2f} times ICM's; its median {nnm.median / dis.median:.2f} and "
        f"{nnm.median / icm.median:.2f} times, its IQM {nnm.iqm / dis.iqm:.2f} and {nnm.iqm / icm.iqm:.2f} times.",
        *_carried(),
    ]


def _rows(method: str) -> list[TableRow]:
    claim, printed, right = CLAIMED_26[method], figures(method, constants=PRINTED), figures(method)
    # A claim of two digits holds when rounding the figure gives it.
    mean_holds = f"{right.mean:.2f}" == f"{claim.mean:.2f}"
    rows = [
        TableRow(f"mean HNS, {method}", f"{claim.mean:.2f}", "-", 0, _same(mean_holds),
            f"{printed.mean:.3f}", f"{right.mean:.3f}"),
        TableRow(f"superhuman games, {method}", str(claim.superhuman), "-", 0,
            _same(claim.superhuman == right.superhuman), str(printed.superhuman), str(right.superhuman)),
        TableRow(f"median HNS, {method}", "-", "-", 0, None, f"{printed.median:.3f}", f"{right.median:.3f}"),
        TableRow(f"IQM HNS, {method}", "-", "-", 0, None, f"{printed.iqm:.3f}", f"{right.iqm:.3f}"),
    ]  # fmt: skip
    for left_out in LEFT_OUT:
        kept = [game for game in GAMES_26 if game not in left_out]
        names = ", ".join(left_out)
        texts = [f"{figures(method, kept, constants).mean:.3f}" for constants in (PRINTED, ATARI_57)]
        rows.append(TableRow(f"mean HNS, {method}, without {names}", "-", "-", 0, None, *texts))
    return rows


def _constants() -> list[str]:
    sentences = []
    for game in GAMES_26:
        right, printed = ATARI_57[game], PRINTED[game]
        if right == printed:
            continue
        shift = [(human_scores(m, [game], PRINTED)[game] - human_scores(m, [game])[game]) / 26 for m in KEYS]
        upside = " Random play is above a person there." if printed.random > printed.human else ""
        sentences.append(
            f"{game}: printed random {printed.random} and human {printed.human}, right {right.random} and "
            f"{right.human}.{upside} It moves the means of Disagreement, ICM and NNM by "
            + ", ".join(f"{each:+.3f}" for each in shift)
            + "."
        )
    return sentences


def _superhuman_words() -> list[str]:
    sentences = []
    for method in KEYS:
        claim, right = CLAIMED_26[method].superhuman, figures(method).superhuman
        if claim == right:
            continue
        lost = [
            game
            for game, score in raw_scores(method).items()
            if above_human(game, score, PRINTED) and not above_human(game, score)
        ]
        why = f": {', '.join(lost)} counts only under the printed constant" if lost else ""
        sentences.append(f"{method} is superhuman in {right} games, not {claim}{why}.")
    return sentences


def _carried() -> list[str]:
    mine = human_scores("NNM")
    total = sum(mine.values())
    first, both = (sum(mine[game] for game in games) / total for games in LEFT_OUT[:2])
    kept = [game for game in GAMES_26 if game not in CARRIERS]
    rest = ", ".join(f"{method} {figures(method, kept).mean:.3f}" for method in KEYS)
    matrix = np.asarray([list(mine.values())])
    interval = bootstrap_interval(matrix, over_tasks=True)
    around = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
    return [
        f"{CARRIERS[0]} alone is {first:.0%} of NNM's mean, with {CARRIERS[1]} {both:.0%}. Without "
        f"{', '.join(CARRIERS)} the means are {rest}.",
        f"NNM's mean of {figures('NNM').mean:.2f} has a 95 % interval of{around} over the choice of games; over seeds "
        "there is none, because the paper states neither their number nor their scores.",
        "The constants are of 108,000-frame episodes without sticky actions; the agents play 18,000 frames with them, "
        "and the ICM column comes from another paper's protocol.",
    ]


def _numbers() -> dict[str, Any]:
    return {
        method: {
            "claimed": asdict(CLAIMED_26[method]),
            "printed_constants": asdict(figures(method, constants=PRINTED)),
            "right_constants": asdict(figures(method)),
        }
        for method in KEYS
    }


def _same(holds: bool) -> Verdict:
    return "PASS" if holds else "FAIL"
