"""Euclidean lengths of rows, with a gradient that survives torch.compile.

    (..., D) -> (...)      ‖x‖₂, whose gradient is x / ‖x‖₂, and 0 at 0

The axis is kept until the end: torch 2.11 compiles a norm that drops an axis of one number into a gradient as many
times too large as the axis before it is long. torch 2.13 does not.
"""

from __future__ import annotations

import torch
from torch import Tensor


def lengths(rows: Tensor) -> Tensor:
    """One for each row."""
    kept: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return kept.squeeze(-1)
