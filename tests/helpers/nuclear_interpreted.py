"""Run as a script: the Triton kernels on a CPU, through Triton's interpreter; writes their values as JSON.

A process of its own, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import json
import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch

from intrigue.nuclear import Gathered, nuclear_norm, nuclear_ratio
from nuclear_cases import CASES, CENTERED, GATHERED, RANDOM, gathered_rows, random_matrices


def by_kernels(function, z, *center):
    return function(z, *center, method="triton", on_nonfinite="propagate").flatten().tolist()


def main() -> None:
    torch.set_num_threads(1)
    found: dict[str, dict[str, list[list[float]]]] = {"cases": {}, "centered": {}, "random": {}, "gathered": {}}
    for name, (z, _, _) in CASES.items():
        found["cases"][name] = [by_kernels(nuclear_norm, z), by_kernels(nuclear_ratio, z)]
    for name, (z, _, _) in CENTERED.items():
        found["centered"][name] = [by_kernels(nuclear_norm, z, "mean"), by_kernels(nuclear_norm, z, "first")]
    for name in RANDOM:
        z, center = random_matrices(name)
        found["random"][name] = [by_kernels(nuclear_norm, z, center)]
    for name in GATHERED:
        rows, center = gathered_rows(name)
        assert isinstance(rows, Gathered)
        found["gathered"][name] = [by_kernels(nuclear_norm, rows, center)]
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main()
