"""The Triton path: which kernels run for which sizes, and their launch. No host synchronisation anywhere.

    Gram kernel  ->  (B, D (D + 1) / 2)  ->  tridiagonal kernel  ->  (D, B) twice  ->  spectrum kernel  ->  values

D = min(n, m) ≤ 32. Intermediate results stay in the GPU's second-level cache.
"""

from __future__ import annotations

from typing import Literal

import torch
import triton
from torch import Tensor

from intrigue.nuclear import gram_kernels, spectrum_kernels
from intrigue.nuclear.inputs import Center, Form, MatrixLayout

LARGEST_SMALL = 8  # gram_small needs 36 float64 accumulators per lane here; with 9 lines registers spill

# Halvings of [0, 1] per singular value: 1.5e-11 is far below float32's rounding, 2e-16 is float64's.
STEPS = 36
STEPS_DOUBLE = 52

FORM_CODES: dict[Form, int] = {
    "ratio": spectrum_kernels.FORM_RATIO,
    "score": spectrum_kernels.FORM_SCORE,
    "norm": spectrum_kernels.FORM_NORM,
    "floor": spectrum_kernels.FORM_FLOOR,
}
CENTER_CODES: dict[tuple[Center, Literal["rows", "columns"]], int] = {
    ("none", "rows"): gram_kernels.CENTER_NONE,
    ("none", "columns"): gram_kernels.CENTER_NONE,
    ("mean", "rows"): gram_kernels.CENTER_MEAN_LINE,
    ("mean", "columns"): gram_kernels.CENTER_MEAN_ENTRY,
    ("first", "rows"): gram_kernels.CENTER_FIRST_LINE,
    ("first", "columns"): gram_kernels.CENTER_FIRST_ENTRY,
}


def triton_values(layout: MatrixLayout, form: Form, center: Center) -> Tensor:
    """The value of each matrix, (B,): float64 for float64 input, float32 otherwise."""
    side = min(layout.rows, layout.columns)
    if side > LARGEST_SMALL and layout.first.element_size() == 2:
        layout = layout.to_float32()
    dtype, device = layout.first.dtype, layout.first.device
    double = dtype == torch.float64
    out = torch.empty(layout.count, dtype=torch.float64 if double else torch.float32, device=device)
    if layout.count == 0:
        return out
    triangle = torch.empty(layout.count, side * (side + 1) // 2, dtype=torch.float64, device=device)
    exponents = torch.empty(layout.count if double else 0, dtype=torch.int32, device=device)
    _gram(layout, side, triangle, exponents, center, double)
    _spectrum(layout, side, triangle, exponents, out, form, double)
    return out


def _gram(layout: MatrixLayout, side: int, triangle: Tensor, exponents: Tensor, center: Center, double: bool) -> None:
    upright = layout.rows <= layout.columns
    outer, inner, line, entry, table = layout.strides
    long = layout.columns if upright else layout.rows
    if not upright:
        line, entry = entry, line
    mode = CENTER_CODES[center, "rows" if upright else "columns"]
    tensors = (layout.first, layout.table, layout.index, triangle, exponents, layout.inner, long)
    strides = (outer, inner, line, entry, table)
    options = {"center": mode, "gather": layout.gather, "double": double}
    grid = (layout.count,)
    if side <= LARGEST_SMALL:
        # 16 bytes per lane and line, fewer where a line is shorter than that or registers would spill.
        widest = 16 // layout.first.element_size() if side <= 5 else 4
        width = max(1, min(widest, triton.next_power_of_2(long) // 32))
        gram_kernels.gram_small[grid](*tensors, *strides, D=side, WIDTH=width, **options, num_warps=1)
        return
    tile = 16 if side <= 16 else 32
    block = max(16, min(64, triton.next_power_of_2(long)))
    warps = 1 if tile == 16 else 2
    gram_kernels.gram_tile[grid](*tensors, *strides, D=side, SIDE=tile, K=block, **options, num_warps=warps)


def _spectrum(
    layout: MatrixLayout, side: int, triangle: Tensor, exponents: Tensor, out: Tensor, form: Form, double: bool
) -> None:
    count, longest = layout.count, max(layout.rows, layout.columns)
    work = torch.empty(2 * side + 1, count, dtype=torch.float64, device=out.device)
    diagonal, squares, traces = work[:side], work[side : 2 * side], work[2 * side]
    tile, matrices = (8, 8) if side <= 8 else (16, 4) if side <= 16 else (32, 1)
    spectrum_kernels.tridiagonal[(triton.cdiv(count, matrices),)](
        triangle, diagonal, squares, traces, count, D=side, SIDE=tile, MATRICES=matrices, num_warps=1
    )
    matrices = 32 // tile
    spectrum_kernels.spectrum[(triton.cdiv(count, matrices),)](
        diagonal, squares, traces, exponents, out, count, longest,
        D=side, SIDE=tile, MATRICES=matrices, STEPS=STEPS_DOUBLE if double else STEPS,
        form=FORM_CODES[form], double=double, num_warps=1,
    )  # fmt: skip
