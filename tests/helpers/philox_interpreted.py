"""Run as a script: the kernel of `intrigue.ops.philox` on a CPU, through Triton's interpreter.

    python philox_interpreted.py GIVEN FOUND    {name: (states, shape, normal)} in, {name: (numbers, states after)} out

A process of its own, because Triton decides at import whether it interprets.
"""

from __future__ import annotations

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch

from intrigue.ops.philox_kernel import draw


def main() -> None:
    found = {}
    for name, (states, shape, normal) in torch.load(sys.argv[1]).items():
        out = torch.full((len(states), *shape), torch.nan, dtype=torch.float32 if normal else torch.float64)
        draw(states, out, normal)
        found[name] = (out, states)
    torch.save(found, sys.argv[2])


if __name__ == "__main__":
    main()
