"""What Tables 2 and 3 share: the bonuses they compare, and how their scores are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from intrigue.studies.atari.paper import Claim
from intrigue.studies.atari.results import Results
from intrigue.studies.atari.study import AtariStudy, Variant
from intrigue.studies.atari.table import ScoreTable
from intrigue.studies.base import Conclusion, Rechecked


class ScoreStudy(AtariStudy, Rechecked):
    """A table of human-normalised scores of three bonuses on `games`, held against what the paper claims of each."""

    games: ClassVar[Sequence[str]]
    claimed: ClassVar[Mapping[str, Claim]]
    variants: ClassVar[Sequence[Variant]] = (
        Variant("disagreement-atari"),
        Variant("icm-atari"),
        Variant("nnm-atari"),
    )

    def judge(self, results: Results) -> Conclusion:
        """The table as in `table`."""
        return ScoreTable(results, self.games, self.claimed).conclude()
