"""Table 4 of the paper: twelve tasks of DeepMind Control after pre-training without a reward; six methods.

The paper prints scores with ±, no means, and says that NNM is state of the art in eleven of twelve tasks.
`--recheck-paper` computes the means, checks the count, and says what the table leaves out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, final

from intrigue.scores.urlb_published import TASKS_12, tasks_of
from intrigue.studies.base import Budget, CanRecheckPaper, Conclusion
from intrigue.studies.common.results import Results
from intrigue.studies.common.study import budgets_of
from intrigue.studies.registry import register_study
from intrigue.studies.urlb.methods import FINETUNE_FRAMES, METHODS, PRETRAIN_FRAMES, SCRATCH
from intrigue.studies.urlb.paper_table import paper_tables
from intrigue.studies.urlb.plots import draw_scores
from intrigue.studies.urlb.recheck import recheck_table4
from intrigue.studies.urlb.study import UrlbLevel, UrlbStudy
from intrigue.studies.urlb.table import FinetuningTable

# The control, the methods the paper ran itself, and the other readings of its own.
SOME = (SCRATCH, "Disagreement", "APT", "NNM", "NNM ensemble", "NNM centered")
LEVELS = {
    "smoke": UrlbLevel(("walker_run", "walker_stand"), SOME, 2_000, 1_500, 1),
    # 5 pre-trainings, 24 fine-tunings
    "hour": UrlbLevel(tasks_of("walker"), SOME, 500_000, FINETUNE_FRAMES, 1, jobs=2),
    "full": UrlbLevel(TASKS_12, tuple(METHODS), PRETRAIN_FRAMES, FINETUNE_FRAMES, 10, jobs=4),  # URLB: ten seeds
}


@register_study("table4")
@final
class Table4(UrlbStudy, CanRecheckPaper):
    """Twelve tasks, pre-trained and fine-tuned."""

    title: ClassVar[str] = "Table 4: twelve control tasks after pre-training"
    levels: ClassVar[Mapping[str, UrlbLevel]] = LEVELS
    budgets: ClassVar[Mapping[str, Budget]] = budgets_of(LEVELS)

    def judge(self, results: Results) -> Conclusion:
        """The table as in `table`, after the paper's own as in `paper_table`."""
        table = FinetuningTable(results)
        return replace(table.conclude(), paper_tables=paper_tables(table))

    def draw(self, results: Results, out: Path) -> list[Path]:
        """Means by method and domain, ours beside the published."""
        return draw_scores(results, out, self.title)

    def recheck(self) -> Conclusion:
        """The paper's own arithmetic."""
        return recheck_table4()
