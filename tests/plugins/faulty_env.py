"""An environment that misbehaves when told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from intrigue.envs.base import Env, EnvInfo, Step
from intrigue.envs.registry import register_env
from intrigue.errors import ConfigError


@dataclass(frozen=True)
class FaultyConfig:
    mode: str = "none"
    victim: int = -1
    at: int = 4
    note: str = ""


@register_env("faulty", config=FaultyConfig)
class Faulty(Env):
    def __init__(self, cfg, name):
        if cfg.mode == "raise-build":
            raise LookupError("no simulator here")
        if cfg.mode == "config-build":
            raise ConfigError("mode: not like this")
        if cfg.mode == "sleep-build":
            time.sleep(3600)
        if cfg.mode == "exit-build":
            os._exit(9)
        self.cfg = cfg
        self.info = EnvInfo(gym.spaces.Box(-9, 9, (2,), np.float32), gym.spaces.Discrete(2), places=2)
        self.chosen = False
        self.time = 0

    def reset(self, seed):
        if seed is not None:
            self.chosen = seed == self.cfg.victim
        if self.chosen and self.cfg.mode == "raise-reset":
            raise LookupError("no level here")
        if self.chosen and self.cfg.mode == "nan-reset":
            return np.full(2, np.nan, np.float32)
        return np.zeros(2, np.float32)

    def step(self, action):
        self.time += 1
        mode = self.cfg.mode if self.chosen and self.time == self.cfg.at else "none"
        obs, reward, terminated, truncated, place = np.zeros(2, np.float32), 0.0, False, False, 0
        if mode == "raise":
            raise LookupError("the level is gone")
        if mode == "raise-later-reset":
            self.cfg = FaultyConfig("raise-reset")
            terminated = True
        if mode == "words":
            print("so long on stdout", flush=True)
            print("so long on stderr", file=sys.stderr, flush=True)
            os._exit(7)
        if mode == "exit":
            sys.exit(3)
        if mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if mode == "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        if mode in ("sleep", "child"):
            if mode == "child":
                child = subprocess.Popen(["sleep", "3600"])
                with open(self.cfg.note, "w") as file:
                    file.write(str(child.pid))
            time.sleep(3600)
        if mode == "flood":
            print("x" * 1_000_000, flush=True)
        if mode == "close":
            os.closerange(3, 4096)
        if mode == "nan-obs":
            obs = np.array([0.0, np.nan], np.float32)
        if mode == "shape":
            obs = np.zeros(3, np.float32)
        if mode == "dtype":
            obs = np.zeros(2)
        if mode == "list":
            obs = [0.0, 0.0]
        if mode == "nan-reward":
            reward = float("nan")
        if mode == "word-reward":
            reward = "1"
        if mode == "terminated":
            terminated = 1
        if mode == "truncated":
            truncated = None
        if mode == "place":
            place = 2
        if mode == "short":
            return obs, reward
        return Step(obs, reward, terminated, truncated, place)

    def snapshot(self):
        if self.cfg.mode == "raise-snapshot":
            raise LookupError("nothing to save")
        return {"blob": np.zeros(300_000)}

    def restore(self, state):
        raise LookupError("nothing to load")

    def close(self):
        if self.cfg.mode == "sleep-close":
            time.sleep(3600)
        if self.cfg.mode == "note-close":
            with open(self.cfg.note, "a") as file:
                file.write("closed ")
