"""Work on a CUDA device as a graph."""

from __future__ import annotations

import torch


def captured(work):
    """The graph, and what the work gives each time it is replayed; done once before, so that kernels are compiled."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = work()
    return graph, result
