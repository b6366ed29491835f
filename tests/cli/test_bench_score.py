"""`intrigue bench score` on tiny batches, and the measured tables of the documentation against `results/`."""

from __future__ import annotations

import csv
import json
import subprocess
import sys

import pytest

from places import ROOT


def bench(*arguments, code=0):
    command = [sys.executable, "-m", "intrigue", "bench", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_table_json_and_csv_agree(tmp_path):
    files = tmp_path / "score.json", tmp_path / "score.csv"
    done = bench("score", "--device", "cpu", "--small", "--rounds", 1, "--json", files[0], "--csv", files[1])
    rows = json.loads(files[0].read_text())["rows"]
    assert len(done.stdout.splitlines()) == len(rows) + 1
    assert {row["dtype"] for row in rows} == {"float16", "bfloat16", "float32", "float64"}
    assert {"gram", "gram+eigvalsh", "matrix_norm"} < {row["method"] for row in rows}
    for row in rows:
        assert row["ms"] > 0 and row["read_ms"] > 0
        if row["method"] in ("native", "gram"):
            assert row["worst_error"] <= 1e-6, row
    with files[1].open() as table:
        assert [row["method"] for row in csv.DictReader(table)] == [row["method"] for row in rows]


def test_unknown_targets_and_help():
    assert "Did you mean 'score'" in bench("scores", code=2).stderr
    assert "rewards" in bench("--help").stdout


@pytest.mark.parametrize(("name", "column"), [("h200", "graph_ms"), ("cpu", "ms")])
def test_the_documented_figures_are_the_measured_ones(name, column):
    lines = (ROOT / "docs" / "nuclear.md").read_text().splitlines()
    start = lines.index(f"<!-- measured: {name} -->") + 3
    shown = []
    while lines[start].startswith("|"):
        shown.append([cell.strip() for cell in lines[start].strip("|").split("|")])
        start += 1
    with (ROOT / "results" / f"score-{name}.csv").open() as table:
        ours = [r for r in csv.DictReader(table) if r["dtype"] == "float32" and r["method"] in ("triton", "native")]
    assert len(shown) == len(ours)
    for cells, row in zip(shown, ours, strict=True):
        assert cells[0] == f"{row['matrices']} × {row['n']} × {row['m']}"
        assert float(cells[1]) == pytest.approx(float(row[column]), rel=0.01)
        faster = float(row["over_eigvalsh"]) * float(row["ms"]) / float(row[column])
        assert float(cells[-2].replace(",", "")) == pytest.approx(faster, rel=0.02)
        assert float(cells[-1]) == pytest.approx(float(row["worst_error"]), rel=0.05)
