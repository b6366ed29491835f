"""What rewards with `Traits.vmappable` promise: several seeds at once give what each gives alone, and nothing waits.

Every registered reward is asked, with all its variants; a new one that says so is covered without an edit here.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import get_args

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import ACTIONS, OBS, make_batch, make_spaces
from intrigue.nn.encoders import encode_action
from intrigue.rewards import REWARDS
from intrigue.rewards.base import IntrinsicReward
from intrigue.rng import seeded_construction
from intrigue.spaces import Spaces
from intrigue.training.stacked.modules import Stacked, stack_modules
from intrigue.training.stacked.optimizer import StackedAdam
from intrigue.training.stacked.random import Draw, DrawRecorder, draw
from intrigue.types import Encoded, Prepared
from no_sync import NoSync

SEEDS = 3
SMALL = {
    "feature_dim": 8,
    "hidden": 8,
    "blocks": 1,
    "density_hidden": 8,
    "code": 5,
    "prototypes": 6,
    "queue": 16,
    "expression": "0.5*nnm(feature_dim=8, hidden=8, blocks=0) + rnd(feature_dim=8, hidden=8)",
}
SPACES = Spaces(OBS["vector"], ACTIONS["continuous"])
NUCLEAR = ("nnm", "nnmc")
# Settings beyond variants that lead through other code.
MORE = {
    "nnm": [
        *({"encoder": encoder} for encoder in ("idf", "icm", "trunk", "identity")),
        *({"source": "knn", "encoder": encoder} for encoder in ("random", "idf", "icm", "trunk", "identity")),
        {"source": "knn", "form": "floor", "features": "unit", "neighbours_of": "obs"},
    ],
    "nnmc": [{"source": "knn", "encoder": "trunk", "features": "raw"}],
    "disagreement": [{"encoder": "idf"}],
    "icm": [{"encoder": "random"}],
    "mix": [
        {"expression": "clip(icm(variant='urlb', hidden=8), 0, 9) * schedule(apt(feature_dim=8, hidden=8), 1, 0, 99)"}
    ],
}


def every_case() -> list[tuple[str, dict[str, object]]]:
    found: list[tuple[str, dict[str, object]]] = []
    for name in REWARDS.names():
        variants = get_args(REWARDS.declaration(name).hints().get("variant"))
        found += [(name, {"variant": each}) for each in variants] or [(name, {})]
        found += [(name, options) for options in MORE.get(name, ())]
    return found


def build(name: str, options: dict[str, object], seed: int, spaces: Spaces = SPACES) -> IntrinsicReward:
    entry = REWARDS.get(name)
    small = {key: value for key, value in SMALL.items() if key in REWARDS.declaration(name).hints()}
    with seeded_construction(seed, "test"):
        return entry.cls(entry.config(**{**entry.defaults, **small, **options}), spaces).double()


def batch_of(name: str, options: dict[str, object], seed: int) -> Prepared:
    """A batch in which two rows, other ones for each seed, are no transitions."""
    entry = REWARDS.get(name)
    skills = entry.cls.skills(entry.config(**{**entry.defaults, **options}))
    batch = make_batch(SPACES, time=3, envs=7, seed=seed, skills=skills)
    valid = batch.valid.clone()
    valid[seed % 3, seed % 7], valid[2, (seed + 2) % 7] = False, False
    states = {"obs": batch.obs.double(), "next_obs": batch.next_obs.double()}
    batch = batch.replace(action=encode_action(SPACES.action, batch.action).double(), valid=valid, **states)
    return Prepared(*batch.tensors(), raw_obs=batch.obs, raw_next_obs=batch.next_obs)


def stacked_batches(batches: list[Prepared]) -> Prepared:
    return Prepared(*(torch.stack(each) for each in zip(*(batch.tensors() for batch in batches), strict=True)))


def named(case: tuple[str, dict[str, object]]) -> str:
    return "-".join([case[0], *map(str, case[1].values())])[:60]


CASES = [case for case in every_case() if build(*case, seed=0).traits.vmappable]
vmappable = pytest.mark.parametrize(("name", "options"), CASES, ids=map(named, CASES))


def assert_near(found: Tensor, wanted: Tensor, what: str, most: float = 1e-10) -> None:
    """Equal but for the order of float64 sums, against what the tensor as a whole holds.

    A nuclear norm is the sum of roots of a Gram matrix's eigenvalues: one that should be 0 is off by up to 1e-16 of the
    largest, and its root by 1e-8.
    """
    assert found.shape == wanted.shape and found.dtype == wanted.dtype, what
    apart, whole = (each.detach().double().norm() for each in (found.double() - wanted.double(), wanted))
    assert apart <= most * whole + 1e-14, f"{what}: apart by {float(apart / whole):.1e} of {float(whole):.3g}"


def generators(count: int = SEEDS) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(100 + seed) for seed in range(count)]


def step_together(
    stacked: Stacked, batch: Prepared, draws: list[Draw], rngs: list[torch.Generator]
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Score, learn by plain descent, observe."""
    with torch.no_grad():
        batch = stacked.call(encoded, batch)
        raw, parts = stacked.call("score_parts", batch)
    loss = stacked.call("loss", batch, draw(draws, rngs))
    if loss.requires_grad:
        descend(list(stacked.leaves.values()), loss.sum())
    with torch.no_grad():
        stacked.call("observe", batch, parts)
    return raw, parts, loss


def told(stacked: Stacked, batch: Prepared) -> list[Draw]:
    """What a loss draws."""
    asked = DrawRecorder(torch.device("cpu"))
    with torch.no_grad():
        stacked.call("loss", stacked.call(encoded, batch), asked)
    return asked.draws


def encoded(reward: IntrinsicReward, batch: Prepared) -> Prepared:
    return batch if reward.frozen_encoder is None else Encoded.of(batch, *reward.frozen_encoder.encode_pair(batch))


def step_alone(
    reward: IntrinsicReward, batch: Prepared, rng: torch.Generator
) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    with torch.no_grad():
        batch = encoded(reward, batch)
        raw, parts = reward.score_parts(batch)
    loss = reward.loss(batch, rng)
    if loss.requires_grad:
        descend([weight for weight in reward.parameters() if weight.requires_grad], loss.sum())
    with torch.no_grad():
        reward.observe(batch, parts)
    return raw, dict(parts), loss


def descend(weights: list[torch.nn.Parameter], loss: Tensor) -> None:
    for weight in weights:
        weight.grad = None
    loss.backward()
    with torch.no_grad():
        for weight in weights:
            if weight.grad is not None:
                weight -= 0.01 * weight.grad


def test_the_rewards_of_urlb_are_among_them():
    names = {name for name, _ in CASES}
    assert names >= {"none", "nnm", "nnmc", "disagreement", "apt", "icm", "rnd", "proto", "diayn", "smm", "aps", "cic"}
    assert {options["variant"] for name, options in CASES if name == "apt"} >= {"urlb", "urlb-2021"}
    assert {options["variant"] for name, options in CASES if name == "disagreement" and "variant" in options} == {
        "paper", "official", "urlb",
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, SEEDS])
@vmappable
def test_seeds_together_give_what_each_gives_alone(name, options, count):
    """Two whole steps: what the second scores hangs on what the first learned and observed."""
    rewards = [build(name, options, seed) for seed in range(count)]
    alone = copy.deepcopy(rewards)
    stacked = stack_modules(rewards)
    rngs, own = generators(count), generators(count)
    draws = told(stacked, stacked_batches([batch_of(name, options, seed) for seed in range(count)]))
    for time in range(2):
        batches = [batch_of(name, options, 10 * time + seed) for seed in range(count)]
        raw, parts, loss = step_together(stacked, stacked_batches(batches), draws, rngs)
        for seed in range(count):
            wanted_raw, wanted_parts, wanted_loss = step_alone(alone[seed], batches[seed], own[seed])
            assert_near(raw[seed], wanted_raw, f"score of seed {seed}", most=1e-7 if name in NUCLEAR else 1e-10)
            assert_near(loss[seed], wanted_loss, f"loss of seed {seed}")
            assert set(parts) == set(wanted_parts)
            for part in parts:
                assert_near(parts[part][seed], wanted_parts[part], f"{part} of seed {seed}")
            weights = dict(alone[seed].named_parameters())
            for key, leaf in stacked.leaves.items():
                if (grad := weights[key].grad) is not None:
                    assert leaf.grad is not None
                    assert_near(leaf.grad[seed], grad, f"gradient of {key}, seed {seed}")
            for key, value in alone[seed].state_dict().items():
                assert_near(rewards[seed].state_dict()[key], value, f"{key} of seed {seed}")
            assert torch.equal(rngs[seed].get_state(), own[seed].get_state()), "as many draws as alone"


@vmappable
def test_nothing_waits_for_the_device(name, options):
    rewards = [build(name, options, seed) for seed in range(SEEDS)]
    stacked = stack_modules(rewards)
    batch = stacked_batches([batch_of(name, options, seed) for seed in range(SEEDS)])
    draws, rngs = told(stacked, batch), generators()
    trained = [[weight for weight in reward.parameters() if weight.requires_grad] for reward in rewards]
    adam = StackedAdam(stacked, [torch.optim.Adam(each) for each in trained]) if trained[0] else None
    with NoSync():
        step_together(stacked, batch, draws, rngs)
        if adam is not None:
            adam.optimizer.step()


class Kernels(TorchDispatchMode):
    """What is computed, in order; views compute nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if not (func.is_view or func.overloadpacket in (torch.ops.aten.detach, torch.ops.aten.view)):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@vmappable
def test_one_seed_is_computed_as_without_a_stack(name, options):
    """The very same operations, and none that waits either."""
    reward = build(name, options, 0)
    alone = copy.deepcopy(reward)
    stacked, batch = stack_modules([reward]), batch_of(name, options, 0)
    stacked_batch, rngs = stacked_batches([batch]), generators(1)
    draws = told(stacked, stacked_batch)
    with NoSync(), Kernels() as one:
        step_together(stacked, stacked_batch, draws, rngs)
    with Kernels() as other:
        step_alone(alone, batch, *generators(1))
    assert Counter(one.seen) == Counter(other.seen)


def test_seeds_do_not_leak_into_each_other():
    """A row that is far off in one seed moves no other seed's neighbours."""
    options = {"source": "knn", "encoder": "identity", "features": "raw", "form": "centered"}
    batches = [batch_of("nnm", options, seed) for seed in range(SEEDS)]
    stacked = stack_modules([build("nnm", options, seed) for seed in range(SEEDS)])
    before = stacked.call("score", stacked_batches(batches))
    batches[1] = batches[1].replace(next_obs=batches[1].next_obs * 100)
    after = stacked.call("score", stacked_batches(batches))
    assert torch.equal(before[0], after[0]) and torch.equal(before[2], after[2])
    assert not torch.allclose(before[1], after[1])


@pytest.mark.parametrize(
    ("name", "options"),
    [("nnm", {"source": "knn", "memory": 64}), ("mix", {"expression": "nnm(source='knn', memory=64) + rnd"})],
)
def test_settings_that_need_the_host_say_so(name, options):
    assert not build(name, options, 0).traits.vmappable


def test_pixels_are_never_together():
    for name, options in CASES:
        entry = REWARDS.get(name)
        spaces = make_spaces("pixels", "continuous")
        if entry.cls.refusal(entry.config(**{**entry.defaults, **options}), spaces) is None and (
            options.get("encoder") != "identity"  # which takes no pixels at all
        ):
            assert not build(name, options, 0, spaces).traits.vmappable, name
