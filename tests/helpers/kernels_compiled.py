"""Run as a script: compiles every Triton kernel for GPUs of these kinds, none of which has to be present.

    python kernels_compiled.py KINDS CASES FOUND    90,86 and "all" or "each" in; as JSON out: "compiled", [{kind, case,
                                                    module, kernel, shared, spilled}, …], and "refused", {kind and
                                                    case: why}

"each" is every kernel at least once, at the sizes that need most registers and memory of those quick to compile.

Calls our own launchers with CPU tensors and turns every launch into a compilation. The interpreter tests show that
kernels compute the right values, but accept much that the compiler does not. A process of its own, because Triton has
one driver at a time.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from intrigue.nuclear import triton_path
from intrigue.nuclear.inputs import stack_layout
from intrigue.ops import first_layer_kernels, output_layer_kernels, philox_kernel, tf32x3_kernel, topk_kernel
from intrigue.ops.adam import AdamScalars, adam_step, precompute_scalars

BATCH = 1024  # as in URLB
LOW = torch.bfloat16


class Absent:
    """A driver of an absent GPU: enough to compile for it, not to launch."""

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def get_current_device(self) -> int:
        return self.kind  # under which Triton keeps what it compiled

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self.kind, 32)


def first_layer(width_in: int, width_out: int, *, exact: bool, low: bool) -> None:
    x, weight, each = torch.zeros(BATCH, width_in), torch.zeros(width_out, width_in), torch.zeros(width_out)
    type_ = LOW if low else torch.float32
    first_layer_kernels.forward(x, weight, each, each, each, 1e-5, exact, type_)
    dy = torch.zeros(BATCH, width_out, dtype=type_)
    first_layer_kernels.backward(dy, x, weight, each, each, each, 1e-5, exact, not exact)


def output_layer(width: int, outputs: int, *, low: bool) -> None:
    p, weight = torch.zeros(BATCH, width, dtype=LOW if low else torch.float32), torch.zeros(outputs, width)
    output_layer_kernels.forward(p, torch.zeros(width), weight, torch.zeros(outputs))
    output_layer_kernels.backward(torch.zeros(BATCH, outputs), p, torch.zeros(width), weight, True)


def adam() -> None:
    several = [[torch.zeros(4097), torch.zeros(7)] for _ in range(4)]
    steps, scalars = [torch.zeros(()), torch.zeros(())], AdamScalars.zeros(2, torch.device("cpu"))
    losses, counts = torch.zeros(3), torch.zeros(3)
    precompute_scalars(scalars, steps, torch.tensor(1e-4), betas=(0.9, 0.999), losses=losses, nonfinite_counts=counts)
    adam_step(*several, steps, scalars, places=[0, 1], betas=(0.9, 0.999), eps=1e-8)


def split() -> None:
    rows = torch.zeros(BATCH, 512)
    tf32x3_kernel.split(rows, rows, torch.zeros(BATCH))


def philox() -> None:
    states = torch.zeros(1, 2, dtype=torch.int64)
    philox_kernel.draw(states, torch.zeros(1, BATCH, 6), True)
    philox_kernel.draw(states, torch.zeros(1, BATCH, dtype=torch.float64), False)


def nuclear(*shape: int, center: str = "none") -> None:
    triton_path.triton_values(stack_layout(torch.zeros(shape)), "ratio", center)


# Sizes of URLB's networks, the widest supported, which need most of a GPU, and others that use fewer warps.
CASES = {
    "first layer 30 to 1024": lambda: first_layer(30, 1024, exact=False, low=True),
    "first layer 128 to 1024": lambda: first_layer(128, 1024, exact=False, low=False),
    "first layer 24 to 512, exact": lambda: first_layer(24, 512, exact=True, low=False),
    "first layer 1 to 32": lambda: first_layer(1, 32, exact=True, low=False),
    "output layer 1024 to 1": lambda: output_layer(1024, 1, low=True),
    "output layer 1024 to 15": lambda: output_layer(1024, 15, low=True),
    "output layer 256 to 15": lambda: output_layer(256, 15, low=False),
    "output layer 128 to 6": lambda: output_layer(128, 6, low=True),
    "output layer 32 to 6": lambda: output_layer(32, 6, low=False),
    "bottom 12 of 1024": lambda: topk_kernel.bottom_k(torch.zeros(4, BATCH), 12),
    "split": split,
    "philox": philox,
    "adam": adam,
    "nuclear 5 x 512": lambda: nuclear(BATCH, 5, 512),
    "nuclear 12 x 512": lambda: nuclear(BATCH, 12, 512, center="first"),
    "nuclear 32 x 40": lambda: nuclear(8, 32, 40, center="mean"),
}

# Not in "each": other sizes of the same kernels, which take two thirds of the time.
OTHER_SIZES = (" 128 to 1024", " 24 to 512, exact", " 1024 to 1", " 256 to 15", " 128 to 6", " 32 to 6", " 32 x 40")


def spilled(kernel, kind: int) -> int:
    """Bytes per lane that did not fit into registers, as reported by NVIDIA's assembler."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_text(kernel.asm["ptx"])
        suffix = "a" if kind >= 90 else ""
        assembler = knobs.nvidia.ptxas_blackwell if kind >= 100 else knobs.nvidia.ptxas
        command = [assembler.path, "-v", f"--gpu-name=sm_{kind}{suffix}", str(source), "-o", str(Path(folder, "out"))]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return max(int(number) for number in re.findall(r"(\d+) bytes spill stores", done.stderr))


def main(kinds: str, cases: str, file: str) -> None:
    found, refused, at = [], {}, {}
    run = JITFunction.run

    def compile_only(kernel, *given, grid, warmup, **options):
        made = run(kernel, *given, grid=grid, warmup=True, **options)
        named = {"module": kernel.__module__, "kernel": kernel.__name__}
        found.append({**at, **named, "shared": made.metadata.shared, "spilled": spilled(made, at["kind"])})
        return made

    JITFunction.run = compile_only
    with tempfile.TemporaryDirectory() as cache, knobs.cache.scope():
        knobs.cache.dir = cache  # so that something is compiled
        for kind in map(int, kinds.split(",")):
            driver.set_active(Absent(kind))
            for case, launch in CASES.items():
                if cases == "each" and case.endswith(OTHER_SIZES):
                    continue
                at.update(kind=kind, case=case)
                try:
                    launch()
                except Exception as error:  # any compiler error; the other cases still run
                    refused[f"{kind} {case}"] = f"{type(error).__name__}: {error}"
    Path(file).write_text(json.dumps({"compiled": found, "refused": refused}))


if __name__ == "__main__":
    main(*sys.argv[1:])
