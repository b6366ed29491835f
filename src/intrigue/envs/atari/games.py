"""The games by name, and the error for a wrong name. Loads no emulator.

`Breakout`, `MontezumaRevenge`, `UpNDown`: the emulator's own ids (`up_n_down`) with capitals in place of underscores,
as in Gymnasium's `ALE/UpNDown-v5`.
"""

from __future__ import annotations

import importlib.util

from intrigue.errors import nearest

# Every game ale-py 0.12.1 brings, without four that only two can play (Combat, Joust, Maze Craze, Warlords).
ROM_IDS_TEXT = """
    adventure air_raid alien amidar assault asterix asteroids atlantis atlantis2 backgammon bank_heist
    basic_math battle_zone beam_rider berzerk blackjack bowling boxing breakout carnival casino centipede
    chopper_command crazy_climber crossbow darkchambers defender demon_attack donkey_kong double_dunk earthworld
    elevator_action enduro entombed et fishing_derby flag_capture freeway frogger frostbite galaxian gopher
    gravitar hangman haunted_house hero human_cannonball ice_hockey jamesbond journey_escape kaboom kangaroo
    keystone_kapers king_kong klax koolaid krull kung_fu_master laser_gates lost_luggage mario_bros
    miniature_golf montezuma_revenge mr_do ms_pacman name_this_game othello pacman phoenix pitfall pitfall2 pong
    pooyan private_eye qbert riverraid road_runner robotank seaquest sir_lancelot skiing solaris space_invaders
    space_war star_gunner superman surround tennis tetris tic_tac_toe_3d time_pilot trondead turmoil tutankham
    up_n_down venture video_checkers video_chess video_cube video_pinball wizard_of_wor word_zapper yars_revenge
    zaxxon
"""
ROM_IDS = tuple(ROM_IDS_TEXT.split())
# The 57 games of Bellemare et al. 2013 and since (Wang et al. 2016, arXiv:1511.06581, table 2), which scores refer to.
FIFTY_SEVEN_TEXT = """
    alien amidar assault asterix asteroids atlantis bank_heist battle_zone beam_rider berzerk bowling boxing
    breakout centipede chopper_command crazy_climber defender demon_attack double_dunk enduro fishing_derby
    freeway frostbite gopher gravitar hero ice_hockey jamesbond kangaroo krull kung_fu_master montezuma_revenge
    ms_pacman name_this_game phoenix pitfall pong private_eye qbert riverraid road_runner robotank seaquest
    skiing solaris space_invaders star_gunner surround tennis time_pilot tutankham up_n_down venture
    video_pinball wizard_of_wor yars_revenge zaxxon
"""
FIFTY_SEVEN = tuple(FIFTY_SEVEN_TEXT.split())
INSTALL = "pip install 'intrigue[atari]'"


def game_name(rom_id: str) -> str:
    """`up_n_down` -> `UpNDown`."""
    return rom_id.title().replace("_", "")


ROM_ID_OF = {game_name(each): each for each in ROM_IDS}


def check_name(name: str) -> list[str]:
    """What is wrong with the part of an id after `atari/`, or with this installation."""
    problems = []
    if name not in ROM_ID_OF:
        near = nearest(name.replace("_", ""), ROM_ID_OF) if name else None
        guess = f" Did you mean 'atari/{near}'?" if near else ""
        problems.append(
            f"unknown game {name!r}.{guess} Accepted: one of {len(ROM_ID_OF)} games, for example atari/Breakout or "
            "atari/MontezumaRevenge."
        )
    if importlib.util.find_spec("ale_py") is None:
        problems.append(f"the emulator ale-py is not installed. Install it with: {INSTALL}")
    return problems
