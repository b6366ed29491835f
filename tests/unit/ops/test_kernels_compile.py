"""Every Triton kernel compiles for common GPUs, within the shared memory it declares. No GPU is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import intrigue
from interpreted import found_by

HOPPER = 90
KINDS = (75, 80, 86, 89, HOPPER, 100, 120)  # Turing to Blackwell, by NVIDIA's numbers of their instruction sets
EVERYWHERE = 48 * 1024  # bytes of shared memory that every GPU gives a program by default
MOST_SPILLED = 96  # bytes a lane, as `first_layer_kernels` says
SOURCE = Path(intrigue.__file__).parent

pytestmark = pytest.mark.xdist_group("kernels compiled")


def compiled_for(kinds, cases, tmp_path_factory):
    """The resources of kernels on GPUs of these kinds: at "all" sizes, or of "each" kernel at one or two."""
    return json.loads(found_by("kernels_compiled.py", tmp_path_factory, ",".join(map(str, kinds)), cases).read_text())


def check(found, kinds):
    """Each compiles, and fits where it is launched: first layers check the device's memory first, the others do not."""
    from intrigue.ops import first_layer_kernels  # not at the top: Triton is published for Linux only

    assert not found["refused"]
    rows = found["compiled"]
    assert {(row["kind"], row["module"]) for row in rows} == {(kind, each) for kind in kinds for each in launched()}
    for row in rows:
        width = int(re.search(r"to (\d+)", row["case"])[1]) if row["module"] == first_layer_kernels.__name__ else 0
        assert row["shared"] <= (first_layer_kernels.shared_bytes(width) if width else EVERYWHERE), row


def launched():
    """Modules that have kernels of their own, by their text: a kernel asks which program it is."""
    files = [file for file in SOURCE.rglob("*.py") if "tl.program_id(" in file.read_text()]
    return {".".join(("intrigue", *file.relative_to(SOURCE).with_suffix("").parts)) for file in files}


@pytest.fixture(scope="module")
def hopper(tmp_path_factory):
    """On the GPU of our measurements."""
    return compiled_for([HOPPER], "each", tmp_path_factory)


def test_all_kernels_compile(hopper):
    check(hopper, [HOPPER])


def check_spills(found):
    """As the comments on their block sizes say."""
    rows = [row for row in found["compiled"] if row["kind"] == HOPPER]
    assert rows and all(row["spilled"] <= MOST_SPILLED for row in rows)
    clean = ("intrigue.ops.output_layer_kernels", "intrigue.ops.topk_kernel")
    assert not [row for row in rows if row["module"] in clean and row["spilled"]]


def test_hardly_anything_spills(hopper):
    check_spills(hopper)


@pytest.mark.slow
def test_all_sizes_on_all_gpus(tmp_path_factory):
    found = compiled_for(KINDS, "all", tmp_path_factory)
    check(found, KINDS)
    check_spills(found)
