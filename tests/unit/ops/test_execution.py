"""Plain, compiled and captured updates compute the same; on a GPU captures draw, refuse and resume as plain does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from conftest import same_state
from intrigue.agents.ppo import PPO, PPOConfig
from intrigue.cli import main
from intrigue.config.curiosity import CuriosityConfig
from intrigue.curiosity.curiosity import Curiosity
from intrigue.errors import NonFiniteError
from intrigue.ops.execution import CudaGraph, Mode, compile_fused, pick_mode
from intrigue.rng import seeded_construction
from intrigue.spaces import ActionSpec, ObsSpec, Spaces
from intrigue.types import Stream, Transitions

STEPS, ENVS = 8, 4
VECTOR = Spaces(ObsSpec("vector", (6,)), ActionSpec("discrete", sizes=(3,)))
PIXELS = Spaces(ObsSpec("pixels", (4, 84, 84)), ActionSpec("discrete", sizes=(3,)))
# What one iteration (two epochs of two minibatches) may differ by: float32 sums in another order through Adam's root,
# and on a GPU TensorFloat-32 in kernels that need not be the same.
CPU_TOLERANCE, GPU_TOLERANCE = 1e-5, 2e-3


def rollout(spaces: Spaces, device: str) -> Transitions:
    rng = torch.Generator().manual_seed(1)
    lead = (STEPS, ENVS)
    shape = (STEPS + 1, ENVS, *spaces.obs.shape)
    if spaces.obs.kind == "pixels":
        seen = torch.randint(0, 256, shape, generator=rng, dtype=torch.uint8)
    else:
        seen = torch.randn(shape, generator=rng)
    ends = torch.rand(lead, generator=rng)
    batch = Transitions(
        obs=seen[:-1], action=torch.randint(0, 3, lead, generator=rng), reward=torch.randn(lead, generator=rng),
        terminated=ends < 0.1, truncated=ends > 0.9, next_obs=seen[1:], valid=torch.ones(lead, dtype=torch.bool),
        skill=torch.zeros(*lead, 0),
    )  # fmt: skip
    return Transitions(*(each.to(device) for each in batch.tensors()))


def trained(mode: str, spaces: Spaces, reward: str, device: str, iterations: int = 1) -> tuple[dict, dict, list]:
    """Weights of agent and reward after iterations in this mode, and what the rewards were."""
    cfg = PPOConfig(rollout_steps=STEPS, epochs=2, minibatches=2, hidden=16, features=32, max_grad_norm=0.5)
    with seeded_construction(0, "agent"):
        agent = PPO(cfg, spaces, ("total",)).to(device)
    options = {"feature_dim": 16, "hidden": 16} | ({"blocks": 1, "keep": 1.0} if reward == "nnm" else {})
    curiosity = Curiosity.from_config(
        reward, options, CuriosityConfig(epochs=2, minibatches=2), spaces, device=device, seed=0
    )
    agent.execute(pick_mode(mode, torch.device(device)))
    curiosity.execute(pick_mode(mode, torch.device(device)))
    act, update = (torch.Generator(device).manual_seed(seed) for seed in (2, 3))
    batch, bonuses = rollout(spaces, device), []
    for _ in range(iterations):
        acted = [agent.act(batch.obs[t], batch.skill[t], explore=True, rng=act) for t in range(STEPS)]
        extras = {name: torch.stack([each.extras[name] for each in acted]) for name in acted[0].extras}
        extras |= {"last_obs": batch.next_obs[-1], "last_skill": batch.skill[-1]}
        step = curiosity.step_batch(batch.replace(action=torch.stack([each.action for each in acted])))
        agent.update(batch, step.streams, extras, rng=update, step=0)
        bonuses.append(step.intrinsic.cpu())
    return dict(agent.state_dict()), dict(curiosity.reward.state_dict()), bonuses


def close(first: dict, second: dict, tolerance: float) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(value.cpu(), second[name].cpu(), rtol=tolerance, atol=tolerance, msg=name)


@pytest.mark.filterwarnings("ignore")  # the compiler warns of itself
@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_and_plain_agree_after_one_iteration(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is what can be traced and differentiated so; the C++ made of it is torch's own and takes long (slow)."""
    compiler, backends = torch.compile, []

    def compile_with(loss: Any, **how: Any) -> Any:
        backends.append(backend)
        return compiler(loss, backend=backend, **how)

    monkeypatch.setattr(torch, "compile", compile_with)
    plain, compiled = (trained(mode, VECTOR, "nnm", "cpu") for mode in ("plain", "compile"))
    assert len(backends) == 2, "the agent's loss and the reward's"
    close(plain[0], compiled[0], CPU_TOLERANCE)
    close(plain[1], compiled[1], CPU_TOLERANCE)
    with pytest.raises(AssertionError):  # and the iteration moved the weights by more than that
        close(plain[0], trained("plain", VECTOR, "nnm", "cpu", iterations=2)[0], CPU_TOLERANCE)


# Torch remembers the shapes that a line of source has seen: one graph is enough where it has seen several before.
@pytest.mark.parametrize(("dynamic", "graphs"), [(None, (1, 2)), (False, (6,))])
def test_rows_of_any_number_are_compiled_once_more_unless_shapes_are_to_be_apart(dynamic, graphs, monkeypatch) -> None:
    compiler, seen = torch.compile, []

    def noting(graph: torch.fx.GraphModule, _: Any) -> Any:
        seen.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", lambda function, **how: compiler(function, backend=noting, **how))
    doubled = compile_fused(lambda rows: 2 * rows, dynamic=dynamic)
    for count in range(3, 9):
        assert torch.equal(doubled(torch.ones(count)), torch.full((count,), 2.0))
    assert len(seen) in graphs


def test_modes_are_picked_by_device() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert [pick_mode(each, cpu) for each in ("auto", "plain", "compile")] == ["plain", "plain", "compile"]
    assert [pick_mode(each, cuda) for each in ("auto", "graph", "plain", "compile")] == [
        "graph", "graph", "plain", "compile"
    ]  # fmt: skip


def test_graphs_without_a_gpu_are_refused_before_anything_is_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--device", "cpu", "--run.execution", "graph", "--out", str(tmp_path / "run")]
    assert main(["train", *options]) == 2
    said = capsys.readouterr().err
    assert all(text in said for text in ("run.execution", "CUDA graphs", "on cpu", "--run.execution auto"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.gpu
@pytest.mark.parametrize("reward", ["nnm", "disagreement", "icm", "rnd"])
@pytest.mark.parametrize("spaces", [VECTOR, PIXELS], ids=["vector", "pixels"])
@pytest.mark.parametrize("mode", ["graph", "compile"])
def test_captured_and_plain_agree_after_one_iteration(reward: str, spaces: Spaces, mode: Mode) -> None:
    plain, captured = (trained(each, spaces, reward, "cuda") for each in ("plain", mode))
    torch.testing.assert_close(plain[2][0], captured[2][0], rtol=1e-4, atol=1e-6)
    close(plain[0], captured[0], GPU_TOLERANCE)
    close(plain[1], captured[1], GPU_TOLERANCE)


@pytest.mark.gpu
def test_captures_repeat_to_the_bit() -> None:
    first, second = (trained("graph", PIXELS, "nnm", "cuda", iterations=3) for _ in range(2))
    assert same_state(first[0], second[0]) and same_state(first[1], second[1])


@pytest.mark.gpu
def test_no_two_captures_share_what_the_matrix_products_work_in() -> None:
    """cuBLAS has its workspace by stream: two that were captured in one must never run at the same time."""
    streams: list[int] = []

    def product(left: torch.Tensor) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            streams.append(torch.cuda.current_stream().cuda_stream)
        return left @ left.mT

    some = torch.randn(8, 64, device="cuda")
    for captured in (CudaGraph(product), CudaGraph(product)):
        torch.testing.assert_close(captured(some), some @ some.mT)
    assert len(set(streams)) == 2


@pytest.mark.gpu
def test_a_bad_loss_changes_nothing_and_stops_the_run() -> None:
    cfg = PPOConfig(rollout_steps=STEPS, epochs=1, minibatches=1, hidden=16)
    agent = PPO(cfg, VECTOR, ("total",)).to("cuda")
    agent.execute("graph")
    batch, act = rollout(VECTOR, "cuda"), torch.Generator("cuda").manual_seed(2)
    acted = [agent.act(batch.obs[t], batch.skill[t], explore=True, rng=act) for t in range(STEPS)]
    extras = {name: torch.stack([each.extras[name] for each in acted]) for name in acted[0].extras}
    extras |= {"last_obs": batch.next_obs[-1], "last_skill": batch.skill[-1]}
    before = {name: value.clone() for name, value in agent.state_dict().items()}
    bad = Stream("total", torch.full_like(batch.reward, torch.nan), 1.0)
    with pytest.raises(NonFiniteError, match="PPO's loss is not finite"):
        agent.update(batch, [bad], extras, rng=torch.Generator("cuda"), step=0)
    assert same_state(before, dict(agent.state_dict()))
    good = Stream("total", batch.reward, 1.0)
    agent.update(batch, [good], extras, rng=torch.Generator("cuda"), step=0)
    assert not same_state(before, dict(agent.state_dict()))
