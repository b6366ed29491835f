"""URLB's second phase: a pre-trained policy learns a task from its reward (URLB finetune.py, agent/ddpg.py init_from).

    copied      actor, and the critic's trunk; from `proto` the whole critic
    new         the critic's heads, the whole target network, both optimisers, the replay, all statistics
    unchanged   every other setting, except: the environment is the task, n-step is 3, the reward is the task's own,
                and the bonus is neither computed nor learned

The target network keeps the critic's weights from before the copy, as in URLB, and follows at its own pace. The first
steps are random again (`learning_starts`). Greedy episodes are played every 10,000 steps, or as often as `eval_every`
says, and at the end. Policies with skills choose one as `intrigue.training.skill_selection` says.

A fine-tuning is a run like any other: `resume`, `verify` and `report` work on it. Of a folder of seeds every run is
fine-tuned, each from its own snapshot:

    runs/walker/seed-0, …    ──►    runs/walker__walker_run__2000000/seed-0, …

Differs from URLB: of `aps` the features that tasks are regressed on are copied too. URLB leaves them at their random
initialisation, so that the task is regressed on untrained features.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from intrigue.agents.ddpg import DDPG
from intrigue.config.run import RunConfig, flatten_json, resolve
from intrigue.envs.dmc.names import PRIMAL, TASK_OF
from intrigue.envs.registry import split_id
from intrigue.errors import CheckpointError, ConfigError, Problem, nearest
from intrigue.rewards.registry import REWARDS
from intrigue.run.checkpoint import snapshot as snapshots
from intrigue.run.checkpoint.snapshot import Snapshot, describe_spaces
from intrigue.run.driver import SeedRun, start, start_seeds
from intrigue.run.folder import Run, RunFolder, open_run, read_config
from intrigue.run.logging.loggers import find_installed
from intrigue.run.names import safe_name
from intrigue.run.seed_folder import seed_runs
from intrigue.scores.normalized import EVAL_EPISODES, EVAL_EVERY, expert_of
from intrigue.training.build import with_skills
from intrigue.training.loops import AnyParts

STEPS = 100_000  # where the benchmark's scores are read: URLB's paper; CIC num_train_frames 100,010
N_STEP = 3  # URLB finetune.yaml nstep
COPIED = ("actor.", "critic.trunk.")  # URLB init_from, init_critic true
COPIED_WITH_CRITIC = ("actor.", "critic.")  # where the reward says `finetune_copies_critic`


@dataclass(frozen=True, slots=True)
class FinetuneResult:
    """A finished fine-tuning and what its last evaluation measured."""

    run: Run
    task: str
    mark: int
    """Steps of the snapshot it began with."""
    score: float
    spread: float
    episodes: int
    expert: float | None

    @property
    def normalized(self) -> float | None:
        """The score as a share of the expert's; None where there is no expert."""
        return None if self.expert is None else self.score / self.expert


def finetune(
    folder: Path,
    task: str,
    *,
    mark: int | None = None,
    steps: int = STEPS,
    n_step: int = N_STEP,
    eval_every: int = EVAL_EVERY,
    seed: int | None = None,
    device: str = "auto",
    out: Path | None = None,
    quiet: bool = False,
) -> list[FinetuneResult]:
    """Fine-tune a run, or all runs of a folder of seeds, from their snapshots of `mark` steps or their newest.

    Raises:
        ConfigError: `seed` is given for a folder of seeds, their newest snapshots differ, or two are of one seed.
    """
    if eval_every < 1:
        raise ConfigError([Problem("--eval-every", f"{eval_every} is out of range; it must be >= 1.")])
    several = bool(seed_runs(folder))
    if several and seed is not None:
        raise ConfigError([Problem("--seed", f"{folder} holds several seeds, and each keeps its own. Leave it out.")])
    changes: dict[str, Any] = {"steps": steps, "agent.n_step": n_step, "run.eval_every": eval_every, "device": device}
    new_runs, mark = _plan(folder, task, mark, changes if seed is None else {**changes, "seed": seed})
    cfg, before = new_runs[0].cfg, Path(os.path.abspath(folder))
    name = f"{before.name}__{safe_name(split_id(cfg.env_id)[1] or cfg.env_id)}__{mark}"
    if several:
        runs = start_seeds(new_runs, out=out or before.parent / name, quiet=quiet)
    else:
        place = out or before.parent / f"{name}__{cfg.run.seed}"
        runs = [start(cfg, out=place, quiet=quiet, prepare=new_runs[0].prepare)]
    return [read_result(run, mark) for run in runs]


def _plan(folder: Path, task: str, mark: int | None, changes: Mapping[str, Any]) -> tuple[list[SeedRun], int]:
    """The runs to start, by seed, and the step of the snapshots that they begin with."""
    seeds = seed_runs(folder)
    new_runs: dict[int, SeedRun] = {}
    marks = set()
    for path in seeds or [folder]:
        before = RunFolder(Path(os.path.abspath(open_run(path).path)))
        snapshot = snapshots.load(before, mark)
        cfg = configure(snapshot, before, task, changes)
        if cfg.run.seed in new_runs:
            raise ConfigError(f"{folder} holds two runs of seed {cfg.run.seed}; move one elsewhere.")
        origin = f"{before.path.parent.name}/{before.path.name}" if seeds else before.path.name
        new_runs[cfg.run.seed] = SeedRun(cfg, functools.partial(copy_from_snapshot, snapshot, origin=origin))
        marks.add(snapshot.mark)
    if len(marks) > 1:
        text = f"the seeds' newest snapshots differ: {', '.join(map(str, sorted(marks)))}. Name one that all have."
        raise ConfigError([Problem("--snapshot", text)])
    return [new_runs[seed] for seed in sorted(new_runs)], marks.pop()


def read_result(run: Run, mark: int) -> FinetuneResult:
    """The result of a fine-tuning that reached its last step: what its last evaluation measured."""
    last = {name: column[-1] for name, column in run.evaluations().items()}
    task = run.config.env_id
    return FinetuneResult(
        run=run,
        task=task,
        mark=mark,
        score=last["eval/return_mean"],
        spread=last["eval/return_std"],
        episodes=int(last["eval/episodes"]),
        expert=expert_of(task),
    )


def configure(snapshot: Snapshot, run: RunFolder, task: str, changes: Mapping[str, Any]) -> RunConfig:
    """The settings of a fine-tuning from this snapshot. Raises ConfigError for a task of another domain."""
    tree = read_config(run)
    for section in ("env", "agent", "reward"):
        if tree.get(section) != snapshot.about.get(section):
            raise CheckpointError(
                f"{snapshot.path} was taken of another {section} than {run.config} describes: "
                f"{snapshot.about.get(section)!r}. Put back the one that belongs here; "
                "nothing was started from scratch."
            )
    before = flatten_json(tree)
    env_id = _resolve_task(str(before["env"]), task)
    if before["agent"] != "ddpg":
        raise ConfigError([Problem("DIR", f"its agent {before['agent']!r} cannot be fine-tuned, only 'ddpg' can.")])
    return resolve(
        before,
        {
            "env": env_id,
            "curiosity.int_coef": 0.0,
            "curiosity.int_coef_steps": 0,
            "curiosity.ext_coef": 1.0,  # URLB: the task's reward as it is
            "curiosity.scale": "none",
            "curiosity.warmup_steps": 0,
            "curiosity.idle": True,
            "curiosity.follow": REWARDS.get(str(before["reward"])).cls.finetune_skill,
            "run.snapshots": (),
            "run.execution": "auto",
            "run.sinks": find_installed(before.get("run.sinks", ())),  # the training machine may have had more
            "run.eval_every": EVAL_EVERY,
            "run.eval_episodes": EVAL_EPISODES,
            **changes,
        },
    )


def _resolve_task(trained: str, task: str) -> str:
    """The id of the environment that `task` names, given the one trained in."""
    family, name = split_id(trained)
    env_id = task if "/" in task or not name else f"{family}/{task}"
    if env_id == trained and name in PRIMAL:
        raise ConfigError([Problem("--task", f"{task!r} has no reward to learn from. Use for example {task}_run.")])
    before, after = _domain(trained), _domain(env_id)
    known = sorted(each for each, (domain, _) in TASK_OF.items() if domain == before)
    if None not in (before, after) and before != after:
        text = f"{task!r} is not of the domain that was trained in, {before!r}. Its tasks: {', '.join(known)}."
        raise ConfigError([Problem("--task", text)])
    short = split_id(env_id)[1]
    if known and split_id(env_id)[0] == "dmc" and after is None and not short.startswith(f"{before}_"):
        # Without its domain a task is most like one of another domain: `run` like `dog_run`.
        near = nearest(f"{before}_{short}", known)
        guess = f" Did you mean {near!r}?" if near else ""
        text = f"unknown task {task!r}.{guess} Tasks of {before!r}: {', '.join(known)}."
        raise ConfigError([Problem("--task", text)])
    return env_id


def _domain(env_id: str) -> str | None:
    """The domain of a known `dmc` id."""
    family, name = split_id(env_id)
    if family != "dmc":
        return None
    return name if name in PRIMAL else TASK_OF.get(name, (None, ""))[0]


def copy_from_snapshot(snapshot: Snapshot, parts: AnyParts, origin: str) -> dict[str, Any]:
    """Copy a snapshot's weights into new parts; returns what was copied, for provenance.json.

    Raises:
        ConfigError: the snapshot is of other sizes.
    """
    agent, curiosity = parts.agent, parts.curiosity
    assert isinstance(agent, DDPG)
    now = describe_spaces(with_skills(parts.collector.pool.spaces, curiosity.skills))
    if snapshot.about.get("spaces") != now:
        raise ConfigError(
            f"{snapshot.path} was trained for other sizes: {snapshot.about.get('spaces')}, the task has {now}. "
            "Use a task of the same domain; nothing was started from scratch."
        )
    reward = curiosity.reward
    prefixes = COPIED_WITH_CRITIC if reward.finetune_copies_critic else COPIED
    copied = {"agent": copy_weights(agent, snapshot.agent, prefixes, snapshot.path)}
    agent.sync_behaviour_policy()
    if reward.finetune_copies:
        copied["reward"] = copy_weights(reward, snapshot.reward, reward.finetune_copies, snapshot.path)
    return {"finetuned_from": {"run": origin, "snapshot": snapshot.mark, "digest": snapshot.digest, "copied": copied}}


@torch.no_grad()
def copy_weights(module: nn.Module, weights: Mapping[str, Tensor], prefixes: tuple[str, ...], path: Path) -> list[str]:
    """Copy all of the module's weights whose names begin with one of `prefixes`; returns their names.

    Raises:
        ConfigError: some are missing or of another shape.
    """
    own = {name: weight for name, weight in module.state_dict().items() if name.startswith(prefixes)}
    wrong = [
        f"{name} is {_shape(weights.get(name))}, expected {_shape(weight)}"
        for name, weight in own.items()
        if _shape(weights.get(name)) != _shape(weight)
    ]
    if wrong or not own:
        raise ConfigError(
            f"{path} does not fit: {'; '.join(wrong[:3]) or 'no weights'}. Nothing was started from scratch."
        )
    for name, weight in own.items():
        weight.copy_(weights[name])
    return sorted(own)


def _shape(weight: Tensor | None) -> str:
    return "missing" if weight is None else "x".join(map(str, weight.shape))
