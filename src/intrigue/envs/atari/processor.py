"""Which matrix kernels suit a process that mostly does something else.

OpenBLAS takes 512-bit kernels where the processor has them. Such a kernel makes the core change its clock or close its
wide units again, and what runs next pays for it: after one picture (two small products, 15 µs) the four emulator frames
that follow took 450 µs instead of 385 (Xeon Ice Lake, 2.8 GHz). With the 256-bit kernels they do not.
"""

from __future__ import annotations

from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
NARROW = {"OPENBLAS_CORETYPE": "Haswell"}  # OpenBLAS's name of its 256-bit kernels; they need AVX2 and FMA.


def narrow_kernels() -> dict[str, str]:
    """The variables that choose 256-bit kernels where a process would otherwise get 512-bit ones; else none."""
    try:
        text = CPUINFO.read_text()
    except OSError:
        return {}
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "").split()
    return dict(NARROW) if {"avx512f", "avx2", "fma"} <= set(flags) else {}
