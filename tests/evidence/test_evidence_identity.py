"""Identities: of the settings that count, whatever they are called."""

from __future__ import annotations

import copy
import csv
import io
import shutil

import pytest
from evidence.identity import COLUMNS, TABLE, identity_of, read_identities, settings_of, tuned_identity
from evidence.plan import HERE, Group, read_plan

from evidence import identity, package

GROUP = Group("1", "made", "dmc/walker", "nnm-urlb", (), (0,), 1000, ("dmc/walker_run",), 100)


@pytest.fixture(scope="module")
def config():
    return package.settings(GROUP, 0)


@pytest.fixture
def place(tmp_path):
    """A folder with tables of its own."""
    for name in ("fields.toml", "ARITHMETIC"):
        shutil.copy(HERE / name, tmp_path / name)
    return tmp_path


def changed(config, section, **values):
    fresh = copy.deepcopy(config)
    fresh[section].update(values)
    return fresh


def test_every_identity_is_written_down_as_the_plan_resolves_to():
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for run, found in package.identities(read_plan().groups).items():
        writer.writerow([run.env, run.preset, run.changes, run.seed, run.pretrained, run.steps, found])
    said = "the plan, a preset or a field changed: see evidence/README.md, then run `evidence/queue identities`"
    assert TABLE.read_text() == text.getvalue(), said
    assert len(set(read_identities().values())) == len(read_identities())


def test_what_only_keeps_a_run_does_not_count(config):
    for section, values in (
        ("run", {"device": "cuda", "threads": 7, "sinks": ["wandb"], "execution": "graph", "checkpoint_every": 5}),
        ("pool", {"workers": 9}),
    ):
        assert identity_of(changed(config, section, **values)) == identity_of(config)


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("run", {"seed": 1}),
        ("run", {"steps": 1001}),
        ("run", {"products": "float32"}),
        ("pool", {"num_envs": 8}),
        ("pool", {"groups": 2}),
        ("reward", {"n": 5}),
        ("env", {"id": "dmc/jaco"}),
        ("agent", {"fresh": 1}),
    ],
)
def test_what_is_learned_from_counts(config, section, values):
    assert identity_of(changed(config, section, **values)) != identity_of(config)


def test_a_whole_number_is_one_setting_however_it_is_written(config):
    assert identity_of(changed(config, "curiosity", int_coef=1)) == identity_of(
        changed(config, "curiosity", int_coef=1.0)
    )


def test_a_renamed_field_and_a_renamed_value_change_nothing(config, place):
    fresh = copy.deepcopy(config)
    fresh["schema"] = 2
    fresh["run"]["matmul_dtype"] = {"bfloat16": "bf16"}[fresh["run"].pop("products")]
    fresh["learner"] = fresh.pop("agent")
    fresh["agent"] = {"overlap": fresh["learner"].pop("overlap")}
    assert identity_of(fresh, place) != identity_of(config)
    table = (place / "fields.toml").read_text()
    renamed = "".join(f'"learner.{name}" = "agent.{name}"\n' for name in fresh["learner"])
    table = table.replace("\n[renamed]", f'\n[renamed]\n"run.matmul_dtype" = "run.products"\n{renamed}')
    table = table.replace("\n[values]", '\n[values."run.products"]\nbf16 = "bfloat16"')
    (place / "fields.toml").write_text(table)
    assert identity_of(fresh, place) == identity_of(config)


def test_a_field_that_came_later_does_not_count_while_it_is_as_it_was_before(config, place):
    (place / "fields.toml").write_text((place / "fields.toml").read_text() + '"agent.dropout" = 0.0\n')
    assert identity_of(changed(config, "agent", dropout=0.0), place) == identity_of(config)
    assert identity_of(changed(config, "agent", dropout=0.1), place) != identity_of(config)


def test_another_arithmetic_is_another_run(config, place):
    (place / "ARITHMETIC").write_text("2\n")
    assert identity_of(config, place).startswith("2-")
    assert identity_of(config, place).partition("-")[2] == identity_of(config).partition("-")[2]


def test_names_that_are_left_out_are_names_of_fields(config):
    fields = identity.tomllib.loads((HERE / "fields.toml").read_text())
    known = settings_of(config, {**fields, "left_out": []})
    assert set(fields["left_out"]) <= known.keys()
    assert set(fields["renamed"]) <= settings_of(config, {**fields, "left_out": [], "renamed": {}}).keys()


def test_a_fine_tuning_is_its_pre_training_and_what_was_set_of_it(config):
    own = tuned_identity("1-a", "dmc/walker_run", 1000, config)
    assert own == tuned_identity("1-a", "dmc/walker_run", 1000, changed(config, "curiosity", idle=True))
    others = [
        tuned_identity("1-b", "dmc/walker_run", 1000, config),
        tuned_identity("1-a", "dmc/walker_flip", 1000, config),
        tuned_identity("1-a", "dmc/walker_run", 500, config),
        tuned_identity("1-a", "dmc/walker_run", 1000, changed(config, "agent", n_step=3)),
        tuned_identity("1-a", "dmc/walker_run", 1000, changed(config, "run", steps=5)),
    ]
    assert len({own, *others}) == 6
