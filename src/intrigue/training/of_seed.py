"""Faults of one seed among several say whose they are."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from intrigue.errors import RunError


@contextlib.contextmanager
def of_seed(seed: int) -> Iterator[None]:
    """A scope whose failures are this seed's, and say so."""
    try:
        yield
    except RunError as error:
        raise type(error)(f"seed {seed}: {error}") from error
