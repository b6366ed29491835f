"""One Atari 2600 whose state can be saved and restored exactly, pixels included.

ale-py's own saved state is not enough: it holds neither the picture nor the two buffers a picture is drawn into, so
the first frames after a restore can show pixels of another game (Amidar), and in Q*bert and Tetris it lacks a flag
without which the game continues differently (Farama-Foundation/Arcade-Learning-Environment, pull requests 732 and 739).
So a snapshot here is an *earlier* state together with all actions since; restoring it replays them:

    base state (None: as loaded)  --events-->  now          event: an action 0..17, or RESTART for a new game

Without sticky actions, which are drawn outside, the emulator is a deterministic function of its events; tests compare
whole traces. At least `MARK_EVERY` events lie between base and now unless the base is a fresh load, so every pixel has
been redrawn. Memory, both screens and lives are compared with what they were; a difference is an error, never a
silently different game.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
from ale_py import ALEInterface, ALEState, LoggerMode, roms

from intrigue.envs.atari.frame_stack import Bytes
from intrigue.errors import RunError
from intrigue.state import State

RESTART = 255  # The event of a new game; actions are below 18.
MARK_EVERY = 256  # Events: replaying up to twice as many takes 40 ms, and saving a state each time costs nothing.

# In ale-py 0.12.1 their restored state does not continue like the original, so their games are replayed from the start:
# the first two measured, the others as pull request 732 says (a float saved rounded, numbers saved as flags).
NO_STATE = frozenset({"qbert", "tetris", "pitfall2", "miniature_golf"})
# Of these, a reset also remembers something of the games before, so each of their games is loaded from the file.
NO_STATE_NOR_RESET = frozenset({"pitfall2", "miniature_golf"})
# Games whose reset leaves the same memory and pictures whatever was played before, random memory included, and whose
# first state restored leaves them too: that takes 30 µs instead of 3 ms. In the others a reset remembers something
# (memory that the game does not clear), or the first picture after a restore shows the game before (Amidar).
SAME_START_TEXT = """
    adventure air_raid alien asterix asteroids atlantis atlantis2 bank_heist basic_math battle_zone blackjack
    bowling breakout carnival casino centipede crazy_climber darkchambers defender donkey_kong double_dunk
    earthworld elevator_action enduro et flag_capture frogger galaxian gopher gravitar human_cannonball
    jamesbond journey_escape kangaroo keystone_kapers king_kong klax laser_gates lost_luggage mario_bros
    montezuma_revenge mr_do ms_pacman name_this_game othello pacman phoenix pitfall pong riverraid road_runner
    robotank skiing space_invaders star_gunner superman tic_tac_toe_3d turmoil tutankham up_n_down
    video_checkers video_chess video_cube video_pinball wizard_of_wor word_zapper zaxxon
"""
SAME_START = frozenset(SAME_START_TEXT.split())


@final
class Emulator:
    """The console with one game in it, and the last two screens as indices into the palette."""

    def __init__(self, rom_id: str) -> None:
        self._rom_id = rom_id
        path = roms.get_rom_path(rom_id)
        assert path is not None, rom_id
        self._path = path
        self._base: ALEState | None
        self._mark: ALEState | None
        self._keeps_start = rom_id in SAME_START
        self._marks = rom_id not in NO_STATE
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self._load()
        self.minimal_actions = [each.value for each in self.console.getMinimalActionSet()]
        self.height, self.width = self.console.getScreenDims()
        # The same two arrays for ever, in turn: the screen filter keeps references to them.
        self.older, self.newer = self.console.getScreen(), self.console.getScreen()
        self._start_screen = self.newer.copy()

    def new_game(self) -> None:
        """What the console's reset does: exactly, but faster where restoring the first start is the same."""
        if not self._is_fresh():
            self.restart()
        self._show_start()

    def reload_game(self) -> None:
        """As if just built: nothing that earlier games left in memory remains."""
        if not self._is_fresh():
            self._load()

    def play(self, actions: list[int]) -> tuple[float, bool]:
        """Play these actions, one frame each, until the game is over; the score gained, and whether it is over."""
        ale, score = self.console, 0
        for action in actions:
            score += ale.act(action)
            self.older, self.newer = self.newer, self.older
            ale.getScreen(self.newer)
            self._log.append(action)
            # Frame by frame, as `restore` does: a saved state must not depend on where a run was resumed.
            if len(self._log) >= MARK_EVERY and self._marks:
                self._set_mark()
            if ale.game_over():
                return float(score), True
        return float(score), False

    @property
    def lives(self) -> int:
        """Lives left, 0 where the game does not count them."""
        return self.console.lives()

    def screen_rgb(self) -> Bytes:
        """The screen in colour, (height, width, 3)."""
        return self.console.getScreenRGB()

    def snapshot(self) -> State:
        """A base state, the events since, and a fingerprint of the state after them."""
        base = None if self._base is None else np.frombuffer(self._base.serialize(), np.uint8).copy()
        events = np.frombuffer(bytes(self._base_log + self._log), np.uint8).copy()
        return {"base": base, "events": events, "witness": self._fingerprint()}

    def restore(self, state: State) -> None:
        """Replay the snapshot's events and check the result against its fingerprint."""
        if state["base"] is None:
            self.reload_game()
            self._show_start()
        else:
            self._base = ALEState(np.asarray(state["base"], np.uint8).tobytes())
            self.console.restoreState(self._base)
        self._log, self._base_log, self._mark = bytearray(), bytearray(), None
        for event in np.asarray(state["events"], np.uint8).tolist():
            if event == RESTART:
                self.restart()
                self._show_start()
            else:
                self.play([event])
        wrong = [
            name for name, value in self._fingerprint().items() if not np.array_equal(value, state["witness"][name])
        ]
        if wrong:
            raise RunError(
                f"{self._rom_id} did not come back as it was saved: {', '.join(wrong)} differ after "
                f"{len(state['events'])} replayed frames. Resume with the ale-py the run was saved with "
                "(provenance.json names it), or start a new run."
            )

    def _is_fresh(self) -> bool:
        return not self._log and not self._base_log and self._base is None

    def _show_start(self) -> None:
        # After a restore the old picture remains until the next frame.
        self.newer[...] = self._start_screen if self._keeps_start else self.console.getScreen()
        self.older[...] = self.newer

    def _fingerprint(self) -> dict[str, Any]:
        return {
            "memory": self.console.getRAM(),
            "older": self.older.copy(),
            "newer": self.newer.copy(),
            "lives": self.console.lives(),
            "over": self.console.game_over(),
        }

    def _load(self) -> None:
        self.console = ALEInterface()
        # Sticky actions are drawn outside: the emulator forgets its last action when it is saved.
        self.console.setFloat("repeat_action_probability", 0.0)
        self.console.setInt("random_seed", 0)  # A fixed one, lest it take the clock; nothing draws from it.
        self.console.loadROM(self._path)
        self.console.reset_game()
        self._start = self.console.cloneState()
        self._base, self._mark = None, None
        self._base_log, self._log = bytearray(), bytearray()

    def restart(self) -> None:
        """A new game; its picture is not read."""
        if self._rom_id in NO_STATE:
            # Q*bert's and Tetris's resets leave what a fresh load leaves (tests compare): the log can be cleared.
            if self._rom_id in NO_STATE_NOR_RESET:
                self._load()
            else:
                self.console.reset_game()
                self._log.clear()
            return
        if self._keeps_start:
            self.console.restoreState(self._start)
        else:
            self.console.reset_game()
        self._log.append(RESTART)

    def _set_mark(self) -> None:
        if self._mark is not None:
            self._base, self._base_log = self._mark, bytearray()
        self._base_log += self._log
        self._mark, self._log = self.console.cloneState(), bytearray()
