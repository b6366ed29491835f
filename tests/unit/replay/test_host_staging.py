"""Steps handed over in one piece are what they are one by one, and what is drawn on the way is the same."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import same_state
from intrigue.envs.pool.pool import PoolStep
from intrigue.replay.host_staging import HostStaging
from intrigue.replay.step_store import VectorStep
from replay_runs import World, replay_of


class Notes:
    """Stands where a replay would be and writes down what it is given."""

    def __init__(self):
        self.taken = []

    def add(self, taken):
        self.taken.append(
            VectorStep(*(each.clone() if isinstance(each, torch.Tensor) else each.copy() for each in taken))
        )


def lived(world, length):
    """What happened in `length` steps, and the states it began in."""
    first, notes = world.frames(), Notes()
    for _ in range(length):
        world.step(notes)
    return first, notes.taken


SIZES = {
    "envs": st.integers(1, 4),
    "stack": st.sampled_from([0, 3]),
    "end": st.sampled_from([0.0, 0.05, 0.5]),
    "late": st.booleans(),
    "capacity": st.integers(72, 128),
    "seed": st.integers(0, 2**20),
}


@settings(max_examples=25, deadline=None)
@given(**SIZES, skill=st.sampled_from([0, 2]), pieces=st.lists(st.integers(1, 6), min_size=1, max_size=15))
def test_a_piece_of_several_steps_is_the_steps_one_by_one(envs, stack, end, late, capacity, seed, skill, pieces):
    world = World(envs, stack, seed=seed, end=end, skill=skill, late=late)
    first, taken = lived(world, sum(pieces))
    single, piecewise = (replay_of(world, capacity=capacity, order="episodes") for _ in range(2))
    single.reset(first)
    piecewise.reset(first)
    at = 0
    for piece in pieces:
        some = taken[at : at + piece]
        for each in some:
            single.add(each)
        piecewise.extend(
            VectorStep(*(torch.stack(each) if torch.is_tensor(each[0]) else np.stack(each) for each in zip(*some)))  # noqa: B905
        )
        at += piece
        assert same_state(single.state_dict(), piecewise.state_dict())
        assert single.episodes.finished() == piecewise.episodes.finished()


@settings(max_examples=20, deadline=None)
@given(**SIZES, steps=st.sampled_from([1, 3]))
def test_a_stage_changes_nothing_of_what_is_drawn(envs, stack, end, late, capacity, seed, steps):
    world = World(envs, stack, seed=seed, end=end, late=late)
    first, taken = lived(world, 150)
    single, staged = (replay_of(world, capacity=capacity, order="episodes", batch=16, steps=steps) for _ in range(2))
    single.reset(first)
    staged.reset(first)
    stage = HostStaging(staged)
    for each in taken:
        single.add(each)
        nothing = np.zeros(envs, np.int32)
        # As a pool's and a policy's arrays are: written to again with the next step, or while actions are chosen.
        seen = (each.frames, each.next_frames, each.reward, each.terminated, each.truncated, each.valid, nothing)
        step, action = PoolStep(*(np.array(part) for part in seen)), np.array(each.action)
        over = bool(((each.terminated | each.truncated) & each.valid).any())
        assert stage.push(action, step) == over
        action.fill(0)
        stage.evict()
        assert stage.num_sampleable == len(single)
        if len(single):
            one, two = single.sample(0), staged.sample(0)
            assert all(map(torch.equal, one.batch.tensors(), two.batch.tensors()))
        stage.copy_pending()
        for part in step:
            part.fill(1)
    stage.flush()
    assert same_state(single.state_dict(), staged.state_dict())
