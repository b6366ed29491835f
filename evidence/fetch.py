"""The one archive of a batch: rows, settings, the ends of logs and tables, and how its jobs stand."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

LIMIT = 16 * 2**20  # bytes; what is larger does not come back
LAST = 200  # lines of a log
POINTS = 200  # rows of metrics.csv, evenly taken
NVIDIA = ["nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader"]


def refresh(work: Path, status: dict[str, Any]) -> None:
    """Rows and archive anew. What goes wrong is written into the status, and the old archive stays."""
    done = subprocess.run(
        ["nice", sys.executable, "-m", "evidence.package", "rows", str(work)],
        capture_output=True,
        text=True,
        check=False,
    )
    status["rows"] = "written" if done.returncode == 0 else done.stderr[-2000:]
    status["speed"] = {name: _speed(work / "runs" / name) for name in status["running"]}
    status["gpu"] = _gpu(work)
    (work / "status.json").write_text(json.dumps(status, indent=1) + "\n", encoding="utf-8")
    (work / "status.txt").write_text(_told(work, status), encoding="utf-8")
    fresh = work / ".evidence.new"
    with tarfile.open(fresh, "w:gz") as tar:
        for path in _worth(work):
            data = _short(path)
            info = tarfile.TarInfo(str(path.relative_to(work)))
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    if fresh.stat().st_size < LIMIT:
        fresh.replace(work / "evidence.tar.gz")


def _worth(work: Path) -> list[Path]:
    names = ("config.json", "provenance.json", "metrics.csv", "eval.csv")
    # Hidden folders are runs that are being made.
    of_runs = [
        path
        for name in names
        for pattern in (f"runs/[!.]*/{name}", f"runs/[!.]*/seed-*/{name}")
        for path in work.glob(pattern)
    ]
    own = [work / name for name in ("manifest.json", "status.json", "status.txt", "far.log", "gpu.csv")]
    found = [*own, *work.glob("rows/[!.]*.csv"), *work.glob("logs/*.log"), *of_runs]
    return sorted(path for path in found if path.is_file())


def _short(path: Path) -> bytes:
    data = path.read_bytes()
    if path.suffix == ".log":
        return b"".join(data.splitlines(keepends=True)[-LAST:])
    if path.name == "metrics.csv":
        header, *lines = data.splitlines(keepends=True) or [b""]
        return header + b"".join(lines[:-1][:: max(1, len(lines) // POINTS)] + lines[-1:])
    return data


def _speed(run: Path) -> str:
    """Steps, and steps a second between the last rows of its metrics; of a folder of seeds, of its first."""
    for table in [run / "metrics.csv", *sorted(run.glob("seed-*/metrics.csv"))]:
        if table.is_file():
            header, *lines = table.read_text(encoding="utf-8").splitlines()
            at = [header.split(",").index(name) for name in ("step", "wall_seconds")]
            points = [
                [float(line.split(",")[place]) for place in at] for line in lines[-50:] if line.count(",") > at[1]
            ]
            if len(points) > 1 and points[-1][1] > points[0][1]:
                rate = (points[-1][0] - points[0][0]) / (points[-1][1] - points[0][1])
                return f"step {points[-1][0]:,.0f}, {rate:,.0f} a second"
    return "no rows yet"


def _gpu(work: Path) -> str:
    """What the GPU does now, and a line of gpu.csv about it."""
    try:
        said = subprocess.run(NVIDIA, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
    with (work / "gpu.csv").open("a", encoding="utf-8") as file:
        file.write(said + "\n")
    return said


def _told(work: Path, status: dict[str, Any]) -> str:
    lines = [f"second {status['seconds']}, rows {status['rows']}, gpu {status['gpu']}"]
    lines += [f"running {name}: {spent} s, {status['speed'][name]}" for name, spent in status["running"].items()]
    for name, end in status["ended"].items():
        lines.append(f"ended   {name}: {end}")
        if end["code"]:
            lines += ["        " + line for line in _last(work / "logs" / f"{name}.log")]
    lines += [f"waiting {name}" for name in status["waiting"]]
    return "\n".join(lines) + "\n"


def _last(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-8:] if log.is_file() else []
