"""tools/digests: what it says of two sides, and with which exit status."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from intrigue.cli.arguments import parse
from intrigue.cli.train import configure_seeds

ROOT = Path(__file__).parents[2]

# A package that trains in no time: its runs hold what VALUES says. LOG has a line for every training.
FAKE = """
import sys
from pathlib import Path
VALUES = {values!r}
command, *rest = sys.argv[1:]
if command == "digest":
    print(Path(rest[0], "digest").read_text())
else:
    with open({log!r}, "a") as log:
        log.write(VALUES["side"] + " " + rest[0] + "\\n")
    if VALUES.get("fails") == rest[0]:
        sys.exit("nonsense\\nerror: it broke")
    run = Path(rest[rest.index("--out") + 1])
    run.mkdir()
    (run / "digest").write_text(VALUES["digest"] + rest[0])
    (run / "metrics.csv").write_text("step,charts/SPS,losses/x\\n1,%s,%s\\n" % (VALUES["side"], VALUES["loss"]))
"""


@pytest.fixture(scope="module")
def tool():
    loader = SourceFileLoader("digests", str(ROOT / "tools" / "digests"))
    spec = importlib.util.spec_from_loader("digests", loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules["digests"] = module  # dataclasses look their module up
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    yield module
    del sys.modules["digests"]


class World:
    """A repository of fake packages, in which the tool is called."""

    def __init__(self, tool, path, capsys):
        self._tool, self.path, self._capsys = tool, path, capsys
        self.log = path.parent / "log"
        self._git("init", "--quiet")

    def _git(self, *arguments):
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *who, *arguments], cwd=self.path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def commit(self, side, digest="d", loss="0.5", **more):
        package = self.path / "src" / "intrigue"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        values = {"side": side, "digest": digest, "loss": loss, **more}
        (package / "__main__.py").write_text(FAKE.format(values=values, log=str(self.log)))
        self._git("add", "src")
        self._git("commit", "--quiet", "-m", side)
        return self._git("rev-parse", "HEAD")

    def call(self, *given):
        """(exit status, first words of the lines by run, everything printed)."""
        status = self._tool.main([*given, "--jobs", "1"])
        out, err = self._capsys.readouterr()
        words = {line.split()[1]: line.split()[0] for line in out.splitlines() if len(line.split()) > 1}
        assert self._git("worktree", "list").count("\n") == 0, "worktrees are removed"
        return status, words, out + err

    def trained(self):
        """Which sides trained what since the last time, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.write_text("")
        return lines


@pytest.fixture
def world(tool, tmp_path, monkeypatch, capsys):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    monkeypatch.setattr(tool, "RUNS", (tool.Run("first", ("train one",)), tool.Run("second", ("train two",))))
    monkeypatch.setattr(tool, "machine", lambda: "a machine")
    path = tmp_path / "repository"
    path.mkdir()
    monkeypatch.chdir(path)
    return World(tool, path, capsys)


def test_equal_commits_are_the_same_but_for_timings(world):
    base, head = world.commit("base"), world.commit("head")
    status, words, text = world.call(base, head)
    assert status == 0 and words["first"] == words["second"] == "same"
    assert "2 same, 0 skipped" in text
    assert world.trained() == ["base one", "base two", "head one", "head two"]


def test_another_digest_differs(world):
    base, head = world.commit("base"), world.commit("head", digest="e")
    status, words, _ = world.call(base, head, "--only", "first")
    assert status == 1 and words["first"] == "DIFFERS" and "second" not in words


def test_another_table_beside_an_equal_digest_is_told(world):
    base, head = world.commit("base"), world.commit("head", loss="0.25")
    status, words, text = world.call(base, head)
    assert status == 1 and words["first"] == "TABLES" and "run/metrics.csv: ~losses/x" in text


def test_a_run_that_fails_is_missing_and_not_kept(world):
    base, head = world.commit("base", fails="one"), world.commit("head")
    for expected in (["base one", "base two"], ["base one"]):
        status, words, text = world.call(base, head)
        assert status == 1 and words["first"] == "missing" and words["second"] == "same"
        assert "base: intrigue train: error: it broke" in text
        assert world.trained() == [*expected, "head one", "head two"]


def test_every_commit_of_a_range_is_compared_with_a_base_that_runs_once(world):
    base, same, other = world.commit("base"), world.commit("same"), world.commit("other", digest="e")
    status, _, text = world.call(f"{base}..{other}", "--only", "first")
    assert status == 1
    assert f"{same[:12]}: 1 same" in text and f"{other[:12]}: 1 DIFFERS" in text
    assert world.trained() == ["base one", "same one", "other one"]
    assert world.call(base, same, "--only", "first")[0] == 0
    assert world.trained() == ["same one"]
    assert world.call(base, same, "--only", "first", "--fresh")[0] == 0
    assert world.trained() == ["base one", "same one"]
    assert world.call(base, base, "--only", "first")[0] == 0
    assert world.trained() == ["base one"], "a commit compared with itself does run"


def test_folders_need_no_commit(world, tmp_path):
    world.commit("base")
    shutil.copytree(world.path / "src", tmp_path / "copy" / "src")
    world.commit("head", digest="e")
    assert world.call(str(tmp_path / "copy"), str(world.path))[0] == 1
    assert world.call(".", "HEAD")[0] == 0


def test_what_is_kept_and_what_is_printed_as_json(world, tmp_path):
    base, head = world.commit("base"), world.commit("head", digest="e")
    status, _, text = world.call(base, head, "--json", "--keep", str(tmp_path / "kept"))
    told, _ = json.JSONDecoder().raw_decode(text)
    assert status == 1 and told["base"] == base and told["heads"][0]["runs"]["first"]["status"] == "DIFFERS"
    assert len(list((tmp_path / "kept").glob("*/first/run/metrics.csv"))) == 2
    assert world.call(base, head, "--keep", str(tmp_path / "kept"))[0] == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["HEAD", "nowhere"], "neither a commit"),
        (["HEAD"], "nothing to compare with"),
        (["HEAD..HEAD"], "nothing to compare with"),
        (["HEAD...HEAD"], "a range is written"),
        (["HEAD", "HEAD", "--only", "third"], "no run fits"),
        (["HEAD~1", "HEAD"], "src/intrigue"),
    ],
)
def test_what_cannot_be_compared_is_an_error(world, given, said):
    world._git("commit", "--quiet", "--allow-empty", "-m", "nothing yet")
    world.commit("base")
    status, _, text = world.call(*given)
    assert status == 2 and said in text


def test_a_machine_that_cannot_do_a_run_skips_it(world, tool, monkeypatch):
    base, head = world.commit("base"), world.commit("head")
    monkeypatch.setattr(tool, "lacking", lambda need: "no such thing")
    monkeypatch.setattr(tool, "RUNS", (*tool.RUNS, tool.Run("third", ("train three",), ("dmc",))))
    status, words, text = world.call(base, head)
    assert status == 0 and words["third"] == "skipped" and "2 same, 1 skipped" in text
    assert world.call(base, head, "--only", "third")[0] == 2


def test_a_difference_is_named(tool):
    base = {"digests": {"run": "a" * 64}, "members": {"run/state.json": "1", "run/tensors.safetensors": "2"}}
    head = {"digests": {"run": "b" * 64}, "members": {"run/state.json": "1", "run/tensors.safetensors": "3"}}
    base["tables"] = {"run/metrics.csv": {"step": "1", "old": "2", "loss": "3"}, "run/eval.csv": {}}
    head["tables"] = {"run/metrics.csv": {"step": "1", "new": "2", "loss": "4"}}
    status, text = tool.compare(base, head)
    assert status == "DIFFERS"
    assert text == "base aaaaaaaaaaaa; run/tensors.safetensors; -run/eval.csv; run/metrics.csv: -old +new ~loss"


def test_every_run_in_the_list_is_a_valid_one(tool):
    runs = [*tool.RUNS, *tool.GPU_RUNS]
    assert len({run.name for run in runs}) == len(runs)
    for run in runs:
        assert all(need in ("dmc", "atari", "bfloat16", "cuda") for need in run.needs)
        for line in tool.command_lines(run, "cpu"):
            if line[0] == "train":
                config, _ = configure_seeds(parse(line[1:]))
                assert config.run.threads == 1 and config.run.steps <= 20_000


def test_a_changed_constant_of_the_real_package_is_seen(tool, tmp_path, capsys):
    """Two trainings of a second, and what it takes to import torch four times."""
    for name in ("base", "head"):
        shutil.copytree(ROOT / "src" / "intrigue", tmp_path / name / "src" / "intrigue")
    file = tmp_path / "head" / "src" / "intrigue" / "agents" / "ppo.py"
    text = file.read_text(encoding="utf-8")
    assert "gae_lambda: Fraction = 0.95" in text
    file.write_text(text.replace("gae_lambda: Fraction = 0.95", "gae_lambda: Fraction = 0.9500001"), encoding="utf-8")
    status = tool.main([str(tmp_path / "base"), str(tmp_path / "head"), "--only", "ppo-none"])
    out = capsys.readouterr().out
    assert status == 1 and out.startswith("DIFFERS  ppo-none"), out
    assert "run/tensors.safetensors" in out and "run/metrics.csv: ~losses/" in out
    assert "charts/SPS" not in out and "wall_seconds" not in out
