"""What every registered reward must hold to; a new reward file is picked up without an edit here."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch

from conftest import GYM_ACTIONS, GYM_OBS, make_batch, make_spaces, same_state
from intrigue import Curiosity
from intrigue.nn.encoders import encode_action
from intrigue.rewards import REWARDS
from intrigue.rewards.base import IntrinsicReward
from intrigue.rng import seeded_construction
from intrigue.skills import SkillSpec
from intrigue.spaces import Spaces
from intrigue.types import Transitions

SMALL = {
    "bits": 4,  # so few that states share codes
    "feature_dim": 8,
    "hidden": 8,
    "blocks": 1,
    "expression": "0.5*nnm(feature_dim=8, hidden=8, blocks=1) + schedule(rnd(feature_dim=8, hidden=8), 1, 0, 100)",
}
NAMES = REWARDS.names()
# The controls look at nothing: there is no encoding to disturb, and a random bonus goes by its place in the batch.
BLIND = ("none", "random")
# Every name with each of its variants; the ones without variants once.
CASES = [
    pytest.param(name, {"variant": variant} if variant else {}, id=f"{name}-{variant}" if variant else name)
    for name in NAMES
    for variant in get_args(REWARDS.declaration(name).hints().get("variant")) or ("",)
]


def small_options(name: str) -> dict[str, object]:
    """The reward's own settings, with every network made small."""
    fields = REWARDS.declaration(name).hints()
    return {key: value for key, value in SMALL.items() if key in fields}


def build(name: str, spaces: Spaces, **options: object) -> IntrinsicReward:
    entry = REWARDS.get(name)
    with seeded_construction(0, "test"):
        return entry.cls(entry.config(**{**entry.defaults, **small_options(name), **options}), spaces)


def skills_of(name: str, **options: object) -> SkillSpec | None:
    entry = REWARDS.get(name)
    return entry.cls.skills(entry.config(**{**entry.defaults, **small_options(name), **options}))


def refusal(name: str, spaces: Spaces, **options: object) -> str | None:
    entry = REWARDS.get(name)
    return entry.cls.refusal(entry.config(**{**entry.defaults, **small_options(name), **options}), spaces)


def prepared(spaces: Spaces, skills: SkillSpec | None = None, **sizes: int) -> Transitions:
    batch = make_batch(spaces, skills=skills, **sizes)
    scale = 255 if spaces.obs.kind == "pixels" else 1
    return batch.replace(
        obs=batch.obs.float() / scale,
        next_obs=batch.next_obs.float() / scale,
        action=encode_action(spaces.action, batch.action),
    )


@pytest.mark.parametrize("obs", ["vector", "pixels"])
@pytest.mark.parametrize("action", ["discrete", "multi-discrete", "continuous"])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_score_is_finite_pure_and_of_the_right_shape(name, options, obs, action):
    spaces = make_spaces(obs, action)
    if reason := refusal(name, spaces, **options):
        assert len(reason) > 20 and reason.endswith("."), "a refusal says why and what to use instead"
        return
    reward, batch = build(name, spaces, **options), prepared(spaces, skills_of(name, **options))
    before = {key: value.clone() for key, value in reward.state_dict().items()}
    with torch.no_grad():
        first, second = reward.score(batch), reward.score(batch)
    assert first.shape == (6, 4)
    assert torch.isfinite(first).all()
    assert reward.signed or (first >= 0).all(), "a bonus is negative only where the reward says so"
    assert torch.equal(first, second), "scoring twice must give the same"
    assert same_state(before, dict(reward.state_dict())), "scoring must not change anything"


@pytest.mark.parametrize("time", [1, 3])
@pytest.mark.parametrize("envs", [1, 2])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_smallest_batches_work(name, options, time, envs):
    spaces = make_spaces()
    skills = skills_of(name, **options)
    reward, batch = build(name, spaces, **options), prepared(spaces, skills, time=time, envs=envs)
    with torch.no_grad():
        raw, parts = reward.score_parts(batch)
    assert raw.shape == (time, envs)
    reward.observe(batch, parts)
    with torch.no_grad():
        assert torch.isfinite(reward.score(batch)).all()


@pytest.mark.parametrize(("name", "options"), [case for case in CASES if case.values[0] != "random"])
def test_permuting_environments_permutes_the_score(name, options):
    spaces = make_spaces()
    reward, batch = build(name, spaces, **options), prepared(spaces, skills_of(name, **options))
    order = torch.tensor([2, 0, 3, 1])
    shuffled = Transitions(**{field: getattr(batch, field)[:, order] for field in Transitions.__slots__})
    with torch.no_grad():
        torch.testing.assert_close(reward.score(shuffled), reward.score(batch)[:, order], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_float32_score_agrees_with_float64(name, options):
    spaces = make_spaces()
    reward, batch = build(name, spaces, **options), prepared(spaces, skills_of(name, **options))
    wide = batch.replace(obs=batch.obs.double(), next_obs=batch.next_obs.double(), action=batch.action.double())
    with torch.no_grad():
        single = reward.score(batch)
        double = reward.double().score(wide)
    torch.testing.assert_close(single.double(), double.double(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_learning_lowers_the_loss_and_moves_only_trained_weights(name, options):
    spaces = make_spaces()
    reward, batch = build(name, spaces, **options), prepared(spaces, skills_of(name, **options))
    trained = [weight for weight in reward.parameters() if weight.requires_grad]
    frozen = {key: value.clone() for key, value in reward.named_parameters() if not value.requires_grad}
    if not trained:
        assert float(reward.loss(batch, torch.Generator().manual_seed(0))) == 0
        return
    optimizer = torch.optim.Adam(trained, lr=1e-2)
    losses = []
    for _ in range(60):
        loss = reward.loss(batch, torch.Generator().manual_seed(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.7 * losses[0]
    for key, value in reward.named_parameters():
        if key in frozen:
            assert torch.equal(value, frozen[key]), f"{key} is frozen but moved"


@pytest.mark.parametrize("action", sorted(GYM_ACTIONS))
@pytest.mark.parametrize("obs", sorted(GYM_OBS))
@pytest.mark.parametrize("name", NAMES)
def test_curiosity_takes_every_space(name, obs, action):
    """Through the public door, with what vector environments of these spaces give."""
    obs_space, action_space = GYM_OBS[obs], GYM_ACTIONS[action]
    curiosity = Curiosity(name, obs_space, action_space, minibatches=2, epochs=1, **small_options(name))
    skills, rng = curiosity.skills, torch.Generator().manual_seed(0)
    obs_space.seed(0)
    action_space.seed(0)
    frames = [[obs_space.sample() for _ in range(2)] for _ in range(4)]
    if obs == "dict":
        batch = {key: [[frame[key] for frame in row] for row in frames] for key in obs_space.spaces}
        batch = {key: torch.as_tensor(np.array(value)) for key, value in batch.items()}
    else:
        batch = np.array(frames)
    step = curiosity.step(
        obs=batch,
        action=np.array([[action_space.sample() for _ in range(2)] for _ in range(4)]),
        reward=torch.zeros(4, 2),
        terminated=torch.zeros(4, 2, dtype=torch.bool),
        truncated=torch.zeros(4, 2, dtype=torch.bool),
        next_obs=batch,
        skill=skills.draw(8, rng).unflatten(0, (4, 2)) if skills else None,
    )
    assert step.reward.shape == step.intrinsic.shape == (4, 2)
    assert torch.isfinite(step.reward).all()


@pytest.mark.parametrize("name", NAMES)
def test_state_round_trip_continues_identically(name):
    spaces = make_spaces()
    build_one = lambda: Curiosity.from_config(  # noqa: E731
        name,
        small_options(name),
        Curiosity(name, GYM_OBS["vector"], GYM_ACTIONS["discrete"]).cfg,
        spaces,
        device="cpu",
        seed=3,
    )
    first = build_one()
    skills = first.skills
    first.step_batch(make_batch(spaces, seed=1, skills=skills))
    second = build_one()
    second.load_state_dict(first.state_dict())
    assert same_state(first.state_dict(), second.state_dict())
    one, two = (each.step_batch(make_batch(spaces, seed=2, skills=skills)) for each in (first, second))
    assert torch.equal(one.reward, two.reward)
    assert torch.equal(one.intrinsic, two.intrinsic)
    assert same_state(first.state_dict(), second.state_dict())


@pytest.mark.parametrize("name", NAMES)
def test_other_seed_gives_other_networks(name):
    spaces, cfg = make_spaces(), Curiosity("none", GYM_OBS["vector"], GYM_ACTIONS["discrete"]).cfg
    one, two, again = (
        Curiosity.from_config(name, small_options(name), cfg, spaces, device="cpu", seed=seed) for seed in (1, 2, 1)
    )
    weights = [
        torch.cat([w.flatten() for w in each.reward.parameters()] or [torch.zeros(1)]) for each in (one, two, again)
    ]
    assert torch.equal(weights[0], weights[2])
    if sum(weight.numel() for weight in one.reward.parameters()):
        assert not torch.equal(weights[0], weights[1])


@pytest.mark.parametrize("draw", ["shared", "member"])
@pytest.mark.parametrize("units", ["absolute", "relative"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in BLIND])
def test_noise_on_the_features_reaches_the_score(name, units, draw):
    """The same networks and batch, with and without noise: only the noise differs, and its seed decides it."""
    obs_space, action_space = GYM_OBS["vector"], GYM_ACTIONS["discrete"]
    spaces = make_spaces()
    scores = []
    for sigma, seed in ((0.0, 1), (2.0, 1), (2.0, 1), (2.0, 2)):
        noise = {"feature_noise": sigma, "feature_noise_units": units, "feature_noise_draw": draw}
        curiosity = Curiosity(name, obs_space, action_space, seed=0, **noise, **small_options(name))
        curiosity.streams["noise"].manual_seed(seed)
        # Twice: some rewards give nothing before they have a memory.
        steps = [curiosity.step_batch(make_batch(spaces, seed=0, skills=curiosity.skills)) for _ in range(2)]
        scores.append(torch.stack([step.intrinsic for step in steps]))
    assert not torch.equal(scores[0], scores[1])
    assert torch.equal(scores[1], scores[2])
    assert not torch.equal(scores[1], scores[3])
