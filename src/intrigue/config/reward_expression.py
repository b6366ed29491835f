"""Expressions of rewards, `0.5*nnm + rnd`: text read into a tree, every name and option checked. Knows no torch.

    x  :=  number  |  reward  |  reward(option=literal, …)  |  x + x  |  x - x  |  x*x  |  -x  |  (x)
        |  clip(x, low, high)  |  schedule(x, start, end, steps)  |  gate(x, by, above)  |  sum(x, …)  |  product(x, …)

The text is parsed by Python's own grammar and then only walked, never run. All problems are reported at once, each with
the character at which it stands.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Mapping
from typing import Any

from intrigue.config.expression_tree import (
    Clip,
    Gate,
    Leaf,
    Node,
    Number,
    Schedule,
    leaves,
    make_product,
    make_sum,
    to_text,
)
from intrigue.config.schema import check_fields, quote
from intrigue.errors import ConfigError, Problem, unknown_name
from intrigue.registry import Declaration
from intrigue.rewards.registry import REWARDS

MIX = "mix"
"""The registered name of the reward that evaluates expressions."""
HINT = "Options of a part are written inside the expression: nnm(n=7)."

COMBINATORS = {
    "clip": ("x", "low", "high"),
    "schedule": ("x", "start", "end", "steps"),
    "gate": ("x", "by", "above"),
}
FOLDS = {"sum": make_sum, "product": make_product}
SHAPES = {**{name: f"{name}({', '.join(words)})" for name, words in COMBINATORS.items()}, "sum": "sum(x, …)"}
SHAPES["product"] = "product(x, …)"
ACCEPTED = f"Accepted: numbers, + - *, rewards as nnm or nnm(n=7), {', '.join(SHAPES.values())}."
LENGTH_LIMIT = 2000  # characters; ours: far more than one can read, far less than the parser's own limits
DEPTH_LIMIT = 50  # nested parentheses and signs; ours, for the same reason
WINDOW = 35  # characters of a long expression shown before and after the place of a problem
HOLE = Number(1.0)  # takes the place of a wrong part, so that parsing continues


def parse_reward(text: str) -> tuple[str, dict[str, Any]]:
    """A reward's name and options for what a person wrote: a name as it is, an expression as `mix` of it."""
    if text in REWARDS.declarations() or not _is_expression(text):
        return text, {}
    try:
        return MIX, {"expression": to_text(parse(text))}
    except ConfigError:
        return MIX, {"expression": text}  # reported with all other problems, by `find_problems`


def parse(text: str) -> Node:
    """The tree of an expression. Raises ConfigError with every problem."""
    reader = _Reader(text)
    if reader.problems:
        raise ConfigError([Problem("reward", message) for message in reader.problems])
    return reader.tree


def find_problems(text: str, num_envs: int = 1) -> list[str]:
    """Everything wrong with an expression, the rules of its rewards' own settings included."""
    reader = _Reader(text)
    if reader.problems:
        return reader.problems
    return [
        f"{to_text(leaf)}: {message}"
        for leaf in leaves(reader.tree)
        for config in [read_leaf_config(leaf)]
        if hasattr(config, "problems")
        for message in config.problems(num_envs)
    ]


def read_leaf_config(leaf: Leaf) -> Any:
    """The configuration of one part, as its file declares it."""
    declared = REWARDS.declaration(leaf.name)
    defaults = {name: declared.default(name) for name in declared.hints()}
    return declared.config(**{**defaults, **dict(leaf.options)})


def reward_names_in(reward: str, options: Mapping[str, Any]) -> list[str]:
    """The names of the rewards behind a name: those of the expression for `mix`, itself for any other."""
    return [leaf.name for leaf in leaves(parse(options["expression"]))] if reward == MIX else [reward]


class _Reader:
    """Parses one expression: its tree and its problems."""

    def __init__(self, text: str) -> None:
        self.text = _one_line(text)
        self._found: list[tuple[int, str]] = []
        self.known = REWARDS.declarations()
        self.tree: Node = HOLE
        body = self._syntax()
        if body is not None:
            self.tree = self._node(body, 0)
        if not self._found and not leaves(self.tree):
            self._wrong(1, f"no reward is named here. {ACCEPTED}")

    @property
    def problems(self) -> list[str]:
        """Every problem, from left to right."""
        return [f"{self._excerpt(where)}, character {where}: {message}" for where, message in sorted(self._found)]

    def _excerpt(self, where: int) -> str:
        """The text, or as much of it as shows the place."""
        first, last = max(0, where - WINDOW), where + WINDOW
        if len(self.text) <= 2 * WINDOW:
            return quote(self.text)
        return quote(("…" if first else "") + self.text[first:last] + ("…" if last < len(self.text) else ""))

    def _syntax(self) -> ast.expr | None:
        if len(self.text) > LENGTH_LIMIT:
            self._wrong(LENGTH_LIMIT, f"an expression has at most {LENGTH_LIMIT} characters, not {len(self.text)}.")
            return None
        try:
            return _python(self.text)
        except SyntaxError as error:
            place = error.offset or len(self.text) + 1  # no place: something is missing at the end
            self._wrong(place, f"not an expression: {error.msg.rstrip('.?!')}. {ACCEPTED}")
        except (ValueError, MemoryError, RecursionError) as error:
            self._wrong(1, f"not an expression: {error or 'nested too deeply'}. {ACCEPTED}")
        return None

    def _wrong(self, where: ast.AST | int, message: str) -> Node:
        if isinstance(where, ast.AST):
            # The parser counts bytes, people count characters.
            before = self.text.encode()[: getattr(where, "col_offset", 0)]
            where = len(before.decode(errors="ignore")) + 1
        self._found.append((where, message))
        return HOLE

    def _node(self, node: ast.expr, depth: int) -> Node:
        if depth > DEPTH_LIMIT:
            return self._wrong(node, f"more than {DEPTH_LIMIT} levels deep. Write it flatter.")
        match node:
            case ast.Constant():
                value = self._number(node)
                return HOLE if value is None else Number(value)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._node(operand, depth + 1)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return make_product([Number(-1.0), self._node(operand, depth + 1)])
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
                return self._chain(node, depth)
            case ast.BinOp(op=ast.Div()):
                return self._wrong(node.right, "rewards are not divided. Multiply by a number, as in 0.5*nnm.")
            case ast.Name(id=name):
                return self._leaf(node, name, [])
            case ast.Call(func=ast.Name(id=name)) if name in FOLDS:
                return self._fold(node, name, depth)
            case ast.Call(func=ast.Name(id=name)) if name in COMBINATORS:
                return self._combinator(node, name, depth)
            case ast.Call(func=ast.Name(id=name)):
                if node.args:
                    self._wrong(node.args[0], f"options of {name} are given by name, as in nnm(n=7).")
                return self._leaf(node, name, node.keywords)
            case _:
                piece = ast.get_source_segment(self.text, node) or ""
                return self._wrong(node, f"{quote(piece)} has no meaning here. {ACCEPTED}")

    def _chain(self, node: ast.BinOp, depth: int) -> Node:
        """A run of + and - or of *, however long, without going one level deeper for each."""
        kind = (ast.Mult,) if isinstance(node.op, ast.Mult) else (ast.Add, ast.Sub)
        parts: list[Node] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp) and isinstance(left.op, kind):
            right = self._node(left.right, depth + 1)
            parts.append(make_product([Number(-1.0), right]) if isinstance(left.op, ast.Sub) else right)
            left = left.left
        parts.append(self._node(left, depth + 1))
        parts.reverse()
        return self._finite(node, make_product(parts) if kind == (ast.Mult,) else make_sum(parts))

    def _finite(self, where: ast.AST, node: Node) -> Node:
        numbers = [part.value for part in (node, *getattr(node, "parts", ())) if isinstance(part, Number)]
        return node if all(map(math.isfinite, numbers)) else self._wrong(where, "the numbers here overflow.")

    def _fold(self, node: ast.Call, name: str, depth: int) -> Node:
        if node.keywords or not node.args:
            return self._wrong(node, f"{SHAPES[name]} takes one or more parts, without names.")
        return self._finite(node, FOLDS[name]([self._node(each, depth + 1) for each in node.args]))

    def _combinator(self, node: ast.Call, name: str, depth: int) -> Node:
        words = COMBINATORS[name]
        given: dict[str | None, ast.expr] = dict(zip(words, node.args, strict=False))
        repeated = any(word.arg in given for word in node.keywords)
        given.update({word.arg: word.value for word in node.keywords})
        if set(given) != set(words) or len(node.args) > len(words) or repeated:
            return self._wrong(node, f"write {SHAPES[name]}.")
        nodes = {word: self._node(given[word], depth + 1) for word in words if word in ("x", "by")}
        numbers = {word: self._number(given[word]) for word in words if word not in ("x", "by")}
        if any(value is None for value in numbers.values()):
            return HOLE
        values = [value for value in numbers.values() if value is not None]
        match name:
            case "clip":
                if values[0] > values[1]:
                    return self._wrong(given["low"], "low is above high.")
                return Clip(nodes["x"], *values)
            case "schedule":
                if values[2] < 1 or values[2] != int(values[2]):
                    return self._wrong(given["steps"], "steps is a whole number of agent steps, at least 1.")
                return Schedule(nodes["x"], values[0], values[1], int(values[2]))
            case _:
                return Gate(nodes["x"], nodes["by"], values[0])

    def _number(self, node: ast.expr) -> float | None:
        try:
            value = ast.literal_eval(node)
            if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(float(value)):
                return float(value)
        except (ValueError, TypeError, OverflowError):
            pass
        piece = ast.get_source_segment(self.text, node) or ""
        self._wrong(node, f"{quote(piece)} is not a finite number.")
        return None

    def _leaf(self, where: ast.expr, name: str, keywords: list[ast.keyword]) -> Node:
        if name in SHAPES:
            return self._wrong(where, f"write {SHAPES[name]}.")
        declared = self._declared(name)
        if declared is None:
            return self._wrong(where, unknown_name(name, [*self.known, *SHAPES], "See `intrigue list rewards`."))
        if declared.name == MIX:
            return self._wrong(where, f"{MIX!r} is this expression itself. Write its parts in parentheses.")
        given: dict[str, Any] = {}
        for word in keywords:
            if word.arg is None or word.arg in given:
                self._wrong(word.value, "each option is given once, by name, as in nnm(n=7).")
                continue
            try:
                given[word.arg] = ast.literal_eval(word.value)
            except (ValueError, TypeError):
                self._wrong(word.value, f"{name}.{word.arg} is a literal: a number, a text in quotes, True, a tuple.")
        hints = declared.hints()
        good, wrong = check_fields(hints, given, name)
        for problem in wrong:
            at = next(word for word in keywords if f"{name}.{word.arg}" == problem.path)
            self._wrong(at, str(problem))
        return Leaf(declared.name, tuple((key, good[key]) for key in hints if key in good))

    def _declared(self, name: str) -> Declaration | None:
        """A name with a dash is written with an underscore here, where a dash is a minus."""
        dashed = {known.replace("-", "_"): declared for known, declared in self.known.items()}
        return self.known.get(name) or dashed.get(name)


def _one_line(text: str) -> str:
    return re.sub(r"[\t\n\v\f\r]+", " ", text).strip()


def _python(text: str) -> ast.expr:
    with warnings.catch_warnings():
        # Python warns about odd literals ("\d"); here they are values like any other.
        warnings.simplefilter("ignore")
        return ast.parse(text, mode="eval").body


def _is_expression(text: str) -> bool:
    """Whether the text is meant as an expression rather than a name or a file."""
    if ".py" in text:
        return False
    try:
        body = _python(_one_line(text))
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return any(mark in text for mark in "+*()")
    return not isinstance(body, ast.Name | ast.Attribute | ast.Constant)
