"""A packed lease: within its cores, GPU and time, in order of worth, and what follows after what it needs."""

from __future__ import annotations

from evidence.packing import EPSILON, Job, Room, pack
from hypothesis import given, settings
from hypothesis import strategies as st

sizes = st.tuples(st.integers(1, 8), st.sampled_from([0.0, 0.05, 0.12, 0.3, 0.5, 1.0]), st.integers(1, 300))
rooms = st.builds(Room, st.integers(1, 16), st.sampled_from([0.0, 0.5, 1.0]), st.integers(1, 1000))


@st.composite
def groups(draw):
    found = []
    for number, (first, tasks) in enumerate(draw(st.lists(st.tuples(sizes, st.lists(sizes, max_size=4)), max_size=12))):
        name = f"g{number}"
        found.append([Job(name, (), *first), *(Job(f"{name}-{k}", (), *size, name) for k, size in enumerate(tasks))])
    return found


@settings(deadline=None)
@given(groups(), rooms)
def test_never_more_than_there_is(wanted, room):
    placed = pack(wanted, room)
    for moment in {each.start for each in placed}:
        there = [each.job for each in placed if each.start <= moment < each.end]
        assert sum(job.cores for job in there) <= room.cores
        assert sum(job.gpu for job in there) <= room.gpu + EPSILON
    assert all(each.start >= 0 and each.end <= room.seconds for each in placed)


@settings(deadline=None)
@given(groups(), rooms)
def test_whole_groups_and_what_follows_comes_after(wanted, room):
    placed = {each.job.name: each for each in pack(wanted, room)}
    for group in wanted:
        assert len({job.name in placed for job in group}) == 1
    for each in placed.values():
        assert not each.job.after or placed[each.job.after].end <= each.start


@settings(deadline=None)
@given(groups(), rooms)
def test_what_is_worth_less_takes_nothing_from_what_is_worth_more(wanted, room):
    for kept in range(len(wanted)):
        fewer = pack(wanted[:kept], room)
        assert pack(wanted, room)[: len(fewer)] == fewer


@settings(deadline=None)
@given(groups(), rooms)
def test_what_would_fit_by_itself_is_not_passed_over_in_an_empty_lease(wanted, room):
    alone = next((group for group in wanted if pack([group], room)), [])
    assert [each.job for each in pack(wanted, room)][: len(alone)] == alone


def test_both_are_kept_busy():
    learn, emulate = Job("learn", (), 2, 0.5, 100), Job("emulate", (), 6, 0.0, 50)
    many = [[learn], [Job("l2", (), 2, 0.5, 100)], [Job("l3", (), 2, 0.5, 100)], [emulate], [Job("e2", (), 6, 0.0, 50)]]
    starts = {each.job.name: each.start for each in pack(many, Room(10, 1.0, 100))}
    assert starts == {"learn": 0, "l2": 0, "emulate": 0, "e2": 50}  # a third would have no GPU before the end
