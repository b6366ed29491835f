"""How much memory a run will hold, said before it starts, and refused where the machine does not have it.

    replay     rows · bytes of a row                                     rows: capacity and its chunk of slack
    rollout    2 · T · N · (2 observations + action, reward, flags, skill)   as they are kept, pixels as bytes; the
               room of the next rollout is there while one is learned from
               T · N · 4 bytes · numbers of the observations a reward reads, as it sees them

Networks, optimisers and the layers of one minibatch come on top and are small beside these.

A replay that does not fit is refused before the first environment process starts. Its size depends on one environment's
observations, so one environment is built and closed for that, unless the replay would fit with the largest rows of any
family here. What is only known once all parts are built is refused then (`build`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from intrigue.agents.base import ReplayAgent
from intrigue.agents.registry import AGENTS
from intrigue.config.run import RunConfig
from intrigue.envs.make import make_env
from intrigue.envs.pool.config import worker_count
from intrigue.envs.pool.shared_memory import EnvSpec, make_env_spec
from intrigue.errors import ConfigError, Problem
from intrigue.replay.plan import ReplayPlan
from intrigue.replay.ring import ring_shape, row_bytes, row_layout
from intrigue.spaces import Spaces

FLAG_BYTES = 3  # terminated, truncated, valid
FLOAT_BYTES = 4
WORD_BYTES = 8  # an index or a sum
ROLLOUTS = 2  # the one being learned from and the one being filled
DEVICE_SHARE = 0.5  # ours: a replay goes onto the device only if it leaves half of what is free there for the rest
GROUPS = Path("/sys/fs/cgroup")  # where Linux says what a container may use
MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True, slots=True)
class Footprint:
    """One large piece of memory: what for, how much, on which device, and the settings that make it smaller."""

    what: str
    bytes: int
    device: torch.device
    flags: tuple[str, ...]

    def __str__(self) -> str:
        """One line for a person."""
        free = free_bytes(self.device)
        known = "" if free is None else f" of {readable(free)} free"
        return f"memory: {self.what} {readable(self.bytes)} on {self.device.type}{known}"


def replay_bytes(plan: ReplayPlan, spaces: Spaces, num_envs: int, stack: int) -> int:
    """Bytes of a replay: its rows, where each step's rows are, the table of episodes or the sums of priorities."""
    rows = math.prod(ring_shape(plan.capacity))
    slots = (rows // num_envs + 2) * num_envs
    sums = 2 << (slots - 1).bit_length() if plan.priority else 0
    table = 3 * (rows // 2 + num_envs + 1) if plan.order == "episodes" else 0
    return rows * row_bytes(row_layout(spaces, stack)) + (slots + sums + table) * WORD_BYTES


def rollout_bytes(steps: int, num_envs: int, spaces: Spaces, reads: int) -> int:
    """Bytes of two rollouts, and of the `reads` observations of each row that a reward sees as numbers."""
    obs, action = spaces.obs, spaces.action
    row = 2 * obs.size * obs.dtype.itemsize + math.prod(action.shape) * action.dtype.itemsize
    row += FLOAT_BYTES + FLAG_BYTES + FLOAT_BYTES * spaces.skill
    return steps * num_envs * (ROLLOUTS * row + reads * obs.size * FLOAT_BYTES)


def replay_footprint(plan: ReplayPlan, spaces: Spaces, num_envs: int, stack: int, device: torch.device) -> Footprint:
    """The replay that a plan asks for, and where it will be kept."""
    size = replay_bytes(plan, spaces, num_envs, stack)
    host = torch.device("cpu")
    if plan.place == "auto":
        free = free_bytes(device)
        device = device if free is None or size <= DEVICE_SHARE * free else host
    return Footprint("replay", size, host if plan.place == "host" else device, ("--agent.capacity",))


def rollout_footprint(steps: int, num_envs: int, spaces: Spaces, reads: int, device: torch.device) -> Footprint:
    """The rollout of an agent that learns from what it just did."""
    size = rollout_bytes(steps, num_envs, spaces, reads)
    return Footprint("rollout", size, device, ("--pool.num-envs", "--agent.rollout-steps"))


def refuse_too_large(needs: Sequence[Footprint]) -> None:
    """Raise ConfigError for all that the machine does not have free, before any of it is taken."""
    problems = []
    for device in {each.device: None for each in needs}:
        free = free_bytes(device)
        here = [each for each in needs if each.device == device]
        if free is not None and sum(each.bytes for each in here) > free:
            for each in here:
                lower = " or ".join(each.flags)
                text = (
                    f"the {each.what} of this run needs {readable(each.bytes)}, {device.type} has {readable(free)} "
                    f"free. Use a smaller {lower}."
                )
                problems.append(Problem(each.flags[0].removeprefix("--").replace("-", "_"), text))
    if problems:
        raise ConfigError(problems)


def free_bytes(device: torch.device) -> int | None:
    """Bytes that can still be taken there; None where the system does not say."""
    if device.type == "cuda":
        # What torch holds of it and does not use, after an earlier run in this process, is free for the next.
        idle = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + idle
    known = [each for each in (_machine_free(), _group_free()) if each is not None]
    return min(known) if known else None


def readable(size: int) -> str:
    """Bytes in a unit a person reads, three figures."""
    value, units = float(size), ["bytes", "kB", "MB", "GB", "TB", "PB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.3g} {units[0]}" if value < 1000 else f"{value:,.0f} {units[0]}"


def _machine_free() -> int | None:
    try:
        lines = MEMORY.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def _group_free() -> int | None:
    """What is left of a container's limit; what it caches of files can be had back and counts as free."""
    try:
        most = int((GROUPS / "memory.max").read_text(encoding="ascii"))
        used = int((GROUPS / "memory.current").read_text(encoding="ascii"))
        fields = dict(line.split() for line in (GROUPS / "memory.stat").read_text(encoding="ascii").splitlines())
        return max(0, most - used + int(fields.get("inactive_file", 0)))
    except (OSError, ValueError):  # no limit is written as the word `max`
        return None


LARGE_ROW_BYTES = 100_000  # ours: above any row here; URLB's three colour pictures of 84 x 84 are 63,504 bytes


def refuse_before_start(cfg: RunConfig, device: torch.device) -> None:
    """Raise ConfigError for a replay that cannot fit, while there is no process to be stopped."""
    entry = AGENTS.get(cfg.agent_name)
    if not issubclass(entry.cls, ReplayAgent) or cfg.env_options.get("native_vector") or not worker_count(cfg.pool):
        return
    plan = entry.cls.plan_of(entry.config(**{**entry.defaults, **cfg.agent_options}))
    if plan is None or _surely_fits(plan.capacity, device):
        return
    facts = _env_spec(cfg)
    if facts is not None:
        refuse_too_large([replay_footprint(plan, facts.spaces, cfg.pool.num_envs, facts.stack, device)])


def _env_spec(cfg: RunConfig) -> EnvSpec | None:
    """What one environment shows; None if it cannot be made, which the pool will say, naming the environment."""
    try:
        env = make_env(cfg.env_id, cfg.env_options)
    except ConfigError:
        raise
    except Exception:
        return None
    try:
        return make_env_spec(env.info)
    finally:
        env.close()


def _surely_fits(capacity: int, device: torch.device) -> bool:
    free = [free_bytes(each) for each in (device, torch.device("cpu"))]
    return all(each is None or math.prod(ring_shape(capacity)) * LARGE_ROW_BYTES < each for each in free)
