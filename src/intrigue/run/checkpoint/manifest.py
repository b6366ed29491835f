"""The manifest, written last into a checkpoint: format, step, and the length and SHA-256 of every member.

    {"format": "intrigue-checkpoint", "version": 1, "step": …, "config_digest": …,
     "members": {name: {"length": …, "sha256": …}}, "meta": {…}, "seal": SHA-256 of all the rest}

`meta` (wall seconds and the like) is covered by the seal but not by the checkpoint's digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intrigue.errors import CheckpointError
from intrigue.run import canonical
from intrigue.run.checkpoint.tensorfile import Seal

FORMAT = "intrigue-checkpoint"
VERSION = 1
TENSORS = "tensors.safetensors"
STATE = "state.json"
MANIFEST = "manifest.json"
MEMBERS = (STATE, TENSORS)
SIZE_LIMIT = 2**20  # bytes; ours, a thousand times what a manifest needs
STATE_LIMIT = 2**28  # bytes of state.json; ours: large values belong into arrays
DIGEST_LIMIT = 256  # characters of a config digest; ours, room for any hash

FIELDS = {"format": str, "version": int, "step": int, "config_digest": str, "members": dict, "meta": dict, "seal": str}


class NewerFormat(CheckpointError):
    """A whole checkpoint that only a newer version of this package can read."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of a manifest."""

    step: int
    config_digest: str
    members: dict[str, Seal]
    meta: dict[str, Any]

    def content_digest(self) -> str:
        """One SHA-256 over the members' hashes: names, dtypes, shapes and bytes of all arrays, and all plain values."""
        lines = [f"{FORMAT} {VERSION}", *(f"{name} {self.members[name].sha256}" for name in MEMBERS)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def compose(step: int, config_digest: str, members: Mapping[str, Seal], meta: Mapping[str, Any]) -> bytes:
    """The manifest file's content.

    Raises:
        TypeError: `meta` holds something JSON cannot carry.
    """
    fields = {
        "format": FORMAT,
        "version": VERSION,
        "step": step,
        "config_digest": config_digest,
        "members": {name: {"length": seal.length, "sha256": seal.sha256} for name, seal in members.items()},
        "meta": dict(meta),
    }
    content = canonical.encode({**fields, "seal": _compute_seal(fields)}, indent=2)
    if len(content) > SIZE_LIMIT:
        raise TypeError(
            f"a manifest of {len(content)} bytes is too large; {SIZE_LIMIT} are allowed, so meta must shrink"
        )
    return content


def parse(content: bytes) -> Manifest:
    """The manifest in a file's content.

    Raises:
        NewerFormat: whole, but of a later format version.
        CheckpointError: anything else that is not exactly what `compose` writes.
    """
    fields = canonical.decode(content, MANIFEST)
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise CheckpointError(f"{MANIFEST} is not the manifest of an {FORMAT}")
    version = fields.get("version")
    newer = type(version) is int and version > VERSION
    rest = {key: value for key, value in fields.items() if key != "seal"}
    # Spelling counts too: a file that parses alike but was altered is not what was written.
    if fields.get("seal") != _compute_seal(rest) or canonical.encode(fields, indent=2) != content:
        guess = f" (or written by a newer intrigue, format {version}; this one reads format {VERSION})" if newer else ""
        found = fields.get("seal")
        raise CheckpointError(f"{MANIFEST} was altered: seal expected {_compute_seal(rest)}, found {found!r}{guess}")
    if newer:
        raise NewerFormat(
            f"{MANIFEST} was written by a newer intrigue (format {version}); this one reads format {VERSION}. "
            "Upgrade intrigue."
        )
    if version != VERSION:
        raise CheckpointError(f"{MANIFEST} has format version {version!r}; this intrigue reads format {VERSION}")
    return _validate(fields)


def _compute_seal(fields: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical.encode(fields)).hexdigest()


def _validate(fields: dict[str, Any]) -> Manifest:
    """A sealed file may still be hostile: every type and range is checked before use."""
    if set(fields) != set(FIELDS):
        raise CheckpointError(f"{MANIFEST} has the fields {sorted(fields)}, expected {sorted(FIELDS)}")
    for name, kind in FIELDS.items():
        if type(fields[name]) is not kind:
            raise CheckpointError(f"{MANIFEST}: {name} is a {type(fields[name]).__name__}, expected {kind.__name__}")
    if fields["step"] < 0 or len(fields["config_digest"]) > DIGEST_LIMIT:
        raise CheckpointError(f"{MANIFEST}: step {fields['step']} or config_digest is out of range")
    members = fields["members"]
    if set(members) != set(MEMBERS):
        raise CheckpointError(f"{MANIFEST} lists the members {sorted(members)}, expected {sorted(MEMBERS)}")
    seals = {name: _parse_seal(name, member) for name, member in members.items()}
    return Manifest(fields["step"], fields["config_digest"], seals, fields["meta"])


def _parse_seal(name: str, member: Any) -> Seal:
    if not isinstance(member, dict) or set(member) != {"length", "sha256"}:
        raise CheckpointError(f"{MANIFEST}: member {name} is not described by length and sha256")
    length, sha256 = member["length"], member["sha256"]
    hexadecimal = isinstance(sha256, str) and len(sha256) == 64 and set(sha256) <= set("0123456789abcdef")
    if type(length) is not int or length < 0 or not hexadecimal:
        raise CheckpointError(f"{MANIFEST}: member {name} has length {length!r} and sha256 {sha256!r}")
    return Seal(length, sha256)
