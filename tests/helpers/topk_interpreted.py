"""Run as a script: the kernel of `intrigue::bottom_k` on a CPU, through Triton's interpreter.

    python topk_interpreted.py GIVEN FOUND    tables {name: (values, k)} in, {name: columns} out

A process of its own, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch

from intrigue.ops.topk_kernel import bottom_k


def main() -> None:
    torch.set_num_threads(1)
    given = torch.load(sys.argv[1])
    torch.save({name: bottom_k(values, k) for name, (values, k) in given.items()}, sys.argv[2])


if __name__ == "__main__":
    main()
