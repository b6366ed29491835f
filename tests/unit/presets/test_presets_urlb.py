"""The URLB presets against a table of the sources' values, written here once more and not taken from the presets."""

from __future__ import annotations

import pytest

from finetune_runs import shrunk
from intrigue.agents.registry import AGENTS
from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.presets import PRESETS, preset_layer
from intrigue.run.driver import start
from intrigue.training.build import build
from intrigue.training.loops import loop

# rll-research/url_benchmark: pretrain.yaml, finetune.yaml, agent/ddpg.yaml.
DDPG = {
    "agent.name": "ddpg",
    "agent.capacity": 10**6,
    "agent.batch": 1024,
    "agent.n_step": 1,
    "agent.learning_starts": 4000,
    "agent.train_every": 2,
    "agent.learning_rate": 1e-4,
    "agent.adam_eps": 1e-8,
    "agent.discount": 0.99,
    "agent.target_rate": 0.01,
    "agent.noise": 0.2,
    "agent.noise_clip": 0.3,
    "agent.hidden": 1024,
    "agent.critic": "plain",
    "pool.num_envs": 1,
}
ALONE = {
    "curiosity.int_coef": 1.0,
    "curiosity.ext_coef": 0.0,
    "curiosity.scale": "none",
    "curiosity.obs_norm": "none",
    "curiosity.obs_clip": 0.0,
    "curiosity.learning_rate": 1e-4,
    "curiosity.epochs": 1,
    "curiosity.minibatches": 1,
    "curiosity.update_fraction": 1.0,
    "curiosity.warmup_steps": 0,
    "curiosity.idle": False,
    "curiosity.follow": "drawn",
}
RUN = {
    "env.id": "dmc/walker",
    "env.action_repeat": 1,
    "env.pixels": False,
    "env.stagger": False,
    "run.steps": 2_000_000,
    "run.snapshots": [100_000, 500_000, 1_000_000, 2_000_000],
    "run.eval_every": 0,
}
NNM = {"reward.name": "nnm", "reward.source": "knn", "reward.form": "ratio", "reward.n": 12, "reward.memory": 0,
       "reward.neighbours_of": "obs", "reward.encoder": "trunk", "reward.features": "raw", "reward.feature_dim": 512,
       "reward.hidden": 1024}  # fmt: skip
BONUS = {
    "nnm-urlb": NNM,
    "nnmc-urlb": {**NNM, "reward.name": "nnmc", "reward.form": "centered"},
    "nnm-ensemble-urlb": {**NNM, "reward.source": "ensemble", "reward.n": 5, "reward.blocks": 0, "reward.keep": 0.8},
    "nnm-state-urlb": {**NNM, "reward.encoder": "identity", "reward.features": "layernorm"},
    "apt-urlb": {"reward.name": "apt", "reward.variant": "urlb", "reward.k": 12, "reward.feature_dim": 512,
                 "reward.hidden": 1024},
    "icm-urlb": {"reward.name": "icm", "reward.variant": "urlb", "reward.hidden": 1024},
    "rnd-urlb": {"reward.name": "rnd", "reward.variant": "urlb", "reward.feature_dim": 512, "reward.hidden": 1024},
    "disagreement-urlb": {"reward.name": "disagreement", "reward.variant": "urlb", "reward.members": 5,
                          "reward.hidden": 1024},
    "proto-urlb": {"reward.name": "proto", "reward.variant": "urlb", "reward.feature_dim": 128, "reward.hidden": 512,
                   "reward.prototypes": 512, "reward.queue": 2048, "reward.k": 3, "reward.temperature": 0.1,
                   "reward.rounds": 3, "reward.target_rate": 0.05},
    "aps-urlb": {"reward.name": "aps", "reward.variant": "urlb", "reward.skill_dim": 10, "reward.every": 5,
                 "reward.k": 12, "reward.clip": 1e-4, "reward.hidden": 1024, "agent.critic": "successor"},
    "diayn-urlb": {"reward.name": "diayn", "reward.variant": "urlb", "reward.skills": 16, "reward.every": 50,
                   "reward.hidden": 1024},
    "smm-urlb": {"reward.name": "smm", "reward.variant": "urlb", "reward.skills": 4, "reward.density_hidden": 150,
                 "reward.code": 128, "reward.beta": 0.5, "reward.hidden": 1024, "curiosity.learning_rate": 1e-3},
    "cic-urlb": {"reward.name": "cic", "reward.variant": "official", "reward.skill_dim": 64, "reward.every": 50,
                 "reward.temperature": 0.5, "reward.k": 16, "reward.clip": 5e-4, "reward.hidden": 1024},
    "scratch-urlb": {"reward.name": "none", "curiosity.ext_coef": 1.0, "agent.n_step": 3, "env.id": "dmc/walker_run",
                     "run.steps": 100_000, "run.snapshots": [], "run.eval_every": 10_000, "run.eval_episodes": 10},
}  # fmt: skip


def values_of(name, **changes):
    """Every setting of the resolved preset, by path, as config.json has it."""
    tree = resolve(preset_layer(name), changes).to_json()
    flat = {f"{part}.{key}": value for part in tree if part != "schema" for key, value in tree[part].items()}
    return {path: list(value) if isinstance(value, tuple) else value for path, value in flat.items()}


def test_every_preset_of_the_issue_is_there():
    assert {name for name in PRESETS.names() if name.endswith("-urlb")} == set(BONUS)
    assert "nnm-urlb-small" in PRESETS.names()


@pytest.mark.parametrize("name", sorted(BONUS))
def test_a_preset_is_what_the_sources_say(name):
    wanted = {**RUN, **DDPG, **ALONE, **BONUS[name]}
    got = values_of(name)
    assert {path: got.get(path) for path in wanted} == wanted


@pytest.mark.parametrize("name", sorted(BONUS))
def test_a_preset_trains(name):
    """Random steps, then learning, until every metric was seen; some in three steps at once, as URLB's yaml has it."""
    for n_step in (1, 3) if name in ("nnm-urlb", "aps-urlb") else (1,):
        parts = build(shrunk(name, **{"agent.n_step": n_step, "run.eval_every": 0}))
        try:
            parts.collector.start()
            for progress in loop(parts, 0):
                if progress.step >= 40:
                    break
            assert "losses/critic_loss" in progress.metrics
            assert parts.agent.plan.steps == n_step
            raw = progress.metrics["intrinsic/raw_mean"]
            assert progress.metrics["intrinsic/scaled_mean"] == raw, "the bonus is handed on as it is"
            assert (raw == 0) == (name == "scratch-urlb")
        finally:
            parts.close()


@pytest.mark.parametrize(
    ("preset", "env", "changes", "said"),
    [
        ("scratch-urlb", "dmc/walker", {}, True),
        ("scratch-urlb", "dmc/walker_run", {}, False),
        ("nnm-urlb", "dmc/walker", {}, False),
        ("nnm-urlb", "dmc/walker", {"curiosity.int_coef": 0.0}, True),
    ],
)
def test_a_run_without_any_reward_says_so(preset, env, changes, said, tmp_path, capsys):
    start(shrunk(preset, env=env, steps=20, **{"run.snapshots": (), **changes}), out=tmp_path / "run")
    assert ("nothing to learn from: dmc/walker has no reward of its own" in capsys.readouterr().err) is said


def test_small_differs_only_in_size():
    big, small = values_of("nnm-urlb"), values_of("nnm-urlb-small")
    sizes = {"run.steps", "run.checkpoint_every", "run.snapshots", "run.device", "run.threads", "run.products",
             "pool.workers",
             "agent.capacity", "agent.batch", "agent.hidden", "reward.feature_dim", "reward.hidden"}  # fmt: skip
    assert {path for path in big if big[path] != small[path]} == sizes
    assert (small["run.device"], small["run.threads"]) == ("cpu", 2)
    assert max(small["run.snapshots"]) == small["run.steps"]


def test_the_yaml_files_n_step_is_a_variant():
    assert values_of("nnm-urlb", **{"agent.n_step": 3})["agent.n_step"] == 3
    assert AGENTS.declaration("ddpg").default("n_step") == 1


def test_domains_and_tasks_are_chosen_on_the_command_line(capsys):
    assert main(["train", "dmc/jaco", "--preset", "aps-urlb", "--dry-run"]) == 0
    assert '"id": "dmc/jaco"' in capsys.readouterr().out
    assert main(["train", "dmc/jaca", "--preset", "aps-urlb", "--dry-run"]) == 2
    assert "Did you mean 'dmc/jaco'" in capsys.readouterr().err


def test_re3_without_its_memory_serves_a_replay():
    """A sample of the replay is its memory; remembered states would be found again at no distance."""
    parts = build(shrunk("scratch-urlb", reward="re3", **{"reward.memory": 0, "reward.feature_dim": 6}))
    try:
        parts.collector.start()
        for progress in loop(parts, 0):
            if progress.step >= 40:
                break
        assert progress.metrics["intrinsic/raw_mean"] > 0
    finally:
        parts.close()
