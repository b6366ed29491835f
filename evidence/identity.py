"""What run a row is of: a digest of settings that does not depend on how the configuration names them.

    identity    <arithmetic>-<12 hexadecimal digits of SHA-256>

Fields enter by the names and values that fields.toml gives them, so that a renamed field changes nothing. A fine-tuning
is its pre-training and what was set of it. `ARITHMETIC` is raised by hand when the same settings give other numbers.
"""

from __future__ import annotations

import csv
import hashlib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evidence.plan import HERE, QueueError, Run

COLUMNS = ("env", "preset", "changes", "seed", "pretrained", "steps", "identity")
TABLE = HERE / "identities.csv"


def identity_of(config: Mapping[str, Any], where: Path = HERE) -> str:
    """Of the run that a config.json describes."""
    return _digest(settings_of(config, tomllib.loads((where / "fields.toml").read_text(encoding="utf-8"))), where)


def tuned_identity(before: str, env: str, pretrained: int, config: Mapping[str, Any], where: Path = HERE) -> str:
    """Of a fine-tuning, by its pre-training's identity and its own config.json, or as much of that as is planned."""
    agent, pool, run = (config[section] for section in ("agent", "pool", "run"))
    own = {"n_step": agent["n_step"], "num_envs": pool["num_envs"], "seed": run["seed"], "steps": run["steps"]}
    return _digest({"from": before, "pretrained": pretrained, "env": env, **own}, where)


def settings_of(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that count, by their names in identities."""
    flat = {"schema": config.get("schema")}
    for section, values in config.items():
        if isinstance(values, Mapping):
            flat |= {f"{section}.{name}": value for name, value in values.items()}
    kept = {}
    for name, value in flat.items():
        key = fields.get("renamed", {}).get(name, name)
        if key in fields["left_out"]:
            continue
        value = fields.get("values", {}).get(key, {}).get(str(value), value)
        # 1 and 1.0 are one setting.
        value = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
        later = fields.get("later", {})
        if key not in later or value != later[key]:
            kept[key] = value
    return kept


def read_identities(path: Path = TABLE) -> dict[Run, str]:
    """The identity of every run that is wanted."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise QueueError(f"{path} cannot be read: {error}. Run `evidence/queue identities`.") from error
    return {
        Run(
            row["env"], row["preset"], row["changes"], int(row["seed"]), int(row["pretrained"]), int(row["steps"])
        ): row["identity"]
        for row in rows
    }


def _digest(settings: Mapping[str, Any], where: Path) -> str:
    arithmetic = (where / "ARITHMETIC").read_text(encoding="utf-8").strip()
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return f"{arithmetic}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
