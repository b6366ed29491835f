"""URLB's second phase: a pre-trained policy learns a task from its reward (URLB finetune.py, agent/ddpg.py init_from).

    copied     actor, and the critic's trunk; from `proto` the whole critic
    fresh      the critic's heads, the target network whole, both optimisers, the replay, all statistics
    the same   everything else of the configuration, but the environment is the task, n-step is 3, the reward the task's
               own, and the bonus is neither computed nor learned

The target network is the copy of the critic as it was before anything was copied into that, as in URLB: it follows at
its own pace. The first steps are random again (`learning_starts`). Greedy episodes are played every 10,000 steps, or as
often as is asked for, and at the end. Policies with skills choose one as `intrigue.training.skill_selection` says.

A fine-tuning is a run like any other: `resume`, `verify` and `report` work on it.

Differs from URLB: of `aps` the features that tasks are regressed on are copied too. URLB leaves them as they were first
drawn, so that the task is regressed on features that nothing was trained with.

URLB's second phase of several seeds at once: every pre-trained seed learns the task, each from its own snapshot.

runs/walker/seed-0, …    ──►    runs/walker__walker_run__2000000/seed-0, …
"""

from __future__ import annotations

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
from intrigue.run.checkpoint.snapshot import Snapshot, describe
from intrigue.run.driver import Prepare, start
from intrigue.run.folder import Run, RunFolder, open_run, read_config
from intrigue.run.logging.loggers import installed
from intrigue.run.multi_seed import Plan, start_seeds
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
class Finetuned:
    """A finished fine-tuning and what its last evaluation found."""

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
) -> Finetuned:
    """Fine-tune the run in `folder` on a task, from the snapshot of `mark` steps or its newest."""
    changes = changes_of(steps, n_step, eval_every, device, seed)
    before = whole_path(folder)
    given, cfg, prepare = planned(before, task, mark, changes, origin=before.path.name)
    short = short_task(cfg)
    place = out or before.path.parent / f"{before.path.name}__{short}__{given.mark}__{cfg.run.seed}"
    return scored(start(cfg, out=place, quiet=quiet, prepare=prepare), given.mark)


def changes_of(steps: int, n_step: int, eval_every: int, device: str, seed: int | None = None) -> dict[str, Any]:
    """What a user may set of a fine-tuning, as a layer of its configuration.

    Raises:
        ConfigError: it would never be evaluated, so that it had no score.
    """
    if eval_every < 1:
        raise ConfigError([Problem("--eval-every", f"{eval_every} is out of range; it must be >= 1.")])
    own = {} if seed is None else {"seed": seed}
    return {"steps": steps, "agent.n_step": n_step, "run.eval_every": eval_every, "device": device, **own}


def whole_path(folder: Path) -> RunFolder:
    """The run there, by a path that has a name whatever was typed."""
    return RunFolder(Path(os.path.abspath(open_run(folder).path)))


def short_task(cfg: RunConfig) -> str:
    """The task's part of a folder's name."""
    return safe_name(split_id(cfg.env_id)[1] or cfg.env_id)


def planned(
    before: RunFolder, task: str, mark: int | None, changes: Mapping[str, Any], *, origin: str
) -> tuple[Snapshot, RunConfig, Prepare]:
    """The snapshot that a fine-tuning begins with, its configuration, and what it does to fresh parts.

    `origin` is what provenance.json will call the run it comes from.
    """
    given = snapshots.load(before, mark)
    return given, configure(given, before, task, changes), lambda parts: transfer(given, parts, origin)


def scored(done: Run, mark: int) -> Finetuned:
    """A fine-tuning that reached its last step, with what its last evaluation found."""
    last = {name: column[-1] for name, column in done.evaluations().items()}
    task = done.config.env_id
    return Finetuned(
        run=done,
        task=task,
        mark=mark,
        score=last["eval/return_mean"],
        spread=last["eval/return_std"],
        episodes=int(last["eval/episodes"]),
        expert=expert_of(task),
    )


def configure(given: Snapshot, run: RunFolder, task: str, changes: Mapping[str, Any]) -> RunConfig:
    """The run that goes on from a snapshot. Raises ConfigError for a task of another domain."""
    tree = read_config(run)
    for section in ("env", "agent", "reward"):
        if tree.get(section) != given.about.get(section):
            raise CheckpointError(
                f"{given.path} was taken of another {section} than {run.config} describes: "
                f"{given.about.get(section)!r}. Put back the one that belongs here; nothing was started from scratch."
            )
    before = flatten_json(tree)
    env_id = _task_id(str(before["env"]), task)
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
            "run.sinks": installed(before.get("run.sinks", ())),  # where it was trained there may have been more
            "run.eval_every": EVAL_EVERY,
            "run.eval_episodes": EVAL_EPISODES,
            **changes,
        },
    )


def _task_id(trained: str, task: str) -> str:
    """The environment that `task` names beside the one that was trained in."""
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


def transfer(given: Snapshot, parts: AnyParts, origin: str) -> dict[str, Any]:
    """Copy what is to be copied into fresh parts; what was, for provenance.json.

    Raises:
        ConfigError: the snapshot is of other sizes.
    """
    agent, curiosity = parts.agent, parts.curiosity
    assert isinstance(agent, DDPG)
    now = describe(with_skills(parts.collector.pool.spaces, curiosity.skills))
    if given.about.get("spaces") != now:
        raise ConfigError(
            f"{given.path} was trained for other sizes: {given.about.get('spaces')}, the task has {now}. "
            "Use a task of the same domain; nothing was started from scratch."
        )
    reward = curiosity.reward
    prefixes = COPIED_WITH_CRITIC if reward.finetune_copies_critic else COPIED
    copied = {"agent": copy_weights(agent, given.agent, prefixes, given.path)}
    agent.sync_behaviour_policy()
    if reward.finetune_copies:
        copied["reward"] = copy_weights(reward, given.reward, reward.finetune_copies, given.path)
    return {"finetuned_from": {"run": origin, "snapshot": given.mark, "digest": given.digest, "copied": copied}}


@torch.no_grad()
def copy_weights(module: nn.Module, weights: Mapping[str, Tensor], prefixes: tuple[str, ...], path: Path) -> list[str]:
    """The names of the weights that were copied: all of the module's that begin so.

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


def finetune_seeds(
    folder: Path,
    task: str,
    *,
    mark: int | None = None,
    steps: int = STEPS,
    n_step: int = N_STEP,
    eval_every: int = EVAL_EVERY,
    device: str = "auto",
    out: Path | None = None,
    quiet: bool = False,
) -> list[Finetuned]:
    """Fine-tune all runs of a folder of seeds, from their snapshots of `mark` steps or their newest, seed by seed.

    Raises:
        ConfigError: their newest snapshots are of different steps, or two are of one seed.
    """
    folder = Path(os.path.abspath(folder))
    changes = changes_of(steps, n_step, eval_every, device)
    plans: dict[int, Plan] = {}
    marks: dict[int, int] = {}
    for each in seed_runs(folder):
        before = whole_path(each)
        given, cfg, prepare = planned(before, task, mark, changes, origin=f"{folder.name}/{before.path.name}")
        seed = cfg.run.seed
        if seed in plans:
            raise ConfigError(f"{folder} holds two runs of seed {seed}; move one elsewhere.")
        plans[seed], marks[seed] = Plan(cfg, prepare), given.mark
    newest = sorted(set(marks.values()))
    if len(newest) > 1:
        text = f"the seeds' newest snapshots differ: {', '.join(map(str, newest))}. Name one that all have."
        raise ConfigError([Problem("--snapshot", text)])
    short = short_task(next(iter(plans.values())).cfg)
    place = out or folder.parent / f"{folder.name}__{short}__{newest[0]}"
    runs = start_seeds([plans[seed] for seed in sorted(plans)], out=place, quiet=quiet)
    return [scored(run, newest[0]) for run in runs]
