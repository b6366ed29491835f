"""Which runs can learn stacked: those whose every update is one computation of fixed shape that nobody looks into."""

from __future__ import annotations

from intrigue.agents.ddpg import DDPG
from intrigue.curiosity.curiosity import Curiosity
from intrigue.rewards.mix import Mix
from intrigue.training.off_policy import ReplayParts


def refusal(parts: ReplayParts, warmup_steps: int) -> str | None:
    """Why a run of these parts cannot be stacked, in words; None if it can."""
    agent, curiosity, collector = parts.agent, parts.curiosity, parts.collector
    if not isinstance(agent, DDPG):
        return f"the agent is no DDPG but a {type(agent).__name__}"
    replay = collector.replay
    if replay.keep.ring.device != replay.device:
        return "the replay is not where the networks are"
    if replay.keep.stack:
        return "observations are stacked frames"
    if len(collector.pool.groups) > 1:
        return "the environments step in groups"
    if collector.skills.spec is not None:
        return "the bonus asks for skills"
    if warmup_steps:
        return "random steps feed the moments first (--curiosity.warmup-steps)"
    return None if curiosity.cfg.idle else _bonus_refusal(curiosity)


def _bonus_refusal(curiosity: Curiosity) -> str | None:
    cfg = curiosity.cfg
    if not curiosity.reward.together:
        return "the bonus cannot be computed for several seeds at once"
    problems = {
        "it learns in several passes (--curiosity.epochs, minibatches, update-fraction)": cfg.epochs != 1
        or not cfg.takes_all,
        f"the bonus is scaled by {cfg.scale!r} (--curiosity.scale none or value)": cfg.scale not in ("none", "value"),
        "observations are normalised (--curiosity.obs-norm none)": cfg.obs_norm != "none",
        "the bonus's weight is scheduled (--curiosity.int-coef-steps 0)": cfg.int_coef_steps > 0,
        "the weight of a part of it is scheduled by steps (schedule(...))": any(
            isinstance(each, Mix) and each.schedules for each in curiosity.reward.modules()
        ),
        "encodings are disturbed (--curiosity.feature-noise 0)": cfg.feature_noise > 0,
    }
    return next((reason for reason, given in problems.items() if given), None)
