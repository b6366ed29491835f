"""Every Triton kernel compiles for the GPUs that people have, within the memory it says it needs. No GPU is needed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import intrigue
from interpreted import found_by

HOPPER = 90  # where our figures were measured
OTHERS = (75, 80, 86, 89, 100, 120)  # Turing to Blackwell, by NVIDIA's numbers of their instruction sets
EVERYWHERE = 48 * 1024  # bytes of shared memory that a program has on any GPU without asking
MOST_SPILLED = 96  # bytes a lane, as `trunk_kernels` says
SOURCE = Path(intrigue.__file__).parent

pytestmark = pytest.mark.xdist_group("kernels compiled")


def check(rows):
    """Each fits where it is launched: trunks ask for the device's memory first, the others do not."""
    from intrigue import trunk_kernels  # not at the top: Triton is published for Linux only

    for row in rows:
        width = int(re.search(r"to (\d+)", row["case"])[1]) if row["module"] == trunk_kernels.__name__ else 0
        assert row["shared"] <= (trunk_kernels.shared_bytes(width) if width else EVERYWHERE), row


def launched():
    """Modules that have kernels of their own, by their text: a kernel asks which program it is."""
    files = [file for file in SOURCE.rglob("*.py") if "tl.program_id(" in file.read_text()]
    return {".".join(("intrigue", *file.relative_to(SOURCE).with_suffix("").parts)) for file in files}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """All of them for Hopper."""
    return json.loads(found_by("kernels_compiled.py", tmp_path_factory, str(HOPPER)).read_text())


def test_all_kernels_compile(compiled):
    assert {row["module"] for row in compiled} == launched()
    check(compiled)


def test_hardly_anything_spills(compiled):
    """As the comments beside their sizes say, by which these were chosen."""
    assert all(row["spilled"] <= MOST_SPILLED for row in compiled)
    clean = ("intrigue.narrow_kernels", "intrigue.smallest_kernel")
    assert not [row for row in compiled if row["module"] in clean and row["spilled"]]


@pytest.mark.slow
def test_other_gpus(tmp_path_factory):
    kinds = ",".join(map(str, OTHERS))
    found = json.loads(found_by("kernels_compiled.py", tmp_path_factory, kinds).read_text())
    assert {(row["kind"], row["module"]) for row in found} == {(kind, each) for kind in OTHERS for each in launched()}
    check(found)
