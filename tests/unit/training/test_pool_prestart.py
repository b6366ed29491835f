"""Pools of several seeds that start at the same time: how long it takes, what a run is, what is left behind."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from intrigue.cli import main
from intrigue.config.plugins import add_plugin
from intrigue.config.run import resolve
from intrigue.envs.registry import ENVS
from intrigue.errors import EnvironmentFault, Interrupted
from intrigue.presets import preset_layer
from intrigue.run import driver
from intrigue.run.driver import SeedRun, resume_seeds, start_seeds
from intrigue.training import pool_prestart
from intrigue.training.build import build, make_run_pool
from intrigue.training.pool_prestart import PrestartedPools

# Every environment notes when it was built. A constructor is not told its seed, so `broken` and `stuck` mean the n-th.
SLOW = '''"""An environment that takes its time when it is built, or does not get built at all, as the n-th one."""
import os
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np
from intrigue.envs import Env, EnvInfo, Step, register_env


@dataclass(frozen=True)
class SlowConfig:
    seconds: float = 0.0
    notes: str = ""
    broken: int = -1
    stuck: int = -1


@register_env("slow", config=SlowConfig)
class Slow(Env):
    def __init__(self, cfg, name):
        began = time.monotonic()
        number = 0
        while True:
            try:
                os.close(os.open(f"{cfg.notes}/{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
                break
            except FileExistsError:
                number += 1
        if number == cfg.broken:
            raise LookupError("no simulator here")
        time.sleep(3600 if number == cfg.stuck else cfg.seconds)
        with open(f"{cfg.notes}/{number}", "w") as file:
            file.write(f"{began} {time.monotonic()}")
        self.state = np.zeros(2)
        self.info = EnvInfo(gym.spaces.Box(-9, 9, (2,), np.float32), gym.spaces.Box(-1, 1, (1,), np.float32))

    def reset(self, seed):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.state = self.random.uniform(-1, 1, 2)
        self.steps = 0
        return self.state.astype(np.float32)

    def step(self, action):
        self.steps += 1
        self.state = np.clip(self.state + 0.1 * self.random.normal(size=2) + 0.1 * float(action[0]), -9, 9)
        return Step(self.state.astype(np.float32), float(self.state[0]), False, self.steps == 10)

    def snapshot(self):
        return {"state": self.state.tolist(), "steps": self.steps, "random": self.random.bit_generator.state}

    def restore(self, state):
        self.random = np.random.default_rng()
        self.random.bit_generator.state = state["random"]
        self.state, self.steps = np.array(state["state"]), state["steps"]
'''
SETTING = {
    "threads": 1,
    "device": "cpu",
    "steps": 40,
    "checkpoint_every": 20,
    "run.eval_every": 0,
    "run.snapshots": (),
    "pool.num_envs": 1,
    "pool.workers": 1,
    "agent.capacity": 96,
    "agent.batch": 8,
    "agent.hidden": 8,
    "agent.learning_starts": 20,
    "agent.train_every": 8,
    "agent.rollout_steps": 10,
    "reward.feature_dim": 8,
    "reward.hidden": 8,
}


@pytest.fixture
def slow(tmp_path):
    """Makes configurations of seeds 0, 1, … of the environment above."""
    plugin, notes = tmp_path / "slow_env.py", tmp_path / "notes"
    plugin.write_text(SLOW)
    notes.mkdir()
    before = list(ENVS._extra_files)
    add_plugin(plugin)

    def configs(seeds=3, **changes):
        layer = {**SETTING, "env": "slow", "env.notes": str(notes), **changes}
        return [resolve(preset_layer("nnm-urlb-small"), {**layer, "seed": seed}) for seed in range(seeds)]

    yield configs
    ENVS._extra_files[:] = before
    ENVS._entries.pop("slow", None)


@pytest.fixture
def many_cores(monkeypatch):
    """As on a machine with room for all; environments that sleep need no core."""
    monkeypatch.setattr(pool_prestart, "cores", lambda: list(range(8)))


def children():
    """Child processes, zombies included."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(path.parent.name))
    return found


def seen(tmp_path):
    """(began, done) of every environment that was built."""
    return [tuple(map(float, text.split())) for each in (tmp_path / "notes").iterdir() if (text := each.read_text())]


def forget(tmp_path):
    for each in (tmp_path / "notes").iterdir():
        each.unlink()


def most_at_once(spans):
    return max(sum(begin <= moment < end for begin, end in spans) for moment, _ in spans)


@pytest.fixture(autouse=True)
def _nothing_stays_behind():
    before, descriptors = children(), len(os.listdir("/proc/self/fd"))
    threads = set(threading.enumerate())
    yield
    gc.collect()
    assert children() <= before
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert set(threading.enumerate()) <= threads


def plugins():
    return list(ENVS._extra_files)


def test_three_pools_take_the_time_of_one(slow, tmp_path, many_cores):
    configs = slow(**{"env.seconds": 1.0})
    with PrestartedPools(plugins(), concurrent_runs=3) as pools:
        began = time.monotonic()
        pools.start(configs)
        assert time.monotonic() - began < 1.0, "starting does not wait"
        taken = [pools.take(cfg) for cfg in reversed(configs)]  # in any order
        assert [pools.take(cfg) for cfg in configs] == [None] * 3, "given away once"
    assert most_at_once(seen(tmp_path)) == 3
    first = [pool.reset().copy() for pool in reversed(taken)]
    for pool in taken:
        pool.close()
    for cfg, obs in zip(slow(), first, strict=True):
        pool = make_run_pool(cfg, plugins(), 3)
        assert (pool.reset() == obs).all(), "each got the pool of its own seed"
        pool.close()


@pytest.mark.parametrize(("there", "workers", "at_once"), [(2, 1, 2), (1, 1, 1), (5, 2, 2), (1, 2, 1)])
def test_no_more_workers_start_at_a_time_than_there_are_cores(slow, monkeypatch, there, workers, at_once):
    """With 2 workers to a pool, 5 cores are for two pools at a time, and a pool needs no leave to start alone."""
    monkeypatch.setattr(pool_prestart, "cores", lambda: list(range(there)))
    now, most, lock = 0, 0, threading.Lock()

    class Closed:
        def close(self):
            pass

    def pretend(*_):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.05)
        with lock:
            now -= 1
        return Closed()

    monkeypatch.setattr(pool_prestart, "make_run_pool", pretend)
    configs = slow(6, **{"pool.workers": workers, "pool.num_envs": workers})
    with PrestartedPools((), concurrent_runs=6) as pools:
        pools.start(configs)
        assert all(pools.take(cfg) for cfg in configs)
    assert most == at_once


def test_what_is_asked_for_otherwise_is_not_given(slow):
    (cfg,) = slow(1)
    with PrestartedPools(plugins(), concurrent_runs=2) as pools:
        assert pools.take(cfg) is None
        pools.start([cfg])
        for other in (slow(2)[1], *slow(1, **{"env.seconds": 0.1}), *slow(1, **{"pool.step_timeout_seconds": 7})):
            assert pools.take(other) is None
        pool = pools.take(cfg.with_run(steps=80))  # a new last step changes no environment
        pool.close()
    with pytest.raises(RuntimeError, match="outside"):
        pools.start([cfg])


def test_environments_of_this_process_are_not_made_in_a_thread():
    cfg = resolve({"env": "gym/CartPole-v1", "env.native_vector": True, "reward": "none", "device": "cpu"})
    with PrestartedPools((), concurrent_runs=2) as pools:
        pools.start([cfg])
        assert pools.take(cfg) is None


def test_torchs_random_state_is_untouched(slow):
    configs = slow()
    state = torch.random.get_rng_state()
    with PrestartedPools(plugins(), concurrent_runs=3) as pools:
        pools.start(configs)
        for cfg in configs:
            build(cfg, plugins(), concurrent_runs=3, pools=pools).close()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_leaving_ends_what_is_ready_what_is_under_way_and_what_waits(slow, tmp_path, many_cores):
    """One of nine never gets ready by itself, and the ninth may have to wait until Ctrl-C comes."""
    before = children()
    configs = slow(9, **{"env.stuck": 2})
    pools = PrestartedPools(plugins(), concurrent_runs=9)

    def interrupted():
        with pools:
            pools.start(configs)
            while len(seen(tmp_path)) < 7 or len(children() - before) < 8:
                time.sleep(0.01)
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert time.monotonic() - began < 30, "not until the environment's own time limit"
    assert children() <= before
    assert pools.take(configs[0]) is None


def ends(runs):
    return [(run.config.run.seed, run.step, run.digest()) for run in runs]


@pytest.mark.slow
def test_runs_are_to_the_bit_those_of_pools_made_in_turn(slow, tmp_path, monkeypatch, many_cores):
    plans = [SeedRun(cfg) for cfg in slow(**{"env.seconds": 0.4})]
    ahead = ends(start_seeds(plans, out=tmp_path / "ahead", quiet=True))
    assert most_at_once(seen(tmp_path)) == 2, "the first alone, the others together"
    forget(tmp_path)
    longer = ends(resume_seeds(tmp_path / "ahead", steps=80, quiet=True))
    assert most_at_once(seen(tmp_path)) == 2
    monkeypatch.setattr(PrestartedPools, "start", lambda self, configs: None)
    forget(tmp_path)
    assert ends(start_seeds(plans, out=tmp_path / "turn", quiet=True)) == ahead
    assert most_at_once(seen(tmp_path)) == 1
    assert ends(resume_seeds(tmp_path / "turn", steps=80, quiet=True)) == longer
    assert len({digest for *_, digest in longer}) == 3


@pytest.mark.slow
def test_finished_seeds_and_seeds_trained_apart_start_nothing_ahead(slow, tmp_path, monkeypatch):
    asked, start = [], PrestartedPools.start

    def noted(self, configs):
        asked.append([cfg.run.seed for cfg in configs])
        start(self, configs)

    monkeypatch.setattr(PrestartedPools, "start", noted)
    start_seeds([SeedRun(cfg) for cfg in slow()], out=tmp_path / "all", quiet=True)
    assert asked == [[1, 2]]
    resume_seeds(tmp_path / "all", quiet=True)
    assert asked == [[1, 2]], "all are finished"
    (tmp_path / "all" / "seed-2" / "DONE").unlink()  # at its last step all the same
    newest = max((tmp_path / "all" / "seed-1" / "checkpoints").iterdir())
    (newest / "state.json").write_bytes(b"")
    (tmp_path / "all" / "seed-0" / "DONE").unlink()
    resume_seeds(tmp_path / "all", quiet=True)
    assert asked[1:] == [[]], "seed 1 went back to step 20, and its pool was made when it was its turn"
    monkeypatch.setattr(driver, "why_not_together", lambda *_: "they had a quarrel")
    start_seeds([SeedRun(cfg) for cfg in slow()], out=tmp_path / "apart", quiet=True)
    assert asked[1:] == [[]]


def test_a_pool_that_fails_says_what_it_says_in_turn(slow, tmp_path, monkeypatch, capsys):
    """The second seed's: the same words and exit code, no folder and no process."""
    tree = slow(1, **{"env.broken": 1})[0].to_json()
    (tmp_path / "config.json").write_text(json.dumps(tree))
    arguments = ["--config", str(tmp_path / "config.json"), "--plugin", str(tmp_path / "slow_env.py")]
    before, said = children(), []
    for start in (PrestartedPools.start, lambda self, configs: None):
        monkeypatch.setattr(PrestartedPools, "start", start)
        assert main(["train", *arguments, "--seeds", "0:2", "--out", str(tmp_path / "all"), "--quiet"]) == 3
        said.append(capsys.readouterr().err)
        assert "slow" in said[-1] and "raised LookupError: no simulator here" in said[-1]
        assert children() <= before
        assert not (tmp_path / "all").exists()
        forget(tmp_path)
    assert said[0] == said[1]


def test_a_fault_does_not_wait_for_seeds_that_hang(slow, tmp_path, monkeypatch, many_cores):
    configs = slow(3, **{"env.stuck": 1})
    take = PrestartedPools.take

    def broken(self, cfg):
        if cfg.run.seed == 1:
            while len(list((tmp_path / "notes").iterdir())) < 3:
                time.sleep(0.01)
            raise EnvironmentFault("seed 1's own")
        return take(self, cfg)

    monkeypatch.setattr(PrestartedPools, "take", broken)
    before, began = children(), time.monotonic()
    with pytest.raises(EnvironmentFault, match="seed 1's own"):
        start_seeds([SeedRun(cfg) for cfg in configs], out=tmp_path / "all", quiet=True)
    assert time.monotonic() - began < 20
    assert children() <= before


def test_a_signal_while_pools_start_leaves_nothing(slow, tmp_path, many_cores):
    """It is honoured when the next seed stands, as ever; those after it are not waited for."""
    place = tmp_path / "all"

    def interrupt():
        while len(list((tmp_path / "notes").iterdir())) < 4:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    other = threading.Thread(target=interrupt)
    other.start()
    before = children()
    with pytest.raises(Interrupted, match="stopped before the runs began") as stopped:
        start_seeds([SeedRun(cfg) for cfg in slow(4, **{"env.seconds": 1.0})], out=place, quiet=True)
    other.join()
    assert stopped.value.exit_code == 143
    assert children() <= before
    assert [each.name for each in tmp_path.iterdir() if "all" in each.name] == []
