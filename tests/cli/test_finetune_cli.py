"""`intrigue finetune` as it is typed: a task without its domain, and the score of one that was interrupted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.presets import preset_layer
from intrigue.run.driver import SeedRun, start, start_seeds

TINY = {
    "env.max_episode_steps": 10, "pool.workers": 0, "threads": 1, "device": "cpu", "run.products": "float32",
    "steps": 60, "run.snapshots": "60", "checkpoint_every": 1000, "agent.capacity": 200, "agent.batch": 8,
    "agent.hidden": 8, "agent.learning_starts": 20, "agent.rollout_steps": 20, "reward.feature_dim": 6,
    "reward.hidden": 8, "reward.n": 4,
}  # fmt: skip
SHORT = ["--steps", "30", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def walker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pre-training of the walker that nothing here writes to."""
    return start(
        resolve(preset_layer("nnm-urlb"), TINY), out=tmp_path_factory.mktemp("pre") / "walker", quiet=True
    ).path


@pytest.mark.parametrize("task", ["run", "dmc/run", "rnu"])
def test_a_task_without_its_domain_is_answered_with_the_whole_name(walker, tmp_path, task, capsys) -> None:
    assert main(["finetune", str(walker), "--task", task, "--out", str(tmp_path / "tuned"), *SHORT]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: --task: unknown task {task!r}. Did you mean 'walker_run'? Tasks of 'walker': ")
    assert "walker_flip" in told and "dog" not in told
    assert main(["finetune", str(walker), "--task", "z" * 30, "--out", str(tmp_path / "tuned"), *SHORT]) == 2
    assert f"unknown task '{'z' * 30}'. Tasks of 'walker': " in capsys.readouterr().err, "nothing is like it"
    assert list(tmp_path.iterdir()) == []


def test_resume_tells_the_score_where_a_fine_tuning_ends(walker, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["finetune", str(walker), "--task", "walker_run", "--out", "calm", *SHORT]) == 0
    _, score = capsys.readouterr().out.splitlines()
    assert main(["finetune", str(walker), "--task", "walker_run", "--out", "tuned", *SHORT[2:], "--steps", "21"]) == 0
    capsys.readouterr()
    assert main(["resume", "tuned", "--steps", "30", "--quiet"]) == 0
    assert capsys.readouterr().out.splitlines() == ["tuned is at step 30 of 30", score]
    assert main(["resume", str(walker), "--quiet"]) == 0
    assert "return" not in capsys.readouterr().out, "a pre-training has no score"
    for file in Path("tuned").glob("eval.csv*"):
        file.unlink()
    assert main(["resume", "tuned", "--quiet"]) == 0
    assert "return" not in capsys.readouterr().out, "none is made up"


def test_resume_tells_the_scores_of_several_seeds(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    plans = [SeedRun(resolve(preset_layer("nnm-urlb"), TINY, {"seed": seed})) for seed in (0, 1)]
    start_seeds(plans, out=Path("walker"), quiet=True)
    assert main(["finetune", "walker", "--task", "walker_run", "--out", "tuned", *SHORT]) == 0
    scores = capsys.readouterr().out.splitlines()[1:]
    assert main(["resume", "tuned", "--quiet"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[2:] == scores and scores[-1].startswith("mean of 2 seeds: return ")
    shutil.rmtree("tuned/seed-1")
    assert main(["resume", "tuned/seed-0", "--quiet"]) == 0
    assert f"seed 0: {capsys.readouterr().out.splitlines()[1]}" == scores[0], "one alone is told as one"
