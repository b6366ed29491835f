"""The checks of `intrigue doctor`."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

EXTRAS = {
    "matplotlib": "report",
    "jinja2": "report",
    "pillow": "report",
    "imageio-ffmpeg": "video",
    "ale-py": "atari",
    "dm_control": "dmc",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "trackio": "trackio",
    "faiss-cpu": "faiss",
    "minari": "minari",
}
CORE = ("intrigue", "torch", "numpy", "gymnasium", "tyro", "rich", "safetensors")


class Check(NamedTuple):
    """The result of one check."""

    name: str
    ok: bool
    detail: str


def inspect_installation() -> dict[str, str]:
    """The version of every package, or the command that installs it."""
    import torch

    from intrigue.nuclear import describe_auto

    findings = {"python": platform.python_version()}
    for name in CORE:
        findings[name] = _version(name) or "missing; reinstall with: pip install --force-reinstall intrigue"
    for name, extra in EXTRAS.items():
        findings[name] = _version(name) or f"not installed (optional): pip install 'intrigue[{extra}]'"
    cuda = torch.cuda.is_available()
    findings["device"] = f"cuda, {torch.cuda.get_device_name()}" if cuda else f"cpu, {torch.get_num_threads()} threads"
    device = torch.device("cuda" if cuda else "cpu")
    findings["nuclear norm, auto"] = describe_auto(device)
    findings["free disk here"] = f"{shutil.disk_usage('.').free / 2**30:.1f} GiB"
    return findings


def self_test(say: Callable[[str], object]) -> Iterator[Check]:
    """Run the checks; yields each result when it is done."""
    for name, check in (("nuclear norm", _check_nuclear_norm), ("train, stop, resume", _check_resume)):
        say(f"testing: {name} ...")
        began = time.monotonic()
        ok, detail = check()
        yield Check(name, ok, f"{detail} ({time.monotonic() - began:.1f} s)")


def _check_nuclear_norm() -> tuple[bool, str]:
    import torch

    from intrigue.nuclear import nuclear_score

    rows = torch.randn(64, 5, 512, generator=torch.Generator().manual_seed(0))
    exact = torch.linalg.svdvals(rows.double())
    expected = exact.sum(-1) / exact.square().sum(-1).sqrt() / 512**0.5
    error = float(((nuclear_score(rows).double() - expected) / expected).abs().max())
    return error <= 1e-6, f"worst relative error against an exact SVD {error:.1e}, at most 1e-6 allowed"


def _check_resume() -> tuple[bool, str]:
    from intrigue.config.run import resolve
    from intrigue.run.driver import resume, start

    tiny = {
        "env": "rooms",
        "env.rooms": 2,
        "reward": "nnmc",
        "seed": 1,
        "threads": 1,
        "device": "cpu",
        "pool.num_envs": 4,
        "agent.hidden": 16,
        "agent.rollout_steps": 32,
        "reward.feature_dim": 16,
        "reward.hidden": 16,
    }
    with tempfile.TemporaryDirectory() as place:
        uninterrupted = start(resolve(tiny, {"steps": 1000}), out=Path(place) / "calm", quiet=True)
        start(resolve(tiny, {"steps": 500}), out=Path(place) / "stopped", quiet=True)
        resumed = resume(Path(place) / "stopped", steps=1000, quiet=True)
        same = uninterrupted.digest() == resumed.digest()
    ending = "the same bits as" if same else "OTHER bits than"
    return same, f"a run stopped half way and resumed ends on {ending} one that never stopped"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
