"""`intrigue eval DIR [--episodes N] [--video FILE]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import tyro

from intrigue.cli.options import Json, Plugins, RunDir, Switch, Whole, run_command
from intrigue.config.plugins import add_plugin
from intrigue.errors import ConfigError, Problem
from intrigue.run.outputs import check_file


def evaluate(
    folder: RunDir,
    episodes: Annotated[Whole, tyro.conf.arg(help="episodes to play")] = 10,
    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help="film the first episode: .gif or .mp4")] = None,
    greedy: Annotated[Switch, tyro.conf.arg(help="the most likely action instead of a sampled one")] = False,
    seed: Annotated[Whole, tyro.conf.arg(help="seed of the episodes played")] = 0,
    json_output: Json = False,
    plugin: Plugins = (),
) -> int:
    """Play a trained agent and print its raw returns.

    Examples:
      intrigue eval runs/maze --episodes 20
      intrigue eval runs/maze --video maze.gif --greedy
    """
    problems: list[Problem] = []
    if episodes < 1:
        problems.append(Problem("--episodes", f"{episodes} is out of range; it must be >= 1."))
    if seed < 0:
        problems.append(Problem("--seed", f"{seed} is out of range; it must be >= 0."))
    if video is not None and video.suffix not in (".gif", ".mp4"):
        problems.append(Problem("--video", f"{video} must end in .gif or .mp4."))
    problems += check_file("--video", video)
    if problems:
        raise ConfigError(problems)
    from intrigue.run.folder import open_run
    from intrigue.run.play import play
    from intrigue.run.video import write_video
    from intrigue.training.evaluate import summary

    for path in plugin:
        add_plugin(path)
    played = play(open_run(folder), episodes, seed=seed, greedy=greedy, film=video is not None)
    fields = summary(played)
    if json_output:
        sys.stdout.write(json.dumps(fields) + "\n")
    else:
        sys.stdout.write(
            f"{episodes} {'episodes' if episodes > 1 else 'episode'}: "
            f"return {fields['return_mean']:.4g} ± {fields['return_std']:.4g} "
            f"(min {fields['return_min']:.4g}, max {fields['return_max']:.4g}), length {fields['length_mean']:.4g}\n"
        )
    if video is not None:
        write_video(played.frames, video)
        sys.stderr.write(f"film of the first episode: {video}\n")
    return 0


def main(argv: list[str]) -> int:
    """Entry point."""
    return run_command(evaluate, "eval", argv)
