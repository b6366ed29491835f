"""Write frames as a video: .gif with Pillow, .mp4 with imageio-ffmpeg, both in the extra `video`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from intrigue.errors import ConfigError
from intrigue.run.atomic import temporary_path
from intrigue.run.disk import storage_errors
from intrigue.spaces import Array

FRAMES_PER_SECOND = 20  # slow enough to follow a step with the eye


def write_video(frames: Sequence[Array], path: Path) -> None:
    """Write (height, width, 3) uint8 frames as a video, its format by the suffix; missing folders are created.

    Raises:
        ConfigError: there are no frames, or what writes them is not installed.
        StorageError: the disk refused.
    """
    if not frames:
        raise ConfigError("this environment cannot be drawn, so there is no film. Leave --video out.")
    write = _write_gif if path.suffix == ".gif" else _write_mp4
    hidden = temporary_path(path).with_suffix(path.suffix)  # renamed when complete
    try:
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            write(frames, hidden)
            hidden.replace(path)
    except ImportError as error:
        raise ConfigError(
            f"a {path.suffix} needs {error.name}. Install it with: pip install 'intrigue[video]'"
        ) from error
    finally:
        hidden.unlink(missing_ok=True)


def _write_gif(frames: Sequence[Array], path: Path) -> None:
    from PIL import Image

    first, *rest = [Image.fromarray(frame) for frame in frames]
    first.save(path, save_all=True, append_images=rest, duration=1000 // FRAMES_PER_SECOND, loop=0)


def _write_mp4(frames: Sequence[Array], path: Path) -> None:
    import imageio_ffmpeg

    height, width = (side - side % 2 for side in frames[0].shape[:2])  # the codec wants even sides
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=FRAMES_PER_SECOND, macro_block_size=1)
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame[:height, :width]))
    writer.close()
