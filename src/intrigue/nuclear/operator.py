"""The custom operators `intrigue::nuclear` and `intrigue::nuclear_gathered`, opaque to torch.compile and graph capture.

    nuclear(z, form, center, method)                             (..., n, m) -> (...,)
    nuclear_gathered(query, table, index, form, center, method)  (B, m), (M, m), (B, k) -> (B,)

A matrix that is not finite yields NaN, and nothing else does. Values are float64 for float64 input, float32 otherwise.
No gradient is defined. The Triton path never waits for the device. Under torch's vmap all matrices go through one call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, library

from intrigue.nuclear import native, reference
from intrigue.nuclear.dispatch import resolve_method
from intrigue.nuclear.inputs import Center, Form, Gathered, gathered_source, stack_source
from intrigue.nuclear.reference import Norms, shift

_LIBRARY = library.Library("intrigue", "FRAGMENT")
_LIBRARY.define("nuclear(Tensor z, str form, str center, str method) -> Tensor")
_LIBRARY.define(
    "nuclear_gathered(Tensor query, Tensor table, Tensor index, str form, str center, str method) -> Tensor"
)


def result_dtype(given: torch.dtype) -> torch.dtype:
    """The type of the values for this type of entries."""
    return torch.float64 if given == torch.float64 else torch.float32


def _nuclear(z: Tensor, form: Form, center: Center, method: str) -> Tensor:
    n, m = z.shape[-2:]
    method = resolve_method(method, z.device, z.dtype, n, m)
    if method == "triton":
        from intrigue.nuclear import triton_path  # Triton is optional, and slow to import.

        return triton_path.norms(stack_source(z), form, center).reshape(z.shape[:-2])
    if method == "native":
        found = native.norms(stack_source(_widened(z)), center)
    else:
        found = reference.norms(z.reshape(-1, n, m), center, by_svd=method == "svd")
    return _formed(found, form, n, m).to(result_dtype(z.dtype)).reshape(z.shape[:-2])


def _nuclear_gathered(query: Tensor, table: Tensor, index: Tensor, form: Form, center: Center, method: str) -> Tensor:
    rows = Gathered(query, table, index)
    n, m = index.shape[1] + 1, query.shape[1]
    method = resolve_method(method, query.device, query.dtype, n, m)
    if method == "triton" and n <= m:
        from intrigue.nuclear import triton_path

        return triton_path.norms(gathered_source(rows), form, center)
    if method == "native":
        found = native.norms(gathered_source(Gathered(_widened(query), _widened(table), index)), center)
        return _formed(found, form, n, m).to(result_dtype(query.dtype))
    # With fewer columns than rows the copy is small, and so is what a fused gather could save.
    return _nuclear(rows.matrices(), form, center, method)


def _widened(x: Tensor) -> Tensor:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _formed(found: Norms, form: Form, n: int, m: int) -> Tensor:
    """The value of each matrix, float64."""
    if form == "norm":
        return shift(found.ratio * found.frobenius, found.exponent)
    if form == "score":
        longest: float = max(n, m) ** 0.5
        return found.ratio / longest
    if form == "ratio":
        return found.ratio
    highest: float = min(n, m) ** 0.5
    # One row or one column has no room between its bounds; the product keeps NaN.
    return found.ratio * 0.0 if highest == 1.0 else (found.ratio - 1.0).clamp_min(0.0) / (highest - 1.0)


def _fake_nuclear(z: Tensor, form: str, center: str, method: str) -> Tensor:
    del form, center, method
    return z.new_empty(z.shape[:-2], dtype=result_dtype(z.dtype))


def _fake_nuclear_gathered(query: Tensor, table: Tensor, index: Tensor, form: str, center: str, method: str) -> Tensor:
    del table, index, form, center, method
    return query.new_empty(query.shape[:1], dtype=result_dtype(query.dtype))


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("nuclear", _nuclear, _device)
    _LIBRARY.impl("nuclear_gathered", _nuclear_gathered, _device)
library.register_fake("intrigue::nuclear", _fake_nuclear, lib=_LIBRARY)
library.register_fake("intrigue::nuclear_gathered", _fake_nuclear_gathered, lib=_LIBRARY)

NUCLEAR = torch.ops.intrigue.nuclear.default
NUCLEAR_GATHERED = torch.ops.intrigue.nuclear_gathered.default


def _vmap_nuclear(
    info: Any, in_dims: tuple[int | None, ...], z: Tensor, form: str, center: str, method: str
) -> tuple[Tensor, int]:
    """The axis of the map is one more batch axis."""
    values: Tensor = NUCLEAR(_leading(z, in_dims[0], info.batch_size), form, center, method)
    return values, 0


def _vmap_nuclear_gathered(
    info: Any,
    in_dims: tuple[int | None, ...],
    query: Tensor,
    table: Tensor,
    index: Tensor,
    form: str,
    center: str,
    method: str,
) -> tuple[Tensor, int]:
    """One table of all S tables, one after the other; the indices into table s begin at s·M."""
    size: int = info.batch_size
    tables, places = table, _leading(index, in_dims[2], size)  # (S, B, k)
    if in_dims[1] is not None:
        tables = _leading(table, in_dims[1], size)
        begin = torch.arange(size, device=index.device) * tables.shape[1]
        places, tables = places + begin[:, None, None], tables.flatten(0, 1)
    queries = _leading(query, in_dims[0], size)
    values: Tensor = NUCLEAR_GATHERED(queries.flatten(0, 1), tables, places.flatten(0, 1), form, center, method)
    return values.unflatten(0, (size, -1)), 0


def _leading(x: Tensor, dim: int | None, size: int) -> Tensor:
    """The mapped axis first; what is the same for all is shown to all."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


library.register_vmap("intrigue::nuclear", _vmap_nuclear, lib=_LIBRARY)
library.register_vmap("intrigue::nuclear_gathered", _vmap_nuclear_gathered, lib=_LIBRARY)
