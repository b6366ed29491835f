"""Numbers and foreign text as a reader sees them.

Text that comes from a run (names, paths, settings, errors) is foreign: the template escapes markup, and here every
character that does not print is spelled out, so that nothing can hide, reorder or break a line.
"""

from __future__ import annotations

import math

ABSENT = "–"
FIGURE_TEXT_LIMIT = 34  # characters of a name in a figure; ours: what fits over a map
LEGEND_TEXT_LIMIT = 52  # in a legend; ours: what fits once into its width
LAST_FIGURE_CHARACTER = 0x24F  # end of Latin Extended-B: all of it is in the font that comes with matplotlib


def escape_unprintable(text: str) -> str:
    """The text with every character that does not print spelled as an escape; line breaks and lone halves too."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def figure_text(text: str, limit: int = FIGURE_TEXT_LIMIT) -> str:
    """The text as matplotlib draws it literally: no formulas, no hidden legend entries, only characters it has."""
    shown = "".join(char if ord(char) <= LAST_FIGURE_CHARACTER else "?" for char in escape_unprintable(text))
    if len(shown) > limit:
        shown = shown[: limit - 3] + "..."
    # A dollar sign starts a formula, and a name that starts with an underscore is left out of the legend.
    return (" " if shown.startswith("_") else "") + shown.replace("$", r"\$")


def count(value: float) -> str:
    """A whole number with thousands separators."""
    return f"{round(value):,}" if math.isfinite(value) else ABSENT


def percent(share: float) -> str:
    """A share as a percentage with one decimal."""
    return f"{100 * share:.1f} %" if math.isfinite(share) else ABSENT


def number(value: float) -> str:
    """Any measured number with four significant digits, grouped in thousands where it is large."""
    if not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    size = abs(value)
    if 1e-4 <= size < 1e7:
        decimals = max(0, 3 - math.floor(math.log10(size)))
        text = f"{value:,.{decimals}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{value:.3e}"


def plural(amount: int, noun: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{amount:,} {noun}{'' if amount == 1 else 's'}"
