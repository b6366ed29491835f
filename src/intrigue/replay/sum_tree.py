"""A binary tree of sums: drawing in proportion to weights that change, in log₂ steps.

Leaf i lies at place `leaves + i`, node j is the sum of 2j and 2j + 1, node 1 the sum of all (Schaul et al. 2016,
arXiv:1511.05952, appendix B.2.1). In float64: sums of a million leaves lose nothing that matters.
"""

from __future__ import annotations

import torch
from torch import Tensor


class SumTree:
    """Weights by number, and their sums."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.depth = max(1, (count - 1).bit_length())
        self.leaves = 1 << self.depth
        self.nodes = torch.zeros(2 * self.leaves, dtype=torch.float64, device=device)

    @property
    def total(self) -> Tensor:
        """The sum of all weights, ()."""
        return self.nodes[1]

    def get(self, index: Tensor) -> Tensor:
        """The weights of these leaves."""
        return self.nodes[self.leaves + index]

    def put(self, index: Tensor, weight: Tensor) -> None:
        """Set the weights (M,) of leaves (M,); of a leaf that stands twice, the larger counts."""
        node = self.leaves + index.flatten()
        self.nodes.scatter_reduce_(0, node, weight.double().flatten(), "amax", include_self=False)
        for _ in range(self.depth):
            node = node // 2
            # Each sum is made anew from its children, so that roundings do not add up over a run.
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def find(self, mass: Tensor) -> Tensor:
        """The leaves at which the running sum of weights exceeds each mass (M,) in [0, total)."""
        node = torch.ones_like(mass, dtype=torch.int64)
        for _ in range(self.depth):
            node = 2 * node
            left = self.nodes[node]
            # A right half without weight is never entered, even if rounding brought the mass up to the whole.
            right = (mass >= left) & (self.nodes[node + 1] > 0)
            mass = torch.where(right, mass - left, mass)
            node = node + right.long()
        return node - self.leaves
