"""Run as a script: the kernels of `intrigue::first_layer` on a CPU, through Triton's interpreter.

    python first_layer_interpreted.py FOUND    {name: {what: tensor}} of every case, and of a module

A process of its own, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import os
import sys
from unittest import mock

os.environ["TRITON_INTERPRET"] = "1"

import torch

from first_layer_cases import CASES, computed
from intrigue.ops import first_layer_kernels
from intrigue.ops.first_layer import FirstLayer


def by_module():
    """The module on leading axes and the layers it is made of, with gradients."""
    torch.manual_seed(0)
    layer, x = FirstLayer(6, 64), torch.randn(2, 5, 6)
    y, plain = layer(x), torch.nn.Sequential(*layer)(x)
    weights = list(layer.parameters())
    found = {"y": y.detach(), "plain y": plain.detach()}
    for name, each in (("gradient", y), ("plain gradient", plain)):
        gradients = torch.autograd.grad(each.square().sum(), weights)
        found[name] = torch.cat([gradient.flatten() for gradient in gradients])
    return found


def main(file: str) -> None:
    torch.set_num_threads(1)
    # Counts launches: the fallback without kernels gives the same numbers.
    spies = [
        mock.patch.object(first_layer_kernels, name, wraps=getattr(first_layer_kernels, name)).start()
        for name in ("forward", "backward")
    ]
    found = {name: computed(case) for name, case in CASES.items()}
    again = {name: computed(case) for name, case in CASES.items() if name in ("100 24 512", "mapped all")}
    torch.save(
        {"cases": found, "again": again, "calls": [each.call_count for each in spies], "module": by_module()}, file
    )


if __name__ == "__main__":
    main(sys.argv[1])
