"""The real Weights & Biases, offline, and the real trackio in a folder of its own: every row arrives, once a step."""

from __future__ import annotations

import json
import os
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import TINY
from intrigue.run.folder import RunFolder
from intrigue.run.logging.csv_files import read_metrics

pytestmark = pytest.mark.trackers

SMALL = [part for name, value in TINY.items() for part in (f"--{name.replace('_', '-')}", str(value)) if name != "env"]
BLOCK, HEAD = 32768, 7  # bytes: wandb keeps records in LevelDB's log format, after a head of as many bytes


def intrigue(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as a user gives it, with nothing sent anywhere."""
    env = {**os.environ, "WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKIO_DIR": str(folder / "trackio")}
    command = [sys.executable, "-m", "intrigue", *words]
    found = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    return found


def wandb_rows(folder: RunFolder) -> list[dict[str, float]]:
    """All rows that wandb would send, oldest file first."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows = []
    for path in sorted((folder.path / "wandb").glob("offline-run-*/*.wandb")):
        for data in log_records(path.read_bytes()):
            record = Record.FromString(data)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({item.key or item.nested_key[0]: json.loads(item.value_json) for item in items})
    return rows


def log_records(data: bytes) -> list[bytes]:
    """Records of a LevelDB log: checksum, length, kind (1 whole, 2 first, 3 middle, 4 last), then the bytes."""
    found, whole, place = [], b"", HEAD
    while place + 7 <= len(data):
        if BLOCK - place % BLOCK < 7:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            found.append(whole)
            whole = b""
    return found


def trackio_rows(folder: Path, name: str) -> list[tuple[int, dict[str, float]]]:
    with sqlite3.connect(folder / "trackio" / "intrigue.db") as database:
        rows = database.execute("select step, metrics from metrics where run_name = ? order by id", (name,)).fetchall()
    return [(step, json.loads(metrics)) for step, metrics in rows]


def test_both_get_every_row_of_every_seed(tmp_path: Path) -> None:
    started = intrigue(tmp_path, "train", *SMALL, "--steps", "128", "--seeds", "0:2", "--run.sinks", "wandb,trackio",
                       "--out", "two", "--quiet")  # fmt: skip
    assert started.stdout.splitlines()[0] == "two", "stdout is for data"
    resumed = intrigue(tmp_path, "resume", "two", "--steps", "192", "--quiet")
    assert "gets no more metrics" not in started.stderr + resumed.stderr
    for seed in (0, 1):
        folder = RunFolder(tmp_path / "two" / f"seed-{seed}")
        table = read_metrics(folder.metrics).columns
        assert list(table["step"]) == [64, 128, 192]
        sent = wandb_rows(folder)
        assert [row["step"] for row in sent] == [64, 128, 192]
        assert [row["intrinsic/raw_mean"] for row in sent] == pytest.approx(list(table["intrinsic/raw_mean"]))
        name = f"two-seed-{seed}-{json.loads(folder.sinks.read_text())['id']}"
        kept = trackio_rows(tmp_path, name)
        assert [step for step, _ in kept] == [64, 128, 192]
        assert [row["intrinsic/raw_mean"] for _, row in kept] == pytest.approx(list(table["intrinsic/raw_mean"]))
