"""The documentation is true: its code runs, its tables agree with the code, its pages build and need no network."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ready_process
from conftest import TINY
from intrigue.agents.registry import AGENTS
from intrigue.api import REGISTRIES
from intrigue.cli import COMMANDS, main
from intrigue.config.run import PLAIN, declaration_of, resolve
from intrigue.config.schema import fields_of
from intrigue.errors import ConfigError
from intrigue.registry import EmptyConfig
from intrigue.rewards.registry import REWARDS
from intrigue.run.driver import start
from intrigue.run.logging.csv_files import EPISODE_COLUMNS, METRIC_COLUMNS
from page_blocks import PAGES, ROOT, blocks_of, marked_tables, page_name
from places import HELPERS

RUN = ("python", "bash")
SHOWN = ("text", "json", "csv", "console")
# Blocks that cannot run inside a test, by their exact text, with the reason.
ALLOW = {
    "make run\n": "takes minutes; the study behind it has tests of its own",
    "make test\n": "would run this test again",
    'pip install -e ".[report,video]"\n': "changes the environment the tests run in",
    'pip install -e ".[report]" -c constraints.txt\n': "changes the environment the tests run in",
}
FROM_NOTHING = "docs/concepts.md"  # its commands start as a reader's do; those of other pages in a warm process

DOCS = {page_name(page): page.read_text(encoding="utf-8") for page in PAGES}
BLOCKS = {name: blocks_of(name, text) for name, text in DOCS.items()}
# What the site says; the README alone is not enough.
SITE_TEXT = "\n".join(text for name, text in DOCS.items() if name.startswith("docs/"))


def runnable(name: str) -> list[tuple[str, int, str, str]]:
    kept = [each for each in BLOCKS[name] if each.language in RUN and each.text not in ALLOW]
    return [(each.page, each.line, each.language, each.text) for each in kept]


def page_variables(*folders: Path) -> dict[str, str]:
    """The environment of a page: commands from these folders first. One thread, as pages run beside other tests."""
    path = os.pathsep.join([*map(str, folders), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "COLUMNS": "100", "NO_COLOR": "1"}


@pytest.mark.parametrize("name", [name for name in DOCS if runnable(name) and name != FROM_NOTHING])
def test_page_runs(name: str, tmp_path: Path) -> None:
    variables = page_variables(ready_process.folder_of_commands())
    done = ready_process.run("page", cwd=tmp_path, env=variables, stdin=json.dumps(runnable(name)))
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"


def test_a_page_runs_with_nothing_loaded(tmp_path: Path) -> None:
    """As for a reader: every command is the installed one and starts Python anew."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HELPERS / "run_page.py")],
        input=json.dumps(runnable(FROM_NOTHING)),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=page_variables(),
        timeout=ready_process.SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"


@pytest.mark.parametrize("name", DOCS)
def test_every_block_says_what_it_is(name: str) -> None:
    wrong = [f"line {each.line}: {each.language!r}" for each in BLOCKS[name] if each.language not in (*RUN, *SHOWN)]
    assert not wrong, f"{name} has blocks in other languages than {(*RUN, *SHOWN)}: {wrong}"


def test_the_allow_list_holds_nothing_stale() -> None:
    texts = {each.text for blocks in BLOCKS.values() for each in blocks}
    assert set(ALLOW) <= texts, f"no page has these blocks any more: {set(ALLOW) - texts}"


def test_blocks_are_found_with_their_lines() -> None:
    source = "a\n```python\nx = 1\n\ny\n```\n~~~ text\n```\n~~~\n```\n```"
    found = [(each.line, each.language, each.text) for each in blocks_of("p", source)]
    assert found == [(3, "python", "x = 1\n\ny\n"), (8, "text", "```\n"), (11, "", "\n")]
    with pytest.raises(ValueError, match="line 1"):
        blocks_of("p", "```python\nx")


@pytest.mark.parametrize("failing", [["python", "1 / 0"], ["bash", "false\ntrue"]])
def test_a_failing_block_fails_its_page(failing: list[str], tmp_path: Path) -> None:
    blocks = [("p.md", 3, "python", "x = 1"), ("p.md", 6, *failing), ("p.md", 9, "bash", "touch reached")]
    done = subprocess.run(
        [sys.executable, str(HELPERS / "run_page.py")],
        input=json.dumps(blocks), capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "p.md, line 6" in done.stdout
    assert not (tmp_path / "reached").exists()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built strictly."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_the_site_builds_strictly_with_every_page(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in PAGES if path.name != "README.md"}
    missing = [page for page in pages if not (site / page / "index.html").exists() and page.name != "index"]
    assert not missing
    assert (site / "index.html").exists()


def test_the_site_loads_nothing_from_the_network(site: Path) -> None:
    loads = re.compile(
        r"""<(?:script|link|img|iframe|source|video|audio)\b[^>]*?(?:src|href)\s*=\s*["']?(?:https?:)?//"""
    )
    imports = re.compile(r"""(?:@import\s+|url\()\s*["']?(?:https?:)?//""")
    for path in site.rglob("*.html"):
        assert not loads.search(path.read_text(encoding="utf-8")), path.name
    for path in [*site.rglob("*.css"), *site.rglob("*.svg"), *site.rglob("*.html")]:
        assert not imports.search(path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main([command, "--help"])
    except SystemExit as ended:
        code = ended.code
    printed = capsys.readouterr().out
    assert code in (0, None)
    assert "example" in printed.lower()
    assert f"intrigue {command} " in printed.lower().split("example", 1)[1], "an example must show the command itself"


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in REGISTRIES for name in REGISTRIES[kind].names()])
def test_every_plugin_is_documented(kind: str, name: str) -> None:
    assert re.search(rf"`{re.escape(name)}[`/]", SITE_TEXT), f"no page mentions `{name}` of {kind}"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented(command: str) -> None:
    assert f"intrigue {command}" in SITE_TEXT


SHORT = {"agent.learning_starts": 16, "agent.capacity": 1000, "agent.batch": 8}


def emitted(agent: str, reward: str, folder: Path) -> set[str]:
    """The columns of metrics.csv that a tiny run of the pair writes."""
    known = {section: declaration_of(section, name).hints() for section, name in (("agent", agent), ("reward", reward))}
    tiny = {
        key: value
        for key, value in TINY.items()
        if key.partition(".")[2] in known.get(key.partition(".")[0], [key.partition(".")[2]])
    }
    # The environment and the noise that have metrics of their own, and learning that starts within so few steps.
    special = {"env": "noisy-tv", "curiosity.feature_noise": 0.1}
    if agent == "ddpg":  # which knows no classes of actions
        tiny = {key: value for key, value in tiny.items() if not key.startswith("env")}
        tiny |= {"env": "dmc/pendulum_swingup", "env.max_episode_steps": 9, "pool.num_envs": 1}
        special = {"curiosity.feature_noise": 0.1, "steps": 32}
    special |= {key: value for key, value in SHORT.items() if key.partition(".")[2] in known["agent"]}
    try:
        config = resolve({**tiny, "steps": 128, **special, "agent": agent, "reward": reward})
    except ConfigError:
        assert AGENTS.get(agent).cls.feed == "replay"
        return set()
    run = start(config, out=folder, quiet=True)
    # What the parts of a bonus are called is each reward's own affair; the table names the family.
    return {"intrinsic/part/…" if name.startswith("intrinsic/part/") else name for name in run.metrics()}


def test_metrics_table_is_what_runs_emit(tmp_path: Path) -> None:
    tables = marked_tables(DOCS["docs/metrics.md"], "metrics")
    documented = [row[0].strip("`") for row in tables["metrics.csv"]]
    found: set[str] = set()
    for agent in AGENTS.names():
        # What a bonus emits does not hang on the agent: all of them with one, some with the others.
        for reward in REWARDS.names() if agent == "ppo" else ("none", "nnm", "aps"):
            found |= emitted(agent, reward, tmp_path / f"{agent}-{reward}")
    assert len(set(documented)) == len(documented), "a metric stands twice"
    assert set(METRIC_COLUMNS) <= found
    assert set(documented) == found, f"undocumented {found - set(documented)}, phantom {set(documented) - found}"
    assert [row[0].strip("`") for row in tables["episodes.csv"]] == list(EPISODE_COLUMNS)


def declared_settings() -> dict[str, list[tuple[str, str]]]:
    """Every configuration there is: its fields with their defaults, in order."""
    found: dict[str, list[tuple[str, str]]] = {}
    origins: set[str] = set()
    for kind in ("rewards", "agents", "envs"):
        for name in REGISTRIES[kind].names():
            declared = REGISTRIES[kind].declaration(name)
            if declared.config is not EmptyConfig and declared.origin not in origins:
                origins.add(declared.origin)
                found[f"{kind[:-1]}.{name}"] = [(key, str(declared.default(key))) for key in declared.hints()]
    for section, config in PLAIN.items():
        found[section] = [(key, str(getattr(config(), key))) for key in fields_of(config)]
    return found


def test_settings_tables_agree_with_the_code() -> None:
    documented = {name: rows for text in DOCS.values() for name, rows in marked_tables(text, "settings").items()}
    declared = declared_settings()
    assert set(documented) == set(declared)
    for name, fields in declared.items():
        assert [(row[0].strip("`"), row[1].strip("`")) for row in documented[name]] == fields, name


def test_quoted_findings_of_figure_1_are_those_computed() -> None:
    from intrigue.studies.fig1 import compute, write_verdicts

    flat = " ".join(DOCS["docs/studies.md"].split())
    for sentence in write_verdicts(compute(seed=0, draws=200)):
        assert " ".join(sentence.split()) in flat


def test_no_page_names_a_place_on_somebodys_machine() -> None:
    texts = {**DOCS, "CONTRIBUTING.md": (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")}
    for name, text in texts.items():
        assert not re.search(r"(?<![\w./])/(?:work|home|root|tmp|Users)/", text), name
