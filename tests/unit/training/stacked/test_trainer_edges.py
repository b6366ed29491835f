"""Seeds that learn together, where it is easy to be off by one: what is forgotten, when somebody looks, whose fault."""

from __future__ import annotations

import pytest
import torch
from test_trainer import SEEDS, SHRUNK, alone, every, made, numbers, trained  # noqa: F401  `made` is a fixture

from intrigue.config.run import resolve
from intrigue.errors import NonFiniteError, RunError
from intrigue.presets import preset_layer
from intrigue.training.build import build
from intrigue.training.loops import train_all
from intrigue.training.stacked.trainer import StackedTrainer, why_not_stackable


def lines(said):
    """What log lines say but for times."""
    return [
        {name: value for name, value in each.metrics.items() if not name.startswith(("time/", "charts/SPS"))}
        for each in said
        if each.metrics
    ]


@pytest.mark.parametrize(
    ("expression", "stays_alone"), [("icm + schedule(rnd, 1, 0, 200)", True), ("icm + rnd", False)]
)
def test_a_bonus_that_goes_by_steps_is_not_stacked(expression, stays_alone):
    """Nobody tells a captured update how far the run is."""
    layer = {**SHRUNK, "reward": expression, "curiosity.idle": False, "curiosity.int_coef": 1.0}
    parts = build(resolve(preset_layer("scratch-urlb"), layer))
    try:
        assert (why_not_stackable(parts, 0) is not None) == stays_alone
        assert not stays_alone or "schedule" in why_not_stackable(parts, 0)
    finally:
        parts.close()


def test_log_lines_do_not_hang_on_when_somebody_looks(made):  # noqa: F811
    calm, looked_at = ([made("nnm-urlb", seed) for seed in SEEDS[:2]] for _ in range(2))
    for one, other in zip(trained(calm, 90, 10), trained(looked_at, 90, 1), strict=True):
        assert lines(one) == lines(other)


@pytest.mark.parametrize("number", [1, 10])
def test_an_episode_longer_than_the_replay_is_forgotten_in_time(made, number):  # noqa: F811
    """Up to the next one there is nothing to draw from, wherever its steps are held back meanwhile."""
    changes = {"env.max_episode_steps": 200}
    parts, lone = (made("scratch-urlb", 0, **changes) for _ in range(2))
    trained([parts], 390, number)
    alone(lone, 390)
    ours, its = (next(iter(each.agent.critic_step.optimizer.state.values()))["step"] for each in (parts, lone))
    assert ours == its < 95
    torch.testing.assert_close(numbers(parts), numbers(lone), rtol=1e-4, atol=1e-5)


def test_each_seed_says_what_its_own_replay_holds(made):  # noqa: F811
    lengths = {0: 15, 5: 7}
    parts = [made("scratch-urlb", seed, **{"env.max_episode_steps": length}) for seed, length in lengths.items()]
    said = trained(parts, 200)
    held = [[line["charts/replayed"] for line in lines(each) if "charts/replayed" in line] for each in said]
    for (seed, length), mine in zip(lengths.items(), held, strict=True):
        wanted = alone(made("scratch-urlb", seed, **{"env.max_episode_steps": length}), 200)
        assert mine == [line["charts/replayed"] for line in lines(wanted) if "charts/replayed" in line]
    assert held[0] != held[1]


def test_a_loss_that_is_not_finite_is_named_by_its_seed(made):  # noqa: F811
    parts = [made("scratch-urlb", seed) for seed in SEEDS]
    trained(parts, 40)
    parts[1].collector.replay.store.ring.fields["reward"].fill_(float("nan"))
    trainer = StackedTrainer(parts)
    trainer.step()
    trainer.step()
    with pytest.raises(NonFiniteError, match=rf"^seed {SEEDS[1]}: DDPG's loss is not finite"):
        trainer.synchronize()


def test_a_seed_whose_replay_found_no_room_is_named(made):  # noqa: F811
    parts = [made("scratch-urlb", seed) for seed in SEEDS]
    parts[2].collector.replay.device = torch.device("meta")
    with pytest.raises(RunError, match=rf"^seed {SEEDS[2]}: the replay is not where the networks are\. Take up fewer"):
        train_all(parts, 0, every(10))
