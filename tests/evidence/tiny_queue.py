"""A repository with the queue and a plan of tiny runs, as a clone of ours would be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMALL = '"env.max_episode_steps" = 20, "agent.hidden" = 8, "agent.batch" = 8, "agent.learning_starts" = 40'
PLAN = f"""
[sets]
walker = ["dmc/walker_run"]

[[want]]
item = "1 control"
why = "pre-trained"
results = "control"
pretrain = ["walker"]
presets = ["nnm-urlb-small"]
changes = {{ {SMALL}, "reward.hidden" = 8 }}
seeds = [0]
steps = 100
finetune = 60

[[want]]
item = "2 games"
why = "from scratch"
results = "games"
train = ["atari/Breakout"]
presets = ["nnm-atari-small"]
changes = {{ "pool.num_envs" = 2, "agent.rollout_steps" = 16, "agent.minibatches" = 2, "agent.features" = 16, \
"reward.feature_dim" = 8, "reward.hidden" = 8, "curiosity.minibatches" = 2, "curiosity.warmup_steps" = 16 }}
seeds = [0]
steps = 64

[[rate]]
steps_per_second = 10
start_seconds = 1
gpu = 0.0
cores = 1
workers = 0
source = "a guess"
"""


def tiny_queue(place: Path) -> Path:
    """The repository, with everything committed."""
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "evidence", place / "evidence", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "results").mkdir()
    (place / "evidence" / "plan.toml").write_text(PLAN)
    (place / "evidence" / "credits.csv").unlink()
    assert queue(place, "identities").returncode == 0
    git(place, "init", "-q")
    git(place, "add", "-A")
    git(place, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "all")
    return place


def queue(place: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`evidence/queue …` in such a repository."""
    return command([sys.executable, str(place / "evidence" / "queue"), *words], **variables)


def batch(place: Path, work: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`batch.sh …` of the batch that is there."""
    script = place / ".offline" / "batch" / "batch.sh"
    return command(["bash", str(script), *words], EVIDENCE_WORK=str(work), PYTHON=sys.executable)


def git(place: Path, *words: str) -> None:
    """A git command there."""
    subprocess.run(["git", "-C", str(place), *words], check=True, capture_output=True)


def command(words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """What it said, without what the tests around it set for Python."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(words, capture_output=True, text=True, check=False, env={**env, **variables})
