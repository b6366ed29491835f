"""Checkpoints: what goes in comes out, saving again is harmless, the newest `keep` stay, and other readers agree."""

from __future__ import annotations

import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from intrigue.errors import CheckpointError, RunError
from intrigue.run import canonical, checkpoint, disk
from intrigue.run.checkpoint import manifest, tensorfile


def save(folder: Path, step: int, state: Any, *, keep: int = 3, config_digest: str = "c", **meta: Any) -> Path:
    return checkpoint.save(folder, step, state, config_digest=config_digest, meta=meta, keep=keep)


def load(folder: Path) -> checkpoint.Checkpoint:
    def unexpected(message: str) -> None:
        raise AssertionError(message)

    return checkpoint.load(folder, on_skip=unexpected)


def same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        if not isinstance(right, torch.Tensor) or left.dtype != right.dtype or left.shape != right.shape:
            return False
        return bool((tensorfile.to_bytes(left) == tensorfile.to_bytes(right)).all())
    if isinstance(left, np.ndarray):
        return (
            isinstance(right, np.ndarray)
            and left.dtype == right.dtype
            and left.shape == right.shape
            and left.tobytes() == right.tobytes()
        )
    if isinstance(left, dict):
        return isinstance(right, dict) and set(left) == set(right) and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return isinstance(right, list) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return isinstance(right, float) and repr(left) == repr(right)  # tells -0.0 from 0.0, and NaN is NaN
    return type(left) is type(right) and bool(left == right)


TORCH_DTYPES = list(tensorfile.TORCH_CODES.values())
NUMPY_DTYPES = list(tensorfile.NUMPY_CODES.values())
SHAPES: list[tuple[int, ...]] = [(), (0,), (3,), (0, 4), (2, 3), (1, 1, 5)]


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_every_torch_dtype_and_shape_comes_back_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    state = {}
    for index, shape in enumerate(SHAPES):
        size = math.prod(shape) * dtype.itemsize
        raw = torch.randint(0, 2 if dtype == torch.bool else 256, (size,), dtype=torch.uint8, generator=generator)
        state[str(index)] = torch.empty(shape, dtype=dtype) if not size else raw.view(dtype).reshape(shape)
    save(tmp_path, 7, state)
    assert same(state, load(tmp_path).state)


@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=lambda d: d.__name__)
def test_every_numpy_dtype_comes_back_as_numpy(dtype: Any, tmp_path: Path) -> None:
    state = {str(index): np.arange(math.prod(shape)).reshape(shape).astype(dtype) for index, shape in enumerate(SHAPES)}
    save(tmp_path, 7, state)
    assert same(state, load(tmp_path).state)


def test_plain_values_come_back_exactly(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    state = {
        "pcg64": generator.bit_generator.state,  # 128-bit integers
        "floats": [0.1, -0.0, 1e-320, math.pi, math.nan, math.inf, -math.inf, 2.0**1023],
        "plain": [None, True, False, 0, -(2**200), "", "\ud800 ü \x00", {}, []],
        "pair": (1, 2),
    }
    save(tmp_path, 0, state)
    loaded = load(tmp_path).state
    assert same(state, loaded)
    again = np.random.default_rng(0)
    again.bit_generator.state = loaded["pcg64"]
    assert again.random() == generator.random()


def test_layouts_that_are_hard_to_write(tmp_path: Path) -> None:
    base = torch.arange(12.0).reshape(3, 4)
    state = {
        "whole": base,
        "alias": base,
        "part": base[1:, :2],
        "turned": base.t(),
        "expanded": torch.ones(1).expand(5),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "conjugate": torch.tensor([1 + 2j], dtype=torch.complex64).conj(),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "reversed": np.arange(5)[::-1],
    }
    save(tmp_path, 1, state)
    loaded = load(tmp_path).state
    for name, value in state.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.detach().resolve_conj(), loaded[name]), name
        else:
            assert np.array_equal(value, loaded[name]), name
    big_endian = np.arange(3, dtype=">i4")
    save(tmp_path, 2, {"x": big_endian})
    assert load(tmp_path).state["x"].tolist() == [0, 1, 2]


leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**130), 2**130),
    st.floats(),
    st.text(max_size=8),
    st.builds(lambda n, s: torch.full((n,), s), st.integers(0, 5), st.floats(width=32)),
    st.builds(lambda n: np.arange(n, dtype=np.int16), st.integers(0, 5)),
)
keys = st.text(max_size=6).filter(lambda key: "/" not in key and not key.startswith("$"))
trees = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))


@settings(max_examples=80, deadline=None)
@given(trees)
def test_any_tree_comes_back(tree: Any) -> None:
    with tempfile.TemporaryDirectory() as place:
        save(Path(place), 3, {"root": tree})
        assert checkpoint.verify(Path(place)).ok
        assert same({"root": tree}, load(Path(place)).state)


def test_digest_sees_content_and_nothing_else(tmp_path: Path) -> None:
    state = {"a": torch.ones(3), "b": {"n": 1, "m": 2}}
    save(tmp_path / "1", 5, state, wall_seconds=1.0)
    save(tmp_path / "2", 5, {"b": {"m": 2, "n": 1}, "a": torch.ones(3)}, wall_seconds=9.0)
    assert checkpoint.digest(tmp_path / "1") == checkpoint.digest(tmp_path / "2")
    changed = [
        {"a": torch.ones(3).nextafter(torch.full((3,), 2.0)), "b": {"n": 1, "m": 2}},
        {"a": torch.ones(3, dtype=torch.float64), "b": {"n": 1, "m": 2}},
        {"a": torch.ones(3, 1), "b": {"n": 1, "m": 2}},
        {"A": torch.ones(3), "b": {"n": 1, "m": 2}},
        {"a": np.ones(3, np.float32), "b": {"n": 1, "m": 2}},
        {"a": torch.ones(3), "b": {"n": 1, "m": 2.0}},
    ]
    digests = {checkpoint.digest(tmp_path / "1")}
    for index, other in enumerate(changed):
        save(tmp_path / f"other{index}", 5, other)
        digests.add(checkpoint.digest(tmp_path / f"other{index}"))
    assert len(digests) == 1 + len(changed)


def test_newest_keep_stay_and_nothing_else(tmp_path: Path) -> None:
    for step in (1, 20, 300, 4000):
        save(tmp_path, step, {"x": step}, keep=2)
    assert sorted(os.listdir(tmp_path)) == ["000000000300", "000000004000"]
    save(tmp_path, 5000, {"x": 0}, keep=1)
    assert os.listdir(tmp_path) == ["000000005000"]


def test_saving_the_same_again_changes_nothing(tmp_path: Path) -> None:
    first = save(tmp_path, 5, {"x": torch.ones(2)}, wall_seconds=1.0)
    before = {path.name: (path.read_bytes(), path.stat().st_ino) for path in first.iterdir()}
    assert save(tmp_path, 5, {"x": torch.ones(2)}, wall_seconds=2.0) == first
    assert {path.name: (path.read_bytes(), path.stat().st_ino) for path in first.iterdir()} == before
    assert os.listdir(tmp_path) == ["000000000005"]


def test_other_content_at_the_same_step_is_selected_without_touching_the_first(tmp_path: Path) -> None:
    save(tmp_path, 5, {"x": 1})
    second = save(tmp_path, 5, {"x": 2})
    assert (second.name, load(tmp_path).state, load(tmp_path).step) == ("000000000005-1", {"x": 2}, 5)
    third = save(tmp_path, 5, {"x": 1})
    assert (os.listdir(tmp_path), load(tmp_path).state) == ([third.name], {"x": 1})
    assert save(tmp_path, 6, {"x": 3}).name == "000000000006"


def test_damaged_folder_of_the_same_step_is_set_aside(tmp_path: Path) -> None:
    path = save(tmp_path, 5, {"x": 1})
    (path / "state.json").write_bytes(b"{}")
    assert save(tmp_path, 5, {"x": 1}).name == "000000000005"
    assert checkpoint.verify(tmp_path).ok
    aside = [name for name in os.listdir(tmp_path) if name.startswith(".damaged-000000000005")]
    assert len(aside) == 1
    assert (tmp_path / aside[0] / "state.json").read_bytes() == b"{}"


def test_damaged_newest_is_set_aside_only_when_an_older_one_is_whole(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, step, {"x": step})
    for step in (2, 3):
        os.unlink(tmp_path / f"{step:012d}" / "manifest.json")
    assert len(checkpoint.quarantine_damaged(tmp_path)) == 2
    assert (checkpoint.verify(tmp_path).ok, load(tmp_path).step) == (True, 1)
    os.unlink(tmp_path / f"{1:012d}" / "manifest.json")
    assert checkpoint.quarantine_damaged(tmp_path) == []
    assert (tmp_path / f"{1:012d}").exists()


def test_leftovers_are_ignored_and_cleaned(tmp_path: Path) -> None:
    save(tmp_path, 5, {"x": 1})
    for name in (".tmp-" + "9" * 32, ".trash-" + "9" * 32):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.json").write_text("half")
    assert load(tmp_path).step == 5
    assert len(checkpoint.clean_leftovers(tmp_path)) == 2
    assert os.listdir(tmp_path) == ["000000000005"]


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ({"x": object()}, "object"),
        ({"x": {1: 2}}, "must be a string"),
        ({"x": torch.zeros(2, dtype=torch.complex128)}, "complex128"),
        ({"x": np.array(["a"])}, "'x'"),
        ({"x": np.array([object()])}, "'x'"),
        ({"x": torch.ones(3).to_sparse()}, "'x'"),
        ({"a/b": torch.ones(1), "a": {"b": torch.zeros(1)}}, "same path"),
        ({"$float": "nan"}, "float"),
        ({"__metadata__": torch.ones(1)}, "__metadata__"),
    ],
)
def test_what_cannot_be_saved_is_named_and_leaves_nothing(state: Any, word: str, tmp_path: Path) -> None:
    save(tmp_path, 1, {"x": 1})
    with pytest.raises(RunError, match=word.replace("$", "")):
        save(tmp_path, 2, state)
    assert os.listdir(tmp_path) == ["000000000001"]


def test_step_and_keep_are_checked(tmp_path: Path) -> None:
    for step, keep in ((-1, 1), (10**12, 1), (1, 0)):
        with pytest.raises(ValueError, match="must lie in"):
            save(tmp_path, step, {}, keep=keep)


def test_nothing_to_load_is_an_error_never_a_fresh_start(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(CheckpointError, match="Nothing was started from scratch") as caught:
            load(folder)
        assert caught.value.exit_code == 4
        assert not checkpoint.verify(folder).ok
        with pytest.raises(CheckpointError):
            checkpoint.digest(folder)


def test_safetensors_reads_ours_and_we_read_theirs(tmp_path: Path) -> None:
    arrays = {
        "a": torch.randn(3, 2),
        "b": torch.ones(5, dtype=torch.bfloat16),
        "c": torch.tensor(True),
        "d": torch.empty(0, 2),
    }
    path = save(tmp_path / "c", 1, arrays)
    assert same(arrays, dict(load_file(path / "tensors.safetensors")))
    save_file(arrays, tmp_path / "theirs.safetensors")
    reading = tensorfile.read(tmp_path / "theirs.safetensors", keep=True)
    assert reading.problem is None
    assert same(
        arrays, {e.name: tensorfile.to_array(e, reading.contents[e.name], as_numpy=False) for e in reading.entries}
    )


def test_a_newer_format_is_refused_and_never_passed_over(tmp_path: Path) -> None:
    save(tmp_path, 1, {"x": 1})
    path = save(tmp_path, 2, {"x": 2}) / "manifest.json"
    fields = json.loads(path.read_bytes())
    del fields["seal"]
    fields["version"], fields["novelty"] = 2, 1
    fields["seal"] = manifest._compute_seal(fields)
    path.write_bytes(canonical.encode(fields, indent=2))
    with pytest.raises(
        manifest.NewerFormat, match=r"written by a newer intrigue \(format 2\); this one reads format 1"
    ):
        checkpoint.load(tmp_path, on_skip=lambda message: None)
    assert "newer intrigue" in checkpoint.verify(tmp_path).problems[0]


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0}, {"version": "1"}, {"version": True}, {"step": -1}, {"step": 2.0}, {"step": "2"}, {"step": 3},
        {"members": []}, {"members": {}}, {"meta": 1}, {"config_digest": None}, {"config_digest": "x" * 300},
        {"format": "other"}, {"extra": 1}, {"members": {"state.json": 1, "tensors.safetensors": 2}},
        {"members": {"../state.json": {"length": 1, "sha256": "0" * 64}, "tensors.safetensors": {}}},
        {"members": {"state.json": {"length": -1, "sha256": "0" * 64}, "tensors.safetensors": {"length": 1}}},
        {"members": {name: {"length": -1, "sha256": "0" * 64} for name in manifest.MEMBERS}},
        {"members": {name: {"length": 1, "sha256": "G" * 64} for name in manifest.MEMBERS}},
    ],
    ids=str,
)  # fmt: skip
def test_a_sealed_manifest_with_wrong_content_is_damage(change: dict[str, Any], tmp_path: Path) -> None:
    path = save(tmp_path, 2, {"x": 2}) / "manifest.json"
    fields = {**json.loads(path.read_bytes()), **change}
    del fields["seal"]
    path.write_bytes(canonical.encode({**fields, "seal": manifest._compute_seal(fields)}, indent=2))
    assert not checkpoint.verify(tmp_path).ok
    with pytest.raises(CheckpointError):
        checkpoint.load(tmp_path, on_skip=lambda message: None)


def test_members_swapped_between_sealed_parts_are_noticed(tmp_path: Path) -> None:
    """Each member is what the manifest says, but the two do not belong together."""
    path = save(tmp_path, 2, {"x": torch.ones(2), "y": 1})
    other = save(tmp_path / "o", 2, {"z": torch.ones(2), "y": 1})
    (path / "state.json").write_bytes((other / "state.json").read_bytes())
    fields = json.loads((path / "manifest.json").read_bytes())
    fields["members"]["state.json"] = json.loads((other / "manifest.json").read_bytes())["members"]["state.json"]
    del fields["seal"]
    (path / "manifest.json").write_bytes(canonical.encode({**fields, "seal": manifest._compute_seal(fields)}, indent=2))
    assert any("differ" in problem for problem in checkpoint.verify(tmp_path).problems)


def test_a_reader_survives_the_retirement_of_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1, {"x": 1})
    real = checkpoint.examine

    def slow(path: Path, *, keep: bool) -> Any:
        if path.name.endswith("1"):
            monkeypatch.setattr(checkpoint, "examine", real)
            save(tmp_path, 2, {"x": 2}, keep=1)
        return real(path, keep=keep)

    monkeypatch.setattr(checkpoint, "examine", slow)
    assert load(tmp_path).step == 2


def test_a_moved_run_still_loads(tmp_path: Path) -> None:
    save(tmp_path / "a", 1, {"x": 1})
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert load(tmp_path / "link").state == {"x": 1}


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    former = os.umask(0o077)
    try:
        path = save(tmp_path / "c", 1, {"x": 1})
    finally:
        os.umask(former)
    assert {oct(each.stat().st_mode & 0o777) for each in path.iterdir()} == {"0o600"}
    assert oct(path.stat().st_mode & 0o777) == "0o700"


def test_no_unpickling_is_reachable() -> None:
    for source in Path(disk.__file__).parent.rglob("*.py"):
        text = source.read_text()
        for word in ("import pickle", "torch.load", "cloudpickle", "allow_pickle", "marshal", "eval(", "exec("):
            assert word not in text, f"{source.name} contains {word}"
