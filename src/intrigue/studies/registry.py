"""Where studies are filed by name. Knows no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from intrigue.registry import Registry

if TYPE_CHECKING:
    from intrigue.studies.base import Study

STUDIES: Registry[Study] = Registry("study", "intrigue.studies", plural="studies")
register_study = STUDIES.register
