"""Several seeds: how they are named, where they stop, what the loop around them is told, what is shown of them."""

from __future__ import annotations

import io
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import TINY
from intrigue.config.run import resolve
from intrigue.errors import ConfigError, NonFiniteError, name_seed_in_errors
from intrigue.presets import preset_layer
from intrigue.run.logging.console import Console
from intrigue.run.loop import mean_metrics, next_mark, next_stop
from intrigue.run.names import default_seed_folder_name, original_text, parse_seed_name, seed_folder_name
from intrigue.run.seed_folder import seed_runs
from intrigue.seeding import MAX_SEEDS, parse_seeds
from intrigue.training.build import build, pool_config_for
from intrigue.training.loops import train_all, why_not_together

REPLAY = {
    "env": "dmc/pendulum_swingup",
    "env.max_episode_steps": 15,
    "threads": 1,
    "device": "cpu",
    "agent.capacity": 300,
    "agent.batch": 8,
    "agent.hidden": 8,
    "agent.learning_starts": 40,
    "agent.train_every": 8,
    "agent.rollout_steps": 5,
    "pool.num_envs": 4,
}


def small(**changes):
    return resolve(preset_layer("scratch-urlb"), {**REPLAY, **changes})


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("0:8", [*range(8)]),
        ("3", [3]),
        ("5,0, 3", [0, 3, 5]),
        ("0:2,7:9,4", [0, 1, 4, 7, 8]),
        ("100:164", [*range(100, 164)]),
    ],
)
def test_seeds_are_read(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Write 0:8 for the seeds 0 to 7, or 0,3,5"),
        ("0:", "no list of seeds"),
        ("0-8", "no list of seeds"),
        ("-1:3", "no list of seeds"),
        ("a,b", "no list of seeds"),
        ("1.5", "no list of seeds"),
        ("٣", "no list of seeds"),
        ("8:8", "holds no seed: the end is left out. 8:16 holds eight"),
        ("8:2", "holds no seed"),
        ("0,3,0,3", "0, 3 stands more than once. Name each once: --seeds 0,3."),
        ("0:4,2", "--seeds 0,1,2,3."),
        (f"0:{MAX_SEEDS + 1}", f"more than {MAX_SEEDS} seeds"),
        ("0:999999999999999999", f"--seeds 0:{MAX_SEEDS} is a first one"),
    ],
)
def test_what_is_wrong_with_seeds_is_said_with_the_fix(text, said):
    with pytest.raises(ConfigError) as refused:
        parse_seeds(text)
    assert said in str(refused.value)
    assert refused.value.problems[0].path == "--seeds"


def test_folders_of_seeds_have_names():
    assert default_seed_folder_name("dmc/walker", "nnm", "ddpg", [*range(8)]) == "dmc+walker__nnm__ddpg__seeds-0-7"
    assert default_seed_folder_name("rooms", "rnd", "ppo", [0, 3, 5]) == "rooms__rnd__ppo__seeds-0_3_5"
    assert default_seed_folder_name("rooms", "rnd", "ppo", [4]) == "rooms__rnd__ppo__seeds-4"
    assert original_text(default_seed_folder_name("a/b", "r", "p", [1, 2])) == "a/b__r__p__seeds-1-2"
    assert [parse_seed_name(seed_folder_name(seed)) for seed in (0, 7, 10**12)] == [0, 7, 10**12]
    assert [parse_seed_name(name) for name in ("seed-", "seed-01", "seed-1x", "seed--1", "Seed-1", "seed-١")] == [
        None
    ] * 6


def test_runs_of_seeds_are_found_in_the_order_of_their_seeds(tmp_path):
    for name in ("seed-10", "seed-9", "seed-0", "other", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "seed-3").write_text("a file")
    assert [each.name for each in seed_runs(tmp_path)] == ["seed-0", "seed-9", "seed-10"]
    (tmp_path / "checkpoints").mkdir()
    assert seed_runs(tmp_path) == [], "a run is a run, whatever else lies in it"
    assert seed_runs(tmp_path / "nowhere") == []


@given(
    st.integers(0, 300), st.lists(st.integers(0, 40), max_size=3), st.lists(st.integers(0, 300), max_size=4),
    st.integers(1, 50),
)  # fmt: skip
def test_the_next_mark_is_the_first_that_somebody_wants(step, every, marks, beyond):
    last = step + beyond
    wanted = [
        each
        for each in range(step + 1, last + 1)
        if each in marks or each == last or any(number and each % number == 0 for number in every)
    ]
    assert next_mark(step, every, [*marks, last]) == wanted[0]


def test_a_run_stops_at_lines_checkpoints_snapshots_evaluations_and_its_end():
    cfg = resolve({**TINY, "checkpoint_every": 30, "run.snapshots": "7,33", "run.eval_every": 21, "steps": 50})
    seen, step = [], 0
    while step < 50:
        seen.append(step := next_stop(cfg, step, 20, 50))
    assert seen == [7, 20, 21, 30, 33, 40, 42, 50]


@pytest.fixture
def made():
    """Builds started parts, and closes them."""
    built = []

    def make(**changes):
        built.append(build(small(**changes)))
        built[-1].collector.start()
        return built[-1]

    yield make
    for parts in built:
        parts.close()


def seen_at(parts, stops, last):
    """What a loop gave until `last`."""
    seen = []
    for progresses in train_all(parts, 0, stops):
        seen.append(progresses)
        if progresses[0].step >= last:
            break
    return seen


@pytest.mark.parametrize("seeds", [(3,), (3, 4)])
def test_no_episode_and_no_line_is_lost_between_stops(made, seeds):
    """Looked at after every step of its four environments, and at few stops: the same was seen of every seed."""
    often = seen_at([made(seed=seed) for seed in seeds], lambda step: step + 1, 240)
    assert [each[0].step for each in often] == [*range(4, 241, 4)]
    lines = [*range(20, 241, 20)]
    wanted = sorted([12, 48, 62, *lines])  # 62 lies between two steps of four environments
    seldom = seen_at([made(seed=seed) for seed in seeds], lambda step: next_mark(step, (), wanted), 240)
    assert [each[0].step for each in seldom] == sorted({12, 48, 64, *lines})
    for row in range(len(seeds)):
        assert {each[row].step for each in seldom} == {each[0].step for each in seldom}
        first, second = ([one for each in seen for one in each[row].episodes] for seen in (often, seldom))
        assert first == second and len(first) > 8
        told = [{each[row].step: each[row].metrics for each in seen if each[row].metrics} for seen in (often, seldom)]
        assert list(told[0]) == list(told[1]) == lines
        for step in lines:
            assert set(told[0][step]) == set(told[1][step])
            for name in ("losses/critic_loss", "charts/replayed"):
                assert told[0][step].get(name) == pytest.approx(told[1][step].get(name)), (step, name)
        assert "losses/critic_loss" in told[0][240]


def test_stops_that_come_nearer_are_heeded_at_the_next_step(made):
    parts = [made(seed=0), made(seed=1)]

    def stops(step):
        return step + 1 if parts[0].collector.step_count >= 40 else 10**9  # as when a signal arrives

    both = next(iter(train_all(parts, 0, stops)))
    assert [each.step for each in both] == [40, 40]


def test_a_failure_is_named_by_its_seed_and_keeps_its_kind():
    with pytest.raises(NonFiniteError, match=r"^seed 7: the loss is NaN$"), name_seed_in_errors(7):
        raise NonFiniteError("the loss is NaN")
    with pytest.raises(ConfigError, match=r"^wrong$"), name_seed_in_errors(7):
        raise ConfigError("wrong")


def test_seeds_side_by_side_step_in_processes_of_their_own_on_any_core():
    """Alone a run keeps what was asked for; every seed of several would be pinned to the same first core."""
    here, pinned = small(**{"pool.workers": 0}), small(**{"pool.workers": 2, "pool.pin": True})
    assert [pool_config_for(cfg, 1) for cfg in (here, pinned)] == [here.pool, pinned.pool]
    assert [(crew.workers, crew.pin) for crew in (pool_config_for(here, 3), pool_config_for(pinned, 3))] == [
        (1, False),
        (2, False),
    ]


def test_why_seeds_do_not_learn_together(made):
    cfg = small()
    parts = made()
    assert why_not_together(cfg, parts, 8) is None
    parts.footprint = replace(parts.footprint, bytes=10**17)
    assert "together their replays need 1,600 PB, cpu has " in why_not_together(cfg, parts, 8)
    rollouts = resolve(TINY)
    ppo = build(rollouts)
    try:
        assert "'ppo' learns from its rollouts" in why_not_together(rollouts, ppo, 2)
    finally:
        ppo.close()


def test_one_line_shows_the_mean_of_all_seeds_and_the_rate_of_all_together():
    stream, now = io.StringIO(), [0.0]
    console = Console(1000, stream=stream, clock=lambda: now[0], seeds=4)
    console.update(100, 100, {})
    now[0] = 10.0
    rows = [{"charts/episodic_return": 1.0}, {"charts/episodic_return": 4.0}, {"charts/episodic_return": math.nan}, {}]
    console.update(200, 200, mean_metrics(rows))
    line = stream.getvalue().splitlines()[-1]
    assert "200/1,000 steps of 4 seeds" in line
    assert "40 steps/s" in line
    assert "1:20 left" in line
    assert "return 2.5" in line
    assert mean_metrics([{"a": math.nan}, {}]) == {}
