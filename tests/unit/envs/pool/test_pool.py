"""Pools beyond single families: how environments are split, snapshots across them, order of calls, memory, start-up."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intrigue.envs.atari import prefer_avx2_blas
from intrigue.envs.pool.config import PoolConfig, cores, problems, split_envs, split_range, worker_count
from intrigue.envs.pool.messages import BARE, OK, STEPS, Inbox, pack
from intrigue.envs.pool.pool import GroupPool, Pool, make_pool
from intrigue.envs.pool.worker_process import worker_environment
from intrigue.envs.pool.workers import WorkerGroup
from intrigue.errors import CheckpointError, ConfigError, RunError
from intrigue.state import from_bytes, to_bytes

OPTIONS = {"max_steps": 9}


def noisy_pool(workers: int, num_envs: int = 5, seed: int = 3) -> Pool:
    return make_pool("noisy-tv", OPTIONS, PoolConfig(num_envs=num_envs, workers=workers), seed)


def actions(steps: int, num_envs: int = 5) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 5, size=(steps, num_envs))


@given(num_envs=st.integers(1, 200), workers=st.integers(1, 200))
def test_ranges_are_even_and_complete(num_envs: int, workers: int) -> None:
    parts = split_range(num_envs, workers)
    assert [index for part in parts for index in part] == list(range(num_envs))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(num_envs=st.integers(1, 200), workers=st.integers(1, 20), groups=st.integers(1, 9))
def test_every_worker_has_some_of_every_group(num_envs: int, workers: int, groups: int) -> None:
    found = problems(PoolConfig(num_envs=num_envs, workers=workers, groups=groups))
    assert bool(found) == (workers * groups > num_envs)
    if not found:
        held = split_envs(num_envs, workers, groups)
        assert len(held) == workers and all(len(each) == groups and all(map(len, each)) for each in held)
        indices = [[i for each in held for i in each[group]] for group in range(groups)]
        assert [sorted(each) for each in indices] == [list(each) for each in split_range(num_envs, groups)]
        for sizes in (
            [sum(map(len, each)) for each in held],
            *([len(each[g]) for each in held] for g in range(groups)),
        ):
            assert max(sizes) - min(sizes) <= 1


def test_minus_one_is_a_worker_per_core_that_has_something_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intrigue.envs.pool.config.cores", lambda: [0, 1, 2, 3, 6])
    assert worker_count(PoolConfig(num_envs=16, workers=-1)) == 5
    assert worker_count(PoolConfig(num_envs=3, workers=-1)) == 3
    assert worker_count(PoolConfig(num_envs=6, workers=-1, groups=2)) == 3
    assert worker_count(PoolConfig(num_envs=6, workers=0)) == 0
    assert problems(PoolConfig(num_envs=2, workers=-1, groups=2)) == []
    assert problems(PoolConfig(num_envs=2, workers=-1, groups=3))[0].path == "groups"


def test_more_workers_than_environments_is_refused() -> None:
    assert problems(PoolConfig(num_envs=2, workers=2)) == []
    assert problems(PoolConfig(num_envs=2, workers=3))[0].path == "workers"
    with pytest.raises(ConfigError, match="workers"):
        noisy_pool(workers=6)


def test_a_snapshot_crosses_any_number_of_workers() -> None:
    source = noisy_pool(workers=2)
    source.reset()
    for action in actions(23):
        source.step(action)
    saved = from_bytes(to_bytes(source.snapshot()))
    expected = [[each.copy() for each in source.step(action)] for action in actions(40)]
    source.close()
    for workers in (0, 1, 3):
        pool = noisy_pool(workers, seed=77)
        np.testing.assert_array_equal(pool.restore(saved), saved["obs"])
        for wanted, action in zip(expected, actions(40), strict=True):
            for left, right in zip(wanted, pool.step(action), strict=True):
                np.testing.assert_array_equal(left, right)
        pool.close()


@pytest.mark.parametrize(
    ("env_id", "options", "choices"),
    [("noisy-tv", OPTIONS, 5), ("atari/Breakout", {"max_episode_steps": 9}, 4)],
)
@pytest.mark.parametrize(("workers", "groups"), [(0, 2), (1, 2), (2, 2), (-1, 1), (2, 1)])
def test_groups_stepped_in_turn_give_what_all_at_once_give(
    env_id: str, options: dict[str, int], choices: int, workers: int, groups: int
) -> None:
    orders = np.random.default_rng(0).integers(0, choices, size=(25, 5))
    lone = make_pool(env_id, options, PoolConfig(num_envs=5, workers=0), 3)
    pool = make_pool(env_id, options, PoolConfig(num_envs=5, workers=workers, groups=groups), 3)
    np.testing.assert_array_equal(pool.reset(), lone.reset())
    expected = [[each.copy() for each in lone.step(action)] for action in orders]
    assert sum(int(step[3].sum() + step[4].sum()) for step in expected) >= 5, "the trace crosses ends"
    assert [index for rows in pool.groups for index in range(5)[rows]] == list(range(5))
    for group in reversed(range(groups)):  # Any order will do.
        pool.send(group, orders[0][pool.groups[group]])
    for t, step in enumerate(expected):
        for group, rows in enumerate(pool.groups):
            for left, right in zip(pool.receive(group), step, strict=True):
                np.testing.assert_array_equal(left, right[rows])
            if t + 1 < len(orders):
                pool.send(group, orders[t + 1][rows])
    assert to_bytes(pool.snapshot()) == to_bytes(lone.snapshot())
    pool.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_orders_and_answers_must_alternate(workers: int) -> None:
    pool = make_pool("noisy-tv", OPTIONS, PoolConfig(num_envs=5, workers=workers, groups=2), 3)
    with pytest.raises(RunError, match="reset"):
        pool.send(0, np.zeros(2, int))
    pool.reset()
    with pytest.raises(RunError, match=r"group 1 .* not being stepped. Call send\(1"):
        pool.receive(1)
    with pytest.raises(RunError, match=r"expected shape \(2,\), got \(5,\)"):
        pool.send(0, np.zeros(5, int))
    pool.send(1, np.zeros(3, int))
    for forbidden in (pool.snapshot, pool.reset, lambda: pool.step(np.zeros(5, int)), lambda: pool.restore({})):
        with pytest.raises(RunError, match=r"group 1 of noisy-tv is being stepped. Call receive\(1\) first"):
            forbidden()
    with pytest.raises(RunError, match="already being stepped"):
        pool.send(1, np.zeros(3, int))
    pool.receive(1)
    pool.step(np.zeros(5, int))
    assert pool.snapshot()["steps"] == 2
    pool.send(0, np.zeros(2, int))
    pool.close()  # Also while something is under way.


def test_of_stacked_frames_only_the_newest_travels() -> None:
    pool = make_pool("atari/Breakout", {}, PoolConfig(num_envs=2, workers=0), 0)
    assert (pool.stack, pool.spaces.obs.shape) == (4, (4, 84, 84))
    assert pool.reset().shape == (2, 84, 84)
    step = pool.step(np.zeros(2, int))
    assert step.obs.shape == step.next_obs.shape == (2, 84, 84)
    assert noisy_pool(workers=0).stack == 0


def test_a_snapshot_of_another_pool_is_refused() -> None:
    pool = noisy_pool(workers=0)
    pool.reset()
    with pytest.raises(CheckpointError, match="5 environments"):
        noisy_pool(workers=0, num_envs=4).restore(pool.snapshot())


def test_a_snapshot_does_not_change_later() -> None:
    pool = noisy_pool(workers=0)
    pool.reset()
    saved = pool.snapshot()
    before = to_bytes(saved)
    for action in actions(12):
        pool.step(action)
    assert to_bytes(saved) == before


def test_calls_out_of_order_are_refused() -> None:
    pool = noisy_pool(workers=0)
    with pytest.raises(RunError, match="reset"):
        pool.step(actions(1)[0])
    with pytest.raises(RunError, match="reset"):
        pool.snapshot()
    pool.close()
    pool.close()
    with pytest.raises(RunError, match="closed"):
        pool.reset()


@pytest.mark.parametrize(
    "wrong", [np.zeros(4, int), np.zeros((5, 1), int), np.full(5, 5), np.full(5, -1), np.zeros(5), np.full(5, np.nan)]
)
def test_impossible_actions_are_refused_and_nothing_is_stepped(wrong: np.ndarray) -> None:
    pool = noisy_pool(workers=0)
    pool.reset()
    before = to_bytes(pool.snapshot())
    with pytest.raises(RunError, match="action"):
        pool.step(wrong)
    assert to_bytes(pool.snapshot()) == before


def test_continuous_actions_must_be_finite() -> None:
    pool = make_pool("gym/Pendulum-v1", {}, PoolConfig(num_envs=2, workers=0), 0)
    pool.reset()
    with pytest.raises(RunError, match="finite"):
        pool.step(np.array([[0.0], [np.nan]]))
    pool.step(np.array([[0.0], [9.0]]))


def test_shared_memory_has_no_name_and_is_unmapped() -> None:
    def mapped() -> str:
        gc.collect()
        return Path("/proc/self/maps").read_text()

    pool = noisy_pool(workers=2)
    pool.reset()
    assert "memfd:intrigue-pool" in mapped()
    pool.close()
    assert "intrigue-pool" not in mapped()


def test_a_system_without_memfd_uses_an_unlinked_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.memfd_create")
    pool = noisy_pool(workers=2)
    lone = noisy_pool(workers=0)
    np.testing.assert_array_equal(pool.reset(), lone.reset())
    for action in actions(20):
        np.testing.assert_array_equal(pool.step(action).obs, lone.step(action).obs)
    pool.close()


def test_arrays_outlive_a_closed_pool() -> None:
    pool = noisy_pool(workers=1)
    obs = pool.reset()
    expected = obs.copy()
    pool.close()
    np.testing.assert_array_equal(obs, expected)


def test_a_pool_made_in_a_thread_outlives_it() -> None:
    made: list[Pool] = []
    thread = threading.Thread(target=lambda: made.append(noisy_pool(workers=1)))
    thread.start()
    thread.join()
    made[0].reset()
    for action in actions(20):
        made[0].step(action)
    made[0].close()


def test_environments_start_without_torch() -> None:
    code = (
        "import sys\n"
        "import intrigue.envs.pool.worker_main\n"
        "from intrigue.envs.pool.pool import make_pool\n"
        "from intrigue.envs.registry import ENVS\n"
        "[ENVS.get(name) for name in ENVS.names()]\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_script_needs_no_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text(
        "import numpy as np\n"
        "from intrigue.envs.pool.config import PoolConfig\n"
        "from intrigue.envs.pool.pool import make_pool\n"
        "pool = make_pool('rooms', {}, PoolConfig(num_envs=4, workers=2), seed=0)\n"
        "pool.reset()\n"
        "print(pool.step(np.zeros(4, dtype=int)).place.tolist())\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, "[1, 1, 1, 1]", "")


@given(
    cuts=st.lists(st.integers(0, 400), max_size=5),
    tree=st.none()
    | st.dictionaries(st.text(max_size=3).filter(lambda key: key != "$array"), st.integers(), max_size=3),
    kind=st.sampled_from([b"k", b"v", b"e"]),
)
def test_messages_survive_any_cut(cuts: list[int], tree: dict[str, int] | None, kind: bytes) -> None:
    message = STEPS[1] + pack(kind, tree) + STEPS[0]
    bounds = [0, *sorted(min(cut, len(message)) for cut in cuts), len(message)]
    parts = [message[first:last] for first, last in itertools.pairwise(bounds) if first < last]
    inbox = Inbox()
    heard = [inbox.feed(part) for part in parts]
    expected = (kind, None if kind in BARE else tree)
    assert [message for messages in heard for message in messages] == [(STEPS[1], None), expected, (STEPS[0], None)]
    assert inbox.feed(OK) == [(OK, None)], "nothing is left over"


CPUINFO = "processor\t: 0\nflags\t\t: fpu sse2 {}\n\nprocessor\t: 1\nflags\t\t: fpu sse2 {}\n"


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("avx2 fma avx512f", {"OPENBLAS_CORETYPE": "Haswell"}),
        ("avx2 fma", {}),  # Nothing wide to avoid.
        ("avx512f", {}),  # The narrow kernels need what this processor does not say it has.
    ],
)
def test_narrow_kernels_only_where_wide_ones_would_be_taken(
    flags: str, expected: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cpuinfo"
    monkeypatch.setattr("intrigue.envs.atari.CPUINFO", file)
    assert prefer_avx2_blas() == {}, "a system that does not tell"
    file.write_text(CPUINFO.format(flags, flags))
    assert prefer_avx2_blas() == expected


def test_variables_of_workers_give_way_to_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_CORETYPE", raising=False)
    assert worker_environment({"OPENBLAS_CORETYPE": "Haswell"})["OPENBLAS_CORETYPE"] == "Haswell"
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Zen")
    assert worker_environment({"OPENBLAS_CORETYPE": "Haswell"})["OPENBLAS_CORETYPE"] == "Zen"


@pytest.mark.parametrize("pin", [True, False])
def test_workers_stay_on_cores_of_their_own(pin: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def allowed(workers: int) -> list[set[int]]:
        pool = make_pool("rooms", {}, PoolConfig(num_envs=5, workers=workers, pin=pin), 0)
        assert isinstance(pool, GroupPool) and isinstance(pool._stepper, WorkerGroup)
        found = [os.sched_getaffinity(worker.pid) for worker in pool._stepper._workers]
        pool.close()
        return found

    mine = cores()
    workers = min(2, len(mine))
    assert allowed(workers) == ([{core} for core in mine[:workers]] if pin else [set(mine)] * workers)
    monkeypatch.setattr("intrigue.envs.pool.workers.cores", lambda: mine[:1])
    assert allowed(2) == [set(mine)] * 2, "two workers on one core would wait for each other"
