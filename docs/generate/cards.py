"""Fidelity cards: what a reward's file says of itself, as a Markdown page. Knows no torch.

A reward's module docstring has a fixed structure, so that every card answers the same questions:

    Title of the method (Authors year, arXiv:number, section).     title and source
    <indented blocks and prose>                                    equations, symbols
    Variants:                                                      what each named variant computes
    Differs from the paper: …                                      and from the official code
    Cost: …                                                        extra forward passes, memory

Settings, their sources and the citations are read from the rest of the file; which spaces it serves is handed in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from intrigue.api import read_citation
from intrigue.config.schema import describe_type
from intrigue.registry import Declaration

LABELS = ("Variants", "Differs from the paper", "Differs from the official code", "Cost")
_LABEL = re.compile(rf"(?:^|(?<=[.:] ))({'|'.join(LABELS)}):", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One paragraph, or one indented block kept as it stands."""

    kind: Literal["prose", "shown"]
    text: str


@dataclass(frozen=True)
class Card:
    """A docstring taken apart: what stands before the first label, and what stands under each."""

    title: str
    source: str
    opening: tuple[Block, ...]
    sections: Mapping[str, tuple[Block, ...]]

    def equations(self) -> list[str]:
        """The indented blocks, less the list of variants and the lists of symbols."""
        blocks = [*self.opening, *self.sections.get("Variants", ())[1:]]
        return [block.text for block in blocks if block.kind == "shown" and not symbols(block.text)]

    def variants(self) -> dict[str, str]:
        """What each named variant does, from the lines `name   text` of the block right under `Variants:`."""
        blocks = self.sections.get("Variants", ())
        found: dict[str, str] = {}
        for line in blocks[0].text.splitlines() if blocks and blocks[0].kind == "shown" else ():
            if not line.startswith(" "):
                name, _, text = line.partition(" ")
                found[name] = text.strip()
            elif found:
                found[name] += f" {line.strip()}"
        return found


def read_card(docstring: str) -> Card:
    """The parts of a docstring."""
    first, _, rest = docstring.partition("\n")
    named = re.fullmatch(r"(.*?)(?: \((.*)\))?\.?", first.strip())
    assert named is not None
    places = list(_LABEL.finditer(rest))
    ends = [*(place.start() for place in places[1:]), len(rest)] if places else []
    sections = {
        place.group(1): tuple(_blocks(rest[place.end() : end])) for place, end in zip(places, ends, strict=True)
    }
    opening = rest[: places[0].start()] if places else rest
    return Card(named.group(1), named.group(2) or "", tuple(_blocks(opening)), sections)


def symbols(shown: str) -> list[str]:
    """The entries of an indented list `symbol: meaning.  symbol: meaning.`; empty for any other block."""
    # Three spaces in a row are columns: an equation with its remarks, or a small table.
    if "`" not in shown or re.search(r"\S {3,}", shown) or not re.match(r"[^:\n]{1,60}: ", shown):
        return []
    pieces = re.split(r"(?<=[.;])(?:\n| {2,})(?=[^:\n]{1,60}: )", shown)
    return [" ".join(piece.split()) for piece in pieces]


def variants_of(declared: Declaration) -> tuple[str, ...]:
    """The named variants a reward's settings offer."""
    return get_args(declared.hints().get("variant"))


def files_of(declared: Mapping[str, Declaration]) -> dict[str, list[Declaration]]:
    """The registrations of each file, by the name of the file; one file is one card."""
    grouped: dict[str, list[Declaration]] = {}
    for name in sorted(declared):
        grouped.setdefault(Path(declared[name].origin).stem, []).append(declared[name])
    return grouped


def card_page(registered: Sequence[Declaration], spaces: str, pages: Sequence[str]) -> str:
    """The Markdown page of one reward file; `spaces` is its section on what it serves, `pages` are the other cards."""
    declared = registered[0]
    card = read_card(declared.docstring)
    names = " · ".join(_name_and_defaults(each) for each in registered)
    lines = [f"# {card.title}", "", f"{names}{' · ' + prose(card.source, pages) if card.source else ''}", ""]
    lines += _rendered(card.opening, pages)
    sections = dict(card.sections)
    if card.variants():
        default = declared.default("variant") if variants_of(declared) else ""
        rows = [
            (f"`{name}`{' (default)' if name == default else ''}", prose(text, pages))
            for name, text in card.variants().items()
        ]
        lines += ["## Variants", "", *table(("variant", "what it computes"), rows), ""]
        lines += _rendered(sections.pop("Variants")[1:], pages)
    lines += ["## Differences and cost", ""] if sections else []
    for label, blocks in sections.items():
        # A label that runs into its sentence keeps the sentence as its author wrote it.
        first, *rest = _rendered(blocks, pages) or [""]
        lines += [f"**{label}:** {first}", *rest]
    lines += ["## Spaces", "", spaces, ""]
    lines += ["## Settings", "", *_settings(declared, pages), ""]
    if text := read_citation(declared):
        lines += ["## Citation", "", f"Printed by `intrigue list rewards --cite {declared.name}`.", ""]
        lines += ["```text", text, "```", ""]
    return "\n".join(lines)


def prose(text: str, pages: Sequence[str] = ()) -> str:
    """A docstring's sentence as Markdown: marks escaped, papers and other pages linked."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else _linked(_escaped(piece), pages) for piece in pieces)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]


def _blocks(text: str) -> list[Block]:
    found: list[Block] = []
    for paragraph in re.split(r"\n\s*\n", text.strip("\n")):
        for shown, lines in _runs(paragraph.splitlines()):
            if shown:
                # Blank lines between indented lines are part of what is shown.
                kept = "\n".join(line[4:] if line.startswith("    ") else line for line in lines)
                found.append(Block("shown", kept))
            elif words := " ".join(line.strip() for line in lines).strip():
                found.append(Block("prose", words))
    return found


def _runs(lines: Sequence[str]) -> list[tuple[bool, list[str]]]:
    """Neighbouring lines of one kind together: indented, or not."""
    runs: list[tuple[bool, list[str]]] = []
    for line in lines:
        shown = line.startswith("    ")
        if runs and runs[-1][0] == shown:
            runs[-1][1].append(line)
        else:
            runs.append((shown, [line]))
    return runs


def _rendered(blocks: Sequence[Block], pages: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for block in blocks:
        if block.kind == "prose":
            lines += [prose(block.text, pages), ""]
        elif entries := symbols(block.text):
            lines += [*(f"- {prose(entry, pages)}" for entry in entries), ""]
        else:
            lines += ["```text", block.text, "```", ""]
    return lines


def _settings(declared: Declaration, pages: Sequence[str]) -> list[str]:
    hints = declared.hints()
    if not hints:
        return ["None."]
    rows = [
        (f"`{key}`", f"`{declared.default(key)}`", _accepted(hint), prose(declared.notes.get(key, ""), pages))
        for key, hint in hints.items()
    ]
    first = next(iter(hints))
    how = f"On the command line `--reward.{first.replace('_', '-')} VALUE`, in Python `{first}=VALUE`."
    return [how, "", *table(("setting", "default", "accepted", "meaning and source"), rows)]


def _accepted(hint: Any) -> str:
    words = {"int": "whole number", "float": "number", "str": "text", "bool": "true or false", ">=": "≥", "<=": "≤"}
    return " ".join(words.get(word, word) for word in describe_type(hint).replace("|", ", ").split())


def _name_and_defaults(declared: Declaration) -> str:
    own = ", ".join(f"`{key}={value!r}`" for key, value in declared.defaults.items())
    return f"`{declared.name}`{f' with {own}' if own else ''}"


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_\[\]<])", r"\\\1", text)


def _linked(text: str, pages: Sequence[str]) -> str:
    text = re.sub(r"\barXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)
    text = re.sub(r"\bdocs/([a-z-]+\.md)", r"[the guide](../\1)", text)

    def to_card(found: re.Match[str]) -> str:
        page = found.group(1).replace("\\_", "_")
        return f"[{found.group(1)}]({page}.md)" if page in pages else found.group(0)

    return re.sub(r"\bintrigue\.rewards\.((?:\w|\\_)+)", to_card, text)
