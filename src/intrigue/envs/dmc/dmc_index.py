"""dm_control's named arrays, with what their names mean looked up once.

A task reads its state by name at every step, `physics.named.data.xmat[1:, ["xx", "xz"]]`. Turning such names into
places is a fifth of a step, physics included (walker, by a profile); they never change while a model lives.
"""

from __future__ import annotations

from typing import Any, final

Place = Any
"""What NumPy takes as an index."""


def remember_names(physics: Any) -> None:
    """Let every named array of this physics remember the places it has looked up."""
    for group in (physics.named.data, physics.named.model):
        for array in group._asdict().values():
            array._axes = type(array._axes)(*(axis and _Remembering(axis) for axis in array._axes))


@final
class _Remembering:
    """An axis of a named array that remembers where names lie; anything but names is passed on."""

    def __init__(self, axis: Any) -> None:
        self._axis = axis
        self._known: dict[Any, Place] = {}

    def convert_key_item(self, item: Any) -> Place:
        """Where these names lie."""
        key: str | tuple[str, ...]
        if isinstance(item, str):
            key = item
        elif isinstance(item, list) and item and all(isinstance(name, str) for name in item):
            key = tuple(item)
        else:
            return self._axis.convert_key_item(item)
        if key not in self._known:
            self._known[key] = self._axis.convert_key_item(item)
        return self._known[key]

    @property
    def names(self) -> Any:
        """The names of the axis."""
        return self._axis.names
