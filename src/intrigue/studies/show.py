"""A study's conclusion on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from intrigue.studies.base import Conclusion, PaperTable

ROOMY = 110  # characters
WORD = 16  # characters: with longer words in one piece a window of 80 would break numbers instead
COLORS = {"PASS": "green", "SHORT": "yellow", "FAIL": "red"}


def show(title: str, what: str, conclusion: Conclusion) -> None:
    """Print everything that came out, the files last; `what` says what the table is of."""
    console = Console(highlight=False)
    for paper_table in conclusion.paper_tables:
        console.print(_draw(paper_table))
        console.print()
    table = Table(title=f"{title} ({what})", title_justify="left")
    cells = [conclusion.cells(row) for row in conclusion.rows]
    # A column without a single entry would only make the others narrow.
    filled = [place for place in range(len(conclusion.columns)) if any(row[place] != "-" for row in cells)]
    headings = list(conclusion.columns.items())
    for name, heading in (headings[place] for place in filled):
        # Room for a preset's name in one piece; `_keep_words` sees to windows that have none.
        width = 26 if name == "quantity" and console.width >= ROOMY else None
        table.add_column(heading, justify="right" if name == "seeds" else "left", overflow="fold", min_width=width)
    for row in cells:
        table.add_row(*(Text(row[place], style=COLORS.get(row[place], "")) for place in filled))
    _keep_words(table, [row[0] for row in cells], console)
    console.print(table)
    for sentence in conclusion.words:
        console.print(Text(sentence))
    console.print()
    console.print(Text(conclusion.headline, style="bold"))
    for path in conclusion.files:
        # Not through rich: a path must stay on one line to be copied.
        print(path)


def _draw(paper_table: PaperTable) -> Table:
    table = Table(title=paper_table.title, title_justify="left")
    for heading in paper_table.headings:
        table.add_column(heading, overflow="fold")
    for row in paper_table.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _keep_words(table: Table, quantities: list[str], console: Console) -> None:
    """Where a table is too wide, its first column gets what the others leave, or room for its longest word."""
    unbounded = console.options.update(width=10_000)
    excess = Measurement.get(console, unbounded, table).maximum - console.width
    if excess <= 0 or console.width >= ROOMY:
        return
    longest = max(len(word) for quantity in quantities for word in quantity.split())
    table.columns[0].width = max(max(map(len, quantities)) - excess, min(longest, WORD))
