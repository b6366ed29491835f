"""Tables of studies as the tests read them, and fine-tunings as they lie on disk."""

from __future__ import annotations

import csv
from pathlib import Path

from intrigue.config.run import resolve
from intrigue.presets import preset_layer
from intrigue.run.folder import RunFolder
from report_folders import write_run

TUNED = {"curiosity.int_coef": 0.0, "curiosity.ext_coef": 1.0, "curiosity.idle": True, "agent.n_step": 3}
LINE = "walker,walker_run,nnm-urlb,,0,2000000,{},{},1,10,796,5"  # of a file; frames and return to be filled in


def table_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def rows_of(conclusion):
    return {row.quantity: row for row in conclusion.rows}


def write_tuned(path, preset, task, evaluations, origin=None, snapshot=500, **changes):
    """A run folder as `intrigue finetune` leaves it, with these (frame, mean) evaluations."""
    config = resolve(preset_layer(preset), {"env": f"dmc/{task}", "steps": 2_000, **changes})
    about = {} if origin is None else {"finetuned_from": {"run": origin, "snapshot": snapshot}}
    write_run(path, config, provenance=about)
    head = "step,frame,wall_seconds,eval/episodes,eval/return_mean,eval/return_std"
    lines = [f"{frame},{frame},{frame / 100},10,{mean},1.5" for frame, mean in evaluations]
    RunFolder(path).evaluations.write_text("\n".join([head, *lines, ""]))
    return path
