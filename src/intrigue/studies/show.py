"""A study's conclusion on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from intrigue.studies.base import Conclusion

ROOMY = 110  # characters
COLORS = {"PASS": "green", "SHORT": "yellow", "FAIL": "red"}


def show(title: str, what: str, conclusion: Conclusion) -> None:
    """Print the table, the words, the files and, last, the headline; `what` says what the table is of."""
    console = Console(highlight=False)
    table = Table(title=f"{title} ({what})", title_justify="left")
    cells = [conclusion.cells(row) for row in conclusion.rows]
    # A column without a single entry would only make the others narrow.
    filled = [place for place in range(len(conclusion.columns)) if any(row[place] != "-" for row in cells)]
    headings = list(conclusion.columns.items())
    for name, heading in (headings[place] for place in filled):
        # Room for a preset's name in one piece; in a narrow window every column needs what there is.
        width = 26 if name == "quantity" and console.width >= ROOMY else None
        table.add_column(heading, justify="right" if name == "seeds" else "left", overflow="fold", min_width=width)
    for row in cells:
        table.add_row(*(Text(row[place], style=COLORS.get(row[place], "")) for place in filled))
    console.print(table)
    for sentence in conclusion.words:
        console.print(Text(sentence))
    console.print()
    console.print(Text(conclusion.headline, style="bold"))
    for path in conclusion.files:
        # Not through rich: a path must stay on one line to be copied.
        print(path)
