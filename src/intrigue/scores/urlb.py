"""Normalised scores of URLB's twelve tasks.

    normalised = score / expert            no random baseline is taken off, as in URLB

`urlb_experts.csv` holds what DDPG reaches in 2M frames of each task, by the benchmark's maintainer (issue 1 of
rll-research/url_benchmark).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path


def _read() -> dict[str, float]:
    with Path(__file__).with_name("urlb_experts.csv").open(newline="", encoding="utf-8") as file:
        return {row["task"]: float(row["expert"]) for row in csv.DictReader(file)}


EXPERTS: Mapping[str, float] = _read()


def expert_of(env_id: str) -> float | None:
    """The expert's score in `dmc/<task>`; None where URLB has none."""
    family, _, task = env_id.partition("/")
    return EXPERTS.get(task) if family == "dmc" else None
