"""The one place that decides how a nuclear norm is computed; a faster kernel is added here and nowhere else.

gram   eigenvalues of the float64 Gram matrix of the smaller side; fast on every device
svd    float64 singular values; exact to float64, several times slower on a CPU, thousands of times on a GPU
"""

from __future__ import annotations

from typing import Literal, get_args

import torch

from intrigue.nuclear.contract import check_option

Method = Literal["gram", "svd"]
METHODS: tuple[str, ...] = get_args(Method)

# Rank-one matrices are the worst for the Gram matrix: its rounding (2^-52) is rooted once per vanished singular value.
# Measured on the ratio, relative: 5e-8 at a smaller side of 5 to 64, 2e-7 at 128, 5e-7 at 256, 8e-7 at 512. We promise
# 1e-6 and keep a factor of five for other libraries' eigenvalue solvers.
GRAM_LIMIT = 128


def choose_method(device: torch.device, dtype: torch.dtype, n: int, m: int) -> Method:
    """The method that "auto" means for n × m matrices of this dtype on this device, relative error ≤ 1e-6."""
    del device, dtype  # Both methods serve every device and dtype alike; a fused kernel will ask for them.
    return "gram" if min(n, m) <= GRAM_LIMIT else "svd"


def resolve_method(name: str, device: torch.device, dtype: torch.dtype, n: int, m: int) -> Method:
    """The method behind a user's choice, "auto" included; raises MatrixError for an unknown one."""
    check_option("method", name, ("auto", *METHODS))
    if name == "auto":
        return choose_method(device, dtype, n, m)
    return "svd" if name == "svd" else "gram"
