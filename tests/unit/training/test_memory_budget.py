"""What a run will hold in memory: the arithmetic against what is really allocated, and the refusal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from conftest import TINY, make_spaces
from intrigue.agents.registry import AGENTS
from intrigue.cli import main
from intrigue.config.run import resolve
from intrigue.envs.pool import workers
from intrigue.errors import ConfigError
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.training import memory_budget
from intrigue.training import memory_budget as ahead
from intrigue.training.build import build
from intrigue.training.memory_budget import (
    Footprint,
    readable,
    refuse_too_large,
    replay_footprint,
    rollout_bytes,
    rollout_footprint,
)
from replay_runs import World, plan_of, replay_of

CPU = torch.device("cpu")
ATARI = Spaces(ObsSpec("pixels", (4, 84, 84)), ActionSpec("discrete", sizes=(18,)))


@pytest.mark.parametrize("stack", [0, 4])
@pytest.mark.parametrize("priority", [0.0, 0.6])
def test_a_replays_figure_is_what_it_takes(stack: int, priority: float) -> None:
    world = World(3, stack, skill=2)
    order = "transitions" if priority else "episodes"
    replay = replay_of(world, capacity=1000, priority=priority, order=order)
    tensors = [replay.store.ring.packed, replay.store.grid]
    tensors += [replay.priorities.tree.nodes] if replay.priorities else []
    tensors += replay.episodes.table if replay.episodes is not None else []
    held = sum(each.nbytes for each in tensors)
    plan = plan_of(capacity=1000, priority=priority, order=order)
    assert replay_footprint(plan, world.spaces, 3, stack, CPU).bytes == held


def test_a_million_atari_transitions_take_seven_gigabytes() -> None:
    """By hand: 84·84 bytes of frame, 8 of action, 4 of reward, 4 flags, 8 of links, 8 of place; one chunk of slack."""
    rows = 1_000_000 + 64 + 7813  # 128 chunks of 7813, and one more
    need = replay_footprint(plan_of(capacity=1_000_000), ATARI, 8, 4, CPU)
    assert need.bytes == rows * (84 * 84 + 8 + 4 + 4 + 8 + 8) + (rows // 8 + 2) * 8 * 8, "rows of whole 16 bytes"
    assert need.bytes == pytest.approx(7.14e9, rel=0.01)


def test_a_rollouts_figure_by_hand() -> None:
    """128 steps of 128 environments under Disagreement: frames of both ends as bytes, twice, and once as floats."""
    image = 4 * 84 * 84
    assert rollout_bytes(128, 128, ATARI, reads=2) == 128 * 128 * (2 * (2 * image + 8 + 4 + 3) + 2 * 4 * image)
    assert rollout_bytes(128, 128, ATARI, reads=0) == 128 * 128 * 2 * (2 * image + 15)


def test_a_replay_goes_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = torch.device("cuda")
    free = {"cuda": 10**9, "cpu": 10**9}
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: free[device.type])

    def place(capacity: int, **changes: str) -> str:
        return replay_footprint(plan_of(capacity=capacity, **changes), ATARI, 8, 4, cuda).device.type

    assert place(10_000) == "cuda"
    assert place(100_000) == "cpu", "it would take more than half of what is free"
    assert place(10_000, place="host") == "cpu"
    assert place(100_000, place="device") == "cuda"


def test_a_refusal_says_how_much_how_much_there_is_and_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: 3_000_000_000)
    refuse_too_large([Footprint("replay", 2_999_999_999, CPU, ("--agent.capacity",))])
    with pytest.raises(ConfigError) as refusal:
        refuse_too_large([replay_footprint(plan_of(capacity=1_000_000), ATARI, 8, 4, CPU)])
    (problem,) = refusal.value.problems
    assert problem.path == "agent.capacity"
    assert "needs 7.15 GB" in problem.message
    assert "3 GB free" in problem.message
    assert "--agent.capacity" in problem.message
    with pytest.raises(ConfigError, match=r"--pool\.num-envs or --agent\.rollout-steps"):
        refuse_too_large([rollout_footprint(128, 256, ATARI, 2, CPU)])
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: None)
    refuse_too_large([Footprint("replay", 10**18, CPU, ("--agent.capacity",))])


def test_what_is_free_is_asked_of_the_machine_and_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, groups = tmp_path / "meminfo", tmp_path / "cgroup"
    groups.mkdir()
    memory.write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    monkeypatch.setattr(memory_budget, "MEMORY", memory)
    monkeypatch.setattr(memory_budget, "GROUPS", groups)
    assert memory_budget.free_bytes(CPU) == 5000 * 1024
    (groups / "memory.max").write_text("max\n")
    assert memory_budget.free_bytes(CPU) == 5000 * 1024
    (groups / "memory.max").write_text("3000000\n")
    (groups / "memory.current").write_text("2500000\n")
    (groups / "memory.stat").write_text("anon 5\ninactive_file 400000\n")
    assert memory_budget.free_bytes(CPU) == 900_000
    memory.write_text("nothing\n")
    (groups / "memory.max").unlink()
    assert memory_budget.free_bytes(CPU) is None


@pytest.mark.parametrize(
    ("agent", "changes", "flag"),
    [
        ("dqn", {"agent.capacity": 10**12}, "--agent.capacity"),
        ("ppo", {"agent.rollout_steps": 10**10}, "--agent.rollout-steps"),
    ],
)
def test_a_run_that_cannot_fit_is_refused_before_anything_is_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], agent: str, changes: dict[str, int], flag: str
) -> None:
    layer = {key: value for key, value in {**TINY, **changes}.items() if key != "agent.rollout_steps" or agent == "ppo"}
    options = [f"--{key.replace('_', '-')}={value}" for key, value in layer.items()]
    assert main(["train", *options, "--agent", agent, "--out", str(tmp_path / "run"), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert all(text in said for text in ("TB", "free", flag))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("frames", [1_000_000, 500])
def test_a_replay_that_cannot_fit_is_refused_before_an_environment_process_starts(
    monkeypatch: pytest.MonkeyPatch, frames: int
) -> None:
    """The pictures of a maze, 84 · 84 bytes: a million do not fit into 5 GB, 500 do, and then there is a pool."""
    started: list[int] = []
    monkeypatch.setattr(memory_budget, "free_bytes", lambda device: 5_000_000_000)
    monkeypatch.setattr(ahead, "free_bytes", lambda device: 5_000_000_000)
    monkeypatch.setattr(workers, "WorkerHandle", lambda slot, *_: started.append(slot) or _stop())
    layer = {key: value for key, value in TINY.items() if key not in ("agent.rollout_steps", "pool.workers")}
    config = resolve({**layer, "agent": "dqn", "env.view": "pixels", "agent.capacity": frames, "pool.workers": 2})
    if frames == 500:
        with pytest.raises(InterruptedError):
            build(config)
        assert started == [0]
        return
    with pytest.raises(ConfigError, match=r"needs 7\.\d+ GB, cpu has 5 GB free"):
        build(config)
    assert started == []


def _stop() -> None:
    raise InterruptedError


def test_an_environment_that_cannot_be_made_is_reported_by_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "free_bytes", lambda device: 0)
    monkeypatch.setattr(ahead, "make_env", lambda *_: 1 / 0)
    layer = {key: value for key, value in TINY.items() if key not in ("agent.rollout_steps", "pool.workers")}
    config = resolve({**layer, "agent": "dqn", "agent.capacity": 500, "pool.workers": 1})
    monkeypatch.setattr(workers, "WorkerHandle", lambda *_: _stop())
    with pytest.raises(InterruptedError):
        build(config)


@pytest.mark.parametrize("name", ["dqn", "ddpg"])
def test_an_agents_plan_is_known_before_it_is_built(name: str) -> None:
    entry = AGENTS.get(name)
    given = {field: getattr(entry.cls.plan_of(entry.config(**{field: 77})), field) for field in ("capacity", "batch")}
    assert given == {"capacity": 77, "batch": 77}
    spaces = make_spaces("vector", "discrete" if name == "dqn" else "continuous")
    assert entry.cls(entry.config(capacity=77), spaces, ("total",)).plan == entry.cls.plan_of(entry.config(capacity=77))


def test_a_run_says_how_much_it_will_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [f"--{key.replace('_', '-')}={value}" for key, value in TINY.items()]
    assert main(["train", *options, "--steps", "16", "--out", str(tmp_path / "run")]) == 0
    assert "memory: rollout" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 bytes"), (999, "999 bytes"), (7_190_000_000, "7.19 GB"), (10**15, "1 PB")]
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert readable(size) == text
