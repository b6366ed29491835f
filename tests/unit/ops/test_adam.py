"""The Adam kernels on a CPU, through Triton's interpreter, against torch's own Adam; and `StackedAdam.step`."""

from __future__ import annotations

import math

import pytest
import torch

from adam_cases import CASES, KEPT, begin, by_torch, idle_step, stacked_steps
from interpreted import found_by
from intrigue.ops.adam import AdamScalars, adam_step, precompute_scalars
from intrigue.ops.optimizer_step import FiniteLossGuard, skip_nonfinite
from intrigue.ops.triton_support import can_run_kernels

pytestmark = pytest.mark.xdist_group("adam")  # one process: the interpreter runs once


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """The kernels' results."""
    return torch.load(found_by("adam_interpreted.py", tmp_path_factory))


# Absolute tolerance, for differences of much larger numbers; squares are none.
ABSOLUTE = {"weight": 2e-6, "exp_avg": 1e-7, "exp_avg_sq": 0.0, "step": 0.0, "refused": 0.0}


def assert_all_close(found, wanted):
    """States after every step; float32 against float64."""
    for time, (one, other) in enumerate(zip(found, wanted, strict=True)):
        for name in other:
            for place, (got, due) in enumerate(zip(one[name], other[name], strict=True)):
                where = f"{name} {place} at step {time}: "
                torch.testing.assert_close(got.double(), due, rtol=1e-6, atol=ABSOLUTE[name], msg=where.__add__)


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_torch(interpreted, name):
    assert_all_close(interpreted["cases"][name], by_torch(CASES[name]))


SKIPPED = [name for name, case in CASES.items() if case.skipped]


@pytest.mark.parametrize("name", SKIPPED)
def test_a_skipped_step_leaves_everything_to_the_bit(interpreted, name):
    case = CASES[name]
    before = [begin(case)[0], *interpreted["cases"][name]]
    for time in range(case.steps):
        for kept in ("weight", *KEPT):
            pairs = zip(before[time][kept], before[time + 1][kept], strict=True)
            assert [torch.equal(*pair) for pair in pairs] == [time in case.skipped] * len(case.shapes), (kept, time)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", ["nan", "inf", "-inf"])
def test_the_seed_at_fault_is_counted_once(interpreted, fault, seed):
    refused = [state["refused"][0].tolist() for state in interpreted["cases"][f"{fault} in loss {seed}"]]
    once = [9.0, 0.0, 0.0, 0.0, 9.0]  # three seeds, between padding
    once[1 + seed] = 1.0
    assert refused == [[9.0, 0.0, 0.0, 0.0, 9.0], once, once]


def test_it_is_counted_once_by_several_launches(interpreted):
    refused = [state["refused"][0].tolist() for state in interpreted["cases"]["more than one launch takes"]]
    assert refused == [[9.0, 0.0, 0.0, 0.0, 9.0], [9.0, 0.0, 0.0, 1.0, 9.0]]


def test_the_reference_is_adam_by_hand():
    """Two steps of one weight: what every other test is measured against."""
    weight = torch.nn.Parameter(torch.tensor([1.0], dtype=torch.float64))
    adam = torch.optim.Adam([weight], lr=0.25, betas=(0.5, 0.75), eps=0.5, foreach=False)
    weight.grad = torch.tensor([2.0], dtype=torch.float64)
    adam.step()
    assert weight.item() == pytest.approx(1 - 0.25 * 2 / (2 + 0.5))  # m = 1, v = 1; corrected 2 and 4
    weight.grad.fill_(4.0)
    adam.step()  # m = 1 + (4 - 1) / 2, v = 1 + (16 - 1) / 4
    assert weight.item() == pytest.approx(0.8 - 0.25 * (2.5 / 0.75) / (math.sqrt(4.75 / 0.4375) + 0.5))


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_stack_steps_by_kernels_as_by_torch(interpreted, seeds):
    wanted = stacked_steps(seeds, capturable=False)
    for seed, (found, due) in enumerate(zip(interpreted["stacks"][seeds], wanted, strict=True)):
        assert set(found) == set(due)
        assert due["0.step"] == 4, "one of five was skipped"
        assert due["refused"] == (seed == seeds - 1)
        for name in due:
            torch.testing.assert_close(found[name], due[name], rtol=2e-6, atol=1e-7, msg=name.__add__)


@pytest.mark.parametrize("way", ["kernels", "torch"])
def test_losses_are_judged_where_no_gradient_has_reached_a_weight(interpreted, way):
    found = interpreted["idle"] if way == "kernels" else idle_step(capturable=False)
    assert found["refused"].tolist() == [0.0, 1.0]
    assert not found["moved"].any()


def test_a_guard_passes_losses_and_counts_to_its_check():
    checked = []

    def check(losses, counts):
        checked.append(losses.tolist())
        assert not losses.requires_grad
        counts[1] += 1

    guard = FiniteLossGuard(check, torch.device("cpu"), 2)
    for losses in ([1.0, 2.0], [1.0, math.inf]):
        guard.check(torch.tensor(losses, requires_grad=True))
    assert checked == [[1.0, 2.0], [1.0, math.inf]]
    assert guard.nonfinite_counts.tolist() == [0.0, 2.0], "the guard itself counts nothing"
    assert guard.bad_losses() == [1]


def test_a_fused_optimiser_skips_bad_losses():
    weight = torch.nn.Parameter(torch.zeros(1))
    adam = torch.optim.Adam([weight], fused=True)
    cpu = torch.device("cpu")
    guard, moved = FiniteLossGuard(skip_nonfinite(adam, cpu), cpu, 2), []
    for losses in ([3e38, 3e38], [1.0, math.inf], [math.nan, 0.0], [-math.inf, 0.0], [0.0, 0.0]):
        before = weight.item()
        weight.grad = torch.ones(1)
        guard.check(torch.tensor(losses))
        adam.step()
        moved.append(weight.item() != before)
    assert moved == [True, False, False, False, True]
    assert adam.state[weight]["step"] == 2
    assert guard.nonfinite_counts.tolist() == [2.0, 1.0]
    assert guard.bad_losses() == [0, 1]
    assert guard.bad_losses() == []


def wrong_step(change):
    tensors = [[torch.zeros(2, 3)] for _ in range(4)]
    steps, places = [torch.zeros(())], [0]
    change(tensors, steps, places)
    scalars = AdamScalars.zeros(1, torch.device("cpu"))
    adam_step(*tensors, steps, scalars, places=places, betas=(0.9, 0.999), eps=1e-8)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (torch.zeros(3, 2), r"shape \(3, 2\)"),
        (torch.zeros(2, 3, dtype=torch.float64), "float64"),
        (torch.zeros(3, 2).mT, r"strides \(1, 2\)"),
        (torch.zeros(2, 3, device="meta"), "on meta"),
    ],
)
def test_wrong_shapes_dtypes_and_layouts_are_refused(other, why):
    for kind in (1, 2, 3):
        with pytest.raises(ValueError, match=why):
            wrong_step(lambda tensors, steps, places, kind=kind: tensors[kind].__setitem__(0, other))
    with pytest.raises(ValueError, match="differ in length"):
        wrong_step(lambda tensors, steps, places: tensors[1].append(other))
    with pytest.raises(ValueError, match="differ in length"):
        wrong_step(lambda tensors, steps, places: places.append(1))
    with pytest.raises(ValueError, match="not a float32 tensor"):
        wrong_step(lambda tensors, steps, places: steps.__setitem__(0, torch.zeros((), dtype=torch.int64)))


def precompute(losses, refused, steps=1):
    scalars = AdamScalars.zeros(steps, torch.device("cpu"))
    some = [torch.zeros(()) for _ in range(steps)]
    precompute_scalars(scalars, some, torch.tensor(0.1), betas=(0.9, 0.999), losses=losses, nonfinite_counts=refused)


@pytest.mark.parametrize(
    ("losses", "refused", "why"),
    [
        (torch.zeros(3), torch.zeros(2), r"counts of shape \(2,\)"),
        (torch.zeros(3), torch.zeros(3, dtype=torch.int64), "int64"),
        (torch.zeros(3), torch.zeros(6)[::2], r"strides \(2,\)"),
        (torch.zeros(3, 1), torch.zeros(3, 1), r"losses of shape \(3, 1\)"),
        (torch.zeros(0), torch.zeros(0), r"losses of shape \(0,\)"),
        (torch.zeros(3, dtype=torch.int64), torch.zeros(3), "int64"),
        (torch.zeros(3, device="meta"), torch.zeros(3), "on meta"),
    ],
)
def test_wrong_losses_are_refused(losses, refused, why):
    with pytest.raises(ValueError, match=why):
        precompute(losses, refused)


def test_a_step_of_no_tensors_is_refused():
    with pytest.raises(ValueError, match="no tensors to step"):
        precompute(torch.zeros(3), torch.zeros(3), steps=0)


def test_a_cpu_takes_torchs_own_step():
    assert not can_run_kernels(torch.device("cpu"))
