"""Cases for the kernels of `intrigue::first_layer`, and their results by NumPy in float64."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from intrigue.ops.first_layer import FIRST_LAYER

EPS = 1e-5  # of nn.LayerNorm
NAMES = ("y", "x", "weight", "bias", "gain", "shift")
SIZES = [
    *((1, 1, 32), (1, 24, 512), (7, 5, 512), (7, 33, 32), (64, 24, 512), (64, 30, 32), (64, 33, 512)),
    *((100, 1, 32), (100, 5, 512), (100, 24, 512), (100, 30, 512), (100, 33, 32), (100, 128, 64)),
]
MAPPED = {
    "x": (0, None, None, None, None),
    "weights": (None, 0, 0, 0, 0),
    "all": (0, 0, 0, 0, 0),
    "not all": (0, 0, None, 0, None),
}


class Case(NamedTuple):
    given: tuple[torch.Tensor, ...]  # x, weight, bias, gain, shift
    dy: torch.Tensor
    exact: bool = True
    mapped: tuple[int | None, ...] | None = None  # axes of `given` that are mapped
    low: bool = False  # y in bfloat16, and dy, whose numbers must be exact in it


def random_case(rows, inputs, outputs, *, exact=True, seed=0, lead=()):
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*lead, *shape, generator=rng)

    given = (
        normal(rows, inputs),
        normal(outputs, inputs) / inputs**0.5,
        0.3 * normal(outputs),
        1 + 0.3 * normal(outputs),
        0.2 * normal(outputs),
    )
    return Case(given, normal(rows, outputs), exact)


def cases():
    found = {}
    for rows, inputs, outputs in SIZES:
        exact = (rows + inputs) % 2 == 0  # programs hold 8 rows then, else 16
        found[f"{rows} {inputs} {outputs}"] = random_case(rows, inputs, outputs, exact=exact, seed=rows + inputs)
    found["widest"] = random_case(17, 24, 1024, exact=False)
    (x, weight, bias, gain, shift), dy, *_ = random_case(20, 24, 512)
    found["far from zero"] = Case((x, weight, bias + 1000, gain, shift), dy)
    span = torch.linspace(-60, 60, 512)  # tanh from end to end, and flat beyond them
    found["saturated"] = Case((x, weight, bias, gain * 1e-3, span), torch.ones(20, 512))
    found["no rows"] = random_case(0, 5, 32)
    wide = random_case(20, 60, 64)
    lying = (wide.given[0][:, ::2], wide.given[1][:, ::2], *wide.given[2:])  # columns lie apart
    found["apart"] = Case(lying, random_case(64, 5, 20).dy.mT[:20])
    for name, dims in MAPPED.items():
        three = random_case(20, 7, 64, seed=5, lead=(3,))
        mapped = tuple(each if dim is not None else each[0] for each, dim in zip(three.given, dims, strict=True))
        found[f"mapped {name}"] = Case(mapped, three.dy, mapped=dims)
    for name in ("7 5 512", "widest", "apart", "mapped all"):
        found[f"low, {name}"] = found[name]._replace(dy=found[name].dy.bfloat16().float(), low=True)
    (x, *rest), dy, *_ = random_case(20, 7, 64, seed=6, lead=(3,))
    found["mapped inner axis"] = Case((x.movedim(0, 1).contiguous(), *rest), dy, False, (1, 0, 0, 0, 0))
    return found


def computed(case, device="cpu"):
    """y and the gradients of Σ y·dy, by the operator."""
    given = [each.to(device).detach().requires_grad_() for each in case.given]

    def one(*each):
        return FIRST_LAYER(*each, EPS, case.exact, case.low)

    y = one(*given) if case.mapped is None else torch.func.vmap(one, in_dims=case.mapped)(*given)
    gradients = torch.autograd.grad(y, given, case.dy.to(device, y.dtype))
    return {name: each.detach().cpu() for name, each in zip(NAMES, (y, *gradients), strict=True)}


def by_numpy(case, mistake=""):
    """The same in float64, of a case that is not mapped; `mistake`: an error to inject."""
    x, weight, bias, gain, shift = (each.numpy().astype(np.float64) for each in case.given)
    dy = case.dy.numpy().astype(np.float64)
    if mistake == "gain":
        gain = np.ones_like(gain)
    axis = 0 if mistake == "axis" else 1
    p = x @ weight.T + bias
    spread = p.var(axis, ddof=1 if mistake == "variance" else 0, keepdims=True)
    scale = 1 / np.sqrt(spread + EPS)
    n = (p - p.mean(axis, keepdims=True)) * scale
    y = np.tanh(n * gain + shift)
    dz = dy * (1 - y**2)
    dn = dz * gain
    dp = scale * (dn - dn.mean(1, keepdims=True) - (n * (dn * n).mean(1, keepdims=True) if mistake != "term" else 0))
    gradients = (dp @ weight, dp.T @ x, dp.sum(0), (dz * n).sum(0), dz.sum(0))
    return dict(zip(NAMES, (y, *gradients), strict=True))


def one_by_one(case):
    """A mapped case as cases of one seed each."""
    seeds = len(case.dy)
    parts = [
        [each] * seeds if dim is None else list(each.unbind(dim))
        for each, dim in zip(case.given, case.mapped, strict=True)
    ]
    return [Case(tuple(part[s] for part in parts), case.dy[s], case.exact, None, case.low) for s in range(seeds)]


def expected(case):
    """By NumPy; of a mapped case the gradient of what all seeds share is the sum of theirs."""
    if case.mapped is None:
        return by_numpy(case)
    several = [by_numpy(each) for each in one_by_one(case)]
    dims = dict(zip(NAMES, (0, *case.mapped), strict=True))
    return {
        name: sum(each[name] for each in several) if dim is None else np.stack([each[name] for each in several], dim)
        for name, dim in dims.items()
    }


CASES = cases()
