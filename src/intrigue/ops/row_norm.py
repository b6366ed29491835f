"""Euclidean norm of rows, with a gradient that survives torch.compile.

    (..., D) -> (...)      ‖x‖₂, whose gradient is x / ‖x‖₂, and 0 at 0

The axis is kept until the end: of a norm that drops an axis of one number, torch 2.11 compiles a gradient that is too
large by a factor of the length of the axis before it. torch 2.13 does not.
"""

from __future__ import annotations

import torch
from torch import Tensor


def row_norm(rows: Tensor) -> Tensor:
    """‖x‖₂ of each row."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return norms.squeeze(-1)
