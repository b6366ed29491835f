"""URLB's rewards written from their definitions, from MuJoCo's bodies alone: no sensors, no dm_control."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np


def linear(value: float, bound: float, margin: float, value_at_margin: float) -> float:
    """1 from the bound on, below it falling in a straight line to `value_at_margin` at `margin`, and on to 0."""
    if value >= bound:
        return 1.0
    return max(0.0, 1.0 - (1.0 - value_at_margin) * (bound - value) / margin)


def bell(distance: float, margin: float) -> float:
    """1 at no distance, 0.1 at `margin`: dm_control's gaussian."""
    return float(0.1 ** ((max(0.0, distance) / margin) ** 2))


def body(model: Any, name: str) -> int:
    return int(mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name))


def subtree(model: Any, root: int) -> list[int]:
    """A body and all that hang on it."""
    inside = {root}
    for each in range(root + 1, model.nbody):
        if model.body_parentid[each] in inside:
            inside.add(each)
    return sorted(inside)


def motion(model: Any, data: Any, name: str) -> tuple[Any, Any, Any]:
    """Centre of mass, its velocity, and the angular momentum about it, of a body and all that hang on it."""
    bodies = subtree(model, body(model, name))
    mass = model.body_mass[bodies][:, None]
    place = data.xipos[bodies]
    spin, speed = np.empty((len(bodies), 3)), np.empty((len(bodies), 3))
    for row, each in enumerate(bodies):
        twist = np.empty(6)
        # About the body's own frame; carried over to its centre of mass by hand.
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, each, twist, 0)
        spin[row], speed[row] = twist[:3], twist[3:] + np.cross(twist[:3], place[row] - data.xpos[each])
    center = (mass * place).sum(0) / mass.sum()
    velocity = (mass * speed).sum(0) / mass.sum()
    orbital = (mass * np.cross(place - center, speed - velocity)).sum(0)
    own = np.zeros(3)
    for row, each in enumerate(bodies):
        axes = data.ximat[each].reshape(3, 3)
        own += axes @ np.diag(model.body_inertia[each]) @ axes.T @ spin[row]
    return center, velocity, orbital + own


def walker_reward(task: str, model: Any, data: Any) -> float:
    torso = body(model, "torso")
    height, zz = data.xpos[torso][2], data.xmat[torso].reshape(3, 3)[2, 2]
    stand = (3 * bell(1.2 - height, 0.6) + (1 + zz) / 2) / 4
    _, velocity, momentum = motion(model, data, "torso")
    match task:
        case "stand":
            return float(stand)
        case "walk":
            move = linear(velocity[0], 1.0, 0.5, 0.5)
        case "run":
            move = linear(velocity[0], 8.0, 4.0, 0.5)
        case "flip":
            move = linear(momentum[1], 5.0, 5.0, 0.0)
    return float(stand * (5 * move + 1) / 6)


def quadruped_reward(task: str, model: Any, data: Any) -> float:
    torso = body(model, "torso")
    axes = data.xmat[torso].reshape(3, 3)
    upright = linear(axes[2, 2], 1.0, 2.0, 0.0)
    center, _, _ = motion(model, data, "torso")
    twist = np.empty(6)
    mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY, torso, twist, 0)
    forward = (axes.T @ twist[3:])[0]
    match task:
        case "stand":
            return upright
        case "walk":
            return upright * linear(forward, 0.5, 0.5, 0.5)
        case "run":
            return upright * linear(forward, 5.0, 5.0, 0.5)
    return upright * linear(center[2], 1.0, 1.0, 0.5)


def reach_reward(model: Any, data: Any) -> float:
    """The tool centre is the pinch site between the fingers; the brick's place is its free body's."""
    tool = data.site_xpos[mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, "jaco_arm/jaco_hand/pinchsite")]
    return bell(float(np.linalg.norm(tool - data.xpos[body(model, "duplo2x4/")])) - 0.05, 0.05)


def expected_reward(domain: str, task: str, physics: Any) -> float:
    model, data = physics.model.ptr, physics.data.ptr
    if domain == "walker":
        return walker_reward(task, model, data)
    return quadruped_reward(task, model, data) if domain == "quadruped" else reach_reward(model, data)
