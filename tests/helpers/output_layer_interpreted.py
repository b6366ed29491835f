"""Run as a script: the kernels of `intrigue::output_layer` on a CPU, through Triton's interpreter.

    python output_layer_interpreted.py FOUND    {name: {what: tensor}} of every case, again, of layers, of NaN, and how
                                                often kernels were called

A process of its own, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import os
import sys
from unittest import mock

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch import nn

from intrigue.ops import output_layer_kernels
from intrigue.ops.matmul import EnsembleLinear
from intrigue.ops.output_layer import OUTPUT_LAYER, ensemble_hidden_then_output, hidden_then_output
from output_layer_cases import CASES, computed, random_case


def by_layers():
    """Layers on leading axes and layers of ensembles, with kernels and without."""
    torch.manual_seed(0)
    hidden, output, x = nn.Linear(6, 64), nn.Linear(64, 3), torch.randn(2, 5, 6)
    first, second = EnsembleLinear(2, 6, 64), EnsembleLinear(2, 64, 1)
    for each in (first.bias, second.bias):
        nn.init.normal_(each)
    ways = {
        "layers": (hidden_then_output(hidden, output, x), output(hidden(x).relu()), (hidden, output)),
        "members": (ensemble_hidden_then_output(first, second, x[0]), second(first(x[0]).relu()), (first, second)),
    }
    found = {}
    for name, (y, plain, layers) in ways.items():
        weights = [weight for layer in layers for weight in layer.parameters()]
        pair = [torch.autograd.grad(each.square().sum(), weights) for each in (y, plain)]
        found[name] = {"y": y.detach(), "plain": plain.detach(), "gradients": pair[0], "plain gradients": pair[1]}
    return found


def with_nan_and_infinity():
    """y and ∂p where p has NaN or infinity."""
    (p, *rest), _, _ = random_case(3, 32, 2, seed=2)
    p[0, 5], p[1, 7] = float("nan"), float("inf")
    p.requires_grad_()
    y = OUTPUT_LAYER(p, *rest)
    return {"y": y.detach(), "p": torch.autograd.grad(y.sum(), p)[0]}


def main(file: str) -> None:
    torch.set_num_threads(1)
    # Counts launches: the fallback without kernels gives the same numbers.
    forward, backward = (
        mock.patch.object(output_layer_kernels, name, wraps=getattr(output_layer_kernels, name)).start()
        for name in ("forward", "backward")
    )
    found = {name: computed(case) for name, case in CASES.items()}
    again = {name: computed(case) for name, case in CASES.items() if name in ("130 1024 6 low", "mapped all")}
    results = {"cases": found, "again": again, "calls": (forward.call_count, backward.call_count)}
    forward.reset_mock()
    backward.reset_mock()
    results["layers"] = by_layers()
    results["calls of layers"] = (forward.call_count, backward.call_count)
    torch.save({**results, "nan": with_nan_and_infinity()}, file)


if __name__ == "__main__":
    main(sys.argv[1])
