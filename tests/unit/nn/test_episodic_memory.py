"""Memories per environment against a plain loop over environments and steps, and what happens at resets and cuts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import GYM_ACTIONS, GYM_OBS, make_batch, make_spaces, same_state
from intrigue import Curiosity
from intrigue.nn.elliptical import BLOCK, InverseCovariance
from intrigue.nn.episode_segments import EpisodeSegments
from intrigue.nn.episodic_memory import FIRST_ROWS, EpisodicMemory, PerEnvironment
from intrigue.nn.hashing import exact_keys
from intrigue.rewards import REWARDS
from intrigue.rng import seeded_construction
from intrigue.types import Transitions

EPISODIC = [
    ("episodic", {"k": 3}),
    ("rnd_alpha", {}),
    ("ngu", {"k": 3, "lifelong_dim": 8, "lifelong_hidden": 8}),
    ("ride", {"variant": "official"}),
    ("ride", {"variant": "paper"}),
    ("ride", {"variant": "paper", "count": "kernel", "k": 3}),
    ("e3b", {"variant": "official"}),
    ("e3b", {"variant": "paper"}),
    ("counts", {"variant": "kernel", "k": 3}),
    ("counts", {"variant": "simhash", "bits": 4, "table_size": 11}),
    ("counts", {"variant": "episodic", "bits": 4}),
]
# Those that keep no statistics of all environments together.
LOCAL = [each for each in EPISODIC if each[0] not in ("rnd_alpha", "ngu") and each[1].get("variant") != "simhash"]


def label(value: object) -> str:
    if isinstance(value, dict):
        return "-".join(str(each) for each in value.values() if isinstance(each, str)) or "default"
    return str(value)


def rollout(time: int, envs: int, seed: int, *, ends: float = 0.2, gaps: float = 0.2, width: int = 2) -> Transitions:
    """States on a small grid, so that some are met again; episodes end and rows are not valid at random."""
    rng = torch.Generator().manual_seed(seed)
    lead = (time, envs)
    draw = lambda: torch.randint(0, 3, (*lead, width), generator=rng).double()  # noqa: E731
    ended = torch.rand(lead, generator=rng) < ends
    return Transitions(
        obs=draw(),
        action=torch.nn.functional.one_hot(torch.randint(3, lead, generator=rng), 3).double(),
        reward=torch.zeros(lead),
        terminated=ended & (torch.rand(lead, generator=rng) < 0.5),
        truncated=ended,
        next_obs=draw(),
        valid=torch.rand(lead, generator=rng) >= gaps,
        skill=torch.zeros(*lead, 0),
    )


def part(batch: Transitions, rows: slice) -> Transitions:
    return Transitions(**{name: getattr(batch, name)[rows] for name in Transitions.__slots__})


class Plain:
    """The same memory as lists, one step of one environment at a time."""

    def __init__(self, envs: int, capacity: int, *, begin: bool) -> None:
        self.lists, self.capacity, self.begin = [[] for _ in range(envs)], capacity, begin
        self.fresh = [True] * envs

    def walk(self, batch: Transitions, look):
        """What `look(state, seen)` says of every valid row, in a (T, N) list; None elsewhere."""
        said = [[None] * len(self.lists) for _ in range(batch.valid.shape[0])]
        for t in range(batch.valid.shape[0]):
            for n, remembered in enumerate(self.lists):
                if batch.valid[t, n]:
                    if self.fresh[n] and self.begin:
                        remembered.append(batch.obs[t, n].numpy())
                    self.fresh[n] = False
                    state = batch.next_obs[t, n].numpy()
                    said[t][n] = look(state, remembered[-self.capacity :])
                    remembered.append(state)
                if batch.ended[t, n]:
                    remembered.clear()
                    self.fresh[n] = True
        return said


def compare(said, tensor, valid) -> None:
    for t, n in valid.nonzero().tolist():
        np.testing.assert_allclose(tensor[t, n].numpy(), said[t][n], rtol=1e-10, err_msg=f"time {t}, environment {n}")


@settings(max_examples=40, deadline=None)
@given(
    time=st.integers(1, 9),
    envs=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    ends=st.sampled_from([0.0, 0.2, 0.6]),
    gaps=st.sampled_from([0.0, 0.3]),
    capacity=st.sampled_from([1, 3, 100]),
    begin=st.booleans(),
)
def test_the_view_is_what_a_plain_loop_sees(time, envs, seed, ends, gaps, capacity, begin):
    k = 2

    def look(state, seen):
        squared = sorted(float(((state - each) ** 2).sum()) for each in seen)[:k]
        return squared + [np.inf] * (k - len(squared))

    def count(state, seen):
        return sum(bool((state == each).all()) for each in seen)

    memory = EpisodicMemory(capacity, (2,), torch.float64)
    keys = EpisodicMemory(capacity, (), torch.int64)
    near, equal = Plain(envs, capacity, begin=begin), Plain(envs, capacity, begin=begin)
    for step in range(3):
        batch = rollout(time, envs, seed + step, ends=ends, gaps=gaps)
        segments = EpisodeSegments.from_batch(batch, memory.episode_lengths(envs), include_start=begin)
        entries = segments.arrange(batch.next_obs, batch.obs)
        compare(near.walk(batch, look), memory.nearest(segments, entries, k), batch.valid)
        laid = segments.arrange(exact_keys(batch.next_obs), exact_keys(batch.obs))
        compare(equal.walk(batch, count), keys.count_equal(segments, laid), batch.valid)
        memory.add(segments, entries)
        keys.add(segments, laid)


def test_the_row_that_ends_an_episode_belongs_to_it_and_the_next_row_does_not():
    batch = rollout(4, 1, 0, ends=0, gaps=0)
    batch.truncated[1, 0] = True
    segments = EpisodeSegments.from_batch(batch, torch.zeros(1, dtype=torch.int64), include_start=True)
    # Places: s0 s0' s1' | s2 s2' s3'
    assert segments.row_places.tolist() == [1, 2, 4, 5]
    assert segments.start_places.tolist() == [0, 3]
    assert segments.start_rows.tolist() == [0, 2]
    assert segments.episode.flatten().tolist() == [0, 0, 0, 1, 1, 1]
    assert segments.earlier.flatten().tolist() == [0, 1, 2, 0, 1, 2]
    assert segments.ongoing.flatten().tolist() == [False] * 3 + [True] * 3
    assert segments.updated_lengths(torch.tensor([7])).tolist() == [3]


def test_an_episode_under_way_goes_on_and_a_late_reset_row_is_nobodys():
    batch = rollout(4, 2, 0, ends=0, gaps=0)
    batch.terminated[0, 0] = True
    batch.valid[1, 0] = False  # the row in which a vector environment resets one step late
    segments = EpisodeSegments.from_batch(batch, torch.tensor([5, 2]), include_start=True)
    # Environment 0 begins anew with the state row 2 left; environment 1 has no state there.
    assert segments.start_places.tolist() == [2]
    assert segments.start_rows.tolist() == [2]
    assert segments.active.mT.tolist() == [[True, False, True, True, True], [True, True, False, True, True]]
    assert segments.earlier.mT.tolist() == [[5, 0, 0, 1, 2], [2, 3, 4, 4, 5]]
    assert segments.updated_lengths(torch.tensor([5, 2])).tolist() == [3, 6]


def test_nothing_of_the_states_after_an_end_at_the_last_row_is_kept():
    memory = EpisodicMemory(10, (2,))
    batch = rollout(3, 2, 0, ends=0, gaps=0)
    batch.truncated[2, 1] = True
    segments = EpisodeSegments.from_batch(batch, memory.episode_lengths(2), include_start=True)
    memory.add(segments, segments.arrange(batch.next_obs, batch.obs))
    assert memory.written.tolist() == [4, 0]
    assert torch.equal(memory.rows[0, :4].double(), torch.cat([batch.obs[:1, 0], batch.next_obs[:, 0]]))


def test_only_states_still_going_are_encoded():
    batch = rollout(5, 2, 0, ends=0, gaps=0)
    batch.truncated[3, 0] = batch.truncated[4, 1] = True
    seen = []

    def encode(states):
        seen.append(states.shape[0])
        return states * 2

    segments = EpisodeSegments.from_batch(batch, torch.zeros(2, dtype=torch.int64), include_start=True)
    entries = segments.encode_ongoing(encode, batch.next_obs, batch.obs)
    assert seen == [1, 1], "one state reached and one begun with"
    assert torch.equal(entries[segments.row_places[4], 0], 2 * batch.next_obs[4, 0])
    assert torch.equal(entries[segments.row_places[4] - 1, 0], 2 * batch.obs[4, 0])
    assert float(entries.abs().sum()) == float(2 * (batch.next_obs[4, 0] + batch.obs[4, 0]).sum())
    batch.truncated[4] = True
    over = EpisodeSegments.from_batch(batch, torch.zeros(2, dtype=torch.int64), include_start=True)
    assert over.encode_ongoing(encode, batch.next_obs, batch.obs) is None


def test_memory_doubles_up_to_its_capacity_and_then_forgets_the_oldest():
    capacity = 3 * FIRST_ROWS
    memory, sizes, states = EpisodicMemory(capacity, (2,)), [], []
    for seed in range(8):
        batch = rollout(40, 1, seed, ends=0, gaps=0)
        segments = EpisodeSegments.from_batch(batch, memory.episode_lengths(1), include_start=False)
        memory.add(segments, batch.next_obs)
        sizes.append(memory.rows.shape[1])
        states += batch.next_obs[:, 0].tolist()
    assert sizes == [64, 128, 128, 192, 192, 192, 192, 192]
    assert sorted(memory.rows[0].tolist()) == sorted(states[-capacity:])


def test_chunks_change_nothing(monkeypatch):
    memory = EpisodicMemory(100, (2,), torch.float64)
    for seed in range(2):
        batch = rollout(12, 3, seed)
        segments = EpisodeSegments.from_batch(batch, memory.episode_lengths(3), include_start=True)
        entries = segments.arrange(batch.next_obs, batch.obs)
        whole = memory.nearest(segments, entries, 4)
        monkeypatch.setattr("intrigue.nn.episodic_memory.CHUNK_ELEMENTS", 100)
        assert torch.equal(memory.nearest(segments, entries, 4), whole)
        monkeypatch.undo()
        memory.add(segments, entries)


class Two(PerEnvironment):
    def __init__(self) -> None:
        super().__init__()
        self.add_state("level", torch.tensor([1.0, 2.0]))


def test_state_has_no_rows_until_resized_and_then_refuses_another_number():
    module = Two()
    assert module.state("level", 3).tolist() == [[1, 2]] * 3
    assert module.level.shape == (0, 2), "looking changes nothing"
    module.resize(3)
    assert module.level.shape == (3, 2)
    with pytest.raises(ValueError, match="3 environments, but this batch has 4"):
        module.state("level", 4)


def test_loading_sizes_the_state_and_still_checks_the_rest():
    first, second = Two(), Two()
    first.resize(3)
    first.level += 1
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.level, first.level)
    first.level += 1
    assert not torch.equal(second.level, first.level), "a copy, not the same tensor"
    with pytest.raises(RuntimeError, match="size mismatch"):
        second.load_state_dict({"level": torch.zeros(3, 5)})
    second.load_state_dict(Two().state_dict())
    assert second.level.shape == (0, 2), "back to a state from before the first batch"


def make(name, options):
    entry = REWARDS.get(name)
    with seeded_construction(0, "test"):
        return entry.cls(entry.config(feature_dim=4, hidden=8, **options), make_spaces()).double()


@pytest.mark.parametrize(("name", "options"), EPISODIC, ids=label)
@pytest.mark.parametrize("capacity", [4, 100])
def test_one_rollout_scores_what_its_halves_do(name, options, capacity):
    """With learning off: an episode may run across the cut, end at it, or begin after it."""
    if "capacity" in REWARDS.declaration(name).hints():
        options = {**options, "capacity": capacity}
    batch = rollout(24, 5, 3, ends=0.1, gaps=0.1, width=6)
    batch.truncated[11, 0] = batch.valid[11, 0] = True  # the cut is where an episode ends
    whole, halves = make(name, options), make(name, options)
    scores = []
    with torch.no_grad():
        expected, parts = whole.score_parts(batch)
        whole.observe(batch, parts)
        for half in (part(batch, slice(0, 12)), part(batch, slice(12, 24))):
            score, parts = halves.score_parts(half)
            halves.observe(half, parts)
            scores.append(score)
    valid = batch.valid
    torch.testing.assert_close(torch.cat(scores)[valid], expected[valid], rtol=1e-9, atol=1e-12)
    assert len(expected[valid].unique()) > 2, "scores differ, so that equality means something"
    again = part(rollout(7, 5, 9, width=6), slice(0, 7))
    with torch.no_grad():
        torch.testing.assert_close(halves.score(again), whole.score(again), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("name", "options"), LOCAL, ids=label)
def test_what_other_environments_do_does_not_matter_to_an_episode(name, options):
    batch = rollout(10, 3, 1, width=6)
    others = batch.replace(obs=batch.obs.clone(), next_obs=batch.next_obs.clone())
    others.obs[:, 1:] *= -2
    others.next_obs[:, 1:] += 1
    reward = make(name, options)
    with torch.no_grad():
        one, two = reward.score(batch), reward.score(others)
    torch.testing.assert_close(one[:, 0], two[:, 0])
    assert not torch.equal(one[:, 1:], two[:, 1:])


@pytest.mark.parametrize(("name", "options"), EPISODIC, ids=label)
def test_memories_survive_saving_in_the_middle_of_an_episode(name, options):
    first, second = make(name, options), make(name, options)
    one, two = rollout(9, 3, 1, width=6), rollout(9, 3, 2, width=6)
    with torch.no_grad():
        first.observe(one, first.score_parts(one)[1])
        second.load_state_dict(first.state_dict())
        assert same_state(dict(first.state_dict()), dict(second.state_dict()))
        assert torch.equal(first.score(two), second.score(two))


def test_another_number_of_environments_is_refused_by_name():
    curiosity = Curiosity("episodic", GYM_OBS["vector"], GYM_ACTIONS["discrete"], feature_dim=4, hidden=4)
    curiosity.step_batch(make_batch(make_spaces(), envs=4))
    with pytest.raises(ValueError, match="4 environments, but this batch has 2"):
        curiosity.step_batch(make_batch(make_spaces(), envs=2))


@pytest.mark.parametrize("rows", [5, 2 * BLOCK + 3])
def test_the_ellipse_is_sherman_morrison_row_by_row(rows):
    """Against one rank-one step per row in NumPy, over resets, gaps, cuts and several blocks."""
    rng = np.random.default_rng(0)
    width, envs, ridge = 3, 2, 0.1
    ellipse = InverseCovariance(width, ridge)
    inverse = [np.eye(width) / ridge for _ in range(envs)]
    for seed in range(2):
        batch = rollout(rows, envs, seed, ends=2 / rows)
        phi = rng.normal(size=(rows, envs, width)) * 3
        segments = EpisodeSegments.from_batch(batch, ellipse.episode_lengths(envs), include_start=False)
        bonus = ellipse.compute_bonuses(segments, torch.from_numpy(phi))
        ellipse.add(segments, torch.from_numpy(phi) * segments.ongoing.unsqueeze(-1))
        for t in range(rows):
            for n in range(envs):
                if batch.valid[t, n]:
                    step = inverse[n] @ phi[t, n]
                    expected = float(phi[t, n] @ step)
                    np.testing.assert_allclose(float(bonus[t, n]), expected, rtol=1e-8)
                    inverse[n] = inverse[n] - np.outer(step, step) / (1 + expected)
                if batch.ended[t, n]:
                    inverse[n] = np.eye(width) / ridge
        np.testing.assert_allclose(ellipse.inverse.numpy(), np.stack(inverse), atol=1e-10)


def test_the_ellipse_stays_exact_over_a_long_episode_of_nearly_equal_states():
    """Where float32 fails: one direction is seen 4,000 times, another never."""
    ellipse, batch = InverseCovariance(2, 0.1), rollout(1000, 1, 0, ends=0, gaps=0)
    phi = torch.tensor([30.0, 0.0]).expand(1000, 1, 2)
    for _ in range(4):
        segments = EpisodeSegments.from_batch(batch, ellipse.episode_lengths(1), include_start=False)
        ellipse.add(segments, phi)
    segments = EpisodeSegments.from_batch(part(batch, slice(0, 2)), ellipse.episode_lengths(1), include_start=False)
    bonus = ellipse.compute_bonuses(segments, torch.tensor([[[30.0, 0.0]], [[0.0, 2.0]]]))
    # 900/(0.1 + 4000·900) and 4/0.1.
    np.testing.assert_allclose(bonus.flatten().numpy(), [900 / 3_600_000.1, 40.0], rtol=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([torch.uint8, torch.float32, torch.float64]), st.integers(1, 20))
def test_keys_are_equal_exactly_where_states_are(seed, dtype, width):
    rng = torch.Generator().manual_seed(seed)
    states = torch.randint(0, 2, (6, 5, width), generator=rng).to(dtype)
    keys, flat = exact_keys(states).flatten(), states.flatten(0, 1)
    assert torch.equal(keys.unsqueeze(0) == keys.unsqueeze(1), (flat.unsqueeze(0) == flat.unsqueeze(1)).all(-1))


def test_zero_has_one_key_whatever_its_sign():
    zero = torch.zeros(1, 1, 3)
    assert torch.equal(exact_keys(-zero), exact_keys(zero))
