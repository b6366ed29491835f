"""Particle entropy in plain float64 NumPy: all pairs, no expansion, statistics kept in three numbers."""

from __future__ import annotations

import numpy as np
import torch


def run_layers(net: torch.nn.Module, rows: np.ndarray) -> np.ndarray:
    """Rows through the linear layers of a ReLU network, with the weights read out of it."""
    layers = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    for index, layer in enumerate(layers):
        rows = rows @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        rows = np.maximum(rows, 0) if index < len(layers) - 1 else rows
    return rows


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length one."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


class Statistics:
    """Mean and variance as the official codes begin them: as if 1e-4 samples of mean 0 and variance 1 were seen."""

    def __init__(self) -> None:
        self.size, self.mean, self.var = 1e-4, 0.0, 1.0

    def add(self, values: np.ndarray) -> None:
        total, shift = self.size + values.size, values.mean() - self.mean
        spread = self.var * self.size + values.var() * values.size + shift**2 * self.size * values.size / total
        self.size, self.mean, self.var = total, self.mean + shift * values.size / total, spread / total


def nearest(rows: np.ndarray, k: int, *, count_self: bool, valid: np.ndarray) -> np.ndarray:
    """Distances (B, k) of every row to its k nearest valid rows."""
    apart = np.linalg.norm(rows[:, None] - rows[None], axis=-1)
    apart[:, ~valid] = np.inf
    if not count_self:
        np.fill_diagonal(apart, np.inf)
    return np.sort(apart, axis=1)[:, :k]
