"""A study's table in windows of several widths."""

from __future__ import annotations

import pytest

from intrigue.studies.base import Conclusion, TableRow
from intrigue.studies.show import show
from intrigue.studies.urlb.table import COLUMNS

LONG = TableRow(
    "mean, walker: NNM above Disagreement", "0.915 to 0.545", "0.836 to 0.743", 3, interval="[0.052, 0.131]"
)
SHORT = TableRow("walker_stand: NNM", "961 ± 2", "948 ± 3", 3, rerun="658 ± 33")


def lines_of(rows: list[TableRow], width: int, capsys: pytest.CaptureFixture[str], monkeypatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(width))
    show("Table 4", "from files", Conclusion("headline", rows, columns=COLUMNS))
    return capsys.readouterr().out.splitlines()


def quantities_of(lines: list[str]) -> list[str]:
    return [line.split("│")[1].strip() for line in lines if line.startswith("│")]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_words_of_a_quantity_stay_whole(width: int, capsys, monkeypatch) -> None:
    lines = lines_of([LONG, SHORT], width, capsys, monkeypatch)
    assert max(map(len, lines)) <= width
    assert " ".join(quantities_of(lines)) == f"{LONG.quantity} {SHORT.quantity}"
    assert all(line.endswith("│") for line in lines if line.startswith("│"))  # nothing is cut off


def test_a_table_that_fits_is_not_wrapped(capsys, monkeypatch) -> None:
    lines = lines_of([SHORT], 80, capsys, monkeypatch)
    assert quantities_of(lines) == [SHORT.quantity]


def test_a_narrow_table_takes_the_room_there_is(capsys, monkeypatch) -> None:
    """One row too many characters wide by a few: the quantity gives those few, not half of itself."""
    natural = max(map(len, lines_of([LONG], 109, capsys, monkeypatch)))
    assert natural < 109
    lines = lines_of([LONG], natural - 4, capsys, monkeypatch)
    assert len(quantities_of(lines)) == 2
    assert max(map(len, lines)) == natural - 4
