"""What the documentation tests read out of Markdown pages: fenced code blocks and marked tables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from places import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^\s*(`{3,}|~{3,})\s*(.*)$")


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its first line of content, counted from 1."""

    page: str
    line: int
    language: str
    text: str


def page_name(page: Path) -> str:
    """The page's path from the root of the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks_of(name: str, source: str) -> list[Block]:
    """Every fenced block of a page, in order. Raises ValueError for a fence that is never closed."""
    found: list[Block] = []
    opened: tuple[int, str, str] | None = None
    content: list[str] = []
    for number, line in enumerate(source.splitlines(), start=1):
        match = FENCE.match(line)
        if opened is None:
            if match:
                opened, content = (number + 1, match[1], match[2].strip()), []
        elif match and match[1].startswith(opened[1]) and not match[2]:
            found.append(Block(name, opened[0], opened[2], "\n".join(content) + "\n"))
            opened = None
        else:
            content.append(line)
    if opened is not None:
        raise ValueError(f"{name}, line {opened[0] - 1}: this fence is never closed")
    return found


def marked_tables(source: str, kind: str) -> dict[str, list[list[str]]]:
    """Rows (without heading) of each table that follows a comment `<!-- kind: name -->`, by name."""
    tables: dict[str, list[list[str]]] = {}
    lines = source.splitlines()
    for index, line in enumerate(lines):
        match = re.fullmatch(rf"<!-- {kind}: (\S+) -->", line.strip())
        if match:
            start = next(i for i in range(index + 1, len(lines)) if lines[i].startswith("|"))
            stop = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
            tables[match[1]] = [_cells(row) for row in lines[start + 2 : stop]]
    return tables


def _cells(row: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row.strip().strip("|"))]
