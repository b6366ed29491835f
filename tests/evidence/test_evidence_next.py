"""Standing and handing out: finished work is never repeated, and a kill on the way hands nothing out."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta

import pytest
from evidence.identity import read_identities
from evidence.packing import Room
from evidence.plan import QueueError, read_plan
from evidence.records import OUT, Batch, now, read_ledger, stamp, write_ledger
from evidence.standing import stand
from tiny_queue import ROOT, git

from evidence import batch, plan

LEASE = Room(16, 1.0, 28 * 60)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """The queue alone, committed."""
    place = tmp_path_factory.mktemp("repository")
    shutil.copytree(ROOT / "evidence", place / "evidence", ignore=shutil.ignore_patterns("__pycache__"))
    (place / "src").mkdir()
    (place / "src" / "kept").touch()
    git(place, "init", "-q")
    git(place, "add", "-A")
    git(place, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "all")
    return place


@pytest.fixture
def world(repository, tmp_path, monkeypatch):
    """A place for batches, and results that nothing but the credits is in."""
    monkeypatch.setattr(batch, "HERE", repository / "evidence")
    (tmp_path / "results").mkdir()
    shutil.copy(ROOT / "results" / "urlb-h200.csv", tmp_path / "results")
    return tmp_path


def standing(world, moment=None):
    return stand(read_plan(), read_identities(), world / "results", moment or now())


def hand_out(world, room=LEASE, rev="HEAD"):
    made = batch.make_batch(standing(world), world / "batch", world / "results", room, rev, now())
    return made, json.loads((world / "batch" / "manifest.json").read_text())


def test_credits_count_and_what_was_handed_out_is_not_handed_out_again(world):
    seen: set[str] = set()
    done = {run for run, state in standing(world).states.items() if state == "done"}
    for _ in range(3):
        made, manifest = hand_out(world)
        runs = set(made.runs.split())
        assert runs and not runs & seen
        assert made.commit == manifest["commit"] and len(made.commit) == 40
        seen |= runs
    states = standing(world).states
    credited = [run for run, state in states.items() if state == "done"]
    assert len(credited) == 4 * (3 + 1 + 1 + 1) + 4 * 3 + 1  # of scratch's seed 3 walker_run alone is wanted
    assert not seen & {read_identities()[run] for run in done}
    assert {states[run] for run, each in read_identities().items() if each in seen} == {"out"}


def test_a_batch_that_nothing_came_back_of_is_lost_and_wanted_again(world):
    made, _ = hand_out(world)
    later = standing(world, now() + timedelta(minutes=28 + 31))
    lost = {later.identities[run] for run, state in later.states.items() if state == "lost"}
    assert lost == set(made.runs.split())
    again = batch.make_batch(later, world / "batch", world / "results", LEASE, "HEAD", now() + timedelta(hours=2))
    assert again.runs == made.runs and again.id != made.id


def test_a_batch_fits_its_lease_and_begins_with_what_is_worth_most(world):
    _, manifest = hand_out(world)
    jobs = manifest["jobs"]
    room = 28 * 60 - batch.BEFORE - batch.AFTER
    assert manifest["room"]["seconds"] == room
    planned = [job for job in jobs if job["start"] < room]
    assert max(job["end"] for job in planned) <= room
    assert jobs[: len(planned)] == planned and len({job["name"] for job in jobs}) == len(jobs) > len(planned)
    wanted = [run for run, state in standing(world).states.items() if state == "out"]
    assert read_identities()[wanted[0]] in {run["identity"] for run in jobs[1]["runs"]}
    assert jobs[1]["after"] == jobs[0]["name"]


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("step", range(4))
def test_a_kill_hands_nothing_out_and_the_same_command_completes(world, monkeypatch, step):
    hand_out(world)  # so that there is a folder to be replaced
    ledger = read_ledger(world / "results")
    steps = []

    def killing(whole):
        def called(*args, **kwargs):
            steps.append(whole)
            if len(steps) - 1 == step:
                raise Killed
            return whole(*args, **kwargs)

        return called

    with monkeypatch.context() as patch:
        patch.setattr(batch.shutil, "copy", killing(shutil.copy))
        patch.setattr(batch.os, "replace", killing(os.replace))
        patch.setattr(batch, "write_ledger", killing(write_ledger))
        with pytest.raises(Killed):
            hand_out(world)
    assert read_ledger(world / "results") == ledger
    made, _ = hand_out(world)
    assert [each.id for each in read_ledger(world / "results")] == [ledger[0].id, made.id]
    assert {path.name for path in (world / "batch").iterdir()} == {"manifest.json", "source.tar", "batch.sh"}
    assert {path.name for path in world.iterdir()} == {"batch", "results"}


def test_a_lease_that_is_too_short_is_refused(world):
    with pytest.raises(QueueError, match="nothing of what is missing fits 1 minutes"):
        hand_out(world, Room(16, 1.0, 60))
    assert not read_ledger(world / "results")


def test_a_commit_that_means_other_runs_is_refused(world, repository, monkeypatch):
    known = {run: each.replace("1-", "9-") for run, each in read_identities().items()}
    moved = stand(read_plan(), known, world / "results", now())
    with pytest.raises(QueueError, match="does not know it"):
        batch.make_batch(moved, world / "batch", world / "results", LEASE, "HEAD", now())


def test_a_credit_that_its_file_does_not_have_is_refused(world):
    path = world / "results" / "urlb-h200.csv"
    kept = [line for line in path.read_text().splitlines(keepends=True) if "apt-urlb" not in line]
    path.write_text("".join(kept))
    with pytest.raises(QueueError, match=r"credits dmc/walker_stand apt-urlb .* does not have"):
        standing(world)


def test_a_batch_is_out_until_half_an_hour_after_its_minutes():
    moment = now().replace(second=0, microsecond=0)
    made = Batch("1", stamp(moment), "c", "28", "1-a", OUT)
    assert made.is_out(moment + timedelta(minutes=57))
    assert not made.is_out(moment + timedelta(minutes=58))


def test_an_entry_that_says_too_little_or_too_much_is_refused(tmp_path):
    entry = '[[want]]\nitem="1"\nwhy="w"\nresults="r"\npresets=["p"]\nseeds=[0]\nsteps=1\n'
    for more, said in (("", "say what is trained"), ('train=["a"]\ntask="b"\n', "unknown task")):
        (tmp_path / "plan.toml").write_text(entry + more)
        with pytest.raises(QueueError, match=said):
            plan.read_plan(tmp_path / "plan.toml")
