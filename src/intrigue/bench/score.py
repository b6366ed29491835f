"""`intrigue bench score`: the nuclear norm against reading its input once, against torch, and against the exact SVD.

The ceiling is half the time of a copy of the input in the same run: a copy reads and writes every byte, a norm only
reads. Rivals are `torch.linalg.matrix_norm(z, "nuc")` and the float64 Gram matrix with `torch.linalg.eigvalsh`, written
as a user would. Where a rival takes seconds it is timed on fewer matrices and scaled up; `timed` says on how many.

Matrices on which nuclear norms are judged, easy and hard, by name.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from torch import Generator, Tensor

from intrigue.bench.machine import machine
from intrigue.bench.timing import captured, medians, seconds_once
from intrigue.nuclear import choose_method, nuclear_score
from intrigue.run.outputs import require_writable, write_text

Maker = Callable[[int, int, int, Generator], Tensor]


def well_conditioned(count: int, n: int, m: int, rng: Generator) -> Tensor:
    """Independent standard normal entries."""
    return torch.randn(count, n, m, generator=rng)


def nearly_equal_rows(spread: float) -> Maker:
    """Rows around a shared row of the same size, apart by s/c = `spread`."""

    def make(count: int, n: int, m: int, rng: Generator) -> Tensor:
        shared = torch.randn(count, 1, m, generator=rng, dtype=torch.float64)
        return (shared + spread * torch.randn(count, n, m, generator=rng, dtype=torch.float64)).float()

    return make


def repeated_spectrum(count: int, n: int, m: int, rng: Generator) -> Tensor:
    """All singular values equal."""
    basis = torch.linalg.qr(torch.randn(count, max(n, m), min(n, m), generator=rng, dtype=torch.float64)).Q
    rows: Tensor = basis if n >= m else basis.mT
    return rows.float()


def badly_scaled(count: int, n: int, m: int, rng: Generator) -> Tensor:
    """Rows over twelve decades, matrices over forty."""
    rows = 10 ** -torch.linspace(0, 12, n, dtype=torch.float64)[:, None]
    whole = 10 ** (40 * torch.rand(count, 1, 1, generator=rng, dtype=torch.float64) - 20)
    return (torch.randn(count, n, m, generator=rng, dtype=torch.float64) * rows * whole).float()


def rank_one(count: int, n: int, m: int, rng: Generator) -> Tensor:
    """Every row a multiple of one."""
    return torch.randn(count, n, 1, generator=rng) @ torch.randn(count, 1, m, generator=rng)


FAMILIES: dict[str, Maker] = {
    "well conditioned": well_conditioned,
    **{f"s/c 1e-{decade}": nearly_equal_rows(10.0**-decade) for decade in range(1, 7)},
    "repeated spectrum": repeated_spectrum,
    "badly scaled": badly_scaled,
    "rank one": rank_one,
}


def exact_score(z: Tensor) -> Tensor:
    """‖Z‖_*/(‖Z‖_F √max(n, m)) by float64 singular values, on the CPU."""
    wide = z.detach().cpu().double()
    frobenius = torch.linalg.vector_norm(wide, dim=(-2, -1))
    unit = wide / torch.where(frobenius > 0, frobenius, 1.0)[:, None, None]
    longest: float = max(z.shape[-2:]) ** 0.5
    values: Tensor = torch.linalg.svdvals(unit)
    return values.sum(-1) / longest


Shape = tuple[int, int, int]
# The shapes of issue-sized batches: Atari's ensemble of 5 × 512 and 5 × 128, URLB's 12 neighbours, and the widest.
SHAPES: dict[str, tuple[Shape, ...]] = {
    "cpu": ((2048, 5, 512), (2048, 5, 128), (1024, 12, 512), (1024, 12, 24), (128, 32, 512)),
    "cuda": ((16384, 5, 512), (16384, 5, 128), (1024, 12, 512), (16384, 12, 512), (16384, 32, 512)),
}
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
ALL_DTYPES_UP_TO = 12  # rows of the shapes on which every dtype is measured, at the batch that is measured first
MATRIX_NORM, EIGVALSH = "matrix_norm", "gram+eigvalsh"
ENTRIES_JUDGED = 1 << 20  # per family; the exact SVD is what takes the time
SLOW_MATRICES = {"cpu": 1 << 30, "cuda": 256}  # torch's SVD takes 0.3 ms per matrix on a GPU


@dataclass(frozen=True)
class Row:
    """One line of the table: a method on one shape and dtype."""

    matrices: int
    n: int
    m: int
    dtype: str
    method: str
    timed: int  # matrices in the timed call; `ms` is scaled to all of them
    first_s: float  # the first call of all, compilation included where nothing was cached
    ms: float
    graph_ms: float | None  # the same as replay of a CUDA graph
    read_ms: float  # half a copy of the input
    reads: float  # ms / read_ms
    over_matrix_norm: float | None  # how many times faster than it
    over_eigvalsh: float | None
    worst_error: float  # relative, over all families
    worst_family: str


def eigvalsh(z: Tensor) -> Tensor:
    """The score as two lines of torch give it: float64 Gram matrix, then its eigenvalues."""
    wide = z.double()
    values: Tensor = torch.linalg.eigvalsh(wide @ wide.mT).clamp_min(0)
    longest: float = max(z.shape[-2:]) ** 0.5
    return values.sqrt().sum(-1) / (values.sum(-1).sqrt() * longest)


def matrix_norm(z: Tensor) -> Tensor:
    """The score by torch's own norms."""
    longest: float = max(z.shape[-2:]) ** 0.5
    wide = z if z.dtype == torch.float64 else z.float()
    nuclear, frobenius = torch.linalg.matrix_norm(wide, "nuc"), torch.linalg.matrix_norm(wide)
    score: Tensor = nuclear / (frobenius * longest)
    return score


def rows(device: torch.device, shapes: Sequence[Shape], rounds: int, say: Callable[[str], object]) -> Iterator[Row]:
    """Every row of the table, shape by shape."""
    for place, shape in enumerate(shapes):
        every = place == 0 or (shape[1] == ALL_DTYPES_UP_TO and shape[0] <= 1024 and shape[2] > 24)
        for name in DTYPES if every else ("float32",):
            say(f"{shape[0]} matrices of {shape[1]} × {shape[2]}, {name} ...")
            yield from _rows_of(device, shape, name, rounds)


def _rows_of(device: torch.device, shape: Shape, dtype: str, rounds: int) -> Iterator[Row]:
    count, n, m = shape
    z = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(DTYPES[dtype]).to(device)
    copy = torch.empty_like(z)
    auto = choose_method(device, z.dtype, n, m)
    ours = [auto, "gram"] if dtype == "float32" and auto != "gram" else [auto]
    ways: dict[str, Callable[[Tensor], Tensor]] = {method: _ours(method) for method in ours}
    if dtype in ("float32", "float64"):
        ways |= {EIGVALSH: eigvalsh, MATRIX_NORM: matrix_norm}
    few = min(count, SLOW_MATRICES[device.type])
    timed = {name: few if name == MATRIX_NORM else count for name in ways}
    works: dict[str, Callable[[], object]] = {name: _bound(way, z[: timed[name]]) for name, way in ways.items()}
    first = {name: seconds_once(work, device) for name, work in works.items()}
    # torch's SVD on a GPU takes seconds; three rounds of it say enough.
    slow = {name: works.pop(name) for name in (MATRIX_NORM,) if name in works}
    works = {"copy": lambda: copy.copy_(z), **works}
    if auto == "triton":
        works["graph"] = captured(_bound(ways[auto], z))
    taken = medians(works, device, rounds) | medians(slow, device, min(rounds, 3 if device.type == "cuda" else rounds))
    spent = {name: taken[name] * count / timed[name] for name in ways}
    read = taken["copy"] / 2
    for name, way in ways.items():
        error, family = worst_error(way, device, n, m, DTYPES[dtype])
        yield Row(
            count, n, m, dtype, name, timed[name], first[name], spent[name],
            taken.get("graph") if name == "triton" else None, read, spent[name] / read,
            spent[MATRIX_NORM] / spent[name] if MATRIX_NORM in spent else None,
            spent[EIGVALSH] / spent[name] if EIGVALSH in spent else None,
            error, family,
        )  # fmt: skip


def worst_error(
    way: Callable[[Tensor], Tensor], device: torch.device, n: int, m: int, dtype: torch.dtype
) -> tuple[float, str]:
    """The largest relative error over every family of matrices, and the family it was met in."""
    found = []
    for name, (z, exact) in _judged(n, m, dtype).items():
        few = slice(0, 64 if way is matrix_norm and device.type == "cuda" else None)
        error = (way(z[few].to(device)).cpu().double() - exact[few]).abs() / exact[few]
        found.append((float(error.nan_to_num(torch.inf).max()) if len(z) else 0.0, name))
    return max(found)


@functools.lru_cache(maxsize=1)
def _judged(n: int, m: int, dtype: torch.dtype) -> dict[str, tuple[Tensor, Tensor]]:
    """Matrices of every family and their exact scores."""
    count = max(8, min(512, ENTRIES_JUDGED // (n * m * max(1, min(n, m) // 8))))
    judged = {}
    for name, make in FAMILIES.items():
        z = make(count, n, m, torch.Generator().manual_seed(1)).to(dtype)
        # Half types cannot hold the badly scaled rows; what became infinite or zero has no score to compare.
        size = z.double().abs().amax(dim=(-2, -1))
        z = z[(size > 0) & (size < torch.inf)]
        judged[name] = z, exact_score(z)
    return judged


def _ours(method: str) -> Callable[[Tensor], Tensor]:
    return lambda z: nuclear_score(z, method=method, on_nonfinite="propagate")


def _bound(way: Callable[[Tensor], Tensor], z: Tensor) -> Callable[[], Tensor]:
    return lambda: way(z)


def command(
    device: Annotated[Literal["auto", "cpu", "cuda"], tyro.conf.arg(help="where")] = "auto",
    rounds: Annotated[int, tyro.conf.arg(metavar="N", help="timed calls of each method, in turns")] = 25,
    small: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help="tiny batches, to try it out")] = False,
    json_file: Annotated[
        Path | None, tyro.conf.arg(name="json", metavar="FILE", help="write the table as JSON")
    ] = None,
    csv_file: Annotated[Path | None, tyro.conf.arg(name="csv", metavar="FILE", help="write the table as CSV")] = None,
) -> int:
    """Time and error of the nuclear norm over shapes, dtypes and methods.

    Each time stands beside the time of reading the input once, and beside torch's own ways; each error is the largest
    against a float64 SVD over ten kinds of matrices, from well conditioned to nearly equal rows (s/c = 1e-6).

    Examples:
      intrigue bench score
      intrigue bench score --device cuda --json score.json --csv score.csv
    """
    require_writable(json=json_file, csv=csv_file)
    chosen = torch.device("cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu"))
    shapes: Sequence[Shape] = SHAPES[chosen.type]
    if small:
        shapes = [(64, n, min(m, 64)) for _, n, m in shapes[:2]]
    table = []
    sys.stdout.write(HEADER)
    for row in rows(chosen, shapes, rounds, lambda text: sys.stderr.write(f"{text}\n")):
        table.append(row)
        sys.stdout.write(line(row))
        sys.stdout.flush()
    if json_file is not None:
        content = {"target": "score", **machine(chosen), "rows": [asdict(row) for row in table]}
        write_text(json_file, json.dumps(content, indent=1) + "\n")
    if csv_file is not None:
        lines = io.StringIO()
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow([field.name for field in fields(Row)])
        writer.writerows([_short(value) for value in asdict(row).values()] for row in table)
        write_text(csv_file, lines.getvalue())
    return 0


HEADER = (
    f"{'shape':<16}{'dtype':<10}{'method':<15}{'ms':>10}{'graph ms':>10}{'read ms':>9}{'reads':>9}"
    f"{'x norm':>9}{'x eigvalsh':>12}{'error':>9}  in\n"
)


def line(row: Row) -> str:
    """The row as text, under HEADER."""
    shape = f"{row.matrices}x{row.n}x{row.m}"
    graph = f"{row.graph_ms:.4f}" if row.graph_ms is not None else "-"
    norm, values = (f"{x:.1f}" if x is not None else "-" for x in (row.over_matrix_norm, row.over_eigvalsh))
    return (
        f"{shape:<16}{row.dtype:<10}{row.method:<15}{row.ms:>10.4f}{graph:>10}{row.read_ms:>9.4f}{row.reads:>9.1f}"
        f"{norm:>9}{values:>12}{row.worst_error:>9.1e}  {row.worst_family}\n"
    )


def _short(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
