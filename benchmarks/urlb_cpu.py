"""Milliseconds of one URLB update on a CPU: six of our presets in turns, beside the matrix products they cannot avoid.

    make bench-urlb

Walker's sizes: states of 24 numbers, 6 actions, batches of 1024, layers of 1024, 2 torch threads, wide products in
bfloat16 where the CPU has instructions for it (`--products`). A replay is filled by two episodes of random steps; an
update is all of it: draw, bonus with its learning, critic, actor, target. Turns go round the presets, with a product
of two 1024 x 1024 matrices after each, so that what else the machine does falls on all alike; the first turns are not
counted. Figures are medians over turns.

    floor     the update's floating-point operations in matrix products (torch counts them) at the rate of that product,
              which is in float32: what wide layers multiply in bfloat16 can fall below it
    URLB      its update with the arithmetic of its code (`urlb_peer`), in the same turns, without its loading of data
    noted     its own code's, loading included, measured by us on two cores of such a machine on another day (torch
              2.13, median of 3): 744 of APT's 1,030 ms were the search of neighbours

The load of the machine before and after is in the file: above the number of threads, others were at work as well, and
the times are theirs too. Processor time (`cpu`), with `--threads 1`, then still tells an update from its floor.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import urlb_peer
from torch.utils.flop_counter import FlopCounterMode

from intrigue.bench.machine import machine
from intrigue.bench.off_policy_engines import engine_of
from intrigue.bench.train_off_policy import fill
from intrigue.config.run import resolve
from intrigue.ops.precision import resolve_matmul_dtype, set_matmul_dtype
from intrigue.presets import preset_layer
from intrigue.training.build import build
from intrigue.training.off_policy import ReplayParts

PRESETS = ("scratch-urlb", "disagreement-urlb", "apt-urlb", "nnm-urlb", "nnmc-urlb", "nnm-ensemble-urlb")
NOTED = {"scratch-urlb": 256.0, "disagreement-urlb": 289.0, "apt-urlb": 1030.0}  # ms, as above
WANTED, BESIDE_APT = 0.7, 1.1  # of URLB's time as noted, and of NNM's to APT's
THEIRS = "URLB's "
THREADS, SIZE, SETTLING = 2, 1024, 2
PRODUCT_GFLOP = 2 * SIZE**3 / 1e9
CAPACITY = 10_000  # a replay that holds more is not slower to draw from

Work = Callable[[], object]


class Times(NamedTuple):
    """Milliseconds, by the clock on the wall and of processors (all threads')."""

    wall: float
    cpu: float


def parts_of(preset: str) -> ReplayParts:
    """The preset as it is, its replay filled."""
    setting = {"device": "cpu", "agent.capacity": CAPACITY}
    parts = build(resolve(preset_layer(preset), setting))
    assert isinstance(parts, ReplayParts)
    fill(parts)
    return parts


def measure(updates: Mapping[str, Work], turns: int) -> tuple[dict[str, list[Times]], list[Times]]:
    """What every update took, and every matrix product, in turns."""
    left, right = torch.randn(2, SIZE, SIZE)
    taken: dict[str, list[Times]] = {name: [] for name in updates}
    products: list[Times] = []
    for turn in range(SETTLING + turns):
        for name, update in updates.items():
            whole, product = timed(update), timed(lambda: left @ right)
            if turn >= SETTLING:
                taken[name].append(whole)
                products.append(product)
        sys.stderr.write(f"\rturn {turn + 1} of {SETTLING + turns}")
    sys.stderr.write("\n")
    return taken, products


def timed(work: Work) -> Times:
    """What one call took."""
    began, processor = time.perf_counter(), time.process_time()
    work()
    return Times(1e3 * (time.perf_counter() - began), 1e3 * (time.process_time() - processor))


def medians(taken: list[Times]) -> Times:
    """The median of each kind of time."""
    return Times(*(statistics.median(each) for each in zip(*taken, strict=True)))


def gflop(work: Work) -> float:
    """Floating-point operations of its matrix products, in 1e9."""
    with FlopCounterMode(display=False) as counter:
        work()
    return float(counter.get_total_flops()) / 1e9


def row(name: str, taken: list[Times], operations: float, product: Times, theirs: list[Times] | None) -> dict[str, Any]:
    """One preset's figures."""
    median, products = medians(taken), operations / PRODUCT_GFLOP
    peer = medians(theirs) if theirs is not None else None
    return {
        "preset": name,
        "milliseconds": median.wall,
        "best_milliseconds": min(each.wall for each in taken),
        "cpu_milliseconds": median.cpu,
        "gflop": operations,
        "floor_milliseconds": products * product.wall,
        "ratio_to_floor": median.wall / (products * product.wall),
        "cpu_ratio_to_floor": median.cpu / (products * product.cpu),
        "urlb_milliseconds": peer.wall if peer else None,
        "urlb_cpu_milliseconds": peer.cpu if peer else None,
        "ratio_to_urlb": median.wall / peer.wall if peer else None,
        "cpu_ratio_to_urlb": median.cpu / peer.cpu if peer else None,
        "urlb_noted_milliseconds": NOTED.get(name),
        "turns": [each.wall for each in taken],
    }


HEADER = ("ms", "best", "cpu", "GFLOP", "floor", "x floor", "by cpu", "URLB", "x URLB", "by cpu", "noted")


def line(found: dict[str, Any]) -> str:
    """A row of the table."""
    theirs = ""
    if found["ratio_to_urlb"] is not None:
        theirs = f"{found['urlb_milliseconds']:>9,.0f}{found['ratio_to_urlb']:>9.2f}{found['cpu_ratio_to_urlb']:>9.2f}"
        theirs += f"{found['urlb_noted_milliseconds']:>9,.0f}"
    return (
        f"{found['preset']:<20}{found['milliseconds']:>9,.0f}{found['best_milliseconds']:>9,.0f}"
        f"{found['cpu_milliseconds']:>9,.0f}{found['gflop']:>9.1f}{found['floor_milliseconds']:>9,.0f}"
        f"{found['ratio_to_floor']:>9.2f}{found['cpu_ratio_to_floor']:>9.2f}{theirs}\n"
    )


def verdicts(rows: list[dict[str, Any]], threads: int) -> str:
    """What was wanted, and whether it holds; what was noted is of two threads."""
    mine = {each["preset"]: each["milliseconds"] for each in rows}
    beside = mine["nnm-urlb"] / mine["apt-urlb"]
    told = [(f"{each['preset']} / URLB", each["ratio_to_urlb"], WANTED) for each in rows if each["ratio_to_urlb"]]
    told += [
        (f"{name} / URLB as noted", mine[name] / theirs, WANTED) for name, theirs in NOTED.items() if threads == THREADS
    ]
    return "".join(
        f"{what}: {ratio:.2f} (wanted at most {most}: {'holds' if ratio <= most else 'SHORT'})\n"
        for what, ratio, most in [*told, ("nnm-urlb / apt-urlb", beside, BESIDE_APT)]
    )


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--threads", type=int, default=THREADS)
    parser.add_argument("--products", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    products = resolve_matmul_dtype(args.products, torch.device("cpu"))
    parts = {preset: parts_of(preset) for preset in PRESETS}
    try:
        updates = {name: engine_of([each]).update for name, each in parts.items()}
        set_matmul_dtype("float32")  # torch does not count within an operator of our own
        operations = {name: gflop(update) for name, update in updates.items()}
        set_matmul_dtype(products)
        theirs = {THEIRS + name: update for name, update in urlb_peer.updates().items()}
        before = os.getloadavg()[0]
        taken, large = measure({**updates, **theirs}, args.turns)
        after = os.getloadavg()[0]
    finally:
        for each in parts.values():
            each.close()
    product = medians(large)
    rate = 1e3 * PRODUCT_GFLOP / product.wall
    rows = [row(name, taken[name], operations[name], product, taken.get(THEIRS + name)) for name in PRESETS]
    sys.stdout.write(" " * 20 + "".join(f"{each:>9}" for each in HEADER) + "\n" + "".join(map(line, rows)))
    sys.stdout.write(
        f"{SIZE} x {SIZE} x {SIZE}: {rate:.0f} GFLOP/s, {args.threads} threads; wide products "
        f"in {products}; load {before:.1f} before, {after:.1f} after\n{verdicts(rows, args.threads)}"
    )
    if args.json:
        about = {**machine(torch.device("cpu")), "products": products, "load_before": before, "load_after": after}
        ceiling = {
            "size": SIZE,
            "gflop_per_second": rate,
            "milliseconds": product.wall,
            "cpu_milliseconds": product.cpu,
        }
        args.json.write_text(json.dumps({"about": about, "product": ceiling, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
