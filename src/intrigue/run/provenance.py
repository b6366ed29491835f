"""Where a run came from: versions, commit, host, device, seed, threads and plug-in files. No environment variables."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from intrigue.errors import ConfigError

PACKAGES = ("intrigue", "torch", "numpy", "gymnasium", "safetensors", "ale-py", "dm_control", "mujoco")
COMMIT_LENGTHS = (40, 64)  # SHA-1 and SHA-256 object names


def collect_provenance(
    *, device: torch.device | str, seed: int, threads: int | None = None, plugins: Iterable[Path] = ()
) -> dict[str, Any]:
    """The contents of provenance.json.

    Raises:
        ConfigError: a plug-in file cannot be read.
    """
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": {
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "cpu_count": os.cpu_count(),
        },
        "commit": read_commit(),
        "host": socket.gethostname(),
        "device": _device(torch.device(device)),
        "seed": seed,
        "threads": torch.get_num_threads() if threads is None else threads,
        "plugins": {str(path): _file_hash(path) for path in plugins},
    }


def read_commit() -> str | None:
    """The git commit of the checkout this package runs from; None when it was installed some other way."""
    root = Path(__file__).resolve().parents[3]
    # An installed package may lie inside another project's checkout; only our own layout counts.
    if not (root / "src" / "intrigue" / "run" / "provenance.py").is_file():
        return None
    try:
        git = _git_folder(root / ".git")
        return None if git is None else _head(git)
    except (OSError, UnicodeDecodeError):
        return None


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _device(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {"type": device.type}
    return {"type": "cuda", "name": torch.cuda.get_device_name(device), "cuda": torch.version.cuda}


def _file_hash(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ConfigError(f"plug-in file {path} cannot be read: {error.strerror}") from error


def _git_folder(marker: Path) -> Path | None:
    """The repository's folder; in a linked work tree `.git` is a file that says where it is."""
    if marker.is_dir():
        return marker
    if not marker.is_file():
        return None
    text = marker.read_text().strip()
    return (marker.parent / text.removeprefix("gitdir: ")) if text.startswith("gitdir: ") else None


def _head(git: Path) -> str | None:
    """The commit HEAD stands for, read from the files: starting a program would cost more than the answer."""
    head = (git / "HEAD").read_text().strip()
    if not head.startswith("ref: "):
        return head if len(head) in COMMIT_LENGTHS else None
    reference = head.removeprefix("ref: ")
    shared = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
    for place in (git, shared):
        if (place / reference).is_file():
            return (place / reference).read_text().strip()
    packed = shared / "packed-refs"
    lines = packed.read_text().splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {reference}")), None)
