"""Seeds together on a GPU: fused and captured updates are the plain ones, nothing waits, runs repeat to the bit."""

from __future__ import annotations

import pytest
import torch
from test_cohort import SEEDS, SHRUNK, made, numbers, trained  # noqa: F401  `made` is a fixture

from conftest import same_state
from intrigue.cohort.cohort import Cohort

pytestmark = pytest.mark.gpu
GPU = {"device": "cuda", "run.products": "bfloat16"}
PRESETS = ["scratch-urlb", "disagreement-urlb", "apt-urlb", "nnm-urlb", "nnmc-urlb", "nnm-ensemble-urlb"]
# Large enough that branches run beside each other, and that neighbours are ranked by matrix units.
LARGE = {
    "agent.batch": 1024,
    "agent.capacity": 4096,
    "agent.hidden": 1024,
    "reward.feature_dim": 512,
    "reward.hidden": 1024,
}


@pytest.mark.parametrize("seeds", [SEEDS, SEEDS[:1]])
@pytest.mark.parametrize("preset", PRESETS)
def test_captured_updates_are_the_plain_ones(made, preset, seeds):  # noqa: F811
    plain, captured = (
        [made(preset, seed, **GPU, **{"run.execution": mode}) for seed in seeds] for mode in ("plain", "graph")
    )
    # Actions are random up to step 20, so that both learn from the same: nine updates.
    for parts in (plain, captured):
        trained(parts, 40)
    for one, other in zip(plain, captured, strict=True):
        torch.testing.assert_close(numbers(other), numbers(one), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("seeds", [SEEDS, SEEDS[:1]])
@pytest.mark.parametrize("preset", ["nnm-urlb", "nnm-ensemble-urlb"])
def test_large_captured_updates_are_the_plain_ones(made, preset, seeds):  # noqa: F811
    plain, captured = (
        [made(preset, seed, **GPU, **LARGE, **{"run.execution": mode}) for seed in seeds] for mode in ("plain", "graph")
    )
    for parts in (plain, captured):
        trained(parts, 40)
    for one, other in zip(plain, captured, strict=True):
        torch.testing.assert_close(numbers(other), numbers(one), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("preset", "overlap", "sizes"),
    [("nnm-urlb", False, {}), ("nnm-urlb", True, {}), ("nnm-urlb", True, LARGE), ("nnm-ensemble-urlb", True, {})],
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
    cohort = Cohort([made(preset, seed, **GPU, **{"run.execution": "plain"}) for seed in SEEDS])
    while cohort.step_count < 40:
        cohort.step()
    try:
        torch.cuda.set_sync_debug_mode("error")
        cohort._update._once()
    finally:
        torch.cuda.set_sync_debug_mode("default")
