"""What figures were taken on, as it stands in every file of them.

How much memory a piece of work takes at its peak, above what was held before it.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import torch

from intrigue import __version__


def machine(device: torch.device) -> dict[str, object]:
    """What the figures were taken on."""
    cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device)
        if cuda
        else f"{platform.machine()}, {torch.get_num_threads()} threads",
        "intrigue": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_bytes(work: Callable[[], object], device: torch.device) -> int | None:
    """Bytes above the level before; None where the system does not tell."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    try:
        RESET.write_text("5")  # Linux: the peak of resident memory starts again from where it is
        before = _resident("VmRSS")
        work()
        return max(0, _resident("VmHWM") - before)
    except OSError:
        return None


def _resident(field: str, status: Path = STATUS) -> int:
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def resident_peak() -> int:
    """The highest resident memory, in bytes, of this process and of the children it has now; 0 where unknown."""
    try:
        tasks = Path("/proc/self/task").iterdir()
        children = [pid for task in tasks for pid in (task / "children").read_text().split()]
        return sum(_resident("VmHWM", Path(f"/proc/{pid}/status")) for pid in ("self", *children))
    except (OSError, StopIteration):
        return 0
