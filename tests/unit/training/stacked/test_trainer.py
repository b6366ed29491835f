"""Several seeds that learn together are what each is alone, step by step, and nothing on the way waits for a device."""

from __future__ import annotations

import functools

import pytest
import torch

from conftest import same_state
from intrigue.config.run import resolve
from intrigue.errors import NonFiniteError, RunError
from intrigue.presets import preset_layer
from intrigue.training.build import build
from intrigue.training.off_policy import train_off_policy
from intrigue.training.stacked.trainer import StackedTrainer, train_stacked, why_not_stackable
from no_sync import NoSync

SEEDS = (0, 5, 9)
STEPS = 96
SHRUNK = {
    "env": "dmc/pendulum_swingup",
    "env.max_episode_steps": 15,
    "pool.workers": 0,  # one case has a worker process; starting it costs more than all steps here
    "threads": 1,
    "device": "cpu",
    "run.products": "float32",  # rounded to bfloat16, sums in another order would be apart by more than is asked for
    "agent.capacity": 64,  # the ring comes round
    "agent.batch": 16,
    "agent.hidden": 16,
    "agent.learning_starts": 20,
    "agent.rollout_steps": 10,
}
# Presets, and what else leads through other code.
CASES = [
    ("scratch-urlb", {}),
    ("disagreement-urlb", {}),
    ("apt-urlb", {}),
    ("icm-urlb", {}),
    ("rnd-urlb", {}),
    ("nnm-urlb", {}),
    ("nnm-urlb", {"agent.overlap": True, "agent.n_step": 3}),
    ("nnm-urlb", {"pool.workers": 1}),  # whose arrays change once the next step is sent
    ("nnm-urlb", {"pool.num_envs": 2, "curiosity.scale": "value", "curiosity.ext_coef": 0.5}),
    ("nnmc-urlb", {"agent.overlap": True}),
    ("nnm-ensemble-urlb", {}),
    ("nnm-state-urlb", {}),
]


@pytest.fixture
def made():
    """Builds started parts, and closes them."""
    built = []

    def make(preset, seed, **changes):
        known = resolve(preset_layer(preset)).reward_options
        small = {f"reward.{name}": 8 for name in ("hidden", "feature_dim") if name in known}
        built.append(build(resolve(preset_layer(preset), {**SHRUNK, **small, "seed": seed, **changes})))
        built[-1].collector.start()
        return built[-1]

    yield make
    for parts in built:
        parts.close()


def every(number):
    return lambda step: (step // number + 1) * number


def trained(parts, steps, number=10):
    """All that was said on the way, for each seed."""
    said = [[] for _ in parts]
    for progresses in train_stacked(parts, every(number)):
        for row, progress in zip(said, progresses, strict=True):
            row.append(progress)
        if progresses[0].step >= steps:
            break
    return said


def alone(parts, steps):
    """The same of one, in the loop that looks at every number."""
    said = []
    for progress in train_off_policy(parts, 0):
        said.append(progress)
        if progress.step >= steps:
            break
    return said


def numbers(parts):
    return {**parts.agent.state_dict(), **parts.curiosity.reward.state_dict()}


@pytest.mark.parametrize(("preset", "changes"), CASES)
def test_each_seed_is_what_it_is_alone(made, preset, changes):
    together = [made(preset, seed, **changes) for seed in SEEDS]
    assert [why_not_stackable(parts, 0) for parts in together] == [None] * len(SEEDS)
    before = [{name: value.clone() for name, value in numbers(parts).items()} for parts in together]
    said = trained(together, STEPS, 8)
    for seed, parts, first, progresses in zip(SEEDS, together, before, said, strict=True):
        lone = made(preset, seed, **changes)
        wanted = alone(lone, STEPS)
        for name, value in numbers(lone).items():
            torch.testing.assert_close(
                numbers(parts)[name], value, rtol=1e-4, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}"
            )
        assert any(not torch.equal(first[name], value) for name, value in numbers(parts).items() if "actor" in name)
        assert same_state(lone.streams.state_dict(), parts.streams.state_dict())
        assert same_state(lone.curiosity.streams.state_dict(), parts.curiosity.streams.state_dict())
        mine, its = parts.collector.state_dict(), lone.collector.state_dict()
        assert same_state(mine["replay"]["rng"], its["replay"]["rng"])
        for name in ("head", "steps", "first", "first_row"):
            assert mine["replay"]["keep"][name] == its["replay"]["keep"][name]
        ended = [(each.step, each.env, each.length) for progress in progresses for each in progress.episodes]
        assert ended == [(each.step, each.env, each.length) for progress in wanted for each in progress.episodes]
        assert len(ended) >= 6
        returned = [each.episodic_return for progress in progresses for each in progress.episodes]
        its_returns = [each.episodic_return for progress in wanted for each in progress.episodes]
        assert returned == pytest.approx(its_returns, rel=1e-3, abs=1e-3)
        assert parts.curiosity.steps_seen == lone.curiosity.steps_seen


def test_log_lines_say_what_a_lone_run_says(made):
    parts, lone = made("nnm-urlb", 3), made("nnm-urlb", 3)
    (said,) = trained([parts], 90, 5)
    lines = [each for each in said if each.metrics]
    wanted = [each for each in alone(lone, 90) if each.metrics]
    assert [each.step for each in lines] == [each.step for each in wanted] == [*range(10, 100, 10)]
    for line, its in zip(lines, wanted, strict=True):
        mine, theirs = (
            {name: value for name, value in each.metrics.items() if not name.startswith(("time/", "charts/SPS"))}
            for each in (line, its)
        )
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(SEEDS[:1], marks=pytest.mark.slow)])
@pytest.mark.parametrize(("preset", "changes"), CASES)
def test_nothing_waits_for_a_device(made, preset, changes, seeds):
    trainer = StackedTrainer([made(preset, seed, **changes) for seed in seeds])
    while trainer.step_count < 40:
        trainer.step()
    with NoSync():
        trainer._update._once()
        trainer._explorers._act()


@pytest.mark.parametrize("seeds", [SEEDS, SEEDS[:1]])
@pytest.mark.parametrize("overlap", [False, True])
def test_a_saved_state_goes_on_to_the_same_bits(made, seeds, overlap):
    changes = {"agent.overlap": overlap}
    calm = [made("nnm-urlb", seed, **changes) for seed in seeds]
    trained(calm, STEPS)
    broken = [made("nnm-urlb", seed, **changes) for seed in seeds]
    trained(broken, 50)
    states = [parts.state_dict() for parts in broken]
    anew = [made("nnm-urlb", seed + 100, **changes) for seed in seeds]
    for parts, state in zip(anew, states, strict=True):
        parts.load_state_dict(state)
    trained(anew, STEPS)
    for one, other in zip(calm, anew, strict=True):
        assert same_state(one.state_dict(), other.state_dict())


def test_where_it_stops_changes_nothing(made):
    often, seldom = ([made("nnmc-urlb", seed) for seed in SEEDS] for _ in range(2))
    trained(often, 90, 1)
    trained(seldom, 90, 45)
    for one, other in zip(often, seldom, strict=True):
        assert same_state(one.agent.train_state(), other.agent.train_state())
        assert same_state(one.collector.state_dict(), other.collector.state_dict())


def test_seeds_can_part_and_meet_again(made):
    """A seed that catches up alone, and then goes on with the others."""
    together, parted = ([made("nnm-urlb", seed) for seed in SEEDS] for _ in range(2))
    trained(together, 80)
    trained(parted[:2], 50)
    trained(parted[2:], 50)
    trained(parted, 80)
    for one, other in zip(together, parted, strict=True):
        torch.testing.assert_close(numbers(other), numbers(one), rtol=1e-4, atol=1e-5)


def test_with_overlap_the_actor_of_one_update_ago_explores(made):
    """By hand: what explores after each update is the actor as it was before that update."""
    parts = [made("scratch-urlb", seed, **{"agent.overlap": True}) for seed in SEEDS]
    trainer = StackedTrainer(parts)
    changed = 0
    while trainer.step_count < 60:
        before = [[weight.clone() for weight in each.agent.actor.parameters()] for each in parts]
        trainer.step()
        if trainer._pending_updates:
            assert trainer._pending_updates == 1
            trainer.synchronize()
            for each, old in zip(parts, before, strict=True):
                assert all(map(torch.equal, each.agent.behaviour.parameters(), old))
                changed += not all(map(torch.equal, each.agent.actor.parameters(), old))
    assert changed > 30


@pytest.mark.parametrize("seeds", [SEEDS, SEEDS[:1]])
def test_a_loss_that_is_not_finite_changes_no_weight_and_stops_the_run(made, seeds):
    parts = [made("scratch-urlb", seed) for seed in seeds]
    trained(parts, 40)
    ring = parts[-1].collector.replay.store.ring
    ring.fields["reward"].fill_(float("nan"))
    before = [{name: value.clone() for name, value in numbers(each).items() if "critic" in name} for each in parts]
    trainer = StackedTrainer(parts)
    trainer.step()
    trainer.step()
    assert trainer._pending_updates == 1
    with pytest.raises(NonFiniteError, match="optimiser was not stepped"):
        trainer.synchronize()
    for each, old in zip(parts, before, strict=True):
        assert all(torch.equal(numbers(each)[name], value) for name, value in old.items())


def test_seeds_that_cannot_learn_in_step_say_so(made):
    """One seed's episodes are too long to be drawn from where the others begin to learn."""
    parts = [made("scratch-urlb", 0), made("scratch-urlb", 1, **{"env.max_episode_steps": 400})]
    with pytest.raises(RunError, match="seed 1 has no finished episode to learn from at step 22"):
        trained(parts, 40)


@pytest.mark.parametrize(
    ("preset", "changes", "said"),
    [
        ("nnm-urlb", {"curiosity.epochs": 2}, "several passes"),
        ("nnm-urlb", {"curiosity.minibatches": 2}, "several passes"),
        ("nnm-urlb", {"curiosity.obs_norm": "elementwise"}, "normalised"),
        ("nnm-urlb", {"curiosity.int_coef_steps": 100}, "scheduled"),
        ("nnm-urlb", {"curiosity.feature_noise": 0.1}, "disturbed"),
        ("nnm-urlb", {"reward.memory": 64}, "for several seeds at once"),
        ("diayn-urlb", {}, "skills"),
    ],
)
def test_what_cannot_be_stacked_is_named(made, preset, changes, said):
    assert said in why_not_stackable(made(preset, 0, **changes), 0)
    assert "warmup-steps" in why_not_stackable(made("scratch-urlb", 0), 100)


@pytest.mark.parametrize(
    ("preset", "seeds"),
    [
        *(pytest.param(preset, SEEDS, marks=pytest.mark.slow) for preset in ("nnm-urlb", "nnm-ensemble-urlb")),
        ("nnm-ensemble-urlb", SEEDS[:1]),
    ],
)
def test_compiled_updates_are_the_plain_ones(made, monkeypatch, preset, seeds):
    """As torch.compile traces them, forward and backward; which kernels it makes of that is not asked here."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    plain, compiled = (
        [made(preset, seed, **{"run.execution": mode}) for seed in seeds] for mode in ("plain", "compile")
    )
    for parts in (plain, compiled):
        trained(parts, 40)
    for one, other in zip(plain, compiled, strict=True):
        torch.testing.assert_close(numbers(other), numbers(one), rtol=1e-5, atol=1e-6)
