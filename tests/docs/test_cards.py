"""Every reward's card says what it must, and the grid of spaces is what building actually does."""

from __future__ import annotations

import re

import pytest

from generate.cards import card_page, files_of, prose, read_card, symbols, variants_of
from generate.spaces_grid import ACTIONS, OBSERVATIONS, Served, grid_page, served, spaces_section
from intrigue import Curiosity
from intrigue.api import read_citation
from intrigue.errors import ConfigError
from intrigue.rewards.registry import REWARDS
from page_blocks import ROOT

NAMES = REWARDS.names()
FILES = files_of(REWARDS.declarations())
# The controls and the composition come from no paper.
WITHOUT_PAPER = ("none", "random", "mix")
SMALL = {
    "feature_dim": 8,
    "hidden": 8,
    "blocks": 1,
    "expression": "0.5*nnm(feature_dim=8, hidden=8, blocks=1) + rnd(feature_dim=8, hidden=8)",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_answers_every_question(name: str) -> None:
    card = read_card(REWARDS.declaration(name).docstring)
    assert card.title
    assert any("=" in text or "√" in text for text in card.equations()), "an equation in an indented block"
    for label in ("Differs from the paper", "Cost"):
        assert card.sections.get(label), f"`{label}: …` is missing"
        assert card.sections[label][0].kind == "prose"
        assert card.sections[label][-1].text.endswith("."), f"`{label}` ends in the middle"
    if name not in WITHOUT_PAPER:
        assert "Differs from the official code" in card.sections or re.search(
            r"\b(?:code|none)\b", card.sections["Differs from the paper"][0].text
        ), "what the official code does, or that there is none"


@pytest.mark.parametrize("name", [name for name in NAMES if variants_of(REWARDS.declaration(name))])
def test_every_variant_is_explained(name: str) -> None:
    declared = REWARDS.declaration(name)
    explained = read_card(declared.docstring).variants()
    assert set(explained) == set(variants_of(declared))
    assert all(len(text) > 10 for text in explained.values())


@pytest.mark.parametrize("name", NAMES)
def test_every_reward_from_a_paper_has_a_citation(name: str) -> None:
    text = read_citation(REWARDS.declaration(name))
    if name in WITHOUT_PAPER:
        assert not text
        return
    assert re.match(r"@\w+\{\w+,\n", text) and text.endswith("}")
    assert text.count("{") == text.count("}")
    for field in ("title", "author", "year"):
        assert re.search(rf"^\s*{field}\s*=\s*\{{", text, re.MULTILINE), field


def build_all(name: str, variant: str) -> Served:
    """What building says of each pair of spaces, networks made small."""
    fields = REWARDS.declaration(name).hints()
    options = {key: value for key, value in SMALL.items() if key in fields}
    options |= {"variant": variant} if variant else {}
    reasons: dict[tuple[str, str], str | None] = {}
    for obs, obs_space in OBSERVATIONS.items():
        for action, action_space in ACTIONS.items():
            try:
                Curiosity(name, obs_space, action_space, **options)
                reasons[obs, action] = None
            except ConfigError as error:
                reasons[obs, action] = error.problems[0].message.removeprefix(f"{name}: ")
    return Served(name, variant, reasons)


@pytest.mark.parametrize("name", NAMES)
def test_the_grid_is_what_building_does(name: str) -> None:
    rows = served(name)
    assert [row.variant for row in rows] == list(variants_of(REWARDS.declaration(name)) or ("",))
    for row in rows:
        assert len(row.reasons) == 9
        assert build_all(name, row.variant) == row


def test_the_grid_page_shows_every_row_and_reason() -> None:
    page = grid_page({each.name: stem for stem, registered in FILES.items() for each in registered})
    rows = [row for name in NAMES for row in served(name)]
    assert page.count("<tr>") == 2 + len(rows)
    assert page.count("✓") == sum(reason is None for row in rows for reason in row.reasons.values())
    assert page.count("✗") == sum(reason is not None for row in rows for reason in row.reasons.values())
    for row in rows:
        for reason in row.reasons.values():
            assert reason is None or f". {reason}" in page


def test_the_site_has_a_page_for_every_reward_file() -> None:
    mkdocs = pytest.importorskip("mkdocs.config", reason="needs the extra docs")
    from mkdocs.structure.files import Files

    config = mkdocs.load_config(str(ROOT / "mkdocs.yml"))
    config = config.plugins.on_config(config)
    files = config.plugins.on_files(Files([]), config=config)
    generated = {file.src_uri: file.content_string for file in files}
    assert set(generated) == {"rewards/spaces.md", *(f"rewards/{stem}.md" for stem in FILES)}
    (section,) = [entry["Rewards"] for entry in config.nav if "Rewards" in entry]
    assert set(generated) | {"rewards.md"} == {target for entry in section for target in entry.values()}
    for stem, registered in FILES.items():
        page = generated[f"rewards/{stem}.md"]
        for each in registered:
            assert f"`{each.name}`" in page
        for field in registered[0].hints():
            assert f"| `{field}` |" in page, "every setting with its source"
        assert read_citation(registered[0]) in page
        assert page.count("```") % 2 == 0


def test_the_guide_lists_every_reward_once_with_its_card() -> None:
    guide = (ROOT / "docs" / "rewards.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[`(\w+)`\]\(rewards/(\w+)\.md\) \|", guide, re.MULTILINE)
    assert sorted(listed) == sorted((each.name, stem) for stem, registered in FILES.items() for each in registered)


EXAMPLE = """An example of a card (Nobody 2020, arXiv:2001.00001, section 2).

    r(s) = |a_1 * b|          # of columns

    a: `first`, a thing.  b: `second`, two
    lines.
    c, d: `third`.

See intrigue.rewards.rnd_alpha and docs/rewards.md, and a_1 * b * c <d>.

Variants:

    one     the first
    two     the second, which
            goes on

Which one is which matters.

Differs from the paper: not at all. Cost: 1 pass.
"""


def test_a_docstring_is_taken_apart() -> None:
    card = read_card(EXAMPLE)
    assert (card.title, card.source) == ("An example of a card", "Nobody 2020, arXiv:2001.00001, section 2")
    assert card.equations() == ["r(s) = |a_1 * b|          # of columns"]
    assert symbols(card.opening[1].text) == ["a: `first`, a thing.", "b: `second`, two lines.", "c, d: `third`."]
    assert card.variants() == {"one": "the first", "two": "the second, which goes on"}
    assert [card.sections[label][0].text for label in ("Differs from the paper", "Cost")] == ["not at all.", "1 pass."]
    assert card.sections["Variants"][1].text == "Which one is which matters."


def test_prose_keeps_its_marks_and_gets_its_links() -> None:
    text = prose(
        "See intrigue.rewards.rnd_alpha, intrigue.rewards.xyz, arXiv:2001.00001, `a_*`, a_* <d>", ["rnd_alpha"]
    )
    assert text == (
        "See [rnd\\_alpha](rnd_alpha.md), intrigue.rewards.xyz, [arXiv:2001.00001](https://arxiv.org/abs/2001.00001), "
        "`a_*`, a\\_\\* \\<d>"
    )


def test_a_card_without_variants_or_paper_is_whole() -> None:
    page = card_page(FILES["none"], spaces_section("none"), list(FILES))
    assert page.startswith("# No bonus at all: the control arm\n")
    assert "## Variants" not in page and "## Citation" not in page
    assert "**Cost:** none." in page and "\nNone.\n" in page
    assert "Pixels, vector and dict observations, with discrete, multi-discrete and continuous actions." in page


def test_a_card_says_what_the_reward_asks_of_the_agent() -> None:
    assert "time order" in spaces_section("ngu") and "skills" not in spaces_section("ngu")
    assert "skills (one-hot, 16 numbers" in spaces_section("diayn") and "time order" not in spaces_section("diayn")
    assert "- variant `urlb`, pixels: " in spaces_section("icm")
