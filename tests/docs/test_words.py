"""Docstrings, comments and pages avoid phrases that must be read twice; the glossary of CONTRIBUTING.md stays short."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from page_blocks import PAGES, ROOT

BANNED = {
    "nobody": "the process, function or reader that is meant, or the passive",
    "somebody": "the process, function or reader that is meant",
    "hang on": "depend on",
    "hangs on": "depends on",
    "what is no": "the thing itself, for example `pointwise operations`",
    "in vain": "without success, or what was missing",
    "a word from": "synchronisation with",
    "taken up again": "resumed",
    "matrix units": "tensor cores",
    "without a trace": "without changing, and what it does not change",
}
PHRASES = {phrase: re.compile(rf"\b{phrase}\b".replace(" ", r"\s+"), re.IGNORECASE) for phrase in BANNED}
GLOSSARY = "## Glossary"
MOST_WORDS = 40

CONTRIBUTING = ROOT / "CONTRIBUTING.md"


def comments_of(source: str) -> Iterator[tuple[int, str]]:
    """Comments with the line each begins at; those on consecutive lines are one text, as a phrase may wrap."""
    first, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if lines and token.start[0] != first + len(lines):
            yield first, "\n".join(lines)
            lines = []
        if not lines:
            first = token.start[0]
        lines.append(token.string.lstrip("#"))
    if lines:
        yield first, "\n".join(lines)


def docstrings_of(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings, those below attributes too, with the line each begins at."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def glossary_rows(page: str) -> list[tuple[int, list[str]]]:
    """Rows of the glossary's table, each with its line: what to say, what not to say, the meaning."""
    lines = page.splitlines()
    found: list[tuple[int, list[str]]] = []
    for number in range(lines.index(GLOSSARY) + 1, len(lines)):
        if lines[number].startswith("#"):
            break
        if lines[number].startswith("|"):
            found.append((number + 1, [cell.strip() for cell in lines[number].strip().strip("|").split("|")]))
    return found[2:]  # without the head and the rule below it


def without_column_of_avoided_words(page: str) -> str:
    lines = page.splitlines()
    for number, cells in glossary_rows(page):
        lines[number - 1] = " | ".join([cells[0], *cells[2:]])
    return "\n".join(lines)


def complaints(name: str, texts: Iterator[tuple[int, str]]) -> list[str]:
    return [
        f'{name}, line {first + text.count(chr(10), 0, hit.start())}: "{phrase}"; say instead: {BANNED[phrase]}'
        for first, text in texts
        for phrase, pattern in PHRASES.items()
        for hit in pattern.finditer(text)
    ]


def test_docstrings_and_comments_use_plain_words() -> None:
    found: list[str] = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        source, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
        found += complaints(name, docstrings_of(source)) + complaints(name, comments_of(source))
    assert not found, "\n".join(found)


def test_pages_use_plain_words() -> None:
    found: list[str] = []
    for path in (*PAGES, CONTRIBUTING):
        text = path.read_text(encoding="utf-8")
        if path == CONTRIBUTING:
            text = without_column_of_avoided_words(text)
        found += complaints(path.relative_to(ROOT).as_posix(), iter([(1, text)]))
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""Rows.\n\nThe order hangs\non the seed.\n"""\n', 3),
        ("x = 1  # one that nobody reads\n", 1),
        ("# One\n# is taken up\n# again.\nx = 1\n", 2),
        ("class A:\n    x: int = 1\n    '''Looked for in vain.'''\n", 3),
    ],
)
def test_a_phrase_is_found_with_its_line(source: str, line: int) -> None:
    found = complaints("a.py", docstrings_of(source)) + complaints("a.py", comments_of(source))
    assert len(found) == 1
    assert f"line {line}:" in found[0]
    assert "say instead" in found[0]


def test_names_and_strings_of_code_are_not_searched() -> None:
    source = 'nobody = "in vain"\nraise SystemExit("somebody")  # ends without a traceback\n'
    assert not complaints("a.py", docstrings_of(source)) + complaints("a.py", comments_of(source))


def test_the_glossary_is_short_and_names_each_word_once() -> None:
    rows = [cells for _, cells in glossary_rows(CONTRIBUTING.read_text(encoding="utf-8"))]
    assert 0 < len(rows) <= MOST_WORDS, f"the glossary has {len(rows)} rows; keep at most {MOST_WORDS}"
    assert all(len(cells) == 3 and cells[0] for cells in rows), "a row is: say, not that, meaning"
    words = [cells[0] for cells in rows]
    assert len(set(words)) == len(words), "a word stands twice"
