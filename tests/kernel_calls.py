"""Whether kernels were taken at all: what stands in for them elsewhere gives the same numbers."""

from __future__ import annotations

import functools


def counted(module, *names):
    """How often each of these functions of a module is called from now on, by name."""
    calls = dict.fromkeys(names, 0)

    def counting(name, function):
        @functools.wraps(function)
        def call(*given, **options):
            calls[name] += 1
            return function(*given, **options)

        return call

    for name in names:
        setattr(module, name, counting(name, getattr(module, name)))
    return calls
