"""The modules of S seeds as one: every parameter and buffer has a leading axis S, and each module looks at its own row.

    stacked = stack_modules(modules)             S modules of one structure; they stay usable, and share the storage
    stacked.leaves, stacked.fixed                name -> (S, ...): what is trained, and what is not (buffers included)
    stacked.call("loss", batch, drawn)           modules[s].loss(batch[s], drawn[s]) for all s at once, (S,)
    stacked.call(function, batch)                the same of any function(module, batch)
    StackedAdam(stacked, optimizers)             one Adam over `leaves`; each seed's own sees its row (`adam`)

Results and mapped arguments are tensors, or tuples, dictionaries and batches (`Transitions`) of tensors, with axis S
first; other arguments are passed to every seed unchanged. Gradients of results reach `leaves`.

A module of its own stays what it was: its parameters are the same objects, read and written through `state_dict`,
`load_state_dict`, `act` and so on; only their storage is a row of the stack. That holds as long as nothing rebinds
them: changes must be made in place (`copy_`, `add_`, `lerp_`). `call` refuses a method that assigns a new tensor to a
parameter or buffer. `load_state_dict(assign=True)` and `module.to(...)` would part a module from its stack, and so does
`normalize.ReturnScale`, whose `carry` is assigned anew with every batch: rewards scaled by returns cannot be stacked.

What is neither parameter nor buffer (settings, generators, plain attributes) is the first module's, for every seed.
With one seed nothing is batched: the very kernels of a lone run are called, on the row without its axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from intrigue.ops.execution import Function, compile_fused
from intrigue.types import Encoded, Prepared, Transitions

Dims: TypeAlias = "int | tuple[int | None, ...] | None"
"""Which axis of the arguments counts the seeds: one for all of them, or one for each; None: the same for every seed."""


def fuse_for_seeds(function: Function) -> Function:
    """The function by torch.compile, for every number of seeds by itself: maps over an unknown number fail."""
    return compile_fused(function, dynamic=False)


def stack_modules(modules: Sequence[nn.Module]) -> Stacked:
    """The stack of these modules, in their order. They must be alike in everything but their numbers."""
    if not modules:
        raise ValueError("no modules to stack. Pass at least one.")
    slots = [_slots(module) for module in modules]
    form = _form(modules[0], slots[0])
    for place, (module, own) in enumerate(zip(modules, slots, strict=True)):
        if _form(module, own) != form:
            raise ValueError(
                f"module {place} is built otherwise than the first, a {type(modules[0]).__name__}: "
                "other classes, names, shapes, types or devices. Only modules of one configuration can be stacked."
            )
    leaves: dict[str, nn.Parameter] = {}
    fixed: dict[str, Tensor] = {}
    names: dict[str, str] = {}  # slot: under which name its tensor is stacked; tied slots share one
    first: dict[int, str] = {}
    for rows in zip(*(own.items() for own in slots), strict=True):
        (name, example), tensors = rows[0], [tensor for _, tensor in rows]
        names[name] = first.setdefault(id(example), name)
        if names[name] != name:
            continue
        # One alone is looked at where it is: a replay's memory need not be there twice.
        stack = torch.stack([each.detach() for each in tensors]) if len(tensors) > 1 else example.detach().unsqueeze(0)
        for row, tensor in zip(stack, tensors, strict=True):
            tensor.data = row
        if example.requires_grad:
            leaves[name] = nn.Parameter(stack)
        else:
            fixed[name] = stack
    owners = {id(tensor): name for own in slots for name, tensor in own.items()}
    return Stacked(list(modules), leaves, fixed, names, {key: names[name] for key, name in owners.items()})


@final
class Stacked:
    """S modules as one. Made by `stack_modules`."""

    def __init__(
        self,
        modules: list[nn.Module],
        leaves: dict[str, nn.Parameter],
        fixed: dict[str, Tensor],
        names: dict[str, str],
        owners: dict[int, str],
    ) -> None:
        self.modules, self.size = modules, len(modules)
        self.leaves, self.fixed = leaves, fixed
        self._names, self._owners = names, owners
        self._method = _Method(modules[0])

    def tensors(self) -> dict[str, Tensor]:
        """Everything that is stacked, by name, each (S, ...)."""
        return {**self.leaves, **self.fixed}

    def leaf(self, own: Tensor) -> nn.Parameter:
        """The stack (S, ...) in which this parameter of one of the modules is a row."""
        return self.leaves[self._owners[id(own)]]

    def call(self, method: str | Callable[..., Any], *args: Any, in_dims: Dims = 0) -> Any:
        """What every module's own method gives for its part of the arguments; tensors get the axis S in front.

        `method` may also be a function, whose first argument is then the module.
        """
        dims = in_dims if isinstance(in_dims, tuple) else (in_dims,) * len(args)
        leaves, form = pytree.tree_flatten(args)
        spread = [dim for arg, dim in zip(args, dims, strict=True) for _ in pytree.tree_leaves(arg)]
        mapped = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and spread[i] is not None]
        axes = [spread[i] for i in mapped]
        told: list[tuple[list[Any], Any]] = []  # what the results look like without their tensors

        def one(state: dict[str, Tensor], parts: list[Tensor]) -> list[Tensor]:
            given = list(leaves)
            for i, part in zip(mapped, parts, strict=True):
                given[i] = part
            result = self._of_one(method, state, pytree.tree_unflatten(given, form))
            flat, shape = pytree.tree_flatten(result)
            told.append(([_TENSOR if isinstance(each, Tensor) else each for each in flat], shape))
            return [each for each in flat if isinstance(each, Tensor)]

        parts = [leaves[i] for i in mapped]
        if self.size == 1:
            # A view without the axis, whose gradient is a view again: the same kernels as a lone run. Without gradients
            # the module's own tensors are used, which saves hundreds of views an update.
            wanted = self.tensors() if torch.is_grad_enabled() else {}
            rows = {name: tensor.squeeze(0) for name, tensor in wanted.items()}
            found = [
                each.unsqueeze(0)
                for each in one(rows, [_only(part, axis) for part, axis in zip(parts, axes, strict=True)])
            ]
        else:
            found = vmap(one, in_dims=(0, axes))(self.tensors(), parts)
        (rest, shape), tensors = told[0], iter(found)
        return pytree.tree_unflatten([next(tensors) if each is _TENSOR else each for each in rest], shape)

    def _of_one(self, method: str | Callable[..., Any], state: dict[str, Tensor], args: tuple[Any, ...]) -> Any:
        if self.size == 1 and not torch.is_grad_enabled():
            return self._method(method, *args)  # its own tensors are the rows, and no gradient is needed
        held = {_Method.PREFIX + slot: state[name] for slot, name in self._names.items()}
        before = dict(held)
        # Slots are told apart above, so torch need not search for tied weights with every call.
        result = functional_call(self._method, held, (method, *args), tie_weights=False)
        for slot, tensor in before.items():
            if held[slot] is not tensor:
                raise RuntimeError(
                    f"{slot.removeprefix(_Method.PREFIX)} was assigned a new tensor by {method}; in a stack it must be "
                    "changed in place, for example with copy_."
                )
        return result


class _Tensor:
    """Stands for a tensor among the results."""


_TENSOR = _Tensor()


class _Method(nn.Module):
    """Lets torch's functional call reach any method."""

    PREFIX = "module."

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, method: str | Callable[..., Any], *args: Any) -> Any:
        return getattr(self.module, method)(*args) if isinstance(method, str) else method(self.module, *args)


def _slots(module: nn.Module) -> dict[str, Tensor]:
    """Every place of the module that holds a parameter or buffer; a submodule reached by two ways is one place."""
    return {
        f"{prefix}.{name}" if prefix else name: tensor
        for prefix, part in module.named_modules()
        for named in (part.named_parameters, part.named_buffers)
        for name, tensor in named(recurse=False, remove_duplicate=False)
    }


def _form(module: nn.Module, slots: dict[str, Tensor]) -> list[Any]:
    """All that must be the same in modules that are stacked."""
    first: dict[int, str] = {}
    return [
        [type(part) for part in module.modules()],
        [
            (name, first.setdefault(id(each), name), each.shape, each.dtype, each.device, each.requires_grad)
            for name, each in slots.items()
        ],
    ]


def _only(part: Tensor, axis: int | None) -> Tensor:
    if axis is None or part.shape[axis] != 1:
        raise ValueError(f"one seed is stacked, but an argument of shape {tuple(part.shape)} holds more. Pass one row.")
    return part.squeeze(axis)


def _register(kind: type[Transitions]) -> None:
    def fields(batch: Transitions) -> tuple[list[Any], None]:
        return list(batch.tensors()), None

    def batch(fields: Any, context: None) -> Transitions:
        del context
        return kind(*fields)

    pytree.register_pytree_node(kind, fields, batch, serialized_type_name=f"intrigue.types.{kind.__name__}")


for _kind in (Transitions, Prepared, Encoded):
    _register(_kind)
