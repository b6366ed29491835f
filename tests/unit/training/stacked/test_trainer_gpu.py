"""Seeds together on a GPU: fused and captured updates are the plain ones, nothing waits, runs repeat to the bit."""

from __future__ import annotations

import pytest
import torch
from test_trainer import SEEDS, SHRUNK, made, numbers, trained  # noqa: F401  `made` is a fixture

from conftest import same_state
from intrigue.training.stacked.trainer import StackedTrainer

pytestmark = pytest.mark.gpu
GPU = {"device": "cuda", "run.products": "bfloat16"}
PRESETS = ["scratch-urlb", "disagreement-urlb", "apt-urlb", "nnm-urlb", "nnmc-urlb", "nnm-ensemble-urlb"]
# Large enough that branches run beside each other, and that neighbours are ranked by matrix units.
# An action of several numbers, for kernels that sum over them.
LARGE = {
    "env": "dmc/walker",
    "agent.batch": 1024,
    "agent.capacity": 4096,
    "agent.hidden": 1024,
    "reward.feature_dim": 512,
    "reward.hidden": 1024,
}


# Of how far a weight has moved: what rounding, which fused kernels do elsewhere, may make of nine steps of Adam.
# Between plain and compiled on a CPU it is 0.03 at most; where nothing were learned it would be 1.
APART = 0.25
TOLD = {"intrinsic/raw_mean", "intrinsic/raw_std", "losses/intrinsic", "losses/critic_loss", "losses/actor_loss"}


def assert_learned_alike(build, seeds):
    """Nine updates, plain and captured: weights move, to the same place, and the same is told of them."""
    plain, captured = ([build(seed, mode) for seed in seeds] for mode in ("plain", "graph"))
    before = [{name: value.clone() for name, value in numbers(parts).items()} for parts in plain]
    # Actions are random up to step 20, so that both learn from the same.
    said = [trained(parts, 40) for parts in (plain, captured)]
    for first, one, other in zip(before, plain, captured, strict=True):
        for name, value in numbers(one).items():
            apart, moved = (value - numbers(other)[name]).norm(), (value - first[name]).norm()
            assert apart <= APART * moved, f"{name}: apart by {float(apart):.2e}, moved by {float(moved):.2e}"
        assert any(not torch.equal(value, first[name]) for name, value in numbers(one).items())
    for wanted, found in zip(*said, strict=True):
        for one, other in zip(wanted, found, strict=True):
            assert other.metrics.keys() == one.metrics.keys()
            for name in one.metrics.keys() & TOLD:
                assert other.metrics[name] == pytest.approx(one.metrics[name], rel=0.02, abs=1e-4), name
    assert said[0][0][-1].metrics.keys() >= TOLD


@pytest.mark.parametrize("seeds", [SEEDS, SEEDS[:1]])
@pytest.mark.parametrize("preset", PRESETS)
def test_captured_updates_are_the_plain_ones(made, preset, seeds):  # noqa: F811
    assert_learned_alike(lambda seed, mode: made(preset, seed, **GPU, **{"run.execution": mode}), seeds)


@pytest.mark.parametrize("seeds", [SEEDS, SEEDS[:1]])
@pytest.mark.parametrize("preset", ["nnm-urlb", "nnm-ensemble-urlb"])
def test_large_captured_updates_are_the_plain_ones(made, preset, seeds):  # noqa: F811
    assert_learned_alike(lambda seed, mode: made(preset, seed, **GPU, **LARGE, **{"run.execution": mode}), seeds)


@pytest.mark.parametrize(
    ("preset", "overlap", "sizes"),
    [
        ("nnm-urlb", False, {}),
        *((preset, True, sizes) for preset in ("nnm-urlb", "nnm-ensemble-urlb") for sizes in ({}, LARGE)),
    ],
)
def test_a_captured_run_is_taken_up_to_the_same_bits(made, preset, overlap, sizes):  # noqa: F811
    changes = {**GPU, "run.execution": "graph", "agent.overlap": overlap, **sizes}
    calm, broken = ([made(preset, seed, **changes) for seed in SEEDS] for _ in range(2))
    trained(calm, 96)
    trained(broken, 50)
    states = [parts.state_dict() for parts in broken]
    anew = [made(preset, seed + 100, **changes) for seed in SEEDS]
    for parts, state in zip(anew, states, strict=True):
        parts.load_state_dict(state)
    trained(anew, 96)
    for one, other in zip(calm, anew, strict=True):
        assert same_state(one.state_dict(), other.state_dict())


@pytest.mark.parametrize("preset", PRESETS)
def test_nothing_waits_while_an_update_is_launched(made, preset):  # noqa: F811
    trainer = StackedTrainer([made(preset, seed, **GPU, **{"run.execution": "plain"}) for seed in SEEDS])
    while trainer.step_count < 40:
        trainer.step()
    try:
        torch.cuda.set_sync_debug_mode("error")
        trainer._update._once()
    finally:
        torch.cuda.set_sync_debug_mode("default")
