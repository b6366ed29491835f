"""How updates are executed: eagerly, compiled, or as CUDA graphs; and work on a second CUDA stream.

    plain     eager torch; a loss that is not finite stops the run before its optimiser step
    compile   pointwise operations are fused by torch.compile; on a GPU then captured as in `graph`
    graph     on a GPU, loss, gradient and optimiser step are captured once per input shape and replayed without
              host-device synchronisation. A step whose loss is not finite changes nothing (the fused optimiser skips
              it), and the run stops at the end of the update

All three give the same results up to the order of floating-point sums; `graph` uses Adam's fused form. Graphs are
captured again after a resume. Capturing does not advance random generators: replays draw what `plain` would.

Work on a side stream:

    with SideStream(stream) as side:     starts after everything launched before
        first()
    meanwhile()
    side.wait()                          what is launched from here on runs after `first`

Within a captured graph these are two parallel branches. Tensors used on the side stream must be kept alive until
`wait`. With `stream` None everything runs in order on the current stream.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias, TypeVar, cast, final

import torch
from torch import Generator, Tensor

from intrigue.errors import ConfigError, Problem

Function = TypeVar("Function", bound=Callable[..., Any])
Mode: TypeAlias = Literal["plain", "compile", "graph"]
WARMUP_CALLS = 3  # before a capture, as in torch's recipe: lazy libraries must have chosen their kernels
MAX_RECOMPILES = 128  # objects of which one method is compiled in a process
MAX_SHAPES = 4  # input shapes captured per function; with more, shapes do not repeat and eager execution is cheaper
COMPILER_WARNINGS = (
    "TensorFloat32 tensor cores",  # advises TF32; scoring must not use it, and learning does already
    "The .grad attribute of a Tensor that is not a leaf",  # from its inspection of computed inputs
    r"\s*Online softmax is disabled on the fly",  # torch 2.7 to 2.11 on a split reduction (pytorch issue 153241)
)


def pick_mode(wanted: str, device: torch.device) -> Mode:
    """Resolves `auto`: graphs on a GPU, plain elsewhere. Raises ConfigError for graphs without a GPU."""
    if wanted == "graph" and device.type != "cuda":
        text = (
            f"'graph' replays CUDA graphs, but this run learns on {device.type}. Use --run.execution auto, which takes "
            "graphs where there is a GPU."
        )
        raise ConfigError([Problem("run.execution", text)])
    if wanted == "auto":
        return "graph" if device.type == "cuda" else "plain"
    return "compile" if wanted == "compile" else "graph" if wanted == "graph" else "plain"


def uses_cuda_graph(mode: Mode, device: torch.device) -> bool:
    """Whether functions are captured and replayed in this mode on this device."""
    return mode != "plain" and device.type == "cuda"


def compile_fused(function: Function, *, dynamic: bool | None = None) -> Function:
    """The function by torch.compile, which fuses pointwise operations into few kernels.

    After two shapes torch compiles for all of them; with `dynamic` False, for each shape separately.
    """
    for message in COMPILER_WARNINGS:
        warnings.filterwarnings("ignore", message, UserWarning)
    # A method is compiled anew for every object it belongs to. torch gives up after 8, without an error: a process
    # that starts several runs would silently go on eagerly.
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, MAX_RECOMPILES)
    import torch._inductor.config as inductor  # takes seconds, so only where something is compiled

    # Kernels chosen by timing would differ from start to start, and with them the last bits of a run's numbers.
    if hasattr(inductor, "deterministic"):  # torch 2.10 and later
        inductor.deterministic = True
    return cast("Function", torch.compile(function, dynamic=dynamic))


@final
class CudaGraph:
    """A function of tensors as CUDA graphs, one per input shape.

    Results are overwritten by the next call with the same shape. `mutated_tensors` gives the tensors the function
    writes to, restored after the warm-up; `generators` are those it draws from. `priority` is that of the stream it is
    captured on, lower runs first: a graph's kernels keep it, whatever stream the graph is launched on.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        generators: Sequence[Generator] = (),
        mutated_tensors: Callable[[], Iterable[Tensor]] = tuple,
        *,
        priority: int = 0,
    ) -> None:
        self._function, self._generators = function, generators
        self._mutated_tensors, self._priority = mutated_tensors, priority
        self._graphs: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], Any]] = {}

    def __call__(self, *inputs: Tensor) -> Any:
        """The function's results for these inputs."""
        key = tuple((each.shape, each.dtype) for each in inputs)
        if key not in self._graphs:
            if len(self._graphs) >= MAX_SHAPES:
                return self._function(*inputs)
            self._graphs[key] = self._capture(inputs)
        graph, static_inputs, results = self._graphs[key]
        for static, value in zip(static_inputs, inputs, strict=True):
            static.copy_(value, non_blocking=True)
        graph.replay()
        return results

    def reset(self) -> None:
        """Drop all graphs. To be called when the tensors they work on were replaced."""
        self._graphs.clear()

    def _capture(self, inputs: Sequence[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Any]:
        static_inputs = [each.detach().clone() for each in inputs]
        rng_states = [each.get_state() for each in self._generators]
        saved = [(each, each.detach().clone()) for each in self._mutated_tensors()]
        side = torch.cuda.Stream(priority=self._priority)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARMUP_CALLS):
                self._function(*static_inputs)
        torch.cuda.current_stream().wait_stream(side)
        self._restore(saved, rng_states)
        graph = torch.cuda.CUDAGraph()
        for generator in self._generators:
            graph.register_generator_state(generator)
        # On a stream of its own: cuBLAS has one workspace per stream, and graphs captured on the same stream overwrite
        # each other's when they run at the same time, as acting and learning do (pytorch issue 193402).
        with torch.cuda.graph(graph, stream=side):
            results = self._function(*static_inputs)
        self._restore(saved, rng_states)
        return graph, static_inputs, results

    def _restore(self, saved: Sequence[tuple[Tensor, Tensor]], rng_states: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for tensor, before in saved:
                tensor.copy_(before)
        for generator, state in zip(self._generators, rng_states, strict=True):
            generator.set_state(state)


@final
class SideStream:
    """Launches a block of work on another CUDA stream (see the module)."""

    def __init__(self, stream: torch.cuda.Stream | None) -> None:
        self._stream = stream
        self._exit = contextlib.ExitStack()

    def __enter__(self) -> SideStream:
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
            self._exit.enter_context(torch.cuda.stream(self._stream))
        return self

    def __exit__(self, *about: object) -> None:
        self._exit.close()

    def wait(self) -> None:
        """Make the current stream wait for the side stream."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
