"""How the hot parts of learning run: as written, compiled, or as the replay of CUDA graphs.

    plain     eager torch; a loss that is not finite stops the run before its optimiser step
    compile   what is no matrix product is fused by torch.compile; on a GPU captured as in `graph`, else as plain
    graph     on a GPU: loss, gradient and optimiser step are captured once per shape of input and replayed, without a
              word between host and device; a step whose loss is not finite changes nothing (the fused optimiser is told
              to skip it), and the run stops at the end of the update

All three compute the same up to the order of floating-point sums; graph uses Adam's fused form. Captures are remade
after a resume. Drawing during a capture moves nothing: generators are put back, and replays draw what plain would.

Work that runs in a stream of its own, beside what the current stream does.

    with Beside(stream) as other:        after all that was begun before
        first()
    meanwhile()
    other.wait()                         what is begun from here on runs after `first`

Captured in a CUDA graph, these are two branches. What the other stream works on must be kept until `wait`.
Without a stream everything runs as it stands.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast, final

import torch
from torch import Generator, Tensor

from intrigue.errors import ConfigError, NonFiniteError, Problem
from intrigue.ops.optimizer_step import Guard, descend, skipping
from intrigue.ops.precision import fast_float32

Function = TypeVar("Function", bound=Callable[..., Any])
Mode: TypeAlias = Literal["plain", "compile", "graph"]
WARM_UPS = 3  # Calls before a capture, as torch's own recipe has: lazy libraries must have chosen their kernels.
MOST_FUSED = 128  # objects of which one method is compiled in a process
MOST_SHAPES = 4  # Shapes of input captured for one function; more would mean that shapes are not what repeats.


def pick_mode(wanted: str, device: torch.device) -> Mode:
    """`auto` resolved: graphs on a GPU, plain elsewhere. Graphs elsewhere are refused, as an absent GPU is."""
    if wanted == "graph" and device.type != "cuda":
        text = (
            f"'graph' replays CUDA graphs, but this run learns on {device.type}. Use --run.execution auto, which takes "
            "graphs where there is a GPU."
        )
        raise ConfigError([Problem("run.execution", text)])
    if wanted == "auto":
        return "graph" if device.type == "cuda" else "plain"
    return "compile" if wanted == "compile" else "graph" if wanted == "graph" else "plain"


def fuse_kernels(function: Function, *, dynamic: bool | None = None) -> Function:
    """The function by torch.compile: what is no matrix product becomes few kernels.

    Having seen two shapes torch compiles for all of them, unless `dynamic` is False: then for each by itself.

    A method is compiled anew for every object it belongs to, and torch gives up after 8 (`recompile_limit`): a process
    that starts several runs would go on unfused without a word.
    """
    # Its advice to multiply float32 in TF32: scoring must not, and learning does. And what it says when it looks at an
    # input that was computed.
    for message in ("TensorFloat32 tensor cores", "The .grad attribute of a Tensor that is not a leaf"):
        warnings.filterwarnings("ignore", message, UserWarning)
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, MOST_FUSED)
    import torch._inductor.config as inductor  # seconds, for those who compile

    # Kernels chosen by timing them would differ from start to start, and with them the last bits of a run's numbers.
    if hasattr(inductor, "deterministic"):  # torch 2.10 and later
        inductor.deterministic = True
    return cast("Function", torch.compile(function, dynamic=dynamic))


def captures(mode: Mode, device: torch.device) -> bool:
    """Whether what runs in this mode there is the replay of graphs."""
    return mode != "plain" and device.type == "cuda"


@final
class Captured:
    """A function of tensors as CUDA graphs, one per shape of its inputs.

    Its results are overwritten by the next call of the same shape. `changes` are the tensors the function writes to,
    put back after the warm-up; `generators` those it draws from. `rank` is the priority of its stream, lower before
    higher: kernels of a graph keep the one they were captured with, whatever stream the graph is launched in.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        generators: Sequence[Generator] = (),
        changes: Callable[[], Iterable[Tensor]] = tuple,
        *,
        rank: int = 0,
    ) -> None:
        self._function, self._generators, self._changes, self._rank = function, generators, changes, rank
        self._graphs: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], Any]] = {}

    def __call__(self, *inputs: Tensor) -> Any:
        """What the function gives for these inputs."""
        key = tuple((each.shape, each.dtype) for each in inputs)
        if key not in self._graphs:
            if len(self._graphs) >= MOST_SHAPES:
                return self._function(*inputs)
            self._graphs[key] = self._capture(inputs)
        graph, fixed, out = self._graphs[key]
        for held, given in zip(fixed, inputs, strict=True):
            held.copy_(given, non_blocking=True)
        graph.replay()
        return out

    def forget(self) -> None:
        """Drop all captures: the tensors they work on have been exchanged."""
        self._graphs.clear()

    def _capture(self, inputs: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Any]:
        fixed = [each.detach().clone() for each in inputs]
        drawn = [each.get_state() for each in self._generators]
        kept = [(each, each.detach().clone()) for each in self._changes()]
        side = torch.cuda.Stream(priority=self._rank)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                self._function(*fixed)
        torch.cuda.current_stream().wait_stream(side)
        self._put_back(kept, drawn)
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        # In a stream of its own: what cuBLAS works in belongs to the stream of a capture, and graphs that share it
        # write over each other when they run at the same time, as acting and learning do (pytorch issue 193402).
        with torch.cuda.graph(graph, stream=side):
            out = self._function(*fixed)
        self._put_back(kept, drawn)
        return graph, fixed, out

    def _put_back(self, kept: Sequence[tuple[Tensor, Tensor]], drawn: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for tensor, before in kept:
                tensor.copy_(before)
        for generator, state in zip(self._generators, drawn, strict=True):
            generator.set_state(state)


@final
class LossStep:
    """One guarded optimiser step per call, on the loss of some tensors.

    `loss_of(*tensors)` gives the loss, and what to note of it as one tensor (the loss itself, if nothing else). `fused`
    takes Adam's fused form on a CPU too: faster for large networks, other last bits.
    """

    def __init__(
        self,
        loss_of: Callable[..., tuple[Tensor, Tensor]],
        parameters: Iterable[torch.nn.Parameter],
        *,
        learning_rate: float,
        eps: float,
        refusal: str,
        mode: Mode,
        max_grad_norm: float = 0.0,
        generators: Sequence[Generator] = (),
        fused: bool = False,
    ) -> None:
        self.mode: Mode = mode
        self._loss_of = fuse_kernels(loss_of) if mode == "compile" else loss_of
        self._parameters = list(parameters)
        self._refusal, self._max_grad_norm = refusal, max_grad_norm
        device = self._parameters[0].device
        graph = captures(mode, device)
        rate: Any = torch.tensor(learning_rate, device=device) if graph else learning_rate
        self.optimizer = torch.optim.Adam(
            self._parameters, lr=rate, eps=eps, fused=True if graph or fused else None, capturable=graph
        )
        self._captured = Captured(self._whole_step, generators, self._changed) if graph else None
        if graph:
            _prime(self.optimizer)
            self._guard = Guard(skipping(self.optimizer, device), device)

    def set_learning_rate(self, rate: float) -> None:
        """The rate of the steps to come."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def __call__(self, *inputs: Tensor) -> Tensor:
        """One step; what was noted."""
        if self._captured is not None:
            noted: Tensor = self._captured(*inputs)
            return noted.clone()
        with fast_float32():
            loss, noted = self._loss_of(*inputs)
            descend(self.optimizer, loss, self._refusal, self._max_grad_norm)
        return noted.detach()

    def check(self) -> None:
        """Stop if a step since the last look was refused; plain steps say so themselves."""
        if self._captured is not None and self._guard.tripped():
            raise NonFiniteError(self._refusal)

    def exchanged(self) -> None:
        """To be called when the optimiser's state was loaded: captures hold the tensors that were there before."""
        if self._captured is not None:
            self._captured.forget()

    def _whole_step(self, *inputs: Tensor) -> Tensor:
        with fast_float32():
            self.optimizer.zero_grad(set_to_none=True)
            loss, noted = self._loss_of(*inputs)
            loss.backward()
            if self._max_grad_norm:
                torch.nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm, foreach=True)
            self._guard.look(loss)
            self.optimizer.step()
        return noted.detach()

    def _changed(self) -> Iterable[Tensor]:
        yield self._guard.refused
        yield from self._parameters
        for moments in self.optimizer.state.values():
            yield from moments.values()


def _prime(optimizer: torch.optim.Adam) -> None:
    """Adam's moments before its first step, which it would otherwise make within the capture."""
    for group in optimizer.param_groups:
        for weight in group["params"]:
            optimizer.state[weight] = {
                "step": torch.zeros((), device=weight.device),
                "exp_avg": torch.zeros_like(weight, memory_format=torch.preserve_format),
                "exp_avg_sq": torch.zeros_like(weight, memory_format=torch.preserve_format),
            }


@final
class Beside:
    """A branch of work."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream
        self._left = contextlib.ExitStack()

    def __enter__(self) -> Beside:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            self._left.enter_context(torch.cuda.stream(self._stream))
        return self

    def __exit__(self, *about: object) -> None:
        self._left.close()

    def wait(self) -> None:
        """Whatever the current stream begins from here on runs after all of it."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
