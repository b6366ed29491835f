"""JSON with one encoding per value: sorted keys, ASCII, and non-finite floats as `{"$float": "nan" | "inf" | "-inf"}`.

Equal trees give equal bytes, so that bytes can be hashed; what is read back is equal to what was written (lists for
tuples, keys in sorted order).
"""

from __future__ import annotations

import json
import math
from typing import Any

from intrigue.errors import CheckpointError

FLOAT_MARK = "$float"
NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(tree: Any, *, indent: int | None = None) -> bytes:
    """The tree as canonical JSON; `indent` for files a person reads.

    Raises:
        TypeError: a value or key JSON cannot carry.
    """
    separators = (",", ":") if indent is None else (",", ": ")
    return json.dumps(
        _encode_floats(tree), sort_keys=True, allow_nan=False, indent=indent, separators=separators
    ).encode()


def decode(content: bytes, name: str) -> Any:
    """The tree that `encode` wrote.

    Raises:
        CheckpointError: not JSON, or nested beyond reason; the message starts with `name`.
    """
    try:
        return json.loads(content, object_pairs_hook=_decode_object, parse_constant=_refuse)
    except RecursionError as error:
        raise CheckpointError(f"{name} is nested too deeply") from error
    except ValueError as error:
        raise CheckpointError(f"{name} is not valid JSON: {error}") from error


def _encode_floats(tree: Any) -> Any:
    if isinstance(tree, float) and not math.isfinite(tree):
        return {FLOAT_MARK: repr(float(tree))}
    if isinstance(tree, dict):
        for key in tree:
            if not isinstance(key, str) or key == FLOAT_MARK:
                raise TypeError(f"key {key!r} must be a string other than {FLOAT_MARK!r}")
        return {key: _encode_floats(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_encode_floats(value) for value in tree]
    return tree


def _decode_object(pairs: list[tuple[str, Any]]) -> Any:
    tree = dict(pairs)
    if len(tree) != len(pairs):
        raise ValueError("a key stands twice in one object")
    if FLOAT_MARK not in tree:
        return tree
    spelling = tree[FLOAT_MARK]
    if len(tree) != 1 or not isinstance(spelling, str) or spelling not in NON_FINITE:
        raise ValueError(f"{FLOAT_MARK} must stand alone with one of {', '.join(NON_FINITE)}")
    return NON_FINITE[spelling]


def _refuse(constant: str) -> Any:
    raise ValueError(f"the bare constant {constant} is not JSON")
