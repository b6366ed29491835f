"""A study's conclusion on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from intrigue.studies.base import Conclusion

COLORS = {"PASS": "green", "SHORT": "yellow", "FAIL": "red"}


def show(title: str, budget: str, conclusion: Conclusion) -> None:
    """Print the table, the words, the files and, last, the headline."""
    console = Console(highlight=False)
    table = Table(title=f"{title} (budget: {budget})", title_justify="left")
    for heading in ("quantity", "paper", "ours", "seeds", "verdict"):
        table.add_column(heading, justify="right" if heading == "seeds" else "left", overflow="fold")
    for row in conclusion.rows:
        verdict = Text(row.verdict, style=COLORS[row.verdict]) if row.verdict else Text("-")
        table.add_row(Text(row.quantity), Text(row.paper), Text(row.ours), str(row.seeds), verdict)
    console.print(table)
    for sentence in conclusion.words:
        console.print(Text(sentence))
    console.print()
    console.print(Text(conclusion.headline, style="bold"))
    for path in conclusion.files:
        # Not through rich: a path must stay on one line to be copied.
        print(path)
