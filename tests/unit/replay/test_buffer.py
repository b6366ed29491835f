"""The replay against a world that remembers everything in plain lists."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import same_state
from intrigue.errors import ConfigError
from intrigue.replay.plan import updates_due
from intrigue.replay.ring import ring_shape
from intrigue.replay.step_store import VectorStep
from replay_runs import World, replay_of


def begun(world, **changes):
    replay = replay_of(world, **changes)
    replay.reset(world.frames())
    return replay


def check_windows(world, replay, sample, steps):
    """Every row of every window is the transition that followed in its episode and skill, or does not count."""
    batch = sample.batch
    for column, (step, env) in enumerate(zip(sample.starts.step.tolist(), sample.starts.env.tolist(), strict=True)):
        counts = world.seen[step][env].valid
        for t in range(steps):
            if t and counts:
                before = world.seen[step + t - 1][env]
                counts = not (before.terminated or before.truncated)
                counts = counts and np.array_equal(before.skill, world.seen[step + t][env].skill)
            assert bool(batch.valid[t, column]) == counts
            if not counts:
                continue
            seen = world.seen[step + t][env]
            np.testing.assert_array_equal(batch.obs[t, column].numpy(), seen.obs)
            np.testing.assert_array_equal(batch.next_obs[t, column].numpy(), seen.next_obs)
            assert int(batch.action[t, column]) == seen.action
            assert float(batch.reward[t, column]) == seen.reward
            assert bool(batch.terminated[t, column]) == seen.terminated
            assert bool(batch.truncated[t, column]) == seen.truncated
            np.testing.assert_array_equal(batch.skill[t, column].numpy(), seen.skill)


@settings(max_examples=40, deadline=None)
@given(
    envs=st.integers(1, 4),
    stack=st.sampled_from([0, 1, 3, 4]),
    steps=st.integers(1, 4),
    end=st.sampled_from([0.0, 0.05, 0.5]),
    skill=st.sampled_from([0, 2]),
    late=st.booleans(),
    capacity=st.integers(72, 400),  # the least for four environments, stacks and windows of four
    length=st.integers(5, 220),
    seed=st.integers(0, 2**20),
)
def test_windows_are_what_happened(envs, stack, steps, end, skill, late, capacity, length, seed):
    world = World(envs, stack, seed=seed, end=end, skill=skill, late=late)
    replay = begun(world, capacity=capacity, steps=steps)
    for _ in range(length):
        world.step(replay)
        kept = replay.store
        # An end takes a row of its own, and rows are forgotten chunk by chunk, but never more than was promised.
        least = capacity // (2 * envs) - max(stack - 1, 0) - 2
        assert len(world.seen) - kept.first_sampleable_step >= min(len(world.seen), least)
    assert len(replay) == max(0, len(world.seen) - steps + 1 - replay.store.first_sampleable_step) * envs
    if len(replay):
        sample = replay.sample(0)
        assert sample.starts.step.min() >= replay.store.first_sampleable_step
        assert sample.starts.step.max() <= len(world.seen) - steps
        check_windows(world, replay, sample, steps)


def test_the_ring_keeps_what_was_promised_and_forgets_the_rest():
    world = World(2, 0, end=0.0)
    replay = begun(world, capacity=256)
    for _ in range(1000):
        world.step(replay)
    chunks, chunk = ring_shape(256)
    assert (chunks, chunk) == (5, 64)
    assert 256 - 2 <= len(replay) <= 320


@pytest.mark.parametrize("capacity", [1, 63, 64, 65, 8191, 8193, 1_000_000])
def test_a_ring_of_chunks_always_remembers_its_capacity(capacity):
    chunks, chunk = ring_shape(capacity)
    assert (chunks - 1) * chunk >= capacity, "even when the ring has just come round to a new chunk"
    assert (chunks - 1) * chunk < capacity + chunk
    assert chunks <= 129


def test_a_first_observation_is_copies_of_one_frame_and_a_successor_is_true():
    """By hand: one environment, three frames; episode 0 ends at its second step, episode 1 begins."""
    world = World(1, 3, end=0.0)
    replay = begun(world)
    flags = {"action": np.ones(1, int), "skill": torch.zeros(1, 0), "reward": np.ones(1), "valid": np.ones(1, bool)}
    no, yes = np.array([False]), np.array([True])
    frame = lambda value: np.full((1, 1, 3), value, np.uint8)  # noqa: E731
    replay = replay_of(world)
    replay.reset(frame(10))
    replay.add(VectorStep(**flags, terminated=no, truncated=no, next_frames=frame(11), frames=frame(11)))
    replay.add(VectorStep(**flags, terminated=no, truncated=yes, next_frames=frame(12), frames=frame(50)))
    replay.add(VectorStep(**flags, terminated=no, truncated=no, next_frames=frame(51), frames=frame(51)))
    rows = replay.store.rows(torch.arange(3), torch.zeros(3, dtype=torch.int64))
    values = replay.store.ring.observations(rows, 3)[:, :, 0, 0].tolist()
    assert values == [[10, 10, 10], [10, 10, 11], [50, 50, 50]]
    after = replay.store.ring.observations(replay.store.ring.after(rows), 3)[:, :, 0, 0].tolist()
    assert after == [[10, 10, 11], [10, 11, 12], [50, 50, 51]]
    assert replay.current_obs()[0, :, 0, 0].tolist() == [50, 50, 51]
    # Every frame once: 10, 11, 12, 50, 51.
    assert replay.store.ring.head == 5


def test_tuples_span_the_window_and_sum_its_rewards():
    world = World(3, 0, seed=4, end=0.15)
    replay = begun(world, steps=3, window="tuple", batch=400)
    for _ in range(60):
        world.step(replay)
    sample = replay.sample(0)
    batch, discount = sample.batch, sample.extras["discount"]
    lengths = set()
    for column, (step, env) in enumerate(zip(sample.starts.step.tolist(), sample.starts.env.tolist(), strict=True)):
        total, taken = 0.0, 0
        for t in range(3):
            seen = world.seen[step + t][env]
            total += 0.9**t * seen.reward
            taken += 1
            if seen.terminated or seen.truncated:
                break
        lengths.add(taken)
        np.testing.assert_array_equal(batch.obs[0, column].numpy(), world.seen[step][env].obs)
        np.testing.assert_array_equal(batch.next_obs[0, column].numpy(), seen.next_obs)
        assert int(batch.action[0, column]) == world.seen[step][env].action
        assert float(batch.reward[0, column]) == pytest.approx(total, abs=1e-5)
        assert bool(batch.terminated[0, column]) == seen.terminated
        assert bool(batch.truncated[0, column]) == seen.truncated
        assert float(discount[0, column]) == pytest.approx(0.9**taken)
    assert lengths == {1, 2, 3}
    assert batch.valid.all()


def frequencies(replay, draws):
    counts = {}
    for _ in range(draws):
        drawn = replay.sample(0).starts
        for place in zip(drawn.step.tolist(), drawn.env.tolist(), strict=True):
            counts[place] = counts.get(place, 0) + 1
    return counts


def test_every_transition_is_equally_likely():
    world = World(3, 0, end=0.3)
    replay = begun(world, capacity=40, batch=1000, steps=2)
    for _ in range(100):
        world.step(replay)
    counts = frequencies(replay, 60)
    expected = 60_000 / len(replay)
    assert len(counts) == len(replay)
    # Of some 20 to 40 counts, each within five standard deviations of its expectation.
    assert all(abs(count - expected) < 5 * np.sqrt(expected) for count in counts.values())


def test_every_episode_is_equally_likely_and_then_every_whole_window_in_it():
    world = World(2, 0, seed=3, end=0.0)
    replay = begun(world, order="episodes", steps=2, batch=1000)
    ends = {(3, 0), (9, 0), (5, 1), (19, 0)}  # (step, environment): lengths 4, 6, 10 and 6
    for step in range(22):
        over = np.array([(step, env) in ends for env in range(2)])
        world.seen.append([])
        taken = VectorStep(
            action=np.zeros(2, int), skill=torch.zeros(2, 0), reward=np.zeros(2), terminated=over,
            truncated=np.zeros(2, bool), valid=np.ones(2, bool), next_frames=world.frames(), frames=world.frames(),
        )  # fmt: skip
        replay.add(taken)
    counts = frequencies(replay, 40)
    spans = {(0, 3): 0, (4, 9): 0, (10, 19): 0}
    for first, last in spans:
        inside = {place: count for place, count in counts.items() if place[1] == 0 and first <= place[0] <= last}
        assert set(inside) == {(step, 0) for step in range(first, last)}, "a window of two never begins at an end"
        assert sum(inside.values()) == pytest.approx(10_000, rel=0.05)
        share = 10_000 / (last - first)
        assert all(abs(count - share) < 5 * np.sqrt(share) for count in inside.values())
    assert {step for step, env in counts if env == 1} == set(range(5)), "the unfinished episode is not drawn from"


def test_an_episode_with_a_forgotten_beginning_is_drawn_from_as_far_as_it_is_known():
    world = World(1, 0, end=0.0)
    replay = begun(world, capacity=128, order="episodes", batch=500)
    over = np.zeros(1, bool)
    for step in range(300):
        world.seen.append([])
        taken = VectorStep(
            action=np.zeros(1, int), skill=torch.zeros(1, 0), reward=np.zeros(1), terminated=over | (step == 250),
            truncated=over, valid=~over, next_frames=world.frames(), frames=world.frames(),
        )  # fmt: skip
        replay.add(taken)
    drawn = replay.sample(0).starts.step
    assert int(drawn.min()) >= replay.store.first_sampleable_step
    assert int(drawn.max()) == 250


def test_priorities_decide_what_is_drawn():
    world = World(2, 0, end=0.1)
    replay = begun(world, priority=0.5, batch=1000, importance=0.4, importance_steps=100)
    for _ in range(10):
        world.step(replay)
    assert len(frequencies(replay, 5)) == 20, "all are new, so all are equally likely"
    wanted = torch.arange(20, dtype=torch.float64).view(10, 2)
    slots = replay.store.slot_index(torch.arange(10).unsqueeze(-1), torch.arange(2))
    replay.priorities.tree.put(slots, wanted)
    sample = replay.sample(50)
    drawn, chance = sample.starts, wanted[sample.starts.step, sample.starts.env] / 190
    torch.testing.assert_close(drawn.probability, chance)
    counts = frequencies(replay, 50)
    for (step, env), count in counts.items():
        expected = 50_000 * float(wanted[step, env]) / 190
        assert abs(count - expected) < 5 * np.sqrt(expected) + 1
    assert (0, 0) not in counts, "without weight it is never drawn"
    # β is half way from 0.4 to 1.
    weight = (1 / (20 * chance)) ** 0.7
    torch.testing.assert_close(sample.extras["weight"].double(), weight / weight.max(), rtol=1e-6, atol=0)


def test_errors_become_priorities_and_new_ones_begin_at_the_largest():
    world = World(1, 0, end=0.0)
    replay = begun(world, priority=0.5, batch=8)
    for _ in range(4):
        world.step(replay)
    sample = replay.sample(0)
    error = torch.linspace(-3, 4, 8)
    replay.update_priorities(sample, error)
    for step in set(sample.starts.step.tolist()):
        largest = error[sample.starts.step == step].abs().double().max()
        got = replay.priorities.tree.get(replay.store.slot_index(torch.tensor([step]), torch.tensor([0])))
        assert float(got) == pytest.approx((float(largest) + 1e-6) ** 0.5)
    world.step(replay)
    newest = replay.priorities.tree.get(replay.store.slot_index(torch.tensor([4]), torch.tensor([0])))
    assert float(newest) == pytest.approx((4 + 1e-6) ** 0.5)


def test_what_is_forgotten_is_not_drawn_by_priority_either():
    world = World(2, 0, seed=1, end=0.3)
    replay = begun(world, capacity=64, priority=1.0, steps=3, batch=500)
    for _ in range(200):
        world.step(replay)
        if len(replay):
            sample = replay.sample(0)
            replay.update_priorities(sample, torch.rand(500, generator=torch.Generator().manual_seed(0)) + 0.5)
            assert int(sample.starts.step.min()) >= replay.store.first_sampleable_step
            assert int(sample.starts.step.max()) <= len(world.seen) - 3
    check_windows(world, replay, sample, 3)
    assert float(replay.priorities.tree.total) == pytest.approx(float(replay.priorities.state_dict()["weight"].sum()))


@settings(max_examples=25, deadline=None)
@given(
    count=st.integers(1, 70),
    seed=st.integers(0, 2**20),
    zeros=st.sampled_from([0.0, 0.5, 0.95]),
)
def test_the_sum_tree_finds_what_a_running_sum_finds(count, seed, zeros):
    from intrigue.replay.sampling import SumTree

    rng = np.random.default_rng(seed)
    tree = SumTree(count, torch.device("cpu"))
    weight = np.zeros(count)
    for _ in range(5):
        index = rng.integers(0, count, 10)
        value = rng.random(10) * (rng.random(10) >= zeros)
        tree.put(torch.from_numpy(index), torch.from_numpy(value))
        for place in set(index.tolist()):
            weight[place] = value[index == place].max()
    assert float(tree.total) == pytest.approx(weight.sum())
    if weight.sum() > 0:
        mass = rng.random(50) * weight.sum()
        found = tree.find(torch.from_numpy(mass)).numpy()
        np.testing.assert_array_equal(found, np.searchsorted(np.cumsum(weight), mass, side="right"))
        assert weight[tree.find(tree.total.unsqueeze(0))[0]] > 0, "even rounded up to the whole"


ORDERS = [{}, {"order": "episodes"}, {"priority": 0.6}, {"window": "tuple", "steps": 3}]


@pytest.mark.parametrize("changes", ORDERS)
@pytest.mark.parametrize("length", [0, 20, 150])
def test_a_saved_replay_goes_on_as_if_nothing_had_happened(changes, length):
    for stack, late in ((0, False), (3, False), (0, True)):
        world = World(3, stack, seed=7, end=0.2, late=late)
        first = begun(world, capacity=200, **changes)
        for _ in range(length):
            world.step(first)
            if len(first) and world.time[0] == 0:
                first.update_priorities(
                    first.sample(0), torch.rand(64, generator=torch.Generator().manual_seed(length))
                )
        second = replay_of(world, seed=99, capacity=200, **changes)
        second.load_state_dict(first.state_dict())
        assert same_state(first.state_dict(), second.state_dict())
        twin = World(3, stack, seed=7, end=0.2, late=late)
        twin.__dict__.update({k: (v.copy() if isinstance(v, np.ndarray) else v) for k, v in world.__dict__.items()})
        twin.rng = np.random.default_rng(5)
        world.rng, twin.seen = np.random.default_rng(5), list(world.seen)
        for _ in range(60):
            world.step(first)
            twin.step(second)
            assert torch.equal(first.current_obs(), second.current_obs())
            assert len(first) == len(second)
            if len(first) and world.time[0] == 0:
                one, two = first.sample(0), second.sample(0)
                assert torch.equal(one.batch.obs, two.batch.obs)
                assert torch.equal(one.batch.next_obs, two.batch.next_obs)
                assert torch.equal(one.batch.reward, two.batch.reward)
                for each, drawn in ((first, one), (second, two)):
                    each.update_priorities(drawn, torch.ones(64))
        assert same_state(first.state_dict(), second.state_dict())


def test_environments_that_begin_anew_cut_off_what_was_under_way():
    world = World(2, 3, seed=2, end=0.2)
    replay = begun(world, steps=2, order="transitions", batch=300)
    for _ in range(12):
        world.step(replay)
    loaded = replay_of(world, steps=2, batch=300)
    loaded.load_state_dict(replay.state_dict())
    for row in world.seen[-1]:
        row.truncated = not row.terminated
    world.episode += 1
    world.time[:] = 0
    loaded.truncate(world.frames())
    for _ in range(6):
        world.step(loaded)
    sample = loaded.sample(0)
    check_windows(world, loaded, sample, 2)
    assert (sample.starts.step == 11).any()


def test_too_small_a_replay_is_refused_in_words():
    with pytest.raises(ConfigError, match=r"--agent\.capacity 96 or more"):
        replay_of(World(8, 4), capacity=50)


@pytest.mark.parametrize("every", [1, 4, 5])
@pytest.mark.parametrize("envs", [1, 3, 8])
def test_updates_fall_due_evenly_and_only_after_learning_starts(every, envs):
    from replay_runs import plan_of

    plan = plan_of(learning_starts=100, train_every=every)
    due = {step: updates_due(step, envs, plan) for step in range(envs, 1001, envs)}
    assert all(count == 0 for step, count in due.items() if step <= 100)
    assert sum(due.values()) == max(due) // every - 100 // every
    assert max(due.values()) <= -(-envs // every)
