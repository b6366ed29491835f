"""What figures were taken on, as it stands in every file of them."""

from __future__ import annotations

import platform

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
