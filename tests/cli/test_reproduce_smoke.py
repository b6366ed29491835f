"""Every study as a user first meets it: its default budget, trained for real, ends with a table and its files.

`quickstart` is what `make run` runs, and `fig1` trains nothing; both have tests of their own.
"""

from __future__ import annotations

import pytest
from test_commands import intrigue

from intrigue.studies.registry import STUDIES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("study", sorted(set(STUDIES.names()) - {"quickstart", "fig1"}))
def test_the_default_command_gives_a_table(study, tmp_path):
    out, _ = intrigue("reproduce", study, "--out", "there", cwd=tmp_path, fresh=True)
    assert "(budget: smoke)" in out and "seeds" in out
    files = [tmp_path / line for line in out.splitlines() if line.startswith("there/")]
    assert files and all(file.stat().st_size > 0 for file in files)
    again, _ = intrigue("reproduce", study, "--out", "there", cwd=tmp_path, fresh=True)
    assert again == out, "finished runs are not repeated"
