"""The page itself: whole, offline, the same every time, and safe from whatever stands in a run."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest

from intrigue.errors import ConfigError, StorageError
from intrigue.report.arms import ArmRuns
from intrigue.report.charts import draw_line_chart, render_picture, use_style
from intrigue.report.page import Report, compose_report, save_report, write_report
from intrigue.report.record import read_record
from intrigue.run import disk
from report_folders import config_of, visits_of, write_run

PAYLOADS = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "\"><svg onload=alert(1)>", "' onmouseover='alert(1)",
    "</pre><h1>mine</h1>", "</title><body>", "{{ 7*7 }}", "{% raw %}", "&lt;b&gt;", "<!-- ", "]]>",
    "javascript:alert(1)", "</style><style>*{display:none}", "\u202eevil", "a\x1b[31mred", "=cmd|' /C calc'!A0",
    "$\\frac{1}{0}$", "_hidden", "line\nbreak", "\U0001f600", "\ufeff",
    "<base href=//x>", "<meta http-equiv=refresh content=0>", "<iframe src=//x>", "<a href=//x>x</a>",
]  # fmt: skip


class Elements(HTMLParser):
    """Every element with its attributes' names, the attributes that load or link, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.shapes: Counter[tuple[str, ...]] = Counter()
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.shapes[(tag, *sorted(name for name, _ in attrs))] += 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    return [
        write_run(root / "n0", config_of(0), visits=visits_of(19), episodes=[(200, 1.0)]),
        write_run(root / "n1", config_of(1), visits=visits_of(15), episodes=[(200, 0.0)]),
        write_run(root / "n2", config_of(2), visits=visits_of(2), step=100, finished=False),
    ]


@pytest.fixture(scope="module")
def report(folders, tmp_path_factory) -> Report:
    return compose_report(folders, tmp_path_factory.mktemp("page") / "page.html")


def test_the_page_has_every_section_and_number(report):
    page = Elements(report.html)
    for words in ("Final numbers", "Where the agents went", "Over time", "Each run", "How the runs were made"):
        assert words in page.text
    assert "89.5 %" in page.text  # (19 + 15) / (2 * 19)
    assert "NNM (nnmc, knn) visited 89.5 %" in report.headlines[0]
    assert "the numbers are of 2 finished runs out of 3 (1 unfinished)" in page.text
    assert "There is no run without a bonus here" in page.text
    assert "simulated for this page" in page.text
    assert '"room_size": 2' in page.text
    assert "intrigue train --config" in page.text


def test_the_page_needs_nothing_from_outside(report):
    page = Elements(report.html)
    assert not any(shape[0] in ("script", "link", "iframe", "object", "embed", "form", "base") for shape in page.shapes)
    assert all(link.startswith(("data:image/svg+xml;base64,", "figures/", "#")) for link in page.links)
    assert not any(name.startswith("on") for shape in page.shapes for name in shape[1:])
    assert "http://" not in report.html and "https://" not in report.html
    assert "url(" not in report.html and "@import" not in report.html
    policy = "default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;; img-src data:"
    assert (policy in report.html) or (policy.replace("&#39;", "'") in report.html)
    assert report.html.startswith("<!DOCTYPE html>")


def test_figures_are_whole_and_have_no_text_of_their_own(report):
    names = {picture.name for picture in report.pictures}
    assert names == {"coverage", "return", "bonus", "visits", "visits-1-nnmc-knn", "visits-2-random-policy"}
    for picture in report.pictures:
        assert picture.png.startswith(b"\x89PNG")
        tags = {element.tag.rpartition("}")[2] for element in ET.fromstring(picture.svg).iter()}
        assert not tags & {"text", "script", "foreignObject", "a"}


def test_the_same_runs_give_the_same_bytes(report, folders):
    again = compose_report(folders, report.path)
    assert again.html == report.html
    assert again.pictures == report.pictures


def test_it_is_written_beside_the_run_or_where_asked(report, tmp_path):
    page = save_report(Report(tmp_path / "deep" / "p.html", [], report.html, report.pictures[:1]))
    assert page.read_text(encoding="utf-8") == report.html
    assert sorted(path.name for path in (page.parent / "figures").iterdir()) == [
        f"{report.pictures[0].name}.png",
        f"{report.pictures[0].name}.svg",
    ]


def bare_run(path: Path, provenance: dict | None = None) -> Path:
    """A run without a maze, so that its page is drawn quickly."""
    config = config_of(env="gym/CartPole-v1", reward="rnd")
    return write_run(path, config, episodes=[(10, 12.0)], provenance=provenance)


def hostile_pages(root: Path, texts: list[str]) -> Report:
    """A page over one whole run and a damaged one per text; the texts stand in every place a run can fill."""
    origin = {"run": " ".join(texts), "snapshot": 5, "digest": texts[3]}
    fields = {"versions": {"intrigue": texts[0]}, "host": texts, "plugins": {text: text for text in texts}}
    fields["finetuned_from"] = origin
    folders = [bare_run(root / "good", provenance=fields)]
    for index, text in enumerate(texts):
        name = f"{index}{text}".replace("/", "_")
        folder = root / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"env": {"id": text}, "run": {text: text}}))
        folders.append(folder)
    return compose_report(folders, root / "p.html", title=texts[1], headline=texts[2])


def test_nothing_in_a_run_adds_an_element(tmp_path):
    benign = Elements(hostile_pages(tmp_path / "a", [f"calm {index}" for index in range(len(PAYLOADS))]).html)
    hostile = hostile_pages(tmp_path / "b", PAYLOADS)
    assert Elements(hostile.html).shapes == benign.shapes
    assert "<script>alert(1)</script>" in Elements(hostile.html).text, "shown as text, not dropped"
    assert all(char == "\n" or char.isprintable() for char in hostile.html)


def test_a_given_headline_and_title_replace_the_made_ones(tmp_path):
    page = write_report([bare_run(tmp_path / "run")], None, title="My study", headline="It worked.")
    assert page == tmp_path / "run" / "report.html"
    text = Elements(page.read_text(encoding="utf-8")).text
    assert "My study" in text and "It worked." in text
    assert "Return over the last episodes" not in text


@pytest.mark.parametrize("module", ["matplotlib.style", "jinja2"])
def test_a_missing_extra_is_named_with_its_command(module, monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(ConfigError, match=r"pip install 'intrigue\[report\]'"):
        compose_report([bare_run(tmp_path / "run")])
    assert not (tmp_path / "run" / "figures").exists()


@pytest.mark.parametrize("name", ["page.txt", "page", "."])
def test_a_page_must_be_a_page(tmp_path, name):
    with pytest.raises(ConfigError, match=r"\.html"):
        compose_report([bare_run(tmp_path / "run")], tmp_path / name)


def test_a_full_disk_leaves_the_old_page(tmp_path, monkeypatch):
    page = tmp_path / "report.html"
    page.write_text("old")
    disk.reset_faults()
    monkeypatch.setenv(disk.FAULT_VARIABLE, "file:write:1:ENOSPC")
    with pytest.raises(StorageError, match="the disk is full"):
        save_report(Report(page, [], "new", []))
    assert page.read_text() == "old"


def test_no_name_breaks_a_figure(tmp_path):
    record = read_record(bare_run(tmp_path / "run"))
    assert record.config is not None
    arms = [ArmRuns(text * 3, record.config, (record,)) for text in PAYLOADS]
    with use_style():
        chart = draw_line_chart(arms, "intrinsic/raw_mean", "bonus", 1.0)
        assert chart is not None
        svg = render_picture(chart, "x", "", "").svg
    assert not {element.tag.rpartition("}")[2] for element in ET.fromstring(svg).iter()} & {"text", "script", "a"}
    (legend,) = chart.legends
    assert len(legend.get_texts()) == len(PAYLOADS)
