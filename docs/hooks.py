"""Pages made from the code when the documentation is built: a card for every reward file, and the grid of spaces."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from generate.cards import card_page, files_of
from generate.spaces_grid import grid_page, spaces_section
from intrigue.rewards.registry import REWARDS

GRID = "rewards/spaces.md"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation with the generated pages below the page on rewards."""
    cards = [
        {", ".join(each.name for each in registered): f"rewards/{stem}.md"}
        for stem, registered in files_of(REWARDS.declarations()).items()
    ]
    section = [{"Guide": "rewards.md"}, {"Which spaces": GRID}, *cards]
    config.nav = [{"Rewards": section} if entry == {"Rewards": "rewards.md"} else entry for entry in config.nav]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages themselves."""
    grouped = files_of(REWARDS.declarations())
    for stem, registered in grouped.items():
        page = card_page(registered, spaces_section(registered[0].name), list(grouped))
        files.append(File.generated(config, f"rewards/{stem}.md", content=page))
    homes = {each.name: stem for stem, registered in grouped.items() for each in registered}
    files.append(File.generated(config, GRID, content=grid_page(homes)))
    return files
