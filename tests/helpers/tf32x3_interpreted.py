"""Run as a script: the kernel of `intrigue::pairwise_scores` on a CPU, through Triton's interpreter.

    python tf32x3_interpreted.py GIVEN FOUND    {name: (query, memory, norms)} in, {name: what is found} out

A process of its own, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch

from intrigue.ops import tf32x3


def main() -> None:
    torch.set_num_threads(1)
    tf32x3.MIN_SIZE = 1
    given = torch.load(sys.argv[1])
    assert all(tf32x3.uses_kernel(query, memory) for query, memory, _ in given.values())
    torch.save({name: tf32x3.pairwise_scores(*each) for name, each in given.items()}, sys.argv[2])


if __name__ == "__main__":
    main()
