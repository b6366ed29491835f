"""A mode of torch in which every operation that would make a GPU's host wait, or upload numbers, is an error.

    with NoSync():
        ...                     # on any device: what counts is which operations are called

Operators of our own are seen from outside: how they are computed differs between devices.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
# The host has to know a value, or how many there are of something.
WAITING = {
    aten._local_scalar_dense,
    aten.item,
    aten.is_nonzero,
    aten.equal,
    aten.nonzero,
    aten.argwhere,
    aten.masked_select,
    aten.bincount,
    aten.histc,
    aten._unique2,
    aten.unique_dim,
    aten.unique_consecutive,
    aten._linalg_check_errors,
    aten._assert_async,
}
# A tensor made from numbers of the host has to be uploaded; a captured graph would keep the first ones for ever.
UPLOADING = {aten.lift_fresh, aten.lift_fresh_copy}
# What reads a tensor of the CPU without an operation.
READING = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu, torch.Tensor.__array__}
INDEXING = {aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_, aten._unsafe_index}


class WouldWait(AssertionError):
    """What was called would wait for the device."""


class _NoReading(TorchFunctionMode):
    """Sees what is called before it becomes operations."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in READING:
            raise WouldWait(f"{func} reads from the device")
        return func(*args, **(kwargs or {}))


class NoSync(TorchDispatchMode):
    """Raises `WouldWait` at the first operation that waits or uploads."""

    def __enter__(self) -> NoSync:
        self._reading = _NoReading()
        self._reading.__enter__()
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        self._reading.__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        packet = func.overloadpacket
        if packet in WAITING:
            raise WouldWait(f"{func} waits for the device")
        if packet in UPLOADING:
            raise WouldWait(f"{func} uploads numbers of the host")
        if packet in INDEXING:
            masks = [each for each in args[1] if each is not None and each.dtype in (torch.bool, torch.uint8)]
            if masks:
                raise WouldWait(f"{func} with a mask waits to know how many rows it has")
        if packet is aten.repeat_interleave and kwargs.get("output_size") is None:
            raise WouldWait(f"{func} without output_size waits to know how many rows it gives")
        return func(*args, **kwargs)
