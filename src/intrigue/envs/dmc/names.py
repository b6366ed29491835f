"""The tasks of `dmc/<domain>_<task>` by name, and the error for a wrong name. Loads no physics.

Domains may have underscores (`ball_in_cup_catch`, `humanoid_CMU_run`), so names are looked up, never cut at the first.
URLB is the Unsupervised Reinforcement Learning Benchmark (Laskin et al. 2021, arXiv:2110.15191).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util

from intrigue.errors import nearest

# Every task of dm_control 1.0.50's suite; a test compares.
SUITE_TEXT = {
    "acrobot": "swingup swingup_sparse",
    "ball_in_cup": "catch",
    "cartpole": "balance balance_sparse swingup swingup_sparse two_poles three_poles",
    "cheetah": "run",
    "dog": "stand walk trot run fetch",
    "finger": "spin turn_easy turn_hard",
    "fish": "upright swim",
    "hopper": "stand hop",
    "humanoid": "stand walk run run_pure_state",
    "humanoid_CMU": "stand walk run",
    "lqr": "lqr_2_1 lqr_6_2",
    "manipulator": "bring_ball bring_peg insert_ball insert_peg",
    "pendulum": "swingup",
    "point_mass": "easy hard",
    "quadruped": "walk run escape fetch",
    "reacher": "easy hard",
    "stacker": "stack_2 stack_4",
    "swimmer": "swimmer6 swimmer15",
    "walker": "stand walk run",
}
SUITE = tuple((domain, task) for domain, tasks in SUITE_TEXT.items() for task in tasks.split())

# URLB's three domains with the four tasks of each that it fine-tunes on, in the order of its tables.
URLB_TASKS = {
    "walker": ("flip", "run", "stand", "walk"),
    "quadruped": ("jump", "run", "stand", "walk"),
    "jaco": ("reach_bottom_left", "reach_bottom_right", "reach_top_left", "reach_top_right"),
}
# The task whose model and starts a domain is pre-trained in, without its reward (URLB's "primal" tasks).
PRIMAL = {"walker": "stand", "quadruped": "walk", "jaco": "reach_top_left"}

TASK_OF: dict[str, tuple[str, str]] = {
    f"{domain}_{task}": (domain, task)
    for domain, task in (*SUITE, *((domain, task) for domain, tasks in URLB_TASKS.items() for task in tasks))
}
NAMES = tuple(sorted((*TASK_OF, *PRIMAL)))
INSTALL = "pip install 'intrigue[dmc]'"
MUJOCO_BELOW = 4  # dm_control 1.0.50 asks mujoco for a field (flex_vertedge) that 4.0.0 no longer has.


def split_name(name: str) -> tuple[str, str, bool]:
    """Domain, task, and whether the task's reward counts: `walker` is (`walker`, `stand`, False)."""
    if name in PRIMAL:
        return name, PRIMAL[name], False
    return (*TASK_OF[name], True)


def check_name(name: str) -> list[str]:
    """What is wrong with the part of an id after `dmc/`, or with this installation."""
    problems = []
    if name not in TASK_OF and name not in PRIMAL:
        near = nearest(name, NAMES) if name else None
        guess = f" Did you mean 'dmc/{near}'?" if near else ""
        problems.append(
            f"unknown task {name!r}.{guess} Accepted: dmc/<domain>_<task>, one of {len(TASK_OF)}, for example "
            f"dmc/walker_run or dmc/ball_in_cup_catch; or {', '.join(PRIMAL)} alone, without a reward."
        )
    return [*problems, *_installation()]


def _installation() -> list[str]:
    missing = [each for each in ("dm_control", "mujoco") if importlib.util.find_spec(each) is None]
    if missing:
        return [f"{' and '.join(missing)} is not installed. Install it with: {INSTALL}"]
    version = importlib.metadata.version("mujoco")
    if int(version.split(".")[0]) >= MUJOCO_BELOW:
        return [
            f"mujoco {version} is installed, which dm_control does not work with (it asks for flex_vertedge). "
            f"Accepted: mujoco below {MUJOCO_BELOW}. Install it with: pip install 'mujoco<{MUJOCO_BELOW}'"
        ]
    return []
