"""Cases for the kernels of `intrigue::output_layer`, and their results by plain layers in float64."""

from __future__ import annotations

from typing import NamedTuple

import torch

from intrigue.ops.output_layer import OUTPUT_LAYER

NAMES = ("y", "p", "bias", "weight", "last")
SIZES = [(1, 32, 1), (1, 1024, 6), (7, 64, 15), (8, 512, 9), (64, 128, 1), (65, 256, 12), (130, 1024, 6), (200, 32, 2)]
MAPPED = {"p": (0, None, None, None), "weights": (None, 0, 0, 0), "all": (0, 0, 0, 0), "not all": (0, None, 0, None)}


class Case(NamedTuple):
    given: tuple[torch.Tensor, ...]  # p, bias, weight, last
    dy: torch.Tensor
    mapped: tuple[int | None, ...] | None = None  # axes of `given` that are mapped


def random_case(rows, width, outputs, *, low=False, seed=0, lead=()):
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*lead, *shape, generator=rng)

    p = normal(rows, width).bfloat16() if low else normal(rows, width)
    return Case(
        (p, 0.3 * normal(width), normal(outputs, width) / width**0.5, normal(outputs)),
        normal(rows, outputs),
    )


def cases():
    found = {}
    for rows, width, outputs in SIZES:
        for low in (False, True):
            name = f"{rows} {width} {outputs}{' low' if low else ''}"
            found[name] = random_case(rows, width, outputs, low=low, seed=rows + outputs)
    found["no rows"] = random_case(0, 32, 2)
    members = random_case(70, 64, 1, low=True, lead=(2,), seed=4)
    found["members"] = members
    found["members mapped"] = random_case(70, 64, 1, low=True, lead=(3, 2), seed=4)._replace(mapped=(0, 0, 0, 0))
    (p, bias, weight, last), dy, _ = random_case(20, 128, 6)
    found["apart"] = Case((p.mT.contiguous().mT, bias, weight.mT.contiguous().mT, last), dy.mT.contiguous().mT)
    exactly = p.clone()
    exactly[:, ::3] = -bias[::3]  # ReLU at 0, whose gradient is 0
    found["at zero"] = Case((exactly, bias, weight, last), dy)
    for name, dims in MAPPED.items():
        three = random_case(70, 64, 3, seed=5, lead=(3,))
        given = tuple(each if dim is not None else each[0] for each, dim in zip(three.given, dims, strict=True))
        found[f"mapped {name}"] = Case(given, three.dy, dims)
    three = random_case(20, 64, 6, seed=6, lead=(3,))
    found["mapped inner axis"] = three._replace(
        given=(three.given[0].movedim(0, 1).contiguous(), *three.given[1:]), mapped=(1, 0, 0, 0)
    )
    return found


def found_by(function, case, given):
    y = function(*given) if case.mapped is None else torch.func.vmap(function, in_dims=case.mapped)(*given)
    gradients = torch.autograd.grad(y, given, case.dy.to(y))
    return {name: each.detach().cpu() for name, each in zip(NAMES, (y, *gradients), strict=True)}


def computed(case, device="cpu"):
    """y and the gradients of Σ y·dy, by the operator."""
    return found_by(OUTPUT_LAYER, case, [each.to(device).detach().requires_grad_() for each in case.given])


def plainly(p, bias, weight, last):
    """The layers that the operator replaces."""
    return (p + bias.unsqueeze(-2)).relu() @ weight.mT + last.unsqueeze(-2)


def expected(case, layers=plainly):
    """The same by plain layers of float64."""
    return found_by(layers, case, [each.detach().double().requires_grad_() for each in case.given])


CASES = cases()
