"""All that the queue asks of the package: settings of a run, rows of a run folder, and whether environments start.

python -m evidence.package identities          the plan's identities as CSV
python -m evidence.package rows WORK           writes WORK/rows/*.csv of the runs below WORK, finished or not
python -m evidence.package check ENV …         steps each environment once, and says what it runs on
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from evidence.identity import COLUMNS, identity_of, tuned_identity
from evidence.plan import Group, Run, read_plan
from intrigue.config.run import resolve
from intrigue.presets import preset_layer
from intrigue.studies.common.run_records import CURVES, EVALUATIONS, N_STEP

LABELS = ("identity", "commit", "batch", "outcome")


def settings(group: Group, seed: int) -> dict[str, Any]:
    """The resolved settings of a group's process, as its config.json has them."""
    asked = {"env": group.env, "seed": seed, "steps": group.steps, **dict(group.changes)}
    return resolve(preset_layer(group.preset), asked).to_json()


def identities(groups: Iterable[Group]) -> dict[Run, str]:
    """Of every run of these groups, in their order."""
    found: dict[Run, str] = {}
    for group in groups:
        configs = {seed: settings(group, seed) for seed in group.seeds}
        own = {seed: identity_of(config) for seed, config in configs.items()}
        for run in group.runs:
            found[run] = own[run.seed] if not group.tasks else _tuned(own[run.seed], run, configs[run.seed])
    return found


def rows(work: Path) -> dict[str, list[list[str]]]:
    """Labelled rows by the name of the file of results they belong in; what was written so far of each run."""
    manifest = json.loads((work / "manifest.json").read_text(encoding="utf-8"))
    tables: dict[str, list[list[str]]] = {}
    for job in manifest["jobs"]:
        for run in job["runs"]:
            folder = work / "runs" / run["folder"]
            if not (folder / "config.json").is_file():
                continue
            records = CURVES if run["env"].startswith("atari/") else EVALUATIONS
            place = work / "rows" / ".one.csv"
            records.export([folder], place)
            header, *lines = csv.reader(place.read_text(encoding="utf-8").splitlines())
            told = [_identity(folder, work / "runs", run), manifest["commit"], manifest["id"]]
            told.append("done" if (folder / "DONE").is_file() else "cut")
            table = tables.setdefault(run["results"], [[*header, *LABELS]])
            at = header.index("changes")
            # The exporters leave settings of `run` out of a run's name.
            kept = [word for word in run["changes"].split() if word.startswith("run.")]
            for line in lines:
                line[at] = " ".join(filter(None, [line[at], *kept]))
            table += [[*line, *told] for line in lines]
    return tables


def _identity(folder: Path, runs: Path, run: Mapping[str, Any]) -> str:
    """By the settings that the run has, whatever was asked for."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not run["pretrained"]:
        return identity_of(config)
    before = json.loads((runs / run["from"] / "config.json").read_text(encoding="utf-8"))
    origin = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["finetuned_from"]
    return tuned_identity(identity_of(before), config["env"]["id"], origin["snapshot"], config)


def _tuned(before: str, run: Run, config: dict[str, Any]) -> str:
    planned = {**config, "agent": {**config["agent"], "n_step": N_STEP}}
    planned["run"] = {**config["run"], "steps": run.steps}
    return tuned_identity(before, run.env, run.pretrained, planned)


def check(envs: Iterable[str]) -> None:
    """Step each environment once; raises what is missing."""
    import torch

    from intrigue.envs.pool.config import PoolConfig
    from intrigue.envs.pool.pool import make_pool

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    print(f"torch {torch.__version__}, {device}")
    for env in envs:
        make_pool(env, {}, PoolConfig(num_envs=1, workers=0), seed=0).close()
        print(f"{env} starts")


def main(argv: list[str]) -> int:
    """One of the commands above."""
    if argv[0] == "identities":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        for run, identity in identities(read_plan().groups).items():
            writer.writerow([run.env, run.preset, run.changes, run.seed, run.pretrained, run.steps, identity])
    elif argv[0] == "check":
        check(argv[1:])
    else:
        work = Path(argv[1])
        (work / "rows").mkdir(exist_ok=True)
        for name, table in rows(work).items():
            fresh = work / "rows" / f".{name}.new"
            with fresh.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(table)
            fresh.replace(work / "rows" / f"{name}.csv")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
