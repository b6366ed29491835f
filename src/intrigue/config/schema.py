"""Values against the types of configuration fields: from JSON or from the command line, every problem collected.

Accepted field types: bool, int, float, str, `Literal` of strings, `tuple[X, ...]`, each optionally with limits
(`intrigue.fields`).
"""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from intrigue.errors import Problem, nearest, unknown_name
from intrigue.fields import Limits


def fields_of(config: type[Any], namespace: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Field names and types of a configuration dataclass, limits included."""
    hints = typing.get_type_hints(config, globalns=dict(namespace) if namespace else None, include_extras=True)
    return {each.name: hints[each.name] for each in dataclasses.fields(config)}


def check_fields(
    fields: Mapping[str, Any], values: Mapping[str, Any], section: str, hint: str = ""
) -> tuple[dict[str, Any], list[Problem]]:
    """The values converted to their fields' types, and the problems of the others; `hint` follows unknown names."""
    good: dict[str, Any] = {}
    wrong: list[Problem] = []
    for name, value in values.items():
        path = f"{section}.{name}" if section else name
        if name not in fields:
            wrong.append(Problem(path, unknown_name(name, fields, hint)))
            continue
        try:
            good[name] = convert(fields[name], value)
        except ValueError as error:
            wrong.append(Problem(path, str(error)))
    return good, wrong


def convert(hint: Any, value: Any) -> Any:
    """The value converted to the type; text is parsed as typed on the command line. Raises ValueError."""
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *extras = get_args(hint)
        result = convert(inner, value)
        for limits in extras:
            if isinstance(limits, Limits) and not limits.holds(result):
                raise ValueError(f"{quote(value)} is out of range; it must be {limits}.")
        return result
    if origin is Literal:
        return _choice(get_args(hint), value)
    if origin in (Union, types.UnionType):
        return _optional(get_args(hint), value)
    if origin is tuple:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple):
            raise ValueError(f"{quote(value)} is not a list. Write values separated by commas.")
        return tuple(convert(get_args(hint)[0], part) for part in parts)
    return _plain(hint, value)


def describe_type(hint: Any) -> str:
    """The type as help texts print it."""
    origin = get_origin(hint)
    if origin is Annotated:
        inner, *extras = get_args(hint)
        limits = ", ".join(str(each) for each in extras if isinstance(each, Limits))
        return f"{describe_type(inner)} {limits}".strip()
    if origin is Literal:
        return "|".join(str(choice) for choice in get_args(hint))
    if origin in (Union, types.UnionType):
        return " or ".join(describe_type(part) for part in get_args(hint))
    if origin is tuple:
        return f"{describe_type(get_args(hint)[0])},..."
    return {type(None): "none"}.get(hint, getattr(hint, "__name__", str(hint)))


def quote(value: Any) -> str:
    """The value as an error message quotes it: short, and without control characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    if value in choices and not isinstance(value, bool):
        return value
    near = nearest(str(value), [str(choice) for choice in choices])
    guess = f" Did you mean {near!r}?" if near else ""
    raise ValueError(f"{quote(value)} is not a choice.{guess} Choices: {', '.join(map(str, choices))}.")


def _optional(parts: tuple[Any, ...], value: Any) -> Any:
    if type(None) in parts and (value is None or value == "none"):
        return None
    (inner,) = [part for part in parts if part is not type(None)]
    return convert(inner, value)


def _plain(hint: Any, value: Any) -> Any:
    text = value.strip().replace("_", "") if isinstance(value, str) and hint in (int, float) else value
    if hint is bool:
        known = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in known:
            return known[value.lower()]
        raise ValueError(f"{quote(value)} is not a truth value. Write true or false.")
    if hint is int:
        number = _number(text)
        # 1e6 and 1_000_000 are how people write large counts.
        if number is None or number != math.floor(number):
            raise ValueError(f"{quote(value)} is not a whole number.")
        return int(text) if isinstance(text, str) and text.lstrip("+-").isdigit() else int(number)
    if hint is float:
        number = _number(text)
        if number is None:
            raise ValueError(f"{quote(value)} is not a finite number.")
        return float(number)
    if hint is str and isinstance(value, str):
        return value
    raise ValueError(f"{quote(value)} is not of type {describe_type(hint)}.")


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
