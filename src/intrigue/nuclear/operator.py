"""The custom operators `intrigue::nuclear` and `intrigue::nuclear_gathered`, opaque to torch.compile and graph capture.

    nuclear(z, form, center, method)                             (..., n, m) -> (...,)
    nuclear_gathered(query, table, index, form, center, method)  (B, m), (M, m), (B, k) -> (B,)

Matrices that are not finite yield NaN, and only those. Values are float64 for float64 input, float32 otherwise. There
is no gradient. The Triton path never waits for the device. Under vmap all matrices go through one call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from intrigue.nuclear.dispatch import resolve_method
from intrigue.nuclear.inputs import Center, Form, Gathered, gathered_layout, stack_layout
from intrigue.nuclear.native import native_norms
from intrigue.nuclear.reference import Norms, reference_norms, shift
from intrigue.ops.custom_op import batch_leading, move_batch_first, register_operator


def result_dtype(entries: torch.dtype) -> torch.dtype:
    """The dtype of the values for this dtype of entries."""
    return torch.float64 if entries == torch.float64 else torch.float32


def _nuclear(z: Tensor, form: Form, center: Center, method: str) -> Tensor:
    n, m = z.shape[-2:]
    method = resolve_method(method, z.device, z.dtype, n, m)
    if method == "triton":
        from intrigue.nuclear import triton_path  # Triton is optional, and slow to import.

        return triton_path.triton_values(stack_layout(z), form, center).reshape(z.shape[:-2])
    if method == "native":
        norms = native_norms(stack_layout(_at_least_float32(z)), center)
    else:
        norms = reference_norms(z.reshape(-1, n, m), center, by_svd=method == "svd")
    return _apply_form(norms, form, n, m).to(result_dtype(z.dtype)).reshape(z.shape[:-2])


def _nuclear_gathered(query: Tensor, table: Tensor, index: Tensor, form: Form, center: Center, method: str) -> Tensor:
    rows = Gathered(query, table, index)
    n, m = index.shape[1] + 1, query.shape[1]
    method = resolve_method(method, query.device, query.dtype, n, m)
    if method == "triton" and n <= m:
        from intrigue.nuclear import triton_path

        return triton_path.triton_values(gathered_layout(rows), form, center)
    if method == "native":
        layout = gathered_layout(Gathered(_at_least_float32(query), _at_least_float32(table), index))
        return _apply_form(native_norms(layout, center), form, n, m).to(result_dtype(query.dtype))
    # With fewer columns than rows the copy is small, and so is what a fused gather could save.
    return _nuclear(rows.matrices(), form, center, method)


def _at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _apply_form(norms: Norms, form: Form, n: int, m: int) -> Tensor:
    """The value of each matrix, float64."""
    if form == "norm":
        return shift(norms.ratio * norms.frobenius, norms.exponent)
    if form == "score":
        longest: float = max(n, m) ** 0.5
        return norms.ratio / longest
    if form == "ratio":
        return norms.ratio
    highest: float = min(n, m) ** 0.5
    # With one row or one column both bounds of the ratio are 1; the product keeps NaN.
    return norms.ratio * 0.0 if highest == 1.0 else (norms.ratio - 1.0).clamp_min(0.0) / (highest - 1.0)


def _fake_nuclear(z: Tensor, *_: str) -> Tensor:
    return z.new_empty(z.shape[:-2], dtype=result_dtype(z.dtype))


def _fake_nuclear_gathered(query: Tensor, *_: Any) -> Tensor:
    return query.new_empty(query.shape[:1], dtype=result_dtype(query.dtype))


def _vmap_gathered(
    operator: Any, size: int, axes: tuple[int | None, ...], query: Tensor, table: Tensor, index: Tensor, *options: str
) -> tuple[Tensor, int]:
    """The S tables become one, one after the other; the indices into table s begin at s·M."""
    queries, tables, places = move_batch_first((query, table, index), axes[:3], size)
    if axes[1] is None:
        tables = table
    else:
        begin = torch.arange(size, device=index.device) * tables.shape[1]
        places, tables = places + begin[:, None, None], tables.flatten(0, 1)
    values: Tensor = operator(queries.flatten(0, 1), tables, places.flatten(0, 1), *options)
    return values.unflatten(0, (size, -1)), 0


NUCLEAR = register_operator(
    "nuclear(Tensor z, str form, str center, str method) -> Tensor", _nuclear, _fake_nuclear, vmap=batch_leading
)
NUCLEAR_GATHERED = register_operator(
    "nuclear_gathered(Tensor query, Tensor table, Tensor index, str form, str center, str method) -> Tensor",
    _nuclear_gathered, _fake_nuclear_gathered, vmap=_vmap_gathered,
)  # fmt: skip
