"""A bonus composed of others: the tree behind an expression, its canonical text and its range. Knows no torch.

    0.5*nnm + rnd                             weighted sum
    episodic*clip(rnd_alpha, 1, 5)            product, one factor held between limits
    schedule(rnd, 1, 0, 100000) + nnmc        a weight that moves from 1 to 0 over 100,000 agent steps
    gate(rnd, nnmc, 0.1)                      rnd where nnmc is above 0.1, else 0

`make_sum` and `make_product` build the canonical form (numbers folded, nested sums and products flattened), so that two
ways of writing one bonus give one text. `intrigue.config.reward_expression` parses text; `intrigue.rewards.mix`
evaluates the tree.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

WHOLE_LIMIT = 1e15  # whole numbers up to here are exact in a float and written without a point


@dataclass(frozen=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True)
class Leaf:
    """A registered reward with the options given to it, in the order of its fields."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Sum:
    """All parts added; a number comes last."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Product:
    """All parts multiplied; a number comes first."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Clip:
    """The part, at least `low` and at most `high`."""

    part: Node
    low: float
    high: float


@dataclass(frozen=True)
class Schedule:
    """The part times a weight that goes linearly from `start` to `end` over `steps` agent steps, then stays."""

    part: Node
    start: float
    end: float
    steps: int


@dataclass(frozen=True)
class Gate:
    """The part where `by` is above `above`, zero elsewhere."""

    part: Node
    by: Node
    above: float


Node: TypeAlias = Number | Leaf | Sum | Product | Clip | Schedule | Gate


def make_sum(parts: Sequence[Node]) -> Node:
    """The sum of the parts in canonical form."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, Sum) else (part,))]
    constant = sum(part.value for part in flat if isinstance(part, Number))
    kept: list[Node] = [part for part in flat if not isinstance(part, Number)]
    kept += [Number(constant)] if constant != 0 or not kept else []
    return kept[0] if len(kept) == 1 else Sum(tuple(kept))


def make_product(parts: Sequence[Node]) -> Node:
    """The product of the parts in canonical form."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, Product) else (part,))]
    weight = math.prod(part.value for part in flat if isinstance(part, Number))
    kept: list[Node] = [part for part in flat if not isinstance(part, Number)]
    kept = [Number(weight), *kept] if weight != 1 or not kept else kept
    return kept[0] if len(kept) == 1 else Product(tuple(kept))


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right below."""
    match node:
        case Number() | Leaf():
            return ()
        case Sum(parts) | Product(parts):
            return parts
        case Gate(part, by):
            return part, by
        case Clip(part) | Schedule(part):
            return (part,)


def walk(node: Node) -> Iterator[Node]:
    """Every node of the tree, from left to right, a node before its children."""
    yield node
    for child in children(node):
        yield from walk(child)


def leaves(node: Node) -> list[Leaf]:
    """The rewards in the tree, each once, in order of appearance."""
    return list(dict.fromkeys(each for each in walk(node) if isinstance(each, Leaf)))


def schedules(node: Node) -> list[Schedule]:
    """The schedules in the tree, each once, in order of appearance."""
    return list(dict.fromkeys(each for each in walk(node) if isinstance(each, Schedule)))


def labels(names: Sequence[str]) -> list[str]:
    """A distinct label for each name: the name itself, then name_2, name_3, in order."""
    taken: list[str] = []
    for name in names:
        label, count = name, 1
        while label in taken:
            count += 1
            label = f"{name}_{count}"
        taken.append(label)
    return taken


def to_text(node: Node) -> str:
    """The canonical text, which reads back as the same tree."""
    match node:
        case Number(value):
            return number_text(value)
        case Leaf(name, options):
            inside = ", ".join(f"{key}={literal_text(value)}" for key, value in options)
            # A dash would read as a minus; names may be written with underscores instead.
            return f"{name.replace('-', '_')}({inside})" if inside else name.replace("-", "_")
        case Sum(parts):
            first, *rest = map(to_text, parts)
            return first + "".join(f" - {each[1:]}" if each.startswith("-") else f" + {each}" for each in rest)
        case Product((Number(-1.0), *rest)):
            return "-" + "*".join(_factor(each) for each in rest)
        case Product(parts):
            return "*".join(map(_factor, parts))
        case Clip(part, low, high):
            return f"clip({to_text(part)}, {number_text(low)}, {number_text(high)})"
        case Schedule(part, start, end, steps):
            return f"schedule({to_text(part)}, {number_text(start)}, {number_text(end)}, {steps})"
        case Gate(part, by, above):
            return f"gate({to_text(part)}, {to_text(by)}, {number_text(above)})"


def number_text(value: float) -> str:
    """The shortest text of a number: 1, 0.5, 1e-05."""
    return str(int(value)) if value == int(value) and abs(value) < WHOLE_LIMIT else repr(float(value))


def literal_text(value: Any) -> str:
    """An option's value as an expression writes it."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        return f"({', '.join(map(literal_text, value))}{',' if len(value) == 1 else ''})"
    return number_text(value) if isinstance(value, float) else repr(value)


def bounds(node: Node, signed: Mapping[Leaf, bool]) -> tuple[float, float]:
    """The least and the largest value the tree can take, given which rewards may be negative."""
    match node:
        case Number(value):
            return value, value
        case Leaf():
            return (-math.inf if signed[node] else 0.0), math.inf
        case Sum(parts):
            lows, highs = zip(*(bounds(part, signed) for part in parts), strict=True)
            return sum(lows), sum(highs)
        case Product(parts):
            low, high = 1.0, 1.0
            for part in parts:
                low, high = _interval_product((low, high), bounds(part, signed))
            return low, high
        case Clip(part, low, high):
            inner = bounds(part, signed)
            return min(max(inner[0], low), high), min(max(inner[1], low), high)
        case Schedule(part, start, end):
            return _interval_product(bounds(part, signed), (min(start, end), max(start, end)))
        case Gate(part):
            inner = bounds(part, signed)
            return min(0.0, inner[0]), max(0.0, inner[1])


def _interval_product(one: tuple[float, float], two: tuple[float, float]) -> tuple[float, float]:
    # Zero times an end that is open to infinity is zero here: no bonus is infinite.
    corners = [0.0 if 0 in (a, b) else a * b for a in one for b in two]
    return min(corners), max(corners)


def _factor(node: Node) -> str:
    return f"({to_text(node)})" if isinstance(node, Sum) else to_text(node)
