"""A study's conclusion on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from intrigue.studies.base import Conclusion

COLORS = {"PASS": "green", "SHORT": "yellow", "FAIL": "red"}


def show(title: str, what: str, conclusion: Conclusion) -> None:
    """Print the table, the words, the files and, last, the headline; `what` says what the table is of."""
    console = Console(highlight=False)
    table = Table(title=f"{title} ({what})", title_justify="left")
    for name, heading in conclusion.columns.items():
        table.add_column(heading, justify="right" if name == "seeds" else "left", overflow="fold")
    for row in conclusion.rows:
        table.add_row(*(Text(cell, style=COLORS.get(cell, "")) for cell in conclusion.cells(row)))
    console.print(table)
    for sentence in conclusion.words:
        console.print(Text(sentence))
    console.print()
    console.print(Text(conclusion.headline, style="bold"))
    for path in conclusion.files:
        # Not through rich: a path must stay on one line to be copied.
        print(path)
