"""`intrigue bench train` as its user runs it: agents with a replay, and those that learn from rollouts."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
import torch

from intrigue.bench import train_off_policy, train_on_policy
from intrigue.bench.off_policy_engines import OneByOne, engine_of
from intrigue.bench.timing import PhaseClock
from intrigue.bench.train_off_policy import Timed, back_to_back, fill, projection, speeds, train
from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.presets import preset_layer
from intrigue.replay.plan import ReplayPlan
from intrigue.run import build as run_build
from intrigue.training.build import build

TINY = {
    "env": "gym/Pendulum-v1", "agent": "ddpg", "agent.hidden": 8, "agent.batch": 16, "agent.capacity": 4_000,
    "reward": "rnd", "reward.hidden": 8, "reward.feature_dim": 4, "device": "cpu", "pool.num_envs": 1,
    "pool.workers": 0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _short_ceilings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_off_policy, "CEILING_SECONDS", 0.1)
    monkeypatch.setattr(train_on_policy, "CEILING_SECONDS", 0.1)
    # The small presets ask for two threads; tests share the cores with others.
    monkeypatch.setattr(run_build, "use_threads", lambda wanted: wanted)


def test_two_seeds_of_a_preset_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "speed.json"
    setting = ["dmc/cartpole_swingup", "--preset", "nnm-urlb-small", "--envs", "2"]
    assert main(["bench", "train", *setting, "--updates", "6", "--seeds", "3:5", "--json", str(file)]) == 0
    out, found = capsys.readouterr().out, json.loads(file.read_text())
    assert out.startswith(
        "nnm-urlb-small on dmc/cartpole_swingup: 2 seeds, 2 environments each, one update per 2 steps"
    )
    assert (found["seeds"], found["envs"], found["train_every"], found["execution"]) == ([3, 4], 2, 2, "plain")
    assert found["workers"] == 1, "as seeds side by side are trained"
    assert (found["updates"], found["steps"]) == (6, 12), "one update per two steps of each seed"
    assert found["update_milliseconds_per_seed"] == found["update_milliseconds"] / 2
    assert f"{found['update_milliseconds']:,.1f} ms, {found['update_milliseconds_per_seed']:.1f} per seed" in out
    assert found["steps_per_second"] == pytest.approx(2 * 12 / found["wall_seconds"])
    assert found["engine"] == "Together", "what `intrigue train` takes for this setting"
    assert set(found["shares"]) == {"step", "act", "keep", "update", "rest"} and sum(
        found["shares"].values()
    ) == pytest.approx(1)
    assert all(share > 0 for share in found["shares"].values())
    # 50,000 steps, of which 4,000 are random; then one update every other step.
    assert (found["whole_steps"], found["frames"], found["whole_updates"]) == (50_000, 50_000, 23_000)
    assert re.search(r"whole run .* for 50,000 steps \(50,000 frames\), 23,000 updates of each seed", out)
    overlap = resolve(preset_layer("nnm-urlb-small")).agent_options["overlap"]
    assert (
        found["staleness_updates"] == int(overlap) and found["device_peak_mib"] is None and found["host_peak_mib"] > 100
    )


def test_rollouts_are_measured_as_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "speed.json"
    assert main(["bench", "train", "--preset", "quickstart", "--rollouts", "1", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert "one rollout" in capsys.readouterr().out
    assert sum(found["shares"].values()) == pytest.approx(1) and found["steps_per_second"] > 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--preset", "nnm-urlb", "--rollouts", "2"], "rollouts: ddpg learns from replay"),
        (["--preset", "nnm-urlb", "--updates", "0"], "updates: 0, at least 1"),
        (["--preset", "quickstart", "--seeds", "0:2", "--updates", "3"], "seeds: ppo learns from its rollouts"),
        (["--preset", "nnm-urlb", "--seeds", "2:2"], "seeds: '2:2' holds no seed"),
    ],
)
def test_what_does_not_fit_is_refused(given: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", *given]) == 2
    assert told in capsys.readouterr().err


def test_the_replay_is_filled_with_whole_episodes_and_every_update_draws_from_it() -> None:
    parts = build(resolve(TINY))
    try:
        fill(parts)
        assert len(parts.collector.replay.episodes) == 2
        assert parts.collector.step_count == 400, "an episode of 200 steps after another"
        before = [weight.detach().clone() for weight in parts.agent.parameters()]
        engine = OneByOne([parts])
        found = train(engine, 1, 5)
        assert found.steps == 10 and parts.collector.step_count == 410
        assert {name: len(spans) for name, spans in found.spans.items()} == {
            "step": 10, "act": 10, "keep": 10, "update": 5, "draw": 5, "bonus": 5, "agent": 5,
        }  # fmt: skip
        within = sum(sum(found.spans[name]) for name in ("draw", "bonus", "agent"))
        assert within <= sum(found.spans["update"]) <= found.wall
        after = list(parts.agent.parameters())
        assert any(not torch.equal(one, two) for one, two in zip(before, after, strict=True)), "updates are real"
        engine.clock.leave()
        parts.collector.step(parts.agent, parts.streams["act"])
        assert len(engine.clock.seconds()["step"]) == 10, "nobody watches any more"
    finally:
        parts.close()


def test_seeds_together_learn_and_act_with_their_policies() -> None:
    tiny = {
        **TINY,
        "reward": "none",
        "curiosity.ext_coef": 1.0,
        "curiosity.scale": "none",
        "curiosity.obs_norm": "none",
    }
    layer = {key: value for key, value in tiny.items() if not key.startswith("reward.")}
    several = [build(resolve(layer, {"seed": seed, "agent.learning_starts": 5_000})) for seed in (0, 1)]
    try:
        for parts in several:
            fill(parts)
        engine = engine_of(several)
        assert type(engine).__name__ == "Together" and engine.staleness == 0
        before = [parts.agent.actor.trunk[0].weight.detach().clone() for parts in several]
        found = train(engine, 1, 3)
        # Updates begin with the step after the one they fall due with, so the third comes with the seventh.
        assert {name: len(spans) for name, spans in found.spans.items()} == {
            "act": 14, "step": 28, "keep": 26, "update": 3,
        }, "each seed's environment is sent on and received, and its steps but the last are written down"  # fmt: skip
        for parts, weight in zip(several, before, strict=True):
            assert parts.collector.step_count == 5_007, "beyond the random steps"
            assert not torch.equal(parts.agent.actor.trunk[0].weight, weight)
    finally:
        for parts in several:
            parts.close()


def test_time_runs_out_only_after_enough_updates() -> None:
    class Engine:
        staleness = 0

        def __init__(self) -> None:
            self.clock, self.steps = PhaseClock(torch.device("cpu")), 0

        def advance(self) -> int:
            self.steps += 1
            for _ in range(4):
                with self.clock.span("update"):
                    pass
            return 4

    engine = Engine()
    found = train(engine, 8, 1_000, seconds=0.0)
    assert (engine.steps, found.steps, len(found.spans["update"])) == (2, 16, 8)
    assert set(found.shares()) == {"update", "rest"}, "phases that are not told apart are not made up"


def test_back_to_back_is_the_mean_of_all_updates() -> None:
    class Engine:
        clock, done = PhaseClock(torch.device("cpu")), 0

        def update(self) -> None:
            self.done += 1
            time.sleep(0.02 if self.done == 3 else 0.0)

    engine = Engine()
    assert 5 <= back_to_back(engine, 4) < 15
    assert engine.done == 4


def test_figures_by_hand() -> None:
    """Three seeds: 40 steps of each in 2 s, updates of 10, 20 and 60 ms; a run of 1,000 steps, 100 of them random."""
    found = Timed(40, 2.0, {"update": [0.06, 0.01, 0.02], "act": [0.5, 0.25], "step": [0.25]})
    assert found.shares() == {"step": 0.125, "act": 0.375, "update": pytest.approx(0.045), "rest": pytest.approx(0.455)}
    found.spans["agent"] = [0.02]
    rates = speeds(found, 3, 3, ceiling=120.0)
    assert rates["update_milliseconds"] == pytest.approx(20) and rates["updates"] == 3
    assert rates["update_milliseconds_per_seed"] == pytest.approx(20 / 3)
    assert (rates["steps_per_second"], rates["steps_per_second_per_seed"]) == (60, 20)
    assert rates["ratio_to_ceiling"] == 0.5
    assert rates["shares"] == {"step": 0.125, "act": 0.375, "agent": 0.01, "rest": pytest.approx(0.49)}
    plan = ReplayPlan(capacity=1, batch=1, learning_starts=100, train_every=4, discount=0.9)
    whole = projection(1_000, plan, found, 3, ceiling=120.0)
    assert whole["whole_seconds"] == pytest.approx(3 * 100 / 120 + 900 * 2 / 40)
    assert whole["whole_updates"] == 225
    short = projection(60, plan, found, 3, ceiling=120.0)
    assert short["whole_seconds"] == pytest.approx(1.5) and short["whole_updates"] == 0


@pytest.mark.gpu
def test_on_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    setting = ["dmc/cartpole_swingup", "--preset", "nnm-urlb", "--device", "cuda", "--seeds", "0:2"]
    assert main(["bench", "train", *setting, "--updates", "50", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert (found["updates"], found["execution"], found["engine"]) == (50, "graph", "Together")
    assert set(found["shares"]) == {"step", "act", "update", "rest"}
    assert sum(found["shares"].values()) > 0.9, "what is not told apart is the rest; what overlaps counts twice"
    # Events and the host's clock tell the same: the updates are within the whole, and most of it.
    assert 0 < 50e-3 * found["update_milliseconds"] < 1.5 * found["wall_seconds"]
    assert 0 < found["update_milliseconds_back_to_back"] < 1.5 * found["update_milliseconds"]
    assert found["device_peak_mib"] > 50
