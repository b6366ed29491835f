"""Run as a script: the Adam kernels on a CPU, through Triton's interpreter; writes the results to a file.

A process of its own, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch

from adam_cases import CASES, by_kernels, idle_step, stacked_steps


def main(file: str) -> None:
    torch.set_num_threads(1)
    found = {name: by_kernels(case, "cpu") for name, case in CASES.items()}
    stacks = {seeds: stacked_steps(seeds, capturable=True) for seeds in (1, 3)}
    torch.save({"cases": found, "stacks": stacks, "idle": idle_step(capturable=True)}, file)


if __name__ == "__main__":
    main(sys.argv[1])
