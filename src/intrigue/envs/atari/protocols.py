"""Preprocessing between the emulator and the agent in published work, as named sets of values.

    disagreement            Pathak et al. 2019 (arXiv:1906.04161), code `run.py:make_env_all_params`, `wrappers.py`
    large-scale-curiosity   Burda et al. 2018 (arXiv:1808.04355), code `run.py`, `wrappers.py`
    rnd                     Burda et al. 2018 (arXiv:1810.12894), code `atari_wrappers.py`
    dqn                     Mnih et al. 2015 (Nature 518:529), with the 30 minutes of later evaluations

All four repeat an action for four frames, show the brighter of the last two, shrink to 84 x 84 greys and stack four.
Rewards are never clipped here: what is logged is the game's own score, and clipping belongs to the learner.

Differs from the originals: no-op frames at the start do not count towards the limit of frames; the time limit of
large-scale-curiosity lets one step more pass (its counter is compared with `>`), ours does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SIDE = 84  # Mnih et al. 2015, methods: 84 x 84 pixels. All four protocols.


@dataclass(frozen=True, slots=True)
class Protocol:
    """Preprocessing between the emulator and the agent."""

    sticky: float  # Chance, per emulator frame, that the last frame's action is repeated instead of the agent's.
    noop_max: int  # A game begins with 1 to this many frames without action; 0 for none.
    max_frames: int  # Frames after which an episode is cut off (truncated).
    life_ends: bool  # Whether a lost life ends the episode (the next one continues the game).
    resize: Literal["bilinear", "area"]  # The filter that shrinks the picture; `screen` has both.
    skip: int = 4  # Frames an action is repeated for; Mnih et al. 2015, extended data table 1. All four.
    stack: int = 4  # Pictures in one observation; Mnih et al. 2015, extended data table 1. All four.


PROTOCOLS = {
    "disagreement": Protocol(
        sticky=0.25,  # `run.py`: the flag is on by default and cannot be switched off; below the frame skip.
        noop_max=0,  # `run.py`: sticky actions instead of no-op starts.
        max_frames=18_000,  # `run.py`: a limit of 4,500 * 4 frames, five minutes of play.
        life_ends=False,  # `run.py`: neither a life wrapper nor a fire wrapper; an episode is a whole game.
        resize="bilinear",  # `wrappers.py`: Pillow's bilinear filter on float luminance, no crop.
    ),
    "large-scale-curiosity": Protocol(
        sticky=0.0,  # `run.py`: no such wrapper.
        noop_max=30,  # `run.py`: --noop_max 30, in frames, below the frame skip.
        max_frames=18_000,  # `run.py`: --max-episode-steps 4500, of four frames each.
        life_ends=False,  # `run.py`: whole games.
        resize="bilinear",  # `wrappers.py`: as disagreement.
    ),
    "rnd": Protocol(
        sticky=0.25,  # `atari_wrappers.py`: StickyActionEnv, p=0.25, below the frame skip.
        noop_max=0,  # `atari_wrappers.py`: none.
        max_frames=18_000,  # `atari_wrappers.py`: max_episode_steps 4500, times four.
        life_ends=False,  # `atari_wrappers.py`: whole games.
        resize="area",  # `atari_wrappers.py`: OpenCV's area filter on 8-bit greys.
    ),
    "dqn": Protocol(
        sticky=0.0,  # Mnih et al. 2015: none; Machado et al. 2018 (arXiv:1709.06009) brought them.
        noop_max=30,  # Mnih et al. 2015, extended data table 1: no-op max 30.
        max_frames=108_000,  # 30 minutes at 60 Hz: van Hasselt et al. 2016 (arXiv:1509.06461) and most since.
        life_ends=True,  # Mnih et al. 2015, methods: the loss of a life ends an episode in training.
        resize="area",  # What DQN's common reimplementations use (OpenAI Baselines `WarpFrame`).
    ),
}
